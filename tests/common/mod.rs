//! What several test binaries share.
#![allow(dead_code)] // each binary uses a part

pub mod blocks;
#[cfg(not(target_arch = "wasm32"))]
pub mod gguf_writer;
pub mod golden;
#[cfg(not(target_arch = "wasm32"))]
pub mod models;

/// A small deterministic generator (SplitMix64, Steele et al. 2014), so that a failure can be repeated.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    /// From -1 to 1.
    pub fn uniform(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
    /// About normal: the sum of twelve uniforms.
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform()).sum::<f32>() / 2.0
    }
}
