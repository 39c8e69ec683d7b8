//! Rillm runs a quantized small language model inside a browser tab, on WebGPU or SIMD wasm, and natively.

pub mod chat;
pub mod detok;
pub mod error;
pub mod gguf;
pub mod quant;
pub mod tokenizer;

pub use error::{Code, Error, Result};
