//! x86-64 with AVX2 and F16C.

use super::{Isa, Kernel};
use std::arch::x86_64::*;

/// Proof that the processor has AVX2 and F16C.
#[derive(Debug, Clone, Copy)]
pub struct Avx2(());

macro_rules! intrinsic {
    ($e:expr) => {
        // SAFETY: a value of the type exists only where the processor has the instructions; loads and stores go through references to arrays of their width.
        unsafe { $e }
    };
}
pub(super) use intrinsic;

/// What all x86 sets share: floats, and weights as bytes.
macro_rules! shared {
    () => {
        type F = __m256;
        type B = __m256i;
        type W = __m256i;
        type X = __m256i;
        type S = __m256i;
        type P = __m256i;
        type P8 = __m256i;

        const WIDE: bool = true;
        const F16_UNIT: f32 = 1.0;
        type Floats = Self;

        #[inline(always)]
        fn load_f16_raw(self, x: &[u16; 8]) -> __m256 {
            self.load_f16(x)
        }

        #[inline(always)]
        fn floats(self) -> Self::Floats {
            self
        }
        #[inline(always)]
        fn prefetch<T>(self, x: &[T], bytes: usize) {
            intrinsic!(_mm_prefetch::<_MM_HINT_T0>(x.as_ptr().wrapping_byte_add(bytes).cast()))
        }
        #[inline(always)]
        fn splat(self, x: f32) -> __m256 {
            intrinsic!(_mm256_set1_ps(x))
        }
        #[inline(always)]
        fn load(self, x: &[f32; 8]) -> __m256 {
            intrinsic!(_mm256_loadu_ps(x.as_ptr()))
        }
        #[inline(always)]
        fn store(self, v: __m256, to: &mut [f32; 8]) {
            intrinsic!(_mm256_storeu_ps(to.as_mut_ptr(), v))
        }
        #[inline(always)]
        fn load_f16(self, x: &[u16; 8]) -> __m256 {
            intrinsic!(_mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())))
        }
        #[inline(always)]
        fn load_bf16(self, x: &[u16; 8]) -> __m256 {
            intrinsic!(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(x.as_ptr().cast())))))
        }
        #[inline(always)]
        fn load_i8(self, x: &[i8; 8]) -> __m256 {
            intrinsic!(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(x.as_ptr().cast()))))
        }
        #[inline(always)]
        fn add(self, a: __m256, b: __m256) -> __m256 {
            intrinsic!(_mm256_add_ps(a, b))
        }
        #[inline(always)]
        fn sub(self, a: __m256, b: __m256) -> __m256 {
            intrinsic!(_mm256_sub_ps(a, b))
        }
        #[inline(always)]
        fn mul(self, a: __m256, b: __m256) -> __m256 {
            intrinsic!(_mm256_mul_ps(a, b))
        }
        #[inline(always)]
        fn div(self, a: __m256, b: __m256) -> __m256 {
            intrinsic!(_mm256_div_ps(a, b))
        }
        #[inline(always)]
        fn max(self, a: __m256, b: __m256) -> __m256 {
            intrinsic!(_mm256_max_ps(a, b))
        }
        #[inline(always)]
        fn min(self, a: __m256, b: __m256) -> __m256 {
            intrinsic!(_mm256_min_ps(a, b))
        }
        #[inline(always)]
        fn abs(self, a: __m256) -> __m256 {
            intrinsic!(_mm256_andnot_ps(_mm256_set1_ps(-0.0), a))
        }
        #[inline(always)]
        fn round(self, a: __m256) -> __m256 {
            intrinsic!(_mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
        }
        #[inline(always)]
        fn pow2(self, n: __m256) -> __m256 {
            intrinsic!(_mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(_mm256_cvttps_epi32(n), _mm256_set1_epi32(127)))))
        }
        #[inline(always)]
        fn sum(self, a: __m256) -> f32 {
            intrinsic!({
                let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a)); // 0+4 1+5 2+6 3+7
                let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
                _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
            })
        }
        #[inline(always)]
        fn max_lane(self, a: __m256) -> f32 {
            let mut lanes = [0.0; 8];
            self.store(a, &mut lanes);
            lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
        }
        #[inline(always)]
        fn to_i8(self, v: __m256) -> [i8; 8] {
            intrinsic!({
                let v = _mm256_cvtps_epi32(v);
                let words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
                _mm_cvtsi128_si64(_mm_packs_epi16(words, words)).to_le_bytes().map(|b| b as i8)
            })
        }
        #[inline(always)]
        fn bytes(self, q: &[u8; 32]) -> __m256i {
            intrinsic!(_mm256_loadu_si256(q.as_ptr().cast()))
        }
        #[inline(always)]
        fn field(self, b: __m256i, mask: u8, right: i32) -> __m256i {
            intrinsic!({
                let bits = _mm256_and_si256(b, _mm256_set1_epi8(mask as i8));
                match right {
                    0 => bits,
                    1.. => _mm256_srl_epi16(bits, _mm_cvtsi32_si128(right)),
                    _ => _mm256_sll_epi16(bits, _mm_cvtsi32_si128(-right)),
                }
            })
        }
        #[inline(always)]
        fn or(self, a: __m256i, b: __m256i) -> __m256i {
            intrinsic!(_mm256_or_si256(a, b))
        }
        #[inline(always)]
        fn weights(self, b: __m256i) -> __m256i {
            b
        }
        #[inline(always)]
        fn quad(self, x: &[i8; 4]) -> __m256i {
            intrinsic!(_mm256_set1_epi32(i32::from_le_bytes(x.map(|x| x as u8))))
        }
        #[inline(always)]
        fn start(self, n: i32) -> __m256i {
            intrinsic!(_mm256_set1_epi32(n))
        }
        #[inline(always)]
        fn to_f(self, p: __m256i) -> __m256 {
            intrinsic!(_mm256_cvtepi32_ps(p))
        }
        #[inline(always)]
        fn to_f8(self, p: __m256i) -> __m256 {
            intrinsic!(_mm256_cvtepi32_ps(p))
        }
    };
}
pub(super) use shared;

