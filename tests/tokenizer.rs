//! SmolLM2's tokenizer, from the real file's metadata, against llama.cpp's ids and the public bug reports named in the tests.
#![cfg(not(target_arch = "wasm32"))]

mod header;

use std::time::Instant;

use header::{golden, ids, metadata, tokenizer};
use rillm::detok::Detokenizer;
use rillm::tokenizer::Tokenizer;

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

/// Covers B007, B014 and B015 too: their texts are among the goldens.
#[test]
fn every_golden_text_has_llama_cpps_ids() {
    let t = tokenizer();
    let golden = golden();
    let cases = golden["tokenize"].as_array().unwrap();
    assert_eq!(cases.len(), 41);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        assert_eq!(t.encode(text, false), ids(&case["ids"]), "{text:?}");
        assert_eq!(t.encode(text, true), ids(&case["ids_parse_special"]), "{text:?}, special");
    }
    let long = &golden["logprobs"];
    assert_eq!(t.encode(long["text"].as_str().unwrap(), false), ids(&long["ids"]));
    for case in golden["greedy"].as_array().unwrap() {
        assert_eq!(t.encode_prompt(case["prompt"].as_str().unwrap(), false), ids(&case["ids"]));
    }
}

#[test]
fn golden_answers_decode_to_their_text() {
    let (t, golden) = (tokenizer(), golden());
    for case in golden["chat"].as_array().unwrap().iter().chain(golden["greedy"].as_array().unwrap()) {
        let (out, text) = (ids(&case["out"]), case["text"].as_str().unwrap());
        assert_eq!(t.decode(&out, false), text);
        assert_eq!(streamed(&t, &out).concat(), text);
    }
}

#[test]
fn b001_streamed_chunks_hold_no_replacement_characters() {
    let t = tokenizer();
    let text = "안녕하세요 세계 · 你好，世界 · 𠮷野家 · Ѓ";
    let chunks = streamed(&t, &t.encode(text, false));
    assert!(chunks.iter().all(|c| !c.contains('\u{FFFD}')), "{chunks:?}");
    assert_eq!(chunks.concat(), text);
}

#[test]
fn b003_a_genuine_replacement_character_and_a_dangling_tail() {
    let t = tokenizer();
    round_trip(&t, "a\u{FFFD}b");
    let emoji = t.encode("😀", false);
    let written = |n: usize| emoji[..n].iter().map(|&id| t.bytes(id).len()).sum::<usize>();
    let cut = (1..emoji.len()).find(|&n| written(n) < 4).unwrap();
    assert_eq!(streamed(&t, &emoji[..cut]).concat(), "\u{FFFD}");
    assert_eq!(t.decode(&emoji[..cut], false), "\u{FFFD}");
}

#[test]
fn b004_odd_strings_are_only_strings() {
    let t = tokenizer();
    assert!(t.encode("", true).is_empty() && t.encode_prompt("", true).is_empty()); // the file adds no BOS
    for text in ["\u{FFFD}", "a\u{FFFD}b", "limón", "\0"] {
        round_trip(&t, text); // a lone surrogate has become U+FFFD before it gets here
    }
}

#[test]
fn b004_a_megabyte_of_anything_takes_well_under_a_second() {
    let t = tokenizer();
    let letters = "a".repeat(1 << 20);
    let mixed: String = (0..1 << 18).map(|i| [' ', 'e', '\n', '<', '7', 'é', 'q', '|'][(i * i + i / 7) % 8]).collect();
    for text in ["é".repeat(1 << 19), letters, " ".repeat(1 << 20), "\n".repeat(1 << 20), "<|im".repeat(1 << 18), "0".repeat(1 << 20), mixed] {
        for special in [false, true] {
            let start = Instant::now();
            let ids = t.encode(&text, special);
            let took = start.elapsed();
            println!("{:?}... ({} bytes): {} ids in {took:?}", &text.chars().take(4).collect::<String>(), text.len(), ids.len());
            assert!(took.as_millis() < 2_000, "{took:?}"); // many times what it needs: tests share their machine
            assert_eq!(t.decode(&ids, false), text);
        }
    }
}

#[test]
fn the_vocabulary_loads_in_a_moment() {
    let mut meta = metadata();
    let start = Instant::now();
    let t = Tokenizer::from_metadata(&mut meta).unwrap();
    let took = start.elapsed();
    println!("loaded in {took:?}");
    assert!(took.as_millis() < 500, "{took:?}");
    assert_eq!(t.vocab_size(), 49_152);
    assert!(meta.get("tokenizer.ggml.tokens").is_none());
}

