//! 64-bit Arm with the dot product instructions (every processor since about 2018): four products and their sum in one instruction.

use super::Isa;
use std::arch::aarch64::*;

/// Proof that the processor has NEON and its dot product.
#[derive(Debug, Clone, Copy)]
pub struct NeonDot(());

macro_rules! intrinsic {
    ($e:expr) => {
        // SAFETY: a `NeonDot` exists only where the processor has the instructions; loads and stores go through references to arrays of their width.
        unsafe { $e }
    };
}

/// The two halves of an array.
#[inline(always)]
fn halves<T, const N: usize, const HALF: usize>(x: &[T; N]) -> (&[T; HALF], &[T; HALF]) {
    const { assert!(N == 2 * HALF) };
    let (halves, _) = x.as_chunks::<HALF>();
    (&halves[0], &halves[1])
}

/// What puts the bias of an f16's exponent right: 2^112.
const F16_UNIT: f32 = f32::from_bits(239 << 23);

macro_rules! lanes {
    ($f:ident, $a:ident, $b:ident) => {
        intrinsic!([$f($a[0], $b[0]), $f($a[1], $b[1])])
    };
}

impl Isa for NeonDot {
    type F = [float32x4_t; 2];
    type B = [uint8x16_t; 2];
    type W = [int8x16_t; 2];
    type X = int8x16_t;
    type S = [int32x4_t; 2];
    type P = [int32x4_t; 2];
    type W8 = [int8x16_t; 2];
    type P8 = [int32x4_t; 2];

    const NAME: &'static str = "neon-dot";
    const WIDE: bool = true; // 32 registers of half the width
    const F16_UNIT: f32 = F16_UNIT;
    type Floats = Self;

    fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("dotprod").then_some(Self(()))
    }
    fn enter<K: super::Kernel>(self, kernel: K) -> K::Out {
        #[target_feature(enable = "neon,dotprod")]
        fn on<K: super::Kernel>(kernel: K, isa: NeonDot) -> K::Out {
            kernel.run(isa)
        }
        // SAFETY: `self` exists only where the processor has the instructions.
        unsafe { on(kernel, self) }
    }

    #[inline(always)]
    fn floats(self) -> Self {
        self
    }
    #[inline(always)]
    fn prefetch<T>(self, x: &[T], bytes: usize) {
        let at = x.as_ptr().wrapping_byte_add(bytes);
        // SAFETY: a prefetch reads nothing that the program could see, and never faults.
        unsafe { std::arch::asm!("prfm pldl1keep, [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly)) };
    }
    #[inline(always)]
    fn splat(self, x: f32) -> Self::F {
        intrinsic!([vdupq_n_f32(x); 2])
    }
    #[inline(always)]
    fn load(self, x: &[f32; 8]) -> Self::F {
        let (low, high) = halves::<f32, 8, 4>(x);
        intrinsic!([vld1q_f32(low.as_ptr()), vld1q_f32(high.as_ptr())])
    }
    #[inline(always)]
    fn store(self, v: Self::F, to: &mut [f32; 8]) {
        let (to, _) = to.as_chunks_mut::<4>();
        intrinsic!({
            vst1q_f32(to[0].as_mut_ptr(), v[0]);
            vst1q_f32(to[1].as_mut_ptr(), v[1]);
        })
    }
    #[inline(always)]
    fn load_f16(self, x: &[u16; 8]) -> Self::F {
        let raw = self.load_f16_raw(x);
        self.mul(raw, self.splat(F16_UNIT)) // exact, of denormals too
    }
    #[inline(always)]
    fn load_f16_raw(self, x: &[u16; 8]) -> Self::F {
        // the exponent moves into place; the mask clears the copies of the sign between it and the exponent
        intrinsic!({
            let h = vreinterpretq_s16_u16(vld1q_u16(x.as_ptr()));
            let mask = vdupq_n_s32(0x8fff_e000_u32 as i32);
            let place = [vshll_n_s16::<13>(vget_low_s16(h)), vshll_n_s16::<13>(vget_high_s16(h))];
            place.map(
                #[inline(always)]
                |v| vreinterpretq_f32_s32(vandq_s32(v, mask)),
            )
        })
    }
    #[inline(always)]
    fn load_bf16(self, x: &[u16; 8]) -> Self::F {
        intrinsic!({
            let h = vld1q_u16(x.as_ptr());
            let wide = [vshll_n_u16::<16>(vget_low_u16(h)), vshll_n_u16::<16>(vget_high_u16(h))];
            wide.map(
                #[inline(always)]
                |v| vreinterpretq_f32_u32(v),
            )
        })
    }
    #[inline(always)]
    fn load_i8(self, x: &[i8; 8]) -> Self::F {
        intrinsic!({
            let words = vmovl_s8(vld1_s8(x.as_ptr()));
            [vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(words)))]
        })
    }
    #[inline(always)]
    fn add(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(vaddq_f32, a, b)
    }
    #[inline(always)]
    fn sub(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(vsubq_f32, a, b)
    }
    #[inline(always)]
    fn mul(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(vmulq_f32, a, b)
    }
    #[inline(always)]
    fn div(self, a: Self::F, b: Self::F) -> Self::F {
        lanes!(vdivq_f32, a, b)
    }
    #[inline(always)]
    fn max(self, a: Self::F, b: Self::F) -> Self::F {
        // NEON's own maximum gives NaN where either is one
        intrinsic!([vbslq_f32(vcgtq_f32(a[0], b[0]), a[0], b[0]), vbslq_f32(vcgtq_f32(a[1], b[1]), a[1], b[1])])
    }
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        intrinsic!([vbslq_f32(vcltq_f32(a[0], b[0]), a[0], b[0]), vbslq_f32(vcltq_f32(a[1], b[1]), a[1], b[1])])
    }
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        intrinsic!([vabsq_f32(a[0]), vabsq_f32(a[1])])
    }
    #[inline(always)]
    fn round(self, a: Self::F) -> Self::F {
        intrinsic!([vrndnq_f32(a[0]), vrndnq_f32(a[1])])
    }
    #[inline(always)]
    fn pow2(self, n: Self::F) -> Self::F {
        intrinsic!(n.map(
            #[inline(always)]
            |n| vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127))))
        ))
    }
    #[inline(always)]
    fn sum(self, a: Self::F) -> f32 {
        intrinsic!({
            let four = vaddq_f32(a[0], a[1]); // 0+4 1+5 2+6 3+7
            let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
            vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
        })
    }
    #[inline(always)]
    fn max_lane(self, a: Self::F) -> f32 {
        let mut lanes = [0.0; 8];
        self.store(a, &mut lanes);
        lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    #[inline(always)]
    fn to_i8(self, v: Self::F) -> [i8; 8] {
        intrinsic!({
            let words = vcombine_s16(vqmovn_s32(vcvtq_s32_f32(v[0])), vqmovn_s32(vcvtq_s32_f32(v[1])));
            let mut bytes = [0; 8];
            vst1_s8(bytes.as_mut_ptr(), vqmovn_s16(words));
            bytes
        })
    }

    #[inline(always)]
    fn bytes(self, q: &[u8; 32]) -> Self::B {
        let (low, high) = halves::<u8, 32, 16>(q);
        intrinsic!([vld1q_u8(low.as_ptr()), vld1q_u8(high.as_ptr())])
    }
    #[inline(always)]
    fn field(self, b: Self::B, mask: u8, right: i32) -> Self::B {
        b.map(
            #[inline(always)]
            |b| {
                intrinsic!({
                    let bits = vandq_u8(b, vdupq_n_u8(mask));
                    vshlq_u8(bits, vdupq_n_s8(-right as i8)) // to the right where that is negative
                })
            },
        )
    }
    #[inline(always)]
    fn or(self, a: Self::B, b: Self::B) -> Self::B {
        intrinsic!([vorrq_u8(a[0], b[0]), vorrq_u8(a[1], b[1])])
    }
    #[inline(always)]
    fn weights(self, b: Self::B) -> Self::W {
        intrinsic!([vreinterpretq_s8_u8(b[0]), vreinterpretq_s8_u8(b[1])])
    }
    #[inline(always)]
    fn quad(self, x: &[i8; 4]) -> int8x16_t {
        intrinsic!(vreinterpretq_s8_s32(vdupq_n_s32(i32::from_le_bytes(x.map(|x| x as u8)))))
    }
    #[inline(always)]
    fn start(self, n: i32) -> Self::P {
        intrinsic!([vdupq_n_s32(n); 2])
    }
    #[inline(always)]
    fn begin(self, p: Self::P) -> Self::S {
        p
    }
    #[inline(always)]
    fn dot(self, s: Self::S, w: Self::W, x: int8x16_t) -> Self::S {
        intrinsic!([sdot(s[0], w[0], x), sdot(s[1], w[1], x)])
    }
    #[inline(always)]
    fn end(self, _: Self::P, s: Self::S) -> Self::P {
        s
    }
    #[inline(always)]
    fn to_f(self, p: Self::P) -> Self::F {
        intrinsic!([vcvtq_f32_s32(p[0]), vcvtq_f32_s32(p[1])])
    }

    #[inline(always)]
    fn start8(self, _: i32) -> Self::P8 {
        self.start(0)
    }
    #[inline(always)]
    fn load8(self, q: &[u8; 32]) -> Self::W8 {
        self.weights(self.bytes(q))
    }
    #[inline(always)]
    fn dot8(self, p: Self::P8, w: Self::W8, x: int8x16_t) -> Self::P8 {
        self.dot(p, w, x)
    }
    #[inline(always)]
    fn to_f8(self, p: Self::P8) -> Self::F {
        self.to_f(p)
    }
}

/// SDOT. The intrinsic for it is not stable in Rust yet, so the instruction is written out.
///
/// # Safety
/// The processor has the dot product instructions.
#[inline(always)]
unsafe fn sdot(sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let mut sum = sum;
    // SAFETY: registers only; the caller knows that the processor has the instruction.
    unsafe {
        std::arch::asm!(".arch_extension dotprod", "sdot {s:v}.4s, {a:v}.16b, {b:v}.16b", s = inout(vreg) sum, a = in(vreg) a, b = in(vreg) b, options(pure, nomem, nostack, preserves_flags));
    }
    sum
}
