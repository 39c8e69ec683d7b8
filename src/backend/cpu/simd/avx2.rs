//! x86-64 with AVX2 and F16C.

use super::{Isa, Kernel};
use std::arch::x86_64::*;

/// Proof that the processor has AVX2 and F16C.
#[derive(Debug, Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    /// The proof, if the processor gives it.
    pub fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c")).then_some(Self(()))
    }

    /// Runs a kernel with the instruction set switched on.
    pub fn run<K: Kernel>(self, kernel: K) -> K::Out {
        #[target_feature(enable = "avx2,f16c")]
        fn on<K: Kernel>(kernel: K, isa: Avx2) -> K::Out {
            kernel.run(isa)
        }
        // SAFETY: `self` exists only where the processor has AVX2 and F16C.
        unsafe { on(kernel, self) }
    }
}

macro_rules! intrinsic {
    ($e:expr) => {
        // SAFETY: an `Avx2` exists only where the processor has AVX2 and F16C; loads and stores go through references to arrays of their width.
        unsafe { $e }
    };
}

impl Isa for Avx2 {
    type F = __m256;
    type F4 = __m128;
    type Q = i8;
    type W = __m256i;
    type P = __m256i;
    type P2 = __m256i;

    const NAME: &'static str = "avx2";

    #[inline(always)]
    fn widen(q: i8) -> i8 {
        q
    }
    fn nibble(k: usize) -> (usize, bool) {
        (k % 16, k >= 16)
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
    fn zero_p(self) -> __m256i {
        intrinsic!(_mm256_setzero_si256())
    }
    #[inline(always)]
    fn zero_p2(self) -> __m256i {
        intrinsic!(_mm256_setzero_si256())
    }
    #[inline(always)]
    fn zero4(self) -> __m128 {
        intrinsic!(_mm_setzero_ps())
    }
    #[inline(always)]
    fn splat4(self, x: f32) -> __m128 {
        intrinsic!(_mm_set1_ps(x))
    }
    #[inline(always)]
    fn f16x4(self, x: &[u16; 4]) -> __m128 {
        intrinsic!(_mm_cvtph_ps(_mm_loadl_epi64(x.as_ptr().cast())))
    }
    #[inline(always)]
    fn add4(self, a: __m128, b: __m128) -> __m128 {
        intrinsic!(_mm_add_ps(a, b))
    }
    #[inline(always)]
    fn mul4(self, a: __m128, b: __m128) -> __m128 {
        intrinsic!(_mm_mul_ps(a, b))
    }
    #[inline(always)]
    fn store4(self, v: __m128) -> [f32; 4] {
        let mut out = [0.0; 4];
        intrinsic!(_mm_storeu_ps(out.as_mut_ptr(), v));
        out
    }

    #[inline(always)]
    fn unpack4(self, low: &[u8; 16]) -> __m256i {
        intrinsic!({
            let bytes = _mm_loadu_si128(low.as_ptr().cast());
            _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16::<4>(bytes), bytes), _mm256_set1_epi8(15))
        })
    }
    #[inline(always)]
    fn unpack5(self, low: &[u8; 16], high: &[u8; 4]) -> __m256i {
        let low = self.unpack4(low);
        intrinsic!({
            // each byte looks at the byte of `high` that holds its bit, keeps that bit, and becomes 16 where it is set
            let spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
            let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
            let bits = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(i32::from_le_bytes(*high)), spread), bit);
            _mm256_or_si256(low, _mm256_and_si256(_mm256_cmpeq_epi8(bits, bit), _mm256_set1_epi8(16)))
        })
    }
    #[inline(always)]
    fn unpack6(self, low: &[u8; 16], high: &[u8; 8]) -> __m256i {
        let low = self.unpack4(low);
        intrinsic!({
            let pairs = _mm256_set1_epi64x(i64::from_le_bytes(*high));
            let shifted = _mm256_srlv_epi64(pairs, _mm256_setr_epi64x(0, 2, 4, 6)); // the bits that come over from the next byte are masked away
            let high = _mm256_slli_epi16::<4>(_mm256_and_si256(shifted, _mm256_set1_epi8(3)));
            _mm256_sub_epi8(_mm256_or_si256(low, high), _mm256_set1_epi8(32))
        })
    }
    #[inline(always)]
    fn load8(self, q: &[i8; 32]) -> __m256i {
        intrinsic!(_mm256_loadu_si256(q.as_ptr().cast()))
    }
    #[inline(always)]
    fn dot_unsigned(self, w: __m256i, x: &[i8; 32]) -> __m256i {
        // 63 * 127 * 2 fits i16
        intrinsic!(_mm256_madd_epi16(_mm256_maddubs_epi16(w, _mm256_loadu_si256(x.as_ptr().cast())), _mm256_set1_epi16(1)))
    }
    #[inline(always)]
    fn dot_signed(self, w: __m256i, x: &[i8; 32]) -> __m256i {
        // |w| * (x with w's sign): 128 * 127 * 2 = 32,512 fits i16
        intrinsic!({
            let x = _mm256_sign_epi8(_mm256_loadu_si256(x.as_ptr().cast()), w);
            _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), x), _mm256_set1_epi16(1))
        })
    }
    #[inline(always)]
    fn dot_halves(self, w: __m256i, x: &[i8; 32]) -> __m256i {
        self.dot_signed(w, x) // the low 128 bits are the first half
    }
    #[inline(always)]
    fn reduce(self, p: [__m256i; 4]) -> __m128 {
        intrinsic!({
            let all = _mm256_hadd_epi32(_mm256_hadd_epi32(p[0], p[1]), _mm256_hadd_epi32(p[2], p[3]));
            _mm_cvtepi32_ps(_mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256::<1>(all)))
        })
    }
    #[inline(always)]
    fn reduce_halves(self, p: [__m256i; 4]) -> [__m128; 2] {
        intrinsic!({
            let all = _mm256_hadd_epi32(_mm256_hadd_epi32(p[0], p[1]), _mm256_hadd_epi32(p[2], p[3]));
            [_mm_cvtepi32_ps(_mm256_castsi256_si128(all)), _mm_cvtepi32_ps(_mm256_extracti128_si256::<1>(all))]
        })
    }
}
