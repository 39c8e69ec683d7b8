// What a user does: packs, installs, type-checks, bundles, serves, and reads an answer. Fresh projects, in a folder that is removed afterwards.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import { rm } from "node:fs/promises";
import path from "node:path";
import { after, before, test } from "node:test";
import { MODEL, at, launch } from "./helpers.mjs";
import { run, site, temporary, visit, write } from "./site.mjs";

// The versions most people have; the page's own Vite comes from the workspace.
const TYPESCRIPT = "typescript@5.9.3";
const VITE = `vite@${JSON.parse(fs.readFileSync(at("package.json"), "utf8")).devDependencies.vite}`;
const WEBPACK = ["webpack@5.113.0", "webpack-cli@6.0.1"];
const [TSC, VITE_BIN, WEBPACK_BIN] = ["typescript/bin/tsc", "vite/bin/vite.js", "webpack/bin/webpack.js"].map((name) => `node_modules/${name}`);
// Threads are workers that run what the bundler made of the engine's worker.
const ISOLATED = { "cross-origin-opener-policy": "same-origin", "cross-origin-embedder-policy": "require-corp" };
const INSTALL = ["install", "--no-audit", "--no-fund", "--prefer-offline"];

const APP = `import { RillmError, load, type Chunk, type LoadProgress, type Model, type TextStream } from "rillm";

let last: LoadProgress | null = null;
const model: Model = await load(new URLSearchParams(location.search).get("model") ?? "", { contextLength: 256, threads: 2, onProgress: (progress) => (last = progress) });
const stream: TextStream = model.complete("The capital of France is", { temperature: 0, maxTokens: 8 });
const chunks: Chunk[] = [];
for await (const chunk of stream) chunks.push(chunk);
const { usage, finishReason } = await stream.result;
const refused = await load(new ArrayBuffer(64)).catch((error: unknown) => (error instanceof RillmError ? error.code : String(error)));
model[Symbol.dispose]();
const answer = { text: chunks.map((chunk) => chunk.text).join(""), tokens: usage.completionTokens, finishReason, refused, last, threads: model.info.threads };
document.querySelector("#answer")?.append(JSON.stringify(answer));
`;
const WRONG = `import { load } from "rillm";
import { completeScripted } from "rillm/testing";
// @ts-expect-error no source
await load(5);
// @ts-expect-error a misspelt option
const model = await load("model.gguf", { contextlength: 256 });
// @ts-expect-error no such finish reason
if ((await model.complete("").result).finishReason === "done") model.dispose();
// @ts-expect-error no such role
model.chat([{ role: "robot", content: "" }]);
// @ts-expect-error what a message says never becomes a control token
model.chat([{ role: "user", content: "" }], { special: true });
// @ts-expect-error a text always goes on where it ends
model.complete("", { continueAnswer: true });
// @ts-expect-error texts are no token ids
completeScripted(model, ["one"]);
`;
const PAGE = (script) => `<!doctype html><html lang="en"><title>app</title><body><pre id="answer"></pre>${script}</body></html>`;
const options = (more) => JSON.stringify({
  compilerOptions: { target: "ES2022", lib: ["ES2022", "DOM", "DOM.Iterable"], types: [], strict: true, exactOptionalPropertyTypes: true, skipLibCheck: false, noEmit: true, ...more },
  include: ["src/main.ts", "src/wrong.ts"],
});
const WITHOUT_TYPES = APP.replace(", type Chunk, type LoadProgress, type Model, type TextStream", "").replaceAll(/: (LoadProgress \| null|Model|TextStream|Chunk\[\]|unknown)(?= =|\))/g, "");

