// The conversation.

import { batch, signal } from "@preact/signals";
import type { ChatMessage, FinishReason, GenerationResult } from "rillm";
import { forgetLeft, keep, keepAtEnd, remove, type Conversation, type StoredTurn } from "./history.js";
import { settings } from "./settings.js";
import { announcement, notice, stage } from "./state.js";
import { busy, drawNow, giveUp, live, numbers, work } from "./work.js";

/** A message as it is shown: plain text, and how an answer ended. */
export interface Turn extends StoredTurn {
  /** Of this page only: what stays the same element. */
  id: number;
}

export const turns = signal<readonly Turn[]>([]);
export const draft = signal("");
/** Of the answer in the making; its turn gets the same. */
export const liveId = signal(0);
/** Under which the conversation is kept; null before the first message. */
export const current = signal<{ id: string; title: string; model: string } | null>(null);

let ids = 1;
/** What there was before the question that is being answered. */
let standing: readonly Turn[] | null = null;

/** Sends what was written. */
export async function send(text: string): Promise<void> {
  if (text.trim() === "" || !free()) return;
  const before = turns.value;
  draft.value = "";
  await ask([...before, { id: ids++, role: "user", text }], before, text);
}

/** Puts another text in place of a message and asks again from there; what came after it goes. */
export async function resend(turn: Turn, text: string): Promise<void> {
  const at = turns.value.indexOf(turn);
  if (text.trim() === "" || at < 0 || !free()) return;
  await ask([...turns.value.slice(0, at), { id: ids++, role: "user", text }], turns.value, text);
}

/** Asks for the last answer again, or for the one that never came. */
export async function regenerate(): Promise<void> {
  if (!free()) return;
  const before = turns.value;
  const question = before.at(-1)?.role === "assistant" ? before.slice(0, -1) : before;
  if (question.at(-1)?.role === "user") await ask(question, before, null);
}

/** A new conversation; the one there was stays in the history. */
export function newChat(): void {
  leave();
  discard();
}

/** Ends and forgets the conversation as it stands. */
export function discard(): void {
  giveUp();
  standing = null;
  batch(() => {
    turns.value = [];
    current.value = null;
    notice.value = null;
  });
}

/** Goes on with a conversation of the history. */
export function open(conversation: Conversation): void {
  if (conversation.id === current.value?.id) return;
  newChat();
  const { id, title, model } = conversation;
  batch(() => {
    turns.value = conversation.turns.map((turn) => ({ ...turn, id: ids++ }));
    current.value = { id, title, model };
  });
}

/** Keeps what there is of an answer that is about to be left; returns the conversation with it. */
export function leave(): readonly Turn[] {
  // Asked again, and nothing came yet: then what there was stands.
  const written = withLive();
  const list = live.value === "" && standing !== null ? standing : written;
  if (list !== turns.value) persist(list);
  return list;
}

function withLive(): readonly Turn[] {
  if (live.value !== null) drawNow();
  if (live.value === null || live.value === "" || turns.value.at(-1)?.role !== "user") return turns.value;
  return [...turns.value, { id: liveId.value, role: "assistant", text: live.value, finish: "abort" }];
}

function free(): boolean {
  return stage.value.kind === "ready" && !busy.value;
}

/** Asks with `question`; if nothing comes of it, `before` is there again and `text` in the field. */
async function ask(question: readonly Turn[], before: readonly Turn[], text: string | null): Promise<void> {
  if (stage.value.kind !== "ready") return;
  const { model } = stage.value;
  const usedBefore = numbers.value.contextUsed;
  standing = text === null || before.length >= question.length ? before : null;
  batch(() => {
    turns.value = question;
    liveId.value = ids++;
    notice.value = null;
  });
  persist(question);
  keepFocus();
  const { system } = settings.value;
  const messages: ChatMessage[] = question.map(({ role, text }) => ({ role, content: text }));
  if (system.trim() !== "") messages.unshift({ role: "system", content: system });
  function back(): void {
    standing = null;
    turns.value = before;
    persist(before);
    // What has been written meanwhile is not lost either.
    if (text !== null) draft.value = draft.value.trim() === "" ? text : `${text}\n\n${draft.value}`;
  }
  await work((options) => model.chat(messages, options), {
    done(result) {
      standing = null;
      if (result.text !== "") {
        turns.value = [...question, { id: liveId.value, role: "assistant", ...answer(result) }];
        persist(turns.value);
        return;
      }
      // An empty answer would only puzzle the model: then the question is not kept either.
      back();
      numbers.value = { ...numbers.value, contextUsed: usedBefore };
      if (result.finishReason !== "abort") announcement.value = notice.value = "The model answered with nothing. Try it again, or put it in other words.";
    },
    failed: back,
  });
}

/** The button that asked goes: whoever uses the keyboard goes on in the field. */
function keepFocus(): void {
  requestAnimationFrame(() => {
    if (document.activeElement === document.body) document.querySelector<HTMLElement>('[data-testid="input"]')?.focus({ preventScroll: true });
  });
}

function answer({ text, finishReason, usage, metrics, seed }: GenerationResult): { text: string; finish: FinishReason; tokens: number; rate: number | null; seed: number } {
  return { text, finish: finishReason, tokens: usage.completionTokens, rate: metrics.decodeTokensPerSecond, seed };
}

/** Writes the conversation down; one without messages goes. */
function persist(list: readonly Turn[]): void {
  const first = list[0];
  if (first === undefined) {
    if (current.value !== null) remove(current.value.id);
    current.value = null;
    return;
  }
  const model = stage.value.kind === "ready" ? stage.value.label : (current.value?.model ?? "");
  current.value = current.value === null ? { id: newId(), title: titleOf(first.text), model } : { ...current.value, model };
  keep(stored(current.value, list));
}

function stored(head: { id: string; title: string; model: string }, list: readonly Turn[]): Conversation {
  return { ...head, updated: Date.now(), turns: list.map(({ id: _, ...turn }) => turn) };
}

function titleOf(text: string): string {
  const line = text.trim().replace(/\s+/g, " ");
  return line.length <= 60 ? line : `${line.slice(0, 59).trimEnd()}…`;
}

/** `randomUUID` is only there over https. */
function newId(): string {
  return `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`;
}

// A tab that is closed in the middle of an answer keeps its beginning.
addEventListener("pagehide", () => {
  const list = withLive();
  if (list !== turns.value && current.value !== null) keepAtEnd(stored(current.value, list));
});
// And one that comes back as it was goes on with it.
addEventListener("pageshow", ({ persisted }) => persisted && forgetLeft());
