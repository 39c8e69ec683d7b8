//! `rope_append`: normalize the heads of queries and keys where the architecture says so, rotate them by their positions, and append keys
//! and values to the cache.
//!
//! Rotary position embedding (Su et al. 2021, <https://arxiv.org/abs/2104.09864>): the pair i of a head is turned by
//! position * base^(-2 i / rope_dim) / factor_i.

use super::kv::Plain;
use super::norm_linear::rms_norm;

/// Which two values of a head are a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairs {
    /// 2 i and 2 i + 1: what GGUF files of the llama architecture are permuted for.
    Neighbours,
    /// i and i + dim / 2: everybody else.
    Halves,
}

impl Pairs {
    /// Where the two values of pair `i` are in a head of which `dim` values are rotated.
    pub fn of(self, i: usize, dim: usize) -> (usize, usize) {
        match self {
            Pairs::Neighbours => (2 * i, 2 * i + 1),
            Pairs::Halves => (i, i + dim / 2),
        }
    }
}

/// The plain numbers of a `rope_append`.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// The position of the first token.
    pub start: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Values in a head.
    pub head_dim: usize,
    /// How the rotation is laid out.
    pub rope: Rope,
    /// What keeps the norms of the heads from dividing by zero; unused without them.
    pub eps: f32,
}

/// How fast each pair turns.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// How many values of each head are rotated, from the first; even.
    pub dim: usize,
    /// The base of the frequencies.
    pub base: f32,
    /// What positions are divided by (linear scaling); 1 is none.
    pub scale: f32,
    /// What each frequency is divided by, [dim / 2], or empty (Llama 3's `rope_freqs.weight`).
    pub factors: Vec<f32>,
    /// Which values are a pair.
    pub pairs: Pairs,
}

impl Rope {
    /// Cosine and sine of pair `i` at a position, computed in f64.
    pub fn turn(&self, position: usize, i: usize) -> (f32, f32) {
        let factor = f64::from(self.factors.get(i).copied().unwrap_or(1.0)) * f64::from(self.scale);
        let angle = position as f64 * f64::from(self.base).powf(-2.0 * i as f64 / self.dim as f64) / factor;
        (angle.cos() as f32, angle.sin() as f32)
    }
}

/// `q`: [tokens, heads, head_dim] and `k`: [tokens, kv_heads, head_dim] are normalized (`norms`: the weights for q and for k, each
/// `[head_dim]`) and rotated; `v`: like k. Keys and values go to positions `start`.. of the cache.
pub fn reference(q: &mut [f32], k: &mut [f32], v: &[f32], norms: Option<[&[f32]; 2]>, cache: &mut Plain, p: &Params) {
    let turn = |x: &mut [f32], heads: usize, norm: Option<&[f32]>| {
        for (t, head) in x.chunks_exact_mut(p.head_dim).enumerate() {
            if let Some(weight) = norm {
                head.copy_from_slice(&rms_norm(head, weight, p.eps));
            }
            for i in 0..p.rope.dim / 2 {
                let (cos, sin) = p.rope.turn(p.start + t / heads, i);
                let (first, second) = p.rope.pairs.of(i, p.rope.dim);
                let (a, b) = (head[first], head[second]);
                (head[first], head[second]) = (a * cos - b * sin, a * sin + b * cos);
            }
        }
    };
    turn(q, p.heads, norms.map(|n| n[0]));
    turn(k, p.kv_heads, norms.map(|n| n[1]));
    let at = p.start * p.kv_heads * p.head_dim;
    for (to, from) in [(&mut cache.keys, &*k), (&mut cache.values, v)] {
        let to = &mut to[at..at + from.len()];
        to.copy_from_slice(from);
        to.chunks_exact_mut(p.head_dim).for_each(|head| cache.kv_type.round(head));
    }
}
