//! Two further oracles: the same forward on candle's tensors, and candle's own models. Candle's products of quantized weights are slow here,
//! so a part of the golden text is scored.

use std::collections::HashMap;

use candle_core::quantized::gguf_file::Content;
use candle_core::{DType, Device, Tensor};
use candle_nn::{Activation, VarBuilder};
use candle_transformers::models::{gemma3, quantized_llama};
use pollster::block_on;
use rillm::backend::Want;
use rillm::backend::candle::Candle;
use rillm::gguf::Gguf;
use rillm::model::Config;
use rillm::ops::pick;
use rillm::session::predict::Predict;
use serde_json::Value;

use crate::common::{golden, models};
use crate::{best, engine, logprobs};

/// The first `tokens` of the golden text in one prefill, every `step`th of them scored; and a greedy text.
fn check_part(file: &str, golden: &Value, tokens: usize, step: usize) {
    let ids = golden::ids(&golden["logprobs"]["ids"]);
    let mut engine = engine(Candle::new("cpu").unwrap(), file);
    let rows: Vec<usize> = (0..tokens).step_by(step).collect();
    let targets: Vec<u32> = rows.iter().map(|&row| ids[row + 1]).collect();
    let picks = block_on(engine.runner().run(&ids[..tokens], Some(&Want::Picks { rows: &rows, targets: &targets }))).unwrap().picks;
    golden::check_positions(golden, rows.iter().zip(&picks).map(|(&row, pick)| (row, pick.logprob)));

    engine.runner().truncate(0);
    let (ids, prompt) = golden::greedy(golden).swap_remove(0);
    let rows: Vec<usize> = (prompt - 1..ids.len() - 1).collect();
    let picks = block_on(engine.runner().run(&ids, Some(&Want::Picks { rows: &rows, targets: &ids[prompt..] }))).unwrap().picks;
    golden::check_greedy(&picks.iter().map(|p| p.top_logprob - p.logprob).collect::<Vec<_>>());
}

#[test]
fn smollm2_scores_as_it_should_on_candles_tensors() {
    check_part(models::SMOLLM2, &golden::smollm2(), 400, 2);
}

/// Past the window of 512.
#[test]
fn gemma3_scores_as_it_should_on_candles_tensors() {
    check_part(models::GEMMA3, &golden::gemma3(), 720, 4);
}

/// Tokens for candle's own models, which give the logits of one position at a time.
const TOKENS: usize = 64;

fn compare(file: &str, golden: &Value, mut forward: impl FnMut(&Tensor, usize) -> Tensor) {
    let ids = golden::ids(&golden["logprobs"]["ids"])[..TOKENS].to_vec();
    let ours = logprobs(&mut best(file), ids.clone());
    let theirs = ids.windows(2).enumerate().map(|(i, pair)| {
        let logits = forward(&Tensor::new(&[[pair[0]]], &Device::Cpu).unwrap(), i);
        let logits: Vec<f32> = logits.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        pick::reference(&logits, Some(pair[1])).unwrap().logprob
    });
    let differences: Vec<f32> = theirs.zip(&ours).map(|(t, o)| (t - o).abs()).collect();
    let mean = differences.iter().sum::<f32>() / differences.len() as f32;
    println!("{file} against candle-transformers: {mean:.4} on average");
    assert!(mean <= 0.10, "{file}: {mean}");
}

#[test]
fn smollm2_agrees_with_candle_transformers() {
    let mut reader = std::fs::File::open(models::path(models::SMOLLM2)).unwrap();
    let content = Content::read(&mut reader).unwrap();
    let mut model = quantized_llama::ModelWeights::from_gguf(content, &mut reader, &Device::Cpu).unwrap();
    compare(models::SMOLLM2, &golden::smollm2(), |ids, at| model.forward(ids, at).unwrap());
}

/// With candle's float model over the dequantized weights: its `quantized_gemma3` (0.11) applies SiLU where Gemma has GELU, and is 1.6 off.
#[test]
fn gemma3_agrees_with_candle_transformers() {
    let bytes = std::fs::read(models::path(models::GEMMA3)).unwrap();
    let gguf = Gguf::parse_whole(&bytes).unwrap();
    let vocab = gguf.tensor("token_embd.weight").unwrap().rows();
    let c = Config::from_metadata(&gguf.metadata, vocab).unwrap();
    let mut weights = HashMap::new();
    for t in &gguf.tensors {
        let mut values = vec![0.0; t.rows() * t.cols()];
        let range = gguf.file_range(t);
        t.format.dequantize(&bytes[range.start as usize..range.end as usize], &mut values);
        if t.rows() == 1 {
            values.iter_mut().for_each(|w| *w -= 1.0); // files have the norms' 1 added already
        }
        let shape: &[usize] = if t.rows() == 1 { &[t.cols()] } else { &[t.rows(), t.cols()] };
        weights.insert(candles_name(&t.name), Tensor::from_vec(values, shape, &Device::Cpu).unwrap());
    }
    let (local, global) = (c.attention[0], c.attention[1]);
    let config = gemma3::Config {
        attention_bias: false,
        head_dim: c.head_dim,
        hidden_activation: Activation::GeluPytorchTanh,
        hidden_size: c.dim,
        intermediate_size: c.ffn_dim,
        num_attention_heads: c.heads,
        num_hidden_layers: c.layers,
        num_key_value_heads: c.kv_heads,
        rms_norm_eps: c.eps.into(),
        rope_theta: global.rope_base.into(),
        rope_local_base_freq: local.rope_base.into(),
        vocab_size: c.vocab,
        final_logit_softcapping: None,
        attn_logit_softcapping: None,
        query_pre_attn_scalar: c.head_dim,
        sliding_window: local.window.unwrap(),
        sliding_window_pattern: 6,
        max_position_embeddings: TOKENS,
    };
    let weights = VarBuilder::from_tensors(weights, DType::F32, &Device::Cpu);
    let mut model = gemma3::Model::new(false, &config, weights).unwrap();
    compare(models::GEMMA3, &golden::gemma3(), |ids, at| model.forward(ids, at).unwrap());
}

/// `blk.3.ffn_norm.weight` -> `model.layers.3.pre_feedforward_layernorm.weight`
fn candles_name(name: &str) -> String {
    let parts = [
        ("token_embd", "embed_tokens"),
        ("output_norm", "norm"),
        ("blk", "layers"),
        ("attn_norm", "input_layernorm"),
        ("attn_q_norm", "self_attn.q_norm"),
        ("attn_k_norm", "self_attn.k_norm"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("post_attention_norm", "post_attention_layernorm"),
        ("ffn_norm", "pre_feedforward_layernorm"),
        ("ffn_gate", "mlp.gate_proj"),
        ("ffn_up", "mlp.up_proj"),
        ("ffn_down", "mlp.down_proj"),
        ("post_ffw_norm", "post_feedforward_layernorm"),
    ];
    let renamed = name.split('.').map(|part| parts.iter().find(|(ours, _)| *ours == part).map_or(part, |(_, theirs)| *theirs));
    format!("model.{}", renamed.collect::<Vec<_>>().join("."))
}
