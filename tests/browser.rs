//! The real model in a browser's worker: the golden scores, and the logits that the native build gives on the same bits.
#![cfg(target_arch = "wasm32")]

mod common;

use common::golden;
use rillm::backend::Want;
use rillm::backend::cpu::{Cpu, Variant};
use rillm::load::{LoadOptions, Loader};
use rillm::session::Engine;
use rillm::session::predict::Predict;
use wasm_bindgen::JsCast;
use wasm_bindgen_futures::JsFuture;
use wasm_bindgen_test::{wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_dedicated_worker);

/// The test server serves the repository's folder too.
async fn engine() -> Engine<Cpu> {
    let scope: web_sys::WorkerGlobalScope = js_sys::global().unchecked_into();
    let fetched = JsFuture::from(scope.fetch_with_str("/models/SmolLM2-135M-Instruct.Q4_1.gguf")).await.unwrap();
    let response: web_sys::Response = fetched.unchecked_into();
    assert!(response.ok(), "the model is not there: run ./build.sh models");
    let file = js_sys::Uint8Array::new(&JsFuture::from(response.array_buffer().unwrap()).await.unwrap());
    let options = LoadOptions { context_length: Some(2048), ..LoadOptions::default() };
    let mut loader = Loader::new(Cpu::new(Variant::detect()), Some(u64::from(file.length())), options);
    for at in (0..file.length()).step_by(1 << 20) {
        loader.push(&file.subarray(at, (at + (1 << 20)).min(file.length())).to_vec()).unwrap();
    }
    Engine::new(loader.finish().unwrap())
}

#[wasm_bindgen_test]
async fn the_real_model_gives_the_golden_scores() {
    let golden = golden::smollm2();
    let mut engine = engine().await;
    assert_eq!(engine.info().simd, "simd128");

    let mut scoring = engine.score(golden::ids(&golden["logprobs"]["ids"])).unwrap();
    while !engine.score_step(&mut scoring).await.unwrap() {}
    let logprobs: Vec<f32> = scoring.picks().iter().map(|p| p.logprob).collect();
    golden::check_score(&golden, &logprobs);
    let right = golden::stored_reference();
    golden::check_reference(&right, &logprobs[..right.len()]);

    let mut margins = Vec::new();
    for (ids, prompt) in golden::greedy(&golden) {
        let mut scoring = engine.score(ids).unwrap();
        while !engine.score_step(&mut scoring).await.unwrap() {}
        margins.extend(scoring.picks()[prompt - 1..].iter().map(|p| p.top_logprob - p.logprob));
    }
    golden::check_greedy(&margins);

    let ids = golden::ids(&golden["logprobs"]["ids"]);
    let mut seen: Option<Vec<u32>> = None;
    for chunk in [1, 7, 64, 300] {
        let runner = engine.runner();
        runner.truncate(0);
        let mut logits = Vec::new();
        for piece in ids[..300].chunks(chunk) {
            logits = runner.run(piece, Some(&Want::Logits)).await.unwrap().logits;
        }
        let bits: Vec<u32> = logits.iter().map(|z| z.to_bits()).collect();
        match &seen {
            None => seen = Some(bits),
            Some(before) => assert!(*before == bits, "chunks of {chunk} give other bits"),
        }
    }
}
