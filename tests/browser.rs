//! The real models in a browser's worker: ids, the golden scores, the native build's log-probabilities, and the same bits for any chunk.
#![cfg(target_arch = "wasm32")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use common::golden;
use rillm::backend::Want;
use rillm::backend::cpu::{Cpu, Variant};
use rillm::gguf::{Gguf, Parsed};
use rillm::load::{LoadOptions, Loader};
use rillm::session::Engine;
use rillm::session::predict::Predict;
use rillm::tokenizer::Tokenizer;
use wasm_bindgen::JsCast;
use wasm_bindgen_futures::JsFuture;
use wasm_bindgen_test::{console_log, wasm_bindgen_test, wasm_bindgen_test_configure};

wasm_bindgen_test_configure!(run_in_dedicated_worker);

/// Counts what is held and the most that was held, for the test of a tokenizer's memory.
struct Counting;
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is the system allocator's; this only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(held, Relaxed);
        // SAFETY: the caller's layout is handed on as it came.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: so are the pointer, which came from `alloc`, and its layout.
        unsafe { System.dealloc(at, layout) }
    }
}

/// The test server serves the repository's folder too.
async fn fetch(file: &str) -> js_sys::Uint8Array {
    let scope: web_sys::WorkerGlobalScope = js_sys::global().unchecked_into();
    let fetched = JsFuture::from(scope.fetch_with_str(&format!("/models/{file}"))).await.unwrap();
    let response: web_sys::Response = fetched.unchecked_into();
    assert!(response.ok(), "{file} is not there: run ./build.sh models");
    js_sys::Uint8Array::new(&JsFuture::from(response.array_buffer().unwrap()).await.unwrap())
}

async fn engine(file: &str) -> Engine<Cpu> {
    let file = fetch(file).await;
    let options = LoadOptions { context_length: Some(2048), ..LoadOptions::default() };
    let mut loader = Loader::new(Cpu::new(Variant::detect()), Some(u64::from(file.length())), options);
    for at in (0..file.length()).step_by(1 << 20) {
        loader.push(&file.subarray(at, (at + (1 << 20)).min(file.length())).to_vec()).unwrap();
    }
    let engine = Engine::new(loader.finish().unwrap());
    assert!(engine.info().simd.starts_with(if cfg!(target_feature = "relaxed-simd") { "relaxed" } else { "simd128" }));
    engine
}

#[wasm_bindgen_test]
async fn smollm2_gives_the_golden_scores() {
    check(&mut engine("SmolLM2-135M-Instruct.Q4_1.gguf").await, &golden::smollm2(), &golden::smollm2_reference()).await;
}

/// 262,144 tokens in under 0.15 s and 24 MiB, from the header's bytes on; the best of five, since tests share their machine.
#[wasm_bindgen_test]
async fn gemmas_tokenizer_loads_in_a_moment_and_little_memory() {
    let file = fetch("gemma-3-270m-q4_k_m.gguf").await;
    let header = file.subarray(0, 8 << 20).to_vec();
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let held = HELD.load(Relaxed);
        MOST.store(held, Relaxed);
        let start = web_time::Instant::now();
        let Parsed::Done(mut gguf) = Gguf::parse(&header, Some(file.length().into())).unwrap() else { panic!("the header is longer") };
        let tokenizer = Tokenizer::from_metadata(&mut gguf.metadata).unwrap();
        let seconds = start.elapsed().as_secs_f64();
        let mib = |bytes: usize| (bytes - held) as f64 / f64::from(1 << 20);
        let (most, kept) = (mib(MOST.load(Relaxed)), mib(HELD.load(Relaxed)));
        assert_eq!(tokenizer.vocab_size(), 262_144);
        console_log!("{:.0} ms, {most:.1} MiB at most, {kept:.1} MiB kept", seconds * 1e3);
        assert!(most < 24.0, "{most} MiB");
        best = best.min(seconds);
    }
    assert!(best < 0.15, "{best} s");
}

/// Past the window of its local layers too.
#[wasm_bindgen_test]
async fn gemma3_gives_the_golden_scores() {
    check(&mut engine("gemma-3-270m-q4_k_m.gguf").await, &golden::gemma3(), &golden::gemma3_reference()).await;
}

async fn check(engine: &mut Engine<Cpu>, golden: &serde_json::Value, reference: &[f32]) {
    for case in golden["tokenize"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        assert_eq!(engine.tokenizer().encode(text, false), golden::ids(&case["ids"]), "{text:?}");
        assert_eq!(engine.tokenizer().encode(text, true), golden::ids(&case["ids_parse_special"]), "{text:?}, special");
    }

    let mut scoring = engine.score(golden::ids(&golden["logprobs"]["ids"])).unwrap();
    while !engine.score_step(&mut scoring).await.unwrap() {}
    let logprobs: Vec<f32> = scoring.picks().iter().map(|p| p.logprob).collect();
    golden::check_score(golden, &logprobs);
    golden::check_reference(reference, &logprobs[..reference.len()]);

    let mut margins = Vec::new();
    for (ids, prompt) in golden::greedy(golden) {
        let mut scoring = engine.score(ids).unwrap();
        while !engine.score_step(&mut scoring).await.unwrap() {}
        margins.extend(scoring.picks()[prompt - 1..].iter().map(|p| p.top_logprob - p.logprob));
    }
    golden::check_greedy(&margins);

    // past two tiles of the attention and past Gemma's window, one by one and in chunks
    let ids = golden::ids(&golden["logprobs"]["ids"]);
    let mut seen: Option<Vec<u32>> = None;
    for chunk in [1, 7, 64, 530] {
        let runner = engine.runner();
        runner.truncate(0);
        let mut logits = Vec::new();
        let pieces: Vec<_> = ids[..530].chunks(chunk).collect();
        for (i, piece) in pieces.iter().enumerate() {
            let want = if i + 1 == pieces.len() { Some(&Want::Logits) } else { None };
            logits = runner.run(piece, want).await.unwrap().logits;
        }
        let bits: Vec<u32> = logits.iter().map(|z| z.to_bits()).collect();
        match &seen {
            None => seen = Some(bits),
            Some(before) => assert!(*before == bits, "chunks of {chunk} give other bits"),
        }
    }
}
