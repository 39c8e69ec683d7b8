//! Tiny models through the loader: whatever the pieces, the same model; whatever is wrong, a refusal by code and name, soon, and no panic.
#![cfg(not(target_arch = "wasm32"))]

mod common;

use std::time::{Duration, Instant};

use common::Random;
use common::gguf_writer::{GgufFile, TinyModel};
use pollster::block_on;
use rillm::backend::Want;
use rillm::backend::cpu::Cpu;
use rillm::error::{Code, Error};
use rillm::gguf::Gguf;
use rillm::gguf::{Array, Value};
use rillm::load::{LoadOptions, Loader};
use rillm::quant::Format;
use rillm::session::Engine;
use rillm::session::predict::Predict;

fn load_in(bytes: &[u8], piece: usize, total: Option<u64>, options: LoadOptions) -> Result<Engine<Cpu>, Error> {
    let mut loader = Loader::new(Cpu::default(), total, options);
    for piece in bytes.chunks(piece) {
        loader.push(piece)?;
    }
    Ok(Engine::new(loader.finish()?))
}

fn load(bytes: &[u8]) -> Result<Engine<Cpu>, Error> {
    load_in(bytes, 1 << 16, Some(bytes.len() as u64), LoadOptions::default())
}

fn logits(engine: &mut Engine<Cpu>) -> Vec<f32> {
    let runner = engine.runner();
    runner.truncate(0);
    block_on(runner.run(&[5, 200, 17, 3, 42], Some(&Want::Logits))).unwrap().logits
}

/// The file is refused with this code, and the sentence holds these words, all within a second.
fn refused(bytes: &[u8], code: Code, words: &[&str]) {
    let began = Instant::now();
    let error = match load(bytes) {
        Ok(_) => panic!("loaded, but should be refused: {} {words:?}", code.as_str()),
        Err(error) => error,
    };
    assert!(began.elapsed() < Duration::from_secs(1), "{error}: took {:?}", began.elapsed());
    assert_eq!(error.code(), code, "{error}");
    for word in words {
        assert!(error.message().contains(word), "{error:?} does not name {word:?}");
    }
}

fn changed(change: impl FnOnce(&mut GgufFile)) -> Vec<u8> {
    let mut file = TinyModel::default().file();
    change(&mut file);
    file.bytes()
}

fn text(s: &str) -> Value {
    Value::String(s.into())
}

#[test]
fn pieces_of_any_size_give_the_same_model() {
    let bytes = TinyModel { tied: false, alignment: Some(64), ..TinyModel::default() }.bytes();
    let right = logits(&mut load(&bytes).unwrap());
    assert!(right.iter().all(|z| z.is_finite()) && right.iter().any(|z| *z != right[0]));
    for piece in [1, 7, 4096, bytes.len()] {
        for total in [Some(bytes.len() as u64), None] {
            assert_eq!(logits(&mut load_in(&bytes, piece, total, LoadOptions::default()).unwrap()), right, "pieces of {piece}, {total:?}");
        }
    }
    // Bytes behind the last tensor are no part of the model.
    let longer = [&bytes[..], &[7; 100]].concat();
    assert_eq!(logits(&mut load(&longer).unwrap()), right);
}

#[test]
fn every_format_version_and_shape_loads_and_runs() {
    for format in Format::ALL {
        let dim = if format.block_len() == 256 { 256 } else { 64 };
        let model = TinyModel { format, dim, ff: 256, heads: 4, kv_heads: 1, head_dim: dim / 4, formats: Vec::new(), ..TinyModel::default() };
        let z = logits(&mut load(&model.bytes()).unwrap());
        assert!(z.iter().all(|z| z.is_finite()) && z.iter().any(|x| *x != z[0]), "{format:?}");
    }
    let shapes = [(10, 5, 1, 2, 7), (33, 3, 3, 12, 50), (9, 3, 1, 10, 1)];
    for (dim, heads, kv_heads, head_dim, ff) in shapes {
        let model = TinyModel { format: Format::F32, formats: Vec::new(), dim, heads, kv_heads, head_dim, ff, layers: 1, ..TinyModel::default() };
        assert!(logits(&mut load(&model.bytes()).unwrap()).iter().all(|z| z.is_finite()), "{dim} {heads} {kv_heads} {head_dim} {ff}");
    }
    // B087, B090: version 2, and a file padded to 64, give the logits of version 3 padded to 32
    let right = logits(&mut load(&TinyModel::default().bytes()).unwrap());
    for model in [TinyModel { version: 2, ..TinyModel::default() }, TinyModel { alignment: Some(64), ..TinyModel::default() }] {
        assert_eq!(logits(&mut load(&model.bytes()).unwrap()), right);
    }
}

