//! What the bytes of each block mean, one weight after the other in the plainest way. All numbers are little-endian, `d` and `m` are f16.
//!
//! Source: `ggml-quants.c` and `ggml-common.h` of <https://github.com/ggml-org/ggml>. No product here is fused with the sum that follows.

use half::{bf16, f16};

use super::Format;

impl Format {
    /// The numbers that whole blocks of this format stand for: `bytes` is `[blocks, block_bytes]`, `out` is `[blocks, block_len]`.
    ///
    /// Never panics in release, whatever the bytes: non-finite scales give non-finite numbers. Lengths that do not belong together are the
    /// caller's bug, caught by a debug assertion; without it the whole blocks that both slices have are decoded and the rest of `out` stays.
    pub fn dequantize(self, bytes: &[u8], out: &mut [f32]) {
        debug_assert_eq!(bytes.len() % self.block_bytes(), 0, "{} bytes are not whole blocks of {}", bytes.len(), self.name());
        debug_assert_eq!(bytes.len() / self.block_bytes() * self.block_len(), out.len(), "blocks and room for {} differ", self.name());
        match self {
            Format::F32 => each(bytes, out, |b, o| *o = [f32::from_le_bytes(*b)]),
            Format::F16 => each(bytes, out, |b, o| *o = [f16::from_le_bytes(*b).to_f32()]),
            Format::BF16 => each(bytes, out, |b, o| *o = [bf16::from_le_bytes(*b).to_f32()]),
            Format::Q4_0 => each(bytes, out, q4_0),
            Format::Q4_1 => each(bytes, out, q4_1),
            Format::Q5_0 => each(bytes, out, q5_0),
            Format::Q5_1 => each(bytes, out, q5_1),
            Format::Q8_0 => each(bytes, out, q8_0),
            Format::Q4_K => each(bytes, out, q4_k),
            Format::Q5_K => each(bytes, out, q5_k),
            Format::Q6_K => each(bytes, out, q6_k),
        }
    }
}

/// Block by block: `B` bytes are `N` weights.
fn each<const B: usize, const N: usize>(bytes: &[u8], out: &mut [f32], decode: impl Fn(&[u8; B], &mut [f32; N])) {
    for (block, weights) in bytes.as_chunks().0.iter().zip(out.as_chunks_mut().0) {
        decode(block, weights);
    }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Weight `i` of a block of 32: the low nibbles are weights 0 to 15, the high ones 16 to 31.
fn nibble_32(qs: &[u8], i: usize) -> u8 {
    if i < 16 { qs[i] & 15 } else { qs[i - 16] >> 4 }
}

/// The fifth bit of weight `i` of a block of 32: bit `i` of a little-endian u32.
fn fifth_bit_32(qh: &[u8], i: usize) -> u8 {
    (qh[i / 8] >> (i % 8) & 1) << 4
}

/// `d: f16, qs: [u8; 16]`. Weight = d * (q - 8).
fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let (d, qs) = (half_at(block, 0), &block[2..]);
    for (i, w) in out.iter_mut().enumerate() {
        *w = d * (f32::from(nibble_32(qs, i)) - 8.0);
    }
}

/// `d: f16, m: f16, qs: [u8; 16]`. Weight = d * q + m.
fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (d, m, qs) = (half_at(block, 0), half_at(block, 2), &block[4..]);
    for (i, w) in out.iter_mut().enumerate() {
        *w = d * f32::from(nibble_32(qs, i)) + m;
    }
}

/// `d: f16, qh: [u8; 4], qs: [u8; 16]`. Weight = d * (q - 16), q of five bits with the fifth in `qh`.
fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let (d, qh, qs) = (half_at(block, 0), &block[2..6], &block[6..]);
    for (i, w) in out.iter_mut().enumerate() {
        *w = d * (f32::from(nibble_32(qs, i) | fifth_bit_32(qh, i)) - 16.0);
    }
}

