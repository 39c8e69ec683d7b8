//! `attend`: each query head looks back at the keys and values of its group (grouped-query attention, Ainslie et al. 2023,
//! <https://arxiv.org/abs/2305.13245>), softmax(q k / sqrt(head_dim)) v, causal.
//!
//! Kernels work in absolute tiles of [`TILE`] positions and combine (max, sum, out) of the tiles in ascending order (online softmax,
//! Milakov and Gimelshein 2018, <https://arxiv.org/abs/1805.02867>), so that the bits don't depend on how a prompt is cut into chunks.

/// Positions in a tile.
pub const TILE: usize = 256;

/// The plain numbers of an `attend`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Params {
    /// The position of the first query; its keys are in the cache already.
    pub start: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; heads is a multiple of it.
    pub kv_heads: usize,
    /// Values in a head.
    pub head_dim: usize,
    /// What a score is multiplied with before the softmax.
    pub scale: f32,
    /// How many positions back a query sees, itself included; None: all.
    pub window: Option<usize>,
}

/// `q`, `out`: [tokens, heads, head_dim]; `keys`, `values`: [positions, kv_heads, head_dim], as they read back from the cache.
pub fn reference(q: &[f32], keys: &[f32], values: &[f32], out: &mut [f32], p: &Params) {
    let value = |cache: &[f32], position: usize, head: usize, i: usize| f64::from(cache[(position * p.kv_heads + head) * p.head_dim + i]);
    for (n, (q, out)) in q.chunks_exact(p.head_dim).zip(out.chunks_exact_mut(p.head_dim)).enumerate() {
        let (position, head) = (p.start + n / p.heads, n % p.heads / (p.heads / p.kv_heads));
        let first = p.window.map_or(0, |w| (position + 1).saturating_sub(w));
        let scores: Vec<f64> = (first..=position)
            .map(|at| q.iter().enumerate().map(|(i, &q)| f64::from(q) * value(keys, at, head, i)).sum::<f64>() * f64::from(p.scale))
            .collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let sum: f64 = weights.iter().sum();
        for (i, out) in out.iter_mut().enumerate() {
            *out = (weights.iter().zip(first..).map(|(w, at)| w * value(values, at, head, i)).sum::<f64>() / sum) as f32;
        }
    }
}
