//! wasm's relaxed SIMD: a product of int8 with int7, exact on every engine while the second operand is not negative.
//!
//! Unsigned weights (at most 63) are that operand. Sixteen-bit sums of two products are gathered as long as they fit and then widened: on
//! x86 that is two instructions for 16 products instead of three. Weights of eight bits don't fit and go the way of `simd128`.

use super::Isa;
use super::simd128::{dot_pairs, halves, load128, pairs_to_f32, shared, widen_f16x8, widen_signed};
use std::arch::wasm32::*;

/// The instruction set that the module was compiled for.
#[derive(Debug, Clone, Copy)]
pub struct Relaxed;

macro_rules! lanes {
    ($f:ident, $a:ident, $b:ident) => {
        [$f($a[0], $b[0]), $f($a[1], $b[1])]
    };
}

impl Isa for Relaxed {
    shared!();
    type W = [v128; 2];
    type P = [v128; 2];
    type S = [v128; 2];

    const NAME: &'static str = "relaxed";

    #[inline(always)]
    fn weights(self, b: [v128; 2]) -> [v128; 2] {
        b
    }
    #[inline(always)]
    fn start(self, n: i32) -> [v128; 2] {
        [i32x4_splat(n); 2]
    }
    #[inline(always)]
    fn begin(self, _: [v128; 2]) -> [v128; 2] {
        [i16x8_splat(0); 2]
    }
    #[inline(always)]
    fn dot(self, s: [v128; 2], w: [v128; 2], x: v128) -> [v128; 2] {
        [i16x8_add(s[0], i16x8_relaxed_dot_i8x16_i7x16(x, w[0])), i16x8_add(s[1], i16x8_relaxed_dot_i8x16_i7x16(x, w[1]))]
    }
    #[inline(always)]
    fn end(self, p: [v128; 2], s: [v128; 2]) -> [v128; 2] {
        let ones = i16x8_splat(1);
        [i32x4_add(p[0], i32x4_dot_i16x8(s[0], ones)), i32x4_add(p[1], i32x4_dot_i16x8(s[1], ones))]
    }
    #[inline(always)]
    fn to_f(self, p: [v128; 2]) -> [v128; 2] {
        [f32x4_convert_i32x4(p[0]), f32x4_convert_i32x4(p[1])]
    }
}