impl Isa for Avx2 {
    shared!();
    type W8 = [__m256i; 2];

    const NAME: &'static str = "avx2";

    fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")).then_some(Self(()))
    }
    fn enter<K: Kernel>(self, kernel: K) -> K::Out {
        #[target_feature(enable = "avx2,f16c")]
        fn on<K: Kernel>(kernel: K, isa: Avx2) -> K::Out {
            kernel.run(isa)
        }
        // SAFETY: `self` exists only where the processor has AVX2 and F16C.
        unsafe { on(kernel, self) }
    }

    #[inline(always)]
    fn begin(self, _: __m256i) -> __m256i {
        intrinsic!(_mm256_setzero_si256())
    }
    #[inline(always)]
    fn dot(self, s: __m256i, w: __m256i, x: __m256i) -> __m256i {
        intrinsic!(_mm256_add_epi16(s, _mm256_maddubs_epi16(w, x)))
    }
    #[inline(always)]
    fn end(self, p: __m256i, s: __m256i) -> __m256i {
        intrinsic!(_mm256_add_epi32(p, _mm256_madd_epi16(s, _mm256_set1_epi16(1))))
    }
    #[inline(always)]
    fn start8(self, _: i32) -> __m256i {
        self.start(0)
    }
    #[inline(always)]
    fn load8(self, q: &[u8; 32]) -> [__m256i; 2] {
        let w = self.bytes(q);
        [w, intrinsic!(_mm256_abs_epi8(w))]
    }
    #[inline(always)]
    fn dot8(self, p: __m256i, [w, magnitude]: [__m256i; 2], x: __m256i) -> __m256i {
        // |w| * (x with w's sign): 128 * 127 * 2 = 32,512 fits i16
        intrinsic!({
            let products = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, w));
            _mm256_add_epi32(p, _mm256_madd_epi16(products, _mm256_set1_epi16(1)))
        })
    }
}
