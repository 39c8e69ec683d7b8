import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { goOn, regenerate, resend, type Turn } from "./chat.js";
import { CopyButton } from "./copy-button.js";
import { rate, tokens } from "./format.js";
import { Markdown } from "./markdown.js";
import { busy, live, numbers, reading } from "./work.js";

const FINISHES: Partial<Record<string, string>> = { abort: "Stopped", length: "Cut at the length limit" };

/** What was asked: plain text, as it was written. */
export function UserView({ turn, readOnly, unanswered }: { turn: Turn; readOnly: boolean; unanswered: boolean }) {
  const editing = useSignal(false);
  const button = useRef<HTMLButtonElement>(null);
  function close(): void {
    editing.value = false;
    requestAnimationFrame(() => button.current?.focus());
  }
  if (editing.value) return <Edit turn={turn} close={close} />;
  return (
    <article class="turn user" data-testid="turn-user">
      <h3 class="visually-hidden">You</h3>
      <div class="bubble plain" data-testid="text">{turn.text}</div>
      {!readOnly && (
        <div class="tools">
          <CopyButton text={turn.text} what="message" />
          <button ref={button} type="button" class="small" data-testid="edit" disabled={busy.value} aria-label="Edit message" onClick={() => (editing.value = true)}>Edit</button>
          {unanswered && !busy.value && <button type="button" class="small" data-testid="answer-now" onClick={() => void regenerate()}>Answer this</button>}
        </div>
      )}
    </article>
  );
}

function Edit({ turn, close }: { turn: Turn; close: () => void }) {
  const field = useRef<HTMLTextAreaElement>(null);
  const text = useSignal(turn.text);
  useLayoutEffect(() => {
    const element = field.current;
    element?.focus();
    element?.setSelectionRange(element.value.length, element.value.length);
  }, []);
  function submit(event: Event): void {
    event.preventDefault();
    void resend(turn, text.value);
  }
  function onKeyDown(event: KeyboardEvent): void {
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === "Escape") {
      event.preventDefault();
      close();
    } else if (event.key === "Enter" && !event.shiftKey) submit(event);
  }
  return (
    <form class="turn user edit" onSubmit={submit} data-testid="edit-form">
      <textarea ref={field} rows={3} value={text} aria-label="Edit message" data-testid="edit-field" onInput={(event) => (text.value = event.currentTarget.value)} onKeyDown={onKeyDown} />
      <p class="note">Sending it puts a new answer in place of everything below.</p>
      <div class="tools">
        <button type="button" class="quiet" data-testid="edit-cancel" onClick={close}>Cancel</button>
        <button type="submit" class="primary" data-testid="edit-send" disabled={text.value.trim() === "" || busy.value}>Send</button>
      </div>
    </form>
  );
}

/** An answer; without a turn the one in the making, which is then the only part that is drawn again while it grows. */
export function AnswerView({ turn, last }: { turn: Turn | null; last: boolean }) {
  const text = turn === null ? (live.value ?? "") : turn.text;
  return (
    <article class={`turn assistant${turn === null ? " live" : ""}`} data-testid={turn === null ? "turn-live" : "turn-assistant"} aria-busy={turn === null}>
      <h3 class="visually-hidden">Answer</h3>
      {text === "" ? <Waiting /> : <div class="text" data-testid="text"><Markdown text={text} growing={turn === null} /></div>}
      {turn !== null && <Below turn={turn} last={last} />}
    </article>
  );
}

function Waiting() {
  return <p class="waiting">{reading(numbers.value)}<span class="dots" aria-hidden="true" /></p>;
}

function Below({ turn, last }: { turn: Turn; last: boolean }) {
  const note = turn.full ? "The context is full" : turn.finish === undefined ? undefined : FINISHES[turn.finish];
  const unfinished = (turn.finish === "length" || turn.finish === "abort") && !turn.full;
  const facts = [];
  if (turn.tokens !== undefined) facts.push(tokens(turn.tokens));
  if (turn.rate !== undefined && turn.rate !== null) facts.push(`${rate(turn.rate)} tokens/s`);
  if (turn.seed !== undefined) facts.push(`seed ${turn.seed}`);
  return (
    <div class="below">
      <CopyButton text={turn.text} what="answer" />
      {last && unfinished && <button type="button" class="small strong" data-testid="continue" disabled={busy.value} onClick={() => void goOn()}>Continue</button>}
      {last && <button type="button" class="small" data-testid="regenerate" disabled={busy.value} onClick={() => void regenerate()}>Regenerate</button>}
      {turn.finish !== undefined && <span class={note === undefined ? "visually-hidden" : "badge"} data-testid="finish" data-finish={turn.finish}>{note ?? "Finished"}</span>}
      {facts.length > 0 && <span class="note" data-testid="answer-facts">{facts.join(", ")}</span>}
    </div>
  );
}
