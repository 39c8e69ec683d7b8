//! The op `pick`: the best token of a row of logits and the log-probability of a given one, without holding the row.
//!
//! The output layer runs in blocks of the vocabulary and feeds each to an [`Accumulator`]; so scoring a prompt never needs
//! prompt x vocabulary numbers. The softmax is summed over absolute blocks of [`BLOCK`] ids, each relative to its own maximum, which are
//! combined in ascending order (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"). How the row was cut up before
//! it came here therefore changes no bit.

use super::exp::{exp, logit, max, sum};

/// Ids whose exponentials are summed as one block.
pub const BLOCK: usize = 256;

/// What a row of logits says. Log-probabilities are natural logarithms of the softmax at temperature 1, at most 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pick {
    /// The token asked about, or the most probable one when none was.
    pub id: u32,
    /// Its log-probability; minus infinity for a token that has no chance or no logit.
    pub logprob: f32,
    /// The most probable token, the smallest id of equals.
    pub top_id: u32,
    /// Its log-probability.
    pub top_logprob: f32,
}

/// The pick of one whole row: token `target`, or the best one if there is no target.
///
/// NaN counts as minus infinity and plus infinity as the largest finite number. `None` where no logit is above minus infinity.
pub fn reference(logits: &[f32], target: Option<u32>) -> Option<Pick> {
    let mut accumulator = Accumulator::new(target);
    accumulator.push(0, logits);
    accumulator.finish()
}

/// Takes one row in blocks of any size, in ascending order without gaps.
#[derive(Debug, Clone)]
pub struct Accumulator {
    target: Option<u32>,
    target_logit: f32,
    /// The next id that is expected; `None` after a block that was not the next one.
    next_id: Option<u32>,
    top_id: u32,
    top_logit: f32,
    /// The sum of exp(logit - `top_logit`) over the finished blocks.
    sum: f64,
    /// The logits of a block that is not full yet.
    pending: [f32; BLOCK],
    pending_len: usize,
}

impl Accumulator {
    /// For a new row.
    pub fn new(target: Option<u32>) -> Self {
        Self {
            target,
            target_logit: f32::NEG_INFINITY,
            next_id: Some(0),
            top_id: 0,
            top_logit: f32::NEG_INFINITY,
            sum: 0.0,
            pending: [f32::NEG_INFINITY; BLOCK],
            pending_len: 0,
        }
    }

