//! candle-core's tensors: an independent oracle on candle's own CPU device, and the way to CUDA and Metal. Never part of the wasm build.
//!
//! Every operation is candle's tensor algebra, in f32; only the bytes of weights are ours. What fails is kept and told by `read`, since
//! the other methods only record.

mod attend;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QMatMul, QStorage, QTensor};
use candle_core::{D, DType, Device, Module, Tensor as Array};

use super::{Backend, CacheSpec, Ids, Kind, KvType, Output, Residual, Slot, Tensor, TensorSpec, Want};
use crate::error::{Error, Result, bail, error};
use crate::ops::norm_linear::Activation;
use crate::ops::{attend as attend_op, embed, norm_linear, pick, rope_append, sample, shift};
use crate::quant::Format;
use attend::{Masks, Turns};

/// Rows whose logits are held at once.
const ROWS: usize = 64;
/// Prompt tokens in one pass.
const BITE: usize = 512;

/// A weight: its raw bytes until they are all there.
enum Weight {
    Coming { name: String, format: Format, kind: Kind, shape: (usize, usize), bytes: Vec<u8>, rows: usize },
    Matrix(QMatMul),
    Vector(Array),
}

/// A layer's keys and values, each [positions, kv_heads, head_dim] f16.
struct Cache {
    keys: Array,
    values: Array,
}

/// The candle backend.
pub struct Candle {
    device: Device,
    weights: Vec<Weight>,
    bytes: usize,
    slots: Vec<Buffer>,
    layers: Vec<Cache>,
    tokens: usize,
    turns: Turns,
    masks: Masks,
    output: Output,
    last_pick: Option<u32>,
    sampler: sample::Scratch,
    failed: Option<Error>,
}

/// A buffer of activations, [tokens, width].
struct Buffer {
    width: usize,
    data: Option<Array>,
}

impl fmt::Debug for Candle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candle").field("device", &self.device).field("weights", &self.weights.len()).finish_non_exhaustive()
    }
}

impl From<candle_core::Error> for Error {
    fn from(e: candle_core::Error) -> Self {
        error!(Device, "candle: {e}")
    }
}

impl Candle {
    /// On a device by name: `cpu`, or `cuda` and `metal` where the crate is built with the feature of that name.
    ///
    /// # Errors
    /// `bad-option` for another name, `device` where there is no such device.
    pub fn new(device: &str) -> Result<Self> {
        let device = match device {
            "cpu" => Device::Cpu,
            "cuda" => Device::new_cuda(0)?,
            "metal" => Device::new_metal(0)?,
            other => bail!(BadOption, "the candle backend runs on cpu, cuda or metal, not {other:?}"),
        };
        Ok(Self {
            device,
            weights: Vec::new(),
            bytes: 0,
            slots: Vec::new(),
            layers: Vec::new(),
            tokens: 0,
            turns: Turns::default(),
            masks: Masks::default(),
            output: Output::default(),
            last_pick: None,
            sampler: sample::Scratch::default(),
            failed: None,
        })
    }

    /// What a buffer holds, [tokens, width], for tests of single operations.
    pub fn values(&self, slot: Slot) -> Result<Vec<f32>> {
        Ok(self.array(slot)?.flatten_all()?.to_vec1()?)
    }

    /// Fills a buffer, [tokens, width], for tests of single operations.
    pub fn fill(&mut self, slot: Slot, values: &[f32]) -> Result<()> {
        let width = self.slots[slot.0].width;
        self.slots[slot.0].data = Some(Array::from_slice(values, (values.len() / width, width), &self.device)?);
        Ok(())
    }

    /// Does an operation, unless one before it has failed already.
    fn run(&mut self, op: impl FnOnce(&mut Self) -> candle_core::Result<()>) {
        if self.failed.is_none()
            && let Err(e) = op(self)
        {
            self.failed = Some(e.into());
        }
    }

    fn array(&self, slot: Slot) -> candle_core::Result<&Array> {
        match &self.slots[slot.0].data {
            Some(array) => Ok(array),
            None => Err(candle_core::Error::msg("a buffer is read before anything was written to it")),
        }
    }

