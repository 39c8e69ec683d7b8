// An answer's Markdown as tokens, also while it is still growing.

import { Lexer, type MarkedToken, type Tokens } from "marked";

/**
 * Cuts a growing text into blocks without beginning anew each time: what is finished is not looked at again, and a block that did not
 * change is the same object as before, so that nothing of it is drawn again.
 */
export class GrowingMarkdown {
  #finished: MarkedToken[] = [];
  #finishedLength = 0;
  #tail: MarkedToken[] = [];

  /** The blocks of `text`, which begins with what it was the last time. */
  grow(text: string): readonly MarkedToken[] {
    if (text.length < this.#finishedLength) this.#reset();
    const rest = text.slice(this.#finishedLength);
    const tokens = blocks(new Lexer().lex(rest));
    this.#tail = reuse(this.#tail, tokens);
    // The line in the making can still join the block before it ("2" becomes "2. item"), but not the one before that.
    const count = this.#tail.length - 2;
    const cut = count > 0 ? cutLength(rest, tokens, count) : null;
    if (cut !== null) {
      this.#finishedLength += cut;
      this.#finished.push(...this.#tail.splice(0, count));
    }
    return [...this.#finished, ...this.#tail];
  }

  /** The blocks of the whole text, once it is whole: link definitions count from the beginning, and lists are in one piece. */
  finish(text: string): readonly MarkedToken[] {
    const lexed = new Lexer().lex(text);
    const before = [...this.#finished, ...this.#tail];
    // A definition at the end changes what stands before it, and the raw text would not show that.
    return Object.keys(lexed.links).length > 0 ? blocks(lexed) : reuse(before, blocks(lexed));
  }

  #reset(): void {
    this.#finished = [];
    this.#finishedLength = 0;
    this.#tail = [];
  }
}

interface Placed {
  /** Where it ends in the text that was lexed. */
  end: number;
}
const places = new WeakMap<MarkedToken, Placed>();

/** Without the blank lines between them. */
function blocks(lexed: readonly { raw: string; type: string }[]): MarkedToken[] {
  let end = 0;
  return (lexed as readonly MarkedToken[]).filter((token) => {
    end += token.raw.length;
    places.set(token, { end });
    return token.type !== "space";
  });
}

/** How many characters the first `count` blocks are; null where that is not certain. */
function cutLength(text: string, tokens: readonly MarkedToken[], count: number): number | null {
  const token = tokens[count - 1];
  // Line ends other than \n were replaced before the text was cut: then lengths do not agree.
  if (token === undefined || text.includes("\r")) return null;
  const end = places.get(token)?.end ?? 0;
  return text.slice(0, end).endsWith(token.raw) ? end : null;
}

/** `now`, with the objects of `before` wherever they say the same. */
function reuse(before: readonly MarkedToken[], now: readonly MarkedToken[]): MarkedToken[] {
  return now.map((token, i) => {
    const old = before[i];
    if (old === undefined || old.type !== token.type) return token;
    if (old.raw === token.raw) return old;
    if (old.type === "list" && token.type === "list") {
      // A long list is one block: here its items are what is kept.
      const items = token.items.map((item, j) => keep(old.items[j], item));
      return { ...token, items };
    }
    return token;
  });
}

function keep(old: Tokens.ListItem | undefined, item: Tokens.ListItem): Tokens.ListItem {
  return old !== undefined && old.raw === item.raw && old.loose === item.loose ? old : item;
}
