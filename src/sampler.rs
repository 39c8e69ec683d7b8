//! Options -> the Params of the op `sample`.

use crate::ops::sample::Params;
use crate::session::options::Options;

/// How a generation chooses its tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampler {
    params: Params,
    window: usize,
}

impl Sampler {
    /// With the seed that the session settled on: the option's, or one of its own choice.
    pub fn new(options: &Options, seed: u32) -> Self {
        let &Options { temperature, top_k, top_p, min_p, repetition_penalty, repetition_window, .. } = options;
        let params = Params { temperature, top_k, top_p, min_p, repetition_penalty, seed, position: 0 };
        Self { params, window: repetition_window as usize }
    }

    /// For the token that will stand at `position` of the sequence, the prompt's first token being 0.
    pub fn params(&self, position: u32) -> Params {
        Params { position, ..self.params }
    }

    /// The part of the sequence (prompt and what was made) that the penalty looks at; empty where there is no penalty.
    pub fn window<'a>(&self, sequence: &'a [u32]) -> &'a [u32] {
        let length = if self.params.repetition_penalty == 1.0 { 0 } else { self.window };
        &sequence[sequence.len().saturating_sub(length)..]
    }

    /// Whether the most probable token is always taken, so that the seed does not matter.
    pub fn is_greedy(&self) -> bool {
        self.params.is_greedy()
    }

    /// Whether the token is the largest logit as it comes from the model: then `pick` suffices, and no logits are needed.
    pub fn is_argmax(&self) -> bool {
        self.is_greedy() && (self.params.repetition_penalty == 1.0 || self.window == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::sample::{Scratch, reference};

    #[test]
    fn the_window_is_the_end_of_the_sequence() {
        let options = |window| Options { repetition_penalty: 2.0, repetition_window: window, temperature: 0.0, ..Options::default() };
        let window = |window, sequence: &[u32]| Sampler::new(&options(window), 0).window(sequence).to_vec();
        assert_eq!(window(2, &[7, 5, 5]), [5, 5]);
        assert_eq!(window(64, &[7, 5, 5]), [7, 5, 5]);
        assert!(window(0, &[7, 5, 5]).is_empty() && window(u32::MAX, &[]).is_empty());
        assert!(Sampler::new(&Options::default(), 0).window(&[7]).is_empty());

        // Outside of the window token 7 is not touched.
        let sampler = Sampler::new(&options(2), 0);
        let mut logits = [0.0; 8];
        (logits[7], logits[5]) = (3.0, 4.0);
        assert_eq!(reference(&logits, sampler.window(&[7, 5, 5]), &sampler.params(3), &mut Scratch::default()), Some(7));
    }

    #[test]
    fn greedy_has_three_spellings() {
        let default = Options::default();
        assert!(!Sampler::new(&default, 0).is_greedy());
        for greedy in
            [Options { temperature: 0.0, ..default.clone() }, Options { top_p: 0.0, ..default.clone() }, Options { top_k: 1, ..default.clone() }]
        {
            assert!(Sampler::new(&greedy, 0).is_greedy() && Sampler::new(&greedy, 0).is_argmax());
            let penalized = Options { repetition_penalty: 1.1, ..greedy };
            assert!(Sampler::new(&penalized, 0).is_greedy() && !Sampler::new(&penalized, 0).is_argmax());
        }
    }

    #[test]
    fn params_carry_everything() {
        let options = Options { temperature: 0.5, top_k: 1000, top_p: 0.25, min_p: 0.125, repetition_penalty: 1.5, ..Options::default() };
        let expected = Params { temperature: 0.5, top_k: 1000, top_p: 0.25, min_p: 0.125, repetition_penalty: 1.5, seed: 9, position: 77 };
        assert_eq!(Sampler::new(&options, 9).params(77), expected);
    }
}
