//! Refusals, and what SmolLM2's vocabulary does not have: user-defined tokens, an added BOS.

use super::Tokenizer;
use crate::error::{Code, Error};
use crate::gguf::{Array, Metadata, Value};

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER: i32 = 4;

const TOKENS: &[(&str, i32)] = &[
    ("<bos>", CONTROL),
    ("<eos>", NORMAL), // a well-known end text is a control token whatever its type
    ("<x>", USER),
    ("<x><y>", USER),
    ("a", NORMAL),
    ("b", NORMAL),
    ("c", NORMAL),
    ("Ġ", NORMAL),
    ("ab", NORMAL),
    ("Ġab", NORMAL),
    ("<", NORMAL),
    (">", NORMAL),
    ("o", NORMAL),
    ("s", NORMAL),
    ("pad", 5),
    ("", NORMAL),
    ("¤", CONTROL),
];
const MERGES: &[&str] = &["a b", "Ġ ab"];

fn strings(texts: impl IntoIterator<Item = &'static str>) -> Value {
    Value::Array(Array::Strings(texts.into_iter().collect()))
}

fn pairs() -> Vec<(&'static str, Value)> {
    vec![
        ("tokenizer.ggml.model", Value::String("gpt2".into())),
        ("tokenizer.ggml.pre", Value::String("gpt-2".into())),
        ("tokenizer.ggml.tokens", strings(TOKENS.iter().map(|t| t.0))),
        ("tokenizer.ggml.token_type", Value::Array(Array::I32(TOKENS.iter().map(|t| t.1).collect()))),
        ("tokenizer.ggml.merges", strings(MERGES.iter().copied())),
        ("tokenizer.ggml.bos_token_id", Value::U32(0)),
        ("tokenizer.ggml.eos_token_id", Value::U32(1)),
        ("tokenizer.ggml.add_bos_token", Value::Bool(true)),
    ]
}

/// The vocabulary with one key changed, or removed where there is no value.
fn changed(key: &str, value: Option<Value>) -> Result<Tokenizer, Error> {
    let mut meta = Metadata::default();
    for (k, v) in pairs().into_iter().filter(|(k, _)| *k != key) {
        meta.insert(k.into(), v).unwrap();
    }
    if let Some(value) = value {
        meta.insert(key.into(), value).unwrap();
    }
    Tokenizer::from_metadata(&mut meta)
}

fn tokenizer() -> Tokenizer {
    changed("", None).unwrap()
}

#[track_caller]
fn refused(key: &str, value: Option<Value>, code: Code, mention: &str) {
    let e = changed(key, value).unwrap_err();
    assert_eq!(e.code(), code, "{e}");
    assert!(e.message().contains(mention), "{e}");
}

#[test]
fn the_vocabulary_leaves_the_metadata() {
    let mut meta = Metadata::default();
    pairs().into_iter().for_each(|(k, v)| meta.insert(k.into(), v).unwrap());
    Tokenizer::from_metadata(&mut meta).unwrap();
    for key in ["tokens", "token_type", "merges"] {
        assert!(meta.get(&format!("tokenizer.ggml.{key}")).is_none());
    }
}

#[test]
fn each_missing_key_is_named() {
    for key in ["model", "pre", "tokens", "token_type", "merges"] {
        let key = format!("tokenizer.ggml.{key}");
        refused(&key, None, Code::MissingKey, &key);
    }
    refused("tokenizer.ggml.bos_token_id", None, Code::MissingKey, "tokenizer.ggml.bos_token_id");
}

#[test]
fn unknown_kinds_are_named() {
    refused("tokenizer.ggml.model", Some(Value::String("rwkv".into())), Code::UnsupportedTokenizer, "\"rwkv\"");
    refused("tokenizer.ggml.pre", Some(Value::String("mpt".into())), Code::UnsupportedTokenizer, "\"mpt\"");
}

#[test]
fn contradictions_are_named() {
    let key = "tokenizer.ggml.merges";
    refused(key, Some(strings(["ab"])), Code::Malformed, "merges[0] is \"ab\"");
    refused(key, Some(strings(["a b", "a q"])), Code::Malformed, "merges[1] is \"a q\"");
    refused(key, Some(strings(["b a"])), Code::Malformed, "no token \"ba\"");
    refused(key, Some(Value::U32(1)), Code::BadKey, key);
    let key = "tokenizer.ggml.token_type";
    refused(key, Some(Value::Array(Array::I32(vec![1, 1]))), Code::Malformed, "token_type has 2 entries");
    refused(key, Some(Value::Array(Array::I32(vec![0; TOKENS.len()]))), Code::BadKey, "token_type[0] is 0");
    refused(key, Some(Value::Array(Array::I32(vec![-1; TOKENS.len()]))), Code::BadKey, "token_type[0] is -1");
    refused("tokenizer.ggml.eos_token_id", Some(Value::U32(17)), Code::BadKey, "eos_token_id is 17");
    refused("tokenizer.ggml.add_bos_token", Some(Value::U8(1)), Code::BadKey, "add_bos_token");
    refused("tokenizer.ggml.tokens", Some(strings([])), Code::BadKey, "tokens is empty");
    let twice = strings(TOKENS.iter().map(|t| if t.0 == "c" { "b" } else { t.0 }));
    refused("tokenizer.ggml.tokens", Some(twice), Code::Malformed, "\"b\" twice");
}

