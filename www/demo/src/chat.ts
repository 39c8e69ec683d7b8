// The conversation, and the answer in the making.

import { batch, computed, signal } from "@preact/signals";
import type { ChatMessage, FinishReason, Metrics, TextStream } from "rillm";
import { failureOf } from "./failure.js";
import { announcement, failure, info, stage } from "./state.js";

/** A message as it is kept: plain text, and how an answer ended. */
export interface Turn {
  role: "user" | "assistant";
  text: string;
  finish?: FinishReason;
}

/** What the panel shows of the work. */
export interface Numbers {
  phase: "idle" | "queued" | "prefill" | "decode" | "ended";
  prefillDone: number;
  prefillTotal: number;
  metrics: Metrics | null;
  /** Positions of the model's memory that the chat takes. */
  contextUsed: number;
}

/** What the page starts with: careful rather than inventive, because the model is small. */
export const DEFAULTS = { temperature: 0.2, topP: 0.9, repetitionPenalty: 1.1, maxTokens: 512 };
export type Settings = typeof DEFAULTS;

const IDLE: Numbers = { phase: "idle", prefillDone: 0, prefillTotal: 0, metrics: null, contextUsed: 0 };

export const settings = signal<Settings>({ ...DEFAULTS });
export const turns = signal<readonly Turn[]>([]);
/** The answer in the making, or null. */
export const live = signal<string | null>(null);
export const numbers = signal<Numbers>(IDLE);
export const draft = signal("");
export const busy = computed(() => live.value !== null);

let abort: AbortController | null = null;

/** Sends a message and shows the answer as it comes. */
export async function send(text: string): Promise<void> {
  if (stage.value.kind !== "ready" || busy.value || text.trim() === "") return;
  const { model } = stage.value;
  const before = turns.value;
  const numbersBefore = numbers.value;
  const usedBefore = numbersBefore.contextUsed;
  const mine = (abort = new AbortController());
  const messages: ChatMessage[] = [...before, { role: "user" as const, text }].map(({ role, text }) => ({ role, content: text }));
  batch(() => {
    failure.value = null;
    turns.value = [...before, { role: "user", text }];
    live.value = "";
    draft.value = "";
    numbers.value = { ...IDLE, phase: "queued", contextUsed: usedBefore };
  });
  const stream = model.chat(messages, { ...settings.value, signal: mine.signal });
  const drawing = draw(stream, usedBefore, () => abort === mine);
  try {
    for await (const chunk of stream) drawing.add(chunk.text, chunk.tokens.length);
    const { text: answer, finishReason, usage, metrics } = await stream.result;
    drawing.stop();
    if (abort !== mine) return; // a new chat has begun meanwhile
    batch(() => {
      // An empty answer would only puzzle the model: then the question is not kept either.
      turns.value = answer === "" ? before : [...before, { role: "user", text }, { role: "assistant", text: answer, finish: finishReason }];
      if (answer === "") draft.value = text;
      live.value = null;
      numbers.value = { ...numbers.value, phase: "ended", metrics, contextUsed: answer === "" ? usedBefore : usage.promptTokens + usage.completionTokens };
      info.value = model.info;
      announcement.value = finishReason === "abort" ? "Answer stopped" : `Answer finished: ${answer}`;
    });
  } catch (error) {
    drawing.stop();
    if (abort !== mine) return;
    batch(() => {
      turns.value = before;
      draft.value = text;
      live.value = null;
      numbers.value = numbersBefore;
      failure.value = failureOf(error);
      if (failure.value.code === "crashed") stage.value = { kind: "choose" }; // after a crash there is no model any more
    });
  }
}

/** Collects what comes and draws it once a frame, however fast it comes. */
function draw(stream: TextStream, usedBefore: number, current: () => boolean) {
  let pending = "";
  let tokens = 0;
  let frame = requestAnimationFrame(tick);
  function tick(): void {
    frame = requestAnimationFrame(tick);
    flush();
  }
  function flush(): void {
    if (!current()) return;
    const { phase, prefillDone, prefillTotal, metrics } = stream.status;
    batch(() => {
      if (pending !== "") live.value = (live.value ?? "") + pending;
      pending = "";
      if (phase === "ended" || metrics === numbers.value.metrics) return;
      const prompt = prefillTotal > 0 ? prefillTotal : usedBefore + (metrics?.prefillTokens ?? 0);
      numbers.value = { phase, prefillDone, prefillTotal, metrics, contextUsed: prompt + tokens };
    });
  }
  return {
    add(text: string, made: number): void {
      pending += text;
      tokens += made;
    },
    stop(): void {
      cancelAnimationFrame(frame);
      flush();
    },
  };
}

/** Ends the answer; what there is of it stays. */
export function stop(): void {
  abort?.abort();
}

/** Forgets the conversation. */
export function newChat(): void {
  abort?.abort();
  abort = null;
  batch(() => {
    turns.value = [];
    live.value = null;
    numbers.value = IDLE;
    failure.value = null;
  });
}
