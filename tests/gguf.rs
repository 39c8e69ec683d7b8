//! GGUF headers: what an outside tool wrote is read as it meant it, and what is wrong is refused by name.
#![cfg(not(target_arch = "wasm32"))]

#[path = "common/gguf_writer.rs"]
mod gguf_writer;
#[path = "common/models.rs"]
mod models;

use std::collections::HashSet;

use gguf_writer::{GgufFile, TinyModel, put_string};
use rillm::gguf::{Array, Gguf, Metadata, Parsed, Value};
use rillm::quant::Format;
use rillm::{Code, Error};

const EVERYTHING: &[u8] = include_bytes!("data/gguf-py.gguf");
const ALIGN_64: &[u8] = include_bytes!("data/gguf-py-align64.gguf");
const VERSION_2: &[u8] = include_bytes!("data/gguf-py-v2.gguf");
const BIG_ENDIAN: &[u8] = include_bytes!("data/gguf-py-big-endian.gguf");

fn refused(bytes: &[u8]) -> Error {
    Gguf::parse_whole(bytes).expect_err("accepted")
}

/// Refused with this code, by a sentence that has all these words.
#[track_caller]
fn assert_refused(bytes: &[u8], code: Code, words: &[&str]) {
    let error = refused(bytes);
    assert_eq!(error.code(), code, "{error}");
    for word in words {
        assert!(error.message().contains(word), "{word:?} is not in {:?}", error.message());
    }
}

fn numbers(file: &[u8], gguf: &Gguf, name: &str) -> Vec<f32> {
    let tensor = gguf.tensor(name).unwrap_or_else(|| panic!("no tensor {name}"));
    let range = gguf.file_range(tensor);
    let mut out = vec![0.0; tensor.rows() * tensor.cols()];
    tensor.format.dequantize(&file[range.start as usize..range.end as usize], &mut out);
    out
}

#[test]
fn every_value_of_an_outside_tool_is_read() {
    let gguf = Gguf::parse_whole(EVERYTHING).unwrap();
    assert_eq!(gguf.version, 3);
    let get = |key: &str| gguf.metadata.get(key).unwrap().clone();
    assert_eq!(get("test.u8"), Value::U8(200));
    assert_eq!(get("test.i8"), Value::I8(-100));
    assert_eq!(get("test.u16"), Value::U16(60_000));
    assert_eq!(get("test.i16"), Value::I16(-30_000));
    assert_eq!(get("test.u32"), Value::U32(4_000_000_000));
    assert_eq!(get("test.i32"), Value::I32(-2_000_000_000));
    assert_eq!(get("test.u64"), Value::U64(1 << 63));
    assert_eq!(get("test.i64"), Value::I64(i64::MIN));
    assert_eq!(get("test.f32"), Value::F32(0.1));
    assert_eq!(get("test.f64"), Value::F64(0.1));
    assert_eq!(get("test.bool"), Value::Bool(true));
    assert_eq!(get("test.string"), Value::String("Rinnsal, ruisseau, 小川, 🏞".into()));
    assert_eq!(get("test.i32s"), Value::Array(Array::I32(vec![-1, 0, 1])));
    assert_eq!(get("test.f32s"), Value::Array(Array::F32(vec![0.5, -0.25])));
    assert_eq!(get("test.bools"), Value::Array(Array::Bool(vec![true, false])));
    let strings: Vec<&str> = gguf.metadata.require_strings("test.strings").unwrap().iter().collect();
    assert_eq!(strings, ["a", "", "ö", "🏞"]);
}

#[test]
fn every_format_of_an_outside_tool_is_read() {
    let gguf = Gguf::parse_whole(EVERYTHING).unwrap();
    for format in Format::ALL {
        let ours = numbers(EVERYTHING, &gguf, format.name());
        let theirs = numbers(EVERYTHING, &gguf, &format!("{}.f32", format.name()));
        assert_eq!(gguf.tensor(format.name()).unwrap().format, format);
        assert_eq!(ours, theirs, "{}", format.name());
    }
}

