//! The instruction sets: one trait, written once per set, so that every kernel is one text for all of them.
//!
//! Every operation is exact or IEEE-rounded and in a fixed order, and no multiply-add is fused, so a kernel gives the same bits on every
//! instruction set; the tests compare them with `==`.

#[cfg(target_arch = "x86_64")]
pub mod avx2;
pub mod scalar;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub mod simd128;

/// Weights in a block: what one scale of the activations covers.
pub const BLOCK: usize = 32;

/// One block of activations as int8 values (held as wide as the instruction set multiplies them), x = scale * q.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C)]
pub struct QBlock<Q> {
    /// The values, -127 to 127.
    pub q: [Q; BLOCK],
    /// What one step is worth.
    pub scale: f32,
    /// The sum of `q`: what a weight's minimum is multiplied with.
    pub sum: f32,
}

/// An instruction set. A value of the type is the proof that the processor has it.
pub trait Isa: Copy + 'static {
    /// Eight f32.
    type F: Copy;
    /// Four f32: one for each row of a group.
    type F4: Copy;
    /// An activation value: i8 or i16.
    type Q: Copy + Default + 'static;
    /// Thirty-two weights, unpacked.
    type W: Copy;
    /// Partial sums of a block's products.
    type P: Copy;
    /// The same, kept apart for the two halves of the block.
    type P2: Copy;

    /// Its name in `info`.
    const NAME: &'static str;

    /// The activation value of an int8.
    fn widen(q: i8) -> Self::Q;
    /// Where the pair of weights `k` (low bits) of a block of nibbles goes: the byte, and whether it is the high nibble.
    fn nibble(k: usize) -> (usize, bool);

    fn splat(self, x: f32) -> Self::F;
    fn load(self, x: &[f32; 8]) -> Self::F;
    fn store(self, v: Self::F, to: &mut [f32; 8]);
    fn load_f16(self, x: &[u16; 8]) -> Self::F;
    fn load_bf16(self, x: &[u16; 8]) -> Self::F;
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

    fn zero_p(self) -> Self::P;
    fn zero_p2(self) -> Self::P2;
    fn zero4(self) -> Self::F4;
    fn splat4(self, x: f32) -> Self::F4;
    fn f16x4(self, x: &[u16; 4]) -> Self::F4;
    fn add4(self, a: Self::F4, b: Self::F4) -> Self::F4;
    fn mul4(self, a: Self::F4, b: Self::F4) -> Self::F4;
    fn store4(self, v: Self::F4) -> [f32; 4];

    /// Unsigned 4-bit weights, in the order of [`Isa::nibble`].
    fn unpack4(self, low: &[u8; 16]) -> Self::W;
    /// Unsigned 5-bit weights: the low four bits, and bit k of `high` for weight k.
    fn unpack5(self, low: &[u8; 16], high: &[u8; 4]) -> Self::W;
    /// 6-bit weights minus 32: the low four bits, and two bits each of `high`, weight k in byte k % 8 at bit 2 (k / 8).
    fn unpack6(self, low: &[u8; 16], high: &[u8; 8]) -> Self::W;
    /// Signed 8-bit weights.
    fn load8(self, q: &[i8; 32]) -> Self::W;
    /// Products of unsigned weights (0 to 63) with a block.
    fn dot_unsigned(self, w: Self::W, x: &[Self::Q; 32]) -> Self::P;
    /// Products of signed weights with a block.
    fn dot_signed(self, w: Self::W, x: &[Self::Q; 32]) -> Self::P;
    /// The same, the two halves apart.
    fn dot_halves(self, w: Self::W, x: &[Self::Q; 32]) -> Self::P2;
    /// The exact sums of four rows.
    fn reduce(self, p: [Self::P; 4]) -> Self::F4;
    /// The exact sums of four rows' first and second halves.
    fn reduce_halves(self, p: [Self::P2; 4]) -> [Self::F4; 2];
}

/// A piece of work that is compiled for each instruction set.
pub trait Kernel {
    /// What it returns.
    type Out;
    /// The work. Must be `#[inline(always)]`, and so must all that it calls, or the instruction set is lost on the way.
    fn run<I: Isa>(self, isa: I) -> Self::Out;
}

/// The instruction-set path chosen at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// No SIMD.
    Scalar,
    /// x86-64 with AVX2 and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// wasm's 128-bit SIMD.
    #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
    Simd128,
}

impl Variant {
    /// The best one that this machine has.
    pub fn detect() -> Self {
        *Self::available().last().unwrap_or(&Variant::Scalar)
    }

    /// Every one that this machine has, the slowest first.
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut all = vec![Variant::Scalar];
        #[cfg(target_arch = "x86_64")]
        if avx2::Avx2::detect().is_some() {
            all.push(Variant::Avx2);
        }
        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        all.push(Variant::Simd128);
        all
    }

    /// Its name in `info`.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Scalar => scalar::Scalar::NAME,
            #[cfg(target_arch = "x86_64")]
            Variant::Avx2 => avx2::Avx2::NAME,
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Variant::Simd128 => simd128::Simd128::NAME,
        }
    }

    /// Runs a kernel on this path.
    pub fn run<K: Kernel>(self, kernel: K) -> K::Out {
        match self {
            Variant::Scalar => kernel.run(scalar::Scalar),
            #[cfg(target_arch = "x86_64")]
            Variant::Avx2 => match avx2::Avx2::detect() {
                Some(isa) => isa.run(kernel),
                None => kernel.run(scalar::Scalar),
            },
            #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
            Variant::Simd128 => kernel.run(simd128::Simd128),
        }
    }
}
