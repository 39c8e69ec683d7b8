//! A tile of keys and values as the kernels find it: as it lies in the cache, or widened to f32 for many queries. All give the same numbers.

use crate::backend::cpu::cache::{Cache, blocks};
use crate::backend::cpu::simd::Isa;
use crate::ops::attend::TILE;
use crate::ops::kv::BLOCK;
use std::ops::Range;

/// How a value is stored.
pub trait Held {
    /// A stored value.
    type T: Copy;
    /// What a vector of them is multiplied with as it is loaded.
    type Scale<I: Isa>: Copy;
    /// Values of a head that share a scale.
    const BLOCK: usize;
    /// Whether a tile is as it lies in the cache, which is worth asking for ahead of its use.
    const IN_CACHE: bool;

    /// What puts the loaded values right; it is multiplied to the other factor.
    fn unit<I: Isa>() -> f32;
    fn load<I: Isa>(isa: I, x: &[Self::T; 8], scale: Self::Scale<I>) -> I::F;
    /// The scales of eight positions.
    fn scales<I: Isa>(isa: I, all: &[[u16; 8]], at: usize) -> Self::Scale<I>;
    /// The scale of one.
    fn scale<I: Isa>(isa: I, all: &[f32], at: usize) -> Self::Scale<I>;
}

macro_rules! without_scales {
    ($(#[$doc:meta])* $name:ident, $t:ty, $load:ident, $unit:expr, $in_cache:literal) => {
        $(#[$doc])*
        pub struct $name;
        impl Held for $name {
            type T = $t;
            type Scale<I: Isa> = ();
            const BLOCK: usize = usize::MAX;
            const IN_CACHE: bool = $in_cache;
            #[inline(always)]
            fn unit<I: Isa>() -> f32 {
                $unit
            }
            #[inline(always)]
            fn load<I: Isa>(isa: I, x: &[$t; 8], (): ()) -> I::F {
                isa.$load(x)
            }
            #[inline(always)]
            fn scales<I: Isa>(_: I, _: &[[u16; 8]], _: usize) {}
            #[inline(always)]
            fn scale<I: Isa>(_: I, _: &[f32], _: usize) {}
        }
    };
}
without_scales!(
    /// f32, which what the cache holds was widened to.
    F32, f32, load, 1.0, false
);
without_scales!(
    /// f16 as it is in the cache.
    Raw, u16, load_f16_raw, I::F16_UNIT, true
);

/// int8 with a scale for each block.
pub struct Int8;
impl Held for Int8 {
    type T = i8;
    type Scale<I: Isa> = I::F;
    const BLOCK: usize = BLOCK;
    const IN_CACHE: bool = true;
    #[inline(always)]
    fn unit<I: Isa>() -> f32 {
        1.0
    }
    #[inline(always)]
    fn load<I: Isa>(isa: I, x: &[i8; 8], scale: I::F) -> I::F {
        isa.mul(isa.load_i8(x), scale)
    }
    #[inline(always)]
    fn scales<I: Isa>(isa: I, all: &[[u16; 8]], at: usize) -> I::F {
        isa.load_f16(&all[at])
    }
    #[inline(always)]
    fn scale<I: Isa>(isa: I, all: &[f32], at: usize) -> I::F {
        isa.splat(all[at])
    }
}

/// Keys and values of a head in a tile.
pub struct Tile<'a, S: Held> {
    /// [positions / 8, dim] of eight positions.
    pub keys: &'a [[S::T; 8]],
    /// [positions / 8, blocks] of eight positions.
    pub key_scales: &'a [[u16; 8]],
    /// [positions, dim / 8] of eight values.
    pub values: &'a [[S::T; 8]],
    /// [blocks, TILE]
    pub value_scales: &'a [f32],
}

impl<S: Held> Tile<'_, S> {
    /// The scales of a block of the values at some positions.
    #[inline(always)]
    pub fn value_scales(&self, block: usize, positions: &Range<usize>) -> &[f32] {
        if self.value_scales.is_empty() { &[] } else { &self.value_scales[block * TILE..][positions.clone()] }
    }
}

/// Room for a tile's worth of f32.
#[derive(Default)]
pub struct Room {
    pub keys: Vec<[f32; 8]>,
    pub values: Vec<[f32; 8]>,
    /// [blocks, TILE] as f32, of a cache that has scales.
    pub value_scales: Vec<f32>,
}

impl Room {
    /// Widens the scales of a tile's values, if there are any.
    #[inline(always)]
    pub fn widen_scales<I: Isa>(&mut self, isa: I, cache: &Cache, head: usize, tile: &Range<usize>) {
        let Cache::Q8(cache) = cache else { return };
        let blocks = blocks(cache.dim());
        self.value_scales.resize(blocks * TILE, 0.0);
        for (eight, scales) in cache.tile(head, tile).value_scales.chunks_exact(blocks).enumerate() {
            for (block, scales) in scales.iter().enumerate() {
                let (to, _) = self.value_scales[block * TILE + 8 * eight..].as_chunks_mut();
                isa.store(isa.load_f16(scales), &mut to[0]);
            }
        }
    }

    /// Widens the keys and values of a tile; the scales are there already.
    #[inline(always)]
    pub fn widen<I: Isa>(&mut self, isa: I, cache: &Cache, head: usize, tile: &Range<usize>) {
        match cache {
            Cache::F16(cache) => {
                let (keys, values) = cache.tile(head, tile);
                for (from, to) in [(keys, &mut self.keys), (values, &mut self.values)] {
                    to.resize(from.len(), [0.0; 8]);
                    for (from, to) in from.iter().zip(to) {
                        isa.store(isa.load_f16(from), to);
                    }
                }
            }
            Cache::Q8(cache) => {
                let (dim, from) = (cache.dim(), cache.tile(head, tile));
                self.keys.resize(from.keys.len(), [0.0; 8]);
                let eights = from.keys.chunks_exact(dim).zip(self.keys.chunks_exact_mut(dim));
                for ((from, to), scales) in eights.zip(from.key_scales.chunks_exact(blocks(dim))) {
                    for ((from, to), scales) in from.chunks(BLOCK).zip(to.chunks_mut(BLOCK)).zip(scales) {
                        let scales = isa.load_f16(scales);
                        for (from, to) in from.iter().zip(to) {
                            isa.store(Int8::load(isa, from, scales), to);
                        }
                    }
                }
                self.values.resize(from.values.len(), [0.0; 8]);
                let rows = from.values.chunks_exact(dim / 8).zip(self.values.chunks_exact_mut(dim / 8));
                for (n, (from, to)) in rows.enumerate() {
                    for (block, (from, to)) in from.chunks(BLOCK / 8).zip(to.chunks_mut(BLOCK / 8)).enumerate() {
                        let scale = isa.splat(self.value_scales[block * TILE + n]);
                        for (from, to) in from.iter().zip(to) {
                            isa.store(Int8::load(isa, from, scale), to);
                        }
                    }
                }
            }
        }
    }
}
