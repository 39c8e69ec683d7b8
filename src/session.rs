//! A generation: prefill, decode, sample, emit, and what steers it.

pub mod metrics;
pub mod options;
pub mod stop;
