//! The command line as a user or a script meets it: what is on stdout, the exit codes, and refusals by code.
#![cfg(not(target_arch = "wasm32"))]

mod common;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{golden, models};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_rillm");

fn rillm(args: &[&str]) -> Output {
    Command::new(PROGRAM).args(args).output().unwrap()
}

fn model() -> String {
    models::path(models::SMOLLM2).to_str().unwrap().to_owned()
}

/// The one JSON value on stdout.
fn json(args: &[&str], code: i32) -> Value {
    let output = rillm(args);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Refused with this code: with --json as a value on stdout, without it as a sentence on stderr.
fn refused(args: &[&str], code: &str, word: &str) {
    let error = &json(&[args, &["--json"]].concat(), 1)["error"];
    assert!(error["code"] == code && error["message"].as_str().unwrap().contains(word), "{args:?}: {error}");
    let output = rillm(args);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && output.stdout.is_empty() && told.contains(code) && told.contains(word), "{args:?}: {told}");
    assert!(!told.contains("panicked"), "{told}");
}

#[test]
fn generate_streams_plain_text_and_json_is_the_whole_answer() {
    let model = model();
    let args = ["generate", &model, "--prompt", "The capital of France is", "--temperature", "0", "--max-tokens", "12"];
    let plain = rillm(&args);
    let whole = json(&[&args[..], &["--json"]].concat(), 0);
    assert!(plain.status.success() && plain.stderr.is_empty());
    assert_eq!(String::from_utf8(plain.stdout).unwrap(), whole["text"].as_str().unwrap().to_owned() + "\n");
    assert!(whole["text"].as_str().unwrap().starts_with(" Paris"));
    assert_eq!((whole["finishReason"].as_str(), whole["usage"]["completionTokens"].as_u64()), (Some("length"), Some(12)));
    assert!(whole["metrics"]["prefillTokensPerSecond"].as_f64().unwrap() > 0.0);

    let eight = json(&[&args[..], &["--kv-type", "q8_0", "--json"]].concat(), 0);
    assert!(eight["text"].as_str().unwrap().starts_with(" Paris"));

    let chat = json(&["generate", &model, "--chat", "What is 2+2?", "--system", "Be brief.", "--temperature", "0", "--json"], 0);
    assert_eq!((chat["finishReason"].as_str(), chat["stopDetail"]["kind"].as_str()), (Some("stop"), Some("eos")));
    let stopped = json(&[&args[..], &["--stop", ".", "--json"]].concat(), 0);
    assert_eq!((stopped["text"].as_str(), stopped["stopDetail"]["match"].as_str()), (Some(" Paris"), Some(".")));
}

#[test]
fn info_tokenize_score_and_bench_answer_in_json_and_in_text() {
    let model = model();
    let info = json(&["info", &model, "--json"], 0);
    assert_eq!(
        (info["architecture"].as_str(), info["quantization"].as_str(), info["vocabSize"].as_u64()),
        (Some("llama"), Some("Q4_1"), Some(49_152))
    );
    assert!(String::from_utf8(rillm(&["info", &model]).stdout).unwrap().contains("Q4_1"));

    let eight = json(&["info", &model, "--kv-type", "q8_0", "--json"], 0);
    assert_eq!((info["kvType"].as_str(), eight["kvType"].as_str()), (Some("f16"), Some("q8_0")));
    let saved = info["deviceBytes"].as_f64().unwrap() - eight["deviceBytes"].as_f64().unwrap();
    assert_eq!(saved, info["contextLength"].as_f64().unwrap() * (23_040.0 - 12_240.0));

    let golden = golden::smollm2();
    for text in golden["tokenize"].as_array().unwrap().iter().take(8).filter(|t| !t["text"].as_str().unwrap().contains('\0')) {
        let ids = json(&["tokenize", &model, "--json", "--", text["text"].as_str().unwrap()], 0);
        assert_eq!(ids, text["ids"]);
    }
    let ids: Vec<String> = golden::ids(&golden["logprobs"]["ids"])[..40].iter().map(u32::to_string).collect();
    let score = json(&["score", &model, "--ids", &ids.join(","), "--json"], 0);
    assert_ne!(json(&["score", &model, "--ids", &ids.join(","), "--kv-type", "q8_0", "--json"], 0)["logprobs"], score["logprobs"]);
    for (ours, right) in score["logprobs"].as_array().unwrap().iter().zip(golden["logprobs"]["lp"].as_array().unwrap()) {
        assert!((ours.as_f64().unwrap() - right.as_f64().unwrap()).abs() < 1.0);
    }
    assert_eq!(score["topIds"].as_array().unwrap().len(), 39);

    let bench = json(&["bench", &model, "--prompt-tokens", "20", "--tokens", "4", "--threads", "2", "--context", "64", "--json"], 0);
    assert_eq!((bench["promptTokens"].as_u64(), bench["completionTokens"].as_u64()), (Some(20), Some(4)));
    assert_eq!((bench["threads"].as_u64(), bench["kvType"].as_str()), (Some(2), Some("f16")));
    assert!(bench["decodeTokensPerSecond"].as_f64().unwrap() > 0.0 && bench["timeToFirstTokenMs"].as_f64().unwrap() > 0.0);
}

