// What wasm-bindgen generates, as far as the worker uses it. `tests/page/contract.ts` checks the generated declarations against this.

import type { ChatMessage, EngineInfo, EngineLoadOptions, EngineOptions, EngineScore, EngineStep } from "./protocol.js";

export default function init(options: { module_or_path: URL | WebAssembly.Module; memory?: WebAssembly.Memory }): Promise<{ readonly memory: WebAssembly.Memory }>;

export class Pool {
  constructor(threads: number);
  readonly threads: number;
  seat(): number;
}
export function serve(seat: number): void;
export function abandon(seat: number): void;

export class Loader {
  constructor(total: number | undefined, options: EngineLoadOptions, pool: Pool);
  push(bytes: Uint8Array): void;
  finish(): Engine;
  free(): void;
}

export interface Engine {
  info(): EngineInfo;
  tokenize(text: string, special: boolean): Uint32Array;
  detokenize(ids: Uint32Array, special: boolean): string;
  chat(messages: ChatMessage[], options: EngineOptions): Generation;
  complete(text: string, options: EngineOptions): Generation;
  score(ids: Uint32Array): Scoring;
  free(): void;
}

export interface Generation {
  promptTokens(): number;
  step(): Promise<EngineStep>;
  abort(): void;
  script(ids: Uint32Array): void;
  free(): void;
}

export interface Scoring {
  step(): Promise<EngineScore>;
  free(): void;
}
