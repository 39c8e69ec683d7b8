//! 2^x of numbers that are not positive, the same bits on every platform, and sums of such.
//!
//! A standard library calls its system's `expf`: the last bit differs between a browser and a desktop, it is slow in wasm, and it does
//! not vectorize. Every softmax of this crate subtracts the maximum first, so half of the axis is enough; e^(x / T) is 2 to the power of
//! x times a number that is made once.

/// The numbers of which [`exp2`] is made.
#[derive(Debug, Clone, Copy)]
pub struct Exp2 {
    /// Below it the result is 0.
    lowest: f32,
    /// Added to a small number it leaves the nearest whole number in the low bits: 1.5 * 2^23.
    round: f32,
    /// The polynomial, the highest power first.
    powers: [f32; 6],
    /// The bits of 1.
    one: u32,
}

impl Exp2 {
    /// The numbers themselves.
    pub const KNOWN: Self = Self {
        lowest: -126.0,
        round: 12_582_912.0,
        powers: [0.001_330_060_7, 0.009_669_691, 0.055_505_585, 0.240_222_83, std::f32::consts::LN_2, 1.0],
        one: 1.0f32.to_bits(),
    };

    /// For a loop: numbers that the compiler does not know. A vector constant in wasm is made anew in every round of a loop, which costs V8 as
    /// much as the arithmetic does; what is not known is in a register before the loop begins.
    #[inline(always)]
    pub fn unknown() -> Self {
        std::hint::black_box(Self::KNOWN)
    }

    /// 2^x, see [`exp2`].
    #[inline(always)]
    pub fn of(&self, x: f32) -> f32 {
        let clamped = if x > self.lowest { x } else { self.lowest };
        let shifted = clamped + self.round;
        let r = clamped - (shifted - self.round);
        let [highest, others @ ..] = self.powers;
        let p = others.iter().fold(highest, |p, c| p * r + c);
        let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(self.one)); // of `shifted` only the low bits, n, are left
        if x > self.lowest { p * power } else { 0.0 }
    }
}

/// 2^x for x in [-infinity, 0]; 0 from -126 down, where a normal `f32` ends, and for NaN. Within 2 units in the last place; 1 exactly at 0.
///
/// x = n + r with |r| <= 1/2. For 2^r the polynomial of degree 5 with p(0) = 1 and p'(0) = ln 2 whose largest relative error is least: 1.05e-7, by Lawson's
/// iteration of weighted least squares (Lawson 1961, "Contributions to the theory of linear least maximum approximation"). Multiplication and
/// addition are never fused here.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    Exp2::KNOWN.of(x)
}

/// The sum of f(value), in eight `f64` lanes (value i goes to lane i mod 8) that are added in one fixed order.
///
/// The order is part of the contract, so that a sum does not depend on the instruction set.
#[inline(always)]
pub fn sum(values: &[f32], f: impl Fn(&Exp2, f32) -> f32) -> f64 {
    let exp2 = Exp2::unknown();
    let mut lanes = [0.0f64; 8];
    // First all f, then all additions: compilers make vectors of the two loops, but not of one that does both.
    let mut results = [0.0f32; 256];
    for chunk in values.chunks(256) {
        let results = &mut results[..chunk.len()];
        for (result, &value) in results.iter_mut().zip(chunk) {
            *result = f(&exp2, value);
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
    // Not as a choice of the larger of two: with wasm's relaxed SIMD compilers make that an instruction which may do anything with NaN.
    let number = if value.is_nan() { f32::NEG_INFINITY } else { value };
    if number > f32::MAX { f32::MAX } else { number }
}

/// The largest of some finite values, minus infinity when there is none; `None` if one of them is not finite.
#[inline(always)]
pub fn max(values: &[f32]) -> Option<f32> {
    let (mut lanes, mut nothing) = ([f32::NEG_INFINITY; 16], [0.0f32; 16]);
    let (chunks, rest) = values.as_chunks::<16>();
    for chunk in chunks {
        for ((lane, nothing), &value) in lanes.iter_mut().zip(&mut nothing).zip(chunk) {
            *lane = if value > *lane { value } else { *lane };
            *nothing += value * 0.0; // of what is not finite that is NaN
        }
    }
    let nothing = nothing.iter().sum::<f32>() + rest.iter().map(|x| x * 0.0).sum::<f32>();
    (!nothing.is_nan()).then(|| lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp2_is_within_two_units_in_the_last_place() {
        let mut x = 0.0f32;
        while x > -125.9 {
            let exact = f64::from(x).exp2();
            let unit = f64::from(f32::EPSILON) * exact;
            assert!((f64::from(exp2(x)) - exact).abs() <= 2.0 * unit, "2^{x} is {}, not {exact}", exp2(x));
            x -= 0.000_91;
        }
        assert_eq!(exp2(0.0), 1.0);
        assert_eq!(exp2(-0.0), 1.0);
        for x in [-126.0, -1e4, f32::MIN, f32::NEG_INFINITY, f32::NAN] {
            assert_eq!(exp2(x), 0.0, "{x}");
        }
        assert_eq!(exp2(-125.0), 2.0 * f32::MIN_POSITIVE);
    }

    #[test]
    fn sums_and_maxima_take_every_length() {
        for n in 0..70u16 {
            let values: Vec<f32> = (0..n).map(f32::from).collect();
            assert_eq!(sum(&values, |_, x| x), f64::from(n) * (f64::from(n) - 1.0).max(0.0) / 2.0);
            assert_eq!(max(&values), Some(if n == 0 { f32::NEG_INFINITY } else { f32::from(n - 1) }));
        }
    }

    #[test]
    fn a_maximum_is_of_finite_values() {
        for n in [1, 15, 16, 17, 40] {
            for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut values = vec![-3.0; n];
                assert_eq!(max(&values), Some(-3.0));
                values[n / 2] = odd;
                assert_eq!(max(&values), None);
            }
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
