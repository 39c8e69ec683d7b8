//! The operations, one name each: its contract, its Params and a scalar `reference()` that every device is held against.

pub mod exp;
pub mod philox;
pub mod pick;
pub mod sample;
