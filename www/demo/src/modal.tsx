import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { dialog } from "./state.js";

/** A dialog of the browser's own: it keeps the focus inside, Escape closes it, and the focus goes back to where it was. */
export function Modal({ name, title, children }: { name: "history" | "settings"; title: string; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const { current } = element;
    current?.showModal();
    return () => current?.close(); // taken away while open, it would leave the focus nowhere
  }, []);
  const close = (): void => element.current?.close();
  return (
    <dialog
      ref={element} class="modal" aria-labelledby={`${name}-title`} data-testid={`${name}-dialog`} onClose={() => (dialog.value = null)}
      // A click beside it lands on the dialog itself, not on what it holds.
      onClick={(event) => event.target === element.current && close()}
    >
      <div class="inside">
        <div class="row"><h2 id={`${name}-title`}>{title}</h2><button type="button" class="quiet" data-testid={`${name}-close`} onClick={close}>Close</button></div>
        {children}
      </div>
    </dialog>
  );
}
