// Settings, keys, the numbers beside the chat, and a model that is dropped on the page.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { MODEL } from "./helpers.mjs";
import { BASE_MODEL, answered, ask, pageWorld } from "./page-helpers.mjs";

let world, page;
before(async () => {
  world = await pageWorld();
  page = await world.ready({}, { settings: {} });
});
after(() => world.close());

const number = (text) => Number(text.replace(/[^\d.]/g, ""));

test("settings hold, say what they do, refuse what makes no sense, and outlive the page", async () => {
  await page.getByTestId("settings").click();
  const names = ["temperature", "topK", "topP", "minP", "repetitionPenalty", "maxTokens", "seed", "contextLength"];
  for (const name of names) assert.match(await page.locator(`#meaning-${name}`).textContent(), /^[A-Z].{25,110}\.$/, name);
  for (const [name, odd] of [["temperature", "-1"], ["temperature", "hot"], ["topK", "1.5"], ["topP", "1.01"], ["minP", ""], ["repetitionPenalty", "0"], ["maxTokens", "0"], ["seed", "4294967296"], ["contextLength", "15"], ["contextLength", "many"]]) {
    const field = page.getByTestId(`setting-${name}`);
    const before = await field.inputValue();
    await field.fill(odd);
    await page.getByTestId(`problem-${name}`).waitFor();
    assert.equal(await field.getAttribute("aria-invalid"), "true");
    assert.match(await page.getByTestId(`problem-${name}`).textContent(), /from .* to .* stays in use/);
    await field.fill(before);
    assert.equal(await page.getByTestId(`problem-${name}`).count(), 0);
  }
  for (const [name, value] of [["temperature", "0,7"], ["topK", "20"], ["maxTokens", "7"], ["seed", "42"]]) await page.getByTestId(`setting-${name}`).fill(value);
  await page.getByTestId("setting-topP").fill("nonsense");
  await page.getByTestId("setting-system").fill("You are brief.");
  const stored = await page.evaluate(() => JSON.parse(localStorage.getItem("rillm.settings")));
  assert.deepEqual(stored, { temperature: 0.7, topK: 20, topP: 0.9, minP: 0.05, repetitionPenalty: 1.1, maxTokens: 7, seed: 42, contextLength: null, system: "You are brief." });
  await page.getByTestId("settings-close").click();
  assert.equal(await page.evaluate(() => document.activeElement.dataset.testid), "settings");
  await ask(page, "What is photosynthesis?");
  assert.equal(await page.getByTestId("finish").getAttribute("data-finish"), "length");
  assert.match(await page.getByTestId("answer-facts").textContent(), /^7 tokens, .* tokens\/s, seed 42$/);

  await page.reload();
  await page.getByTestId("settings").click();
  assert.equal(await page.getByTestId("setting-maxTokens").inputValue(), "7");
  await page.getByTestId("setting-topP").fill("2");
  await page.getByTestId("settings-reset").click();
  assert.deepEqual(await Promise.all(names.map((name) => page.getByTestId(`setting-${name}`).inputValue())), ["0.2", "40", "0.9", "0.05", "1.1", "512", "", ""]);
  assert.equal(await page.getByTestId("problem-topP").count(), 0);
  assert.equal(await page.getByTestId("setting-system").inputValue(), "");
  await page.keyboard.press("Escape");
  await page.getByTestId("settings-dialog").waitFor({ state: "detached" });
});

test("a stored setting that is out of range does no harm", async () => {
  await page.evaluate(() => localStorage.setItem("rillm.settings", JSON.stringify({ temperature: -3, topK: "x", maxTokens: 20, seed: 5, unknown: 1 })));
  await page.reload();
  await page.getByTestId("settings").click();
  assert.deepEqual(await Promise.all(["temperature", "topK", "maxTokens"].map((name) => page.getByTestId(`setting-${name}`).inputValue())), ["0.2", "40", "20"]);
  await page.getByTestId("settings-close").click();
});

