// Getting a model.

import { load } from "rillm";
import { leave, turns } from "./chat.js";
import { crashedLoad, loadBegins, loadEnds } from "./crash-guard.js";
import { failureOf } from "./failure.js";
import { announcement, crashed, failure, info, notice, progress, stage, urlField } from "./state.js";
import { settings } from "./settings.js";
import { giveUp } from "./work.js";

/** The model served beside the page. */
export const DEFAULT_MODEL = { url: "models/SmolLM2-135M-Instruct.Q4_1.gguf", name: "SmolLM2 135M Instruct", size: 98_362_432 };

/** What to load. */
export interface Choice {
  source: string | File;
  label: string;
}

let abort: AbortController | null = null;

/** Loads a model; the one before is given up, the conversation stays. */
export async function loadModel({ source, label }: Choice): Promise<void> {
  unload();
  crashed.value = null;
  progress.value = null;
  stage.value = { kind: "loading", label };
  announcement.value = `Loading ${label}`;
  const mine = (abort = new AbortController());
  loadBegins(label);
  try {
    const { contextLength } = settings.value;
    const model = await load(source, { signal: mine.signal, onProgress: (p) => (progress.value = p), ...(contextLength !== null && { contextLength }) });
    loadEnds();
    info.value = model.info;
    // Names in files are often those of training runs; ours is known better.
    stage.value = { kind: "ready", model, label: source === DEFAULT_MODEL.url ? label : model.info.name || label };
    announcement.value = `${label} is ready`;
  } catch (error) {
    if (mine.signal.aborted) return; // who cancelled has set the stage
    loadEnds();
    stage.value = { kind: "choose" };
    failure.value = failureOf(error);
  }
}

/** Gives up a load, or the model. */
export function unload(): void {
  if (abort !== null) loadEnds();
  abort?.abort();
  abort = null;
  const left = leave();
  giveUp();
  turns.value = left;
  notice.value = null;
  if (stage.value.kind === "ready") stage.value.model.dispose();
  info.value = null;
  stage.value = { kind: "choose" };
}

/** `?model=URL` fills the field in; with `&autoload=1` it is loaded, without `model` the default one. */
export function start(): void {
  const query = new URLSearchParams(location.search);
  const url = query.get("model") || null;
  if (url !== null) urlField.value = url;
  void crashedLoad().then((crash) => {
    if (query.get("autoload") !== "1" || stage.value.kind !== "choose") return;
    if (crash !== null) crashed.value = crash;
    else void loadModel(fromQuery());
  });
}

/** What the address asks for. */
export function fromQuery(): Choice {
  const url = new URLSearchParams(location.search).get("model") || null;
  return url === null ? defaultChoice() : urlChoice(url);
}

/** The model beside the page. */
export function defaultChoice(): Choice {
  return { source: DEFAULT_MODEL.url, label: DEFAULT_MODEL.name };
}

/** What is wrong with an address, in a sentence, or null. It may be relative to the page. */
export function addressProblem(text: string): string | null {
  const address = text.trim();
  // "example.org/model.gguf" would be a file beside this page.
  if (/^[\w-]+(\.[\w-]+)+(:\d+)?\//.test(address)) return `This lacks its beginning: https://${address}`;
  const url = parsed(address);
  if (url === null) return "This is no address. It should look like https://example.org/model.gguf";
  if (!["http:", "https:"].includes(url.protocol)) return `A page can't load from “${url.protocol}”. The address should begin with https://`;
  if (url.hostname === "huggingface.co" && url.pathname.includes("/blob/")) return "This is a page about the file. Its download has /resolve/ in place of /blob/.";
  return null;
}

/** A model from anywhere. */
export function urlChoice(url: string): Choice {
  return { source: url, label: url.split(/[?#]/)[0]?.split("/").pop() || url };
}

/** One of this device. */
export function fileChoice(file: File): Choice {
  return { source: file, label: file.name };
}

function parsed(address: string): URL | null {
  try {
    return new URL(address, document.baseURI);
  } catch {
    return null;
  }
}
