//! The CPU: packed weights, int8 activations, SIMD chosen at run time. One kernel text for every instruction set (`simd`).

mod attend;
mod cache;
mod gemm;
mod machine;
mod pack;
mod pool;
mod simd;
mod split;
mod vector;

use std::ops::Range;

use super::{Backend, CacheSpec, Ids, Kind, Output, Residual, Slot, Tensor, TensorSpec, Want};
use crate::error::{Result, bail, error};
use crate::ops::pick::{Accumulator, BLOCK, Part, Pick};
use crate::ops::{attend as attend_op, embed, norm_linear, rope_append, sample, shift};
use cache::{Cache, caches};
use machine::{Machine, Output as Product};
use pack::Packed;
pub use pool::{Pool, Seat};
pub use simd::Variant;
use vector::Add;

/// Logits that are held at once: as much of the vocabulary as fits, for all rows asked for, and at least `VOCAB_BLOCK` of it.
const HELD: usize = 1 << 18;
const VOCAB_BLOCK: usize = 4096;

/// Prompt tokens in one pass: the bits are the same, and the fewer they are the sooner an abort is heard.
const BITE: usize = 32;

/// A weight.
#[derive(Debug)]
enum Weight {
    Matrix(Packed),
    Vector { name: String, format: crate::quant::Format, values: Vec<f32> },
}

/// A buffer of activations.
#[derive(Debug)]
struct Buffer {
    width: usize,
    data: Vec<f32>,
}

/// The CPU backend.
#[derive(Debug)]
pub struct Cpu {
    machine: Machine,
    weights: Vec<Weight>,
    slots: Vec<Buffer>,
    layers: Vec<Cache>,
    tokens: usize,
    /// Cosines and sines of the positions of this pass; made for the first layer that rotates so, used by all that do.
    turns: Vec<Turns>,
    normed: Vec<f32>,
    spare: Vec<f32>,
    output: Output,
    last_pick: Option<u32>,
    /// The logits of the row that is drawn from, or of some rows of which picks are taken.
    row: Vec<f32>,
    /// What their blocks say.
    parts: Vec<Part>,
    sampler: sample::Scratch,
}

/// Cosines and sines of consecutive positions, [tokens, pairs].
#[derive(Debug)]
struct Turns {
    start: usize,
    rope: rope_append::Rope,
    values: Vec<(f32, f32)>,
}

impl Default for Cpu {
    fn default() -> Self {
        Self::new(Variant::detect())
    }
}

impl Cpu {
    /// A CPU backend on the given path, for tests; `Cpu::default()` takes the best one. One thread.
    pub fn new(variant: Variant) -> Self {
        Self::with_pool(variant, Pool::new(1))
    }

    /// A CPU backend that computes on the threads of a pool. How many they are changes no bit.
    pub fn with_pool(variant: Variant, pool: Pool) -> Self {
        Self {
            machine: Machine { variant, pool },
            weights: Vec::new(),
            slots: Vec::new(),
            layers: Vec::new(),
            tokens: 0,
            turns: Vec::new(),
            normed: Vec::new(),
            spare: Vec::new(),
            output: Output::default(),
            last_pick: None,
            row: Vec::new(),
            parts: Vec::new(),
            sampler: sample::Scratch::default(),
        }
    }

    /// What a buffer holds, [tokens, width], for tests of single operations.
    pub fn slot_mut(&mut self, slot: Slot) -> &mut [f32] {
        &mut self.slots[slot.0].data
    }

    /// The row of logits that [`draw`](Self::draw) takes, for tests of it alone.
    pub fn row_mut(&mut self) -> &mut Vec<f32> {
        &mut self.row
    }

    /// What follows the product in the op `sample`: a token of the row, and its log-probability. `None` where there is nothing to choose.
    pub fn draw(&mut self, params: &sample::Params, recent: &[u32]) -> Option<Pick> {
        let Self { machine, row, parts, sampler, .. } = self;
        parts.resize(row.len().div_ceil(BLOCK), Part::default());
        machine.parts(row, parts);
        let mut accumulator = Accumulator::new(None);
        accumulator.push_parts(0, row, parts);
        let id = sample::draw(row, parts, recent, params, sampler, machine)?;
        accumulator.ask(id, row[id as usize]);
        accumulator.finish()
    }

    fn matrix(&self, t: Tensor) -> &Packed {
        match &self.weights[t.0] {
            Weight::Matrix(packed) => packed,
            Weight::Vector { name, .. } => unreachable!("{name} is a vector; the model asked for a matrix"),
        }
    }

