// The history under odd circumstances: two tabs, a deletion in the middle of an answer, stored nonsense, a keyboard.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { QUICK, ask, focused, pageWorld } from "./page-helpers.mjs";

let world, page;
before(async () => {
  world = await pageWorld();
  page = await world.ready({}, { settings: { ...QUICK, maxTokens: 8 } });
});
after(() => world.close());

/** Works on what is stored, from any page: `change` gets the object store. */
const database = (change, value) => page.evaluate(([change, value]) => new Promise((resolve, reject) => {
  const opening = indexedDB.open("rillm");
  opening.onerror = () => reject(opening.error);
  opening.onsuccess = () => {
    const transaction = opening.result.transaction("conversations", "readwrite");
    const request = new Function("store", "value", `return ${change}`)(transaction.objectStore("conversations"), value);
    transaction.oncomplete = () => resolve(request.result);
  };
}), [change, value]);
const stored = () => database("store.getAll()");
const titles = () => page.getByTestId("history-title").allTextContents();

test("the focus stays in the dialog when a title is changed, kept, or a deletion taken back", async () => {
  await ask(page, "First question");
  await page.getByTestId("history").click();
  await page.getByTestId("history-rename").click();
  await page.getByTestId("history-rename-field").press("Escape");
  assert.equal(await focused(page), "history-rename");
  await page.getByTestId("history-rename").click();
  await page.getByTestId("history-rename-field").fill("Renamed");
  await page.getByTestId("history-rename-field").press("Enter");
  assert.equal(await focused(page), "history-rename");
  await page.getByTestId("history-delete").click();
  await page.getByTestId("history-undo").click();
  assert.equal(await focused(page), "history-close");
  assert.deepEqual(await titles(), ["Renamed"]);
  await page.getByTestId("history-close").click();
});

test("a title that is changed here leaves alone what another tab has added", async () => {
  const [conversation] = await stored();
  await page.getByTestId("history").click();
  await page.getByTestId("history-item").waitFor();
  await database("store.put(value, value.id)", { ...conversation, turns: [...conversation.turns, { role: "user", text: "From another tab" }] });
  await page.getByTestId("history-rename").click();
  await page.getByTestId("history-rename-field").fill("Again");
  await page.getByTestId("history-rename-field").press("Enter");
  await page.waitForTimeout(200);
  const [after] = await stored();
  assert.deepEqual([after.title, after.turns.at(-1).text], ["Again", "From another tab"]);
  await page.getByTestId("history-close").click();
});

test("what is deleted while its answer is being written is gone, also after a reload", async () => {
  await page.getByTestId("settings").click();
  await page.getByTestId("setting-maxTokens").fill("400");
  await page.getByTestId("settings-close").click();
  await page.getByTestId("input").fill("Write a long story about my secret.");
  await page.getByTestId("send").click();
  await page.waitForFunction(() => (document.querySelector('[data-testid="turn-live"] [data-testid="text"]')?.textContent.length ?? 0) > 20);
  await page.getByTestId("history").click();
  await page.getByTestId("history-delete").first().click();
  assert.equal(await page.getByTestId("turn-live").count(), 0);
  await page.waitForTimeout(300);
  assert.doesNotMatch(JSON.stringify(await stored()), /secret/);
  await page.getByTestId("history-close").click();
});

test("asking again and leaving before anything came keeps the answer there was", async () => {
  await ask(page, "Name a river. Only its name.");
  const before = (await stored()).find(({ turns }) => turns[0].text.startsWith("Name a river"));
  await page.evaluate(() => {
    document.querySelector('[data-testid="regenerate"]').click();
    requestAnimationFrame(() => document.querySelector('[data-testid="new-chat"]').click());
  });
  await page.waitForTimeout(300);
  const after = (await stored()).find(({ id }) => id === before.id);
  assert.equal(after.turns.length, 2);
});

test("stored nonsense does no harm", async () => {
  const odd = { id: "odd", title: "Odd", model: "m", updated: 1e15, turns: [{ role: "user", text: "a" }, { role: "assistant", text: "b", rate: "fast", tokens: null, finish: {} }] };
  await database("store.put(value, value.id)", odd);
  await database("store.put(value, 'x')", { ...odd, id: "x", updated: Number.NaN });
  await database("store.put(value, 'y')", 5);
  await page.evaluate(() => {
    localStorage.setItem("rillm.loading.x", JSON.stringify({ label: { toString: 1 } }));
    localStorage.setItem("rillm.left.x", JSON.stringify({ conversation: { id: 5 }, base: "x" }));
    localStorage.setItem("rillm.left.y", "{");
    sessionStorage.setItem("rillm.open", "{}");
  });
  await page.goto(`${world.url}/?autoload=1`);
  await page.getByTestId("input").waitFor({ timeout: 60_000 });
  await page.getByTestId("history").click();
  await page.getByTestId("history-item").first().waitFor();
  assert.ok(!(await titles()).includes("Odd"));
  await page.getByTestId("history-open").first().click();
  await page.getByTestId("turn-user").first().waitFor();
});

test("a file that is no model is refused, and the model stays", async () => {
  await page.evaluate(() => {
    const data = new DataTransfer();
    data.items.add(new File(["hello"], "notes.txt"));
    dispatchEvent(new DragEvent("drop", { dataTransfer: data, cancelable: true }));
  });
  await page.getByTestId("error").waitFor();
  assert.equal(await page.getByTestId("error-code").textContent(), "not-gguf");
  assert.match(await page.getByTestId("error-message").textContent(), /notes\.txt” is not a GGUF file/);
  assert.equal(await page.getByTestId("input").count(), 1);
});

test("nothing went unhandled", () => assert.deepEqual(world.errors, []));
