// Chat and complete through the package: streams, options, aborts, the queue, the end.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openApi, setUp } from "./helpers.mjs";

let world, page;
before(async () => {
  world = await setUp();
  page = await openApi(world, { load: { contextLength: 1024 } });
});
after(() => world.close());
/** Runs on the page; the engine must be usable after it. */
const run = async (what, ...args) => {
  const value = await page.evaluate(what, ...args);
  const text = await page.evaluate(async () => (await model.complete("The capital of France is", FAST).result).text);
  assert.match(text, /Paris/, "the engine is not as it was");
  return value;
};

test("ten lines give an answer that streams", async () => {
  const seen = await run(async () => {
    const stream = model.chat([{ role: "user", content: "What is photosynthesis?" }], { temperature: 0, repetitionPenalty: 1.1 });
    return collect(stream);
  });
  assert.equal(seen.joined, seen.result.text);
  assert.deepEqual(seen.made, seen.result.tokens);
  assert.equal(seen.result.tokens.length, seen.result.usage.completionTokens);
  assert.ok(seen.chunks.length > 3);
  assert.match(seen.joined, /plants/);
  // The end token is counted, and never shown.
  assert.deepEqual([seen.result.finishReason, seen.result.stopDetail.kind, seen.result.tokens.at(-1)], ["stop", "eos", 2]);
  assert.doesNotMatch(seen.joined, /<\|im_/);
});

test("the history of a second turn is read from the cache, and the speeds count only what was done", async () => {
  const { first, second } = await run(async () => {
    const question = { role: "user", content: `Name a colour. ${"Please think about it with great care. ".repeat(8)}` };
    const first = await model.chat([question], { temperature: 0, maxTokens: 40 }).result;
    const messages = [question, { role: "assistant", content: first.text }, { role: "user", content: "Another one?" }];
    return { first, second: await model.chat(messages, { temperature: 0, maxTokens: 10 }).result };
  });
  const { usage, metrics } = second;
  assert.ok(usage.promptTokens > first.usage.promptTokens && usage.cachedTokens >= first.usage.promptTokens - 1, JSON.stringify(usage));
  assert.equal(metrics.prefillTokens, usage.promptTokens - usage.cachedTokens);
  assert.ok(Math.abs(metrics.prefillTokensPerSecond - (metrics.prefillTokens * 1000) / metrics.prefillMs) < 1e-6);
  assert.equal(metrics.decodeTokens, usage.completionTokens - 1);
  assert.ok(Math.abs(metrics.decodeTokensPerSecond - (metrics.decodeTokens * 1000) / metrics.decodeMs) < 1e-6);
});

test("characters are never cut, in any script", async () => {
  const text = "안녕하세요 세계 · 你好，世界 · 𠮷野家 · Ѓ";
  const seen = await run(async (text) => {
    const ids = await model.tokenize(text);
    return { ids, back: await model.detokenize(ids), ...(await collect(testing.completeScripted(model, ids))) };
  }, text);
  assert.equal(seen.back, text);
  assert.equal(seen.joined, text);
  assert.equal(seen.result.text, text);
  assert.deepEqual(seen.made, seen.ids);
  assert.ok(seen.chunks.length === seen.ids.length && seen.ids.length > 20, "every token has its chunk");
  for (const { text } of seen.chunks) assert.ok(!text.includes("\uFFFD") && text.isWellFormed(), JSON.stringify(text));
});

test("odd strings are texts like any other", async () => {
  const seen = await run(async () => {
    const ids = async (text) => JSON.stringify(await model.tokenize(text));
    return {
      high: (await ids("\uD83D")) === (await ids("\uFFFD")),
      low: (await ids("a\uDC4Db")) === (await ids("a\uFFFDb")),
      accent: await model.detokenize(await model.tokenize("limón")),
      zero: (await model.tokenize("\u0000")).length,
      empty: await model.tokenize(""),
      long: (await model.tokenize("é".repeat(500_000))).length,
      codes: [await codeOf(model.tokenize(5)), await codeOf(model.tokenize("x", { spezial: true })), await codeOf(model.detokenize([1e9])), await codeOf(model.detokenize([-1]))],
      options: [(await model.tokenize("x", null)).length, (await model.tokenize("x", { special: null })).length],
      odd: await Promise.all([5, "special", [], { special: 1n }, { special: Symbol("x") }].map((options) => codeOf(model.tokenize("x", options)))),
      ids: await Promise.all([[1n], new BigUint64Array(1), [undefined], [Symbol("x")], { length: 1e300 }, { length: -1 }, { length: "1" }, null].map((ids) => codeOf(model.detokenize(ids)))),
    };
  });
  const { odd, ids, ...rest } = seen;
  assert.deepEqual(odd, new Array(5).fill("bad-option"));
  assert.deepEqual(ids, ["bad-token", "bad-token", "bad-token", "bad-token", "bad-token", 'no error: ""', "bad-token", "bad-token"]);
  assert.deepEqual({ ...rest, zero: 0, long: 0 }, { high: true, low: true, accent: "limón", zero: 0, empty: [], long: 0, codes: ["bad-option", "unknown-option", "bad-token", "bad-token"], options: [1, 1] });
  assert.ok(seen.long >= 1000);
});

