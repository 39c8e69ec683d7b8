//! wasm's 128-bit SIMD, without the relaxed instructions.
//!
//! There is no int8 product here, so activations are held as i16 and weights are unpacked to i16: a nibble of each of eight 16-bit lanes
//! at a time, which takes one shift and one mask. The nibbles are packed in that order.

use super::Isa;
use std::arch::wasm32::*;

/// The instruction set that the module was compiled for.
#[derive(Debug, Clone, Copy)]
pub struct Simd128;

/// f16 -> f32 for finite values: the exponent is moved into place and the bias put right by a product, which is exact (denormals too).
#[inline(always)]
fn widen_f16(h: v128) -> v128 {
    // h: u32x4 lanes with an f16 in the low half
    let magnitude = i32x4_shl(v128_and(h, u32x4_splat(0x7fff)), 13);
    let sign = i32x4_shl(v128_and(h, u32x4_splat(0x8000)), 16);
    v128_or(f32x4_mul(magnitude, f32x4_splat(f32::from_bits(239 << 23))), sign) // 2^112
}

macro_rules! lanes {
    ($f:ident, $a:ident, $b:ident) => {
        [$f($a[0], $b[0]), $f($a[1], $b[1])]
    };
}

#[inline(always)]
fn load128<T: Copy>(x: &T) -> v128 {
    const { assert!(size_of::<T>() == 16) };
    // SAFETY: the reference is to 16 bytes, and a v128 load needs no alignment.
    unsafe { v128_load(std::ptr::from_ref(x).cast()) }
}

#[inline(always)]
fn halves<T>(x: &[T; 8]) -> (&[T; 4], &[T; 4]) {
    let (quads, _) = x.as_chunks::<4>();
    (&quads[0], &quads[1])
}

/// Products of two vectors of the four: 16 weights each.
#[inline(always)]
fn dot16(w: [v128; 2], x: &[[i16; 8]]) -> v128 {
    i32x4_add(i32x4_dot_i16x8(w[0], load128(&x[0])), i32x4_dot_i16x8(w[1], load128(&x[1])))
}

/// The sums of four vectors' lanes, as four lanes.
#[inline(always)]
fn transpose_sum(p: [v128; 4]) -> v128 {
    let ab = i32x4_add(i32x4_shuffle::<0, 4, 1, 5>(p[0], p[1]), i32x4_shuffle::<2, 6, 3, 7>(p[0], p[1])); // a b a b
    let cd = i32x4_add(i32x4_shuffle::<0, 4, 1, 5>(p[2], p[3]), i32x4_shuffle::<2, 6, 3, 7>(p[2], p[3]));
    let all = i32x4_add(i64x2_shuffle::<0, 2>(ab, cd), i64x2_shuffle::<1, 3>(ab, cd));
    f32x4_convert_i32x4(all)
}

impl Isa for Simd128 {
    type F = [v128; 2];
    type F4 = v128;
    type Q = i16;
    type W = [v128; 4];
    type P = v128;
    type P2 = [v128; 2];

    const NAME: &'static str = "simd128";

    #[inline(always)]
    fn widen(q: i8) -> i16 {
        i16::from(q)
    }
    fn nibble(k: usize) -> (usize, bool) {
        // 16-bit lane k % 8, nibble k / 8 of it
        (2 * (k % 8) + k / 16, k / 8 % 2 == 1)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> [v128; 2] {
        [f32x4_splat(x); 2]
    }
    #[inline(always)]
    fn load(self, x: &[f32; 8]) -> [v128; 2] {
        let (low, high) = halves(x);
        [load128(low), load128(high)]
    }
    #[inline(always)]
    fn store(self, v: [v128; 2], to: &mut [f32; 8]) {
        // SAFETY: `to` is 32 bytes, and a v128 store needs no alignment.
        unsafe {
            v128_store(to.as_mut_ptr().cast(), v[0]);
            v128_store(to.as_mut_ptr().add(4).cast(), v[1]);
        }
    }
    #[inline(always)]
    fn load_f16(self, x: &[u16; 8]) -> [v128; 2] {
        let h = load128(x);
        [widen_f16(u32x4_extend_low_u16x8(h)), widen_f16(u32x4_extend_high_u16x8(h))]
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16; 8]) -> [v128; 2] {
        let h = load128(x);
        [i32x4_shl(u32x4_extend_low_u16x8(h), 16), i32x4_shl(u32x4_extend_high_u16x8(h), 16)]
    }
    #[inline(always)]
    fn add(self, a: [v128; 2], b: [v128; 2]) -> [v128; 2] {
        lanes!(f32x4_add, a, b)
    }
    #[inline(always)]
    fn sub(self, a: [v128; 2], b: [v128; 2]) -> [v128; 2] {
        lanes!(f32x4_sub, a, b)
    }
    #[inline(always)]
    fn mul(self, a: [v128; 2], b: [v128; 2]) -> [v128; 2] {
        lanes!(f32x4_mul, a, b)
    }
    #[inline(always)]
    fn div(self, a: [v128; 2], b: [v128; 2]) -> [v128; 2] {
        lanes!(f32x4_div, a, b)
    }
    #[inline(always)]
    fn max(self, a: [v128; 2], b: [v128; 2]) -> [v128; 2] {
        lanes!(f32x4_pmax, b, a) // pmax(x, y) is x < y ? y : x
    }
    #[inline(always)]
    fn min(self, a: [v128; 2], b: [v128; 2]) -> [v128; 2] {
        lanes!(f32x4_pmin, b, a) // pmin(x, y) is y < x ? y : x
    }
    #[inline(always)]
    fn abs(self, a: [v128; 2]) -> [v128; 2] {
        [f32x4_abs(a[0]), f32x4_abs(a[1])]
    }
    #[inline(always)]
    fn round(self, a: [v128; 2]) -> [v128; 2] {
        [f32x4_nearest(a[0]), f32x4_nearest(a[1])]
    }
    #[inline(always)]
    fn pow2(self, n: [v128; 2]) -> [v128; 2] {
        n.map(|n| i32x4_shl(i32x4_add(i32x4_trunc_sat_f32x4(n), i32x4_splat(127)), 23))
    }
    #[inline(always)]
    fn sum(self, a: [v128; 2]) -> f32 {
        let four = f32x4_add(a[0], a[1]);
        let two = f32x4_add(four, i64x2_shuffle::<1, 1>(four, four));
        f32x4_extract_lane::<0>(two) + f32x4_extract_lane::<1>(two)
    }
    #[inline(always)]
    fn max_lane(self, a: [v128; 2]) -> f32 {
        let four = f32x4_pmax(a[0], a[1]);
        let two = f32x4_pmax(four, i64x2_shuffle::<1, 1>(four, four));
        f32x4_extract_lane::<0>(two).max(f32x4_extract_lane::<1>(two))
    }

