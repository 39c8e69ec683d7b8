// The package as files: what a server, a bundler and a type checker see. No browser.

import assert from "node:assert/strict";
import fs from "node:fs";
import { test } from "node:test";
import { rm } from "node:fs/promises";
import path from "node:path";
import { at } from "./helpers.mjs";
import { run, temporary, write } from "./site.mjs";

const scripts = fs.readdirSync(at("pkg")).filter((name) => name.endsWith(".js"));

test("importing it on a server touches nothing and does not throw", async () => {
  const { load, RillmError } = await import(at("pkg/index.js"));
  await import(at("pkg/testing.js"));
  await assert.rejects(load(new ArrayBuffer(4)), (error) => error instanceof RillmError && error.code === "no-worker");
  await assert.rejects(load("model.gguf"), { code: "bad-option" }); // relative to no page
});

test("options of load are checked before anything starts", async () => {
  const { load } = await import(at("pkg/index.js"));
  const url = "http://localhost/model.gguf";
  for (const [options, code] of [
    [{ contextlength: 5 }, "unknown-option"],
    [{ contextLength: 0 }, "bad-option"], [{ contextLength: 1.5 }, "bad-option"], [{ contextLength: Number.NaN }, "bad-option"], [{ contextLength: "2048" }, "bad-option"],
    [{ threads: 65 }, "bad-option"], [{ threads: 1.5 }, "bad-option"], [{ threads: 0 }, "bad-option"], [{ threads: "1" }, "bad-option"],
    [{ backend: "webgpu" }, "not-supported"], [{ backend: "cuda" }, "bad-option"],
    [{ cache: "yes" }, "bad-option"], [{ onProgress: 1 }, "bad-option"], [{ signal: {} }, "bad-option"], [null, "bad-option"],
    ...["threads", "contextLength", "backend", "cache", "onProgress", "signal", "workerUrl", "wasmUrl"].flatMap((name) =>
      [5n, Symbol("odd"), Object.create(null), [Object.create(null)]].map((value) => [{ [name]: value }, "bad-option"])),
    [{ workerUrl: "" }, "bad-option"], [{ wasmUrl: "http://" }, "bad-option"],
  ]) await assert.rejects(load(url, options), (error) => error.code === code && Object.keys(options ?? {}).every((name) => error.message.includes(name)), Object.keys(options ?? {}).join());
  await assert.rejects(load([url, url]), { code: "not-supported" });
  for (const source of [5, 5n, null, undefined, {}]) await assert.rejects(load(source), { code: "bad-option" });
  for (const source of ["", " "]) await assert.rejects(load(source), { code: "bad-option", message: /the source is an empty text/ });
  const signal = AbortSignal.abort(new Error("mine"));
  await assert.rejects(load(url, { signal }), { message: "mine" });
});

test("modules import each other by relative addresses only, and evaluate no text", () => {
  for (const name of scripts) {
    const text = fs.readFileSync(at(`pkg/${name}`), "utf8");
    for (const [, from] of text.matchAll(/^(?:import|export)\b[^"';]*?from "([^"]+)";$/gm)) assert.match(from, /^\.\//, `${name} imports ${from}`);
    assert.doesNotMatch(text, /\beval\(|new Function\(/, name);
  }
});

test("the bundlers' literal expressions are there", () => {
  assert.match(fs.readFileSync(at("pkg/connection.js"), "utf8"), /new Worker\(new URL\("\.\/worker\.js", import\.meta\.url\), \{ type: "module" \}\)/);
  const start = fs.readFileSync(at("pkg/start.js"), "utf8");
  for (const module of ["simd128", "relaxed", "simd128_threads", "relaxed_threads"]) assert.ok(start.includes(`new URL("./rillm_${module}_bg.wasm", import.meta.url)`), module);
});

test("the declarations need no newer library than they must", async (t) => {
  const folder = await temporary();
  t.after(() => rm(folder, { recursive: true }));
  const compilerOptions = { target: "ES2022", module: "ESNext", moduleResolution: "Bundler", lib: ["ES2018", "DOM", "DOM.Iterable"], types: [], strict: true, noEmit: true, skipLibCheck: false };
  await write(folder, {
    "main.ts": `import { RillmError, load } from "${at("pkg/index.js")}";\nload("x").catch((error) => console.log(error instanceof RillmError));\n`,
    "tsconfig.json": JSON.stringify({ compilerOptions, files: ["main.ts"] }),
  });
  await run(folder, process.execPath, path.join(at("node_modules"), "typescript/bin/tsc"), "-p", ".");
});

test("what package.json names is there", () => {
  const manifest = JSON.parse(fs.readFileSync(at("pkg/package.json"), "utf8"));
  assert.equal(manifest.name, "rillm");
  const [, version] = /^version = "(.+)"$/m.exec(fs.readFileSync(at("Cargo.toml"), "utf8"));
  assert.equal(manifest.version, version);
  const files = (entry) => (typeof entry === "string" ? [entry] : Object.values(entry).flatMap(files));
  // Types are found only before the rest, and `default` is for import and require alike.
  for (const entry of Object.values(manifest.exports)) if (typeof entry !== "string") assert.deepEqual(Object.keys(entry), ["types", "default"]);
  const there = fs.readdirSync(at("pkg"));
  for (const file of files(manifest.exports)) {
    const [before, after] = file.slice("./".length).split("*");
    assert.ok(there.some((name) => (after === undefined ? name === before : name.startsWith(before) && name.endsWith(after))), file);
  }
});

test("the error codes are those of the engine", async () => {
  const { ENGINE_CODES } = await import(at("pkg/errors.js"));
  const rust = [...fs.readFileSync(at("src/error.rs"), "utf8").matchAll(/^\s+\w+ = "([a-z-]+)",$/gm)].map(([, code]) => code);
  assert.deepEqual([...ENGINE_CODES], rust);
});
