//! One answer in the making: prefill in chunks, then decode, sample, emit, until something ends it.

use serde::Serialize;
use web_time::Instant;

use super::metrics::{Metrics, Recorder, Usage};
use super::options::{Options, Warning};
use super::predict::{Predict, Script};
use super::stop::{StopIds, StopMatcher};
use crate::backend::Want;
use crate::detok::Detokenizer;
use crate::error::{Result, bail, error};
use crate::ops::pick::Pick;
use crate::sampler::Sampler;
use crate::tokenizer::Tokenizer;

/// What a step did.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Step {
    /// A chunk of the prompt was read.
    Prefill {
        /// Prompt tokens in the cache.
        done: u32,
        /// Prompt tokens in all.
        total: u32,
        /// So far.
        metrics: Metrics,
    },
    /// A token was made.
    Token {
        /// Text that is complete now; may be empty while a character or a possible stop string is not.
        text: String,
        /// The token.
        tokens: Vec<u32>,
        /// Its log-probability, where asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<Vec<f32>>,
        /// So far.
        metrics: Metrics,
    },
    /// The answer ended.
    Done {
        /// The last piece of its text; may be empty.
        text: String,
        /// The last token, if this step made one.
        tokens: Vec<u32>,
        /// Its log-probability, where asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        logprobs: Option<Vec<f32>>,
        /// The whole.
        result: Box<Answer>,
    },
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FinishReason {
    /// The model ended it, or a stop string did.
    Stop,
    /// `maxTokens` or the context was full.
    Length,
    /// The caller stopped it.
    Abort,
}

/// What exactly ended an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StopDetail {
    /// `eos`, `string`, `maxTokens` or `context`.
    pub kind: &'static str,
    /// The end token's text, the stop string, or the limit.
    #[serde(rename = "match")]
    pub matched: String,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Its text, without any end token or stop string.
    pub text: String,
    /// Every token that was made, the end token included.
    pub tokens: Vec<u32>,
    /// Their log-probabilities, where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Vec<f32>>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// By what; nothing after an abort.
    pub stop_detail: Option<StopDetail>,
    /// Tokens, counted.
    pub usage: Usage,
    /// Times and rates.
    pub metrics: Metrics,
    /// The seed that gives this answer again.
    pub seed: u32,
    /// What looked odd about the options.
    pub warnings: Vec<Warning>,
}

/// An answer in the making.
#[derive(Debug)]
pub struct Generation {
    prompt: Vec<u32>,
    options: Options,
    sampler: Sampler,
    stop: StopMatcher,
    stop_ids: StopIds,
    detok: Detokenizer,
    clock: Instant,
    recorder: Recorder,
    usage: Usage,
    text: String,
    tokens: Vec<u32>,
    logprobs: Vec<f32>,
    seed: u32,
    started: bool,
    aborted: bool,
    finished: bool,
    script: Option<Script>,
}

impl Generation {
    pub(super) fn new<P: Predict>(prompt: Vec<u32>, options: Options, predict: &P, tokenizer: &Tokenizer) -> Result<Self> {
        if prompt.is_empty() {
            bail!(EmptyPrompt, "the prompt has no token");
        }
        if prompt.len() >= predict.context() {
            let (n, context) = (prompt.len(), predict.context());
            bail!(
                PromptTooLong,
                "the prompt has {n} tokens and leaves no room for an answer in the context of {context}: shorten it, or load with a larger contextLength"
            );
        }
        let seed = match options.seed {
            Some(seed) => seed,
            None => getrandom::u32().map_err(|e| error!(Internal, "no source of randomness: {e}; give a seed"))?,
        };
        Ok(Self {
            sampler: Sampler::new(&options, seed),
            stop: StopMatcher::new(&options.stop),
            stop_ids: StopIds::new(&options.stop, |text| tokenizer.control_id(text)),
            detok: Detokenizer::default(),
            clock: Instant::now(),
            recorder: Recorder::start(0.0),
            usage: Usage { prompt_tokens: prompt.len() as u32, cached_tokens: 0, completion_tokens: 0 },
            text: String::new(),
            tokens: Vec::new(),
            logprobs: Vec::new(),
            seed,
            started: false,
            aborted: false,
            finished: false,
            script: None,
            prompt,
            options,
        })
    }

    /// Ends the answer: the next step gives what there is.
    pub fn abort(&mut self) {
        self.aborted = true;
    }

    /// The prompt's ids.
    pub fn prompt(&self) -> &[u32] {
        &self.prompt
    }

    /// Test hook: from here on these ids are "sampled", and no model runs.
    pub fn script(&mut self, ids: impl IntoIterator<Item = u32>, context: usize) {
        self.script = Some(Script::new(ids, context));
    }

    /// Does the next piece of work.
    pub async fn step<P: Predict>(&mut self, predict: &mut P, tokenizer: &Tokenizer) -> Result<Step> {
        match self.script.take() {
            None => self.step_with(predict, tokenizer).await,
            Some(mut script) => {
                let step = self.step_with(&mut script, tokenizer).await;
                self.script = Some(script);
                step
            }
        }
    }

