// Loading: every kind of source, the cache, aborts, and everything that is no model.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { GEMMA, MODEL, MODEL_BYTES, openApi, setUp } from "./helpers.mjs";

let world, page;
before(async () => void (world = await setUp()));
after(() => world.close());
beforeEach(async () => {
  await page?.context().close();
  page = await openApi(world); // a context of its own has a cache of its own
});

test("URL, string, File, Blob, ArrayBuffer and Uint8Array give the same model", async () => {
  const infos = await page.evaluate(async () => {
    const bytes = await (await fetch(MODEL)).arrayBuffer();
    const blob = new Blob([bytes]);
    const sources = [MODEL, new URL(MODEL, location.href), new File([blob], "model.gguf"), blob, bytes, new Uint8Array(bytes)];
    const infos = [];
    for (const source of sources) {
      const model = await rillm.load(source, { contextLength: 512, cache: false });
      const { text } = await model.complete("The capital of France is", FAST).result;
      infos.push({ ...model.info, text });
      model.dispose();
    }
    if (bytes.byteLength === 0) throw new Error("the caller's buffer was taken away");
    return infos;
  });
  for (const { memoryBytes, ...info } of infos) {
    const { memoryBytes: first, ...expected } = infos[0];
    assert.deepEqual(info, expected);
    assert.ok(Math.abs(memoryBytes - first) < 16e6 && memoryBytes > MODEL_BYTES / 2, `${memoryBytes} against ${first}`);
  }
  const { text, memoryBytes, ...info } = infos[0];
  assert.equal(info.architecture, "llama");
  assert.equal(info.bytes, MODEL_BYTES);
  assert.equal(info.contextLength, 512);
  assert.ok(info.trainedContextLength >= 2048 && info.deviceBytes > MODEL_BYTES / 2 && info.deviceBytes < memoryBytes, JSON.stringify(info));
  assert.equal(info.vocabSize, 49152);
  assert.equal(info.hasChatTemplate, true);
  assert.deepEqual([info.backend, info.adapter], ["wasm", null]);
  assert.ok(info.threads >= 1 && info.threads <= 8, String(info.threads));
  assert.match(info.backendReason, /\w+ \w+.*\.$/);
  assert.match(info.simd, /^(relaxed|simd128)$/);
  assert.match(text, /Paris/);
});

test("a cache of eight bits takes half the memory of f16's and gives an answer; another type is refused", async () => {
  const seen = await page.evaluate(async () => {
    const models = [];
    for (const options of [{}, { kvType: "f16" }, { kvType: "q8_0" }]) {
      const model = await rillm.load(MODEL, { contextLength: 2048, ...options });
      const { text } = await model.complete("The capital of France is", FAST).result;
      models.push({ text, type: model.info.kvType, bytes: model.info.deviceBytes, memory: model.info.memoryBytes });
      model.dispose();
    }
    const odd = [];
    for (const kvType of ["q4_0", "", "F16", null, 8, ["f16"]]) odd.push(await rillm.load(MODEL, { kvType }).then(() => "no error", (error) => `${error.code}: ${error.message}`));
    return { models, odd };
  });
  const [plain, f16, q8] = seen.models;
  assert.deepEqual(seen.models.map(({ type }) => type), ["f16", "f16", "q8_0"]);
  assert.deepEqual([plain.text, plain.bytes], [f16.text, f16.bytes]);
  assert.match(q8.text, /Paris/);
  assert.equal(f16.bytes - q8.bytes, 2048 * (23_040 - 12_240)); // what the README says of a token
  assert.ok(f16.memory - q8.memory > 2048 * (23_040 - 12_240) / 2, `${q8.memory} of ${f16.memory} bytes`);
  for (const refusal of seen.odd) assert.match(refusal, /^bad-option: kvType must be "f16" or "q8_0", not /);
});

