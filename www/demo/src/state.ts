// What there is: which model, and what went wrong.

import { computed, signal } from "@preact/signals";
import type { LoadProgress, Model, ModelInfo } from "rillm";
import type { Failure } from "./failure.js";

export type Stage =
  | { kind: "choose" }
  | { kind: "loading"; label: string }
  | { kind: "ready"; model: Model; label: string };

export const stage = signal<Stage>({ kind: "choose" });
/** Of the load; it moves too often to be part of the stage. */
export const progress = signal<LoadProgress | null>(null);
/** Of the model that is ready, as of the last answer. */
export const info = signal<ModelInfo | null>(null);
/** Whether the model can only continue texts. */
export const completes = computed(() => info.value !== null && !info.value.hasChatTemplate);
/** The error to show, if any. */
export const failure = signal<Failure | null>(null);
/** Something to know that is no error. */
export const notice = signal<string | null>(null);
/** What was being loaded when the tab crashed, if that is why nothing loads by itself. */
export const crashed = signal<string | null>(null);
/** For screen readers: what just happened. */
export const announcement = signal("");
/** What the URL field holds. */
export const urlField = signal("");
/** Which dialog is open. */
export const dialog = signal<"history" | "settings" | null>(null);
