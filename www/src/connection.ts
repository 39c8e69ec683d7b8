// The page's end of a worker: starts it, gives calls their numbers, hands replies out, and ends everything at once when it must.

import { RillmError, describe } from "./errors.js";
import type { Call, EngineInfo, FromWorker, LoadRequest, Reply, ToWorker } from "./protocol.js";
import type { LoadProgress, Warning } from "./types.js";

/** Whoever made a call. */
export interface Caller {
  /** Takes a reply. */
  take(reply: Reply): void;
  /** Nothing more will come. */
  fail(error: RillmError): void;
}

/** What a load gave. */
export interface LoadedModel {
  info: EngineInfo;
  warnings: Warning[];
  reason: string;
}

/** A worker with an engine. */
export class Connection {
  /** Bytes of the worker's WebAssembly memory, as of its last word. */
  memoryBytes = 0;
  #worker: Worker;
  #started = false;
  #ended: RillmError | null = null;
  #next = 1;
  #callers = new Map<number, Caller>();
  #watch = new AbortController();
  #silence: ReturnType<typeof setTimeout>;
  #loading: { resolve(loaded: LoadedModel): void; reject(error: unknown): void; progress(progress: LoadProgress): void } | null = null;

  /** Starts the worker. */
  constructor(url: string | undefined) {
    this.#worker = startWorker(url);
    this.#worker.onmessage = ({ data }: MessageEvent<FromWorker | null | undefined>) => data?.kind !== undefined && this.#take(data);
    // A script that is not ours starts without an error, and never says a word.
    const silent = `${url ?? "the worker"} was started, but is not the package's worker: it said nothing for ${SILENCE_MS / 1000} seconds; ${WORKER_HINT}`;
    this.#silence = setTimeout(() => this.end(new RillmError("no-worker", silent)), SILENCE_MS);
    this.#worker.onmessageerror = () => this.end(new RillmError("crashed", "a message of the worker could not be read"));
    this.#worker.onerror = (event) => {
      event.preventDefault?.(); // whoever waits is told; it need not be an error of the page's as well
      if (this.#started) this.end(crash(event.message));
      else this.end(new RillmError("no-worker", `the worker could not be started${event.message ? ` (${event.message})` : ""}: ${WORKER_HINT}`));
    };
  }

  /** Why the connection is closed, or null. */
  get ended(): RillmError | null {
    return this.#ended;
  }

  /** Loads the model. Rejects with what ended the connection, if that comes first. */
  load(request: LoadRequest, progress: (progress: LoadProgress) => void): Promise<LoadedModel> {
    return new Promise((resolve, reject) => {
      this.#loading = { resolve, reject, progress };
      this.#send(request);
    });
  }

  /** Puts a call into the queue; its number is for `abort`. */
  call(call: Call, caller: Caller): number {
    const id = this.#next++;
    if (this.#ended !== null) {
      caller.fail(this.#ended);
      return id;
    }
    this.#send({ kind: "call", id, call }); // throws where the call holds what no message can
    this.#callers.set(id, caller);
    return id;
  }

  /** Ends a generation, or takes it out of the queue. */
  abort(id: number): void {
    if (this.#callers.has(id)) this.#send({ kind: "abort", id });
  }

  /** Ends the worker; who waits, and whoever comes later, gets `error`. A load is rejected with the `reason` instead, if given. */
  end(error: RillmError, instead?: { reason: unknown }): void {
    if (this.#ended !== null) return;
    this.#ended = error;
    this.memoryBytes = 0; // it goes with the worker
    clearTimeout(this.#silence);
    this.#send({ kind: "end" });
    this.#worker.terminate();
    this.#watch.abort();
    this.#loading?.reject(instead === undefined ? error : instead.reason);
    this.#loading = null;
    const callers = [...this.#callers.values()];
    this.#callers.clear();
    for (const caller of callers) caller.fail(error);
  }

  #send(message: ToWorker): void {
    this.#worker.postMessage(message);
  }

  /** The worker holds this lock for as long as it lives. */
  #watchLock(lock: string): void {
    const gone = (): void => this.end(new RillmError("worker-died", "the browser ended the worker, for lack of memory perhaps; load the model again"));
    navigator.locks?.request(lock, { signal: this.#watch.signal }, gone).catch(() => undefined); // the signal's own rejection
  }

  #take(message: FromWorker): void {
    if (this.#ended !== null) return;
    switch (message.kind) {
      case "started":
        this.#started = true;
        clearTimeout(this.#silence);
        break;
      case "holds":
        this.#watchLock(message.lock);
        break;
      case "progress":
        try {
          this.#loading?.progress(message.progress);
        } catch (error) {
          this.end(new RillmError("disposed", "the load's onProgress threw"), { reason: error });
        }
        break;
      case "loaded":
        this.memoryBytes = message.memoryBytes;
        this.#loading?.resolve({ info: message.info, warnings: message.warnings, reason: message.reason });
        this.#loading = null;
        break;
      case "load-failed":
        this.end(new RillmError(message.error.code, message.error.message));
        break;
      case "crashed":
        this.end(crash(message.message));
        break;
      case "reply": {
        this.memoryBytes = message.memoryBytes;
        const caller = this.#callers.get(message.id);
        if (message.reply.kind !== "chunk" && message.reply.kind !== "prefill") this.#callers.delete(message.id);
        caller?.take(message.reply);
      }
    }
  }
}

/** The worker's first word comes as soon as its scripts are there, which are small. */
const SILENCE_MS = 30_000;

const WORKER_HINT =
  "is worker.js there, of the page's own origin, allowed by its Content-Security-Policy (worker-src), and served with the " +
  "Cross-Origin-Embedder-Policy that the page has, if any? The option workerUrl says where it is; " +
  "where the package is of another origin, name there a script of your own origin that imports the package's worker.js, and give wasmUrl if that is elsewhere too";

function crash(message: string): RillmError {
  return new RillmError("crashed", `the worker crashed (${message || "no reason was given"}); load the model again`);
}

function startWorker(url: string | undefined): Worker {
  if (typeof Worker === "undefined") throw new RillmError("no-worker", "there are no workers here: a model is loaded on a page or in a dedicated worker, not on a server or in a service worker");
  try {
    if (url !== undefined) return new Worker(url, { type: "module" });
    // The literal expression is what bundlers look for.
    return new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  } catch (error) {
    throw new RillmError("no-worker", `the worker could not be started (${describe(error)}): ${WORKER_HINT}`, { cause: error });
  }
}
