// WebAssembly and its threads: the module is compiled once, and each thread is a worker with an instance of it on the same memory.

import { RillmError, describe } from "./errors.js";
import type { FromThread, ThreadStart, ToThread } from "./protocol.js";
import { choose, type Choice, type Variant } from "./variant.js";
import * as plain from "./rillm_wasm.js";
import * as shared from "./rillm_wasm_threads.js";

/** What wasm-bindgen made for a module. */
export type Glue = typeof plain;

/** A started module. */
export interface Started {
  glue: Glue;
  /** The threads for a loader, which takes them over: for each a pool of its own. */
  pool(): Promise<plain.Pool>;
  memory: WebAssembly.Memory;
  /** Calls the threads that rest: to be done before each piece of work. */
  rouse(): void;
  /** Threads, and why so many. */
  threads: number;
  reason: string;
}

/** The name of a worker that is a thread. */
export const THREAD = "rillm-thread";
/** A thread that has not come by then is not waited for. */
const PATIENCE_MS = 15_000;

/** Where each module is. The literal expressions are what bundlers look for. */
function address(variant: Variant, beside: string | undefined): URL {
  if (beside !== undefined) return new URL(`rillm_${variant.replace("-", "_")}_bg.wasm`, beside);
  switch (variant) {
    case "simd128": return new URL("./rillm_simd128_bg.wasm", import.meta.url);
    case "relaxed": return new URL("./rillm_relaxed_bg.wasm", import.meta.url);
    case "simd128-threads": return new URL("./rillm_simd128_threads_bg.wasm", import.meta.url);
    case "relaxed-threads": return new URL("./rillm_relaxed_threads_bg.wasm", import.meta.url);
  }
}

/** The smallest module there is: where even this one is refused, it is a policy that refuses it. Browsers word that refusal differently. */
const SMALLEST = Uint8Array.of(0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00);

/** Starts the best module; one thread where several don't start. */
export async function start(threads: number | undefined, forced: Variant | undefined, beside: string | undefined): Promise<Started> {
  if (globalThis.WebAssembly === undefined) throw new RillmError("no-wasm", "this browser has no WebAssembly; some switch it off in a lockdown mode");
  try {
    new WebAssembly.Module(SMALLEST);
  } catch (error) {
    const hint = "add 'wasm-unsafe-eval' to its script-src; it is the policy of the worker script's own response that counts";
    throw new RillmError("wasm-blocked-by-csp", `the Content-Security-Policy forbids WebAssembly: ${hint} (${describe(error)})`, { cause: error });
  }
  const choice = choose(threads, forced);
  if (choice.threads > 1) {
    try {
      return await startThreads(choice, address(choice.variant, beside));
    } catch (error) {
      return startAlone({ variant: choice.variant.startsWith("relaxed") ? "relaxed" : "simd128", threads: 1, reason: `One thread: others could not be started (${describe(error)}).` }, beside);
    }
  }
  return startAlone(choice, beside);
}

async function startAlone({ variant, reason }: Choice, beside: string | undefined): Promise<Started> {
  const url = address(variant, beside);
  try {
    const { memory } = await plain.default({ module_or_path: url });
    return { glue: plain, pool: async () => new plain.Pool(1), rouse: () => undefined, memory, threads: 1, reason };
  } catch (error) {
    const hint = "is the file there (option wasmUrl), readable for this origin (CORS), and allowed by the Content-Security-Policy (connect-src)?";
    throw new RillmError("no-wasm", `WebAssembly could not be started from ${url}: ${hint} (${describe(error)})`, { cause: error });
  }
}

async function startThreads({ threads, reason }: Choice, url: URL): Promise<Started> {
  const module = await compile(url);
  const { memory } = await shared.default({ module_or_path: module });
  let team: Thread[] = [];
  const next = async (): Promise<plain.Pool> => {
    for (const thread of team) thread.end(); // their pool went with the loader that had it
    const pool = new shared.Pool(threads);
    team = await seat(pool, threads - 1, module, memory);
    return pool;
  };
  let first: plain.Pool | null = await next();
  const pool = async (): Promise<plain.Pool> => {
    const made = first ?? (await next());
    first = null;
    return made;
  };
  const rouse = (): void => {
    for (const thread of team) thread.rouse();
  };
  return { glue: shared, pool, rouse, memory, threads, reason };
}

/** Starts the workers of a pool. They end with this worker. */
async function seat(pool: plain.Pool, n: number, module: WebAssembly.Module, memory: WebAssembly.Memory): Promise<Thread[]> {
  const all: Thread[] = [];
  // A thread runs this worker's own script, which is a module, or what a bundler made of it. Nothing tells reliably which it is.
  const one = async (type: WorkerType): Promise<Thread> => {
    const thread = new Thread(type);
    all.push(thread);
    await thread.start({ kind: "serve", module, memory, seat: pool.seat() });
    return thread;
  };
  try {
    return await Promise.all(Array.from({ length: n }, () => one("module").catch((error: unknown) => one("classic").catch(() => Promise.reject(error)))));
  } catch (error) {
    for (const thread of all) thread.end();
    throw error;
  }
}

async function compile(url: URL): Promise<WebAssembly.Module> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: HTTP ${response.status}`);
  const typed = response.headers.get("content-type")?.startsWith("application/wasm") ?? false;
  return typed ? WebAssembly.compileStreaming(response) : WebAssembly.compile(await response.arrayBuffer());
}

/** The engine's end of a thread. */
class Thread {
  #worker: Worker;
  /** In its event loop, where it can be ended at once; a worker within WebAssembly may take the browser seconds to end. */
  #rests = true;

  constructor(type: WorkerType) {
    this.#worker = new Worker(self.location.href, { type, name: THREAD });
  }

  start(message: ThreadStart): Promise<void> {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error("a worker did not start in time")), PATIENCE_MS);
      const failed = (reason: string): void => {
        clearTimeout(late);
        reject(new Error(reason));
      };
      this.#worker.onmessage = ({ data }: MessageEvent<FromThread | null>) => {
        if (data?.kind === "started") this.#send(message);
        else if (data?.kind === "rests") this.#rests = true;
        else if (data?.kind === "crashed") failed(data.message);
        else if (data?.kind === "serving") {
          clearTimeout(late);
          resolve();
        }
      };
      this.#worker.onerror = (event) => {
        event.preventDefault?.();
        failed(event.message || "a worker could not be started");
      };
    });
  }

  rouse(): void {
    if (!this.#rests) return;
    this.#rests = false;
    this.#send({ kind: "work" });
  }

  end(): void {
    this.#worker.terminate();
  }

  #send(message: ToThread): void {
    this.#worker.postMessage(message);
  }
}

let mySeat: number | null = null;

/** What a thread does when it is told something: begins, or works until there is nothing to do for a while. */
export async function serve(message: ToThread, post: (message: FromThread) => void): Promise<void> {
  if (message.kind === "serve") {
    await shared.default({ module_or_path: message.module, memory: message.memory });
    mySeat = message.seat;
    post({ kind: "serving" });
  } else if (mySeat !== null) {
    try {
      shared.serve(mySeat);
    } catch (error) {
      shared.abandon(mySeat); // or the engine would wait for ever
      throw error;
    }
    post({ kind: "rests" });
  }
}
