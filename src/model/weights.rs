//! Which tensors a model has, what shape each must be, and their handles on the device.

use std::collections::HashMap;

use super::Config;
use crate::backend::{Backend, Kind, Tensor, TensorSpec};
use crate::error::{Result, bail};
use crate::gguf::{Gguf, TensorInfo};

/// The weights of one layer.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Layer {
    pub attn_norm: Tensor,
    pub q: Tensor,
    pub k: Tensor,
    pub v: Tensor,
    /// Of the heads of queries and of keys, `[head_dim]` each, where the architecture has them.
    pub head_norms: Option<[Tensor; 2]>,
    pub attn_output: Tensor,
    /// What the attention's output goes through before it is added, `[dim]`.
    pub attn_post_norm: Option<Tensor>,
    pub ffn_norm: Tensor,
    pub gate: Tensor,
    pub up: Tensor,
    pub down: Tensor,
    /// What the feed-forward's output goes through before it is added, `[dim]`.
    pub ffn_post_norm: Option<Tensor>,
}

/// The weights of a model.
#[derive(Debug, Clone)]
pub struct Weights {
    /// `[vocab, dim]`
    pub embedding: Tensor,
    /// `[vocab, dim]`; the embedding again where the file has no `output.weight`.
    pub output: Tensor,
    /// `[dim]`
    pub output_norm: Tensor,
    /// One for each layer.
    pub layers: Vec<Layer>,
    /// Whether the output matrix is the embedding.
    pub tied: bool,
}

/// Handles by tensor name, in the order in which a loader meets the tensors.
pub type Handles = HashMap<String, Tensor>;

/// Makes every tensor on the device, after checking all of them: what is missing, of another shape, or not understood is refused by name.
pub fn create<B: Backend>(backend: &mut B, gguf: &Gguf, c: &Config) -> Result<(Weights, Handles)> {
    let mut wanted: Vec<(String, usize, usize, Kind)> = Vec::new();
    let (q, kv) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
    wanted.push(("token_embd.weight".into(), c.vocab, c.dim, Kind::Matrix));
    wanted.push(("output_norm.weight".into(), 1, c.dim, Kind::Vector));
    let tied = gguf.tensor("output.weight").is_none();
    if !tied {
        wanted.push(("output.weight".into(), c.vocab, c.dim, Kind::Matrix));
    }
    for i in 0..c.layers {
        let mut want = |name: &str, rows, cols, kind| wanted.push((format!("blk.{i}.{name}.weight"), rows, cols, kind));
        want("attn_norm", 1, c.dim, Kind::Vector);
        want("attn_q", q, c.dim, Kind::Matrix);
        want("attn_k", kv, c.dim, Kind::Matrix);
        want("attn_v", kv, c.dim, Kind::Matrix);
        if c.head_norms {
            want("attn_q_norm", 1, c.head_dim, Kind::Vector);
            want("attn_k_norm", 1, c.head_dim, Kind::Vector);
        }
        want("attn_output", c.dim, q, Kind::Matrix);
        if c.post_norms {
            want("post_attention_norm", 1, c.dim, Kind::Vector);
            want("post_ffw_norm", 1, c.dim, Kind::Vector);
        }
        want("ffn_norm", 1, c.dim, Kind::Vector);
        want("ffn_gate", c.ffn_dim, c.dim, Kind::Matrix);
        want("ffn_up", c.ffn_dim, c.dim, Kind::Matrix);
        want("ffn_down", c.dim, c.ffn_dim, Kind::Matrix);
        if i >= gguf.tensors.len() {
            bail!(MissingTensor, "the file announces {} layers but has {} tensors in all", c.layers, gguf.tensors.len());
        }
    }
    for (name, rows, cols, _) in &wanted {
        check(gguf, name, *rows, *cols)?;
    }
    for t in &gguf.tensors {
        let known = |(name, ..): &(String, usize, usize, Kind)| *name == t.name;
        if t.name != ROPE_FACTORS && !wanted.iter().any(known) {
            bail!(UnsupportedArchitecture, "tensor {:?} is not part of the {} architecture as this version knows it", t.name, c.architecture);
        }
    }
    let mut handles = Handles::new();
    for (name, rows, cols, kind) in &wanted {
        let format = check(gguf, name, *rows, *cols)?.format;
        handles.insert(name.clone(), backend.tensor(&TensorSpec { name, format, rows: *rows, cols: *cols, kind: *kind })?);
    }
    let weights = assemble(&handles, c, tied);
    match weights {
        Some(weights) => Ok((weights, handles)),
        None => bail!(Internal, "a tensor was checked but not made"),
    }
}

/// The tensor of Llama 3's frequency factors; read by the loader, not uploaded.
pub const ROPE_FACTORS: &str = "rope_freqs.weight";

fn check<'a>(gguf: &'a Gguf, name: &str, rows: usize, cols: usize) -> Result<&'a TensorInfo> {
    let Some(t) = gguf.tensor(name) else {
        bail!(MissingTensor, "the file lacks the tensor {name:?}");
    };
    if (t.rows(), t.cols()) != (rows, cols) {
        bail!(BadShape, "tensor {name:?} is {} rows of {}; the metadata makes it {rows} rows of {cols}", t.rows(), t.cols());
    }
    Ok(t)
}

fn assemble(handles: &Handles, c: &Config, tied: bool) -> Option<Weights> {
    let get = |name: &str| handles.get(name).copied();
    let layers = (0..c.layers).map(|i| {
        let get = |name: &str| get(&format!("blk.{i}.{name}.weight"));
        Some(Layer {
            attn_norm: get("attn_norm")?,
            q: get("attn_q")?,
            k: get("attn_k")?,
            v: get("attn_v")?,
            head_norms: if c.head_norms { Some([get("attn_q_norm")?, get("attn_k_norm")?]) } else { None },
            attn_output: get("attn_output")?,
            attn_post_norm: if c.post_norms { Some(get("post_attention_norm")?) } else { None },
            ffn_norm: get("ffn_norm")?,
            gate: get("ffn_gate")?,
            up: get("ffn_up")?,
            down: get("ffn_down")?,
            ffn_post_norm: if c.post_norms { Some(get("post_ffw_norm")?) } else { None },
        })
    });
    let embedding = get("token_embd.weight")?;
    let output = if tied { embedding } else { get("output.weight")? };
    Some(Weights { embedding, output, output_norm: get("output_norm.weight")?, layers: layers.collect::<Option<_>>()?, tied })
}
