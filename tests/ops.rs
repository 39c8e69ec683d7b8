//! Every CPU kernel against its scalar `reference()`, on every instruction set that this machine has.
//!
//! Products and attention are sums in another order than the reference's, so they are compared within a tolerance; between instruction
//! sets they must be equal to the bit.

mod common;

use common::Random;
use common::blocks::random_rows;
use rillm::backend::cpu::{Cpu, Variant};
use rillm::backend::{Backend, CacheSpec, Ids, Kind, Output, Residual, Slot, Tensor, TensorSpec, Want};
use rillm::ops::rope_append::{Pairs, Rope};
use rillm::ops::{attend, embed, linear, norm_linear, pick, rope_append, sample, shift};
use rillm::quant::Format;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test;

#[cfg(target_arch = "wasm32")]
wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_dedicated_worker);

/// A backend under test.
struct Bench {
    cpu: Cpu,
}

impl Bench {
    fn matrix(&mut self, format: Format, rows: usize, cols: usize, bytes: &[u8]) -> Tensor {
        let spec = TensorSpec { name: "w", format, rows, cols, kind: Kind::Matrix };
        let t = self.cpu.tensor(&spec).unwrap();
        // in strips of different heights, as a loader does
        let row = bytes.len() / rows;
        let mut at = 0;
        for height in [1, 2, 5, 64].into_iter().cycle() {
            let end = (at + height).min(rows);
            self.cpu.upload(t, at..end, &bytes[at * row..end * row]).unwrap();
            at = end;
            if at == rows {
                return t;
            }
        }
        unreachable!()
    }
    fn vector(&mut self, values: &[f32]) -> Tensor {
        let spec = TensorSpec { name: "norm", format: Format::F32, rows: 1, cols: values.len(), kind: Kind::Vector };
        let t = self.cpu.tensor(&spec).unwrap();
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.cpu.upload(t, 0..1, &bytes).unwrap();
        t
    }
    fn filled(&mut self, width: usize, values: &[f32]) -> Slot {
        let slot = self.cpu.slot(width);
        self.cpu.begin(values.len() / width).unwrap();
        self.cpu.slot_mut(slot)[..values.len()].copy_from_slice(values);
        slot
    }
}

fn benches() -> impl Iterator<Item = Bench> {
    Variant::available().into_iter().map(|v| Bench { cpu: Cpu::new(v) })
}

/// The relative distance of two vectors in the L2 norm.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let sum = |f: &dyn Fn(f64, f64) -> f64| a.iter().zip(b).map(|(&a, &b)| f(f64::from(a), f64::from(b))).sum::<f64>();
    (sum(&|a, b| (a - b).powi(2)) / sum(&|_, b| b * b).max(1e-30)).sqrt()
}

fn same_bits(seen: &mut Option<Vec<u32>>, now: &[f32], what: &str) {
    let bits: Vec<u32> = now.iter().map(|x| x.to_bits()).collect();
    match seen {
        None => *seen = Some(bits),
        Some(before) => assert!(*before == bits, "{what}: instruction sets differ"),
    }
}

fn floats(format: Format) -> bool {
    matches!(format, Format::F32 | Format::F16 | Format::BF16)
}

#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn linear_equals_its_reference_for_every_format_and_awkward_sizes() {
    let mut random = Random::new(1);
    for format in Format::ALL {
        let block = format.block_len();
        let sizes: &[(usize, usize)] = if block == 1 { &[(1, 1), (5, 31), (7, 33), (12, 576)] } else { &[(1, 1), (5, 3), (33, 2), (64, 7)] };
        for &(rows, per) in sizes {
            let cols = per * block;
            let (bytes, w) = random_rows(&mut random, format, rows, cols);
            for tokens in [1, 2, 3, 4, 5, 9] {
                let x_values: Vec<f32> = (0..tokens * cols).map(|_| random.normal() * 3.0).collect();
                let mut right = vec![0.0; tokens * rows];
                let p = linear::Params::new(format, rows, cols);
                linear::reference(&x_values, &w, &mut right, &p);
                let mut seen = None;
                for mut b in benches() {
                    let t = b.matrix(format, rows, cols, &bytes);
                    let out = b.cpu.slot(rows);
                    let x = b.filled(cols, &x_values);
                    b.cpu.linear(x, t, out);
                    let y = &b.cpu.slot_mut(out)[..tokens * rows];
                    // the K types' scales are rounded to f16; everything else is exact but for the order of the sums
                    let limit = if matches!(format, Format::Q4_K | Format::Q5_K | Format::Q6_K) { 1e-3 } else { 1e-6 };
                    same_bits(&mut seen, y, "linear");
                    for (i, (&y, &right)) in y.iter().zip(&right).enumerate() {
                        let (x, w) = (&x_values[i / rows * cols..][..cols], &w[i % rows * cols..][..cols]);
                        let size: f32 = x.iter().zip(w).map(|(x, w)| (x * w).abs()).sum();
                        let d = (y - right).abs() / size;
                        assert!(d < limit, "{format:?} {rows}x{cols}, {tokens} tokens, {:?}: {d}", b.cpu.describe());
                    }
                }
            }
        }
    }
}

