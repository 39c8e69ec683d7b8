//! What only SmolLM2's vocabulary has: byte-level BPE, single digits, chat markers, no BOS.

use std::time::Instant;

use rillm::tokenizer::Tokenizer;

use crate::header::Model;
use crate::{round_trip, streamed};

#[test]
fn the_vocabulary_loads_in_a_moment() {
    let mut meta = Model::SmolLM2.metadata();
    let start = Instant::now();
    let t = Tokenizer::from_metadata(&mut meta).unwrap();
    let took = start.elapsed();
    println!("loaded in {took:?}");
    assert!(took.as_millis() < 500, "{took:?}");
    assert_eq!(t.vocab_size(), 49_152);
    assert!(meta.get("tokenizer.ggml.tokens").is_none());
}

#[test]
fn b007_every_digit_stands_alone() {
    let t = Model::SmolLM2.tokenizer();
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
    let t = Model::SmolLM2.tokenizer();
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
fn b015_rare_characters_come_back_byte_for_byte() {
    let t = Model::SmolLM2.tokenizer();
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
    let t = Model::SmolLM2.tokenizer();
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
    let t = Model::SmolLM2.tokenizer();
    assert_eq!((t.bos(), t.eos(), t.adds_bos()), (Some(1), Some(2), false));
    assert_eq!(t.encode_prompt("<|im_start|>user", true), t.encode("<|im_start|>user", true));
}
