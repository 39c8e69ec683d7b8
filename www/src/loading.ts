// The worker's half of `load`: from a source to an engine.

import { Keeper, cacheable, dropFromCache, fromCache } from "./cache.js";
import { DAMAGED, RillmError, describe, named, refusal } from "./errors.js";
import { Progress } from "./progress.js";
import type { LoadRequest } from "./protocol.js";
import { fetchModel, openBlob, openResponse, type Opened } from "./source.js";
import type { LoadProgress, Warning } from "./types.js";
import init, { Loader, Pool, type Engine } from "./rillm_wasm.js";

/** A loaded engine and its memory. */
export interface Loaded {
  engine: Engine;
  memory: WebAssembly.Memory;
  warnings: Warning[];
}

/** Starts WebAssembly and loads the model. */
export async function loadEngine(request: LoadRequest, post: (progress: LoadProgress) => void): Promise<Loaded> {
  const memory = await startWasm(request.wasmUrl);
  const warnings: Warning[] = [];
  const engine = request.source.kind === "blob"
    ? await read(openBlob(request.source.blob), "read", request, post, null)
    : await loadUrl(request.source.url, request, post, warnings);
  return { engine, memory, warnings };
}

/** The smallest module there is: where even this one is refused, it is a policy that refuses it. Browsers word that refusal differently. */
const SMALLEST = Uint8Array.of(0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00);

async function startWasm(url: string | undefined): Promise<WebAssembly.Memory> {
  if (globalThis.WebAssembly === undefined) throw new RillmError("no-wasm", "this browser has no WebAssembly; some switch it off in a lockdown mode");
  try {
    new WebAssembly.Module(SMALLEST);
  } catch (error) {
    const hint = "add 'wasm-unsafe-eval' to its script-src; it is the policy of the worker script's own response that counts";
    throw new RillmError("wasm-blocked-by-csp", `the Content-Security-Policy forbids WebAssembly: ${hint} (${describe(error)})`, { cause: error });
  }
  // The literal expression is what bundlers look for.
  const wasm = url ?? new URL("./rillm_wasm_bg.wasm", import.meta.url);
  try {
    return (await init({ module_or_path: wasm })).memory;
  } catch (error) {
    const hint = "is the file there (option wasmUrl), readable for this origin (CORS), and allowed by the Content-Security-Policy (connect-src)?";
    throw new RillmError("no-wasm", `WebAssembly could not be started from ${wasm}: ${hint} (${describe(error)})`, { cause: error });
  }
}

async function loadUrl(url: string, request: LoadRequest, post: (progress: LoadProgress) => void, warnings: Warning[]): Promise<Engine> {
  const keep = request.cache && cacheable(url);
  const kept = keep ? await fromCache(url) : undefined;
  if (kept !== undefined) {
    try {
      return await read(openResponse(url, kept), "cache", request, post, null);
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
    const engine = await read(opened, "download", request, post, keeper);
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
  opened: Opened, phase: LoadProgress["phase"], request: LoadRequest, post: (progress: LoadProgress) => void, keeper: Keeper | null,
): Promise<Engine> {
  const loader = new Loader(opened.exactTotal, request.options, new Pool(1));
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
