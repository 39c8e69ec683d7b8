// Continuing a text: what a model without a chat template can do.

import { computed, signal } from "@preact/signals";
import { announcement, notice, stage } from "./state.js";
import { busy, giveUp, work } from "./work.js";

/** A text: what was given, and what the model added, piece by piece. */
export interface Paper {
  given: string;
  added: readonly string[];
}

const EMPTY: Paper = { given: "", added: [] };

export const paper = signal<Paper>(EMPTY);
/** All of it. */
export const whole = computed(() => paper.value.given + paper.value.added.join(""));
/** How it was before each of the last continuations. */
const past = signal<readonly Paper[]>([]);
export const canUndo = computed(() => past.value.length > 0 && !busy.value);

/** Lets the model go on where the text ends. */
export async function goOn(): Promise<void> {
  if (stage.value.kind !== "ready" || busy.value || whole.value.trim() === "") return;
  const { model } = stage.value;
  const before = paper.value;
  notice.value = null;
  await work((options) => model.complete(whole.value, options), {
    done({ text, finishReason }) {
      if (text === "") {
        if (finishReason !== "abort") announcement.value = notice.value = "The model added nothing: for it the text ends here. Change the end of the text and try again.";
        return;
      }
      past.value = [...past.value, before];
      paper.value = { given: before.given, added: [...before.added, text] };
    },
    failed: () => undefined, // the text is as it was
  });
}

/** Takes the last continuation back. */
export function undo(): void {
  const last = past.value.at(-1);
  if (last === undefined || busy.value) return;
  past.value = past.value.slice(0, -1);
  paper.value = last;
  announcement.value = "The last continuation is taken back";
}

/** What the person writes. */
export function edit(given: string): void {
  paper.value = { given, added: [] };
}

/** An empty sheet. */
export function newPaper(): void {
  giveUp();
  paper.value = EMPTY;
  past.value = [];
  notice.value = null;
}
