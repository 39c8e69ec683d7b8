//! Where the real models are. In a test file: `#[path = "common/models.rs"] mod models;`
#![allow(dead_code)] // each test file uses its part

use std::path::{Path, PathBuf};

pub const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
pub const GEMMA3: &str = "gemma-3-270m-q4_k_m.gguf";

/// The path of a model: in the folder that `RILLM_MODELS` names, else in `models/`. A missing file fails the test, never skips it.
pub fn path(name: &str) -> PathBuf {
    let folder = std::env::var_os("RILLM_MODELS").map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("models"), PathBuf::from);
    let path = folder.join(name);
    assert!(path.is_file(), "{} is missing: run `./build.sh models`, or set RILLM_MODELS to the folder that has it", path.display());
    path
}

/// The first `n` bytes of a model, and its size.
pub fn head(name: &str, n: u64) -> (Vec<u8>, u64) {
    use std::io::Read;
    let file = std::fs::File::open(path(name)).unwrap();
    let size = file.metadata().unwrap().len();
    let mut bytes = Vec::new();
    file.take(n).read_to_end(&mut bytes).unwrap();
    (bytes, size)
}
