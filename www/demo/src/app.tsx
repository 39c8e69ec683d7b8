import { useEffect, useRef } from "preact/hooks";
import { ChatView } from "./chat-view.js";
import { newChat, turns } from "./chat.js";
import { CompletionView } from "./completion-view.js";
import { newPaper, whole } from "./completion.js";
import { DropTarget } from "./drop.js";
import { FailureBox } from "./failure-box.js";
import { HistoryView } from "./history-view.js";
import { Icon } from "./icon.js";
import { unload } from "./model.js";
import { Panel } from "./panel.js";
import { Picker } from "./picker.js";
import { SettingsView } from "./settings-view.js";
import { announcement, completes, dialog, failure, info, stage } from "./state.js";
import { busy, stop } from "./work.js";

/** The page. */
export function App() {
  const ready = stage.value.kind === "ready";
  useEffect(() => {
    function onKeyDown(event: KeyboardEvent): void {
      // Escape also ends a choice of an input method, and closes a dialog.
      if (event.key !== "Escape" || event.isComposing || event.keyCode === 229 || event.defaultPrevented || dialog.value !== null || !busy.value) return;
      event.preventDefault();
      stop();
    }
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
  // Where a view goes together with the button that was pressed, the keyboard goes on at the view's beginning.
  const main = useRef<HTMLElement>(null);
  const kind = stage.value.kind;
  useEffect(() => {
    const frame = requestAnimationFrame(() => {
      if (kind !== "ready" && document.activeElement === document.body) main.current?.focus({ preventScroll: true });
    });
    return () => cancelAnimationFrame(frame);
  }, [kind, failure.value]);
  return (
    <div class={ready ? "page ready" : "page"}>
      <Header />
      <main ref={main} tabIndex={-1}>
        <FailureBox />
        {!ready ? <Picker /> : completes.value ? <CompletionView /> : <ChatView />}
      </main>
      {ready && <Panel />}
      {dialog.value === "history" && <HistoryView />}
      {dialog.value === "settings" && <SettingsView />}
      <DropTarget />
      <p class="visually-hidden" role="status" aria-live="polite">{announcement}</p>
    </div>
  );
}

function Header() {
  const { value } = stage;
  return (
    <header>
      <div class="brand">
        <svg viewBox="0 0 32 32" width="32" height="32" aria-hidden="true">
          <rect width="32" height="32" rx="8" />
          <path d="M6 11q5-4 10 0t10 0M6 17q5-4 10 0t10 0M6 23q5-4 10 0t10 0" />
        </svg>
        <div>
          <h1>Rillm</h1>
          <p class="promise">
            {value.kind === "ready" ? <span data-testid="model-name" title={`${info.value?.name} (${info.value?.architecture}, ${info.value?.quantization})`}>{value.label}</span> : "A language model"} in this tab. Nothing you write leaves your device.
          </p>
        </div>
      </div>
      <div class="actions">
        <button type="button" class="quiet" data-testid="history" aria-haspopup="dialog" onClick={() => (dialog.value = "history")}><Icon name="history" /><span>History</span></button>
        <button type="button" class="quiet" data-testid="settings" aria-haspopup="dialog" onClick={() => (dialog.value = "settings")}><Icon name="settings" /><span>Settings</span></button>
        {value.kind === "ready" && <button type="button" class="quiet" data-testid="change-model" onClick={unload}><Icon name="model" /><span>Change model</span></button>}
        {value.kind === "ready" && <NewButton />}
      </div>
    </header>
  );
}

function NewButton() {
  if (completes.value) return <button type="button" class="quiet" data-testid="new-text" disabled={whole.value === "" && !busy.value} onClick={newPaper}><Icon name="add" /><span>New text</span></button>;
  return <button type="button" class="quiet" data-testid="new-chat" disabled={turns.value.length === 0 && !busy.value} onClick={newChat}><Icon name="add" /><span>New chat</span></button>;
}
