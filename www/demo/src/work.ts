// One piece of writing at a time, chat or completion: running it, showing it, stopping it.

import { batch, computed, signal } from "@preact/signals";
import type { GenerationOptions, GenerationResult, Metrics, TextStream, Usage } from "rillm";
import { failureOf } from "./failure.js";
import { tokens } from "./format.js";
import { paced } from "./pace.js";
import { RateLog, type Curve } from "./rates.js";
import { options } from "./settings.js";
import { announcement, failure, info, stage } from "./state.js";

/** What the panel shows of the work. */
export interface Numbers {
  phase: "idle" | "queued" | "prefill" | "decode" | "ended";
  prefillDone: number;
  prefillTotal: number;
  metrics: Metrics | null;
  /** Known once it is over. */
  usage: Usage | null;
  /** Positions of the model's memory that are taken. */
  contextUsed: number;
}

const IDLE: Numbers = { phase: "idle", prefillDone: 0, prefillTotal: 0, metrics: null, usage: null, contextUsed: 0 };
/** Milliseconds between two changes of the numbers and the chart: a canvas is dear to paint where there is no GPU. */
const CALM = 500;

/** What is being done before the first word comes. */
export function reading({ phase, prefillDone, prefillTotal }: Numbers): string {
  if (phase === "queued" || prefillTotal === 0) return "Reading";
  return prefillDone === 0 || prefillDone === prefillTotal ? `Reading ${tokens(prefillTotal)}` : `Reading ${prefillDone.toLocaleString("en")} of ${tokens(prefillTotal)}`;
}

/** The text in the making, or null. */
export const live = signal<string | null>(null);
export const numbers = signal<Numbers>(IDLE);
export const curve = signal<Curve | null>(null);
export const busy = computed(() => live.value !== null);

/** What to do with how it ended; each is called in the same batch in which the live text goes. */
export interface Outcome {
  done(result: GenerationResult): void;
  failed(): void;
}

let abort: AbortController | null = null;
let flush: () => void = () => undefined;

/** Draws now what came since the last drawing: in a hidden tab there is none. */
export function drawNow(): void {
  flush();
}

/** Runs what `begin` begins and shows it as it comes, behind the text `from` where that goes on. */
export async function work(begin: (options: GenerationOptions) => TextStream, { done, failed }: Outcome, from = ""): Promise<void> {
  const before = numbers.value;
  const mine = (abort = new AbortController());
  batch(() => {
    failure.value = null;
    live.value = from;
    numbers.value = { ...IDLE, phase: "queued", contextUsed: before.contextUsed };
  });
  const stream = begin({ ...options(), signal: mine.signal });
  const drawing = draw(stream, before.contextUsed, () => abort === mine);
  try {
    for await (const chunk of stream) drawing.add(chunk.text, chunk.tokens.length, chunk.metrics);
    const result = await stream.result;
    drawing.end();
    if (abort !== mine) return; // given up meanwhile
    const { text, finishReason, usage, metrics } = result;
    batch(() => {
      live.value = null;
      numbers.value = { ...numbers.value, phase: "ended", metrics, usage, contextUsed: usage.promptTokens + usage.completionTokens };
      if (stage.value.kind === "ready") info.value = stage.value.model.info;
      announcement.value = finishReason === "abort" ? "Stopped" : `Finished: ${text}`;
      done(result);
    });
  } catch (error) {
    drawing.end();
    if (abort !== mine) return;
    batch(() => {
      live.value = null;
      numbers.value = before;
      failure.value = failureOf(error);
      failed();
      if (["crashed", "worker-died"].includes(failure.value.code)) stage.value = { kind: "choose" }; // there is no model any more
    });
  }
}

/** Ends the work; what there is of it stays. */
export function stop(): void {
  abort?.abort();
}

/** Ends the work and forgets it, and its numbers. */
export function giveUp(): void {
  abort?.abort();
  abort = null;
  batch(() => {
    live.value = null;
    numbers.value = IDLE;
    curve.value = null;
    failure.value = null;
  });
}

/** Collects what comes and draws it at a pace of its own, however fast it comes. */
function draw(stream: TextStream, usedBefore: number, current: () => boolean) {
  const log = new RateLog();
  let pending = "";
  let tokens = 0;
  let calmUntil = 0;
  flush = () => {
    if (!current()) return;
    const { phase, prefillDone, prefillTotal, metrics } = stream.status;
    const now = performance.now();
    batch(() => {
      if (pending !== "") live.value = (live.value ?? "") + pending;
      pending = "";
      if (phase === "ended") return;
      if (phase === "decode" && numbers.value.phase === "decode" && now < calmUntil) return;
      calmUntil = now + CALM;
      const prompt = prefillTotal > 0 ? prefillTotal : usedBefore + (metrics?.prefillTokens ?? 0);
      numbers.value = { phase, prefillDone, prefillTotal, metrics, usage: null, contextUsed: prompt + tokens };
      // The last answer's chart stays until there is something of this one.
      if (phase === "decode" && log.curve.tokens.length > 0) curve.value = log.curve;
    });
  };
  const endPace = paced(flush);
  return {
    add(text: string, made: number, metrics: Metrics): void {
      pending += text;
      tokens += made;
      log.add(metrics);
    },
    end(): void {
      endPace();
      flush();
      if (current() && log.curve.tokens.length > 0) curve.value = log.curve;
    },
  };
}
