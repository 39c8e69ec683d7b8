import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { fileChoice, loadModel } from "./model.js";
import { dialog } from "./state.js";

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
      void loadModel(fileChoice(file));
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
