// Whether a load took its tab with it: some browsers end a tab that takes too much memory, and open it again at once. With an address that
// loads by itself this would go on for ever.
//
// A load leaves a note and holds a Web Lock of the note's name, which the browser frees with the tab, however that ends: a note whose lock
// nobody holds is of a tab that is gone, and another tab's load is not mistaken for one.

import { newId, readStored, storedKeys, writeStored } from "./storage.js";

const PREFIX = "rillm.loading.";

let end: () => void = () => undefined;

/** A load begins. */
export function loadBegins(label: string): void {
  loadEnds();
  const name = PREFIX + newId();
  const over = new Promise<void>((resolve) => {
    end = () => {
      writeStored(name, null);
      resolve();
    };
  });
  const mine = end;
  const note = (): Promise<void> => {
    if (end === mine) writeStored(name, { label });
    return over;
  };
  // Only then the note, so that it is never there without its lock. Without locks, outside of a secure context, any note counts.
  if (navigator.locks === undefined) void note();
  else navigator.locks.request(name, note).catch(() => undefined); // an opaque origin has none: then no note
  addEventListener("pagehide", loadEnds); // the tab is closed or goes elsewhere: that is no crash
}

/** It is over, however it went. */
export function loadEnds(): void {
  removeEventListener("pagehide", loadEnds);
  const mine = end;
  end = () => undefined;
  mine();
}

/** What was being loaded when a tab ended without a word, if one did; asked once. */
export async function crashedLoad(): Promise<string | null> {
  const locks = await navigator.locks?.query().catch(() => undefined);
  const held = locks?.held?.map(({ name }) => name) ?? [];
  const gone = storedKeys(PREFIX).filter((key) => !held.includes(key));
  const labels = gone.map((key) => {
    const found = readStored(key);
    writeStored(key, null);
    return typeof found === "object" && found !== null && "label" in found && typeof found.label === "string" ? found.label : null;
  });
  return labels.find((label) => label !== null) ?? null;
}
