//! Scoring: what the model says of each token of a text, given those before it. Held by block of the vocabulary, never tokens x vocabulary.

use super::predict::Predict;
use crate::backend::Want;
use crate::error::{Result, bail};
use crate::ops::pick::Pick;

/// A score in the making. Position i of the result speaks of `ids[i + 1]`.
#[derive(Debug)]
pub struct Scoring {
    ids: Vec<u32>,
    picks: Vec<Pick>,
}

impl Scoring {
    pub(super) fn new(ids: Vec<u32>) -> Self {
        Self { ids, picks: Vec::new() }
    }

    /// How many picks there will be: one fewer than ids.
    pub fn total(&self) -> usize {
        self.ids.len().saturating_sub(1)
    }

    /// What there is so far: `logprob` is that of the text's own next token.
    pub fn picks(&self) -> &[Pick] {
        &self.picks
    }

    /// Runs the next chunk; true when all is done.
    pub(super) async fn step<P: Predict>(&mut self, predict: &mut P) -> Result<bool> {
        let done = self.picks.len();
        if done == 0 {
            predict.truncate(0);
        }
        let end = (done + predict.bite()).min(self.total());
        if done < end {
            let rows: Vec<usize> = (0..end - done).collect();
            let want = Want::Picks { rows: &rows, targets: &self.ids[done + 1..=end] };
            let picks = predict.run(&self.ids[done..end], Some(&want)).await?.picks;
            if picks.len() != end - done {
                bail!(Internal, "the model's logits hold no finite number: the file is damaged, or its numbers overflow here");
            }
            self.picks.extend(picks);
        }
        Ok(end == self.total())
    }
}