    fn vector(&self, t: Tensor) -> &[f32] {
        match &self.weights[t.0] {
            Weight::Vector { values, .. } => values,
            Weight::Matrix(packed) => unreachable!("{} is a matrix; the model asked for a vector", packed.name),
        }
    }

    /// Adds what is pending, through its norm if it has one; returns the slot that holds the residual stream now.
    fn settle(&mut self, x: Residual, eps: f32) -> Slot {
        let Some((pending, norm)) = x.pending else { return x.x };
        let dim = self.slots[x.x.0].width;
        let n = self.tokens * dim;
        let mut sum = std::mem::take(&mut self.slots[x.sum.0].data);
        let from = &self.slots[x.x.0].data[..n];
        let pending = &self.slots[pending.0].data[..n];
        match norm {
            None => sum[..n].copy_from_slice(pending),
            Some(norm) => self.machine.norm(pending, self.vector(norm), eps, &mut sum[..n], dim),
        }
        self.machine.variant.run_floats(Add { to: &mut sum[..n], from });
        self.slots[x.sum.0].data = sum;
        x.sum
    }

    /// Normalizes rows of a slot into `self.normed`, [rows, dim rounded up to 8]; returns that stride.
    fn normalize(&mut self, x: Slot, rows: Range<usize>, norm: Tensor, eps: f32) -> usize {
        let dim = self.slots[x.0].width;
        let stride = dim.next_multiple_of(8);
        let mut out = std::mem::take(&mut self.normed);
        out.resize(rows.len() * stride, 0.0);
        let x = &self.slots[x.0].data[rows.start * dim..rows.end * dim];
        self.machine.norm(x, self.vector(norm), eps, &mut out, stride);
        self.normed = out;
        stride
    }

    /// Logits of `rows` of the vocabulary from `first` on, for what lies in `self.normed`.
    fn logits(&self, w: Tensor, stride: usize, first: usize, rows: usize, y: &mut [f32]) {
        self.machine.linear(&self.normed, stride, &mut [Product { w: self.matrix(w), first, rows, y }]);
    }

    fn picks(&mut self, output: Tensor, stride: usize, n: usize, targets: &[u32]) -> Vec<Pick> {
        let vocab = self.matrix(output).rows;
        let mut accumulators: Vec<Accumulator> = (0..n).map(|i| Accumulator::new(targets.get(i).copied())).collect();
        let height = (HELD / n.max(1) / VOCAB_BLOCK).max(1) * VOCAB_BLOCK;
        let (mut held, mut parts) = (std::mem::take(&mut self.row), std::mem::take(&mut self.parts));
        for first in (0..vocab).step_by(height) {
            let rows = height.min(vocab - first);
            held.resize(n * rows, 0.0);
            parts.resize(rows.div_ceil(BLOCK), Part::default());
            self.logits(output, stride, first, rows, &mut held);
            for (a, logits) in accumulators.iter_mut().zip(held.chunks_exact(rows)) {
                self.machine.parts(logits, &mut parts);
                a.push_parts(first as u32, logits, &parts);
            }
        }
        (self.row, self.parts) = (held, parts);
        accumulators.into_iter().filter_map(Accumulator::finish).collect()
    }

    /// The cosines and sines of this pass; which entry of `self.turns` they are.
    fn turn(&mut self, p: &rope_append::Params) -> usize {
        if let Some(known) = self.turns.iter().position(|t| t.start == p.start && t.rope == p.rope) {
            return known;
        }
        let values = (p.start..p.start + self.tokens).flat_map(|at| (0..p.rope.dim / 2).map(move |i| p.rope.turn(at, i))).collect();
        self.turns.push(Turns { start: p.start, rope: p.rope.clone(), values });
        self.turns.len() - 1
    }

    /// Normalizes and rotates the heads of a slot.
    fn rotate(&mut self, slot: Slot, heads: usize, norm: Option<Tensor>, turns: usize, p: &rope_append::Params) {
        let n = self.tokens * heads * p.head_dim;
        let mut data = std::mem::take(&mut self.slots[slot.0].data);
        if let Some(norm) = norm {
            self.spare.clear();
            self.spare.extend_from_slice(&data[..n]);
            self.machine.norm(&self.spare, self.vector(norm), p.eps, &mut data[..n], p.head_dim);
        }
        let turns = self.turns[turns].values.chunks_exact((p.rope.dim / 2).max(1));
        for (row, turns) in data.chunks_exact_mut(heads * p.head_dim).zip(turns) {
            for head in row.chunks_exact_mut(p.head_dim) {
                turn_head(head, turns, p.rope.pairs);
            }
        }
        self.slots[slot.0].data = data;
    }
}

