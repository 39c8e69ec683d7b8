//! Weights as the kernels want them: eight rows side by side, block by block, so that a product streams through memory once.
//!
//! Within a block of 32 columns, four columns of each row follow one another (32 bytes: a 32-bit lane for each row). Of two such fours, the
//! first is in the low nibbles and the second in the high ones; bits above the fourth are apart, at the same places.
//!
//! Packed by family, not by the file's type: whatever is "unsigned bits, a scale and a minimum per 32 weights" shares a kernel. The scales
//! of the K types are products of two numbers and are kept as one f16 (an error of at most 2^-11 of the scale); all other types are exact.

use super::simd::{BLOCK, QUAD};
use crate::error::{Result, bail, error};
use crate::quant::{self, Format};
use half::{bf16, f16};

/// Rows that lie side by side.
pub const ROWS: usize = 8;

/// Eight rows of four columns, a byte each.
pub type Quads = [u8; ROWS * QUAD];

/// Eight rows of 32 weights w = d q + m, q from 0 to 15: Q4_0, Q4_1, Q4_K.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Group4 {
    pub d: [u16; ROWS],
    pub m: [u16; ROWS],
    pub q: [Quads; 4],
}

/// Eight rows of 32 weights w = d q + m, q from 0 to 31: Q5_0, Q5_1, Q5_K. Bit i of `high` belongs to the i-th four of columns.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Group5 {
    pub d: [u16; ROWS],
    pub m: [u16; ROWS],
    pub q: [Quads; 4],
    pub high: Quads,
}

/// Eight rows of 32 weights w = d (q - 32), q from 0 to 63, a scale for each 16 of them: Q6_K. Two bits of `high` for each of a half's four
/// fours of columns.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Group6 {
    pub d: [[u16; ROWS]; 2],
    pub q: [Quads; 4],
    pub high: [Quads; 2],
}

/// Eight rows of 32 weights w = d q, q from -128 to 127: Q8_0.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Group8 {
    pub d: [u16; ROWS],
    pub q: [Quads; 8],
}

/// One column of eight rows of floats, of the width that the file has.
pub type GroupF<T> = [T; ROWS];

/// The groups of a matrix: `rows / 8` (rounded up) times `cols / 32` (or `cols`, for floats), rows of a group first.
#[derive(Debug)]
pub enum Groups {
    Bits4(Vec<Group4>),
    Bits5(Vec<Group5>),
    Bits6(Vec<Group6>),
    Bits8(Vec<Group8>),
    F16(Vec<GroupF<u16>>),
    BF16(Vec<GroupF<u16>>),
    F32(Vec<GroupF<f32>>),
}

/// A matrix in memory, `rows` x `cols`.
#[derive(Debug)]
pub struct Packed {
    pub name: String,
    pub rows: usize,
    pub cols: usize,
    pub format: Format,
    pub groups: Groups,
}

/// Calls `$body` with the vector of groups, whatever its type.
macro_rules! with_groups {
    ($groups:expr, $v:ident => $body:expr) => {
        match $groups {
            Groups::Bits4($v) => $body,
            Groups::Bits5($v) => $body,
            Groups::Bits6($v) => $body,
            Groups::Bits8($v) => $body,
            Groups::F16($v) | Groups::BF16($v) => $body,
            Groups::F32($v) => $body,
        }
    };
}

fn zeroed<T: Default + Clone>(n: u64, name: &str) -> Result<Vec<T>> {
    let refusal = || error!(OutOfMemory, "tensor {name:?} needs {} MiB, which is not to be had", (n * size_of::<T>() as u64) >> 20);
    let n = usize::try_from(n).map_err(|_| refusal())?;
    let mut v = Vec::new();
    v.try_reserve_exact(n).map_err(|_| refusal())?;
    v.resize(n, T::default());
    Ok(v)
}

