//! The options of a generation: one table of names, ranges and meanings, read by JavaScript, the command line and the documentation.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Result, bail, error};

/// The value of an option as JavaScript or a command line has it. `undefined` and `null` are both `Null`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum OptionValue {
    /// Not given: the default holds.
    Null,
    /// A flag.
    Bool(bool),
    /// Any number, NaN and the infinities too.
    Number(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<OptionValue>),
    /// Something that no option takes, kept so that the error can name the option.
    Other(serde::de::IgnoredAny),
}

/// What a generation does, complete and in range.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Tokens to make at most, 1 to 2^31.
    pub max_tokens: u32,
    /// 0 to 100; 0 takes the most probable token.
    pub temperature: f32,
    /// How many of the most probable tokens stay; 0 keeps all.
    pub top_k: u32,
    /// The probability that the tokens that stay reach together, 0 to 1; 1 keeps all, 0 takes the most probable.
    pub top_p: f32,
    /// How probable a token must be relative to the most probable, 0 to 1; 0 keeps all.
    pub min_p: f32,
    /// Above 0 to 100; 1 changes nothing.
    pub repetition_penalty: f32,
    /// Tokens that the penalty looks back on, the prompt's included; 0 switches it off.
    pub repetition_window: u32,
    /// The key of the random numbers; `None` lets the session choose and report one.
    pub seed: Option<u32>,
    /// Texts that end the generation, at most 64 of 1 to 4096 bytes.
    pub stop: Vec<String>,
    /// Go on past the model's end token.
    pub ignore_eos: bool,
    /// Keep what the cache already holds of the prompt's beginning.
    pub reuse_prefix: bool,
    /// Prompt tokens in one forward pass, 1 to 65536.
    pub chunk_size: u32,
    /// Report the log-probability of each token.
    pub logprobs: bool,
    /// Parse control tokens out of the text (`complete` only).
    pub special: bool,
    /// The last message is the beginning of the answer (`chat` only).
    pub continue_answer: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_tokens: 512,
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repetition_penalty: 1.0,
            repetition_window: 64,
            seed: None,
            stop: Vec::new(),
            ignore_eos: false,
            reuse_prefix: true,
            chunk_size: 512,
            logprobs: false,
            special: false,
            continue_answer: false,
        }
    }
}

/// One row of the table.
pub struct Entry {
    /// The name in JavaScript.
    pub name: &'static str,
    /// One sentence for the documentation.
    pub doc: &'static str,
    kind: Kind,
}

impl Entry {
    /// What the option takes, for people: "a number from 0 to 100".
    pub fn takes(&self) -> String {
        self.kind.to_string()
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.kind)
    }
}

enum Kind {
    /// A number from the first to the second, both included.
    Real(f64, f64, fn(&mut Options, f32)),
    /// A number above 0, as an `f32` too, up to this one.
    Positive(f64, fn(&mut Options, f32)),
    Whole(u32, u32, fn(&mut Options, u32)),
    Flag(fn(&mut Options, bool)),
    Texts(fn(&mut Options, Vec<String>)),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Real(low, high, _) => write!(f, "a number from {low} to {high}"),
            Kind::Positive(high, _) => write!(f, "a number above 0 and at most {high}"),
            Kind::Whole(low, high, _) => write!(f, "a whole number from {low} to {high}"),
            Kind::Flag(_) => f.write_str("true or false"),
            Kind::Texts(_) => write!(f, "a text or a list of at most {MAX_STOPS} texts, each of 1 to {MAX_STOP_BYTES} bytes"),
        }
    }
}

const MAX_STOPS: usize = 64;
const MAX_STOP_BYTES: usize = 4096;
/// No sequence is longer.
const MAX_LENGTH: u32 = 1 << 31;

const fn entry(name: &'static str, kind: Kind, doc: &'static str) -> Entry {
    Entry { name, doc, kind }
}

/// Every option of a generation.
pub const TABLE: &[Entry] = &[
    entry("maxTokens", Kind::Whole(1, MAX_LENGTH, |o, x| o.max_tokens = x), "Tokens to make at most, the end token counted."),
    entry("temperature", Kind::Real(0.0, 100.0, |o, x| o.temperature = x), "Evens out the probabilities; 0 takes the most probable token."),
    entry("topK", Kind::Whole(0, MAX_LENGTH, |o, x| o.top_k = x), "Keeps this many of the most probable tokens; 0 keeps all."),
    entry(
        "topP",
        Kind::Real(0.0, 1.0, |o, x| o.top_p = x),
        "Keeps the most probable tokens that together reach this probability; 0 takes the most probable token.",
    ),
    entry("minP", Kind::Real(0.0, 1.0, |o, x| o.min_p = x), "Keeps the tokens at least this probable relative to the most probable; 0 keeps all."),
    entry(
        "repetitionPenalty",
        Kind::Positive(100.0, |o, x| o.repetition_penalty = x),
        "Makes tokens of the window less likely, each once: positive logits are divided, others multiplied; 1 changes nothing.",
    ),
    entry(
        "repetitionWindow",
        Kind::Whole(0, MAX_LENGTH, |o, x| o.repetition_window = x),
        "How many of the last tokens the penalty looks at, the prompt's included.",
    ),
    entry("seed", Kind::Whole(0, u32::MAX, |o, x| o.seed = Some(x)), "Makes the random choices repeatable; chosen and reported if not given."),
    entry(
        "stop",
        Kind::Texts(|o, x| o.stop = x),
        "Ends the generation before the first of these texts; a control token's text ends it at that token.",
    ),
    entry("ignoreEos", Kind::Flag(|o, x| o.ignore_eos = x), "Goes on past the model's end token."),
    entry("reusePrefix", Kind::Flag(|o, x| o.reuse_prefix = x), "Keeps what is already computed of the prompt's beginning."),
    entry("chunkSize", Kind::Whole(1, 65_536, |o, x| o.chunk_size = x), "Prompt tokens in one forward pass."),
    entry("logprobs", Kind::Flag(|o, x| o.logprobs = x), "Reports the log-probability of each token."),
    entry("special", Kind::Flag(|o, x| o.special = x), "Parses control tokens out of the text of `complete`."),
    entry("continueAnswer", Kind::Flag(|o, x| o.continue_answer = x), "Goes on with the last message of `chat`, an assistant's that was cut."),
];

