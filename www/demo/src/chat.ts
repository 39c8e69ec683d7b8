// The conversation.

import { batch, effect, signal } from "@preact/signals";
import type { ChatMessage, GenerationResult } from "rillm";
import { conversations, forgetLeft, goOnFrom, isKnown, keep, keepAtEnd, remove, type Conversation, type StoredTurn } from "./history.js";
import { settings } from "./settings.js";
import { announcement, notice, stage } from "./state.js";
import { newId, readStored, writeStored } from "./storage.js";
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
/** The text that the answer in the making goes on from. */
let begun = "";

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

/** Goes on with the last answer, which was cut or stopped. */
export async function goOn(): Promise<void> {
  const before = turns.value;
  const last = before.at(-1);
  if (free() && last?.role === "assistant") await ask(before.slice(0, -1), before, null, last);
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
  if (conversation.id === current.value?.id && isKnown(conversation)) return;
  newChat();
  goOnFrom(conversation);
  const { id, title, model } = conversation;
  batch(() => {
    turns.value = conversation.turns.map((turn) => ({ ...turn, id: ids++ }));
    current.value = { id, title, model };
  });
}

/** Of this tab: the conversation that is open, for when the page is loaded again. */
const OPEN = "rillm.open";
const openBefore = readStored(OPEN, "sessionStorage");

/** Opens what was open before the page was loaded again. */
export function reopen(): void {
  const found = conversations.value.find(({ id }) => id === openBefore);
  if (found !== undefined && current.value === null && turns.value.length === 0) open(found);
  effect(() => writeStored(OPEN, current.value?.id ?? null, "sessionStorage"));
}

/** Keeps what there is of an answer that is about to be left; returns the conversation with it. */
export function leave(): readonly Turn[] {
  // Asked again, and nothing came yet: then what there was stands.
  const written = withLive();
  const list = live.value === begun && standing !== null ? standing : written;
  if (list !== turns.value) persist(list);
  return list;
}

function withLive(): readonly Turn[] {
  if (live.value !== null) drawNow();
  if (live.value === null || live.value === begun || turns.value.at(-1)?.role !== "user") return turns.value;
  return [...turns.value, { id: liveId.value, role: "assistant", text: live.value, finish: "abort" }];
}

function free(): boolean {
  return stage.value.kind === "ready" && !busy.value;
}

/** Asks with `question`, or to go on `from` an answer; if nothing comes of it, `before` is there again and `text` in the field. */
async function ask(question: readonly Turn[], before: readonly Turn[], text: string | null, from?: Turn): Promise<void> {
  if (stage.value.kind !== "ready") return;
  const { model } = stage.value;
  const usedBefore = numbers.value.contextUsed;
  standing = text === null || before.length >= question.length ? before : null;
  begun = from?.text ?? "";
  batch(() => {
    turns.value = question;
    liveId.value = from?.id ?? ids++;
    notice.value = null;
  });
  if (from === undefined) persist(question, before); // what there is of an answer stays kept while it goes on
  keepFocus();
  const { system } = settings.value;
  const messages: ChatMessage[] = question.map(({ role, text }) => ({ role, content: text }));
  if (from !== undefined) messages.push({ role: "assistant", content: from.text });
  if (system.trim() !== "") messages.unshift({ role: "system", content: system });
  function back(): void {
    standing = null;
    turns.value = before;
    persist(before, question);
    // What has been written meanwhile is not lost either.
    if (text !== null) draft.value = draft.value.trim() === "" ? text : `${text}\n\n${draft.value}`;
  }
  await work((options) => model.chat(messages, from === undefined ? options : { ...options, continueAnswer: true }), {
    done(result) {
      standing = null;
      // One that goes on may also find that it was at its end.
      if (result.text !== "" || (from !== undefined && result.finishReason === "stop")) {
        turns.value = [...question, { id: liveId.value, role: "assistant", ...answer(result, from) }];
        persist(turns.value);
        return;
      }
      // An empty answer would only puzzle the model: then the question is not kept either.
      back();
      numbers.value = { ...numbers.value, contextUsed: usedBefore };
      if (result.finishReason !== "abort") announcement.value = notice.value = "The model answered with nothing. Try it again, or put it in other words.";
    },
    failed: back,
  }, begun);
}

/** The button that asked goes: whoever uses the keyboard goes on in the field. */
function keepFocus(): void {
  requestAnimationFrame(() => {
    if (document.activeElement === document.body) document.querySelector<HTMLElement>('[data-testid="input"]')?.focus({ preventScroll: true });
  });
}

function answer({ text, finishReason, stopDetail, usage, metrics, seed }: GenerationResult, from: Turn | undefined): Omit<StoredTurn, "role"> {
  const full = stopDetail?.kind === "context" ? { full: true } : {};
  const made = { finish: finishReason, ...full, tokens: usage.completionTokens + (from?.tokens ?? 0), rate: metrics.decodeTokensPerSecond };
  // No single seed gives an answer again that was made in two goes.
  return from === undefined ? { text, ...made, seed } : { text: from.text + text, ...made };
}

/** Writes the conversation down, which `was` something else until now; one without messages goes. */
function persist(list: readonly Turn[], was = list): void {
  const first = list[0];
  if (first === undefined) {
    if (current.value !== null) remove(current.value.id);
    current.value = null;
    return;
  }
  const model = stage.value.kind === "ready" ? stage.value.label : (current.value?.model ?? "");
  const { id = newId(), title = null } = current.value ?? {};
  // A title that nobody chose is the first message's, also when that is another one now.
  const own = title === null || (was[0] !== undefined && title === titleOf(was[0].text));
  current.value = { id, title: own ? titleOf(first.text) : title, model };
  keep(stored(current.value, list), (copy) => {
    if (current.value?.id !== id) return;
    current.value = { ...current.value, id: copy.id, title: copy.title };
    announcement.value = notice.value = `Another tab has gone on with this conversation. What is here goes on as “${copy.title}”; both are in the history.`;
  });
}

function stored(head: { id: string; title: string; model: string }, list: readonly Turn[]): Conversation {
  return { ...head, updated: Date.now(), turns: list.map(({ id: _, ...turn }) => turn) };
}

function titleOf(text: string): string {
  const line = text.trim().replace(/\s+/g, " ");
  return line.length <= 60 ? line : `${line.slice(0, 59).trimEnd()}…`;
}

// A tab that is closed in the middle of an answer keeps its beginning.
addEventListener("pagehide", () => {
  const list = withLive();
  if (list !== turns.value && current.value !== null) keepAtEnd(stored(current.value, list));
});
// And one that comes back as it was goes on with it.
addEventListener("pageshow", ({ persisted }) => persisted && forgetLeft());
