//! Messages -> prompt ids, through the chat template that the file brings (`tokenizer.chat_template`).
//!
//! Templates are Jinja2 as `transformers` runs it: `trim_blocks`, `lstrip_blocks`, Python's string methods, `raise_exception`,
//! `strftime_now` and JSON as Python writes it. A template is a program out of a file that anyone may have made, so its steps are
//! counted and bounded.
//!
//! **What a message says never becomes a control token, what the template says does**: see `chat/guard.rs`.

mod guard;
mod message;
mod template;

use crate::error::{Error, Result, bail};
use crate::gguf::Metadata;
use crate::tokenizer::Tokenizer;
use message::Turn;

pub use message::{Content, Message, Part};

/// The local date and time, for templates that write the date. The caller passes it, so that a prompt depends on nothing hidden.
pub type Now = chrono::NaiveDateTime;

const KEY: &str = "tokenizer.chat_template";

/// The chat template of a file.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    source: String,
    environment: minijinja::Environment<'static>,
    /// Why it can't be used, if it doesn't parse.
    broken: Option<Error>,
}

impl ChatTemplate {
    /// The template that the file brings, if it brings one. A template that doesn't parse is no reason to refuse a model: the first
    /// [`ChatTemplate::encode`] says what is wrong with it.
    ///
    /// # Errors
    /// `bad-key`: the key is not a string.
    pub fn from_metadata(meta: &Metadata) -> Result<Option<ChatTemplate>> {
        Ok(meta.str(KEY)?.map(ChatTemplate::new))
    }

    /// A template given by its source.
    pub fn new(source: &str) -> ChatTemplate {
        let environment = template::environment();
        let broken = environment.template_from_str(source).err().map(|e| template::refusal(&e));
        ChatTemplate { source: source.to_owned(), environment, broken }
    }

    /// The source, as the file has it.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The prompt's ids, up to where the assistant's answer begins. BOS is there once if the file asks for it or the template writes it,
    /// and what the template wrote is never taken away.
    ///
    /// # Errors
    /// `bad-template` with the line: it doesn't parse, fails, or takes too many steps. `bad-messages`: there are none, a role or a part
    /// of a content is unknown, the template refuses them (its sentence is in the message), or it makes a control token of their text.
    pub fn encode(&self, tokenizer: &Tokenizer, messages: &[Message], now: Now) -> Result<Vec<u32>> {
        self.encode_turns(tokenizer, &self.turns(messages)?, None, now)
    }

    /// The same, where the last message is the beginning of the assistant's answer: the prompt ends where that text does, so the answer
    /// goes on there.
    ///
    /// # Errors
    /// As [`ChatTemplate::encode`]; `bad-messages` too if the last message is not the assistant's, or the only one.
    pub fn encode_open(&self, tokenizer: &Tokenizer, messages: &[Message], now: Now) -> Result<Vec<u32>> {
        match &*self.turns(messages)? {
            [before @ .., open] if open.role == "assistant" && !before.is_empty() => self.encode_turns(tokenizer, before, Some(open), now),
            _ => bail!(BadMessages, "continueAnswer goes on with an answer: the last message must be the assistant's, behind at least one other"),
        }
    }

    fn encode_turns(&self, tokenizer: &Tokenizer, closed: &[Turn], open: Option<&Turn>, now: Now) -> Result<Vec<u32>> {
        let turns = || closed.iter().chain(open);
        let Some(mark) = guard::free_mark(turns().map(|t| &*t.content).chain([&*self.source]).chain(tokenizer.control_texts())) else {
            bail!(BadMessages, "the messages hold all 66 Unicode noncharacters; one must be free to mark their text with");
        };
        let marked = |mark_text: &dyn Fn(&str) -> String| {
            let turns: Vec<Turn> = closed.iter().map(|t| Turn { role: t.role, content: mark_text(&t.content).into() }).collect();
            let mut prompt = self.fill_in(tokenizer, &turns, now)?;
            prompt.extend(open.map(|t| mark_text(&t.content)));
            Ok::<_, Error>(tokenizer.encode_marked(&prompt, mark))
        };
        let mut ids = marked(&|text| guard::mark(tokenizer, text, mark))?;
        if turns().any(|t| guard::is_suspect(tokenizer, &t.content)) {
            let control = |ids: &[u32]| ids.iter().copied().filter(|&id| tokenizer.is_control(id)).collect::<Vec<_>>();
            if control(&ids) != control(&marked(&|text| guard::mark_strictly(tokenizer, text, mark))?) {
                bail!(BadMessages, "the chat template puts pieces of the messages' text together to a control token");
            }
        }
        if !tokenizer.begins_with_bos(&ids) {
            tokenizer.prepend_bos(&mut ids);
        }
        Ok(ids)
    }

    /// The prompt as text, for tests and for showing it. Encoding this text would not keep the messages apart from the template:
    /// use [`ChatTemplate::encode`].
    ///
    /// # Errors
    /// As [`ChatTemplate::encode`].
    pub fn render(&self, tokenizer: &Tokenizer, messages: &[Message], now: Now) -> Result<String> {
        self.fill_in(tokenizer, &self.turns(messages)?, now)
    }

    fn turns<'m>(&self, messages: &'m [Message]) -> Result<Vec<Turn<'m>>> {
        if messages.is_empty() {
            bail!(BadMessages, "there are no messages; a chat takes at least one");
        }
        // A template that has never heard of developers has a system message for the same purpose.
        let knows_developer = self.source.contains("developer");
        messages.iter().enumerate().map(|(i, m)| m.turn(i, knows_developer)).collect()
    }

    fn fill_in(&self, tokenizer: &Tokenizer, turns: &[Turn], now: Now) -> Result<String> {
        match &self.broken {
            Some(refusal) => Err(refusal.clone()),
            None => template::fill_in(&self.environment, &self.source, tokenizer, turns, now).map_err(|e| template::refusal(&e)),
        }
    }
}

#[cfg(test)]
mod tests;
