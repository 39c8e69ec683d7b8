// Where the package runs besides a page, where it cannot, what happens when the worker is gone, and whether results outlive the memory they came from.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { MODEL, launch } from "./helpers.mjs";
import { site, visit } from "./site.mjs";

const MODEL_URL = `/models/${MODEL}`;
/** A test that hangs is a test that fails. */
const LIMIT = { timeout: 90e3 };
const BLANK = "<!doctype html><title>blank</title>";
/** Loads and answers, or says why not; for any global scope. */
const TRY = `
  import { load } from "/pkg/index.js";
  export async function attempt() {
    const start = performance.now();
    try {
      const model = await load("${MODEL_URL}", { contextLength: 256, cache: false });
      const { text, tokens } = await model.complete("The capital of France is", { temperature: 0, maxTokens: 8 }).result;
      const again = await model.complete("One, two, three,", { temperature: 0, maxTokens: 8 }).result;
      model.dispose();
      return { text, tokens: tokens.length + again.tokens.length, code: await model.tokenize("x").catch((error) => error.code) };
    } catch (error) {
      return { code: error.code, message: error.message, ms: performance.now() - start };
    }
  }`;

let world, browser, page;
const errors = [];
before(async () => {
  const texts = {
    "/": BLANK,
    "/try.js": TRY,
    "/nested.js": `import { attempt } from "./try.js"; postMessage(await attempt());`,
    "/service.js": `import { attempt } from "./try.js"; addEventListener("message", (event) => event.waitUntil(attempt().then((seen) => event.source.postMessage(seen))));`,
    "/sandboxed": `<!doctype html><title>sandboxed</title><script type="module">import { attempt } from "./try.js"; parent.postMessage(await attempt(), "*");</script>`,
    "/mortal.js": `import "./death.js"; import "./pkg/worker.js";`,
    "/death.js": `const death = new BroadcastChannel("death"); death.onmessage = () => (death.postMessage("dead"), close());`,
    "/lockless.js": `import "./no-locks.js"; import "./pkg/worker.js";`,
    "/no-locks.js": `Object.defineProperty(navigator, "locks", { value: undefined });`,
  };
  world = await site({ texts, headers: () => ({ "access-control-allow-origin": "*" }) });
  browser = await launch();
  page = await visit(browser, `${world.url}/`, { errors });
  await page.evaluate(async (url) => {
    window.MODEL = url;
    window.rillm = await import("/pkg/index.js");
    window.FAST = { temperature: 0, maxTokens: 8 };
    window.codeOf = (promise) => {
      const hang = new Promise((resolve) => setTimeout(resolve, 8000, "hangs"));
      return Promise.race([promise.then(() => "no error", (error) => error.code), hang]);
    };
  }, MODEL_URL);
});
after(async () => {
  await browser?.close();
  await world?.close();
});

test("B108: a dedicated worker can load a model, in a worker of its own", LIMIT, async () => {
  const seen = await page.evaluate(() => new Promise((resolve, reject) => {
    const worker = new Worker("/nested.js", { type: "module" });
    worker.onmessage = ({ data }) => (worker.terminate(), resolve(data));
    worker.onerror = (event) => reject(new Error(event.message));
  }));
  assert.match(seen.text ?? seen.message, /Paris/);
  assert.deepEqual([seen.tokens, seen.code], [16, "disposed"]);
});

test("B108: a service worker, which has no workers, is refused at once", LIMIT, async () => {
  const seen = await page.evaluate(async () => {
    const registration = await navigator.serviceWorker.register("/service.js", { type: "module" });
    const worker = registration.installing ?? registration.waiting ?? registration.active;
    if (worker.state !== "activated") await new Promise((resolve) => (worker.onstatechange = () => worker.state === "activated" && resolve()));
    const answer = new Promise((resolve) => (navigator.serviceWorker.onmessage = ({ data }) => resolve(data)));
    navigator.serviceWorker.startMessages();
    worker.postMessage("go");
    const seen = await answer;
    await registration.unregister();
    return seen;
  });
  assert.equal(seen.code, "no-worker", seen.message);
  assert.match(seen.message, /service worker/);
  assert.ok(seen.ms < 5000);
});

test("a sandboxed frame, which has no worker of its own origin, is refused at once", LIMIT, async () => {
  const seen = await page.evaluate(() => new Promise((resolve) => {
    addEventListener("message", ({ data }) => resolve(data), { once: true });
    const frame = document.createElement("iframe");
    frame.sandbox = "allow-scripts";
    frame.src = "/sandboxed";
    document.body.append(frame);
  }));
  assert.equal(seen.code, "no-worker", seen.message);
  assert.match(seen.message, /own origin/);
  assert.ok(seen.ms < 5000);
});

