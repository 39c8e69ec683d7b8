/**
 * Hooks for tests of what is built on this package. Not part of its stable surface.
 * @packageDocumentation
 */

import { open } from "./load.js";
import { generate, type Model } from "./model.js";
import type { TextStream } from "./stream.js";
import type { GenerationOptions, LoadOptions, ModelSource } from "./types.js";
import type { Variant } from "./variant.js";

export type { Variant } from "./variant.js";

/**
 * A generation in which these ids are "sampled" instead of the model's choices, and no model runs: streaming, stop texts, limits and
 * counting are as always. Without `maxTokens` it ends after the last id.
 */
export function completeScripted(model: Model, ids: Iterable<number>, options: GenerationOptions = {}): TextStream {
  const script = Uint32Array.from(ids);
  return generate(model, () => ({ text: "A scripted answer:" }), { maxTokens: Math.max(1, script.length), ...options }, script);
}

/**
 * `load` with this WebAssembly module and no other, whatever the browser could run: `"simd128"`, `"relaxed"`, or one of the two with
 * `-threads`, which still needs a page that is cross-origin isolated.
 */
export function loadVariant(source: ModelSource, variant: Variant, options: LoadOptions = {}): Promise<Model> {
  return open(source, options, variant);
}
