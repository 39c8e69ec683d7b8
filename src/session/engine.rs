//! A model with its tokenizer and what is in its cache: where prompts become ids and generations begin.

use serde::Serialize;

use super::generation::{Generation, Step};
use super::options::Options;
use super::predict::{Predict, Runner};
use super::score::Scoring;
use crate::backend::Backend;
use crate::chat::{ChatTemplate, Message, Now};
use crate::error::{Result, bail, error};
use crate::load::{About, Loaded};
use crate::tokenizer::Tokenizer;

/// A loaded model, ready to answer. One generation at a time moves it.
#[derive(Debug)]
pub struct Engine<B> {
    runner: Runner<B>,
    tokenizer: Tokenizer,
    chat: Option<ChatTemplate>,
    about: About,
}

/// What there is to know about a loaded model.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Info {
    /// `general.architecture`.
    pub architecture: String,
    /// The model's name in its file.
    pub name: String,
    /// The format of most of its weights.
    pub quantization: String,
    /// Number of weights.
    pub parameters: f64,
    /// Bytes of the file.
    pub bytes: f64,
    /// Positions in the KV cache.
    pub context_length: usize,
    /// How the KV cache stores keys and values: `f16` or `q8_0`.
    pub kv_type: &'static str,
    /// Positions that the model was trained for.
    pub trained_context_length: usize,
    /// Tokens in the vocabulary.
    pub vocab_size: usize,
    /// Whether `chat` works.
    pub has_chat_template: bool,
    /// The device.
    pub backend: &'static str,
    /// The instruction set.
    pub simd: &'static str,
    /// Threads that compute.
    pub threads: u32,
    /// Bytes of packed weights, cache and buffers.
    pub device_bytes: f64,
}

impl<B: Backend> Engine<B> {
    /// Takes over what a load gave.
    pub fn new(loaded: Loaded<B>) -> Self {
        let Loaded { model, tokenizer, chat, about } = loaded;
        Self { runner: Runner::new(model), tokenizer, chat, about }
    }

    /// What there is to know.
    pub fn info(&self) -> Info {
        let model = self.runner.model();
        let (config, (backend, simd)) = (model.config(), model.backend().describe());
        Info {
            architecture: config.architecture.clone(),
            name: self.about.name.clone(),
            quantization: self.about.quantization.clone(),
            parameters: config.parameters(model.tied()) as f64,
            bytes: self.about.bytes as f64,
            context_length: model.context(),
            kv_type: model.kv_type().name(),
            trained_context_length: config.trained_context,
            vocab_size: config.vocab,
            has_chat_template: self.chat.is_some(),
            backend,
            simd,
            threads: model.backend().threads() as u32,
            device_bytes: model.backend().bytes() as f64,
        }
    }

    /// What the file says of itself.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Text <-> ids.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The model with its cache, for tests and tools that look at logits.
    pub fn runner(&mut self) -> &mut Runner<B> {
        &mut self.runner
    }

    /// The ids of a chat's messages, through the file's template.
    pub fn chat_ids(&self, messages: &[Message], now: Now) -> Result<Vec<u32>> {
        self.template()?.encode(&self.tokenizer, messages, now)
    }

    fn template(&self) -> Result<&ChatTemplate> {
        self.chat.as_ref().ok_or_else(|| {
            error!(NoChatTemplate, "this file has no chat template (a base model, perhaps): use complete with a text that it can continue")
        })
    }

    /// Begins to answer a chat, or to go on with its last message. Nothing runs before [`Engine::step`].
    pub fn chat(&self, messages: &[Message], now: Now, options: Options) -> Result<Generation> {
        if options.special {
            bail!(BadOption, "special is an option of complete: what a message says never becomes a control token");
        }
        let ids = match options.continue_answer {
            true => self.template()?.encode_open(&self.tokenizer, messages, now)?,
            false => self.chat_ids(messages, now)?,
        };
        Generation::new(ids, options, &self.runner, &self.tokenizer)
    }

    /// Begins to continue a text, with the file's BOS if it says so.
    pub fn complete(&self, text: &str, options: Options) -> Result<Generation> {
        if options.continue_answer {
            bail!(BadOption, "continueAnswer is an option of chat: complete always goes on where the text ends");
        }
        let ids = self.tokenizer.encode_prompt(text, options.special);
        if ids.is_empty() {
            bail!(EmptyPrompt, "the text gives no token; there is nothing to continue");
        }
        Generation::new(ids, options, &self.runner, &self.tokenizer)
    }

    /// Begins to continue ids.
    pub fn continue_ids(&self, ids: Vec<u32>, options: Options) -> Result<Generation> {
        self.tokenizer.check_ids(&ids)?;
        Generation::new(ids, options, &self.runner, &self.tokenizer)
    }

    /// Does the next piece of a generation's work: a chunk of its prompt, or a token.
    pub async fn step(&mut self, generation: &mut Generation) -> Result<Step> {
        generation.step(&mut self.runner, &self.tokenizer).await
    }

    /// Begins to score ids: what the model says of each, given those before it.
    pub fn score(&self, ids: Vec<u32>) -> Result<Scoring> {
        self.tokenizer.check_ids(&ids)?;
        if ids.len() > self.runner.context() {
            bail!(PromptTooLong, "{} ids are more than the context of {}", ids.len(), self.runner.context());
        }
        Ok(Scoring::new(ids))
    }

    /// Does the next chunk of a scoring's work.
    pub async fn score_step(&mut self, scoring: &mut Scoring) -> Result<bool> {
        scoring.step(&mut self.runner).await
    }
}
