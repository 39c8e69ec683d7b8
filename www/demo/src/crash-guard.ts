// Whether the last load took the tab with it: some browsers end a tab that takes too much memory, and open it again at once. With an
// address that loads by itself this would go on for ever.

import { readStored, writeStored } from "./storage.js";

const KEY = "rillm.loading";

/** A load begins. */
export function loadBegins(label: string): void {
  writeStored(KEY, { label });
  addEventListener("pagehide", loadEnds); // the tab is closed or goes elsewhere: that is no crash
}

/** It is over, however it went. */
export function loadEnds(): void {
  removeEventListener("pagehide", loadEnds);
  writeStored(KEY, null);
}

/** What was being loaded when the page ended without a word, if it did; asked once. */
export function crashedLoad(): string | null {
  const found = readStored(KEY);
  writeStored(KEY, null);
  return typeof found === "object" && found !== null && "label" in found && typeof found.label === "string" ? found.label : null;
}
