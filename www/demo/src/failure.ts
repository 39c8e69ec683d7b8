// What went wrong, by name and sentence, and the way out.

import { RillmError } from "rillm";
import { completes, info } from "./state.js";

export interface Failure {
  code: string;
  message: string;
  hint: string;
}

const HINTS: Record<string, string> = {
  network: "Check the address and the connection, or download the file and choose it from this device.",
  "not-gguf": "Choose a file that ends in .gguf. On a model site, use the address of the download, not of its page.",
  truncated: "The file is incomplete. Download it again.",
  malformed: "The file is damaged. Download it again.",
  "unsupported-type": "Choose another quantization of the model, such as Q4_0, Q4_1, Q4_K_M or Q8_0.",
  "unsupported-architecture": "Choose a model of the Llama or Gemma 3 family.",
  "out-of-memory": "Close other tabs, or choose a smaller model.",
  "no-chat-template": "This is a base model: it can only continue a text.",
  "worker-died": "The browser ended it, most likely because memory ran out. Load the model again, or choose a smaller one.",
  "wasm-blocked-by-csp": "The page's server has to allow 'wasm-unsafe-eval' in its Content-Security-Policy.",
  crashed: "Load the model again. If it happens again, choose a smaller model.",
  "no-wasm": "Try a current Chrome, Edge, Firefox or Safari.",
};

/** Any thrown value as something to show. */
export function failureOf(error: unknown): Failure {
  if (error instanceof RillmError) {
    // What there is to do about it is in the hint, as a person at the page can do it.
    const message = error.code === "prompt-too-long" ? error.message.replace(/: shorten it.*/, "") : error.message;
    return { code: error.code, message: sentence(message), hint: hint(error) };
  }
  const message = error instanceof Error ? error.message : String(error);
  return { code: "unexpected", message: sentence(message), hint: "Reload the page and try again." };
}

function hint({ code, message }: RillmError): string {
  if (code === "prompt-too-long") return tooLong();
  // It comes from the settings, which outlive the model it was chosen for.
  if (code === "bad-option" && message.includes("contextLength")) return "Choose another context length in the settings, or empty that field.";
  return HINTS[code] ?? "You can go on, or choose another model.";
}

function tooLong(): string {
  const { contextLength = 0, trainedContextLength = 0 } = info.value ?? {};
  const ways = completes.value ? ["Shorten the text"] : ["Shorten your message", "begin a new chat"];
  if (trainedContextLength > contextLength) {
    ways.push(`set a longer context in the settings (this model can take ${trainedContextLength.toLocaleString("en")} tokens) and load the model again`);
  }
  return `${new Intl.ListFormat("en", { type: "disjunction" }).format(ways)}.`;
}

/** As a person writes it; names and addresses at the beginning stay as they are. */
function sentence(text: string): string {
  const full = /[.!?]$/.test(text) ? text : `${text}.`;
  return /^[a-z]+[\s,;]/.test(full) ? full.charAt(0).toUpperCase() + full.slice(1) : full;
}
