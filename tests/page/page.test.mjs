// The built page, as a person uses it.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { MODEL_BYTES, MODEL, at, setUp } from "./helpers.mjs";

let world;
before(async () => void (world = await setUp()));
after(() => world.close());

const number = (text) => Number(text.replace(/[^\d.]/g, ""));

async function openReady() {
  const page = await world.open("/");
  await page.getByTestId("load").click();
  await page.getByTestId("input").waitFor({ timeout: 60_000 });
  return page;
}
/** Until there are so many answers. */
const answers = (page, n) => page.getByTestId("turn-assistant").nth(n - 1).waitFor({ timeout: 60_000 });

test("nothing is loaded before a click", async () => {
  const from = world.requests.length;
  const page = await world.open("/");
  await page.waitForTimeout(300);
  assert.deepEqual(world.requests.slice(from).filter((path) => /gguf|wasm/.test(path)), []);
  await page.context().close();
});

test("a model loads in sight, an answer streams with its speed, stops, and goes on", async () => {
  const page = await world.open("/");
  await page.evaluate(() => {
    // What was on the page, frame by frame.
    window.seen = { progress: [], answer: [], rate: [] };
    const note = (list, value) => value !== undefined && value !== null && value !== list.at(-1) && list.push(value);
    const of = (id) => document.querySelector(`[data-testid="${id}"]`);
    (function look() {
      note(seen.progress, of("progress")?.value);
      note(seen.answer, document.querySelector('[data-testid="turn-live"] [data-testid="text"]')?.textContent);
      if (of("turn-live")) note(seen.rate, of("decode-rate")?.textContent);
      requestAnimationFrame(look);
    })();
  });
  await page.getByTestId("model-url-field").fill("/odd/slow?ms=10");
  await page.getByTestId("load").click();
  await page.getByTestId("progress-text").filter({ hasText: /MB of .* MB · .*\/s · .* left/ }).waitFor();
  await page.getByTestId("input").waitFor({ timeout: 60_000 });
  const progress = await page.evaluate(() => seen.progress);
  assert.ok(progress.length > 3 && progress.every((p, i) => i === 0 || p >= progress[i - 1]), JSON.stringify(progress));

  // An answer that is long enough for several updates on a fast processor, too.
  await page.getByTestId("input").fill("Write a long story about a mountain and the people who climb it.");
  await page.getByTestId("input").press("Enter");
  await answers(page, 1);
  const { answer, rate } = await page.evaluate(() => seen);
  const text = await page.getByTestId("turn-assistant").getByTestId("text").textContent();
  assert.ok(answer.length > 3, `${answer.length} updates`);
  // The letters only: a number, a star or a backtick that ends an update may turn out to be the beginning of a list or of bold text.
  const letters = (text) => text.replace(/\P{L}/gu, "");
  for (const part of answer) assert.ok(letters(text).startsWith(letters(part)), `an update was not the answer's beginning: ${JSON.stringify([part, text])}`);
  assert.doesNotMatch(text, /<\|im_|\uFFFD/);
  const final = number(await page.getByTestId("decode-rate").textContent()), lastLive = number(rate.at(-1));
  assert.ok(rate.length > 3 && Math.abs(lastLive / final - 1) < 0.1, `live ${rate.join(", ")}; final ${final}`);
  assert.ok(number(await page.getByTestId("prefill-rate").textContent()) > 0);
  assert.match(await page.getByTestId("ttft").textContent(), /^[\d.]+ (ms|s)$/);
  assert.match(await page.getByTestId("context").textContent(), /^[1-9]\d* of 4,096 tokens$/);
  assert.match(await page.getByTestId("backend").textContent(), /wasm/);
  assert.match(await page.getByTestId("threads").textContent(), /^[1-8]$/);
  assert.ok(number(await page.getByTestId("memory").textContent()) > 50);
  const classes = [["batch only", 10], ["noticeable wait", 30], ["fluent", 60], ["instant", 100], ["faster than reading", Infinity]];
  assert.equal(await page.getByTestId("speed-class").locator("b").textContent(), classes.find(([, below]) => final < below)[0]);

  // Stop: what there is stays.
  await page.getByTestId("input").fill("Write a long story about a river and the people who live beside it.");
  await page.getByTestId("send").click();
  await page.waitForFunction(() => (document.querySelector('[data-testid="turn-live"] [data-testid="text"]')?.textContent.length ?? 0) > 20);
  await page.getByTestId("stop").click();
  await answers(page, 2);
  const stopped = page.getByTestId("turn-assistant").nth(1);
  assert.equal(await stopped.getByTestId("finish").textContent(), "Stopped");
  assert.ok((await stopped.getByTestId("text").textContent()).length > 20);

  // And on it goes.
  await page.getByTestId("input").fill("What is the capital city of Japan?");
  await page.getByTestId("send").click();
  await answers(page, 3);
  assert.equal(await page.getByTestId("turn-assistant").count(), 3);
  assert.ok((await page.getByTestId("turn-assistant").nth(2).getByTestId("text").textContent()).length > 0);

  await page.getByTestId("new-chat").click();
  assert.equal(await page.getByTestId("turn-assistant").count(), 0);
  await page.getByTestId("example").first().click();
  await answers(page, 1);
  assert.match(await page.getByTestId("turn-assistant").getByTestId("text").textContent(), /Tokyo/);
  await page.context().close();
});

