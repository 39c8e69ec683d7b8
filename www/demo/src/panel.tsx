import { signal } from "@preact/signals";
import type { Metrics } from "rillm";
import { ChartView } from "./chart-view.js";
import { SPEED_CLASSES, count, duration, megabytes, rate, seconds, speedClass, tokens } from "./format.js";
import { info, stage } from "./state.js";
import { numbers } from "./work.js";

const query = matchMedia("(min-width: 60rem)");
const wide = signal(query.matches);
query.addEventListener("change", () => (wide.value = query.matches));

/** What the engine does, in numbers. Beside the chat where there is room, else folded up above it. */
export function Panel() {
  const { metrics } = numbers.value;
  const decode = metrics?.decodeTokensPerSecond ?? null;
  return (
    <aside aria-label="Speed">
      <details open={wide.value}>
        <summary>
          <span>Speed</span>
          <span class="brief">{decode === null ? "no answer yet" : `${rate(decode)} tokens/s, ${speedClass(decode).name}`}</span>
        </summary>
        <Speed />
        <Explanation />
        <Facts />
      </details>
    </aside>
  );
}

function Speed() {
  const { phase, metrics, contextUsed } = numbers.value;
  const decode = metrics?.decodeTokensPerSecond ?? null;
  const now = decode === null ? null : speedClass(decode);
  const first = metrics?.timeToFirstTokenMs ?? null;
  const length = info.value?.contextLength ?? 0;
  return (
    <section class="block" data-testid="speed" data-phase={phase}>
      <dl class="rates">
        <div>
          <dt>Decode <small>writing</small></dt>
          <dd><b data-testid="decode-rate">{rate(decode)}</b> tokens/s</dd>
        </div>
        <div>
          <dt>Prefill <small>reading</small></dt>
          <dd><b data-testid="prefill-rate">{rate(reads(metrics) ? metrics?.prefillTokensPerSecond : null)}</b> tokens/s</dd>
        </div>
        <div>
          <dt>First token</dt>
          <dd><b data-testid="ttft">{first === null ? "–" : duration(first)}</b></dd>
        </div>
      </dl>
      <p class="class" data-testid="speed-class">{now === null ? <span class="meaning">Ask something to see how fast it is.</span> : <><b>{now.name}</b> <span class="meaning">{now.meaning}</span></>}</p>
      <ChartView />
      <label class="context">
        <span>Context</span> <span data-testid="context">{contextUsed.toLocaleString("en")} of {length.toLocaleString("en")} tokens</span>
        <meter min={0} max={length} high={length * 0.9} value={contextUsed} />
      </label>
    </section>
  );
}

/** Reading and writing, with the figures of the last answer. */
function Explanation() {
  const { metrics, usage } = numbers.value;
  const decode = metrics?.decodeTokensPerSecond ?? null;
  const now = decode === null ? null : speedClass(decode);
  const held = usage?.cachedTokens ?? 0;
  return (
    <section class="block explain" data-testid="explanation">
      <h2>Where the time goes</h2>
      {metrics === null || metrics.prefillTokensPerSecond === null
        ? <p><b>Prefill</b> reads your text, many tokens at once: calculating limits it. <b>Decode</b> writes, one token after the other, each through all the weights: memory limits it.</p>
        : (
          <p data-testid="explain-prefill">
            <b>Prefill.</b>{" "}
            {reads(metrics)
              ? `Reading ${tokens(metrics.prefillTokens)} took ${seconds(metrics.prefillMs)}: ${rate(metrics.prefillTokensPerSecond)} tokens/s, many at once, limited by arithmetic.${held > 0 ? ` Another ${held.toLocaleString("en")} of the conversation were still in the model's memory.` : ""}`
              : `There was next to nothing to read: ${held > 0 ? `${tokens(held)} of the conversation were still in the model's memory, and the last one` : "one token, which"} took ${seconds(metrics.prefillMs)}.`}
          </p>
        )}
      {metrics !== null && decode !== null && (
        <p data-testid="explain-decode">
          <b>Decode.</b> Writing {tokens(metrics.decodeTokens)} after the first took {seconds(metrics.decodeMs)}: {rate(decode)} tokens/s, one at a time.
          {info.value !== null && ` Each token reads up to ${megabytes(info.value.bytes)} of weights, so up to ${perSecond(info.value.bytes * decode)} of memory.`}
        </p>
      )}
      <details>
        <summary>What is fast?</summary>
        <p>
          A token is about three quarters of an English word. “Up to”, because that is the size of the file: a table that only looks up what a
          token means is read in one row, where the model has one for that alone, and in memory the weights are packed a little differently.
        </p>
        <ul>
          {SPEED_CLASSES.map((c) => <li key={c.name} class={c === now ? "now" : ""}><span>{c.range}</span> {c.name}</li>)}
        </ul>
      </details>
    </section>
  );
}

/** A single token is read as it is written, so its speed says nothing of reading. */
function reads(metrics: Metrics | null): boolean {
  return metrics !== null && metrics.prefillTokens > 1;
}

function perSecond(bytes: number): string {
  return `${(bytes / 1e9).toFixed(bytes < 1e11 ? 1 : 0)} GB/s`;
}

function Facts() {
  const { value } = info;
  if (value === null) return null;
  return (
    <div class="facts block">
      <dl>
        <div><dt>Runs on</dt><dd data-testid="backend" title={value.backendReason}>{value.backend === "wasm" ? "CPU (wasm)" : `GPU${value.adapter ? ` (${value.adapter})` : ""}`}</dd></div>
        <div><dt>SIMD</dt><dd data-testid="simd">{value.simd === "relaxed" ? "relaxed, 128 bits" : "128 bits"}</dd></div>
        <div><dt>Threads</dt><dd data-testid="threads">{value.threads}</dd></div>
        <div><dt>Memory</dt><dd data-testid="memory">{megabytes(value.memoryBytes)}</dd></div>
        <div><dt>Model</dt><dd>{count(value.parameters)} weights, {value.quantization}</dd></div>
      </dl>
      <p class="note" data-testid="backend-reason">{value.backendReason}</p>
      {stage.value.kind === "ready" && stage.value.model.warnings.map((w) => <p class="note" key={w.code} data-testid="warning">{w.message}</p>)}
    </div>
  );
}
