import { useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { current, draft, liveId, send, turns } from "./chat.js";
import { Composer } from "./composer.js";
import { kept } from "./history.js";
import { Notice } from "./notice.js";
import { stage } from "./state.js";
import { AnswerView, UserView } from "./turn-view.js";
import { busy } from "./work.js";

// What a model of 135 M weights answers well, most of the time.
const EXAMPLES = [
  "What is the capital city of Japan?",
  "What is photosynthesis?",
  "Give me three tips for a good night's sleep.",
  "Write a short story about a fox who learns to swim.",
];

/** The conversation and the field below it. */
export function ChatView() {
  const scroller = useRef<HTMLDivElement>(null);
  const inner = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  useEffect(() => {
    const element = scroller.current;
    if (element === null || inner.current === null) return;
    // Whatever is added, the end stays in view if it was in view. An observer is called in the frame that adds it; another frame costs as much again.
    const size = new ResizeObserver(() => atEnd.current && element.scrollTo({ top: element.scrollHeight }));
    size.observe(inner.current);
    return () => size.disconnect();
  }, []);
  useSignalEffect(() => {
    void liveId.value;
    atEnd.current = true; // who asks wants to see the answer
  });
  return (
    <section class="chat" aria-label="Chat">
      <div
        class="turns" ref={scroller} tabIndex={0} role="group" aria-label="Conversation" data-testid="chat"
        onScroll={({ currentTarget: e }) => (atEnd.current = e.scrollHeight - e.scrollTop - e.clientHeight < 40)}
      >
        <div class="inner" ref={inner}>
          <OtherModel />
          <Turns />
          {turns.value.length === 0 && !busy.value && <Examples />}
        </div>
      </div>
      <Notice />
      <Composer value={draft} send={(text) => void send(text)} label="Message" placeholder="Write a message" />
    </section>
  );
}

/** The messages; an answer that has just been finished stays the element that it was. */
export function Turns({ readOnly = false }: { readOnly?: boolean }) {
  const list = turns.value.map((turn, i) => {
    if (turn.role === "user") return <UserView key={turn.id} turn={turn} readOnly={readOnly} unanswered={i === turns.value.length - 1} />;
    return <AnswerView key={turn.id} turn={turn} last={!readOnly && i === turns.value.length - 1} />;
  });
  if (busy.value) list.push(<AnswerView key={liveId.value} turn={null} last={false} />);
  return <>{list}</>;
}

function OtherModel() {
  const model = current.value?.model ?? "";
  if (stage.value.kind !== "ready" || model === "" || model === stage.value.label) return null;
  return <p class="note centred" data-testid="other-model">Until here, {model} answered; from now on it is {stage.value.label}.</p>;
}

function Examples() {
  return (
    <div class="examples">
      <h2>What would you like to know?</h2>
      <div>
        {EXAMPLES.map((text) => <button type="button" key={text} data-testid="example" onClick={() => void send(text)}>{text}</button>)}
      </div>
      <p class="note">{stage.value.kind === "ready" && stage.value.label} is sure of itself, and sometimes wrong: check what matters.</p>
      {!kept.value && <p class="note" data-testid="not-kept">History is not kept: this browser does not let the page store anything.</p>}
    </div>
  );
}