#[test]
fn version_2_and_an_alignment_of_64() {
    for (file, version) in [(ALIGN_64, 3), (VERSION_2, 2)] {
        let gguf = Gguf::parse_whole(file).unwrap();
        assert_eq!((gguf.version, gguf.data_start % 64), (version, 0));
        for i in 0..3 {
            assert_eq!(gguf.tensors[i].offset, 64 * i as u64);
            assert_eq!(numbers(file, &gguf, &format!("t{i}")), [i as f32 + 1.0; 5]);
        }
    }
}

#[test]
fn a_real_file() {
    let (head, size) = models::head(models::SMOLLM2, 4 << 20);
    let Parsed::Done(gguf) = Gguf::parse(&head, Some(size)).unwrap() else { panic!("the header is within 4 MiB") };
    assert_eq!(gguf.metadata.require_str("general.architecture").unwrap(), "llama");
    assert_eq!(gguf.metadata.require_u32("llama.block_count").unwrap(), 30);
    assert_eq!(gguf.metadata.require_strings("tokenizer.ggml.tokens").unwrap().get(2), Some("<|im_end|>"));
    assert_eq!((gguf.tensors.len(), gguf.data_start), (272, 1_785_664));
    let down = gguf.tensor("blk.0.ffn_down.weight").unwrap();
    assert_eq!((down.rows(), down.cols(), down.row_bytes(), down.format), (576, 1536, 960, Format::Q4_1));
    assert_eq!(gguf.file_range(gguf.tensors.last().unwrap()).end.next_multiple_of(32), size);
}

