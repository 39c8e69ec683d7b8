//! Block formats of GGUF tensors and their scalar meaning: the oracle of every kernel.
//!
//! - [`Format::dequantize`]: what the bytes of each format mean as `f32` (layouts and formulas in `quant/dequantize.rs`).
//! - [`quantize_q8`]: how an activation becomes 8-bit integers before an integer dot product.

mod activation;
mod dequantize;
#[doc(hidden)]
pub mod testing;

pub(crate) use activation::SMALLEST;
pub use activation::{ACTIVATION_BLOCK, quantize_q8};
pub use dequantize::k_scale_min;

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

    /// Its `ggml_type` number, the inverse of [`Format::from_ggml`].
    pub const fn ggml_type(self) -> u32 {
        use Format::*;
        match self {
            F32 => 0,
            F16 => 1,
            Q4_0 => 2,
            Q4_1 => 3,
            Q5_0 => 6,
            Q5_1 => 7,
            Q8_0 => 8,
            Q4_K => 12,
            Q5_K => 13,
            Q6_K => 14,
            BF16 => 30,
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

#[cfg(test)]
mod tests;
