// Conversations that are kept, and what can be done with their messages.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { QUICK, answered, ask, focused, pageWorld } from "./page-helpers.mjs";

let world, page;
before(async () => {
  world = await pageWorld();
  page = await world.ready();
});
after(() => world.close());

const stored = () => page.evaluate(() => new Promise((resolve, reject) => {
  const opening = indexedDB.open("rillm");
  opening.onerror = () => reject(opening.error);
  opening.onsuccess = () => {
    const all = opening.result.transaction("conversations").objectStore("conversations").getAll();
    all.onsuccess = () => resolve(all.result.sort((a, b) => b.updated - a.updated));
  };
}));
/** Until what is stored is so. */
async function until(check) {
  let list;
  for (let i = 0; i < 100; i++) {
    list = await stored();
    if (check(list)) return list;
    await page.waitForTimeout(50);
  }
  assert.fail(JSON.stringify(list));
}
const texts = () => page.getByTestId("text").allTextContents();
const titles = () => page.getByTestId("history-title").allTextContents();
async function load() {
  await page.getByTestId("load").click();
  await page.getByTestId("input").waitFor({ timeout: 60_000 });
}

test("a conversation is kept across a reload, under its first message, without end markers", async () => {
  await ask(page, "What is the capital city of Japan?");
  await page.getByTestId("new-chat").click();
  await ask(page, "Name a river. Only its name.");
  await ask(page, "And another one?", 2);
  const shown = await texts();
  const [second, first] = await until((list) => list.length === 2 && list[0].turns.length === 4);
  assert.equal(first.title, "What is the capital city of Japan?");
  assert.match(first.turns[1].text, /Tokyo/);
  assert.equal(second.model, "SmolLM2 135M Instruct");
  assert.doesNotMatch(JSON.stringify([first, second]), /<\||\|>|endoftext|\uFFFD/);

  await page.reload();
  await page.getByTestId("waiting-chat").waitFor(); // it is open again, and can be read before there is a model
  assert.deepEqual(await texts(), shown);
  await page.getByTestId("history").click();
  assert.deepEqual(await titles(), ["Name a river. Only its name.", "What is the capital city of Japan?"]);
  await page.getByTestId("history-close").click();
  await load();
  assert.deepEqual(await texts(), shown);
  await ask(page, "Thank you.", 3);
  await until((list) => list.length === 2 && list[0].turns.length === 6 && list[0].id === second.id);
});

test("a conversation can be renamed, deleted, and brought back", async () => {
  await page.getByTestId("history").click();
  await page.getByTestId("history-rename").nth(1).click();
  await page.getByTestId("history-rename-field").fill("Japan");
  await page.getByTestId("history-rename-field").press("Enter");
  assert.deepEqual(await titles(), ["Name a river. Only its name.", "Japan"]);
  await until((list) => list[1].title === "Japan");
  await page.getByTestId("history-delete").first().click();
  assert.deepEqual(await titles(), ["Japan"]);
  assert.equal(await page.getByTestId("text").count(), 0); // it was the open one
  await until((list) => list.length === 1);
  await page.getByTestId("history-undo").click();
  assert.equal((await titles()).length, 2);
  await until((list) => list.length === 2);
  await page.getByTestId("history-open").nth(1).click();
  assert.match((await texts())[1], /Tokyo/);
  assert.equal(await focused(page), "input");
});

test("a message can be edited, and an answer asked for again", async () => {
  await page.getByTestId("new-chat").click();
  await ask(page, "What is the capital city of Japan?");
  await ask(page, "And of France?", 2);
  const before = await texts();
  await page.getByTestId("edit").first().click();
  await page.getByTestId("edit-field").fill("What is the capital city of Italy?");
  await page.getByTestId("edit-field").press("Escape");
  assert.deepEqual(await texts(), before);
  await page.getByTestId("edit").first().click();
  await page.getByTestId("edit-field").fill("What is the capital city of Italy?");
  await page.getByTestId("edit-send").click();
  await page.waitForFunction(() => document.querySelectorAll('[data-testid="turn-assistant"]').length === 1);
  const edited = await texts();
  assert.equal(edited.length, 2);
  assert.match(edited[1], /Rome/);
  await page.getByTestId("regenerate").click();
  await page.getByTestId("turn-live").waitFor({ state: "attached" });
  await answered(page, 1);
  assert.deepEqual(await texts(), edited); // same seed, same answer
  await until((list) => list[0].turns.length === 2 && list[0].turns[0].text === "What is the capital city of Italy?");
});

test("after an error the draft, and the conversation as it was, are still there", async () => {
  const before = await texts();
  const long = "word ".repeat(6000);
  await page.getByTestId("input").fill(long);
  await page.getByTestId("send").click();
  await page.getByTestId("error").waitFor();
  assert.equal(await page.getByTestId("input").inputValue(), long);
  assert.deepEqual(await texts(), before);
  await page.getByTestId("input").fill("");
  await page.getByTestId("edit").first().click();
  await page.getByTestId("edit-field").fill(long);
  await page.getByTestId("edit-send").click();
  await page.getByTestId("error").waitFor();
  assert.equal(await page.getByTestId("input").inputValue(), long);
  assert.deepEqual(await texts(), before);
  await page.getByTestId("error-dismiss").click();
  await page.getByTestId("input").fill("");
});

test("a tab that is closed in the middle of an answer keeps its beginning", async () => {
  await page.getByTestId("settings").click();
  await page.getByTestId("setting-maxTokens").fill("400");
  await page.getByTestId("settings-close").click();
  await page.getByTestId("new-chat").click();
  await page.getByTestId("input").fill("Write a long story about a river.");
  await page.getByTestId("send").click();
  await page.waitForFunction(() => (document.querySelector('[data-testid="turn-live"] [data-testid="text"]')?.textContent.length ?? 0) > 40);
  await page.reload();
  const [last] = await until((list) => list[0].title === "Write a long story about a river.");
  assert.deepEqual(last.turns.map((turn) => turn.role), ["user", "assistant"]);
  assert.ok(last.turns[1].finish === "abort" && last.turns[1].text.length > 20, JSON.stringify(last));
  await page.getByTestId("waiting-close").click();
  assert.equal(await page.getByTestId("waiting-chat").count(), 0);
  await page.reload(); // what was closed stays closed
  await page.getByTestId("history").click();
  await page.getByTestId("history-open").first().click();
  await page.getByTestId("waiting-chat").waitFor();
  await page.context().close();
});

for (const [name, script] of [
  ["without IndexedDB", () => Object.defineProperty(globalThis, "indexedDB", { value: undefined })],
  ["where it refuses, as in a private window", () => (IDBFactory.prototype.open = () => { throw new DOMException("no", "SecurityError"); })],
]) {
  test(`${name} the page works, and says that nothing is kept`, async () => {
    const page = await world.ready({}, { before: (context) => context.addInitScript(script), settings: { ...QUICK, maxTokens: 4 } });
    await page.getByTestId("not-kept").waitFor();
    await ask(page, "Hello");
    await page.getByTestId("history").click();
    await page.getByTestId("history-unavailable").waitFor();
    assert.deepEqual(await page.getByTestId("history-title").allTextContents(), ["Hello"]);
    await page.context().close();
  });
}

test("nothing went unhandled", () => assert.deepEqual(world.errors, []));