#[test]
fn what_is_not_gguf_is_called_by_its_name() {
    let version = |v: [u8; 4]| [b"GGUF", &v[..], &[0; 16]].concat();
    let cases: Vec<(Vec<u8>, Code, &str)> = vec![
        (version([0, 0, 0, 0]), Code::UnsupportedVersion, "version 0"),
        (version([1, 0, 0, 0]), Code::UnsupportedVersion, "version 1"),
        (version([4, 0, 0, 0]), Code::UnsupportedVersion, "version 4"),
        (BIG_ENDIAN.to_vec(), Code::UnsupportedVersion, "big-endian"),
        (b"FUGG\0\0\0\x03".to_vec(), Code::NotGguf, "byte-swapped"),
        (b"GGML\x01\0\0\0".to_vec(), Code::NotGguf, "older GGML"),
        (b"PK\x03\x04\x14\0\0\0".to_vec(), Code::NotGguf, "zip"),
        (b"\n<!DOCTYPE html><html lang=en>".to_vec(), Code::NotGguf, "HTML"),
        (b"<?xml version=\"1.0\"?><Error><Code>AccessDenied".to_vec(), Code::NotGguf, "XML"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0".to_vec(), Code::NotGguf, "git-lfs"),
        (b"{\"error\":\"not found\"}".to_vec(), Code::NotGguf, "JSON"),
        (b"\x40\0\0\0\0\0\0\0{\"__metadata__\":{}}".to_vec(), Code::NotGguf, "safetensors"),
        (b"\x1f\x8b\x08\0".to_vec(), Code::NotGguf, "gzip"),
        (b"\x93NUMPY".to_vec(), Code::NotGguf, "93 4e 55 4d"),
        (vec![], Code::NotGguf, "empty"),
        (b"GGU".to_vec(), Code::Truncated, "3 bytes"),
        (b"GGUF\x03\0\0".to_vec(), Code::Truncated, "7 bytes"),
    ];
    let mut sentences = HashSet::new();
    for (bytes, code, word) in &cases {
        assert_refused(bytes, *code, &[word]);
        assert!(sentences.insert(refused(bytes).message().to_owned()), "said twice: {}", refused(bytes));
    }
    for older in [b"ggjt", b"tjgg", b"lmgg", b"ggml"] {
        assert_refused(older, Code::NotGguf, &["older GGML"]);
    }
}

#[test]
fn alignments() {
    let with = |value: Value| {
        let mut file = TinyModel::default().file();
        file.set("general.alignment", value);
        file.bytes()
    };
    for bad in [0, 1, 3, 4, 24, 1 << 31] {
        assert_refused(&with(Value::U32(bad)), Code::BadKey, &["general.alignment", &bad.to_string()]);
    }
    assert_refused(&with(Value::String("32".into())), Code::BadKey, &["general.alignment", "a string"]);
    assert_refused(&with(Value::U64(32)), Code::BadKey, &["general.alignment", "u64"]);
    assert_refused(&with(Value::Array(Array::U32(vec![32]))), Code::BadKey, &["general.alignment", "an array"]);

    // The same weights, wherever they lie. (The default writes no key.)
    let plain = TinyModel::default().bytes();
    let header = Gguf::parse_whole(&plain).unwrap();
    for alignment in [8, 64, 4096] {
        let bytes = TinyModel { alignment: Some(alignment), ..TinyModel::default() }.bytes();
        let gguf = Gguf::parse_whole(&bytes).unwrap();
        assert_eq!(gguf.data_start % u64::from(alignment), 0);
        for name in ["token_embd.weight", "blk.1.ffn_down.weight", "output_norm.weight"] {
            assert_eq!(numbers(&plain, &header, name), numbers(&bytes, &gguf, name));
        }
    }
}

#[test]
fn cut_files_name_the_tensor_and_what_is_missing() {
    let bytes = TinyModel::default().bytes();
    let gguf = Gguf::parse_whole(&bytes).unwrap();
    let last = &gguf.tensors[gguf.tensors.len() - 1].name;
    assert_refused(&bytes[..bytes.len() - 1], Code::Truncated, &[last, "1 bytes are missing"]);
    assert_refused(&bytes[..bytes.len() - 20], Code::Truncated, &[last, "20 bytes are missing"]);
    assert_refused(&bytes[..gguf.data_start as usize], Code::Truncated, &["token_embd.weight"]);
    assert_refused(&bytes[..gguf.data_start as usize - 40], Code::Truncated, &["header"]);

    // The real one, of which only the head and the (pretended) size matter: refused before anything is read.
    let (head, size) = models::head(models::SMOLLM2, 4 << 20);
    let Parsed::Done(whole) = Gguf::parse(&head, Some(size)).unwrap() else { panic!() };
    let end = whole.tensors.iter().map(|t| whole.file_range(t).end).max().unwrap();
    let cut = |size: u64| Gguf::parse(&head[..head.len().min(size as usize)], Some(size)).unwrap_err();
    for (size, missing) in [(end - 1, Some("1 bytes are missing")), (end - 20, Some("20 bytes")), (end / 2, None), (whole.data_start, None)] {
        let error = cut(size);
        assert_eq!(error.code(), Code::Truncated);
        assert!(whole.tensors.iter().any(|t| error.message().contains(&format!("{:?}", t.name))), "{error}");
        assert!(missing.is_none_or(|m| error.message().contains(m)), "{error}");
    }
}

#[test]
fn tensors_that_lie_wrong() {
    let changed = |name: &str, offset: u64| {
        let mut file = TinyModel::default().file();
        file.tensor_mut(name).offset = Some(offset);
        file.bytes()
    };
    let name = "blk.1.attn_q.weight";
    assert_refused(&changed(name, 1 << 30), Code::Truncated, &[name, "missing"]);
    assert_refused(&changed(name, u64::MAX - 31), Code::Malformed, &[name, "beyond any file"]);
    assert_refused(&changed(name, 33), Code::Malformed, &[name, "multiple of the alignment 32"]);
    assert_refused(&changed(name, 32), Code::Malformed, &[name, "token_embd.weight", "overlap by"]);
    assert_refused(&changed(name, 0), Code::Malformed, &[name, "token_embd.weight", "overlap by"]);
}

#[test]
fn tensors_of_impossible_dimensions_or_types() {
    let name = "blk.0.attn_q.weight";
    let of_dims = |dims: &[u64]| {
        let mut file = TinyModel::default().file();
        file.tensor_mut(name).dims = dims.to_vec();
        file.bytes()
    };
    assert_refused(&of_dims(&[]), Code::Malformed, &[name, "0 dimensions"]);
    assert_refused(&of_dims(&[32, 1, 1, 1, 1]), Code::Malformed, &[name, "5 dimensions"]);
    assert_refused(&of_dims(&[32; 1000]), Code::Malformed, &[name, "1000 dimensions"]);
    assert_refused(&of_dims(&[0, 64]), Code::BadShape, &[name, "[0, 64]"]);
    assert_refused(&of_dims(&[64, 0]), Code::BadShape, &[name, "[64, 0]"]);
    assert_refused(&of_dims(&[65, 64]), Code::BadShape, &[name, "65", "32 weights of a Q4_1 block"]);
    // Products that wrap to something harmless in 64 or in 32 bits, and single ones beyond 32 bits.
    for dims in [
        &[1 << 32, 1 << 32][..],
        &[32, 1 << 62, 4],
        &[1 << 63, 2],
        &[32, 1 << 32],
        &[1 << 32, 1],
        &[u64::MAX - 31, u64::MAX],
        &[32, 1 << 16, 1 << 16],
    ] {
        assert_refused(&of_dims(dims), Code::BadShape, &[name, "impossible dimensions"]);
    }

    let of_type = |ggml_type: u32| {
        let mut file = TinyModel::default().file();
        file.tensor_mut(name).ggml_type = ggml_type;
        file.bytes()
    };
    assert_refused(&of_type(16), Code::UnsupportedType, &[name, "IQ2_XXS"]);
    assert_refused(&of_type(10), Code::UnsupportedType, &[name, "Q2_K"]);
    assert_refused(&of_type(5), Code::UnsupportedType, &[name, "Q4_3"]);
    assert_refused(&of_type(u32::MAX), Code::UnsupportedType, &[name, "4294967295"]);
}

#[test]
fn names_given_twice() {
    let mut file = TinyModel::default().file();
    file.pairs.push(("general.name".into(), Value::String("Twin".into())));
    assert_refused(&file.bytes(), Code::Malformed, &["general.name", "twice"]);
    let mut file = TinyModel::default().file();
    file.tensor_mut("blk.1.ffn_up.weight").name = "blk.0.ffn_up.weight".into();
    assert_refused(&file.bytes(), Code::Malformed, &["blk.0.ffn_up.weight", "twice"]);
}

/// A file of one pair whose key, type and value are these bytes.
fn one_pair(key: &[u8], rest: &[u8]) -> Vec<u8> {
    [b"GGUF\x03\0\0\0", &[0; 8][..], &1u64.to_le_bytes(), &(key.len() as u64).to_le_bytes(), key, rest].concat()
}

#[test]
fn values_that_are_none() {
    assert_refused(&one_pair(b"a", &13u32.to_le_bytes()), Code::Malformed, &["\"a\"", "unknown value type 13"]);
    assert_refused(&one_pair(b"a", &[9, 0, 0, 0, 99, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]), Code::Malformed, &["\"a\"", "unknown type 99"]);
    assert_refused(&one_pair(b"a", &[7, 0, 0, 0, 2]), Code::Malformed, &["\"a\"", "boolean of value 2"]);
    assert_refused(&one_pair(b"a", &[9, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3]), Code::Malformed, &["\"a\"", "boolean of value 3"]);
    assert_refused(&one_pair(b"\xff\xfe", &[0, 0, 0, 0, 1]), Code::Malformed, &["a metadata key", "not UTF-8"]);
    let mut text = 8u32.to_le_bytes().to_vec();
    text.extend(2u64.to_le_bytes());
    text.extend(b"\xc3\x28");
    assert_refused(&one_pair(b"a", &text), Code::Malformed, &["\"a\"", "not UTF-8"]);
    let mut texts = [9u32.to_le_bytes(), 8u32.to_le_bytes()].concat();
    texts.extend(2u64.to_le_bytes());
    put_string(&mut texts, "fine");
    texts.extend([1, 0, 0, 0, 0, 0, 0, 0, 0x80]);
    assert_refused(&one_pair(b"list", &texts), Code::Malformed, &["\"list\"", "not UTF-8"]);
}

/// A name of 60 KB does not become a message of 60 KB.
#[test]
fn absurd_names_are_cut_in_messages() {
    let error = refused(&one_pair("🏞".repeat(15_000).as_bytes(), &13u32.to_le_bytes()));
    assert!(error.message().len() < 1000 && error.message().contains("..."), "{error}");
}

#[test]
fn nested_arrays_are_counted_and_what_follows_is_read() {
    let mut file = GgufFile::default();
    file.set("deep", Value::Array(Array::Nested(1000)));
    file.set("after", Value::U8(7));
    let gguf = Gguf::parse_whole(&file.bytes()).unwrap();
    assert_eq!(gguf.metadata.get("deep"), Some(&Value::Array(Array::Nested(1000))));
    assert_eq!(gguf.metadata.get("after"), Some(&Value::U8(7)));
}

#[test]
fn keys_of_another_type_are_named() {
    let mut m = Metadata::default();
    let pairs = [
        ("text", Value::String("x".into())),
        ("float", Value::F32(0.5)),
        ("negative", Value::I32(-1)),
        ("big", Value::U64(1 << 40)),
        ("list", Value::Array(Array::I32(vec![1]))),
        ("small", Value::U8(3)),
        ("long", Value::I64(4)),
        ("double", Value::F64(0.25)),
    ];
    for (key, value) in pairs {
        m.insert(key.into(), value).unwrap();
    }
    let wrong = |error: Error, words: [&str; 2]| {
        assert_eq!(error.code(), Code::BadKey);
        assert!(words.iter().all(|w| error.message().contains(w)), "{error}");
    };
    wrong(m.u32("text").unwrap_err(), ["\"text\"", "not a string"]);
    wrong(m.u32("float").unwrap_err(), ["\"float\"", "not f32"]);
    wrong(m.u32("negative").unwrap_err(), ["\"negative\"", "not -1"]);
    wrong(m.u32("big").unwrap_err(), ["\"big\"", "not 1099511627776"]);
    wrong(m.require_str("float").unwrap_err(), ["\"float\"", "must be a string"]);
    wrong(m.f32("small").unwrap_err(), ["\"small\"", "must be a float"]);
    wrong(m.bool("small").unwrap_err(), ["\"small\"", "must be a boolean"]);
    wrong(m.strings("list").unwrap_err(), ["\"list\"", "must be an array of strings"]);
    wrong(m.f32s("list").unwrap_err(), ["\"list\"", "must be an array of f32"]);
    wrong(m.i32s("text").unwrap_err(), ["\"text\"", "must be an array of i32"]);
    assert_eq!((m.u32("small"), m.u32("long"), m.f32("double"), m.u32("none")), (Ok(Some(3)), Ok(Some(4)), Ok(Some(0.25)), Ok(None)));
    let missing = m.require_u32("none").unwrap_err();
    assert!(missing.code() == Code::MissingKey && missing.message().contains("\"none\""));
}

/// What the tests of other layers build on.
#[test]
fn tiny_models_are_valid_in_every_format() {
    for format in Format::ALL {
        let dim = if format.block_len() == 256 { 256 } else { 64 };
        for (architecture, tied, version) in [("llama", true, 3), ("llama", false, 2), ("gemma3", true, 3)] {
            let model = TinyModel { architecture, tied, version, format, dim, ff: 2 * dim, heads: dim / 16, ..TinyModel::default() };
            let bytes = model.bytes();
            assert_eq!(bytes, model.bytes(), "not reproducible");
            let gguf = Gguf::parse_whole(&bytes).unwrap();
            assert_eq!(gguf.tensor("output.weight").is_some(), !tied);
            let up = numbers(&bytes, &gguf, "blk.0.ffn_up.weight");
            let deviation = (up.iter().map(|w| w * w).sum::<f32>() / up.len() as f32).sqrt() * (dim as f32).sqrt();
            assert!((0.9..1.1).contains(&deviation), "{}: {deviation}", format.name());
        }
    }
}
