//! A stream of bytes -> strips of whole rows -> a backend. The file is never held whole: the header is parsed out of the first bytes,
//! and each strip is packed by the backend and dropped.

use crate::backend::{Backend, CacheSpec, KvType, Tensor};
use crate::chat::ChatTemplate;
use crate::error::{Result, bail, error};
use crate::gguf::{Gguf, Parsed, TensorInfo};
use crate::model::weights::{self, ROPE_FACTORS, Weights};
use crate::model::{Config, Model, cache_spec};
use crate::tokenizer::Tokenizer;

/// A strip of rows is at most this large (unless a single row is larger).
const STRIP_BYTES: usize = 4 << 20;
/// The context length where nobody asks for another: this, or the file's if that is smaller.
pub const DEFAULT_CONTEXT: usize = 4096;
/// How many bytes the first attempt at the header waits for.
const FIRST_ATTEMPT: u64 = 64 << 10;

/// What the caller decides about a load.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadOptions {
    /// Positions in the KV cache; at most what the model was trained for. None: the smaller of that and [`DEFAULT_CONTEXT`].
    pub context_length: Option<usize>,
    /// How the KV cache stores keys and values: two bytes each, or a little more than one. `not-supported` where the backend can't.
    pub kv_type: KvType,
    /// A `tokenizer.json` to use instead of the file's own tokenizer (native, feature `tokenizer-json`).
    pub tokenizer_json: Option<Vec<u8>>,
}

/// A loaded model with all that belongs to it.
#[derive(Debug)]
pub struct Loaded<B> {
    /// Weights, cache and forward.
    pub model: Model<B>,
    /// Text <-> ids.
    pub tokenizer: Tokenizer,
    /// Messages -> ids, if the file has a template.
    pub chat: Option<ChatTemplate>,
    /// What the file says of itself.
    pub about: About,
}

/// What the file says of itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct About {
    /// `general.name`, or "".
    pub name: String,
    /// The format that most of the weights have, for example `Q4_1`.
    pub quantization: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes of the weights that every decoded token reads: all, but of an embedding table that is not the output's, too, no more than a row.
    pub bytes_per_token: u64,
}

/// Takes a file piece by piece.
#[derive(Debug)]
pub struct Loader<B> {
    total: Option<u64>,
    options: LoadOptions,
    backend: Option<B>,
    received: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Collecting the header; the next attempt is made at this many bytes.
    Header { bytes: Vec<u8>, attempt_at: u64 },
    /// Uploading tensors.
    Data(Box<Data>),
    /// An error was returned; nothing more is taken.
    Failed,
}

#[derive(Debug)]
struct Data {
    config: Config,
    weights: Weights,
    tokenizer: Tokenizer,
    chat: Option<ChatTemplate>,
    about: About,
    cache: CacheSpec,
    /// In file order: where it begins in the file, and its handle (None: the frequency factors, kept here).
    tensors: Vec<(TensorInfo, u64, Option<Tensor>)>,
    rope_factors: Vec<f32>,
    current: usize,
    row: usize,
    /// Where in the file the next byte belongs.
    position: u64,
    /// Whole rows that are not uploaded yet, and the beginning of the next one.
    strip: Vec<u8>,
}

impl<B: Backend> Loader<B> {
    /// A load onto `backend`. `total`: the file's size, where it is known; then a file that is cut off is refused before any upload.
    pub fn new(backend: B, total: Option<u64>, options: LoadOptions) -> Self {
        let state = State::Header { bytes: Vec::new(), attempt_at: FIRST_ATTEMPT.min(total.unwrap_or(u64::MAX)) };
        Self { total, options, backend: Some(backend), received: 0, state }
    }

