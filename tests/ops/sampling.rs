//! Picks and draws.

use rillm::backend::{Backend, Residual, Want};
use rillm::ops::{linear, norm_linear, pick, sample};
use rillm::quant::Format;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test;

use crate::common::Random;
use crate::common::blocks::random_rows;
use crate::device::{on_every_device, product};

#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn picks_equal_the_reference_over_the_logits() {
    let mut random = Random::new(8);
    let (vocab, dim) = (9001, 64);
    let (bytes, w) = random_rows(&mut random, Format::Q8_0, vocab, dim);
    let x: Vec<f32> = (0..5 * dim).map(|_| random.normal()).collect();
    let y: Vec<f32> = (0..5 * dim).map(|_| random.normal()).collect();
    let norm = vec![1.0; dim];
    on_every_device!(b => {
        let (t, norm_t) = (b.matrix(Format::Q8_0, vocab, dim, &bytes), b.vector(&norm));
        let sum = b.device.slot(dim);
        let (slot, pending) = (b.filled(dim, &x), b.filled(dim, &y));
        let residual = Residual { x: slot, pending: Some((pending, Some(norm_t))), sum };
        let mut settled = x.clone();
        norm_linear::settle(&mut settled, (&y, Some(&norm)), 1e-6);
        let (rows, targets) = ([0, 1, 2, 4], [0, 4096, 9000, 17]);
        b.device.sample(residual, norm_t, t, 1e-6, &Want::Picks { rows: &rows, targets: &targets });
        let picks = pollster::block_on(b.device.read()).unwrap().picks;
        assert_eq!(picks.len(), 4);
        for (i, (&row, pick)) in rows.iter().zip(&picks).enumerate() {
            let normed = norm_linear::rms_norm(&settled[row * dim..][..dim], &norm, 1e-6);
            let mut logits = vec![0.0; vocab];
            linear::reference(&normed, &w, &mut logits, &product(&b, Format::Q8_0, vocab, dim));
            let right = pick::reference(&logits, Some(targets[i])).unwrap();
            assert_eq!((pick.id, pick.top_id), (right.id, right.top_id), "{}", b.name());
            let off = (pick.logprob - right.logprob).abs().max((pick.top_logprob - right.top_logprob).abs());
            assert!(f64::from(off) < b.limit(0.002) * f64::from(1.0 - right.logprob), "{}: {pick:?} {right:?}", b.name());
        }
        b.device.begin(5).unwrap();
        b.device.sample(residual, norm_t, t, 1e-6, &Want::Logits);
        let logits = pollster::block_on(b.device.read()).unwrap().logits;
        b.device.begin(5).unwrap();
        b.device.sample(residual, norm_t, t, 1e-6, &Want::Picks { rows: &[4], targets: &[17] });
        let pick = pollster::block_on(b.device.read()).unwrap().picks[0];
        assert_eq!(pick::reference(&logits, Some(17)).map(|p| p.top_id), Some(pick.top_id));
        // a greedy draw is the best pick
        let params = sample::Params { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 1, position: 0 };
        b.device.begin(5).unwrap();
        b.device.sample(residual, norm_t, t, 1e-6, &Want::Sample { params: &params, recent: &[] });
        assert_eq!(pollster::block_on(b.device.read()).unwrap().picks[0].id, pick.top_id);
    });
}

