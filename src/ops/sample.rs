//! The op `sample`: one token id from one row of logits.
//!
//! The steps, in the order of llama.cpp's default chain (`common_params_sampling` in its `common/common.h`, without the samplers that
//! are off there):
//! 1. *repetition penalty*: the logit of each distinct token of the window, once, is divided by the penalty if positive and multiplied
//!    by it otherwise (Keskar et al. 2019, "CTRL", section 4.1; dividing a negative logit would make a repeat likelier);
//! 2. *top-k*: only the k largest logits stay;
//! 3. *top-p*: of these the shortest run of the most probable whose probabilities reach p, probabilities being the softmax of the
//!    survivors at temperature 1 (Holtzman et al. 2020, "The curious case of neural text degeneration");
//! 4. *min-p*: of these the ones at least min-p times as probable as the best, as logit >= maximum + ln(min-p);
//! 5. *temperature* divides the distances to the maximum;
//! 6. *one draw*: cumulated from the most probable down, the first token past u times the sum, u = [`uniform`]`(seed, position)`.
//!
//! Larger logits come first everywhere, and equal logits in the order of their ids. What a value means that is not finite says
//! [`logit`]. Probabilities are `f32` weights relative to the maximum ([`exp`]) summed in `f64`.

use super::exp::{exp, logit, max, sum};
use super::philox::uniform;

/// What a draw depends on besides the logits and the window. Any value is defined; the ranges are those that `Options` lets through.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Params {
    /// Divides the distances of the logits, 0 to 100. 0 (or below, or NaN) takes the most probable token.
    pub temperature: f32,
    /// How many of the most probable tokens stay; 0 keeps all, 1 takes the most probable.
    pub top_k: u32,
    /// The probability that the tokens that stay must reach together, 0 to 1. 1 keeps all, 0 (or NaN) takes the most probable.
    pub top_p: f32,
    /// How probable a token must be, as a fraction of the most probable, 0 to 1. 0 (or NaN) keeps all.
    pub min_p: f32,
    /// Divides the positive and multiplies the other logits of the tokens in the window, above 0 to 100. 1 changes nothing.
    pub repetition_penalty: f32,
    /// The key of the random numbers.
    pub seed: u32,
    /// The counter of the random numbers: the place in the sequence that the drawn token will have, the prompt's first token being 0.
    pub position: u32,
}

impl Params {
    /// Whether the most probable token is taken, so that seed and position do not matter.
    pub fn is_greedy(&self) -> bool {
        let random = self.temperature > 0.0 && self.top_p > 0.0 && self.top_k != 1;
        !random
    }

    /// The distance from the largest logit below which min-p drops a token.
    fn min_p_distance(&self) -> f32 {
        // In f64 and rounded once: no platform's last bit of `ln` reaches the result.
        if self.min_p > 0.0 { f64::from(self.min_p.min(1.0)).ln() as f32 } else { f32::NEG_INFINITY }
    }
}

/// The buffers of [`reference()`], reused from call to call: after the first call for a vocabulary nothing is allocated.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The logits after the penalty. `[vocabulary]`
    logits: Vec<f32>,
    /// The best candidates, ordered: see `key`. `[at most vocabulary]`
    keys: Vec<u64>,
    /// The distinct tokens of the window.
    seen: Vec<u32>,
}

/// How many candidates are looked at first when top-k is off, and by what the number grows while they do not suffice.
const FIRST: usize = 128;
const GROWTH: usize = 8;

/// The token for one row of logits, or `None` where no logit is above minus infinity: there is nothing to choose, and the row is broken.
///
/// `recent` is the repetition window: the last `repetitionWindow` tokens of the sequence, *the prompt's included*, each counted once
/// however often it occurs. Ids outside of the row are ignored.
///
/// The vocabulary is never sorted: linear passes find maximum and sums, and only as many of the best candidates are put in order as the
/// filters and the draw come to look at. Two full passes with an exponential (`topK` 0) are the worst a peaked distribution costs.
#[inline(always)] // so that it takes on the caller's instruction set
pub fn reference(logits: &[f32], recent: &[u32], params: &Params, scratch: &mut Scratch) -> Option<u32> {
    let Scratch { logits: row, keys, seen } = scratch;
    row.clear();
    row.extend(logits.iter().map(|&x| logit(x)));
    penalize(row, recent, params.repetition_penalty, seen);

    let best = max(row);
    if best == f32::NEG_INFINITY {
        return None;
    }
    if params.is_greedy() {
        return row.iter().position(|&x| x == best).map(|id| id as u32);
    }
    keys.clear();
    keys.reserve(row.len());
    let mut ordered = Ordered { row, keys, complete: false };

    let floor = best + params.min_p_distance();
    let weight = |x: f32| f64::from(exp((x - best) / params.temperature));
    // How many of the ordered candidates stay; with top-k and top-p off all above the floor, however many that are.
    let (kept, total) = if params.top_k > 0 {
        ordered.take(params.top_k as usize, f32::NEG_INFINITY);
        let probable = |x: f32| f64::from(exp(x - best));
        let mass = ordered.values().map(probable).sum::<f64>();
        let mut kept = if params.top_p < 1.0 { ordered.reach(f64::from(params.top_p) * mass, probable).unwrap_or(usize::MAX) } else { usize::MAX };
        kept = kept.min(ordered.values().take_while(|&x| x >= floor).count());
        (kept, ordered.values().take(kept).map(weight).sum::<f64>())
    } else if params.top_p < 1.0 {
        let mass = sum(ordered.row, |x| exp(x - best));
        let goal = f64::from(params.top_p) * mass;
        let kept = ordered.grow_until(floor, |o| o.reach(goal, |x| f64::from(exp(x - best)))).unwrap_or(ordered.keys.len());
        (kept, ordered.values().take(kept).map(weight).sum::<f64>())
    } else {
        let total = sum(ordered.row, |x| if x >= floor { exp((x - best) / params.temperature) } else { 0.0 });
        (usize::MAX, total)
    };

    let goal = f64::from(uniform(params.seed, params.position)) * total;
    let past = |o: &Ordered| {
        let mut cumulated = 0.0;
        o.values().take(kept).position(|x| {
            cumulated += weight(x);
            cumulated > goal
        })
    };
    // With all candidates in order and none past the goal, rounding was all that was missing: the last one.
    let drawn = if kept == usize::MAX { ordered.grow_until(floor, past) } else { past(&ordered) };
    let last = kept.min(ordered.keys.len()).saturating_sub(1);
    ordered.keys.get(drawn.unwrap_or(last)).map(|&key| key as u32)
}

