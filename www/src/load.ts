// `load`: checks the options, starts a worker, and waits for the model.

import { Connection } from "./connection.js";
import { RillmError, shown } from "./errors.js";
import { Model, checkSignal } from "./model.js";
import { pageUrl, toWire } from "./source.js";
import type { KvType, LoadOptions, ModelInfo, ModelSource } from "./types.js";
import type { Variant } from "./variant.js";

/** Loads a model; `variant` is the test hook of `testing.ts`. */
export async function open(source: ModelSource, options: LoadOptions, variant?: Variant): Promise<Model> {
  const { signal, onProgress, cache, engine, threads, place, workerUrl, wasmUrl } = check(options);
  const wire = toWire(source);
  signal?.throwIfAborted();
  const connection = new Connection(workerUrl);
  const abort = (): void => connection.end(new RillmError("disposed", "the load was aborted"), { reason: signal?.reason as unknown });
  signal?.addEventListener("abort", abort, { once: true });
  try {
    const request = { kind: "load", source: wire, cache, wasmUrl, threads, variant, options: engine } as const;
    const loaded = await connection.load(request, (progress) => onProgress?.(progress));
    return new Model(connection, loaded, place);
  } finally {
    signal?.removeEventListener("abort", abort);
  }
}

const NAMES = ["backend", "threads", "contextLength", "kvType", "cache", "signal", "onProgress", "workerUrl", "wasmUrl"];

const KV_TYPES: readonly KvType[] = ["f16", "q8_0"];

/** The pool's bound (`MOST` in `src/backend/cpu/pool.rs`). */
const MOST_THREADS = 64;

function check(options: LoadOptions) {
  if (typeof options !== "object" || options === null) throw new RillmError("bad-option", "the options must be a plain object");
  const unknown = Object.keys(options).find((name) => !NAMES.includes(name));
  if (unknown !== undefined) throw new RillmError("unknown-option", `there is no load option ${JSON.stringify(unknown)}; there are ${NAMES.join(", ")}`);
  const { backend, threads, contextLength, kvType, cache, onProgress } = options;
  // JavaScript callers have no types to hold them back.
  if (threads !== undefined && !(whole(threads) && threads <= MOST_THREADS)) throw new RillmError("bad-option", `threads must be a whole number from 1 to ${MOST_THREADS}, not ${shown(threads)}`);
  if (contextLength !== undefined && !whole(contextLength)) throw new RillmError("bad-option", `contextLength must be a whole number from 1 on, not ${shown(contextLength)}`);
  if (kvType !== undefined && !KV_TYPES.includes(kvType)) throw new RillmError("bad-option", `kvType must be "f16" or "q8_0", not ${shown(kvType)}`);
  if (cache !== undefined && typeof cache !== "boolean") throw new RillmError("bad-option", "cache must be true or false");
  if (onProgress !== undefined && typeof onProgress !== "function") throw new RillmError("bad-option", "onProgress must be a function");
  return {
    signal: checkSignal(options.signal),
    onProgress,
    cache: cache ?? true,
    engine: { ...(contextLength !== undefined && { contextLength }), ...(kvType !== undefined && { kvType }) },
    threads,
    place: choose(backend ?? "auto"),
    workerUrl: options.workerUrl === undefined ? undefined : pageUrl(options.workerUrl, "workerUrl"),
    wasmUrl: options.wasmUrl === undefined ? undefined : pageUrl(options.wasmUrl, "wasmUrl"),
  };
}

function whole(value: unknown): boolean {
  return typeof value === "number" && Number.isInteger(value) && value >= 1 && value < 2 ** 32;
}

function choose(backend: string): Pick<ModelInfo, "backend" | "backendReason" | "adapter"> {
  switch (backend) {
    case "auto":
      return { backend: "wasm", backendReason: "This version computes on the processor, in WebAssembly; it does not use the GPU yet.", adapter: null };
    case "wasm":
      return { backend: "wasm", backendReason: "The processor was asked for (backend: \"wasm\").", adapter: null };
    case "webgpu":
      throw new RillmError("not-supported", "the backend webgpu is not supported yet: leave backend out, or give \"wasm\"");
    default:
      throw new RillmError("bad-option", `backend must be "auto", "webgpu" or "wasm", not ${shown(backend)}`);
  }
}
