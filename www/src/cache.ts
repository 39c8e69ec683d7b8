// Model files in the browser's Cache API, under their URL. Only files from which a model was loaded are kept.

import { describe } from "./errors.js";

const NAME = "rillm-models";

/** Bytes that may wait for the disk; beyond that the download waits. */
const AHEAD = 8 << 20;

/** Whether a URL can be a key at all. */
export function cacheable(url: string): boolean {
  return /^https?:/.test(url);
}

async function store(): Promise<Cache> {
  if (globalThis.caches === undefined) throw new Error("this page has no Cache API, because it is not served over HTTPS or from localhost");
  return caches.open(NAME);
}

/** The file, if it is there; never throws. */
export async function fromCache(url: string): Promise<Response | undefined> {
  try {
    return await (await store()).match(url, { ignoreVary: true });
  } catch {
    return undefined; // `Keeper` will say why
  }
}

/** Drops a file that turned out to be bad; never throws. */
export async function dropFromCache(url: string): Promise<void> {
  try {
    await (await store()).delete(url, { ignoreVary: true });
  } catch {
    // Then it is not there either.
  }
}

/** Writes a file into the cache while it is being read. It never throws: what goes wrong is in `problem`. */
export class Keeper {
  /** Why the file is not kept, if it is not. */
  problem: string | null = null;
  #writer: WritableStreamDefaultWriter<Uint8Array>;
  #put: Promise<void>;

  /** Begins an entry. Nothing is visible in the cache before `commit`. */
  constructor(url: string, response: Response, total: number | undefined) {
    const size = new ByteLengthQueuingStrategy({ highWaterMark: AHEAD });
    const pipe = new TransformStream<Uint8Array, Uint8Array>(undefined, size, new ByteLengthQueuingStrategy({ highWaterMark: 0 }));
    this.#writer = pipe.writable.getWriter();
    this.#writer.closed.catch(() => undefined);
    const headers = new Headers({ "content-type": response.headers.get("content-type") ?? "application/octet-stream" });
    if (total !== undefined) headers.set("content-length", String(total));
    for (const name of ["etag", "last-modified"]) {
      const value = response.headers.get(name);
      if (value !== null) headers.set(name, value);
    }
    this.#put = store()
      .then((cache) => cache.put(url, new Response(pipe.readable as ReadableStream<Uint8Array<ArrayBuffer>>, { headers })))
      .catch((error: unknown) => this.#fail(error));
  }

  #fail(error: unknown): void {
    this.problem ??= describe(error);
    this.#writer.abort(error).catch(() => undefined); // lets a waiting `write` go on
  }

  /** Hands over the next bytes, once the disk has caught up. */
  async write(piece: Uint8Array): Promise<void> {
    if (this.problem !== null) return;
    try {
      await this.#writer.ready;
      this.#writer.write(piece).catch(() => undefined); // `ready` and `put` report it
    } catch (error) {
      this.#fail(error);
    }
  }

  /** The file is whole: makes the entry visible. */
  async commit(): Promise<void> {
    if (this.problem === null) await this.#writer.close().catch((error: unknown) => this.#fail(error));
    await this.#put;
  }

  /** The file is not whole, or no model: leaves no entry. */
  async discard(reason: string): Promise<void> {
    this.#fail(new Error(reason));
    await this.#put;
  }
}
