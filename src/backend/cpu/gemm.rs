//! Products of packed weights with activations: y[token, row] = sum over k of w[row, k] x[token, k].
//!
//! One token or many, the sum of an output is the same chain: block after block, `acc += scale_x * (d * sum(q w) + m * sum(q))` with exact
//! integer sums, so the bits don't depend on how many tokens are computed together. Eight rows lie side by side, four columns of each: a
//! vector of activations is four columns, repeated, and every lane gathers the sum of its own row.

use super::pack::{Group4, Group5, Group6, Group8, GroupF, Groups, Packed, ROWS};
use super::simd::{BLOCK, Isa, Kernel, QBlock};
use super::split::Columns;

/// Tokens that share one unpacking of the weights.
const TILE: usize = 4;
/// Bytes of activations that should stay in the cache while the weights stream by.
const CACHE_BYTES: usize = 192 << 10;

/// A family of packed weights whose activations are int8.
pub trait Family {
    /// Adds the products of a group of rows with a block of each of `T` tokens. `steps`: what [`Isa::steps`] gave.
    fn accumulate<I: Isa, const T: usize>(&self, isa: I, steps: u32, x: [&QBlock; T], acc: &mut [I::F; T]);
}

/// Products of a run of columns with T tokens, on top of `p`: fours of columns from `$from` on, whose weights each `$two` gives two of, a
/// step each. Sixteen bits must hold the run: 2 * 127 * the largest weight * fours of columns < 2^15. A macro, because a closure would lose the
/// instruction set.
macro_rules! run {
    ($isa:ident, $steps:ident, $x:ident, $p:ident, $from:expr, $($two:expr),+) => {{
        let mut s = [$isa.begin($p[0]); T];
        for t in 0..T {
            s[t] = $isa.begin($p[t]);
        }
        let mut quad = $from;
        $(
            if $steps & 1 << quad != 0 {
                for (i, b) in $two.into_iter().enumerate() {
                    let w = $isa.weights(b);
                    for t in 0..T {
                        s[t] = $isa.dot(s[t], w, $isa.quad(&$x[t].q[quad + i]));
                    }
                }
            }
            quad += 2;
        )+
        let _ = quad;
        for t in 0..T {
            $p[t] = $isa.end($p[t], s[t]);
        }
    }};
}

/// acc += scale (d sum(q w) + m sum(q))
#[inline(always)]
fn affine<I: Isa, const T: usize>(isa: I, d: &[u16; ROWS], m: &[u16; ROWS], p: [I::P; T], x: [&QBlock; T], acc: &mut [I::F; T]) {
    let (d, m) = (isa.load_f16(d), isa.load_f16(m));
    for t in 0..T {
        let all = isa.add(isa.mul(d, isa.to_f(p[t])), isa.mul(m, isa.splat(x[t].sum)));
        acc[t] = isa.add(acc[t], isa.mul(all, isa.splat(x[t].scale)));
    }
}

impl Family for Group4 {
    #[inline(always)]
    fn accumulate<I: Isa, const T: usize>(&self, isa: I, steps: u32, x: [&QBlock; T], acc: &mut [I::F; T]) {
        let mut p = [isa.start(0); T];
        macro_rules! nibbles {
            ($i:literal) => {{
                let q = isa.bytes(&self.q[$i]);
                [isa.low(q, 15), isa.field(q, 0xf0, 4)]
            }};
        }
        run!(isa, steps, x, p, 0, nibbles!(0), nibbles!(1), nibbles!(2), nibbles!(3)); // 2 * 127 * 15 * 8 = 30,480
        affine(isa, &self.d, &self.m, p, x, acc);
    }
}

impl Family for Group5 {
    #[inline(always)]
    fn accumulate<I: Isa, const T: usize>(&self, isa: I, steps: u32, x: [&QBlock; T], acc: &mut [I::F; T]) {
        let mut p = [isa.start(0); T];
        macro_rules! top {
            ($i:literal, $mask:literal, $right:literal) => {
                isa.field(isa.bytes(&self.q[$i]), $mask, $right)
            };
        }
        // 2 * 127 * 31 * 4 = 31,496
        run!(isa, steps, x, p, 0, [top!(0, 31, 0), top!(1, 31, 0)], [top!(2, 31, 0), top!(3, 31, 0)]);
        run!(
            isa,
            steps,
            x,
            p,
            4,
            [top!(4, 31, 0), isa.or(top!(0, 0xe0, 5), top!(1, 0xc0, 3))],
            [isa.or(top!(2, 0xe0, 5), top!(3, 0xc0, 3)), isa.or(top!(4, 0xe0, 5), isa.or(top!(1, 0x20, 2), top!(3, 0x20, 1)))]
        );
        affine(isa, &self.d, &self.m, p, x, acc);
    }
}

