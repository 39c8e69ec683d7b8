//! GGUF headers made to hurt: huge counts, flipped bits, cuts anywhere. Right is an answer, Ok or Err, soon and with little memory.
//! The test profile has overflow checks and debug assertions on.
#![cfg(not(target_arch = "wasm32"))]

#[path = "common/gguf_writer.rs"]
mod gguf_writer;
#[path = "common/models.rs"]
mod models;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use gguf_writer::{GgufFile, TinyModel};
use rillm::gguf::{Array, Gguf, Parsed, Value};
use rillm::quant::testing::Rng;
use rillm::{Code, Result};

const EVERYTHING: &[u8] = include_bytes!("data/gguf-py.gguf");

/// Counts each thread's own memory, so that tests can run side by side.
struct Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    let now = NOW.get() + change;
    NOW.set(now);
    PEAK.set(PEAK.get().max(now));
}

// SAFETY: every call goes to the system's allocator as it came. The counters are constants without a destructor: they allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's contract is passed on.
        unsafe { System.dealloc(at, layout) }
    }
    // `realloc` is the default: a new block beside the old one, the worst that can happen.
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The result, the time it took and the bytes it held at most.
fn measured<T>(f: impl FnOnce() -> T) -> (T, Duration, isize) {
    let before = NOW.get();
    PEAK.set(before);
    let start = Instant::now();
    let result = f();
    (result, start.elapsed(), PEAK.get() - before)
}

#[test]
fn the_allocator_counts() {
    let (_, _, peak) = measured(|| drop(std::hint::black_box(vec![0u8; 1 << 20])));
    assert!((1 << 20..(1 << 20) + 4096).contains(&peak));
}

/// Magic, version 3, counts, and then these fields.
fn header(tensors: u64, pairs: u64, fields: &[&[u8]]) -> Vec<u8> {
    [b"GGUF\x03\0\0\0", &tensors.to_le_bytes()[..], &pairs.to_le_bytes(), &fields.concat()].concat()
}

#[test]
fn huge_announcements_in_tiny_files() {
    const KEY: &[u8] = b"\x01\0\0\0\0\0\0\0k";
    let u32s = |v: u32| v.to_le_bytes();
    let mut files = Vec::new();
    for huge in [1 << 22, 1 << 23, 1 << 27, 1 << 32, 1 << 40, 1 << 60, 1 << 61, 1 << 63, u64::MAX / 12, u64::MAX - 7, u64::MAX] {
        let n = &huge.to_le_bytes()[..];
        files.push(header(huge, 0, &[]));
        files.push(header(0, huge, &[]));
        files.push(header(huge, huge, &[]));
        files.push(header(0, 1, &[n])); // the key's length
        files.push(header(0, 1, &[KEY, &u32s(8), n])); // a string's length
        files.push(header(1, 0, &[n])); // a tensor name's length
        for array_type in 0..13 {
            files.push(header(0, 1, &[KEY, &u32s(9), &u32s(array_type), n]));
            files.push(header(0, 1, &[KEY, &u32s(9), &u32s(9), &1u64.to_le_bytes(), &u32s(array_type), n]));
        }
        files.push(header(0, 1, &[KEY, &u32s(9), &u32s(8), &2u64.to_le_bytes(), n])); // a string in an array
    }
    files.push(header(65_536, 65_536, &[])); // allowed as counts, but not in so small a file
    for file in files {
        assert!(file.len() <= 128);
        let padded = [&file[..], &vec![0; 128 - file.len()]].concat();
        for bytes in [&file, &padded] {
            let (result, time, peak) = measured(|| Gguf::parse(bytes, Some(bytes.len() as u64)));
            let code = result.expect_err("accepted").code();
            assert!(matches!(code, Code::Malformed | Code::Truncated), "{code:?}");
            assert!(time < Duration::from_millis(100) && peak < 16 << 20, "{time:?}, {peak} bytes");

            // Of a download of unknown size: refused as well, or a request that the cap allows.
            let (result, time, peak) = measured(|| Gguf::parse(bytes, None));
            assert!(!matches!(result, Ok(Parsed::Done(_))));
            assert!(!matches!(result, Ok(Parsed::More(n)) if n > rillm::gguf::MAX_HEADER_BYTES));
            assert!(time < Duration::from_millis(100) && peak < 16 << 20, "{time:?}, {peak} bytes");
        }
    }
}

