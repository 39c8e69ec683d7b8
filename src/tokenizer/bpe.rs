//! Byte-level byte pair encoding: a piece of text is spelled in one letter a byte, and pairs merge by ascending rank.
//!
//! Source: GPT-2's `encoder.py` for the letters, llama.cpp's `llm_tokenizer_bpe` for what happens to letters that a vocabulary
//! lacks: they are dropped, and nothing merges across them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasher, Hasher, RandomState};

use super::pretokenize::Pretokenizer;
use super::vocab::{Index, Kind, Vocabulary, take_strings};
use crate::error::{Result, bail, error};
use crate::gguf::Metadata;

/// No token: a letter that the vocabulary lacks, or a symbol that a merge has absorbed.
const NONE: u32 = u32::MAX;
/// No neighbour on that side.
const END: u32 = u32::MAX;
/// Bytes that merge with each other at most, so that a position fits u32. Only texts of 4 GiB without a space are cut here.
const MAX_PIECE: usize = u32::MAX as usize;
const MERGES: &str = "tokenizer.ggml.merges";

/// The merge table and the letters, all as token ids.
#[derive(Debug, Clone)]
pub(super) struct Bpe {
    pre: Pretokenizer,
    /// The token of each byte's letter.
    letters: Box<[u32; 256]>,
    /// By rank.
    merges: Vec<Merge>,
    /// [`pair`] -> rank.
    ranks: HashMap<u64, u32, Seeded>,
    /// For pre-tokenizers whose whole pieces are looked up before anything merges.
    whole: Option<Index>,
}

#[derive(Debug, Clone, Copy)]
struct Merge {
    left: u32,
    right: u32,
    merged: u32,
}

impl Bpe {
    /// Takes the merges out of the metadata. Letters and merges that would make a control token are left out: text never becomes one.
    pub(super) fn from_metadata(meta: &mut Metadata, vocab: &Vocabulary, pre: Pretokenizer) -> Result<Bpe> {
        let index = vocab.index(|_| true)?;
        let is_control = |id: u32| vocab.kind(id).is_some_and(Kind::is_control);
        let texts = take_strings(meta, MERGES)?;
        let mut merges = Vec::with_capacity(texts.len());
        let mut ranks = HashMap::with_capacity_and_hasher(texts.len(), Seeded::new());
        let mut joined = String::new();
        for (rank, text) in texts.iter().enumerate() {
            // The letters of the alphabet are never a space, so the first one parts left from right.
            let Some((left, right)) = text.split_once(' ') else {
                bail!(Malformed, "{MERGES}[{rank}] is {text:?}; two tokens with a space between them are needed");
            };
            joined.clear();
            joined.push_str(left);
            joined.push_str(right);
            let id = |t: &str| {
                let unknown = || error!(Malformed, "{MERGES}[{rank}] is {text:?}, but the vocabulary has no token {t:?}");
                index.get(vocab, t).ok_or_else(unknown)
            };
            let merge = Merge { left: id(left)?, right: id(right)?, merged: id(&joined)? };
            merges.push(merge);
            if !is_control(merge.merged) {
                ranks.entry(pair(merge.left, merge.right)).or_insert(rank as u32); // a header has at most 256 MiB
            }
        }
        let mut letters = Box::new([NONE; 256]);
        for byte in 0..=255u8 {
            let mut utf8 = [0; 4];
            let id = index.get(vocab, letter(byte).encode_utf8(&mut utf8)).filter(|&id| !is_control(id));
            letters[usize::from(byte)] = id.unwrap_or(NONE);
        }
        let whole = if pre.takes_whole_pieces() { Some(vocab.index(|kind| !kind.is_control())?) } else { None };
        Ok(Bpe { pre, letters, merges, ranks, whole })
    }

    /// Appends the tokens of a text that holds no special token.
    pub(super) fn encode(&self, vocab: &Vocabulary, text: &str, out: &mut Vec<u32>) {
        let mut work = Symbols::default();
        self.pre.split(text, |piece| {
            if let Some(id) = self.whole.as_ref().and_then(|index| index.get(vocab, &spelling(piece))) {
                out.push(id);
                return;
            }
            self.encode_piece(piece, &mut work, out);
        });
    }

    fn encode_piece(&self, piece: &str, work: &mut Symbols, out: &mut Vec<u32>) {
        for bytes in piece.as_bytes().chunks(MAX_PIECE) {
            work.ids.clear();
            work.ids.extend(bytes.iter().map(|&b| self.letters[usize::from(b)]));
            self.merge(work);
            out.extend(work.ids.iter().filter(|&&id| id != NONE));
        }
    }

    /// Merges by ascending rank, the leftmost first among equals, until no neighbours merge: n log n for any text.
    fn merge(&self, s: &mut Symbols) {
        let n = s.ids.len() as u32;
        s.prev.clear();
        s.prev.extend((0..n).map(|i| i.wrapping_sub(1))); // 0 - 1 is END
        s.next.clear();
        s.next.extend((1..=n).map(|i| if i == n { END } else { i }));
        let mut queue = std::mem::take(&mut s.queue).into_vec();
        queue.clear();
        queue.extend((1..n).filter_map(|right| self.candidate(&s.ids, right - 1, right)));
        s.queue = BinaryHeap::from(queue);
        while let Some(Reverse(candidate)) = s.queue.pop() {
            let (rank, left) = ((candidate >> 32) as usize, candidate as u32);
            let (Merge { left: left_id, right: right_id, merged }, right) = (self.merges[rank], s.next[left as usize]);
            if s.ids[left as usize] != left_id || right == END || s.ids[right as usize] != right_id {
                continue; // one of the two has merged with another meanwhile
            }
            let (before, after) = (s.prev[left as usize], s.next[right as usize]);
            s.ids[left as usize] = merged;
            s.ids[right as usize] = NONE;
            s.next[left as usize] = after;
            if after != END {
                s.prev[after as usize] = left;
                s.queue.extend(self.candidate(&s.ids, left, after));
            }
            if before != END {
                s.queue.extend(self.candidate(&s.ids, before, left));
            }
        }
    }

