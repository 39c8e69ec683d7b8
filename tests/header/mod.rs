//! What the text tests share: SmolLM2's metadata out of the real file, and the goldens.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use rillm::gguf::{Gguf, Metadata, Parsed};
use rillm::tokenizer::Tokenizer;

const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
/// Enough for the header, which ends after 1.7 MiB.
const HEADER: u64 = 2 << 20;

/// The metadata of SmolLM2, from `models/` or the folder that `RILLM_MODELS` names.
pub fn metadata() -> Metadata {
    let folder = std::env::var_os("RILLM_MODELS").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models"), PathBuf::from);
    let path = folder.join(FILE);
    let file = File::open(&path).unwrap_or_else(|e| panic!("{}: {e}; `./build.sh models` fetches it", path.display()));
    let size = file.metadata().unwrap().len();
    let mut bytes = Vec::new();
    file.take(HEADER).read_to_end(&mut bytes).unwrap();
    match Gguf::parse(&bytes, Some(size)).unwrap() {
        Parsed::Done(gguf) => gguf.metadata,
        Parsed::More(n) => panic!("the header of {} needs {n} bytes", path.display()),
    }
}

/// SmolLM2's tokenizer.
pub fn tokenizer() -> Tokenizer {
    Tokenizer::from_metadata(&mut metadata()).unwrap()
}

/// What llama.cpp makes of SmolLM2; see `tests/data/README.md`.
pub fn golden() -> serde_json::Value {
    serde_json::from_str(include_str!("../data/smollm2-135m-instruct-q4_1.json")).unwrap()
}

/// A list of ids in the goldens.
pub fn ids(value: &serde_json::Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}
