//! `pick`: what a row of logits says: the most likely token, and the log-probability of a token asked about, without holding the row.
//!
//! log softmax(z)_i = z_i - max - ln(sum exp(z - max)), the sum kept relative to a running maximum (Milakov and Gimelshein 2018,
//! <https://arxiv.org/abs/1805.02867>) over absolute blocks of [`BLOCK`] ids in ascending order, so that it doesn't depend on how the
//! vocabulary is cut.

/// Ids whose exponentials are summed together; pieces handed to [`Accumulator::push`] begin at a multiple of it.
pub const BLOCK: usize = 256;

/// What a row of logits says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pick {
    /// The token asked about, or the most likely one.
    pub id: u32,
    /// Its log-probability.
    pub logprob: f32,
    /// The most likely token; of equals the smallest id.
    pub top_id: u32,
    /// Its log-probability.
    pub top_logprob: f32,
}

/// A row of logits in the making.
#[derive(Debug, Clone)]
pub struct Accumulator {
    target: Option<u32>,
    target_logit: f32,
    top_id: u32,
    max: f32,
    sum: f64,
}

impl Accumulator {
    /// A row, with the token that is asked about, if any.
    pub fn new(target: Option<u32>) -> Self {
        Self { target, target_logit: f32::NEG_INFINITY, top_id: 0, max: f32::NEG_INFINITY, sum: 0.0 }
    }

    /// Takes the logits of ids from `first` on, a multiple of [`BLOCK`]; in ascending order. NaN counts as minus infinity.
    pub fn push(&mut self, first: u32, logits: &[f32]) {
        debug_assert!((first as usize).is_multiple_of(BLOCK));
        if let Some(&logit) = self.target.and_then(|t| t.checked_sub(first)).and_then(|at| logits.get(at as usize)) {
            self.target_logit = if logit.is_nan() { f32::NEG_INFINITY } else { logit };
        }
        for (n, block) in logits.chunks(BLOCK).enumerate() {
            let before = self.max;
            for (i, &z) in block.iter().enumerate() {
                if z > self.max {
                    (self.max, self.top_id) = (z, first + (n * BLOCK + i) as u32);
                }
            }
            if self.max > before {
                self.sum *= f64::from(before - self.max).exp();
            }
            if self.max.is_finite() {
                self.sum += block.iter().filter(|z| !z.is_nan()).map(|&z| f64::from(z - self.max).exp()).sum::<f64>();
            }
        }
    }

    /// What it says; None where no logit is finite.
    pub fn finish(self) -> Option<Pick> {
        if !self.max.is_finite() {
            return None;
        }
        let log_sum = self.sum.ln();
        let logprob = |z: f32| (f64::from(z) - f64::from(self.max) - log_sum) as f32;
        let top_logprob = logprob(self.max);
        Some(match self.target {
            Some(id) => Pick { id, logprob: logprob(self.target_logit), top_id: self.top_id, top_logprob },
            None => Pick { id: self.top_id, logprob: top_logprob, top_id: self.top_id, top_logprob },
        })
    }
}

/// The same over a whole row.
pub fn reference(logits: &[f32], target: Option<u32>) -> Option<Pick> {
    let z: Vec<f64> = logits.iter().map(|&z| if z.is_nan() { f64::NEG_INFINITY } else { f64::from(z) }).collect();
    let top = (0..z.len()).fold(0, |best, i| if z[i] > z[best] { i } else { best });
    let max = *z.get(top)?;
    if !max.is_finite() {
        return None;
    }
    let log_sum = z.iter().map(|z| (z - max).exp()).sum::<f64>().ln();
    let logprob = |i: usize| (z[i] - max - log_sum) as f32;
    let id = target.map_or(top, |t| t as usize);
    Some(Pick { id: id as u32, logprob: logprob(id), top_id: top as u32, top_logprob: logprob(top) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_any_multiple_give_the_bits_of_one_piece_and_the_reference() {
        let logits: Vec<f32> = (0..3000u32).map(|i| ((i.wrapping_mul(2_654_435_761) >> 8) as f32 / 1e6).sin() * 20.0).collect();
        for target in [None, Some(0), Some(1234), Some(2999)] {
            let whole = {
                let mut a = Accumulator::new(target);
                a.push(0, &logits);
                a.finish().unwrap()
            };
            for size in [256, 512, 1024, 2816] {
                let mut a = Accumulator::new(target);
                logits.chunks(size).enumerate().for_each(|(i, c)| a.push((i * size) as u32, c));
                assert_eq!(a.finish(), Some(whole));
            }
            let right = reference(&logits, target).unwrap();
            assert_eq!((whole.id, whole.top_id), (right.id, right.top_id));
            assert!((whole.logprob - right.logprob).abs() < 1e-5 && (whole.top_logprob - right.top_logprob).abs() < 1e-5);
        }
    }

    #[test]
    fn odd_logits_are_sane() {
        let of = |logits: &[f32]| {
            let mut a = Accumulator::new(None);
            a.push(0, logits);
            a.finish()
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[f32::NAN, f32::NEG_INFINITY]), None);
        assert_eq!(of(&[f32::NAN, 1.0, 1.0]).map(|p| (p.id, p.logprob)), Some((1, -std::f32::consts::LN_2)));
        assert_eq!(of(&[1e30, -1e30]).map(|p| (p.id, p.logprob)), Some((0, 0.0)));
    }
}