/// Something allowed that has no effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Stable, for programs.
    pub code: &'static str,
    /// For people.
    pub message: String,
}

impl Options {
    /// The defaults, changed by what is given; of a name given twice the last counts.
    ///
    /// # Errors
    /// `UnknownOption` for a name that is not in [`TABLE`], `BadOption` for a value that the option does not take.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (String, OptionValue)>) -> Result<Options> {
        let mut options = Options::default();
        for (name, value) in pairs {
            let Some(entry) = TABLE.iter().find(|entry| entry.name == name) else {
                bail!(UnknownOption, "there is no option {:?}{}", shortened(&name), hint(&name));
            };
            options.set(entry, value)?;
        }
        Ok(options)
    }

    /// What was asked for that can have no effect.
    pub fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let mut warn = |code, message: &str| warnings.push(Warning { code, message: message.to_owned() });
        if self.seed.is_some() && crate::sampler::Sampler::new(self, 0).is_greedy() {
            warn("seed-unused", "seed has no effect: with temperature 0, topP 0 or topK 1 the most probable token is always taken");
        }
        if self.repetition_penalty != 1.0 && self.repetition_window == 0 {
            warn("penalty-unused", "repetitionPenalty has no effect while repetitionWindow is 0");
        }
        warnings
    }

    fn set(&mut self, entry: &Entry, value: OptionValue) -> Result<()> {
        let refuse = |value: &OptionValue| Err(error!(BadOption, "{} must be {}, not {}", entry.name, entry.kind, Shown(value)));
        match (&entry.kind, value) {
            (_, OptionValue::Null) => {}
            (Kind::Real(low, high, set), OptionValue::Number(x)) if (*low..=*high).contains(&x) => set(self, x as f32),
            (Kind::Positive(high, set), OptionValue::Number(x)) if x as f32 > 0.0 && x <= *high => set(self, x as f32),
            (Kind::Whole(low, high, set), OptionValue::Number(x)) if x.fract() == 0.0 && (f64::from(*low)..=f64::from(*high)).contains(&x) => {
                set(self, x as u32);
            }
            (Kind::Flag(set), OptionValue::Bool(x)) => set(self, x),
            (Kind::Texts(set), OptionValue::Text(x)) if is_stop(&x) => set(self, vec![x]),
            (Kind::Texts(set), OptionValue::List(list)) => {
                if list.len() > MAX_STOPS {
                    return refuse(&OptionValue::List(list));
                }
                let texts = list.into_iter().map(|item| match item {
                    OptionValue::Text(x) if is_stop(&x) => Ok(x),
                    other => Err(error!(BadOption, "{} must be {}, but one of the list is {}", entry.name, entry.kind, Shown(&other))),
                });
                set(self, texts.collect::<Result<_>>()?);
            }
            (_, value) => return refuse(&value),
        }
        Ok(())
    }
}

fn is_stop(text: &str) -> bool {
    (1..=MAX_STOP_BYTES).contains(&text.len())
}

/// A value inside a message.
struct Shown<'a>(&'a OptionValue);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            OptionValue::Null => f.write_str("null"),
            OptionValue::Bool(x) => write!(f, "{x}"),
            OptionValue::Number(x) if x.abs() < 1e15 => write!(f, "{x}"),
            OptionValue::Number(x) => write!(f, "{x:e}"),
            OptionValue::Text(x) if x.len() > MAX_STOP_BYTES => write!(f, "a text of {} bytes", x.len()),
            OptionValue::Text(x) => write!(f, "the text {:?}", shortened(x)),
            OptionValue::List(x) => write!(f, "a list of {}", x.len()),
            OptionValue::Other(_) => f.write_str("an object"),
        }
    }
}

/// The beginning of a text, for messages.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// "; did you mean ...?", or all names where none is near.
fn hint(name: &str) -> String {
    let plain = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).take(64).collect::<Vec<char>>();
    let name = plain(name);
    let nearest = TABLE.iter().map(|entry| (distance(&name, &plain(entry.name)), entry.name)).min();
    match nearest {
        Some((distance, nearest)) if distance <= 1 + nearest.len() / 4 => format!("; did you mean {nearest}?"),
        _ => format!("; the options are {}", TABLE.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ")),
    }
}

/// Letters to insert, delete or replace to make one word from the other (Levenshtein).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
