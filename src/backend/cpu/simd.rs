//! The instruction sets: one trait, written once per set, so that every kernel is one text for all of them.
//!
//! Every operation is exact or IEEE-rounded and in a fixed order, and no multiply-add is fused, so a kernel gives the same bits on every
//! instruction set; the tests compare them with `==`.

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "aarch64")]
pub mod neon;
#[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
pub mod relaxed;
#[cfg(not(all(target_feature = "simd128", feature = "lean")))]
pub mod scalar;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub mod simd128;
#[cfg(target_arch = "x86_64")]
pub mod vnni;

/// Weights in a block: what one scale of the activations covers.
pub const BLOCK: usize = 32;

/// Columns whose activations are multiplied at once: what one 32-bit lane holds.
pub const QUAD: usize = 4;

/// One block of activations as int8 values, x = scale * q.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C)]
pub struct QBlock {
    /// The values, -127 to 127, in fours of columns.
    pub q: [[i8; QUAD]; BLOCK / QUAD],
    /// What one step is worth.
    pub scale: f32,
    /// The sum of `q`: what a weight's minimum is multiplied with.
    pub sum: f32,
    /// The sums of the two halves of `q`: what an offset of the weights is multiplied with.
    pub halves: [i32; 2],
}

/// An instruction set. A value of the type is the proof that the processor has it.
pub trait Isa: Copy + 'static {
    /// Eight f32.
    type F: Copy;
    /// Thirty-two bytes: eight rows of four columns.
    type B: Copy;
    /// The same as unsigned weights (0 to 63), ready to multiply.
    type W: Copy;
    /// The activations of four columns, for all rows.
    type X: Copy;
    /// Sums of a few products, as narrow as they fit: the kernels keep within them.
    type S: Copy;
    /// Exact sums of eight rows.
    type P: Copy;
    /// Thirty-two weights of eight bits, ready to multiply.
    type W8: Copy;
    /// Exact sums of eight rows of products of them.
    type P8: Copy;

    /// The set that computes floats: another one where that has the same instructions for them, so that their code is there once.
    type Floats: Isa;

    /// Its name in `info`.
    const NAME: &'static str;

    /// Whether there are 16 registers of eight f32, or half as many.
    const WIDE: bool;
    /// Whether attention has several forms, to take the fastest. The set without SIMD, which is there for comparison, has one: less code.
    const TUNED: bool = true;
    /// A power of two, see [`load_f16_raw`](Self::load_f16_raw).
    const F16_UNIT: f32;

    /// The proof that the processor has those instructions.
    fn floats(self) -> Self::Floats;
    /// The proof that the processor has it, if it does.
    fn detect() -> Option<Self>;
    /// Runs a kernel with the instruction set switched on.
    #[inline(always)]
    fn enter<K: Kernel>(self, kernel: K) -> K::Out {
        kernel.run(self)
    }

    /// Asks for the memory at some bytes from `x` on, which may lie outside of anything: it will be needed soon. Processors fetch ahead by
    /// themselves, but not from one page to the next.
    #[inline(always)]
    fn prefetch<T>(self, x: &[T], bytes: usize) {
        let _ = (x, bytes);
    }
    fn splat(self, x: f32) -> Self::F;
    fn load(self, x: &[f32; 8]) -> Self::F;
    fn store(self, v: Self::F, to: &mut [f32; 8]);
    fn load_f16(self, x: &[u16; 8]) -> Self::F;
    /// f16 as they are widened most cheaply: times [`F16_UNIT`](Self::F16_UNIT) they are right. Exact.
    fn load_f16_raw(self, x: &[u16; 8]) -> Self::F;
    fn load_bf16(self, x: &[u16; 8]) -> Self::F;
    /// Eight int8 as f32.
    fn load_i8(self, x: &[i8; 8]) -> Self::F;
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `if a > b { a } else { b }`, lane by lane.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `if a < b { a } else { b }`, lane by lane.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    fn abs(self, a: Self::F) -> Self::F;
    /// To the nearest whole number, halves to even.
    fn round(self, a: Self::F) -> Self::F;
    /// 2^n for whole n from -126 to 127.
    fn pow2(self, n: Self::F) -> Self::F;
    /// The sum of the lanes: ((0+4) + (2+6)) + ((1+5) + (3+7)).
    fn sum(self, a: Self::F) -> f32;
    /// The largest lane.
    fn max_lane(self, a: Self::F) -> f32;

    /// Whole numbers from -127 to 127 as int8.
    fn to_i8(self, v: Self::F) -> [i8; 8];

    /// Thirty-two bytes as they are.
    fn bytes(self, q: &[u8; 32]) -> Self::B;
    /// Several times thirty-two bytes.
    #[inline(always)]
    fn all_bytes<const N: usize>(self, q: &[[u8; 32]; N]) -> [Self::B; N] {
        std::array::from_fn(
            #[inline(always)]
            |i| self.bytes(&q[i]),
        )
    }
    /// The bits `mask` of each byte.
    #[inline(always)]
    fn low(self, b: Self::B, mask: u8) -> Self::B {
        self.field(b, mask, 0)
    }
    /// The bits `mask` of each byte, moved to the right by `right` (to the left where that is negative): none may leave its byte.
    fn field(self, b: Self::B, mask: u8, right: i32) -> Self::B;
    /// The bits of both.
    fn or(self, a: Self::B, b: Self::B) -> Self::B;
    /// Bytes from 0 to 63 as weights.
    fn weights(self, b: Self::B) -> Self::W;
    /// Four activations, for every row.
    fn quad(self, x: &[i8; QUAD]) -> Self::X;
    /// Sums that begin with `n`.
    fn start(self, n: i32) -> Self::P;
    /// A bit for each step of a block of products: all of them, which the compiler must not know where it would move products.
    ///
    /// Compilers to wasm sink each product to where its sum is used. A block would be computed sum by sum, with all its weights and
    /// activations alive at once, in registers that there aren't. A step that might not be taken stays where it is.
    #[inline(always)]
    fn steps(self) -> u32 {
        !0
    }
    /// Begins a run of products that goes on top of `p`.
    fn begin(self, p: Self::P) -> Self::S;
    /// Adds the products of four columns.
    fn dot(self, s: Self::S, w: Self::W, x: Self::X) -> Self::S;
    /// Ends the run that began at `p`.
    fn end(self, p: Self::P, s: Self::S) -> Self::P;
    /// Exact sums, rounded to f32.
    fn to_f(self, p: Self::P) -> Self::F;

    /// What is added to weights of eight bits when they are stored: 128 for a set that multiplies unsigned bytes.
    fn bias8(self) -> u8 {
        0
    }
    /// Sums of products with activations whose sum is `sum`: what the bias will add is taken off.
    fn start8(self, sum: i32) -> Self::P8;
    /// Weights of eight bits, as they are stored.
    fn load8(self, q: &[u8; 32]) -> Self::W8;
    /// Adds the products of four columns of weights of eight bits.
    fn dot8(self, p: Self::P8, w: Self::W8, x: Self::X) -> Self::P8;
    /// Exact sums, rounded to f32.
    fn to_f8(self, p: Self::P8) -> Self::F;
}

