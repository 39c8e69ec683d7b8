// Rillm beside llama.cpp, in one run: the tab, wllama (llama.cpp in wasm) in the same Chromium, llama.cpp native, and our native build.
//
//   ./build.sh bench                                      everything
//   node benches/versus.mjs [--engines tab,wllama,llama.cpp,native] [--model FILE.gguf] [--threads 1] [--prompt 232] [--tokens 64]
//                           [--rounds 3] [--passes 3] [--context 2048] [--save]
//
// The engines take turns, a pass each, loading anew; a pass is some rounds. Times are taken here, from outside: prefill = prompt tokens /
// time to the first token, decode = (tokens - 1) / time from the first token to the last. Each round begins with another number, so that no
// engine finds the prompt in its cache. What is printed: a line for each pass, then a table of medians with the ratios of the first engine
// over the others - on a shared machine quote those - and the roofline: the bytes that a token reads times the rate, as a share of the
// memory bandwidth that was measured in the same run (by `rillm bench`, with as many threads). --save puts the table into benches/results.
// Needs pkg/, target/release/rillm, and the peers of benches/peers (build.sh installs them).
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
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
    threads: { type: "string", default: "1" },
    prompt: { type: "string", default: "232" },
    tokens: { type: "string", default: "64" },
    rounds: { type: "string", default: "3" },
    passes: { type: "string", default: "3" },
    context: { type: "string", default: "2048" },
    save: { type: "boolean", default: false },
  },
});
const [threads, prompt, tokens, rounds, passes, context] = ["threads", "prompt", "tokens", "rounds", "passes", "context"].map((name) => Number(options[name]));
const model = path.resolve(options.model);
const peers = at("benches/peers/node_modules");
// About as many tokens as asked for, of SmolLM2's vocabulary; each engine says how many it had.
const text = "A slow river carries small boats past quiet villages, and every evening somebody lights a lamp on the old wooden pier. ".repeat(Math.ceil(prompt / 23)).slice(0, Math.round(prompt * 5.2));

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
    return await page.evaluate(work, { url: `/model/${path.basename(model)}`, text, threads, tokens, rounds, context });
  } finally {
    await browser.close();
    server.closeAllConnections();
    server.close();
  }
}

const engines = {
  tab: () => inBrowser(async ({ url, text, threads, tokens, rounds, context }) => {
    const { load } = await import("/pkg/index.js");
    const model = await load(url, { backend: "wasm", threads, contextLength: context, cache: false });
    if (model.info.threads !== threads) throw new Error(model.info.backendReason);
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

  wllama: () => inBrowser(async ({ url, text, threads, tokens, rounds, context }) => {
    const { Wllama, LoggerWithoutDebug } = await import("/wllama/esm/index.js");
    const engine = new Wllama({ default: "/wllama/esm/wasm/wllama.wasm" }, { logger: LoggerWithoutDebug });
    await engine.loadModel([await (await fetch(url)).blob()], { n_ctx: context, n_threads: threads, n_batch: 512, n_gpu_layers: 0 });
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
      const { model: modelPath, text, threads, tokens, rounds, context } = JSON.parse(process.argv[2]);
      const llama = await getLlama({ gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: threads });
      const model = await llama.loadModel({ modelPath });
      const room = await model.createContext({ contextSize: context, threads, batchSize: 512 });
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
    const out = execFileSync(process.execPath, [script, JSON.stringify({ model, text, threads, tokens, rounds, context })], { encoding: "utf8", cwd: path.dirname(script) });
    return JSON.parse(out.trim().split("\n").at(-1));
  },

  native: async () => Array.from({ length: rounds }, () => {
    const m = ours(["--prompt-tokens", prompt, "--tokens", tokens, "--context", context]);
    return { prompt, made: tokens, start: 0, first: m.timeToFirstTokenMs, last: m.timeToFirstTokenMs + m.decodeMs };
  }),
};

/** What `rillm bench` says. */
const ours = (more) => JSON.parse(execFileSync(at("target/release/rillm"), ["bench", model, "--threads", threads, "--json", ...more].map(String), { encoding: "utf8" }));

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const names = options.engines.split(",");
const runs = Object.fromEntries(names.map((name) => [name, []]));
const bandwidths = [];
let bytesPerToken;
for (let pass = 0; pass < passes; pass++) {
  for (const name of names) {
    const these = (await engines[name]()).map(rates);
    console.log(JSON.stringify({ pass, engine: name, runs: these }));
    runs[name].push(...these);
  }
  const roofline = ours(["--prompt-tokens", 1, "--tokens", 1]);
  bandwidths.push(roofline.memoryBandwidth);
  bytesPerToken = roofline.bytesPerToken;
}
const bandwidth = median(bandwidths);
const medians = names.map((name) => ({ name, prefill: median(runs[name].map((r) => r.prefill)), decode: median(runs[name].map((r) => r.decode)) }));
const [first] = medians;
const labels = { "tab": "Rillm in the tab (wasm)", "wllama": "llama.cpp in wasm (wllama)", "llama.cpp": "llama.cpp native", "native": "Rillm native" };
const rows = medians.map(({ name, prefill, decode }) => {
  const over = name === first.name ? "" : `${(first.prefill / prefill).toFixed(2)} / ${(first.decode / decode).toFixed(2)}`;
  const share = ((bytesPerToken * decode) / bandwidth) * 100;
  return `| ${labels[name]} | ${prefill.toFixed(1)} | ${decode.toFixed(1)} | ${over} | ${share.toFixed(0)} % |`;
});
const gb = (bytes) => (bytes / 1e9).toFixed(bytes < 1e10 ? 3 : 1);
const table = [
  `| engine | prefill tokens/s | decode tokens/s | ${labels[first.name]} over it: prefill / decode | decode, of the memory bandwidth |`,
  "|---|---|---|---|---|",
  ...rows,
  "",
  `A token reads ${gb(bytesPerToken)} GB of weights; ${threads === 1 ? "one thread" : `${threads} threads`} read ${gb(bandwidth)} GB/s here.`,
].join("\n");
console.log(`\n${table}`);
if (options.save) {
  const version = (file) => JSON.parse(fs.readFileSync(path.join(peers, file, "package.json"), "utf8")).version;
  const date = new Date().toISOString().slice(0, 10);
  const file = at(`benches/results/${date}-${path.basename(model, ".gguf")}-${threads}-thread${threads === 1 ? "" : "s"}.md`);
  fs.writeFileSync(file, `# ${path.basename(model)}, ${threads === 1 ? "one thread" : `${threads} threads`}, ${date}

Machine: ${os.cpus()[0].model.trim()}, ${os.cpus().length} cores, ${Math.round(os.totalmem() / 2 ** 30)} GiB, ${os.type()}; wllama ${version("@wllama/wllama")}, node-llama-cpp ${version("node-llama-cpp")}.
A prompt of about ${prompt} tokens, ${tokens} tokens made, ${passes} passes of ${rounds} rounds, medians, all engines in turn in one run
(\`node benches/versus.mjs --model ${path.basename(model)} --threads ${threads} --prompt ${prompt} --tokens ${tokens} --rounds ${rounds} --passes ${passes}\`). On a shared machine quote the ratios.

${table}
`);
  console.log(`\nsaved as ${path.relative(process.cwd(), file)}`);
}
