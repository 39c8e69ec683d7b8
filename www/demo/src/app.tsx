import { busy, newChat, turns } from "./chat.js";
import { ChatView } from "./chat-view.js";
import { FailureBox } from "./failure-box.js";
import { unload } from "./model.js";
import { Panel } from "./panel.js";
import { Picker } from "./picker.js";
import { announcement, info, stage } from "./state.js";

/** The page. */
export function App() {
  const ready = stage.value.kind === "ready";
  return (
    <div class={ready ? "page ready" : "page"}>
      <Header />
      <main>
        <FailureBox />
        {ready ? <ChatView /> : <Picker />}
      </main>
      {ready && <Panel />}
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
          <p class="promise">A language model in this tab. Nothing you write leaves your device.</p>
        </div>
      </div>
      {value.kind === "ready" && (
        <div class="actions">
          <span class="model-name" data-testid="model-name" title={`${info.value?.name} (${info.value?.architecture}, ${info.value?.quantization})`}>{value.label}</span>
          <button type="button" class="quiet" data-testid="change-model" onClick={unload}>Change model</button>
          <button type="button" class="quiet" data-testid="new-chat" disabled={turns.value.length === 0 && !busy.value} onClick={newChat}>New chat</button>
        </div>
      )}
    </header>
  );
}
