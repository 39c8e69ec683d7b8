/// <reference lib="esnext.disposable" preserve="true" />
// A loaded model as the page sees it. The reference is for projects whose own `lib` has no `Symbol.dispose`.

import type { Connection, LoadedModel } from "./connection.js";
import { RillmError, shown } from "./errors.js";
import { plain, tagOf } from "./plain.js";
import type { Call, Prompt, Reply } from "./protocol.js";
import { TextStream } from "./stream.js";
import type { ChatMessage, ChatOptions, CompleteOptions, GenerationOptions, ModelInfo, Score, Warning } from "./types.js";

type Place = Pick<ModelInfo, "backend" | "backendReason" | "adapter">;

/** A loaded model. Its work is done in a worker, one call after the other, first come, first served. */
export class Model {
  /** What was not as it should be while loading, but no reason to fail; `cache-unavailable` for one. */
  readonly warnings: readonly Warning[];
  #connection: Connection;
  #info: Omit<ModelInfo, "memoryBytes">;

  /** Also what `using` calls, where the browser knows it: {@link dispose}. */
  declare [Symbol.dispose]: () => void;

  /** @internal Made by `load`. */
  constructor(connection: Connection, loaded: LoadedModel, place: Place) {
    this.#connection = connection;
    this.#info = { ...loaded.info, ...place, backendReason: `${place.backendReason} ${loaded.reason}` };
    this.warnings = loaded.warnings;
    connections.set(this, connection);
  }

  /** What there is to know about the model, as of now. */
  get info(): ModelInfo {
    return { ...this.#info, memoryBytes: this.#connection.memoryBytes };
  }

  /**
   * Answers a chat. The stream rejects with `no-chat-template` if the file has none (a base model: use {@link complete}), and with
   * `prompt-too-long`, `bad-messages`, `bad-option`, `unknown-option`, `disposed` or `crashed`.
   */
  chat(messages: readonly ChatMessage[], options: ChatOptions = {}): TextStream {
    return generate(this, () => {
      if (!Array.isArray(messages)) throw new RillmError("bad-messages", "the messages must be a list of { role, content }");
      return { messages: plain(messages, "bad-messages", "the messages") };
    }, options);
  }

  /** Continues a text; begins it with the file's BOS token, if the file says so. */
  complete(text: string, options: CompleteOptions = {}): TextStream {
    return generate(this, () => ({ text: checkText(text) }), options);
  }

  /** Text to token ids, without BOS; `special` parses control tokens out of the text (default false). */
  async tokenize(text: string, options: { special?: boolean } = {}): Promise<number[]> {
    const call: Call = { kind: "tokenize", text: checkText(text), special: special(options) };
    return this.#ask(call, (reply) => (reply.kind === "tokenized" ? reply.ids : null));
  }

  /** Token ids to text; control tokens are shown only with `special` (default false). Ids outside of the vocabulary: `bad-token`. */
  async detokenize(ids: ArrayLike<number>, options: { special?: boolean } = {}): Promise<string> {
    const call: Call = { kind: "detokenize", ids: checkIds(ids), special: special(options) };
    return this.#ask(call, (reply) => (reply.kind === "detokenized" ? reply.text : null));
  }

  /** What the model says of each token, given all before it; the arrays are one shorter than `ids`. Forgets the model's cached prefix. */
  async score(ids: ArrayLike<number>): Promise<Score> {
    const call: Call = { kind: "score", ids: checkIds(ids) };
    return this.#ask(call, (reply) => (reply.kind === "scored" ? reply.score : null));
  }

  /** Ends the worker and gives its memory back. Whatever is pending, and every later call, rejects with `disposed`. */
  dispose(): void {
    this.#connection.end(new RillmError("disposed", "the model was disposed of"));
  }

  #ask<T>(call: Call, pick: (reply: Reply) => T | null): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#connection.call(call, {
        take: (reply) => {
          const value = pick(reply);
          if (value === null) reject(failure(reply));
          else resolve(value);
        },
        fail: reject,
      });
    });
  }
}
// Not a method of the class: an older browser has no such symbol.
if (Symbol.dispose) {
  const dispose = function (this: Model): void {
    this.dispose();
  };
  Object.defineProperty(Model.prototype, Symbol.dispose, { value: dispose, configurable: true, writable: true });
}

const connections = new WeakMap<Model, Connection>();

/** Begins a generation; `script` is the test hook of `testing.ts`. */
export function generate(model: Model, prompt: () => Prompt, options: GenerationOptions, script?: Uint32Array): TextStream {
  let signal: AbortSignal | undefined;
  let call: Call | undefined;
  let refused: unknown;
  try {
    const { signal: given, ...rest } = checkObject(options);
    signal = checkSignal(given);
    // Names and ranges are the engine's to check.
    call = { kind: "generate", prompt: prompt(), options: plain(rest, "bad-option", "the options"), aborted: signal?.aborted ?? false, ...(script && { script }) };
  } catch (error) {
    refused = error;
  }
  return new TextStream((caller) => {
    const connection = connections.get(model);
    if (call === undefined || connection === undefined) throw refused;
    const id = connection.call(call, {
      take: (reply) => (reply.kind === "refused" ? caller.fail(failure(reply)) : caller.take(reply)),
      fail: caller.fail,
    });
    return () => connection.abort(id);
  }, signal);
}

function failure(reply: Reply): RillmError {
  if (reply.kind === "refused") return new RillmError(reply.error.code, reply.error.message);
  return new RillmError("internal", `the worker answered with ${reply.kind}`);
}

function checkObject(options: unknown): GenerationOptions {
  if (options === undefined || options === null) return {};
  if (typeof options !== "object" || Array.isArray(options)) throw new RillmError("bad-option", "the options must be a plain object");
  return options;
}

/** Any object that behaves like one: a signal may come from another frame. */
export function checkSignal(signal: unknown): AbortSignal | undefined {
  if (signal === undefined || signal === null) return undefined;
  if (tagOf(signal) === "AbortSignal") return signal as AbortSignal;
  throw new RillmError("bad-option", `signal must be an AbortSignal, not ${shown(signal)}`);
}

function checkText(text: unknown): string {
  if (typeof text !== "string") throw new RillmError("bad-option", `the text must be a string, not ${shown(text)}`);
  return text;
}

function special(options: { special?: boolean }): boolean {
  const given: object = checkObject(options);
  const other = Object.keys(given).find((name) => name !== "special");
  if (other !== undefined) throw new RillmError("unknown-option", `there is no option ${shown(other)} here; there is special`);
  const { special = null } = given as { special?: unknown };
  if (special !== null && typeof special !== "boolean") throw new RillmError("bad-option", `special must be true or false, not ${shown(special)}`);
  return special ?? false;
}

function checkIds(ids: ArrayLike<number>): Uint32Array {
  // More than a list can hold would be an error of another kind.
  if (typeof ids !== "object" || ids === null || !(ids.length < 2 ** 32)) throw new RillmError("bad-token", "the ids must be a list of numbers");
  const list: unknown[] = Array.from(ids);
  const odd = list.findIndex((id) => typeof id !== "number" || id >>> 0 !== id);
  if (odd >= 0) throw new RillmError("bad-token", `${shown(list[odd])} is not a token id`);
  return Uint32Array.from(list as number[]);
}