impl Family for Group6 {
    #[inline(always)]
    fn accumulate<I: Isa, const T: usize>(&self, isa: I, steps: u32, x: [&QBlock; T], acc: &mut [I::F; T]) {
        let mut sums = [isa.splat(0.0); T];
        for half in 0..2 {
            let mut p = [isa.start(0); T];
            for t in 0..T {
                p[t] = isa.start(-32 * x[t].halves[half]);
            }
            macro_rules! top {
                ($i:literal, $mask:literal, $right:literal) => {
                    isa.field(isa.bytes(&self.q[half][$i]), $mask, $right)
                };
            }
            // 2 * 127 * 63 * 2 = 32,004
            run!(isa, steps, x, p, 4 * half, [top!(0, 63, 0), top!(1, 63, 0)]);
            let last = isa.or(top!(0, 0xc0, 6), isa.or(top!(1, 0xc0, 4), top!(2, 0xc0, 2)));
            run!(isa, steps, x, p, 4 * half + 2, [top!(2, 63, 0), last]);
            let d = isa.load_f16(&self.d[half]);
            for t in 0..T {
                let part = isa.mul(d, isa.to_f(p[t]));
                sums[t] = if half == 0 { part } else { isa.add(sums[t], part) };
            }
        }
        for t in 0..T {
            acc[t] = isa.add(acc[t], isa.mul(sums[t], isa.splat(x[t].scale)));
        }
    }
}

impl Family for Group8 {
    #[inline(always)]
    fn accumulate<I: Isa, const T: usize>(&self, isa: I, steps: u32, x: [&QBlock; T], acc: &mut [I::F; T]) {
        let mut p = [isa.start8(0); T];
        for t in 0..T {
            p[t] = isa.start8(x[t].halves[0] + x[t].halves[1]);
        }
        for (step, two) in self.q.as_chunks::<2>().0.iter().enumerate() {
            if steps & 1 << step == 0 {
                break;
            }
            for (i, q) in two.iter().enumerate() {
                let w = isa.load8(q);
                for t in 0..T {
                    p[t] = isa.dot8(p[t], w, isa.quad(&x[t].q[2 * step + i]));
                }
            }
        }
        let d = isa.load_f16(&self.d);
        for t in 0..T {
            acc[t] = isa.add(acc[t], isa.mul(isa.mul(d, isa.to_f8(p[t])), isa.splat(x[t].scale)));
        }
    }
}

/// Products of activations with some rows of a matrix.
pub struct Linear<'a> {
    /// The activations as int8, [tokens, columns / 32], for a matrix that takes them.
    pub q: &'a [QBlock],
    /// The activations, [tokens, stride]: zeros behind the matrix's columns.
    pub x: &'a [f32],
    /// Length of a row of `x`: the columns, rounded up to a multiple of 8.
    pub stride: usize,
    /// The weights.
    pub w: &'a Packed,
    /// The row of the weights that goes to column 0 of the result, a multiple of 8.
    pub first: usize,
    /// The result, [tokens, rows]: the columns that are wanted, from a multiple of 8 on.
    pub y: Columns<'a, f32>,
}

impl Kernel for Linear<'_> {
    type Out = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Self { q, x, stride, w, first, y } = self;
        match &w.groups {
            Groups::Bits4(g) => gemm(isa, q, g, w.cols, first, y),
            Groups::Bits5(g) => gemm(isa, q, g, w.cols, first, y),
            Groups::Bits6(g) => gemm(isa, q, g, w.cols, first, y),
            Groups::Bits8(g) => gemm(isa, q, g, w.cols, first, y),
            Groups::F16(g) => gemm_float::<I, AsF16>(isa, x, g, stride, w.cols, first, y),
            Groups::BF16(g) => gemm_float::<I, AsBF16>(isa, x, g, stride, w.cols, first, y),
            Groups::F32(g) => gemm_float::<I, AsF32>(isa, x, g, stride, w.cols, first, y),
        }
    }
}

#[inline(always)]
fn gemm<I: Isa, G: Family>(isa: I, x: &[QBlock], groups: &[G], cols: usize, first: usize, mut y: Columns<f32>) {
    let blocks = cols / BLOCK;
    let tokens = x.len() / blocks;
    let tile_tokens = (CACHE_BYTES / (blocks * size_of::<QBlock>())).max(TILE) / TILE * TILE;
    let rows = y.range();
    for from in (0..tokens).step_by(tile_tokens) {
        let to = (from + tile_tokens).min(tokens);
        for row in rows.clone().step_by(ROWS) {
            let band = (first + row) / ROWS;
            let band = &groups[band * blocks..(band + 1) * blocks];
            let mut token = from;
            // One text for every number of tokens, so that they can't part.
            macro_rules! tile {
                ($tokens:expr) => {{
                    let out = band_product::<I, G, $tokens>(isa, band, &x[token * blocks..], blocks);
                    put(isa, out, &mut y, token, row - rows.start);
                }};
            }
            while token + TILE <= to {
                tile!(TILE);
                token += TILE;
            }
            match to - token {
                1 => tile!(1),
                2 => tile!(2),
                3 => tile!(3),
                _ => {}
            }
        }
    }
}

