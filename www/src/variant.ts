// Which of the WebAssembly modules is loaded, on how many threads, and why.

/** The modules of the package. */
export const VARIANTS = ["simd128", "relaxed", "simd128-threads", "relaxed-threads"] as const;
/** One of them. */
export type Variant = (typeof VARIANTS)[number];

/** What was chosen. */
export interface Choice {
  variant: Variant;
  threads: number;
  /** Why so many threads, in a sentence. */
  reason: string;
}

// The smallest modules that use what is asked about; nothing is run, and no policy forbids to ask.
/** (func (result v128) (i8x16.relaxed_swizzle (i8x16.splat (i32.const 1)) (i8x16.splat (i32.const 2)))) */
const RELAXED = [1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 15, 1, 13, 0, 65, 1, 253, 15, 65, 2, 253, 15, 253, 128, 2, 11];
/** (memory 1 1 shared) (func (drop (i32.atomic.load (i32.const 0)))) */
const SHARED = [1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 5, 4, 1, 3, 1, 1, 10, 11, 1, 9, 0, 65, 0, 254, 16, 2, 0, 26, 11];
const has = (sections: number[]): boolean => WebAssembly.validate(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, ...sections));

/** More threads than this wait for memory only. */
const MOST = 8;

/** As many threads as help: half of the processors, since the others are slow ones, or share a core; and the page needs one, too. */
export function helpful(processors: number): number {
  return processors < 3 ? Math.max(1, processors) : Math.min(MOST, Math.floor(processors / 2));
}

/** The best module that this browser and this page can run. `forced` is for tests. */
export function choose(threads: number | undefined, forced?: Variant): Choice {
  const relaxed = forced === undefined ? has(RELAXED) : forced.startsWith("relaxed");
  const alone = (reason: string): Choice => ({ variant: relaxed ? "relaxed" : "simd128", threads: 1, reason: `One thread: ${reason}.` });
  if (threads === 1) return alone("that was asked for");
  if (forced !== undefined && !forced.endsWith("-threads")) return alone(`the module ${forced} was asked for`);
  if (globalThis.crossOriginIsolated !== true) return alone("the page is not cross-origin isolated, which shared memory needs");
  if (typeof SharedArrayBuffer === "undefined" || !has(SHARED)) return alone("this browser's WebAssembly has no shared memory");
  const processors = navigator.hardwareConcurrency || 1;
  const n = threads ?? helpful(processors);
  if (n === 1) return alone("there is one processor");
  const reason = threads === undefined ? `${n} threads on ${processors} processors.` : `${n} threads, as asked for.`;
  return { variant: relaxed ? "relaxed-threads" : "simd128-threads", threads: n, reason };
}