    #[inline(always)]
    fn zero_p(self) -> v128 {
        i32x4_splat(0)
    }
    #[inline(always)]
    fn zero_p2(self) -> [v128; 2] {
        [i32x4_splat(0); 2]
    }
    #[inline(always)]
    fn zero4(self) -> v128 {
        f32x4_splat(0.0)
    }
    #[inline(always)]
    fn splat4(self, x: f32) -> v128 {
        f32x4_splat(x)
    }
    #[inline(always)]
    fn f16x4(self, x: &[u16; 4]) -> v128 {
        // SAFETY: the reference is to 8 bytes, and the load needs no alignment.
        widen_f16(unsafe { u32x4_load_extend_u16x4(x.as_ptr()) })
    }
    #[inline(always)]
    fn add4(self, a: v128, b: v128) -> v128 {
        f32x4_add(a, b)
    }
    #[inline(always)]
    fn mul4(self, a: v128, b: v128) -> v128 {
        f32x4_mul(a, b)
    }
    #[inline(always)]
    fn store4(self, v: v128) -> [f32; 4] {
        [f32x4_extract_lane::<0>(v), f32x4_extract_lane::<1>(v), f32x4_extract_lane::<2>(v), f32x4_extract_lane::<3>(v)]
    }

    #[inline(always)]
    fn unpack4(self, low: &[u8; 16]) -> [v128; 4] {
        let lanes = load128(low);
        let mask = u16x8_splat(15);
        [v128_and(lanes, mask), v128_and(u16x8_shr(lanes, 4), mask), v128_and(u16x8_shr(lanes, 8), mask), u16x8_shr(lanes, 12)]
    }
    #[inline(always)]
    fn unpack5(self, low: &[u8; 16], high: &[u8; 4]) -> [v128; 4] {
        let low = self.unpack4(low);
        let bit = i16x8(1, 2, 4, 8, 16, 32, 64, 128);
        std::array::from_fn(|i| {
            let set = i16x8_eq(v128_and(u16x8_splat(u16::from(high[i])), bit), bit);
            v128_or(low[i], v128_and(set, u16x8_splat(16)))
        })
    }
    #[inline(always)]
    fn unpack6(self, low: &[u8; 16], high: &[u8; 8]) -> [v128; 4] {
        let low = self.unpack4(low);
        // SAFETY: the reference is to 8 bytes, and the load needs no alignment.
        let pairs = unsafe { u16x8_load_extend_u8x8(high.as_ptr()) };
        let (mask, offset) = (u16x8_splat(0x30), i16x8_splat(32));
        let high = [u16x8_shl(pairs, 4), u16x8_shl(pairs, 2), pairs, u16x8_shr(pairs, 2)];
        std::array::from_fn(|i| i16x8_sub(v128_or(low[i], v128_and(high[i], mask)), offset))
    }
    #[inline(always)]
    fn load8(self, q: &[i8; 32]) -> [v128; 4] {
        let (bytes, _) = q.as_chunks::<16>();
        let (a, b) = (load128(&bytes[0]), load128(&bytes[1]));
        [i16x8_extend_low_i8x16(a), i16x8_extend_high_i8x16(a), i16x8_extend_low_i8x16(b), i16x8_extend_high_i8x16(b)]
    }
    #[inline(always)]
    fn dot_unsigned(self, w: [v128; 4], x: &[i16; 32]) -> v128 {
        self.dot_signed(w, x)
    }
    #[inline(always)]
    fn dot_signed(self, w: [v128; 4], x: &[i16; 32]) -> v128 {
        let [first, second] = self.dot_halves(w, x);
        i32x4_add(first, second)
    }
    #[inline(always)]
    fn dot_halves(self, w: [v128; 4], x: &[i16; 32]) -> [v128; 2] {
        let (x, _) = x.as_chunks::<8>();
        [dot16([w[0], w[1]], &x[..2]), dot16([w[2], w[3]], &x[2..])]
    }
    #[inline(always)]
    fn reduce(self, p: [v128; 4]) -> v128 {
        transpose_sum(p)
    }
    #[inline(always)]
    fn reduce_halves(self, p: [[v128; 2]; 4]) -> [v128; 2] {
        [transpose_sum(p.map(|halves| halves[0])), transpose_sum(p.map(|halves| halves[1]))]
    }
}