#[cfg_attr(target_arch = "wasm32", inline(never))] // a function of its own gets registers of its own; elsewhere it would lose its instruction set
#[cfg_attr(not(target_arch = "wasm32"), inline(always))]
fn band_product<I: Isa, G: Family, const T: usize>(isa: I, band: &[G], x: &[QBlock], blocks: usize) -> [I::F; T] {
    let mut acc = [isa.splat(0.0); T];
    let steps = isa.steps();
    let x: [&[QBlock]; T] = std::array::from_fn(
        #[inline(always)]
        |t| &x[t * blocks..(t + 1) * blocks],
    );
    for (b, group) in band.iter().enumerate() {
        let x = std::array::from_fn(
            #[inline(always)]
            |t| &x[t][b],
        );
        group.accumulate::<I, T>(isa, steps, x, &mut acc);
    }
    acc
}

/// Eight results of each token, or as many as are left, from the thread's column `at` on.
#[inline(always)]
fn put<I: Isa, const T: usize>(isa: I, out: [I::F; T], y: &mut Columns<f32>, token: usize, at: usize) {
    for (t, eight) in out.into_iter().enumerate() {
        let y = &mut y.row(token + t)[at..];
        match y.first_chunk_mut::<ROWS>() {
            Some(y) => isa.store(eight, y),
            None => {
                let mut last = [0.0; ROWS];
                isa.store(eight, &mut last);
                y.copy_from_slice(&last[..y.len()]);
            }
        }
    }
}

/// How eight stored floats become f32.
pub trait Stored {
    /// As stored.
    type T: Copy;
    /// Widened.
    fn load<I: Isa>(isa: I, w: &[Self::T; ROWS]) -> I::F;
}
macro_rules! stored {
    ($name:ident, $type:ty, $load:ident) => {
        /// A way of storing.
        pub struct $name;
        impl Stored for $name {
            type T = $type;
            #[inline(always)]
            fn load<I: Isa>(isa: I, w: &[$type; ROWS]) -> I::F {
                isa.$load(w)
            }
        }
    };
}
stored!(AsF16, u16, load_f16);
stored!(AsBF16, u16, load_bf16);
stored!(AsF32, f32, load);

/// Sums that a float product gathers side by side (column k goes to sum k % 4), so that an addition need not wait for the one before.
const CHAINS: usize = 4;

#[inline(always)]
fn gemm_float<I: Isa, S: Stored>(isa: I, x: &[f32], groups: &[GroupF<S::T>], stride: usize, cols: usize, first: usize, mut y: Columns<f32>) {
    let tokens = x.len() / stride;
    let rows = y.range();
    for row in rows.clone().step_by(ROWS) {
        let band = (first + row) / ROWS;
        let band = &groups[band * cols..(band + 1) * cols];
        let mut token = 0;
        while token + 2 <= tokens {
            let out = band_floats::<I, S, 2>(isa, band, &x[token * stride..], stride);
            put(isa, out, &mut y, token, row - rows.start);
            token += 2;
        }
        if token < tokens {
            let out = band_floats::<I, S, 1>(isa, band, &x[token * stride..], stride);
            put(isa, out, &mut y, token, row - rows.start);
        }
    }
}

#[cfg_attr(target_arch = "wasm32", inline(never))] // a function of its own gets registers of its own; elsewhere it would lose its instruction set
#[cfg_attr(not(target_arch = "wasm32"), inline(always))]
fn band_floats<I: Isa, S: Stored, const T: usize>(isa: I, band: &[GroupF<S::T>], x: &[f32], stride: usize) -> [I::F; T] {
    let mut acc = [[isa.splat(0.0); CHAINS]; T];
    let (fours, rest) = band.as_chunks::<CHAINS>();
    for (i, four) in fours.iter().enumerate() {
        for chain in 0..CHAINS {
            let w = S::load(isa, &four[chain]);
            for t in 0..T {
                acc[t][chain] = isa.add(acc[t][chain], isa.mul(w, isa.splat(x[t * stride + CHAINS * i + chain])));
            }
        }
    }
    for (chain, w) in rest.iter().enumerate() {
        let w = S::load(isa, w);
        for t in 0..T {
            acc[t][chain] = isa.add(acc[t][chain], isa.mul(w, isa.splat(x[t * stride + CHAINS * fours.len() + chain])));
        }
    }
    let mut out = [isa.splat(0.0); T];
    for t in 0..T {
        out[t] = isa.add(isa.add(acc[t][0], acc[t][1]), isa.add(acc[t][2], acc[t][3]));
    }
    out
}
