//! `attend` over the cache. Every (query, head) goes through the same absolute tiles in ascending order, and within a tile through the
//! same sums, whatever else is computed with it. What a type of cache holds is a number (f16's, or int8 times scale, which f32 holds exactly),
//! and that number is what the sums are of, however it was loaded.

mod held;

use super::cache::Cache;
use super::simd::{Isa, Kernel};
use super::vector::exp;
use crate::ops::attend::{Params, TILE};
use crate::ops::kv::BLOCK;
use held::{F32, Held, Int8, Raw, Room, Tile};
use std::ops::Range;

/// From so many queries on, a tile's keys and values are widened to f32 once for all of them.
const WIDEN_FOR: usize = 12;
const EIGHTS: usize = TILE / 8;

/// The largest factor that times the unit of f16 is finite.
const RAW_LIMIT: f32 = 32_768.0;

/// Attention of some query heads.
pub struct Attend<'a> {
    /// The queries, [tokens, heads, head_dim].
    pub q: &'a [f32],
    /// The layer's keys and values.
    pub cache: &'a Cache,
    /// The query heads that are wanted.
    pub heads: Range<usize>,
    /// The result, [tokens, wanted heads, head_dim].
    pub out: &'a mut [f32],
    /// The numbers of the operation.
    pub p: &'a Params,
}

/// What a query has gathered over the tiles so far: softmax's (max, sum), the weighted sum of the values being beside it.
#[derive(Clone, Copy)]
struct State {
    max: f32,
    sum: f32,
}

/// The queries of one key head: group by group, token by token.
struct Queries {
    /// Positions of the first token, how many query heads each token has, and how far back a query sees.
    start: usize,
    group: usize,
    window: usize,
    /// Values in a head of the cache.
    dim: usize,
    /// Times the scale, [queries, dim].
    q: Vec<f32>,
    /// Times the unit of what is in the cache; empty where that is 1.
    q_raw: Vec<f32>,
    states: Vec<State>,
    /// The weighted sums of the values, [queries, dim / 8].
    sums: Vec<[f32; 8]>,
}

impl Queries {
    /// The positions from `tile` on that a query sees.
    fn visible(&self, query: usize, tile: &Range<usize>) -> Range<usize> {
        let position = self.start + query / self.group;
        (position + 1).saturating_sub(self.window).max(tile.start)..(position + 1).min(tile.end)
    }

    /// The queries that see something of a tile: a run of tokens.
    fn that_see(&self, tile: &Range<usize>) -> Range<usize> {
        let tokens = self.states.len() / self.group;
        let first = tile.start.saturating_sub(self.start);
        let end = tile.end.saturating_add(self.window - 1).saturating_sub(self.start).min(tokens);
        first.min(end) * self.group..end * self.group
    }
}

