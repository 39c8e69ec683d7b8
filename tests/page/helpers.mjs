// One server for the built page, the package and the model; one browser; what every test file here begins with.

import fs from "node:fs";
import http from "node:http";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import sirv from "sirv";

/** A path of the repository. */
export const at = (path) => fileURLToPath(new URL(`../../${path}`, import.meta.url));

export const MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf";
export const GEMMA = "gemma-3-270m-q4_k_m.gguf";
export const MODEL_BYTES = fs.existsSync(at(`models/${MODEL}`)) ? fs.statSync(at(`models/${MODEL}`)).size : 0;

const setHeaders = (response) => {
  response.setHeader("Cross-Origin-Opener-Policy", "same-origin");
  response.setHeader("Cross-Origin-Embedder-Policy", "require-corp");
};

const POLICY = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'";

/** Workers that go wrong in some way, for the option `workerUrl`; each runs before the package's own. */
const STUBS = {
  "no-cache": "Object.defineProperty(globalThis, 'caches', { value: undefined });",
  "quota": "Cache.prototype.put = async () => { throw new DOMException('full', 'QuotaExceededError'); };",
  "quota-later": `Cache.prototype.put = async (url, response) => {
    const reader = response.body.getReader();
    for (let i = 0; i < 40; i++) await reader.read();
    throw new DOMException('full', 'QuotaExceededError');
  };`,
  "bad-disk": "Cache.prototype.match = async () => new Response(new ReadableStream({ pull: (c) => c.error(new Error('disk')) }));",
  "unrelated": "onmessage = () => undefined;",
  "chatty": "postMessage(null); postMessage('hello'); postMessage({ hello: 1 }); postMessage({ kind: 'hello' });",
  "crash": `addEventListener("message", ({ data }) => { if (data.call?.text === "crash") throw new Error("a trap"); });`,
};

/**
 * `/` is the built page, `/pkg/` the package, `/models/` the models, `/blank` an empty page (`/strict` with a strict policy); `/odd/…` are
 * files and workers of which errors are made. Returns { url, requests, cut, sent, close }: what was asked for, what the client broke off, and
 * when the last byte of each path left (ms since 1970).
 */
export async function serve() {
  const options = { dev: true, etag: true, setHeaders };
  const mounts = [["/pkg", sirv(at("pkg"), options)], ["/models", sirv(at("models"), options)], ["", sirv(at("www/demo/dist"), options)]];
  const requests = [];
  const cut = [];
  const sent = new Map();
  const server = http.createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url, "http://localhost");
    requests.push(pathname);
    setHeaders(response);
    response.on("finish", () => sent.set(pathname, Date.now()));
    response.on("close", () => response.writableFinished || cut.push(pathname));
    if (pathname === "/strict") response.setHeader("content-security-policy", POLICY);
    if (pathname === "/blank" || pathname === "/strict") return response.setHeader("content-type", "text/html").end("<!doctype html><title>blank</title>");
    if (pathname.startsWith("/odd/")) return odd(pathname.slice(5), searchParams, response);
    const [prefix, handle] = mounts.find(([prefix]) => pathname.startsWith(prefix));
    request.url = request.url.slice(prefix.length) || "/";
    handle(request, response, () => response.writeHead(404).end("not found"));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () => new Promise((resolve) => (server.closeAllConnections(), server.close(resolve)));
  return { url: `http://127.0.0.1:${server.address().port}`, requests, cut, sent, close };
}

/** html, empty, truncated (?bytes=N), broken (ends in the middle), slow (?ms=N between MiBs), no-length, worker-NAME.js for the stubs. */
function odd(name, query, response) {
  const file = at(`models/${MODEL}`);
  const stub = /^(worker|stub)-(.+)\.js$/.exec(name);
  if (stub !== null) {
    const text = stub[1] === "stub" ? STUBS[stub[2]] : `import "./stub-${stub[2]}.js"; import "/pkg/worker.js";`;
    return response.setHeader("content-type", "text/javascript").end(text);
  }
  response.setHeader("content-type", "application/octet-stream");
  switch (name) {
    case "html":
      return response.setHeader("content-type", "text/html").end("<!doctype html><title>A model's page</title><p>Not the model itself.");
    case "empty":
      return response.setHeader("content-length", "0").end();
    case "truncated": {
      const bytes = Number(query.get("bytes") ?? MODEL_BYTES - 1);
      response.setHeader("content-length", String(bytes));
      return fs.createReadStream(file, { end: bytes - 1 }).pipe(response);
    }
    case "broken": {
      response.setHeader("content-length", String(MODEL_BYTES));
      const half = fs.createReadStream(file, { end: Math.floor(MODEL_BYTES / 2) });
      return half.on("data", (piece) => response.write(piece)).on("end", () => setTimeout(() => response.destroy(), 50));
    }
    case "slow": {
      response.setHeader("content-length", String(MODEL_BYTES));
      const pieces = fs.createReadStream(file, { highWaterMark: 1 << 20 });
      pieces.on("data", (piece) => {
        response.write(piece);
        pieces.pause();
        setTimeout(() => pieces.resume(), Number(query.get("ms") ?? 100));
      });
      pieces.on("end", () => response.end());
      return response.on("close", () => pieces.destroy());
    }
    case "no-length":
      return fs.createReadStream(file).pipe(response);
    default:
      return response.writeHead(404).end("not found");
  }
}

/** What Chromium needs as root in a container, and what keeps it from calling home. */
export const ARGUMENTS = ["--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"];

/** A real Chromium. */
export function launch() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ARGUMENTS });
}

/** Server, browser and a context for a test file; `errors` collects what went wrong on its pages without anybody handling it. */
export async function setUp() {
  const [server, browser] = await Promise.all([serve(), launch()]);
  const errors = [];
  const open = async (path, options = {}) => {
    const context = await browser.newContext(options);
    const page = await context.newPage();
    page.on("pageerror", (error) => errors.push(String(error)));
    await page.goto(server.url + path);
    return page;
  };
  const close = async () => {
    await browser.close();
    await server.close();
  };
  return { ...server, browser, errors, open, close };
}

/** A page on which `window.rillm` and `window.testing` are the package, `window.MODEL` the model's URL, `window.model` a loaded one if asked for. */
export async function openApi(world, { path = "/blank", model = MODEL, load = null } = {}) {
  const page = await world.open(path);
  await page.evaluate(async (url) => {
    window.rillm = await import("/pkg/index.js");
    window.testing = await import("/pkg/testing.js");
    window.MODEL = url;
    /** The code of a rejection, or what came instead. */
    window.codeOf = (promise) => Promise.resolve(promise).then((value) => `no error: ${JSON.stringify(value)}`, (error) => error.code ?? `${error.name}: ${error.message}`);
    /** All that a stream gives. */
    window.collect = async (stream) => {
      const chunks = [];
      for await (const chunk of stream) chunks.push(chunk);
      return { chunks, joined: chunks.map((c) => c.text).join(""), made: chunks.flatMap((c) => c.tokens), result: await stream.result };
    };
    window.FAST = { temperature: 0, maxTokens: 8 };
  }, `/models/${model}`);
  if (load !== null) await page.evaluate(async (options) => void (window.model = await rillm.load(MODEL, options)), load);
  return page;
}