impl Packed {
    /// The memory of a matrix, made once at its exact size.
    pub fn new(name: &str, format: Format, rows: usize, cols: usize) -> Result<Self> {
        let bands = rows.div_ceil(ROWS) as u64; // in u64: the product may be more than a 32-bit usize
        let (blocks, columns) = (bands * cols.div_ceil(BLOCK) as u64, bands * cols as u64);
        let groups = match format {
            Format::Q4_0 | Format::Q4_1 | Format::Q4_K => Groups::Bits4(zeroed(blocks, name)?),
            Format::Q5_0 | Format::Q5_1 | Format::Q5_K => Groups::Bits5(zeroed(blocks, name)?),
            Format::Q6_K => Groups::Bits6(zeroed(blocks, name)?),
            Format::Q8_0 => Groups::Bits8(zeroed(blocks, name)?),
            Format::F16 => Groups::F16(zeroed(columns, name)?),
            Format::BF16 => Groups::BF16(zeroed(columns, name)?),
            Format::F32 => Groups::F32(zeroed(columns, name)?),
        };
        Ok(Self { name: name.to_owned(), rows, cols, format, groups })
    }

    /// Whether the activations of a product with it are quantized to int8.
    pub fn takes_int8(&self) -> bool {
        !matches!(self.groups, Groups::F16(_) | Groups::BF16(_) | Groups::F32(_))
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        with_groups!(&self.groups, v => std::mem::size_of_val(v.as_slice()))
    }

    /// Puts whole rows of the file in their places.
    pub fn set_rows(&mut self, rows: std::ops::Range<usize>, bytes: &[u8]) -> Result<()> {
        let row_bytes = self.cols / self.format.block_len() * self.format.block_bytes();
        rows.zip(bytes.chunks_exact(row_bytes)).try_for_each(|(row, bytes)| self.set_row(row, bytes))
    }

    /// Puts a row of the file in its place. A scale or number that is not finite is refused: nothing it touches would be.
    fn set_row(&mut self, row: usize, bytes: &[u8]) -> Result<()> {
        let (band, lane) = (row / ROWS, row % ROWS);
        let format = self.format;
        let blocks = bytes.chunks_exact(format.block_bytes());
        let finite = match &mut self.groups {
            Groups::Bits4(g) => Self::band(g, band, self.cols / BLOCK).iter_mut().zip(blocks32(format, blocks)).fold(true, |ok, (g, b)| {
                (g.d[lane], g.m[lane]) = (b.d, b.m);
                put_nibbles(&mut g.q, lane, &b.q);
                ok & b.finite()
            }),
            Groups::Bits5(g) => Self::band(g, band, self.cols / BLOCK).iter_mut().zip(blocks32(format, blocks)).fold(true, |ok, (g, b)| {
                (g.d[lane], g.m[lane]) = (b.d, b.m);
                put_nibbles(&mut g.q, lane, &b.q);
                put_high(&mut g.high, lane, &b.q, 1);
                ok & b.finite()
            }),
            Groups::Bits6(g) => Self::band(g, band, self.cols / BLOCK).iter_mut().zip(blocks.flat_map(unpack_q6_k)).fold(true, |ok, (g, (d, q))| {
                (g.d[0][lane], g.d[1][lane]) = (d[0].to_bits(), d[1].to_bits());
                put_nibbles(&mut g.q, lane, &q);
                put_high(&mut g.high[0], lane, &q[..BLOCK / 2], 3);
                put_high(&mut g.high[1], lane, &q[BLOCK / 2..], 3);
                ok & d[0].is_finite() & d[1].is_finite()
            }),
            Groups::Bits8(g) => Self::band(g, band, self.cols / BLOCK).iter_mut().zip(blocks).fold(true, |ok, (g, b)| {
                let d = f16_at(b, 0);
                g.d[lane] = d.to_bits();
                for (to, q) in g.q.iter_mut().zip(b[2..].as_chunks::<QUAD>().0) {
                    *quad_mut(to, lane) = *q;
                }
                ok & d.is_finite()
            }),
            Groups::F16(g) => put_floats(Self::band(g, band, self.cols), lane, bytes, u16::from_le_bytes, |h| f16::from_bits(h).is_finite()),
            Groups::BF16(g) => put_floats(Self::band(g, band, self.cols), lane, bytes, u16::from_le_bytes, |h| bf16::from_bits(h).is_finite()),
            Groups::F32(g) => put_floats(Self::band(g, band, self.cols), lane, bytes, f32::from_le_bytes, f32::is_finite),
        };
        if !finite {
            bail!(Malformed, "tensor {:?} holds a number that is not finite, in row {row}", self.name);
        }
        Ok(())
    }

