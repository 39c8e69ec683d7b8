import { useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { busy, draft, live, numbers, send, stop, turns, type Turn } from "./chat.js";
import { stage } from "./state.js";

// What a model of 135 M weights answers well, most of the time.
const EXAMPLES = [
  "What is the capital city of Japan?",
  "What is photosynthesis?",
  "Give me three tips for a good night's sleep.",
  "Write a short story about a fox who learns to swim.",
];

const FINISHES: Partial<Record<string, string>> = { abort: "Stopped", length: "Cut at the length limit" };

/** The conversation and the field below it. */
export function ChatView() {
  const scroller = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  useSignalEffect(() => {
    void [turns.value, live.value]; // whatever is added, the end stays in view if it was in view
    const element = scroller.current;
    if (element !== null && atEnd.current) requestAnimationFrame(() => element.scrollTo({ top: element.scrollHeight }));
  });
  return (
    <section class="chat" aria-label="Chat">
      <div
        class="turns" ref={scroller} tabIndex={0} aria-label="Conversation" data-testid="chat"
        onScroll={({ currentTarget: e }) => (atEnd.current = e.scrollHeight - e.scrollTop - e.clientHeight < 40)}
      >
        {turns.value.map((turn, i) => <TurnView key={i} turn={turn} />)}
        <Live />
        {turns.value.length === 0 && !busy.value && <Examples />}
      </div>
      <Composer />
    </section>
  );
}

function TurnView({ turn }: { turn: Turn }) {
  const note = turn.finish === undefined ? undefined : FINISHES[turn.finish];
  return (
    <article class={`turn ${turn.role}`} data-testid={`turn-${turn.role}`}>
      <h3 class="visually-hidden">{turn.role === "user" ? "You" : "Answer"}</h3>
      <div class="text" data-testid="text">{turn.text}</div>
      {turn.finish !== undefined && <p class={note === undefined ? "visually-hidden" : "note"} data-testid="finish" data-finish={turn.finish}>{note ?? "Finished"}</p>}
    </article>
  );
}

/** The answer in the making: the only part that is drawn again while it grows. */
function Live() {
  if (live.value === null) return null;
  const { phase, prefillDone, prefillTotal } = numbers.value;
  const waiting = phase === "prefill" && prefillTotal > 0 ? `Reading ${prefillDone} of ${prefillTotal} tokens` : "Reading";
  return (
    <article class="turn assistant live" data-testid="turn-live">
      <h3 class="visually-hidden">Answer</h3>
      {live.value === "" ? <p class="waiting">{waiting}<span class="dots" aria-hidden="true" /></p> : <div class="text" data-testid="text">{live.value}</div>}
    </article>
  );
}

function Examples() {
  return (
    <div class="examples">
      <h2>What would you like to know?</h2>
      <div>
        {EXAMPLES.map((text) => <button type="button" key={text} data-testid="example" onClick={() => void send(text)}>{text}</button>)}
      </div>
      <p class="note">{stage.value.kind === "ready" && stage.value.label} is sure of itself, and sometimes wrong: check what matters.</p>
    </div>
  );
}

function Composer() {
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus({ preventScroll: true }), []);
  useSignalEffect(() => {
    void draft.value;
    const element = field.current;
    if (element === null) return;
    requestAnimationFrame(() => {
      element.style.height = "auto";
      element.style.height = `${Math.min(element.scrollHeight + 2, 200)}px`;
    });
  });
  function onKeyDown(event: KeyboardEvent): void {
    // While an input method composes a character, Enter chooses it.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    void send(draft.value);
  }
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void send(draft.value);
      }}
    >
      <textarea
        ref={field} rows={1} value={draft} placeholder="Write a message" aria-label="Message" aria-describedby="keys" data-testid="input"
        onInput={(event) => (draft.value = event.currentTarget.value)} onKeyDown={onKeyDown}
      />
      {busy.value
        ? <button type="button" class="primary" data-testid="stop" onClick={stop}>Stop</button>
        : <button type="submit" class="primary" data-testid="send" disabled={draft.value.trim() === ""}>Send</button>}
      <p id="keys" class="keys">Enter sends, Shift + Enter begins a new line</p>
    </form>
  );
}
