//! The command line, and the Rust example: load a file in pieces, step a generation, print what comes.

mod args;
mod load;
mod roofline;

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use pollster::block_on;
use rillm::backend::cpu::Cpu;
use rillm::backend::{Backend, KvType};
use rillm::chat::{Message, Now};
use rillm::error::{Code, Error, Result};
use rillm::load::LoadOptions;
use rillm::session::options::OptionValue;
use rillm::session::{Answer, Engine, Options, Step};
use serde::Serialize;
use serde_json::json;

use args::{Bench, Cli, Generate, Verb};
use load::{Work, load, tokenizer_json, with_engine};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            if cli.json {
                print_json(&json!({ "error": { "code": e.code().as_str(), "message": e.message() } }));
            } else {
                eprintln!("rillm: {e}");
            }
            ExitCode::from(1)
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    match &cli.verb {
        Verb::Generate(g) => with_engine(&g.machine, &g.model, cli.json, Generating { g, as_json: cli.json }),
        Verb::Bench(b) => bench(b, cli.json),
        Verb::Info { model, kv } => info(model, KvType::from_name(&kv.name)?, cli.json),
        Verb::Tokenize { model, text, special, tokenizer } => {
            let options = LoadOptions { context_length: Some(1), tokenizer_json: tokenizer_json(tokenizer.as_ref())?, ..LoadOptions::default() };
            let engine = load(Cpu::default(), model, options, cli.json)?;
            let ids = engine.tokenizer().encode(text, *special);
            if cli.json {
                print_json(&ids);
            } else {
                for id in ids {
                    print_line(&format!("{id}\t{:?}", engine.tokenizer().text(id).unwrap_or_default()));
                }
            }
            Ok(())
        }
        Verb::Score { model, ids, text, machine } => with_engine(machine, model, cli.json, Scoring { ids, text: text.as_deref(), as_json: cli.json }),
    }
}

struct Generating<'a> {
    g: &'a Generate,
    as_json: bool,
}

impl Work for Generating<'_> {
    fn run<B: Backend>(self, engine: Engine<B>) -> Result<()> {
        generate(engine, self.g, self.as_json)
    }
}

fn generate<B: Backend>(mut engine: Engine<B>, g: &Generate, as_json: bool) -> Result<()> {
    let options = options(g)?;
    let mut generation = match (&g.prompt, &g.chat) {
        (_, Some(message)) => {
            let system = g.system.iter().map(|text| Message::new("system", text));
            let messages: Vec<Message> = system.chain([Message::new("user", message)]).collect();
            engine.chat(&messages, now(), options)?
        }
        (Some(prompt), None) => engine.complete(prompt, options)?,
        (None, None) => return Err(Error::new(Code::EmptyPrompt, "give --prompt or --chat")),
    };
    loop {
        match block_on(engine.step(&mut generation))? {
            Step::Prefill { .. } => {}
            Step::Token { text, .. } => print_piece(&text, as_json),
            Step::Done { text, result, .. } => {
                print_piece(&text, as_json);
                report(&result, as_json);
                return Ok(());
            }
        }
    }
}

/// A piece of the answer as it comes; with --json nothing, since the whole follows.
fn print_piece(text: &str, as_json: bool) {
    if !as_json {
        let mut out = std::io::stdout();
        // A closed pipe ends the program: nobody reads on.
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            std::process::exit(0);
        }
    }
}

fn report(answer: &Answer, as_json: bool) {
    if as_json {
        return print_json(answer);
    }
    print_line("");
    if std::io::stderr().is_terminal() {
        let rate = |r: Option<f64>| r.map_or("-".to_owned(), |r| format!("{r:.1}"));
        let m = &answer.metrics;
        eprintln!(
            "\n{} prompt tokens ({} from the cache), prefill {} tokens/s; {} tokens, decode {} tokens/s; first token after {} ms; seed {}",
            answer.usage.prompt_tokens,
            answer.usage.cached_tokens,
            rate(m.prefill_tokens_per_second),
            answer.usage.completion_tokens,
            rate(m.decode_tokens_per_second),
            rate(m.time_to_first_token_ms),
            answer.seed,
        );
    }
}

