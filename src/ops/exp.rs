//! `exp` of numbers that are not positive, the same bits on every platform, and sums of such.
//!
//! A standard library calls its system's `expf`: the last bit differs between a browser and a desktop, it is slow in wasm, and it does
//! not vectorize. Every softmax of this crate subtracts the maximum first, so half of the axis is enough.

/// e^x for x in [-infinity, 0]; 0 below -87.33, where a normal `f32` ends. Within 2 units in the last place; 1 exactly at 0.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2; e^r is Taylor's polynomial of degree 7, whose remainder, r^8 / 8! < 6e-9, is below half a unit.
/// Multiplication and addition are never fused here.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    /// Added to a small number it leaves the nearest whole number in the low bits: 1.5 * 2^23.
    const ROUND: f32 = 12_582_912.0;
    /// ln 2 in two parts, the first with so few bits that its multiples up to 126 are exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const LOWEST: f32 = -87.336;
    let clamped = if x > LOWEST { x } else { LOWEST };
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = clamped - n * LN2_HIGH - n * LN2_LOW;
    let mut p = 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    let power = f32::from_bits(shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23);
    if x > LOWEST { p * power } else { 0.0 }
}

/// The sum of f(value), in eight `f64` lanes (value i goes to lane i mod 8) that are added in one fixed order.
///
/// The order is part of the contract, so that a sum does not depend on the instruction set.
#[inline(always)]
pub fn sum(values: &[f32], f: impl Fn(f32) -> f32) -> f64 {
    let mut lanes = [0.0f64; 8];
    // First all f, then all additions: compilers make vectors of the two loops, but not of one that does both.
    let mut results = [0.0f32; 256];
    for chunk in values.chunks(256) {
        let results = &mut results[..chunk.len()];
        for (result, &value) in results.iter_mut().zip(chunk) {
            *result = f(value);
        }
        let (eights, rest) = results.as_chunks::<8>();
        for eight in eights {
            for (lane, &result) in lanes.iter_mut().zip(eight) {
                *lane += f64::from(result);
            }
        }
        for (lane, &result) in lanes.iter_mut().zip(rest) {
            *lane += f64::from(result);
        }
    }
    lanes.iter().sum()
}

/// What the number means as a logit: NaN is no chance at all (minus infinity), plus infinity the largest finite number.
///
/// Then no difference of two logits is NaN, and several tokens at plus infinity share all probability instead of poisoning it.
#[inline(always)]
pub fn logit(value: f32) -> f32 {
    if value > f32::MAX {
        f32::MAX
    } else if value >= f32::NEG_INFINITY {
        value
    } else {
        f32::NEG_INFINITY
    }
}

/// The largest value; minus infinity when there is none. The values hold no NaN.
#[inline(always)]
pub fn max(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 16];
    let (chunks, rest) = values.as_chunks::<16>();
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = if value > *lane { value } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        let mut x = 0.0f32;
        while x > -87.3 {
            let exact = f64::from(x).exp();
            let unit = f64::from(f32::EPSILON) * exact;
            assert!((f64::from(exp(x)) - exact).abs() <= 2.0 * unit, "exp({x}) is {}, not {exact}", exp(x));
            x -= 0.000_91;
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        for x in [-88.0, -1e4, f32::MIN, f32::NEG_INFINITY] {
            assert_eq!(exp(x), 0.0, "{x}");
        }
    }

    #[test]
    fn sums_and_maxima_take_every_length() {
        for n in 0..70u16 {
            let values: Vec<f32> = (0..n).map(f32::from).collect();
            assert_eq!(sum(&values, |x| x), f64::from(n) * (f64::from(n) - 1.0).max(0.0) / 2.0);
            assert_eq!(max(&values), if n == 0 { f32::NEG_INFINITY } else { f32::from(n - 1) });
        }
    }

    #[test]
    fn a_logit_is_never_nan_nor_plus_infinity() {
        assert_eq!(logit(f32::NAN), f32::NEG_INFINITY);
        assert_eq!(logit(-f32::NAN), f32::NEG_INFINITY);
        assert_eq!(logit(f32::NEG_INFINITY), f32::NEG_INFINITY);
        assert_eq!(logit(f32::INFINITY), f32::MAX);
        assert_eq!(logit(-3.5), -3.5);
    }
}
