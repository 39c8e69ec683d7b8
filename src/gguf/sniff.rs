//! What a file that is not GGUF looks like, so that the refusal can say it.

use crate::error::{Code, Error};

/// The refusal of these first bytes, if they can't begin a GGUF file of a supported version. `complete`: these are all the bytes there are.
pub(super) fn refusal(bytes: &[u8], complete: bool) -> Option<Error> {
    let not = |what: &str| Some(Error::new(Code::NotGguf, what));
    if bytes.is_empty() {
        return if complete { not("the file is empty (0 bytes)") } else { None };
    }
    let magic = &bytes[..bytes.len().min(4)];
    if !b"GGUF".starts_with(magic) {
        return not(&describe(bytes));
    }
    if bytes.len() < 8 {
        let cut_off = || Error::new(Code::Truncated, format!("the file is cut off: it has only {} bytes", bytes.len()));
        return complete.then(cut_off);
    }
    let version = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let unsupported = |why: String| Some(Error::new(Code::UnsupportedVersion, why));
    match version {
        2 | 3 => None,
        1 => unsupported("the file is GGUF version 1; versions 2 and 3 can be read, so convert it again with a current tool".into()),
        v if v != 0 && v & 0xffff == 0 => {
            unsupported(format!("the file is big-endian (GGUF version {} in that order); only little-endian files can be read", v.swap_bytes()))
        }
        v => unsupported(format!("the file says GGUF version {v}; versions 2 and 3 can be read")),
    }
}

fn describe(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(512)];
    let text = String::from_utf8_lossy(head);
    let lower = text.trim_start_matches('\u{feff}').trim_start().to_ascii_lowercase();
    let what = if head.starts_with(b"FUGG") {
        "a byte-swapped (big-endian) GGUF file"
    } else if lower.starts_with("<!doctype") || lower.starts_with("<html") || lower.starts_with("<head") {
        "an HTML page: is the address right, and does it need a login?"
    } else if lower.starts_with("<?xml") {
        "an XML document, perhaps a storage server's error message"
    } else if lower.starts_with("version https://git-lfs") {
        "a git-lfs pointer: fetch the file it points to (git lfs pull, or the download link)"
    } else if lower.starts_with('{') || lower.starts_with('[') {
        "JSON text"
    } else if [&b"lmgg"[..], b"fmgg", b"tjgg", b"GGML", b"ggjt", b"ggmf", b"ggml"].iter().any(|m| head.starts_with(m)) {
        "a model of the older GGML formats: convert it to GGUF"
    } else if head.starts_with(b"PK") {
        "a zip archive (perhaps a PyTorch checkpoint): convert it to GGUF"
    } else if head.starts_with(&[0x1f, 0x8b]) {
        "a gzip archive: unpack it first"
    } else if head.get(8) == Some(&b'{') {
        "a safetensors file: convert it to GGUF"
    } else {
        let shown: Vec<String> = head.iter().take(4).map(|b| format!("{b:02x}")).collect();
        return format!("this is not a GGUF file: it begins with the bytes {} instead of \"GGUF\"", shown.join(" "));
    };
    format!("this is not a GGUF file but {what}")
}
