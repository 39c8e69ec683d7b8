//! `shift`: move the cached positions of a layer towards the start and turn their keys back by as much (keys are cached rotated).
//!
//! A rotation by -n after one by p is one by p - n, up to the f16 the keys are stored in.

use super::rope_append::{Rope, to_f16};
use half::f16;
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

    /// Turns a head's key back by [`Params::turns`].
    pub fn turn_back(&self, head: &mut [u16], turns: &[(f32, f32)]) {
        for (i, &(cos, sin)) in turns.iter().enumerate() {
            let (first, second) = self.rope.pairs.of(i, self.rope.dim);
            let [a, b] = [head[first], head[second]].map(|h| f16::from_bits(h).to_f32());
            (head[first], head[second]) = (to_f16(a * cos + b * sin), to_f16(b * cos - a * sin));
        }
    }
}

/// `keys`, `values`: [positions, kv_heads, head_dim] f16.
pub fn reference(keys: &mut [u16], values: &mut [u16], p: &Params) {
    let row = p.kv_heads * p.head_dim;
    values.copy_within(p.from.start * row..p.from.end * row, p.to * row);
    keys.copy_within(p.from.start * row..p.from.end * row, p.to * row);
    let turns = p.turns();
    for head in keys[p.to * row..][..p.from.len() * row].chunks_exact_mut(p.head_dim) {
        p.turn_back(head, &turns);
    }
}
