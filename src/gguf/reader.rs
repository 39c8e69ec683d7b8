//! Reads little-endian fields out of the bytes at hand, and tells "refused" from "not there yet".

use super::value::{Array, Strings, Value};
use crate::error::{Error, bail, error};

/// Why reading stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// At least this many bytes from the start of the file are needed.
    More(u64),
    /// The file is not acceptable.
    Refused(Error),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Self {
        Stop::Refused(e)
    }
}

type Read<T> = Result<T, Stop>;

/// Arrays inside arrays are read down to this depth.
const MAX_DEPTH: u32 = 4;

pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The header can't be longer than this: the file's size, or the cap where it is unknown.
    limit: u64,
    /// What must at least follow the field being read, by the counts read so far. It makes [`Stop::More`] ask for much at once, and a count
    /// that the file can't hold is refused when it is read.
    owed: u64,
}

/// A name out of the file as messages show it: quoted, escaped, and cut where it is absurdly long.
pub(super) fn shown(name: &str) -> String {
    match name.char_indices().nth(120) {
        None => format!("{name:?}"),
        Some((end, _)) => format!("{:?}...", &name[..end]),
    }
}

macro_rules! numbers {
    ($($name:ident: $type:ty),+) => {$(
        pub fn $name(&mut self) -> Read<$type> {
            let raw = self.take(size_of::<$type>() as u64)?;
            Ok(<$type>::from_le_bytes(raw.try_into().unwrap_or_default()))
        }
    )+};
}