test("what comes from a frame is as good as the page's own, and bytes that can't be read are refused", async () => {
  const codes = await page.evaluate(async () => {
    const frame = document.createElement("iframe");
    document.body.append(frame);
    const F = frame.contentWindow;
    const gone = new Uint8Array(8);
    structuredClone(gone, { transfer: [gone.buffer] });
    const of = (source, options) => codeOf(rillm.load(source, options));
    const sources = [new F.Blob(["GGUF"]), new F.File(["GGUF"], "x"), new F.Uint8Array(F.Array.from("GGUF", (c) => c.charCodeAt(0))), new F.URL("/nowhere.gguf", location.href)];
    const own = new F.AbortController();
    own.abort(new Error("mine"));
    return {
      frame: await Promise.all(sources.map((source) => of(source))),
      signal: await of(MODEL, { signal: own.signal }),
      odd: await Promise.all([of(gone), of(new ArrayBuffer(8, { maxByteLength: 16 })), of(new Uint8Array(new SharedArrayBuffer(8))), of(MODEL, { signal: { aborted: false, addEventListener() {} } })]),
    };
  });
  assert.deepEqual(codes, { frame: ["truncated", "truncated", "truncated", "network"], signal: "Error: mine", odd: ["not-gguf", "bad-option", "bad-option", "bad-option"] });
});

test("progress comes at a pace one can draw, ends at 100 %, and the second load is from the cache", async () => {
  const from = world.requests.length;
  const loads = await page.evaluate(async () => {
    const loads = [];
    for (let i = 0; i < 2; i++) {
      const events = [], start = performance.now();
      const model = await rillm.load(MODEL, { onProgress: (p) => events.push(p) });
      loads.push({ events, ms: performance.now() - start, warnings: model.warnings });
      model.dispose();
    }
    return loads;
  });
  for (const [i, { events, ms, warnings }] of loads.entries()) {
    const phase = ["download", "cache"][i];
    assert.deepEqual([...new Set(events.map((e) => e.phase))], [phase]);
    assert.deepEqual(warnings, []);
    assert.ok(events.length <= ms / 50 + 3, `${events.length} events in ${ms} ms`);
    assert.ok(events.every((e, j) => j === 0 || e.loaded >= events[j - 1].loaded));
    const last = events.at(-1);
    assert.deepEqual([last.loaded, last.total, last.etaMs], [MODEL_BYTES, MODEL_BYTES, 0]);
    assert.ok(events.length < 3 || events.some((e) => e.bytesPerSecond > 0));
  }
  assert.equal(world.requests.slice(from).filter((path) => path.startsWith("/models/")).length, 1);
});

test("a model is ready a moment after its last byte: rows are packed as they arrive", async () => {
  for (const [file, most] of [[MODEL, 300], [GEMMA, 600]]) {
    const waits = [];
    for (let i = 0; i < 3; i++) {
      const ready = await page.evaluate(async (url) => {
        const model = await rillm.load(url, { backend: "wasm", cache: false, contextLength: 2048 });
        const ready = Date.now();
        model.dispose();
        return ready;
      }, `/models/${file}`);
      waits.push(ready - world.sent.get(`/models/${file}`));
    }
    const wait = waits.sort((a, b) => a - b)[1];
    assert.ok(wait < most, `${file}: ${waits.join(", ")} ms`);
    console.log(`${file}: ready ${wait} ms after the last byte`);
  }
});

test("a server that does not say how long the file is", async () => {
  const last = await page.evaluate(async () => {
    let last;
    (await rillm.load("/odd/no-length", { onProgress: (p) => ((last ??= p).total ??= p.total, (last = p)) })).dispose();
    let again;
    (await rillm.load("/odd/no-length", { onProgress: (p) => (again = p) })).dispose();
    return [last, again];
  });
  assert.deepEqual(last.map((p) => [p.phase, p.loaded]), [["download", MODEL_BYTES], ["cache", MODEL_BYTES]]);
});

