// Plain copies of what callers pass, because a message cannot hold the proxies in which page frameworks wrap their state.

import { RillmError, type ErrorCode } from "./errors.js";

/** What a value is called, whichever frame its class is from: "Blob", "AbortSignal". */
export function tagOf(value: unknown): string {
  return Object.prototype.toString.call(value).slice(8, -1);
}

/** Deeper than anything that is an option or a message. */
const DEPTH = 8;

/** A plain copy; what no message can hold (a function, for one) is refused with `code`. */
export function plain<T>(value: T, code: ErrorCode, what: string): T {
  return copy(value, 0) as T;

  function copy(value: unknown, depth: number): unknown {
    if (typeof value === "function" || typeof value === "symbol") {
      throw new RillmError(code, `${what} hold a ${typeof value}, which is not plain data`);
    }
    if (typeof value !== "object" || value === null) return value;
    if (depth === DEPTH) throw new RillmError(code, `${what} are nested too deeply`);
    if (Array.isArray(value)) return value.map((entry: unknown) => copy(entry, depth + 1));
    return Object.fromEntries(Object.entries(value).map(([name, entry]) => [name, copy(entry, depth + 1)]));
  }
}
