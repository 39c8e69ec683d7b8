//! The two ways in which the values of heads lie.

use std::ops::Range;

/// Zeros, at their exact size; None where there is no memory.
fn zeros<T: Copy + Default>(positions: usize, heads: usize, width: usize) -> Option<Vec<[T; 8]>> {
    let eights = (positions / 8).checked_mul(heads)?.checked_mul(width)?;
    let mut v = Vec::new();
    v.try_reserve_exact(eights).ok()?;
    v.resize(eights, [T::default(); 8]);
    Some(v)
}

/// In eights of positions: [heads, positions / 8, width] of eight positions.
#[derive(Debug)]
pub struct Eights<T> {
    width: usize,
    positions: usize,
    data: Vec<[T; 8]>,
}

impl<T: Copy + Default> Eights<T> {
    /// Room for so many positions, a multiple of 8.
    pub fn new(positions: usize, heads: usize, width: usize) -> Option<Self> {
        Some(Self { width, positions, data: zeros(positions, heads, width)? })
    }

    pub fn bytes(&self) -> usize {
        size_of_val(self.data.as_slice())
    }

    /// A head's positions in a tile, which begins at a multiple of 8.
    pub fn tile(&self, head: usize, tile: &Range<usize>) -> &[[T; 8]] {
        &self.data[(head * self.positions + tile.start) / 8 * self.width..][..tile.len().div_ceil(8) * self.width]
    }

    fn eights(&self, position: usize, head: usize) -> Range<usize> {
        let at = (head * self.positions + position) / 8 * self.width;
        at..at + self.width
    }

    /// A head at a position.
    pub fn at(&self, position: usize, head: usize) -> impl Iterator<Item = T> {
        self.data[self.eights(position, head)].iter().map(move |eight| eight[position % 8])
    }

    pub fn at_mut(&mut self, position: usize, head: usize) -> impl Iterator<Item = &mut T> {
        let eights = self.eights(position, head);
        self.data[eights].iter_mut().map(move |eight| &mut eight[position % 8])
    }
}

/// Row by row: [heads, positions, width / 8] of eight values.
#[derive(Debug)]
pub struct Rows<T> {
    pub width: usize,
    positions: usize,
    data: Vec<[T; 8]>,
}

impl<T: Copy + Default> Rows<T> {
    /// Room for so many positions, a multiple of 8; so must the width be.
    pub fn new(positions: usize, heads: usize, width: usize) -> Option<Self> {
        Some(Self { width, positions, data: zeros(positions, heads, width)? })
    }

    pub fn bytes(&self) -> usize {
        size_of_val(self.data.as_slice())
    }

    /// A head's positions in a tile.
    pub fn tile(&self, head: usize, tile: &Range<usize>) -> &[[T; 8]] {
        &self.data[(head * self.positions + tile.start) * (self.width / 8)..][..tile.len() * (self.width / 8)]
    }

    fn row(&self, position: usize, head: usize) -> Range<usize> {
        let at = (head * self.positions + position) * self.width;
        at..at + self.width
    }

    /// A head at a position.
    pub fn row_mut(&mut self, position: usize, head: usize) -> &mut [T] {
        let row = self.row(position, head);
        &mut self.data.as_flattened_mut()[row]
    }

    /// Copies a head from a position to another.
    pub fn copy(&mut self, from: usize, to: usize, head: usize) {
        let (from, to) = (self.row(from, head), self.row(to, head));
        self.data.as_flattened_mut().copy_within(from, to.start);
    }
}
