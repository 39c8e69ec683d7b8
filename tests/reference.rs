//! The whole model against a forward made of nothing but the operations' scalar `reference()`s, in f64, over the dequantized file.
//!
//! With float weights the two agree to the rounding of f32. With int8 activations they can't: a difference of 1e-7 somewhere turns one
//! value of a block the other way, which is a step of 1/127 there and moves others over their edges; after a few layers the roundings are
//! as good as independent, and the distance is that of two correct engines (0.06 to 0.09 on average). So a quantized model is held
//! against this reference within the limits of a score, and against the *scalar path* of the same kernels to the bit. What that path says
//! is stored in `tests/data/*-reference.json`, so that a browser can be held against it (at most 0.002 on average).
//! `RILLM_WRITE_REFERENCE=1 cargo test --features cli --test reference` writes it anew.
#![cfg(not(target_arch = "wasm32"))]

mod common;

use common::gguf_writer::TinyModel;
use common::{golden, models};
use pollster::block_on;
use rillm::backend::KvType;
use rillm::backend::cpu::{Cpu, Variant};
use rillm::gguf::Gguf;
use rillm::load::{LoadOptions, Loader};
use rillm::model::Config;
use rillm::ops::kv::Plain;
use rillm::ops::rope_append::Rope;
use rillm::ops::{attend, embed, linear, norm_linear, pick, rope_append};
use rillm::quant::Format;
use rillm::session::Engine;

const TOKENS: usize = 128;

/// A file, dequantized a tensor at a time.
struct Weights {
    bytes: Vec<u8>,
    gguf: Gguf,
}

impl Weights {
    fn get(&self, name: &str) -> (Vec<f32>, linear::Params) {
        let t = self.gguf.tensor(name).unwrap();
        let range = self.gguf.file_range(t);
        let mut out = vec![0.0; t.rows() * t.cols()];
        t.format.dequantize(&self.bytes[range.start as usize..range.end as usize], &mut out);
        (out, linear::Params::new(t.format, t.rows(), t.cols()))
    }
}

fn borrowed(pending: &Option<(Vec<f32>, Option<Vec<f32>>)>) -> Option<norm_linear::Pending<'_>> {
    pending.as_ref().map(|(y, norm)| (&y[..], norm.as_deref()))
}

/// The log-probability of each token after the first.
fn reference(w: &Weights, ids: &[u32], kv_type: KvType) -> Vec<f32> {
    let table = w.get("token_embd.weight");
    let c = Config::from_metadata(&w.gguf.metadata, table.1.rows).unwrap();
    let (n, q_width, kv_width) = (ids.len(), c.heads * c.head_dim, c.kv_heads * c.head_dim);
    let (start, heads, kv_heads, head_dim, eps, scale) = (0, c.heads, c.kv_heads, c.head_dim, c.eps, c.attention_scale);
    let (plain, gated) = (norm_linear::Params { eps, activation: None }, norm_linear::Params { eps, activation: Some(c.activation) });
    let product = |x: &[f32], w: &(Vec<f32>, linear::Params)| {
        let mut y = vec![0.0; x.len() / w.1.cols * w.1.rows];
        linear::reference(x, &w.0, &mut y, &w.1);
        y
    };

    let mut x = vec![0.0; n * c.dim];
    embed::reference(&table.0, ids, &mut x, &embed::Params { scale: c.embedding_scale });
    let mut pending: Option<(Vec<f32>, Option<Vec<f32>>)> = None;
    for layer in 0..c.layers {
        let get = |name: &str| w.get(&format!("blk.{layer}.{name}.weight"));
        let post = |name: &str| c.post_norms.then(|| get(name).0);
        let a = c.attention[c.kinds[layer]];
        let rope = Rope { dim: c.rope_dim, base: a.rope_base, scale: a.rope_scale, factors: Vec::new(), pairs: c.rope_pairs };
        let rope = rope_append::Params { start, heads, kv_heads, head_dim, rope, eps };
        let look = attend::Params { start, heads, kv_heads, head_dim, scale, window: a.window };
        let [wq, wk, wv, gate, up] = ["attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"].map(get);
        let norm = get("attn_norm").0;
        let qkv = norm_linear::reference(&mut x, borrowed(&pending), &norm, &[(&wq.0, wq.1), (&wk.0, wk.1), (&wv.0, wv.1)], &plain);
        let [mut q, mut k, v] = <[Vec<f32>; 3]>::try_from(qkv).unwrap();
        let mut cache = Plain::new(kv_type, n, kv_width);
        let head_norms = c.head_norms.then(|| [get("attn_q_norm").0, get("attn_k_norm").0]);
        let head_norms = head_norms.as_ref().map(|[q, k]| [&q[..], &k[..]]);
        rope_append::reference(&mut q, &mut k, &v, head_norms, &mut cache, &rope);
        let mut gathered = vec![0.0; n * q_width];
        attend::reference(&q, &cache.keys, &cache.values, &mut gathered, &look);
        let attention = Some((product(&gathered, &get("attn_output")), post("post_attention_norm")));
        let norm = get("ffn_norm").0;
        let h = norm_linear::reference(&mut x, borrowed(&attention), &norm, &[(&gate.0, gate.1), (&up.0, up.1)], &gated);
        pending = Some((product(&h[0], &get("ffn_down")), post("post_ffw_norm")));
    }
    let output = if w.gguf.tensor("output.weight").is_some() { w.get("output.weight") } else { table };
    let logits = norm_linear::reference(&mut x, borrowed(&pending), &w.get("output_norm.weight").0, &[(&output.0, output.1)], &plain);
    let rows = logits[0].chunks_exact(c.vocab).zip(&ids[1..]);
    rows.map(|(logits, &target)| pick::reference(logits, Some(target)).unwrap().logprob).collect()
}