macro_rules! number_array {
    ($self:ident, $n:ident, $key:ident, $type:ty, $variant:ident) => {{
        let raw = $self.take_many($key, $n, size_of::<$type>() as u64)?;
        Array::$variant(raw.chunks_exact(size_of::<$type>()).map(|c| <$type>::from_le_bytes(c.try_into().unwrap_or_default())).collect())
    }};
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], limit: u64) -> Self {
        Self { bytes, at: 0, limit, owed: 0 }
    }

    pub fn position(&self) -> u64 {
        self.at as u64
    }

    fn take(&mut self, n: u64) -> Read<&'a [u8]> {
        let end = (self.at as u64).saturating_add(n);
        if end > self.bytes.len() as u64 {
            return Err(Stop::More(end.saturating_add(self.owed)));
        }
        let taken = &self.bytes[self.at..end as usize];
        self.at = end as usize;
        Ok(taken)
    }

    fn take_many(&mut self, key: &str, n: u64, size: u64) -> Read<&'a [u8]> {
        let bytes = n.checked_mul(size).filter(|&b| b <= self.limit);
        let bytes = bytes.ok_or_else(|| error!(Malformed, "{} announces an array of {n} entries, more than the file can hold", shown(key)))?;
        self.take(bytes)
    }

    pub fn skip(&mut self, n: u64) -> Read<()> {
        self.take(n).map(|_| ())
    }

    numbers!(u8: u8, i8: i8, u16: u16, i16: i16, u32: u32, i32: i32, u64: u64, i64: i64, f32: f32, f64: f64);

    /// A count of things, at most `max`.
    pub fn count(&mut self, what: &str, max: u64) -> Read<u64> {
        let n = self.u64()?;
        if n > max {
            return Err(error!(Malformed, "the header announces {n} {what}; at most {max} are possible").into());
        }
        Ok(n)
    }

    /// Says that `n` things of at least `min_bytes` each must follow. (Both are small enough for their product.)
    pub fn owe(&mut self, n: u64, min_bytes: u64) {
        self.owed += n * min_bytes;
    }

    /// Says that one of them comes now.
    pub fn pay(&mut self, min_bytes: u64) {
        self.owed -= min_bytes;
    }

    /// The length of an array whose entries take at least `min_bytes` each, refused when the file can't hold them.
    fn array_len(&mut self, key: &str, n: u64, what: &str, min_bytes: u64) -> Read<()> {
        if n.checked_mul(min_bytes).is_none_or(|b| b > self.limit) {
            return Err(error!(Malformed, "{} announces an array of {n} {what}, more than the file can hold", shown(key)).into());
        }
        self.owe(n, min_bytes);
        Ok(())
    }

    fn raw_string(&mut self, what: &str, max: u64) -> Read<&'a str> {
        let n = self.u64()?;
        if n > max.min(self.limit) {
            return Err(error!(Malformed, "{} announces a text of {n} bytes, more than is possible", shown(what)).into());
        }
        let raw = self.take(n)?;
        std::str::from_utf8(raw).map_err(|_| error!(Malformed, "{} is not UTF-8", shown(what)).into())
    }

    pub fn string(&mut self, what: &str, max: u64) -> Read<String> {
        self.raw_string(what, max).map(str::to_owned)
    }

    pub fn value(&mut self, key: &str) -> Read<Value> {
        let type_id = self.u32()?;
        Ok(match type_id {
            0 => Value::U8(self.u8()?),
            1 => Value::I8(self.i8()?),
            2 => Value::U16(self.u16()?),
            3 => Value::I16(self.i16()?),
            4 => Value::U32(self.u32()?),
            5 => Value::I32(self.i32()?),
            6 => Value::F32(self.f32()?),
            7 => Value::Bool(boolean(key, self.u8()?)?),
            8 => Value::String(self.raw_string(key, u64::MAX)?.into()),
            9 => Value::Array(self.array(key)?),
            10 => Value::U64(self.u64()?),
            11 => Value::I64(self.i64()?),
            12 => Value::F64(self.f64()?),
            _ => return Err(error!(Malformed, "{} has the unknown value type {type_id}", shown(key)).into()),
        })
    }

    fn array(&mut self, key: &str) -> Read<Array> {
        let type_id = self.u32()?;
        let n = self.u64()?;
        Ok(match type_id {
            0 => number_array!(self, n, key, u8, U8),
            1 => number_array!(self, n, key, i8, I8),
            2 => number_array!(self, n, key, u16, U16),
            3 => number_array!(self, n, key, i16, I16),
            4 => number_array!(self, n, key, u32, U32),
            5 => number_array!(self, n, key, i32, I32),
            6 => number_array!(self, n, key, f32, F32),
            7 => Array::Bool(self.take_many(key, n, 1)?.iter().map(|&b| boolean(key, b)).collect::<Result<_, _>>()?),
            8 => Array::Strings(self.strings(key, n)?),
            9 => {
                self.skip_nested(key, n, 1)?;
                Array::Nested(n)
            }
            10 => number_array!(self, n, key, u64, U64),
            11 => number_array!(self, n, key, i64, I64),
            12 => number_array!(self, n, key, f64, F64),
            _ => return Err(error!(Malformed, "{} is an array of the unknown type {type_id}", shown(key)).into()),
        })
    }

    fn strings(&mut self, key: &str, n: u64) -> Read<Strings> {
        // First over the lengths, so that the copy is made once at its exact size and only when all of it is there.
        let start = self.at;
        let text_bytes = self.skip_strings(key, n)?;
        self.at = start;
        let mut strings = Strings::with_capacity(n as usize, text_bytes);
        for _ in 0..n {
            strings.push(self.raw_string(key, u64::MAX)?);
        }
        Ok(strings)
    }

    /// Checks `n` strings and says how many bytes of text they have.
    fn skip_strings(&mut self, key: &str, n: u64) -> Read<usize> {
        self.array_len(key, n, "strings", 8)?;
        let mut text_bytes = 0;
        for _ in 0..n {
            self.pay(8);
            text_bytes += self.raw_string(key, u64::MAX)?.len();
        }
        Ok(text_bytes)
    }

    /// Checks `n` arrays at this depth and keeps nothing of them, because in memory an empty one would be several times what it is in the file.
    fn skip_nested(&mut self, key: &str, n: u64, depth: u32) -> Read<()> {
        if depth > MAX_DEPTH {
            return Err(error!(Malformed, "{} nests arrays more than {MAX_DEPTH} deep", shown(key)).into());
        }
        self.array_len(key, n, "arrays", 12)?;
        for _ in 0..n {
            self.pay(12);
            let type_id = self.u32()?;
            let n = self.u64()?;
            match type_id {
                8 => drop(self.skip_strings(key, n)?),
                9 => self.skip_nested(key, n, depth + 1)?,
                0 | 1 | 7 => drop(self.take_many(key, n, 1)?),
                2 | 3 => drop(self.take_many(key, n, 2)?),
                4..=6 => drop(self.take_many(key, n, 4)?),
                10..=12 => drop(self.take_many(key, n, 8)?),
                _ => return Err(error!(Malformed, "{} has an array of the unknown type {type_id}", shown(key)).into()),
            }
        }
        Ok(())
    }
}

fn boolean(key: &str, byte: u8) -> Result<bool, Error> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => bail!(Malformed, "{} has a boolean of value {other}", shown(key)),
    }
}
