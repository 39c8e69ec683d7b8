//! SentencePiece-style tokens: a text's characters merge into tokens, the highest score first; what has no token is spelled in bytes.
//!
//! Source: SentencePiece's BPE encoder (Kudo and Richardson 2018, <https://arxiv.org/abs/1808.06226>) as llama.cpp's
//! `llm_tokenizer_spm` has it, whose ids the golden files hold. A space is the character U+2581 inside tokens.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::vocab::{Index, Kind, Vocabulary};
use crate::error::{Result, bail};
use crate::gguf::Metadata;

const SCORES: &str = "tokenizer.ggml.scores";
const SPACE_PREFIX: &str = "tokenizer.ggml.add_space_prefix";
/// How tokens write a space.
const SPACE: &str = "\u{2581}";
/// No token.
const NONE: u32 = u32::MAX;
/// No neighbour on that side.
const END: u32 = u32::MAX;
/// Bytes that merge with each other at most, so that a position fits u32 also where each space becomes three bytes.
const MAX_PIECE: usize = (u32::MAX / 4) as usize;

/// Scores and bytes, all by token id.
#[derive(Debug, Clone)]
pub(super) struct Spm {
    /// Which token a text is; control tokens and bytes are not found by text.
    index: Index,
    /// By id: see [`rank`].
    ranks: Vec<u32>,
    /// The token of each byte; what the vocabulary lacks is its unknown token, or nothing.
    bytes: Box<[u32; 256]>,
    /// Bytes of the longest token.
    longest: usize,
    /// Whether text at the start and behind special tokens gets a space in front.
    space_prefix: bool,
}

impl Spm {
    /// Takes the scores out of the metadata.
    pub(super) fn from_metadata(meta: &mut Metadata, vocab: &Vocabulary) -> Result<Spm> {
        let scores = meta.require_f32s(SCORES)?;
        if scores.len() != vocab.len() {
            bail!(Malformed, "{SCORES} has {} entries for {} tokens", scores.len(), vocab.len());
        }
        if let Some(i) = scores.iter().position(|s| s.is_nan()) {
            bail!(BadKey, "{SCORES}[{i}] is not a number");
        }
        let ranks = scores.iter().map(|&score| rank(score)).collect();
        let space_prefix = meta.bool(SPACE_PREFIX)?.unwrap_or(true);
        meta.remove(SCORES);
        let index = vocab.index(|kind| !kind.is_control() && kind != Kind::Byte)?;
        let longest = vocab.iter().map(|(_, text, _)| text.len()).max().unwrap_or(0);
        let mut bytes = Box::new([vocab.unknown.unwrap_or(NONE); 256]);
        for (id, text, kind) in vocab.iter() {
            match byte(text) {
                Some(byte) if kind == Kind::Byte => bytes[usize::from(byte)] = id,
                None if kind == Kind::Byte => bail!(Malformed, "token {id} is of the type byte, but its text is {text:?}, not like \"<0x0A>\""),
                _ => {}
            }
        }
        Ok(Spm { index, ranks, bytes, longest, space_prefix })
    }

    /// Whether text at the start and behind special tokens gets a space in front.
    pub(super) fn space_prefix(&self) -> bool {
        self.space_prefix
    }

    /// Appends the tokens of a text that holds no special token. `first`: it stands at the start or behind a special token.
    pub(super) fn encode(&self, vocab: &Vocabulary, text: &str, first: bool, out: &mut Vec<u32>) {
        let mut escaped = String::with_capacity(text.len() + text.len() / 2 + SPACE.len());
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.floor_char_boundary(MAX_PIECE));
            escaped.clear();
            if self.space_prefix && first && rest.len() == text.len() {
                escaped.push_str(SPACE);
            }
            for (i, part) in piece.split(' ').enumerate() {
                if i > 0 {
                    escaped.push_str(SPACE);
                }
                escaped.push_str(part);
            }
            Merging { spm: self, vocab, text: &escaped, symbols: Vec::new(), queue: BinaryHeap::new() }.run(out);
            rest = after;
        }
    }
}

/// The bytes that a token writes.
pub(super) fn spelled(text: &str, kind: Kind) -> Cow<'_, [u8]> {
    match byte(text) {
        Some(byte) if kind == Kind::Byte => Cow::Owned(vec![byte]),
        _ if text.contains(SPACE) => Cow::Owned(text.replace(SPACE, " ").into_bytes()),
        _ => Cow::Borrowed(text.as_bytes()),
    }
}

