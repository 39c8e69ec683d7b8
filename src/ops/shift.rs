//! `shift`: move the cached positions of a layer towards the start and turn their keys back by as much (keys are cached rotated).
//!
//! A rotation by -n after one by p is one by p - n, up to the form that the keys are stored in: a key is read, turned, and stored anew. Each
//! time that costs one more rounding, of 2^-12 of each turned value in f16 and of half a step, 1/254 of the largest value of its block, in
//! q8_0; what is not turned is stored as it was, and so are values.

use super::kv::Plain;
use super::rope_append::Rope;
use std::ops::Range;

/// The plain numbers of a `shift`: positions `from` move to begin at `to`.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// The positions that stay.
    pub from: Range<usize>,
    /// Where the first of them goes; at most `from.start`.
    pub to: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Values in a head.
    pub head_dim: usize,
    /// How keys are rotated.
    pub rope: Rope,
}

impl Params {
    /// Cosine and sine of how far each pair turns back.
    pub fn turns(&self) -> Vec<(f32, f32)> {
        (0..self.rope.dim / 2).map(|i| self.rope.turn(self.from.start - self.to, i)).collect()
    }

    /// Turns a head's key back by [`Params::turns`], `[head_dim]`.
    pub fn turn_back(&self, head: &mut [f32], turns: &[(f32, f32)]) {
        for (i, &(cos, sin)) in turns.iter().enumerate() {
            let (first, second) = self.rope.pairs.of(i, self.rope.dim);
            let (a, b) = (head[first], head[second]);
            (head[first], head[second]) = (a * cos + b * sin, b * cos - a * sin);
        }
    }
}

/// Moves the positions of a layer's cache.
pub fn reference(cache: &mut Plain, p: &Params) {
    let row = p.kv_heads * p.head_dim;
    cache.values.copy_within(p.from.start * row..p.from.end * row, p.to * row);
    cache.keys.copy_within(p.from.start * row..p.from.end * row, p.to * row);
    let turns = p.turns();
    for head in cache.keys[p.to * row..][..p.from.len() * row].chunks_exact_mut(p.head_dim) {
        p.turn_back(head, &turns);
        cache.kv_type.round(head);
    }
}
