// Numbers as people read them.

/** "98.4 MB" */
export function megabytes(bytes: number): string {
  return bytes >= 1e9 ? `${(bytes / 1e9).toFixed(2)} GB` : `${(bytes / 1e6).toFixed(bytes < 1e8 ? 1 : 0)} MB`;
}

/** "42.0"; a dash where there is nothing to say. */
export function rate(tokensPerSecond: number | null | undefined): string {
  if (tokensPerSecond === null || tokensPerSecond === undefined) return "–";
  return tokensPerSecond < 100 ? tokensPerSecond.toFixed(1) : Math.round(tokensPerSecond).toLocaleString("en");
}

/** "340 ms", "2.1 s", "1 min 20 s" */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

/** "0.21 s": for sums that the reader can follow */
export function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)}\u00a0s`;
}

/** "1 token", "34 tokens" */
export function tokens(n: number): string {
  return n === 1 ? "1 token" : `${n.toLocaleString("en")} tokens`;
}

/** "today, 14:05" or "3 Mar 2025" */
export function when(time: number): string {
  const date = new Date(time);
  if (date.toDateString() === new Date().toDateString()) return `today, ${date.toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hour12: false })}`;
  return date.toLocaleDateString("en", { day: "numeric", month: "short", year: "numeric" });
}

/** "135 M" */
export function count(n: number): string {
  if (n >= 1e9) return `${(n / 1e9).toFixed(1)} B`;
  return n >= 1e6 ? `${Math.round(n / 1e6)} M` : n.toLocaleString("en");
}

/** How a decode rate feels. */
export interface SpeedClass {
  name: string;
  range: string;
  meaning: string;
  /** Tokens a second where the next class begins. */
  below: number;
}

export const SPEED_CLASSES: readonly [SpeedClass, ...SpeedClass[]] = [
  { name: "batch only", range: "below 10", below: 10, meaning: "Too slow to wait for. Fine for work that runs on its own." },
  { name: "noticeable wait", range: "10 to 30", below: 30, meaning: "Usable for short answers; you read ahead of it." },
  { name: "fluent", range: "30 to 60", below: 60, meaning: "Keeps pace with a comfortable reader." },
  { name: "instant", range: "60 to 100", below: 100, meaning: "Short answers are there at once." },
  { name: "faster than reading", range: "above 100", below: Number.POSITIVE_INFINITY, meaning: "Nobody reads that fast." },
];

/** The class of a decode rate. */
export function speedClass(tokensPerSecond: number): SpeedClass {
  return SPEED_CLASSES.find((c) => tokensPerSecond < c.below) ?? SPEED_CLASSES[0];
}
