//! How keys and values are stored in the KV cache, and what a stored head reads back as.

use half::f16;

use crate::error::{Result, bail};

/// The form of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KvType {
    /// Two bytes a value: f16, without infinities.
    #[default]
    F16,
    /// A little more than a byte a value: int8, and an f16 scale for each [`BLOCK`] values of a head (what is left of a head whose size is
    /// no multiple of that is a shorter block). See [`quantize`].
    Q8_0,
}

/// Values of a head that share a scale.
pub const BLOCK: usize = 32;

/// The largest f16, and so the largest magnitude that any of the types holds.
pub const LARGEST: f32 = 65_504.0;

impl KvType {
    /// Every type.
    pub const ALL: [Self; 2] = [Self::F16, Self::Q8_0];

    /// Its name in options and in `info`: llama.cpp's.
    pub const fn name(self) -> &'static str {
        match self {
            KvType::F16 => "f16",
            KvType::Q8_0 => "q8_0",
        }
    }

    /// The type of that name.
    ///
    /// # Errors
    /// `bad-option` where there is none.
    pub fn from_name(name: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|t| t.name() == name) {
            Some(t) => Ok(t),
            None => bail!(BadOption, "kvType must be {}, not {name:?}", Self::ALL.map(|t| format!("{:?}", t.name())).join(" or ")),
        }
    }

    /// Makes of a head what it reads back as once it has been stored, `[head_dim]`.
    pub fn round(self, head: &mut [f32]) {
        match self {
            KvType::F16 => head.iter_mut().for_each(|x| *x = f16::from_bits(to_f16(*x)).to_f32()),
            KvType::Q8_0 => {
                let mut q = [0; BLOCK];
                for block in head.chunks_mut(BLOCK) {
                    let scale = quantize(block, &mut q).to_f32();
                    block.iter_mut().zip(q).for_each(|(x, q)| *x = f32::from(q) * scale);
                }
            }
        }
    }
}

/// f16 without infinities: what does not fit becomes the largest that does, so that no later sum is poisoned.
pub fn to_f16(x: f32) -> u16 {
    f16::from_f32(x.clamp(-LARGEST, LARGEST)).to_bits()
}

/// The scale of a block whose largest magnitude is `max` (at most [`LARGEST`]), and what its values are multiplied with: d = max / 127, kept
/// as f16, and 1 / d before that rounding. Both are zero where d is too small for f16.
pub fn scale(max: f32) -> (f16, f32) {
    let d = max / 127.0;
    let stored = f16::from_f32(d);
    if stored == f16::ZERO { (f16::ZERO, 0.0) } else { (stored, 1.0 / d) }
}

/// Quantizes a block of at most [`BLOCK`] values as llama.cpp's KV cache of type `q8_0` does (`quantize_row_q8_0_ref` in
/// [ggml-quants.c](https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-quants.c)): d = max |x| / 127, q = x (1 / d) to the
/// nearest whole number, and d as f16. What is read back is q d, which is exact in f32, and off by at most d / 2 and what d's own
/// rounding moves it (2^-11 of the value).
///
/// A half goes to the even number, as in llama.cpp's SIMD forms. Beyond it: what does not fit f16 counts as the largest that does, as in
/// [`to_f16`], and NaN as zero.
pub fn quantize(x: &[f32], q: &mut [i8]) -> f16 {
    let fitting = |x: f32| if x.is_nan() { 0.0 } else { x.clamp(-LARGEST, LARGEST) };
    let (d, inverse) = scale(x.iter().fold(0.0, |max, &x| fitting(x).abs().max(max)));
    q.iter_mut().zip(x).for_each(|(q, &x)| *q = (fitting(x) * inverse).round_ties_even() as i8);
    d
}

/// The cache of a layer as the scalar references see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Plain {
    /// How heads are stored.
    pub kv_type: KvType,
    /// Keys as they read back, [positions, kv_heads, head_dim].
    pub keys: Vec<f32>,
    /// Values as they read back, [positions, kv_heads, head_dim].
    pub values: Vec<f32>,
}

impl Plain {
    /// Zeros; `width`: kv_heads x head_dim.
    pub fn new(kv_type: KvType, positions: usize, width: usize) -> Self {
        Self { kv_type, keys: vec![0.0; positions * width], values: vec![0.0; positions * width] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::Format;

    /// The bytes of ggml's own Q8_0 blocks mean what `round` gives, and the error is what the documentation says.
    #[test]
    fn q8_0_reads_back_as_a_block_of_that_format_within_its_bound() {
        let mut seed = 1_u32;
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(seed >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        for size in [1e-6, 1e-3, 1.0, 300.0, 60_000.0] {
            for _ in 0..200 {
                let x: [f32; BLOCK] = std::array::from_fn(|_| next() * size);
                let mut q = [0; BLOCK];
                let d = quantize(&x, &mut q);
                let mut right = [0.0; BLOCK];
                Format::Q8_0.dequantize(&[&d.to_le_bytes()[..], &q.map(|q| q as u8)].concat(), &mut right);
                let mut round = x;
                KvType::Q8_0.round(&mut round);
                assert_eq!(round, right);
                if size > 1e-2 {
                    let step = d.to_f32();
                    assert!(x.iter().zip(round).all(|(x, r)| (x - r).abs() <= 0.5005 * step + x.abs() / 2048.0), "{x:?}");
                    assert!(q.iter().any(|q| q.abs() == 127));
                }
                let again = round;
                KvType::Q8_0.round(&mut round);
                assert_eq!(round, again, "what was stored once is stored again as it is");
            }
        }
    }

    #[test]
    fn what_is_not_finite_or_too_small_does_no_harm() {
        let mut q = [1; 4];
        assert_eq!((quantize(&[0.0, -0.0, 1e-7, f32::NAN], &mut q), q), (f16::ZERO, [0; 4]));
        let d = quantize(&[f32::INFINITY, f32::NEG_INFINITY, 1e30, 32_752.0], &mut q);
        assert_eq!((d, q), (f16::from_f32(65_504.0 / 127.0), [127, -127, 127, 64]));
        for t in KvType::ALL {
            let mut head = [f32::INFINITY, f32::MIN, 1.0, 0.0];
            t.round(&mut head);
            assert!(head.iter().all(|x| x.is_finite()), "{t:?}: {head:?}");
        }
    }

    #[test]
    fn names_lead_back_to_their_types() {
        for t in KvType::ALL {
            assert_eq!(KvType::from_name(t.name()), Ok(t));
        }
        let error = KvType::from_name("q4_0").unwrap_err();
        assert!(error.code().as_str() == "bad-option" && error.message().contains(r#""f16" or "q8_0", not "q4_0""#), "{error}");
    }
}
