//! Builds GGUF files in memory for tests: whole tiny models, and files that are wrong in one chosen way.
//!
//! In a test file: `#[path = "common/gguf_writer.rs"] mod gguf_writer;`
//!
//! ```ignore
//! // A model of two layers with random weights that are the same in every run:
//! let bytes = TinyModel { tied: false, ..TinyModel::default() }.bytes();
//! // Per tensor formats; the last pattern that the name contains wins (rows must be whole blocks, so k-quants want a `dim` of 256):
//! let bytes = TinyModel { dim: 256, formats: vec![("ffn", Format::Q4_K), ("ffn_down", Format::Q6_K)], ..TinyModel::default() }.bytes();
//! // Wrong in one way: change the list before it becomes bytes.
//! let mut file = TinyModel::default().file();
//! file.remove_tensor("blk.1.attn_q.weight");
//! file.tensor_mut("output_norm.weight").dims = vec![63];
//! file.set("llama.block_count", Value::U32(3));
//! let bytes = file.bytes();
//! ```
#![allow(dead_code)] // each test file uses its part

use rillm::gguf::{Array, Strings, Value};
use rillm::quant::Format;
use rillm::quant::testing::{Rng, encode};

/// What a GGUF file consists of. Nothing is checked: a test may want it wrong.
#[derive(Debug, Clone)]
pub struct GgufFile {
    pub version: u32,
    /// Tensors are laid out by it. It is written as `general.alignment` only if `set` by the test.
    pub alignment: u64,
    pub pairs: Vec<(String, Value)>,
    pub tensors: Vec<Tensor>,
}

#[derive(Debug, Clone)]
pub struct Tensor {
    pub name: String,
    /// The row's length first.
    pub dims: Vec<u64>,
    pub ggml_type: u32,
    /// Where the header says that it is; `None`: where it is.
    pub offset: Option<u64>,
    pub data: Vec<u8>,
}

impl Default for GgufFile {
    fn default() -> Self {
        Self { version: 3, alignment: 32, pairs: Vec::new(), tensors: Vec::new() }
    }
}

impl GgufFile {
    /// Adds a pair, or replaces the value of a key that is there.
    pub fn set(&mut self, key: &str, value: Value) {
        match self.pairs.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = value,
            None => self.pairs.push((key.to_owned(), value)),
        }
    }
    /// Removes a key that is there.
    pub fn remove(&mut self, key: &str) {
        let before = self.pairs.len();
        self.pairs.retain(|(k, _)| k != key);
        assert_eq!(self.pairs.len() + 1, before, "no key {key:?}");
    }
    /// Adds a tensor of these numbers.
    pub fn push(&mut self, name: &str, dims: &[u64], format: Format, numbers: &[f32]) {
        assert_eq!(dims.iter().product::<u64>(), numbers.len() as u64);
        let data = encode(format, numbers);
        self.tensors.push(Tensor { name: name.to_owned(), dims: dims.to_vec(), ggml_type: format.ggml_type(), offset: None, data });
    }
    pub fn tensor_mut(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|t| t.name == name).unwrap_or_else(|| panic!("no tensor {name:?}"))
    }
    pub fn remove_tensor(&mut self, name: &str) {
        self.tensor_mut(name);
        self.tensors.retain(|t| t.name != name);
    }

    /// The header, without the padding before the data.
    pub fn header(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.pairs.len() as u64).to_le_bytes());
        for (key, value) in &self.pairs {
            put_string(&mut out, key);
            put_value(&mut out, value);
        }
        let mut offset = 0;
        for t in &self.tensors {
            put_string(&mut out, &t.name);
            out.extend((t.dims.len() as u32).to_le_bytes());
            t.dims.iter().for_each(|d| out.extend(d.to_le_bytes()));
            out.extend(t.ggml_type.to_le_bytes());
            out.extend(t.offset.unwrap_or(offset).to_le_bytes());
            offset = (offset + t.data.len() as u64).next_multiple_of(self.alignment);
        }
        out
    }

    /// The whole file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.header();
        for t in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
            out.extend(&t.data);
        }
        out
    }
}

