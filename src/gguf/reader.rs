//! Reads little-endian fields out of the bytes at hand, and tells "refused" from "not there yet".

use super::value::{Array, Strings, Value};
use crate::error::{Error, error};

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
        Self { bytes, at: 0, limit }
    }

    pub fn position(&self) -> u64 {
        self.at as u64
    }

    fn take(&mut self, n: u64) -> Read<&'a [u8]> {
        let end = (self.at as u64).saturating_add(n);
        if end > self.bytes.len() as u64 {
            return Err(Stop::More(end));
        }
        let taken = &self.bytes[self.at..end as usize];
        self.at = end as usize;
        Ok(taken)
    }

    fn take_many(&mut self, key: &str, n: u64, size: u64) -> Read<&'a [u8]> {
        let bytes = n.checked_mul(size).filter(|&b| b <= self.limit);
        let bytes = bytes.ok_or_else(|| error!(Malformed, "{key:?} announces an array of {n} entries, more than the file can hold"))?;
        self.take(bytes)
    }

    pub fn skip(&mut self, n: u64) -> Read<()> {
        self.take(n).map(|_| ())
    }

    numbers!(u8: u8, i8: i8, u16: u16, i16: i16, u32: u32, i32: i32, u64: u64, i64: i64, f32: f32, f64: f64);

    /// A count of things that take at least `min_bytes` each, refused when the file can't hold them.
    pub fn count(&mut self, what: &str, min_bytes: u64) -> Read<u64> {
        let n = self.u64()?;
        if n.checked_mul(min_bytes).is_none_or(|b| b > self.limit) {
            return Err(error!(Malformed, "the header announces {n} {what}, more than the file can hold").into());
        }
        Ok(n)
    }

    fn raw_string(&mut self, what: &str, max: u64) -> Read<&'a str> {
        let n = self.u64()?;
        if n > max.min(self.limit) {
            return Err(error!(Malformed, "{what:?} announces a text of {n} bytes, more than is possible").into());
        }
        let raw = self.take(n)?;
        std::str::from_utf8(raw).map_err(|_| error!(Malformed, "{what:?} is not UTF-8").into())
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
            7 => Value::Bool(self.bool(key)?),
            8 => Value::String(self.raw_string(key, u64::MAX)?.into()),
            9 => Value::Array(self.array(key, 0)?),
            10 => Value::U64(self.u64()?),
            11 => Value::I64(self.i64()?),
            12 => Value::F64(self.f64()?),
            _ => return Err(error!(Malformed, "{key:?} has the unknown value type {type_id}").into()),
        })
    }

    fn bool(&mut self, key: &str) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(error!(Malformed, "{key:?} is a boolean of value {other}").into()),
        }
    }

    fn array(&mut self, key: &str, depth: u32) -> Read<Array> {
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
            7 => Array::Bool(self.take_many(key, n, 1)?.iter().map(|&b| b != 0).collect()),
            8 => Array::Strings(self.strings(key, n)?),
            9 => self.nested(key, n, depth)?,
            10 => number_array!(self, n, key, u64, U64),
            11 => number_array!(self, n, key, i64, I64),
            12 => number_array!(self, n, key, f64, F64),
            _ => return Err(error!(Malformed, "{key:?} is an array of the unknown type {type_id}").into()),
        })
    }

    fn strings(&mut self, key: &str, n: u64) -> Read<Strings> {
        if n.checked_mul(8).is_none_or(|b| b > self.limit) {
            return Err(error!(Malformed, "{key:?} announces an array of {n} strings, more than the file can hold").into());
        }
        // First over the lengths, so that the copy is made once at its exact size and only when all of it is there.
        let start = self.at;
        let mut text_bytes = 0;
        for _ in 0..n {
            text_bytes += self.raw_string(key, u64::MAX)?.len();
        }
        self.at = start;
        let mut strings = Strings::with_capacity(n as usize, text_bytes);
        for _ in 0..n {
            strings.push(self.raw_string(key, u64::MAX)?);
        }
        Ok(strings)
    }

    fn nested(&mut self, key: &str, n: u64, depth: u32) -> Read<Array> {
        if depth >= MAX_DEPTH {
            return Err(error!(Malformed, "{key:?} nests arrays more than {MAX_DEPTH} deep").into());
        }
        if n.checked_mul(12).is_none_or(|b| b > self.limit) {
            return Err(error!(Malformed, "{key:?} announces an array of {n} arrays, more than the file can hold").into());
        }
        let mut arrays = Vec::new();
        for _ in 0..n {
            arrays.push(self.array(key, depth + 1)?);
        }
        Ok(Array::Nested(arrays))
    }
}