fn options(g: &Generate) -> Result<Options> {
    let mut pairs: Vec<(String, OptionValue)> = Vec::new();
    let numbers = [
        ("maxTokens", g.max_tokens),
        ("temperature", g.temperature),
        ("topK", g.top_k),
        ("topP", g.top_p),
        ("minP", g.min_p),
        ("repetitionPenalty", g.repetition_penalty),
        ("repetitionWindow", g.repetition_window),
        ("seed", g.seed),
        ("chunkSize", g.chunk_size),
    ];
    pairs.extend(numbers.into_iter().filter_map(|(name, value)| Some((name.to_owned(), OptionValue::Number(value?)))));
    if !g.stop.is_empty() {
        pairs.push(("stop".to_owned(), OptionValue::List(g.stop.iter().cloned().map(OptionValue::Text).collect())));
    }
    pairs.push(("ignoreEos".to_owned(), OptionValue::Bool(g.ignore_eos)));
    pairs.push(("special".to_owned(), OptionValue::Bool(g.special)));
    Options::from_pairs(pairs)
}

fn bench(b: &Bench, as_json: bool) -> Result<()> {
    if b.prompt_tokens == 0 {
        return Err(Error::new(Code::EmptyPrompt, "--prompt-tokens must be at least 1"));
    }
    with_engine(&b.machine, &b.model, as_json, Benching { b, began: Instant::now(), as_json })
}

struct Benching<'a> {
    b: &'a Bench,
    began: Instant,
    as_json: bool,
}

impl Work for Benching<'_> {
    fn run<B: Backend>(self, engine: Engine<B>) -> Result<()> {
        time(engine, self.b, self.began.elapsed().as_secs_f64() * 1000.0, self.as_json)
    }
}

fn time<B: Backend>(mut engine: Engine<B>, b: &Bench, load_ms: f64, as_json: bool) -> Result<()> {
    let vocab = engine.info().vocab_size as u64;
    // Ordinary tokens spread over the vocabulary: speed depends on how many there are, not on which.
    let ids: Vec<u32> = (0..b.prompt_tokens as u64).map(|i| ((i * 7919 + 1000) % vocab) as u32).collect();
    let pairs = [
        ("maxTokens".to_owned(), OptionValue::Number(f64::from(b.tokens))),
        ("temperature".to_owned(), OptionValue::Number(0.0)),
        ("ignoreEos".to_owned(), OptionValue::Bool(true)),
    ];
    let mut generation = engine.continue_ids(ids, Options::from_pairs(pairs)?)?;
    loop {
        if let Step::Done { result, .. } = block_on(engine.step(&mut generation))? {
            #[derive(Serialize)]
            #[serde(rename_all = "camelCase")]
            struct Line<'a> {
                model: String,
                backend: &'a str,
                simd: &'a str,
                kv_type: &'a str,
                threads: u32,
                load_ms: f64,
                prompt_tokens: u32,
                completion_tokens: u32,
                /// Bytes of weights that a decoded token reads.
                bytes_per_token: f64,
                /// Bytes per second that as many threads read.
                memory_bandwidth: f64,
                /// Bytes per token times the decode rate, over the bandwidth.
                roofline: Option<f64>,
                #[serde(flatten)]
                metrics: rillm::session::metrics::Metrics,
            }
            let info = engine.info();
            let (bytes_per_token, memory_bandwidth) = (engine.about().bytes_per_token as f64, roofline::memory_bandwidth(info.threads as usize));
            let line = Line {
                model: b.model.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                backend: info.backend,
                simd: info.simd,
                kv_type: info.kv_type,
                threads: info.threads,
                load_ms,
                prompt_tokens: result.usage.prompt_tokens,
                completion_tokens: result.usage.completion_tokens,
                bytes_per_token,
                memory_bandwidth,
                roofline: result.metrics.decode_tokens_per_second.map(|rate| rate * bytes_per_token / memory_bandwidth),
                metrics: result.metrics,
            };
            if as_json {
                print_json(&line);
            } else {
                let rate = |r: Option<f64>| r.map_or("-".to_owned(), |r| format!("{r:.1}"));
                print_line(&format!(
                    "prefill {} tokens at {} tokens/s, decode {} tokens at {} tokens/s ({}, threads: {})",
                    line.prompt_tokens,
                    rate(line.metrics.prefill_tokens_per_second),
                    line.completion_tokens,
                    rate(line.metrics.decode_tokens_per_second),
                    line.simd,
                    line.threads
                ));
                print_line(&format!(
                    "a token reads {:.3} GB of weights; memory gives {:.1} GB/s, of which decode takes {}",
                    bytes_per_token / 1e9,
                    memory_bandwidth / 1e9,
                    line.roofline.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0))
                ));
            }
            return Ok(());
        }
    }
}

