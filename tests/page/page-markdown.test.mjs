// Answers as Markdown: what is drawn, and what must never be.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch } from "./helpers.mjs";
import { drawingServer, markdownPieces } from "./page-helpers.mjs";

let server, browser, page;
before(async () => {
  [server, browser] = await Promise.all([drawingServer(), launch()]);
  const context = await browser.newContext({ permissions: ["clipboard-read", "clipboard-write"] });
  page = await context.newPage();
  await page.goto(server.url);
  await page.waitForFunction(() => window.page !== undefined);
});
after(async () => {
  await browser.close();
  await server.close();
});

/** Answers with the text, in pieces of a few characters; returns where it is drawn. */
async function answer(text, length = 5) {
  await page.evaluate(async (pieces) => {
    window.page.newChat();
    window.page.script(pieces, 2000);
    await window.page.send("Go on.");
  }, text.match(new RegExp(`[\\s\\S]{1,${length}}`, "g")));
  const place = page.getByTestId("turn-assistant").getByTestId("text");
  await place.waitFor();
  return place;
}
const html = (place) => place.evaluate((e) => e.innerHTML);

test("headings, lists, quotes, tables, links and marks become elements", async () => {
  const place = await answer([
    "# One\n\n## Two\n\nSome **bold**, *slanted*, ~~gone~~ and `code <b>` &amp; more.\n\n- a\n- b\n  1. c\n  2. d\n\n5. five\n6. six\n\n- [x] done\n- [ ] open\n\n",
    "> quoted\n\n| A | B |\n|:--|--:|\n| 1 | **2** |\n\n---\n\nSee [a page](https://example.org/x) or <me@example.org>.",
  ].join(""));
  const found = await place.evaluate((e) => Object.fromEntries(["h4", "h5", "strong", "em", "del", "ul ol", "ol[start='5']", "blockquote p", "th", "td.to-right strong", "hr", "input[disabled]:checked"]
    .map((selector) => [selector, e.querySelectorAll(selector).length])));
  assert.deepEqual(found, { h4: 1, h5: 1, strong: 2, em: 1, del: 1, "ul ol": 1, "ol[start='5']": 1, "blockquote p": 1, th: 2, "td.to-right strong": 1, hr: 1, "input[disabled]:checked": 1 });
  assert.equal(await place.locator("p code").textContent(), "code <b>");
  assert.match(await place.textContent(), /code <b> & more/);
  const links = await place.locator("a").evaluateAll((list) => list.map((a) => [a.href, a.target, a.rel]));
  assert.deepEqual(links, [["https://example.org/x", "_blank", "noopener noreferrer"], ["mailto:me@example.org", "_blank", "noopener noreferrer"]]);
});

test("nothing a model writes becomes HTML, runs, or is fetched", async () => {
  const requests = [];
  page.on("request", (request) => requests.push(request.url()));
  const place = await answer([
    "<img src=x onerror=\"window.hacked = 1\"> and <b>bold</b> <script>window.hacked = 2</script>\n\n<div onclick=\"window.hacked = 3\">\nblock\n</div>\n\n<iframe src=\"/\"></iframe>\n\n",
    "[a](javascript:window.hacked=4) [b](JaVa&#115;cript:window.hacked=5) [c](data:text/html,x) [d](vbscript:x) [e](/local) [f](#top) [g](file:///etc/passwd)\n\n",
    "![a picture](https://example.org/spy.png) [![inside](https://example.org/in.png)](https://example.org/out) ![odd](javascript:window.hacked=6)\n\n",
    "[x]: javascript:window.hacked=7\n\n[by name][x] and `<i>` and **<u>under</u>**\n\n```html\n<script>window.hacked = 8</script>\n```\n",
  ].join(""));
  assert.deepEqual(await place.evaluate((e) => e.querySelectorAll("img, script, iframe, b, i, u, [onclick], [onerror], [style]").length), 0);
  const text = await place.textContent();
  for (const part of ["<img src=x onerror=", "<b>bold</b>", "<script>window.hacked = 2</script>", "<div onclick=", "<iframe", "<u>under</u>"]) assert.ok(text.includes(part), part);
  const links = await place.locator("a").evaluateAll((list) => list.map((a) => [a.textContent, a.href]));
  assert.deepEqual(links, [["[image: a picture]", "https://example.org/spy.png"], ["[image: inside]", "https://example.org/out"]]);
  await place.evaluate((e) => e.querySelectorAll("*").forEach((x) => x.tagName !== "A" && x.tagName !== "BUTTON" && x.click()));
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.deepEqual(requests.filter((url) => /example\.org|\/x$/.test(url)), []);
  assert.deepEqual(await page.evaluate(() => ["java\nscript:x", " javascript:x", "//example.org", "https:example.org", "blob:https://a/b", "HTTP://EXAMPLE.org"].map(window.page.safeAddress)),
    [null, null, null, "https://example.org/", null, "http://example.org/"]);
});

