//! The op `pick`: the best token of a row of logits and the log-probability of a given one, without holding the row.
//!
//! The output layer runs in blocks of the vocabulary and feeds each to an [`Accumulator`]; so scoring a prompt never needs
//! prompt x vocabulary numbers. The softmax is summed over absolute blocks of [`BLOCK`] ids, each relative to its own maximum, which are
//! combined in ascending order (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"). How the row was cut up before
//! it came here therefore changes no bit.

use super::exp::{logit, max};
use super::sample::Weight;

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

/// What a block of at most [`BLOCK`] logits says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// The largest of them, as [`logit`] reads it.
    pub max: f32,
    /// The sum of exp(logit - `max`); 0 where `max` is minus infinity.
    pub sum: f64,
}

impl Default for Part {
    fn default() -> Self {
        Self { max: f32::NEG_INFINITY, sum: 0.0 }
    }
}

impl Part {
    /// That of at most [`BLOCK`] logits.
    // Inlined, it takes on the caller's instruction set; a wasm module has but one, and one copy is enough.
    #[cfg_attr(not(target_arch = "wasm32"), inline(always))]
    #[cfg_attr(target_arch = "wasm32", inline(never))]
    pub fn new(block: &[f32]) -> Self {
        match max(block) {
            Some(max) => Self { max, sum: Weight::new(max, 1.0).sum(block) },
            None => Self::odd(block),
        }
    }

    /// The same where not all are finite.
    #[cold]
    #[inline(never)]
    fn odd(block: &[f32]) -> Self {
        let max = block.iter().fold(f32::NEG_INFINITY, |a, &b| if logit(b) > a { logit(b) } else { a });
        let sum = if max > f32::NEG_INFINITY { Weight::new(max, 1.0).odd_sum(block) } else { 0.0 };
        Self { max, sum }
    }

    /// With another part: the larger maximum, and the sum relative to it.
    pub fn join(self, other: Self) -> Self {
        let (high, low) = if other.max > self.max { (other, self) } else { (self, other) };
        if low.max == f32::NEG_INFINITY {
            return high;
        }
        Self { max: high.max, sum: high.sum + low.sum * f64::from(Weight::new(high.max, 1.0).of(low.max)) }
    }
}

/// Takes one row in blocks of any size, in ascending order without gaps.
#[derive(Debug, Clone)]
pub struct Accumulator {
    target: Option<u32>,
    target_logit: f32,
    /// The next id that is expected; `None` after a block that was not the next one.
    next_id: Option<u32>,
    top_id: u32,
    /// Of the finished blocks.
    whole: Part,
    /// The logits of a block that is not full yet.
    pending: [f32; BLOCK],
    pending_len: usize,
}

impl Accumulator {
    /// For a new row.
    pub fn new(target: Option<u32>) -> Self {
        let pending = [f32::NEG_INFINITY; BLOCK];
        Self { target, target_logit: f32::NEG_INFINITY, next_id: Some(0), top_id: 0, whole: Part::default(), pending, pending_len: 0 }
    }

