/**
 * Hooks for tests of what is built on this package. Not part of its stable surface.
 * @packageDocumentation
 */

import { generate, type Model } from "./model.js";
import type { TextStream } from "./stream.js";
import type { GenerationOptions } from "./types.js";

/**
 * A generation in which these ids are "sampled" instead of the model's choices, and no model runs: streaming, stop texts, limits and
 * counting are as always. Without `maxTokens` it ends after the last id.
 */
export function completeScripted(model: Model, ids: Iterable<number>, options: GenerationOptions = {}): TextStream {
  const script = Uint32Array.from(ids);
  return generate(model, () => ({ text: "A scripted answer:" }), { maxTokens: Math.max(1, script.length), ...options }, script);
}
