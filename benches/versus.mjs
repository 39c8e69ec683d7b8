// Rillm beside llama.cpp, in one run: the tab, wllama (llama.cpp in wasm) in the same Chromium, llama.cpp native, and our native build.
//
//   ./build.sh bench                                      everything, 3 rounds
//   node benches/versus.mjs [--engines tab,wllama,llama.cpp,native] [--model FILE.gguf] [--tokens 64] [--rounds 3] [--context 2048]
//
// One thread each. Times are taken here, from outside: prefill = prompt tokens / time to the first token, decode = (tokens - 1) / time from
// the first token to the last. Each round begins with another number, so that no engine finds the prompt in its cache. The last line is
// the medians and the ratios of the first engine over the others: on a shared machine quote those. Needs pkg/, target/release/rillm, and
// the peers of benches/peers (build.sh installs them).
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";
import sirv from "sirv";

const at = (file) => fileURLToPath(new URL(`../${file}`, import.meta.url));
const { values: options } = parseArgs({
  options: {
    engines: { type: "string", default: "tab,wllama,llama.cpp,native" },
    model: { type: "string", default: at("models/SmolLM2-135M-Instruct.Q4_1.gguf") },
    tokens: { type: "string", default: "64" },
    rounds: { type: "string", default: "3" },
    context: { type: "string", default: "2048" },
  },
});
const [tokens, rounds, context] = [options.tokens, options.rounds, options.context].map(Number);
const model = path.resolve(options.model);
const peers = at("benches/peers/node_modules");
// 232 tokens of SmolLM2's vocabulary, with the round's number.
const text = "A slow river carries small boats past quiet villages, and every evening somebody lights a lamp on the old wooden pier. ".repeat(10);

/** The clock readings of a round -> rates. */
const rates = ({ prompt, made, start, first, last }) => ({ prefill: (prompt / (first - start)) * 1000, decode: ((made - 1) / (last - first)) * 1000 });

/** A page that may import the engines, with the model beside them. */
async function inBrowser(work) {
  const headers = (response) => {
    response.setHeader("Cross-Origin-Opener-Policy", "same-origin");
    response.setHeader("Cross-Origin-Embedder-Policy", "require-corp");
  };
  const folders = { "/pkg": at("pkg"), "/wllama": path.join(peers, "@wllama/wllama"), "/model": path.dirname(model) };
  const mounts = Object.entries(folders).filter(([, folder]) => fs.existsSync(folder)).map(([prefix, folder]) => [prefix, sirv(folder, { dev: true, setHeaders: headers })]);
  const server = http.createServer((request, response) => {
    headers(response);
    const mount = mounts.find(([prefix]) => request.url.startsWith(`${prefix}/`));
    if (!mount) return response.setHeader("content-type", "text/html").end("<!doctype html><title>bench</title>");
    request.url = request.url.slice(mount[0].length);
    mount[1](request, response, () => response.writeHead(404).end());
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const args = ["--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"];
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args });
  try {
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    return await page.evaluate(work, { url: `/model/${path.basename(model)}`, text, tokens, rounds, context });
  } finally {
    await browser.close();
    server.closeAllConnections();
    server.close();
  }
}

const engines = {
  tab: () => inBrowser(async ({ url, text, tokens, rounds, context }) => {
    const { load } = await import("/pkg/index.js");
    const model = await load(url, { backend: "wasm", threads: 1, contextLength: context, cache: false });
    const readings = [];
    for (let round = 0; round < rounds; round++) {
      const start = performance.now();
      let first = 0, last = 0;
      const stream = model.complete(`${round} ${text}`, { maxTokens: tokens, temperature: 0, ignoreEos: true, reusePrefix: false });
      for await (const _ of stream) first ||= last = performance.now(), last = performance.now();
      const { usage } = await stream.result;
      readings.push({ prompt: usage.promptTokens, made: usage.completionTokens, start, first, last });
    }
    return readings;
  }),

  wllama: () => inBrowser(async ({ url, text, tokens, rounds, context }) => {
    const { Wllama, LoggerWithoutDebug } = await import("/wllama/esm/index.js");
    const engine = new Wllama({ default: "/wllama/esm/wasm/wllama.wasm" }, { logger: LoggerWithoutDebug });
    await engine.loadModel([await (await fetch(url)).blob()], { n_ctx: context, n_threads: 1, n_batch: 512, n_gpu_layers: 0 });
    const readings = [];
    for (let round = 0; round < rounds; round++) {
      const start = performance.now();
      let first = 0, last = 0, timings;
      const stream = await engine.createCompletion({ prompt: `${round} ${text}`, max_tokens: tokens, temperature: 0, stream: true, cache_prompt: false, ignore_eos: true });
      for await (const chunk of stream) {
        if (chunk.choices?.[0]?.text) first ||= performance.now(), last = performance.now();
        timings = chunk.timings ?? timings;
      }
      readings.push({ prompt: timings.prompt_n, made: timings.predicted_n, start, first, last });
    }
    return readings;
  }),

  "llama.cpp": async () => {
    // In a process of its own: the library forks itself to test its binary, so it needs a file.
    const script = path.join(peers, "..", "run.mjs");
    fs.writeFileSync(script, `
      import { getLlama, LlamaLogLevel } from "node-llama-cpp";
      const { model: modelPath, text, tokens, rounds, context } = JSON.parse(process.argv[2]);
      const llama = await getLlama({ gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: 1 });
      const model = await llama.loadModel({ modelPath });
      const room = await model.createContext({ contextSize: context, threads: 1, batchSize: 512 });
      const readings = [];
      for (let round = 0; round < rounds; round++) {
        const ids = model.tokenize(round + " " + text), sequence = room.getSequence(), start = performance.now();
        let first = 0, last = 0, made = 0;
        for await (const _ of sequence.evaluate(ids, { temperature: 0, yieldEogToken: true })) {
          last = performance.now();
          first ||= last;
          if (++made === tokens) break;
        }
        readings.push({ prompt: ids.length, made, start, first, last });
        await sequence.clearHistory();
        sequence.dispose();
      }
      console.log(JSON.stringify(readings));
      process.exit(0);`);
    const out = execFileSync(process.execPath, [script, JSON.stringify({ model, text, tokens, rounds, context })], { encoding: "utf8", cwd: path.dirname(script) });
    return JSON.parse(out.trim().split("\n").at(-1));
  },

  native: async () => {
    const prompt = 232;
    const args = ["bench", model, "--prompt-tokens", prompt, "--tokens", tokens, "--context", context, "--threads", 1, "--json"].map(String);
    return Array.from({ length: rounds }, () => {
      const m = JSON.parse(execFileSync(at("target/release/rillm"), args, { encoding: "utf8" }));
      return { prompt, made: tokens, start: 0, first: m.timeToFirstTokenMs, last: m.timeToFirstTokenMs + m.decodeMs };
    });
  },
};

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const medians = {};
for (const name of options.engines.split(",")) {
  const runs = (await engines[name]()).map(rates);
  console.log(JSON.stringify({ engine: name, runs }));
  medians[name] = { prefill: +median(runs.map((r) => r.prefill)).toFixed(1), decode: +median(runs.map((r) => r.decode)).toFixed(1) };
}
const [[firstName, ours], ...others] = Object.entries(medians);
const ratios = others.map(([name, m]) => [name, { prefill: +(ours.prefill / m.prefill).toFixed(2), decode: +(ours.decode / m.decode).toFixed(2) }]);
console.log(JSON.stringify({ model: path.basename(model), medians, [`${firstName} over`]: Object.fromEntries(ratios) }));