/// Turns each pair of a head's values by its cosine and sine.
fn turn_head(head: &mut [f32], turns: &[(f32, f32)], pairs: rope_append::Pairs) {
    let turned = |a: f32, b: f32, (cos, sin): (f32, f32)| (a * cos - b * sin, a * sin + b * cos);
    match pairs {
        rope_append::Pairs::Neighbours => {
            for (pair, &turn) in head.as_chunks_mut::<2>().0.iter_mut().zip(turns) {
                (pair[0], pair[1]) = turned(pair[0], pair[1], turn);
            }
        }
        rope_append::Pairs::Halves => {
            let (first, second) = head.split_at_mut(turns.len());
            for ((a, b), &turn) in first.iter_mut().zip(second).zip(turns) {
                (*a, *b) = turned(*a, *b, turn);
            }
        }
    }
}

impl Backend for Cpu {
    fn describe(&self) -> (&'static str, &'static str) {
        ("cpu", self.machine.variant.name())
    }

    fn threads(&self) -> usize {
        self.machine.pool.threads()
    }

    fn bytes(&self) -> usize {
        let weights: usize = self
            .weights
            .iter()
            .map(|w| match w {
                Weight::Matrix(p) => p.bytes(),
                Weight::Vector { values, .. } => values.len() * 4,
            })
            .sum();
        let caches: usize = self.layers.iter().map(Cache::bytes).sum();
        weights + caches + self.slots.iter().map(|s| s.data.len() * 4).sum::<usize>()
    }

    fn bite(&self) -> usize {
        BITE
    }

    fn tensor(&mut self, spec: &TensorSpec) -> Result<Tensor> {
        self.weights.push(match spec.kind {
            Kind::Matrix => Weight::Matrix(Packed::new(spec.name, spec.format, spec.rows, spec.cols, self.machine.variant.bias8())?),
            Kind::Vector => Weight::Vector { name: spec.name.to_owned(), format: spec.format, values: vec![0.0; spec.rows * spec.cols] },
        });
        Ok(Tensor(self.weights.len() - 1))
    }

    fn upload(&mut self, tensor: Tensor, rows: Range<usize>, bytes: &[u8]) -> Result<()> {
        match &mut self.weights[tensor.0] {
            Weight::Matrix(packed) => packed.set_rows(rows, bytes),
            Weight::Vector { name, format, values } => {
                format.dequantize(bytes, values);
                if !values.iter().all(|v| v.is_finite()) {
                    bail!(Malformed, "tensor {name:?} holds a number that is not finite");
                }
                Ok(())
            }
        }
    }

    fn slot(&mut self, width: usize) -> Slot {
        self.slots.push(Buffer { width, data: Vec::new() });
        Slot(self.slots.len() - 1)
    }

    fn cache(&mut self, spec: &CacheSpec) -> Result<()> {
        self.layers.clear();
        self.layers = caches(spec)?;
        Ok(())
    }

    fn begin(&mut self, tokens: usize) -> Result<()> {
        self.tokens = tokens;
        for slot in &mut self.slots {
            let n = tokens * slot.width;
            if slot.data.len() < n {
                slot.data.try_reserve_exact(n - slot.data.len()).map_err(|_| error!(OutOfMemory, "no memory for a batch of {tokens} tokens"))?;
                slot.data.resize(n, 0.0);
            }
        }
        self.output = Output::default();
        self.turns.clear();
        Ok(())
    }

    fn embed(&mut self, table: Tensor, ids: Ids, out: Slot, p: &embed::Params) {
        let last = self.last_pick;
        let ids = match &ids {
            Ids::Host(ids) => ids,
            Ids::LastPick => last.as_slice(), // empty before the first pick: the row stays as it was
        };
        let mut to = std::mem::take(&mut self.slots[out.0].data);
        let w = self.matrix(table);
        for (row, &id) in to.chunks_exact_mut(w.cols).zip(ids) {
            w.row(id as usize, row);
            if p.scale != 1.0 {
                row.iter_mut().for_each(|x| *x *= p.scale);
            }
        }
        self.slots[out.0].data = to;
    }

