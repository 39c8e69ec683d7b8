//! Rillm runs a quantized small language model inside a browser tab, in SIMD wasm, and natively, from one crate.
//!
//! ```text
//!  text --chat, tokenizer--> ids --prefill--> logits --sampler--> id --detok--> piece --> caller
//!                                    |           ^                 |
//!                             Model::forward <---+---- decode -----+        one forward: many tokens, or one
//!                                    |
//!                      ---------- trait Backend ----------    above: no device, no unsafe, no cfg(target)
//!                       Cpu (SIMD)  |  Candle (native)        below: no text, no tokens' meaning, no model names
//! ```
//!
//! A file goes in pieces into a [`load::Loader`]; what it gives becomes a [`session::Engine`], which begins a [`session::Generation`] and
//! steps it until it is done. Everything that can be refused is an [`Error`] with a stable [`Code`]. `ARCHITECTURE.md` has the map of the
//! folders and what always holds; `README.md` an example.

#[cfg(all(target_arch = "wasm32", any(feature = "candle", feature = "tokenizer-json")))]
compile_error!("the features candle and tokenizer-json are for the native build");

pub mod backend;
pub mod chat;
pub mod detok;
pub mod error;
pub mod gguf;
pub mod load;
pub mod model;
pub mod ops;
pub mod quant;
pub mod sampler;
pub mod session;
pub mod tokenizer;
#[cfg(target_arch = "wasm32")]
mod wasm;

pub use error::{Code, Error, Result};

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
