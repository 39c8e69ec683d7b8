//! One forward that reads like the paper, over any backend. Architectures are data (`config`), not copies.

mod config;
pub mod weights;

pub use config::{Attention, Config};

use crate::backend::{Backend, CacheSpec, Ids, KvType, Output, Residual, Slot, Tensor, Want};
use crate::error::{Result, bail};
use crate::ops::rope_append::Rope;
use crate::ops::{attend, embed, norm_linear, rope_append, shift};
use weights::Weights;

/// The buffers of activations. `dim` is the residual's width, `q` = heads x head_dim, `kv` = kv_heads x head_dim.
#[derive(Debug, Clone, Copy)]
struct Buffers {
    x: [Slot; 2],  // [tokens, dim] the residual stream and its other half
    q: Slot,       // [tokens, q]
    k: Slot,       // [tokens, kv]
    v: Slot,       // [tokens, kv]
    heads: Slot,   // [tokens, q] what the heads gathered
    pending: Slot, // [tokens, dim] what has not been added to the residual yet
    gate: Slot,    // [tokens, ffn]
    up: Slot,      // [tokens, ffn]
}

/// A model on a device, with its KV cache.
#[derive(Debug)]
pub struct Model<B> {
    backend: B,
    config: Config,
    weights: Weights,
    buffers: Buffers,
    /// For each kind of attention.
    ropes: Vec<Rope>,
    /// Positions in the cache: where the next token goes.
    cached: usize,
    /// Positions that fit.
    context: usize,
    kv_type: KvType,
    passes: u32,
}

/// The KV cache that a model needs for a context.
pub fn cache_spec(c: &Config, context: usize, kv_type: KvType) -> CacheSpec {
    CacheSpec { layers: c.layers, positions: context, kv_heads: c.kv_heads, head_dim: c.head_dim, kv_type }
}

impl<B: Backend> Model<B> {
    /// Puts a loaded model together and makes its buffers; the backend has its `cache` already ([`cache_spec`]). `rope_factors`: Llama 3's,
    /// or empty.
    pub fn new(mut backend: B, config: Config, weights: Weights, rope_factors: Vec<f32>, cache: &CacheSpec) -> Self {
        let c = &config;
        let (q, kv) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
        let mut slot = |width| backend.slot(width);
        let buffers = Buffers {
            x: [slot(c.dim), slot(c.dim)],
            q: slot(q),
            k: slot(kv),
            v: slot(kv),
            heads: slot(q),
            pending: slot(c.dim),
            gate: slot(c.ffn_dim),
            up: slot(c.ffn_dim),
        };
        let rope =
            |a: &Attention| Rope { dim: c.rope_dim, base: a.rope_base, scale: a.rope_scale, factors: rope_factors.clone(), pairs: c.rope_pairs };
        let ropes = c.attention.iter().map(rope).collect();
        Self { backend, config, weights, buffers, ropes, cached: 0, context: cache.positions, kv_type: cache.kv_type, passes: 0 }
    }

    /// The shape and settings.
    pub fn config(&self) -> &Config {
        &self.config
    }
    /// The device.
    pub fn backend(&self) -> &B {
        &self.backend
    }
    /// Whether the output matrix is the embedding.
    pub fn tied(&self) -> bool {
        self.weights.tied
    }
    /// Positions in the cache.
    pub fn cached(&self) -> usize {
        self.cached
    }
    /// Positions that fit.
    pub fn context(&self) -> usize {
        self.context
    }
    /// How the cache stores keys and values.
    pub fn kv_type(&self) -> KvType {
        self.kv_type
    }
    /// Forward passes since the model was made.
    pub fn passes(&self) -> u32 {
        self.passes
    }

    /// Forgets all cached positions from `positions` on.
    pub fn truncate(&mut self, positions: usize) {
        self.cached = self.cached.min(positions);
    }