impl Kernel for Attend<'_> {
    type Out = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Self { q, cache, heads, out, p } = self;
        let (tokens, dim, per_key) = (q.len() / (p.heads * p.head_dim), cache.dim(), p.heads / p.kv_heads);
        let end = p.start + tokens;
        let window = p.window.unwrap_or(usize::MAX);
        let first_tile = (p.start + 1).saturating_sub(window) / TILE; // of the first query
        let mut room = Room::default();
        for kv_head in heads.start / per_key..heads.end.div_ceil(per_key) {
            let mine = heads.start.max(kv_head * per_key)..heads.end.min((kv_head + 1) * per_key);
            let n = tokens * mine.len();
            let mut queries = Queries {
                start: p.start,
                group: mine.len(),
                window,
                dim,
                q: vec![0.0; n * dim],
                q_raw: Vec::new(),
                states: vec![State { max: f32::NEG_INFINITY, sum: 0.0 }; n],
                sums: vec![[0.0; 8]; n * dim / 8],
            };
            for (i, to) in queries.q.chunks_exact_mut(dim).enumerate() {
                let at = (i / mine.len() * p.heads + mine.start + i % mine.len()) * p.head_dim;
                to.iter_mut().zip(&q[at..at + p.head_dim]).for_each(|(to, &x)| *to = x * p.scale);
            }
            let f16 = matches!(cache, Cache::F16(_));
            let widen_for = if f16 && !queries.q.iter().all(|x| x.abs() <= RAW_LIMIT) { 0 } else { WIDEN_FOR };
            if f16 && I::F16_UNIT != 1.0 {
                queries.q_raw.extend(queries.q.iter().map(|x| x * I::F16_UNIT));
            }
            for tile in first_tile..end.div_ceil(TILE) {
                let tile = tile * TILE..(tile * TILE + TILE).min(end);
                room.widen_scales(isa, cache, kv_head, &tile);
                if !I::TUNED || queries.that_see(&tile).len() >= widen_for {
                    room.widen(isa, cache, kv_head, &tile);
                    let wide = Tile::<F32> { keys: &room.keys, key_scales: &[], values: &room.values, value_scales: &[] };
                    one_tile(isa, &mut queries, tile, &wide);
                    continue;
                }
                match cache {
                    Cache::F16(cache) => {
                        let (keys, values) = cache.tile(kv_head, &tile);
                        one_tile(isa, &mut queries, tile, &Tile::<Raw> { keys, key_scales: &[], values, value_scales: &[] });
                    }
                    Cache::Q8(cache) => {
                        let held = cache.tile(kv_head, &tile);
                        let (keys, key_scales, values) = (held.keys, held.key_scales, held.values);
                        one_tile(isa, &mut queries, tile, &Tile::<Int8> { keys, key_scales, values, value_scales: &room.value_scales });
                    }
                }
            }
            for (i, (state, sums)) in queries.states.iter().zip(queries.sums.chunks_exact(dim / 8)).enumerate() {
                let at = (i / mine.len() * heads.len() + mine.start - heads.start + i % mine.len()) * p.head_dim;
                out[at..at + p.head_dim].iter_mut().zip(sums.as_flattened()).for_each(|(out, sum)| *out = sum / state.sum);
            }
        }
    }
}

/// All queries that see something of a tile, a few at a time.
#[inline(always)]
fn one_tile<I: Isa, S: Held>(isa: I, queries: &mut Queries, tile: Range<usize>, held: &Tile<S>) {
    let mut at = queries.that_see(&tile);
    macro_rules! few {
        ($queries:expr, $vectors:expr, $wide:expr) => {
            if I::WIDE {
                few::<I, S, $queries, $wide>(isa, queries, at.start, &tile, held)
            } else {
                few::<I, S, $queries, $vectors>(isa, queries, at.start, &tile, held)
            }
        };
    }
    if !I::TUNED {
        for first in at {
            few::<I, S, 1, 1>(isa, queries, first, &tile, held);
        }
        return;
    }
    while at.len() >= 4 {
        few!(4, 1, 2);
        at.start += 4;
    }
    match at.len() {
        1 => few!(1, 4, 4),
        2 => few!(2, 2, 4),
        3 => few!(3, 1, 4),
        _ => {}
    }
}

