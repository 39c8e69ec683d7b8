//! Block formats of GGUF tensors and their scalar meaning: the oracle of every kernel.
//!
//! Layouts: ggml's `ggml-common.h`. All multi-byte numbers are little-endian.

use half::{bf16, f16};

use crate::error::{Result, bail};

/// How the numbers of a tensor are stored.
#[allow(non_camel_case_types, missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4_K,
    Q5_K,
    Q6_K,
}

impl Format {
    /// Every supported format.
    pub const ALL: [Format; 11] = {
        use Format::*;
        [F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K]
    };

    /// Weights in a block.
    pub const fn block_len(self) -> usize {
        use Format::*;
        match self {
            F32 | F16 | BF16 => 1,
            Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0 => 32,
            Q4_K | Q5_K | Q6_K => 256,
        }
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        use Format::*;
        match self {
            F32 => 4,
            F16 | BF16 => 2,
            Q4_0 => 18,
            Q4_1 => 20,
            Q5_0 => 22,
            Q5_1 => 24,
            Q8_0 => 34,
            Q4_K => 144,
            Q5_K => 176,
            Q6_K => 210,
        }
    }

    /// The name as everybody writes it.
    pub const fn name(self) -> &'static str {
        use Format::*;
        match self {
            F32 => "F32",
            F16 => "F16",
            BF16 => "BF16",
            Q4_0 => "Q4_0",
            Q4_1 => "Q4_1",
            Q5_0 => "Q5_0",
            Q5_1 => "Q5_1",
            Q8_0 => "Q8_0",
            Q4_K => "Q4_K",
            Q5_K => "Q5_K",
            Q6_K => "Q6_K",
        }
    }

    /// The numbers of whole blocks. `bytes`: the blocks as in the file; `out`: as many numbers as they hold.
    ///
    /// Errors: `Internal`, if the lengths don't belong together.
    pub fn dequantize(self, bytes: &[u8], out: &mut [f32]) -> Result<()> {
        let blocks = out.len() / self.block_len();
        if blocks * self.block_len() != out.len() || blocks * self.block_bytes() != bytes.len() {
            bail!(Internal, "{} bytes are not {} numbers of {}", bytes.len(), out.len(), self.name());
        }
        for (block, out) in bytes.chunks_exact(self.block_bytes()).zip(out.chunks_exact_mut(self.block_len())) {
            self.dequantize_block(block, out);
        }
        Ok(())
    }

    fn dequantize_block(self, b: &[u8], out: &mut [f32]) {
        use Format::*;
        let f16_at = |at: usize| f16::from_le_bytes([b[at], b[at + 1]]).to_f32();
        match self {
            F32 => out[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            F16 => out[0] = f16_at(0),
            BF16 => out[0] = bf16::from_le_bytes([b[0], b[1]]).to_f32(),
            // d: f16, then 32 nibbles; w = d (q - 8). The low nibbles are weights 0 to 15.
            Q4_0 => each(out, |k| f16_at(0) * (f32::from(nibble(&b[2..], k)) - 8.0)),
            // d, m: f16, then 32 nibbles; w = d q + m
            Q4_1 => each(out, |k| f16_at(0) * f32::from(nibble(&b[4..], k)) + f16_at(2)),
            // d: f16, 32 fifth bits, 32 nibbles; w = d (q - 16)
            Q5_0 => each(out, |k| f16_at(0) * (f32::from(nibble(&b[6..], k) | bit(&b[2..], k) << 4) - 16.0)),
            // d, m: f16, 32 fifth bits, 32 nibbles; w = d q + m
            Q5_1 => each(out, |k| f16_at(0) * f32::from(nibble(&b[8..], k) | bit(&b[4..], k) << 4) + f16_at(2)),
            // d: f16, then 32 int8; w = d q
            Q8_0 => each(out, |k| f16_at(0) * f32::from(b[2 + k] as i8)),
            // d, dmin: f16, 12 bytes of eight 6-bit scales and minima, 256 nibbles; w = d scale q - dmin min, a scale for each 32
            Q4_K => each(out, |k| {
                let (scale, min) = k_scale(&b[4..16], k / 32);
                f16_at(0) * f32::from(scale) * f32::from(k_nibble(&b[16..], k)) - f16_at(2) * f32::from(min)
            }),
            // the same with 256 fifth bits before the nibbles: bit j of byte i is weight 32 j + i
            Q5_K => each(out, |k| {
                let (scale, min) = k_scale(&b[4..16], k / 32);
                let q = k_nibble(&b[48..], k) | (b[16 + k % 32] >> (k / 32) & 1) << 4;
                f16_at(0) * f32::from(scale) * f32::from(q) - f16_at(2) * f32::from(min)
            }),
            // 256 low nibbles, 256 pairs of high bits, sixteen int8 scales, d: f16; w = d scale (q - 32), a scale for each 16
            Q6_K => each(out, |k| {
                let (half, quarter, i) = (k / 128, k % 128 / 32, k % 32);
                let low = b[64 * half + 32 * (quarter % 2) + i];
                let low = if quarter < 2 { low & 15 } else { low >> 4 };
                let high = b[128 + 32 * half + i] >> (2 * quarter) & 3;
                f16_at(208) * f32::from(b[192 + k / 16] as i8) * (f32::from(low | high << 4) - 32.0)
            }),
        }
    }

    /// The format of a `ggml_type` number, if it is supported.
    pub const fn from_ggml(id: u32) -> Option<Self> {
        use Format::*;
        Some(match id {
            0 => F32,
            1 => F16,
            2 => Q4_0,
            3 => Q4_1,
            6 => Q5_0,
            7 => Q5_1,
            8 => Q8_0,
            12 => Q4_K,
            13 => Q5_K,
            14 => Q6_K,
            30 => BF16,
            _ => return None,
        })
    }
}