#[test]
fn arrays_nested_a_thousand_deep() {
    let one_inside: &[u8] = &[9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    for depth in [9, 1000] {
        let fields = [b"\x01\0\0\0\0\0\0\0k\x09\0\0\0".to_vec(), one_inside.repeat(depth)].concat();
        let file = header(0, 1, &[&fields]);
        let (result, time, peak) = measured(|| Gguf::parse_whole(&file));
        let error = result.expect_err("accepted");
        assert!(error.code() == Code::Malformed && error.message().contains("deep"), "{error}");
        assert!(time < Duration::from_millis(100) && peak < 16 << 20);
    }
}

/// Where memory could be many times the file: entries of a few bytes. The file's own bytes are not counted.
#[test]
fn small_entries_do_not_amplify_memory() {
    let mut nested = GgufFile::default();
    nested.set("deep", Value::Array(Array::Nested(1 << 20)));
    let nested = nested.bytes();
    let (result, _, peak) = measured(|| Gguf::parse_whole(&nested).map(drop));
    assert!(result.is_ok() && peak < 1 << 20, "{peak} bytes");

    let pairs = (0..65_536).map(|i| (format!("{i:x}"), Value::U8(0))).collect();
    let pairs = GgufFile { pairs, ..GgufFile::default() }.bytes();
    let (result, time, peak) = measured(|| Gguf::parse_whole(&pairs).map(drop));
    assert!(result.is_ok() && peak < 32 << 20 && time < Duration::from_secs(1), "{peak} bytes, {time:?}");
}

/// Everything that can be asked of a header must be answered without panic; and sizes must agree.
fn ask(gguf: &Gguf, total: u64) {
    for t in &gguf.tensors {
        assert_eq!(t.rows() as u64 * t.row_bytes() as u64, t.bytes);
        assert!(t.row_bytes() as u64 <= u64::from(u32::MAX) && t.rows() as u64 <= u64::from(u32::MAX), "too large for wasm");
        assert!(gguf.file_range(t).end <= total);
        assert_eq!(gguf.tensor(&t.name), Some(t));
    }
    for (key, _) in gguf.metadata.iter() {
        let m = &gguf.metadata;
        let _ = (m.u32(key), m.f32(key), m.bool(key), m.str(key), m.i32s(key), m.f32s(key));
        if let Ok(Some(strings)) = m.strings(key) {
            assert_eq!(strings.iter().count(), strings.len());
        }
    }
}

fn attempt(bytes: &[u8], total: Option<u64>) {
    let (result, time, _) = measured(|| Gguf::parse(bytes, total));
    match result {
        Ok(Parsed::Done(gguf)) => ask(&gguf, total.unwrap_or(u64::MAX)),
        Ok(Parsed::More(n)) => assert!(n > bytes.len() as u64 && total.is_none_or(|total| n <= total)),
        Err(error) => assert!(error.message().len() < 2000, "{error}"),
    }
    assert!(time < Duration::from_secs(1), "{time:?}");
}

/// Each bit of the first 4 KiB of a real header flipped; and, since the whole takes milliseconds, one bit in every fourth byte of the first pairs, and
/// in some of the vocabulary that follows them, against the whole header.
#[test]
fn flipped_bits_of_a_real_header() {
    let (mut bytes, size) = models::head(models::SMOLLM2, 1_785_664);
    let mut head = bytes[..16 << 10].to_vec();
    let mut rng = Rng(6);
    for at in 0..4096 {
        for bit in 0..8 {
            head[at] ^= 1 << bit;
            attempt(&head, None);
            attempt(&head, Some(size));
            head[at] ^= 1 << bit;
        }
        if at % if at < 1536 { 4 } else { 64 } == 0 {
            let mask = 1 << rng.below(8);
            bytes[at] ^= mask;
            attempt(&bytes, Some(size));
            bytes[at] ^= mask;
        }
    }
    // And the tensor directory at its end.
    for _ in 0..200 {
        let at = bytes.len() - 1 - rng.below(16 << 10);
        let old = bytes[at];
        bytes[at] = rng.next_u64() as u8;
        attempt(&bytes, Some(size));
        bytes[at] = old;
    }
}

#[test]
fn cuts_at_every_byte_of_a_real_header() {
    let (bytes, size) = models::head(models::SMOLLM2, 4096);
    for n in 0..bytes.len() {
        assert!(Gguf::parse(&bytes[..n], Some(n as u64)).is_err(), "accepted {n} bytes");
        match Gguf::parse(&bytes[..n], Some(size)).unwrap() {
            Parsed::More(more) => assert!(more > n as u64 && more <= 1_785_664),
            Parsed::Done(_) => panic!("done after {n} bytes"),
        }
    }
}

/// Every bit of small whole files, and several changes at once.
#[test]
fn flipped_bits_of_small_files() {
    for file in [EVERYTHING.to_vec(), TinyModel { architecture: "gemma3", layers: 1, ..TinyModel::default() }.bytes()] {
        let size = file.len() as u64;
        let header = Gguf::parse_whole(&file).unwrap().data_start as usize;
        let mut bytes = file.clone();
        for at in 0..header {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                attempt(&bytes, Some(size));
                bytes[at] ^= 1 << bit;
            }
        }
        let mut rng = Rng(7);
        for _ in 0..20_000 {
            let mut bytes = file.clone();
            for _ in 0..1 + rng.below(6) {
                let at = rng.below(header);
                bytes[at] = [rng.next_u64() as u8, 0, 1, 8, 9, 0x7f, 0x80, 0xff][rng.below(8)];
            }
            bytes.truncate(if rng.below(4) == 0 { rng.below(bytes.len()) } else { bytes.len() });
            attempt(&bytes, Some(bytes.len() as u64));
        }
    }
}