/// The byte that a text like `<0x0A>` names.
pub(super) fn byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let plain = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit()); // `from_str_radix` takes "+A" too
    if plain { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// A score as a whole number that orders the other way: the highest score is the smallest, equal ones are equal. NaN is refused before.
fn rank(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits(); // -0 + 0 is 0
    // Floats order as their bits do, but for the sign, and negative ones backwards.
    if bits >> 31 == 0 { !(bits | 1 << 31) } else { bits }
}

/// A run of characters that has become one; a linked list over the text. A symbol that another has taken in has no length.
struct Symbol {
    start: u32,
    len: u32,
    prev: u32,
    next: u32,
    id: u32,
}

/// A merge that may be made: ordered by rank, then by position. What it makes is remembered by its length and its id.
type Candidate = Reverse<(u64, u32, u32)>;

struct Merging<'a> {
    spm: &'a Spm,
    vocab: &'a Vocabulary,
    text: &'a str,
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Candidate>,
}

impl Merging<'_> {
    /// n log n for any text.
    fn run(mut self, out: &mut Vec<u32>) {
        for (start, c) in self.text.char_indices() {
            let (i, len) = (self.symbols.len() as u32, c.len_utf8());
            let id = self.token(start, len).unwrap_or(NONE);
            self.symbols.push(Symbol { start: start as u32, len: len as u32, prev: i.wrapping_sub(1), next: i + 1, id }); // 0 - 1 is END
        }
        match self.symbols.last_mut() {
            Some(last) => last.next = END,
            None => return,
        }
        let first: Vec<Candidate> = (1..self.symbols.len() as u32).filter_map(|right| self.candidate(right - 1, right)).collect();
        self.queue = BinaryHeap::from(first);
        while let Some(Reverse((key, len, id))) = self.queue.pop() {
            self.merge(key as u32, len, id);
        }
        for s in self.symbols.iter().filter(|s| s.len > 0) {
            if s.id != NONE {
                out.push(s.id);
            } else {
                let bytes = &self.text.as_bytes()[s.start as usize..(s.start + s.len) as usize];
                out.extend(bytes.iter().map(|&b| self.spm.bytes[usize::from(b)]).filter(|&id| id != NONE));
            }
        }
    }

    fn merge(&mut self, left: u32, len: u32, id: u32) {
        let Symbol { len: left_len, prev: before, next: right, .. } = self.symbols[left as usize];
        if left_len == 0 || right == END || left_len + self.symbols[right as usize].len != len {
            return; // one of the two has merged with another meanwhile
        }
        let after = self.symbols[right as usize].next;
        self.symbols[right as usize].len = 0;
        let merged = &mut self.symbols[left as usize];
        (merged.len, merged.next, merged.id) = (len, after, id);
        if after != END {
            self.symbols[after as usize].prev = left;
            self.queue.extend(self.candidate(left, after));
        }
        if before != END {
            self.queue.extend(self.candidate(before, left));
        }
    }

    fn candidate(&self, left: u32, right: u32) -> Option<Candidate> {
        let (l, r) = (&self.symbols[left as usize], &self.symbols[right as usize]);
        let len = l.len + r.len;
        let id = self.token(l.start as usize, len as usize)?;
        let rank = self.spm.ranks[id as usize];
        Some(Reverse((u64::from(rank) << 32 | u64::from(left), len, id)))
    }

    fn token(&self, start: usize, len: usize) -> Option<u32> {
        if len > self.spm.longest {
            return None;
        }
        self.spm.index.get(self.vocab, &self.text[start..start + len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_token_is_two_hexadecimal_digits() {
        assert_eq!([byte("<0x0A>"), byte("<0xff>"), byte("<0xA>"), byte("<0x+A>"), byte("0x0A")], [Some(10), Some(255), None, None, None]);
    }

    #[test]
    fn the_higher_the_score_the_lower_the_rank() {
        let falling = [f32::INFINITY, 3e9, 5.0, 1.0, 1e-40, 0.0, -1e-40, -1.0, -255_504.0, f32::NEG_INFINITY];
        assert!(falling.windows(2).all(|pair| rank(pair[0]) < rank(pair[1])));
        assert_eq!(rank(0.0), rank(-0.0));
    }
}
