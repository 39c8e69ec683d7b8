// A model without a chat template continues texts; and the page under a strict policy.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { BASE_MODEL, QUICK, ask, pageWorld } from "./page-helpers.mjs";

let world;
before(async () => void (world = await pageWorld()));
after(() => world.close());

test("a base model continues a text, again and again, and each step can be taken back", async () => {
  const page = await world.open("/");
  await page.evaluate((settings) => localStorage.setItem("rillm.settings", settings), JSON.stringify({ ...QUICK, maxTokens: 12 }));
  await page.reload();
  await page.getByTestId("model-file-field").setInputFiles(BASE_MODEL);
  await page.getByTestId("load").click();
  await page.getByTestId("completion-input").waitFor({ timeout: 60_000 });
  assert.match(await page.getByTestId("completion-why").textContent(), /base model: it has learned to continue texts, not to answer/);
  assert.equal(await page.getByTestId("input").count(), 0);
  assert.equal(await page.getByTestId("completion-continue").isDisabled(), true);

  const start = "The river rises in the hills,\n  and then";
  await page.getByTestId("completion-input").fill(start);
  const go = async () => {
    await page.getByTestId("completion-continue").click();
    await page.getByTestId("completion-stop").waitFor({ state: "detached", timeout: 60_000 });
  };
  const text = () => page.getByTestId("completion-text").textContent();
  await go();
  assert.equal(await page.getByTestId("completion-prompt").textContent(), start);
  const once = await text();
  assert.ok(once.length > 5, once);
  await go();
  const twice = await text();
  assert.ok(twice.startsWith(once) && twice.length > once.length, `${once} / ${twice}`);
  assert.ok(Number(await page.getByTestId("decode-rate").textContent()) > 0);
  await page.getByTestId("completion-undo").click();
  assert.equal(await text(), once);
  await page.getByTestId("completion-edit").click();
  assert.equal(await page.getByTestId("completion-input").inputValue(), start + once);
  await page.getByTestId("completion-input").fill(`${start} it`);
  await go();
  assert.equal(await page.getByTestId("completion-prompt").textContent(), `${start} it`);
  await page.getByTestId("completion-undo").click();
  assert.equal(await page.getByTestId("completion-input").inputValue(), `${start} it`);

  await page.getByTestId("settings").click();
  assert.equal(await page.getByTestId("setting-system").count(), 0); // there is nobody to tell it
  await page.getByTestId("setting-maxTokens").fill("500");
  await page.getByTestId("settings-close").click();
  await page.getByTestId("completion-continue").click();
  await page.waitForFunction(() => (document.querySelector('[data-testid="completion-text"]')?.textContent.length ?? 0) > 60);
  await page.getByTestId("completion-stop").click();
  await page.getByTestId("completion-continue").waitFor();
  assert.ok((await text()).length > 30);

  await page.getByTestId("new-text").click();
  assert.equal(await page.getByTestId("completion-input").inputValue(), "");
  await page.getByTestId("completion-input").fill("word ".repeat(6000));
  await page.getByTestId("completion-continue").click();
  await page.getByTestId("error").waitFor();
  assert.equal(await page.getByTestId("completion-input").inputValue(), "word ".repeat(6000)); // not lost
  await page.context().close();
});

const POLICY = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; style-src 'self'; base-uri 'none'; form-action 'none'";

test("under a strict policy everything works and nothing violates it", async () => {
  const page = await world.ready({}, {
    before: async (context) => {
      await context.route((url) => url.pathname === "/", async (route) => {
        const response = await route.fetch();
        await route.fulfill({ response, headers: { ...response.headers(), "content-security-policy": POLICY } });
      });
      await context.addInitScript(() => {
        window.violations = [];
        addEventListener("securitypolicyviolation", (event) => violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
      });
    },
  });
  await ask(page, "Write a Python function that adds two numbers, as a code block.");
  await page.getByTestId("history").click();
  await page.getByTestId("history-title").first().waitFor();
  await page.getByTestId("history-close").click();
  await page.getByTestId("settings").click();
  await page.getByTestId("setting-topK").fill("-1");
  await page.getByTestId("settings-close").click();
  await page.emulateMedia({ colorScheme: "dark" });
  await page.setViewportSize({ width: 390, height: 800 });
  await page.waitForTimeout(200);
  assert.deepEqual(await page.evaluate(() => violations), []);
  // The policy is there: what it forbids is noticed.
  await page.evaluate(() => document.head.append(Object.assign(document.createElement("script"), { textContent: "window.inline = 1" })));
  await page.waitForFunction(() => violations.length > 0);
  assert.equal(await page.evaluate(() => window.inline), undefined);
  await page.context().close();
});

test("nothing went unhandled", () => assert.deepEqual(world.errors, []));
