//! `linear`: rows times a matrix, y = x W^T.
//!
//! Weights that are quantized take int8 activations, in blocks of 32 along the row: x ~ scale * q, scale = max|x| / 127. That is what
//! llama.cpp does too (its Q8_0 and Q8_1 activations), and it is part of the contract: the reference does the same.

use crate::quant::{Format, quantize_q8};

/// The plain numbers of a `linear`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Params {
    /// Length of a row of x and of W.
    pub cols: usize,
    /// Rows of W: the length of a row of y.
    pub rows: usize,
    /// Whether the activations are quantized to int8: true for every quantized weight format.
    pub int8: bool,
}

impl Params {
    /// The contract for weights of a format.
    pub fn new(format: Format, rows: usize, cols: usize) -> Self {
        Self { cols, rows, int8: !matches!(format, Format::F32 | Format::F16 | Format::BF16) }
    }
}

/// `x`: [tokens, cols]; `w`: [rows, cols] dequantized; `y`: [tokens, rows].
pub fn reference(x: &[f32], w: &[f32], y: &mut [f32], p: &Params) {
    for (x, y) in x.chunks_exact(p.cols).zip(y.chunks_exact_mut(p.rows)) {
        let x = if p.int8 { through_int8(x) } else { x.to_vec() };
        for (y, w) in y.iter_mut().zip(w.chunks_exact(p.cols)) {
            *y = x.iter().zip(w).map(|(&x, &w)| f64::from(x) * f64::from(w)).sum::<f64>() as f32;
        }
    }
}

/// What int8 activations make of a row.
pub fn through_int8(x: &[f32]) -> Vec<f32> {
    let (blocks, _) = x.as_chunks::<32>();
    let back = |block: &[f32; 32]| {
        let (scale, q) = quantize_q8(block);
        q.map(|q| f32::from(q) * scale)
    };
    blocks.iter().flat_map(back).collect()
}
