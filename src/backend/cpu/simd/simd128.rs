//! wasm's 128-bit SIMD, without the relaxed instructions.
//!
//! There is no int8 product here, so weights and activations are widened to i16, two rows of four columns in a vector.

use super::{Isa, Kernel};
use std::arch::wasm32::*;

/// The instruction set that the module was compiled for.
#[derive(Debug, Clone, Copy)]
pub struct Simd128;

/// What puts the bias of the exponent right: 2^112.
pub(super) const F16_UNIT: f32 = f32::from_bits(239 << 23);

/// f16 -> f32 / 2^112 for finite values, sign-extended to 32 bits: the exponent is moved into place. The mask clears the copies of the sign
/// between it and the exponent.
#[inline(always)]
fn widen_f16(h: v128) -> v128 {
    v128_and(i32x4_shl(h, 13), u32x4_splat(0x8fff_e000))
}

macro_rules! lanes {
    ($f:ident, $a:ident, $b:ident) => {
        [$f($a[0], $b[0]), $f($a[1], $b[1])]
    };
}

#[inline(always)]
pub(super) fn load128<T: Copy>(x: &T) -> v128 {
    const { assert!(size_of::<T>() == 16) };
    // SAFETY: the reference is to 16 bytes, and a v128 load needs no alignment.
    unsafe { v128_load(std::ptr::from_ref(x).cast()) }
}

#[inline(always)]
pub(super) fn halves<T, const N: usize, const HALF: usize>(x: &[T; N]) -> (&[T; HALF], &[T; HALF]) {
    const { assert!(N == 2 * HALF) };
    let (halves, _) = x.as_chunks::<HALF>();
    (&halves[0], &halves[1])
}

#[inline(always)]
pub(super) fn widen_f16x8(x: &[u16; 8]) -> [v128; 2] {
    // SAFETY: both loads are of eight bytes inside of the array, and need no alignment.
    let [low, high] = unsafe { [i32x4_load_extend_i16x4(x.as_ptr().cast()), i32x4_load_extend_i16x4(x.as_ptr().add(4).cast())] };
    [widen_f16(low), widen_f16(high)]
}

/// The sums of neighbouring lanes of two vectors, as four lanes.
#[inline(always)]
fn pair_sums(a: v128, b: v128) -> v128 {
    i32x4_add(i32x4_shuffle::<0, 2, 4, 6>(a, b), i32x4_shuffle::<1, 3, 5, 7>(a, b))
}

/// Eight rows' sums, of which each lane pair holds two halves, as f32.
#[inline(always)]
pub(super) fn pairs_to_f32(p: [v128; 4]) -> [v128; 2] {
    [f32x4_convert_i32x4(pair_sums(p[0], p[1])), f32x4_convert_i32x4(pair_sums(p[2], p[3]))]
}

/// Sixteen-bit products of two rows a vector with four activations.
#[inline(always)]
pub(super) fn dot_pairs(p: [v128; 4], w: [v128; 4], x: v128) -> [v128; 4] {
    let x = i16x8_extend_low_i8x16(x);
    std::array::from_fn(
        #[inline(always)]
        |i| i32x4_add(p[i], i32x4_dot_i16x8(w[i], x)),
    )
}

#[inline(always)]
pub(super) fn widen_signed(q: &[u8; 32]) -> [v128; 4] {
    let (a, b) = halves::<u8, 32, 16>(q);
    let (a, b) = (load128(a), load128(b));
    [i16x8_extend_low_i8x16(a), i16x8_extend_high_i8x16(a), i16x8_extend_low_i8x16(b), i16x8_extend_high_i8x16(b)]
}

