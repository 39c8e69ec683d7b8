//! A layer's keys and values, head by head: keys in eights of positions (one value of eight positions lies side by side, so that a vector of
//! scores needs no sum across its lanes), values row by row. As f16, or as int8 with scales.

mod layout;
mod q8;

use super::simd::Variant;
use crate::backend::{CacheSpec, KvType};
use crate::error::{Result, error};
use crate::ops::kv::to_f16;
use crate::ops::shift;
use half::f16;
use layout::{Eights, Rows};
pub use q8::{Q8, blocks};
use std::ops::Range;

/// Keys and values of one layer.
#[derive(Debug)]
pub enum Cache {
    F16(F16),
    Q8(Q8),
}

/// Keys and values as f16.
#[derive(Debug)]
pub struct F16 {
    keys: Eights<u16>,
    values: Rows<u16>,
}

impl F16 {
    /// The keys and values of a head in a tile, which begins at a multiple of 8: [positions / 8, dim] of eight, [positions, dim / 8] of eight.
    pub fn tile(&self, head: usize, tile: &Range<usize>) -> (&[[u16; 8]], &[[u16; 8]]) {
        (self.keys.tile(head, tile), self.values.tile(head, tile))
    }
}

/// Values in a head of the cache: zeros behind what the model has.
fn padded(spec: &CacheSpec) -> usize {
    spec.head_dim.next_multiple_of(8)
}

impl Cache {
    /// Room for a layer; None where there is no memory.
    pub fn new(spec: &CacheSpec) -> Option<Self> {
        let (positions, heads, dim) = (spec.positions.checked_next_multiple_of(8)?, spec.kv_heads, padded(spec));
        Some(match spec.kv_type {
            KvType::F16 => Self::F16(F16 { keys: Eights::new(positions, heads, dim)?, values: Rows::new(positions, heads, dim)? }),
            KvType::Q8_0 => Self::Q8(Q8::new(positions, heads, dim)?),
        })
    }

    /// Values in a head of the cache, a multiple of 8.
    pub fn dim(&self) -> usize {
        match self {
            Self::F16(c) => c.values.width,
            Self::Q8(c) => c.dim(),
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        match self {
            Self::F16(c) => c.keys.bytes() + c.values.bytes(),
            Self::Q8(c) => c.bytes(),
        }
    }

    /// Puts a head's key and value at a position.
    pub fn set(&mut self, variant: Variant, position: usize, head: usize, key: &[f32], value: &[f32]) {
        match self {
            Self::F16(c) => {
                c.keys.at_mut(position, head).zip(key).for_each(|(to, &x)| *to = to_f16(x));
                c.values.row_mut(position, head).iter_mut().zip(value).for_each(|(to, &x)| *to = to_f16(x));
            }
            Self::Q8(c) => {
                c.set_key(variant, position, head, key);
                c.set_value(variant, position, head, value);
            }
        }
    }

    /// Moves positions towards the start, see [`shift`].
    pub fn shift(&mut self, variant: Variant, p: &shift::Params) {
        let mut key = vec![0.0; p.head_dim];
        let turns = p.turns();
        for head in 0..p.kv_heads {
            for (from, to) in p.from.clone().zip(p.to..) {
                match self {
                    Self::F16(c) => {
                        key.iter_mut().zip(c.keys.at(from, head)).for_each(|(key, from)| *key = f16::from_bits(from).to_f32());
                        p.turn_back(&mut key, &turns);
                        c.keys.at_mut(to, head).zip(&key).for_each(|(to, &x)| *to = to_f16(x));
                        c.values.copy(from, to, head);
                    }
                    Self::Q8(c) => {
                        c.key(from, head, &mut key);
                        p.turn_back(&mut key, &turns);
                        c.set_key(variant, to, head, &key);
                        c.copy_value(from, to, head);
                    }
                }
            }
        }
    }
}

/// Bytes of the caches of all layers.
fn bytes(spec: &CacheSpec) -> u128 {
    let (dim, positions) = (padded(spec), spec.positions as u128);
    let head = match spec.kv_type {
        KvType::F16 => 2 * dim,
        KvType::Q8_0 => dim + 2 * blocks(dim),
    };
    2 * head as u128 * spec.kv_heads as u128 * spec.layers as u128 * positions.next_multiple_of(8)
}

/// The caches of all layers, or a refusal that says how much they would take.
pub fn caches(spec: &CacheSpec) -> Result<Vec<Cache>> {
    let refusal = || {
        error!(
            OutOfMemory,
            "a KV cache of {} positions needs {} MiB as {}, which is not to be had; take a smaller context length{}",
            spec.positions,
            bytes(spec) >> 20,
            spec.kv_type.name(),
            if spec.kv_type == KvType::F16 { ", or the type q8_0" } else { "" }
        )
    };
    (0..spec.layers).map(|_| Cache::new(spec).ok_or_else(refusal)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_what_is_taken() {
        for (kv_heads, head_dim, a_token) in [(3, 64, [23_040, 12_240]), (1, 256, [30_720, 16_320]), (2, 20, [5760, 3120]), (5, 80, [48_000, 25_800])]
        {
            for (kv_type, a_token) in KvType::ALL.into_iter().zip(a_token) {
                let spec = CacheSpec { layers: 30, positions: 1001, kv_heads, head_dim, kv_type };
                let taken: usize = caches(&spec).unwrap().iter().map(Cache::bytes).sum();
                assert_eq!((bytes(&spec), taken), (taken as u128, a_token * 1008), "{spec:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_had_is_refused_with_its_size() {
        let spec = CacheSpec { layers: 32, positions: usize::MAX - 100, kv_heads: 8, head_dim: 128, kv_type: KvType::Q8_0 };
        let error = caches(&spec).unwrap_err();
        assert!(error.message().contains(&format!("{} MiB as q8_0", bytes(&spec) >> 20)), "{error}");
        let error = caches(&CacheSpec { kv_type: KvType::F16, ..spec }).unwrap_err();
        assert!(error.message().ends_with("or the type q8_0"), "{error}");
    }
}
