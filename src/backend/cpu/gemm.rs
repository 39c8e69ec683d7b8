//! Products of packed weights with activations: y[token, row] = sum over k of w[row, k] x[token, k].
//!
//! One token or many, the sum of an output is the same chain: block after block, `acc += scale_x * (d * sum(q w) + m * sum(q))` with exact
//! integer sums, so the bits don't depend on how many tokens are computed together.

use super::pack::{Group4, Group5, Group6, Group8, GroupF, Groups, Packed, ROWS};
use super::simd::{BLOCK, Isa, Kernel, QBlock};
use super::vector::quantize;

/// Tokens that share one unpacking of the weights.
const TILE: usize = 4;
/// Bytes of activations that should stay in the cache while the weights stream by.
const CACHE_BYTES: usize = 192 << 10;

/// A family of packed weights whose activations are int8.
pub trait Family {
    /// Adds the products of a group of rows with a block of each of `T` tokens.
    fn accumulate<I: Isa, const T: usize>(&self, isa: I, x: [&QBlock<I::Q>; T], acc: &mut [I::F4; T]);
}

/// acc += scale (d sum(q w) + m sum(q))
#[inline(always)]
fn affine<I: Isa, const T: usize>(isa: I, d: &[u16; 4], m: &[u16; 4], p: [[I::P; ROWS]; T], x: [&QBlock<I::Q>; T], acc: &mut [I::F4; T]) {
    let (d, m) = (isa.f16x4(d), isa.f16x4(m));
    for t in 0..T {
        let products = isa.mul4(d, isa.reduce(p[t]));
        let all = isa.add4(products, isa.mul4(m, isa.splat4(x[t].sum)));
        acc[t] = isa.add4(acc[t], isa.mul4(all, isa.splat4(x[t].scale)));
    }
}

/// The products of four rows with T tokens, unpacking each row once. A macro, because a closure would lose the instruction set.
macro_rules! products {
    ($isa:ident, $x:ident, $zero:expr, $r:ident => $unpack:expr, $dot:ident) => {{
        let mut p = [[$zero; ROWS]; T];
        for $r in 0..ROWS {
            let w = $unpack;
            for t in 0..T {
                p[t][$r] = $isa.$dot(w, &$x[t].q);
            }
        }
        p
    }};
}

impl Family for Group4 {
    #[inline(always)]
    fn accumulate<I: Isa, const T: usize>(&self, isa: I, x: [&QBlock<I::Q>; T], acc: &mut [I::F4; T]) {
        let p = products!(isa, x, isa.zero_p(), r => isa.unpack4(&self.q[r]), dot_unsigned);
        affine(isa, &self.d, &self.m, p, x, acc);
    }
}

impl Family for Group5 {
    #[inline(always)]
    fn accumulate<I: Isa, const T: usize>(&self, isa: I, x: [&QBlock<I::Q>; T], acc: &mut [I::F4; T]) {
        let p = products!(isa, x, isa.zero_p(), r => isa.unpack5(&self.q[r], &self.high[r]), dot_unsigned);
        affine(isa, &self.d, &self.m, p, x, acc);
    }
}

impl Family for Group6 {
    #[inline(always)]
    fn accumulate<I: Isa, const T: usize>(&self, isa: I, x: [&QBlock<I::Q>; T], acc: &mut [I::F4; T]) {
        let p = products!(isa, x, isa.zero_p2(), r => isa.unpack6(&self.q[r], &self.high[r]), dot_halves);
        let d = [isa.f16x4(&self.d[0]), isa.f16x4(&self.d[1])];
        for t in 0..T {
            let [first, second] = isa.reduce_halves(p[t]);
            let all = isa.add4(isa.mul4(d[0], first), isa.mul4(d[1], second));
            acc[t] = isa.add4(acc[t], isa.mul4(all, isa.splat4(x[t].scale)));
        }
    }
}

impl Family for Group8 {
    #[inline(always)]
    fn accumulate<I: Isa, const T: usize>(&self, isa: I, x: [&QBlock<I::Q>; T], acc: &mut [I::F4; T]) {
        let p = products!(isa, x, isa.zero_p(), r => isa.load8(&self.q[r]), dot_signed);
        let d = isa.f16x4(&self.d);
        for t in 0..T {
            acc[t] = isa.add4(acc[t], isa.mul4(isa.mul4(d, isa.reduce(p[t])), isa.splat4(x[t].scale)));
        }
    }
}

/// Where the product with a matrix goes.
pub struct Output<'a> {
    /// The weights.
    pub w: &'a Packed,
    /// The first row of the weights that is wanted, a multiple of 4.
    pub first: usize,
    /// How many rows are wanted.
    pub rows: usize,
    /// The result, [tokens, rows].
    pub y: &'a mut [f32],
}

/// Products of the same activations with one to three matrices. The activations are quantized once, where a matrix takes int8.
pub struct Linear<'a> {
    /// The activations, [tokens, stride]: zeros behind the matrices' columns.
    pub x: &'a [f32],
    /// Length of a row of `x`: the columns, rounded up to a multiple of 8.
    pub stride: usize,
    /// What is wanted.
    pub outputs: Vec<Output<'a>>,
}