/// Step 1, in place.
#[inline(always)]
fn penalize(row: &mut [f32], recent: &[u32], penalty: f32, seen: &mut Vec<u32>) {
    if penalty == 1.0 {
        return;
    }
    seen.clear();
    seen.extend_from_slice(recent);
    seen.sort_unstable();
    seen.dedup();
    for &id in seen.iter() {
        if let Some(x) = row.get_mut(id as usize) {
            *x = logit(if *x > 0.0 { *x / penalty } else { *x * penalty });
        }
    }
}

/// A candidate as one number: ascending keys are descending logits, and ascending ids where they are equal.
fn key(id: usize, value: f32) -> u64 {
    let bits = (value + 0.0).to_bits(); // minus zero equals zero
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(!ascending) << 32 | id as u64
}

/// The best candidates of a row, in order.
struct Ordered<'a> {
    row: &'a [f32],
    keys: &'a mut Vec<u64>,
    /// Whether the keys are all the candidates there are.
    complete: bool,
}

impl Ordered<'_> {
    fn values(&self) -> impl Iterator<Item = f32> {
        self.keys.iter().map(|&key| self.row[key as u32 as usize])
    }

    /// Put the best `k` of the logits that are at least `floor` in order. Minus infinity is never a candidate.
    #[inline(always)]
    fn take(&mut self, k: usize, floor: f32) {
        let k = k.min(self.row.len());
        let room = (2 * k + 1024).min(self.row.len());
        // A logit must be above this. Ids ascend, so what equals the k-th best so far comes after it.
        let mut above = floor.next_down();
        let mut dropped = false;
        self.keys.clear();
        for (start, chunk) in self.row.chunks(64).enumerate() {
            // Without an early exit, so that the usual case, none, is a few vector instructions.
            if !chunk.iter().fold(false, |any, &x| any | (x > above)) {
                continue;
            }
            for (i, &x) in chunk.iter().enumerate() {
                if x > above {
                    if self.keys.len() == room && k < room {
                        above = x_of_best(self.keys, k, self.row);
                        dropped = true;
                        if x <= above {
                            continue;
                        }
                    }
                    self.keys.push(key(start * 64 + i, x));
                }
            }
        }
        if self.keys.len() > k {
            x_of_best(self.keys, k, self.row);
            dropped = true;
        }
        self.keys.sort_unstable();
        self.complete = !dropped;
    }

    /// How many of the best it takes until their weights add up to `goal`; `None` if those in order do not.
    #[inline(always)]
    fn reach(&self, goal: f64, weight: impl Fn(f32) -> f64) -> Option<usize> {
        let mut cumulated = 0.0;
        let last = self.values().position(|x| {
            cumulated += weight(x);
            cumulated >= goal
        });
        last.map(|last| last + 1)
    }

    /// Put ever more in order until `found` finds what it looks for, or all of them.
    #[inline(always)]
    fn grow_until(&mut self, floor: f32, found: impl Fn(&Self) -> Option<usize>) -> Option<usize> {
        let mut k = FIRST;
        loop {
            self.take(k, floor);
            let result = found(self);
            if result.is_some() || self.complete {
                return result;
            }
            k *= GROWTH;
        }
    }
}

/// Keep the best `k` of more than `k` keys, in no order, and return the logit of the last of them.
fn x_of_best(keys: &mut Vec<u64>, k: usize, row: &[f32]) -> f32 {
    let (_, &mut last, _) = keys.select_nth_unstable(k - 1);
    keys.truncate(k);
    row[last as u32 as usize]
}

#[cfg(test)]
#[path = "sample_tests.rs"]
mod tests;
