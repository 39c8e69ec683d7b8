//! The only folder that knows wasm-bindgen: the engine as the worker of the npm package sees it. Plain data crosses in both directions.

mod convert;
mod pool;

use std::cell::RefCell;
use std::rc::Rc;

use wasm_bindgen::prelude::*;

use crate::backend::cpu::{Cpu, Variant};
use crate::error::{Result, bail};
use crate::load::{self, LoadOptions};
use crate::session::{Engine as Core, Generation as CoreGeneration, Scoring as CoreScoring};
pub use pool::Pool;

use convert::{JsInfo, JsLoadOptions, JsMessages, JsOptions, JsScore, JsStep, Thrown};

/// A panic is a bug; its message reaches the console instead of "unreachable".
#[wasm_bindgen(start)]
pub fn start() {
    console_error_panic_hook::set_once();
}

/// Takes a model file piece by piece.
#[wasm_bindgen]
pub struct Loader(load::Loader<Cpu>);

#[wasm_bindgen]
impl Loader {
    /// A load of a file of `total` bytes, if that is known, for an engine that computes on the pool's threads.
    #[wasm_bindgen(constructor)]
    pub fn new(total: Option<f64>, options: JsLoadOptions, pool: Pool) -> std::result::Result<Loader, Thrown> {
        let options: LoadOptions = convert::load_options(options)?;
        let cpu = Cpu::with_pool(Variant::detect(), pool.0);
        Ok(Self(load::Loader::new(cpu, total.map(|t| t as u64), options)))
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) -> std::result::Result<(), Thrown> {
        Ok(self.0.push(bytes)?)
    }

    /// The engine, when all bytes are there.
    pub fn finish(self) -> std::result::Result<Engine, Thrown> {
        Ok(Engine(Rc::new(RefCell::new(Core::new(self.0.finish()?)))))
    }
}

type Shared = Rc<RefCell<Core<Cpu>>>;

/// The engine for one piece of work; refused while another one runs.
fn lock(engine: &Shared) -> Result<std::cell::RefMut<'_, Core<Cpu>>> {
    match engine.try_borrow_mut() {
        Ok(engine) => Ok(engine),
        Err(_) => bail!(Busy, "the engine is at work; wait for the step before"),
    }
}

/// A loaded model.
#[wasm_bindgen]
pub struct Engine(Shared);

#[wasm_bindgen]
impl Engine {
    /// What there is to know about the model.
    pub fn info(&self) -> std::result::Result<JsInfo, Thrown> {
        convert::to_js(&lock(&self.0)?.info())
    }

    /// Text -> ids, without BOS; `special` parses control tokens out of the text.
    pub fn tokenize(&self, text: &str, special: bool) -> std::result::Result<Vec<u32>, Thrown> {
        Ok(lock(&self.0)?.tokenizer().encode(text, special))
    }

    /// Ids -> text; control tokens are shown only with `special`.
    pub fn detokenize(&self, ids: &[u32], special: bool) -> std::result::Result<String, Thrown> {
        let engine = lock(&self.0)?;
        engine.tokenizer().check_ids(ids)?;
        Ok(engine.tokenizer().decode(ids, special))
    }

    /// Begins to answer a chat.
    pub fn chat(&self, messages: JsMessages, options: JsOptions) -> std::result::Result<Generation, Thrown> {
        let (messages, options) = (convert::messages(messages)?, convert::options(options)?);
        let generation = lock(&self.0)?.chat(&messages, convert::now(), options)?;
        Ok(Generation { engine: self.0.clone(), core: RefCell::new(generation) })
    }

    /// Begins to continue a text.
    pub fn complete(&self, text: &str, options: JsOptions) -> std::result::Result<Generation, Thrown> {
        let options = convert::options(options)?;
        let generation = lock(&self.0)?.complete(text, options)?;
        Ok(Generation { engine: self.0.clone(), core: RefCell::new(generation) })
    }

    /// Begins to score ids.
    pub fn score(&self, ids: Vec<u32>) -> std::result::Result<Scoring, Thrown> {
        let scoring = lock(&self.0)?.score(ids)?;
        Ok(Scoring { engine: self.0.clone(), core: RefCell::new(scoring) })
    }
}

/// An answer in the making.
#[wasm_bindgen]
pub struct Generation {
    engine: Shared,
    core: RefCell<CoreGeneration>,
}

#[wasm_bindgen]
impl Generation {
    /// Does the next piece of work: a chunk of the prompt, or a token.
    #[allow(clippy::await_holding_refcell_ref)] // held on purpose: whoever comes in between is told that the engine is busy
    pub async fn step(&self) -> std::result::Result<JsStep, Thrown> {
        let mut engine = lock(&self.engine)?;
        let mut core = self.core.try_borrow_mut().map_err(|_| running())?;
        convert::to_js(&engine.step(&mut core).await?)
    }

    /// Tokens of the whole prompt.
    #[wasm_bindgen(js_name = promptTokens)]
    pub fn prompt_tokens(&self) -> std::result::Result<u32, Thrown> {
        let core = self.core.try_borrow().map_err(|_| running())?;
        Ok(core.prompt().len() as u32)
    }

    /// Ends the answer: the next step gives what there is.
    pub fn abort(&self) -> std::result::Result<(), Thrown> {
        let mut core = self.core.try_borrow_mut().map_err(|_| running())?;
        core.abort();
        Ok(())
    }

    /// Test hook: these ids are "sampled" instead of the model's, and no model runs.
    pub fn script(&self, ids: Vec<u32>) -> std::result::Result<(), Thrown> {
        let context = lock(&self.engine)?.info().context_length;
        let mut core = self.core.try_borrow_mut().map_err(|_| running())?;
        core.script(ids, context);
        Ok(())
    }
}

fn running() -> crate::Error {
    crate::error::error!(Busy, "a step of this is running; wait for it")
}

/// A score in the making.
#[wasm_bindgen]
pub struct Scoring {
    engine: Shared,
    core: RefCell<CoreScoring>,
}

#[wasm_bindgen]
impl Scoring {
    /// Runs the next chunk.
    #[allow(clippy::await_holding_refcell_ref)]
    pub async fn step(&self) -> std::result::Result<JsScore, Thrown> {
        let mut engine = lock(&self.engine)?;
        let mut core = self.core.try_borrow_mut().map_err(|_| running())?;
        let done = engine.score_step(&mut core).await?;
        convert::score(&core, done)
    }
}
