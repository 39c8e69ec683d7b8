//! Text <-> token ids, from GGUF metadata alone.
//!
//! A text is first cut at special tokens (`special`), then each rest is encoded by the vocabulary's own kind: byte-level BPE (`bpe` over the
//! pieces of `pretokenize`) or SentencePiece's merges by score (`spm`). The ids are llama.cpp's, which the golden files in `tests/data` hold.

mod bpe;
#[cfg(feature = "tokenizer-json")]
mod json;
mod pretokenize;
mod special;
mod spm;
#[cfg(test)]
mod spm_tests;
#[cfg(test)]
mod tests;
mod vocab;

use std::borrow::Cow;

use crate::error::{Result, bail};
use crate::gguf::Metadata;
use bpe::Bpe;
use pretokenize::Pretokenizer;
use special::{Part, Specials};
use spm::Spm;
use vocab::{Defaults, Kind, Vocabulary};

const MODEL: &str = "tokenizer.ggml.model";

/// A vocabulary and how to use it.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    vocab: Vocabulary,
    scheme: Scheme,
    /// What matches in every text: user-defined tokens.
    everywhere: Specials,
    /// The control tokens alone.
    control: Specials,
    /// What matches where control tokens are parsed: both.
    both: Specials,
}

/// How text without special tokens becomes ids, and a token's text becomes bytes.
#[derive(Debug, Clone)]
enum Scheme {
    /// `tokenizer.ggml.model` = `gpt2`.
    Bpe(Bpe),
    /// `tokenizer.ggml.model` = `llama`.
    Spm(Spm),
    /// A `tokenizer.json` instead.
    #[cfg(feature = "tokenizer-json")]
    Json(json::Json),
}

impl Tokenizer {
    /// Reads `tokenizer.ggml.*`. The arrays of the vocabulary are taken out of the metadata, so that they are held once.
    ///
    /// # Errors
    /// `unsupported-tokenizer` names a model or pre-tokenizer that is not known; `missing-key`, `bad-key` and `malformed` name the key.
    pub fn from_metadata(meta: &mut Metadata) -> Result<Tokenizer> {
        let (vocab, scheme) = match meta.require_str(MODEL)? {
            "gpt2" => {
                let pre = Pretokenizer::from_metadata(meta)?;
                let vocab = Vocabulary::from_metadata(meta, Defaults { adds_bos: pre.adds_bos(), ..Defaults::default() })?;
                let bpe = Bpe::from_metadata(meta, &vocab, pre)?;
                (vocab, Scheme::Bpe(bpe))
            }
            "llama" => {
                let vocab = Vocabulary::from_metadata(meta, Defaults { adds_bos: true, bos: Some(1), eos: Some(2), unknown: Some(0) })?;
                let spm = Spm::from_metadata(meta, &vocab)?;
                (vocab, Scheme::Spm(spm))
            }
            model => bail!(UnsupportedTokenizer, "tokenizer model {model:?} ({MODEL}) is not supported; \"gpt2\" and \"llama\" are"),
        };
        Ok(Tokenizer::new(vocab, scheme))
    }

    /// Reads a Hugging Face `tokenizer.json` in place of the file's own vocabulary. `rows`: how many tokens the model has.
    ///
    /// # Errors
    /// `unsupported-tokenizer` where it can't be read, `malformed` where it has more tokens than the model; `not-supported` where the crate
    /// is built without the feature `tokenizer-json`.
    #[cfg_attr(not(feature = "tokenizer-json"), allow(unused_variables))]
    pub fn from_json(json: &[u8], meta: &Metadata, rows: usize) -> Result<Tokenizer> {
        #[cfg(feature = "tokenizer-json")]
        {
            let (vocab, json) = json::Json::read(json, meta, rows)?;
            Ok(Tokenizer::new(vocab, Scheme::Json(json)))
        }
        #[cfg(not(feature = "tokenizer-json"))]
        bail!(NotSupported, "a tokenizer.json is read by the native build with the feature tokenizer-json")
    }

    fn new(vocab: Vocabulary, scheme: Scheme) -> Tokenizer {
        let everywhere = Specials::new(&vocab, |kind| kind == Kind::UserDefined);
        let control = Specials::new(&vocab, Kind::is_control);
        let both = Specials::new(&vocab, |kind| kind == Kind::UserDefined || kind.is_control());
        Tokenizer { vocab, scheme, everywhere, control, both }
    }

    /// The ids of a text, without BOS. `special`: the texts of control tokens become those tokens; otherwise they are text like any
    /// other. User-defined tokens match either way.
    pub fn encode(&self, text: &str, special: bool) -> Vec<u32> {
        let mut ids = Vec::new();
        let specials = if special { &self.both } else { &self.everywhere };
        for part in specials.split(&self.vocab, text, None) {
            match part {
                Part::Token(id) => ids.push(id),
                Part::Text(text) => self.encode_plain(text, &mut ids),
            }
        }
        ids
    }

    /// The ids of a prompt: [`Tokenizer::encode`] with BOS in front where the file asks for it ([`Tokenizer::adds_bos`]), unless the
    /// parsed text begins with it already.
    pub fn encode_prompt(&self, text: &str, special: bool) -> Vec<u32> {
        let mut ids = self.encode(text, special);
        if !special || !self.begins_with_bos(&ids) {
            self.prepend_bos(&mut ids);
        }
        ids
    }

