//! A generation.
pub mod metrics;
pub mod options;
pub mod stop;
