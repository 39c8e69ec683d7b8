//! Gemma 3 on tiny models: what the file may say and what it may not, the same bits for any window and chunk, and candle beside the CPU for
//! every format and both architectures.
#![cfg(not(target_arch = "wasm32"))]

mod common;

use common::gguf_writer::{GgufFile, TinyModel};
use pollster::block_on;
use rillm::backend::cpu::Cpu;
use rillm::backend::{Backend, Want};
use rillm::error::{Code, Error};
use rillm::gguf::{Array, Gguf, Value};
use rillm::load::{LoadOptions, Loader};
use rillm::model::Config;
use rillm::quant::Format;
use rillm::session::Engine;
use rillm::session::predict::Predict;

fn load<B: Backend>(backend: B, bytes: &[u8]) -> Result<Engine<B>, Error> {
    let mut loader = Loader::new(backend, Some(bytes.len() as u64), LoadOptions::default());
    loader.push(bytes)?;
    Ok(Engine::new(loader.finish()?))
}

fn gemma() -> TinyModel {
    TinyModel { architecture: "gemma3", layers: 7, context: 700, window: 20, ..TinyModel::default() }
}

fn config(change: impl FnOnce(&mut GgufFile)) -> Result<Config, Error> {
    let mut file = gemma().file();
    change(&mut file);
    let bytes = file.bytes();
    let gguf = Gguf::parse_whole(&bytes)?;
    Config::from_metadata(&gguf.metadata, gguf.tensor("token_embd.weight").unwrap().rows())
}

/// For each layer its window, and the base and scale of its rotation.
fn layers(c: &Config) -> Vec<(Option<usize>, f32, f32)> {
    c.kinds.iter().map(|&kind| c.attention[kind]).map(|a| (a.window, a.rope_base, a.rope_scale)).collect()
}

/// B063: the pattern is the file's, five local layers to a global one where it says nothing.
#[test]
fn b063_local_and_global_layers_are_as_the_file_says() {
    let key = "gemma3.attention.sliding_window_pattern";
    let local = (Some(20), 10_000.0, 1.0);
    let global = (None, 1e6, 8.0);
    let scaled = |f: &mut GgufFile| {
        f.set("gemma3.rope.freq_base", Value::F32(1e6));
        f.set("gemma3.rope.scaling.type", Value::String("linear".into()));
        f.set("gemma3.rope.scaling.factor", Value::F32(8.0));
    };
    let with = |value: Option<Value>| {
        layers(
            &config(|f| {
                scaled(f);
                value.into_iter().for_each(|v| f.set(key, v));
            })
            .unwrap(),
        )
    };
    assert_eq!(with(None), [local, local, local, local, local, global, local]);
    assert_eq!(with(Some(Value::U32(2))), [local, global, local, global, local, global, local]);
    assert_eq!(with(Some(Value::U32(1))), [global; 7]);
    assert_eq!(with(Some(Value::U32(0))), [local; 7]);
    let list = [true, false, true, true, true, true, false];
    assert_eq!(with(Some(Value::Array(Array::Bool(list.to_vec())))), [local, global, local, local, local, local, global]);
    let swa = config(|f| f.set("gemma3.rope.freq_base_swa", Value::F32(5e4))).unwrap();
    assert_eq!((layers(&swa)[0].1, layers(&swa)[5].1), (5e4, 10_000.0));
    let none = config(|f| f.set("gemma3.attention.sliding_window", Value::U32(0))).unwrap();
    assert!(layers(&none).iter().all(|l| l.0.is_none()));
}

#[test]
fn what_a_gemma_file_lacks_or_has_wrong_is_named() {
    let refused = |change: &dyn Fn(&mut GgufFile), code: Code, word: &str| {
        let mut file = gemma().file();
        change(&mut file);
        let error = load(Cpu::default(), &file.bytes()).map(|_| ()).unwrap_err();
        assert!(error.code() == code && error.message().contains(word), "{error}");
    };
    let window = "gemma3.attention.sliding_window";
    refused(&|f| f.remove(window), Code::MissingKey, window);
    refused(&|f| f.set(window, Value::F32(512.0)), Code::BadKey, window);
    let pattern = "gemma3.attention.sliding_window_pattern";
    refused(&|f| f.set(pattern, Value::Array(Array::Bool(vec![true; 6]))), Code::BadKey, pattern);
    refused(&|f| f.set(pattern, Value::Array(Array::U32(vec![1; 7]))), Code::BadKey, pattern);
    refused(&|f| f.set(pattern, Value::I32(-1)), Code::BadKey, pattern);
    for odd in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        refused(&|f| f.set("gemma3.rope.freq_base_swa", Value::F32(odd)), Code::BadKey, "freq_base_swa");
    }
    for cap in ["attn_logit_softcapping", "final_logit_softcapping"] {
        refused(&|f| f.set(&format!("gemma3.{cap}"), Value::F32(30.0)), Code::UnsupportedArchitecture, cap);
    }
    for name in ["attn_q_norm", "attn_k_norm", "post_attention_norm", "post_ffw_norm"] {
        let name = format!("blk.3.{name}.weight");
        refused(&|f| f.remove_tensor(&name), Code::MissingTensor, &name);
        refused(&|f| f.tensor_mut(&name).dims = vec![8], Code::BadShape, &name);
    }
    // and what only Gemma has is no part of a Llama
    let mut llama = TinyModel::default().file();
    llama.push("blk.0.attn_q_norm.weight", &[16], Format::F32, &[1.0; 16]);
    let error = load(Cpu::default(), &llama.bytes()).map(|_| ()).unwrap_err();
    assert!(error.code() == Code::UnsupportedArchitecture && error.message().contains("attn_q_norm"), "{error}");
}