#[test]
fn letters_merge_and_missing_ones_part() {
    let t = tokenizer();
    assert_eq!(t.encode("ab ab", false), [8, 9]);
    assert_eq!(t.encode("azb", false), [4, 5]); // z has no token: dropped, and nothing merges across it
    assert!(t.encode("z", false).is_empty());
}

#[test]
fn user_defined_tokens_match_everywhere_and_the_longest_first() {
    let t = tokenizer();
    assert_eq!(t.encode("a<x><x><y>b", false), [4, 2, 3, 5]);
    assert_eq!(t.decode(&[4, 2, 3, 5], false), "a<x><x><y>b");
}

#[test]
fn control_tokens_match_only_when_special() {
    let t = tokenizer();
    assert_eq!(t.encode("<bos>a<eos>", true), [0, 4, 1]);
    assert_eq!(t.encode("<bos>a<eos>", false), [10, 5, 12, 13, 11, 4, 10, 12, 13, 11]); // e has no token
    assert_eq!((t.decode(&[0, 4, 1], false), t.decode(&[0, 4, 1], true)), ("a".into(), "<bos>a<eos>".into()));
    assert_eq!((t.control_id("<eos>"), t.control_id("<x>"), t.control_id("ab")), (Some(1), None, None));
    assert_eq!(t.control_texts().collect::<Vec<_>>(), ["<bos>", "<eos>", "¤"]);
    assert!(t.is_end(1) && !t.is_end(0) && t.end_ids() == [1]);
}

#[test]
fn a_mark_makes_a_control_token_text() {
    let t = tokenizer();
    assert_eq!(t.encode_marked("<bos>a<\u{fdd0}bos>", '\u{fdd0}'), [0, 4, 10, 5, 12, 13, 11]);
    assert_eq!(t.encode_marked("¤a¤\u{fdd0}b", '\u{fdd0}'), [16, 4, 5]); // the second ¤ is text, and its bytes have no letters
    assert_eq!(t.encode_marked("<\u{fdd0}x>", '\u{fdd0}'), [2]); // user-defined tokens match in every text
}

#[test]
fn b019_b020_bos_is_added_once() {
    let t = tokenizer();
    assert_eq!(t.encode_prompt("ab", false), [0, 8]);
    assert_eq!(t.encode_prompt("<bos>ab", true), [0, 8]);
    assert_eq!(t.encode_prompt("<bos>ab", false)[..2], [0, 10]);
    assert_eq!(t.encode_prompt("", true), [0]);
    let without = changed("tokenizer.ggml.add_bos_token", Some(Value::Bool(false))).unwrap();
    assert_eq!(without.encode_prompt("<bos>ab", true), [0, 8]); // the text's own is not taken away
    assert_eq!(without.encode_prompt("ab", true), [8]);
}

#[test]
fn ids_beyond_the_vocabulary_are_named_and_harmless() {
    let t = tokenizer();
    let e = t.check_ids(&[0, 16, 17]).unwrap_err();
    assert_eq!(e.code(), Code::BadToken);
    assert!(e.message().contains("17") && t.check_ids(&[0, 16]).is_ok());
    assert_eq!(t.decode(&[4, 99, u32::MAX], true), "a");
    assert!(t.bytes(14).is_empty() && t.bytes(15).is_empty() && t.bytes(99).is_empty() && t.text(99).is_none());
}

#[test]
fn broken_utf8_is_replaced() {
    let mut pairs = pairs();
    pairs[2].1 = strings(TOKENS.iter().map(|t| if t.0 == "c" { "Ã" } else { t.0 })); // the first byte of é
    let mut meta = Metadata::default();
    pairs.into_iter().for_each(|(k, v)| meta.insert(k.into(), v).unwrap());
    let t = Tokenizer::from_metadata(&mut meta).unwrap();
    assert_eq!((&*t.bytes(6), t.decode(&[4, 6, 5], false)), (&[0xC3][..], "a\u{FFFD}b".into()));
}