impl Kernel for Linear<'_> {
    type Out = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let q = if self.outputs.iter().any(|o| o.w.takes_int8()) { quantize(isa, self.x) } else { Vec::new() };
        for Output { w, first, rows, y } in self.outputs {
            match &w.groups {
                Groups::Bits4(g) => gemm(isa, &q, g, w.cols, first, rows, y),
                Groups::Bits5(g) => gemm(isa, &q, g, w.cols, first, rows, y),
                Groups::Bits6(g) => gemm(isa, &q, g, w.cols, first, rows, y),
                Groups::Bits8(g) => gemm(isa, &q, g, w.cols, first, rows, y),
                Groups::F16(g) => gemm_float::<I, AsF16>(isa, self.x, g, self.stride, first, rows, y),
                Groups::BF16(g) => gemm_float::<I, AsBF16>(isa, self.x, g, self.stride, first, rows, y),
                Groups::F32(g) => gemm_float::<I, AsF32>(isa, self.x, g, self.stride, first, rows, y),
            }
        }
    }
}

#[inline(always)]
fn gemm<I: Isa, G: Family>(isa: I, x: &[QBlock<I::Q>], groups: &[G], cols: usize, first: usize, rows: usize, y: &mut [f32]) {
    let blocks = cols / BLOCK;
    let tokens = x.len() / blocks;
    let tile_tokens = (CACHE_BYTES / (blocks * size_of::<QBlock<I::Q>>())).max(TILE) / TILE * TILE;
    for from in (0..tokens).step_by(tile_tokens) {
        let to = (from + tile_tokens).min(tokens);
        for row in (0..rows).step_by(ROWS) {
            let band = (first + row) / ROWS;
            let band = &groups[band * blocks..(band + 1) * blocks];
            let mut token = from;
            while token + TILE <= to {
                let out = band_product::<I, G, TILE>(isa, band, &x[token * blocks..], blocks);
                put(isa, out, y, token, row, rows);
                token += TILE;
            }
            while token < to {
                let out = band_product::<I, G, 1>(isa, band, &x[token * blocks..], blocks);
                put(isa, out, y, token, row, rows);
                token += 1;
            }
        }
    }
}

#[inline(always)]
fn band_product<I: Isa, G: Family, const T: usize>(isa: I, band: &[G], x: &[QBlock<I::Q>], blocks: usize) -> [I::F4; T] {
    let mut acc = [isa.zero4(); T];
    let x: [&[QBlock<I::Q>]; T] = std::array::from_fn(
        #[inline(always)]
        |t| &x[t * blocks..(t + 1) * blocks],
    );
    for (b, group) in band.iter().enumerate() {
        let x = std::array::from_fn(
            #[inline(always)]
            |t| &x[t][b],
        );
        group.accumulate::<I, T>(isa, x, &mut acc);
    }
    acc
}

#[inline(always)]
fn put<I: Isa, const T: usize>(isa: I, out: [I::F4; T], y: &mut [f32], token: usize, row: usize, rows: usize) {
    let n = ROWS.min(rows - row);
    for (t, four) in out.into_iter().enumerate() {
        let at = (token + t) * rows + row;
        y[at..at + n].copy_from_slice(&isa.store4(four)[..n]);
    }
}

/// How eight stored floats become f32.
trait Stored {
    type T: Copy;
    fn load<I: Isa>(isa: I, w: &[Self::T; 8]) -> I::F;
}
macro_rules! stored {
    ($name:ident, $type:ty, $load:ident) => {
        struct $name;
        impl Stored for $name {
            type T = $type;
            #[inline(always)]
            fn load<I: Isa>(isa: I, w: &[$type; 8]) -> I::F {
                isa.$load(w)
            }
        }
    };
}
stored!(AsF16, u16, load_f16);
stored!(AsBF16, u16, load_bf16);
stored!(AsF32, f32, load);

#[inline(always)]
fn gemm_float<I: Isa, S: Stored>(isa: I, x: &[f32], groups: &[GroupF<S::T>], stride: usize, first: usize, rows: usize, y: &mut [f32]) {
    let (x, _) = x.as_chunks::<8>();
    let eights = stride / 8;
    let tokens = x.len() / eights;
    for row in (0..rows).step_by(ROWS) {
        let band = (first + row) / ROWS;
        let band = &groups[band * eights..(band + 1) * eights];
        let n = ROWS.min(rows - row);
        for token in 0..tokens {
            let mut acc = [isa.splat(0.0); ROWS];
            for (group, x) in band.iter().zip(&x[token * eights..(token + 1) * eights]) {
                let x = isa.load(x);
                for r in 0..ROWS {
                    acc[r] = isa.add(acc[r], isa.mul(S::load(isa, &group[r]), x));
                }
            }
            for r in 0..n {
                y[token * rows + row + r] = isa.sum(acc[r]);
            }
        }
    }
}