test("a model file can be dropped anywhere", async () => {
  const drag = (type) => page.evaluate(async ([type, url]) => {
    window.transfer ??= new DataTransfer();
    if (transfer.items.length === 0) transfer.items.add(new File([await (await fetch(url)).blob()], "dropped.gguf"));
    return document.querySelector("header").dispatchEvent(new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true }));
  }, [type, `/models/${MODEL}`]);
  assert.equal(await drag("dragenter"), false); // prevented: the page takes it
  await page.getByTestId("drop-target").waitFor();
  await drag("dragleave");
  await page.getByTestId("drop-target").waitFor({ state: "detached" });
  await drag("dragover");
  await drag("drop");
  await page.getByTestId("input").waitFor({ timeout: 60_000 });
  assert.equal(await page.getByTestId("drop-target").count(), 0);
  // Text that is dragged is nobody's business here.
  assert.equal(await page.evaluate(() => {
    const transfer = new DataTransfer();
    transfer.setData("text/plain", "x");
    return document.body.dispatchEvent(new DragEvent("dragover", { dataTransfer: transfer, bubbles: true, cancelable: true }));
  }), true);
});

test("the numbers explain themselves, and agree with each other", async () => {
  await page.getByTestId("new-chat").click();
  await page.getByTestId("settings").click();
  await page.getByTestId("setting-maxTokens").fill("200"); // long enough for a fast processor, too
  await page.getByTestId("settings-close").click();
  await page.evaluate(() => {
    window.points = [];
    new MutationObserver(() => points.push([performance.now(), Number(document.querySelector('[data-testid="chart"]').dataset.points)]))
      .observe(document.querySelector('[data-testid="chart"]'), { attributes: true });
  });
  await ask(page, "Write a long story about a river and the people who live beside it.");
  const read = await page.getByTestId("explain-prefill").textContent();
  const [, tokens, time, speed] = /Reading (\d+) tokens took ([\d.]+)\ss: ([\d.,]+) tokens\/s, many at once, limited by arithmetic/.exec(read);
  assert.ok(Math.abs(tokens / time / number(speed) - 1) < 0.15, read);
  const written = await page.getByTestId("explain-decode").textContent();
  const [, made, ms, rate, size, bandwidth] = /Writing (\d+) tokens after the first took ([\d.]+)\ss: ([\d.]+) tokens\/s, one at a time\. Each token reads up to ([\d.]+) MB of weights, so up to ([\d.]+) GB\/s of memory\.$/.exec(written);
  assert.ok(Math.abs(made / ms / rate - 1) < 0.05, written);
  const half = (shown) => (shown.includes(".") ? 0.05 : 0.5); // of the last digit: the numbers agree as exactly as they are shown
  assert.ok(Math.abs(size * rate / 1000 - bandwidth) <= half(bandwidth) + (size * half(rate) + rate * half(size)) / 1000 + 0.001, written);
  assert.equal(Number(rate), number(await page.getByTestId("decode-rate").textContent()));
  const points = await page.evaluate(() => points);
  assert.ok(points.length >= 2 && points.at(-1)[1] > 20, JSON.stringify(points));
  // While it is written at most four times a second; the last one is the end.
  for (let i = 2; i < points.length - 1; i++) assert.ok(points[i][0] - points[i - 1][0] > 200, JSON.stringify(points));
  assert.match(await page.locator(".plot").getAttribute("aria-label"), /[\d.]+ at the end, [\d.]+ on average, after \d+ tokens/);
  assert.ok(await page.locator(".plot canvas").evaluate((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return data.some((value) => value !== 0);
  }), "nothing is drawn");
  assert.match(await page.getByTestId("simd").textContent(), /128 bits/);
  assert.ok((await page.getByTestId("backend-reason").textContent()).length > 20);
});

