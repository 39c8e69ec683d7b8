//! The operations of the forward pass, one file each: the contract, its `Params`, and a scalar `reference()` that every device's kernel of
//! the same name is tested against. Buffers are row-major; `[rows, width]` beside each.

pub mod attend;
pub mod embed;
pub mod exp;
pub mod kv;
pub mod linear;
pub mod norm_linear;
pub mod philox;
pub mod pick;
pub mod rope_append;
pub mod sample;
pub mod shift;
