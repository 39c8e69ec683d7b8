import { signal } from "@preact/signals";
import { DEFAULTS, numbers, settings, type Settings } from "./chat.js";
import { SPEED_CLASSES, count, duration, megabytes, rate, speedClass } from "./format.js";
import { info, stage } from "./state.js";

const query = matchMedia("(min-width: 60rem)");
const wide = signal(query.matches);
query.addEventListener("change", () => (wide.value = query.matches));

/** What the engine does, in numbers. Beside the chat where there is room, else folded up above it. */
export function Panel() {
  const { metrics } = numbers.value;
  const decode = metrics?.decodeTokensPerSecond ?? null;
  return (
    <aside aria-label="Speed and settings">
      <details open={wide.value}>
        <summary>
          <span>Speed</span>
          <span class="brief">{decode === null ? "no answer yet" : `${rate(decode)} tokens/s, ${speedClass(decode).name}`}</span>
        </summary>
        <Speed />
        <Facts />
        <SettingsForm />
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
          <dd><b data-testid="prefill-rate">{rate(metrics?.prefillTokensPerSecond)}</b> tokens/s</dd>
        </div>
        <div>
          <dt>First token</dt>
          <dd><b data-testid="ttft">{first === null ? "–" : duration(first)}</b></dd>
        </div>
      </dl>
      <p class="class" data-testid="speed-class">{now === null ? <span class="meaning">Ask something to see how fast it is.</span> : <><b>{now.name}</b> <span class="meaning">{now.meaning}</span></>}</p>
      <details class="explain">
        <summary>What do these mean?</summary>
        <p><b>Prefill</b> reads your message: many tokens at once, so it is limited by how fast the processor calculates. <b>Decode</b> writes the answer, one token after the other; each one goes through all the weights, so it is limited by how fast memory delivers them. A token is about three quarters of an English word.</p>
        <ul>
          {SPEED_CLASSES.map((c) => <li key={c.name} class={c === now ? "now" : ""}><span>{c.range}</span> {c.name}</li>)}
        </ul>
      </details>
      <label class="context">
        <span>Context</span> <span data-testid="context">{contextUsed.toLocaleString("en")} of {length.toLocaleString("en")} tokens</span>
        <meter min={0} max={length} high={length * 0.9} value={contextUsed} />
      </label>
    </section>
  );
}

function Facts() {
  const { value } = info;
  if (value === null) return null;
  return (
    <dl class="facts block">
      <div><dt>Runs on</dt><dd data-testid="backend" title={value.backendReason}>{value.backend === "wasm" ? `CPU (wasm, ${value.simd})` : `GPU${value.adapter ? ` (${value.adapter})` : ""}`}</dd></div>
      <div><dt>Threads</dt><dd data-testid="threads">{value.threads}</dd></div>
      <div><dt>Memory</dt><dd data-testid="memory">{megabytes(value.memoryBytes)}</dd></div>
      <div><dt>Model</dt><dd>{count(value.parameters)} weights, {value.quantization}</dd></div>
      <p class="note">{value.backendReason}</p>
      {stage.value.kind === "ready" && stage.value.model.warnings.map((w) => <p class="note" key={w.code} data-testid="warning">{w.message}</p>)}
    </dl>
  );
}

const FIELDS: { name: keyof Settings; label: string; min: number; max: number; step: number }[] = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.1 },
  { name: "topP", label: "Top p", min: 0, max: 1, step: 0.05 },
  { name: "repetitionPenalty", label: "Repetition penalty", min: 0.5, max: 2, step: 0.05 },
  { name: "maxTokens", label: "Longest answer, in tokens", min: 1, max: 4096, step: 1 },
];

function SettingsForm() {
  return (
    <details class="block settings">
      <summary>Settings</summary>
      {FIELDS.map(({ name, label, ...range }) => (
        <label key={name}>
          <span>{label}</span>
          <input
            type="number" {...range} value={settings.value[name]} data-testid={`setting-${name}`}
            onChange={({ currentTarget: field }) => {
              // What is no number goes back to what it was at the start.
              settings.value = { ...settings.value, [name]: field.validity.valid && field.value !== "" ? field.valueAsNumber : DEFAULTS[name] };
              field.value = String(settings.value[name]);
            }}
          />
        </label>
      ))}
    </details>
  );
}
