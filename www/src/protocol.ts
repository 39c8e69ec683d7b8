// What the page and the worker say to each other, and the plain data that crosses into the engine.

import type { PlainError } from "./errors.js";
import type { WireSource } from "./source.js";
import type { Variant } from "./variant.js";
import type {
  ChatMessage, Chunk, GenerationOptions, GenerationResult, KvType, LoadProgress, Metrics, ModelInfo, Score, Warning,
} from "./types.js";

export type { ChatMessage };

/** What the engine's loader takes. */
export interface EngineLoadOptions {
  contextLength?: number;
  kvType?: KvType;
}

/** What the engine says of a model; the host adds where it runs. */
export type EngineInfo = Omit<ModelInfo, "backend" | "backendReason" | "adapter" | "memoryBytes">;

/** Options of a generation as the engine takes them: it checks every name and range. */
export type EngineOptions = Omit<GenerationOptions, "signal">;

/** What one step of a generation did. */
export type EngineStep =
  | { kind: "prefill"; done: number; total: number; metrics: Metrics }
  | ({ kind: "token" } & Chunk)
  | { kind: "done"; text: string; tokens: number[]; logprobs?: number[]; result: GenerationResult };

/** What one step of a scoring did. */
export interface EngineScore {
  done: number;
  total: number;
  result: Score | null;
}

/** The first message: load this. */
export interface LoadRequest {
  kind: "load";
  source: WireSource;
  cache: boolean;
  wasmUrl: string | undefined;
  threads: number | undefined;
  /** For tests: this module and no other. */
  variant: Variant | undefined;
  options: EngineLoadOptions;
}

/** What to generate from. */
export type Prompt = { messages: readonly ChatMessage[] } | { text: string };

/** A piece of work for the queue. */
export type Call =
  | { kind: "generate"; prompt: Prompt; options: EngineOptions; aborted: boolean; script?: Uint32Array }
  | { kind: "tokenize"; text: string; special: boolean }
  | { kind: "detokenize"; ids: Uint32Array; special: boolean }
  | { kind: "score"; ids: Uint32Array };

/** Page to worker. */
export type ToWorker = LoadRequest | { kind: "call"; id: number; call: Call } | { kind: "abort"; id: number } | { kind: "end" };

/** About a call; every one but `prefill` and `chunk` is its last. */
export type Reply =
  | { kind: "prefill"; done: number; total: number; metrics: Metrics }
  | { kind: "chunk"; chunk: Chunk }
  | { kind: "generated"; result: GenerationResult }
  | { kind: "tokenized"; ids: number[] }
  | { kind: "detokenized"; text: string }
  | { kind: "scored"; score: Score }
  | { kind: "refused"; error: PlainError };

/** Worker to page. */
export type FromWorker =
  | { kind: "started" }
  | { kind: "holds"; lock: string }
  | { kind: "progress"; progress: LoadProgress }
  | { kind: "loaded"; info: EngineInfo; warnings: Warning[]; reason: string; memoryBytes: number }
  | { kind: "load-failed"; error: PlainError }
  | { kind: "reply"; id: number; reply: Reply; memoryBytes: number }
  | { kind: "crashed"; message: string };

/** An engine's worker to one of its threads: take your seat; there is work. */
export type ToThread = ThreadStart | { kind: "work" };

/** What a thread needs. */
export interface ThreadStart {
  kind: "serve";
  module: WebAssembly.Module;
  memory: WebAssembly.Memory;
  /** What its pool gave for this thread. */
  seat: number;
}

/** The other way round: ready; nothing to do for a while. */
export type FromThread = Extract<FromWorker, { kind: "started" | "holds" | "crashed" }> | { kind: "serving" } | { kind: "rests" };