fn info(path: &Path, kv_type: KvType, as_json: bool) -> Result<()> {
    let info = load(Cpu::default(), path, LoadOptions { kv_type, ..LoadOptions::default() }, as_json)?.info();
    if as_json {
        print_json(&info);
    } else {
        let mib = |bytes: f64| format!("{:.1} MiB", bytes / f64::from(1 << 20));
        let lines: [(&str, String); 9] = [
            ("architecture", info.architecture),
            ("name", info.name),
            ("quantization", info.quantization),
            ("parameters", format!("{:.1} M", info.parameters / 1e6)),
            ("file", mib(info.bytes)),
            ("in memory", mib(info.device_bytes)),
            ("context", format!("{} of {} trained", info.context_length, info.trained_context_length)),
            ("KV cache", info.kv_type.to_owned()),
            ("chat template", if info.has_chat_template { "yes" } else { "no" }.to_owned()),
        ];
        lines.iter().for_each(|(name, value)| print_line(&format!("{name:14} {value}")));
    }
    Ok(())
}

struct Scoring<'a> {
    ids: &'a [u32],
    text: Option<&'a str>,
    as_json: bool,
}

impl Work for Scoring<'_> {
    fn run<B: Backend>(self, engine: Engine<B>) -> Result<()> {
        score(engine, self.ids, self.text, self.as_json)
    }
}

fn score<B: Backend>(mut engine: Engine<B>, ids: &[u32], text: Option<&str>, as_json: bool) -> Result<()> {
    let ids = text.map_or_else(|| ids.to_vec(), |text| engine.tokenizer().encode_prompt(text, false));
    let mut scoring = engine.score(ids.clone())?;
    while !block_on(engine.score_step(&mut scoring))? {}
    let picks = scoring.picks();
    if as_json {
        let column = |f: fn(&rillm::ops::pick::Pick) -> f32| picks.iter().map(f).collect::<Vec<_>>();
        let top_ids: Vec<u32> = picks.iter().map(|p| p.top_id).collect();
        print_json(&json!({ "logprobs": column(|p| p.logprob), "topIds": top_ids, "topLogprobs": column(|p| p.top_logprob) }));
    } else {
        for pick in picks {
            print_line(&format!("{:.4}\t{}\t{:?}", pick.logprob, pick.id, engine.tokenizer().text(pick.id).unwrap_or_default()));
        }
    }
    Ok(())
}

/// The date and time in UTC: std knows no time zones.
fn now() -> Now {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    chrono::DateTime::from_timestamp(seconds as i64, 0).unwrap_or_default().naive_utc()
}

fn print_json(value: &impl Serialize) {
    // Plain data with string keys always serializes; NaN becomes null.
    print_line(&serde_json::to_string(value).unwrap_or_else(|e| format!("{:?}", HashMap::from([("error", e.to_string())]))));
}

fn print_line(line: &str) {
    if writeln!(std::io::stdout(), "{line}").is_err() {
        std::process::exit(0);
    }
}
