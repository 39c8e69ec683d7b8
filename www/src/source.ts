// A model file as a stream of bytes. `toWire` runs on the page, `openSource` in the worker.

import { RillmError, describe, shown } from "./errors.js";
import { tagOf } from "./plain.js";
import type { ModelSource } from "./types.js";

/** A source as it crosses to the worker. */
export type WireSource = { kind: "url"; url: string } | { kind: "blob"; blob: Blob };

/** Blobs are read in pieces of this size. */
const PIECE = 4 << 20;

/** Relative URLs are the page's, not the worker's. */
export function pageUrl(url: URL | string, what: string): string {
  if (typeof url !== "string" && tagOf(url) !== "URL") throw new RillmError("bad-option", `${what} must be a URL or a string, not ${shown(url)}`);
  // It would be the page itself.
  if (typeof url === "string" && url.trim() === "") throw new RillmError("bad-option", `${what} is an empty text; it must be a URL`);
  const base = globalThis.document?.baseURI ?? globalThis.location?.href;
  try {
    return new URL(url, base).href;
  } catch (error) {
    throw new RillmError("bad-option", `${what} must be a URL, and ${shown(String(url))} is none`, { cause: error });
  }
}

/** Checks a source and makes it fit for a message. */
export function toWire(source: ModelSource): WireSource {
  const tag = tagOf(source);
  if (typeof source === "string" || tag === "URL") return { kind: "url", url: pageUrl(source as URL | string, "the source") };
  if (tag === "Blob" || tag === "File") return { kind: "blob", blob: source as Blob };
  // A blob's bytes lie outside of this tab's heap: the caller keeps the buffer, and the worker never holds a second whole copy.
  if (tag === "ArrayBuffer") return blobOf(source as ArrayBuffer);
  if (ArrayBuffer.isView(source) && tagOf(source.buffer) === "ArrayBuffer") return blobOf(source as Uint8Array<ArrayBuffer>);
  if (Array.isArray(source)) {
    throw new RillmError("not-supported", "models in several shards are not supported yet: join them into one file");
  }
  throw new RillmError("bad-option", "the source must be a URL, a string, a File, a Blob, an ArrayBuffer or a Uint8Array");
}

function blobOf(bytes: BlobPart): WireSource {
  try {
    return { kind: "blob", blob: new Blob([bytes]) };
  } catch (error) {
    // One that was transferred away, or whose length may change.
    throw new RillmError("bad-option", `the bytes can't be read: ${describe(error)}`, { cause: error });
  }
}

/** A source that is being read. */
export interface Opened {
  /** What it is called, if anything: for errors. */
  name: string | undefined;
  /** Bytes in all, if anybody says so: for the progress. */
  total: number | undefined;
  /** The same, if it can be relied on: for refusing a file early. */
  exactTotal: number | undefined;
  /** The bytes, in order; throws `network` where the stream breaks off. */
  pieces: AsyncIterable<Uint8Array>;
}

/** Reads a blob. */
export function openBlob(blob: Blob): Opened {
  return { name: tagOf(blob) === "File" ? (blob as File).name : undefined, total: blob.size, exactTotal: blob.size, pieces: piecesOf(blob) };
}

async function* piecesOf(blob: Blob): AsyncGenerator<Uint8Array, void> {
  for (let start = 0; start < blob.size; start += PIECE) {
    try {
      yield new Uint8Array(await blob.slice(start, start + PIECE).arrayBuffer());
    } catch (error) {
      // A file that was moved or changed after it was chosen.
      throw new RillmError("io", `the file could not be read (${describe(error)}); choose it again`, { cause: error });
    }
  }
}

/** Asks a server for a file. With `keep`, the browser's own HTTP cache does not store it a second time. */
export async function fetchModel(url: string, keep: boolean): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url, { cache: keep ? "no-store" : "default" });
  } catch (error) {
    const hint = "there is no connection, or the server does not allow this page to read it (CORS); a file from this device works too";
    throw new RillmError("network", `${url} could not be fetched: ${hint} (${describe(error)})`, { cause: error });
  }
  if (!response.ok || response.status !== 200) {
    await response.body?.cancel().catch(() => undefined);
    const status = `${response.status} ${response.statusText}`.trim();
    throw new RillmError("network", `the server answered ${status} for ${url}`);
  }
  return response;
}

/** Reads a response's body. */
export function openResponse(url: string, response: Response): Opened {
  const length = Number(response.headers.get("content-length") ?? Number.NaN);
  // The length of an encoded body is not the file's; another origin's server may not even show that it encodes.
  const total = Number.isSafeInteger(length) && length >= 0 && !response.headers.has("content-encoding") ? length : undefined;
  const exactTotal = response.type === "cors" ? undefined : total;
  return { name: url, total, exactTotal, pieces: bodyOf(url, response, total) };
}

async function* bodyOf(url: string, response: Response, total: number | undefined): AsyncGenerator<Uint8Array, void> {
  if (response.body === null) return;
  const reader = response.body.getReader();
  let read = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error: unknown) => {
        const of = total === undefined ? "" : ` of ${total}`;
        throw new RillmError("network", `the download of ${url} broke off after ${read}${of} bytes`, { cause: error });
      });
      if (done) return;
      read += value.byteLength;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => undefined); // a load that failed stops its download
  }
}
