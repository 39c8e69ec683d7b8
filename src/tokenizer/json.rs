//! A Hugging Face `tokenizer.json`, read and run by the `tokenizers` crate: for files whose own tokenizer is missing or unknown.
//! Native only (feature `tokenizer-json`): the crate is large, and slow to set up.

use std::fmt;

use tokenizers::Tokenizer as Reader;

use super::bpe;
use super::spm;
use super::vocab::{Defaults, Kind, Vocabulary};
use crate::error::{Result, bail, error};
use crate::gguf::{Metadata, Strings};

/// What runs the file, and how its tokens write bytes.
#[derive(Clone)]
pub(super) struct Json {
    reader: Box<Reader>,
    /// Tokens are spelled in one letter a byte; otherwise a space is U+2581 and bytes are `<0x0A>`.
    byte_level: bool,
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Json").field("byte_level", &self.byte_level).finish_non_exhaustive()
    }
}

impl Json {
    /// Reads the file. `rows`: how many tokens the model's embedding has; the vocabulary is filled up to it. Which tokens begin and end a
    /// text, the GGUF's metadata says first.
    pub(super) fn read(json: &[u8], meta: &Metadata, rows: usize) -> Result<(Vocabulary, Json)> {
        let unreadable = |e: &dyn fmt::Display| error!(UnsupportedTokenizer, "the tokenizer.json can't be read: {e}");
        let mut reader = Reader::from_bytes(json).map_err(|e| unreadable(&e))?;
        reader.with_padding(None);
        reader.with_truncation(None).map_err(|e| unreadable(&e))?;
        reader.set_encode_special_tokens(true); // control tokens are found before a text gets here
        let file: serde_json::Value = serde_json::from_slice(json).map_err(|e| unreadable(&e))?;
        let mentions = |part: &str| file.get(part).is_some_and(|v| v.to_string().contains("\"ByteLevel\""));
        let byte_level = mentions("decoder") || mentions("pre_tokenizer");

        let added = reader.get_added_tokens_decoder();
        let size = reader.get_vocab(true).values().max().map_or(0, |&id| id as usize + 1);
        if size == 0 || size > rows {
            bail!(Malformed, "the tokenizer.json has {size} tokens, the model {rows}");
        }
        let texts: Vec<String> = (0..rows as u32).map(|id| reader.id_to_token(id).unwrap_or_default()).collect();
        let kind = |id: u32, text: &str| match added.get(&id) {
            Some(token) if token.special => Kind::Control,
            Some(_) => Kind::UserDefined,
            None if text.is_empty() => Kind::Unused,
            None if !byte_level && spm::byte(text).is_some() => Kind::Byte,
            None => Kind::Normal,
        };
        let kinds = texts.iter().zip(0..).map(|(text, id)| kind(id, text)).collect();
        let first = reader.encode_fast("", true).map_err(|e| unreadable(&e))?.get_ids().first().copied();
        let first = first.filter(|id| added.get(id).is_some_and(|t| t.special));
        let defaults = Defaults { adds_bos: first.is_some(), bos: first, ..Defaults::default() };
        let texts = texts.iter().map(String::as_str).collect::<Strings>();
        Ok((Vocabulary::new(texts, kinds, meta, defaults)?, Json { reader: Box::new(reader), byte_level }))
    }

    /// Appends the tokens of a text that holds no special token. Characters that the file has no token for are dropped.
    pub(super) fn encode(&self, text: &str, out: &mut Vec<u32>) {
        match self.reader.encode_fast(text, false) {
            Ok(encoding) => out.extend(encoding.get_ids()),
            Err(_) => {
                for c in text.chars() {
                    if let Ok(encoding) = self.reader.encode_fast(c.to_string(), false) {
                        out.extend(encoding.get_ids());
                    }
                }
            }
        }
    }

    /// The bytes that a token writes.
    pub(super) fn spelled(&self, text: &str, kind: Kind) -> Vec<u8> {
        if self.byte_level { bpe::spelled(text) } else { spm::spelled(text, kind).into_owned() }
    }
}
