// Several threads and several modules: the same answers to the bit, what is chosen and why, and what is left of the workers.

import assert from "node:assert/strict";
import fs from "node:fs";
import { after, before, test } from "node:test";
import { MODEL, at, launch, openApi, setUp } from "./helpers.mjs";
import { STRICT, site, visit } from "./site.mjs";

const VARIANTS = ["simd128", "relaxed", "simd128-threads", "relaxed-threads"];
const ISOLATED = { "cross-origin-opener-policy": "same-origin", "cross-origin-embedder-policy": "require-corp" };

let world;
before(async () => void (world = await setUp()));
after(() => world.close());

/** What a model says, as bits; run on a page that has the package. */
async function answers(page, variant, threads) {
  return page.evaluate(async ([variant, threads]) => {
    const options = { contextLength: 512, ...(threads && { threads }) };
    const model = await (variant === null ? rillm.load(MODEL, options) : testing.loadVariant(MODEL, variant, options));
    const { tokens, logprobs, metrics } = await model.complete("The capital of France is", { temperature: 0, maxTokens: 40, logprobs: true, ignoreEos: true }).result;
    const long = await model.tokenize("Rivers carry water from the mountains to the sea, and people have always lived beside them. ".repeat(12));
    const score = await model.score(long);
    const { info } = model;
    model.dispose();
    return { tokens, logprobs, scored: [...score.logprobs], info, metrics };
  }, [variant, threads]);
}

test("every module, on one thread or on three, gives the same tokens and the same log-probabilities", { timeout: 300e3 }, async (t) => {
  const page = await openApi(world);
  let right = null;
  for (const [variant, threads] of [["simd128"], ["relaxed"], ["simd128-threads", 2], ["relaxed-threads", 2], ["relaxed-threads", 3], [null, 8]]) {
    const seen = await answers(page, variant, threads);
    const { simd, threads: used, backendReason } = seen.info;
    t.diagnostic(`${variant} ${used}: ${seen.metrics.decodeTokensPerSecond.toFixed(1)} tokens/s; ${backendReason}`);
    assert.equal(simd, variant?.startsWith("simd128") ? "simd128" : "relaxed");
    assert.equal(used, threads ?? 1);
    right ??= seen;
    assert.deepEqual(seen.tokens, right.tokens);
    assert.deepEqual(seen.logprobs, right.logprobs);
    assert.deepEqual(seen.scored, right.scored);
  }
  await page.context().close();
});

test("an isolated page gets as many threads as help, and is told so; a thread that is asked for is one", async () => {
  const page = await openApi(world);
  const [free, one] = await page.evaluate(async () => {
    const infos = [];
    for (const options of [{}, { threads: 1 }]) {
      const model = await rillm.load(MODEL, { contextLength: 256, ...options });
      infos.push(model.info);
      model.dispose();
    }
    return infos;
  });
  const processors = await page.evaluate(() => navigator.hardwareConcurrency);
  const { helpful } = await import(at("pkg/variant.js"));
  assert.equal(free.threads, helpful(processors));
  assert.ok(free.backendReason.includes(`on ${processors} processors`) || processors === 1, free.backendReason);
  assert.deepEqual([one.threads, /One thread: that was asked for\.$/.test(one.backendReason)], [1, true], one.backendReason);
  await page.context().close();
});

test("how many threads help", async () => {
  const { helpful } = await import(at("pkg/variant.js"));
  assert.deepEqual([0, 1, 2, 3, 4, 6, 8, 16, 64].map(helpful), [1, 1, 2, 1, 2, 3, 4, 8, 8]);
});

