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
//! [`logit`]. Probabilities are `f32` weights relative to the maximum ([`Weight`]) summed in `f64`. Three sums have an order of their own: that of
//! top-p over the whole vocabulary is the sum of op `pick` ([`Part`]s, joined in ascending order), that of the temperature over the whole
//! vocabulary is added up block by block, and that of a weight within the candidates by classes of nearly equal logits (`Candidates::cut`).
//!
//! **How it stays cheap with 262,144 logits.** Nothing is sorted but a handful: a block's largest logit says whether anything in it can matter,
//! what can matter is collected, its weight is added up by classes, and only the class in which a sum is reached is put in order (a bucket
//! select: Knuth, "The art of computer programming", volume 3, sections 5.2.5 and 5.3.3). The sum of top-p is there already, for the
//! log-probability needs it; a temperature that is alone costs one more pass with an exponential.

use super::exp::{Exp2, logit, sum};
use super::philox::uniform;
use super::pick::{BLOCK, Part};

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

/// The buffers of [`draw`] and [`reference()`], reused from call to call: after the first call for a vocabulary nothing is allocated.
#[derive(Debug, Default)]
pub struct Scratch {
    /// A copy of the logits, for the reference. `[vocabulary]`
    row: Vec<f32>,
    /// The parts of the row, for the reference. `[vocabulary / BLOCK]`
    parts: Vec<Part>,
    /// The candidates: see `key`. `[at most vocabulary]`
    keys: Vec<u64>,
    /// The largest logits of runs of the row. `[at most vocabulary / RUN]`
    tops: Vec<u32>,
    /// The sums of the blocks at a temperature. `[vocabulary / BLOCK]`
    sums: Vec<f64>,
    /// The distinct tokens of the window, and their logits before the penalty.
    seen: Vec<(u32, f32)>,
}

/// How likely a logit is, as a fraction of the best: e^((x - best) / temperature).
#[derive(Debug, Clone, Copy)]
pub struct Weight {
    best: f32,
    temperature: f32,
    /// What the distance to the best is multiplied with, for a power of two.
    scale: f32,
}

impl Weight {
    /// With the largest logit, and what divides the distance to it.
    pub fn new(best: f32, temperature: f32) -> Self {
        // At most finite: zero times infinity is no number.
        Self { best, temperature, scale: (std::f32::consts::LOG2_E / temperature).min(f32::MAX) }
    }

    /// That of one logit.
    #[inline(always)]
    pub fn of(&self, x: f32) -> f32 {
        self.of_by(&Exp2::KNOWN, x)
    }

    #[inline(always)]
    fn of_by(&self, exp2: &Exp2, x: f32) -> f32 {
        exp2.of((x - self.best) * self.scale)
    }

    /// The sum of a block, whose logits are not above the best, as `logit` reads them.
    // As `Part::new`.
    #[cfg_attr(not(target_arch = "wasm32"), inline(always))]
    #[cfg_attr(target_arch = "wasm32", inline(never))]
    pub fn sum(&self, block: &[f32]) -> f64 {
        // NaN and minus infinity weigh nothing anyway, and plus infinity makes the sum NaN.
        let sum = sum(block, |exp2, x| self.of_by(exp2, x));
        if sum.is_nan() { self.odd_sum(block) } else { sum }
    }

    /// The same where not all are finite.
    #[cold]
    #[inline(never)]
    pub fn odd_sum(&self, block: &[f32]) -> f64 {
        let mut values = [f32::NEG_INFINITY; BLOCK];
        for (value, &x) in values.iter_mut().zip(block) {
            *value = logit(x);
        }
        sum(&values[..block.len()], |exp2, x| self.of_by(exp2, x))
    }

    /// A logit such that all `n` that may lie below weigh less than `rest` together.
    fn bound(&self, n: f64, rest: f64) -> f32 {
        // T ln(n / rest) below the best. The logarithm is bounded from above by the bits of the number, log2(1 + m) < m + 0.0861, so that no
        // platform's last bit decides which candidates are looked at.
        let ratio = n / rest.max(f64::MIN_POSITIVE);
        let bits = ratio.to_bits();
        let log2 = (bits >> 52) as f64 - 1023.0 + (bits & ((1 << 52) - 1)) as f64 / (1u64 << 52) as f64 + 0.0861;
        self.best - (log2.max(0.0) * std::f64::consts::LN_2 * 1.001) as f32 * self.temperature
    }
}

