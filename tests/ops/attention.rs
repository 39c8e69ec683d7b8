//! Rotation, the KV cache, attention and shifts.

use rillm::backend::{Backend, CacheSpec, KvType};
use rillm::error::Code;
use rillm::ops::kv::Plain;
use rillm::ops::rope_append::{Pairs, Rope};
use rillm::ops::{attend, rope_append, shift};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test;

use crate::common::Random;
use crate::device::{Bench, Device, cpus, distance, on_every_device, same_bits};

fn rope(dim: usize, random: &mut Random, pairs: Pairs) -> Rope {
    let factors = if random.below(2) == 0 { Vec::new() } else { (0..dim / 2).map(|_| 1.0 + random.below(8) as f32).collect() };
    Rope { dim, base: 10_000.0, scale: if random.below(2) == 0 { 1.0 } else { 4.0 }, factors, pairs }
}

/// Makes a device's cache; false where the device refuses this type of it, by its name.
fn cache<D: Device>(b: &mut Bench<D>, spec: &CacheSpec) -> bool {
    if D::EXACT || spec.kv_type == KvType::F16 {
        b.device.cache(spec).unwrap();
        return true;
    }
    let error = b.device.cache(spec).unwrap_err();
    assert!(error.code() == Code::NotSupported && error.message().contains(spec.kv_type.name()), "{error}");
    false
}

#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn rope_append_attend_and_shift_equal_their_references() {
    equal_their_references(KvType::F16, &[(9, 3, 64, 64), (4, 4, 20, 12), (6, 1, 8, 8), (4, 1, 256, 256)]);
}

/// Heads that are no whole number of blocks, and one that is less than a block.
#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn rope_append_attend_and_shift_over_q8_0_equal_their_references() {
    equal_their_references(KvType::Q8_0, &[(9, 3, 64, 64), (4, 4, 20, 12), (2, 2, 40, 40), (4, 2, 80, 64), (4, 1, 256, 256)]);
}

fn equal_their_references(kv_type: KvType, shapes: &[(usize, usize, usize, usize)]) {
    let mut random = Random::new(6);
    for &(heads, kv_heads, head_dim, rope_dim) in shapes {
        for (i, window) in [None, Some(7), Some(300)].into_iter().enumerate() {
            let positions = 700;
            let (q_width, kv_width) = (heads * head_dim, kv_heads * head_dim);
            let rope = rope(rope_dim, &mut random, if (heads + i) % 2 == 0 { Pairs::Neighbours } else { Pairs::Halves });
            let norms = (i != 1).then(|| [0, 1].map(|_| (0..head_dim).map(|_| 1.0 + random.normal() * 0.3).collect::<Vec<f32>>()));
            let chunks = [1, 3, 255, 2, 64, 301, 1];
            let inputs: Vec<[Vec<f32>; 3]> = chunks
                .iter()
                .map(|&n| [n * q_width, n * kv_width, n * kv_width].map(|len| (0..len).map(|_| random.normal() * 2.0).collect()))
                .collect();
            // the references once, for all devices
            let mut plain = Plain::new(kv_type, positions, kv_width);
            let mut start = 0;
            let mut steps = Vec::new();
            for (&n, [q, k, v]) in chunks.iter().zip(&inputs) {
                let p = rope_append::Params { start, heads, kv_heads, head_dim, rope: rope.clone(), eps: 1e-6 };
                let look = attend::Params { start, heads, kv_heads, head_dim, scale: 1.0 / (head_dim as f32).sqrt(), window };
                let (mut rq, mut rk) = (q.clone(), k.clone());
                let norms = norms.as_ref().map(|[q, k]| [&q[..], &k[..]]);
                rope_append::reference(&mut rq, &mut rk, v, norms, &mut plain, &p);
                let mut right = vec![0.0; n * q_width];
                attend::reference(&rq, &plain.keys, &plain.values, &mut right, &look);
                steps.push((n, p, look, rq, right));
                start += n;
            }
            // what is left after a shift
            let (keep, drop) = (4, 40);
            let moved = shift::Params { from: keep + drop..start, to: keep, kv_heads, head_dim, rope: rope.clone() };
            shift::reference(&mut plain, &moved);
            let after = attend::Params { start: start - drop - 1, heads, kv_heads, head_dim, scale: 0.1, window: None };
            let q_after: Vec<f32> = (0..q_width).map(|i| (i as f32).sin()).collect();
            let mut right_after = vec![0.0; q_width];
            attend::reference(&q_after, &plain.keys, &plain.values, &mut right_after, &after);

            let mut seen = None;
            on_every_device!(b => {
                if !cache(&mut b, &CacheSpec { layers: 2, positions, kv_heads, head_dim, kv_type }) {
                    continue; // candle, the last
                }
                let norms = norms.as_ref().map(|[q, k]| [b.vector(q), b.vector(k)]);
                let mut last = Vec::new();
                for ((n, p, look, rq, right), [q, k, v]) in steps.iter().zip(&inputs) {
                    let out = b.device.slot(q_width);
                    let (q, k, v) = (b.filled(q_width, q), b.filled(kv_width, k), b.filled(kv_width, v));
                    b.device.begin(*n).unwrap();
                    b.device.rope_append(1, q, k, v, norms, p);
                    let d = distance(&b.values(q, rq.len()), rq);
                    assert!(d < 1e-6, "rope_append, {:?}, {}: {d}", rope.pairs, b.name());
                    b.device.attend(1, q, out, look);
                    last = b.values(out, right.len());
                    let d = distance(&last, right);
                    // the norms of the heads are in f64 in the reference: a key may fall to the other f16, or int8
                    let limit = match (norms, kv_type) {
                        (None, _) => 2e-6,
                        (Some(_), KvType::F16) => 2e-5,
                        (Some(_), KvType::Q8_0) => 2e-4,
                    };
                    assert!(d < limit, "{heads}/{kv_heads} heads of {head_dim}, window {window:?}, {n} tokens at {}, {}: {d}", p.start, b.name());
                }
                same_bits(&b, &mut seen, &last, "attend");

                b.device.shift(1, &moved);
                let out = b.device.slot(q_width);
                let q = b.filled(q_width, &q_after);
                b.device.attend(1, q, out, &after);
                let d = distance(&b.values(out, q_width), &right_after);
                assert!(d < 1e-4, "shift, {}: {d}", b.name());
            });
        }
    }
}

