// The worker's half of `load`: from a source to an engine.

import { Keeper, cacheable, dropFromCache, fromCache } from "./cache.js";
import { DAMAGED, named, refusal } from "./errors.js";
import { Progress } from "./progress.js";
import type { LoadRequest } from "./protocol.js";
import { fetchModel, openBlob, openResponse, type Opened } from "./source.js";
import type { LoadProgress, Warning } from "./types.js";
import { start, type Started } from "./start.js";
import type { Engine } from "./rillm_wasm.js";

/** A loaded engine and its memory. */
export interface Loaded {
  engine: Engine;
  memory: WebAssembly.Memory;
  warnings: Warning[];
  /** Calls the threads; to be done before each piece of work. */
  rouse(): void;
  /** Threads, and why so many. */
  reason: string;
}

/** Starts WebAssembly and loads the model. */
export async function loadEngine(request: LoadRequest, post: (progress: LoadProgress) => void): Promise<Loaded> {
  const started = await start(request.threads, request.variant, request.wasmUrl);
  const warnings: Warning[] = [];
  const engine = request.source.kind === "blob"
    ? await read(openBlob(request.source.blob), "read", started, request, post, null)
    : await loadUrl(request.source.url, started, request, post, warnings);
  return { engine, memory: started.memory, warnings, rouse: started.rouse, reason: started.reason };
}

async function loadUrl(url: string, started: Started, request: LoadRequest, post: (progress: LoadProgress) => void, warnings: Warning[]): Promise<Engine> {
  const keep = request.cache && cacheable(url);
  const kept = keep ? await fromCache(url) : undefined;
  if (kept !== undefined) {
    try {
      return await read(openResponse(url, kept), "cache", started, request, post, null);
    } catch (error) {
      const code = refusal(error)?.code;
      // Damaged on disk, or no longer to be read (`network`): once more from the server. Whatever else is refused is refused for another reason.
      if (code === undefined || !(code === "network" || DAMAGED.includes(code))) throw error;
      await dropFromCache(url);
    }
  }
  const response = await fetchModel(url, keep);
  const opened = openResponse(url, response);
  const keeper = keep ? new Keeper(url, response, opened.total) : null;
  try {
    const engine = await read(opened, "download", started, request, post, keeper);
    await keeper?.commit();
    if (keeper?.problem) {
      warnings.push({ code: "cache-unavailable", message: `the model works, but could not be kept for next time: ${keeper.problem}` });
    }
    return engine;
  } catch (error) {
    await keeper?.discard("the model did not load");
    throw error;
  }
}

async function read(
  opened: Opened, phase: LoadProgress["phase"], started: Started, request: LoadRequest, post: (progress: LoadProgress) => void, keeper: Keeper | null,
): Promise<Engine> {
  const loader = new started.glue.Loader(opened.exactTotal, request.options, await started.pool());
  const progress = new Progress(phase, opened.total, post);
  let taken = false; // `finish` takes the loader, whatever comes of it
  try {
    for await (const piece of opened.pieces) {
      loader.push(piece);
      progress.add(piece.byteLength);
      await keeper?.write(piece);
    }
    taken = true;
    const engine = loader.finish();
    progress.end();
    return engine;
  } catch (error) {
    if (!taken && refusal(error) !== null) loader.free(); // after a crash nothing of it can be called any more
    throw named(error, opened.name);
  }
}
