//! Rillm runs a quantized small language model inside a browser tab, on WebGPU or SIMD wasm, and natively.

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
