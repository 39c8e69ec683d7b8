//! The path without SIMD, and the meaning of the others: each of them must give these bits.

use super::Isa;
use half::{bf16, f16};

/// Plain Rust.
#[derive(Debug, Clone, Copy)]
pub struct Scalar;

fn each(mut f: impl FnMut(usize) -> f32) -> [f32; 8] {
    std::array::from_fn(&mut f)
}

impl Isa for Scalar {
    type F = [f32; 8];
    type F4 = [f32; 4];
    type Q = i8;
    type W = [i16; 32];
    type P = i32;
    type P2 = [i32; 2];

    const NAME: &'static str = "scalar";

    fn widen(q: i8) -> i8 {
        q
    }
    fn nibble(k: usize) -> (usize, bool) {
        (k % 16, k >= 16)
    }

    fn splat(self, x: f32) -> [f32; 8] {
        [x; 8]
    }
    fn load(self, x: &[f32; 8]) -> [f32; 8] {
        *x
    }
    fn store(self, v: [f32; 8], to: &mut [f32; 8]) {
        *to = v;
    }
    fn load_f16(self, x: &[u16; 8]) -> [f32; 8] {
        each(|i| f16::from_bits(x[i]).to_f32())
    }
    fn load_bf16(self, x: &[u16; 8]) -> [f32; 8] {
        each(|i| bf16::from_bits(x[i]).to_f32())
    }
    fn add(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each(|i| a[i] + b[i])
    }
    fn sub(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each(|i| a[i] - b[i])
    }
    fn mul(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each(|i| a[i] * b[i])
    }
    fn div(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each(|i| a[i] / b[i])
    }
    fn max(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    fn min(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    fn abs(self, a: [f32; 8]) -> [f32; 8] {
        each(|i| a[i].abs())
    }
    fn round(self, a: [f32; 8]) -> [f32; 8] {
        each(|i| a[i].round_ties_even())
    }
    fn pow2(self, n: [f32; 8]) -> [f32; 8] {
        each(|i| f32::from_bits(((n[i] as i32 + 127) as u32) << 23))
    }
    fn sum(self, a: [f32; 8]) -> f32 {
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }
    fn max_lane(self, a: [f32; 8]) -> f32 {
        a.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    fn zero_p(self) -> i32 {
        0
    }
    fn zero_p2(self) -> [i32; 2] {
        [0; 2]
    }
    fn zero4(self) -> [f32; 4] {
        [0.0; 4]
    }
    fn splat4(self, x: f32) -> [f32; 4] {
        [x; 4]
    }
    fn f16x4(self, x: &[u16; 4]) -> [f32; 4] {
        x.map(|h| f16::from_bits(h).to_f32())
    }
    fn add4(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| a[i] + b[i])
    }
    fn mul4(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| a[i] * b[i])
    }
    fn store4(self, v: [f32; 4]) -> [f32; 4] {
        v
    }

    fn unpack4(self, low: &[u8; 16]) -> [i16; 32] {
        std::array::from_fn(|k| i16::from(if k < 16 { low[k] & 15 } else { low[k - 16] >> 4 }))
    }
    fn unpack5(self, low: &[u8; 16], high: &[u8; 4]) -> [i16; 32] {
        let low = self.unpack4(low);
        std::array::from_fn(|k| low[k] | i16::from(high[k / 8] >> (k % 8) & 1) << 4)
    }
    fn unpack6(self, low: &[u8; 16], high: &[u8; 8]) -> [i16; 32] {
        let low = self.unpack4(low);
        std::array::from_fn(|k| (low[k] | i16::from(high[k % 8] >> (2 * (k / 8)) & 3) << 4) - 32)
    }
    fn load8(self, q: &[i8; 32]) -> [i16; 32] {
        q.map(i16::from)
    }
    fn dot_unsigned(self, w: [i16; 32], x: &[i8; 32]) -> i32 {
        self.dot_signed(w, x)
    }
    fn dot_signed(self, w: [i16; 32], x: &[i8; 32]) -> i32 {
        (0..32).map(|k| i32::from(w[k]) * i32::from(x[k])).sum()
    }
    fn dot_halves(self, w: [i16; 32], x: &[i8; 32]) -> [i32; 2] {
        let half = |from: usize| (from..from + 16).map(|k| i32::from(w[k]) * i32::from(x[k])).sum();
        [half(0), half(16)]
    }
    fn reduce(self, p: [i32; 4]) -> [f32; 4] {
        p.map(|sum| sum as f32)
    }
    fn reduce_halves(self, p: [[i32; 2]; 4]) -> [[f32; 4]; 2] {
        [0, 1].map(|half| p.map(|sums| sums[half] as f32))
    }
}
