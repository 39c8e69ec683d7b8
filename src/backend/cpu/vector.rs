//! The row-wise work between the products: sums, norms, activations, quantization, exp.

use super::simd::{BLOCK, Isa, Kernel, QBlock};
use crate::ops::norm_linear::{Activation, GELU_CUBIC, GELU_LINEAR};
use crate::ops::pick::{self, Part};
use crate::ops::sample::Weight;
use crate::quant::SMALLEST;

/// exp for arguments up to 88, eight at a time; below -87 the result is exp(-87).
///
/// Cephes' `expf`: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial of degree 6 for exp(r), times 2^n. Relative error below 2e-7.
#[inline(always)]
pub fn exp<I: Isa>(isa: I, x: I::F) -> I::F {
    let x = isa.min(isa.max(x, isa.splat(-87.0)), isa.splat(88.0));
    let n = isa.round(isa.mul(x, isa.splat(std::f32::consts::LOG2_E)));
    let r = isa.sub(isa.sub(x, isa.mul(n, isa.splat(0.693_359_4))), isa.mul(n, isa.splat(-2.121_944_4e-4)));
    let mut y = isa.splat(1.987_569_1e-4);
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1] {
        y = isa.add(isa.mul(y, r), isa.splat(c));
    }
    y = isa.add(isa.add(isa.mul(isa.mul(y, r), r), r), isa.splat(1.0));
    isa.mul(y, isa.pow2(n))
}

/// `to += from`, whole rows.
pub struct Add<'a> {
    pub to: &'a mut [f32],
    pub from: &'a [f32],
}

impl Kernel for Add<'_> {
    type Out = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let (to, to_rest) = self.to.as_chunks_mut::<8>();
        let (from, from_rest) = self.from.as_chunks::<8>();
        for (a, b) in to.iter_mut().zip(from) {
            let sum = isa.add(isa.load(a), isa.load(b));
            isa.store(sum, a);
        }
        for (a, b) in to_rest.iter_mut().zip(from_rest) {
            *a += b;
        }
    }
}

/// RMSNorm of rows. `x`: [tokens, dim]; `weight`: [dim]; `out`: [tokens, stride], zeros behind dim.
pub struct RmsNorm<'a> {
    pub x: &'a [f32],
    pub weight: &'a [f32],
    pub eps: f32,
    pub out: &'a mut [f32],
    pub stride: usize,
}

impl Kernel for RmsNorm<'_> {
    type Out = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let dim = self.weight.len();
        for (x, out) in self.x.chunks_exact(dim).zip(self.out.chunks_exact_mut(self.stride)) {
            let (eights, rest) = x.as_chunks::<8>();
            let mut acc = isa.splat(0.0);
            for v in eights {
                let v = isa.load(v);
                acc = isa.add(acc, isa.mul(v, v));
            }
            let mut squares = isa.sum(acc);
            for v in rest {
                squares += v * v;
            }
            let by = 1.0 / (squares / dim as f32 + self.eps).sqrt();
            let (weights, weights_rest) = self.weight.as_chunks::<8>();
            let (out8, out_rest) = out[..dim].as_chunks_mut::<8>();
            for ((v, w), out) in eights.iter().zip(weights).zip(out8) {
                isa.store(isa.mul(isa.mul(isa.load(v), isa.splat(by)), isa.load(w)), out);
            }
            for ((v, w), out) in rest.iter().zip(weights_rest).zip(out_rest) {
                *out = v * by * w;
            }
            out[dim..].fill(0.0);
        }
    }
}

/// Gate and up into one: `gate = activation(gate) * up`.
pub struct Gate<'a> {
    pub activation: Activation,
    pub gate: &'a mut [f32],
    pub up: &'a [f32],
}

