//! A layer's keys and values, f16, head by head: keys in eights of positions (one value of eight positions lies side by side, so that a
//! vector of scores needs no sum across its lanes), values row by row.

use crate::error::{Result, error};
use crate::ops::rope_append::to_f16;
use crate::ops::shift;
use std::ops::Range;

/// Keys and values of one layer.
#[derive(Debug, Default)]
pub struct Cache {
    /// Values in a head, rounded up to a multiple of 8; zeros behind what the model has.
    pub dim: usize,
    /// Positions that there is room for, a multiple of 8.
    positions: usize,
    /// [kv_heads, positions / 8, dim] of eight positions.
    keys: Vec<[u16; 8]>,
    /// [kv_heads, positions, dim / 8] of eight values.
    values: Vec<[u16; 8]>,
}

impl Cache {
    /// Room for `positions`; None where there is no memory.
    pub fn new(positions: usize, kv_heads: usize, head_dim: usize) -> Option<Self> {
        let dim = head_dim.next_multiple_of(8);
        let positions = positions.checked_next_multiple_of(8)?;
        let eights = (positions / 8).checked_mul(kv_heads)?.checked_mul(dim)?;
        let zeros = || {
            let mut v = Vec::new();
            v.try_reserve_exact(eights).ok()?;
            v.resize(eights, [0; 8]);
            Some(v)
        };
        Some(Self { dim, positions, keys: zeros()?, values: zeros()? })
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        size_of_val(self.keys.as_slice()) + size_of_val(self.values.as_slice())
    }

    /// The keys and values of a head in a tile, which begins at a multiple of 8.
    pub fn tile(&self, head: usize, tile: &Range<usize>) -> (&[[u16; 8]], &[[u16; 8]]) {
        let keys = (head * self.positions + tile.start) / 8 * self.dim;
        let values = (head * self.positions + tile.start) * self.dim / 8;
        (&self.keys[keys..][..tile.len().div_ceil(8) * self.dim], &self.values[values..][..tile.len() * self.dim / 8])
    }

    /// Puts a head's key and value at a position.
    pub fn set(&mut self, position: usize, head: usize, key: &[f32], value: &[f32]) {
        for (to, &x) in self.key_mut(position, head).zip(key) {
            *to = to_f16(x);
        }
        let value_to = self.value(position, head);
        self.values.as_flattened_mut()[value_to].iter_mut().zip(value).for_each(|(to, &x)| *to = to_f16(x));
    }

    /// Moves positions towards the start, see [`shift`].
    pub fn shift(&mut self, p: &shift::Params) {
        let mut key = vec![0; self.dim];
        let turns = p.turns();
        for head in 0..p.kv_heads {
            for (from, to) in p.from.clone().zip(p.to..) {
                key.iter_mut().zip(self.key_mut(from, head)).for_each(|(key, from)| *key = *from);
                p.turn_back(&mut key[..p.head_dim], &turns);
                self.key_mut(to, head).zip(&key).for_each(|(to, &key)| *to = key);
                let (from, to) = (self.value(from, head), self.value(to, head));
                self.values.as_flattened_mut().copy_within(from, to.start);
            }
        }
    }

    fn key_mut(&mut self, position: usize, head: usize) -> impl Iterator<Item = &mut u16> {
        let at = (head * self.positions + position) / 8 * self.dim;
        self.keys[at..at + self.dim].iter_mut().map(move |eight| &mut eight[position % 8])
    }

    fn value(&self, position: usize, head: usize) -> Range<usize> {
        let at = (head * self.positions + position) * self.dim;
        at..at + self.dim
    }
}

/// The caches of all layers, or a refusal that says how much they would take.
pub fn caches(spec: &crate::backend::CacheSpec) -> Result<Vec<Cache>> {
    let refusal = || {
        let bytes = spec.positions as u128 * spec.kv_heads as u128 * spec.head_dim.next_multiple_of(8) as u128 * 4 * spec.layers as u128;
        error!(
            OutOfMemory,
            "a KV cache of {} positions needs {} MiB, which is not to be had; take a smaller context length",
            spec.positions,
            bytes >> 20
        )
    };
    (0..spec.layers).map(|_| Cache::new(spec.positions, spec.kv_heads, spec.head_dim).ok_or_else(refusal)).collect()
}