/// The token for one row of logits, or `None` where no logit is above minus infinity: there is nothing to choose, and the row is broken.
///
/// `recent` is the repetition window: the last `repetitionWindow` tokens of the sequence, *the prompt's included*, each counted once
/// however often it occurs. Ids outside of the row are ignored.
pub fn reference(logits: &[f32], recent: &[u32], params: &Params, scratch: &mut Scratch) -> Option<u32> {
    let (mut row, mut parts) = (std::mem::take(&mut scratch.row), std::mem::take(&mut scratch.parts));
    row.clear();
    row.extend_from_slice(logits);
    parts.clear();
    parts.extend(row.chunks(BLOCK).map(Part::new));
    let id = draw(&mut row, &mut parts, recent, params, scratch, &Plain);
    (scratch.row, scratch.parts) = (row, parts);
    id
}

/// The same where the parts of the row are there already, one for each [`BLOCK`] of it.
///
/// The row comes back as it was; the parts are then those after the penalty.
pub fn draw(row: &mut [f32], parts: &mut [Part], recent: &[u32], params: &Params, scratch: &mut Scratch, sums: &dyn Sums) -> Option<u32> {
    penalize(row, parts, recent, params.repetition_penalty, &mut scratch.seen, sums);
    let id = choose(row, parts, params, scratch, sums);
    for &(id, x) in &scratch.seen {
        row[id as usize] = x;
    }
    id
}

/// How sums of exponentials are made: on which instruction set, on which threads.
pub trait Sums {
    /// [`Part::new`].
    fn part(&self, block: &[f32]) -> Part;
    /// [`Weight::sum`] of every block of a row.
    fn weigh(&self, row: &[f32], weight: Weight, sums: &mut [f64]);
}

/// On this thread, without more.
struct Plain;

impl Sums for Plain {
    fn part(&self, block: &[f32]) -> Part {
        Part::new(block)
    }
    fn weigh(&self, row: &[f32], weight: Weight, sums: &mut [f64]) {
        for (sum, block) in sums.iter_mut().zip(row.chunks(BLOCK)) {
            *sum = weight.sum(block);
        }
    }
}

/// Step 1, in place.
fn penalize(row: &mut [f32], parts: &mut [Part], recent: &[u32], penalty: f32, seen: &mut Vec<(u32, f32)>, sums: &dyn Sums) {
    seen.clear();
    if penalty == 1.0 {
        return;
    }
    seen.extend(recent.iter().filter_map(|&id| row.get(id as usize).map(|&x| (id, x))));
    seen.sort_unstable_by_key(|&(id, _)| id);
    seen.dedup_by_key(|&mut (id, _)| id);
    for same_block in seen.chunk_by(|a, b| a.0 as usize / BLOCK == b.0 as usize / BLOCK) {
        for &(id, x) in same_block {
            let x = logit(x);
            row[id as usize] = logit(if x > 0.0 { x / penalty } else { x * penalty });
        }
        let block = same_block[0].0 as usize / BLOCK;
        parts[block] = sums.part(&row[block * BLOCK..row.len().min((block + 1) * BLOCK)]);
    }
}

