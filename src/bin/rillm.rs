//! The command line, and the Rust example: load a file in pieces, step a generation, print what comes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Parser, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use pollster::block_on;
use rillm::backend::cpu::Cpu;
use rillm::chat::{Message, Now};
use rillm::error::{Code, Error, Result};
use rillm::load::{LoadOptions, Loader};
use rillm::session::options::OptionValue;
use rillm::session::{Answer, Engine, Options, Step};
use serde::Serialize;
use serde_json::json;

/// Runs quantized language models.
#[derive(Parser)]
#[command(name = "rillm", version, about, after_help = "Exit codes: 0 done, 1 refused (the message says what and why), 2 wrong usage.")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
    /// Only JSON on stdout; an error is {"error": {"code", "message"}}
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Verb {
    /// Continue a text, or answer a message
    Generate(Generate),
    /// Time prefill and decode
    Bench(Bench),
    /// What a model file is
    Info {
        /// The GGUF file
        model: PathBuf,
    },
    /// The ids of a text
    Tokenize {
        /// The GGUF file
        model: PathBuf,
        /// The text
        text: String,
        /// Parse control tokens out of the text
        #[arg(long)]
        special: bool,
    },
    /// What the model says of each token of a text, given those before it
    Score {
        /// The GGUF file
        model: PathBuf,
        /// Token ids, separated by commas or blanks
        #[arg(long, value_delimiter = ',', num_args = 1.., conflicts_with = "text", required_unless_present = "text")]
        ids: Vec<u32>,
        /// A text instead of ids
        #[arg(long)]
        text: Option<String>,
        #[command(flatten)]
        machine: Machine,
    },
}

#[derive(Args)]
struct Machine {
    /// What computes
    #[arg(long, value_enum, default_value_t = BackendName::Cpu)]
    backend: BackendName,
    /// Threads that compute
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// Positions in the KV cache (default: 4096, or the model's if that is less)
    #[arg(long, visible_alias = "context-length")]
    context: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BackendName {
    Cpu,
    Gpu,
    Candle,
}

#[derive(Args)]
struct Generate {
    /// The GGUF file
    model: PathBuf,
    /// A text to continue
    #[arg(long, conflicts_with = "chat", required_unless_present = "chat")]
    prompt: Option<String>,
    /// A message to answer, through the file's chat template
    #[arg(long)]
    chat: Option<String>,
    /// A system message before it
    #[arg(long, requires = "chat")]
    system: Option<String>,
    #[command(flatten)]
    machine: Machine,
    /// Tokens at most [default: 512]
    #[arg(long)]
    max_tokens: Option<f64>,
    /// 0 is greedy [default: 0.8]
    #[arg(long)]
    temperature: Option<f64>,
    /// Only the K most likely tokens; 0: all [default: 40]
    #[arg(long)]
    top_k: Option<f64>,
    /// Only the most likely tokens that together have this probability [default: 0.95]
    #[arg(long)]
    top_p: Option<f64>,
    /// Only tokens at least this likely, relative to the most likely one [default: 0.05]
    #[arg(long)]
    min_p: Option<f64>,
    /// Above 1 makes repeating less likely [default: 1]
    #[arg(long)]
    repetition_penalty: Option<f64>,
    /// Tokens that the penalty looks back at [default: 64]
    #[arg(long)]
    repetition_window: Option<f64>,
    /// Gives the same answer again
    #[arg(long)]
    seed: Option<f64>,
    /// Ends the answer; may be given again
    #[arg(long)]
    stop: Vec<String>,
    /// Go on past the model's end token
    #[arg(long)]
    ignore_eos: bool,
    /// Prompt tokens in one pass at most [default: 512]
    #[arg(long)]
    chunk_size: Option<f64>,
    /// Parse control tokens out of --prompt
    #[arg(long)]
    special: bool,
}

#[derive(Args)]
struct Bench {
    /// The GGUF file
    model: PathBuf,
    /// Tokens of the prompt
    #[arg(long, default_value_t = 232)]
    prompt_tokens: usize,
    /// Tokens to make
    #[arg(long, default_value_t = 64)]
    tokens: u32,
    #[command(flatten)]
    machine: Machine,
}

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
        Verb::Generate(g) => generate(g, cli.json),
        Verb::Bench(b) => bench(b, cli.json),
        Verb::Info { model } => info(model, cli.json),
        Verb::Tokenize { model, text, special } => {
            let engine = load(model, Some(1), cli.json)?;
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
        Verb::Score { model, ids, text, machine } => score(model, ids, text.as_deref(), machine, cli.json),
    }
}

