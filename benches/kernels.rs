//! The kernels by themselves, one thread: `cargo bench --profile dev --features cli,candle,tokenizer-json --bench kernels`, with a filter behind
//! `--` (say `linear/Q4_K`). Profile and features are those of the tests, whose dependencies are built already. Rates are multiply-adds for products
//! and attention, logits for the sampler.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rillm::backend::cpu::{Cpu, Variant};
use rillm::backend::{Backend, CacheSpec, Kind, KvType, Slot, Tensor, TensorSpec};
use rillm::ops::rope_append::{Pairs, Rope};
use rillm::ops::{attend, rope_append, sample};
use rillm::quant::Format;
use rillm::quant::testing::{Rng, random_blocks};

/// Numbers that only have to be of an ordinary size.
fn numbers(n: usize) -> impl Iterator<Item = f32> {
    (0..n).map(|i| ((i * 2_654_435_761) >> 7 & 1023) as f32 / 512.0 - 1.0)
}

fn matrix(cpu: &mut Cpu, format: Format, rows: usize, cols: usize) -> Tensor {
    let bytes = random_blocks(format, rows * cols / format.block_len(), &mut Rng(1));
    let spec = TensorSpec { name: "w", format, rows, cols, kind: Kind::Matrix };
    let t = cpu.tensor(&spec).unwrap();
    cpu.upload(t, 0..rows, &bytes).unwrap();
    t
}

fn filled(cpu: &mut Cpu, width: usize, tokens: usize) -> Slot {
    let slot = cpu.slot(width);
    cpu.begin(tokens).unwrap();
    cpu.slot_mut(slot).iter_mut().zip(numbers(width * tokens)).for_each(|(to, x)| *to = x);
    slot
}

/// One token (decode), four (speculation), 32 (a bite of prefill), with a matrix that no cache holds.
fn linear(c: &mut Criterion) {
    let (rows, cols) = (8192, 2048);
    for format in [Format::Q4_0, Format::Q4_1, Format::Q4_K, Format::Q5_K, Format::Q6_K, Format::Q8_0, Format::F16] {
        let mut group = c.benchmark_group(format!("linear/{format:?}"));
        for variant in Variant::available() {
            let mut cpu = Cpu::new(variant);
            let w = matrix(&mut cpu, format, rows, cols);
            for tokens in [1, 4, 32] {
                let (x, y) = (filled(&mut cpu, cols, tokens), cpu.slot(rows));
                cpu.begin(tokens).unwrap();
                group.throughput(Throughput::Elements((rows * cols * tokens) as u64));
                group.bench_function(BenchmarkId::new(variant.name(), tokens), |b| b.iter(|| cpu.linear(x, w, y)));
            }
        }
    }
}

/// SmolLM2's and Gemma 3's heads: a token at 4,000 positions, and 32 at 2,000; over each type of cache.
fn attention(c: &mut Criterion) {
    let heads = [("9x64", 9, 3, 64), ("4x256", 4, 1, 256)];
    for ((name, heads, kv_heads, head_dim), kv_type) in heads.into_iter().flat_map(|h| KvType::ALL.map(|t| (h, t))) {
        let mut group = c.benchmark_group(format!("attend/{name}/{}", kv_type.name()));
        for variant in Variant::available() {
            for (tokens, start) in [(1, 3999), (32, 1968)] {
                let mut cpu = Cpu::new(variant);
                cpu.cache(&CacheSpec { layers: 1, positions: 4000, kv_heads, head_dim, kv_type }).unwrap();
                let rope = Rope { dim: head_dim, base: 10_000.0, scale: 1.0, factors: Vec::new(), pairs: Pairs::Halves };
                let [q, k] = [heads, kv_heads].map(|h| filled(&mut cpu, h * head_dim, 4000));
                cpu.begin(4000).unwrap();
                cpu.rope_append(0, q, k, k, None, &rope_append::Params { start: 0, heads, kv_heads, head_dim, rope, eps: 1e-6 });
                let out = cpu.slot(heads * head_dim);
                cpu.begin(tokens).unwrap();
                let p = attend::Params { start, heads, kv_heads, head_dim, scale: 0.1, window: None };
                group.throughput(Throughput::Elements((2 * heads * head_dim * tokens * (start + tokens / 2 + 1)) as u64));
                group.bench_function(BenchmarkId::new(variant.name(), tokens), |b| b.iter(|| cpu.attend(0, q, out, &p)));
            }
        }
    }
}

/// Logits like a model's after ordinary text: a bell of that width, and a few above it. The nucleus of top-p 0.95 is 1,400 tokens for Gemma 3 270M's
/// vocabulary and 2,700 for SmolLM2's: real text has more in one step of ten, and 200 and 400 in half of them.
fn logits(vocabulary: usize, width: f32, above: [f32; 4]) -> Vec<f32> {
    let mut random = Rng(7);
    let mut uniform = || (random.next_u64() >> 40) as f32 / 16_777_216.0;
    let mut logits: Vec<f32> = (0..vocabulary).map(|_| width * ((0..12).map(|_| uniform()).sum::<f32>() - 6.0)).collect();
    for (at, x) in [17, 9_990, 33_333, 40_000].into_iter().zip(above) {
        logits[at] = x;
    }
    logits
}

/// What follows the product with the output matrix: Gemma's vocabulary and SmolLM2's, and every usual combination of options. Each step has
/// another position, so another random number.
fn sampler(c: &mut Criterion) {
    let greedy = sample::Params { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 1, position: 0 };
    let temperature = sample::Params { temperature: 0.8, ..greedy };
    let top_p = sample::Params { top_p: 0.95, ..temperature };
    let options = [
        ("greedy", greedy),
        ("temperature", temperature),
        ("top-p", top_p),
        ("top-k, top-p", sample::Params { top_k: 40, ..top_p }),
        ("min-p", sample::Params { min_p: 0.05, ..temperature }),
        ("penalty", sample::Params { repetition_penalty: 1.1, ..greedy }),
        ("penalty, temperature", sample::Params { repetition_penalty: 1.1, ..temperature }),
        ("penalty, top-p", sample::Params { repetition_penalty: 1.1, ..top_p }),
        ("penalty, top-k, top-p", sample::Params { repetition_penalty: 1.1, top_k: 40, ..top_p }),
    ];
    let recent: Vec<u32> = (0..64).map(|i| i * 601).collect();
    for (vocabulary, width, above) in [(262_144, 4.2, [20.5, 19.0, 18.0, 17.0]), (49_152, 3.1, [15.0, 13.5, 12.5, 11.5])] {
        let mut group = c.benchmark_group(format!("sample/{vocabulary}"));
        group.throughput(Throughput::Elements(vocabulary as u64));
        let mut cpu = Cpu::default();
        *cpu.row_mut() = logits(vocabulary, width, above);
        for (name, params) in &options {
            let mut position = 0;
            group.bench_function(*name, |b| {
                b.iter(|| {
                    position += 1;
                    cpu.draw(&sample::Params { position, ..*params }, &recent).unwrap()
                })
            });
        }
    }
}

criterion_group! {
    name = kernels;
    config = Criterion::default().sample_size(20).warm_up_time(std::time::Duration::from_millis(200)).measurement_time(std::time::Duration::from_millis(800)).without_plots();
    targets = linear, attention, sampler
}
criterion_main!(kernels);
