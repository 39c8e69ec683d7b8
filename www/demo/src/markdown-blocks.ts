// An answer's Markdown as tokens, also while it is still growing.

import { Lexer, type MarkedToken, type Token, type Tokens } from "marked";

/** From so many items on, those of a list are finished one by one. */
const LONG_LIST = 8;

/**
 * Cuts a growing text into blocks without beginning anew each time: what is finished is not looked at again, and a block that did not
 * change is the same object as before, so that nothing of it is drawn again.
 */
export class GrowingMarkdown {
  #finished: MarkedToken[] = [];
  #finishedLength = 0;
  #tail: MarkedToken[] = [];
  /** The finished items of the list that the tail begins with. */
  #head: Tokens.List | null = null;

  /** The blocks of `text`, which begins with what it was the last time. */
  grow(text: string): readonly MarkedToken[] {
    if (text.length < this.#finishedLength) this.#reset();
    const rest = text.slice(this.#finishedLength);
    const lexed = blocks(lex(rest));
    this.#tail = reuse(this.#tail, this.#withHead(lexed));
    // Where line ends other than \n were replaced before the text was cut, lengths do not agree.
    if (rest.includes("\r")) return [...this.#finished, ...this.#tail];
    const blocksNow = [...this.#finished, ...this.#tail];
    // The line in the making can still join the block before it ("2" becomes "2. item"), but not the one before that.
    const last = lexed.at(-1);
    const count = lexed.length - (last?.type === "list" && last.items.length > 2 ? 1 : 2);
    if (count > 0) this.#finish(lexed, count);
    else this.#finishItems(lexed[0]);
    return blocksNow;
  }

  #finish(lexed: readonly MarkedToken[], count: number): void {
    const last = lexed[count - 1];
    this.#finishedLength += (last && ends.get(last)) ?? 0;
    this.#finished.push(...this.#tail.splice(0, count));
    this.#head = null;
  }

  /** A list may be a whole answer: its items up to the last two are finished too. */
  #finishItems(list: MarkedToken | undefined): void {
    if (list?.type !== "list" || list.items.length < LONG_LIST) return;
    const items = list.items.slice(0, -2);
    const raw = items.map((item) => item.raw).join("");
    const end = ends.get(list);
    if (end === undefined || !list.raw.startsWith(raw)) return;
    this.#finishedLength += end - list.raw.length + raw.length;
    const head = this.#head;
    // What is shown has the objects that are drawn already.
    const shown = this.#tail[0];
    if (shown?.type !== "list") return;
    this.#head = { ...(head ?? list), raw: (head?.raw ?? "") + raw, items: shown.items.slice(0, -2) };
  }

  /** What was lexed, with the finished items where they belong. */
  #withHead(lexed: readonly MarkedToken[]): readonly MarkedToken[] {
    const head = this.#head;
    if (head === null) return lexed;
    const [first, ...others] = lexed;
    if (first?.type !== "list" || first.ordered !== head.ordered) {
      this.#finished.push(head);
      this.#head = null;
      return lexed;
    }
    return [{ ...head, raw: head.raw + first.raw, items: [...head.items, ...first.items] }, ...others];
  }

  /** The blocks of the whole text, once it is whole: link definitions count from the beginning, and lists are in one piece. */
  finish(text: string): readonly MarkedToken[] {
    const before = [...this.#finished, ...this.#tail];
    // All of a token is compared: a link definition that was there for a while, or came at the end, does not show in the raw text.
    return reuse(before, blocks(lex(text)), (old, now) => JSON.stringify(old) === JSON.stringify(now));
  }

  #reset(): void {
    this.#finished = [];
    this.#finishedLength = 0;
    this.#tail = [];
    this.#head = null;
  }
}

/** Where a block ends in the text that was lexed. */
const ends = new WeakMap<MarkedToken, number>();

/** Without the blank lines between them. */
function blocks(lexed: readonly { raw: string; type: string }[]): MarkedToken[] {
  let end = 0;
  return (lexed as readonly MarkedToken[]).filter((token) => {
    end += token.raw.length;
    ends.set(token, end);
    return token.type !== "space";
  });
}

type Block = MarkedToken | Tokens.ListItem;

const sameText = (old: Block, now: Block): boolean => old.raw === now.raw && (old.type !== "list_item" || now.type !== "list_item" || old.loose === now.loose);

/** `now`, with the objects of `before` wherever they are the same. */
function reuse(before: readonly MarkedToken[], now: readonly MarkedToken[], same = sameText): MarkedToken[] {
  return now.map((token, i) => {
    const old = before[i];
    if (old === undefined || old.type !== token.type) return token;
    if (old.type === "list" && token.type === "list") {
      // A long list is one block: here its items are what is kept. Any of them may turn from a line into a paragraph.
      const items = token.items.map((item, j) => {
        const was = old.items[j];
        return was !== undefined && same(was, item) ? was : item;
      });
      return same(old, token) && items.every((item, j) => item === old.items[j]) ? old : { ...token, items };
    }
    return same(old, token) ? old : token;
  });
}

/** Blocks inside of blocks, and marks in a line, beyond which nobody writes Markdown: there it is quadratic to lex, and endless to nest. */
const DEEPEST = 40;
const MOST_MARKS = 300;

/** The tokens of a text; all of it as it stands where it is too tangled for Markdown. */
function lex(text: string): readonly Token[] {
  if (text.split("\n").some((line) => line.length > MOST_MARKS && (line.match(/[*_~[\]`>]/g)?.length ?? 0) > MOST_MARKS)) return asItStands(text);
  try {
    const tokens = new Lexer().lex(text);
    return isDeep(tokens) ? asItStands(text) : tokens;
  } catch {
    return asItStands(text); // marked calls itself for each level, until the stack is full
  }
}

function isDeep(tokens: readonly Token[]): boolean {
  let level: readonly Token[] = tokens;
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > DEEPEST) return true;
    level = level.flatMap((token) => [...(("items" in token && (token.items as Token[])) || []), ...(("tokens" in token && token.tokens) || [])]);
  }
  return false;
}

function asItStands(text: string): readonly Token[] {
  const lines = text.split("\n").flatMap((line): Token[] => [{ type: "br", raw: "\n" }, { type: "escape", raw: line, text: line }]);
  return [{ type: "paragraph", raw: text, text, tokens: lines.slice(1) }];
}
