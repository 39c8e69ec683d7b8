// Nothing serious for axe to find, in any state of the page, light and dark, on a phone and on a desk.

import assert from "node:assert/strict";
import fs from "node:fs";
import { after, before, test } from "node:test";
import { at } from "./helpers.mjs";
import { BASE_MODEL, ask, drawingServer, pageWorld } from "./page-helpers.mjs";

let world, scripted;
before(async () => {
  world = await pageWorld();
  scripted = await drawingServer();
});
after(async () => {
  await world.close();
  await scripted.close();
});

const AXE = fs.readFileSync(at("node_modules/axe-core/axe.min.js"), "utf8");
const SIZES = [{ width: 360, height: 740 }, { width: 1280, height: 800 }];

/** Looks at the page in both sizes and both schemes; also nothing may stick out at the side. */
async function check(page, state) {
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(AXE);
  for (const size of SIZES) {
    await page.setViewportSize(size);
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      await page.waitForTimeout(60);
      const { violations } = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
      const bad = violations.filter(({ impact }) => impact === "serious" || impact === "critical")
        .map(({ id, nodes }) => `${id}: ${nodes.map((n) => `${n.html} (${n.failureSummary})`).join(" | ").slice(0, 600)}`);
      assert.deepEqual(bad, [], `${state}, ${size.width} px, ${colorScheme}`);
    }
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${state} is ${wide} px too wide at ${size.width} px`);
  }
}

test("axe finds what is wrong", async () => {
  const page = await world.open("/");
  await page.evaluate(() => document.querySelector("main").insertAdjacentHTML("beforeend", '<input type="text"><p class="bad">x</p>'));
  await assert.rejects(check(page, "a field without a name"), /label/);
  await page.context().close();
});

test("picker, crashed load, loading, error", async () => {
  const page = await world.open("/");
  await check(page, "picker");
  await page.evaluate(() => localStorage.setItem("rillm.loading.x", JSON.stringify({ label: "A model" })));
  await page.goto(`${world.url}/?autoload=1`);
  await page.getByTestId("crashed").waitFor();
  await check(page, "crashed");
  await page.getByTestId("model-url-field").fill("/odd/slow?ms=400");
  await page.getByTestId("load").click();
  await page.getByTestId("progress-text").filter({ hasText: /left/ }).waitFor();
  await check(page, "loading");
  await page.getByTestId("cancel-load").click();
  await page.getByTestId("model-url-field").fill("/odd/html");
  await page.getByTestId("load").click();
  await page.getByTestId("error").waitFor();
  await check(page, "error");
  await page.context().close();
});

test("ready, streaming, finished, editing, history, settings, waiting for a model", async () => {
  const page = await world.ready({}, { settings: { temperature: 0, maxTokens: 4000, seed: 1 } });
  await check(page, "ready");
  await page.getByTestId("input").fill("Write a very long story about a river.");
  await page.getByTestId("send").click();
  await page.locator('[data-testid="turn-live"] [data-testid="text"]').waitFor();
  await check(page, "streaming");
  if (await page.getByTestId("stop").count()) await page.getByTestId("stop").click();
  await page.getByTestId("turn-assistant").waitFor();
  await check(page, "finished");
  await page.getByTestId("edit").click();
  await check(page, "editing");
  await page.getByTestId("edit-cancel").click();
  await page.getByTestId("settings").click();
  await page.getByTestId("setting-topP").fill("2");
  await page.getByTestId("problem-topP").waitFor();
  await check(page, "settings");
  await page.getByTestId("settings-close").click();
  await page.getByTestId("history").click();
  await page.getByTestId("history-item").waitFor();
  await check(page, "history");
  await page.getByTestId("history-rename").click();
  await check(page, "renaming");
  await page.getByTestId("history-close").click();
  await page.getByTestId("change-model").click();
  await page.getByTestId("waiting-chat").waitFor();
  await check(page, "waiting for a model");
  await page.context().close();
});

test("an answer with everything that Markdown has", async () => {
  const page = await world.browser.newPage();
  await page.goto(scripted.url);
  await page.waitForFunction(() => window.page !== undefined);
  await page.evaluate(async () => {
    const text = "# A\n\n## B\n\n### C\n\nSome **bold**, *slanted*, ~~gone~~, `code` and [a link](https://example.org).\n\n- a\n  1. b\n- [x] c\n- [ ] d\n\n> quoted [link](https://example.org)\n\n"
      + "| A | B |\n|--|--|\n| 1 | 2 |\n\n```js\nconst aVeryLongLine = \"which does not fit on a phone, nor beside the panel of a desk, and has to scroll sideways instead of widening the page\";\n```\n\n![picture](https://example.org/x.png)\n\nhttps://example.org/averylongaddresswithoutanybreakinitthatgoesonandonandonandonandonandon\n";
    window.page.script([text], 100);
    await window.page.send("# Everything, averylongwordwithoutanybreakinitthatgoesonandonandonandonandonandonandonandon");
  });
  await check(page, "Markdown");
  await page.close();
});

test("completion", async () => {
  const page = await world.open("/");
  await page.evaluate(() => localStorage.setItem("rillm.settings", JSON.stringify({ maxTokens: 8, seed: 1 })));
  await page.reload();
  await page.getByTestId("model-file-field").setInputFiles(BASE_MODEL);
  await page.getByTestId("load").click();
  await page.getByTestId("completion-input").waitFor({ timeout: 60_000 });
  await check(page, "an empty sheet");
  await page.getByTestId("completion-input").fill("The river rises in the hills");
  await page.getByTestId("completion-continue").click();
  await page.getByTestId("completion-edit").and(page.locator(":enabled")).waitFor({ timeout: 60_000 });
  await check(page, "a continued text");
  await page.context().close();
});

test("everything moves only where motion is welcome", async () => {
  const page = await world.browser.newPage({ reducedMotion: "reduce" });
  await page.goto(world.url);
  const moving = await page.evaluate(() => [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules])
    .filter((rule) => rule instanceof CSSStyleRule && (rule.style.animationName || rule.style.transitionDuration || rule.style.scrollBehavior === "smooth")).map((rule) => rule.cssText));
  assert.deepEqual(moving, []);
  await page.close();
});
