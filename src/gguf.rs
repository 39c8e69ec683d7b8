//! GGUF: bytes -> metadata and tensor directory, from the first bytes of a download. No I/O here.
//!
//! Source: the GGUF specification (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>), versions 2 and 3.
//! Nothing that a file says is used as an allocation size before the bytes it stands for are there.

mod reader;
mod sniff;
mod value;

use std::collections::HashMap;
use std::ops::Range;

use crate::error::{Result, bail, error};
use crate::quant::{Format, ggml_type_name};
use reader::{Reader, Stop, shown};
pub use value::{Array, Metadata, Strings, Value};

/// A header larger than this is refused; real ones have at most some 20 MiB of vocabulary and merges.
pub const MAX_HEADER_BYTES: u64 = 64 << 20;
/// More tensors or metadata pairs than this are refused: real files have a few thousand at most, and in memory an entry of a few bytes becomes
/// a few hundred.
const MAX_ENTRIES: u64 = 1 << 16;
/// GGUF's alignment when the file names none.
const DEFAULT_ALIGNMENT: u32 = 32;
/// A tensor has at most this many dimensions (GGML_MAX_DIMS).
const MAX_DIMS: u32 = 4;
/// A longer row is refused; so its bytes fit a 32-bit `usize` in every format.
const MAX_COLS: u64 = 1 << 28;
/// More rows are refused; so their number fits a 32-bit `usize`.
const MAX_ROWS: u64 = 1 << 31;
/// The smallest encoding of a tensor's entry: empty name, one dimension.
const MIN_TENSOR_ENTRY: u64 = 8 + 4 + 8 + 4 + 8;
/// The smallest encoding of a metadata pair: empty key, one byte.
const MIN_PAIR: u64 = 8 + 4 + 1;

/// One tensor of the directory: `rows` rows of `cols` numbers, row after row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name, for example `blk.0.attn_q.weight`.
    pub name: String,
    /// How its numbers are stored.
    pub format: Format,
    /// Dimensions as the file has them: the innermost (the row's length) first.
    pub dims: Vec<u64>,
    /// First byte, counted from [`Gguf::data_start`].
    pub offset: u64,
    /// Bytes in all.
    pub bytes: u64,
}

impl TensorInfo {
    // The casts lose nothing, in wasm neither: `tensor_bytes` keeps within MAX_COLS and MAX_ROWS.

    /// Length of a row: the innermost dimension.
    pub fn cols(&self) -> usize {
        self.dims[0] as usize
    }
    /// Number of rows: all other dimensions multiplied.
    pub fn rows(&self) -> usize {
        self.dims[1..].iter().product::<u64>() as usize
    }
    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.cols() / self.format.block_len() * self.format.block_bytes()
    }
}

/// The header of a GGUF file.
#[derive(Debug, Clone, PartialEq)]
pub struct Gguf {
    /// Format version: 2 or 3.
    pub version: u32,
    /// The key-value pairs.
    pub metadata: Metadata,
    /// The tensors, by ascending offset.
    pub tensors: Vec<TensorInfo>,
    /// Where in the file the tensor data begins.
    pub data_start: u64,
    by_name: HashMap<String, usize>,
}

/// What the bytes at hand were enough for.
#[derive(Debug)]
pub enum Parsed {
    /// The whole header.
    Done(Box<Gguf>),
    /// Not yet: come back with at least this many bytes from the start of the file. It is always more than were given, and never more than
    /// any file that goes on like this has. Each attempt begins anew, so come back with at least twice as many where there are.
    More(u64),
}

impl Gguf {
    /// Reads the header out of the first bytes of a file. `total` is the file's size where it is known: then whatever the header
    /// announces beyond it is refused at once.
    pub fn parse(bytes: &[u8], total: Option<u64>) -> Result<Parsed> {
        let complete = total.is_some_and(|t| bytes.len() as u64 >= t);
        if let Some(refusal) = sniff::refusal(bytes, complete) {
            return Err(refusal);
        }
        let limit = total.unwrap_or(MAX_HEADER_BYTES).min(MAX_HEADER_BYTES);
        match Self::parse_header(&mut Reader::new(bytes, limit)) {
            Ok(gguf) => {
                if let Some(total) = total {
                    gguf.check_extent(total)?;
                }
                Ok(Parsed::Done(Box::new(gguf)))
            }
            Err(Stop::More(n)) if n <= limit => Ok(Parsed::More(n)),
            Err(Stop::More(n)) => match total {
                Some(total) if total <= MAX_HEADER_BYTES => {
                    bail!(Truncated, "the file ends inside its header: it has {total} bytes, the header needs at least {n}")
                }
                _ => bail!(Malformed, "the header announces more than {} MiB", MAX_HEADER_BYTES >> 20),
            },
            Err(Stop::Refused(e)) => Err(e),
        }
    }

    /// Reads the header of a file that is wholly in memory.
    pub fn parse_whole(bytes: &[u8]) -> Result<Gguf> {
        match Self::parse(bytes, Some(bytes.len() as u64))? {
            Parsed::Done(gguf) => Ok(*gguf),
            Parsed::More(n) => bail!(Truncated, "the file ends inside its header: at least {n} bytes are needed"),
        }
    }

