//! A small vocabulary with all that Gemma's has, and what it has not: a space in front of texts, bytes that are missing.

use super::Tokenizer;
use crate::error::{Code, Error};
use crate::gguf::{Array, Metadata, Value};

const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER: i32 = 4;
const BYTE: i32 = 6;

/// (text, type, score)
const TOKENS: &[(&str, i32, f32)] = &[
    ("<unk>", UNKNOWN, 0.0),
    ("<s>", CONTROL, 0.0),
    ("</s>", CONTROL, 0.0),
    ("<0x41>", BYTE, 0.0), // A
    ("<0xC3>", BYTE, 0.0),
    ("a", NORMAL, -10.0),
    ("b", NORMAL, -11.0),
    ("c", NORMAL, -12.0),
    ("\u{2581}", NORMAL, -13.0),
    ("ab", NORMAL, -3.0),
    ("bc", NORMAL, -2.0),
    ("abc", NORMAL, -1.0),
    ("\u{2581}a", NORMAL, -4.0),
    ("aa", NORMAL, -5.0),
    ("<t>", USER, 0.0),
    ("\u{2581}\u{2581}", NORMAL, -6.0),
];

fn with(changes: &[(&str, Option<Value>)]) -> Result<Tokenizer, Error> {
    let mut meta = Metadata::default();
    let pairs = [
        ("model", Value::String("llama".into())),
        ("tokens", Value::Array(Array::Strings(TOKENS.iter().map(|t| t.0).collect()))),
        ("token_type", Value::Array(Array::I32(TOKENS.iter().map(|t| t.1).collect()))),
        ("scores", Value::Array(Array::F32(TOKENS.iter().map(|t| t.2).collect()))),
        ("add_space_prefix", Value::Bool(false)),
    ];
    for (key, value) in pairs {
        let value = changes.iter().find(|(k, _)| *k == key).map_or(Some(value), |(_, v)| v.clone());
        value.into_iter().for_each(|v| meta.insert(format!("tokenizer.ggml.{key}"), v).unwrap());
    }
    for (key, value) in changes.iter().filter(|(key, _)| key.ends_with("_id") || *key == "add_bos_token") {
        value.iter().for_each(|v| meta.insert(format!("tokenizer.ggml.{key}"), v.clone()).unwrap());
    }
    Tokenizer::from_metadata(&mut meta)
}

fn tokenizer() -> Tokenizer {
    with(&[]).unwrap()
}

#[test]
fn the_best_score_merges_first_and_the_leftmost_among_equals() {
    let t = tokenizer();
    assert_eq!(t.encode("abc", false), [11]); // bc, then abc
    assert_eq!(t.encode("ab", false), [9]);
    assert_eq!(t.encode("aaa", false), [13, 5]);
    assert_eq!(t.encode("a  a", false), [5, 8, 12]); // "_a" has the better score than "__"
    assert_eq!(t.encode("   ", false), [15, 8]);
    assert_eq!(t.decode(&[5, 8, 12], false), "a  a");
}

#[test]
fn what_has_no_token_is_bytes_and_a_missing_byte_is_the_unknown_token() {
    let t = tokenizer();
    assert_eq!(t.encode("aAa", false), [5, 3, 5]);
    assert_eq!(t.encode("é", false), [4, 0]); // C3 A9
    assert_eq!((t.decode(&[3], false), &*t.bytes(4)), ("A".into(), &[0xC3][..]));
    assert!(t.bytes(0).is_empty() && t.bytes(1).is_empty());
}

#[test]
fn text_never_becomes_a_control_token_or_a_byte_token() {
    let t = tokenizer();
    for text in ["<s>", "</s>", "<unk>", "<0x41>"] {
        assert!(t.encode(text, false).iter().all(|&id| id == 0), "{text}"); // < and the like have no bytes here
    }
    assert_eq!(t.encode("<s>a</s>", true), [1, 5, 2]);
    assert_eq!(t.encode("a<t>a", false), [5, 14, 5]); // user-defined
}

#[test]
fn defaults_are_llama_cpps() {
    let t = tokenizer();
    assert_eq!((t.bos(), t.eos(), t.adds_bos(), t.end_ids()), (Some(1), Some(2), true, &[2][..]));
    assert_eq!(t.encode_prompt("a", false), [1, 5]);
    let without = with(&[("add_bos_token", Some(Value::Bool(false)))]).unwrap();
    assert_eq!(without.encode_prompt("a", false), [5]);
    let given = with(&[("bos_token_id", Some(Value::U32(2))), ("eos_token_id", Some(Value::U32(1)))]).unwrap();
    assert_eq!((given.bos(), given.eos(), given.end_ids()), (Some(2), Some(1), &[1, 2][..])); // </s> ends a text whatever the file says
}

/// Llama 2's way: a space in front of a text, at the start and behind special tokens; decoding takes it away again.
#[test]
fn a_space_goes_in_front_where_the_file_wants_it_or_does_not_say() {
    for value in [Some(Value::Bool(true)), None] {
        let t = with(&[("add_space_prefix", value)]).unwrap();
        assert_eq!(t.encode("a", false), [12]);
        assert_eq!(t.encode("a<t>a", false), [12, 14, 12]);
        assert_eq!(t.encode("<s>a", true), [1, 12]);
        assert_eq!(t.encode(" a", false), [8, 12]);
        assert_eq!((t.decode(&[12], false), t.decode(&[8, 12], false)), ("a".into(), " a".into()));
        assert!(t.encode("", false).is_empty());
    }
}

#[test]
fn what_is_wrong_is_named() {
    let refused = |key: &str, value: Option<Value>, code: Code, word: &str| {
        let e = with(&[(key, value)]).unwrap_err();
        assert!(e.code() == code && e.message().contains(word), "{e}");
    };
    let floats = |v: Vec<f32>| Some(Value::Array(Array::F32(v)));
    refused("scores", None, Code::MissingKey, "tokenizer.ggml.scores");
    refused("scores", floats(vec![0.0; 3]), Code::Malformed, "3 entries for 16 tokens");
    refused("scores", floats([vec![0.0; 15], vec![f32::NAN]].concat()), Code::BadKey, "scores[15]");
    refused("scores", Some(Value::Array(Array::I32(vec![0; 16]))), Code::BadKey, "scores");
    refused("add_space_prefix", Some(Value::U8(1)), Code::BadKey, "add_space_prefix");
    refused("unknown_token_id", Some(Value::U32(16)), Code::BadKey, "unknown_token_id is 16");
    let types = |change: fn(usize, i32) -> i32| Some(Value::Array(Array::I32(TOKENS.iter().enumerate().map(|(i, t)| change(i, t.1)).collect())));
    refused("token_type", types(|i, t| if i == 5 { BYTE } else { t }), Code::Malformed, "\"a\"");
    let twice = TOKENS.iter().map(|t| if t.0 == "c" { "b" } else { t.0 }).collect();
    refused("tokens", Some(Value::Array(Array::Strings(twice))), Code::Malformed, "\"b\" twice");
}

/// Infinite scores order like any others.
#[test]
fn infinite_scores_do_no_harm() {
    let scores = TOKENS.iter().map(|t| if t.0 == "aa" { f32::INFINITY } else { f32::NEG_INFINITY }).collect();
    let t = with(&[("scores", Some(Value::Array(Array::F32(scores))))]).unwrap();
    assert_eq!(t.encode("aab", false), [13, 6]);
}
