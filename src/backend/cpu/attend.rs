//! `attend` over the f16 cache. Every (query, head) goes through the same absolute tiles in ascending order, whatever else is computed with it.

use super::simd::{Isa, Kernel};
use super::vector::exp;
use crate::ops::attend::{Params, TILE};

/// `q`, `out`: [tokens, heads, head_dim]; `keys`, `values`: [positions, kv_heads, padded head_dim] f16, zeros in the padding.
pub struct Attend<'a> {
    pub q: &'a [f32],
    pub keys: &'a [u16],
    pub values: &'a [u16],
    pub out: &'a mut [f32],
    pub p: &'a Params,
}

/// Head dimension in the cache: a multiple of 8.
pub fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(8)
}

/// What a query head has gathered over the tiles so far: softmax's (max, sum, out).
struct State {
    max: f32,
    sum: f32,
}

impl Kernel for Attend<'_> {
    type Out = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Self { q, keys, values, out, p } = self;
        let (tokens, dim, group) = (q.len() / (p.heads * p.head_dim), padded(p.head_dim), p.heads / p.kv_heads);
        let row = p.kv_heads * dim;
        let end = p.start + tokens;
        let (mut tile_k, mut tile_v) = (vec![[0.0; 8]; TILE * dim / 8], vec![[0.0; 8]; TILE * dim / 8]); // [TILE, dim]
        let mut query = vec![[0.0f32; 8]; dim / 8];
        let mut states: Vec<State> = Vec::new();
        let mut sums = vec![[0.0f32; 8]; tokens * group * dim / 8]; // [tokens, group, dim]
        for kv_head in 0..p.kv_heads {
            states.clear();
            states.resize_with(tokens * group, || State { max: f32::NEG_INFINITY, sum: 0.0 });
            sums.fill([0.0; 8]);
            let first = p.window.map_or(0, |w| (p.start + 1).saturating_sub(w)); // of the first query
            for tile in first / TILE..end.div_ceil(TILE) {
                let (from, to) = (tile * TILE, (tile * TILE + TILE).min(end));
                let at = |n: usize| (from + n) * row + kv_head * dim;
                for n in 0..to - from {
                    let (k, _) = keys[at(n)..at(n) + dim].as_chunks::<8>();
                    let (v, _) = values[at(n)..at(n) + dim].as_chunks::<8>();
                    let span = n * dim / 8..(n + 1) * dim / 8;
                    for ((k, v), (k_to, v_to)) in k.iter().zip(v).zip(tile_k[span.clone()].iter_mut().zip(&mut tile_v[span])) {
                        isa.store(isa.load_f16(k), k_to);
                        isa.store(isa.load_f16(v), v_to);
                    }
                }
                for token in 0..tokens {
                    let position = p.start + token;
                    let visible = p.window.map_or(0, |w| (position + 1).saturating_sub(w));
                    let (low, high) = (visible.max(from), (position + 1).min(to));
                    if low >= high {
                        continue;
                    }
                    for g in 0..group {
                        let head = kv_head * group + g;
                        let q = &q[(token * p.heads + head) * p.head_dim..][..p.head_dim];
                        for (to, &x) in query.as_flattened_mut().iter_mut().zip(q) {
                            *to = x * p.scale;
                        }
                        let n = token * group + g;
                        let sums = &mut sums[n * dim / 8..(n + 1) * dim / 8];
                        one_tile(isa, &query, &tile_k, &tile_v, low - from, high - from, &mut states[n], sums);
                    }
                }
            }
            for (n, state) in states.iter().enumerate() {
                let (token, head) = (n / group, kv_head * group + n % group);
                let out = &mut out[(token * p.heads + head) * p.head_dim..][..p.head_dim];
                let sums = sums[n * dim / 8..(n + 1) * dim / 8].as_flattened();
                out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum / state.sum);
            }
        }
    }
}

/// The positions `low..high` of one tile, for one query: its own (max, sum, out), then joined to what the earlier tiles gave.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn one_tile<I: Isa>(
    isa: I,
    query: &[[f32; 8]],
    keys: &[[f32; 8]],
    values: &[[f32; 8]],
    low: usize,
    high: usize,
    state: &mut State,
    sums: &mut [[f32; 8]],
) {
    let eights = query.len();
    let mut scores = [[f32::NEG_INFINITY; 8]; TILE / 8];
    let mut max = f32::NEG_INFINITY;
    for n in low..high {
        let mut acc = isa.splat(0.0);
        for (q, k) in query.iter().zip(&keys[n * eights..(n + 1) * eights]) {
            acc = isa.add(acc, isa.mul(isa.load(q), isa.load(k)));
        }
        let score = isa.sum(acc);
        scores[n / 8][n % 8] = score;
        max = if score > max { score } else { max };
    }
    let mut total = isa.splat(0.0);
    for eight in &mut scores[low / 8..high.div_ceil(8)] {
        isa.store(exp(isa, isa.sub(isa.load(eight), isa.splat(max))), eight);
    }
    // exp never gives zero: what is not visible is cleared
    scores[low / 8][..low % 8].fill(0.0);
    if !high.is_multiple_of(8) {
        scores[high / 8][high % 8..].fill(0.0);
    }
    for eight in &scores[low / 8..high.div_ceil(8)] {
        total = isa.add(total, isa.load(eight));
    }
    let total = isa.sum(total);
    let new_max = if max > state.max { max } else { state.max };
    let (mut before, mut now) = ([0.0; 8], [0.0; 8]);
    isa.store(exp(isa, isa.splat(state.max - new_max)), &mut before);
    isa.store(exp(isa, isa.splat(max - new_max)), &mut now);
    let (before, now) = (before[0], now[0]);
    state.sum = state.sum * before + total * now;
    state.max = new_max;
    for (i, sum) in sums.iter_mut().enumerate() {
        let mut acc = isa.splat(0.0);
        for n in low..high {
            acc = isa.add(acc, isa.mul(isa.splat(scores[n / 8][n % 8]), isa.load(&values[n * eights + i])));
        }
        isa.store(isa.add(isa.mul(isa.load(sum), isa.splat(before)), isa.mul(acc, isa.splat(now))), sum);
    }
}
