// The package's README and declarations: every example runs or is type-checked as it stands, every table is complete, every member is explained.

import assert from "node:assert/strict";
import fs from "node:fs";
import { rm } from "node:fs/promises";
import { after, before, test } from "node:test";
import { transformWithOxc } from "vite";
import { MODEL, at, launch } from "./helpers.mjs";
import { STRICT, run, site, temporary, write } from "./site.mjs";

const README = fs.readFileSync(at("www/src/README.md"), "utf8");
const blocks = [...README.matchAll(/^```(\w+)\n([^]*?)^```$/gm)].map(([, language, text], i) => ({ language, text, name: `example ${i + 1} (${language})` }));
const runnable = blocks.filter(({ language }) => ["js", "ts", "html"].includes(language));

/** What the examples find on their page; `done` is set by the end of the module. */
const around = (script) => `<!doctype html><html lang="en"><title>example</title>
  <script type="importmap">{ "imports": { "rillm": "/pkg/index.js" } }</script>
  <body><pre id="output"></pre><button id="stop">Stop</button><input id="file" type="file">
  <script type="module">${script}\nwindow.done = true;</script></body></html>`;
const BUTTON = "Stop";

const { ENGINE_CODES, HOST_CODES } = await import(at("pkg/errors.js"));
const CODES = [...ENGINE_CODES, ...HOST_CODES];
const REFUSED = new RegExp(`^(${CODES.join("|")}): `, "m");

let world, browser, context, temp;
before(async () => {
  const texts = {};
  for (const { name, language, text } of runnable) {
    const script = language === "ts" ? (await transformWithOxc(text, "example.ts")).code : text;
    texts[`/${encodeURIComponent(name)}`] = language === "html" ? text : around(script);
  }
  texts["/isolation-worker.js"] = fs.readFileSync(at("pkg/isolation-worker.js"), "utf8");
  world = await site({ texts, folders: { "/node_modules/rillm": at("pkg") } });
  browser = await launch();
  context = await browser.newContext(); // one for all, so that the model comes from the cache from the second on
  temp = await temporary();
});
after(async () => {
  await browser?.close();
  await world?.close();
  if (temp) await rm(temp, { recursive: true, force: true });
});

test("there are examples in JavaScript, TypeScript and HTML, and the first has ten lines at most", () => {
  for (const language of ["js", "ts", "html"]) assert.ok(runnable.some((block) => block.language === language), language);
  assert.deepEqual([...new Set(blocks.map(({ language }) => language))].sort(), ["html", "js", "sh", "text", "ts"]);
  assert.ok(runnable[0].text.trim().split("\n").length <= 10);
});

/** Opens an example, hands it a file if it takes one, and returns what the page shows at its end. */
async function shown({ name, language, text }, act = async () => undefined) {
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  try {
    await page.goto(`${world.url}/${encodeURIComponent(name)}`);
    await act(page);
    if (text.includes(`"#file"`)) await page.setInputFiles("#file", at(`models/${MODEL}`));
    const end = page.waitForFunction(
      ([html, button]) => (html || window.done) && document.body.innerText.replace(button, "").trim().length > 0,
      [language === "html", BUTTON],
      { timeout: 40e3 },
    );
    await end.catch((error) => {
      throw new Error(`${name} did not come to its end: ${errors.join("; ")}`, { cause: error });
    });
    // The plain page has no end to wait for: its model makes eight tokens.
    if (language === "html") await page.waitForFunction(() => /Paris/.test(document.body.innerText), null, { timeout: 20e3 });
    assert.deepEqual(errors, [], name);
    return (await page.innerText("body")).replace(BUTTON, "").trim();
  } finally {
    await page.close();
  }
}

for (const block of runnable) {
  test(`${block.name} runs as it stands`, async () => {
    const text = await shown(block);
    assert.match(text, /\w{3,}/);
    assert.doesNotMatch(text, REFUSED); // an example may catch its errors
  });
}

test("the example with a button stops when it is pressed", async () => {
  const block = runnable.find(({ text }) => text.includes(`"#stop"`));
  // As soon as there is some text; the handler is there from before the first piece.
  const pressed = await shown(block, (page) => page.waitForFunction(() => document.querySelector("#output").textContent).then(() => page.evaluate(() => document.querySelector("#stop").click())));
  assert.match(pressed, /\[abort, \d+ tokens\]$/);
});

test("the examples in TypeScript hold in a strict type check", async () => {
  const files = Object.fromEntries(runnable.filter(({ language }) => language === "ts").map(({ text }, i) => [`example${i}.ts`, text]));
  const compilerOptions = {
    target: "ES2022", module: "ESNext", moduleResolution: "Bundler", lib: ["ES2022", "DOM", "DOM.Iterable"], types: [], strict: true, noEmit: true, skipLibCheck: false,
    paths: { rillm: [at("pkg/index.d.ts")] },
  };
  await write(temp, { ...files, "tsconfig.json": JSON.stringify({ compilerOptions, files: Object.keys(files) }) });
  await run(temp, process.execPath, at("node_modules/typescript/bin/tsc"), "-p", ".");
});

/** The rows of all tables whose head begins with this cell. */
function rows(head) {
  const tables = [...README.matchAll(/(?:^\|.*\|\n)+/gm)].map(([table]) => table.trim().split("\n").map((line) => line.slice(1, -1).split(" | ").map((cell) => cell.trim())));
  return tables.filter(([[first]]) => first === head).map((table) => table.slice(2));
}