    fn norm_linear(&mut self, x: Residual, norm: Tensor, outputs: &[(Tensor, Slot)], p: &norm_linear::Params) {
        let x = self.settle(x, p.eps);
        let stride = self.normalize(x, 0..self.tokens, norm, p.eps);
        let mut buffers: Vec<Vec<f32>> = outputs.iter().map(|(_, slot)| std::mem::take(&mut self.slots[slot.0].data)).collect();
        let products = outputs.iter().zip(&mut buffers).map(|(&(w, _), y)| {
            let w = self.matrix(w);
            Product { w, first: 0, rows: w.rows, y }
        });
        self.machine.linear(&self.normed, stride, &mut products.collect::<Vec<_>>());
        if let (Some(activation), [gate, up]) = (p.activation, &mut buffers[..]) {
            let n = self.tokens * self.slots[outputs[0].1.0].width;
            self.machine.gate(activation, &mut gate[..n], &up[..n]);
        }
        for ((_, slot), buffer) in outputs.iter().zip(buffers) {
            self.slots[slot.0].data = buffer;
        }
    }

    fn rope_append(&mut self, layer: usize, q: Slot, k: Slot, v: Slot, norms: Option<[Tensor; 2]>, p: &rope_append::Params) {
        let turns = self.turn(p);
        self.rotate(q, p.heads, norms.map(|n| n[0]), turns, p);
        self.rotate(k, p.kv_heads, norms.map(|n| n[1]), turns, p);
        let (variant, cache) = (self.machine.variant, &mut self.layers[layer]);
        let heads = |slot: Slot| self.slots[slot.0].data.chunks_exact(p.head_dim);
        for (n, (key, value)) in heads(k).zip(heads(v)).take(self.tokens * p.kv_heads).enumerate() {
            cache.set(variant, p.start + n / p.kv_heads, n % p.kv_heads, key, value);
        }
    }

    fn attend(&mut self, layer: usize, q: Slot, out: Slot, p: &attend_op::Params) {
        let n = self.tokens * p.heads * p.head_dim;
        let mut to = std::mem::take(&mut self.slots[out.0].data);
        let cache = &self.layers[layer];
        self.machine.attend(&self.slots[q.0].data[..n], cache, &mut to[..n], p);
        self.slots[out.0].data = to;
    }

    fn linear(&mut self, x: Slot, w: Tensor, out: Slot) {
        let mut to = std::mem::take(&mut self.slots[out.0].data);
        let mut spare = std::mem::take(&mut self.spare);
        let w = self.matrix(w);
        let stride = w.cols.next_multiple_of(8);
        let x = &self.slots[x.0].data[..self.tokens * w.cols];
        let x = if stride == w.cols {
            x
        } else {
            spare.clear();
            spare.resize(self.tokens * stride, 0.0);
            spare.chunks_exact_mut(stride).zip(x.chunks_exact(w.cols)).for_each(|(to, row)| to[..w.cols].copy_from_slice(row));
            &spare
        };
        self.machine.linear(x, stride, &mut [Product { w, first: 0, rows: w.rows, y: &mut to }]);
        self.slots[out.0].data = to;
        self.spare = spare;
    }

    fn shift(&mut self, layer: usize, p: &shift::Params) {
        self.layers[layer].shift(self.machine.variant, p);
    }

    fn sample(&mut self, x: Residual, norm: Tensor, output: Tensor, eps: f32, want: &Want) {
        let x = self.settle(x, eps);
        let last = self.tokens.saturating_sub(1);
        match want {
            Want::Picks { rows, targets } => {
                // Rows are normalized in runs of neighbours, so that a chunk of a score is one product.
                let mut picks = Vec::with_capacity(rows.len());
                let mut at = 0;
                for run in rows.chunk_by(|a, b| a + 1 == *b) {
                    let stride = self.normalize(x, run[0]..run[0] + run.len(), norm, eps);
                    let targets = targets.get(at..at + run.len()).unwrap_or(&[]);
                    picks.extend(self.picks(output, stride, run.len(), targets));
                    at += run.len();
                }
                self.output.picks = picks;
            }
            Want::Sample { params, recent } => {
                let stride = self.normalize(x, last..last + 1, norm, eps);
                let mut row = std::mem::take(&mut self.row);
                row.resize(self.matrix(output).rows, 0.0);
                self.logits(output, stride, 0, row.len(), &mut row);
                self.row = row;
                self.output.picks = self.draw(params, recent).into_iter().collect();
            }
            Want::Logits => {
                let stride = self.normalize(x, last..last + 1, norm, eps);
                let mut logits = vec![0.0; self.matrix(output).rows];
                self.logits(output, stride, 0, logits.len(), &mut logits);
                self.output.logits = logits;
            }
        }
    }

    async fn read(&mut self) -> Result<Output> {
        self.last_pick = self.output.picks.last().map(|p| p.id).or(self.last_pick);
        Ok(std::mem::take(&mut self.output))
    }
}