let temp, vite, webpack, browser, models;
const errors = [];
before(async () => {
  temp = await temporary();
  [vite, webpack] = ["vite", "webpack"].map((name) => path.join(temp, name));
  const [packed] = JSON.parse(await run(at("pkg"), "npm", "pack", "--json", "--silent", "--pack-destination", temp));
  const tgz = path.join(temp, packed.filename);
  await write(vite, {
    "package.json": JSON.stringify({ name: "app", private: true, type: "module" }),
    "index.html": PAGE(`<script type="module" src="/src/main.ts"></script>`),
    "tsconfig.json": options({ module: "ESNext", moduleResolution: "bundler", moduleDetection: "force", verbatimModuleSyntax: true }),
    "tsconfig.node.json": options({ module: "NodeNext", moduleResolution: "NodeNext" }),
    "src/main.ts": APP,
    "src/wrong.ts": WRONG,
    "src/server.ts": `import { load } from "rillm";\nload(new ArrayBuffer(4)).catch((error: unknown) => console.log("code", (error as { code: string }).code));\n`,
    "inside.config.js": `export default { ssr: { noExternal: true } };\n`,
    "require.cjs": `const { load } = require("rillm");\nload(new ArrayBuffer(4)).catch((error) => console.log("code", error.code));\n`,
    "import.cjs": `import("rillm").then(({ load }) => load(new ArrayBuffer(4))).catch((error) => console.log("code", error.code));\n`,
  });
  await write(webpack, {
    "package.json": JSON.stringify({ name: "app", private: true }),
    "src/index.js": WITHOUT_TYPES,
    "dist/index.html": PAGE(`<script src="main.js"></script>`),
  });
  const installed = [run(vite, "npm", ...INSTALL, tgz, VITE, TYPESCRIPT), run(webpack, "npm", ...INSTALL, tgz, ...WEBPACK)];
  [browser, models] = await Promise.all([launch(), site({ headers: () => ({ "access-control-allow-origin": "*" }) }), ...installed]);
});
after(async () => {
  await browser?.close();
  await models?.close();
  if (temp) await rm(temp, { recursive: true, force: true });
});

/** Opens an app and checks what came out. */
async function answers(url, model, threads) {
  const page = await visit(browser, `${url}?model=${encodeURIComponent(model)}`, { errors });
  const shown = await page.waitForFunction(() => document.querySelector("#answer").textContent || null, null, { timeout: 30e3 }).catch((error) => {
    throw new Error(`${url} showed no answer: ${errors.join("; ")}`, { cause: error });
  });
  const answer = JSON.parse(await shown.jsonValue());
  assert.match(answer.text, /Paris/);
  assert.ok(answer.tokens > 0);
  assert.deepEqual([answer.finishReason, answer.refused], ["length", "not-gguf"]);
  assert.equal(answer.threads, threads);
  assert.equal(answer.last.loaded, answer.last.total);
  assert.deepEqual(errors, []);
  await page.context().close();
}

/** Serves a built folder under a prefix and checks the answer. */
async function served(prefix, folder, page = "index.html") {
  const world = await site({ folders: { [prefix]: folder }, headers: () => ISOLATED });
  try {
    await answers(`${world.url}${prefix}/${page}`, `/models/${MODEL}`, 2);
    return world.requests;
  } finally {
    await world.close();
  }
}

const all = (folder) => fs.readdirSync(folder, { recursive: true }).map((name) => path.join(folder, name)).filter((name) => fs.statSync(name).isFile());