/// The steps after the penalty.
fn choose(row: &[f32], parts: &[Part], params: &Params, scratch: &mut Scratch, by: &dyn Sums) -> Option<u32> {
    let Scratch { keys, tops, sums, .. } = scratch;
    let best = parts.iter().fold(f32::NEG_INFINITY, |a, b| if b.max > a { b.max } else { a });
    if best == f32::NEG_INFINITY {
        return None;
    }
    if params.is_greedy() {
        let block = parts.iter().position(|p| p.max == best)? * BLOCK;
        return row[block..].iter().position(|&x| logit(x) == best).map(|i| (block + i) as u32);
    }
    let all = f32::MIN;
    let floor = (best + params.min_p_distance()).max(all);
    let plain = Weight::new(best, 1.0);
    let tempered = Weight::new(best, params.temperature);
    let u = f64::from(uniform(params.seed, params.position));
    let p = f64::from(params.top_p);
    keys.clear();
    keys.reserve(row.len());
    tops.clear();
    tops.reserve(row.len().div_ceil(RUN));
    sums.resize(parts.len(), 0.0);
    let mut candidates = Candidates { row, parts, keys };
    if params.top_k > 0 {
        candidates.best(params.top_k as usize, tops);
        if params.top_p < 1.0 {
            candidates.cut(plain, &|mass| p * mass, |sum, goal| sum >= goal);
        }
        candidates.keys.retain(|&key| value(key) >= floor);
    } else if params.top_p < 1.0 {
        let mass = parts.iter().fold(Part::default(), |a, &b| a.join(b)).sum;
        let goal = p * mass;
        candidates.reach(plain, goal, mass, floor, |sum, goal| sum >= goal);
    } else if params.min_p > 0.0 {
        candidates.gather(floor);
    } else {
        by.weigh(row, tempered, sums);
        let total = sums.iter().sum::<f64>();
        if candidates.reach(tempered, u * total, total, all, |sum, goal| sum > goal) {
            return candidates.keys.last().map(|&key| key as u32);
        }
        // The total was too large by its rounding, and u is nearly 1: then the candidates are all there are, and their own sum is the total.
    }
    candidates.cut(tempered, &|total| u * total, |sum, goal| sum > goal);
    candidates.keys.last().map(|&key| key as u32)
}

/// Logits whose largest is looked for where that of whole blocks says too little.
const RUN: usize = 16;

/// Classes of nearly equal candidates.
const CLASSES: usize = 1024;

/// Beyond this distance, divided by the temperature, a weight is 0.
const FAR: f32 = 88.0;

/// A number that ascends as the logit does.
fn ascending(value: f32) -> u32 {
    let bits = (value + 0.0).to_bits(); // minus zero equals zero
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// A candidate as one number: ascending keys are descending logits, and ascending ids where they are equal.
fn key(id: usize, value: f32) -> u64 {
    u64::from(!ascending(value)) << 32 | id as u64
}

/// The logit of a key.
#[inline(always)]
fn value(key: u64) -> f32 {
    let ascending = !((key >> 32) as u32);
    f32::from_bits(if ascending >> 31 == 1 { ascending & i32::MAX as u32 } else { !ascending })
}

/// Tokens that may be drawn.
struct Candidates<'a> {
    row: &'a [f32],
    parts: &'a [Part],
    keys: &'a mut Vec<u64>,
}