/// B063: for 1,000 positions a local layer's query sees 512 at most, a global one's all.
#[test]
#[cfg(not(target_arch = "wasm32"))]
fn b063_a_window_is_512_positions_and_a_global_layer_sees_all() {
    let (n, head_dim) = (1000, 8);
    // Every key is alike, so each visible position has the same weight; the value of position i is one in place i / 125.
    let keys = vec![1.0; n * head_dim];
    let values: Vec<f32> = (0..n * head_dim).map(|i| if i % head_dim == i / head_dim / 125 { 1.0 } else { 0.0 }).collect();
    let q = vec![1.0; n * head_dim];
    for (window, most) in [(Some(512), 512), (None, n)] {
        let p = attend::Params { start: 0, heads: 1, kv_heads: 1, head_dim, scale: 1.0, window };
        let mut out = vec![0.0; n * head_dim];
        attend::reference(&q, &keys, &values, &mut out, &p);
        for (position, row) in out.chunks_exact(head_dim).enumerate() {
            let sees = most.min(position + 1);
            let first = position + 1 - sees;
            for (eighth, &share) in row.iter().enumerate() {
                let inside = (eighth * 125..(eighth + 1) * 125).filter(|i| (first..=position).contains(i)).count();
                assert!((f64::from(share) - inside as f64 / sees as f64).abs() < 1e-6, "window {window:?}, position {position}");
            }
        }
    }
}

#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn a_query_gets_the_same_bits_in_any_chunk() {
    same_bits_in_any_chunk(KvType::F16, (4, 2, 24), 600);
}

/// One to four queries at once, and many: one, two, three and four of them share a key head.
#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn a_query_over_q8_0_gets_the_same_bits_in_any_chunk() {
    for shape in [(4, 2, 24), (3, 3, 40), (3, 1, 64), (4, 1, 80), (2, 1, 256)] {
        same_bits_in_any_chunk(KvType::Q8_0, shape, 411);
    }
}