#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn a_token_gets_the_same_bits_alone_and_among_others() {
    let mut random = Random::new(2);
    for format in Format::ALL {
        let (rows, cols) = (37, 512);
        let (bytes, _) = random_rows(&mut random, format, rows, cols);
        let x: Vec<f32> = (0..23 * cols).map(|_| random.normal()).collect();
        for mut b in benches() {
            let t = b.matrix(format, rows, cols, &bytes);
            let out = b.cpu.slot(rows);
            let all = b.filled(cols, &x);
            b.cpu.linear(all, t, out);
            let together = b.cpu.slot_mut(out)[..23 * rows].to_vec();
            for (token, x) in x.chunks_exact(cols).enumerate() {
                let one = b.filled(cols, x);
                b.cpu.linear(one, t, out);
                assert_eq!(b.cpu.slot_mut(out)[..rows], together[token * rows..][..rows], "{format:?}");
            }
        }
    }
}

#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn embed_gives_the_dequantized_rows() {
    let mut random = Random::new(3);
    for format in Format::ALL {
        let (rows, cols) = (9, if floats(format) { 33 } else { 256 });
        let (bytes, w) = random_rows(&mut random, format, rows, cols);
        let ids = [8, 0, 3, 3];
        for scale in [1.0, 24.0] {
            let p = embed::Params { scale };
            let mut right = vec![0.0; ids.len() * cols];
            embed::reference(&w, &ids, &mut right, &p);
            for mut b in benches() {
                let t = b.matrix(format, rows, cols, &bytes);
                let out = b.cpu.slot(cols);
                b.cpu.begin(ids.len()).unwrap();
                b.cpu.embed(t, Ids::Host(&ids), out, &p);
                let d = distance(&b.cpu.slot_mut(out)[..right.len()], &right);
                assert!(d < if matches!(format, Format::Q4_K | Format::Q5_K | Format::Q6_K) { 6e-4 } else { 1e-7 }, "{format:?}: {d}");
            }
        }
    }
}

#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn norm_linear_equals_its_reference_with_and_without_pending_and_activation() {
    let mut random = Random::new(4);
    for (dim, ffn, tokens) in [(32, 64, 1), (96, 32, 5), (576, 160, 3)] {
        for with_pending in [false, true] {
            for activation in [None, Some(norm_linear::Activation::Silu)] {
                let formats = [Format::Q4_1, Format::Q8_0];
                let mats: Vec<_> = formats.iter().map(|&f| random_rows(&mut random, f, ffn, dim)).collect();
                let norm: Vec<f32> = (0..dim).map(|_| 1.0 + random.normal() * 0.3).collect();
                let x: Vec<f32> = (0..tokens * dim).map(|_| random.normal() * 5.0).collect();
                let y: Vec<f32> = (0..tokens * dim).map(|_| random.normal()).collect();
                let p = norm_linear::Params { eps: 1e-5, activation };
                let mut sum = x.clone();
                let refs: Vec<_> = formats.iter().zip(&mats).map(|(&f, (_, w))| (&w[..], linear::Params::new(f, ffn, dim))).collect();
                let right = norm_linear::reference(&mut sum, with_pending.then_some(&y[..]), &norm, &refs, &p);
                let mut seen = None;
                for mut b in benches() {
                    let ts: Vec<Tensor> = formats.iter().zip(&mats).map(|(&f, (bytes, _))| b.matrix(f, ffn, dim, bytes)).collect();
                    let norm = b.vector(&norm);
                    let (gate, up, other) = (b.cpu.slot(ffn), b.cpu.slot(ffn), b.cpu.slot(dim));
                    let x = b.filled(dim, &x);
                    let pending = b.filled(dim, &y);
                    let residual = Residual { x, pending: with_pending.then_some((pending, None)), sum: other };
                    b.cpu.norm_linear(residual, norm, &[(ts[0], gate), (ts[1], up)], &p);
                    for (slot, right) in [gate, up].into_iter().zip(&right) {
                        let got = &b.cpu.slot_mut(slot)[..right.len()];
                        let d = distance(got, right);
                        // one int8 value at a rounding edge may fall to the other side: the reference's norm is in f64
                        assert!(d < 2e-3, "dim {dim}, pending {with_pending}, {activation:?}: {d}");
                        if slot == gate {
                            same_bits(&mut seen, got, "norm_linear");
                        }
                    }
                    if with_pending {
                        assert!(distance(&b.cpu.slot_mut(other)[..sum.len()], &sum) < 1e-7);
                    }
                }
            }
        }
    }
}

