//! The arguments.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use rillm::backend::KvType;

/// Runs quantized language models.
#[derive(Parser)]
#[command(name = "rillm", version, about, after_help = "Exit codes: 0 done, 1 refused (the message says what and why), 2 wrong usage.")]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
    /// Only JSON on stdout; an error is {"error": {"code", "message"}}
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum Verb {
    /// Continue a text, or answer a message
    Generate(Generate),
    /// Time prefill and decode
    Bench(Bench),
    /// What a model file is
    Info {
        /// The GGUF file
        model: PathBuf,
        #[command(flatten)]
        kv: Kv,
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
        /// A tokenizer.json to use instead of the file's own tokenizer
        #[arg(long, value_name = "FILE")]
        tokenizer: Option<PathBuf>,
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
pub struct Machine {
    /// What computes
    #[arg(long, value_enum, default_value_t = BackendName::Cpu)]
    pub backend: BackendName,
    /// Where candle's tensors live: cpu, or cuda and metal where built with them
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// Threads that compute, 1 to 64 [default: one for each core, at most 8]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: Option<u32>,
    /// Positions in the KV cache (default: 4096, or the model's if that is less)
    #[arg(long, visible_alias = "context-length")]
    pub context: Option<usize>,
    #[command(flatten)]
    pub kv: Kv,
    /// A tokenizer.json to use instead of the file's own tokenizer
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
}

#[derive(Args)]
pub struct Kv {
    /// How the KV cache stores keys and values: two bytes each, or about one (--backend cpu)
    #[arg(long = "kv-type", default_value = KvType::default().name(), value_parser = PossibleValuesParser::new(KvType::ALL.map(KvType::name)))]
    pub name: String,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendName {
    Cpu,
    Gpu,
    Candle,
}

#[derive(Args)]
pub struct Generate {
    /// The GGUF file
    pub model: PathBuf,
    /// A text to continue
    #[arg(long, conflicts_with = "chat", required_unless_present = "chat")]
    pub prompt: Option<String>,
    /// A message to answer, through the file's chat template
    #[arg(long)]
    pub chat: Option<String>,
    /// A system message before it
    #[arg(long, requires = "chat")]
    pub system: Option<String>,
    #[command(flatten)]
    pub machine: Machine,
    /// Tokens at most [default: 512]
    #[arg(long)]
    pub max_tokens: Option<f64>,
    /// 0 is greedy [default: 0.8]
    #[arg(long)]
    pub temperature: Option<f64>,
    /// Only the K most likely tokens; 0: all [default: 40]
    #[arg(long)]
    pub top_k: Option<f64>,
    /// Only the most likely tokens that together have this probability [default: 0.95]
    #[arg(long)]
    pub top_p: Option<f64>,
    /// Only tokens at least this likely, relative to the most likely one [default: 0.05]
    #[arg(long)]
    pub min_p: Option<f64>,
    /// Above 1 makes repeating less likely [default: 1]
    #[arg(long)]
    pub repetition_penalty: Option<f64>,
    /// Tokens that the penalty looks back at [default: 64]
    #[arg(long)]
    pub repetition_window: Option<f64>,
    /// Gives the same answer again
    #[arg(long)]
    pub seed: Option<f64>,
    /// Ends the answer; may be given again
    #[arg(long)]
    pub stop: Vec<String>,
    /// Go on past the model's end token
    #[arg(long)]
    pub ignore_eos: bool,
    /// Prompt tokens in one pass at most [default: 512]
    #[arg(long)]
    pub chunk_size: Option<f64>,
    /// Parse control tokens out of --prompt
    #[arg(long)]
    pub special: bool,
}

#[derive(Args)]
pub struct Bench {
    /// The GGUF file
    pub model: PathBuf,
    /// Tokens of the prompt
    #[arg(long, default_value_t = 232)]
    pub prompt_tokens: usize,
    /// Tokens to make
    #[arg(long, default_value_t = 64)]
    pub tokens: u32,
    #[command(flatten)]
    pub machine: Machine,
}
