// Several tabs of the page, one after the other and at the same time.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { QUICK, answered, ask, pageWorld } from "./page-helpers.mjs";

let world;
before(async () => void (world = await pageWorld()));
after(() => world.close());

/** Another tab of the same browser, with the model loaded. */
async function tab(context) {
  const page = await context.newPage();
  page.on("pageerror", (error) => world.errors.push(String(error)));
  await page.goto(world.url);
  await load(page);
  return page;
}
async function load(page) {
  await page.getByTestId("load").click();
  await page.getByTestId("input").waitFor({ timeout: 60_000 });
}
const stored = (page) => page.evaluate(() => new Promise((resolve, reject) => {
  const opening = indexedDB.open("rillm");
  opening.onerror = () => reject(opening.error);
  opening.onsuccess = () => {
    const all = opening.result.transaction("conversations").objectStore("conversations").getAll();
    all.onsuccess = () => resolve(all.result.map(({ title, turns }) => ({ title, asked: turns.filter((t) => t.role === "user").map((t) => t.text) })).sort((a, b) => (a.title < b.title ? -1 : 1)));
  };
}));
async function until(page, expected) {
  let list;
  for (let i = 0; i < 60; i++) {
    list = await stored(page);
    if (JSON.stringify(list) === JSON.stringify(expected)) return;
    await page.waitForTimeout(50);
  }
  assert.deepEqual(list, expected);
}
const texts = (page) => page.getByTestId("text").allTextContents();
/** Opens the history's first. */
async function openFirst(page, title = "Begin") {
  await page.getByTestId("history").click();
  await page.getByTestId("history-title").first().and(page.getByText(title, { exact: true })).waitFor();
  await page.getByTestId("history-open").first().click();
  await page.getByTestId("history-dialog").waitFor({ state: "detached" });
}

test("what was open is open again after a reload, also behind a model that loads by itself; another tab begins anew", async () => {
  const page = await world.ready({}, { settings: { ...QUICK, maxTokens: 6 } });
  await ask(page, "An older question");
  await page.getByTestId("new-chat").click();
  await ask(page, "The open question");
  const shown = await texts(page);
  await page.reload();
  await page.getByTestId("waiting-chat").waitFor();
  assert.deepEqual(await texts(page), shown);
  await page.goto(`${world.url}/?autoload=1`);
  await page.getByTestId("input").waitFor({ timeout: 60_000 });
  assert.deepEqual(await texts(page), shown);
  await ask(page, "And another one", 2);
  await until(page, [{ title: "An older question", asked: ["An older question"] }, { title: "The open question", asked: ["The open question", "And another one"] }]);

  const other = await page.context().newPage();
  await other.goto(world.url);
  await other.getByTestId("picker").waitFor();
  await other.waitForTimeout(300);
  assert.equal(await other.getByTestId("waiting-chat").count(), 0);
  await page.getByTestId("new-chat").click();
  await page.reload();
  await page.waitForTimeout(300);
  assert.equal(await page.getByTestId("waiting-chat").count(), 0); // a new chat is a new chat
  await page.context().close();
});

test("two tabs that go on with one conversation keep both of what they add", async () => {
  const one = await world.ready({}, { settings: { ...QUICK, maxTokens: 6 } });
  await ask(one, "Begin");
  const two = await tab(one.context());
  await openFirst(two);
  await ask(two, "From the second tab", 2);
  assert.equal(await two.getByTestId("notice").count(), 0); // it went on from what was there
  await until(one, [{ title: "Begin", asked: ["Begin", "From the second tab"] }]);

  await ask(one, "From the first tab", 2);
  assert.match(await one.getByTestId("notice").textContent(), /Another tab has gone on with this conversation.*“Begin \(2\)”/);
  const both = [{ title: "Begin", asked: ["Begin", "From the second tab"] }, { title: "Begin (2)", asked: ["Begin", "From the first tab"] }];
  await until(one, both);
  await one.getByTestId("history").click();
  assert.deepEqual((await one.getByTestId("history-title").allTextContents()).sort(), ["Begin", "Begin (2)"]);
  await one.getByTestId("history-close").click();

  // From here on each has its own.
  await ask(one, "Again from the first", 3);
  await ask(two, "Again from the second", 3);
  both[0].asked.push("Again from the second");
  both[1].asked.push("Again from the first");
  await until(one, both);
  // Opened once more, it is what is there, and it goes on.
  await one.getByTestId("new-chat").click();
  await openFirst(one);
  assert.equal((await texts(one))[2], "From the second tab");
  await ask(one, "In turns", 4);
  both[0].asked.push("In turns");
  await until(one, both);
  await one.context().close();
});

test("a tab that is closed in the middle of an answer leaves the other tab's turns alone", async () => {
  const one = await world.ready({}, { settings: { ...QUICK, maxTokens: 6 } });
  await ask(one, "Begin");
  const two = await tab(one.context());
  await openFirst(two);
  await two.getByTestId("settings").click();
  await two.getByTestId("setting-maxTokens").fill("400");
  await two.getByTestId("settings-close").click();
  await two.getByTestId("input").fill("Write a long story about a river.");
  await two.getByTestId("send").click();
  await two.waitForFunction(() => (document.querySelector('[data-testid="turn-live"] [data-testid="text"]')?.textContent.length ?? 0) > 20);
  await ask(one, "Meanwhile", 2);
  await two.reload();
  await two.getByTestId("waiting-chat").waitFor();
  await until(one, [{ title: "Begin", asked: ["Begin", "Write a long story about a river."] }, { title: "Begin (2)", asked: ["Begin", "Meanwhile"] }]);
  assert.ok((await texts(two)).at(-1).length > 20);
  await one.context().close();
});

test("a conversation that another tab went on with is opened as it is now", async () => {
  const one = await world.ready({}, { settings: { ...QUICK, maxTokens: 6 } });
  await ask(one, "Begin");
  const two = await tab(one.context());
  await openFirst(two);
  await ask(two, "More", 2);
  await openFirst(one);
  await one.getByTestId("turn-user").nth(1).waitFor();
  await ask(one, "And more", 3);
  await until(one, [{ title: "Begin", asked: ["Begin", "More", "And more"] }]);
  await one.context().close();
});

test("a load that goes on in one tab is no crash to another, and a crash is told once", async () => {
  const context = await world.browser.newContext();
  const path = `${world.url}/?model=/odd/slow%3Fms%3D50&autoload=1`;
  const first = await context.newPage();
  await first.goto(path);
  await first.getByTestId("progress").waitFor();
  const second = await context.newPage();
  await second.goto(path);
  await second.getByTestId("progress").waitFor(); // loads as well
  assert.equal(await second.getByTestId("crashed").count(), 0);

  const cdp = await context.newCDPSession(first);
  const crash = new Promise((resolve) => first.on("crash", resolve));
  cdp.send("Page.crash").catch(() => undefined);
  await crash;
  await second.getByTestId("cancel-load").click(); // does not hide what became of the first
  const third = await context.newPage();
  await third.goto(path);
  await third.getByTestId("crashed").waitFor();
  await second.reload();
  await second.getByTestId("progress").waitFor();
  await context.close();
});

test("nothing went unhandled", () => assert.deepEqual(world.errors, []));
