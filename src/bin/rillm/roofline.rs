//! How near decode is to what memory allows: a token reads all weights once, so its rate is at most the bandwidth over their bytes (the
//! roofline model: Williams, Waterman, Patterson, CACM 52(4), 2009, <https://doi.org/10.1145/1498765.1498785>).

use std::hint::black_box;
use std::time::Instant;

/// What is read: larger than caches are.
const BYTES: usize = 512 << 20;
/// How often; the fastest counts, since others of the machine's tenants only make it slower.
const TIMES: usize = 5;
/// Words that are summed side by side, so that no addition waits for the one before.
const LANES: usize = 64;

/// Bytes per second that so many threads read together, each its own part of a buffer.
pub fn memory_bandwidth(threads: usize) -> f64 {
    let words = vec![1u64; BYTES / size_of::<u64>()];
    let part = words.len() / threads;
    let fastest = (0..TIMES).map(|_| {
        let began = Instant::now();
        std::thread::scope(|scope| {
            for part in words.chunks(part) {
                scope.spawn(move || black_box(sum(part)));
            }
        });
        began.elapsed().as_secs_f64()
    });
    BYTES as f64 / fastest.fold(f64::INFINITY, f64::min)
}

fn sum(words: &[u64]) -> u64 {
    let mut sums = [0u64; LANES];
    for lanes in words.as_chunks::<LANES>().0 {
        for (sum, word) in sums.iter_mut().zip(lanes) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().fold(0, |a, b| a.wrapping_add(*b))
}