/// A piece of work that is compiled for each instruction set.
pub trait Kernel {
    /// What it returns.
    type Out;
    /// The work. Must be `#[inline(always)]`, and so must all that it calls, or the instruction set is lost on the way.
    fn run<I: Isa>(self, isa: I) -> Self::Out;
}

/// The sets of this build, the slowest first; the first is always there.
macro_rules! variants {
    ($($(#[cfg($cfg:meta)])? $name:ident($set:ty) $doc:literal,)+) => {
        /// The instruction-set path chosen at run time.
        #[derive(Debug, Clone, Copy)]
        pub enum Variant {
            $($(#[cfg($cfg)])? #[doc = $doc] $name($set),)+
        }

        impl Variant {
            /// Every one that this machine has, the slowest first.
            pub fn available() -> Vec<Self> {
                let all = [$($(#[cfg($cfg)])? <$set>::detect().map(Variant::$name),)+];
                all.into_iter().flatten().collect()
            }

            /// Its name in `info`.
            pub fn name(self) -> &'static str {
                match self {
                    $($(#[cfg($cfg)])? Variant::$name(_) => <$set>::NAME,)+
                }
            }

            /// What is added to weights of eight bits when they are stored for it.
            pub fn bias8(self) -> u8 {
                match self {
                    $($(#[cfg($cfg)])? Variant::$name(isa) => isa.bias8(),)+
                }
            }

            /// Runs a kernel on this path.
            pub fn run<K: Kernel>(self, kernel: K) -> K::Out {
                match self {
                    $($(#[cfg($cfg)])? Variant::$name(isa) => isa.enter(kernel),)+
                }
            }

            /// The same for a kernel without products of int8.
            pub fn run_floats<K: Kernel>(self, kernel: K) -> K::Out {
                match self {
                    $($(#[cfg($cfg)])? Variant::$name(isa) => isa.floats().enter(kernel),)+
                }
            }
        }
    };
}

// A wasm module is compiled for one instruction set. What it is compared with in tests is left out of the package's (feature `lean`).
variants! {
    #[cfg(not(all(target_feature = "simd128", feature = "lean")))]
    Scalar(scalar::Scalar) "No SIMD.",
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2) "x86-64 with AVX2 and F16C.",
    #[cfg(target_arch = "x86_64")]
    AvxVnni(vnni::AvxVnni) "x86-64 with AVX-VNNI.",
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(vnni::Avx512Vnni) "x86-64 with AVX-512 VNNI.",
    #[cfg(target_arch = "aarch64")]
    NeonDot(neon::NeonDot) "64-bit Arm with the dot product instructions.",
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128", not(all(target_feature = "relaxed-simd", feature = "lean"))))]
    Simd128(simd128::Simd128) "wasm's 128-bit SIMD.",
    #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
    RelaxedPairs(relaxed::RelaxedPairs) "wasm's relaxed SIMD, two products at a time.",
    #[cfg(all(target_arch = "wasm32", target_feature = "relaxed-simd"))]
    RelaxedFours(relaxed::RelaxedFours) "wasm's relaxed SIMD, four products at a time.",
}

impl Variant {
    /// The best one that this machine has.
    pub fn detect() -> Self {
        Self::available().pop().unwrap_or_else(|| unreachable!("every build has a set that is always there"))
    }
}
