//! Norms, what is pending, and the activations.

use rillm::backend::{Backend, Residual, Tensor};
use rillm::ops::norm_linear;
use rillm::ops::norm_linear::Activation;
use rillm::quant::Format;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test;

use crate::common::Random;
use crate::common::blocks::random_rows;
use crate::device::{distance, on_every_device, product, same_bits};

/// What comes from the block before: nothing, a plain sum, or a sum through a norm of its own.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Pending {
    No,
    Plain,
    Normed,
}

#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn norm_linear_equals_its_reference_with_and_without_pending_and_activation() {
    let mut random = Random::new(4);
    let cases = [Pending::No, Pending::Plain, Pending::Normed];
    for (dim, ffn, tokens) in [(32, 64, 1), (96, 32, 5), (576, 160, 3), (640, 31, 2)] {
        for (case, activation) in cases.iter().flat_map(|&c| [None, Some(Activation::Silu), Some(Activation::Gelu)].map(|a| (c, a))) {
            let formats = [Format::Q4_1, Format::Q8_0];
            let mats: Vec<_> = formats.iter().map(|&f| random_rows(&mut random, f, ffn, dim)).collect();
            let [norm_values, post_values] = [0, 1].map(|_| (0..dim).map(|_| 1.0 + random.normal() * 0.3).collect::<Vec<f32>>());
            let x_values: Vec<f32> = (0..tokens * dim).map(|_| random.normal() * 5.0).collect();
            let y_values: Vec<f32> = (0..tokens * dim).map(|_| random.normal()).collect();
            let p = norm_linear::Params { eps: 1e-5, activation };
            let mut seen = None;
            on_every_device!(b => {
                let mut sum = x_values.clone();
                let refs: Vec<_> = formats.iter().zip(&mats).map(|(&f, (_, w))| (&w[..], product(&b, f, ffn, dim))).collect();
                let pending = match case {
                    Pending::No => None,
                    Pending::Plain => Some((&y_values[..], None)),
                    Pending::Normed => Some((&y_values[..], Some(&post_values[..]))),
                };
                let right = norm_linear::reference(&mut sum, pending, &norm_values, &refs, &p);

                let ts: Vec<Tensor> = formats.iter().zip(&mats).map(|(&f, (bytes, _))| b.matrix(f, ffn, dim, bytes)).collect();
                let (norm, post) = (b.vector(&norm_values), b.vector(&post_values));
                let (gate, up, other) = (b.device.slot(ffn), b.device.slot(ffn), b.device.slot(dim));
                let x = b.filled(dim, &x_values);
                let y = b.filled(dim, &y_values);
                let pending = match case {
                    Pending::No => None,
                    Pending::Plain => Some((y, None)),
                    Pending::Normed => Some((y, Some(post))),
                };
                b.device.norm_linear(Residual { x, pending, sum: other }, norm, &[(ts[0], gate), (ts[1], up)], &p);
                for (slot, right) in [gate, up].into_iter().zip(&right) {
                    let got = b.values(slot, right.len());
                    let d = distance(&got, right);
                    // one int8 value at a rounding edge may fall to the other side: the reference's norm is in f64
                    assert!(d < b.limit(2e-3), "dim {dim}, pending {case:?}, {activation:?}, {}: {d}", b.name());
                    if slot == gate {
                        same_bits(&b, &mut seen, &got, "norm_linear");
                    }
                }
                if case != Pending::No {
                    assert!(distance(&b.values(other, sum.len()), &sum) < 1e-6);
                }
            });
        }
    }
}

#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn activations_are_right_from_end_to_end_of_their_range() {
    let gates: Vec<f32> = (-400..=400).map(|i| i as f32 / 4.0).chain([-60_000.0, 60_000.0, 1e-6, -1e-6, 0.0]).collect();
    for (activation, right) in [(Activation::Silu, (|x| x / (1.0 + (-x).exp())) as fn(f64) -> f64), (Activation::Gelu, gelu)] {
        for &gate in &gates {
            let right = right(f64::from(gate));
            let got = f64::from(activation.apply(gate));
            // the tanh form itself loses what is below the last bit of 1
            assert!((got - right).abs() <= 1e-5 * right.abs() + 1e-15 * (1.0 + f64::from(gate).abs()), "{activation:?}({gate}) = {got}, not {right}");
        }
    }
}

/// The tanh form as its paper writes it.
fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
}

/// B038: variances that overflow a half give finite numbers that are wrong.
#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn b038_a_norm_is_right_for_a_row_with_one_large_value() {
    for (dim, large) in [64, 576, 640].into_iter().flat_map(|d| [795.0, 2_000.0, 60_000.0].map(|v| (d, v))) {
        let mut x_values: Vec<f32> = (0..dim).map(|i| 1.0 + (i as f32).sin() * 0.1).collect();
        x_values[7] = large;
        let (bytes, w) = random_rows(&mut Random::new(5), Format::F32, 8, dim);
        let p = norm_linear::Params { eps: 1e-6, activation: None };
        let ones = vec![1.0; dim];
        on_every_device!(b => {
            let right = norm_linear::reference(&mut x_values.clone(), None, &ones, &[(&w, product(&b, Format::F32, 8, dim))], &p);
            let (t, norm) = (b.matrix(Format::F32, 8, dim, &bytes), b.vector(&ones));
            let out = b.device.slot(8);
            let sum = b.device.slot(dim);
            let x = b.filled(dim, &x_values);
            b.device.norm_linear(Residual { x, pending: None, sum }, norm, &[(t, out)], &p);
            let d = distance(&b.values(out, 8), &right[0]);
            assert!(d < 1e-5, "{dim} values, one of them {large}, {}: {d}", b.name());
        });
    }
}