    /// The logits of the ids from `first_id` on. They must follow what was pushed before, beginning at 0; otherwise the row is void and
    /// [`finish`](Self::finish) returns `None`.
    pub fn push(&mut self, first_id: u32, logits: &[f32]) {
        if !self.follows(first_id, logits) {
            return;
        }
        let mut block_id = first_id - self.pending_len as u32;
        let mut rest = logits;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(BLOCK - self.pending_len));
            self.pending[self.pending_len..][..now.len()].copy_from_slice(now);
            self.pending_len += now.len();
            rest = later;
            if self.pending_len == BLOCK {
                self.close(block_id);
                block_id += BLOCK as u32;
            }
        }
    }

    /// The same where the parts of these logits are there already, one for each [`BLOCK`] of them. `first_id` must be the first of a block,
    /// and only the last push may end within one.
    pub fn push_parts(&mut self, first_id: u32, logits: &[f32], parts: &[Part]) {
        if self.pending_len > 0 || !first_id.is_multiple_of(BLOCK as u32) {
            self.next_id = None;
        }
        if self.follows(first_id, logits) {
            for (i, (block, &part)) in logits.chunks(BLOCK).zip(parts).enumerate() {
                self.combine(first_id + (i * BLOCK) as u32, block, part);
            }
        }
    }

    /// The result; `None` if no logit was above minus infinity, or a block was missing.
    pub fn finish(mut self) -> Option<Pick> {
        let end = self.next_id?;
        self.close(end - self.pending_len as u32);
        let Part { max, sum } = self.whole;
        if max == f32::NEG_INFINITY {
            return None;
        }
        let log_sum = sum.ln();
        let logprob = |x: f32| (f64::from(x) - f64::from(max) - log_sum) as f32;
        let (top_id, top_logprob) = (self.top_id, logprob(max));
        let (id, logprob) = self.target.map_or((top_id, top_logprob), |id| (id, logprob(self.target_logit)));
        Some(Pick { id, logprob, top_id, top_logprob })
    }

    /// Another token to ask about, once the row is there, with its logit.
    pub fn ask(&mut self, target: u32, value: f32) {
        (self.target, self.target_logit) = (Some(target), logit(value));
    }

    /// Whether these are the next logits; if so, they count as taken and the target is looked for among them.
    fn follows(&mut self, first_id: u32, logits: &[f32]) -> bool {
        let end = u32::try_from(logits.len()).ok().and_then(|n| first_id.checked_add(n));
        if self.next_id != Some(first_id) || end.is_none() {
            self.next_id = None;
            return false;
        }
        self.next_id = end;
        let offset = self.target.and_then(|id| id.checked_sub(first_id));
        if let Some(&x) = offset.and_then(|i| logits.get(i as usize)) {
            self.target_logit = logit(x);
        }
        true
    }

    /// Ends the pending block, which begins at id `first`.
    fn close(&mut self, first: u32) {
        let block = self.pending;
        let block = &block[..self.pending_len];
        self.combine(first, block, Part::new(block));
        self.pending_len = 0;
    }

    /// Adds a block, which begins at id `first`, to what there is.
    fn combine(&mut self, first: u32, block: &[f32], part: Part) {
        if part.max > self.whole.max {
            self.top_id = first + block.iter().position(|&x| logit(x) == part.max).unwrap_or(0) as u32;
        }
        self.whole = self.whole.join(part);
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
    fn parts_give_the_same_bits() {
        for n in [1, 255, 256, 257, 5003] {
            let logits = row(n);
            let parts: Vec<Part> = logits.chunks(BLOCK).map(Part::new).collect();
            for cut in [0, 256, 4096] {
                let cut = cut.min(logits.len());
                for target in [None, Some(0), Some(300), Some(u32::MAX)] {
                    let mut accumulator = Accumulator::new(target);
                    accumulator.push_parts(0, &logits[..cut], &parts);
                    accumulator.push_parts(cut as u32, &logits[cut..], &parts[cut.div_ceil(BLOCK)..]);
                    let asked = cut % BLOCK == 0;
                    assert_eq!(accumulator.finish(), reference(&logits, target).filter(|_| asked), "{n} logits, cut at {cut}");
                }
            }
            let mut accumulator = Accumulator::new(None);
            accumulator.push_parts(0, &logits, &parts);
            accumulator.ask(n - 1, logits[n as usize - 1]);
            assert_eq!(accumulator.finish(), reference(&logits, Some(n - 1)));
        }
        let mut accumulator = Accumulator::new(None);
        accumulator.push(0, &[1.0; 300]);
        accumulator.push_parts(300, &[1.0; 300], &[Part::new(&[1.0; 256]); 2]);
        assert_eq!(accumulator.finish(), None);
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
