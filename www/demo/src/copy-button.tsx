import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { announcement } from "./state.js";

/** Puts a text on the clipboard and says whether that worked. */
export function CopyButton({ text, what }: { text: string; what: string }) {
  const state = useSignal<"idle" | "copied" | "failed">("idle");
  useEffect(() => {
    if (state.value === "idle") return;
    const timer = setTimeout(() => (state.value = "idle"), 2000);
    return () => clearTimeout(timer);
  }, [state.value]);
  async function copy(): Promise<void> {
    try {
      await navigator.clipboard.writeText(text);
      state.value = "copied";
      announcement.value = `Copied the ${what}`;
    } catch {
      // Without permission, or on a page without https.
      state.value = "failed";
      announcement.value = "The browser did not allow copying";
    }
  }
  const label = { idle: "Copy", copied: "Copied", failed: "Not allowed" }[state.value];
  return <button type="button" class="small" aria-label={state.value === "idle" ? `Copy ${what}` : label} data-testid={`copy-${what}`} onClick={() => void copy()}>{label}</button>;
}