/// What a `ggml_type` number is called, for error messages; `type 99` where nobody knows.
pub fn ggml_type_name(id: u32) -> String {
    const NAMES: [&str; 40] = [
        "F32",
        "F16",
        "Q4_0",
        "Q4_1",
        "Q4_2",
        "Q4_3",
        "Q5_0",
        "Q5_1",
        "Q8_0",
        "Q8_1",
        "Q2_K",
        "Q3_K",
        "Q4_K",
        "Q5_K",
        "Q6_K",
        "Q8_K",
        "IQ2_XXS",
        "IQ2_XS",
        "IQ3_XXS",
        "IQ1_S",
        "IQ4_NL",
        "IQ3_S",
        "IQ2_S",
        "IQ4_XS",
        "I8",
        "I16",
        "I32",
        "I64",
        "F64",
        "IQ1_M",
        "BF16",
        "Q4_0_4_4",
        "Q4_0_4_8",
        "Q4_0_8_8",
        "TQ1_0",
        "TQ2_0",
        "IQ4_NL_4_4",
        "IQ4_NL_4_8",
        "IQ4_NL_8_8",
        "MXFP4",
    ];
    NAMES.get(id as usize).map_or_else(|| format!("number {id} (unknown)"), |name| (*name).to_owned())
}

fn each(out: &mut [f32], w: impl Fn(usize) -> f32) {
    out.iter_mut().enumerate().for_each(|(k, x)| *x = w(k));
}

/// Weight `k` of 32 nibbles in 16 bytes: the low nibbles first.
pub(crate) fn nibble(q: &[u8], k: usize) -> u8 {
    if k < 16 { q[k] & 15 } else { q[k - 16] >> 4 }
}

/// Bit `k`.
pub(crate) fn bit(bits: &[u8], k: usize) -> u8 {
    bits[k / 8] >> (k % 8) & 1
}

/// Weight `k` of the 256 nibbles of a K block: sub-blocks 2 i and 2 i + 1 are the low and high nibbles of 32 bytes.
pub(crate) fn k_nibble(q: &[u8], k: usize) -> u8 {
    let byte = q[k / 64 * 32 + k % 32];
    if k / 32 % 2 == 0 { byte & 15 } else { byte >> 4 }
}

/// The 6-bit scale and minimum of sub-block `j` of a Q4_K or Q5_K block, out of their 12 packed bytes.
pub(crate) fn k_scale(s: &[u8], j: usize) -> (u8, u8) {
    if j < 4 { (s[j] & 63, s[j + 4] & 63) } else { (s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4) }
}

/// A block of activations as int8: scale = max|x| / 127, q = x / scale to the nearest, halves to even. All zeros have scale 0; a NaN
/// becomes 0, and with an infinity the scale is infinite and every q is 0.
pub fn quantize_q8(x: &[f32; 32]) -> (f32, [i8; 32]) {
    let scale = x.iter().fold(0.0f32, |max, v| max.max(v.abs())) / 127.0;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    (scale, x.map(|v| (v * inverse).round_ties_even() as i8))
}
