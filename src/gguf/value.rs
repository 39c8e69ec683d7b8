//! Metadata values, stored compactly: a vocabulary is one buffer of text, not a quarter million strings.

use std::collections::HashMap;

use crate::error::{Result, bail, error};

/// A metadata value, of the type the file gives it.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    String(Box<str>),
    Array(Array),
}

/// An array of metadata.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Bool(Vec<bool>),
    Strings(Strings),
    /// Arrays in an array, by their number: they are checked but not kept, since no key that means anything here has them.
    Nested(u64),
}

/// Many strings in one buffer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    ends: Vec<u32>,
}

impl Strings {
    pub(super) fn with_capacity(n: usize, text_bytes: usize) -> Self {
        Self { text: String::with_capacity(text_bytes), ends: Vec::with_capacity(n) }
    }
    pub(super) fn push(&mut self, s: &str) {
        self.text.push_str(s);
        self.ends.push(self.text.len() as u32); // a header has at most `MAX_HEADER_BYTES`
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
    /// One of them.
    pub fn get(&self, i: usize) -> Option<&str> {
        let end = *self.ends.get(i)? as usize;
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        Some(&self.text[start..end])
    }
    /// All of them in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|i| self.get(i).unwrap_or_default())
    }
}

impl<'a> FromIterator<&'a str> for Strings {
    fn from_iter<I: IntoIterator<Item = &'a str>>(iter: I) -> Self {
        let mut all = Self::default();
        iter.into_iter().for_each(|s| all.push(s));
        all
    }
}

impl Value {
    /// The type's name in the specification.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::U8(_) => "u8",
            Value::I8(_) => "i8",
            Value::U16(_) => "u16",
            Value::I16(_) => "i16",
            Value::U32(_) => "u32",
            Value::I32(_) => "i32",
            Value::U64(_) => "u64",
            Value::I64(_) => "i64",
            Value::F32(_) => "f32",
            Value::F64(_) => "f64",
            Value::Bool(_) => "a boolean",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
        }
    }

    /// For messages: a whole number as it is, anything else by its type.
    fn shown(&self) -> String {
        match *self {
            Value::I8(v) => v.to_string(),
            Value::I16(v) => v.to_string(),
            Value::I32(v) => v.to_string(),
            Value::I64(v) => v.to_string(),
            Value::U64(v) => v.to_string(),
            _ => self.type_name().to_owned(),
        }
    }

    fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::U8(v) => Some(v.into()),
            Value::U16(v) => Some(v.into()),
            Value::U32(v) => Some(v.into()),
            Value::U64(v) => Some(v),
            Value::I8(v) => v.try_into().ok(),
            Value::I16(v) => v.try_into().ok(),
            Value::I32(v) => v.try_into().ok(),
            Value::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }
}

/// The key-value pairs of a file. The getters return `None` where the key is absent and an error that names it where it is of another type.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    pairs: HashMap<String, Value>,
}

macro_rules! getter {
    ($name:ident, $require:ident, $type:ty, $wanted:literal, $($pattern:pat => $value:expr),+) => {
        #[doc = concat!("The value of a key that is ", $wanted, ".")]
        pub fn $name(&self, key: &str) -> Result<Option<$type>> {
            match self.pairs.get(key) {
                None => Ok(None),
                $(Some($pattern) => Ok(Some($value)),)+
                Some(other) => bail!(BadKey, "metadata key {key:?} must be {}, not {}", $wanted, other.type_name()),
            }
        }
        #[doc = concat!("The value of a key that is ", $wanted, "; absent is an error.")]
        pub fn $require(&self, key: &str) -> Result<$type> {
            self.$name(key)?.ok_or_else(|| error!(MissingKey, "the file lacks the metadata key {key:?}"))
        }
    };
}

impl Metadata {
    /// Adds a pair; a key that is there already is refused.
    pub fn insert(&mut self, key: String, value: Value) -> Result<()> {
        if self.pairs.contains_key(&key) {
            bail!(Malformed, "metadata key {} is given twice", super::reader::shown(&key));
        }
        self.pairs.insert(key, value);
        Ok(())
    }
    /// The value as it is.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.pairs.get(key)
    }
    /// Every pair, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.pairs.iter().map(|(k, v)| (k.as_str(), v))
    }
    /// Takes a value out, for a vocabulary that then lives elsewhere.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        self.pairs.remove(key)
    }

    /// A whole number of any width that fits.
    pub fn u32(&self, key: &str) -> Result<Option<u32>> {
        let Some(value) = self.pairs.get(key) else { return Ok(None) };
        match value.as_u64().and_then(|v| u32::try_from(v).ok()) {
            Some(v) => Ok(Some(v)),
            None => bail!(BadKey, "metadata key {key:?} must be a whole number that fits u32, not {}", value.shown()),
        }
    }
    /// A whole number of any width that fits; absent is an error.
    pub fn require_u32(&self, key: &str) -> Result<u32> {
        self.u32(key)?.ok_or_else(|| error!(MissingKey, "the file lacks the metadata key {key:?}"))
    }
    getter!(f32, require_f32, f32, "a float", Value::F32(v) => *v, Value::F64(v) => *v as f32);
    getter!(bool, require_bool, bool, "a boolean", Value::Bool(v) => *v);
    getter!(str, require_str, &str, "a string", Value::String(v) => v);
    getter!(strings, require_strings, &Strings, "an array of strings", Value::Array(Array::Strings(v)) => v);
    getter!(i32s, require_i32s, &[i32], "an array of i32", Value::Array(Array::I32(v)) => v);
    getter!(f32s, require_f32s, &[f32], "an array of f32", Value::Array(Array::F32(v)) => v);
}
