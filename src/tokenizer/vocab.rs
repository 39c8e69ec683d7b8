//! The vocabulary: the texts as the file has them, held once, and what each token is for.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use hashbrown::hash_table::{Entry, HashTable};

use crate::error::{Result, bail, error};
use crate::gguf::{Array, Metadata, Strings, Value};

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";
const BOS: &str = "tokenizer.ggml.bos_token_id";
const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
/// The keys of tokens that end a text, the main one first.
const END_KEYS: [&str; 3] = ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];
/// Texts of tokens that end a text in the known models; a token with one of them is a control token whatever the file calls it.
/// Source: llama.cpp's `special_eog_ids` (src/llama-vocab.cpp).
const END_TEXTS: [&str; 18] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<end_of_turn>",
    "</s>",
    "<eos>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
    "<|endofprompt|>",
];

/// What a token is for: the values of `tokenizer.ggml.token_type`, in the specification's order from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl Kind {
    const ALL: [Kind; 6] = [Kind::Normal, Kind::Unknown, Kind::Control, Kind::UserDefined, Kind::Unused, Kind::Byte];

    /// Whether its text means something only where control tokens are parsed; it writes nothing.
    pub(super) fn is_control(self) -> bool {
        matches!(self, Kind::Control | Kind::Unknown)
    }
}

/// What holds where the file says nothing. Source: llama.cpp's `llama_vocab::impl::load`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Defaults {
    pub(super) adds_bos: bool,
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) unknown: Option<u32>,
}

/// The texts, the kinds, and the tokens that begin and end a text.
#[derive(Debug, Clone)]
pub(super) struct Vocabulary {
    texts: Strings,
    kinds: Vec<Kind>,
    pub(super) bos: Option<u32>,
    pub(super) adds_bos: bool,
    pub(super) eos: Option<u32>,
    pub(super) unknown: Option<u32>,
    /// Ascending.
    pub(super) ends: Vec<u32>,
}

impl Vocabulary {
    /// Takes the texts and types out of the metadata.
    pub(super) fn from_metadata(meta: &mut Metadata, defaults: Defaults) -> Result<Vocabulary> {
        let texts = take_strings(meta, TOKENS)?;
        if texts.is_empty() {
            bail!(BadKey, "{TOKENS} is empty");
        }
        let types = meta.require_i32s(TYPES)?;
        if types.len() != texts.len() {
            bail!(Malformed, "{TYPES} has {} entries, {TOKENS} has {}", types.len(), texts.len());
        }
        let mut kinds = Vec::with_capacity(types.len());
        for (i, &t) in types.iter().enumerate() {
            match usize::try_from(t).ok().and_then(|t| Kind::ALL.get(t.wrapping_sub(1))) {
                Some(&kind) => kinds.push(kind),
                None => bail!(BadKey, "{TYPES}[{i}] is {t}; token types are 1 to {}", Kind::ALL.len()),
            }
        }
        meta.remove(TYPES);
        Self::new(texts, kinds, meta, defaults)
    }

    /// From the texts and kinds; the metadata says which tokens begin and end a text.
    pub(super) fn new(texts: Strings, mut kinds: Vec<Kind>, meta: &Metadata, defaults: Defaults) -> Result<Vocabulary> {
        let id = |key: &str| match meta.u32(key)? {
            Some(id) if id as usize >= texts.len() => bail!(BadKey, "{key} is {id}, but the vocabulary has {} tokens", texts.len()),
            id => Ok(id),
        };
        let or = |id: Option<u32>, default: Option<u32>| id.or(default.filter(|&id| (id as usize) < texts.len()));
        let bos = or(id(BOS)?, defaults.bos);
        let adds_bos = meta.bool(ADD_BOS)?;
        if adds_bos == Some(true) && bos.is_none() {
            bail!(MissingKey, "{ADD_BOS} is true, but the file lacks {BOS}");
        }
        let adds_bos = adds_bos.unwrap_or(defaults.adds_bos) && bos.is_some();
        let eos = or(id(END_KEYS[0])?, defaults.eos);
        let unknown = or(id(UNKNOWN)?, defaults.unknown);
        let mut ends: Vec<u32> = eos.into_iter().collect();
        for key in &END_KEYS[1..] {
            ends.extend(id(key)?);
        }
        for (i, text) in texts.iter().enumerate() {
            if END_TEXTS.contains(&text) {
                kinds[i] = Kind::Control;
                ends.push(i as u32); // a header has at most 256 MiB
            }
        }
        ends.sort_unstable();
        ends.dedup();
        Ok(Vocabulary { texts, kinds, bos, adds_bos, eos, unknown, ends })
    }

    /// How many tokens there are.
    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// The literal text.
    pub(super) fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(id as usize)
    }

    /// What the token is for.
    pub(super) fn kind(&self, id: u32) -> Option<Kind> {
        self.kinds.get(id as usize).copied()
    }

    /// The tokens with a text, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &str, Kind)> {
        self.texts.iter().zip(&self.kinds).enumerate().filter(|(_, (text, _))| !text.is_empty()).map(|(i, (text, &kind))| (i as u32, text, kind))
    }

    /// Text -> id, for tokens of the kinds that are wanted. Two tokens with one text are refused: ids would be ambiguous.
    pub(super) fn index(&self, wanted: impl Fn(Kind) -> bool) -> Result<Index> {
        let (mut ids, state) = (HashTable::with_capacity(self.len()), DefaultHashBuilder::default());
        for (id, text, _) in self.iter().filter(|&(_, _, kind)| wanted(kind)) {
            let hash = |&id: &u32| state.hash_one(self.text(id).unwrap_or_default());
            match ids.entry(state.hash_one(text), |&other| self.text(other) == Some(text), hash) {
                Entry::Occupied(first) => bail!(Malformed, "{TOKENS} has {text:?} twice, as {} and as {id}", first.get()),
                Entry::Vacant(free) => free.insert(id),
            };
        }
        Ok(Index { ids, state })
    }
}

/// Text -> id. It holds ids alone, a few bytes a token; the texts stay in the vocabulary. Seeded, because the file chooses the texts.
#[derive(Debug, Clone)]
pub(super) struct Index {
    ids: HashTable<u32>,
    state: DefaultHashBuilder,
}

impl Index {
    /// The token with exactly this text.
    pub(super) fn get(&self, vocab: &Vocabulary, text: &str) -> Option<u32> {
        self.ids.find(self.state.hash_one(text), |&id| vocab.text(id) == Some(text)).copied()
    }
}

/// Takes an array of strings out of the metadata.
pub(super) fn take_strings(meta: &mut Metadata, key: &str) -> Result<Strings> {
    meta.require_strings(key)?; // absent or of another type
    match meta.remove(key) {
        Some(Value::Array(Array::Strings(strings))) => Ok(strings),
        _ => Err(error!(Internal, "metadata key {key:?} changed its type")),
    }
}