pub fn put_string(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

/// The value's type and the value.
pub fn put_value(out: &mut Vec<u8>, value: &Value) {
    fn put<const N: usize>(out: &mut Vec<u8>, type_id: u32, bytes: [u8; N]) {
        out.extend(type_id.to_le_bytes());
        out.extend(bytes);
    }
    match value {
        Value::U8(v) => put(out, 0, v.to_le_bytes()),
        Value::I8(v) => put(out, 1, v.to_le_bytes()),
        Value::U16(v) => put(out, 2, v.to_le_bytes()),
        Value::I16(v) => put(out, 3, v.to_le_bytes()),
        Value::U32(v) => put(out, 4, v.to_le_bytes()),
        Value::I32(v) => put(out, 5, v.to_le_bytes()),
        Value::F32(v) => put(out, 6, v.to_le_bytes()),
        Value::Bool(v) => put(out, 7, [u8::from(*v)]),
        Value::U64(v) => put(out, 10, v.to_le_bytes()),
        Value::I64(v) => put(out, 11, v.to_le_bytes()),
        Value::F64(v) => put(out, 12, v.to_le_bytes()),
        Value::String(v) => {
            put(out, 8, []);
            put_string(out, v);
        }
        Value::Array(array) => {
            put(out, 9, []);
            put_array(out, array);
        }
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    fn put<T, const N: usize>(out: &mut Vec<u8>, type_id: u32, items: &[T], bytes: impl Fn(&T) -> [u8; N]) {
        out.extend(type_id.to_le_bytes());
        out.extend((items.len() as u64).to_le_bytes());
        items.iter().for_each(|item| out.extend(bytes(item)));
    }
    match array {
        Array::U8(v) => put(out, 0, v, |x| x.to_le_bytes()),
        Array::I8(v) => put(out, 1, v, |x| x.to_le_bytes()),
        Array::U16(v) => put(out, 2, v, |x| x.to_le_bytes()),
        Array::I16(v) => put(out, 3, v, |x| x.to_le_bytes()),
        Array::U32(v) => put(out, 4, v, |x| x.to_le_bytes()),
        Array::I32(v) => put(out, 5, v, |x| x.to_le_bytes()),
        Array::F32(v) => put(out, 6, v, |x| x.to_le_bytes()),
        Array::Bool(v) => put(out, 7, v, |x| [u8::from(*x)]),
        Array::U64(v) => put(out, 10, v, |x| x.to_le_bytes()),
        Array::I64(v) => put(out, 11, v, |x| x.to_le_bytes()),
        Array::F64(v) => put(out, 12, v, |x| x.to_le_bytes()),
        Array::Strings(v) => {
            out.extend(8u32.to_le_bytes());
            out.extend((v.len() as u64).to_le_bytes());
            v.iter().for_each(|s| put_string(out, s));
        }
        Array::Nested(n) => put(out, 9, &vec![(); *n as usize], |()| [0u8; 12]), // that many empty arrays of u8
    }
}

/// A model small enough for a test of the whole engine, with a byte-level vocabulary: tokens 0 to 2 as SmolLM2's control tokens, the 256
/// letters of the bytes, and the few merges' results.
#[derive(Debug, Clone)]
pub struct TinyModel {
    /// `llama`, or `gemma3` for its additional norms, window and key length; it changes names and keys, nothing else.
    pub architecture: &'static str,
    pub dim: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub ff: usize,
    pub context: u32,
    /// Gemma's sliding window.
    pub window: u32,
    pub rope_base: f32,
    /// No `output.weight`: the embedding serves.
    pub tied: bool,
    /// Of every matrix; norms are F32 unless `formats` says otherwise.
    pub format: Format,
    /// (part of the name, format): the last that fits decides.
    pub formats: Vec<(&'static str, Format)>,
    pub alignment: Option<u32>,
    pub version: u32,
    pub seed: u64,
}

impl Default for TinyModel {
    fn default() -> Self {
        Self {
            architecture: "llama",
            dim: 64,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            ff: 96,
            context: 512,
            window: 16,
            rope_base: 10_000.0,
            tied: true,
            format: Format::Q4_1,
            formats: vec![("token_embd", Format::Q8_0)],
            alignment: None,
            version: 3,
            seed: 1,
        }
    }
}

/// Pairs that merge, best first; each result is a token after the letters. `Ġ` is the byte-level blank.
pub const MERGES: [(&str, &str); 6] = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("Ġ", "a"), ("e", "r")];

/// The vocabulary of every [`TinyModel`].
pub fn vocabulary() -> Vec<String> {
    let mut tokens: Vec<String> = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(str::to_owned).into();
    tokens.extend((0..=255).map(|byte| byte_letter(byte).to_string()));
    tokens.extend(MERGES.map(|(a, b)| format!("{a}{b}")));
    tokens
}

/// GPT-2's letter for a byte: printable Latin-1 stands for itself, the others follow from U+0100 in order.
pub fn byte_letter(byte: u8) -> char {
    let itself = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if itself(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|&b| !itself(b)).count() as u32;
    char::from_u32(0x100 + rank).unwrap()
}

fn strings<'a>(items: impl IntoIterator<Item = &'a str>) -> Value {
    Value::Array(Array::Strings(items.into_iter().collect::<Strings>()))
}

impl TinyModel {
    /// The file's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.file().bytes()
    }

    /// The file, still to be changed.
    pub fn file(&self) -> GgufFile {
        let mut file = GgufFile { version: self.version, alignment: self.alignment.unwrap_or(32).into(), ..GgufFile::default() };
        self.metadata(&mut file);
        self.weights(&mut file);
        file
    }

    fn metadata(&self, file: &mut GgufFile) {
        let arch = self.architecture;
        let text = |s: &str| Value::String(s.into());
        file.set("general.architecture", text(arch));
        file.set("general.name", text("Tiny"));
        if let Some(alignment) = self.alignment {
            file.set("general.alignment", Value::U32(alignment));
        }
        let mut number = |key: &str, v: usize| file.set(&format!("{arch}.{key}"), Value::U32(v as u32));
        number("block_count", self.layers);
        number("context_length", self.context as usize);
        number("embedding_length", self.dim);
        number("feed_forward_length", self.ff);
        number("attention.head_count", self.heads);
        number("attention.head_count_kv", self.kv_heads);
        number("attention.key_length", self.head_dim);
        number("attention.value_length", self.head_dim);
        number("rope.dimension_count", self.head_dim);
        number("vocab_size", vocabulary().len());
        if arch == "gemma3" {
            number("attention.sliding_window", self.window as usize);
        }
        file.set(&format!("{arch}.rope.freq_base"), Value::F32(self.rope_base));
        file.set(&format!("{arch}.attention.layer_norm_rms_epsilon"), Value::F32(1e-5));
        let tokens = vocabulary();
        let merges = MERGES.map(|(a, b)| format!("{a} {b}"));
        let types = tokens.iter().enumerate().map(|(id, _)| if id < 3 { 3 } else { 1 }).collect();
        file.set("tokenizer.ggml.model", text("gpt2"));
        file.set("tokenizer.ggml.pre", text("smollm"));
        file.set("tokenizer.ggml.tokens", strings(tokens.iter().map(String::as_str)));
        file.set("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
        file.set("tokenizer.ggml.merges", strings(merges.iter().map(String::as_str)));
        file.set("tokenizer.ggml.bos_token_id", Value::U32(1));
        file.set("tokenizer.ggml.eos_token_id", Value::U32(2));
        file.set("tokenizer.ggml.add_bos_token", Value::Bool(false));
    }

    fn weights(&self, file: &mut GgufFile) {
        let mut rng = Rng(self.seed);
        let (dim, ff, vocabulary) = (self.dim, self.ff, vocabulary().len());
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let format = |name: &str, usual| self.formats.iter().rev().find(|(part, _)| name.contains(part)).map_or(usual, |(_, f)| *f);
        // Deviation 1/sqrt(cols) keeps the size of what is multiplied, so that nothing over- or underflows however many layers there are.
        let mut matrix = |file: &mut GgufFile, name: &str, rows: usize, cols: usize| {
            let numbers = rng.weights(rows * cols, (cols as f32).powf(-0.5));
            file.push(name, &[cols as u64, rows as u64], format(name, self.format), &numbers);
        };
        let mut norm_rng = Rng(!self.seed);
        // Around 1; Gemma's files have the 1 added already.
        let mut norm = |file: &mut GgufFile, name: &str, len: usize| {
            let numbers: Vec<f32> = norm_rng.weights(len, 0.1).iter().map(|w| 1.0 + w).collect();
            file.push(name, &[len as u64], format(name, Format::F32), &numbers);
        };
        let gemma = self.architecture == "gemma3";
        matrix(file, "token_embd.weight", vocabulary, dim);
        for layer in 0..self.layers {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            norm(file, &name("attn_norm"), dim);
            matrix(file, &name("attn_q"), q, dim);
            matrix(file, &name("attn_k"), kv, dim);
            matrix(file, &name("attn_v"), kv, dim);
            matrix(file, &name("attn_output"), dim, q);
            norm(file, &name("ffn_norm"), dim);
            matrix(file, &name("ffn_gate"), ff, dim);
            matrix(file, &name("ffn_up"), ff, dim);
            matrix(file, &name("ffn_down"), dim, ff);
            if gemma {
                norm(file, &name("attn_q_norm"), self.head_dim);
                norm(file, &name("attn_k_norm"), self.head_dim);
                norm(file, &name("post_attention_norm"), dim);
                norm(file, &name("post_ffw_norm"), dim);
            }
        }
        norm(file, "output_norm.weight", dim);
        if !self.tied {
            matrix(file, "output.weight", vocabulary, dim);
        }
    }
}
