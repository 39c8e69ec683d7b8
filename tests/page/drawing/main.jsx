// The page's own modules, with a hand on them: its drawing is measured with a stream that a test writes, and with the real model drawn
// and not drawn.

import { render } from "preact";
import { App } from "../../../www/demo/src/app.js";
import { newChat, send } from "../../../www/demo/src/chat.js";
import { GrowingMarkdown } from "../../../www/demo/src/markdown-blocks.js";
import { safeAddress } from "../../../www/demo/src/markdown.js";
import { loadModel, defaultChoice } from "../../../www/demo/src/model.js";
import { RateLog } from "../../../www/demo/src/rates.js";
import { change } from "../../../www/demo/src/settings.js";
import { info, stage } from "../../../www/demo/src/state.js";
import { busy, numbers } from "../../../www/demo/src/work.js";
import "../../../www/demo/src/style.css";

render(<App />, document.getElementById("app"));

const INFO = {
  architecture: "llama", name: "Script", quantization: "Q4_1", parameters: 135e6, bytes: 98e6, contextLength: 8192, vocabSize: 49152, hasChatTemplate: true,
  backend: "wasm", backendReason: "A script.", threads: 1, simd: "simd128", adapter: null, memoryBytes: 2e8,
};

/** A stream of `pieces`, `perSecond` of them, at the clock's pace whatever the page is doing; a metronome in a worker sets the beat. */
function scripted(pieces, perSecond) {
  const beat = new Worker(URL.createObjectURL(new Blob([`setInterval(() => postMessage(performance.now()), ${1000 / perSecond});`])));
  const status = { phase: "decode", prefillDone: 10, prefillTotal: 10, metrics: null };
  const began = performance.now();
  let given = 0;
  let wake = () => undefined;
  beat.onmessage = () => wake();
  const metrics = (n) => {
    const ms = performance.now() - began;
    return { timeToFirstTokenMs: 1, prefillTokens: 10, prefillMs: 1, prefillTokensPerSecond: 1e4, decodeTokens: n, decodeMs: ms, decodeTokensPerSecond: n / ms * 1000, forwardPasses: n };
  };
  let resolve;
  const result = new Promise((r) => (resolve = r));
  return {
    get status() {
      return { ...status };
    },
    result,
    async *[Symbol.asyncIterator]() {
      while (given < pieces.length) {
        if ((performance.now() - began) * perSecond / 1000 < given) await new Promise((r) => (wake = r));
        else {
          given += 1;
          status.metrics = metrics(given);
          yield { text: pieces[given - 1], tokens: [1], metrics: status.metrics };
        }
      }
      beat.terminate();
      status.phase = "ended";
      const usage = { promptTokens: 10, cachedTokens: 0, completionTokens: given };
      resolve({ text: pieces.join(""), tokens: [], finishReason: "stop", stopDetail: null, usage, metrics: metrics(given), seed: 1, warnings: [] });
    },
  };
}

window.page = {
  busy, change, newChat, send, stage, GrowingMarkdown, RateLog, safeAddress,
  /** Answers the next message with a script. */
  script(pieces, perSecond) {
    const model = { info: INFO, warnings: [], chat: () => scripted(pieces, perSecond), dispose: () => undefined };
    info.value = INFO;
    stage.value = { kind: "ready", label: "Script", model };
  },
  rate: () => numbers.value.metrics.decodeTokensPerSecond,
  load: () => loadModel(defaultChoice()),
  /** The model's rate when nothing is drawn. */
  async undrawn(text, options) {
    const stream = stage.value.model.chat([{ role: "user", content: text }], options);
    for await (const _ of stream);
    return (await stream.result).metrics.decodeTokensPerSecond;
  },
};
