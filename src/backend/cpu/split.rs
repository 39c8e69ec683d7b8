//! Buffers that several threads fill at once: the only place where they get at one, and why that is sound.

use std::marker::PhantomData;
use std::ops::Range;

use super::pool::Pool;

/// Pieces for each thread: a thread that is slower, or that the system puts aside for a while, leaves the rest to the others.
const PIECES: usize = 4;

/// A buffer [height, width] that is about to be cut into columns.
pub struct Matrix<'a, T> {
    start: *mut T,
    width: usize,
    height: usize,
    buffer: PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for the `&mut [T]` that it was made of, which may go to another thread where T may.
unsafe impl<T: Send> Send for Matrix<'_, T> {}
// SAFETY: nothing can be reached through a shared one but by `columns`, whose caller promises that nobody else has these columns.
unsafe impl<T: Send> Sync for Matrix<'_, T> {}

impl<'a, T> Matrix<'a, T> {
    /// Rows of `width`, as many as there are.
    pub fn new(buffer: &'a mut [T], width: usize) -> Self {
        let height = buffer.len().checked_div(width).unwrap_or(0);
        Self { start: buffer.as_mut_ptr(), width, height, buffer: PhantomData }
    }

    /// # Safety
    /// While the result lives, no other has any of these columns.
    unsafe fn columns(&self, range: Range<usize>) -> Columns<'_, T> {
        assert!(range.start <= range.end && range.end <= self.width);
        Columns { start: self.start, width: self.width, height: self.height, range, buffer: PhantomData }
    }
}

/// Some columns of a matrix, for one thread alone.
pub struct Columns<'a, T> {
    start: *mut T,
    width: usize,
    height: usize,
    range: Range<usize>,
    buffer: PhantomData<&'a mut [T]>,
}

impl<T> Columns<'_, T> {
    /// Which columns.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// These columns of a row.
    #[inline(always)]
    pub fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.height);
        // SAFETY: inside of the buffer, which holds height * width values and is borrowed for as long as `self` may live; nobody else has
        // these columns (`Matrix::columns`), and `&mut self` lets one row out at a time.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.width + self.range.start), self.range.len()) }
    }
}

/// Cuts the columns of matrices that lie side by side into pieces of whole `unit`s (each matrix begins a new one), at least `least` of them
/// a piece, and calls `work` with the number of the matrix and the columns, on the pool's threads.
pub fn split<T: Send>(pool: &Pool, matrices: &mut [Matrix<T>], unit: usize, least: usize, work: impl Fn(usize, Columns<T>) + Sync) {
    let matrices = &*matrices; // lent whole, so that `work` can't begin to cut them up a second time
    let units = |m: &Matrix<T>| m.width.div_ceil(unit);
    let all: usize = matrices.iter().map(units).sum();
    let pieces = if pool.threads() == 1 { 1 } else { (all / least.max(1)).clamp(1, pool.threads() * PIECES) };
    pool.run(pieces, |piece| {
        let mine = all * piece / pieces..all * (piece + 1) / pieces;
        let mut first = 0;
        for (i, matrix) in matrices.iter().enumerate() {
            let n = units(matrix);
            let (from, to) = (mine.start.clamp(first, first + n) - first, mine.end.clamp(first, first + n) - first);
            if from < to {
                // SAFETY: the pool calls each piece exactly once, pieces are disjoint runs of units, and a unit is a column range of its own.
                let columns = unsafe { matrix.columns(from * unit..(to * unit).min(matrix.width)) };
                work(i, columns);
            }
            first += n;
        }
    });
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_reached_once_whatever_the_sizes() {
        for threads in [1, 2, 3, 8] {
            let pool = Pool::new(threads);
            for (widths, height, unit, least) in
                [(&[8][..], 1, 8, 1), (&[5], 3, 8, 1), (&[576, 192, 7], 5, 8, 3), (&[1000, 1], 2, 1, 64), (&[0, 16], 4, 8, 1)]
            {
                let mut buffers: Vec<Vec<u32>> = widths.iter().map(|w| vec![0; w * height]).collect();
                let mut matrices: Vec<_> = buffers.iter_mut().zip(widths).map(|(b, &w)| Matrix::new(b, w)).collect();
                split(&pool, &mut matrices, unit, least, |i, mut columns| {
                    let at = columns.range().start;
                    assert_eq!(at % unit, 0);
                    for row in 0..height {
                        for (j, value) in columns.row(row).iter_mut().enumerate() {
                            *value += 1 + (i + row * widths[i] + at + j) as u32;
                        }
                    }
                });
                for (i, buffer) in buffers.iter().enumerate() {
                    assert!(buffer.iter().enumerate().all(|(j, &v)| v == 1 + (i + j) as u32), "{threads} threads, {widths:?}");
                }
            }
        }
    }
}