test("a stop text ends the work, not only the text", async () => {
  const [short, long] = await run(async () => {
    const ids = await model.tokenize("one two three four five six seven eight nine ten eleven twelve");
    const plain = await model.complete("The capital of France is", { temperature: 0, maxTokens: 40 }).result;
    const word = plain.text.trim().split(/\s+/)[1];
    const runs = [];
    for (const maxTokens of [12, 600]) runs.push(await model.complete("The capital of France is", { temperature: 0, maxTokens, stop: word, reusePrefix: false }).result);
    const scripted = await testing.completeScripted(model, ids, { stop: ["four", "nine"] }).result;
    if (scripted.text !== "one two three " || scripted.stopDetail.match !== "four") throw new Error(JSON.stringify(scripted));
    return runs;
  });
  assert.equal(short.finishReason, "stop");
  assert.equal(long.finishReason, "stop");
  assert.equal(long.stopDetail.kind, "string");
  assert.deepEqual(long.tokens, short.tokens);
  assert.ok(long.metrics.forwardPasses <= long.usage.completionTokens + 1, JSON.stringify(long.metrics));
});

test("each option changes something", async () => {
  const seen = await run(async () => {
    const base = { temperature: 1.5, topK: 0, topP: 1, minP: 0, seed: 1, maxTokens: 16 };
    const ids = async (options) => (await model.complete("Once upon a time", { ...base, ...options }).result).tokens.join();
    const of = async (options) => model.complete("The capital of France is", { temperature: 0, maxTokens: 48, ...options }).result;
    const greedy = await ids({ temperature: 0 }), wild = await ids({});
    const penalised = (await of({ repetitionPenalty: 1.5 })).text, plain = await of({});
    return {
      temperature: greedy !== wild, topK: (await ids({ topK: 1 })) === greedy, topP: (await ids({ topP: 0 })) === greedy, minP: (await ids({ minP: 1 })) === greedy,
      seed: (await ids({ seed: 2 })) !== wild, again: (await ids({})) === wild,
      repetitionPenalty: penalised !== plain.text, repetitionWindow: (await of({ repetitionPenalty: 1.5, repetitionWindow: 0 })).text === plain.text,
      maxTokens: (await of({ maxTokens: 5 })).tokens.length === 5 && (await of({ maxTokens: 5 })).finishReason === "length",
      ignoreEos: [(await testing.completeScripted(model, [28, 2, 30]).result).tokens.length, (await testing.completeScripted(model, [28, 2, 30], { ignoreEos: true }).result).tokens.length].join(),
      reusePrefix: (await of({})).usage.cachedTokens > 0 && (await of({ reusePrefix: false })).usage.cachedTokens === 0,
      chunkSize: (await of({ reusePrefix: false, chunkSize: 1 })).metrics.forwardPasses > plain.metrics.forwardPasses && (await of({ reusePrefix: false, chunkSize: 1 })).text === plain.text,
      logprobs: plain.logprobs === undefined && (await of({ logprobs: true })).logprobs.length === plain.tokens.length,
      special: (await model.complete("<|im_start|>", { ...FAST, special: true }).result).usage.promptTokens === 1 && (await model.complete("<|im_start|>", FAST).result).usage.promptTokens > 1,
      unknown: await codeOf(of({ temprature: 1 })),
    };
  });
  const { ignoreEos, unknown, ...rest } = seen;
  assert.deepEqual(Object.entries(rest).filter(([, works]) => !works), []);
  assert.deepEqual([ignoreEos, unknown], ["2,3", "unknown-option"]);
});