test("the table of errors has every code, and no other", () => {
  const [table] = rows("code");
  assert.deepEqual(table.map(([code]) => code.replaceAll("`", "")).sort(), CODES.toSorted());
  for (const [code, meaning, way] of table) assert.ok(meaning.length > 5 && way.length > 5, code);
});

test("the formats, tokenizers and architectures in both READMEs are those of the engine", () => {
  const source = (name) => fs.readFileSync(at(`src/${name}`), "utf8");
  const all = (text, pattern) => [...text.matchAll(pattern)].map(([, name]) => name);
  const names = [
    ...all(/const NAMES: [^]*?\];/.exec(source("tokenizer/pretokenize.rs"))[0], /\("([\w-]+)", /g).map((name) => `\`${name}\``),
    ...all(/const fn name\([^]*?\n    \}/.exec(source("quant.rs"))[0], /=> "(\w+)"/g),
    ...all(/ARCHITECTURES[^]*?\];/.exec(source("model/config.rs"))[0], /"(\w+)"/g).map((name) => `\`${name}\``),
  ];
  assert.ok(names.length >= 6 + 11 + 2, names.join());
  for (const readme of [README, fs.readFileSync(at("README.md"), "utf8")]) assert.deepEqual(names.filter((name) => !readme.includes(name)), []);
});

test("the tools' versions in the README are those that are asked for", () => {
  const readme = fs.readFileSync(at("README.md"), "utf8");
  const [, rust] = /^rust-version = "(.+)"$/m.exec(fs.readFileSync(at("Cargo.toml"), "utf8"));
  const { node } = JSON.parse(fs.readFileSync(at("package.json"), "utf8")).engines;
  assert.equal(node, JSON.parse(fs.readFileSync(at("node_modules/vite/package.json"), "utf8")).engines.node);
  const [, first, second] = /^\^(\d+\.\d+)\.0 \|\| >=(\d+\.\d+)\.0$/.exec(node);
  assert.ok(readme.includes(`Rust ${rust} or later`) && readme.includes(`Node.js ${first} or ${second} or later`));
});

test("the policy in the README is the one that is tried out", () => {
  assert.deepEqual(blocks.filter(({ language }) => language === "text").map(({ text }) => text.trim()), [STRICT]);
});

/** The exported interfaces and classes of a declaration file: each a name, its comment, and its members with theirs. */
function declarations(file) {
  const found = [];
  let comment = "";
  let open = null;
  for (const line of fs.readFileSync(at(`pkg/${file}`), "utf8").split("\n")) {
    const text = line.trim();
    const depth = line.length - line.trimStart().length;
    const head = /^export (?:declare )?(interface|class|type|function|const) (\w+)/.exec(line);
    if (/^(\/\*\*|\*)/.test(text)) comment += ` ${text}`;
    else {
      if (head !== null) {
        found.push({ name: head[2], comment, members: [] });
        open = ["interface", "class"].includes(head[1]) && !line.endsWith("}") ? found.at(-1) : null;
      } else if (open !== null && depth === 4 && !/^(#private|\})/.test(text)) open.members.push({ text, name: /\[?[\w.]+/.exec(text.replace(/^(readonly|get) /, ""))[0], comment });
      else if (depth === 0 && text.startsWith("}")) open = null;
      comment = "";
    }
  }
  return found;
}

const FILES = ["index.d.ts", "types.d.ts", "model.d.ts", "stream.d.ts", "errors.d.ts", "testing.d.ts"];

test("everything that is exported, and each of its members, is explained, with units and defaults", () => {
  const index = fs.readFileSync(at("pkg/index.d.ts"), "utf8");
  for (const [, file] of index.matchAll(/^export .* from "\.\/(\w+)\.js";$/gm)) assert.ok(FILES.includes(`${file}.d.ts`), file);
  const all = FILES.flatMap(declarations);
  for (const name of ["load", "Model", "TextStream", "RillmError", "LoadOptions", "GenerationOptions", "Metrics"]) assert.ok(all.some((one) => one.name === name), name);
  const missing = [];
  for (const { name, comment, members } of all) {
    if (comment === "") missing.push(name);
    for (const member of members) {
      const lacks = (what) => missing.push(`${name}.${member.name}: ${what}`);
      if (member.comment === "") lacks("a comment");
      if (name.endsWith("Options") && !/Default /.test(member.comment)) lacks("a default");
      if (/Ms$/.test(member.name) && !/millisecond/i.test(member.comment)) lacks("milliseconds");
      if (/PerSecond$/.test(member.name) && !/a second/.test(member.comment)) lacks("a second");
      if (/bytes$/i.test(member.name) && !/bytes/i.test(member.comment)) lacks("bytes");
    }
  }
  assert.deepEqual(missing, []);
  assert.ok(all.flatMap(({ members }) => members).length > 80);
});

test("the tables of options are those of the types, with the same defaults", () => {
  const plain = (text) => text.replaceAll("`", "").trim();
  for (const [i, name] of ["LoadOptions", "GenerationOptions"].entries()) {
    const { members } = declarations("types.d.ts").find((one) => one.name === name);
    const expected = members.map((member) => [member.name, plain(/Default (.+?)\.? \*\//.exec(member.comment)[1])]);
    assert.deepEqual(rows("option")[i].map(([option, , value]) => [plain(option), plain(value)]).sort(), expected.sort());
  }
});
