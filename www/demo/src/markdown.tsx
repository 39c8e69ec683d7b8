// Tokens of Markdown as elements. No text of a model ever becomes HTML, and nothing of it is fetched.

import type { MarkedToken, Token, Tokens } from "marked";
import { Component, type ComponentChildren, type VNode } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { CopyButton } from "./copy-button.js";
import { GrowingMarkdown } from "./markdown-blocks.js";

/** An answer. While it grows, only what changed since the last time is drawn. */
export function Markdown({ text, growing }: { text: string; growing: boolean }) {
  const parser = useRef<GrowingMarkdown | null>(null);
  const drawn = useRef<{ text: string; growing: boolean; tokens: readonly MarkedToken[] } | null>(null);
  parser.current ??= new GrowingMarkdown();
  if (drawn.current === null || drawn.current.text !== text || drawn.current.growing !== growing) {
    drawn.current = { text, growing, tokens: growing ? parser.current.grow(text) : parser.current.finish(text) };
  }
  useEffect(() => {
    if (!growing) parser.current = null; // its pieces are not needed any more
  }, [growing]);
  return <>{drawn.current.tokens.map((token, i) => <BlockView key={i} token={token} />)}</>;
}

/** Drawn again only if the token is another object. */
class BlockView extends Component<{ token: MarkedToken }> {
  override shouldComponentUpdate(next: { token: MarkedToken }): boolean {
    return next.token !== this.props.token;
  }
  override render() {
    return block(this.props.token);
  }
}

class ItemView extends Component<{ item: Tokens.ListItem }> {
  override shouldComponentUpdate(next: { item: Tokens.ListItem }): boolean {
    return next.item !== this.props.item;
  }
  override render() {
    const { item } = this.props;
    return <li class={item.task ? "task" : undefined}>{many(item.tokens)}</li>;
  }
}

function many(tokens: readonly Token[] | undefined, inLink = false): ComponentChildren {
  return (tokens as readonly MarkedToken[] | undefined)?.map((token) => block(token, inLink));
}

function block(token: MarkedToken, inLink = false): ComponentChildren {
  switch (token.type) {
    case "paragraph":
      return <p>{many(token.tokens, inLink)}</p>;
    case "heading":
      return heading(token);
    case "code":
      return <CodeBlock text={token.text} language={token.lang?.split(/\s/)[0] ?? ""} />;
    case "blockquote":
      return <blockquote>{many(token.tokens)}</blockquote>;
    case "list": {
      const items = token.items.map((item, i) => <ItemView key={i} item={item} />);
      return token.ordered ? <ol start={typeof token.start === "number" ? token.start : 1}>{items}</ol> : <ul>{items}</ul>;
    }
    case "table":
      return table(token);
    case "hr":
      return <hr />;
    case "space":
    case "def":
      return null;
    case "strong":
      return <strong>{many(token.tokens, inLink)}</strong>;
    case "em":
      return <em>{many(token.tokens, inLink)}</em>;
    case "del":
      return <del>{many(token.tokens, inLink)}</del>;
    case "codespan":
      return <code>{token.text}</code>;
    case "br":
      return <br />;
    case "link":
      return link(token.href, inLink ? null : undefined, token.tokens.length > 0 ? many(token.tokens, true) : token.href);
    case "image":
      // Loading it would tell its server that somebody reads this.
      return link(token.href, inLink ? null : "image", `[image: ${token.text || token.href}]`);
    case "checkbox":
      return <input type="checkbox" checked={token.checked} disabled aria-label={token.checked ? "done" : "to do"} />;
    case "text":
      return token.tokens === undefined ? decode(token.text) : many(token.tokens, inLink);
    case "escape":
      return token.text;
    default:
      return token.raw; // HTML, as the text that it is
  }
}

/** The page's own headings end at the third level. */
function heading({ depth, tokens }: Tokens.Heading): VNode {
  const Tag = depth === 1 ? "h4" : depth === 2 ? "h5" : "h6";
  return <Tag>{many(tokens)}</Tag>;
}

/** Of a table so much is drawn: more nobody reads here, and a browser takes seconds to lay it out. */
const MOST_COLUMNS = 60;
const MOST_CELLS = 4000;

function table({ header, rows, align }: Tokens.Table): VNode {
  const side = (i: number): string | undefined => (align[i] ? `to-${align[i]}` : undefined);
  const columns = Math.min(header.length, MOST_COLUMNS);
  const lines = Math.min(rows.length, Math.floor(MOST_CELLS / columns));
  const left = [];
  if (columns < header.length) left.push(`${columns} of ${header.length.toLocaleString("en")} columns`);
  if (lines < rows.length) left.push(`${lines.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`);
  return (
    <div class="table" role="group" aria-label="Table" tabIndex={0}>
      <table>
        <thead><tr>{header.slice(0, columns).map((cell, i) => <th key={i} scope="col" class={side(i)}>{many(cell.tokens)}</th>)}</tr></thead>
        <tbody>{rows.slice(0, lines).map((row, j) => <tr key={j}>{row.slice(0, columns).map((cell, i) => <td key={i} class={side(i)}>{many(cell.tokens)}</td>)}</tr>)}</tbody>
      </table>
      {left.length > 0 && <p class="note" data-testid="table-cut">This table is large: {left.join(" and ")} are shown. Copying the answer copies all.</p>}
    </div>
  );
}

/** `use` null: no link inside of a link. */
function link(href: string, use: string | null | undefined, children: ComponentChildren): ComponentChildren {
  const safe = use === null ? null : safeAddress(href);
  return safe === null ? <span>{children}</span> : <a class={use ?? undefined} href={safe} target="_blank" rel="noopener noreferrer">{children}</a>;
}

/** The address, if it is one that may be followed: whole, and of a kind that runs nothing. */
export function safeAddress(href: string): string | null {
  try {
    const url = new URL(href);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null; // a relative one would lead into this page
  }
}

const LINES = 40;

/** Code in groups of lines: a line that is added lays out its group, not all of a long program. */
function CodeBlock({ text, language }: { text: string; language: string }) {
  const lines = text.split("\n");
  const groups: string[] = [];
  for (let i = 0; i < lines.length; i += LINES) groups.push(lines.slice(i, i + LINES).join("\n") + (i + LINES < lines.length ? "\n" : ""));
  return (
    <div class="code">
      <div class="code-head"><span data-testid="code-language">{language || "text"}</span><CopyButton text={text} what="code" /></div>
      <pre role="group" aria-label={`Code, ${language || "text"}`} tabIndex={0}><code>{groups.map((group, i) => <span key={i}>{group}</span>)}</code></pre>
    </div>
  );
}

const NAMED: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", copy: "©", hellip: "…", mdash: "—", ndash: "–", times: "×", deg: "°" };

/** Character references, which Markdown knows too. */
function decode(text: string): string {
  if (!text.includes("&")) return text;
  return text.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|([a-z]{2,8}));/gi, (all, decimal?: string, hex?: string, name?: string) => {
    if (name !== undefined) return (Object.hasOwn(NAMED, name) ? NAMED[name] : undefined) ?? all;
    const code = decimal !== undefined ? Number(decimal) : Number.parseInt(hex ?? "", 16);
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : "\uFFFD";
  });
}