test("log-probabilities come with their tokens", async () => {
  const { chunks, result } = await run(async () => collect(model.complete("Water boils at", { temperature: 0, maxTokens: 12, logprobs: true })));
  assert.deepEqual(chunks.flatMap((c) => c.logprobs), result.logprobs);
  for (const chunk of chunks) assert.equal(chunk.logprobs.length, chunk.tokens.length);
  assert.ok(result.logprobs.every((lp) => lp <= 0 && lp > -20));
});

test("a seed gives the same story, here and in another engine", async () => {
  const seen = await run(async () => {
    const tell = async (m, options) => m.complete("Once upon a time", { maxTokens: 20, ...options }).result;
    const first = await tell(model, {});
    const again = await tell(model, { seed: first.seed });
    await model.chat([{ role: "user", content: "Hi" }], FAST).result;
    const later = await tell(model, { seed: first.seed });
    const other = await rillm.load(MODEL, { contextLength: 512 });
    const fresh = await tell(other, { seed: first.seed });
    other.dispose();
    const codes = [];
    for (const seed of [0, 1, 2 ** 32 - 1, 2 ** 53 - 1, -1, 1.5, 2 ** 64, Number.NaN]) codes.push(await codeOf(tell(model, { seed, maxTokens: 2 }).then((r) => r.seed)));
    return { same: [again, later, fresh].map((r) => r.tokens.join() === first.tokens.join()), seed: first.seed, codes };
  });
  assert.deepEqual(seen.same, [true, true, true]);
  assert.ok(Number.isInteger(seen.seed) && seen.seed >= 0 && seen.seed < 2 ** 32);
  assert.deepEqual(seen.codes, ["no error: 0", "no error: 1", "no error: 4294967295", ...new Array(5).fill("bad-option")]);
});

test("bad options, messages and prompts are refused by name", async () => {
  const codes = await run(async () => {
    const say = [{ role: "user", content: "Hi" }], codes = [];
    for (const options of [
      { temperature: Number.NaN }, { temperature: -1 }, { temperature: "hot" }, { topP: 1.1 }, { topP: -0.1 }, { topK: 1.5 }, { topK: -1 }, { minP: 2 }, { repetitionPenalty: 0 },
      { maxTokens: 0 }, { maxTokens: Number.POSITIVE_INFINITY }, { maxTokens: "5" }, { stop: 5 }, { stop: [""] }, { ignoreEos: 1 }, { signal: "no" }, { temperature: () => 1 }, 5, [],
      { temperature: 1n }, { stop: [1n] }, { stop: [null] }, { seed: Symbol("x") }, { topK: new Date() }, { topP: Object.create(null) }, { signal: Object.create(null) }, { special: true },
    ]) codes.push([Object.keys(Object(options)).join(), await codeOf(model.chat(say, options).result)]);
    const others = [
      await codeOf(model.chat("Hi").result), await codeOf(model.chat([]).result), await codeOf(model.chat([{ role: "user" }]).result), await codeOf(model.chat([{ role: 5, content: "x" }]).result),
      await codeOf(model.chat([{ role: "user", content: () => 1 }]).result), await codeOf(model.complete(5).result),
      await codeOf(model.chat([{ role: "robot", content: "x" }]).result), await codeOf(model.chat([{ role: "user", content: 1n }]).result), await codeOf(model.complete("x", { continueAnswer: true }).result),
      await codeOf(model.complete("word ".repeat(2000)).result), await codeOf(model.chat([{ role: "user", content: "word ".repeat(2000) }]).result),
    ];
    const thrown = await codeOf((async () => { for await (const _ of model.chat(say, { topP: 7 })); })());
    return { codes, others, thrown };
  });
  assert.deepEqual(codes.codes.filter(([, code]) => code !== "bad-option"), []);
  assert.deepEqual(codes.others, ["bad-messages", "bad-messages", "bad-messages", "bad-messages", "bad-messages", "bad-option", "bad-messages", "bad-messages", "bad-option", "prompt-too-long", "prompt-too-long"]);
  assert.equal(codes.thrown, "bad-option");
});