    /// The ids of a filled-in template: control tokens are parsed, then each `mark` is taken out of the text between them. A mark inside
    /// the text of a control token (or right behind one of a single character) thus makes it plain text.
    pub fn encode_marked(&self, text: &str, mark: char) -> Vec<u32> {
        let mut ids = Vec::new();
        for part in self.both.split(&self.vocab, text, Some(mark)) {
            match part {
                Part::Token(id) => ids.push(id),
                // What a mark had broken may hold a user-defined token, which matches in every text.
                Part::Text(text) if text.contains(mark) => ids.extend(self.encode(&text.replace(mark, ""), false)),
                Part::Text(text) => self.encode_plain(text, &mut ids),
            }
        }
        ids
    }

    /// The text of ids. Control tokens are left out unless `special`; invalid UTF-8 becomes U+FFFD; ids that are not in the vocabulary
    /// write nothing (see [`Tokenizer::check_ids`]).
    pub fn decode(&self, ids: &[u32], special: bool) -> String {
        let mut bytes = Vec::with_capacity(ids.len() * 4);
        for &id in ids {
            match self.vocab.kind(id) {
                Some(kind) if special && kind.is_control() => bytes.extend_from_slice(self.text(id).unwrap_or_default().as_bytes()),
                _ => bytes.extend_from_slice(&self.bytes(id)),
            }
        }
        // The space that encoding puts in front of a text (`add_space_prefix`) is not the text's.
        if matches!(&self.scheme, Scheme::Spm(spm) if spm.space_prefix()) && bytes.first() == Some(&b' ') {
            bytes.remove(0);
        }
        String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
    }

    /// Refuses ids that are not in the vocabulary: `bad-token` names the first of them.
    pub fn check_ids(&self, ids: &[u32]) -> Result<()> {
        match ids.iter().find(|&&id| id as usize >= self.vocab_size()) {
            Some(id) => bail!(BadToken, "token {id} does not exist; the vocabulary has {} tokens", self.vocab_size()),
            None => Ok(()),
        }
    }

    /// How many tokens there are; ids are below it.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// What a token writes, often a part of a character: see [`Detokenizer`](crate::detok::Detokenizer). Control tokens, unused ones
    /// and ids that are not in the vocabulary write nothing.
    pub fn bytes(&self, id: u32) -> Cow<'_, [u8]> {
        match (self.vocab.text(id), self.vocab.kind(id)) {
            (Some(text), Some(Kind::UserDefined)) => Cow::Borrowed(text.as_bytes()),
            (Some(text), Some(Kind::Normal | Kind::Byte)) => match &self.scheme {
                Scheme::Bpe(_) => Cow::Owned(bpe::spelled(text)),
                Scheme::Spm(_) => spm::spelled(text, self.vocab.kind(id).unwrap_or(Kind::Normal)),
                #[cfg(feature = "tokenizer-json")]
                Scheme::Json(json) => Cow::Owned(json.spelled(text, self.vocab.kind(id).unwrap_or(Kind::Normal))),
            },
            _ => Cow::Borrowed(&[]),
        }
    }

    /// A token's text as the vocabulary has it, control tokens included: `Ġworld`, `<|im_end|>`.
    pub fn text(&self, id: u32) -> Option<&str> {
        self.vocab.text(id)
    }

    /// The control token with this text.
    pub fn control_id(&self, text: &str) -> Option<u32> {
        self.control.exact(&self.vocab, text)
    }

    /// The texts of all control tokens, the longest first.
    pub fn control_texts(&self) -> impl Iterator<Item = &str> {
        self.control.ids().filter_map(|id| self.text(id))
    }

    /// Whether a token is a control token.
    pub fn is_control(&self, id: u32) -> bool {
        self.vocab.kind(id).is_some_and(Kind::is_control)
    }

    /// Whether the text of a control token begins the given text.
    pub(crate) fn starts_with_control(&self, text: &str) -> bool {
        self.control.at_start(&self.vocab, text).is_some()
    }

    /// Whether a token ends a text.
    pub fn is_end(&self, id: u32) -> bool {
        self.end_ids().binary_search(&id).is_ok()
    }

    /// The tokens that end a text, ascending: those the file names (EOS, end of turn, end of message) and control tokens with the
    /// well-known texts `<|im_end|>`, `<|endoftext|>`, `<|eot_id|>`, `<end_of_turn>`, `</s>` and their like.
    pub fn end_ids(&self) -> &[u32] {
        &self.vocab.ends
    }

    /// The token that begins a text, where the file names one.
    pub fn bos(&self) -> Option<u32> {
        self.vocab.bos
    }

    /// The token that ends a text, where the file names one.
    pub fn eos(&self) -> Option<u32> {
        self.vocab.eos
    }

    /// Whether prompts begin with BOS (`tokenizer.ggml.add_bos_token`).
    pub fn adds_bos(&self) -> bool {
        self.vocab.adds_bos
    }

    /// Whether the ids begin with BOS.
    pub(crate) fn begins_with_bos(&self, ids: &[u32]) -> bool {
        self.bos().is_some() && ids.first().copied() == self.bos()
    }

    /// Puts BOS in front where the file asks for it.
    pub(crate) fn prepend_bos(&self, ids: &mut Vec<u32>) {
        if let (true, Some(bos)) = (self.adds_bos(), self.bos()) {
            ids.insert(0, bos);
        }
    }

    fn encode_plain(&self, text: &str, ids: &mut Vec<u32>) {
        match &self.scheme {
            Scheme::Bpe(bpe) => bpe.encode(&self.vocab, text, ids),
            // Every text part stands at the start or behind a special token: `Specials::split` joins what is text.
            Scheme::Spm(spm) => spm.encode(&self.vocab, text, true, ids),
            #[cfg(feature = "tokenizer-json")]
            Scheme::Json(json) => json.encode(text, ids),
        }
    }
}