#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn a_norm_is_right_for_a_row_with_one_value_of_60000() {
    let dim = 64;
    let mut x = vec![0.01; dim];
    x[7] = 60_000.0;
    let (bytes, w) = random_rows(&mut Random::new(5), Format::F32, 8, dim);
    let p = norm_linear::Params { eps: 1e-6, activation: None };
    let norm = vec![1.0; dim];
    let right = norm_linear::reference(&mut x.clone(), None, &norm, &[(&w, linear::Params::new(Format::F32, 8, dim))], &p);
    for mut b in benches() {
        let (t, norm) = (b.matrix(Format::F32, 8, dim, &bytes), b.vector(&norm));
        let out = b.cpu.slot(8);
        let sum = b.cpu.slot(dim);
        let x = b.filled(dim, &x);
        b.cpu.norm_linear(Residual { x, pending: None, sum }, norm, &[(t, out)], &p);
        assert!(distance(&b.cpu.slot_mut(out)[..8], &right[0]) < 1e-6);
    }
}

fn rope(dim: usize, random: &mut Random) -> Rope {
    let factors = if random.below(2) == 0 { Vec::new() } else { (0..dim / 2).map(|_| 1.0 + random.below(8) as f32).collect() };
    Rope { dim, base: 10_000.0, scale: if random.below(2) == 0 { 1.0 } else { 4.0 }, factors, pairs: Pairs::Neighbours }
}

#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn rope_append_attend_and_shift_equal_their_references() {
    let mut random = Random::new(6);
    for (heads, kv_heads, head_dim, rope_dim) in [(9, 3, 64, 64), (4, 4, 20, 12), (6, 1, 8, 8), (2, 2, 128, 64)] {
        for window in [None, Some(7), Some(300)] {
            let positions = 700;
            let (q_width, kv_width) = (heads * head_dim, kv_heads * head_dim);
            let rope = rope(rope_dim, &mut random);
            let chunks = [1, 3, 255, 2, 64, 301, 1];
            let inputs: Vec<[Vec<f32>; 3]> = chunks
                .iter()
                .map(|&n| [n * q_width, n * kv_width, n * kv_width].map(|len| (0..len).map(|_| random.normal() * 2.0).collect()))
                .collect();
            let mut seen = None;
            for mut b in benches() {
                b.cpu.cache(&CacheSpec { layers: 2, positions, kv_heads, head_dim }).unwrap();
                let (mut keys, mut values) = (vec![0; positions * kv_width], vec![0; positions * kv_width]);
                let mut start = 0;
                let mut last = Vec::new();
                for (&n, [q, k, v]) in chunks.iter().zip(&inputs) {
                    let p = rope_append::Params { start, heads, kv_heads, head_dim, rope: rope.clone() };
                    let look = attend::Params { start, heads, kv_heads, head_dim, scale: 1.0 / (head_dim as f32).sqrt(), window };
                    let (mut rq, mut rk) = (q.clone(), k.clone());
                    rope_append::reference(&mut rq, &mut rk, v, &mut keys, &mut values, &p);
                    let mut right = vec![0.0; n * q_width];
                    attend::reference(&rq, &keys, &values, &mut right, &look);

                    let out = b.cpu.slot(q_width);
                    let (q, k, v) = (b.filled(q_width, q), b.filled(kv_width, k), b.filled(kv_width, v));
                    b.cpu.begin(n).unwrap();
                    b.cpu.rope_append(1, q, k, v, &p);
                    assert!(distance(&b.cpu.slot_mut(q)[..rq.len()], &rq) < 1e-6);
                    b.cpu.attend(1, q, out, &look);
                    last = b.cpu.slot_mut(out)[..right.len()].to_vec();
                    let d = distance(&last, &right);
                    assert!(d < 2e-6, "{heads}/{kv_heads} heads of {head_dim}, window {window:?}, {n} tokens at {start}: {d}");
                    start += n;
                }
                same_bits(&mut seen, &last, "attend");

                // what is left after a shift is what the reference leaves
                let (keep, drop) = (4, 40);
                let p = shift::Params { from: keep + drop..start, to: keep, kv_heads, head_dim, rope: rope.clone() };
                shift::reference(&mut keys, &mut values, &p);
                b.cpu.shift(&p);
                let at = start - drop;
                let look = attend::Params { start: at - 1, heads, kv_heads, head_dim, scale: 0.1, window: None };
                let q: Vec<f32> = (0..q_width).map(|i| (i as f32).sin()).collect();
                let mut right = vec![0.0; q_width];
                attend::reference(&q, &keys, &values, &mut right, &look);
                let out = b.cpu.slot(q_width);
                let q = b.filled(q_width, &q);
                b.cpu.attend(1, q, out, &look);
                assert!(distance(&b.cpu.slot_mut(out)[..q_width], &right) < 2e-6, "shift");
            }
        }
    }
}

