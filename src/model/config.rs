//! What an architecture is: numbers out of the metadata, nothing else. Architectures are data over one forward.

use crate::error::{Result, bail};
use crate::gguf::Metadata;
use crate::ops::rope_append::Pairs;

/// The shape of a model and the settings of its forward.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `general.architecture`.
    pub architecture: String,
    /// Width of the residual stream.
    pub dim: usize,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Values in a head.
    pub head_dim: usize,
    /// Width of the feed-forward part.
    pub ffn_dim: usize,
    /// Rows of the embedding table.
    pub vocab: usize,
    /// Positions the model was trained for.
    pub trained_context: usize,
    /// What keeps a norm from dividing by zero.
    pub eps: f32,
    /// How many values of a head are rotated.
    pub rope_dim: usize,
    /// The base of the rotation.
    pub rope_base: f32,
    /// What positions are divided by before rotating.
    pub rope_scale: f32,
    /// Which values of a head are rotated together.
    pub rope_pairs: Pairs,
}

/// Widths above this are nobody's model, only a damaged file.
const MAX_WIDTH: u32 = 1 << 20;

impl Config {
    /// The architecture's name, if this version runs it.
    pub fn check_architecture(meta: &Metadata) -> Result<&str> {
        match meta.require_str("general.architecture")? {
            "llama" => Ok("llama"),
            other => bail!(UnsupportedArchitecture, "architecture {other:?} is not supported; this version runs: llama"),
        }
    }

    /// Reads the settings; what the forward can't do is refused by name.
    pub fn from_metadata(meta: &Metadata, vocab: usize) -> Result<Self> {
        let architecture = Self::check_architecture(meta)?;
        let key = |name: &str| format!("{architecture}.{name}");
        let size = |name: &str| -> Result<usize> {
            match meta.require_u32(&key(name))? {
                0 => bail!(BadKey, "metadata key {:?} is 0", key(name)),
                n if n > MAX_WIDTH => bail!(BadKey, "metadata key {:?} is {n}, more than any model has", key(name)),
                n => Ok(n as usize),
            }
        };
        if meta.u32(&key("expert_count"))?.is_some_and(|n| n > 0) {
            bail!(UnsupportedArchitecture, "the model is a mixture of experts ({:?}), which is not supported", key("expert_count"));
        }
        let (dim, layers, heads) = (size("embedding_length")?, size("block_count")?, size("attention.head_count")?);
        let kv_heads = if meta.get(&key("attention.head_count_kv")).is_some() { size("attention.head_count_kv")? } else { heads };
        let head_dim = if meta.get(&key("attention.key_length")).is_some() { size("attention.key_length")? } else { dim / heads };
        if heads % kv_heads != 0 {
            bail!(BadKey, "{heads} query heads ({:?}) can't share {kv_heads} key heads evenly", key("attention.head_count"));
        }
        if head_dim == 0 || head_dim % 2 != 0 {
            bail!(BadKey, "heads of {head_dim} values ({:?}, {:?}) can't be rotated in pairs", key("embedding_length"), key("attention.head_count"));
        }
        if heads as u64 * head_dim as u64 > u64::from(MAX_WIDTH) {
            bail!(BadKey, "{heads} heads of {head_dim} values ({:?}) are more than any model has", key("attention.head_count"));
        }
        if let Some(value) = meta.u32(&key("attention.value_length"))?
            && value as usize != head_dim
        {
            bail!(UnsupportedArchitecture, "values of another length ({value}) than keys ({head_dim}) are not supported");
        }
        let rope_dim = meta.u32(&key("rope.dimension_count"))?.map_or(head_dim, |n| n as usize);
        if rope_dim == 0 || rope_dim % 2 != 0 || rope_dim > head_dim {
            bail!(BadKey, "metadata key {:?} is {rope_dim}; it must be even and at most the head's {head_dim}", key("rope.dimension_count"));
        }
        let positive = |name: &str, default: f32| match meta.f32(&key(name))?.unwrap_or(default) {
            v if v.is_finite() && v > 0.0 => Ok(v),
            v => bail!(BadKey, "metadata key {:?} is {v}; it must be above 0", key(name)),
        };
        if let Some(vocab_size) = meta.u32(&key("vocab_size"))?
            && vocab_size as usize != vocab
        {
            bail!(BadKey, "metadata key {:?} is {vocab_size} but the tokenizer has {vocab} tokens", key("vocab_size"));
        }
        meta.require_f32(&key("attention.layer_norm_rms_epsilon"))?;
        Ok(Self {
            dim,
            layers,
            heads,
            kv_heads,
            head_dim,
            ffn_dim: size("feed_forward_length")?,
            vocab,
            trained_context: meta.require_u32(&key("context_length"))?.max(1) as usize,
            eps: positive("attention.layer_norm_rms_epsilon", 1e-5)?,
            rope_dim,
            rope_base: positive("rope.freq_base", 10_000.0)?,
            rope_scale: rope_scale(meta, &key)?,
            rope_pairs: Pairs::Neighbours,
            architecture: architecture.to_owned(),
        })
    }

    /// Weights of the model, from its shape.
    pub fn parameters(&self, tied: bool) -> u64 {
        let [dim, ffn, q, kv] = [self.dim, self.ffn_dim, self.heads * self.head_dim, self.kv_heads * self.head_dim].map(|n| n as u64);
        let layer = dim * (2 * q + 2 * kv) + 3 * dim * ffn + 2 * dim;
        self.layers as u64 * layer + dim + self.vocab as u64 * dim * if tied { 1 } else { 2 }
    }
}

fn rope_scale(meta: &Metadata, key: &impl Fn(&str) -> String) -> Result<f32> {
    let factor = meta.f32(&key("rope.scaling.factor"))?;
    match meta.str(&key("rope.scaling.type"))? {
        None => Ok(meta.f32(&key("rope.scale_linear"))?.filter(|f| *f > 0.0).unwrap_or(1.0)),
        Some("none") => Ok(1.0),
        Some("linear") => match factor.unwrap_or(1.0) {
            f if f.is_finite() && f > 0.0 => Ok(f),
            f => bail!(BadKey, "metadata key {:?} is {f}; it must be above 0", key("rope.scaling.factor")),
        },
        Some(other) => bail!(UnsupportedArchitecture, "RoPE scaling {other:?} ({:?}) is not supported", key("rope.scaling.type")),
    }
}