/// Q queries and one tile: their own (max, sum, values), then joined to what the earlier tiles gave. W vectors are worked at side by side.
#[cfg_attr(target_arch = "wasm32", inline(never))] // a function of its own gets registers of its own; elsewhere it would lose its instruction set
#[cfg_attr(not(target_arch = "wasm32"), inline(always))]
fn few<I: Isa, S: Held, const Q: usize, const W: usize>(isa: I, queries: &mut Queries, first: usize, tile: &Range<usize>, held: &Tile<S>) {
    let dim = queries.dim;
    let q = if S::unit::<I>() == 1.0 { &queries.q } else { &queries.q_raw };
    let q: [&[f32]; Q] = std::array::from_fn(
        #[inline(always)]
        |i| &q[(first + i) * dim..(first + i + 1) * dim],
    );
    let seen = queries.visible(first, tile).start - tile.start..queries.visible(first + Q - 1, tile).end - tile.start;
    let eights = seen.start / 8..seen.end.div_ceil(8);

    let mut scores = [[[0.0; 8]; EIGHTS]; Q];
    let mut e = eights.start;
    while e + W <= eights.end {
        products::<I, S, Q, W>(isa, &q, held, &mut scores, e);
        e += W;
    }
    while e < eights.end {
        products::<I, S, Q, 1>(isa, &q, held, &mut scores, e);
        e += 1;
    }

    let mut factors = [(0.0, 0.0); Q];
    for i in 0..Q {
        let mine = queries.visible(first + i, tile);
        let mine = mine.start - tile.start..mine.end - tile.start;
        factors[i] = softmax(isa, &mut scores[i], &eights, &mine, &mut queries.states[first + i], S::unit::<I>());
    }

    let sums = &mut queries.sums[first * dim / 8..(first + Q) * dim / 8];
    let mut d = 0;
    while d + W <= dim / 8 {
        weighted::<I, S, Q, W>(isa, &scores, &seen, held, sums, dim / 8, d, &factors);
        d += W;
    }
    while d < dim / 8 {
        weighted::<I, S, Q, 1>(isa, &scores, &seen, held, sums, dim / 8, d, &factors);
        d += 1;
    }
}

/// Scores of Q queries with 8 W positions: for each, the sum over the head's values in ascending order.
#[inline(always)]
fn products<I: Isa, S: Held, const Q: usize, const W: usize>(
    isa: I,
    q: &[&[f32]; Q],
    held: &Tile<S>,
    scores: &mut [[[f32; 8]; EIGHTS]; Q],
    at: usize,
) {
    let dim = q[0].len();
    // of the same length as far as the compiler can see: no check within the loop
    let q: [&[f32]; Q] = std::array::from_fn(
        #[inline(always)]
        |i| &q[i][..dim],
    );
    let keys: [&[[S::T; 8]]; W] = std::array::from_fn(
        #[inline(always)]
        |w| &held.keys[(at + w) * dim..(at + w + 1) * dim],
    );
    let mut acc = [[isa.splat(0.0); W]; Q];
    let blocks = dim.div_ceil(S::BLOCK);
    for block in 0..blocks {
        let mut scales = [S::scales(isa, held.key_scales, at * blocks + block); W];
        for (w, scales) in scales.iter_mut().enumerate().skip(1) {
            *scales = S::scales(isa, held.key_scales, (at + w) * blocks + block);
        }
        let end = dim.min((block + 1) * S::BLOCK);
        assert!(q.iter().all(|q| end <= q.len()) && keys.iter().all(|keys| end <= keys.len()));
        for d in block * S::BLOCK..end {
            if S::IN_CACHE {
                isa.prefetch(held.values, (at * dim + d * W) * size_of::<[S::T; 8]>()); // what these scores will weigh, a part with each d
            }
            for w in 0..W {
                // SAFETY: `d` is below `end`, which lies within all of them.
                let k = S::load(isa, unsafe { keys[w].get_unchecked(d) }, scales[w]);
                for i in 0..Q {
                    // SAFETY: as above.
                    acc[i][w] = isa.add(acc[i][w], isa.mul(isa.splat(unsafe { *q[i].get_unchecked(d) }), k));
                }
            }
        }
    }
    for i in 0..Q {
        for w in 0..W {
            isa.store(acc[i][w], &mut scores[i][at + w]);
        }
    }
}

