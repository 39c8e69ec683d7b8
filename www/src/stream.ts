// An answer while it is being made.

import type { RillmError } from "./errors.js";
import type { Reply } from "./protocol.js";
import type { Chunk, GenerationResult, Metrics } from "./types.js";

/** Where a generation is. */
export interface StreamStatus {
  /** Waiting for its turn, reading the prompt, writing the answer, or over. */
  phase: "queued" | "prefill" | "decode" | "ended";
  /** Prompt tokens read so far, those that the model's memory still held included; all of them from the first token on. */
  prefillDone: number;
  /** Prompt tokens in all; 0 while queued. */
  prefillTotal: number;
  /** The latest; null before there are any. */
  metrics: Metrics | null;
}

interface Settle {
  resolve(result: GenerationResult): void;
  reject(error: unknown): void;
}

/**
 * An answer while it is being made. Iterate over it for the pieces, await {@link result} for the whole, or both; each iteration begins
 * at the first piece, however late. Leaving an iteration (`break`, `return`, an exception) stops the work, and `result` is then the partial answer.
 */
export class TextStream implements AsyncIterable<Chunk> {
  /** The whole answer. The work goes on without anybody iterating; a rejection that nobody looks at is not reported as unhandled. */
  readonly result: Promise<GenerationResult>;
  #chunks: Chunk[] = [];
  #waiting: (() => void)[] = [];
  #status: StreamStatus = { phase: "queued", prefillDone: 0, prefillTotal: 0, metrics: null };
  #failure: { error: unknown } | null = null;
  #settle: Settle;
  #cancel: () => void = () => undefined;
  #release: () => void = () => undefined;

  /** @internal `begin` puts the work into the queue and returns how to abort it. */
  constructor(begin: (caller: { take(reply: Reply): void; fail(error: RillmError): void }) => () => void, signal: AbortSignal | undefined) {
    let settle: Settle | undefined;
    this.result = new Promise((resolve, reject) => (settle = { resolve, reject }));
    this.result.catch(() => undefined);
    this.#settle = settle as unknown as Settle; // a promise calls its executor at once
    try {
      this.#cancel = begin({ take: (reply) => this.#take(reply), fail: (error) => this.#fail(error) });
    } catch (error) {
      this.#fail(error);
      return;
    }
    if (signal === undefined || this.#over) return;
    const cancel = this.#cancel;
    signal.addEventListener("abort", cancel, { once: true });
    this.#release = () => signal.removeEventListener("abort", cancel);
  }

  /** Where it is right now: for a display that draws at its own pace. */
  get status(): StreamStatus {
    return { ...this.#status };
  }

  /** The pieces, from the first one. */
  [Symbol.asyncIterator](): AsyncIterableIterator<Chunk> {
    let index = 0;
    let left = false;
    const end = { done: true, value: undefined } as const;
    const take = async (): Promise<IteratorResult<Chunk, undefined>> => {
      for (;;) {
        const chunk = left ? undefined : this.#chunks[index++];
        if (chunk !== undefined) return { done: false, value: chunk };
        if (left) return end;
        index -= 1;
        if (this.#over) {
          left = true;
          if (this.#failure !== null) throw this.#failure.error;
          return end;
        }
        await new Promise<void>((resolve) => this.#waiting.push(resolve));
      }
    };
    let last: Promise<unknown> = Promise.resolve();
    return {
      next: () => {
        const next = last.then(take); // one after the other, also where a caller does not wait
        last = next.catch(() => undefined);
        return next;
      },
      return: async () => {
        left = true;
        if (!this.#over) this.#cancel();
        this.#wake();
        return end;
      },
      [Symbol.asyncIterator]() {
        return this;
      },
    };
  }

  get #over(): boolean {
    return this.#status.phase === "ended";
  }

  #take(reply: Reply): void {
    switch (reply.kind) {
      case "prefill":
        this.#status = { phase: "prefill", prefillDone: reply.done, prefillTotal: reply.total, metrics: reply.metrics };
        break;
      case "chunk":
        this.#chunks.push(reply.chunk);
        // The prompt's last pass gives no word of its own, but the first token.
        this.#status = { ...this.#status, phase: "decode", prefillDone: this.#status.prefillTotal, metrics: reply.chunk.metrics };
        this.#wake();
        break;
      case "generated":
        this.#end(reply.result.metrics);
        this.#settle.resolve(reply.result);
        break;
      default:
        break; // `model.ts` has made an error of any other
    }
  }

  #fail(error: unknown): void {
    this.#failure = { error };
    this.#end(this.#status.metrics);
    this.#settle.reject(error);
  }

  #end(metrics: Metrics | null): void {
    this.#status = { ...this.#status, phase: "ended", metrics };
    this.#release();
    this.#wake();
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
