//! What the text tests share: the real files' metadata, and the goldens.
#![allow(dead_code)] // each test binary uses a part

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use rillm::gguf::{Gguf, Metadata, Parsed};
use rillm::tokenizer::Tokenizer;

/// Enough for the longer header, Gemma's, which ends after 7 MiB.
const HEADER: u64 = 8 << 20;

/// The real files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Model {
    SmolLM2,
    Gemma3,
}

impl Model {
    fn file(self) -> &'static str {
        match self {
            Model::SmolLM2 => "SmolLM2-135M-Instruct.Q4_1.gguf",
            Model::Gemma3 => "gemma-3-270m-q4_k_m.gguf",
        }
    }

    /// Its metadata, from `models/` or the folder that `RILLM_MODELS` names.
    pub fn metadata(self) -> Metadata {
        let folder = std::env::var_os("RILLM_MODELS").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models"), PathBuf::from);
        let path = folder.join(self.file());
        let file = File::open(&path).unwrap_or_else(|e| panic!("{}: {e}; `./build.sh models` fetches it", path.display()));
        let size = file.metadata().unwrap().len();
        let mut bytes = Vec::new();
        file.take(HEADER).read_to_end(&mut bytes).unwrap();
        match Gguf::parse(&bytes, Some(size)).unwrap() {
            Parsed::Done(gguf) => gguf.metadata,
            Parsed::More(n) => panic!("the header of {} needs {n} bytes", path.display()),
        }
    }

    /// Its tokenizer.
    pub fn tokenizer(self) -> Tokenizer {
        Tokenizer::from_metadata(&mut self.metadata()).unwrap()
    }

    /// What llama.cpp makes of it; see `tests/data/README.md`.
    pub fn golden(self) -> serde_json::Value {
        serde_json::from_str(match self {
            Model::SmolLM2 => include_str!("../data/smollm2-135m-instruct-q4_1.json"),
            Model::Gemma3 => include_str!("../data/gemma-3-270m-q4_k_m.json"),
        })
        .unwrap()
    }
}

/// A list of ids in the goldens.
pub fn ids(value: &serde_json::Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}
