//! Philox4x32-10: random numbers that are a pure function of a counter and a key.
//!
//! Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11
//! (<https://doi.org/10.1145/2063384.2063405>). There is no state to carry along, so the draw for a position is the same on every
//! device, after a rewind, and whether the position was decoded alone or verified in a batch.

/// The uniform number that draws the token of `position` under `seed`: a multiple of 2^-24 in [0, 1).
///
/// It is the upper 24 bits of the first word of counter (position, 0, 0, 0) under key (seed, 0). Twenty-four, because that is what an
/// `f32` holds exactly: a shader and the CPU then begin with the very same number.
pub fn uniform(seed: u32, position: u32) -> f32 {
    (philox4x32_10([position, 0, 0, 0], [seed, 0])[0] >> 8) as f32 / 16_777_216.0
}

/// The four words that belong to a counter of four words and a key of two.
pub fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    /// Multipliers of the two halves, and what the key grows by each round (the golden ratio, and the square root of 3 minus 1).
    const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for _ in 0..10 {
        let a = u64::from(counter[0]) * u64::from(MULTIPLIER[0]);
        let b = u64::from(counter[2]) * u64::from(MULTIPLIER[1]);
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors that the authors publish with Random123 (`tests/kat_vectors`, lines `philox4x32 10`).
    #[test]
    fn known_answers() {
        let ones = u32::MAX;
        for (counter, key, expected) in [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([ones; 4], [ones; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            ([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0], [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]),
        ] {
            assert_eq!(philox4x32_10(counter, key), expected);
        }
    }

    #[test]
    fn uniform_numbers_stay_below_one_and_differ() {
        assert_eq!(uniform(0, 0), (0x6627_e8d5_u32 >> 8) as f32 / 16_777_216.0);
        let mut mean = 0.0;
        for position in 0..10_000 {
            let u = uniform(7, position);
            assert!((0.0..1.0).contains(&u));
            mean += f64::from(u) / 10_000.0;
        }
        // The mean of 10,000 has a standard deviation of 0.0029.
        assert!((mean - 0.5).abs() < 0.012, "{mean}");
        assert_ne!(uniform(1, 0), uniform(0, 1));
    }
}
