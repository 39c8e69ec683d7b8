// Policies and origins: what a strict site allows, what it forbids and how that is said, and the package on another origin than the page.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { MODEL, launch } from "./helpers.mjs";
import { STRICT, site, visit } from "./site.mjs";

const NO_WASM = STRICT.replace(" 'wasm-unsafe-eval'", "");
const BLANK = "<!doctype html><title>blank</title>";
const ANY_ORIGIN = { "access-control-allow-origin": "*", "cross-origin-resource-policy": "cross-origin" };
/** Nothing may hang. */
const SOON = 5000;

/** The headers of each path; a test sets them. */
let headers;
let world, packages, browser;
const errors = [];
before(async () => {
  packages = await site({ headers: () => ANY_ORIGIN });
  const texts = {
    "/": BLANK,
    "/own/worker.js": `import "../pkg/worker.js";`,
    "/far/worker.js": `import "${packages.url}/pkg/worker.js";`,
  };
  world = await site({ texts, folders: { "/elsewhere": new URL("../../pkg", import.meta.url).pathname }, headers: (path) => headers(path) });
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await Promise.all([world?.close(), packages?.close()]);
});

/** A policy that tells the server what it stopped, on the page and in workers. */
const policy = (text) => ({ "content-security-policy": `${text}; report-uri /report` });

/** Loads on a fresh page and says what came of it, and after how many milliseconds. */
async function attempt({ from = "/pkg/index.js", options = {}, page: url = `${world.url}/` } = {}) {
  world.reports.length = world.requests.length = 0;
  const said = [];
  const page = await visit(browser, url, { errors, said });
  const seen = await page.evaluate(async ({ from, options, model }) => {
    const violations = [];
    document.addEventListener("securitypolicyviolation", (event) => violations.push(event.effectiveDirective));
    const { RillmError, load } = await import(from);
    const start = performance.now();
    try {
      const hang = new Promise((_, reject) => setTimeout(reject, 20e3, new Error("the load hangs")));
      const loaded = await Promise.race([hang, load(model, { contextLength: 256, cache: false, ...options })]);
      const { text, tokens } = await loaded.complete("The capital of France is", { temperature: 0, maxTokens: 8 }).result;
      return { text, tokens: tokens.length, violations, code: null, message: "" };
    } catch (error) {
      return { ours: error instanceof RillmError, code: error.code, message: error.message, violations, ms: performance.now() - start };
    }
  }, { from, options, model: `/models/${MODEL}` });
  const workers = page.workers().map((worker) => worker.url());
  await page.context().close();
  return { ...seen, said, workers };
}

function answered(seen) {
  assert.equal(seen.code, null, seen.message);
  assert.match(seen.text, /Paris/);
  assert.ok(seen.tokens > 0);
}

function refused(seen, code, ...words) {
  assert.deepEqual([seen.code, seen.ours], [code, true], seen.message);
  for (const word of words) assert.ok(seen.message.includes(word), `${word} is not in: ${seen.message}`);
  assert.ok(seen.ms < SOON, `${seen.ms} ms`);
}

/** Reports come a little after what they are about. */
async function reported() {
  for (let i = 0; i < 50 && world.reports.length === 0; i++) await new Promise((resolve) => setTimeout(resolve, 100));
  return world.reports.join("\n");
}

test("B104: a strict policy is enough, on the page and in the worker, and the worker is no blob", async () => {
  headers = () => policy(STRICT);
  const seen = await attempt();
  answered(seen);
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.deepEqual([seen.violations, seen.said, world.reports], [[], [], []]);
  assert.deepEqual(seen.workers, [`${world.url}/pkg/worker.js`]);
});

test("B104: without 'wasm-unsafe-eval' a load is refused by a code of its own, before the WebAssembly and the model are fetched", async () => {
  headers = () => policy(NO_WASM);
  refused(await attempt(), "wasm-blocked-by-csp", "'wasm-unsafe-eval'", "script-src");
  assert.match(await reported(), /wasm-eval/);
  assert.deepEqual(world.requests.filter((path) => /\.(wasm|gguf)$/.test(path)), []);
});

test("it is the policy of the worker's script that counts", async () => {
  headers = (path) => (path === "/" ? policy(NO_WASM) : {});
  answered(await attempt());
  headers = (path) => (path === "/pkg/worker.js" ? policy(NO_WASM) : {});
  refused(await attempt(), "wasm-blocked-by-csp", "worker script's own response");
});

test("a policy against workers, or against the WebAssembly file, is said so", async () => {
  headers = () => policy("default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'none'");
  refused(await attempt(), "no-worker", "worker-src");
  headers = (path) => (path === "/" ? {} : policy("script-src 'self' 'wasm-unsafe-eval'; connect-src 'none'"));
  refused(await attempt(), "no-wasm", "connect-src");
});

test("a page that asks for isolation, and a worker's response that does not, is said so", async () => {
  headers = (path) => (path === "/" ? { "cross-origin-embedder-policy": "require-corp" } : {});
  refused(await attempt(), "no-worker", "Cross-Origin-Embedder-Policy");
});

test("B105: workerUrl and wasmUrl are where the worker and the WebAssembly file come from", async () => {
  headers = () => policy(STRICT);
  answered(await attempt({ options: { workerUrl: "/own/worker.js", wasmUrl: "/elsewhere/" } }));
  const fetched = world.requests.filter((path) => /worker\.js$|\.wasm$/.test(path));
  assert.deepEqual(fetched, ["/own/worker.js", "/pkg/worker.js", "/elsewhere/rillm_relaxed_bg.wasm"]);
});

test("B105: the package on another origin is refused with what to set, and works with that", async () => {
  headers = () => ({});
  const from = `${packages.url}/pkg/index.js`;
  const page = `${world.named}/`;
  refused(await attempt({ from, page }), "no-worker", "workerUrl", "own origin", "wasmUrl");
  answered(await attempt({ from, page, options: { workerUrl: "/far/worker.js" } }));
  assert.ok(packages.requests.includes("/pkg/rillm_relaxed_bg.wasm"));
  answered(await attempt({ from, page, options: { workerUrl: "/own/worker.js", wasmUrl: `${packages.url}/pkg/` } }));
  refused(await attempt({ from, page, options: { workerUrl: `${packages.url}/pkg/worker.js` } }), "no-worker", "own origin");
});

test("nothing went unhandled", () => assert.deepEqual(errors, []));
