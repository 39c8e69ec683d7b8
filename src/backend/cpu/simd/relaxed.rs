//! wasm's relaxed SIMD: a product of int8 with int7, exact on every engine while the second operand is not negative.
//!
//! Unsigned weights (at most 63) are that operand. Weights of eight bits don't fit.

use super::Isa;
use super::simd128::{F16_UNIT, Simd128, dot_pairs, eights, halves, load128, pairs_to_f32, shared, widen_f16x8, widen_signed};
use std::arch::wasm32::*;

macro_rules! lanes {
    ($f:ident, $a:ident, $b:ident) => {
        [$f($a[0], $b[0]), $f($a[1], $b[1])]
    };
}

/// The two ways of gathering products: which is faster depends on what the engine makes of them for the processor.
macro_rules! relaxed {
    ($(#[$doc:meta])* $set:ident, $name:literal, $there:expr, $($sums:tt)+) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $set;

        impl Isa for $set {
            shared!();
            type W = [v128; 2];
            type P = [v128; 2];
            type S = [v128; 2];

            const NAME: &'static str = $name;

            #[inline(always)]
            fn detect() -> Option<Self> {
                $there.then_some(Self)
            }
            #[inline(always)]
            fn weights(self, b: [v128; 2]) -> [v128; 2] {
                b
            }
            #[inline(always)]
            fn start(self, n: i32) -> [v128; 2] {
                [i32x4_splat(n); 2]
            }
            $($sums)+
            #[inline(always)]
            fn to_f(self, p: [v128; 2]) -> [v128; 2] {
                [f32x4_convert_i32x4(p[0]), f32x4_convert_i32x4(p[1])]
            }
        }
    };
}

relaxed! {
    /// Sums of two products in 16 bits, widened once they would not fit: two instructions for 16 products where there is no better one.
    RelaxedPairs, "relaxed-pairs", true,
    eights!();
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
}

relaxed! {
    /// Sums of four products in 32 bits: one instruction on processors with VNNI (x86) or SDOT (Arm), three elsewhere.
    RelaxedFours, "relaxed-fours", has_fours(),
    type W8 = [v128; 2];
    type P8 = [v128; 4];
    #[inline(always)]
    fn zero8(self) -> [v128; 4] {
        [i32x4_splat(0); 4]
    }
    #[inline(always)]
    fn load8(self, q: &[u8; 32]) -> [v128; 2] {
        self.bytes(q)
    }
    /// The weights are the int8 here; the activations' positive and negative parts are each an int7.
    #[inline(always)]
    fn dot8(self, p: [v128; 4], w: [v128; 2], x: v128) -> [v128; 4] {
        let zero = i8x16_splat(0);
        let (positive, negative) = (i8x16_max(x, zero), i8x16_max(i8x16_neg(x), zero));
        [
            i32x4_relaxed_dot_i8x16_i7x16_add(w[0], positive, p[0]),
            i32x4_relaxed_dot_i8x16_i7x16_add(w[1], positive, p[1]),
            i32x4_relaxed_dot_i8x16_i7x16_add(w[0], negative, p[2]),
            i32x4_relaxed_dot_i8x16_i7x16_add(w[1], negative, p[3]),
        ]
    }
    #[inline(always)]
    fn to_f8(self, p: [v128; 4]) -> [v128; 2] {
        [f32x4_convert_i32x4(i32x4_sub(p[0], p[2])), f32x4_convert_i32x4(i32x4_sub(p[1], p[3]))]
    }
    #[inline(always)]
    fn begin(self, p: [v128; 2]) -> [v128; 2] {
        p
    }
    #[inline(always)]
    fn dot(self, s: [v128; 2], w: [v128; 2], x: v128) -> [v128; 2] {
        [i32x4_relaxed_dot_i8x16_i7x16_add(x, w[0], s[0]), i32x4_relaxed_dot_i8x16_i7x16_add(x, w[1], s[1])]
    }
    #[inline(always)]
    fn end(self, _: [v128; 2], s: [v128; 2]) -> [v128; 2] {
        s
    }
}

/// Whether the engine multiplies four at a time, in one instruction. What the product gives for an operand that is not an int7 is up to the
/// engine, and tells: the one made of 16-bit instructions saturates twice, at -32,768 for each pair.
fn has_fours() -> bool {
    let (lowest, highest) = std::hint::black_box((i8x16_splat(-128), u8x16_splat(255)));
    i32x4_extract_lane::<0>(i32x4_relaxed_dot_i8x16_i7x16_add(lowest, highest, i32x4_splat(0))) != -65_536
}