/// What both instruction sets of wasm share: floats, and weights as bytes.
macro_rules! shared {
    () => {
        type F = [v128; 2];
        type B = [v128; 2];
        type X = v128;

        const WIDE: bool = false;
        const F16_UNIT: f32 = F16_UNIT;
        type Floats = Simd128;

        #[inline(always)]
        fn floats(self) -> Self::Floats {
            Simd128
        }
        #[inline(always)]
        fn splat(self, x: f32) -> [v128; 2] {
            [f32x4_splat(x); 2]
        }
        #[inline(always)]
        fn load(self, x: &[f32; 8]) -> [v128; 2] {
            let (low, high) = halves::<f32, 8, 4>(x);
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
            let unit = f32x4_splat(Self::F16_UNIT);
            self.load_f16_raw(x).map(
                #[inline(always)]
                |v| f32x4_mul(v, unit), // exact, of denormals too
            )
        }
        #[inline(always)]
        fn load_f16_raw(self, x: &[u16; 8]) -> [v128; 2] {
            widen_f16x8(x)
        }
        #[inline(always)]
        fn load_bf16(self, x: &[u16; 8]) -> [v128; 2] {
            let h = load128(x);
            [i32x4_shl(u32x4_extend_low_u16x8(h), 16), i32x4_shl(u32x4_extend_high_u16x8(h), 16)]
        }
        #[inline(always)]
        fn load_i8(self, x: &[i8; 8]) -> [v128; 2] {
            // SAFETY: the reference is to 8 bytes, and the load needs no alignment.
            let words = unsafe { i16x8_load_extend_i8x8(x.as_ptr()) };
            [f32x4_convert_i32x4(i32x4_extend_low_i16x8(words)), f32x4_convert_i32x4(i32x4_extend_high_i16x8(words))]
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
        fn to_i8(self, v: [v128; 2]) -> [i8; 8] {
            let words = i16x8_narrow_i32x4(i32x4_trunc_sat_f32x4(v[0]), i32x4_trunc_sat_f32x4(v[1]));
            i64x2_extract_lane::<0>(i8x16_narrow_i16x8(words, words)).to_le_bytes().map(|b| b as i8)
        }

        #[inline(always)]
        fn bytes(self, q: &[u8; 32]) -> [v128; 2] {
            let (low, high) = halves::<u8, 32, 16>(q);
            [load128(low), load128(high)]
        }
        #[inline(always)]
        fn field(self, b: [v128; 2], mask: u8, right: i32) -> [v128; 2] {
            b.map(
                #[inline(always)]
                |b| {
                    let mask = u8x16_splat(mask);
                    match right {
                        0 => v128_and(b, mask),
                        // Moved before it is masked, as words: engines make five instructions of a shift of bytes, and the compiler would see one.
                        1.. => v128_and(u16x8_shr(b, right as u32), u8x16_shr(mask, right as u32)),
                        _ => i16x8_shl(v128_and(b, mask), -right as u32),
                    }
                },
            )
        }
        #[inline(always)]
        fn or(self, a: [v128; 2], b: [v128; 2]) -> [v128; 2] {
            lanes!(v128_or, a, b)
        }
        #[inline(always)]
        fn steps(self) -> u32 {
            std::hint::black_box(!0)
        }
        #[inline(always)]
        fn quad(self, x: &[i8; 4]) -> v128 {
            // SAFETY: the reference is to 4 bytes, and the load needs no alignment.
            unsafe { v128_load32_splat(x.as_ptr().cast()) }
        }
    };
}

/// Signed weights of eight bits, by way of sixteen.
macro_rules! eights {
    () => {
        type W8 = [v128; 4];
        type P8 = [v128; 4];

        #[inline(always)]
        fn start8(self, _: i32) -> [v128; 4] {
            [i32x4_splat(0); 4]
        }
        #[inline(always)]
        fn load8(self, q: &[u8; 32]) -> [v128; 4] {
            widen_signed(q)
        }
        #[inline(always)]
        fn dot8(self, p: [v128; 4], w: [v128; 4], x: v128) -> [v128; 4] {
            dot_pairs(p, w, x)
        }
        #[inline(always)]
        fn to_f8(self, p: [v128; 4]) -> [v128; 2] {
            pairs_to_f32(p)
        }
    };
}
#[cfg(target_feature = "relaxed-simd")]
pub(super) use {eights, shared};

impl Isa for Simd128 {
    shared!();
    eights!();
    type W = [v128; 4];
    type P = [v128; 4];
    type S = [v128; 4];

    const NAME: &'static str = "simd128";

    /// A function of its own, for the relaxed sets that compute floats here to share.
    #[inline(never)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Out {
        kernel.run(self)
    }

    #[inline(always)]
    fn detect() -> Option<Self> {
        Some(Self)
    }

    #[inline(always)]
    fn weights(self, b: [v128; 2]) -> [v128; 4] {
        [u16x8_extend_low_u8x16(b[0]), u16x8_extend_high_u8x16(b[0]), u16x8_extend_low_u8x16(b[1]), u16x8_extend_high_u8x16(b[1])]
    }
    #[inline(always)]
    fn start(self, n: i32) -> [v128; 4] {
        [i64x2_splat(i64::from(n as u32)); 4] // the low lane of each pair
    }
    #[inline(always)]
    fn begin(self, p: [v128; 4]) -> [v128; 4] {
        p
    }
    #[inline(always)]
    fn dot(self, s: [v128; 4], w: [v128; 4], x: v128) -> [v128; 4] {
        dot_pairs(s, w, x)
    }
    #[inline(always)]
    fn end(self, _: [v128; 4], s: [v128; 4]) -> [v128; 4] {
        s
    }
    #[inline(always)]
    fn to_f(self, p: [v128; 4]) -> [v128; 2] {
        pairs_to_f32(p)
    }
}
