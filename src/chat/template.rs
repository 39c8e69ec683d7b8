//! The template engine: minijinja, set up as `transformers` sets up Jinja2, and bounded.
//!
//! Source: `_compile_jinja_template` in transformers' `utils/chat_template_utils.py`.

use std::error::Error as _;
use std::fmt::{self, Write as _};

use minijinja::value::{Kwargs, Serde, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, context, filters};

use super::Now;
use super::message::Turn;
use crate::error::{self, Code};
use crate::tokenizer::Tokenizer;

/// Steps that any template may take; one pays for 64 bytes too. Real templates take some hundred, and some hundred for each message.
/// Few, because five steps nest a list one level deeper and dropping it takes stack for each level; the engine has no limit of its own.
const FUEL: u64 = 20_000;
/// Further steps for each message.
const FUEL_PER_MESSAGE: u64 = 1_000;
/// Bytes of text that add a step: a template may copy each some thirty times.
const BYTES_PER_FUEL: u64 = 2;
/// Nested macros and blocks. A macro counts for several; wasm has 1 MiB of stack.
const RECURSION: usize = 200;
/// Levels of a value that is written out.
const MAX_DEPTH: usize = 64;
/// Spaces a level that `tojson` indents by at most.
const MAX_INDENT: usize = 32;

/// An environment without templates.
pub(super) fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    // building fails for odd delimiters only, and these are the default ones
    if let Ok(syntax) = env.syntax().to_builder().trim_blocks(true).lstrip_blocks(true).build() {
        env.set_syntax(syntax);
    }
    env.set_recursion_limit(RECURSION);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
    });
    env.add_filter("tojson", tojson);
    // Python's strings and mappings have a length and items too, and nothing can be said of none
    env.add_test("sequence", |v: &Value| matches!(v.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String));
    env.add_test("iterable", |v: &Value| matches!(v.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Iterable));
    env.set_formatter(|out, state, value| {
        weigh(state, value, 0)?;
        minijinja::escape_formatter(out, state, value)
    });
    env
}

/// Pays for writing out a value before it is written: a list may hold another many times over, and so on, and be astronomically long in
/// writing after few steps. (Such a list can still be compared or concatenated, for which the engine has no hook.)
fn weigh(state: &State, value: &Value, depth: usize) -> Result<(), Error> {
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
        return Ok(());
    }
    if depth >= MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("a value nested deeper than {MAX_DEPTH} levels can't be written out")));
    }
    for item in value.try_iter()? {
        state.consume_fuel(8 + item.as_str().map_or(0, str::len) as u64 / 16)?;
        match value.kind() {
            ValueKind::Map => weigh(state, &value.get_item(&item)?, depth + 1)?,
            _ => weigh(state, &item, depth + 1)?,
        }
    }
    Ok(())
}

/// Fills in a template.
pub(super) fn fill_in(env: &Environment, source: &str, tokenizer: &Tokenizer, turns: &[Turn], now: Now) -> Result<String, Error> {
    let mut env = env.clone();
    let bytes: usize = turns.iter().map(|t| t.content.len()).sum();
    env.set_fuel(Some(FUEL + FUEL_PER_MESSAGE * turns.len() as u64 + bytes as u64 / BYTES_PER_FUEL));
    env.add_function("strftime_now", move |format: &str| {
        let mut text = String::new();
        match write!(text, "{}", now.format(format)) {
            Ok(()) => Ok(text),
            Err(_) => Err(Error::new(ErrorKind::InvalidOperation, format!("strftime_now does not know the format {format:?}"))),
        }
    });
    let text = |id: Option<u32>| id.and_then(|id| tokenizer.text(id)).unwrap_or_default();
    env.template_from_str(source)?.render(context! {
        messages => Serde(turns),
        add_generation_prompt => true,
        bos_token => text(tokenizer.bos()),
        eos_token => text(tokenizer.eos()),
    })
}

/// JSON as Python's `json.dumps(ensure_ascii=False)` writes it. minijinja's own filter differs in that it escapes `<`, `>`, `&` and `'`
/// for HTML, which would hide a control token's text as well as change it.
fn tojson(state: &State, value: &Value, indent: Option<Value>, args: Kwargs) -> Result<Value, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => args.get("indent")?,
    };
    if indent.as_ref().and_then(|i| usize::try_from(i.clone()).ok()).is_some_and(|i| i > MAX_INDENT) {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson indents by at most {MAX_INDENT} spaces")));
    }
    let indent = indent.filter(|i| !i.is_none());
    weigh(state, value, 0)?;
    let json = filters::tojson(value, indent, args)?;
    let json = json.as_str().unwrap_or_default();
    state.consume_fuel(json.len() as u64 / 4)?; // what the engine's own filter pays
    Ok(Value::from(without_html_escapes(json)))
}

fn without_html_escapes(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        text.push_str(before);
        const HTML: [(&str, char); 4] = [("\\u003c", '<'), ("\\u003e", '>'), ("\\u0026", '&'), ("\\u0027", '\'')];
        if let Some((code, c)) = HTML.iter().find(|(code, _)| escape.starts_with(code)) {
            text.push(*c);
            rest = &escape[code.len()..];
        } else {
            let (kept, after) = escape.split_at(2.min(escape.len())); // an escape is ASCII, so its second byte is a character
            text.push_str(kept);
            rest = after;
        }
    }
    text + rest
}

/// What `raise_exception` was given.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// Our error for one of the engine's, with the line.
pub(super) fn refusal(e: &Error) -> error::Error {
    let line = e.line().map(|line| format!(" at line {line}")).unwrap_or_default();
    let mut source = e.source();
    while let Some(cause) = source {
        if let Some(Raised(message)) = cause.downcast_ref() {
            return error::Error::new(Code::BadMessages, format!("the chat template refuses the messages{line}: {message}"));
        }
        source = cause.source();
    }
    let what = match (e.kind(), e.detail()) {
        (ErrorKind::OutOfFuel, _) => "it takes too many steps or too much memory".to_owned(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    let failed = if e.kind() == ErrorKind::SyntaxError { "does not parse" } else { "fails" };
    error::Error::new(Code::BadTemplate, format!("the chat template {failed}{line}: {what}"))
}
