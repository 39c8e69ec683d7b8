// Tokens per second over an answer, for the chart.

import type { Metrics } from "rillm";

/** Points of the chart: after how many tokens, the rate then, and the average until then. */
export interface Curve {
  tokens: number[];
  now: number[];
  mean: number[];
}

/** Milliseconds over which the rate is taken: a single token's time is mostly noise. */
const WINDOW = 300;
const MOST = 400;

/** Collects an answer's rates; however long it gets, there are never more than 400 points. */
export class RateLog {
  #curve: Curve = { tokens: [], now: [], mean: [] };
  #recent: { tokens: number; ms: number }[] = [{ tokens: 0, ms: 0 }];
  #stride = 1;
  #next = 2; // the first two have no rate worth the name

  /** The state after another chunk. */
  add({ decodeTokens, decodeMs, decodeTokensPerSecond }: Metrics): void {
    const recent = this.#recent;
    recent.push({ tokens: decodeTokens, ms: decodeMs });
    while (recent.length > 2 && decodeMs - (recent[1]?.ms ?? decodeMs) >= WINDOW) recent.shift();
    const since = recent[0];
    if (since === undefined || decodeTokensPerSecond === null || decodeTokens < this.#next || decodeMs <= since.ms) return;
    this.#next = decodeTokens + this.#stride;
    const { tokens, now, mean } = this.#curve;
    tokens.push(decodeTokens);
    now.push(((decodeTokens - since.tokens) / (decodeMs - since.ms)) * 1000);
    mean.push(decodeTokensPerSecond);
    if (tokens.length <= MOST) return;
    const half = (list: number[]): number[] => list.filter((_, i) => i % 2 === 1);
    this.#curve = { tokens: half(tokens), now: half(now), mean: half(mean) };
    this.#stride *= 2;
  }

  /** So far. */
  get curve(): Curve {
    const { tokens, now, mean } = this.#curve;
    return { tokens: [...tokens], now: [...now], mean: [...mean] };
  }
}
