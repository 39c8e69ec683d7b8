//! Eight rows of 32 weights, side by side. Four columns of each row follow one another (32 bytes: a 32-bit lane for each row).
//!
//! Bits that do not fill a byte share bytes so that taking them out costs few instructions, each of which takes them of all 32 bytes:
//!
//! - 4 bits: of two fours of columns, the first is in the low nibbles and the second in the high ones.
//! - 5 bits: the fours 0 to 4 lie in the low bits of five times 32 bytes; the fours 5 to 7 in what is free above them.
//! - 6 bits: of four fours, 0 to 2 lie in the low bits of three times 32 bytes; the last in the two bits above each.

use super::block::{Block, Words};
use super::{super::simd::QUAD, ROWS};

/// Eight rows of four columns, a byte each.
pub type Quads = [u8; ROWS * QUAD];

/// Eight rows of 32 weights w = d q + m, q from 0 to 15: Q4_0, Q4_1, Q4_K.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Group4 {
    pub d: [u16; ROWS],
    pub m: [u16; ROWS],
    pub q: [Quads; 4],
}

/// Eight rows of 32 weights w = d q + m, q from 0 to 31: Q5_0, Q5_1, Q5_K.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Group5 {
    pub d: [u16; ROWS],
    pub m: [u16; ROWS],
    pub q: [Quads; 5],
}

/// Eight rows of 32 weights w = d (q - 32), q from 0 to 63, a scale for each half of them: Q6_K.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Group6 {
    pub d: [[u16; ROWS]; 2],
    pub q: [[Quads; 3]; 2],
}

/// Eight rows of 32 weights w = d q, q from -128 to 127, stored with or without a bias of 128: Q8_0.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Group8 {
    pub d: [u16; ROWS],
    pub q: [Quads; 8],
}

/// Eight rows of which each is a [`Block`].
pub trait Group: Sized {
    /// Puts a row in its place.
    fn put(&mut self, lane: usize, block: &Block);
    /// Takes it out.
    fn get(&self, lane: usize) -> Block;
}

fn set(quads: &mut Quads, lane: usize, word: u32) {
    quads.as_chunks_mut().0[lane] = word.to_le_bytes();
}

fn word(quads: &Quads, lane: usize) -> u32 {
    u32::from_le_bytes(quads.as_chunks().0[lane])
}

/// The bits `mask` of each byte.
const fn each(mask: u8) -> u32 {
    u32::from_le_bytes([mask; 4])
}

impl Group for Group4 {
    fn put(&mut self, lane: usize, block: &Block) {
        (self.d[lane], self.m[lane]) = (block.d[0], block.m);
        for (to, pair) in self.q.iter_mut().zip(block.q.as_chunks::<2>().0) {
            set(to, lane, pair[0] | pair[1] << 4);
        }
    }
    fn get(&self, lane: usize) -> Block {
        let q = std::array::from_fn(|i| word(&self.q[i / 2], lane) >> (i % 2 * 4) & each(15));
        Block { d: [self.d[lane]; 2], m: self.m[lane], q }
    }
}

impl Group for Group5 {
    fn put(&mut self, lane: usize, block: &Block) {
        (self.d[lane], self.m[lane]) = (block.d[0], block.m);
        let q = &block.q;
        let words = [
            q[0] | (q[5] & each(7)) << 5,
            q[1] | (q[5] & each(24)) << 3 | (q[7] & each(8)) << 2,
            q[2] | (q[6] & each(7)) << 5,
            q[3] | (q[6] & each(24)) << 3 | (q[7] & each(16)) << 1,
            q[4] | (q[7] & each(7)) << 5,
        ];
        self.q.iter_mut().zip(words).for_each(|(to, w)| set(to, lane, w));
    }
    fn get(&self, lane: usize) -> Block {
        let words: [u32; 5] = std::array::from_fn(|i| word(&self.q[i], lane));
        let [a, b, c, d, e] = words;
        let low = words.map(|w| w & each(31));
        let top = |w: u32, mask: u8, right: u32| (w & each(mask)) >> right;
        let q: Words = [
            low[0],
            low[1],
            low[2],
            low[3],
            low[4],
            top(a, 0xe0, 5) | top(b, 0xc0, 3),
            top(c, 0xe0, 5) | top(d, 0xc0, 3),
            top(e, 0xe0, 5) | top(b, 0x20, 2) | top(d, 0x20, 1),
        ];
        Block { d: [self.d[lane]; 2], m: self.m[lane], q }
    }
}

impl Group for Group6 {
    fn put(&mut self, lane: usize, block: &Block) {
        for (half, (to, q)) in self.q.iter_mut().zip(block.q.as_chunks::<4>().0).enumerate() {
            self.d[half][lane] = block.d[half];
            for (i, to) in to.iter_mut().enumerate() {
                set(to, lane, q[i] | (q[3] >> (2 * i) & each(3)) << 6);
            }
        }
    }
    fn get(&self, lane: usize) -> Block {
        let q = std::array::from_fn(|i| {
            let words = &self.q[i / 4];
            match i % 4 {
                3 => (0..3).fold(0, |q, i| q | (word(&words[i], lane) & each(0xc0)) >> (6 - 2 * i)),
                i => word(&words[i], lane) & each(63),
            }
        });
        Block { d: [self.d[0][lane], self.d[1][lane]], m: 0, q }
    }
}

impl Group for Group8 {
    fn put(&mut self, lane: usize, block: &Block) {
        self.d[lane] = block.d[0];
        self.q.iter_mut().zip(block.q).for_each(|(to, w)| set(to, lane, w));
    }
    fn get(&self, lane: usize) -> Block {
        Block { d: [self.d[lane]; 2], m: 0, q: std::array::from_fn(|i| word(&self.q[i], lane)) }
    }
}
