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
    type B = [u8; 32];
    type W = [u8; 32];
    type X = [i8; 4];
    type S = [i32; 8];
    type P = [i32; 8];
    type W8 = [u8; 32];
    type P8 = [i32; 8];

    const NAME: &'static str = "scalar";
    const WIDE: bool = false;
    const F16_UNIT: f32 = 1.0;
    const TUNED: bool = false;
    type Floats = Self;

    #[inline(always)]
    fn detect() -> Option<Self> {
        Some(Self)
    }

    fn floats(self) -> Self {
        self
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
    #[inline(always)]
    fn load_f16_raw(self, x: &[u16; 8]) -> [f32; 8] {
        self.load_f16(x)
    }
    fn load_bf16(self, x: &[u16; 8]) -> [f32; 8] {
        each(|i| bf16::from_bits(x[i]).to_f32())
    }
    fn load_i8(self, x: &[i8; 8]) -> [f32; 8] {
        x.map(f32::from)
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

    fn to_i8(self, v: [f32; 8]) -> [i8; 8] {
        v.map(|v| v as i8)
    }

    fn bytes(self, q: &[u8; 32]) -> [u8; 32] {
        *q
    }
    fn field(self, b: [u8; 32], mask: u8, right: i32) -> [u8; 32] {
        b.map(|b| if right < 0 { (b & mask) << -right } else { (b & mask) >> right })
    }
    fn or(self, a: [u8; 32], b: [u8; 32]) -> [u8; 32] {
        std::array::from_fn(|i| a[i] | b[i])
    }
    fn weights(self, b: [u8; 32]) -> [u8; 32] {
        b
    }
    fn quad(self, x: &[i8; 4]) -> [i8; 4] {
        *x
    }
    fn start(self, n: i32) -> [i32; 8] {
        [n; 8]
    }
    fn begin(self, p: [i32; 8]) -> [i32; 8] {
        p
    }
    fn dot(self, s: [i32; 8], w: [u8; 32], x: [i8; 4]) -> [i32; 8] {
        std::array::from_fn(|row| (0..4).fold(s[row], |sum, k| sum + i32::from(w[4 * row + k]) * i32::from(x[k])))
    }
    fn end(self, _: [i32; 8], s: [i32; 8]) -> [i32; 8] {
        s
    }
    fn to_f(self, p: [i32; 8]) -> [f32; 8] {
        p.map(|sum| sum as f32)
    }
    fn start8(self, _: i32) -> [i32; 8] {
        [0; 8]
    }
    fn load8(self, q: &[u8; 32]) -> [u8; 32] {
        *q
    }
    fn dot8(self, p: [i32; 8], w: [u8; 32], x: [i8; 4]) -> [i32; 8] {
        std::array::from_fn(|row| (0..4).fold(p[row], |sum, k| sum + i32::from(w[4 * row + k] as i8) * i32::from(x[k])))
    }
    fn to_f8(self, p: [i32; 8]) -> [f32; 8] {
        p.map(|sum| sum as f32)
    }
}