fn score(variant: Variant, bytes: &[u8], ids: &[u32], kv_type: KvType) -> Vec<f32> {
    let options = LoadOptions { context_length: Some(256), kv_type, ..LoadOptions::default() };
    let mut loader = Loader::new(Cpu::new(variant), Some(bytes.len() as u64), options);
    loader.push(bytes).unwrap();
    let mut engine = Engine::new(loader.finish().unwrap());
    let mut scoring = engine.score(ids.to_vec()).unwrap();
    while !block_on(engine.score_step(&mut scoring)).unwrap() {}
    scoring.picks().iter().map(|p| p.logprob).collect()
}

fn mean_difference(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs())).sum::<f64>() / a.len() as f64
}

#[test]
fn with_float_weights_the_forward_is_its_reference() {
    for (format, tied, heads, kv_heads) in [(Format::F32, true, 4, 2), (Format::F16, false, 4, 4), (Format::BF16, true, 6, 1)] {
        check_float_model(&TinyModel { format, tied, heads, kv_heads, layers: 3, context: 256, ..TinyModel::default() });
    }
}

fn check_float_model(model: &TinyModel) {
    let bytes = model.bytes();
    let gguf = Gguf::parse_whole(&bytes).unwrap();
    let vocab = gguf.tensor("token_embd.weight").unwrap().rows() as u32;
    let ids: Vec<u32> = (0..150).map(|i| (i * 37 + 11) % vocab).collect();
    let weights = Weights { bytes: bytes.clone(), gguf };
    for kv_type in KvType::ALL {
        let right = reference(&weights, &ids, kv_type);
        let spread = right.iter().copied().fold(f32::NEG_INFINITY, f32::max) - right.iter().copied().fold(f32::INFINITY, f32::min);
        assert!(spread > 0.5, "all log-probabilities are alike: the test would see nothing");
        for variant in Variant::available() {
            let off = mean_difference(&score(variant, &bytes, &ids, kv_type), &right);
            assert!(off < 2e-4, "{model:?}, {variant:?}, {}: {off}", kv_type.name()); // keys and values fall to either side
        }
    }
}

#[test]
fn gemmas_forward_is_its_reference_past_the_window() {
    // local layers and global ones, a window that ends inside the text, two rotations, norms of the heads and behind the blocks
    let formats = vec![("attn_v", Format::F16), ("token_embd", Format::F32)];
    let model = TinyModel { architecture: "gemma3", format: Format::F32, formats, layers: 7, context: 256, window: 20, ..TinyModel::default() };
    check_float_model(&model);
}

#[test]
fn smollm2_is_near_its_reference_and_equal_to_the_scalar_path() {
    check_real_model(models::SMOLLM2, &golden::smollm2(), "smollm2-reference.json", TOKENS);
}

#[test]
fn gemma3_is_near_its_reference_and_equal_to_the_scalar_path() {
    check_real_model(models::GEMMA3, &golden::gemma3(), "gemma3-reference.json", 64);
}

/// `in_f64`: how many tokens the reference in f64 is given, which takes its time.
fn check_real_model(file: &str, golden: &serde_json::Value, stored: &str, in_f64: usize) {
    let bytes = std::fs::read(models::path(file)).unwrap();
    let ids = golden::ids(&golden["logprobs"]["ids"])[..TOKENS].to_vec();
    let ours = score(Variant::detect(), &bytes, &ids, KvType::F16);
    let scalar = score(Variant::available()[0], &bytes, &ids, KvType::F16);
    assert_eq!(ours, scalar);

    let stored = format!("{}/tests/data/{stored}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("RILLM_WRITE_REFERENCE").is_some() {
        std::fs::write(&stored, serde_json::to_string(&scalar).unwrap() + "\n").unwrap();
    }
    let stored: Vec<f32> = serde_json::from_str(&std::fs::read_to_string(stored).unwrap()).unwrap();
    golden::check_reference(&stored, &ours);

    let gguf = Gguf::parse_whole(&bytes).unwrap();
    let right = reference(&Weights { bytes, gguf }, &ids[..in_f64], KvType::F16);
    let off = mean_difference(&right, &ours[..in_f64 - 1]);
    println!("{file} against the reference in f64: {off:.4} on average");
    assert!(off <= 0.10, "{off}");
}