#[test]
fn what_tensors_lack_is_named() {
    let names: Vec<String> = TinyModel { tied: false, ..TinyModel::default() }.file().tensors.iter().map(|t| t.name.clone()).collect();
    for name in names.iter().filter(|n| *n != "output.weight") {
        refused(&changed(|f| f.remove_tensor(name)), Code::MissingTensor, &[name]);
        // one row or column fewer than the metadata says
        let wrong = changed(|f| {
            let dims = &mut f.tensor_mut(name).dims;
            let last = dims.len() - 1;
            dims[last] -= if last == 0 { 32 } else { 1 };
        });
        refused(&wrong, Code::BadShape, &[name]);
    }
    refused(&changed(|f| f.push("blk.0.attn_q.bias", &[64], Format::F32, &[0.0; 64])), Code::UnsupportedArchitecture, &["blk.0.attn_q.bias"]);
    refused(&changed(|f| f.push("rope_freqs.weight", &[5], Format::F32, &[1.0; 5])), Code::BadShape, &["rope_freqs.weight"]);
    refused(&changed(|f| f.push("rope_freqs.weight", &[8], Format::F32, &[0.0; 8])), Code::Malformed, &["rope_freqs.weight"]);
    refused(&changed(|f| f.tensor_mut("blk.0.attn_q.weight").ggml_type = 16), Code::UnsupportedType, &["blk.0.attn_q.weight", "IQ2_XXS"]);
}

#[test]
fn numbers_that_are_not_finite_are_refused_by_tensor() {
    for (format, at) in [(Format::Q4_1, 0), (Format::Q4_1, 2), (Format::Q8_0, 0), (Format::F16, 0), (Format::BF16, 0), (Format::F32, 2)] {
        let mut file = TinyModel { format, formats: Vec::new(), ..TinyModel::default() }.file();
        let data = &mut file.tensor_mut("blk.1.ffn_up.weight").data;
        data[at..at + 2].copy_from_slice(&if format == Format::BF16 || format == Format::F32 { [0x80, 0x7f] } else { [0x00, 0x7c] });
        refused(&file.bytes(), Code::Malformed, &["blk.1.ffn_up.weight"]);
    }
    let norm = changed(|f| f.tensor_mut("blk.0.ffn_norm.weight").data[..4].copy_from_slice(&f32::NAN.to_le_bytes()));
    refused(&norm, Code::Malformed, &["blk.0.ffn_norm.weight"]);
}

#[test]
fn what_the_metadata_lacks_or_has_wrong_is_named() {
    let required = [
        "general.architecture",
        "llama.block_count",
        "llama.context_length",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon",
        "tokenizer.ggml.model",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.merges",
    ];
    for key in required {
        refused(&changed(|f| f.remove(key)), Code::MissingKey, &[key]);
        refused(&changed(|f| f.set(key, Value::Bool(true))), Code::BadKey, &[key]);
    }
    for key in
        ["llama.block_count", "llama.embedding_length", "llama.feed_forward_length", "llama.attention.head_count", "llama.attention.head_count_kv"]
    {
        refused(&changed(|f| f.set(key, Value::U32(0))), Code::BadKey, &[key]);
        refused(&changed(|f| f.set(key, Value::U32(u32::MAX))), Code::BadKey, &[key]);
    }
    let bad = |key: &str, value: Value, code, words: &[&str]| refused(&changed(|f| f.set(key, value)), code, words);
    bad("llama.block_count", Value::U32(1 << 20), Code::MissingTensor, &["layers"]);
    bad("llama.block_count", Value::U32(3), Code::MissingTensor, &["blk.2.attn_norm.weight"]);
    bad("llama.attention.head_count_kv", Value::U32(3), Code::BadKey, &["4 query heads", "3 key heads"]);
    bad("llama.attention.key_length", Value::U32(15), Code::BadKey, &["15"]);
    bad("llama.attention.value_length", Value::U32(8), Code::UnsupportedArchitecture, &["8", "16"]);
    bad("llama.rope.dimension_count", Value::U32(18), Code::BadKey, &["llama.rope.dimension_count"]);
    for odd in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        bad("llama.rope.freq_base", Value::F32(odd), Code::BadKey, &["llama.rope.freq_base"]);
        bad("llama.attention.layer_norm_rms_epsilon", Value::F32(odd), Code::BadKey, &["layer_norm_rms_epsilon"]);
    }
    bad("llama.rope.scaling.type", text("yarn"), Code::UnsupportedArchitecture, &["yarn"]);
    bad("llama.vocab_size", Value::U32(7), Code::BadKey, &["llama.vocab_size", "7"]);
    bad("llama.expert_count", Value::U32(8), Code::UnsupportedArchitecture, &["mixture of experts"]);
    bad("general.architecture", text("mamba"), Code::UnsupportedArchitecture, &["mamba"]);
    bad("tokenizer.ggml.model", text("t5"), Code::UnsupportedTokenizer, &["t5"]);
    bad("tokenizer.ggml.pre", text("nobody-knows"), Code::UnsupportedTokenizer, &["nobody-knows"]);
    bad("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![1; 5])), Code::Malformed, &["tokenizer.ggml.token_type"]);
}

