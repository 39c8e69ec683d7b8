import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { canUndo, edit, goOn, paper, undo, whole } from "./completion.js";
import { CopyButton } from "./copy-button.js";
import { Notice } from "./notice.js";
import { stage } from "./state.js";
import { busy, live, numbers, reading, stop } from "./work.js";

/** A sheet of paper on which the person and the model write in turn. */
export function CompletionView() {
  const editing = useSignal(true);
  const writes = paper.value.added.length === 0 && !busy.value ? true : editing.value && !busy.value;
  function start(): void {
    editing.value = false;
    void goOn();
  }
  const empty = whole.value.trim() === "";
  return (
    <section class="chat completion" aria-label="Completion" data-testid="completion">
      <p class="note explain-mode" data-testid="completion-why">
        {stage.value.kind === "ready" && stage.value.label} is a base model: it has learned to continue texts, not to answer. Write a beginning, and it goes on from there.
      </p>
      {writes ? <Sheet start={start} /> : <Result />}
      <Notice />
      <div class="row tools-row">
        {busy.value
          ? <button type="button" class="primary" data-testid="completion-stop" onClick={stop}>Stop</button>
          : <button type="button" class="primary" data-testid="completion-continue" disabled={empty} onClick={start}>Continue</button>}
        <button
          type="button" class="quiet" data-testid="completion-undo" disabled={!canUndo.value}
          onClick={() => {
            undo();
            editing.value = paper.value.added.length === 0;
          }}
        >
          Undo
        </button>
        {!writes && <button type="button" class="quiet" data-testid="completion-edit" disabled={busy.value} onClick={() => (editing.value = true)}>Edit the text</button>}
        {!empty && !busy.value && <CopyButton text={whole.value} what="text" />}
        <span class="note">This text is not kept when you close the page.</span>
      </div>
    </section>
  );
}

function Sheet({ start }: { start: () => void }) {
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus({ preventScroll: true }), []);
  function onKeyDown(event: KeyboardEvent): void {
    // Here Enter is a part of the text.
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    start();
  }
  return (
    <textarea
      ref={field} class="sheet" value={whole.value} aria-label="Text to continue" placeholder="The little river began high up in the hills, where" data-testid="completion-input"
      onInput={(event) => edit(event.currentTarget.value)} onKeyDown={onKeyDown}
    />
  );
}

function Result() {
  const element = useRef<HTMLDivElement>(null);
  const text = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  const { given, added } = paper.value;
  useEffect(() => {
    const { current } = element;
    if (current === null || text.current === null) return;
    const size = new ResizeObserver(() => atEnd.current && current.scrollTo({ top: current.scrollHeight }));
    size.observe(text.current);
    return () => size.disconnect();
  }, []);
  return (
    <div
      class="sheet result plain" ref={element} tabIndex={0} role="group" aria-label="Text with its continuation" aria-busy={busy.value} data-testid="completion-result"
      onScroll={({ currentTarget: e }) => (atEnd.current = e.scrollHeight - e.scrollTop - e.clientHeight < 40)}
    >
      <div ref={text}>
        <span data-testid="completion-prompt">{given}</span>
        <ins data-testid="completion-text">{added.map((piece, i) => <span key={i}>{piece}</span>)}<Growing /></ins>
      </div>
    </div>
  );
}

/** The only part that is drawn again while it grows. */
function Growing() {
  if (live.value === null) return null;
  if (live.value === "") return <span class="waiting">{` ${reading(numbers.value)}`}<span class="dots" aria-hidden="true" /></span>;
  return <span class="growing">{live.value}</span>;
}
