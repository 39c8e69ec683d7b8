// Small things that outlive the page. A browser that keeps nothing is no error.

/** What is kept for every tab, or for this one, a reload included. */
type Area = "localStorage" | "sessionStorage";

export function readStored(key: string, area: Area = "localStorage"): unknown {
  try {
    return JSON.parse(globalThis[area].getItem(key) ?? "null");
  } catch {
    return null;
  }
}

/** Null forgets it. */
export function writeStored(key: string, value: unknown, area: Area = "localStorage"): void {
  try {
    if (value === null) globalThis[area].removeItem(key);
    else globalThis[area].setItem(key, JSON.stringify(value));
  } catch {
    // Full, or forbidden: then it holds for this page only.
  }
}

/** The keys that begin so. */
export function storedKeys(prefix: string): string[] {
  try {
    return Object.keys(localStorage).filter((key) => key.startsWith(prefix));
  } catch {
    return [];
  }
}

/** A name that no other tab has; `randomUUID` is only there over https. */
export function newId(): string {
  return `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 10)}`;
}
