// How the model is asked to write. Kept in this browser.

import { computed, signal } from "@preact/signals";
import type { GenerationOptions } from "rillm";
import { readStored, writeStored } from "./storage.js";

export interface Settings {
  temperature: number;
  topK: number;
  topP: number;
  minP: number;
  repetitionPenalty: number;
  maxTokens: number;
  /** null: another one for each answer. */
  seed: number | null;
  /** Of the next model that is loaded; null: what its file says, at most 4096. */
  contextLength: number | null;
  /** Goes before the conversation, unless it is empty. */
  system: string;
}

/** What the page starts with: careful rather than inventive, because the model is small. */
export const DEFAULTS: Settings = { temperature: 0.2, topK: 40, topP: 0.9, minP: 0.05, repetitionPenalty: 1.1, maxTokens: 512, seed: null, contextLength: null, system: "" };

export type NumberName = Exclude<keyof Settings, "system">;

export interface Field {
  name: NumberName;
  label: string;
  /** What it does, in a sentence. */
  meaning: string;
  min: number;
  max: number;
  whole: boolean;
  /** What nothing means, where that is a value too. */
  empty?: string;
}

export const FIELDS: readonly Field[] = [
  { name: "temperature", label: "Temperature", meaning: "How freely it chooses words: 0 always takes the likeliest, higher values surprise more.", min: 0, max: 5, whole: false },
  { name: "topK", label: "Top k", meaning: "Only this many of the likeliest tokens are in the draw; 0 allows all.", min: 0, max: 100_000, whole: true },
  { name: "topP", label: "Top p", meaning: "Only the likeliest tokens that together reach this share are in the draw; 1 allows all.", min: 0, max: 1, whole: false },
  { name: "minP", label: "Min p", meaning: "Tokens less likely than this share of the likeliest are left out; 0 leaves out none.", min: 0, max: 1, whole: false },
  { name: "repetitionPenalty", label: "Repetition penalty", meaning: "Above 1, what it has just written becomes less likely to come again.", min: 0.5, max: 2, whole: false },
  { name: "maxTokens", label: "Longest answer", meaning: "After this many tokens the answer is cut; a token is about three quarters of a word.", min: 1, max: 100_000, whole: true },
  { name: "seed", label: "Seed", meaning: "The same seed gives the same answer again; empty takes another one each time.", min: 0, max: 2 ** 32 - 1, whole: true, empty: "random" },
  { name: "contextLength", label: "Context", meaning: "How many tokens the next model you load can remember; empty leaves it at up to 4,096.", min: 16, max: 1_000_000, whole: true, empty: "automatic" },
];

const KEY = "rillm.settings";

export const settings = signal<Settings>(stored());
export const changed = computed(() => (Object.keys(DEFAULTS) as (keyof Settings)[]).some((name) => settings.value[name] !== DEFAULTS[name]));

/** What a field's text means, or what is wrong with it. */
export function parse(field: Field, text: string): { value: number | null } | { problem: string } {
  const trimmed = text.trim().replace(",", ".");
  if (trimmed === "" && field.empty !== undefined) return { value: null };
  const value = trimmed === "" ? Number.NaN : Number(trimmed);
  return fits(field, value) ? { value } : { problem: `This needs a ${field.whole ? "whole " : ""}number from ${field.min} to ${field.max}${field.empty !== undefined ? ", or nothing" : ""}.` };
}

export function change(part: Partial<Settings>): void {
  settings.value = { ...settings.value, ...part };
  writeStored(KEY, settings.value);
}

export function reset(): void {
  change(DEFAULTS);
}

/** As the engine wants them. */
export function options(): GenerationOptions {
  const { seed, system: _system, contextLength: _contextLength, ...rest } = settings.value;
  return seed === null ? rest : { ...rest, seed };
}

function fits({ min, max, whole }: Field, value: number): boolean {
  return Number.isFinite(value) && value >= min && value <= max && (!whole || Number.isInteger(value));
}

/** Only what is in order: another version may have written it. */
function stored(): Settings {
  const result = { ...DEFAULTS };
  const found = readStored(KEY);
  if (typeof found !== "object" || found === null) return result;
  const values = found as Record<string, unknown>;
  for (const field of FIELDS) {
    const value = values[field.name];
    if (typeof value === "number" && fits(field, value)) result[field.name] = value;
  }
  if (typeof values["system"] === "string") result.system = values["system"];
  return result;
}
