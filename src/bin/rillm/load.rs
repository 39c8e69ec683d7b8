//! A model on the device that was asked for.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use rillm::backend::cpu::{Cpu, Pool, Variant};
use rillm::backend::{Backend, KvType};
use rillm::error::{Code, Error, Result};
use rillm::load::{LoadOptions, Loader};
use rillm::session::Engine;

use crate::args::{BackendName, Machine};

/// What is done with a model, whatever it runs on.
pub trait Work {
    fn run<B: Backend>(self, engine: Engine<B>) -> Result<()>;
}

/// Loads a model where the arguments say, and does the work. `quiet`: without a progress bar.
pub fn with_engine(m: &Machine, path: &Path, quiet: bool, work: impl Work) -> Result<()> {
    if m.backend != BackendName::Cpu && m.threads.is_some() {
        return refuse("--threads is for --backend cpu: other backends choose for themselves");
    }
    if m.backend != BackendName::Candle && m.device != "cpu" {
        return refuse("--device is for --backend candle");
    }
    match m.backend {
        BackendName::Cpu => work.run(load(cpu(m.threads), path, options(m)?, quiet)?),
        BackendName::Gpu => refuse("this version has no GPU backend: use --backend cpu"),
        #[cfg(feature = "candle")]
        BackendName::Candle => {
            let candle = rillm::backend::candle::Candle::new(&m.device)?;
            work.run(load(candle, path, options(m)?, quiet)?)
        }
        #[cfg(not(feature = "candle"))]
        BackendName::Candle => refuse("built without the candle backend: add --features candle (or cuda, metal), or use --backend cpu"),
    }
}

/// The CPU with so many threads. By default one for each core: what shares a core gains nothing here, and more than eight only wait for memory.
fn cpu(threads: Option<u32>) -> Cpu {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from).min(num_cpus::get_physical()).clamp(1, 8);
    Cpu::with_pool(Variant::detect(), Pool::new(threads.map_or_else(cores, |n| n as usize)))
}

fn refuse(what: &str) -> Result<()> {
    Err(Error::new(Code::NotSupported, what))
}

/// What the arguments say about a load.
fn options(m: &Machine) -> Result<LoadOptions> {
    Ok(LoadOptions { context_length: m.context, kv_type: KvType::from_name(&m.kv.name)?, tokenizer_json: tokenizer_json(m.tokenizer.as_ref())? })
}

/// The text of a `tokenizer.json`.
pub fn tokenizer_json(path: Option<&PathBuf>) -> Result<Option<Vec<u8>>> {
    path.map(|path| std::fs::read(path).map_err(|e| io(path, e))).transpose()
}

fn io(path: &Path, e: std::io::Error) -> Error {
    Error::new(Code::Io, format!("{}: {e}", path.display()))
}

/// Reads a file in pieces of 1 MiB, with a progress bar where somebody looks.
pub fn load<B: Backend>(backend: B, path: &Path, options: LoadOptions, quiet: bool) -> Result<Engine<B>> {
    let mut file = File::open(path).map_err(|e| io(path, e))?;
    let meta = file.metadata().map_err(|e| io(path, e))?;
    let total = meta.is_file().then_some(meta.len());
    let bar = match total {
        Some(total) if !quiet && std::io::stderr().is_terminal() => ProgressBar::new(total),
        _ => ProgressBar::hidden(),
    };
    if let Ok(style) = ProgressStyle::with_template("loading {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}") {
        bar.set_style(style);
    }
    let mut loader = Loader::new(backend, total, options);
    let mut piece = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut piece).map_err(|e| io(path, e))?;
        if n == 0 {
            break;
        }
        loader.push(&piece[..n])?;
        bar.inc(n as u64);
    }
    let loaded = loader.finish()?;
    bar.finish_and_clear();
    Ok(Engine::new(loaded))
}
