//! Both tokenizers, from the real files' metadata: against llama.cpp's ids, against the `tokenizers` crate, and against the public bug
//! reports named in the tests.
#![cfg(not(target_arch = "wasm32"))]

#[path = "../header/mod.rs"]
mod header;

mod gemma;
mod oracle;
mod smollm2;

use std::time::Instant;

use header::{Model, ids};
use rillm::detok::Detokenizer;
use rillm::tokenizer::Tokenizer;

const BOTH: [Model; 2] = [Model::SmolLM2, Model::Gemma3];

/// What streaming the ids one by one shows, chunk by chunk.
fn streamed(t: &Tokenizer, ids: &[u32]) -> Vec<String> {
    let mut d = Detokenizer::new();
    let mut chunks: Vec<String> = ids.iter().map(|&id| d.push(&t.bytes(id))).collect();
    chunks.push(d.finish());
    chunks
}

#[track_caller]
fn round_trip(t: &Tokenizer, text: &str) {
    let ids = t.encode(text, false);
    assert_eq!(t.decode(&ids, false), text);
    assert_eq!(streamed(t, &ids).concat(), text);
}

/// Covers B007, B009, B014 and B015 too: their texts are among the goldens.
#[test]
fn every_golden_text_has_llama_cpps_ids() {
    for model in BOTH {
        let (t, golden) = (model.tokenizer(), model.golden());
        let cases = golden["tokenize"].as_array().unwrap();
        assert_eq!(cases.len(), 41);
        for case in cases {
            let text = case["text"].as_str().unwrap();
            assert_eq!(t.encode(text, false), ids(&case["ids"]), "{model:?}: {text:?}");
            assert_eq!(t.encode(text, true), ids(&case["ids_parse_special"]), "{model:?}: {text:?}, special");
        }
        let long = &golden["logprobs"];
        assert_eq!(t.encode_prompt(long["text"].as_str().unwrap(), false), ids(&long["ids"]));
        for case in golden["greedy"].as_array().unwrap() {
            assert_eq!(t.encode_prompt(case["prompt"].as_str().unwrap(), false), ids(&case["ids"]));
        }
    }
}

#[test]
fn golden_answers_decode_to_their_text() {
    for model in BOTH {
        let (t, golden) = (model.tokenizer(), model.golden());
        for case in golden["chat"].as_array().unwrap().iter().chain(golden["greedy"].as_array().unwrap()) {
            let (out, text) = (ids(&case["out"]), case["text"].as_str().unwrap());
            assert_eq!(t.decode(&out, false), text);
            assert_eq!(streamed(&t, &out).concat(), text);
        }
    }
}

#[test]
fn b001_streamed_chunks_hold_no_replacement_characters() {
    for t in BOTH.map(Model::tokenizer) {
        let text = "안녕하세요 세계 · 你好，世界 · 𠮷野家 · Ѓ";
        let chunks = streamed(&t, &t.encode(text, false));
        assert!(chunks.iter().all(|c| !c.contains('\u{FFFD}')), "{chunks:?}");
        assert_eq!(chunks.concat(), text);
    }
}

#[test]
fn b003_a_genuine_replacement_character_and_a_dangling_tail() {
    // an emoji of several tokens in each vocabulary; 😀 is a single one in Gemma's
    for (t, emoji) in [(Model::SmolLM2.tokenizer(), "😀"), (Model::Gemma3.tokenizer(), "\u{1FADF}")] {
        round_trip(&t, "a\u{FFFD}b");
        let ids = t.encode(emoji, false);
        let written = |n: usize| ids[..n].iter().map(|&id| t.bytes(id).len()).sum::<usize>();
        let cut = (1..ids.len()).find(|&n| written(n) < 4).unwrap();
        assert_eq!(streamed(&t, &ids[..cut]).concat(), "\u{FFFD}");
        assert_eq!(t.decode(&ids[..cut], false), "\u{FFFD}");
    }
}

#[test]
fn b004_odd_strings_are_only_strings() {
    for t in BOTH.map(Model::tokenizer) {
        assert!(t.encode("", true).is_empty());
        assert_eq!(t.encode_prompt("", true), t.bos().filter(|_| t.adds_bos()).into_iter().collect::<Vec<u32>>());
        for text in ["\u{FFFD}", "a\u{FFFD}b", "limón", "\0"] {
            round_trip(&t, text); // a lone surrogate has become U+FFFD before it gets here
        }
    }
}

#[test]
fn b004_a_megabyte_of_anything_takes_well_under_a_second() {
    for model in BOTH {
        let t = model.tokenizer();
        let letters = "a".repeat(1 << 20);
        let mixed: String = (0..1 << 18).map(|i| [' ', 'e', '\n', '<', '7', 'é', 'q', '|'][(i * i + i / 7) % 8]).collect();
        let unknown = "\u{10FFFE}".repeat(1 << 18); // bytes, in every vocabulary
        let texts =
            ["é".repeat(1 << 19), letters, " ".repeat(1 << 20), "\n".repeat(1 << 20), "<|im".repeat(1 << 18), "0".repeat(1 << 20), mixed, unknown];
        for text in texts {
            for special in [false, true] {
                let start = Instant::now();
                let ids = t.encode(&text, special);
                let took = start.elapsed();
                println!("{model:?}, {:?}... ({} bytes): {} ids in {took:?}", &text.chars().take(4).collect::<String>(), text.len(), ids.len());
                assert!(took.as_secs() < 10, "{took:?}"); // many times what it needs: tests share their machine. Quadratic, it would be hours
                if model == Model::Gemma3 || !text.contains('\u{10FFFE}') {
                    assert_eq!(t.decode(&ids, false), text);
                }
            }
        }
    }
}

#[test]
fn b006_spaces_survive() {
    for t in BOTH.map(Model::tokenizer) {
        for text in ["! ! !", "   leading", "trailing   ", "def f(n):\n    if n < 2:\n        return n", "a  ,  b .", "\tx"] {
            round_trip(&t, text);
        }
        assert_eq!(streamed(&t, &t.encode(" Hello", false))[0], " Hello");
    }
}

#[test]
fn b014_newline_runs() {
    for t in BOTH.map(Model::tokenizer) {
        for text in ["a\n\nb", "a\n\n\n\n\nb", "a\r\nb", "\n", "\n ", " \n"] {
            round_trip(&t, text); // the ids are goldens
        }
    }
}
