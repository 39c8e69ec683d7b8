//! Threads of the browser: workers that the host starts with the module and the memory of the engine's, and that take a seat in its pool.

use wasm_bindgen::prelude::*;

use crate::backend::cpu;

/// Threads for the engine; the engine's own worker is one of them.
#[wasm_bindgen]
pub struct Pool(pub(super) cpu::Pool);

#[wasm_bindgen]
impl Pool {
    /// A pool of so many threads; 1 where the module was built without shared memory.
    #[wasm_bindgen(constructor)]
    pub fn new(threads: u32) -> Pool {
        Self(cpu::Pool::new(threads as usize))
    }

    /// How many threads compute.
    #[wasm_bindgen(getter)]
    pub fn threads(&self) -> u32 {
        self.0.threads() as u32
    }

    /// A place for a worker: a number that it hands to [`serve`], in its own instance of this module.
    pub fn seat(&self) -> usize {
        Box::into_raw(Box::new(self.0.seat())) as usize
    }
}

/// A worker's work, until there is none for a while, or the pool is gone.
///
/// # Safety
/// `seat` is what [`Pool::seat`] gave, in the same memory, for this worker alone.
#[wasm_bindgen]
pub unsafe fn serve(seat: usize) {
    // SAFETY: the caller's promise: it came out of `Box::into_raw`, and nobody frees it.
    let seat = unsafe { &*(seat as *const cpu::Seat) };
    seat.serve();
}

/// Says that a worker trapped: whoever counts on it fails instead of waiting for ever.
///
/// # Safety
/// `seat` is what [`Pool::seat`] gave, in the same memory.
#[wasm_bindgen]
pub unsafe fn abandon(seat: usize) {
    // SAFETY: the caller's promise; a seat is never freed.
    let seat = unsafe { &*(seat as *const cpu::Seat) };
    seat.abandon();
}