#[test]
fn refusals_have_codes_and_name_the_thing() {
    let model = model();
    let generate = |extra: &[&str], code, word| refused(&[&["generate", &model, "--prompt", "Hi"], extra].concat(), code, word);
    refused(&["info", "no-such-file.gguf"], "io", "no-such-file.gguf");
    refused(&["info", env!("CARGO_MANIFEST_DIR")], "io", "");
    refused(&["info", Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md").to_str().unwrap()], "not-gguf", "GGUF");
    generate(&["--temperature", "NaN"], "bad-option", "temperature");
    generate(&["--temperature=-1"], "bad-option", "temperature");
    generate(&["--top-p", "1.5"], "bad-option", "topP");
    generate(&["--seed", "1.5"], "bad-option", "seed");
    generate(&["--max-tokens", "0"], "bad-option", "maxTokens");
    generate(&["--stop", ""], "bad-option", "stop");
    generate(&["--backend", "candle", "--threads", "2"], "not-supported", "--threads");
    generate(&["--backend", "gpu"], "not-supported", "GPU");
    generate(&["--context", "100000"], "bad-option", "contextLength");
    refused(&["generate", &model, "--prompt", ""], "empty-prompt", "token");
    refused(&["generate", &model, "--prompt", &"word ".repeat(300), "--context", "200"], "prompt-too-long", "200");
    refused(&["score", &model, "--ids", "5,49152"], "bad-token", "49152");
    refused(&["bench", &model, "--prompt-tokens", "0"], "empty-prompt", "prompt-tokens");
}

#[test]
fn wrong_usage_is_exit_code_2_and_a_closed_pipe_is_no_error() {
    for args in [
        &["generate"][..],
        &["frobnicate"],
        &["generate", "x.gguf"],
        &["generate", "x.gguf", "--prompt", "a", "--chat", "b"],
        &["info", "x.gguf", "--kv-type", "q4_0"],
        &[],
    ] {
        assert_eq!(rillm(args).status.code(), Some(2), "{args:?}");
    }
    let mut child = Command::new(PROGRAM)
        .args(["generate", &model(), "--prompt", "Once upon a time", "--max-tokens", "40", "--ignore-eos"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A file that comes through a pipe has no size that is known beforehand.
#[cfg(unix)]
#[test]
fn a_model_can_come_through_a_pipe() {
    let bytes = common::gguf_writer::TinyModel::default().bytes();
    let mut child = Command::new(PROGRAM).args(["info", "/dev/stdin", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let info: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(info["bytes"].as_f64(), Some(bytes.len() as f64));
}

#[cfg(feature = "candle")]
#[test]
fn candle_answers_what_the_cpu_answers_and_devices_are_refused_by_name() {
    let model = model();
    let args = ["generate", &model, "--prompt", "The capital of France is", "--temperature", "0", "--max-tokens", "3", "--json"];
    let ids = |more: &[&str]| json(&[&args[..], more].concat(), 0)["tokens"].clone();
    assert_eq!(ids(&["--backend", "candle"]), ids(&[]));
    let refused = |more: &[&str], code: &str, word: &str| refused(&[&args[..args.len() - 1], more].concat(), code, word);
    refused(&["--backend", "candle", "--device", "abacus"], "bad-option", "abacus");
    refused(&["--backend", "candle", "--kv-type", "q8_0"], "not-supported", "q8_0");
    refused(&["--device", "cuda"], "not-supported", "--backend candle");
    refused(&["--backend", "candle", "--device", "cuda"], "device", "cuda");
}
