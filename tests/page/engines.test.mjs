// Three engines: the packed package in Chromium, Firefox and WebKitGTK, through plain WebDriver. In each it gives the golden score, and says how fast.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import { rm } from "node:fs/promises";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { ARGUMENTS, MODEL, at } from "./helpers.mjs";
import { run, site, temporary } from "./site.mjs";

const ISOLATED = { "cross-origin-opener-policy": "same-origin", "cross-origin-embedder-policy": "require-corp" };
const { ids, lp, lp_f32 } = JSON.parse(fs.readFileSync(at("tests/data/smollm2-135m-instruct-q4_1.json"), "utf8")).logprobs;
const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
const CPUS = os.availableParallelism();

/** How each is started; `variants` are the modules that it must run. */
const ENGINES = [
  {
    name: "Chromium",
    driver: (port) => [process.env.CHROMEDRIVER ?? "/usr/bin/chromedriver", `--port=${port}`],
    capabilities: { "goog:chromeOptions": { binary: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--headless=new", ...ARGUMENTS] } },
    variants: ["relaxed-threads", "relaxed", "simd128"],
  },
  {
    name: "Firefox",
    driver: (port) => ["geckodriver", "--port", String(port), "--allow-hosts", "127.0.0.1", "localhost"],
    capabilities: { "moz:firefoxOptions": { binary: process.env.FIREFOX ?? "/usr/bin/firefox-esr", args: ["-headless"] } },
    variants: ["relaxed-threads"],
  },
  {
    name: "WebKitGTK",
    driver: (port) => ["xvfb-run", "-a", process.env.WEBKIT_DRIVER ?? "/usr/bin/WebKitWebDriver", `--port=${port}`],
    // as root there is no sandbox to be had
    environment: { WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS: "1" },
    capabilities: {},
    variants: ["simd128"],
  },
];

let world, temp;
before(async () => {
  temp = await temporary();
  const [packed] = JSON.parse(await run(at("pkg"), "npm", "pack", "--json", "--silent", "--pack-destination", temp));
  await run(temp, "tar", "-xzf", packed.filename);
  world = await site({ texts: { "/": "<!doctype html><title>engine</title>" }, folders: { "/packed": path.join(temp, "package") }, headers: () => ISOLATED });
});
after(async () => {
  await world?.close();
  if (temp) await rm(temp, { recursive: true, force: true });
});

const freePort = () => new Promise((resolve) => {
  const server = net.createServer().listen(0, "127.0.0.1", () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

/** A WebDriver session: `script` runs the body of an async function in the page. */
async function session({ driver, capabilities, environment = {} }) {
  const port = await freePort();
  const [program, ...args] = driver(port);
  // a group of its own, so that what the driver started ends with it
  const child = spawn(program, args, { detached: true, stdio: "ignore", env: { ...process.env, ...environment } });
  let gone = null;
  child.on("error", (error) => (gone = error));
  child.on("exit", (code) => (gone ??= new Error(`${program} ended with ${code}`)));
  const send = async (method, url, body) => {
    const response = await fetch(`http://127.0.0.1:${port}${url}`, { method, ...(body && { body: JSON.stringify(body), headers: { "content-type": "application/json" } }) });
    const { value } = await response.json();
    if (!response.ok) throw new Error(`${url}: ${JSON.stringify(value)}`);
    return value;
  };
  const kill = () => {
    try {
      process.kill(-child.pid, "SIGTERM");
    } catch {
      // it has ended already
    }
  };
  try {
    for (let i = 0; ; i++) {
      const up = await send("GET", "/status").then(() => true, () => false);
      if (up) break;
      if (gone || i === 200) throw gone ?? new Error(`${program} does not answer`);
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    const { sessionId } = await send("POST", "/session", { capabilities: { alwaysMatch: capabilities } });
    const here = `/session/${sessionId}`;
    await send("POST", `${here}/timeouts`, { script: 400_000, pageLoad: 60_000 });
    const script = async (body, ...args) => {
      const text = `const done = arguments[arguments.length - 1]; const args = [...arguments].slice(0, -1);
        (async (...args) => { ${body} })(...args).then((value) => done({ value }), (error) => done({ error: error.name + ": " + error.message }));`;
      const { value, error } = await send("POST", `${here}/execute/async`, { script: text, args });
      if (error !== undefined) throw new Error(error);
      return value;
    };
    return {
      open: (url) => send("POST", `${here}/url`, { url }),
      script,
      close: () => send("DELETE", here).catch(() => undefined).then(kill),
    };
  } catch (error) {
    kill();
    throw error;
  }
}

const SCORE = `
  const [url, variant, threads, ids] = args;
  const { loadVariant } = await import("/packed/testing.js");
  const model = await loadVariant(url, variant, { contextLength: 2048, cache: false, threads });
  const { logprobs } = await model.score(ids);
  const text = await model.detokenize(ids.slice(0, 232));
  const { metrics } = await model.complete(text, { temperature: 0, maxTokens: 48, ignoreEos: true, reusePrefix: false }).result;
  const { info } = model;
  model.dispose();
  return { logprobs: [...logprobs], metrics, info };`;

for (const engine of ENGINES) {
  test(`${engine.name} gives the golden score`, { timeout: 600e3 }, async (t) => {
    const browser = await session(engine);
    try {
      await browser.open(`${world.url}/`);
      for (const variant of engine.variants) {
        const threads = variant.endsWith("-threads") ? Math.max(2, Math.min(CPUS, 8)) : 1;
        const { logprobs, metrics, info } = await browser.script(SCORE, `/models/${MODEL}`, variant, threads, ids);
        assert.deepEqual([info.simd, info.threads], [variant.replace("-threads", ""), threads], info.backendReason);
        for (const reference of [lp, lp_f32]) {
          const off = reference.map((x, i) => Math.abs(x - logprobs[i])).sort((a, b) => a - b);
          const nll = Math.abs(mean(logprobs) / mean(reference) - 1);
          assert.ok(mean(off) <= 0.1 && off[Math.floor(off.length * 0.99)] <= 0.5 && nll <= 0.003, `${variant}: ${mean(off)}, ${nll}`);
        }
        t.diagnostic(`${engine.name}, ${variant}, threads: ${threads}: prefill ${metrics.prefillTokensPerSecond.toFixed(0)} tokens/s, decode ${metrics.decodeTokensPerSecond.toFixed(0)} tokens/s`);
      }
    } finally {
      await browser.close();
    }
  });
}
