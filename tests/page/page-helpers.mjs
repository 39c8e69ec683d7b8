// What the tests of the page have in common beyond helpers.mjs.

import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";
import sirv from "sirv";
import http from "node:http";
import { build } from "vite";
import { GEMMA, at, setUp } from "./helpers.mjs";

/** A world whose pages know where the model is; short answers that are the same each time, unless a test says otherwise. */
export async function pageWorld() {
  const world = await setUp();
  /** The page with the model loaded. `settings` as they are stored; `before` runs on the context before anything else. */
  world.ready = async (options = {}, { settings = QUICK, before = async () => undefined, path = "/" } = {}) => {
    const context = await world.browser.newContext(options);
    await context.addInitScript(storeSettings, JSON.stringify(settings));
    await before(context);
    const page = await context.newPage();
    page.on("pageerror", (error) => world.errors.push(String(error)));
    await page.goto(world.url + path);
    await page.getByTestId("load").click();
    await page.locator('[data-testid="input"], [data-testid="completion"]').waitFor({ timeout: 60_000 });
    return page;
  };
  return world;
}

export const QUICK = { temperature: 0, maxTokens: 24, seed: 1 };

function storeSettings(settings) {
  if (localStorage.getItem("rillm.settings") === null) localStorage.setItem("rillm.settings", settings);
}

/** Asks, and waits until there are so many answers. */
export async function ask(page, text, n = 1) {
  await page.getByTestId("input").fill(text);
  await page.getByTestId("input").press("Enter");
  await answered(page, n);
}
export const answered = (page, n) => page.getByTestId("turn-assistant").nth(n - 1).waitFor({ timeout: 60_000 });

/** What has the focus, once what was done is drawn. */
export const focused = (page) => page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve(document.activeElement?.dataset.testid ?? document.activeElement?.tagName)))));

/** A base model, which has no chat template. */
export const BASE_MODEL = at(`models/${GEMMA}`);

/** A page of the page's own modules (drawing/main.jsx), built for a test only and served with the models. */
export async function drawingServer() {
  const { default: config } = await import(pathToFileURL(at("www/demo/vite.config.mjs")));
  const out = fs.mkdtempSync(path.join(os.tmpdir(), "rillm-drawing-"));
  await build({ ...config, configFile: false, logLevel: "error", root: at("tests/page/drawing"), publicDir: false, build: { ...config.build, outDir: out, emptyOutDir: true } });
  const files = sirv(out, { dev: true }), models = sirv(at("models"), { dev: true });
  const server = http.createServer((request, response) => {
    if (!request.url.startsWith("/models/")) return files(request, response, () => response.writeHead(404).end());
    request.url = request.url.slice("/models".length);
    models(request, response, () => response.writeHead(404).end());
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    fs.rmSync(out, { recursive: true });
  };
  return { url: `http://127.0.0.1:${server.address().port}/`, close };
}

/** An answer with all that Markdown has, about as many pieces as asked for, each about the size of a token. */
export function markdownPieces(count) {
  const parts = [
    "## How a river begins\n\nWater that falls on a hill gathers in **small rills**, and these join to *brooks* and `streams`.\n\n",
    "- Rain falls on the hill\n- It runs down in a rill\n  - over stones\n  - past [a mill](https://example.org/mill)\n- The rill joins a brook\n\n",
    "```js\nfunction flow(rills) {\n  let sum = 0;\n  for (const rill of rills) sum += rill.water;\n  return sum;\n}\n```\n\n",
    "| River | Length | Country |\n|---|---:|---|\n| Elbe | 1,094 km | Germany |\n| Loire | 1,006 km | France |\n\n",
    "> What is soft is strong, and the water wears the stone away over the years.\n\n1. First the hill\n2. Then the valley\n3. Then the sea\n\n",
  ];
  let text = "";
  while (text.length < count * 4) text += parts[(text.length * 7) % parts.length] + parts.join("");
  return Array.from({ length: count }, (_, i) => text.slice(i * 4, i * 4 + 4));
}
