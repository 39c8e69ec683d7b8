// The public types. Everything is plain data; times are milliseconds, sizes bytes, speeds tokens a second.

/** Where a model file comes from. A string is relative to the page. A list of shards is not supported yet. */
export type ModelSource = URL | string | Blob | ArrayBuffer | Uint8Array | readonly (URL | string)[];

/** Options of {@link load}; unknown names are errors. */
export interface LoadOptions {
  /** What computes: `"auto"` takes the best that there is; `"webgpu"` is not supported yet. Default `"auto"`. */
  backend?: "auto" | "webgpu" | "wasm";
  /** Threads that compute, 1 to 64; 1 on a page that is not cross-origin isolated. Default as many as help. */
  threads?: number;
  /** Tokens that the model remembers, prompt and answer together. Default what the file says, at most 4096. */
  contextLength?: number;
  /** How that memory stores its numbers: `"f16"` takes two bytes each, `"q8_0"` about one, rounded more coarsely. Default `"f16"`. */
  kvType?: KvType;
  /** Keep a file that came from a URL in the browser's Cache API, and take it from there next time. Default true. */
  cache?: boolean;
  /** Aborts the load, which then rejects with `signal.reason`. Default none. */
  signal?: AbortSignal;
  /** Told about the load at most 20 times a second, and once more at the end. Default none. */
  onProgress?: (progress: LoadProgress) => void;
  /** The worker's script, relative to the page; must be of the page's own origin. Default `worker.js` beside the package's `index.js`. */
  workerUrl?: URL | string;
  /** The folder with the WebAssembly files (ending in `/`, or a file in it), relative to the page. Default the folder of the worker's modules. */
  wasmUrl?: URL | string;
}

/** How the model's memory of a conversation (its KV cache) stores numbers; for SmolLM2-135M 23,040 or 12,240 bytes a token. */
export type KvType = "f16" | "q8_0";

/** How far a load has come. */
export interface LoadProgress {
  /** Where the bytes come from: the network, the browser's cache, or a file or buffer. */
  phase: "download" | "cache" | "read";
  /** Bytes so far. */
  loaded: number;
  /** Bytes in all; null where the server does not say. */
  total: number | null;
  /** Bytes a second over the last two seconds; null at the start. */
  bytesPerSecond: number | null;
  /** Milliseconds to go at that rate; null where not known. */
  etaMs: number | null;
}

/** What there is to know about a loaded model. */
export interface ModelInfo {
  /** `general.architecture` of the file, such as `llama`. */
  architecture: string;
  /** The model's name in its file. */
  name: string;
  /** The format of most of its weights, such as `Q4_1`. */
  quantization: string;
  /** How many weights it has. */
  parameters: number;
  /** Bytes of the file. */
  bytes: number;
  /** Tokens that the model remembers, prompt and answer together. */
  contextLength: number;
  /** How that memory stores its numbers. */
  kvType: KvType;
  /** Tokens that it was trained for: the most that `contextLength` can be. */
  trainedContextLength: number;
  /** Tokens in the vocabulary. */
  vocabSize: number;
  /** Whether `chat` works; `complete` always does. */
  hasChatTemplate: boolean;
  /** What computes. */
  backend: "webgpu" | "wasm";
  /** Why that one, and why on so many threads, in sentences. */
  backendReason: string;
  /** Threads that compute. */
  threads: number;
  /** Which vector instructions of WebAssembly are used. */
  simd: "relaxed" | "simd128";
  /** The GPU's name; null where none is used. */
  adapter: string | null;
  /** Bytes of packed weights, the memory of a conversation, and buffers: the part of `memoryBytes` that the model itself takes. */
  deviceBytes: number;
  /** Bytes of WebAssembly memory (and GPU buffers) in use, as of the last reply; 0 once the model is disposed of. */
  memoryBytes: number;
}

/** A part of a message. */
export interface TextPart {
  /** The kind of part; there is only text. */
  type: "text";
  /** The text. */
  text: string;
}

/** A message of a chat. */
export interface ChatMessage {
  /** Who says it. A template that knows no `developer` gets `system`; what it does not know otherwise, it refuses or leaves out. */
  role: "system" | "developer" | "user" | "assistant" | "tool";
  /** What is said; parts are joined. */
  content: string | readonly TextPart[];
}