test("every error has its name, and the page goes on", async () => {
  const page = await world.open("/");
  for (const [url, code] of [["/odd/html", "not-gguf"], ["/odd/empty", "not-gguf"], ["/odd/nothing", "network"], [`/odd/truncated?bytes=${MODEL_BYTES - 1}`, "truncated"]]) {
    await page.getByTestId("model-url-field").fill(url);
    await page.getByTestId("load").click();
    await page.getByTestId("error").waitFor({ timeout: 30_000 });
    assert.equal(await page.getByTestId("error-code").textContent(), code, url);
    assert.ok((await page.getByTestId("error-message").textContent()).length > 15);
    await page.getByTestId("error-dismiss").click();
    await page.getByTestId("error").waitFor({ state: "detached" });
  }
  await page.getByTestId("model-file-field").setInputFiles(at(`models/${MODEL}`));
  await page.getByTestId("load").click();
  await page.getByTestId("input").waitFor({ timeout: 60_000 });
  await page.getByTestId("input").fill("word ".repeat(6000));
  await page.getByTestId("send").click();
  await page.getByTestId("error").waitFor();
  assert.equal(await page.getByTestId("error-code").textContent(), "prompt-too-long");
  await page.getByTestId("input").fill("What is the capital city of Japan?");
  await page.getByTestId("send").click();
  await page.getByTestId("turn-assistant").waitFor({ timeout: 60_000 });
  assert.equal(await page.getByTestId("error").count(), 0);
  await page.context().close();
});

test("a load can be cancelled, and the address can ask for one", async () => {
  const page = await world.open("/?model=/odd/slow%3Fms%3D50&autoload=1");
  await page.getByTestId("cancel-load").click();
  assert.equal(await page.getByTestId("model-url-field").inputValue(), "/odd/slow?ms=50");
  assert.equal(await page.getByTestId("error").count(), 0);
  await page.getByTestId("model-default").check();
  await page.getByTestId("load").click();
  await page.getByTestId("input").waitFor({ timeout: 60_000 });
  await page.getByTestId("change-model").click();
  await page.getByTestId("picker").waitFor();
  await page.context().close();
});

test("a new chat in the middle of an answer leaves nothing of it", async () => {
  const page = await openReady();
  await page.getByTestId("example").nth(3).click();
  await page.getByTestId("turn-live").waitFor();
  await page.getByTestId("new-chat").click();
  await page.waitForTimeout(500);
  assert.equal(await page.getByTestId("text").count(), 0);
  await page.getByTestId("example").first().click();
  await answers(page, 1);
  assert.equal(await page.getByTestId("turn-assistant").count(), 1);
  await page.context().close();
});

test("keys: Shift+Enter begins a line, a composing Enter sends nothing", async () => {
  const page = await openReady();
  const input = page.getByTestId("input");
  await input.fill("a");
  await input.press("Shift+Enter");
  assert.equal(await input.inputValue(), "a\n");
  await input.evaluate((e) => e.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", isComposing: true, bubbles: true })));
  assert.equal(await page.getByTestId("turn-user").count(), 0);
  await page.context().close();
});

test("everything that can be operated has a name", async () => {
  const page = await openReady();
  const nameless = await page.evaluate(() => [...document.querySelectorAll("button, input, textarea, progress, meter, summary")]
    .filter((e) => !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).map((e) => e.outerHTML));
  assert.deepEqual(nameless, []);
  await page.context().close();
});

test("nothing went unhandled", () => assert.deepEqual(world.errors, []));