test("the status counts the prompt to its end, however short it is", async () => {
  const seen = await run(async () => {
    const seen = [];
    for (const text of ["Water boils at", "word ".repeat(100)]) {
      const stream = model.complete(text, { temperature: 0, maxTokens: 4, reusePrefix: false });
      const before = stream.status;
      const while_ = [];
      for await (const _ of stream) while_.push(stream.status);
      const { usage } = await stream.result;
      seen.push({ before: [before.phase, before.prefillTotal], first: [while_[0].prefillDone, while_[0].prefillTotal], last: [stream.status.prefillDone, stream.status.prefillTotal], prompt: usage.promptTokens });
    }
    return seen;
  });
  for (const { before, first, last, prompt } of seen) assert.deepEqual({ before, first, last }, { before: ["queued", 0], first: [prompt, prompt], last: [prompt, prompt] });
});

test("an answer that was cut goes on where it ended", async () => {
  const { cut, rest, whole, code } = await run(async () => {
    const messages = [{ role: "user", content: "What is photosynthesis?" }];
    const say = async (messages, options) => (await model.chat(messages, { temperature: 0, ...options }).result).text;
    const whole = await say(messages, { maxTokens: 24 }), cut = await say(messages, { maxTokens: 12 });
    const rest = await say([...messages, { role: "assistant", content: cut }], { maxTokens: 12, continueAnswer: true });
    return { cut, rest, whole, code: await codeOf(model.chat(messages, { continueAnswer: true }).result) };
  });
  assert.ok(cut.length > 20 && rest.length > 20);
  assert.equal(cut + rest, whole);
  assert.equal(code, "bad-messages");
});

test("text parts and proxies are messages too", async () => {
  const texts = await run(async () => {
    const content = "What is the capital city of Japan?", deep = (x) => new Proxy(x, { get: (t, k, r) => { const v = Reflect.get(t, k, r); return typeof v === "object" && v !== null ? deep(v) : v; } });
    const texts = [];
    for (const messages of [[{ role: "user", content }], [{ role: "user", content: [{ type: "text", text: content }] }], deep([{ role: "user", content }])]) texts.push((await model.chat(messages, FAST).result).text);
    return texts;
  });
  assert.equal(new Set(texts).size, 1);
});

test("an abort at any moment settles at once with what there is, and leaves no trace", async () => {
  const seen = await run(async () => {
    const prompt = "Once upon a time, there was a small", fresh = async () => (await model.complete(prompt, { temperature: 0, maxTokens: 12, reusePrefix: false }).result).text;
    const before = await fresh(), out = [];
    for (const when of ["before", "first", "mid", "after"]) for (const streaming of [true, false]) {
      const abort = new AbortController();
      if (when === "before") abort.abort();
      const stream = model.complete(when === "first" ? `${prompt} ${"and then ".repeat(300)}` : prompt, { temperature: 0, maxTokens: when === "after" ? 5 : 300, signal: abort.signal, reusePrefix: false });
      let at = performance.now();
      const cut = () => (at = performance.now(), abort.abort());
      if (when === "first") setTimeout(cut, 30);
      if (when === "mid") setTimeout(cut, 700);
      let joined = "";
      if (streaming) for await (const chunk of stream) joined += chunk.text;
      const result = await stream.result;
      const ms = performance.now() - at;
      if (when === "after") cut();
      out.push({ when, streaming, ms: when === "after" ? 0 : ms, finish: result.finishReason, made: result.tokens.length, joined: !streaming || joined === result.text, same: (await fresh()) === before });
    }
    return out;
  });
  for (const { when, ms, finish, made, joined, same } of seen) {
    assert.ok(ms < 500, `${when}: settled after ${ms} ms`);
    assert.equal(finish, when === "after" ? "length" : "abort", when);
    assert.ok(joined && same, when);
    if (when === "before" || when === "first") assert.equal(made, 0, when);
    if (when === "mid") assert.ok(made > 0 && made < 300, `${made}`);
  }
});

test("leaving the iteration stops the work", async () => {
  const seen = await run(async () => {
    const stream = model.complete("Once upon a time", { temperature: 0, maxTokens: 400, ignoreEos: true });
    let n = 0;
    for await (const _ of stream) if (++n === 3) break;
    const left = await stream.result;
    const thrown = model.complete("Once upon a time", { temperature: 0, maxTokens: 400, ignoreEos: true });
    await (async () => { for await (const _ of thrown) throw new Error("mine"); })().catch(() => undefined);
    return [left, await thrown.result];
  });
  for (const { finishReason, tokens, metrics } of seen) {
    assert.equal(finishReason, "abort");
    assert.ok(tokens.length < 100 && metrics.forwardPasses < 110, `${tokens.length} tokens`);
  }
});