/// Both activations are g / (1 + exp(-v)), with v = g or GELU's 2 u.
#[inline(always)]
fn gated<I: Isa>(isa: I, activation: Activation, gate: &mut [f32; 8], up: &[f32; 8]) {
    let g = isa.load(gate);
    let v = match activation {
        Activation::Silu => g,
        Activation::Gelu => {
            let cubic = isa.add(isa.splat(1.0), isa.mul(isa.splat(GELU_CUBIC), isa.mul(g, g)));
            isa.mul(isa.mul(isa.splat(2.0 * GELU_LINEAR), g), cubic)
        }
    };
    let below = isa.add(isa.splat(1.0), exp(isa, isa.sub(isa.splat(0.0), v)));
    isa.store(isa.mul(isa.div(g, below), isa.load(up)), gate);
}

impl Kernel for Gate<'_> {
    type Out = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let (gate, gate_rest) = self.gate.as_chunks_mut::<8>();
        let (up, up_rest) = self.up.as_chunks::<8>();
        for (g, u) in gate.iter_mut().zip(up) {
            gated(isa, self.activation, g, u);
        }
        if !gate_rest.is_empty() {
            let (mut g, mut u) = ([0.0; 8], [0.0; 8]);
            g[..gate_rest.len()].copy_from_slice(gate_rest);
            u[..up_rest.len()].copy_from_slice(up_rest);
            gated(isa, self.activation, &mut g, &u);
            gate_rest.copy_from_slice(&g[..gate_rest.len()]);
        }
    }
}

/// Activations to int8, a block of 32 at a time, as `quant::quantize_q8` says.
pub struct Quantize<'a> {
    /// Whole blocks.
    pub x: &'a [f32],
    /// As many of them.
    pub out: &'a mut [QBlock],
}

impl Kernel for Quantize<'_> {
    type Out = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let (blocks, _) = self.x.as_chunks::<BLOCK>();
        for (x, block) in blocks.iter().zip(self.out) {
            let (x, _) = x.as_chunks::<8>();
            let (mut max, mut poison) = (isa.splat(0.0), isa.splat(0.0)); // poison: NaN as soon as there is a NaN or an infinity
            for v in x {
                let v = isa.load(v);
                max = isa.max(isa.abs(v), max);
                poison = isa.add(poison, isa.mul(v, isa.splat(0.0)));
            }
            let max = isa.max_lane(max) + isa.sum(poison);
            let (scale, inverse) = if max.is_nan() || max >= SMALLEST { (max / 127.0, 127.0 / max) } else { (0.0, 0.0) };
            block.scale = scale;
            let mut eights = [[0; 8]; BLOCK / 8];
            for (v, to) in x.iter().zip(&mut eights) {
                *to = isa.to_i8(isa.round(isa.mul(isa.load(v), isa.splat(inverse))));
            }
            for (half, eights) in eights.as_chunks::<2>().0.iter().enumerate() {
                block.halves[half] = eights.as_flattened().iter().map(|&q| i32::from(q)).sum();
            }
            for (to, q) in block.q.iter_mut().zip(eights.as_flattened().as_chunks().0) {
                *to = *q;
            }
            block.sum = (block.halves[0] + block.halves[1]) as f32;
        }
    }
}

/// What the blocks of logits say, see [`Part`].
pub struct Parts<'a> {
    /// The row from the first of these blocks on.
    pub logits: &'a [f32],
    pub parts: &'a mut [Part],
}

impl Kernel for Parts<'_> {
    type Out = ();
    #[inline(always)]
    fn run<I: Isa>(self, _: I) {
        for (part, block) in self.parts.iter_mut().zip(self.logits.chunks(pick::BLOCK)) {
            *part = Part::new(block);
        }
    }
}

/// The sums of the blocks of logits at a temperature, see [`Weight::sum`].
pub struct Weigh<'a> {
    /// The row from the first of these blocks on.
    pub logits: &'a [f32],
    pub weight: Weight,
    pub sums: &'a mut [f64],
}

impl Kernel for Weigh<'_> {
    type Out = ();
    #[inline(always)]
    fn run<I: Isa>(self, _: I) {
        for (sum, block) in self.sums.iter_mut().zip(self.logits.chunks(pick::BLOCK)) {
            *sum = self.weight.sum(block);
        }
    }
}