for (const [what, url, code, words] of [
  ["an HTML page", "/odd/html", "not-gguf", /HTML/i],
  ["an empty file", "/odd/empty", "not-gguf", /empty/i],
  ["a missing file", "/odd/nothing", "network", /404.*\/odd\/nothing/],
  ["a file that lacks its last byte", "/odd/truncated", "truncated", /./],
  ["half a file", `/odd/truncated?bytes=${MODEL_BYTES >> 1}`, "truncated", /./],
  ["a file cut right after its header", "/odd/truncated?bytes=1900000", "truncated", /./],
  ["a download that breaks off", "/odd/broken", "network", /broke off after \d+ of \d+ bytes/],
  ["a server that is not there", "http://127.0.0.1:9/model.gguf", "network", /127\.0\.0\.1:9.*could not be fetched/],
]) {
  test(`${what} is refused by name, is not kept, and a good load works afterwards`, async () => {
    const seen = await page.evaluate(async (url) => {
      const error = await rillm.load(url).then(() => null, (e) => ({ ours: e instanceof rillm.RillmError, name: e.name, code: e.code, message: e.message }));
      const kept = [];
      for (const name of await caches.keys()) for (const { url } of await (await caches.open(name)).keys()) kept.push(url);
      const model = await rillm.load(MODEL, { contextLength: 256 });
      const { tokens } = await model.complete("Hello", FAST).result;
      model.dispose();
      return { error, kept, made: tokens.length };
    }, url);
    assert.deepEqual({ ours: seen.error.ours, name: seen.error.name, code: seen.error.code }, { ours: true, name: "RillmError", code }, seen.error.message);
    assert.match(seen.error.message, words);
    assert.deepEqual(seen.kept, []);
    assert.ok(seen.made > 0);
  });
}

test("an entry of the cache that is bad is dropped and fetched anew", async () => {
  const phases = await page.evaluate(async () => {
    const phases = new Set();
    (await rillm.load(MODEL)).dispose();
    const cache = await caches.open((await caches.keys())[0]);
    const bytes = await (await fetch(MODEL)).arrayBuffer();
    await cache.put(MODEL, new Response(bytes.slice(0, bytes.byteLength >> 1)));
    (await rillm.load(MODEL, { onProgress: (p) => phases.add(p.phase) })).dispose();
    return [...phases];
  });
  assert.deepEqual(phases, ["cache", "download"]);
});

test("an entry of the cache stays where something else than the file is refused", async () => {
  const from = world.requests.length;
  const seen = await page.evaluate(async () => {
    (await rillm.load(MODEL)).dispose();
    const code = await codeOf(rillm.load(MODEL, { contextLength: 1_000_000 }));
    const phases = new Set();
    (await rillm.load(MODEL, { onProgress: (p) => phases.add(p.phase) })).dispose();
    return { code, phases: [...phases] };
  });
  assert.deepEqual(seen, { code: "bad-option", phases: ["cache"] });
  assert.equal(world.requests.slice(from).filter((path) => path.startsWith("/models/")).length, 1);
});

test("an entry of the cache that can't be read is fetched anew", async () => {
  const phases = await page.evaluate(async () => {
    const phases = new Set();
    (await rillm.load(MODEL)).dispose();
    const options = { workerUrl: "/odd/worker-bad-disk.js", wasmUrl: "/pkg/", onProgress: (p) => phases.add(p.phase) };
    (await rillm.load(MODEL, options)).dispose();
    return [...phases];
  });
  assert.deepEqual(phases, ["cache", "download"]);
});

test("what is wrong with a file is said with its name", async () => {
  const messages = await page.evaluate(async () => {
    const of = (source) => rillm.load(source, { cache: false }).then(() => "no error", (error) => error.message);
    return Promise.all([of("/odd/html"), of("/odd/truncated?bytes=1900000"), of(new File(["no model"], "notes.txt")), of(new Blob(["no model"]))]);
  });
  const [html, short, file, blob] = messages;
  assert.match(html, /^http:\/\/127\.0\.0\.1:\d+\/odd\/html: .*HTML/i);
  assert.match(short, /\/odd\/truncated\?bytes=1900000: ./);
  assert.match(file, /^notes\.txt: ./);
  assert.doesNotMatch(blob, /^(undefined|blob)/);
});

