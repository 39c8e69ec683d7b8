//! Finding the tokens whose text counts as a whole: control tokens and user-defined ones.
//!
//! The longest texts are looked for first in the whole text, then the next shorter in what is left, as llama.cpp's
//! `tokenizer_st_partition` does. (Where texts of one length overlap, its order is unspecified; here the leftmost wins.)

use super::vocab::{Kind, Vocabulary};

/// A part of a text: a token, or text between tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'t> {
    Token(u32),
    Text(&'t str),
}

/// A set of tokens to look for.
#[derive(Debug, Clone)]
pub(super) struct Specials {
    /// By descending length of the text.
    groups: Vec<Group>,
}

/// The tokens whose texts have a length.
#[derive(Debug, Clone)]
struct Group {
    len: usize,
    /// Which bytes begin one of the texts.
    first: Box<[bool; 256]>,
    /// By ascending text.
    ids: Vec<u32>,
}

impl Specials {
    /// The tokens of the kinds that are wanted.
    pub(super) fn new(vocab: &Vocabulary, wanted: impl Fn(Kind) -> bool) -> Self {
        let mut all: Vec<(&str, u32)> = vocab.iter().filter(|&(_, _, kind)| wanted(kind)).map(|(id, text, _)| (text, id)).collect();
        all.sort_unstable_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then(a.cmp(b)));
        let group = |tokens: &[(&str, u32)]| {
            let mut first = Box::new([false; 256]);
            tokens.iter().for_each(|(text, _)| first[usize::from(text.as_bytes()[0])] = true); // never empty: see `Vocabulary::iter`
            Group { len: tokens[0].0.len(), first, ids: tokens.iter().map(|&(_, id)| id).collect() }
        };
        Self { groups: all.chunk_by(|(a, _), (b, _)| a.len() == b.len()).map(group).collect() }
    }

    /// Cuts a text at the tokens. `mark`: a character that, right behind a token of a single character, says that it is none
    /// (a longer token's text is broken by a mark inside it).
    pub(super) fn split<'t>(&self, vocab: &Vocabulary, text: &'t str, mark: Option<char>) -> Vec<Part<'t>> {
        let mut parts = vec![Part::Text(text)];
        for group in &self.groups {
            let mut next = Vec::with_capacity(parts.len());
            for part in parts {
                match part {
                    Part::Text(text) => group.split(vocab, text, mark, &mut next),
                    token => next.push(token),
                }
            }
            parts = next;
        }
        parts
    }

    /// The token whose text begins the given text: the longest of them.
    pub(super) fn at_start(&self, vocab: &Vocabulary, text: &str) -> Option<u32> {
        self.groups.iter().find_map(|group| group.at(vocab, text, 0))
    }

    /// The token with exactly this text.
    pub(super) fn exact(&self, vocab: &Vocabulary, text: &str) -> Option<u32> {
        self.groups.iter().find(|group| group.len == text.len())?.at(vocab, text, 0)
    }

    /// All of them, the longest first.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.groups.iter().flat_map(|group| group.ids.iter().copied())
    }
}

impl Group {
    /// The token whose text stands at a byte position.
    fn at(&self, vocab: &Vocabulary, text: &str, at: usize) -> Option<u32> {
        if !self.first[usize::from(*text.as_bytes().get(at)?)] {
            return None;
        }
        let candidate = text.get(at..at + self.len)?;
        let found = self.ids.binary_search_by(|&id| vocab.text(id).unwrap_or_default().cmp(candidate)).ok()?;
        Some(self.ids[found])
    }

    fn split<'t>(&self, vocab: &Vocabulary, text: &'t str, mark: Option<char>, parts: &mut Vec<Part<'t>>) {
        let (mut start, mut at) = (0, 0);
        while at + self.len <= text.len() {
            match self.at(vocab, text, at) {
                Some(id) if !self.is_disowned(&text[at..], mark) => {
                    if start < at {
                        parts.push(Part::Text(&text[start..at]));
                    }
                    parts.push(Part::Token(id));
                    at += self.len;
                    start = at;
                }
                _ => at += 1,
            }
        }
        if start < text.len() {
            parts.push(Part::Text(&text[start..]));
        }
    }

    fn is_disowned(&self, found: &str, mark: Option<char>) -> bool {
        let mut chars = found.chars();
        mark.is_some() && chars.next().is_some_and(|c| c.len_utf8() == self.len) && chars.next() == mark
    }
}