fn generate(g: &Generate, as_json: bool) -> Result<()> {
    let options = options(g)?;
    let mut engine = machine(&g.machine, &g.model, as_json)?;
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
    let began = Instant::now();
    let mut engine = machine(&b.machine, &b.model, as_json)?;
    let load_ms = began.elapsed().as_secs_f64() * 1000.0;
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
                threads: u32,
                load_ms: f64,
                prompt_tokens: u32,
                completion_tokens: u32,
                #[serde(flatten)]
                metrics: rillm::session::metrics::Metrics,
            }
            let info = engine.info();
            let line = Line {
                model: b.model.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                backend: info.backend,
                simd: info.simd,
                threads: info.threads,
                load_ms,
                prompt_tokens: result.usage.prompt_tokens,
                completion_tokens: result.usage.completion_tokens,
                metrics: result.metrics,
            };
            if as_json {
                print_json(&line);
            } else {
                let rate = |r: Option<f64>| r.map_or("-".to_owned(), |r| format!("{r:.1}"));
                print_line(&format!(
                    "prefill {} tokens at {} tokens/s, decode {} tokens at {} tokens/s ({}, {} thread)",
                    line.prompt_tokens,
                    rate(line.metrics.prefill_tokens_per_second),
                    line.completion_tokens,
                    rate(line.metrics.decode_tokens_per_second),
                    line.simd,
                    line.threads
                ));
            }
            return Ok(());
        }
    }
}

fn info(path: &Path, as_json: bool) -> Result<()> {
    let info = load(path, None, as_json)?.info();
    if as_json {
        print_json(&info);
    } else {
        let mib = |bytes: f64| format!("{:.1} MiB", bytes / f64::from(1 << 20));
        let lines: [(&str, String); 8] = [
            ("architecture", info.architecture),
            ("name", info.name),
            ("quantization", info.quantization),
            ("parameters", format!("{:.1} M", info.parameters / 1e6)),
            ("file", mib(info.bytes)),
            ("in memory", mib(info.device_bytes)),
            ("context", format!("{} of {} trained", info.context_length, info.trained_context_length)),
            ("chat template", if info.has_chat_template { "yes" } else { "no" }.to_owned()),
        ];
        lines.iter().for_each(|(name, value)| print_line(&format!("{name:14} {value}")));
    }
    Ok(())
}

fn score(path: &Path, ids: &[u32], text: Option<&str>, on: &Machine, as_json: bool) -> Result<()> {
    let mut engine = machine(on, path, as_json)?;
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

fn machine(m: &Machine, path: &Path, as_json: bool) -> Result<Engine<Cpu>> {
    let refuse = |what: &str| Err(Error::new(Code::NotSupported, what));
    match m.backend {
        BackendName::Cpu if m.threads == 1 => load(path, m.context, as_json),
        BackendName::Cpu => refuse("this version computes on one thread: leave --threads out, or give 1"),
        BackendName::Gpu => refuse("this version has no GPU backend: use --backend cpu"),
        BackendName::Candle => refuse("this version has no candle backend: use --backend cpu"),
    }
}

/// Reads a file in pieces of 1 MiB, with a progress bar where somebody looks.
fn load(path: &Path, context_length: Option<usize>, quiet: bool) -> Result<Engine<Cpu>> {
    let io = |e: std::io::Error| Error::new(Code::Io, format!("{}: {e}", path.display()));
    let mut file = File::open(path).map_err(io)?;
    let meta = file.metadata().map_err(io)?;
    let total = meta.is_file().then_some(meta.len());
    let bar = match total {
        Some(total) if !quiet && std::io::stderr().is_terminal() => ProgressBar::new(total),
        _ => ProgressBar::hidden(),
    };
    if let Ok(style) = ProgressStyle::with_template("loading {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}") {
        bar.set_style(style);
    }
    let mut loader = Loader::new(Cpu::default(), total, LoadOptions { context_length });
    let mut piece = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut piece).map_err(io)?;
        if n == 0 {
            break;
        }
        loader.push(&piece[..n])?;
        bar.inc(n as u64);
    }
    let loaded = loader.finish()?;
    bar.finish_and_clear();
    Ok(Engine::new(loaded))
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