/** The built files evaluate no text, make no workers of texts, and hold each of the four wasm files once. */
function isClean(folder) {
  const files = all(folder);
  for (const file of files.filter((name) => name.endsWith(".js"))) {
    // webpack's own way to the global object where there is no `globalThis`
    const text = fs.readFileSync(file, "utf8").replaceAll(`this||new Function("return this")()`, "");
    assert.equal(/\beval\(|new Function\(|["'`]blob:|["'`]data:/.exec(text)?.[0], undefined, file);
  }
  assert.equal(files.filter((name) => name.endsWith(".wasm")).length, 4, files.join("\n"));
}

test("what is installed is what a user needs, and nothing else", () => {
  const names = fs.readdirSync(path.join(vite, "node_modules/rillm"));
  for (const needed of ["index.js", "index.d.ts", "worker.js", "rillm_wasm.js", "rillm_wasm_threads.js", "rillm_simd128_bg.wasm", "rillm_relaxed_threads_bg.wasm", "isolation-worker.js", "README.md", "LICENSE-MIT", "LICENSE-APACHE", "package.json"]) assert.ok(names.includes(needed), needed);
  assert.deepEqual(names.filter((name) => !/\.(js|d\.ts|wasm)$|^(README\.md|LICENSE-(MIT|APACHE)|package\.json)$/.test(name)), []);
});

test("the types hold in a strict project that checks its libraries, for a bundler and for Node's resolution", async () => {
  await Promise.all(["tsconfig.json", "tsconfig.node.json"].map((config) => run(vite, process.execPath, TSC, "-p", config)));
});

test("Vite builds it without any configuration", async () => {
  await run(vite, process.execPath, VITE_BIN, "build", "--logLevel", "warn");
  isClean(path.join(vite, "dist"));
  // Its addresses begin at the root, as by default.
  const world = await site({ folders: { "/assets": path.join(vite, "dist/assets") }, texts: { "/": fs.readFileSync(path.join(vite, "dist/index.html"), "utf8") }, headers: () => ISOLATED });
  await answers(`${world.url}/`, `/models/${MODEL}`, 2).finally(world.close);
  assert.ok(world.requests.some((name) => /^\/assets\/worker-.*\.js$/.test(name)) && world.requests.some((name) => /^\/assets\/.*\.wasm$/.test(name)));
});

test("Vite's development server serves it without any configuration", async () => {
  const server = spawn(process.execPath, [VITE_BIN, "--host", "127.0.0.1", "--port", String(20000 + (process.pid % 20000))], { cwd: vite, env: { ...process.env, NO_COLOR: "1" } });
  try {
    const url = await new Promise((resolve, reject) => {
      let text = "";
      for (const stream of [server.stdout, server.stderr]) stream.on("data", (piece) => (text += piece, /(http:\S+)/.test(text) && resolve(/(http:\S+)/.exec(text)[1])));
      server.on("exit", () => reject(new Error(text)));
    });
    await answers(url, `${models.url}/models/${MODEL}`, 1); // it sends no headers
  } finally {
    server.kill();
  }
});

test("webpack builds it without any configuration, and the result works in any folder", async () => {
  await run(webpack, process.execPath, WEBPACK_BIN, "--mode", "production");
  isClean(path.join(webpack, "dist"));
  const requests = await served("/some/where", path.join(webpack, "dist"));
  assert.ok(requests.some((name) => /^\/some\/where\/[^/]+\.wasm$/.test(name)));
});

test("a script tag needs no bundler", async () => {
  await write(vite, { "plain.html": PAGE(`<script type="module">${WITHOUT_TYPES.replace('"rillm"', '"./node_modules/rillm/index.js"')}</script>`) });
  await served("/site", vite, "plain.html");
});

test("B107: a server's bundle that imports it at its top runs in Node, whether the package lies in it or beside it", async () => {
  for (const [folder, ...config] of [["beside"], ["inside", "--config", "inside.config.js"]]) {
    await run(vite, process.execPath, VITE_BIN, "build", "--ssr", "src/server.ts", "--outDir", folder, "--logLevel", "warn", ...config);
    assert.equal(/\bfrom ["']rillm["']/.test(fs.readFileSync(path.join(vite, folder, "server.js"), "utf8")), folder === "beside");
    assert.match(await run(vite, process.execPath, `${folder}/server.js`), /^code no-worker$/m, folder);
  }
});

test("B107: CommonJS gets it by import(), and by require where Node can require a module", async () => {
  assert.match(await run(vite, process.execPath, "import.cjs"), /^code no-worker$/m);
  const required = run(vite, process.execPath, "require.cjs");
  if (process.features.require_module) assert.match(await required, /^code no-worker$/m);
  else await assert.rejects(required, /ERR_REQUIRE_ESM[^]*import\(\)|import\(\)[^]*ERR_REQUIRE_ESM/);
});
