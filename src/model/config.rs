//! What an architecture is: numbers out of the metadata, nothing else. Architectures are data over one forward.

use crate::error::{Result, bail};
use crate::gguf::{Array, Metadata, Value};
use crate::ops::norm_linear::Activation;
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
    /// Which values of a head are rotated together.
    pub rope_pairs: Pairs,
    /// How layers look back: the kinds there are. Llama has one; Gemma 3 has local layers and global ones.
    pub attention: Vec<Attention>,
    /// For each layer, which of them it is.
    pub kinds: Vec<usize>,
    /// What a score is multiplied with before the softmax.
    pub attention_scale: f32,
    /// What the rows of the embedding are multiplied with.
    pub embedding_scale: f32,
    /// What is applied to the gate.
    pub activation: Activation,
    /// Whether the heads of queries and keys are normalized before they are rotated.
    pub head_norms: bool,
    /// Whether what a block gives is normalized before it is added to the residual.
    pub post_norms: bool,
}

/// How a layer looks back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    /// How many positions back a query sees, itself included; None: all.
    pub window: Option<usize>,
    /// The base of the rotation.
    pub rope_base: f32,
    /// What positions are divided by before rotating.
    pub rope_scale: f32,
}

/// What tells an architecture from others, apart from the numbers in the file.
struct Architecture {
    name: &'static str,
    pairs: Pairs,
    activation: Activation,
    /// Gemma's ways: a scaled embedding, norms of the heads and behind the blocks, and local layers between global ones.
    gemma: bool,
}

const ARCHITECTURES: [Architecture; 2] = [
    Architecture { name: "llama", pairs: Pairs::Neighbours, activation: Activation::Silu, gemma: false },
    // Gemma 3 report, section 2: <https://arxiv.org/abs/2503.19786>
    Architecture { name: "gemma3", pairs: Pairs::Halves, activation: Activation::Gelu, gemma: true },
];

/// One layer in so many is global in Gemma 3, where the file does not say.
const GEMMA_PERIOD: u32 = 6;
/// The base of the rotation in Gemma 3's local layers, where the file does not say.
const GEMMA_LOCAL_BASE: f32 = 10_000.0;
/// Gemma 3 27B, told by its layers, scales scores by dim / heads instead of the head's length.
const GEMMA_27B_LAYERS: usize = 62;

/// Widths above this are nobody's model, only a damaged file.
const MAX_WIDTH: u32 = 1 << 20;

impl Config {
    /// The architecture's name, if this version runs it.
    pub fn check_architecture(meta: &Metadata) -> Result<&'static str> {
        Ok(architecture(meta)?.name)
    }

    /// Reads the settings; what the forward can't do is refused by name.
    pub fn from_metadata(meta: &Metadata, vocab: usize) -> Result<Self> {
        let a = architecture(meta)?;
        let architecture = a.name;
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
        for cap in ["attn_logit_softcapping", "final_logit_softcapping"] {
            if meta.f32(&key(cap))?.is_some_and(|v| v != 0.0) {
                bail!(UnsupportedArchitecture, "soft-capped logits ({:?}) are not supported", key(cap));
            }
        }
        let global = Attention { window: None, rope_base: positive("rope.freq_base", 10_000.0)?, rope_scale: rope_scale(meta, &key)? };
        let window = if a.gemma { meta.require_u32(&key("attention.sliding_window"))? } else { 0 };
        let (attention, kinds) = match window {
            0 => (vec![global], vec![0; layers]),
            n => {
                let rope_base = positive("rope.freq_base_swa", GEMMA_LOCAL_BASE)?;
                let local = Attention { window: Some(n as usize), rope_base, rope_scale: 1.0 };
                (vec![local, global], global_layers(meta, &key("attention.sliding_window_pattern"), layers)?)
            }
        };
        let scaled_by = if a.gemma && layers == GEMMA_27B_LAYERS { dim / heads } else { head_dim };
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
            rope_pairs: a.pairs,
            attention,
            kinds,
            attention_scale: 1.0 / (scaled_by as f32).sqrt(),
            embedding_scale: if a.gemma { (dim as f32).sqrt() } else { 1.0 },
            activation: a.activation,
            head_norms: a.gemma,
            post_norms: a.gemma,
            architecture: architecture.to_owned(),
        })
    }

    /// Weights of the model, from its shape.
    pub fn parameters(&self, tied: bool) -> u64 {
        let [dim, ffn, q, kv] = [self.dim, self.ffn_dim, self.heads * self.head_dim, self.kv_heads * self.head_dim].map(|n| n as u64);
        let norms = 2 * dim + if self.post_norms { 2 * dim } else { 0 } + if self.head_norms { 2 * self.head_dim as u64 } else { 0 };
        let layer = dim * (2 * q + 2 * kv) + 3 * dim * ffn + norms;
        self.layers as u64 * layer + dim + self.vocab as u64 * dim * if tied { 1 } else { 2 }
    }
}

fn architecture(meta: &Metadata) -> Result<&'static Architecture> {
    let name = meta.require_str("general.architecture")?;
    match ARCHITECTURES.iter().find(|a| a.name == name) {
        Some(a) => Ok(a),
        None => {
            let known: Vec<_> = ARCHITECTURES.iter().map(|a| a.name).collect();
            bail!(UnsupportedArchitecture, "architecture {name:?} is not supported; this version runs: {}", known.join(", "))
        }
    }
}

/// For each layer 0 if it is local and 1 if it is global. The file gives a period (the last of so many layers is global), or says of each
/// layer whether it is local.
fn global_layers(meta: &Metadata, key: &str, layers: usize) -> Result<Vec<usize>> {
    if let Some(Value::Array(Array::Bool(local))) = meta.get(key) {
        if local.len() != layers {
            bail!(BadKey, "metadata key {key:?} has {} entries for {layers} layers", local.len());
        }
        return Ok(local.iter().map(|&local| usize::from(!local)).collect());
    }
    match meta.u32(key)?.unwrap_or(GEMMA_PERIOD) {
        0 => Ok(vec![0; layers]), // all local, as llama.cpp has it
        period => Ok((1..=layers).map(|n| usize::from(n % period as usize == 0)).collect()),
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
