//! Random rows of every format: valid blocks with scales of the size real models have.

use super::Random;
use half::f16;
use rillm::quant::Format;

/// `rows` x `cols` random weights: the bytes as a file has them, and what they mean.
pub fn random_rows(random: &mut Random, format: Format, rows: usize, cols: usize) -> (Vec<u8>, Vec<f32>) {
    let blocks = rows * cols / format.block_len();
    let bytes: Vec<u8> = (0..blocks).flat_map(|_| random_block(random, format)).collect();
    let mut meaning = vec![0.0; rows * cols];
    format.dequantize(&bytes, &mut meaning);
    (bytes, meaning)
}

/// One block: random bits, and scales around 0.02 (of either sign).
pub fn random_block(random: &mut Random, format: Format) -> Vec<u8> {
    let mut block: Vec<u8> = (0..format.block_bytes()).map(|_| random.next() as u8).collect();
    let mut scale = |at: usize, size: f32| {
        let value = f16::from_f32(size * (0.5 + random.uniform().abs()) * if random.below(4) == 0 { -1.0 } else { 1.0 });
        block[at..at + 2].copy_from_slice(&value.to_le_bytes());
    };
    match format {
        Format::F32 => return (random.normal() * 0.05).to_le_bytes().to_vec(),
        Format::F16 => return f16::from_f32(random.normal() * 0.05).to_le_bytes().to_vec(),
        Format::BF16 => return half::bf16::from_f32(random.normal() * 0.05).to_le_bytes().to_vec(),
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => scale(0, 0.01),
        Format::Q4_1 | Format::Q5_1 => {
            scale(0, 0.01);
            scale(2, 0.08);
        }
        Format::Q4_K | Format::Q5_K => {
            scale(0, 0.0005);
            scale(2, 0.0005);
        }
        Format::Q6_K => scale(208, 0.0002),
    }
    block
}
