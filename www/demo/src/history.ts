// Conversations, kept in this browser's IndexedDB.

import { signal } from "@preact/signals";
import { createStore, del, set, update, values, type UseStore } from "idb-keyval";
import type { FinishReason } from "rillm";
import { readStored, writeStored } from "./storage.js";

/** A message as it is kept. */
export interface StoredTurn {
  role: "user" | "assistant";
  text: string;
  finish?: FinishReason;
  /** Of an answer: how many, how fast, and what gives it again. */
  tokens?: number;
  rate?: number | null;
  seed?: number;
}

export interface Conversation {
  id: string;
  title: string;
  /** The label of the model that wrote the last answer. */
  model: string;
  /** Milliseconds since 1970. */
  updated: number;
  turns: StoredTurn[];
}

/** The latest first. */
export const conversations = signal<readonly Conversation[]>([]);
/** Whether they outlive the page. */
export const kept = signal(true);
/** The one that was deleted last and can come back. */
export const deleted = signal<Conversation | null>(null);

/** Where a page that ends leaves what it could not write any more. */
const LEFT = "rillm.left";

let store: UseStore | null = null;
let queue: Promise<void> = Promise.resolve();

/** Reads what there is, also what other tabs wrote meanwhile. */
export async function readHistory(): Promise<void> {
  try {
    store ??= createStore("rillm", "conversations");
    const written = queue;
    await written;
    const found: unknown[] = await values(store);
    if (queue !== written) return await readHistory(); // what was read is older than what there is
    if (kept.value) conversations.value = found.filter(isConversation).sort(latestFirst);
  } catch {
    forPageOnly();
  }
}

/** Keeps a conversation, new or changed. */
export function keep(conversation: Conversation): void {
  conversations.value = [conversation, ...conversations.value.filter(({ id }) => id !== conversation.id)].sort(latestFirst);
  write((store) => set(conversation.id, conversation, store));
}

/** Keeps a conversation of a page that ends: the database is too slow for that, so the next page writes it there. */
export function keepAtEnd(conversation: Conversation): void {
  writeStored(LEFT, conversation);
}

export function forgetLeft(): void {
  writeStored(LEFT, null);
}

/** Writes down what the page before left. */
export function takeLeft(): void {
  const left = readStored(LEFT);
  forgetLeft();
  if (isConversation(left)) keep(left);
}

/** Another title; the order stays, and so do messages that another tab has added meanwhile. */
export function rename(id: string, to: string): void {
  const title = to.trim();
  const found = conversations.value.find((c) => c.id === id);
  if (found === undefined || title === "") return;
  conversations.value = conversations.value.map((c) => (c.id === id ? { ...c, title } : c));
  write((store) => update<unknown>(id, (there) => ({ ...(isConversation(there) ? there : found), title }), store));
}

export function remove(id: string): Conversation | undefined {
  const found = conversations.value.find((c) => c.id === id);
  conversations.value = conversations.value.filter((c) => c.id !== id);
  write((store) => del(id, store));
  return found;
}

/** One write after the other, so that the last one wins. After one has failed the next is tried too: it may be smaller, or a deletion. */
function write(change: (store: UseStore) => Promise<void>): void {
  queue = queue.then(async () => {
    try {
      store ??= createStore("rillm", "conversations");
      await change(store);
      kept.value = true;
    } catch {
      forPageOnly();
    }
  });
}

/** A private window, a full disk, a browser without IndexedDB: the list is then this page's. */
function forPageOnly(): void {
  kept.value = false;
}

function latestFirst(a: Conversation, b: Conversation): number {
  return b.updated - a.updated;
}

/** Another version of the page may have written it. */
function isConversation(value: unknown): value is Conversation {
  if (typeof value !== "object" || value === null) return false;
  const { id, title, model, updated, turns } = value as Record<string, unknown>;
  return typeof id === "string" && typeof title === "string" && typeof model === "string" && Number.isFinite(updated) && Array.isArray(turns) && turns.every(isTurn);
}

function isTurn(value: unknown): value is StoredTurn {
  if (typeof value !== "object" || value === null) return false;
  const { role, text, finish, tokens, rate, seed } = value as Record<string, unknown>;
  const number = (n: unknown): boolean => n === undefined || Number.isFinite(n);
  const plain = (finish === undefined || ["stop", "length", "abort", "tool-calls"].includes(finish as string)) && number(tokens) && number(seed) && (rate === null || number(rate));
  return (role === "user" || role === "assistant") && typeof text === "string" && plain;
}