/** Options of a generation; unknown names and values out of range are errors. */
export interface GenerationOptions {
  /** Tokens to make at most, the end token counted. Default 512. */
  maxTokens?: number;
  /** Evens out the probabilities, 0 to 100; 0 takes the most probable token. Default 0.8. */
  temperature?: number;
  /** Keeps this many of the most probable tokens; 0 keeps all. Default 40. */
  topK?: number;
  /** Keeps the most probable tokens that together reach this probability, 0 to 1; 1 keeps all, 0 takes the most probable token. Default 0.95. */
  topP?: number;
  /** Keeps the tokens at least this probable relative to the most probable, 0 to 1; 0 keeps all. Default 0.05. */
  minP?: number;
  /** Makes tokens that were there already less likely, above 0 to 100; 1 changes nothing. Default 1. */
  repetitionPenalty?: number;
  /** How many of the last tokens the penalty looks at, the prompt's included; 0 switches it off. Default 64. */
  repetitionWindow?: number;
  /** Makes the random choices repeatable, 0 to 2^32 - 1. Default chosen at random, and reported with the answer. */
  seed?: number;
  /** Texts that end the answer, at most 64; they are not part of it. Default none. */
  stop?: string | readonly string[];
  /** Go on past the model's end token. Default false. */
  ignoreEos?: boolean;
  /** Keep what the model's memory already holds of the prompt's beginning. Default true. */
  reusePrefix?: boolean;
  /** Prompt tokens in one pass at most, 1 to 65536; the processor takes no more than 32. An abort waits for one pass. Default 512. */
  chunkSize?: number;
  /** Report the natural log-probability of each token. Default false. */
  logprobs?: boolean;
  /** `complete` only: parse control tokens out of the text. Default false. */
  special?: boolean;
  /** `chat` only: the last message is the beginning of the answer, and the answer goes on where that ends. Default false. */
  continueAnswer?: boolean;
  /** Stops the generation, which then resolves with the partial text and `finishReason` `"abort"`. Default none. */
  signal?: AbortSignal;
}

/** Options of `chat`. */
export type ChatOptions = Omit<GenerationOptions, "special">;

/** Options of `complete`. */
export type CompleteOptions = Omit<GenerationOptions, "continueAnswer">;

/** How fast a generation is. Null where there is nothing to divide. */
export interface Metrics {
  /** Milliseconds from the start of the work to the first token; null before it. */
  timeToFirstTokenMs: number | null;
  /** Prompt tokens that went through the model; cached ones did not. */
  prefillTokens: number;
  /** Milliseconds until the last of them was through. */
  prefillMs: number;
  /** `prefillTokens` a second; null where none were read. */
  prefillTokensPerSecond: number | null;
  /** Tokens made after the first. */
  decodeTokens: number;
  /** Milliseconds from the first token to the last. */
  decodeMs: number;
  /** `decodeTokens` a second; null before the second token. */
  decodeTokensPerSecond: number | null;
  /** How often the model was run. */
  forwardPasses: number;
}

/** What a generation used, in tokens. */
export interface Usage {
  /** Tokens of the whole prompt. */
  promptTokens: number;
  /** Of these, already in the model's memory. */
  cachedTokens: number;
  /** Sampled, the end token included. */
  completionTokens: number;
}

/** A piece of an answer. Text may be empty while a character or a possible stop text is incomplete. */
export interface Chunk {
  /** Text that is complete; never half a character. */
  text: string;
  /** Tokens made since the chunk before; over all chunks every token is there once, the end token included. */
  tokens: number[];
  /** Their natural log-probabilities, if asked for. */
  logprobs?: number[];
  /** Times and speeds so far. */
  metrics: Metrics;
}

/** Something worth knowing that is no error. */
export interface Warning {
  /** Stable, for programs. */
  code: string;
  /** For people. */
  message: string;
}

/** Why an answer ended. */
export type FinishReason = "stop" | "length" | "abort" | "tool-calls";

/** A whole answer. */
export interface GenerationResult {
  /** Without end token and stop text. */
  text: string;
  /** Every token that was made, the end token included. */
  tokens: number[];
  /** Their natural log-probabilities, if asked for. */
  logprobs?: number[];
  /** Why it ended. */
  finishReason: FinishReason;
  /** By what exactly (`eos`, `string`, `maxTokens` or `context`, with the text or the number); null after an abort. */
  stopDetail: { kind: string; match: string } | null;
  /** Tokens, counted. */
  usage: Usage;
  /** Times and speeds. */
  metrics: Metrics;
  /** The seed that gives this answer again; 0 if it was aborted in the queue and none was given. */
  seed: number;
  /** What looked odd about the options. */
  warnings: Warning[];
}

/** What the model says of a text: entry i speaks of token i + 1, given all before it. */
export interface Score {
  /** Natural logarithm of the probability of the text's own token. */
  logprobs: Float32Array;
  /** The most probable token. */
  topIds: Uint32Array;
  /** Its natural log-probability. */
  topLogprobs: Float32Array;
}
