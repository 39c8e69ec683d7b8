//! Both tokenizers against the `tokenizers` crate, set up from the same metadata: 10,000 random texts each, with and without control tokens.

use rillm::gguf::{Array, Metadata, Value};
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::Replace;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::{AddedToken, Tokenizer as Oracle};

use crate::header::Model;

const TEXTS: usize = 10_000;

fn strings(meta: &Metadata, key: &str) -> Vec<String> {
    meta.require_strings(key).unwrap().iter().map(str::to_owned).collect()
}

/// The texts with their types: 1 normal, 3 control, 4 user-defined, 6 byte.
fn tokens(meta: &Metadata) -> Vec<(String, i32)> {
    let types = meta.require_i32s("tokenizer.ggml.token_type").unwrap();
    strings(meta, "tokenizer.ggml.tokens").into_iter().zip(types.iter().copied()).collect()
}

fn with_special_tokens(mut oracle: Oracle, tokens: &[(String, i32)], ends: &[&str]) -> Oracle {
    let is_control = |text: &str, kind: i32| kind == 3 || ends.contains(&text);
    let added = |text: &String, special| AddedToken::from(text.clone(), special).normalized(false);
    oracle.add_tokens(tokens.iter().filter(|(t, k)| *k == 4 && !is_control(t, *k)).map(|(t, _)| added(t, false))).unwrap();
    oracle.add_special_tokens(tokens.iter().filter(|(t, k)| is_control(t, *k)).map(|(t, _)| added(t, true))).unwrap();
    oracle
}

fn smollm2() -> Oracle {
    let meta = Model::SmolLM2.metadata();
    let tokens = tokens(&meta);
    let vocab: Vocab = tokens.iter().zip(0..).map(|((t, _), id)| (t.clone(), id)).collect();
    let merge = |m: String| m.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let merges: Vec<_> = strings(&meta, "tokenizer.ggml.merges").into_iter().map(merge).collect();
    let mut oracle = Oracle::new(BPE::builder().vocab_and_merges(vocab, merges).build().unwrap());
    oracle.with_pre_tokenizer(Some(Sequence::new(vec![Digits::new(true).into(), ByteLevel::new(false, false, true).into()])));
    with_special_tokens(oracle, &tokens, &[])
}

/// A merge for each way in which a token is two tokens, the best score first: how SentencePiece's models are converted for this crate.
fn gemma3() -> Oracle {
    let meta = Model::Gemma3.metadata();
    let tokens = tokens(&meta);
    let Some(Value::Array(Array::F32(scores))) = meta.get("tokenizer.ggml.scores") else { panic!("no scores") };
    let vocab: Vocab = tokens.iter().zip(0..).map(|((t, _), id)| (t.clone(), id)).collect();
    let mergeable = |text: &str| vocab.get(text).is_some_and(|&id| matches!(tokens[id as usize].1, 1 | 4));
    let mut merges = Vec::new();
    for (id, (text, _)) in tokens.iter().enumerate().filter(|(_, (text, _))| mergeable(text)) {
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if mergeable(left) && mergeable(right) {
                merges.push((id, left.to_owned(), right.to_owned()));
            }
        }
    }
    merges.sort_by(|a, b| scores[b.0].total_cmp(&scores[a.0]));
    println!("{} merges", merges.len());
    let merges: Vec<_> = merges.into_iter().map(|(_, left, right)| (left, right)).collect();
    let bpe = BPE::builder().vocab_and_merges(vocab.clone(), merges).byte_fallback(true).fuse_unk(true).unk_token("<unk>".into());
    let mut oracle = Oracle::new(bpe.build().unwrap());
    oracle.with_normalizer(Some(Replace::new(" ", "\u{2581}").unwrap())).unwrap();
    with_special_tokens(oracle, &tokens, &["</s>"])
}

/// Ranges of characters that every table of Unicode knows alike.
const RANGES: [(u32, u32); 20] = [
    (0x20, 0x7e),
    (0x20, 0x7e),
    (0x61, 0x7a),
    (0x30, 0x39),
    (0xa1, 0xff),
    (0x100, 0x17f),
    (0x391, 0x3c9),
    (0x410, 0x44f),
    (0x5d0, 0x5ea),
    (0x621, 0x63a),
    (0x660, 0x669),
    (0x905, 0x939),
    (0xe01, 0xe30),
    (0x1100, 0x1112),
    (0x2010, 0x2027),
    (0x2150, 0x2188),
    (0x3041, 0x3096),
    (0x4e00, 0x9fa5),
    (0xac00, 0xd7a3),
    (0x1f300, 0x1f64f),
];

