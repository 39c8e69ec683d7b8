//! Rotation and attention in tensor algebra.

use candle_core::{DType, Device, Result, Tensor as Array};

use crate::ops::attend::Params;
use crate::ops::rope_append::{Pairs, Rope};
use crate::ops::shift;

/// f16 without infinities, as `kv::to_f16`.
pub fn to_f16(x: &Array) -> Result<Array> {
    x.clamp(-65_504f32, 65_504f32)?.to_dtype(DType::F16)?.contiguous()
}

/// Cosines and sines of consecutive positions, each [tokens, 1, pairs].
pub type Turn = (Array, Array);

/// Those of this pass, one for each way in which its layers rotate.
#[derive(Default)]
pub struct Turns(Vec<(usize, Rope, Turn)>);

impl Turns {
    /// Forgets the last pass.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// For `n` positions from `start` on.
    pub fn get(&mut self, start: usize, n: usize, rope: &Rope, device: &Device) -> Result<Turn> {
        if let Some((_, _, turn)) = self.0.iter().find(|(s, r, _)| *s == start && r == rope) {
            return Ok(turn.clone());
        }
        let turn = turns((start..start + n).map(|at| at as isize), rope, device)?;
        self.0.push((start, rope.clone(), turn.clone()));
        Ok(turn)
    }
}

fn turns(positions: impl Iterator<Item = isize>, rope: &Rope, device: &Device) -> Result<Turn> {
    let pairs = rope.dim / 2;
    let turn = |at: isize, i: usize| {
        let (cos, sin) = rope.turn(at.unsigned_abs(), i);
        (cos, if at < 0 { -sin } else { sin })
    };
    let (cos, sin): (Vec<f32>, Vec<f32>) = positions.flat_map(|at| (0..pairs).map(move |i| turn(at, i))).unzip();
    let shape = (cos.len() / pairs, 1, pairs);
    Ok((Array::from_vec(cos, shape, device)?, Array::from_vec(sin, shape, device)?))
}

/// Turns the pairs of each head. `x`: [tokens, heads, head_dim].
pub fn rotate(x: &Array, (cos, sin): &Turn, rope: &Rope) -> Result<Array> {
    let (n, heads, head_dim) = x.dims3()?;
    let pairs = rope.dim / 2;
    let turned = x.narrow(2, 0, rope.dim)?;
    // a and b: the first and the second value of each pair, [tokens, heads, pairs]
    let (a, b) = match rope.pairs {
        Pairs::Neighbours => {
            let x = turned.reshape((n, heads, pairs, 2))?;
            (x.narrow(3, 0, 1)?.squeeze(3)?, x.narrow(3, 1, 1)?.squeeze(3)?)
        }
        Pairs::Halves => (turned.narrow(2, 0, pairs)?, turned.narrow(2, pairs, pairs)?),
    };
    let first = (a.broadcast_mul(cos)? - b.broadcast_mul(sin)?)?;
    let second = (a.broadcast_mul(sin)? + b.broadcast_mul(cos)?)?;
    let turned = match rope.pairs {
        Pairs::Neighbours => Array::stack(&[first, second], 3)?.reshape((n, heads, rope.dim))?,
        Pairs::Halves => Array::cat(&[first, second], 2)?,
    };
    if rope.dim == head_dim { Ok(turned) } else { Array::cat(&[turned, x.narrow(2, rope.dim, head_dim - rope.dim)?], 2) }
}

/// Which positions the queries of this pass see, [1, tokens, positions] of 0 and -inf; one for each window.
#[derive(Default)]
pub struct Masks(Vec<(usize, Option<usize>, Array)>);

impl Masks {
    /// Forgets the last pass.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// None where a single query sees all that is read.
    pub fn get(&mut self, n: usize, p: &Params, device: &Device) -> Result<Option<Array>> {
        if n == 1 {
            return Ok(None);
        }
        if let Some((.., mask)) = self.0.iter().find(|(start, window, _)| (*start, *window) == (p.start, p.window)) {
            return Ok(Some(mask.clone()));
        }
        let (first, end) = (first(p), p.start + n);
        let sees = |query: usize, key: usize| key <= query && p.window.is_none_or(|w| query - key < w);
        let mask: Vec<f32> = (p.start..end).flat_map(|q| (first..end).map(move |k| if sees(q, k) { 0.0 } else { f32::NEG_INFINITY })).collect();
        let mask = Array::from_vec(mask, (1, n, end - first), device)?;
        self.0.push((p.start, p.window, mask.clone()));
        Ok(Some(mask))
    }
}

/// The first position that any query of the pass sees.
fn first(p: &Params) -> usize {
    p.window.map_or(0, |w| (p.start + 1).saturating_sub(w))
}

/// softmax(q k^T scale + mask) v. `q`: [tokens, heads * head_dim]; `keys`, `values`: [positions, kv_heads, head_dim] f16.
pub fn attend(q: &Array, keys: &Array, values: &Array, mask: Option<&Array>, p: &Params) -> Result<Array> {
    let (n, group) = (q.dim(0)?, p.heads / p.kv_heads);
    let first = first(p);
    let seen = p.start + n - first;
    let of = |cache: &Array| cache.narrow(0, first, seen)?.to_dtype(DType::F32)?.transpose(0, 1)?.contiguous(); // [kv_heads, seen, head_dim]
    let (keys, values) = (of(keys)?, of(values)?);
    // the queries of a group share its keys: [kv_heads, group * tokens, head_dim]
    let q = q.reshape((n, p.kv_heads, group, p.head_dim))?.permute((1, 2, 0, 3))?.reshape((p.kv_heads, group * n, p.head_dim))?;
    let scores = (q.contiguous()?.matmul(&keys.t()?.contiguous()?)? * f64::from(p.scale))?;
    let scores = match mask {
        Some(mask) => scores.reshape((p.kv_heads * group, n, seen))?.broadcast_add(mask)?.reshape((p.kv_heads, group * n, seen))?,
        None => scores,
    };
    let weights = scores.broadcast_sub(&scores.max_keepdim(2)?)?.exp()?;
    let weights = weights.broadcast_div(&weights.sum_keepdim(2)?)?;
    let out = weights.matmul(&values)?; // [kv_heads, group * tokens, head_dim]
    let out = out.reshape((p.kv_heads, group, n, p.head_dim))?.permute((2, 0, 1, 3))?;
    out.reshape((n, p.heads * p.head_dim))
}

/// Moves positions and turns their keys back. `keys`, `values`: [positions, kv_heads, head_dim] f16, changed in place.
pub fn shift(keys: &Array, values: &Array, p: &shift::Params) -> Result<()> {
    let (from, n) = (p.from.start, p.from.len());
    if n == 0 {
        return Ok(());
    }
    let back = p.to as isize - from as isize;
    let turn = turns(std::iter::once(back), &p.rope, keys.device())?;
    let moved = rotate(&keys.narrow(0, from, n)?.to_dtype(DType::F32)?, &turn, &p.rope)?;
    keys.slice_set(&to_f16(&moved)?, 0, p.to)?;
    values.slice_set(&values.narrow(0, from, n)?.copy()?, 0, p.to)
}
