import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { current, discard, open } from "./chat.js";
import { when } from "./format.js";
import { conversations, deleted, keep, kept, readHistory, remove, rename, type Conversation } from "./history.js";
import { Modal } from "./modal.js";
import { announcement, dialog } from "./state.js";

/** The conversations there were. */
export function HistoryView() {
  useEffect(() => {
    void readHistory(); // another tab may have written meanwhile
    return () => void (deleted.value = null);
  }, []);
  const list = conversations.value;
  return (
    <Modal name="history" title="Conversations">
      {!kept.value && <p class="warn" data-testid="history-unavailable">This browser does not let the page store anything, as in some private windows: conversations last until the page is closed.</p>}
      {deleted.value !== null && <Undo conversation={deleted.value} />}
      {list.length === 0 ? <p class="note">There are none yet. What you ask is kept here, in this browser only.</p> : <ul class="conversations">{list.map((c) => <Row key={c.id} conversation={c} />)}</ul>}
    </Modal>
  );
}

function Undo({ conversation }: { conversation: Conversation }) {
  function undo(): void {
    keep(conversation);
    closeButton()?.focus(); // this one goes
    deleted.value = null;
    announcement.value = `“${conversation.title}” is back`;
  }
  return <div class="row undo"><p>Deleted “{conversation.title}”</p><button type="button" class="quiet" data-testid="history-undo" onClick={undo}>Undo</button></div>;
}

const closeButton = (): HTMLElement | null => document.querySelector<HTMLElement>('[data-testid="history-close"]');

function Row({ conversation }: { conversation: Conversation }) {
  const renaming = useSignal(false);
  const renameButton = useRef<HTMLButtonElement>(null);
  function renamed(): void {
    renaming.value = false;
    requestAnimationFrame(() => renameButton.current?.focus());
  }
  const { id, title, model, updated } = conversation;
  const here = current.value?.id === id;
  if (renaming.value) return <li><Rename conversation={conversation} done={renamed} /></li>;
  function drop(): void {
    closeButton()?.focus(); // the button goes; the focus stays in the list
    // What is being written of it must not be kept either.
    if (here) discard();
    const gone = remove(id);
    if (gone === undefined) return;
    deleted.value = gone;
    announcement.value = `“${title}” is deleted`;
  }
  return (
    <li class={here ? "here" : undefined} data-testid="history-item">
      <button
        type="button" class="conversation" aria-current={here ? "true" : undefined} data-testid="history-open"
        onClick={() => {
          open(conversation);
          dialog.value = null;
          announcement.value = `Opened “${title}”`;
        }}
      >
        <span class="title" data-testid="history-title">{title}</span>
        <span class="note">{when(updated)}, {model}</span>
      </button>
      <button ref={renameButton} type="button" class="small" aria-label={`Rename “${title}”`} data-testid="history-rename" onClick={() => (renaming.value = true)}>Rename</button>
      <button type="button" class="small" aria-label={`Delete “${title}”`} data-testid="history-delete" onClick={drop}>Delete</button>
    </li>
  );
}

function Rename({ conversation: { id, title }, done }: { conversation: Conversation; done: () => void }) {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.select(), []);
  return (
    <form
      class="rename"
      onSubmit={(event) => {
        event.preventDefault();
        const next = field.current?.value.trim() ?? "";
        if (next !== "") {
          rename(id, next);
          if (current.value?.id === id) current.value = { ...current.value, title: next };
        }
        done();
      }}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || event.isComposing) return;
        event.preventDefault(); // the dialog stays
        event.stopPropagation();
        done();
      }}
    >
      <input ref={field} type="text" defaultValue={title} maxLength={120} aria-label="Title" data-testid="history-rename-field" />
      <button type="submit" class="small" data-testid="history-rename-save">Save</button>
      <button type="button" class="small" onClick={done}>Cancel</button>
    </form>
  );
}