fn fed(file: &[u8], total: Option<u64>, step: impl Fn(usize, u64) -> usize) -> Result<(Gguf, usize)> {
    let (mut have, mut attempts) = (0, 0);
    loop {
        attempts += 1;
        match Gguf::parse(&file[..have], total)? {
            Parsed::Done(gguf) => return Ok((*gguf, attempts)),
            Parsed::More(n) => {
                assert!(n > have as u64, "asked for {n} with {have} there");
                assert!(n <= file.len() as u64, "asked for {n}, beyond the file");
                have = step(have, n).min(file.len());
            }
        }
    }
}

#[test]
fn fed_in_pieces_it_is_the_same_header() {
    let whole = Gguf::parse_whole(EVERYTHING).unwrap();
    for total in [None, Some(EVERYTHING.len() as u64)] {
        for piece in [1, 7, 31, 4096] {
            assert_eq!(fed(EVERYTHING, total, |have, _| have + piece).unwrap().0, whole);
        }
        assert_eq!(fed(EVERYTHING, total, |_, n| n as usize).unwrap().0, whole);
    }
    // Never more than the header, which is all that anybody needs.
    for n in 0..whole.data_start as usize - 32 {
        let Ok(Parsed::More(more)) = Gguf::parse(&EVERYTHING[..n], None) else { panic!("not More at {n}") };
        assert!(more > n as u64 && more <= whole.data_start);
    }
}

/// Doubling costs a handful of attempts, and even a caller that takes each request by its word ends soon.
#[test]
fn a_real_header_in_pieces() {
    let (bytes, size) = models::head(models::SMOLLM2, 2 << 20);
    let start = Instant::now();
    let (doubled, attempts) = fed(&bytes, Some(size), |have, n| (n as usize).max(2 * have).max(1 << 16)).unwrap();
    assert!(attempts <= 8, "{attempts} attempts");
    let (exact, attempts) = fed(&bytes, None, |_, n| n as usize).unwrap();
    assert_eq!(doubled, exact);
    assert!(attempts <= 100, "{attempts} attempts");
    assert!(start.elapsed() < Duration::from_secs(10), "{attempts} attempts in {:?}", start.elapsed());
}