test("a stream can be awaited, iterated late, and iterated twice", async () => {
  const seen = await run(async () => {
    const stream = model.complete("Once upon a time", { temperature: 0, maxTokens: 10 });
    const { text } = await stream.result;
    const late = await collect(stream), again = await collect(stream);
    const iterator = model.complete("Once upon a time", { temperature: 0, maxTokens: 3 })[Symbol.asyncIterator]();
    const together = await Promise.all([iterator.next(), iterator.next(), iterator.next(), iterator.next()]);
    return { text, late: late.joined, again: again.joined, together: together.map((r) => r.done), status: stream.status.phase };
  });
  assert.equal(seen.late, seen.text);
  assert.equal(seen.again, seen.text);
  assert.deepEqual(seen.together, [false, false, false, true]);
  assert.equal(seen.status, "ended");
});

test("calls wait for each other, first in, first out; a queued one can be aborted at once", async () => {
  const { order, queued, ms } = await run(async () => {
    const order = [], note = (name) => () => void order.push(name), abort = new AbortController();
    const first = model.complete("Once upon a time", { temperature: 0, maxTokens: 60, ignoreEos: true });
    const others = [first.result.then(note("first")), model.tokenize("x").then(note("tokenize")), model.score([504, 3575]).then(note("score")), model.chat([{ role: "user", content: "Hi" }], FAST).result.then(note("chat"))];
    const waiting = model.complete("Never", { signal: abort.signal, seed: 5 });
    await first[Symbol.asyncIterator]().next(); // it is at work
    const at = performance.now();
    abort.abort();
    const queued = await waiting.result;
    const ms = performance.now() - at;
    await Promise.all(others);
    return { order, queued, ms };
  });
  assert.deepEqual(order, ["first", "tokenize", "score", "chat"]);
  assert.deepEqual([queued.text, queued.tokens, queued.finishReason, queued.seed, queued.metrics.timeToFirstTokenMs], ["", [], "abort", 5, null]);
  assert.ok(ms < 500);
});

test("the page stays free while the model works", async () => {
  const longest = await run(async () => {
    let longest = 0, last = performance.now(), on = true;
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      const now = performance.now();
      longest = Math.max(longest, now - last);
      last = now;
      if (on) setTimeout(() => port2.postMessage(0), 1);
    };
    port2.postMessage(0);
    await model.complete(`${"word ".repeat(400)}`, { temperature: 0, maxTokens: 60, ignoreEos: true, reusePrefix: false }).result;
    on = false;
    return longest;
  });
  assert.ok(longest < 100, `blocked for ${longest} ms`);
});

test("after dispose, and after a crash, everything rejects by name, and a new model works", async () => {
  const seen = await run(async () => {
    const disposed = await rillm.load(MODEL, { contextLength: 256 });
    const pending = [disposed.complete("Once upon a time", { maxTokens: 200 }).result, disposed.tokenize("x"), disposed.score([1, 2, 3])];
    disposed.complete("nobody looks at this one");
    setTimeout(() => (Symbol.dispose ? disposed[Symbol.dispose]() : disposed.dispose()), 50);
    const codes = [...(await Promise.all(pending.map(codeOf))), await codeOf(disposed.tokenize("x")), await codeOf(disposed.complete("x").result)];
    disposed.dispose();
    if (disposed.info.memoryBytes !== 0) throw new Error("its memory is counted still");
    const crashed = await rillm.load(MODEL, { contextLength: 256, workerUrl: "/odd/worker-crash.js" });
    const waiting = crashed.complete("Once upon a time", { maxTokens: 200 });
    const crashes = [await codeOf(crashed.tokenize("crash")), await codeOf(waiting.result), await codeOf(crashed.tokenize("x"))];
    return { codes, crashes, info: crashed.info.architecture };
  });
  assert.deepEqual(seen.codes, new Array(5).fill("disposed"));
  assert.deepEqual(seen.crashes, new Array(3).fill("crashed"));
  assert.equal(seen.info, "llama");
});

test("nothing went unhandled", () => assert.deepEqual(world.errors, []));
