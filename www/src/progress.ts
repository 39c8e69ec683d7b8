// Turns "so many bytes more" into events at a pace that a page can draw.

import type { LoadProgress } from "./types.js";

/** At most 20 events a second. */
const EVERY_MS = 50;
/** The rate is that of the last two seconds. */
const WINDOW_MS = 2000;

/** Reports the progress of one phase. */
export class Progress {
  #loaded = 0;
  #reported = Number.NEGATIVE_INFINITY;
  #samples: { at: number; loaded: number }[] = [];

  /** Reports to `post`. */
  constructor(
    private readonly phase: LoadProgress["phase"],
    private readonly total: number | undefined,
    private readonly post: (progress: LoadProgress) => void,
  ) {
    this.add(0);
  }

  /** So many bytes more are there. */
  add(bytes: number): void {
    this.#loaded += bytes;
    const now = performance.now();
    if (now - this.#reported >= EVERY_MS) this.#report(now);
  }

  /** All bytes are there. */
  end(): void {
    this.#report(performance.now(), this.#loaded);
  }

  #report(now: number, end?: number): void {
    this.#reported = now;
    this.#samples.push({ at: now, loaded: this.#loaded });
    while (this.#samples.length > 2 && (this.#samples[0]?.at ?? now) < now - WINDOW_MS) this.#samples.shift();
    const first = this.#samples[0];
    const ms = first === undefined ? 0 : now - first.at;
    const rate = first !== undefined && ms > 0 ? ((this.#loaded - first.loaded) * 1000) / ms : null;
    // A server may announce less than it sends.
    const total = end ?? (this.total !== undefined && this.total >= this.#loaded ? this.total : null);
    const etaMs = total === this.#loaded ? 0 : total !== null && rate !== null && rate > 0 ? ((total - this.#loaded) * 1000) / rate : null;
    this.post({ phase: this.phase, loaded: this.#loaded, total, bytesPerSecond: rate, etaMs });
  }
}