fn same_bits_in_any_chunk(kv_type: KvType, (heads, kv_heads, head_dim): (usize, usize, usize), n: usize) {
    let mut random = Random::new(7);
    let [q, k, v] = [heads, kv_heads, kv_heads].map(|h| (0..n * h * head_dim).map(|_| random.normal()).collect::<Vec<f32>>());
    for (window, pairs) in [(None, Pairs::Neighbours), (Some(100), Pairs::Halves)] {
        let rope = rope(head_dim, &mut random, pairs);
        let mut seen = None;
        for chunk in [1, 7, 64, 256, n] {
            for mut b in cpus() {
                b.device.cache(&CacheSpec { layers: 1, positions: n, kv_heads, head_dim, kv_type }).unwrap();
                let norm = b.vector(&vec![1.5; head_dim]);
                let mut all = Vec::new();
                for start in (0..n).step_by(chunk) {
                    let m = chunk.min(n - start);
                    let cut = |x: &[f32], h: usize| x[start * h * head_dim..(start + m) * h * head_dim].to_vec();
                    let out = b.device.slot(heads * head_dim);
                    let [q, k, v] = [(&q, heads), (&k, kv_heads), (&v, kv_heads)].map(|(x, h)| b.filled(h * head_dim, &cut(x, h)));
                    b.device.begin(m).unwrap();
                    let p = rope_append::Params { start, heads, kv_heads, head_dim, rope: rope.clone(), eps: 1e-6 };
                    b.device.rope_append(0, q, k, v, Some([norm, norm]), &p);
                    b.device.attend(0, q, out, &attend::Params { start, heads, kv_heads, head_dim, scale: 0.2, window });
                    all.extend(b.values(out, m * heads * head_dim));
                }
                same_bits(&b, &mut seen, &all, "attend in chunks");
            }
        }
    }
}

/// What does not fit, and over q8_0 what is no number, harms nobody: the output is finite, the reference's, and of the same bits everywhere.
#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn keys_and_values_beyond_range_poison_nothing() {
    let (heads, kv_heads, head_dim, n) = (4, 2, 40, 37);
    let mut random = Random::new(8);
    for kv_type in KvType::ALL {
        let mut numbers = |h: usize| (0..n * h * head_dim).map(|_| random.normal()).collect::<Vec<f32>>();
        let (q, mut k, mut v) = (numbers(heads), numbers(kv_heads), numbers(kv_heads));
        let mut odd = vec![f32::INFINITY, f32::NEG_INFINITY, 1e30, -7e4, 1e-30, -0.0, f32::MIN_POSITIVE / 8.0];
        if kv_type == KvType::Q8_0 {
            odd.push(f32::NAN);
        }
        for (i, &odd) in odd.iter().enumerate() {
            (k[97 * i + 5], v[101 * i + 3]) = (odd, odd);
        }
        let mut plain = Plain::new(kv_type, n, kv_heads * head_dim);
        let rope = Rope { dim: 0, base: 10_000.0, scale: 1.0, factors: Vec::new(), pairs: Pairs::Halves };
        let p = rope_append::Params { start: 0, heads, kv_heads, head_dim, rope, eps: 1e-6 };
        rope_append::reference(&mut q.clone(), &mut k.clone(), &v, None, &mut plain, &p);
        let look = attend::Params { start: 0, heads, kv_heads, head_dim, scale: 1e-6, window: None };
        let mut right = vec![0.0; q.len()];
        attend::reference(&q, &plain.keys, &plain.values, &mut right, &look);
        let mut seen = None;
        for mut b in cpus() {
            b.device.cache(&CacheSpec { layers: 1, positions: n, kv_heads, head_dim, kv_type }).unwrap();
            let out = b.device.slot(heads * head_dim);
            let [q, k, v] = [(&q, heads), (&k, kv_heads), (&v, kv_heads)].map(|(x, h)| b.filled(h * head_dim, x));
            b.device.begin(n).unwrap();
            b.device.rope_append(0, q, k, v, None, &p);
            b.device.attend(0, q, out, &look);
            let y = b.values(out, right.len());
            assert!(y.iter().all(|y| y.is_finite()), "{}", b.name());
            assert!(distance(&y, &right) < 2e-6, "{}: {}", b.name(), distance(&y, &right));
            same_bits(&b, &mut seen, &y, "attend beyond range");
        }
    }
}
