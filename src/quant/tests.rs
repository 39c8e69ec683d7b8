use super::testing::{Rng, encode};
use super::*;

#[test]
fn what_an_encoder_wrote_is_read_back() {
    let row = Rng(1).weights(1024, 0.05);
    let largest = row.iter().fold(0.0, |m: f32, v| m.max(v.abs()));
    for format in Format::ALL {
        let bytes = encode(format, &row);
        assert_eq!(bytes.len(), row.len() / format.block_len() * format.block_bytes());
        let mut out = vec![f32::NAN; row.len()];
        format.dequantize(&bytes, &mut out);
        let worst = row.iter().zip(&out).fold(0.0, |m: f32, (a, b)| m.max((a - b).abs())) / largest;
        let allowed = match format {
            Format::F32 => 0.0,
            Format::F16 => 0.001,
            Format::BF16 => 0.01,
            Format::Q8_0 => 0.01,
            Format::Q6_K => 0.03,
            Format::Q5_0 | Format::Q5_1 | Format::Q5_K => 0.06,
            Format::Q4_0 | Format::Q4_1 | Format::Q4_K => 0.12,
        };
        assert!(worst <= allowed, "{}: off by {worst} of the largest weight", format.name());
    }
}

#[test]
fn the_numbers_of_formats_agree_both_ways() {
    for format in Format::ALL {
        assert_eq!(Format::from_ggml(format.ggml_type()), Some(format));
        assert_eq!(ggml_type_name(format.ggml_type()), format.name());
    }
    assert_eq!(ggml_type_name(16), "IQ2_XXS");
}

#[test]
fn activations_are_within_half_a_step() {
    let mut rng = Rng(2);
    for scale in [1e-30, 1e-6, 1.0, 1e6, 1e38] {
        let x: [f32; 32] = std::array::from_fn(|_| rng.signed() * scale);
        let (d, q) = quantize_q8(&x);
        assert!(q.iter().any(|q| q.unsigned_abs() == 127));
        for (x, q) in x.iter().zip(q) {
            assert!((x - d * f32::from(q)).abs() <= d * 0.5001, "{x} became {q} x {d}");
        }
    }
}

#[test]
fn activations_round_ties_to_even() {
    let mut x = [0.0; 32];
    x[..7].copy_from_slice(&[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5]);
    let (d, q) = quantize_q8(&x);
    assert_eq!(d, 1.0);
    assert_eq!(q[..7], [127, 0, 2, 2, 0, -2, -2]);
}

#[test]
fn activations_that_are_nothing_or_not_numbers() {
    let block = |v: f32| {
        let mut x = [0.0; 32];
        x[7] = v;
        quantize_q8(&x)
    };
    for nothing in [0.0, -0.0, 1e-45, -1e-37] {
        assert_eq!(block(nothing), (0.0, [0; 32]));
    }
    for broken in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let (d, q) = block(broken);
        assert!(d.is_nan());
        assert_eq!(q, [0; 32]);
    }
    assert_eq!(block(f32::MAX).1[7], 127);
    assert_eq!(block(-f32::MAX).1[7], -127);
    let (d, q) = block(f32::from_bits(8 << 23)); // the smallest that counts
    assert!(d.is_normal() && q[7] == 127);
}
