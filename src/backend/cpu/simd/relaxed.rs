//! wasm's relaxed SIMD: a product of int8 with int7, exact on every engine while the second operand is not negative.
//!
//! Unsigned weights (at most 63) are that operand. Weights of eight bits are more than that, see [`fours`].

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
        pub struct $set {
            /// What is added to stored weights of eight bits.
            bias: u8,
        }

        impl Isa for $set {
            shared!();
            type W = [v128; 2];
            type P = [v128; 2];
            type S = [v128; 2];

            const NAME: &'static str = $name;

            #[inline(always)]
            fn detect() -> Option<Self> {
                let bias: Option<u8> = $there;
                Some(Self { bias: bias? })
            }
            #[inline(always)]
            fn bias8(self) -> u8 {
                self.bias
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
    RelaxedPairs, "relaxed-pairs", Some(0),
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
    RelaxedFours, "relaxed-fours", fours(),
    type W8 = [v128; 2];
    type P8 = [v128; 2];
    #[inline(always)]
    fn start8(self, sum: i32) -> [v128; 2] {
        self.start(-i32::from(self.bias) * sum)
    }
    #[inline(always)]
    fn load8(self, q: &[u8; 32]) -> [v128; 2] {
        self.bytes(q)
    }
    /// Eight bits are more than an int7: what the product makes of them was asked of the engine, and the bias is what suits it.
    #[inline(always)]
    fn dot8(self, p: [v128; 2], w: [v128; 2], x: v128) -> [v128; 2] {
        self.dot(p, w, x)
    }
    #[inline(always)]
    fn to_f8(self, p: [v128; 2]) -> [v128; 2] {
        self.to_f(p)
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

/// Whether the engine multiplies four at a time, in one instruction, and the bias of eight-bit weights that makes its products exact.
///
/// What the product gives for a second operand that is not an int7 is up to the engine, but it must be the same every time ("Relaxed
/// Vector Instructions", WebAssembly 3.0), so it tells: x86's VNNI takes unsigned bytes, Arm's SDOT signed ones; the one made of 16-bit
/// instructions saturates, or wraps.
fn fours() -> Option<u8> {
    let product = |highest: v128| {
        let (lowest, highest) = std::hint::black_box((i8x16_splat(-128), highest));
        i32x4_extract_lane::<0>(i32x4_relaxed_dot_i8x16_i7x16_add(lowest, highest, i32x4_splat(0)))
    };
    match (product(u8x16_splat(255)), product(u8x16_splat(128))) {
        (-130_560, -65_536) => Some(128), // 4 * -128 * 255, 4 * -128 * 128
        (512, 65_536) => Some(0),         // 4 * -128 * -1, 4 * -128 * -128
        _ => None,
    }
}
