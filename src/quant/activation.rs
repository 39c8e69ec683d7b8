//! Activations as 8-bit integers, 32 to a scale: what every integer kernel multiplies the weights with.

/// Activations that share a scale.
pub const ACTIVATION_BLOCK: usize = 32;

/// A block whose largest magnitude is below 2^-119 counts as all zero: from there on the scale and its inverse are both normal numbers,
/// so that no device's flushing of subnormals, and no 1/0, can make kernels differ.
pub(crate) const SMALLEST: f32 = f32::from_bits((127 - 119) << 23);

/// The block `x` as (scale, integers): `x[i]` is about `scale * q[i]` with `-127 <= q[i] <= 127`.
///
/// `scale = amax / 127` and `q[i] = round(x[i] * (127 / amax))`, where `amax` is the largest magnitude and `round` takes ties to the even
/// number, because that is the one rounding that wasm SIMD (`f32x4.nearest`), AVX2 (`roundps`) and NEON (`vrndn`) all have as one instruction.
///
/// - A block of zeros (or of magnitudes below 2^-119) has scale 0 and integers 0.
/// - A block with a NaN or an infinity has scale NaN and integers 0, so that everything computed from it is NaN: an overflow stays visible.
///
/// A SIMD form finds `amax` as the integer maximum of the bits without their sign: for magnitudes that order is the numbers' order, and
/// NaN and infinity come out on top.
pub fn quantize_q8(x: &[f32; ACTIVATION_BLOCK]) -> (f32, [i8; ACTIVATION_BLOCK]) {
    let amax = f32::from_bits(x.iter().map(|v| v.abs().to_bits()).max().unwrap_or(0));
    if !amax.is_finite() {
        return (f32::NAN, [0; ACTIVATION_BLOCK]);
    }
    if amax < SMALLEST {
        return (0.0, [0; ACTIVATION_BLOCK]);
    }
    let inverse = 127.0 / amax;
    (amax / 127.0, x.map(|v| (v * inverse).round_ties_even() as i8))
}
