//! Weights as the kernels want them: eight rows side by side, block by block, so that a product streams through memory once.
//!
//! Packed by family, not by the file's type: whatever is "unsigned bits, a scale and a minimum per 32 weights" shares a kernel. The scales
//! of the K types are products of two numbers and are kept as one f16 (an error of at most 2^-11 of the scale); all other types are exact.

mod block;
mod group;

use super::simd::BLOCK;
use crate::error::{Result, bail, error};
use crate::quant::Format;
use block::Block;
use group::Group;
pub use group::{Group4, Group5, Group6, Group8};
use half::{bf16, f16};

/// Rows that lie side by side.
pub const ROWS: usize = 8;

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
    /// What is added to weights of eight bits, as the instruction set wants it.
    bias: u8,
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
    /// The memory of a matrix, made once at its exact size. `bias`: see [`Isa::bias8`](super::simd::Isa::bias8).
    pub fn new(name: &str, format: Format, rows: usize, cols: usize, bias: u8) -> Result<Self> {
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
        Ok(Self { name: name.to_owned(), rows, cols, format, groups, bias })
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
        let (at, lane) = (self.band(row), row % ROWS);
        let bias = self.bias;
        let finite = match (&mut self.groups, self.format) {
            (Groups::Bits4(g), Format::Q4_0) => put(&mut g[at], lane, bytes, block::q4_0),
            (Groups::Bits4(g), Format::Q4_1) => put(&mut g[at], lane, bytes, block::q4_1),
            (Groups::Bits4(g), _) => put(&mut g[at], lane, bytes, block::q4_k),
            (Groups::Bits5(g), Format::Q5_0) => put(&mut g[at], lane, bytes, block::q5_0),
            (Groups::Bits5(g), Format::Q5_1) => put(&mut g[at], lane, bytes, block::q5_1),
            (Groups::Bits5(g), _) => put(&mut g[at], lane, bytes, block::q5_k),
            (Groups::Bits6(g), _) => put(&mut g[at], lane, bytes, block::q6_k),
            (Groups::Bits8(g), _) => put(&mut g[at], lane, bytes, |b| block::q8_0(b, bias)),
            (Groups::F16(g), _) => put_floats(&mut g[at], lane, bytes, u16::from_le_bytes, |h| f16::from_bits(h).is_finite()),
            (Groups::BF16(g), _) => put_floats(&mut g[at], lane, bytes, u16::from_le_bytes, |h| bf16::from_bits(h).is_finite()),
            (Groups::F32(g), _) => put_floats(&mut g[at], lane, bytes, f32::from_le_bytes, f32::is_finite),
        };
        if !finite {
            bail!(Malformed, "tensor {:?} holds a number that is not finite, in row {row}", self.name);
        }
        Ok(())
    }

    /// Where the groups of a row's band are.
    fn band(&self, row: usize) -> std::ops::Range<usize> {
        let len = if self.takes_int8() { self.cols / BLOCK } else { self.cols };
        let band = row / ROWS;
        band * len..(band + 1) * len
    }

    /// A row as f32, [cols].
    pub fn row(&self, row: usize, out: &mut [f32]) {
        let (at, lane) = (self.band(row), row % ROWS);
        match &self.groups {
            Groups::Bits4(g) => get(&g[at], lane, out, 0, 0),
            Groups::Bits5(g) => get(&g[at], lane, out, 0, 0),
            Groups::Bits6(g) => get(&g[at], lane, out, 0, 32),
            Groups::Bits8(g) => get(&g[at], lane, out, self.bias ^ 128, 128),
            Groups::F16(g) => g[at].iter().zip(out).for_each(|(g, x)| *x = f16::from_bits(g[lane]).to_f32()),
            Groups::BF16(g) => g[at].iter().zip(out).for_each(|(g, x)| *x = bf16::from_bits(g[lane]).to_f32()),
            Groups::F32(g) => g[at].iter().zip(out).for_each(|(g, x)| *x = g[lane]),
        }
    }
}

/// Puts a row of the file, `BYTES` bytes for `N` blocks of 32 weights, in its lane; says whether all of it was finite.
fn put<G: Group, const BYTES: usize, const N: usize>(
    groups: &mut [G],
    lane: usize,
    bytes: &[u8],
    unpack: impl Fn(&[u8; BYTES]) -> [Block; N],
) -> bool {
    let mut finite = true;
    for (groups, bytes) in groups.as_chunks_mut::<N>().0.iter_mut().zip(bytes.as_chunks::<BYTES>().0) {
        for (group, block) in groups.iter_mut().zip(unpack(bytes)) {
            group.put(lane, &block);
            finite &= block.finite();
        }
    }
    finite
}

/// A row as f32: `d (q - offset) + m`, with some bits of q flipped before.
fn get<G: Group>(groups: &[G], lane: usize, out: &mut [f32], flip: u8, offset: i32) {
    for (group, out) in groups.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        group.get(lane).values(flip, offset, out);
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