for (const stub of ["no-cache", "quota", "quota-later"]) {
  test(`a cache that fails (${stub}) is a warning, not an error, and costs no second download`, async () => {
    const from = world.requests.length;
    const warnings = await page.evaluate(async (stub) => {
      const model = await rillm.load(MODEL, { workerUrl: `/odd/worker-${stub}.js`, wasmUrl: "/pkg/" });
      const { tokens } = await model.complete("Hello", FAST).result;
      if (tokens.length === 0) throw new Error("no token");
      model.dispose();
      return model.warnings;
    }, stub);
    assert.deepEqual(warnings.map((w) => w.code), ["cache-unavailable"]);
    assert.equal(world.requests.slice(from).filter((path) => path.startsWith("/models/")).length, 1);
  });
}

test("an abort at any moment rejects with its reason, stops the download, and leaves nothing behind", async () => {
  for (const share of [-1, 0, 0.4, 0.99]) {
    const cutBefore = world.cut.length;
    const seen = await page.evaluate(async (share) => {
      const abort = new AbortController();
      let at = 0;
      const onProgress = ({ loaded, total }) => {
        if (total && loaded / total >= share && !abort.signal.aborted) (at = performance.now()), abort.abort();
      };
      if (share < 0) (at = performance.now()), abort.abort();
      const error = await rillm.load("/odd/slow?ms=10", { signal: abort.signal, onProgress }).then(() => null, (e) => e);
      const kept = await caches.match("/odd/slow?ms=10");
      return { name: error?.name, same: error === abort.signal.reason, ms: performance.now() - at, kept: kept !== undefined };
    }, share);
    assert.deepEqual([seen.name, seen.same, seen.kept], ["AbortError", true, false], `at ${share}`);
    assert.ok(seen.ms < 1000, `${seen.ms} ms at ${share}`);
    if (share < 0 || share > 0.9) continue;
    for (let i = 0; i < 20 && world.cut.length === cutBefore; i++) await page.waitForTimeout(100);
    assert.ok(world.cut.length > cutBefore, `the download went on at ${share}`);
  }
  assert.equal(await page.evaluate(async () => (await rillm.load("/odd/slow?ms=0")).info.architecture), "llama");
});

test("a worker or a wasm file that is not there is said so", async () => {
  const codes = await page.evaluate(async () => [
    await codeOf(rillm.load(MODEL, { workerUrl: "/odd/nothing.js" })),
    await codeOf(rillm.load(MODEL, { workerUrl: "http://localhost:1/worker.js" })),
    await codeOf(rillm.load(MODEL, { wasmUrl: "/odd/nothing.wasm" })),
    await codeOf(rillm.load(MODEL, { onProgress: () => { throw new RangeError("mine"); } })),
    await rillm.load(MODEL, { onProgress: () => { throw undefined; } }).then(() => "no error", (error) => String(error)),
  ]);
  assert.deepEqual(codes, ["no-worker", "no-worker", "no-wasm", "RangeError: mine", "undefined"]);
});

for (const [what, script] of [["says nothing", "unrelated"], ["says something else", "chatty"]]) {
  test(`a worker that is another script, and ${what}, is refused after a while`, async () => {
    const late = await world.open("/blank");
    await late.clock.install();
    await late.evaluate(async (script) => {
      const { load } = await import("/pkg/index.js");
      window.ended = null;
      load("/models/x.gguf", { workerUrl: `/odd/stub-${script}.js` }).catch((error) => (window.ended = `${error.code}: ${error.message}`));
    }, script);
    await late.clock.runFor(20_000);
    assert.equal(await late.evaluate(() => window.ended), null); // a slow connection has its time
    await late.clock.runFor(11_000);
    assert.match(await late.evaluate(() => window.ended), new RegExp(`^no-worker: .*/odd/stub-${script}\\.js was started, but is not the package's worker`));
    await late.context().close();
  });
}

test("it works under a strict policy, without blob: workers", async () => {
  const strict = await openApi(world, { path: "/strict", load: {} });
  assert.match(await strict.evaluate(async () => (await model.complete("The capital of France is", FAST).result).text), /Paris/);
  await strict.context().close();
});

test("nothing went unhandled", () => assert.deepEqual(world.errors, []));