    fn band<T>(groups: &mut [T], band: usize, len: usize) -> &mut [T] {
        &mut groups[band * len..(band + 1) * len]
    }

    /// A row as f32, [cols].
    pub fn row(&self, row: usize, out: &mut [f32]) {
        let (band, lane) = (row / ROWS, row % ROWS);
        let n = if self.takes_int8() { self.cols / BLOCK } else { self.cols };
        let span = band * n..(band + 1) * n;
        let float = |h: u16| f16::from_bits(h).to_f32();
        let blocks = out.as_chunks_mut::<BLOCK>().0;
        match &self.groups {
            Groups::Bits4(g) => g[span].iter().zip(blocks).for_each(|(g, out)| {
                let (d, m) = (float(g.d[lane]), float(g.m[lane]));
                out.iter_mut().zip(nibbles(&g.q, lane)).for_each(|(x, q)| *x = d * f32::from(q) + m);
            }),
            Groups::Bits5(g) => g[span].iter().zip(blocks).for_each(|(g, out)| {
                let (d, m) = (float(g.d[lane]), float(g.m[lane]));
                let mut q = nibbles(&g.q, lane);
                add_high(&g.high, lane, &mut q, 1);
                out.iter_mut().zip(q).for_each(|(x, q)| *x = d * f32::from(q) + m);
            }),
            Groups::Bits6(g) => g[span].iter().zip(blocks).for_each(|(g, out)| {
                let mut q = nibbles(&g.q, lane);
                for (half, q) in q.chunks_exact_mut(BLOCK / 2).enumerate() {
                    add_high(&g.high[half], lane, q, 3);
                }
                out.iter_mut().zip(q).enumerate().for_each(|(k, (x, q))| *x = float(g.d[2 * k / BLOCK][lane]) * (f32::from(q) - 32.0));
            }),
            Groups::Bits8(g) => g[span].iter().zip(blocks).for_each(|(g, out)| {
                let d = float(g.d[lane]);
                for (out, q) in out.chunks_exact_mut(QUAD).zip(&g.q) {
                    out.iter_mut().zip(quad(q, lane)).for_each(|(x, q)| *x = d * f32::from(q as i8));
                }
            }),
            Groups::F16(g) => g[span].iter().zip(out).for_each(|(g, x)| *x = float(g[lane])),
            Groups::BF16(g) => g[span].iter().zip(out).for_each(|(g, x)| *x = bf16::from_bits(g[lane]).to_f32()),
            Groups::F32(g) => g[span].iter().zip(out).for_each(|(g, x)| *x = g[lane]),
        }
    }
}

fn put_floats<T: Copy, const N: usize>(
    band: &mut [GroupF<T>],
    lane: usize,
    bytes: &[u8],
    read: impl Fn([u8; N]) -> T,
    finite: impl Fn(T) -> bool,
) -> bool {
    band.iter_mut().zip(bytes.as_chunks::<N>().0).fold(true, |ok, (group, &bytes)| {
        group[lane] = read(bytes);
        ok & finite(group[lane])
    })
}

/// The four columns of a row.
fn quad(quads: &Quads, lane: usize) -> [u8; QUAD] {
    quads.as_chunks().0[lane]
}

fn quad_mut(quads: &mut Quads, lane: usize) -> &mut [u8; QUAD] {
    &mut quads.as_chunks_mut().0[lane]
}

fn put_nibbles(to: &mut [Quads; 4], lane: usize, q: &[u8; BLOCK]) {
    for (to, eight) in to.iter_mut().zip(q.as_chunks::<{ 2 * QUAD }>().0) {
        *quad_mut(to, lane) = std::array::from_fn(|k| eight[k] & 15 | eight[QUAD + k] << 4);
    }
}

fn nibbles(from: &[Quads; 4], lane: usize) -> [u8; BLOCK] {
    let mut q = [0; BLOCK];
    for (from, to) in from.iter().zip(q.as_chunks_mut::<{ 2 * QUAD }>().0) {
        let both = quad(from, lane);
        *to = std::array::from_fn(|k| if k < QUAD { both[k] & 15 } else { both[k - QUAD] >> 4 });
    }
    q
}