/// NaN has no chance, and plus infinity is the largest number, on every instruction set: some have a maximum that does anything with NaN.
#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn logits_that_are_not_finite_are_read_alike_everywhere() {
    use rillm::backend::cpu::{Cpu, Variant};
    let mut random = Random::new(11);
    let greedy = sample::Params { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.2, seed: 1, position: 0 };
    let plain = sample::Params { temperature: 3.0, repetition_penalty: 1.0, ..greedy };
    let nucleus = sample::Params { top_p: 0.9, ..plain };
    let options = [greedy, plain, nucleus, sample::Params { top_k: 40, ..nucleus }, sample::Params { top_k: 200, ..plain }];
    for (at, step, odd) in [(0, 9, f32::NAN), (5, 7, f32::NAN), (3, 1000, f32::NAN), (17, 400, f32::INFINITY), (2, 5, f32::NEG_INFINITY)] {
        let mut logits: Vec<f32> = (0..4999).map(|_| random.normal() * 2.0).collect();
        let mut clean = logits.clone();
        for i in (at..4999).step_by(step) {
            logits[i] = odd;
            clean[i] = if odd == f32::INFINITY { f32::MAX } else { f32::NEG_INFINITY };
        }
        for variant in Variant::available() {
            let mut cpu = Cpu::new(variant);
            for params in &options {
                for position in 0..40 {
                    let params = sample::Params { position, ..*params };
                    let recent = [0, 3, 17, 4998];
                    *cpu.row_mut() = clean.clone();
                    let right = cpu.draw(&params, &recent);
                    assert!(right.is_some_and(|pick| clean[pick.id as usize] > f32::NEG_INFINITY));
                    *cpu.row_mut() = logits.clone();
                    assert_eq!(cpu.draw(&params, &recent), right, "{variant:?}, {odd} from {at} on, {params:?}");
                }
            }
        }
    }
}

/// The kernels and the threads give what the plain text of the op gives, token and log-probability, to the bit.
#[cfg(not(target_arch = "wasm32"))]
#[test]
fn draws_are_the_same_on_every_instruction_set_and_number_of_threads() {
    use rillm::backend::cpu::{Cpu, Pool, Variant};
    let mut random = Random::new(10);
    let greedy = sample::Params { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.2, seed: 1, position: 0 };
    let plain = sample::Params { temperature: 0.8, repetition_penalty: 1.0, ..greedy };
    let nucleus = sample::Params { top_p: 0.95, repetition_penalty: 1.2, ..plain };
    let options = [greedy, plain, nucleus, sample::Params { top_k: 40, ..nucleus }, sample::Params { min_p: 0.01, ..plain }];
    for vocab in [1, 7, 8, 9, 31, 33, 257, 49_152, 262_144] {
        let mut logits: Vec<f32> = (0..vocab).map(|_| random.normal() * 4.0).collect();
        logits[vocab / 2] = if vocab > 1 { f32::NAN } else { 0.0 };
        let recent: Vec<u32> = (0..64).map(|i| i * 13 % vocab as u32).collect();
        let mut scratch = sample::Scratch::default();
        for variant in Variant::available() {
            for threads in [1, 3] {
                let mut cpu = Cpu::with_pool(variant, Pool::new(threads));
                *cpu.row_mut() = logits.clone();
                for (position, params) in options.iter().enumerate() {
                    let params = sample::Params { position: position as u32, ..*params };
                    let id = sample::reference(&logits, &recent, &params, &mut scratch);
                    assert_eq!(cpu.draw(&params, &recent), pick::reference(&logits, id), "{variant:?}, {threads} threads, {params:?}");
                    assert!(cpu.row_mut().iter().zip(&logits).all(|(a, b)| a.to_bits() == b.to_bits()), "the row comes back as it was");
                }
            }
        }
    }
}

/// One story, pinned: native and wasm, any instruction set, now and later.
#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn a_seed_draws_the_same_ids_on_every_platform() {
    let mut random = Random::new(9);
    let logits: Vec<f32> = (0..5000).map(|_| random.normal() * 2.0).collect();
    let mut scratch = sample::Scratch::default();
    let mut hash = 0u32;
    for position in 0..300 {
        let top_p = if position % 2 == 0 { 1.0 } else { 0.9 };
        let params = sample::Params { temperature: 3.0, top_k: 0, top_p, min_p: 0.0, repetition_penalty: 1.0, seed: 1, position };
        hash = hash.wrapping_mul(31).wrapping_add(sample::reference(&logits, &[], &params, &mut scratch).unwrap());
    }
    assert_eq!(hash, 3_051_129_121);
}
