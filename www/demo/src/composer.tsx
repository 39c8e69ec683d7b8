import { useSignalEffect, type Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { current } from "./chat.js";
import { busy, stop } from "./work.js";

interface Props {
  value: Signal<string>;
  send(text: string): void;
  label: string;
  placeholder: string;
}

/** The field in which messages are written; it grows with its text. */
export function Composer({ value, send, label, placeholder }: Props) {
  const field = useRef<HTMLTextAreaElement>(null);
  const id = current.value?.id;
  useEffect(() => field.current?.focus({ preventScroll: true }), [id]);
  useSignalEffect(() => {
    void value.value;
    const element = field.current;
    if (element === null) return;
    requestAnimationFrame(() => {
      element.style.height = "auto";
      element.style.height = `${Math.min(element.scrollHeight + 2, 200)}px`;
    });
  });
  useEffect(() => {
    // The stop button goes with the answer, and the focus with it; it must not get lost.
    if (!busy.value && document.activeElement === document.body) field.current?.focus({ preventScroll: true });
  }, [busy.value]);
  function onKeyDown(event: KeyboardEvent): void {
    // While an input method composes a character, Enter chooses it.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    send(value.value);
  }
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send(value.value);
      }}
    >
      <textarea
        ref={field} rows={1} value={value} placeholder={placeholder} aria-label={label} aria-describedby="keys" data-testid="input"
        onInput={(event) => (value.value = event.currentTarget.value)} onKeyDown={onKeyDown}
      />
      {busy.value
        ? <button type="button" class="primary" data-testid="stop" onClick={stop}>Stop</button>
        : <button type="submit" class="primary" data-testid="send" disabled={value.value.trim() === ""}>Send</button>}
      <p id="keys" class="keys">Enter sends, Shift + Enter begins a new line, Escape stops an answer</p>
    </form>
  );
}