test("code has its language and can be copied, and so can the whole answer and the message", async () => {
  const text = "Like this:\n\n```python\ndef f():\n    return \"<a>\"\n```\n\nThat is **all**.";
  const place = await answer(text);
  assert.equal(await place.getByTestId("code-language").textContent(), "python");
  const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
  await place.getByTestId("copy-code").click();
  assert.equal(await clipboard(), "def f():\n    return \"<a>\"");
  await page.getByTestId("copy-code").filter({ hasText: "Copied" }).waitFor();
  await page.getByTestId("copy-answer").click();
  assert.equal(await clipboard(), text);
  await page.getByTestId("copy-message").click();
  assert.equal(await clipboard(), "Go on.");
});

test("what a person writes stays as it was written", async () => {
  const written = "# not a heading\n  **not bold** <b>";
  await page.evaluate(async (text) => {
    window.page.newChat();
    window.page.script(["ok"], 1000);
    await window.page.send(text);
  }, written);
  const place = page.getByTestId("turn-user").getByTestId("text");
  assert.equal(await place.textContent(), written);
  assert.equal(await place.evaluate((e) => getComputedStyle(e).whiteSpace), "pre-wrap");
});

test("cut anywhere, a growing text ends as the whole text does, and is never cut in a block", async () => {
  const odd = ["1. a\n\n2. b\n\n3. c\n\nend", "- a\n\n  b\n\n- c\n", "```\na\n\n\n```\nb\n\n~~~\nc", "a\n===\n\nb\n---\nc", "| a |\n|---|\n| b |\n\nc", "para\n- x\n- y\n\n\n\nz", "\n\n  a\n\n\tcode\n\nb\r\n\r\nc\r\n", "> a\nb\n\n> c", "# a\n# b\n# c\n",
    `Intro:\n\n${Array.from({ length: 30 }, (_, i) => `${i + 3}. item\n   - inner ${i}\n`).join("")}\nend\n\nmore`, `${"* a **b**\n".repeat(25)}- other\n\n`];
  // For a while there is a link definition, in the end there is none; or it comes when what it is for is drawn already.
  const links = ["see [x] here\n\nmore\n\n[x]: http://a.b and more words\n\nend", "see [x] here\n\nmore\n\nand more\n\n[x]: http://a.b\n", `${"- a [x]\n\n".repeat(12)}[x]: http://a.b\n`, "- a\n- b\n- c\n\n- d\n", `${"- a\n".repeat(9)}\n- b\n- c\n`, `1. a\n\n${Array.from({ length: 12 }, (_, i) => `${i + 2}. word\n`).join("")}`, "a &toString; b"];
  const result = await page.evaluate(([texts]) => {
    const shape = (tokens) => JSON.stringify(tokens.map(({ type, raw }) => [type, raw.trim()]));
    return texts.map((text) => {
      const growing = new window.page.GrowingMarkdown();
      for (let i = 1; i <= text.length; i++) growing.grow(text.slice(0, i));
      const fresh = new window.page.GrowingMarkdown();
      const [grown, whole] = [shape(growing.grow(text)), fresh.finish(text)];
      return { grown, shape: shape(whole), whole: JSON.stringify(whole), finished: JSON.stringify(growing.finish(text)) };
    });
  }, [[...odd, markdownPieces(300).join(""), ...links]]);
  for (const [i, { grown, shape, whole, finished }] of result.entries()) {
    assert.equal(finished, whole);
    if (i <= odd.length) assert.equal(grown, shape);
  }
});

test("what is too tangled for Markdown is shown as it stands, and the page goes on", async () => {
  const tangled = ["- ".repeat(2000) + "x", "> ".repeat(5000) + "x", "1. ".repeat(3000) + "x", "1)".repeat(3000), "*a **b ".repeat(3000), "[".repeat(5000) + "x",
    Array.from({ length: 200 }, (_, i) => `${"  ".repeat(i)}- level ${i}\n`).join("")];
  for (const text of tangled) {
    const began = performance.now();
    const place = await answer(text, Math.ceil(text.length / 40));
    assert.equal((await place.textContent()).replace(/\s/g, ""), text.replace(/\s/g, ""));
    assert.ok(performance.now() - began < 5000, `${text.slice(0, 10)}… took ${performance.now() - began} ms`);
  }
  assert.equal(await (await answer("**well**")).locator("strong").textContent(), "well");
});

test("a finished block stays the element that it was, also when the answer is finished", async () => {
  await page.evaluate((pieces) => {
    window.page.newChat();
    window.page.script(pieces, 600);
    window.sent = window.page.send("Go on.");
  }, markdownPieces(600));
  await page.locator(".text > :nth-child(4)").waitFor();
  await page.evaluate(() => {
    window.kept = [document.querySelector(".text"), ...document.querySelectorAll(".text > :nth-child(-n+2)")];
  });
  await page.evaluate(() => window.sent);
  assert.equal(await page.evaluate(() => kept.every((e) => e.isConnected)), true);
  const place = page.getByTestId("turn-assistant").getByTestId("text");
  assert.match(await html(place), /<table>/);
});
