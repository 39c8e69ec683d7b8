//! Makes blocks for tests and benchmarks: plain encoders (valid, not optimal) and random valid blocks. Not part of the public interface.

use half::{bf16, f16};

use super::Format;

/// Reproducible random numbers (SplitMix64, <https://prng.di.unimi.it/splitmix64.c>).
#[derive(Debug, Clone)]
pub struct Rng(pub u64);

impl Rng {
    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
    /// A whole number below `n` (which is not 0).
    pub fn below(&mut self, n: usize) -> usize {
        (self.next_u64() % n as u64) as usize
    }
    /// Evenly in [-1, 1).
    pub fn signed(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
    /// `n` numbers shaped like weights: a bell around 0 of standard deviation `sigma`.
    pub fn weights(&mut self, n: usize, sigma: f32) -> Vec<f32> {
        // The sum of four even ones has variance 4/3.
        (0..n).map(|_| (0..4).map(|_| self.signed()).sum::<f32>() * sigma * 0.866).collect()
    }
}

/// `blocks` blocks of random quants whose scales are finite and about the size of real ones.
pub fn random_blocks(format: Format, blocks: usize, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(blocks * format.block_bytes());
    for _ in 0..blocks {
        let mut block: Vec<u8> = (0..format.block_bytes()).map(|_| rng.next_u64() as u8).collect();
        match format {
            Format::F32 => block.copy_from_slice(&rng.signed().to_le_bytes()),
            Format::BF16 => block.copy_from_slice(&bf16::from_f32(rng.signed()).to_le_bytes()),
            _ => {
                for &at in half_offsets(format) {
                    put_half(&mut block, at, rng.signed() * 0.1);
                }
            }
        }
        bytes.extend(block);
    }
    bytes
}

/// Where a block of this format keeps f16 numbers.
pub fn half_offsets(format: Format) -> &'static [usize] {
    match format {
        Format::F32 | Format::BF16 => &[],
        Format::F16 | Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => &[0],
        Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K => &[0, 2],
        Format::Q6_K => &[208],
    }
}

/// `row` in this format; its length is a multiple of the block's.
pub fn encode(format: Format, row: &[f32]) -> Vec<u8> {
    assert_eq!(row.len() % format.block_len(), 0, "{} numbers are not whole blocks of {}", row.len(), format.name());
    row.chunks_exact(format.block_len()).flat_map(|x| encode_block(format, x)).collect()
}

fn encode_block(format: Format, x: &[f32]) -> Vec<u8> {
    match format {
        Format::F32 => x[0].to_le_bytes().to_vec(),
        Format::F16 => f16::from_f32(x[0]).to_le_bytes().to_vec(),
        Format::BF16 => bf16::from_f32(x[0]).to_le_bytes().to_vec(),
        Format::Q4_0 => symmetric_32(x, 4),
        Format::Q5_0 => symmetric_32(x, 5),
        Format::Q8_0 => {
            let mut block = vec![0; 34];
            let d = put_half(&mut block, 0, amax(x) / 127.0);
            for (q, &x) in block[2..].iter_mut().zip(x) {
                *q = (quant(x, d, -127, 127) as i8).cast_unsigned();
            }
            block
        }
        Format::Q4_1 => with_minimum_32(x, 4),
        Format::Q5_1 => with_minimum_32(x, 5),
        Format::Q4_K => k_with_minimum(x, 4),
        Format::Q5_K => k_with_minimum(x, 5),
        Format::Q6_K => q6_k(x),
    }
}

fn amax(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |m, v| v.abs().max(m))
}

/// Writes `value` as f16 and gives back what was written.
fn put_half(block: &mut [u8], at: usize, value: f32) -> f32 {
    let h = f16::from_f32(value);
    block[at..at + 2].copy_from_slice(&h.to_le_bytes());
    h.to_f32()
}

/// `x / scale` rounded and kept within `low..=high`; 0 where the scale is 0.
fn quant(x: f32, scale: f32, low: i32, high: i32) -> i32 {
    if scale == 0.0 { 0.clamp(low, high) } else { ((x / scale).round() as i32).clamp(low, high) }
}

fn put_nibbles_32(qs: &mut [u8], q: &[i32]) {
    for i in 0..16 {
        qs[i] = (q[i] & 15 | (q[i + 16] & 15) << 4) as u8;
    }
}