struct Texts {
    state: u64,
    parts: Vec<String>,
}

impl Texts {
    fn below(&mut self, n: usize) -> usize {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % n
    }

    fn next(&mut self) -> String {
        let mut text = String::new();
        for _ in 0..1 + self.below(12) {
            match self.below(10) {
                0 => text.push_str(&" ".repeat(1 + self.below(4))),
                1 => text.push_str(["\n", "\n\n", "\t", "\r\n", "\u{a0}", "\u{3000}", "  \n", "'s", "'LL", "--"][self.below(10)]),
                2..=4 => {
                    let part = self.below(self.parts.len());
                    text.push_str(&self.parts[part].clone());
                }
                _ => {
                    let (low, high) = RANGES[self.below(RANGES.len())];
                    for _ in 0..1 + self.below(6) {
                        text.extend(char::from_u32(low + self.below((high - low + 1) as usize) as u32));
                    }
                }
            }
        }
        text
    }
}

fn compare(model: Model, mut oracle: Oracle) {
    let t = model.tokenizer();
    // words of the vocabulary itself, so that long merges happen, and every token that counts as a whole
    let mut parts: Vec<String> = (0..t.vocab_size() as u32).step_by(97).map(|id| String::from_utf8_lossy(&t.bytes(id)).into_owned()).collect();
    parts.retain(|p| !p.contains('\u{fffd}') && !p.is_empty() && !p.chars().any(|c| c.is_control() && !c.is_whitespace()));
    parts.extend(["<|im_start|>", "<|im_end|>", "<bos>", "<start_of_turn>", "</s>", "<h1>", "<table>", "the", " of", "ing"].map(str::to_owned));
    let mut texts = Texts { state: 7, parts };
    for special in [false, true] {
        oracle.set_encode_special_tokens(!special);
        for _ in 0..TEXTS / 2 {
            let text = texts.next();
            let right = oracle.encode_fast(text.as_str(), false).unwrap();
            assert_eq!(t.encode(&text, special), right.get_ids(), "{model:?}, special {special}: {text:?}");
        }
    }
}

#[test]
fn smollm2_encodes_as_the_tokenizers_crate_does() {
    compare(Model::SmolLM2, smollm2());
}

#[test]
fn gemma3_encodes_as_the_tokenizers_crate_does() {
    compare(Model::Gemma3, gemma3());
}

/// The crate's own file, read in place of the GGUF's vocabulary, gives the same ids, the same texts and the same BOS.
#[cfg(feature = "tokenizer-json")]
#[test]
fn a_tokenizer_json_stands_in_for_the_files_own_vocabulary() {
    for (model, oracle) in [(Model::SmolLM2, smollm2()), (Model::Gemma3, gemma3())] {
        let (own, golden) = (model.tokenizer(), model.golden());
        let json = oracle.to_string(false).unwrap();
        let read = rillm::tokenizer::Tokenizer::from_json(json.as_bytes(), &model.metadata(), own.vocab_size()).unwrap();
        for case in golden["tokenize"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            for special in [false, true] {
                // What SmolLM2 lacks letters for is dropped by both, but the crate merges across the gap.
                let ids = read.encode(text, special);
                if own.decode(&own.encode(text, special), true) == text {
                    assert_eq!(ids, own.encode(text, special), "{model:?}: {text:?}");
                }
                assert_eq!((read.decode(&ids, true), read.decode(&ids, false)), (own.decode(&ids, true), own.decode(&ids, false)));
            }
        }
        assert_eq!((read.bos(), read.eos(), read.adds_bos(), read.end_ids()), (own.bos(), own.eos(), own.adds_bos(), own.end_ids()));
        let e = rillm::tokenizer::Tokenizer::from_json(json.as_bytes(), &model.metadata(), 1000).unwrap_err();
        assert_eq!(e.code().as_str(), "malformed");
        let e = rillm::tokenizer::Tokenizer::from_json(b"{\"version\": 1}", &model.metadata(), 1000).unwrap_err();
        assert_eq!(e.code().as_str(), "unsupported-tokenizer");
    }
}