/// `d: f16, m: f16, qh: [u8; 4], qs: [u8; 16]`. Weight = d * q + m, q of five bits with the fifth in `qh`.
fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (d, m, qh, qs) = (half_at(block, 0), half_at(block, 2), &block[4..8], &block[8..]);
    for (i, w) in out.iter_mut().enumerate() {
        *w = d * f32::from(nibble_32(qs, i) | fifth_bit_32(qh, i)) + m;
    }
}

/// `d: f16, qs: [i8; 32]`. Weight = d * q.
fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let (d, qs) = (half_at(block, 0), &block[2..]);
    for (i, w) in out.iter_mut().enumerate() {
        *w = d * f32::from(qs[i].cast_signed());
    }
}

/// Scale and minimum, six bits each, of sub-block `j` (0 to 7, of 32 weights) out of the 12 packed bytes of Q4_K and Q5_K.
///
/// Sub-blocks 0 to 3 are the low six bits of byte `j` (scale) and `j + 4` (minimum). Of 4 to 7 byte `j + 4` has the low four bits of both,
/// scale below minimum, and the top two bits of bytes `j - 4` and `j` have the rest.
pub fn k_scale_min(packed: &[u8; 12], j: usize) -> (u8, u8) {
    debug_assert!(j < 8);
    if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        ((packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4, (packed[j + 4] >> 4) | (packed[j] >> 6) << 4)
    }
}

/// The scale and offset of weight `i`'s sub-block in a Q4_K or Q5_K block: (d * scale, m * minimum).
fn k_scale_offset(block: &[u8], i: usize) -> (f32, f32) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    let mut packed = [0; 12];
    packed.copy_from_slice(&block[4..16]);
    let (scale, min) = k_scale_min(&packed, i / 32);
    (d * f32::from(scale), m * f32::from(min))
}

/// Weight `i` of 256: in each 32 bytes the low nibbles are 32 weights and the high nibbles the next 32.
fn nibble_256(qs: &[u8], i: usize) -> u8 {
    qs[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15
}

/// `d: f16, m: f16, scales: [u8; 12], qs: [u8; 128]`. Weight = d * scale * q - m * minimum, scale and minimum as [`k_scale_min`] says.
fn q4_k(block: &[u8; 144], out: &mut [f32; 256]) {
    for (i, w) in out.iter_mut().enumerate() {
        let (scale, offset) = k_scale_offset(block, i);
        *w = scale * f32::from(nibble_256(&block[16..], i)) - offset;
    }
}

/// `d: f16, m: f16, scales: [u8; 12], qh: [u8; 32], qs: [u8; 128]`. As Q4_K; bit `i / 32` of `qh[i % 32]` is the fifth of weight `i`.
fn q5_k(block: &[u8; 176], out: &mut [f32; 256]) {
    let (qh, qs) = (&block[16..48], &block[48..]);
    for (i, w) in out.iter_mut().enumerate() {
        let (scale, offset) = k_scale_offset(block, i);
        let fifth = (qh[i % 32] >> (i / 32) & 1) << 4;
        *w = scale * f32::from(nibble_256(qs, i) | fifth) - offset;
    }
}

/// `ql: [u8; 128], qh: [u8; 64], scales: [i8; 16], d: f16`. Weight = d * scale * (q - 32), a scale for 16 weights, q of six bits.
///
/// Each half of 128 weights is four quarters of 32. Its 64 bytes of `ql` hold quarters 0 and 1 in the low nibbles, 2 and 3 in the high
/// ones; of its 32 bytes of `qh` each has two bits for the same place in every quarter, quarter 0 lowest.
fn q6_k(block: &[u8; 210], out: &mut [f32; 256]) {
    let (ql, qh, scales, d) = (&block[..128], &block[128..192], &block[192..208], half_at(block, 208));
    for (i, w) in out.iter_mut().enumerate() {
        let (half, quarter, at) = (i / 128, i / 32 % 4, i % 32);
        let low = ql[half * 64 + quarter % 2 * 32 + at] >> (quarter / 2 * 4) & 15;
        let high = qh[half * 32 + at] >> (quarter * 2) & 3;
        *w = d * f32::from(scales[i / 16].cast_signed()) * (f32::from(low | high << 4) - 32.0);
    }
}
