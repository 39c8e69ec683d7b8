//! Every block format against candle's reading of the same bytes: equal bit for bit, because both compute d * q (+ m) in the same order
//! of single roundings.
#![cfg(not(target_arch = "wasm32"))]

use candle_core::quantized::{GgmlDType, QTensor, ggml_file::qtensor_from_ggml};
use candle_core::{Device, Tensor};
use half::f16;
use proptest::prelude::*;
use rillm::quant::Format;
use rillm::quant::testing::{Rng, encode, half_offsets, random_blocks};

fn candle_type(format: Format) -> GgmlDType {
    match format {
        Format::F32 => GgmlDType::F32,
        Format::F16 => GgmlDType::F16,
        Format::BF16 => GgmlDType::BF16,
        Format::Q4_0 => GgmlDType::Q4_0,
        Format::Q4_1 => GgmlDType::Q4_1,
        Format::Q5_0 => GgmlDType::Q5_0,
        Format::Q5_1 => GgmlDType::Q5_1,
        Format::Q8_0 => GgmlDType::Q8_0,
        Format::Q4_K => GgmlDType::Q4K,
        Format::Q5_K => GgmlDType::Q5K,
        Format::Q6_K => GgmlDType::Q6K,
    }
}

fn candle_reads(format: Format, bytes: &[u8]) -> Vec<f32> {
    let weights = bytes.len() / format.block_bytes() * format.block_len();
    let tensor = qtensor_from_ggml(candle_type(format), bytes, vec![weights], &Device::Cpu).unwrap();
    tensor.dequantize(&Device::Cpu).unwrap().to_vec1().unwrap()
}

fn assert_agree(format: Format, bytes: &[u8]) {
    let theirs = candle_reads(format, bytes);
    let mut ours = vec![f32::NAN; theirs.len()];
    format.dequantize(bytes, &mut ours);
    for (i, (a, b)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(a.to_bits(), b.to_bits(), "{} weight {i}: {a}, candle has {b}", format.name());
    }
}

#[test]
fn block_sizes_are_candles() {
    for format in Format::ALL {
        assert_eq!(format.block_len(), candle_type(format).block_size(), "{}", format.name());
        assert_eq!(format.block_bytes(), candle_type(format).type_size(), "{}", format.name());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_blocks_mean_the_same(seed: u64, blocks in 1usize..5) {
        for format in Format::ALL {
            assert_agree(format, &random_blocks(format, blocks, &mut Rng(seed)));
        }
    }
}

#[test]
fn zero_bytes_mean_the_same() {
    for format in Format::ALL {
        assert_agree(format, &vec![0; 3 * format.block_bytes()]);
    }
}

/// The smallest and largest subnormal scale, the smallest normal, the largest, each in every place for a scale and of either sign.
#[test]
fn extreme_scales_mean_the_same() {
    for format in Format::ALL {
        let mut rng = Rng(3);
        for scale in [0x0000, 0x0001, 0x03ff, 0x0400, 0x7bff, 0x8000, 0x8001, 0x83ff, 0xfbff] {
            for &at in half_offsets(format) {
                let mut block = random_blocks(format, 1, &mut rng);
                block[at..at + 2].copy_from_slice(&f16::from_bits(scale).to_le_bytes());
                assert_agree(format, &block);
            }
        }
    }
}

/// Each quant in each place, so that no bit of a layout goes unchecked by chance.
#[test]
fn single_bits_mean_the_same() {
    for format in Format::ALL.into_iter().filter(|f| f.block_len() > 1) {
        let scales: Vec<usize> = half_offsets(format).iter().flat_map(|&at| [at, at + 1]).collect();
        let mut blank = vec![0; format.block_bytes()];
        for &at in half_offsets(format) {
            blank[at..at + 2].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        }
        if matches!(format, Format::Q4_K | Format::Q5_K) {
            blank[4..16].fill(0x55);
        }
        if format == Format::Q6_K {
            blank[192..208].fill(1);
        }
        for bit in (0..format.block_bytes() * 8).filter(|bit| !scales.contains(&(bit / 8))) {
            let mut block = blank.clone();
            block[bit / 8] ^= 1 << (bit % 8);
            assert_agree(format, &block);
        }
    }
}

/// What candle's quantizer makes of rows like a model's (576 is SmolLM2's width; k-quants need 256), and what our test encoders make of them.
#[test]
fn quantized_rows_mean_the_same() {
    for (cols, sigma) in [(576, 0.03), (1536, 0.1), (256, 1.0), (2048, 1e-4)] {
        for format in Format::ALL.into_iter().filter(|f| cols % f.block_len() == 0) {
            let row = Rng(4).weights(cols, sigma);
            let tensor = Tensor::from_slice(&row, cols, &Device::Cpu).unwrap();
            let quantized = QTensor::quantize(&tensor, candle_type(format)).unwrap();
            assert_agree(format, &quantized.data().unwrap());
            assert_agree(format, &encode(format, &row));
        }
    }
}

/// A hostile file's infinite or NaN scales stay what they are and panic nowhere.
#[test]
fn any_bytes_are_read_without_panic() {
    let mut rng = Rng(5);
    for format in Format::ALL {
        let bytes: Vec<u8> = (0..64 * format.block_bytes()).map(|_| rng.next_u64() as u8).collect();
        let mut out = vec![0.0; 64 * format.block_len()];
        format.dequantize(&bytes, &mut out);
        let mut broken = random_blocks(format, 1, &mut rng);
        for &at in half_offsets(format) {
            broken[at..at + 2].copy_from_slice(&f16::NAN.to_le_bytes());
            let mut out = vec![0.0; format.block_len()];
            format.dequantize(&broken, &mut out);
            assert!(out.iter().all(|w| w.is_nan()), "{}", format.name());
        }
    }
}
