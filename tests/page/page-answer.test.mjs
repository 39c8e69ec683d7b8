// What can be done with an answer, what the page says around it, and how little room it gets along with.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { MODEL } from "./helpers.mjs";
import { QUICK, answered, ask, drawingServer, pageWorld } from "./page-helpers.mjs";

let world, page;
before(async () => {
  world = await pageWorld();
  page = await world.ready({}, { settings: { ...QUICK, maxTokens: 10 } });
});
after(() => world.close());

const answer = () => page.getByTestId("turn-assistant").last().getByTestId("text").textContent();
const facts = () => page.getByTestId("answer-facts").last().textContent();
async function set(name, value) {
  await page.getByTestId("settings").click();
  await page.getByTestId(`setting-${name}`).fill(value);
  await page.getByTestId("settings-close").click();
}

test("an answer that was cut goes on in the same message, to the same text as in one go", async () => {
  await ask(page, "What is photosynthesis?");
  const cut = await answer();
  assert.equal(await page.getByTestId("finish").textContent(), "Cut at the length limit");
  await page.getByTestId("continue").click();
  await page.getByTestId("answer-facts").filter({ hasText: "20 tokens" }).waitFor({ timeout: 60_000 });
  const longer = await answer();
  assert.ok(longer.startsWith(cut) && longer.length > cut.length + 5, `${cut} / ${longer}`);
  assert.equal(await page.getByTestId("turn-user").count(), 1);
  assert.equal(await page.getByTestId("turn-assistant").count(), 1);
  await set("maxTokens", "20");
  await page.getByTestId("regenerate").click();
  await page.getByTestId("turn-live").waitFor({ state: "attached" });
  await answered(page, 1);
  assert.equal(await answer(), longer);
});

test("a stopped answer goes on, and one that goes on can be stopped without losing anything", async () => {
  await page.getByTestId("new-chat").click();
  await set("maxTokens", "400");
  const growing = (more) => page.waitForFunction((more) => (document.querySelector('[data-testid="turn-live"] [data-testid="text"]')?.textContent.length ?? 0) > more, more);
  await page.getByTestId("input").fill("Write a long story about a river.");
  await page.getByTestId("send").click();
  await growing(40);
  await page.getByTestId("stop").click();
  await answered(page, 1);
  const first = await answer();
  await page.getByTestId("continue").click();
  await growing(first.length + 40);
  await page.getByTestId("stop").click();
  await answered(page, 1);
  const second = await answer();
  assert.ok(second.startsWith(first.trimEnd()) && second.length > first.length + 30, `${first} / ${second}`);
  // Left in the middle, it is kept as far as it came.
  await page.getByTestId("continue").click();
  await growing(second.length + 20);
  await page.getByTestId("new-chat").click();
  await page.getByTestId("history").click();
  await page.getByTestId("history-open").first().click();
  const third = await answer();
  assert.ok(third.startsWith(second.trimEnd()) && third.length > second.length + 10, `${second} / ${third}`);
  assert.equal(await page.getByTestId("finish").textContent(), "Stopped");
  // An answer that came to its end does not go on.
  await page.getByTestId("new-chat").click();
  await ask(page, "What is the capital city of Japan?");
  assert.equal(await page.getByTestId("finish").getAttribute("data-finish"), "stop");
  assert.equal(await page.getByTestId("continue").count(), 0);
});

test("the title follows the first message, unless somebody chose it", async () => {
  const title = async () => {
    await page.getByTestId("history").click();
    const title = await page.getByTestId("history-title").first().textContent();
    await page.getByTestId("history-close").click();
    return title;
  };
  const edit = async (text) => {
    await page.getByTestId("edit").first().click();
    await page.getByTestId("edit-field").fill(text);
    await page.getByTestId("edit-send").click();
    await page.getByTestId("turn-user").filter({ hasText: text }).waitFor();
    await answered(page, 1);
  };
  await page.getByTestId("new-chat").click();
  await set("maxTokens", "4");
  await ask(page, "About rivers");
  assert.equal(await title(), "About rivers");
  await edit("About hills");
  assert.equal(await title(), "About hills");
  await page.getByTestId("history").click();
  await page.getByTestId("history-rename").first().click();
  await page.getByTestId("history-rename-field").fill("Landscapes");
  await page.getByTestId("history-rename-field").press("Enter");
  await page.getByTestId("history-close").click();
  await edit("About valleys");
  assert.equal(await title(), "Landscapes");
});