/// The bits above the fourth (`mask` says how many) of each four of columns, side by side.
fn put_high(to: &mut Quads, lane: usize, q: &[u8], mask: u8) {
    let mut bits = [0; QUAD];
    for (i, four) in q.as_chunks::<QUAD>().0.iter().enumerate() {
        bits = std::array::from_fn(|k| bits[k] | (four[k] >> 4 & mask) << (i as u32 * mask.count_ones()));
    }
    *quad_mut(to, lane) = bits;
}

fn add_high(from: &Quads, lane: usize, q: &mut [u8], mask: u8) {
    let bits = quad(from, lane);
    for (i, four) in q.as_chunks_mut::<QUAD>().0.iter_mut().enumerate() {
        for (q, bits) in four.iter_mut().zip(bits) {
            *q |= (bits >> (i as u32 * mask.count_ones()) & mask) << 4;
        }
    }
}

fn f16_at(bytes: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Thirty-two weights w = d q + m.
struct Affine {
    d: u16,
    m: u16,
    q: [u8; BLOCK],
}

impl Affine {
    fn new(d: f16, m: f16, q: [u8; BLOCK]) -> Self {
        Self { d: d.to_bits(), m: m.to_bits(), q }
    }
    fn finite(&self) -> bool {
        f16::from_bits(self.d).is_finite() && f16::from_bits(self.m).is_finite()
    }
}

/// The blocks of a row of a 4- or 5-bit format, each as 32 weights w = d q + m.
fn blocks32<'a>(format: Format, blocks: std::slice::ChunksExact<'a, u8>) -> Box<dyn Iterator<Item = Affine> + 'a> {
    let (pair, fifth) = (quant::nibble_32, quant::fifth_bit_32);
    let times = |d: f16, by: f32| f16::from_f32(d.to_f32() * by);
    match format {
        Format::Q4_0 => {
            Box::new(blocks.map(move |b| Affine::new(f16_at(b, 0), times(f16_at(b, 0), -8.0), std::array::from_fn(|k| pair(&b[2..], k)))))
        }
        Format::Q4_1 => Box::new(blocks.map(move |b| Affine::new(f16_at(b, 0), f16_at(b, 2), std::array::from_fn(|k| pair(&b[4..], k))))),
        Format::Q5_0 => Box::new(
            blocks.map(move |b| Affine::new(f16_at(b, 0), times(f16_at(b, 0), -16.0), std::array::from_fn(|k| pair(&b[6..], k) | fifth(&b[2..], k)))),
        ),
        Format::Q5_1 => {
            Box::new(blocks.map(move |b| Affine::new(f16_at(b, 0), f16_at(b, 2), std::array::from_fn(|k| pair(&b[8..], k) | fifth(&b[4..], k)))))
        }
        Format::Q4_K | Format::Q5_K => Box::new(blocks.flat_map(move |b| {
            (0..8).map(move |j| {
                let (scale, min) = quant::k_scale_min(b[4..16].as_array().unwrap_or(&[0; 12]), j);
                let q = std::array::from_fn(|k| match format {
                    Format::Q4_K => quant::nibble_256(&b[16..], 32 * j + k),
                    _ => quant::nibble_256(&b[48..], 32 * j + k) | (b[16 + k] >> j & 1) << 4,
                });
                Affine::new(times(f16_at(b, 0), f32::from(scale)), times(f16_at(b, 2), -f32::from(min)), q)
            })
        })),
        _ => Box::new(std::iter::empty()),
    }
}

/// A Q6_K block as eight times 32 weights w = d (q - 32), a scale for each 16.
fn unpack_q6_k(b: &[u8]) -> impl Iterator<Item = ([f16; 2], [u8; BLOCK])> {
    let (low, high, scales, d) = (&b[..128], &b[128..192], &b[192..208], f16_at(b, 208).to_f32());
    (0..8).map(move |j| {
        let (half, quarter) = (j / 4, j % 4); // weight 128 half + 32 quarter + k
        let q = std::array::from_fn(|k| {
            let byte = low[64 * half + 32 * (quarter % 2) + k];
            let nibble = if quarter < 2 { byte & 15 } else { byte >> 4 };
            nibble | (high[32 * half + k] >> (2 * quarter) & 3) << 4
        });
        ([0, 1].map(|i| f16::from_f32(d * f32::from(scales[2 * j + i] as i8))), q)
    })
}
