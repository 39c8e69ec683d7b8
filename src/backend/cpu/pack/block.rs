//! The file's blocks as blocks of 32 weights, four weights to a word: the words are what a packed row is made of, so nothing is moved byte
//! by byte. The layouts are those of `quant/dequantize.rs`, which is the oracle.

use super::super::simd::BLOCK;
use crate::quant;
use half::f16;

/// Weights 4 i to 4 i + 3 of a block, a byte each, the first in the lowest byte.
pub type Words = [u32; BLOCK / 4];

/// Thirty-two weights: w = d q + m, or d (q - offset) with a scale for each 16 of them.
pub struct Block {
    /// The scale of each half, as f16.
    pub d: [u16; 2],
    /// The minimum, as f16.
    pub m: u16,
    /// The bits, unsigned.
    pub q: Words,
}

impl Block {
    fn new(d: u16, m: u16, q: Words) -> Self {
        Self { d: [d; 2], m, q }
    }

    /// Whether the scales are numbers.
    pub fn finite(&self) -> bool {
        const EXPONENT: u16 = 0x7c00;
        let finite = |h: u16| h & EXPONENT != EXPONENT;
        finite(self.d[0]) & finite(self.d[1]) & finite(self.m)
    }

    /// The weights as f32, `d (q - offset) + m`, with the bits `flip` of each q flipped before.
    pub fn values(&self, flip: u8, offset: i32, out: &mut [f32; BLOCK]) {
        let float = |h: u16| f16::from_bits(h).to_f32();
        let ([d0, d1], m) = (self.d.map(float), float(self.m));
        for (i, (out, word)) in out.as_chunks_mut::<4>().0.iter_mut().zip(self.q).enumerate() {
            let d = if i < BLOCK / 8 { d0 } else { d1 };
            *out = word.to_le_bytes().map(|q| d * (i32::from(q ^ flip) - offset) as f32 + m);
        }
    }
}

const LOW: u32 = 0x0f0f_0f0f;

fn half_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

fn word(b: &[u8], i: usize) -> u32 {
    u32::from_le_bytes([b[4 * i], b[4 * i + 1], b[4 * i + 2], b[4 * i + 3]])
}

fn times(d: u16, by: f32) -> u16 {
    f16::from_f32(f16::from_bits(d).to_f32() * by).to_bits()
}

/// Sixteen bytes: the first half in the low nibbles, the second in the high ones.
fn nibbles(b: &[u8]) -> Words {
    std::array::from_fn(|i| word(b, i % 4) >> (i / 4 * 4) & LOW)
}

/// Adds the fifth bits of 32 weights, a bit each.
fn fifth(q: Words, bits: u32) -> Words {
    std::array::from_fn(|i| {
        let four = bits >> (4 * i) & 15;
        q[i] | ((four * 0x0020_4081) & 0x0101_0101) << 4 // bit k times 2^(7 k) is bit 8 k
    })
}

pub fn q4_0(b: &[u8; 18]) -> [Block; 1] {
    let d = half_at(b, 0);
    [Block::new(d, times(d, -8.0), nibbles(&b[2..]))]
}

pub fn q4_1(b: &[u8; 20]) -> [Block; 1] {
    [Block::new(half_at(b, 0), half_at(b, 2), nibbles(&b[4..]))]
}

pub fn q5_0(b: &[u8; 22]) -> [Block; 1] {
    let d = half_at(b, 0);
    [Block::new(d, times(d, -16.0), fifth(nibbles(&b[6..]), word(&b[2..], 0)))]
}

pub fn q5_1(b: &[u8; 24]) -> [Block; 1] {
    [Block::new(half_at(b, 0), half_at(b, 2), fifth(nibbles(&b[8..]), word(&b[4..], 0)))]
}

/// Signed bytes, plus 128 or not.
pub fn q8_0(b: &[u8; 34], bias: u8) -> [Block; 1] {
    let bias = u32::from_le_bytes([bias; 4]);
    [Block::new(half_at(b, 0), 0, std::array::from_fn(|i| word(&b[2..], i) ^ bias))]
}

/// The words of the j-th 32 of 256 weights: nibbles, low ones before high ones in every 32 bytes.
fn k_nibbles(b: &[u8], j: usize) -> Words {
    std::array::from_fn(|i| word(&b[32 * (j / 2)..], i) >> (4 * (j % 2)) & LOW)
}

fn k_block(b: &[u8], j: usize, q: Words) -> Block {
    let (scale, min) = quant::k_scale_min(b[4..16].as_array().unwrap_or(&[0; 12]), j);
    Block::new(times(half_at(b, 0), f32::from(scale)), times(half_at(b, 2), -f32::from(min)), q)
}

pub fn q4_k(b: &[u8; 144]) -> [Block; 8] {
    std::array::from_fn(|j| k_block(b, j, k_nibbles(&b[16..], j)))
}

pub fn q5_k(b: &[u8; 176]) -> [Block; 8] {
    std::array::from_fn(|j| {
        let low = k_nibbles(&b[48..], j);
        k_block(b, j, std::array::from_fn(|i| low[i] | (word(&b[16..], i) >> j & 0x0101_0101) << 4))
    })
}

/// Weights 128 half + 32 quarter + k: a nibble of 64 bytes, two bits of 32.
pub fn q6_k(b: &[u8; 210]) -> [Block; 8] {
    let (low, high, scales, d) = (&b[..128], &b[128..192], &b[192..208], half_at(b, 208));
    std::array::from_fn(|j| {
        let (half, quarter) = (j / 4, j % 4);
        let q = std::array::from_fn(|i| {
            let nibble = word(&low[64 * half + 32 * (quarter % 2)..], i) >> (quarter / 2 * 4) & LOW;
            nibble | (word(&high[32 * half..], i) >> (2 * quarter) & 0x0303_0303) << 4
        });
        Block { d: [0, 1].map(|i| times(d, f32::from(scales[2 * j + i] as i8))), m: 0, q }
    })
}
