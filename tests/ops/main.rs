//! Every operation against its scalar `reference()`, on every device: the CPU kernels on each instruction set that this machine has, and
//! candle's tensors where the feature is on.
//!
//! Products and attention are sums in another order than the reference's, so they are compared within a tolerance; between instruction
//! sets they must be equal to the bit.

#[path = "../common/mod.rs"]
mod common;
mod device;

mod attention;
mod linear;
mod norms;
mod sampling;
#[cfg(not(target_arch = "wasm32"))]
mod threads;

#[cfg(target_arch = "wasm32")]
wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_dedicated_worker);