    /// A pair that may merge, as a number that orders as the merges are made: the rank, then the position.
    fn candidate(&self, ids: &[u32], left: u32, right: u32) -> Option<Reverse<u64>> {
        let rank = *self.ranks.get(&pair(ids[left as usize], ids[right as usize]))?;
        Some(Reverse(pair(rank, left)))
    }
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// A hash for [`pair`]s: one multiplication, several times faster than the standard one. It is seeded, because the file chooses the keys.
#[derive(Debug, Clone, Copy)]
struct Seeded(u64);

impl Seeded {
    fn new() -> Self {
        Self(RandomState::new().hash_one(0))
    }
}

impl BuildHasher for Seeded {
    type Hasher = Self;
    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for Seeded {
    fn write_u64(&mut self, key: u64) {
        let product = u128::from(self.0 ^ key) * 0x9E37_79B9_7F4A_7C15; // 2^64 / the golden ratio
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.write_u64(b.into()));
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// The symbols of a piece as a linked list over positions, and what may merge; kept from piece to piece for its memory.
#[derive(Default)]
struct Symbols {
    ids: Vec<u32>,
    prev: Vec<u32>,
    next: Vec<u32>,
    queue: BinaryHeap<Reverse<u64>>,
}

/// Whether a byte is its own letter (printable in Latin-1); the others are the characters from U+0100 on, in ascending order.
const fn is_own_letter(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// The bytes that are not their own letters, ascending: U+0100 is the letter of the first.
const OTHERS: [u8; 68] = {
    let (mut others, mut n, mut byte) = ([0; 68], 0, 0);
    while byte < 256 {
        if !is_own_letter(byte as u8) {
            others[n] = byte as u8;
            n += 1;
        }
        byte += 1;
    }
    others
};

/// The letter of a byte.
fn letter(byte: u8) -> char {
    match OTHERS.binary_search(&byte) {
        Ok(n) => char::from_u32(0x100 + n as u32).unwrap_or_default(),
        Err(_) => char::from(byte),
    }
}

/// A text in letters.
fn spelling(text: &str) -> String {
    text.bytes().map(letter).collect()
}

/// The byte of a letter; `None` for characters outside the alphabet.
fn byte(letter: char) -> Option<u8> {
    match u32::from(letter) {
        code @ 0..=0xFF => is_own_letter(code as u8).then_some(code as u8),
        code => OTHERS.get((code - 0x100) as usize).copied(),
    }
}

/// The bytes that a token's text spells. A character outside the alphabet stands for itself.
pub(super) fn spelled(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte(c) {
            Some(b) => bytes.push(b),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_has_a_letter_for_each_byte_and_back() {
        for b in 0..=255 {
            assert_eq!(byte(letter(b)), Some(b));
        }
        assert_eq!((letter(b' '), letter(b'\n'), letter(b'a'), letter(0xAD)), ('Ġ', 'Ċ', 'a', 'Ń'));
        assert_eq!((byte(' '), byte('你'), byte('\u{ad}')), (None, None, None));
        assert_eq!(spelled("Ġhé"), [b' ', b'h', 0xE9]);
    }

    #[cfg(not(target_arch = "wasm32"))]
    mod properties {
        use super::*;
        use proptest::prelude::*;

        /// The obvious form: look through all neighbours for the lowest rank, again and again.
        fn obvious(bpe: &Bpe, mut ids: Vec<u32>) -> Vec<u32> {
            loop {
                let best = (1..ids.len()).filter_map(|r| Some((*bpe.ranks.get(&pair(ids[r - 1], ids[r]))?, r))).min();
                let Some((rank, right)) = best else { break };
                ids[right - 1] = bpe.merges[rank as usize].merged;
                ids.remove(right);
            }
            ids.retain(|&id| id != NONE);
            ids
        }

        /// Letters a, b, c (d is missing), and merges of what there is so far.
        fn table() -> impl Strategy<Value = Bpe> {
            prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..24).prop_map(|picks| {
                let mut letters = Box::new([NONE; 256]);
                (0..3).for_each(|i| letters[usize::from(b'a') + i] = i as u32);
                let (mut merges, mut ranks) = (Vec::new(), HashMap::with_hasher(Seeded::new()));
                for (l, r) in picks {
                    let n = 3 + merges.len();
                    let merge = Merge { left: l.index(n) as u32, right: r.index(n) as u32, merged: n as u32 };
                    ranks.entry(pair(merge.left, merge.right)).or_insert(merges.len() as u32);
                    merges.push(merge);
                }
                Bpe { pre: Pretokenizer::Gpt2, letters, merges, ranks, whole: None }
            })
        }

        proptest! {
            #[test]
            fn merging_with_a_queue_is_merging_by_the_obvious_way(bpe in table(), text in "[abcd]{0,40}") {
                let mut out = Vec::new();
                bpe.encode_piece(&text, &mut Symbols::default(), &mut out);
                let ids = text.bytes().map(|b| bpe.letters[usize::from(b)]).collect();
                prop_assert_eq!(out, obvious(&bpe, ids));
            }
        }
    }
}