    /// The entry of a tensor.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.by_name.get(name).map(|&i| &self.tensors[i])
    }

    /// Where a tensor lies in the file.
    pub fn file_range(&self, tensor: &TensorInfo) -> Range<u64> {
        let start = self.data_start + tensor.offset;
        start..start + tensor.bytes
    }

    fn parse_header(r: &mut Reader) -> std::result::Result<Gguf, Stop> {
        r.skip(4)?; // the magic, looked at by `sniff`
        let version = r.u32()?;
        let tensor_count = r.count("tensors", MAX_ENTRIES)?;
        let pair_count = r.count("metadata pairs", MAX_ENTRIES)?;
        r.owe(tensor_count, MIN_TENSOR_ENTRY);
        r.owe(pair_count, MIN_PAIR);
        let mut metadata = Metadata::default();
        for _ in 0..pair_count {
            r.pay(MIN_PAIR);
            let key = r.string("a metadata key", 65_535)?;
            let value = r.value(&key)?;
            metadata.insert(key, value)?;
        }
        let alignment = alignment(&metadata)?;
        let mut tensors = Vec::new();
        for _ in 0..tensor_count {
            r.pay(MIN_TENSOR_ENTRY);
            tensors.push(parse_tensor(r, alignment)?);
        }
        tensors.sort_by_key(|t: &TensorInfo| t.offset);
        let mut by_name = HashMap::with_capacity(tensors.len());
        for (i, t) in tensors.iter().enumerate() {
            if by_name.insert(t.name.clone(), i).is_some() {
                return Err(error!(Malformed, "tensor {} is listed twice", shown(&t.name)).into());
            }
        }
        for pair in tensors.windows(2) {
            let end = pair[0].offset + pair[0].bytes;
            if end > pair[1].offset {
                let (a, b) = (shown(&pair[0].name), shown(&pair[1].name));
                return Err(
                    error!(Malformed, "tensors {a} and {b} overlap by {} bytes", end.min(pair[1].offset + pair[1].bytes) - pair[1].offset).into()
                );
            }
        }
        let data_start = r.position().next_multiple_of(u64::from(alignment));
        Ok(Gguf { version, metadata, tensors, data_start, by_name })
    }

    fn check_extent(&self, total: u64) -> Result<()> {
        for t in &self.tensors {
            let range = self.file_range(t);
            if range.end > total {
                let missing = range.end - total;
                bail!(
                    Truncated,
                    "the file is cut off: tensor {} needs bytes {}..{} but the file has {total}; {missing} bytes are missing",
                    shown(&t.name),
                    range.start,
                    range.end
                );
            }
        }
        Ok(())
    }
}

fn alignment(metadata: &Metadata) -> Result<u32> {
    match metadata.get("general.alignment") {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(&Value::U32(a)) if a.is_power_of_two() && (8..=65_536).contains(&a) => Ok(a),
        Some(Value::U32(a)) => bail!(BadKey, "general.alignment is {a}; it must be a power of two from 8 to 65536"),
        Some(other) => bail!(BadKey, "general.alignment must be a u32, not {}", other.type_name()),
    }
}

fn parse_tensor(r: &mut Reader, alignment: u32) -> std::result::Result<TensorInfo, Stop> {
    let name = r.string("a tensor's name", 1024)?;
    let n_dims = r.u32()?;
    if n_dims == 0 || n_dims > MAX_DIMS {
        return Err(error!(Malformed, "tensor {} has {n_dims} dimensions; 1 to {MAX_DIMS} are possible", shown(&name)).into());
    }
    let mut dims = Vec::with_capacity(n_dims as usize);
    for _ in 0..n_dims {
        dims.push(r.u64()?);
    }
    let type_id = r.u32()?;
    let offset = r.u64()?;
    let Some(format) = Format::from_ggml(type_id) else {
        return Err(error!(UnsupportedType, "tensor {} has type {}, which is not supported", shown(&name), ggml_type_name(type_id)).into());
    };
    let bytes = tensor_bytes(&name, format, &dims)?;
    if !offset.is_multiple_of(u64::from(alignment)) {
        return Err(error!(Malformed, "tensor {} begins at {offset}, which is not a multiple of the alignment {alignment}", shown(&name)).into());
    }
    if offset.checked_add(bytes).is_none_or(|end| end > 1 << 48) {
        return Err(error!(Malformed, "tensor {} lies at {offset}, beyond any file", shown(&name)).into());
    }
    Ok(TensorInfo { name, format, dims, offset, bytes })
}

fn tensor_bytes(name: &str, format: Format, dims: &[u64]) -> Result<u64> {
    if dims.contains(&0) {
        bail!(BadShape, "tensor {} has a dimension of 0: {dims:?}", shown(name));
    }
    let block = format.block_len() as u64;
    if !dims[0].is_multiple_of(block) {
        bail!(BadShape, "tensor {} has rows of {}, not a multiple of the {block} weights of a {} block", shown(name), dims[0], format.name());
    }
    let rows = dims[1..].iter().try_fold(1u64, |n, &d| n.checked_mul(d)).filter(|&n| n <= MAX_ROWS && dims[0] <= MAX_COLS);
    let Some(rows) = rows else {
        bail!(BadShape, "tensor {} has impossible dimensions {dims:?}", shown(name));
    };
    Ok(rows * (dims[0] / block * format.block_bytes() as u64))
}