test("where next to nothing was read, no speed of reading is shown for it", async () => {
  await page.getByTestId("new-chat").click();
  await ask(page, "Name a river.");
  assert.match(await page.getByTestId("explain-prefill").textContent(), /Reading \d+ tokens took/);
  assert.match(await page.getByTestId("prefill-rate").textContent(), /\d/);
  await page.getByTestId("regenerate").click(); // the whole prompt is in the model's memory still
  await page.getByTestId("turn-live").waitFor({ state: "attached" });
  await answered(page, 1);
  assert.match(await page.getByTestId("explain-prefill").textContent(), /There was next to nothing to read: \d+ tokens of the conversation were still in the model's memory, and the last one took/);
  assert.equal(await page.getByTestId("prefill-rate").textContent(), "–");
});

test("a prompt that is too long comes with ways out, one of them a longer context", async () => {
  await page.getByTestId("new-chat").click();
  await page.getByTestId("input").fill("word ".repeat(6000));
  await page.getByTestId("send").click();
  await page.getByTestId("error").waitFor();
  assert.match(await page.getByTestId("error-message").textContent(), /^The prompt has \d+ tokens and leaves no room for an answer in the context of 4096\.$/);
  const hint = await page.getByTestId("error-hint").textContent();
  assert.match(hint, /^Shorten your message, begin a new chat, or set a longer context in the settings \(this model can take 8,192 tokens\) and load the model again\.$/);
  await set("contextLength", "8192");
  await set("maxTokens", "2");
  await page.getByTestId("change-model").click();
  await page.getByTestId("load").click();
  await page.getByTestId("input").waitFor({ timeout: 60_000 });
  assert.match(await page.getByTestId("context").textContent(), /of 8,192 tokens$/);

  // More than the model can is refused with the way out, which is not to choose another model.
  await set("contextLength", "100000");
  await page.getByTestId("change-model").click();
  await page.getByTestId("load").click();
  await page.getByTestId("error").waitFor({ timeout: 30_000 });
  assert.equal(await page.getByTestId("error-hint").textContent(), "Choose another context length in the settings, or empty that field.");
  await set("contextLength", "");
});

test("an address is looked at before it is loaded, and errors are whole sentences", async () => {
  const page = await world.open("/");
  const field = page.getByTestId("model-url-field"), problem = page.getByTestId("url-problem");
  for (const [address, expected] of [
    ["http://", /no address/], ["example.org/model.gguf", /lacks its beginning: https:\/\/example\.org\/model\.gguf/], ["file:///model.gguf", /can't load from “file:”/], ["C:\\models\\a.gguf", /can't load from “c:”/],
    ["https://huggingface.co/a/b/blob/main/m.gguf", /\/resolve\//],
  ]) {
    const from = world.requests.length;
    await field.fill(address);
    await field.press("Enter");
    await problem.waitFor();
    assert.match(await problem.textContent(), expected);
    assert.equal(await field.getAttribute("aria-invalid"), "true");
    assert.equal(await problem.evaluate((e) => getComputedStyle(e).color), await field.evaluate((e) => getComputedStyle(e).borderColor)); // as bad as it is
    assert.deepEqual(world.requests.slice(from).filter((path) => path !== "/icon.svg"), [], address);
    assert.equal(await field.inputValue(), address);
    await field.press("End");
    await field.press("x");
    assert.equal(await problem.count(), 0);
  }
  for (const path of ["/odd/html", "/odd/empty", "/odd/nothing", "/odd/truncated?bytes=1900000"]) {
    await field.fill(path);
    await field.press("Enter");
    await page.getByTestId("error").waitFor({ timeout: 30_000 });
    const message = await page.getByTestId("error-message").textContent();
    assert.match(message, /^(?:[A-Z]|http:).*[.!?]$/, message);
    assert.ok(message.includes(path), message);
    await page.getByTestId("error-dismiss").click();
  }
  await field.fill(`models/${MODEL}`); // relative to the page
  await field.press("Enter");
  await page.getByTestId("input").waitFor({ timeout: 60_000 });
  await page.context().close();
});

test("an address in the page's own fills the field in, and loads nothing by itself", async () => {
  const from = world.requests.length;
  const page = await world.open("/?model=https://example.org/some/model.gguf");
  await page.getByTestId("picker").waitFor();
  assert.equal(await page.getByTestId("model-url-field").inputValue(), "https://example.org/some/model.gguf");
  assert.equal(await page.getByTestId("model-url").isChecked(), true);
  assert.equal(await page.getByTestId("load").isEnabled(), true);
  await page.waitForTimeout(300);
  assert.deepEqual(world.requests.slice(from).filter((path) => /gguf|wasm/.test(path)), []);
  await page.context().close();
});

test("on 320 by 256 there is room to read and to write", async () => {
  const small = await world.ready({ viewport: { width: 320, height: 256 } }, { settings: { ...QUICK, maxTokens: 30 } });
  await ask(small, "What is photosynthesis?");
  const box = (id) => small.getByTestId(id).boundingBox();
  const chat = await box("chat"), input = await box("input"), send = await box("send");
  assert.ok(chat.height >= 110, `${chat.height} px for the conversation`);
  for (const part of [chat, input, send]) assert.ok(part.x >= 0 && part.y >= 0 && part.x + part.width <= 320 && part.y + part.height <= 256, JSON.stringify(part));
  for (const id of ["history", "settings", "change-model", "new-chat"]) {
    const { x, y, width, height } = await box(id);
    assert.ok(x >= 0 && y >= 0 && x + width <= 320 && height >= 24, id);
  }
  assert.equal(await small.evaluate(() => document.documentElement.scrollWidth), 320);
  // The numbers can be unfolded, seen to their end, and folded up again.
  await small.locator("aside summary").first().click();
  await small.getByTestId("backend-reason").scrollIntoViewIfNeeded();
  await small.locator("aside summary").first().scrollIntoViewIfNeeded();
  await small.locator("aside summary").first().click();
  await small.getByTestId("input").click();
  for (const name of ["settings", "history"]) {
    await small.getByTestId(name).click();
    await small.getByTestId(`${name}-close`).click();
  }
  await small.context().close();
});

test("a wide table scrolls in itself, a huge one is cut and says so", async () => {
  const server = await drawingServer();
  const page = await world.browser.newPage({ viewport: { width: 390, height: 844 } });
  await page.goto(server.url);
  await page.waitForFunction(() => window.page !== undefined);
  const table = (columns, rows) => [Array(columns).fill("A long heading"), Array(columns).fill("---"), ...Array(rows).fill(Array(columns).fill("some value"))].map((row) => `| ${row.join(" | ")} |`).join("\n");
  const show = async (text) => {
    await page.evaluate(async (text) => {
      window.page.newChat();
      window.page.script([text], 100);
      await window.page.send("A table.");
    }, text);
    const place = page.getByTestId("turn-assistant").locator(".table");
    await place.waitFor({ timeout: 60_000 });
    return place;
  };
  const wide = await show(table(12, 3));
  const size = await wide.evaluate((e) => ({ inner: e.scrollWidth, outer: e.clientWidth, page: document.documentElement.scrollWidth, lines: e.querySelector("td").getBoundingClientRect().height }));
  assert.ok(size.inner > size.outer * 2 && size.outer <= 390 && size.page <= 390, JSON.stringify(size));
  assert.ok(size.lines < 60, "a cell is a column of letters");
  await wide.focus();
  await page.keyboard.press("ArrowRight");
  await page.waitForFunction(() => document.querySelector(".table").scrollLeft > 0); // without a mouse, too
  assert.equal(await page.getByTestId("table-cut").count(), 0);

  const huge = await show(table(200, 300));
  assert.deepEqual([await huge.locator("th").count(), await huge.locator("td").count()], [60, 66 * 60]);
  assert.match(await page.getByTestId("table-cut").textContent(), /60 of 200 columns and 66 of 300 rows are shown/);
  await page.close();
  await server.close();
});

test("nothing went unhandled", () => assert.deepEqual(world.errors, []));
