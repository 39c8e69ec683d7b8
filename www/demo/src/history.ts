// Conversations, kept in this browser's IndexedDB. Two tabs may have the same one open: whoever finds, when writing, that the other has gone
// on with it meanwhile keeps its own as a copy. So no answer is lost, no tab has to wait for another, and none needs to know of another.

import { signal } from "@preact/signals";
import { createStore, del, set, update, values, type UseStore } from "idb-keyval";
import type { FinishReason } from "rillm";
import { newId, readStored, storedKeys, writeStored } from "./storage.js";

/** A message as it is kept. */
export interface StoredTurn {
  role: "user" | "assistant";
  text: string;
  finish?: FinishReason;
  /** Of an answer: how many, how fast, and what gives it again. */
  tokens?: number;
  rate?: number | null;
  seed?: number;
  /** The context was full: it can't go on. */
  full?: boolean;
}

export interface Conversation {
  id: string;
  title: string;
  /** The label of the model that wrote the last answer. */
  model: string;
  /** Milliseconds since 1970. */
  updated: number;
  turns: StoredTurn[];
  /** Which page wrote it. */
  by?: string;
}

/** The latest first. */
export const conversations = signal<readonly Conversation[]>([]);
/** Whether they outlive the page. */
export const kept = signal(true);
/** The one that was deleted last and can come back. */
export const deleted = signal<Conversation | null>(null);

/** This page, among those that write. */
const ME = newId();
/** Where a page that ends leaves what it could not write any more, and from which state it went on. */
const LEFT = "rillm.left.";

/** How this page goes on with a conversation: from which state, by its time, and under which name, which is another once it is a copy. */
interface Line {
  readonly base: number | undefined;
  id: string;
}
/** Of each conversation that this page opened or began. */
const lines = new Map<string, Line>();

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

/** From here on this page goes on with the conversation as it is there. */
export function goOnFrom({ id, updated }: Conversation): void {
  lines.set(id, { base: updated, id });
}

/** Whether it is what this page opened or wrote last. */
export function isKnown({ id, updated, by }: Conversation): boolean {
  return by === ME || lines.get(id)?.base === updated;
}

/** Keeps a conversation, new or changed; `parted` is told of the copy if another tab has gone on with it. */
export function keep(conversation: Conversation, parted: (copy: Conversation) => void = () => undefined): void {
  put({ ...conversation, by: ME }, lineOf(conversation.id), parted);
}

function lineOf(id: string): Line {
  const line = lines.get(id) ?? { base: undefined, id };
  lines.set(id, line);
  return line;
}

function put(mine: Conversation, line: Line, parted: (copy: Conversation) => void): void {
  const now = (): Conversation => (line.id === mine.id ? mine : { ...mine, id: line.id, title: copyTitle(mine) });
  show(now());
  write(async (store) => {
    const found: { other?: Conversation } = {};
    await update<unknown>(line.id, (there) => {
      if (!isConversation(there) || there.by === mine.by || there.updated === line.base) return now();
      return (found.other = there);
    }, store);
    if (found.other === undefined) return;
    const copy = { ...mine, id: newId(), title: copyTitle(mine) };
    line.id = copy.id;
    await set(copy.id, copy, store);
    show(found.other);
    show(copy);
    parted(copy);
    void readHistory(); // what this page has written meanwhile may stand under the other's name
  });
}

const copyTitle = ({ title }: Conversation): string => `${title} (2)`;

function show(conversation: Conversation): void {
  conversations.value = [conversation, ...conversations.value.filter(({ id }) => id !== conversation.id)].sort(latestFirst);
}

/** Keeps a conversation of a page that ends: the database is too slow for that, so the next page writes it there. */
export function keepAtEnd(conversation: Conversation): void {
  const { id } = conversation;
  writeStored(LEFT + ME, { conversation: { ...conversation, by: ME }, base: lines.get(id)?.base });
}

export function forgetLeft(): void {
  writeStored(LEFT + ME, null);
}

/** Writes down what pages before left. */
export function takeLeft(): void {
  for (const key of storedKeys(LEFT)) {
    const left = readStored(key);
    writeStored(key, null);
    if (typeof left !== "object" || left === null || !("conversation" in left) || !isConversation(left.conversation)) continue;
    const base = "base" in left && typeof left.base === "number" ? left.base : undefined;
    put(left.conversation, { base, id: left.conversation.id }, () => undefined);
  }
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
