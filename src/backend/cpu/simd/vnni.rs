//! x86-64 with VNNI: four products and their sum in one instruction. As AVX-512 has it (Ice Lake, Zen 4) and as AVX has it (Alder Lake).

use super::avx2::{intrinsic, shared};
use super::{Isa, Kernel};
use std::arch::x86_64::*;

macro_rules! vnni {
    ($set:ident, $name:literal, $features:literal, $dot:ident, $($needs:tt)+) => {
        #[doc = concat!("Proof that the processor has ", $features, ".")]
        #[derive(Debug, Clone, Copy)]
        pub struct $set(());

        impl Isa for $set {
            shared!();
            type W8 = __m256i;

            const NAME: &'static str = $name;

            fn detect() -> Option<Self> {
                ($($needs)+).then_some(Self(()))
            }
            fn enter<K: Kernel>(self, kernel: K) -> K::Out {
                #[target_feature(enable = $features)]
                fn on<K: Kernel>(kernel: K, isa: $set) -> K::Out {
                    kernel.run(isa)
                }
                // SAFETY: `self` exists only where the processor has the instructions.
                unsafe { on(kernel, self) }
            }
            #[inline(always)]
            fn begin(self, p: __m256i) -> __m256i {
                p
            }
            #[inline(always)]
            fn dot(self, s: __m256i, w: __m256i, x: __m256i) -> __m256i {
                intrinsic!($dot(s, w, x))
            }
            #[inline(always)]
            fn end(self, _: __m256i, s: __m256i) -> __m256i {
                s
            }
            fn bias8(self) -> u8 {
                128
            }
            #[inline(always)]
            fn start8(self, sum: i32) -> __m256i {
                self.start(-128 * sum)
            }
            #[inline(always)]
            fn load8(self, q: &[u8; 32]) -> __m256i {
                self.bytes(q)
            }
            #[inline(always)]
            fn dot8(self, p: __m256i, w: __m256i, x: __m256i) -> __m256i {
                intrinsic!($dot(p, w, x))
            }
        }
    };
}

vnni!(
    AvxVnni,
    "avx-vnni",
    "avx2,f16c,avxvnni",
    _mm256_dpbusd_avx_epi32,
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") && is_x86_feature_detected!("avxvnni")
);
vnni!(
    Avx512Vnni,
    "avx512-vnni",
    "avx2,f16c,avx512f,avx512bw,avx512vl,avx512vnni",
    _mm256_dpbusd_epi32,
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
);
