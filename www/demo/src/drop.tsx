import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { RillmError } from "rillm";
import { failureOf } from "./failure.js";
import { fileChoice, loadModel } from "./model.js";
import { dialog, failure, stage } from "./state.js";

/** Loads it, unless it is no model: then the one there is stays. */
async function take(file: File): Promise<void> {
  const magic = await file.slice(0, 4).text().catch(() => "");
  if (magic === "GGUF" || stage.value.kind !== "ready") return loadModel(fileChoice(file));
  failure.value = failureOf(new RillmError("not-gguf", `“${file.name}” is not a GGUF file, so the model stays`));
}

/** A model file may be dropped anywhere on the page; while one is above it, the page says so. */
export function DropTarget() {
  const over = useSignal(false);
  useEffect(() => {
    const holdsFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;
    function move(event: DragEvent): void {
      if (!holdsFiles(event)) return;
      event.preventDefault(); // else the browser would open the file itself
      over.value = true;
    }
    function out(event: DragEvent): void {
      if (event.relatedTarget === null) over.value = false; // it has left the window, not just an element
    }
    function drop(event: DragEvent): void {
      if (!holdsFiles(event)) return;
      event.preventDefault();
      over.value = false;
      const file = event.dataTransfer?.files[0];
      if (file === undefined) return;
      dialog.value = null;
      void take(file);
    }
    const end = new AbortController();
    const { signal } = end;
    addEventListener("dragenter", move, { signal });
    addEventListener("dragover", move, { signal });
    addEventListener("dragleave", out, { signal });
    addEventListener("drop", drop, { signal });
    return () => end.abort();
  }, []);
  if (!over.value) return null;
  return <div class="drop" data-testid="drop-target"><p>Drop the model file to load it<span>A GGUF file; it stays on this device.</span></p></div>;
}