#[test]
fn b091_a_file_that_is_cut_off_is_refused_before_any_upload_where_its_size_is_known() {
    let file = TinyModel::default().file();
    let (bytes, header) = (file.bytes(), file.header().len());
    for cut in [bytes.len() - 1, bytes.len() - 20, bytes.len() / 2, header, header - 1, header / 2, 30, 9, 7, 3] {
        refused(&bytes[..cut], Code::Truncated, &[]);
        // Where it is not known, the end shows it.
        let error = load_in(&bytes[..cut], 1000, None, LoadOptions::default()).map(|_| ()).unwrap_err();
        assert_eq!(error.code(), Code::Truncated, "{error}");
    }
    refused(&bytes[..bytes.len() - 1], Code::Truncated, &["1 bytes are missing"]);
    refused(&[], Code::NotGguf, &["empty"]);
    refused(b"<!DOCTYPE html><html><body>Please log in</body></html>", Code::NotGguf, &["HTML"]);
    let error = load_in(&bytes, 1000, Some(bytes.len() as u64 - 5000), LoadOptions::default()).map(|_| ()).unwrap_err();
    assert!(matches!(error.code(), Code::Truncated | Code::Malformed), "{error}");
}

#[test]
fn the_context_length_is_checked() {
    let bytes = TinyModel { context: 100, ..TinyModel::default() }.bytes();
    let with = |n| load_in(&bytes, 1 << 16, Some(bytes.len() as u64), LoadOptions { context_length: n, ..LoadOptions::default() });
    assert_eq!(with(None).unwrap().info().context_length, 100);
    assert_eq!(with(Some(1)).unwrap().info().context_length, 1);
    for odd in [0, 101, usize::MAX] {
        let error = with(Some(odd)).map(|_| ()).unwrap_err();
        assert!(error.code() == Code::BadOption && error.message().contains("contextLength") && error.message().contains("100"), "{error}");
    }
}

/// B114: what does not fit is refused as soon as the header is there, before the weights are downloaded.
#[test]
fn b114_a_cache_that_does_not_fit_is_refused_with_the_header() {
    let model = TinyModel { context: u32::MAX, layers: 1, ff: 4096, kv_heads: 4, head_dim: 128, ..TinyModel::default() };
    let bytes = model.bytes();
    // the first attempt at a header waits for 64 KiB, which are more than this one has
    let header = (Gguf::parse_whole(&bytes).unwrap().data_start as usize).max(64 << 10) + 1000;
    assert!(bytes.len() > 4 * header);
    let options = LoadOptions { context_length: Some(u32::MAX as usize), ..LoadOptions::default() };
    let mut loader = Loader::new(Cpu::default(), Some(bytes.len() as u64), options);
    let error = bytes[..header].chunks(1000).find_map(|piece| loader.push(piece).err()).expect("the header is refused");
    assert!(error.code() == Code::OutOfMemory && error.message().contains("KV cache of 4294967295 positions"), "{error}");
}

/// B089's kind over the whole of a file: whatever the bit, a refusal or a model that runs; never a panic (overflow checks are on).
#[test]
fn flipped_bits_never_panic() {
    let original = TinyModel { dim: 32, ff: 32, head_dim: 8, layers: 1, ..TinyModel::default() }.bytes();
    let mut random = Random::new(9);
    let (mut loaded, mut refusals) = (0, 0);
    for _ in 0..3000 {
        let mut bytes = original.clone();
        for _ in 0..=random.below(2) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        let began = Instant::now();
        match load(&bytes) {
            Ok(mut engine) => {
                loaded += 1;
                if engine.info().context_length > 5 {
                    let vocab = engine.info().vocab_size as u32;
                    let _ = block_on(engine.runner().run(&[vocab - 1, 0, 3], Some(&Want::Logits)));
                }
            }
            Err(_) => refusals += 1,
        }
        assert!(began.elapsed() < Duration::from_secs(1));
    }
    assert!(loaded > 100 && refusals > 100, "{loaded} loaded, {refusals} refused: the flips reach too little");
}
