// The package inside a browser extension: its own page, its service worker, and its script in a foreign page.

import assert from "node:assert/strict";
import fs from "node:fs";
import { rm } from "node:fs/promises";
import path from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { ARGUMENTS, MODEL, at } from "./helpers.mjs";
import { site, temporary, write } from "./site.mjs";

let world, temp;
const contexts = [];
before(async () => {
  world = await site({ texts: { "/": "<!doctype html><title>foreign</title>" }, headers: () => ({ "access-control-allow-origin": "*" }) });
  temp = await temporary();
});
after(async () => {
  await Promise.all(contexts.map((context) => context.close()));
  await world?.close();
  if (temp) await rm(temp, { recursive: true, force: true });
});

/** A browser with an extension whose pages have this policy; null is the browser's own. */
async function install(name, policy) {
  const folder = path.join(temp, name);
  const attempt = `
    export async function attempt({ load }) {
      const start = performance.now();
      try {
        const model = await load("${world.url}/models/${MODEL}", { contextLength: 256, cache: false });
        const { text, tokens } = await model.complete("The capital of France is", { temperature: 0, maxTokens: 8 }).result;
        return { code: null, text, tokens: tokens.length };
      } catch (error) {
        return { code: error.code, message: error.message, ms: performance.now() - start };
      }
    }`;
  const manifest = {
    manifest_version: 3, name: "rillm", version: "1", host_permissions: ["http://127.0.0.1/*"],
    background: { service_worker: "background.js", type: "module" },
    content_scripts: [{ matches: ["http://127.0.0.1/*"], js: ["content.js"] }],
    web_accessible_resources: [{ resources: ["*.js", "*.wasm"], matches: ["http://127.0.0.1/*"] }],
    ...(policy && { content_security_policy: { extension_pages: policy } }),
  };
  await write(folder, {
    "manifest.json": JSON.stringify(manifest),
    "attempt.js": attempt,
    "background.js": `import * as rillm from "./rillm/index.js"; import { attempt } from "./attempt.js"; self.attempt = () => attempt(rillm);`,
    "page.html": `<!doctype html><html lang="en"><title>page</title><script type="module" src="page.js"></script></html>`,
    "page.js": `import * as rillm from "./rillm/index.js"; import { attempt } from "./attempt.js"; window.attempt = () => attempt(rillm);`,
    "content.js": `(async () => {
      const [rillm, { attempt }] = await Promise.all(["rillm/index.js", "attempt.js"].map((name) => import(chrome.runtime.getURL(name))));
      document.title = JSON.stringify(await attempt(rillm));
    })();`,
  });
  fs.cpSync(at("pkg"), path.join(folder, "rillm"), { recursive: true });
  const context = await chromium.launchPersistentContext(path.join(temp, `${name}-profile`), {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: [...ARGUMENTS, `--disable-extensions-except=${folder}`, `--load-extension=${folder}`],
    ignoreDefaultArgs: ["--disable-extensions"],
  });
  contexts.push(context);
  const background = context.serviceWorkers()[0] ?? (await context.waitForEvent("serviceworker", { timeout: 20e3 }));
  const page = await context.newPage();
  await page.goto(background.url().replace("background.js", "page.html"));
  await page.waitForFunction(() => window.attempt !== undefined);
  return { context, background, page };
}

test("B108: an extension's page with 'wasm-unsafe-eval' answers; its service worker and its script in a foreign page are refused at once", { timeout: 90e3 }, async () => {
  const { context, background, page } = await install("allowed", "script-src 'self' 'wasm-unsafe-eval'; object-src 'self'");
  const seen = await page.evaluate(() => attempt());
  assert.match(seen.text ?? seen.message, /Paris/);
  assert.ok(seen.tokens > 0);
  const service = await background.evaluate(() => self.attempt());
  assert.equal(service.code, "no-worker", service.message);
  assert.match(service.message, /service worker/);
  const foreign = await context.newPage();
  await foreign.goto(`${world.url}/`);
  await foreign.waitForFunction(() => document.title.startsWith("{"), null, { timeout: 20e3 });
  const content = JSON.parse(await foreign.title());
  assert.equal(content.code, "no-worker", content.message);
  assert.match(content.message, /own origin/);
  for (const { ms } of [service, content]) assert.ok(ms < 5000, `${ms} ms`);
});

test("B108: an extension's page without it is told what is missing", { timeout: 90e3 }, async () => {
  const { page } = await install("default", null);
  const seen = await page.evaluate(() => attempt());
  assert.equal(seen.code, "wasm-blocked-by-csp", seen.message);
  assert.ok(seen.ms < 5000);
});
