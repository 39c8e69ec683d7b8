/** Codes of the engine; the same list as `Code` in `src/error.rs`, compared by a test. */
export const ENGINE_CODES = [
  "not-gguf",
  "unsupported-version",
  "truncated",
  "malformed",
  "unsupported-type",
  "unsupported-architecture",
  "unsupported-tokenizer",
  "missing-key",
  "bad-key",
  "missing-tensor",
  "bad-shape",
  "no-chat-template",
  "bad-template",
  "bad-messages",
  "unknown-option",
  "bad-option",
  "not-supported",
  "prompt-too-long",
  "empty-prompt",
  "bad-token",
  "busy",
  "io",
  "out-of-memory",
  "device",
  "internal",
] as const;

/** Codes of what lies between the page and the engine. */
export const HOST_CODES = [
  /** The file could not be fetched: the server's answer, no connection, or no permission (CORS). */
  "network",
  /** The worker's script could not be started, or there are no workers here (on a server, in a service worker). */
  "no-worker",
  /** WebAssembly could not be started: the browser has none, or the file was not found. */
  "no-wasm",
  /** The Content-Security-Policy that the worker's script is served with forbids WebAssembly: `'wasm-unsafe-eval'` is missing in `script-src`. */
  "wasm-blocked-by-csp",
  /** The engine failed in a way that it cannot go on from; every later call on this model fails alike. */
  "crashed",
  /** The browser ended the worker, for lack of memory perhaps; every later call on this model fails alike. */
  "worker-died",
  /** The model was disposed of. */
  "disposed",
] as const;

/** What kind of failure it was. The strings are stable across versions. */
export type ErrorCode = (typeof ENGINE_CODES)[number] | (typeof HOST_CODES)[number];

/** Every refusal and failure of this package: a stable {@link code} for programs, a sentence for people. */
export class RillmError extends Error {
  /** The kind of failure. */
  readonly code: ErrorCode;

  /** An error of that kind. */
  constructor(code: ErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = "RillmError";
    this.code = code;
  }
}

/** An error as it crosses from the worker. */
export interface PlainError {
  /** The kind of failure. */
  code: ErrorCode;
  /** The sentence. */
  message: string;
}

/** The error's code and message if it is a refusal of ours or of the engine's, else null: then it is a crash. */
export function refusal(error: unknown): PlainError | null {
  if (!(error instanceof Error)) return null;
  const code = (error as { code?: unknown }).code;
  return typeof code === "string" ? { code: code as ErrorCode, message: error.message } : null;
}

/** What is wrong with a file, rather than with what is asked of it. */
export const DAMAGED: readonly ErrorCode[] = ["not-gguf", "truncated", "malformed", "bad-shape", "missing-tensor", "missing-key", "bad-key"];
const OF_A_FILE: readonly ErrorCode[] = [...DAMAGED, "unsupported-version", "unsupported-type", "unsupported-architecture", "unsupported-tokenizer", "bad-template", "io"];

/** A refusal of a file, with the file's name in front. */
export function named(error: unknown, name: string | undefined): unknown {
  const known = refusal(error);
  if (known === null || name === undefined || !OF_A_FILE.includes(known.code)) return error;
  return new RillmError(known.code, `${name}: ${known.message}`, { cause: error });
}

/** Any value inside a message, also one that can't become a text. */
export function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "bigint") return `the BigInt ${value}`;
  return value === null || typeof value !== "object" ? String(value) : Array.isArray(value) ? "a list" : "an object";
}

/** Any thrown value as a sentence. */
export function describe(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}
