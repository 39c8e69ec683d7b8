//! The one boundary: above it no device, no `unsafe`, no `cfg(target)`; below it no text and no model names.
//!
//! Methods that take `Params` only record (or, on a CPU, do) the work; [`Backend::read`] is the one that waits. Buffers of activations are
//! named by [`Slot`], weights by [`Tensor`]; both are made while loading.

#[cfg(feature = "candle")]
pub mod candle;
pub mod cpu;

use std::ops::Range;

use crate::error::Result;
pub use crate::ops::kv::KvType;
use crate::ops::pick::Pick;
use crate::ops::{attend, embed, norm_linear, rope_append, sample, shift};
use crate::quant::Format;

/// A weight tensor on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tensor(pub(crate) usize);

/// A buffer of activations on the device, [tokens, width].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(pub(crate) usize);

/// What a tensor will hold.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorSpec<'a> {
    /// Its name in the file, for errors.
    pub name: &'a str,
    /// How the file stores it.
    pub format: Format,
    /// Rows: the length of what a product gives.
    pub rows: usize,
    /// Columns: the length of what it takes.
    pub cols: usize,
    /// A matrix to multiply with, or a vector that a norm uses (1 row, kept as f32).
    pub kind: Kind,
}

/// What a tensor is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A matrix.
    Matrix,
    /// The weights of a norm.
    Vector,
}

/// The KV cache: keys and values of every layer, [positions, kv_heads, head_dim].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSpec {
    /// Layers of the model.
    pub layers: usize,
    /// Positions that fit: the context length.
    pub positions: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Values in a head.
    pub head_dim: usize,
    /// How they are stored.
    pub kv_type: KvType,
}

/// Where the ids to embed come from.
#[derive(Debug, Clone, Copy)]
pub enum Ids<'a> {
    /// From the host.
    Host(&'a [u32]),
    /// What the device picked last: one token, no round trip.
    LastPick,
}

/// The residual stream at the entrance of an op: `x`, plus `pending` that nobody has added yet. The sum goes to `sum`, which is the other
/// of two buffers, because on a GPU workgroups still read the old one.
#[derive(Debug, Clone, Copy)]
pub struct Residual {
    /// [tokens, dim]
    pub x: Slot,
    /// [tokens, dim], and the norm it goes through before it is added, if the architecture has one.
    pub pending: Option<(Slot, Option<Tensor>)>,
    /// [tokens, dim]; written only where something is pending.
    pub sum: Slot,
}

/// What the output layer is asked for.
#[derive(Debug, Clone, Copy)]
pub enum Want<'a> {
    /// For each of these rows, the most likely token and the log-probability of the row's target. `targets` is as long as `rows`, or empty.
    Picks {
        /// Rows of the residual.
        rows: &'a [usize],
        /// The token asked about in each.
        targets: &'a [u32],
    },
    /// A token drawn from the last row's logits.
    Sample {
        /// How.
        params: &'a sample::Params,
        /// The tokens that the repetition penalty looks at.
        recent: &'a [u32],
    },
    /// The last row's logits, `[vocab]`, read back whole.
    Logits,
}

/// What the device gives back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    /// One for each row that was asked for.
    pub picks: Vec<Pick>,
    /// The logits, where they were asked for, `[vocab]`.
    pub logits: Vec<f32>,
}

/// A device that runs the operations.
#[allow(async_fn_in_trait)] // static dispatch and no `Send` bound, on purpose: in a browser nothing is `Send`
pub trait Backend {
    /// Its name and, for a CPU, the instruction set, for `info`.
    fn describe(&self) -> (&'static str, &'static str);
    /// Threads that compute.
    fn threads(&self) -> usize {
        1
    }
    /// Bytes held now by weights, cache and buffers.
    fn bytes(&self) -> usize;
    /// The most prompt tokens that are worth one pass; between two passes an abort is heard.
    fn bite(&self) -> usize;

    /// Makes a weight tensor's memory, once, at its exact size.
    fn tensor(&mut self, spec: &TensorSpec) -> Result<Tensor>;
    /// Packs whole rows of the file into it.
    fn upload(&mut self, tensor: Tensor, rows: Range<usize>, bytes: &[u8]) -> Result<()>;
    /// Makes a buffer of activations of this width; its rows grow with the largest batch.
    fn slot(&mut self, width: usize) -> Slot;
    /// Makes the KV cache.
    ///
    /// # Errors
    /// `out-of-memory`, and `not-supported` for a type of cache that the device has no operations for.
    fn cache(&mut self, spec: &CacheSpec) -> Result<()>;

    /// Begins a forward pass over so many tokens.
    fn begin(&mut self, tokens: usize) -> Result<()>;
    /// ids -> `out` [tokens, dim].
    fn embed(&mut self, table: Tensor, ids: Ids, out: Slot, p: &embed::Params);
    /// Adds what is pending, normalizes, multiplies with one to three matrices.
    fn norm_linear(&mut self, x: Residual, norm: Tensor, outputs: &[(Tensor, Slot)], p: &norm_linear::Params);
    /// Normalizes the heads of `q` and `k` (where there are `norms`, for q and for k), rotates them in place, and appends `k` and `v` to the
    /// layer's cache.
    fn rope_append(&mut self, layer: usize, q: Slot, k: Slot, v: Slot, norms: Option<[Tensor; 2]>, p: &rope_append::Params);
    /// Looks back at the layer's cache.
    fn attend(&mut self, layer: usize, q: Slot, out: Slot, p: &attend::Params);
    /// x [tokens, cols] -> out [tokens, rows].
    fn linear(&mut self, x: Slot, w: Tensor, out: Slot);
    /// Moves cached positions of a layer and turns the keys back by as much.
    fn shift(&mut self, layer: usize, p: &shift::Params);
    /// The last step: adds what is pending, normalizes the rows that are asked for, multiplies with the output matrix in blocks of the
    /// vocabulary, and picks.
    fn sample(&mut self, x: Residual, norm: Tensor, output: Tensor, eps: f32, want: &Want);
    /// Waits for what `sample` was asked for.
    async fn read(&mut self) -> Result<Output>;
}