    /// Takes the next bytes of the file. After an error every further call fails too.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        let result = self.take(bytes);
        if result.is_err() {
            self.state = State::Failed;
        }
        result
    }

    /// The model, when all bytes are there.
    pub fn finish(mut self) -> Result<Loaded<B>> {
        if let State::Header { .. } = self.state {
            self.total.get_or_insert(self.received);
            self.push(&[])?; // a last attempt with what is there, which then is all there is
        }
        let (State::Data(data), Some(backend)) = (self.state, self.backend.take()) else {
            bail!(Internal, "the load had failed already");
        };
        if let Some((t, start, _)) = data.tensors.get(data.current) {
            let (end, got) = (start + t.bytes, data.position);
            bail!(
                Truncated,
                "the file is cut off: tensor {:?} needs bytes {start}..{end} but the file has {got}; {} bytes are missing",
                t.name,
                end - got
            );
        }
        let about = About { bytes: self.received, ..data.about };
        let model = Model::new(backend, data.config, data.weights, data.rope_factors, &data.cache);
        Ok(Loaded { model, tokenizer: data.tokenizer, chat: data.chat, about })
    }

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        self.received += bytes.len() as u64;
        if let Some(total) = self.total
            && self.received > total
        {
            bail!(Malformed, "more bytes came than the {total} that were announced");
        }
        match &mut self.state {
            State::Header { bytes: header, attempt_at } => {
                header.extend_from_slice(bytes);
                // The magic is looked at with the first bytes; the rest waits until it is worth an attempt, twice as much each time.
                if header.len() as u64 >= *attempt_at || self.total == Some(self.received) || header.len() == bytes.len() {
                    let header = std::mem::take(header);
                    self.try_header(header)?;
                }
                Ok(())
            }
            State::Data(data) => match &mut self.backend {
                Some(backend) => data.take(backend, bytes),
                None => bail!(Internal, "the load is finished"),
            },
            State::Failed => bail!(Internal, "the load has failed"),
        }
    }

    fn try_header(&mut self, header: Vec<u8>) -> Result<()> {
        let gguf = match Gguf::parse(&header, self.total)? {
            Parsed::Done(gguf) => *gguf,
            Parsed::More(_) if self.total == Some(self.received) => {
                bail!(Truncated, "the file ends inside its header, after {} bytes", self.received)
            }
            Parsed::More(n) => {
                let attempt_at = n.max(2 * header.len() as u64);
                self.state = State::Header { bytes: header, attempt_at };
                return Ok(());
            }
        };
        let Some(backend) = &mut self.backend else { bail!(Internal, "the load is finished") };
        let start = gguf.data_start;
        let mut data = Box::new(Data::new(backend, gguf, &self.options)?);
        // What came behind the header belongs to the tensors.
        let rest = header.get(start as usize..).unwrap_or(&[]);
        data.position = start.min(header.len() as u64);
        data.take(backend, rest)?;
        self.state = State::Data(data);
        Ok(())
    }
}

impl Data {
    fn new<B: Backend>(backend: &mut B, mut gguf: Gguf, options: &LoadOptions) -> Result<Self> {
        Config::check_architecture(&gguf.metadata)?; // before the tokenizer: "not supported" is worth more than what its vocabulary lacks
        let rows = gguf.tensor("token_embd.weight").map_or(0, TensorInfo::rows);
        let tokenizer = match &options.tokenizer_json {
            None => Tokenizer::from_metadata(&mut gguf.metadata)?,
            Some(json) => Tokenizer::from_json(json, &gguf.metadata, rows)?,
        };
        let chat = ChatTemplate::from_metadata(&gguf.metadata)?;
        let config = Config::from_metadata(&gguf.metadata, tokenizer.vocab_size())?;
        let context = match options.context_length {
            None => config.trained_context.min(DEFAULT_CONTEXT),
            Some(n) if n >= 1 && n <= config.trained_context => n,
            Some(n) => bail!(BadOption, "contextLength is {n}; this model takes 1 to {}", config.trained_context),
        };
        // All memory is taken now: what does not fit is refused before the weights are downloaded.
        let (weights, handles) = weights::create(backend, &gguf, &config)?;
        let cache = cache_spec(&config, context, options.kv_type);
        backend.cache(&cache)?;
        let name = gguf.metadata.str("general.name")?.unwrap_or_default().to_owned();
        let quantization = quantization(&gguf.tensors);
        let mut tensors = Vec::with_capacity(gguf.tensors.len());
        for t in &gguf.tensors {
            let handle = handles.get(&t.name).copied();
            if handle.is_none() && (t.name != ROPE_FACTORS || t.rows() != 1 || t.cols() != config.rope_dim / 2) {
                bail!(BadShape, "tensor {:?} is {:?}; it must have {} values", t.name, t.dims, config.rope_dim / 2);
            }
            tensors.push((t.clone(), gguf.data_start + t.offset, handle));
        }
        let about = About { name, quantization, bytes: 0, bytes_per_token: bytes_per_token(&gguf) };
        Ok(Self {
            config,
            weights,
            tokenizer,
            chat,
            about,
            cache,
            tensors,
            rope_factors: Vec::new(),
            current: 0,
            row: 0,
            position: 0,
            strip: Vec::new(),
        })
    }

