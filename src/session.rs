//! A generation: prefill, decode, sample, emit, and what steers it.

mod engine;
mod generation;
pub mod metrics;
pub mod options;
pub mod predict;
mod score;
pub mod stop;

pub use engine::{Engine, Info};
pub use generation::{Answer, FinishReason, Generation, Step, StopDetail};
pub use options::Options;
pub use score::Scoring;
