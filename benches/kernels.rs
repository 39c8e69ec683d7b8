//! The kernels by themselves, one thread: `cargo bench --profile dev --features cli,candle,tokenizer-json --bench kernels`, with a filter behind
//! `--` (say `linear/Q4_K`). Profile and features are those of the tests, whose dependencies are built already. Rates are multiply-adds for products
//! and attention, logits for the sampler.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pollster::block_on;
use rillm::backend::cpu::{Cpu, Variant};
use rillm::backend::{Backend, CacheSpec, Kind, KvType, Residual, Slot, Tensor, TensorSpec, Want};
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

fn vector(cpu: &mut Cpu, n: usize) -> Tensor {
    let spec = TensorSpec { name: "norm", format: Format::F32, rows: 1, cols: n, kind: Kind::Vector };
    let t = cpu.tensor(&spec).unwrap();
    cpu.upload(t, 0..1, &numbers(n).flat_map(f32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
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

/// The token after Gemma's 262,144 logits, top-k off: the whole step, and the product alone that it contains.
fn sampler(c: &mut Criterion) {
    let (vocabulary, dim) = (262_144, 32);
    let mut group = c.benchmark_group("sample/262144");
    group.throughput(Throughput::Elements(vocabulary as u64));
    let mut cpu = Cpu::default();
    let (w, norm, x) = (matrix(&mut cpu, Format::Q8_0, vocabulary, dim), vector(&mut cpu, dim), filled(&mut cpu, dim, 1));
    let residual = Residual { x, pending: None, sum: x };
    let ordinary = sample::Params { temperature: 0.8, top_k: 0, top_p: 0.95, min_p: 0.05, repetition_penalty: 1.1, seed: 1, position: 7 };
    let plain = sample::Params { top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, ..ordinary };
    let recent: Vec<u32> = (0..64).collect();
    let wants = [
        ("logits", Want::Logits),
        ("greedy", Want::Picks { rows: &[0], targets: &[] }),
        ("temperature", Want::Sample { params: &plain, recent: &[] }),
        ("top-p, min-p, penalty", Want::Sample { params: &ordinary, recent: &recent }),
    ];
    for (name, want) in wants {
        group.bench_function(name, |b| {
            b.iter(|| {
                cpu.sample(residual, norm, w, 1e-6, &want);
                block_on(cpu.read()).unwrap()
            })
        });
    }
}

criterion_group! {
    name = kernels;
    config = Criterion::default().sample_size(20).warm_up_time(std::time::Duration::from_millis(200)).measurement_time(std::time::Duration::from_millis(800)).without_plots();
    targets = linear, attention, sampler
}
criterion_main!(kernels);