fn put_fifth_bits_32(qh: &mut [u8], q: &[i32]) {
    let bits = q.iter().enumerate().fold(0u32, |bits, (i, q)| bits | ((q >> 4 & 1) as u32) << i);
    qh.copy_from_slice(&bits.to_le_bytes());
}

/// Q4_0 and Q5_0.
fn symmetric_32(x: &[f32], bits: u32) -> Vec<u8> {
    let center = 1 << (bits - 1);
    let at = if bits == 4 { 2 } else { 6 };
    let mut block = vec![0; at + 16];
    let d = put_half(&mut block, 0, amax(x) / (center - 1) as f32);
    let q: Vec<i32> = x.iter().map(|&x| quant(x, d, -center, center - 1) + center).collect();
    if bits == 5 {
        put_fifth_bits_32(&mut block[2..6], &q);
    }
    put_nibbles_32(&mut block[at..], &q);
    block
}

/// Q4_1 and Q5_1.
fn with_minimum_32(x: &[f32], bits: u32) -> Vec<u8> {
    let top = (1 << bits) - 1;
    let at = if bits == 4 { 4 } else { 8 };
    let mut block = vec![0; at + 16];
    let (low, high) = x.iter().fold((f32::MAX, f32::MIN), |(low, high), &x| (low.min(x), high.max(x)));
    let d = put_half(&mut block, 0, (high - low) / top as f32);
    let m = put_half(&mut block, 2, low);
    let q: Vec<i32> = x.iter().map(|&x| quant(x - m, d, 0, top)).collect();
    if bits == 5 {
        put_fifth_bits_32(&mut block[4..8], &q);
    }
    put_nibbles_32(&mut block[at..], &q);
    block
}

/// Q4_K and Q5_K.
fn k_with_minimum(x: &[f32], bits: u32) -> Vec<u8> {
    let top = (1 << bits) - 1;
    let at = if bits == 4 { 16 } else { 48 };
    let mut block = vec![0; at + 128];
    let minima: Vec<f32> = x.chunks_exact(32).map(|x| -x.iter().fold(0.0, |m: f32, &v| m.min(v))).collect();
    let scales: Vec<f32> = x.chunks_exact(32).zip(&minima).map(|(x, min)| (x.iter().fold(0.0, |m: f32, &v| m.max(v)) + min) / top as f32).collect();
    let d = put_half(&mut block, 0, amax(&scales) / 63.0);
    let m = put_half(&mut block, 2, amax(&minima) / 63.0);
    for j in 0..8 {
        let (scale, min) = (quant(scales[j], d, 0, 63), quant(minima[j], m, 0, 63));
        let packed = &mut block[4..16];
        if j < 4 {
            packed[j] |= scale as u8;
            packed[j + 4] |= min as u8;
        } else {
            packed[j + 4] = (scale & 15 | (min & 15) << 4) as u8;
            packed[j - 4] |= (scale >> 4 << 6) as u8;
            packed[j] |= (min >> 4 << 6) as u8;
        }
        for l in 0..32 {
            let q = quant(x[j * 32 + l] + m * min as f32, d * scale as f32, 0, top);
            block[at + j / 2 * 32 + l] |= ((q & 15) << (j % 2 * 4)) as u8;
            if bits == 5 {
                block[16 + l] |= (q >> 4 << j) as u8;
            }
        }
    }
    block
}

fn q6_k(x: &[f32]) -> Vec<u8> {
    let mut block = vec![0; 210];
    let scales: Vec<f32> = x.chunks_exact(16).map(|x| amax(x) / 31.0).collect();
    let d = put_half(&mut block, 208, amax(&scales) / 127.0);
    for (i, &x) in x.iter().enumerate() {
        let scale = quant(scales[i / 16], d, 0, 127);
        block[192 + i / 16] = scale as u8;
        let q = quant(x, d * scale as f32, -32, 31) + 32;
        let (half, quarter, at) = (i / 128, i / 32 % 4, i % 32);
        block[half * 64 + quarter % 2 * 32 + at] |= ((q & 15) << (quarter / 2 * 4)) as u8;
        block[128 + half * 32 + at] |= (q >> 4 << (quarter * 2)) as u8;
    }
    block
}
