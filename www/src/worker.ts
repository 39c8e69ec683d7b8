// The module worker that owns the engine, or is one of its threads. It works off one queue; between two steps it returns to its event loop, so that an abort gets in.

import { describe, refusal } from "./errors.js";
import { loadEngine } from "./loading.js";
import type { Call, EngineInfo, EngineStep, FromThread, FromWorker, Reply, ToThread, ToWorker } from "./protocol.js";
import { THREAD, serve } from "./start.js";
import type { Engine, Generation } from "./rillm_wasm.js";
import type { GenerationResult, Metrics } from "./types.js";

/** What a worker's global scope has; the DOM's types describe a window's. */
interface Scope {
  name: string;
  postMessage(message: FromWorker | FromThread): void;
  onmessage: ((event: MessageEvent<ToWorker | ToThread>) => void) | null;
  onunhandledrejection: ((event: PromiseRejectionEvent) => void) | null;
}

interface Job {
  id: number;
  call: Call;
  aborted: boolean;
}

const scope = self as unknown as Scope;
const queue: Job[] = [];
let engine: Engine | null = null;
let memory: WebAssembly.Memory | null = null;
let working = false;
let rouse = (): void => undefined;
/** The page has ended this worker; the browser may take its time while threads are at work, so no further step is made. */
let ended = false;

const post = (message: FromWorker | FromThread): void => scope.postMessage(message);
const memoryBytes = (): number => memory?.buffer.byteLength ?? 0;
const reply = (job: Job, reply: Reply): void => post({ kind: "reply", id: job.id, reply, memoryBytes: memoryBytes() });

// A macrotask through a message, because timers are clamped to 4 ms.
const channel = new MessageChannel();
let resume: (() => void) | null = null;
channel.port1.onmessage = () => ended || resume?.();
function breathe(): Promise<void> {
  return new Promise((resolve) => {
    resume = resolve;
    channel.port2.postMessage(null);
  });
}

scope.onmessage = ({ data }) => {
  if (data.kind === "load") {
    loadEngine(data, (progress) => post({ kind: "progress", progress })).then(
      (loaded) => {
        ({ engine, memory, rouse } = loaded);
        post({ kind: "loaded", info: infoOf(engine), warnings: loaded.warnings, reason: loaded.reason, memoryBytes: memoryBytes() });
      },
    ).catch((error: unknown) => {
      const known = refusal(error);
      post(known === null ? { kind: "crashed", message: `${describe(error)}; the memory for the model may not be there` } : { kind: "load-failed", error: known });
    });
  } else if (data.kind === "serve" || data.kind === "work") {
    void serve(data, post);
  } else if (data.kind === "end") {
    ended = true;
  } else if (data.kind === "call") {
    queue.push({ id: data.id, call: data.call, aborted: data.call.kind === "generate" && data.call.aborted });
    void work();
  } else {
    abort(data.id);
  }
};
// The engine's own failures come as an error event that reaches the page by itself; a promise's would stay here.
scope.onunhandledrejection = (event) => post({ kind: "crashed", message: describe(event.reason) });

/** The engine tells ways of using the relaxed instructions apart. */
function infoOf(engine: Engine): EngineInfo {
  const info = engine.info();
  return { ...info, simd: info.simd.startsWith("relaxed") ? "relaxed" : "simd128" };
}

function abort(id: number): void {
  const index = queue.findIndex((job) => job.id === id);
  const job = queue[index];
  if (job === undefined) return; // it has ended meanwhile
  job.aborted = true;
  if (index > 0 && job.call.kind === "generate") {
    queue.splice(index, 1);
    reply(job, { kind: "generated", result: nothing(job.call.options.seed) });
  }
}

/** The first of the queue is the one at work. */
async function work(): Promise<void> {
  if (working) return;
  working = true;
  for (let job = queue[0]; job !== undefined; job = queue[0]) {
    try {
      if (engine === null) throw new Error("a call came before the model");
      const last = await run(engine, job, job.call);
      queue.shift();
      reply(job, last);
    } catch (error) {
      const known = refusal(error);
      if (known === null) return post({ kind: "crashed", message: describe(error) }); // the engine's state is unknown: no further call
      queue.shift();
      reply(job, { kind: "refused", error: known });
    }
  }
  working = false;
}

async function run(engine: Engine, job: Job, call: Call): Promise<Reply> {
  switch (call.kind) {
    case "tokenize":
      return { kind: "tokenized", ids: Array.from(engine.tokenize(call.text, call.special)) };
    case "detokenize":
      return { kind: "detokenized", text: engine.detokenize(call.ids, call.special) };
    case "score": {
      const scoring = engine.score(call.ids);
      for (;;) {
        rouse();
        const { result } = await scoring.step();
        if (result !== null) {
          scoring.free();
          return { kind: "scored", score: result };
        }
        await breathe();
      }
    }
    case "generate": {
      const generation = "text" in call.prompt ? engine.complete(call.prompt.text, call.options) : engine.chat([...call.prompt.messages], call.options);
      if (call.script !== undefined) generation.script(call.script);
      const result = await generate(generation, job);
      generation.free();
      return { kind: "generated", result };
    }
  }
}

async function generate(generation: Generation, job: Job): Promise<GenerationResult> {
  // A short prompt is read in one pass, which says nothing before the first token.
  reply(job, { kind: "prefill", done: 0, total: generation.promptTokens(), metrics: UNBEGUN });
  for (;;) {
    if (job.aborted) generation.abort();
    rouse();
    const step: EngineStep = await generation.step();
    if (step.kind === "prefill") {
      reply(job, step);
    } else {
      const { text, tokens, logprobs } = step;
      const metrics = step.kind === "token" ? step.metrics : step.result.metrics;
      if (text !== "" || tokens.length > 0) reply(job, { kind: "chunk", chunk: { text, tokens, metrics, ...(logprobs && { logprobs }) } });
      if (step.kind === "done") return step.result;
    }
    await breathe();
  }
}

const UNBEGUN: Metrics = {
  timeToFirstTokenMs: null, prefillTokens: 0, prefillMs: 0, prefillTokensPerSecond: null,
  decodeTokens: 0, decodeMs: 0, decodeTokensPerSecond: null, forwardPasses: 0,
};

/** The result of a generation that was aborted before its turn. */
function nothing(seed: number | undefined): GenerationResult {
  const usage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0 };
  return { text: "", tokens: [], finishReason: "abort", stopDetail: null, usage, metrics: UNBEGUN, seed: typeof seed === "number" ? seed : 0, warnings: [] };
}

post({ kind: "started" });

// No event tells a page that its worker is gone. A lock does: the browser frees it with whoever held it.
function holdLock(): void {
  if (navigator.locks === undefined) return; // outside of a secure context
  const lock = `rillm-${scope.name === THREAD ? "thread" : "worker"}-${crypto.randomUUID()}`; // a thread's tells that it is still there
  const held = navigator.locks.request(lock, () => {
    post({ kind: "holds", lock });
    return new Promise<never>(() => undefined);
  });
  held.catch(() => undefined); // an opaque origin has no locks: then nobody watches
}
holdLock();
