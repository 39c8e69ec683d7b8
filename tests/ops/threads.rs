//! The same bits for any number of threads, with sizes that are worth several pieces each.

use rillm::backend::cpu::{Cpu, Pool, Variant};
use rillm::backend::{Backend, CacheSpec, KvType, Residual};
use rillm::ops::norm_linear::{Activation, Params};
use rillm::ops::rope_append::{Pairs, Rope};
use rillm::ops::{attend, rope_append};
use rillm::quant::Format;

use crate::common::Random;
use crate::common::blocks::random_rows;
use crate::device::{Bench, same_bits};

/// The best path on 1, 2, 3 and 8 threads.
fn pools() -> impl Iterator<Item = Bench<Cpu>> {
    [1, 2, 3, 8].into_iter().map(|n| {
        let device = Cpu::with_pool(Variant::detect(), Pool::new(n));
        assert_eq!(device.threads(), n);
        Bench { device }
    })
}

#[test]
fn products_do_not_depend_on_threads() {
    let mut random = Random::new(20);
    for format in Format::ALL {
        // not a multiple of eight rows
        let (rows, cols) = (1003, 512);
        let (bytes, _) = random_rows(&mut random, format, rows, cols);
        for tokens in [1, 3, 37] {
            let x: Vec<f32> = (0..tokens * cols).map(|_| random.normal()).collect();
            let mut seen = None;
            for mut b in pools() {
                let w = b.matrix(format, rows, cols, &bytes);
                let out = b.device.slot(rows);
                let x = b.filled(cols, &x);
                b.device.linear(x, w, out);
                let y = b.values(out, tokens * rows);
                same_bits(&b, &mut seen, &y, "linear");
            }
        }
    }
}

#[test]
fn norms_with_three_matrices_and_gates_do_not_depend_on_threads() {
    let mut random = Random::new(21);
    let dim = 576;
    let sizes = [(Format::Q5_0, 520), (Format::Q8_0, 200), (Format::Q4_1, 203)];
    let bytes = sizes.map(|(format, rows)| random_rows(&mut random, format, rows, dim).0);
    let gates = [(Format::Q4_1, 1536), (Format::Q6_K, 1536)];
    let gate_dim = 768;
    let gate_bytes = gates.map(|(format, rows)| random_rows(&mut random, format, rows, gate_dim).0);
    for tokens in [1, 40] {
        let mut values = |n: usize| (0..n).map(|_| random.normal()).collect::<Vec<f32>>();
        let (x, pending, weight) = (values(tokens * dim), values(tokens * dim), values(dim));
        let (gate_x, gate_weight) = (values(tokens * gate_dim), values(gate_dim));
        let mut seen = None;
        for mut b in pools() {
            let norm = b.vector(&weight);
            let outputs: Vec<_> = sizes.iter().zip(&bytes).map(|(&(f, rows), bytes)| (b.matrix(f, rows, dim, bytes), b.device.slot(rows))).collect();
            let (sum, pending, x) = (b.device.slot(dim), b.filled(dim, &pending), b.filled(dim, &x));
            b.device.begin(tokens).unwrap();
            let residual = Residual { x, pending: Some((pending, Some(norm))), sum };
            b.device.norm_linear(residual, norm, &outputs, &Params { eps: 1e-5, activation: None });
            let mut all = b.values(sum, tokens * dim);
            for (&(_, slot), (_, rows)) in outputs.iter().zip(sizes) {
                all.extend(b.values(slot, tokens * rows));
            }
            let norm = b.vector(&gate_weight);
            let outputs: Vec<_> =
                gates.iter().zip(&gate_bytes).map(|(&(f, rows), bytes)| (b.matrix(f, rows, gate_dim, bytes), b.device.slot(rows))).collect();
            let x = b.filled(gate_dim, &gate_x);
            b.device.begin(tokens).unwrap();
            let residual = Residual { x, pending: None, sum: x };
            b.device.norm_linear(residual, norm, &outputs, &Params { eps: 1e-5, activation: Some(Activation::Silu) });
            all.extend(b.values(outputs[0].1, tokens * 1536));
            same_bits(&b, &mut seen, &all, "norm_linear");
        }
    }
}

#[test]
fn attention_does_not_depend_on_threads() {
    let mut random = Random::new(22);
    let (heads, kv_heads, head_dim, n) = (9, 3, 64, 600);
    let [q, k, v] = [heads, kv_heads, kv_heads].map(|h| (0..n * h * head_dim).map(|_| random.normal()).collect::<Vec<f32>>());
    for (window, kv_type) in [None, Some(100)].into_iter().flat_map(|w| KvType::ALL.map(|t| (w, t))) {
        let mut seen = None;
        for mut b in pools() {
            b.device.cache(&CacheSpec { layers: 1, positions: n, kv_heads, head_dim, kv_type }).unwrap();
            let rope = Rope { dim: head_dim, base: 10_000.0, scale: 1.0, factors: Vec::new(), pairs: Pairs::Halves };
            let norm = b.vector(&vec![1.5; head_dim]);
            let mut all = Vec::new();
            let mut start = 0;
            for m in [520, 1, 33, 1, 45] {
                let cut = |x: &[f32], h: usize| x[start * h * head_dim..(start + m) * h * head_dim].to_vec();
                let out = b.device.slot(heads * head_dim);
                let [q, k, v] = [(&q, heads), (&k, kv_heads), (&v, kv_heads)].map(|(x, h)| b.filled(h * head_dim, &cut(x, h)));
                b.device.begin(m).unwrap();
                let p = rope_append::Params { start, heads, kv_heads, head_dim, rope: rope.clone(), eps: 1e-6 };
                b.device.rope_append(0, q, k, v, Some([norm, norm]), &p);
                b.device.attend(0, q, out, &attend::Params { start, heads, kv_heads, head_dim, scale: 0.125, window });
                all.extend(b.values(out, m * heads * head_dim));
                start += m;
            }
            same_bits(&b, &mut seen, &all, "attend");
        }
    }
}