    fn set(&mut self, slot: Slot, array: Array) {
        self.slots[slot.0].data = Some(array);
    }

    fn matrix(&self, t: Tensor) -> candle_core::Result<&QMatMul> {
        match &self.weights[t.0] {
            Weight::Matrix(m) => Ok(m),
            _ => Err(candle_core::Error::msg("a weight is no matrix, or not all there")),
        }
    }

    fn vector(&self, t: Tensor) -> candle_core::Result<&Array> {
        match &self.weights[t.0] {
            Weight::Vector(v) => Ok(v),
            _ => Err(candle_core::Error::msg("a weight is no vector, or not all there")),
        }
    }

    /// Adds what is pending; returns the residual stream [tokens, dim].
    fn settle(&mut self, x: Residual, eps: f32) -> candle_core::Result<Array> {
        let residual = self.array(x.x)?.clone();
        let Some((pending, norm)) = x.pending else { return Ok(residual) };
        let pending = self.array(pending)?;
        let sum = match norm {
            None => (&residual + pending)?,
            Some(norm) => (&residual + rms_norm(pending, self.vector(norm)?, eps)?)?,
        };
        self.set(x.sum, sum.clone());
        Ok(sum)
    }

    /// Logits of normalized rows, on the host.
    fn logits(&self, normed: &Array, output: Tensor) -> candle_core::Result<Vec<Vec<f32>>> {
        self.matrix(output)?.forward(normed)?.to_vec2()
    }

    fn finish(&self, weight: Weight) -> Result<Weight> {
        let Weight::Coming { name, format, kind, shape, bytes, .. } = weight else { return Ok(weight) };
        if kind == Kind::Vector {
            let mut values = vec![0.0; shape.0 * shape.1];
            format.dequantize(&bytes, &mut values);
            if !values.iter().all(|v| v.is_finite()) {
                bail!(Malformed, "tensor {name:?} holds a number that is not finite");
            }
            return Ok(Weight::Vector(Array::from_vec(values, shape.0 * shape.1, &self.device)?));
        }
        if self.device.is_cpu() && matches!(format, Format::Q4_1 | Format::Q5_0 | Format::Q5_1) && shape.1 % 64 != 0 {
            // candle's products of these take blocks in pairs, and panic where one is left over
            let mut values = vec![0.0; shape.0 * shape.1];
            format.dequantize(&bytes, &mut values);
            return Ok(Weight::Matrix(QMatMul::Tensor(Array::from_vec(values, shape, &self.device)?)));
        }
        let storage = QStorage::from_data(bytes.into(), &self.device, ggml(format))?;
        Ok(Weight::Matrix(QMatMul::from_arc(Arc::new(QTensor::new(storage, shape)?))?))
    }
}

/// RMSNorm over the last dimension: x / sqrt(mean(x^2) + eps) * weight.
fn rms_norm(x: &Array, weight: &Array, eps: f32) -> candle_core::Result<Array> {
    let by = (x.sqr()?.mean_keepdim(D::Minus1)? + f64::from(eps))?.sqrt()?;
    x.broadcast_div(&by)?.broadcast_mul(weight)
}

/// candle's name for a format.
fn ggml(format: Format) -> GgmlDType {
    match format {
        Format::F32 => GgmlDType::F32,
        Format::F16 => GgmlDType::F16,
        Format::BF16 => GgmlDType::BF16,
        Format::Q4_0 => GgmlDType::Q4_0,
        Format::Q4_1 => GgmlDType::Q4_1,
        Format::Q5_0 => GgmlDType::Q5_0,
        Format::Q5_1 => GgmlDType::Q5_1,
        Format::Q8_0 => GgmlDType::Q8_0,
        Format::Q4_K => GgmlDType::Q4K,
        Format::Q5_K => GgmlDType::Q5K,
        Format::Q6_K => GgmlDType::Q6K,
    }
}