    async fn step_with<P: Predict>(&mut self, predict: &mut P, tokenizer: &Tokenizer) -> Result<Step> {
        if self.finished {
            bail!(Internal, "the generation has ended");
        }
        if self.aborted {
            return Ok(self.finish(FinishReason::Abort, None, String::new(), None));
        }
        if !self.started {
            self.start(predict);
        }
        let held = predict.held().len();
        let all = self.prompt.len() + self.tokens.len();
        let ahead: Vec<u32> = self.prompt.iter().chain(&self.tokens).skip(held).copied().collect();
        let take = ahead.len().min(self.options.chunk_size as usize).min(predict.bite());
        let last = held + take == all;
        let output = if last {
            let sequence: Vec<u32> = self.prompt.iter().chain(&self.tokens).copied().collect();
            let recent = self.sampler.window(&sequence);
            let params = self.sampler.params(all as u32);
            let rows = [take - 1];
            let want = if self.sampler.is_argmax() { Want::Picks { rows: &rows, targets: &[] } } else { Want::Sample { params: &params, recent } };
            predict.run(&ahead[..take], Some(&want)).await?
        } else {
            predict.run(&ahead[..take], None).await?
        };
        let now = self.now();
        self.recorder.forward();
        if held < self.prompt.len() {
            self.recorder.prefilled(take as u32, now);
        }
        if !last {
            return Ok(Step::Prefill { done: (held + take) as u32, total: self.prompt.len() as u32, metrics: self.recorder.snapshot() });
        }
        let Some(pick) = output.picks.first() else {
            bail!(Internal, "the model's logits hold no finite number: the file is damaged, or its numbers overflow here");
        };
        Ok(self.accept(*pick, predict.context(), tokenizer))
    }

    /// Finds what of the prompt is in the cache already, and forgets the rest of the cache.
    fn start<P: Predict>(&mut self, predict: &mut P) {
        self.started = true;
        let same = predict.held().iter().zip(&self.prompt).take_while(|(a, b)| a == b).count();
        // The last token always runs: its logits are wanted.
        let keep = if self.options.reuse_prefix { same.min(self.prompt.len() - 1) } else { 0 };
        predict.truncate(keep);
        self.usage.cached_tokens = keep as u32;
        self.clock = Instant::now();
        self.recorder = Recorder::start(0.0);
    }

    fn accept(&mut self, pick: Pick, context: usize, tokenizer: &Tokenizer) -> Step {
        let id = pick.id;
        let now = self.now();
        self.recorder.token(now);
        self.usage.completion_tokens += 1;
        self.tokens.push(id);
        self.logprobs.push(pick.logprob);
        let text_of = |id| tokenizer.text(id).unwrap_or_default().to_owned();
        if let Some(stop) = self.stop_ids.get(id) {
            let detail = StopDetail { kind: "string", matched: stop.to_owned() };
            return self.finish(FinishReason::Stop, Some(detail), String::new(), Some(pick));
        }
        if tokenizer.is_end(id) && !self.options.ignore_eos {
            return self.finish(FinishReason::Stop, Some(StopDetail { kind: "eos", matched: text_of(id) }), String::new(), Some(pick));
        }
        let released = self.stop.push(&tokenizer.bytes(id));
        let piece = self.detok.push(&released);
        if let Some(stop) = self.stop.matched() {
            let detail = StopDetail { kind: "string", matched: stop.to_owned() };
            return self.finish(FinishReason::Stop, Some(detail), piece, Some(pick));
        }
        if self.tokens.len() as u32 >= self.options.max_tokens {
            let detail = StopDetail { kind: "maxTokens", matched: self.options.max_tokens.to_string() };
            return self.finish(FinishReason::Length, Some(detail), piece, Some(pick));
        }
        if self.prompt.len() + self.tokens.len() > context {
            let detail = StopDetail { kind: "context", matched: context.to_string() };
            return self.finish(FinishReason::Length, Some(detail), piece, Some(pick));
        }
        self.text.push_str(&piece);
        Step::Token { text: piece, tokens: vec![id], logprobs: self.options.logprobs.then(|| vec![pick.logprob]), metrics: self.recorder.snapshot() }
    }

    /// Ends the answer with a last piece of text, and what was held back if it was not a stop string after all.
    fn finish(&mut self, reason: FinishReason, detail: Option<StopDetail>, mut piece: String, pick: Option<Pick>) -> Step {
        self.finished = true;
        if self.stop.matched().is_none() {
            let held_back = self.stop.finish();
            piece.push_str(&self.detok.push(&held_back));
        }
        piece.push_str(&self.detok.finish());
        self.text.push_str(&piece);
        let metrics = self.recorder.snapshot();
        let logprobs = self.options.logprobs;
        let result = Answer {
            text: std::mem::take(&mut self.text),
            tokens: std::mem::take(&mut self.tokens),
            logprobs: logprobs.then(|| std::mem::take(&mut self.logprobs)),
            finish_reason: reason,
            stop_detail: detail,
            usage: self.usage,
            metrics,
            seed: self.seed,
            warnings: self.options.warnings(),
        };
        Step::Done {
            text: piece,
            tokens: pick.iter().map(|p| p.id).collect(),
            logprobs: logprobs.then(|| pick.iter().map(|p| p.logprob).collect()),
            result: Box::new(result),
        }
    }

    fn now(&self) -> f64 {
        self.clock.elapsed().as_secs_f64() * 1000.0
    }
}