test("B108: a worker that the browser ended rejects what waits and whatever comes, within two seconds", LIMIT, async () => {
  const seen = await page.evaluate(async () => {
    const death = new BroadcastChannel("death");
    /** Ends the worker: after this it handles no message any more, and no event says so. */
    const kill = () => new Promise((resolve) => ((death.onmessage = resolve), death.postMessage("die")));
    const open = (more) => rillm.load(MODEL, { contextLength: 256, workerUrl: "/mortal.js", wasmUrl: "/pkg/", ...more });
    const timed = async (promise) => {
      const start = performance.now();
      return { code: await codeOf(promise), ms: performance.now() - start };
    };
    const idle = await open();
    await idle.complete("Hello", FAST).result;
    await kill();
    const between = [await timed(idle.tokenize("x")), await timed(idle.complete("x", FAST).result)];

    const busy = await open();
    const stream = busy.complete("Once upon a time", { temperature: 0, maxTokens: 200, ignoreEos: true });
    const later = busy.score([1, 2, 3]);
    later.catch(() => undefined); // the lock may be free before the worker's last message is here
    const pieces = stream[Symbol.asyncIterator]();
    await pieces.next();
    await kill();
    const rest = (async () => { while (!(await pieces.next()).done); })();
    const during = [await timed(stream.result), await timed(rest), await timed(later), await timed(busy.tokenize("x"))];

    let killed;
    const loading = await timed(open({ cache: false, onProgress: () => (killed ??= kill()) }));
    const fresh = await open();
    const { text } = await fresh.complete("The capital of France is", FAST).result;
    fresh.dispose();
    const disposed = await codeOf(fresh.tokenize("x"));
    await new Promise((resolve) => setTimeout(resolve, 200));
    const { held, pending } = await navigator.locks.query();
    return { between, during, loading, text, disposed, locks: held.length + pending.length };
  });
  for (const { code, ms } of [...seen.between, ...seen.during, seen.loading]) {
    assert.equal(code, "worker-died", JSON.stringify(seen));
    assert.ok(ms < 2000, `${ms} ms`);
  }
  assert.match(seen.text, /Paris/);
  assert.equal(seen.disposed, "disposed");
  assert.equal(seen.locks, 0, "locks are left behind");
});

test("without locks all else works", LIMIT, async () => {
  const text = await page.evaluate(async () => {
    const model = await rillm.load(MODEL, { contextLength: 256, workerUrl: "/lockless.js", wasmUrl: "/pkg/" });
    const { text } = await model.complete("The capital of France is", FAST).result;
    model.dispose();
    return text;
  });
  assert.match(text, /Paris/);
});

test("B109: what was handed out stays as it was when the memory grows", LIMIT, async () => {
  const seen = await page.evaluate(async () => {
    const model = await rillm.load(MODEL, { contextLength: 2048 });
    const kept = [];
    const keep = (value) => kept.push([value, structuredClone(value)]);
    const stream = model.complete("Once upon a time", { temperature: 0, maxTokens: 12, logprobs: true, chunkSize: 1 });
    for await (const chunk of stream) keep(chunk);
    keep(await stream.result);
    const few = await model.tokenize("A small river flows into a larger one.");
    keep(few);
    keep(await model.score(few));
    const before = model.info.memoryBytes;
    const many = Array.from({ length: 200 }, (_, i) => few[i % few.length]);
    const score = await model.score(many);
    const long = await model.complete("A river, ".repeat(200), { temperature: 0, maxTokens: 4, chunkSize: 1024 }).result;
    // How much of what a load borrowed is free again depends on how its bytes came: more text, until it is used up.
    let ids, repeats = 1 << 17;
    do ids = await model.tokenize("A river, ".repeat(repeats *= 2));
    while (model.info.memoryBytes === before && repeats < 1 << 21);
    const after = model.info.memoryBytes;
    model.dispose();
    const same = kept.map(([value, copy]) => JSON.stringify(value) === JSON.stringify(copy));
    const own = [score.logprobs, score.topIds, score.topLogprobs].map((array) => [array.constructor.name, array.length, array.buffer.byteLength === array.byteLength]);
    return { same, before, after, own, prompt: long.usage.promptTokens, ids: ids.length / repeats, finite: score.logprobs.every(Number.isFinite), logprobs: kept[0][0].logprobs };
  });
  assert.ok(seen.after > seen.before, `the memory did not grow: ${seen.before} to ${seen.after} bytes`);
  assert.ok(seen.same.length > 10 && seen.same.every(Boolean), JSON.stringify(seen.same));
  assert.deepEqual(seen.own, [["Float32Array", 199, true], ["Uint32Array", 199, true], ["Float32Array", 199, true]]);
  assert.ok(seen.prompt >= 600 && seen.ids >= 3 && seen.finite && seen.logprobs.length > 0);
});

test("nothing went unhandled", () => assert.deepEqual(errors, []));
