//! What a generation needs of a model: a cache of ids, and a pick for what comes next. A model does it, and in tests a script.

use crate::backend::{Backend, Output, Want};
use crate::error::Result;
use crate::model::Model;
use crate::ops::pick::Pick;

/// Something that continues ids.
#[allow(async_fn_in_trait)] // static dispatch, as in `Backend`
pub trait Predict {
    /// How many ids fit.
    fn context(&self) -> usize;
    /// The ids in the cache.
    fn held(&self) -> &[u32];
    /// Forgets the cached ids from `n` on.
    fn truncate(&mut self, n: usize);
    /// Appends ids to the cache and answers what is wanted.
    async fn run(&mut self, ids: &[u32], want: Option<&Want<'_>>) -> Result<Output>;
    /// The most prompt tokens that are worth one pass.
    fn bite(&self) -> usize;
}

/// A model and the ids in its cache.
#[derive(Debug)]
pub struct Runner<B> {
    model: Model<B>,
    held: Vec<u32>,
}

impl<B: Backend> Runner<B> {
    /// A model with an empty cache.
    pub fn new(model: Model<B>) -> Self {
        Self { model, held: Vec::new() }
    }
    /// The model.
    pub fn model(&self) -> &Model<B> {
        &self.model
    }
}

impl<B: Backend> Predict for Runner<B> {
    fn context(&self) -> usize {
        self.model.context()
    }
    fn held(&self) -> &[u32] {
        &self.held
    }
    fn truncate(&mut self, n: usize) {
        self.held.truncate(n);
        self.model.truncate(n);
    }
    async fn run(&mut self, ids: &[u32], want: Option<&Want<'_>>) -> Result<Output> {
        let output = self.model.forward(ids, want).await?;
        self.held.extend_from_slice(ids);
        Ok(output)
    }
    fn bite(&self) -> usize {
        self.model.backend().bite()
    }
}

/// A test hook: "samples" the ids it is given, one after the other, without a model. Streaming and stopping run as always.
#[derive(Debug, Default)]
pub struct Script {
    ids: std::collections::VecDeque<u32>,
    held: Vec<u32>,
    passes: u32,
    context: usize,
}

impl Script {
    /// A script for a context of that many positions.
    pub fn new(ids: impl IntoIterator<Item = u32>, context: usize) -> Self {
        Self { ids: ids.into_iter().collect(), held: Vec::new(), passes: 0, context }
    }
    /// How often it was asked.
    pub fn passes(&self) -> u32 {
        self.passes
    }
}

impl Predict for Script {
    fn context(&self) -> usize {
        self.context
    }
    fn held(&self) -> &[u32] {
        &self.held
    }
    fn truncate(&mut self, n: usize) {
        self.held.truncate(n);
    }
    async fn run(&mut self, ids: &[u32], want: Option<&Want<'_>>) -> Result<Output> {
        self.held.extend_from_slice(ids);
        self.passes += 1;
        let mut output = Output::default();
        if want.is_some() {
            let Some(id) = self.ids.pop_front() else {
                crate::error::bail!(Internal, "the script has no further id");
            };
            output.picks.push(Pick { id, logprob: 0.0, top_id: id, top_logprob: 0.0 });
        }
        Ok(output)
    }
    fn bite(&self) -> usize {
        32
    }
}