impl Candidates<'_> {
    /// All whose logit is at least `least`, which is finite, in the order of their ids.
    #[inline(never)]
    fn gather(&mut self, least: f32) {
        self.keys.clear();
        for (i, block) in self.row.chunks(BLOCK).enumerate() {
            if self.parts[i].max < least {
                continue;
            }
            // First all comparisons, which are vector instructions; then eight at a time, most of which are none.
            let mut flags = [0u8; BLOCK];
            for (flag, &x) in flags.iter_mut().zip(block) {
                *flag = u8::from(x >= least);
            }
            for (eight, flags) in flags.as_chunks::<8>().0.iter().enumerate() {
                let mut flags = u64::from_le_bytes(*flags);
                while flags != 0 {
                    let at = eight * 8 + flags.trailing_zeros() as usize / 8;
                    self.keys.push(key(i * BLOCK + at, logit(block[at])));
                    flags &= flags - 1;
                }
            }
        }
    }

    /// The `k` best, in the order of their ids.
    fn best(&mut self, k: usize, tops: &mut Vec<u32>) {
        // Of runs of the row the k-th largest maximum: at least k logits are not below it.
        tops.clear();
        if k <= self.parts.len() / 2 {
            tops.extend(self.parts.iter().map(|part| ascending(part.max)));
        } else if k <= self.row.len() / RUN {
            tops.extend(
                self.row.chunks(RUN).map(|run| ascending(run.iter().fold(f32::NEG_INFINITY, |a, &b| if logit(b) > a { logit(b) } else { a }))),
            );
        }
        let mut least = f32::MIN;
        if k <= tops.len() {
            let (_, &mut top, _) = tops.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
            least = value(u64::from(!top) << 32).clamp(f32::MIN, f32::MAX);
        }
        self.gather(least);
        if self.keys.len() > k {
            self.keys.select_nth_unstable(k - 1);
            self.keys.truncate(k);
        }
        self.keys.sort_unstable(); // or the order in which weights are added would be the selection's
    }

    /// Gathers and leaves what [`cut`](Self::cut) would leave of the whole row, which weighs `total`; none below `floor` counts. Whether the goal
    /// was reached; otherwise all stay.
    fn reach(&mut self, weight: Weight, goal: f64, total: f64, floor: f32, past: fn(f64, f64) -> bool) -> bool {
        // What lies below the bound for all n is not needed, but it is mostly far below: the first tries look less far. At last, where the goal
        // is nearly the total and rounding decides, everything.
        let n = self.row.len() as f64;
        let tries = [n / 64.0, n / 8.0, n].map(|n| weight.bound(n, total - goal));
        for least in tries.into_iter().chain([floor]) {
            self.gather(least.max(floor));
            if self.cut(weight, &|_| goal, past) {
                return true;
            }
            if least <= floor {
                break;
            }
        }
        false
    }

    /// Leaves the most probable of the candidates whose weights, added up, are `past` the goal, which may depend on the sum of all. The last of
    /// them comes last, the others in any order. Whether the goal was reached; otherwise all stay, and the least probable comes last.
    ///
    /// The weights are added up by classes, in each in the order of the candidates; then, from the best class on, the classes; then, in the
    /// class where that passes the goal, the weights from the best on.
    #[inline(never)]
    fn cut(&mut self, weight: Weight, goal: &dyn Fn(f64) -> f64, past: fn(f64, f64) -> bool) -> bool {
        let Some(worst) = (0..self.keys.len()).max_by_key(|&i| self.keys[i]) else { return false };
        let span = (weight.best - value(self.keys[worst])).abs().min(FAR * weight.temperature); // abs: minus zero
        let scale = (CLASSES as f32 / span).min(f32::MAX);
        let class = |x: f32| {
            let class = (weight.best - x) * scale;
            // Infinity times zero is NaN, and that is class 0: there is no other then.
            (if class > (CLASSES - 1) as f32 { (CLASSES - 1) as f32 } else { class }) as i32
        };
        let exp2 = Exp2::unknown();
        let mut sums = [0.0f64; CLASSES];
        let (mut weights, mut classes) = ([0.0f32; BLOCK], [0i32; BLOCK]);
        for keys in self.keys.chunks(BLOCK) {
            for ((w, c), &key) in weights.iter_mut().zip(&mut classes).zip(keys) {
                let x = value(key);
                (*w, *c) = (weight.of_by(&exp2, x), class(x));
            }
            for (&w, &c) in weights.iter().zip(&classes).take(keys.len()) {
                sums[c as usize] += f64::from(w);
            }
        }
        let goal = goal(sums.iter().sum());
        let mut before = 0.0;
        let reached = sums.iter().position(|&sum| {
            let passed = past(before + sum, goal);
            before += if passed { 0.0 } else { sum };
            passed
        });
        let Some(reached) = reached else {
            let end = self.keys.len() - 1;
            self.keys.swap(worst, end);
            return false;
        };
        // The first key that is not in the classes below this one.
        let first_of = |end: usize| {
            let (mut low, mut high) = (0, 1 << 32);
            while low < high {
                let middle = low + (high - low) / 2;
                if middle > self.keys[worst] >> 32 || class(value(middle << 32)) >= end as i32 {
                    high = middle;
                } else {
                    low = middle + 1;
                }
            }
            low << 32
        };
        let (from, to) = (first_of(reached), first_of(reached + 1));
        let kept = compact(self.keys, |key| key < to);
        self.keys.truncate(kept);
        let first = compact(self.keys, |key| key < from);
        self.keys[first..].sort_unstable();
        let within = self.keys[first..].iter().position(|&key| {
            before += f64::from(weight.of(value(key)));
            past(before, goal)
        });
        // In another order the sum of the class may be smaller by a rounding: then it is the last of it.
        self.keys.truncate(within.map_or(kept, |n| first + n + 1));
        true
    }
}

/// Brings the keys that are wanted to the front, in their order; how many they are. Without a branch that is hard to predict.
fn compact(keys: &mut [u64], wanted: impl Fn(u64) -> bool) -> usize {
    let mut n = 0;
    for i in 0..keys.len() {
        keys.swap(n, i);
        n += usize::from(wanted(keys[n]));
    }
    n
}

#[cfg(test)]
#[path = "sample_tests.rs"]
mod tests;
