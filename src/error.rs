//! One error type. Each error has a stable `code` that programs match on and a sentence that names the thing and the way out.

use std::fmt;

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// A refusal: what kind (`code`), and a sentence for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    code: Code,
    message: String,
}

impl Error {
    /// An error of the given kind.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The kind; `code().as_str()` is what JavaScript sees as `error.code`.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The sentence.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code.as_str())
    }
}

impl std::error::Error for Error {}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// The kinds of error. The strings are stable across versions.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[doc = $doc])+ $name,)+ }

        impl Code {
            /// Every code, for documentation and tests.
            pub const ALL: &'static [Code] = &[$(Code::$name,)+];

            /// The stable string.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)+ }
            }
        }
    };
}

codes! {
    /// The file does not begin like a GGUF file; the message says what it looks like instead.
    NotGguf = "not-gguf",
    /// A GGUF version (or byte order) this crate does not read.
    UnsupportedVersion = "unsupported-version",
    /// The file ends before what it announces.
    Truncated = "truncated",
    /// A header that contradicts itself or announces absurd sizes.
    Malformed = "malformed",
    /// A tensor of a quantization that is not supported.
    UnsupportedType = "unsupported-type",
    /// An architecture that is not supported, or a setting of one.
    UnsupportedArchitecture = "unsupported-architecture",
    /// A tokenizer model or pre-tokenizer that is not supported.
    UnsupportedTokenizer = "unsupported-tokenizer",
    /// A metadata key that is needed is not there.
    MissingKey = "missing-key",
    /// A metadata key has the wrong type or an impossible value.
    BadKey = "bad-key",
    /// A tensor that is needed is not there.
    MissingTensor = "missing-tensor",
    /// A tensor has other dimensions than the metadata says.
    BadShape = "bad-shape",
    /// The file has no chat template; use `complete`.
    NoChatTemplate = "no-chat-template",
    /// The chat template does not parse or failed; the message has the line.
    BadTemplate = "bad-template",
    /// The messages of a chat are not what a chat takes.
    BadMessages = "bad-messages",
    /// An option name that does not exist.
    UnknownOption = "unknown-option",
    /// An option of the wrong type or out of range.
    BadOption = "bad-option",
    /// Something known that this version does not do.
    NotSupported = "not-supported",
    /// The prompt leaves no room in the context.
    PromptTooLong = "prompt-too-long",
    /// There is nothing to read: no token in the prompt.
    EmptyPrompt = "empty-prompt",
    /// A token id that is not in the vocabulary.
    BadToken = "bad-token",
    /// The engine is doing something else right now.
    Busy = "busy",
    /// Reading or writing a file failed.
    Io = "io",
    /// The memory that the model needs is not to be had.
    OutOfMemory = "out-of-memory",
    /// The device that was asked for is not there, or failed.
    Device = "device",
    /// A bug in this crate.
    Internal = "internal",
}

/// `bail!(BadOption, "topP must be ... not {x}")`: return an error of that code.
macro_rules! bail {
    ($code:ident, $($arg:tt)+) => {
        return Err($crate::error::Error::new($crate::error::Code::$code, format!($($arg)+)))
    };
}
/// `error!(BadOption, "...")`: the error itself.
macro_rules! error {
    ($code:ident, $($arg:tt)+) => {
        $crate::error::Error::new($crate::error::Code::$code, format!($($arg)+))
    };
}
pub(crate) use {bail, error};