    /// The logits of the ids from `first_id` on. They must follow what was pushed before, beginning at 0; otherwise the row is void and
    /// [`finish`](Self::finish) returns `None`.
    #[inline(always)] // so that it takes on the caller's instruction set
    pub fn push(&mut self, first_id: u32, logits: &[f32]) {
        let end = u32::try_from(logits.len()).ok().and_then(|n| first_id.checked_add(n));
        if self.next_id != Some(first_id) || end.is_none() {
            self.next_id = None;
            return;
        }
        self.next_id = end;
        let offset = self.target.and_then(|id| id.checked_sub(first_id));
        if let Some(&x) = offset.and_then(|i| logits.get(i as usize)) {
            self.target_logit = logit(x);
        }
        let mut block_id = first_id - self.pending_len as u32;
        let mut rest = logits;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(BLOCK - self.pending_len));
            for (slot, &x) in self.pending[self.pending_len..].iter_mut().zip(now) {
                *slot = logit(x);
            }
            self.pending_len += now.len();
            rest = later;
            if self.pending_len == BLOCK {
                self.combine(block_id);
                block_id += BLOCK as u32;
            }
        }
    }

    /// The result; `None` if no logit was above minus infinity, or a block was missing.
    pub fn finish(mut self) -> Option<Pick> {
        let end = self.next_id?;
        self.combine(end - self.pending_len as u32);
        if self.top_logit == f32::NEG_INFINITY {
            return None;
        }
        let log_sum = self.sum.ln();
        let logprob = |x: f32| (f64::from(x) - f64::from(self.top_logit) - log_sum) as f32;
        let (top_id, top_logprob) = (self.top_id, logprob(self.top_logit));
        let (id, logprob) = self.target.map_or((top_id, top_logprob), |id| (id, logprob(self.target_logit)));
        Some(Pick { id, logprob, top_id, top_logprob })
    }

    /// Add the pending logits, which begin at id `first`, to what there is.
    #[inline(always)]
    fn combine(&mut self, first: u32) {
        let block = &self.pending[..self.pending_len];
        let best = max(block);
        if best > f32::NEG_INFINITY {
            let block_sum = sum(block, |x| exp(x - best));
            if best > self.top_logit {
                let at = block.iter().position(|&x| x == best).unwrap_or(0);
                self.sum = self.sum * f64::from(exp(self.top_logit - best)) + block_sum;
                (self.top_id, self.top_logit) = (first + at as u32, best);
            } else {
                self.sum += block_sum * f64::from(exp(best - self.top_logit));
            }
        }
        self.pending_len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::philox::philox4x32_10;

    fn row(n: u32) -> Vec<f32> {
        (0..n).map(|i| philox4x32_10([i, 0, 0, 0], [3, 3])[0] as f32 / u32::MAX as f32 * 30.0 - 15.0).collect()
    }

    /// log-softmax in f64, in one go.
    fn plain(logits: &[f32], id: usize) -> f64 {
        let best = logits.iter().copied().map(f64::from).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|&x| (f64::from(x) - best).exp()).sum();
        f64::from(logits[id]) - best - sum.ln()
    }

    #[test]
    fn agrees_with_a_plain_log_softmax() {
        for n in [1, 2, 255, 256, 257, 1000, 49_152] {
            let logits = row(n);
            for target in [0, n / 2, n - 1] {
                let pick = reference(&logits, Some(target)).unwrap();
                assert_eq!(pick.id, target);
                assert!((f64::from(pick.logprob) - plain(&logits, target as usize)).abs() < 2e-5, "{pick:?}");
                assert!((f64::from(pick.top_logprob) - plain(&logits, pick.top_id as usize)).abs() < 2e-6, "{pick:?}");
            }
            let top = reference(&logits, None).unwrap();
            assert_eq!((top.id, top.logprob), (top.top_id, top.top_logprob));
            assert!(logits.iter().all(|&x| x <= logits[top.id as usize]));
        }
    }

    #[test]
    fn the_cut_changes_no_bit() {
        let logits = row(5003);
        for target in [None, Some(0), Some(255), Some(256), Some(5002), Some(5003), Some(u32::MAX)] {
            let whole = reference(&logits, target);
            for size in [1, 7, 255, 256, 257, 512, 1024, 4096, 5003] {
                let mut accumulator = Accumulator::new(target);
                for (i, block) in logits.chunks(size).enumerate() {
                    accumulator.push((i * size) as u32, block);
                    accumulator.push(((i * size) + block.len()) as u32, &[]);
                }
                assert_eq!(accumulator.finish(), whole, "blocks of {size}");
            }
        }
    }

    #[test]
    fn equals_take_the_smallest_id() {
        let mut logits = vec![0.0; 600];
        for id in [599, 300, 299] {
            logits[id] = 4.0;
            assert_eq!(reference(&logits, None).unwrap().id, id as u32);
        }
        assert!((reference(&[1.0; 512], None).unwrap().logprob + 512f32.ln()).abs() < 1e-6);
    }

    #[test]
    fn logits_that_are_not_finite_or_huge() {
        let (nan, inf, none) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
        assert_eq!(reference(&[], None), None);
        assert_eq!(reference(&[nan; 300], Some(2)), None);
        assert_eq!(reference(&[none; 300], None), None);
        let pick = reference(&[nan, 3.0, none], Some(0)).unwrap();
        assert_eq!(pick, Pick { id: 0, logprob: none, top_id: 1, top_logprob: 0.0 });
        let pick = reference(&[1.0, inf, inf, 1.0], Some(2)).unwrap();
        assert_eq!(pick, Pick { id: 2, logprob: -(2f32.ln()), top_id: 1, top_logprob: -(2f32.ln()) });
        let mut far = vec![f32::MIN; 300];
        far[280] = f32::MAX;
        assert_eq!(reference(&far, Some(9)).unwrap(), Pick { id: 9, logprob: none, top_id: 280, top_logprob: 0.0 });
        assert_eq!(reference(&[1e30, 0.0, -1e30], Some(1)).unwrap().logprob, -1e30);
        let outside = reference(&[1.0, 2.0], Some(2)).unwrap();
        assert_eq!((outside.id, outside.logprob, outside.top_id), (2, none, 1));
    }

    #[test]
    fn a_missing_block_voids_the_row() {
        for (a, b) in [(0, 3), (0, 1), (1, 3), (u32::MAX, 0), (0, u32::MAX)] {
            let mut accumulator = Accumulator::new(None);
            accumulator.push(a, &[1.0, 2.0]);
            accumulator.push(b, &[1.0, 2.0]);
            assert_eq!(accumulator.finish(), None);
        }
    }
}