impl Backend for Candle {
    fn describe(&self) -> (&'static str, &'static str) {
        let device = if self.device.is_cuda() {
            "cuda"
        } else if self.device.is_metal() {
            "metal"
        } else {
            "cpu"
        };
        ("candle", device)
    }

    fn bytes(&self) -> usize {
        let arrays = self.layers.iter().flat_map(|c| [&c.keys, &c.values]).chain(self.slots.iter().filter_map(|s| s.data.as_ref()));
        self.bytes + arrays.map(|a| a.elem_count() * a.dtype().size_in_bytes()).sum::<usize>()
    }

    fn bite(&self) -> usize {
        BITE
    }

    fn tensor(&mut self, spec: &TensorSpec) -> Result<Tensor> {
        let bytes = spec.rows * spec.cols / spec.format.block_len() * spec.format.block_bytes();
        let mut raw = Vec::new();
        raw.try_reserve_exact(bytes).map_err(|_| error!(OutOfMemory, "tensor {:?} needs {} MiB, which is not to be had", spec.name, bytes >> 20))?;
        self.bytes += bytes;
        let shape = (spec.rows, spec.cols);
        self.weights.push(Weight::Coming { name: spec.name.to_owned(), format: spec.format, kind: spec.kind, shape, bytes: raw, rows: 0 });
        Ok(Tensor(self.weights.len() - 1))
    }

    fn upload(&mut self, tensor: Tensor, rows: Range<usize>, strip: &[u8]) -> Result<()> {
        let Weight::Coming { name, shape, bytes, rows: have, .. } = &mut self.weights[tensor.0] else {
            bail!(Internal, "rows {rows:?} come to a tensor that is complete");
        };
        if rows.start != *have {
            bail!(Internal, "rows {rows:?} of {name:?} come after {have} rows");
        }
        bytes.extend_from_slice(strip);
        *have = rows.end;
        if rows.end == shape.0 {
            let coming = std::mem::replace(&mut self.weights[tensor.0], Weight::Vector(Array::zeros(0, DType::F32, &Device::Cpu)?));
            self.weights[tensor.0] = self.finish(coming)?;
        }
        Ok(())
    }

    fn slot(&mut self, width: usize) -> Slot {
        self.slots.push(Buffer { width, data: None });
        Slot(self.slots.len() - 1)
    }

    fn cache(&mut self, spec: &CacheSpec) -> Result<()> {
        if spec.kv_type != KvType::F16 {
            bail!(NotSupported, "the candle backend has no KV cache of type {}: use f16, or the CPU backend", spec.kv_type.name());
        }
        let shape = (spec.positions, spec.kv_heads, spec.head_dim);
        let zeros = || Array::zeros(shape, DType::F16, &self.device);
        self.layers = (0..spec.layers).map(|_| Ok(Cache { keys: zeros()?, values: zeros()? })).collect::<candle_core::Result<_>>()?;
        Ok(())
    }

    fn begin(&mut self, tokens: usize) -> Result<()> {
        self.tokens = tokens;
        self.output = Output::default();
        self.turns.clear();
        self.masks.clear();
        self.failed = None;
        Ok(())
    }

    fn embed(&mut self, table: Tensor, ids: Ids, out: Slot, p: &embed::Params) {
        let last = self.last_pick;
        let ids = match &ids {
            Ids::Host(ids) => ids,
            Ids::LastPick => last.as_slice(),
        };
        let ids = Array::from_slice(ids, ids.len(), &self.device);
        self.run(|b| {
            let rows = b.matrix(table)?.embedding(&ids?)?.to_dtype(DType::F32)?;
            b.set(out, (rows * f64::from(p.scale))?);
            Ok(())
        });
    }

