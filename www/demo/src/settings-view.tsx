import { useSignal } from "@preact/signals";
import { Modal } from "./modal.js";
import { FIELDS, change, changed, parse, reset, settings, type Field } from "./settings.js";
import { announcement, completes } from "./state.js";

/** How the model writes, with what each setting does. */
export function SettingsView() {
  const round = useSignal(0); // a reset also drops what is half typed
  return (
    <Modal name="settings" title="Settings">
      <p class="note">They hold from the next answer on and stay in this browser.</p>
      {!completes.value && (
        <div class="setting wide">
          <label for="setting-system">System prompt</label>
          <p class="note" id="meaning-system">What the model is told before the conversation; empty leaves it what its file says.</p>
          <textarea
            id="setting-system" rows={2} data-testid="setting-system" aria-describedby="meaning-system" placeholder="You answer in short sentences."
            value={settings.value.system} onInput={(event) => change({ system: event.currentTarget.value })}
          />
        </div>
      )}
      {FIELDS.map((field) => <NumberField key={`${field.name}-${round.value}`} field={field} />)}
      <div class="row end">
        <button
          type="button" class="quiet" data-testid="settings-reset"
          onClick={() => {
            reset();
            round.value += 1;
            announcement.value = "All settings are as they were at the start";
          }}
        >
          Reset all
        </button>
        <span class="note" data-testid="settings-state">{changed.value ? "Changed" : "All as at the start"}</span>
      </div>
    </Modal>
  );
}

function NumberField({ field }: { field: Field }) {
  const { name, label, meaning, empty } = field;
  const text = useSignal(shown(settings.value[name]));
  const problem = useSignal<string | null>(null);
  const id = `setting-${name}`;
  function take(next: string): void {
    text.value = next;
    const parsed = parse(field, next);
    problem.value = "problem" in parsed ? parsed.problem : null;
    if ("value" in parsed) change({ [name]: parsed.value });
  }
  return (
    <div class="setting">
      <label for={id}>{label}</label>
      <input
        id={id} type="text" inputMode="decimal" autocomplete="off" spellcheck={false} placeholder={empty ?? ""} data-testid={id} value={text}
        aria-describedby={`meaning-${name}${problem.value === null ? "" : ` problem-${name}`}`} aria-invalid={problem.value !== null} onInput={(event) => take(event.currentTarget.value)}
      />
      <p class="note" id={`meaning-${name}`}>{meaning}</p>
      {problem.value !== null && <p class="problem" id={`problem-${name}`} role="alert" data-testid={`problem-${name}`}>{problem.value} {settings.value[name] === null ? `“${empty}”` : shown(settings.value[name])} stays in use.</p>}
    </div>
  );
}

function shown(value: number | null): string {
  return value === null ? "" : String(value);
}
