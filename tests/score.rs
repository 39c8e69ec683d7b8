//! The real model against llama.cpp and a float32 forward, on every instruction set; and the same bits whatever the chunk.
#![cfg(not(target_arch = "wasm32"))]

mod common;

use common::golden;
use common::models;
use pollster::block_on;
use rillm::backend::Want;
use rillm::backend::cpu::{Cpu, Variant};
use rillm::load::{LoadOptions, Loader};
use rillm::session::Engine;
use rillm::session::predict::Predict;

const MODEL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

fn engine(variant: Variant) -> Engine<Cpu> {
    let bytes = std::fs::read(models::path(MODEL)).unwrap();
    let options = LoadOptions { context_length: Some(2048) };
    let mut loader = Loader::new(Cpu::new(variant), Some(bytes.len() as u64), options);
    bytes.chunks(1 << 20).for_each(|piece| loader.push(piece).unwrap());
    Engine::new(loader.finish().unwrap())
}

fn best() -> Engine<Cpu> {
    engine(Variant::detect())
}

#[test]
fn the_golden_text_scores_as_it_should() {
    let golden = golden::smollm2();
    let ids = golden::ids(&golden["logprobs"]["ids"]);
    let mut engine = best();
    let mut scoring = engine.score(ids).unwrap();
    while !block_on(engine.score_step(&mut scoring)).unwrap() {}
    let logprobs: Vec<f32> = scoring.picks().iter().map(|p| p.logprob).collect();
    golden::check_score(&golden, &logprobs);
}

#[test]
fn greedy_texts_are_followed() {
    let mut engine = best();
    let mut margins = Vec::new();
    for (ids, prompt) in golden::greedy(&golden::smollm2()) {
        let mut scoring = engine.score(ids).unwrap();
        while !block_on(engine.score_step(&mut scoring)).unwrap() {}
        margins.extend(scoring.picks()[prompt - 1..].iter().map(|p| p.top_logprob - p.logprob));
    }
    golden::check_greedy(&margins);
}

/// The logits after each of some positions, as bits.
fn logits_at_the_end(engine: &mut Engine<Cpu>, ids: &[u32], chunk: usize) -> Vec<u32> {
    let runner = engine.runner();
    runner.truncate(0);
    let (last, before) = ids.chunks(chunk).collect::<Vec<_>>().split_last().map(|(l, b)| (*l, b.to_vec())).unwrap();
    for piece in before {
        block_on(runner.run(piece, None)).unwrap();
    }
    block_on(runner.run(last, Some(&Want::Logits))).unwrap().logits.iter().map(|z| z.to_bits()).collect()
}

#[test]
fn logits_do_not_depend_on_chunks_or_instruction_sets() {
    let ids = golden::ids(&golden::smollm2()["logprobs"]["ids"]);
    // past two tiles of the attention, not a multiple of anything
    let ids = &ids[..603];
    let mut engine = best();
    let whole = logits_at_the_end(&mut engine, ids, ids.len());
    assert_eq!(whole.len(), 49_152);
    for chunk in [1, 7, 64, 512] {
        assert!(logits_at_the_end(&mut engine, ids, chunk) == whole, "chunks of {chunk} give other bits");
    }
    for variant in Variant::available() {
        let short = &ids[..67];
        let right = logits_at_the_end(&mut engine, short, 64);
        assert!(logits_at_the_end(&mut self::engine(variant), short, 64) == right, "{} gives other bits", variant.name());
    }
}

#[test]
fn a_reused_prefix_gives_the_bits_of_a_fresh_prompt() {
    let ids = golden::ids(&golden::smollm2()["logprobs"]["ids"]);
    let mut engine = best();
    let fresh = logits_at_the_end(&mut engine, &ids[..300], 64);
    let other = [&ids[..137], &ids[500..600]].concat();
    logits_at_the_end(&mut engine, &other, 64);
    let runner = engine.runner();
    runner.truncate(137);
    let again = block_on(runner.run(&ids[137..300], Some(&Want::Logits))).unwrap().logits;
    assert!(again.iter().map(|z| z.to_bits()).collect::<Vec<_>>() == fresh);
}
