import { newChat } from "./chat.js";
import { completes, failure, stage } from "./state.js";

/** The error that there is, by name and sentence, with a way out. */
export function FailureBox() {
  const { value } = failure;
  if (value === null) return null;
  const full = value.code === "prompt-too-long" && stage.value.kind === "ready" && !completes.value;
  return (
    <section class="failure" role="alert" data-testid="error">
      <p>
        <code data-testid="error-code">{value.code}</code> <span data-testid="error-message">{value.message}</span>
      </p>
      <p class="hint" data-testid="error-hint">{value.hint}</p>
      <div class="row">
        {full && <button type="button" class="quiet" onClick={newChat}>New chat</button>}
        <button type="button" class="quiet" data-testid="error-dismiss" onClick={() => (failure.value = null)}>Dismiss</button>
      </div>
    </section>
  );
}
