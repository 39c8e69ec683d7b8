// The numbers in the browser against llama.cpp's and a float32 forward's, and the memory that they took: both models.

import assert from "node:assert/strict";
import fs from "node:fs";
import { after, before, describe, test } from "node:test";
import { at, openApi, setUp } from "./helpers.mjs";

const MIB = 2 ** 20;
const MODELS = [
  // Bounds beside the file's own size: the KV cache of 2,048 positions, and what there may be besides.
  { file: "SmolLM2-135M-Instruct.Q4_1.gguf", golden: "smollm2-135m-instruct-q4_1.json", vocabulary: 49152, kv: 45, more: 64, chats: true, says: /Paris/ },
  { file: "gemma-3-270m-q4_k_m.gguf", golden: "gemma-3-270m-q4_k_m.json", vocabulary: 262144, kv: 36, more: 96, chats: false, says: /the capital of/ },
];

let world;
before(async () => void (world = await setUp()));
after(() => world.close());

const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;

for (const { file, golden: name, vocabulary, kv, more, chats, says } of MODELS) describe(file, () => {
  const golden = JSON.parse(fs.readFileSync(at(`tests/data/${name}`), "utf8"));
  let page;
  before(async () => void (page = await openApi(world, { model: file, load: { contextLength: 2048 } })));
  after(() => page.context().close());

  const score = (ids) => page.evaluate(async (ids) => {
    const { logprobs, topIds, topLogprobs } = await model.score(ids);
    return { logprobs: [...logprobs], topIds: [...topIds], topLogprobs: [...topLogprobs] };
  }, ids);

  test("texts become the golden ids, and go back", async () => {
    const seen = await page.evaluate(async (texts) => {
      const out = [];
      for (const text of texts) out.push({ ids: await model.tokenize(text), special: await model.tokenize(text, { special: true }) });
      return out;
    }, golden.tokenize.map((t) => t.text));
    for (const [i, { text, ids, ids_parse_special }] of golden.tokenize.entries()) assert.deepEqual(seen[i], { ids, special: ids_parse_special }, JSON.stringify(text));
  });

  test("the score of a long text is that of both references", async (t) => {
    const { ids, lp, lp_f32 } = golden.logprobs;
    const { logprobs } = await score(ids);
    assert.equal(logprobs.length, ids.length - 1);
    for (const [name, reference] of Object.entries({ lp, lp_f32 })) {
      const off = reference.map((x, i) => Math.abs(x - logprobs[i])).sort((a, b) => a - b);
      const p99 = off[Math.floor(off.length * 0.99)];
      const nll = Math.abs(mean(logprobs) / mean(reference) - 1);
      t.diagnostic(`${name}: mean ${mean(off).toFixed(4)}, 99 % ${p99.toFixed(3)}, mean NLL off by ${(nll * 100).toFixed(3)} %`);
      assert.ok(mean(off) <= 0.1 && p99 <= 0.5 && nll <= 0.003, name);
    }
  });

  test("fed the golden answers, the golden token is on top", async (t) => {
    const gaps = [];
    for (const { ids, out } of [...golden.greedy, ...golden.chat]) {
      const { logprobs, topLogprobs } = await score([...ids, ...out]);
      for (let i = ids.length - 1; i < logprobs.length; i++) gaps.push(topLogprobs[i] - logprobs[i]);
    }
    const share = (limit) => gaps.filter((gap) => gap <= limit).length / gaps.length;
    t.diagnostic(`${gaps.length} tokens: ${(share(0) * 100).toFixed(1)} % on top, ${(share(0.6) * 100).toFixed(1)} % within 0.6, worst ${Math.max(...gaps).toFixed(2)}`);
    assert.ok(share(0) >= 0.95 && share(0.6) >= 0.99 && share(1.2) === 1);
  });

  test("a score has one entry fewer than ids, down to none", async () => {
    assert.equal((await score([504, 3575])).logprobs.length, 1);
    assert.equal((await score([504])).logprobs.length, 0);
    assert.deepEqual(await page.evaluate(async (vocabulary) => [
      await codeOf(model.score([vocabulary])), await codeOf(model.score([-1])), await codeOf(model.score([1.5])), await codeOf(model.score("12")),
      await codeOf(model.score(new Array(2049).fill(504))),
    ], vocabulary), ["bad-token", "bad-token", "bad-token", "bad-token", "prompt-too-long"]);
  });

  test(chats ? "it chats" : "a base model does not chat, and completes", async () => {
    const { chat, text, hasChatTemplate } = await page.evaluate(async () => ({
      chat: await codeOf(model.chat([{ role: "user", content: "Hi" }], FAST).result.then(({ finishReason }) => finishReason)),
      text: (await model.complete("The capital of France is", FAST).result).text,
      hasChatTemplate: model.info.hasChatTemplate,
    }));
    assert.equal(hasChatTemplate, chats);
    if (chats) assert.match(chat, /^no error/);
    else assert.equal(chat, "no-chat-template");
    assert.match(text, says);
  });

  test("memory stays within its bound, also after a long prompt and a score", async (t) => {
    const { bytes, size, used } = await page.evaluate(async (ids) => {
      const text = await model.detokenize(ids.slice(0, 512));
      const { usage } = await model.complete(text, { ...FAST, reusePrefix: false }).result;
      await model.score(ids.slice(0, 600));
      return { bytes: model.info.memoryBytes, size: model.info.bytes, used: usage.promptTokens };
    }, golden.logprobs.ids);
    assert.ok(used > 490, `${used} tokens`);
    t.diagnostic(`${(bytes / MIB).toFixed(1)} MiB for a file of ${(size / MIB).toFixed(1)} MiB`);
    assert.ok(bytes <= size + (kv + more) * MIB);
  });
});

test("nothing went unhandled", () => assert.deepEqual(world.errors, []));
