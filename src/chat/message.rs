//! The messages of a chat, as OpenAI's API has them.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{Result, bail};

/// OpenAI's roles.
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Message {
    /// `system`, `developer`, `user`, `assistant` or `tool`. A template that doesn't know developers gets `system` for them.
    pub role: String,
    /// What is said.
    pub content: Content,
}

impl Message {
    /// A message of a text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: Content::Text(content.into()) }
    }

    /// Checks it (`index`: its place in the list) and makes its parts one text.
    pub(super) fn turn(&self, index: usize, knows_developer: bool) -> Result<Turn<'_>> {
        let role = match &*self.role {
            "developer" if !knows_developer => "system",
            role if ROLES.contains(&role) => role,
            role => bail!(BadMessages, "messages[{index}] has role {role:?}; the roles are {}", ROLES.join(", ")),
        };
        let content = match &self.content {
            Content::Text(text) => Cow::Borrowed(&**text),
            Content::Parts(parts) => {
                let mut texts = Vec::with_capacity(parts.len());
                for part in parts {
                    match (&*part.kind, &part.text) {
                        ("text", Some(text)) => texts.push(&**text),
                        ("text", None) => bail!(BadMessages, "messages[{index}] has a part of type \"text\" without a text"),
                        (kind, _) => bail!(BadMessages, "messages[{index}] has a part of type {kind:?}; only \"text\" is supported"),
                    }
                }
                Cow::Owned(texts.join("\n"))
            }
        };
        Ok(Turn { role, content })
    }
}

/// What a message says: a text, or a list of text parts. The parts are joined by newlines, as the servers do that offer OpenAI's API for
/// local models (vLLM, llama.cpp): parts are things of their own, like a question and the document it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// One text.
    Text(String),
    /// Parts in order.
    Parts(Vec<Part>),
}

/// A part of a content.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Part {
    /// `text`; others are refused by name.
    #[serde(rename = "type")]
    pub kind: String,
    /// The text.
    #[serde(default)]
    pub text: Option<String>,
}

impl Part {
    /// A part of a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { kind: "text".into(), text: Some(text.into()) }
    }
}

// By hand, because serde's untagged enums can't say what is wrong.
impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a message's content: a string or a list of text parts")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Content, E> {
                Ok(Content::Text(text.to_owned()))
            }
            fn visit_string<E: de::Error>(self, text: String) -> std::result::Result<Content, E> {
                Ok(Content::Text(text))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Content, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = list.next_element()? {
                    parts.push(part);
                }
                Ok(Content::Parts(parts))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A message as a template sees it.
#[derive(Debug, Serialize)]
pub(super) struct Turn<'m> {
    pub(super) role: &'m str,
    pub(super) content: Cow<'m, str>,
}
