//! Keys and values as int8, with an f16 scale for each block of a head: what [`crate::ops::kv::quantize`] says, on every instruction set.

use super::layout::{Eights, Rows};
use crate::backend::cpu::simd::{Isa, Kernel, Variant};
use crate::ops::kv::{BLOCK, LARGEST, scale};
use half::f16;
use std::ops::Range;

/// Blocks of a head.
pub const fn blocks(dim: usize) -> usize {
    dim.div_ceil(BLOCK)
}

/// Keys and values of one layer. The scales of both lie in eights of positions, so that those of eight positions are a vector.
#[derive(Debug)]
pub struct Q8 {
    keys: Eights<i8>,
    values: Rows<i8>,
    key_scales: Eights<u16>,
    value_scales: Eights<u16>,
    /// A head on its way in.
    head: Head,
}

/// What a tile of a head holds.
#[derive(Clone, Copy)]
pub struct Tile<'a> {
    /// [positions / 8, dim] of eight positions.
    pub keys: &'a [[i8; 8]],
    /// [positions / 8, blocks] of eight positions.
    pub key_scales: &'a [[u16; 8]],
    /// [positions, dim / 8] of eight values.
    pub values: &'a [[i8; 8]],
    /// [positions / 8, blocks] of eight positions.
    pub value_scales: &'a [[u16; 8]],
}

impl Q8 {
    /// Room for so many positions, a multiple of 8; so must `dim` be.
    pub fn new(positions: usize, heads: usize, dim: usize) -> Option<Self> {
        Some(Self {
            keys: Eights::new(positions, heads, dim)?,
            values: Rows::new(positions, heads, dim)?,
            key_scales: Eights::new(positions, heads, blocks(dim))?,
            value_scales: Eights::new(positions, heads, blocks(dim))?,
            head: Head { q: vec![[0; 8]; dim / 8], d: vec![0; blocks(dim)] },
        })
    }

    pub fn dim(&self) -> usize {
        self.values.width
    }

    pub fn bytes(&self) -> usize {
        self.keys.bytes() + self.values.bytes() + self.key_scales.bytes() + self.value_scales.bytes()
    }

    /// A head in a tile, which begins at a multiple of 8.
    pub fn tile(&self, head: usize, tile: &Range<usize>) -> Tile<'_> {
        Tile {
            keys: self.keys.tile(head, tile),
            key_scales: self.key_scales.tile(head, tile),
            values: self.values.tile(head, tile),
            value_scales: self.value_scales.tile(head, tile),
        }
    }

    pub fn set_key(&mut self, variant: Variant, position: usize, head: usize, key: &[f32]) {
        variant.run_floats(Quantize { x: key, to: &mut self.head });
        self.keys.at_mut(position, head).zip(self.head.q.as_flattened()).for_each(|(to, &q)| *to = q);
        self.key_scales.at_mut(position, head).zip(&self.head.d).for_each(|(to, &d)| *to = d);
    }

    pub fn set_value(&mut self, variant: Variant, position: usize, head: usize, value: &[f32]) {
        variant.run_floats(Quantize { x: value, to: &mut self.head });
        self.values.row_mut(position, head).copy_from_slice(self.head.q.as_flattened());
        self.value_scales.at_mut(position, head).zip(&self.head.d).for_each(|(to, &d)| *to = d);
    }

    /// A key as it reads back.
    pub fn key(&self, position: usize, head: usize, key: &mut [f32]) {
        let scales = self.key_scales.at(position, head).map(|d| f16::from_bits(d).to_f32());
        let values = self.keys.at(position, head).map(f32::from);
        let scaled = scales.flat_map(|d| [d; BLOCK]).zip(values);
        key.iter_mut().zip(scaled).for_each(|(to, (d, q))| *to = q * d);
    }

    /// Copies a value from a position to another.
    pub fn copy_value(&mut self, from: usize, to: usize, head: usize) {
        self.values.copy(from, to, head);
        for (to_d, d) in self.head.d.iter_mut().zip(self.value_scales.at(from, head)) {
            *to_d = d;
        }
        self.value_scales.at_mut(to, head).zip(&self.head.d).for_each(|(to, &d)| *to = d);
    }
}

/// A quantized head.
#[derive(Debug)]
struct Head {
    /// [dim / 8] of eight values.
    q: Vec<[i8; 8]>,
    /// [blocks]
    d: Vec<u16>,
}

/// A head to int8 and scales.
struct Quantize<'a> {
    /// [head_dim]
    x: &'a [f32],
    /// At most seven values longer: zeros.
    to: &'a mut Head,
}

impl Kernel for Quantize<'_> {
    type Out = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let (zero, largest) = (isa.splat(0.0), isa.splat(LARGEST));
        for ((x, q), d) in self.x.chunks(BLOCK).zip(self.to.q.chunks_mut(BLOCK / 8)).zip(&mut self.to.d) {
            let mut block = [[0.0; 8]; BLOCK / 8];
            block.as_flattened_mut()[..x.len()].copy_from_slice(x);
            let mut max = zero;
            for eight in &mut block {
                // the positive and the negative part, each as large as f16 holds; both are zero for NaN
                let x = isa.load(eight);
                let positive = isa.min(isa.max(x, zero), largest);
                let negative = isa.min(isa.max(isa.sub(zero, x), zero), largest);
                max = isa.max(isa.max(positive, negative), max);
                isa.store(isa.sub(positive, negative), eight);
            }
            let (stored, inverse) = scale(isa.max_lane(max));
            *d = stored.to_bits();
            for (eight, q) in block.iter().zip(q) {
                *q = isa.to_i8(isa.round(isa.mul(isa.load(eight), isa.splat(inverse))));
            }
        }
    }
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod tests {
    use super::*;
    use crate::ops::kv::{KvType, quantize};
    use proptest::prelude::*;

    fn values() -> impl Strategy<Value = f32> {
        prop_oneof![8 => -100.0_f32..100.0, 1 => -1e-4_f32..1e-4, 1 => -1e5_f32..1e5, 1 => any::<f32>()]
    }

    proptest! {
        /// Every instruction set quantizes as `kv::quantize` says, whatever the numbers are, and reads back what `KvType::round` gives.
        #[test]
        fn a_head_is_quantized_as_defined(x in prop::sample::select(vec![8_usize, 20, 32, 40, 64, 80, 100, 256]).prop_flat_map(|n| prop::collection::vec(values(), n))) {
            let dim = x.len().next_multiple_of(8);
            let mut right = Head { q: vec![[0; 8]; dim / 8], d: Vec::new() };
            for (x, q) in x.chunks(BLOCK).zip(right.q.chunks_mut(BLOCK / 8)) {
                right.d.push(quantize(x, q.as_flattened_mut()).to_bits());
            }
            let mut round = x.clone();
            KvType::Q8_0.round(&mut round);
            for variant in Variant::available() {
                let mut cache = Q8::new(16, 2, dim).unwrap();
                cache.set_key(variant, 11, 1, &x);
                prop_assert_eq!(&cache.head.q, &right.q, "{}", variant.name());
                prop_assert_eq!(&cache.head.d, &right.d, "{}", variant.name());
                let mut back = vec![0.0; x.len()];
                cache.key(11, 1, &mut back);
                prop_assert_eq!(&back, &round);
            }
        }
    }
}