/// Scores to weights times `unit`, zero where the query does not see; how much what was before counts from now on, and how much this tile does.
#[cfg_attr(target_arch = "wasm32", inline(never))] // the same for all numbers of queries and types of cache
#[cfg_attr(not(target_arch = "wasm32"), inline(always))]
fn softmax<I: Isa>(isa: I, scores: &mut [[f32; 8]; EIGHTS], eights: &Range<usize>, seen: &Range<usize>, state: &mut State, unit: f32) -> (f32, f32) {
    let mine = seen.start / 8..seen.end.div_ceil(8);
    scores[mine.start][..seen.start % 8].fill(f32::NEG_INFINITY);
    if !seen.end.is_multiple_of(8) {
        scores[mine.end - 1][seen.end % 8..].fill(f32::NEG_INFINITY);
    }
    let mut max = isa.splat(f32::NEG_INFINITY);
    for eight in &scores[mine.clone()] {
        max = isa.max(isa.load(eight), max);
    }
    let max = isa.max_lane(max);
    for eight in &mut scores[mine.clone()] {
        isa.store(exp(isa, isa.sub(isa.load(eight), isa.splat(max))), eight);
    }
    // exp never gives zero: what is not visible is cleared
    scores[eights.start..mine.start].as_flattened_mut().fill(0.0);
    scores[mine.end..eights.end].as_flattened_mut().fill(0.0);
    scores[mine.start][..seen.start % 8].fill(0.0);
    if !seen.end.is_multiple_of(8) {
        scores[mine.end - 1][seen.end % 8..].fill(0.0);
    }
    let mut total = isa.splat(0.0);
    for eight in &mut scores[mine] {
        let weights = isa.load(eight);
        total = isa.add(total, weights);
        isa.store(isa.mul(weights, isa.splat(unit)), eight);
    }
    let total = isa.sum(total);
    let new_max = if max > state.max { max } else { state.max };
    let mut both = [0.0; 8];
    let distances = [state.max - new_max, max - new_max, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    isa.store(exp(isa, isa.load(&distances)), &mut both);
    let [before, now, ..] = both;
    *state = State { max: new_max, sum: state.sum * before + total * now };
    (before, now)
}

/// Values of the positions `seen`, weighted: W vectors of Q queries' heads from the d-th on.
#[inline(always)]
#[allow(clippy::too_many_arguments, clippy::needless_range_loop)]
fn weighted<I: Isa, S: Held, const Q: usize, const W: usize>(
    isa: I,
    weights: &[[[f32; 8]; EIGHTS]; Q],
    seen: &Range<usize>,
    held: &Tile<S>,
    sums: &mut [[f32; 8]],
    eights: usize,
    d: usize,
    factors: &[(f32, f32); Q],
) {
    const { assert!((BLOCK / 8).is_multiple_of(W)) }; // as `d` is a multiple of W, the vectors lie in one block
    let rows = &held.values[seen.start * eights..seen.end * eights];
    let scales = held.value_scales(8 * d / BLOCK, seen);
    let weights: [&[f32]; Q] = std::array::from_fn(
        #[inline(always)]
        |i| &weights[i].as_flattened()[seen.start..][..seen.len()],
    );
    let mut acc = [[isa.splat(0.0); W]; Q];
    assert!(d + W <= eights && weights.iter().all(|weights| weights.len() == seen.len()));
    for (n, row) in rows.chunks_exact(eights).enumerate() {
        if S::IN_CACHE {
            isa.prefetch(held.keys, size_of_val(held.keys) + (n * eights + d) * size_of::<[S::T; 8]>()); // the next tile's, likewise
        }
        let scale = S::scale(isa, scales, n);
        for w in 0..W {
            // SAFETY: the row has `eights` vectors.
            let v = S::load(isa, unsafe { row.get_unchecked(d + w) }, scale);
            for i in 0..Q {
                // SAFETY: there are as many rows and weights as positions seen.
                acc[i][w] = isa.add(acc[i][w], isa.mul(isa.splat(unsafe { *weights[i].get_unchecked(n) }), v));
            }
        }
    }
    for i in 0..Q {
        let (before, now) = factors[i];
        for w in 0..W {
            let sum = &mut sums[i * eights + d + w];
            isa.store(isa.add(isa.mul(isa.load(sum), isa.splat(before)), isa.mul(acc[i][w], isa.splat(now))), sum);
        }
    }
}