#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn a_query_gets_the_same_bits_in_any_chunk() {
    let mut random = Random::new(7);
    let (heads, kv_heads, head_dim, n) = (4, 2, 24, 600);
    let [q, k, v] = [heads, kv_heads, kv_heads].map(|h| (0..n * h * head_dim).map(|_| random.normal()).collect::<Vec<f32>>());
    let rope = rope(head_dim, &mut random);
    for window in [None, Some(100)] {
        let mut seen = None;
        for chunk in [1, 7, 64, 256, 600] {
            for mut b in benches() {
                b.cpu.cache(&CacheSpec { layers: 1, positions: n, kv_heads, head_dim }).unwrap();
                let mut all = Vec::new();
                for start in (0..n).step_by(chunk) {
                    let m = chunk.min(n - start);
                    let cut = |x: &[f32], h: usize| x[start * h * head_dim..(start + m) * h * head_dim].to_vec();
                    let out = b.cpu.slot(heads * head_dim);
                    let [q, k, v] = [(&q, heads), (&k, kv_heads), (&v, kv_heads)].map(|(x, h)| b.filled(h * head_dim, &cut(x, h)));
                    b.cpu.begin(m).unwrap();
                    b.cpu.rope_append(0, q, k, v, &rope_append::Params { start, heads, kv_heads, head_dim, rope: rope.clone() });
                    b.cpu.attend(0, q, out, &attend::Params { start, heads, kv_heads, head_dim, scale: 0.2, window });
                    all.extend_from_slice(&b.cpu.slot_mut(out)[..m * heads * head_dim]);
                }
                same_bits(&mut seen, &all, "attend in chunks");
            }
        }
    }
}

#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn picks_equal_the_reference_over_the_logits() {
    let mut random = Random::new(8);
    let (vocab, dim) = (9001, 64);
    let (bytes, w) = random_rows(&mut random, Format::Q8_0, vocab, dim);
    let x: Vec<f32> = (0..5 * dim).map(|_| random.normal()).collect();
    let norm = vec![1.0; dim];
    for mut b in benches() {
        let (t, norm_t) = (b.matrix(Format::Q8_0, vocab, dim, &bytes), b.vector(&norm));
        let sum = b.cpu.slot(dim);
        let slot = b.filled(dim, &x);
        let residual = Residual { x: slot, pending: None, sum };
        let (rows, targets) = ([0, 1, 2, 4], [0, 4096, 9000, 17]);
        b.cpu.sample(residual, norm_t, t, 1e-6, &Want::Picks { rows: &rows, targets: &targets });
        let Output { picks, .. } = pollster::block_on(b.cpu.read()).unwrap();
        assert_eq!(picks.len(), 4);
        for (i, (&row, pick)) in rows.iter().zip(&picks).enumerate() {
            let normed = norm_linear::rms_norm(&x[row * dim..][..dim], &norm, 1e-6);
            let mut logits = vec![0.0; vocab];
            linear::reference(&normed, &w, &mut logits, &linear::Params::new(Format::Q8_0, vocab, dim));
            let right = pick::reference(&logits, Some(targets[i])).unwrap();
            assert_eq!((pick.id, pick.top_id), (right.id, right.top_id));
            assert!((pick.logprob - right.logprob).abs() < 0.02 && (pick.top_logprob - right.top_logprob).abs() < 0.02, "{pick:?} {right:?}");
        }
        b.cpu.begin(5).unwrap();
        b.cpu.sample(residual, norm_t, t, 1e-6, &Want::Logits);
        let Output { logits, .. } = pollster::block_on(b.cpu.read()).unwrap();
        b.cpu.begin(5).unwrap();
        b.cpu.sample(residual, norm_t, t, 1e-6, &Want::Picks { rows: &[4], targets: &[17] });
        let pick = pollster::block_on(b.cpu.read()).unwrap().picks[0];
        assert_eq!(pick::reference(&logits, Some(17)).map(|p| p.top_id), Some(pick.top_id));
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