    /// Hands bytes to the tensors they belong to; what lies between tensors is padding.
    fn take<B: Backend>(&mut self, backend: &mut B, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let Some((tensor, start, handle)) = self.tensors.get(self.current) else {
                self.position += bytes.len() as u64; // behind the last tensor
                return Ok(());
            };
            if self.position < *start {
                let n = (start - self.position).min(bytes.len() as u64);
                bytes = &bytes[n as usize..];
                self.position += n;
                continue;
            }
            let row_bytes = tensor.row_bytes();
            let rows_left = tensor.rows() - self.row;
            let rows_max = rows_left.min((STRIP_BYTES / row_bytes).max(1));
            let (rows, strip);
            if self.strip.is_empty() && bytes.len() >= row_bytes {
                // straight from the caller's bytes
                rows = rows_max.min(bytes.len() / row_bytes);
                strip = &bytes[..rows * row_bytes];
                bytes = &bytes[strip.len()..];
                self.position += strip.len() as u64;
            } else {
                let n = (row_bytes - self.strip.len()).min(bytes.len());
                self.strip.extend_from_slice(&bytes[..n]);
                bytes = &bytes[n..];
                self.position += n as u64;
                if self.strip.len() < row_bytes {
                    return Ok(());
                }
                rows = 1;
                strip = &self.strip;
            }
            match handle {
                Some(handle) => backend.upload(*handle, self.row..self.row + rows, strip)?,
                None => {
                    self.rope_factors = vec![0.0; tensor.cols()];
                    tensor.format.dequantize(strip, &mut self.rope_factors);
                    if self.rope_factors.iter().any(|f| !f.is_finite() || *f <= 0.0) {
                        return Err(error!(Malformed, "tensor {:?} holds a factor that is not above 0", tensor.name));
                    }
                }
            }
            self.strip.clear();
            self.row += rows;
            if self.row == tensor.rows() {
                (self.current, self.row) = (self.current + 1, 0);
            }
        }
        Ok(())
    }
}

/// See [`About::bytes_per_token`].
fn bytes_per_token(gguf: &Gguf) -> u64 {
    let own_output = gguf.tensor("output.weight").is_some();
    let read = |t: &TensorInfo| if own_output && t.name == "token_embd.weight" { t.row_bytes() as u64 } else { t.bytes };
    gguf.tensors.iter().map(read).sum()
}

/// The format that most of the matrices' weights have.
fn quantization(tensors: &[TensorInfo]) -> String {
    let layers = |t: &&TensorInfo| t.rows() > 1 && t.name.starts_with("blk.");
    let mut counts: Vec<(crate::quant::Format, u64)> = Vec::new();
    for t in tensors.iter().filter(layers) {
        let weights = t.dims.iter().product::<u64>();
        match counts.iter_mut().find(|(f, _)| *f == t.format) {
            Some((_, n)) => *n += weights,
            None => counts.push((t.format, weights)),
        }
    }
    counts.iter().max_by_key(|(_, n)| *n).map_or_else(String::new, |(f, _)| f.name().to_owned())
}
