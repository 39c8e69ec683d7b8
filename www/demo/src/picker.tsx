import { useSignal } from "@preact/signals";
import { Turns } from "./chat-view.js";
import { current, newChat, turns } from "./chat.js";
import { duration, megabytes } from "./format.js";
import { MemoryHint } from "./memory-hint.js";
import { DEFAULT_MODEL, addressProblem, defaultChoice, fileChoice, fromQuery, loadModel, unload, urlChoice } from "./model.js";
import { crashed, progress, stage, urlField } from "./state.js";

/** Choosing a model, and waiting for it. */
export function Picker() {
  return (
    <>
      {crashed.value !== null && <Crashed label={crashed.value} />}
      {stage.value.kind === "loading" ? <Loading label={stage.value.label} /> : <Choose />}
      {turns.value.length > 0 && <Waiting />}
    </>
  );
}

/** Loading it by itself again would crash the tab again, and so on. */
function Crashed({ label }: { label: string }) {
  return (
    <section class="failure" role="alert" data-testid="crashed">
      <p>The tab ended while {label} was being loaded, most likely because memory ran out.</p>
      <p class="hint">That is why it was not loaded by itself this time. Close other tabs first, or choose a smaller model.</p>
      <div class="row"><button type="button" class="quiet" data-testid="load-anyway" onClick={() => void loadModel(fromQuery())}>Load it anyway</button></div>
    </section>
  );
}

/** The conversation that goes on once there is a model. */
function Waiting() {
  return (
    <section class="card waiting-chat" aria-label="Conversation" data-testid="waiting-chat">
      <div class="row"><h2>{current.value?.title}</h2><button type="button" class="quiet" data-testid="waiting-close" onClick={newChat}>Close</button></div>
      <p class="note">This conversation goes on with the model you load.</p>
      <div class="read-only"><Turns readOnly /></div>
    </section>
  );
}

type Way = "default" | "url" | "file";

function Choose() {
  const way = useSignal<Way>(urlField.value === "" ? "default" : "url");
  const file = useSignal<File | null>(null);
  const problem = useSignal<string | null>(null);
  const complete = way.value === "default" || (way.value === "url" ? urlField.value.trim() !== "" : file.value !== null);

  function submit(event: Event): void {
    event.preventDefault();
    if (way.value === "default") void loadModel(defaultChoice());
    else if (way.value === "url" && complete) {
      problem.value = addressProblem(urlField.value);
      if (problem.value === null) void loadModel(urlChoice(urlField.value.trim()));
    } else if (file.value !== null) void loadModel(fileChoice(file.value));
  }
  const radio = (value: Way) => (
    <input type="radio" name="way" value={value} id={`way-${value}`} data-testid={`model-${value}`} checked={way.value === value} onChange={() => (way.value = value)} />
  );
  return (
    <form class="card picker" onSubmit={submit} data-testid="picker">
      <fieldset>
        <legend>Choose a model</legend>
        <div class="choice">
          {radio("default")}
          <div>
            <label for="way-default">{DEFAULT_MODEL.name}</label>
            <p>{megabytes(DEFAULT_MODEL.size)}, kept in this browser after the first time. Small and quick; gets facts wrong now and then.</p>
            {way.value === "default" && <MemoryHint size={DEFAULT_MODEL.size} />}
          </div>
        </div>
        <div class="choice">
          {radio("url")}
          <div>
            <label for="way-url">From an address</label>
            <input
              type="text" inputMode="url" autocomplete="off" spellcheck={false} placeholder="https://…/model.gguf" aria-label="Address of a GGUF file" data-testid="model-url-field"
              aria-invalid={problem.value !== null} {...(problem.value !== null && { "aria-describedby": "url-problem" })}
              value={urlField} onFocus={() => (way.value = "url")}
              onInput={(event) => {
                urlField.value = event.currentTarget.value;
                problem.value = null; // it is looked at again when it is sent, not while it is being written
              }}
            />
            {problem.value !== null && <p class="problem" id="url-problem" role="alert" data-testid="url-problem">{problem.value}</p>}
          </div>
        </div>
        <div class="choice">
          {radio("file")}
          <div>
            <label for="way-file">From this device</label>
            <input
              type="file" accept=".gguf" aria-label="A GGUF file on this device" data-testid="model-file-field"
              onChange={(event) => {
                file.value = event.currentTarget.files?.[0] ?? null;
                way.value = "file";
              }}
            />
            {file.value !== null && <MemoryHint size={file.value.size} />}
          </div>
        </div>
      </fieldset>
      <button type="submit" class="primary" data-testid="load" disabled={!complete}>Load model</button>
      <p class="note drop-hint">You can also drop a model file anywhere on this page.</p>
    </form>
  );
}

const PHASES = { download: "Downloading", cache: "Reading from the browser's cache", read: "Reading" };

function Loading({ label }: { label: string }) {
  const { value: p } = progress;
  const share = p?.total ? p.loaded / p.total : null;
  const parts = [];
  if (p !== null) {
    parts.push(p.total === null ? megabytes(p.loaded) : `${megabytes(p.loaded)} of ${megabytes(p.total)}`);
    if (p.bytesPerSecond !== null) parts.push(`${megabytes(p.bytesPerSecond)}/s`);
    if (p.etaMs !== null && share !== 1) parts.push(`${duration(Math.max(1000, p.etaMs))} left`);
  }
  return (
    <section class="card loading" aria-label="Loading">
      <h2>{label}</h2>
      <p class="phase">{p === null ? "Starting" : share === 1 ? "Getting ready" : PHASES[p.phase]}{share !== null && <span class="percent">{Math.floor(share * 100)} %</span>}</p>
      <progress data-testid="progress" aria-label={`Loading ${label}`} max={1} {...(share === null ? {} : { value: share })} />
      <div class="row">
        <p class="numbers" data-testid="progress-text">{parts.join(" · ") || "…"}</p>
        <button type="button" class="quiet" data-testid="cancel-load" onClick={unload}>Cancel</button>
      </div>
    </section>
  );
}
