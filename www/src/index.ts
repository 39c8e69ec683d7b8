/**
 * A quantized small language model in the browser tab.
 *
 * ```ts
 * const model = await load("models/SmolLM2-135M-Instruct.Q4_1.gguf");
 * const stream = model.chat([{ role: "user", content: "What is a rill?" }]);
 * for await (const chunk of stream) output.append(chunk.text);
 * ```
 * @packageDocumentation
 */

import type { Model } from "./model.js";
import { open } from "./load.js";
import type { LoadOptions, ModelSource } from "./types.js";

export { RillmError, type ErrorCode } from "./errors.js";
export type { Model } from "./model.js";
export type { StreamStatus, TextStream } from "./stream.js";
export type * from "./types.js";

/**
 * Loads a GGUF model into a worker of its own.
 *
 * Rejects with a {@link RillmError}: `network`, `not-gguf`, `truncated`, `unsupported-type`, `unsupported-architecture`, `out-of-memory`,
 * `bad-option`, `unknown-option`, `not-supported`, `no-worker`, `no-wasm` or another of its codes; or with `signal.reason` if it was aborted.
 */
export function load(source: ModelSource, options: LoadOptions = {}): Promise<Model> {
  return open(source, options);
}
