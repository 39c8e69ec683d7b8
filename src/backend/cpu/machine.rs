//! The kernels on the threads: which operation is cut how. Every output value is computed by one thread, as one thread alone would.

use super::attend::Attend;
use super::cache::Cache;
use super::gemm::Linear;
use super::pack::Packed;
use super::pool::Pool;
use super::simd::{BLOCK, QBlock, Variant};
use super::split::{Matrix, split};
use super::vector::{Gate, Parts, Quantize, RmsNorm, Weigh};
use crate::ops::attend::Params;
use crate::ops::norm_linear::Activation;
use crate::ops::pick::{self, Part};
use crate::ops::sample::{Sums, Weight};

/// A piece of work should be worth this many multiply-adds, about two microseconds; handing one over costs a tenth of that.
const WORTH: usize = 1 << 16;
/// What a value costs in multiply-adds where it is normalized or quantized, and where it goes through an activation.
const PER_VALUE: usize = 16;
const PER_GATE: usize = 128;
/// What a block of logits costs whose exponentials are added up.
const PER_PART: usize = pick::BLOCK * 32;

/// Where the product with a matrix goes.
pub struct Output<'a> {
    /// The weights.
    pub w: &'a Packed,
    /// The first row of the weights that is wanted, a multiple of 8.
    pub first: usize,
    /// How many rows are wanted.
    pub rows: usize,
    /// The result, [tokens, rows].
    pub y: &'a mut [f32],
}

/// Instruction set and threads.
#[derive(Debug)]
pub struct Machine {
    pub variant: Variant,
    pub pool: Pool,
}

impl Machine {
    /// Products of the same activations, [tokens, stride] with zeros behind the matrices' columns, with one to three matrices.
    pub fn linear(&self, x: &[f32], stride: usize, outputs: &mut [Output]) {
        let variant = self.variant;
        let int8 = outputs.iter().any(|o| o.w.takes_int8());
        let mut q = vec![QBlock::default(); if int8 { x.len() / BLOCK } else { 0 }];
        if int8 {
            let n = q.len();
            split(&self.pool, &mut [Matrix::new(&mut q, n)], 1, WORTH / (BLOCK * PER_VALUE), |_, mut blocks| {
                let range = blocks.range();
                variant.run_floats(Quantize { x: &x[range.start * BLOCK..range.end * BLOCK], out: blocks.row(0) });
            });
        }
        let tokens = x.len() / stride;
        let wanted: Vec<(&Packed, usize)> = outputs.iter().map(|o| (o.w, o.first)).collect();
        let mut matrices: Vec<Matrix<f32>> = outputs.iter_mut().map(|o| Matrix::new(&mut o.y[..tokens * o.rows], o.rows)).collect();
        let least = WORTH / (tokens * stride * 8).max(1);
        split(&self.pool, &mut matrices, 8, least, |i, y| {
            let (w, first) = wanted[i];
            variant.run(Linear { q: &q, x, stride, w, first, y });
        });
    }

    /// RMSNorm of rows, cut by rows.
    pub fn norm(&self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32], stride: usize) {
        let (variant, dim, n) = (self.variant, weight.len(), out.len());
        split(&self.pool, &mut [Matrix::new(out, n)], stride, WORTH / (dim * PER_VALUE).max(1), |_, mut rows| {
            let range = rows.range();
            let x = &x[range.start / stride * dim..range.end / stride * dim];
            variant.run_floats(RmsNorm { x, weight, eps, out: rows.row(0), stride });
        });
    }

    /// Gate and up into one.
    pub fn gate(&self, activation: Activation, gate: &mut [f32], up: &[f32]) {
        let (variant, n) = (self.variant, gate.len());
        split(&self.pool, &mut [Matrix::new(gate, n)], 8, WORTH / (8 * PER_GATE), |_, mut values| {
            let up = &up[values.range()];
            variant.run_floats(Gate { activation, gate: values.row(0), up });
        });
    }

    /// What the blocks of a row of logits say; there are as many parts as blocks.
    pub fn parts(&self, logits: &[f32], parts: &mut [Part]) {
        let (variant, n) = (self.variant, parts.len());
        split(&self.pool, &mut [Matrix::new(parts, n)], 1, WORTH / PER_PART, |_, mut parts| {
            let logits = &logits[parts.range().start * pick::BLOCK..];
            variant.run_floats(Parts { logits, parts: parts.row(0) });
        });
    }

    /// Attention, cut by heads: a run of them for each thread, since neighbours look at the same keys.
    pub fn attend(&self, q: &[f32], cache: &Cache, out: &mut [f32], p: &Params) {
        let (variant, dim) = (self.variant, p.head_dim);
        let tokens = out.len() / (p.heads * dim);
        let seen = (p.start + tokens).min(p.window.unwrap_or(usize::MAX));
        let least = (WORTH / (tokens * seen * dim).max(1)).max(p.heads / self.pool.threads());
        split(&self.pool, &mut [Matrix::new(out, p.heads * dim)], dim, least, |_, mut out| {
            let (from, to) = (out.range().start / dim, out.range().end / dim);
            let mut mine = vec![0.0; tokens * (to - from) * dim];
            variant.run_floats(Attend { q, cache, heads: from..to, out: &mut mine, p });
            for (token, row) in mine.chunks_exact((to - from) * dim).enumerate() {
                out.row(token).copy_from_slice(row);
            }
        });
    }
}

impl Sums for Machine {
    fn part(&self, block: &[f32]) -> Part {
        let mut part = [Part::default()];
        self.variant.run_floats(Parts { logits: block, parts: &mut part });
        part[0]
    }
    fn weigh(&self, logits: &[f32], weight: Weight, sums: &mut [f64]) {
        let (variant, n) = (self.variant, sums.len());
        split(&self.pool, &mut [Matrix::new(sums, n)], 1, WORTH / PER_PART, |_, mut sums| {
            let logits = &logits[sums.range().start * pick::BLOCK..];
            variant.run_floats(Weigh { logits, weight, sums: sums.row(0) });
        });
    }
}
