import { megabytes } from "./format.js";

/** What a model takes besides its file: keys and values of a conversation, buffers, the engine itself. */
const BESIDES = 120e6;
/** The part of a device's memory that one tab can count on. */
const SHARE = 0.25;

/** How much memory a model will take, and a warning where the device may not have it: it ends such a tab without a word. */
export function MemoryHint({ size }: { size: number }) {
  const takes = size + BESIDES;
  // In GB, in steps, at most 8; not every browser tells.
  const { deviceMemory } = navigator as Navigator & { deviceMemory?: number };
  const short = deviceMemory !== undefined && takes > deviceMemory * 1e9 * SHARE;
  return (
    <p class={short ? "memory-hint short" : "memory-hint"} data-testid="memory-hint">
      Takes about {megabytes(takes)} of memory.
      {short && <> This device has {deviceMemory} GB in all, and may end the tab while the model loads: close other tabs first, or choose a smaller model.</>}
    </p>
  );
}