#[test]
fn b006_spaces_survive() {
    let t = tokenizer();
    for text in ["! ! !", "   leading", "trailing   ", "def f(n):\n    if n < 2:\n        return n", "a  ,  b .", "\tx"] {
        round_trip(&t, text);
    }
    assert_eq!(streamed(&t, &t.encode(" Hello", false))[0], " Hello");
}

#[test]
fn b007_every_digit_stands_alone() {
    let t = tokenizer();
    let text = "12345 007 3.14159 2024-09-25 v1.2.3";
    let ids = t.encode(text, false);
    let digits = ids.iter().filter(|&&id| t.bytes(id).iter().any(u8::is_ascii_digit)).inspect(|&&id| assert_eq!(t.bytes(id).len(), 1));
    assert_eq!(digits.count(), text.bytes().filter(u8::is_ascii_digit).count());
    for text in ["١٢٣", "x²"] {
        round_trip(&t, text);
    }
}

#[test]
fn b012_control_tokens_are_parsed_only_when_asked() {
    let t = tokenizer();
    let text = "<|im_start|>user\nHello<|im_end|>";
    let parsed = t.encode(text, true);
    assert_eq!((parsed[0], parsed[parsed.len() - 1], parsed.len()), (1, 2, 5));
    let spelled = t.encode(text, false);
    assert!(!spelled.iter().any(|&id| t.is_control(id)));
    assert_eq!(t.decode(&spelled, false), text);
    assert_eq!((t.decode(&parsed, false), t.decode(&parsed, true)), ("user\nHello".into(), text.into()));
    assert_eq!((t.control_id("<|im_start|>"), t.control_id("<|im_end|>"), t.control_texts().count()), (Some(1), Some(2), 17));
}

#[test]
fn b014_newline_runs() {
    let t = tokenizer();
    for text in ["a\n\nb", "a\n\n\n\n\nb", "a\r\nb", "\n", "\n ", " \n"] {
        round_trip(&t, text); // the ids are goldens
    }
}

#[test]
fn b015_rare_characters_come_back_byte_for_byte() {
    let t = tokenizer();
    let bytes = |text: &str| t.encode(text, false).iter().flat_map(|&id| t.bytes(id).into_owned()).collect::<Vec<u8>>();
    // The vocabulary lacks the letters of 21 bytes; those, and only those, are dropped.
    let missing: Vec<u8> =
        (0..=255u8).filter(|b| matches!(b, 0x04 | 0x06 | 0x13 | 0x14 | 0x16 | 0x1D | 0xC0 | 0xC1 | 0xF1 | 0xF2 | 0xF5..)).collect();
    assert_eq!(missing.len(), 21);
    let mut state = 1u32;
    let random = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    });
    let random: Vec<char> = random.filter_map(|n| char::from_u32(n % 0x11_0000)).take(1_000).collect();
    let named = ["This is 🦙.cpp", "𓀀", "\u{10FFFF}", "\u{200d}"].map(str::to_owned);
    for text in named.into_iter().chain(random.iter().map(char::to_string)).chain([random.iter().collect()]) {
        let kept: Vec<u8> = text.bytes().filter(|b| !missing.contains(b)).collect();
        assert_eq!(bytes(&text), kept, "{text:?}");
        if kept.len() == text.len() {
            round_trip(&t, &text);
        }
    }
}

#[test]
fn b018_a_reply_may_spell_the_marker() {
    let t = tokenizer();
    let text = "the marker <|im_end|> ends a turn";
    let mut reply = t.encode(text, false);
    assert!(!reply.iter().any(|&id| t.is_end(id)));
    reply.push(2);
    assert!(t.is_end(2) && reply.iter().filter(|&&id| t.is_end(id)).count() == 1);
    assert_eq!(streamed(&t, &reply).concat(), text);
    assert_eq!(t.end_ids(), [0, 2]); // <|endoftext|>, <|im_end|>
}

#[test]
fn b020_the_file_adds_no_bos() {
    let t = tokenizer();
    assert_eq!((t.bos(), t.eos(), t.adds_bos()), (Some(1), Some(2), false));
    assert_eq!(t.encode_prompt("<|im_start|>user", true), t.encode("<|im_start|>user", true));
}