    /// Drops the cached positions `keep..keep + drop`; what follows moves up and its keys are turned back by as much.
    pub fn shift(&mut self, keep: usize, drop: usize) {
        let from = (keep + drop).min(self.cached);
        let (c, to) = (&self.config, keep.min(from));
        for (layer, &kind) in c.kinds.iter().enumerate() {
            let rope = self.ropes[kind].clone();
            self.backend.shift(layer, &shift::Params { from: from..self.cached, to, kv_heads: c.kv_heads, head_dim: c.head_dim, rope });
        }
        self.cached -= from - to;
    }

    /// Runs tokens through the model behind what is cached, caches them, and answers what is wanted of their logits.
    pub async fn forward(&mut self, ids: &[u32], want: Option<&Want<'_>>) -> Result<Output> {
        let (c, b, n) = (&self.config, self.buffers, ids.len());
        if n == 0 {
            bail!(EmptyPrompt, "there is no token to run");
        }
        if let Some(id) = ids.iter().find(|&&id| id as usize >= c.vocab) {
            bail!(BadToken, "token {id} is not in the vocabulary of {}", c.vocab);
        }
        if self.cached + n > self.context {
            bail!(PromptTooLong, "{} tokens are in the context of {} already; {n} more do not fit", self.cached, self.context);
        }
        let (backend, start) = (&mut self.backend, self.cached);
        let (heads, kv_heads, head_dim, eps, scale) = (c.heads, c.kv_heads, c.head_dim, c.eps, c.attention_scale);
        let rope = |rope: &Rope| rope_append::Params { start, heads, kv_heads, head_dim, rope: rope.clone(), eps };
        let ropes: Vec<_> = self.ropes.iter().map(rope).collect();
        let look = |a: &Attention| attend::Params { start, heads, kv_heads, head_dim, scale, window: a.window };
        let looks: Vec<_> = c.attention.iter().map(look).collect();
        let project = norm_linear::Params { eps, activation: None };
        let gated = norm_linear::Params { eps, activation: Some(c.activation) };

        backend.begin(n)?;
        backend.embed(self.weights.embedding, Ids::Host(ids), b.x[0], &embed::Params { scale: c.embedding_scale }); // x: [n, dim]
        let mut x = Stream { at: 0, slots: b.x, pending: None };
        for (i, (w, &kind)) in self.weights.layers.iter().zip(&c.kinds).enumerate() {
            // x += post_norm(attention(norm(x)))
            backend.norm_linear(x.take(), w.attn_norm, &[(w.q, b.q), (w.k, b.k), (w.v, b.v)], &project); // q: [n, heads, head_dim]; k, v: [n, kv_heads, head_dim]
            backend.rope_append(i, b.q, b.k, b.v, w.head_norms, &ropes[kind]);
            backend.attend(i, b.q, b.heads, &looks[kind]); // [n, heads, head_dim]
            backend.linear(b.heads, w.attn_output, b.pending); // [n, dim]
            x.pending = Some((b.pending, w.attn_post_norm));
            // x += post_norm(down(activation(gate(norm(x))) * up(norm(x))))
            backend.norm_linear(x.take(), w.ffn_norm, &[(w.gate, b.gate), (w.up, b.up)], &gated); // gate: [n, ffn]
            backend.linear(b.gate, w.down, b.pending); // [n, dim]
            x.pending = Some((b.pending, w.ffn_post_norm));
        }
        if let Some(want) = want {
            backend.sample(x.take(), self.weights.output_norm, self.weights.output, eps, want); // logits: [rows wanted, vocab], in blocks
        }
        let output = backend.read().await?;
        self.cached += n;
        self.passes += 1;
        Ok(output)
    }
}

/// The residual stream between two ops: which of the two buffers holds it, and what is pending.
struct Stream {
    at: usize,
    slots: [Slot; 2],
    pending: Option<(Slot, Option<Tensor>)>,
}

impl Stream {
    /// Hands the stream to an op, which settles what is pending into the other buffer.
    fn take(&mut self) -> Residual {
        let (x, sum) = (self.slots[self.at], self.slots[1 - self.at]);
        let pending = self.pending.take();
        if pending.is_some() {
            self.at = 1 - self.at;
        }
        Residual { x, pending, sum }
    }
}