fn logits<B: Backend>(engine: &mut Engine<B>, ids: &[u32], chunk: usize) -> Vec<f32> {
    let runner = engine.runner();
    runner.truncate(0);
    let mut logits = Vec::new();
    for piece in ids.chunks(chunk) {
        logits = block_on(runner.run(piece, Some(&Want::Logits))).unwrap().logits;
    }
    logits
}

fn ids(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 37 + 11) % 200 + 3).collect()
}

/// Windows of one position, around the attention's tile of 256, and beyond the text; up to a context that is full to the last position.
#[test]
fn any_window_gives_the_same_bits_for_any_chunk() {
    let mut seen: Vec<Vec<f32>> = Vec::new();
    for window in [1, 2, 255, 256, 257, 600, u32::MAX] {
        let bytes = TinyModel { window, ..gemma() }.bytes();
        let mut engine = load(Cpu::default(), &bytes).unwrap();
        let ids = ids(700);
        let whole = logits(&mut engine, &ids, 700);
        assert!(whole.iter().all(|z| z.is_finite()));
        for chunk in [1, 3, 31, 256, 511, 513] {
            let other = logits(&mut engine, &ids, chunk);
            assert!(other.iter().zip(&whole).all(|(a, b)| a.to_bits() == b.to_bits()), "window {window}, chunks of {chunk}");
        }
        let error = block_on(engine.runner().run(&[5], None)).unwrap_err();
        assert_eq!(error.code(), Code::PromptTooLong);
        // rewound and on another way: the bits of a fresh start
        engine.runner().truncate(300);
        let again = block_on(engine.runner().run(&ids[300..400], Some(&Want::Logits))).unwrap().logits;
        assert!(again == logits(&mut engine, &ids[..400], 64), "window {window}");
        seen.push(whole);
    }
    // the window matters, until it is longer than the text
    assert!(seen.windows(2).take(5).all(|pair| pair[0] != pair[1]));
    let (last, before) = seen.split_last().unwrap();
    assert!(before.last().unwrap() != last);
}

/// Both devices run the same forward: on tiny models of every format, for both architectures, past the window.
#[cfg(feature = "candle")]
#[test]
fn candle_gives_the_cpus_logits_for_every_format_and_architecture() {
    use rillm::backend::candle::Candle;
    for architecture in ["llama", "gemma3"] {
        for format in Format::ALL {
            let (dim, heads, head_dim) = (256, 4, 64);
            let formats = vec![("attn_v", Format::Q8_0)]; // mixed inside a layer
            let model = TinyModel { architecture, dim, heads, kv_heads: 2, head_dim, ff: 512, format, formats, ..gemma() };
            let bytes = model.bytes();
            let ids = ids(40);
            let ours = logits(&mut load(Cpu::default(), &bytes).unwrap(), &ids, 17);
            let candles = logits(&mut load(Candle::new("cpu").unwrap(), &bytes).unwrap(), &ids, 23);
            let norm = |v: &mut dyn Iterator<Item = f32>| v.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
            let off = norm(&mut ours.iter().zip(&candles).map(|(a, b)| a - b)) / norm(&mut ours.iter().copied());
            println!("{architecture} {format:?}: {off:.5}");
            let limit = if matches!(format, Format::F32 | Format::F16 | Format::BF16) { 0.02 } else { 0.06 }; // seven layers of int8 roundings
            assert!(off < limit, "{architecture}, {format:?}: {off}");
        }
    }
}

#[test]
fn a_shift_turns_each_layers_keys_by_its_own_rotation() {
    use rillm::model::Model;
    // One layer's keys depend on their own tokens and positions alone, so what a shift leaves is what a fresh start computes, up to f16.
    let model = |pattern: u32| -> Model<Cpu> {
        let mut file = TinyModel { layers: 1, window: 600, formats: vec![("blk", Format::F32)], ..gemma() }.file();
        file.set("gemma3.attention.sliding_window_pattern", Value::U32(pattern));
        file.set("gemma3.rope.freq_base", Value::F32(1e6));
        let bytes = file.bytes();
        let mut loader = Loader::new(Cpu::default(), Some(bytes.len() as u64), LoadOptions::default());
        loader.push(&bytes).unwrap();
        loader.finish().unwrap().model
    };
    let ids = ids(120);
    let after = |mut model: Model<Cpu>, shift: bool| {
        if shift {
            block_on(model.forward(&ids[..100], None)).unwrap();
            model.shift(4, 30);
            assert_eq!(model.cached(), 70);
        } else {
            block_on(model.forward(&[&ids[..4], &ids[34..100]].concat(), None)).unwrap();
        }
        block_on(model.forward(&ids[100..], Some(&Want::Logits))).unwrap().logits
    };
    let distance = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    // pattern 0: the layer is local, base 10,000; 1: global, base 1,000,000
    let (local, global) = (after(model(0), false), after(model(1), false));
    let apart = distance(&local, &global);
    for (pattern, fresh) in [(0, &local), (1, &global)] {
        let off = distance(&after(model(pattern), true), fresh);
        assert!(off < 0.02 && off < apart / 5.0, "pattern {pattern}: {off}, and the two rotations are {apart} apart");
    }
}