test("the chart follows the colour scheme", async () => {
  const colours = () => page.locator(".plot canvas").evaluate((canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const chroma = ([r, g, b, a]) => (a > 250 ? Math.max(r, g, b) - Math.min(r, g, b) : 0);
    let strongest = [0, 0, 0, 255]; // the others are edges
    for (let i = 0; i < data.length; i += 4) if (chroma(data.slice(i, i + 4)) > chroma(strongest)) strongest = [...data.slice(i, i + 4)];
    return strongest;
  });
  const light = await colours();
  await page.emulateMedia({ colorScheme: "dark" });
  await page.waitForTimeout(200);
  const dark = await colours();
  assert.ok(dark[1] - light[1] > 40, `${light} ${dark}`);
  await page.emulateMedia({ colorScheme: "light" });
});

test("Enter sends, but not while a character is composed; Escape stops", async () => {
  await page.getByTestId("new-chat").click();
  await page.getByTestId("settings").click();
  await page.getByTestId("setting-maxTokens").fill("400");
  await page.getByTestId("settings-close").click();
  const input = page.getByTestId("input");
  await input.fill("Write a long story about a river.");
  for (const how of [{ isComposing: true }, { keyCode: 229 }]) {
    await input.evaluate((e, how) => e.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true, ...how })), how);
    assert.equal(await page.getByTestId("turn-user").count(), 0);
  }
  await input.press("Enter");
  await page.waitForFunction(() => (document.querySelector('[data-testid="turn-live"] [data-testid="text"]')?.textContent.length ?? 0) > 20);
  await input.evaluate((e) => e.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true, isComposing: true })));
  assert.equal(await page.getByTestId("turn-live").count(), 1);
  await input.press("Escape");
  await answered(page, 1);
  assert.equal(await page.getByTestId("finish").textContent(), "Stopped");
  assert.equal(await page.locator('[role="status"]').textContent(), "Stopped");
});

test("the focus is not lost with the stop button", async () => {
  await page.getByTestId("input").fill("And another one.");
  await page.getByTestId("send").click();
  await page.getByTestId("stop").click();
  await page.getByTestId("send").waitFor();
  await page.waitForTimeout(50);
  assert.equal(await page.evaluate(() => document.activeElement.dataset.testid), "input");
});

test("B114: a load that took the tab with it is not repeated by itself; one that was left is", async () => {
  const context = await world.browser.newContext();
  const path = `${world.url}/?model=/odd/slow%3Fms%3D20&autoload=1`;
  const first = await context.newPage();
  await first.goto(path);
  await first.getByTestId("progress").waitFor();
  await first.reload(); // no crash
  await first.getByTestId("progress").waitFor();
  const cdp = await context.newCDPSession(first);
  const crash = new Promise((resolve) => first.on("crash", resolve));
  cdp.send("Page.crash").catch(() => undefined);
  await crash;
  const second = await context.newPage();
  await second.goto(path);
  await second.getByTestId("crashed").waitFor();
  assert.match(await second.getByTestId("crashed").textContent(), /slow was being loaded/);
  await second.waitForTimeout(300);
  assert.equal(await second.getByTestId("progress").count(), 0);
  await second.getByTestId("load-anyway").click();
  await second.getByTestId("progress").waitFor();
  assert.equal(await second.getByTestId("crashed").count(), 0);
  await second.getByTestId("cancel-load").click();
  await second.reload();
  await second.getByTestId("progress").waitFor(); // cancelled is not crashed
  await context.close();
});

test("B114: how much memory a model takes is said before it is loaded, with a warning on a small device", async () => {
  for (const [has, short] of [[0.5, true], [8, false], [undefined, false]]) {
    const context = await world.browser.newContext();
    await context.addInitScript((has) => Object.defineProperty(Navigator.prototype, "deviceMemory", { get: () => has }), has);
    const page = await context.newPage();
    await page.goto(`${world.url}/`);
    const hint = page.getByTestId("memory-hint");
    assert.match(await hint.textContent(), /^Takes about \d+ MB of memory\./);
    assert.equal((await hint.textContent()).includes("This device has 0.5 GB in all"), short);
    await page.getByTestId("model-file-field").setInputFiles(BASE_MODEL);
    assert.match(await hint.textContent(), /^Takes about 373 MB/);
    await context.close();
  }
});

test("nothing went unhandled", () => assert.deepEqual(world.errors, []));