    fn norm_linear(&mut self, x: Residual, norm: Tensor, outputs: &[(Tensor, Slot)], p: &norm_linear::Params) {
        self.run(|b| {
            let x = b.settle(x, p.eps)?;
            let x = rms_norm(&x, b.vector(norm)?, p.eps)?;
            let mut ys = outputs.iter().map(|&(w, _)| b.matrix(w)?.forward(&x)).collect::<candle_core::Result<Vec<_>>>()?;
            if let (Some(activation), [gate, up]) = (p.activation, &ys[..]) {
                let gate = match activation {
                    Activation::Silu => gate.silu()?,
                    Activation::Gelu => gate.gelu()?, // candle's is the tanh form
                };
                ys[0] = (gate * up)?;
            }
            outputs.iter().zip(ys).for_each(|(&(_, slot), y)| b.set(slot, y));
            Ok(())
        });
    }

    fn rope_append(&mut self, layer: usize, q: Slot, k: Slot, v: Slot, norms: Option<[Tensor; 2]>, p: &rope_append::Params) {
        self.run(|b| {
            let n = b.tokens;
            let turns = b.turns.get(p.start, n, &p.rope, &b.device)?;
            let head = |b: &Self, slot: Slot, heads: usize, norm: Option<Tensor>| {
                let x = b.array(slot)?.reshape((n, heads, p.head_dim))?;
                let x = match norm {
                    Some(norm) => rms_norm(&x, b.vector(norm)?, p.eps)?,
                    None => x,
                };
                attend::rotate(&x, &turns, &p.rope)
            };
            let queries = head(b, q, p.heads, norms.map(|n| n[0]))?;
            let keys = head(b, k, p.kv_heads, norms.map(|n| n[1]))?;
            let values = b.array(v)?.reshape((n, p.kv_heads, p.head_dim))?;
            let cache = &b.layers[layer];
            cache.keys.slice_set(&attend::to_f16(&keys)?, 0, p.start)?;
            cache.values.slice_set(&attend::to_f16(&values)?, 0, p.start)?;
            b.set(q, queries.reshape((n, p.heads * p.head_dim))?);
            b.set(k, keys.reshape((n, p.kv_heads * p.head_dim))?);
            Ok(())
        });
    }

    fn attend(&mut self, layer: usize, q: Slot, out: Slot, p: &attend_op::Params) {
        self.run(|b| {
            let mask = b.masks.get(b.tokens, p, &b.device)?;
            let cache = &b.layers[layer];
            let y = attend::attend(b.array(q)?, &cache.keys, &cache.values, mask.as_ref(), p)?;
            b.set(out, y);
            Ok(())
        });
    }

    fn linear(&mut self, x: Slot, w: Tensor, out: Slot) {
        self.run(|b| {
            let y = b.matrix(w)?.forward(b.array(x)?)?;
            b.set(out, y);
            Ok(())
        });
    }

    fn shift(&mut self, layer: usize, p: &shift::Params) {
        self.run(|b| {
            let cache = &b.layers[layer];
            attend::shift(&cache.keys, &cache.values, p)
        });
    }

    fn sample(&mut self, x: Residual, norm: Tensor, output: Tensor, eps: f32, want: &Want) {
        self.run(|b| {
            let x = b.settle(x, eps)?;
            let rows: Vec<u32> = match want {
                Want::Picks { rows, .. } => rows.iter().map(|&r| r as u32).collect(),
                _ => vec![b.tokens.saturating_sub(1) as u32],
            };
            for (block, rows) in rows.chunks(ROWS).enumerate() {
                let x = x.index_select(&Array::from_slice(rows, rows.len(), &b.device)?, 0)?;
                let logits = b.logits(&rms_norm(&x, b.vector(norm)?, eps)?, output)?;
                for (i, logits) in logits.into_iter().enumerate() {
                    let target = match want {
                        Want::Picks { targets, .. } => targets.get(block * ROWS + i).copied(),
                        Want::Sample { params, recent } => sample::reference(&logits, recent, params, &mut b.sampler),
                        Want::Logits => {
                            b.output.logits = logits;
                            continue;
                        }
                    };
                    b.output.picks.extend(pick::reference(&logits, target));
                }
            }
            Ok(())
        });
    }

    async fn read(&mut self) -> Result<Output> {
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        self.last_pick = self.output.picks.last().map(|p| p.id).or(self.last_pick);
        Ok(std::mem::take(&mut self.output))
    }
}