test("disposing of a model ends the workers of its threads", async (t) => {
  const page = await openApi(world);
  const held = () => page.evaluate(async () => (await navigator.locks.query()).held.filter(({ name }) => name.startsWith("rillm-")).length);
  await page.evaluate(async () => void (window.model = await rillm.load(MODEL, { contextLength: 256, threads: 3 })));
  assert.equal(await held(), 3);
  // At rest after some work: at once.
  await page.evaluate(async () => {
    await model.complete("The capital of France is", FAST).result;
    await new Promise((resolve) => setTimeout(resolve, 300));
    model.dispose();
  });
  const gone = async () => {
    const start = performance.now();
    while ((await held()) > 0 && performance.now() - start < 10e3) await new Promise((resolve) => setTimeout(resolve, 20));
    return performance.now() - start;
  };
  const rested = await gone();
  assert.ok(rested < 1000, `${rested} ms`);
  // In the middle of an answer: soon.
  await page.evaluate(async () => {
    const model = await rillm.load(MODEL, { contextLength: 2048, threads: 3 });
    for await (const { tokens } of model.complete("Once upon a time", { maxTokens: 1500, ignoreEos: true })) if (tokens.length > 0) break;
    const answer = model.complete("Once upon a time", { maxTokens: 1500, ignoreEos: true });
    answer.result.catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, 500));
    model.dispose();
  });
  const worked = await gone();
  t.diagnostic(`workers gone after ${rested.toFixed(0)} ms at rest, ${worked.toFixed(0)} ms at work`);
  assert.ok(worked < 5000, `${worked} ms`);
  await page.context().close();
});

/** Loads on a page of a site, and answers. */
const told = (page, options = {}) => page.evaluate(async ([url, options]) => {
  const { load } = await import("/pkg/index.js");
  const model = await load(url, { contextLength: 256, cache: false, ...options });
  const { text } = await model.complete("The capital of France is", { temperature: 0, maxTokens: 8 }).result;
  const { info } = model;
  model.dispose();
  return { info, text };
}, [`/models/${MODEL}`, options]);

const BLANK = "<!doctype html><title>blank</title>";

test("a page without the headers works on one thread and says why; with them and a strict policy it has threads", async () => {
  let headers = {};
  const place = await site({ texts: { "/": BLANK }, headers: () => headers });
  const browser = await launch();
  try {
    for (const threads of [undefined, 4]) {
      const { info, text } = await told(await visit(browser, `${place.url}/`), threads && { threads });
      assert.match(text, /Paris/);
      assert.deepEqual([info.threads, info.simd], [1, "relaxed"]);
      assert.match(info.backendReason, /not cross-origin isolated/);
    }
    headers = { ...ISOLATED, "content-security-policy": STRICT };
    const said = [];
    const { info, text } = await told(await visit(browser, `${place.url}/`, { said }), { threads: 2 });
    assert.match(text, /Paris/);
    assert.deepEqual([info.threads, said], [2, []], info.backendReason);
  } finally {
    await browser.close();
    await place.close();
  }
});

test("where the threads do not start, one thread answers, and the reason is told", async () => {
  const texts = { "/": BLANK, "/none.js": `if (self.name === "rillm-thread") throw new Error("no threads today");`, "/alone.js": `import "/none.js"; import "/pkg/worker.js";` };
  const place = await site({ texts, headers: () => ISOLATED });
  const browser = await launch();
  try {
    const { info, text } = await told(await visit(browser, `${place.url}/`), { threads: 2, workerUrl: "/alone.js" });
    assert.match(text, /Paris/);
    assert.equal(info.threads, 1);
    assert.match(info.backendReason, /could not be started.*no threads today/);
  } finally {
    await browser.close();
    await place.close();
  }
});

test("the service worker of the package isolates a page whose host sends no headers", async () => {
  const place = await site({ texts: { "/": BLANK, "/isolation-worker.js": fs.readFileSync(at("pkg/isolation-worker.js"), "utf8") } });
  const browser = await launch();
  try {
    const page = await visit(browser, `${place.named}/`);
    assert.equal(await page.evaluate(() => crossOriginIsolated), false);
    await page.evaluate(async () => {
      await navigator.serviceWorker.register("/isolation-worker.js");
      await navigator.serviceWorker.ready;
      if (navigator.serviceWorker.controller === null) await new Promise((done) => navigator.serviceWorker.addEventListener("controllerchange", done));
    });
    await page.reload();
    assert.equal(await page.evaluate(() => crossOriginIsolated), true);
    const { info, text } = await told(page, { threads: 2 });
    assert.match(text, /Paris/);
    assert.equal(info.threads, 2, info.backendReason);
  } finally {
    await browser.close();
    await place.close();
  }
});

test("the modules are four files, and a load fetches one", () => {
  assert.deepEqual(fs.readdirSync(at("pkg")).filter((name) => name.endsWith(".wasm")).sort(), VARIANTS.map((name) => `rillm_${name.replace("-", "_")}_bg.wasm`).sort());
});

test("nothing went unhandled", () => assert.deepEqual(world.errors, []));
