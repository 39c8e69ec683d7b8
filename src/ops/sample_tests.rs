use super::*;

const OPEN: Params = Params { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 1, position: 0 };

fn sample(logits: &[f32], recent: &[u32], params: &Params) -> Option<u32> {
    reference(logits, recent, params, &mut Scratch::default())
}

fn penalized(logits: &[f32], recent: &[u32], penalty: f32) -> Vec<f32> {
    let mut row = logits.to_vec();
    let mut parts: Vec<Part> = row.chunks(BLOCK).map(Part::new).collect();
    penalize(&mut row, &mut parts, recent, penalty, &mut Vec::new(), &Plain);
    assert_eq!(parts, row.chunks(BLOCK).map(Part::new).collect::<Vec<_>>());
    row
}

/// The contract word by word, over the whole vocabulary sorted.
fn oracle(logits: &[f32], recent: &[u32], params: &Params) -> Option<u32> {
    let mut all: Vec<(u32, f32)> = logits.iter().enumerate().map(|(id, &x)| (id as u32, logit(x))).collect();
    for (id, x) in &mut all {
        if recent.contains(id) {
            *x = logit(if *x > 0.0 { *x / params.repetition_penalty } else { *x * params.repetition_penalty });
        }
    }
    // The sum of top-p over the whole vocabulary is that of the op `pick`, and that of the temperature is added up block by block.
    let row: Vec<f32> = all.iter().map(|&(_, x)| x).collect();
    let whole = row.chunks(BLOCK).map(Part::new).fold(Part::default(), Part::join).sum;
    all.retain(|&(_, x)| x > f32::NEG_INFINITY);
    all.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap().then(a.0.cmp(&b.0)));
    let best = all.first()?.1;
    let exp = |x: f32, temperature| f64::from(Weight::new(best, temperature).of(x));
    if params.temperature == 0.0 || params.top_p == 0.0 {
        return Some(all[0].0);
    }
    if params.top_k > 0 {
        all.truncate(params.top_k as usize);
    }
    if params.top_p < 1.0 {
        let mass: f64 = if params.top_k > 0 { all.iter().map(|&(_, x)| exp(x, 1.0)).sum() } else { whole };
        let (mut cumulated, mut kept) = (0.0, 0);
        for &(_, x) in &all {
            cumulated += exp(x, 1.0);
            kept += 1;
            if cumulated >= f64::from(params.top_p) * mass {
                break;
            }
        }
        all.truncate(kept);
    }
    if params.min_p > 0.0 {
        all.retain(|&(_, x)| x >= best + f64::from(params.min_p).ln() as f32);
    }
    let weights: Vec<f64> = all.iter().map(|&(_, x)| exp(x, params.temperature)).collect();
    let mut total = weights.iter().sum::<f64>();
    if params.top_k == 0 && params.top_p >= 1.0 && params.min_p <= 0.0 {
        let by_blocks: f64 = row.chunks(BLOCK).map(|block| Weight::new(best, params.temperature).sum(block)).sum();
        assert!((by_blocks / total - 1.0).abs() < 1e-12, "{by_blocks} is not {total}");
        total = by_blocks;
    }
    let goal = f64::from(uniform(params.seed, params.position)) * total;
    let mut cumulated = 0.0;
    for (&(id, _), weight) in all.iter().zip(weights) {
        cumulated += weight;
        if cumulated > goal {
            return Some(id);
        }
    }
    Some(all.last()?.0)
}

#[test]
fn a_penalty_divides_positive_and_multiplies_negative_logits() {
    assert_eq!(penalized(&[2.0, -2.0, 1.0], &[0, 1], 1.5), [2.0 / 1.5, -3.0, 1.0]);
    assert_eq!(penalized(&[2.0, -2.0, 1.0], &[0, 1], 1.0), [2.0, -2.0, 1.0]);
}

#[test]
fn a_penalty_counts_each_distinct_token_once() {
    let logits = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 8.0];
    assert_eq!(penalized(&logits, &[7, 7, 7], 2.0)[7], 4.0);
    assert_eq!(penalized(&logits, &[7, 99, u32::MAX], 2.0)[7], 4.0);
    // ... and changes what is chosen.
    let greedy = Params { temperature: 0.0, repetition_penalty: 10.0, ..OPEN };
    assert_eq!(sample(&logits, &[], &greedy), Some(7));
    assert_eq!(sample(&logits, &[7], &greedy), Some(0));
}

#[test]
fn greedy_takes_the_smallest_id_of_equals() {
    let logits = [0.0, 3.0, -1.0, 3.0, -0.0];
    for params in [Params { temperature: 0.0, ..OPEN }, Params { top_p: 0.0, ..OPEN }, Params { top_k: 1, ..OPEN }] {
        assert!(params.is_greedy());
        assert_eq!(sample(&logits, &[], &params), Some(1));
    }
    assert!(!OPEN.is_greedy());
}

#[test]
fn odd_filters_leave_one_token() {
    let (equal, mut peaked) = ([0.5f32; 300], [0.0f32; 300]);
    peaked[77] = 1e4;
    let tiny = f32::MIN_POSITIVE;
    for (top_k, top_p, min_p) in
        [(0, 0.0, 0.0), (0, 1e-9, 0.0), (0, 1.0, 1.0), (1, 1.0, 1.0), (0, 1.0, 0.0), (40, 1e-9, 1.0), (u32::MAX, 0.5, 0.5), (0, tiny, tiny)]
    {
        for temperature in [0.0, 1e-45, 0.8, 100.0, f32::INFINITY] {
            for position in 0..20 {
                let params = Params { temperature, top_k, top_p, min_p, position, ..OPEN };
                assert!(sample(&equal, &[], &params).unwrap() < 300, "{params:?}");
                assert_eq!(sample(&equal, &[], &params), oracle(&equal, &[], &params), "{params:?}");
                if temperature < 100.0 || min_p > 0.0 {
                    assert_eq!(sample(&peaked, &[], &params), Some(77), "{params:?}");
                }
            }
        }
    }
    // min-p 1 keeps everything that equals the best.
    assert_eq!(sample(&peaked, &[], &Params { min_p: 1.0, temperature: f32::INFINITY, ..OPEN }), Some(77));
}

#[test]
fn params_out_of_range_are_defined_too() {
    let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0, 0.0, 1e38, f32::MIN_POSITIVE];
    for x in bad {
        for params in [
            Params { temperature: x, ..OPEN },
            Params { top_p: x, ..OPEN },
            Params { min_p: x, ..OPEN },
            Params { repetition_penalty: x, ..OPEN },
            Params { temperature: x, top_k: 2, top_p: 0.5, min_p: x, repetition_penalty: x, ..OPEN },
        ] {
            let id = sample(&[1.0, 2.0, -3.0, 0.0], &[1, 2], &params);
            assert!(id.unwrap() < 4, "{params:?}");
        }
    }
}

/// B040: never token 0 for ever.
#[test]
fn logits_that_are_not_finite() {
    let nan = f32::NAN;
    let (inf, none) = (f32::INFINITY, f32::NEG_INFINITY);
    for temperature in [0.0, 0.8] {
        for (top_k, top_p) in [(0, 1.0), (0, 0.9), (2, 0.9)] {
            for position in 0..50 {
                let params = Params { temperature, top_k, top_p, position, ..OPEN };
                assert_eq!(sample(&[nan, none, 2.0], &[], &params), Some(2));
                assert_eq!(sample(&[none, 2.0, nan, -90.0, -nan], &[], &params), Some(1));
                assert_eq!(sample(&[1.0, inf, nan, 5.0], &[], &params), Some(1));
                assert!(matches!(sample(&[1.0, inf, nan, inf], &[], &params), Some(1 | 3)));
                assert_eq!(sample(&[nan; 40], &[], &params), None);
                assert_eq!(sample(&[none; 40], &[3], &params), None);
                assert_eq!(sample(&[], &[], &params), None);
                assert!(sample(&[inf; 40], &[3], &params).unwrap() < 40);
                assert!(sample(&[f32::MIN; 4], &[], &params).unwrap() < 4);
            }
        }
    }
}

#[test]
fn a_draw_depends_on_seed_and_position_only() {
    let logits = [0.0f32; 1000];
    let draw = |seed, position| sample(&logits, &[], &Params { seed, position, ..OPEN }).unwrap();
    let story = |seed| (0..20).map(|position| draw(seed, position)).collect::<Vec<_>>();
    assert_eq!(story(5), story(5));
    for other in [0, 1, u32::MAX] {
        assert_ne!(story(5), story(other));
    }
}

#[test]
fn each_filter_changes_what_can_be_drawn() {
    let logits: Vec<f32> = (0..100u8).map(|i| -f32::from(i) / 10.0).collect();
    let reachable = |params: Params| (0..3000).map(|position| sample(&logits, &[], &Params { position, ..params }).unwrap()).max().unwrap();
    assert!(reachable(OPEN) > 40);
    assert_eq!(reachable(Params { top_k: 5, ..OPEN }), 4);
    assert_eq!(reachable(Params { min_p: 0.5, ..OPEN }), 6); // ln 0.5 = -0.69
    assert_eq!(reachable(Params { top_p: 0.5, ..OPEN }), 6); // 1 - e^-0.7 = 0.503
    assert!(reachable(Params { temperature: 0.01, ..OPEN }) == 0);
    assert!(reachable(Params { temperature: 5.0, ..OPEN }) > 90);
}

/// Pearson's statistic against the softmax; fixed seeds, so either always or never.
#[test]
fn draws_follow_the_distribution() {
    let logits = [1.0f32, 0.0, -1.0, 0.5, 0.5, -2.0, 1.5, 0.2, -0.3, 0.9];
    for (seed, temperature) in [(1, 1.0f32), (2, 0.5), (12345, 2.0), (u32::MAX, 1.0)] {
        let mass: f64 = logits.iter().map(|&x| f64::from(x / temperature).exp()).sum();
        let draws = 20_000;
        let mut counts = [0.0f64; 10];
        for position in 0..draws {
            let params = Params { temperature, seed, position, ..OPEN };
            counts[sample(&logits, &[], &params).unwrap() as usize] += 1.0;
        }
        let statistic: f64 = (0..10)
            .map(|i| {
                let expected = f64::from(draws) * f64::from(logits[i] / temperature).exp() / mass;
                (counts[i] - expected).powi(2) / expected
            })
            .sum();
        // Nine degrees of freedom: 27.9 is exceeded once in a thousand.
        assert!(statistic < 27.9, "seed {seed}, temperature {temperature}: {statistic}");
    }
}

#[test]
fn nothing_is_allocated_after_the_first_call() {
    let logits = like_a_model(5000, 1);
    let window: Vec<u32> = (0..64).collect();
    let mut scratch = Scratch::default();
    reference(&logits, &window, &Params { repetition_penalty: 1.1, ..OPEN }, &mut scratch);
    let buffers = |s: &Scratch| {
        let Scratch { row, parts, keys, tops, sums, seen } = s;
        let addresses = (row.as_ptr(), parts.as_ptr(), keys.as_ptr(), tops.as_ptr(), sums.as_ptr(), seen.as_ptr());
        (addresses, [row.capacity(), parts.capacity(), keys.capacity(), tops.capacity(), sums.capacity(), seen.capacity()])
    };
    let before = buffers(&scratch);
    for position in 0..50 {
        for (top_k, top_p, min_p) in [(0, 1.0, 0.0), (0, 0.99, 0.0), (40, 0.95, 0.05), (4000, 1.0, 0.0)] {
            let params = Params { temperature: 30.0, top_k, top_p, min_p, repetition_penalty: 1.1, position, ..OPEN };
            reference(&logits, &window, &params, &mut scratch);
        }
    }
    assert_eq!(before, buffers(&scratch));
}

/// Logits like a model's: a few far above a wide bell.
fn like_a_model(n: usize, seed: u32) -> Vec<f32> {
    let bell = |i: u32| (0..6).map(|j| super::super::philox::philox4x32_10([i, j, 1, 0], [seed, 9])[0] as f32 / u32::MAX as f32 - 0.5).sum::<f32>();
    (0..n as u32).map(|i| 4.0 * bell(i) + if i % 9973 == 17 { 12.0 } else { 0.0 }).collect()
}

#[test]
fn a_vocabulary_of_262144_equals_the_oracle() {
    let logits = like_a_model(262_144, 3);
    let flat: Vec<f32> = logits.iter().map(|x| (x * 4.0).round() / 400.0).collect();
    let mut scratch = Scratch::default();
    for logits in [&logits, &flat] {
        for (top_k, top_p, min_p) in [(0, 0.95, 0.05), (40, 0.95, 0.05), (0, 1.0, 0.0), (0, 0.9, 0.0), (70_000, 0.9, 0.0)] {
            for position in 0..3 {
                let params = Params { temperature: 0.8, top_k, top_p, min_p, repetition_penalty: 1.2, position, ..OPEN };
                let recent = [17, 9990, 17, 4];
                assert_eq!(reference(logits, &recent, &params, &mut scratch), oracle(logits, &recent, &params), "{params:?}");
            }
        }
    }
}

/// Sizes around those of blocks and vectors, and rows that a filter's border could fall into.
#[test]
fn awkward_sizes_and_borders_equal_the_oracle() {
    let mut scratch = Scratch::default();
    for n in [1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 255, 256, 257, 511, 1025, 49_152] {
        let model = like_a_model(n, 5);
        let with = |at: usize, x: f32| {
            let mut row = model.clone();
            row[at] = x;
            row
        };
        let rows = [
            vec![0.25; n],
            vec![-0.0; n],
            vec![f32::MIN; n],
            with(n / 2, 1e4),
            with(n - 1, f32::INFINITY),
            with(0, f32::NAN),
            // all but a few without a chance
            model.iter().enumerate().map(|(i, &x)| if i % 97 == n % 97 || i + 1 == n { x } else { f32::NEG_INFINITY }).collect(),
            // ties everywhere, so at every border
            model.iter().map(|x| (x / 4.0).round() * 4.0).collect(),
            (0..n).map(|i| -(i as f32) / 8.0).collect(),
            (0..n).map(|i| if i % 2 == 0 { 1e30 } else { -1e30 }).collect(),
            model,
        ];
        for (i, row) in rows.iter().enumerate() {
            for (top_k, top_p, min_p) in
                [(0, 1.0, 0.0), (0, 0.95, 0.0), (0, 0.999_999_9, 0.0), (0, 0.5, 0.05), (40, 0.95, 0.0), (300, 1.0, 0.01), (0, 1.0, 1e-6)]
            {
                for (temperature, repetition_penalty, position) in [(0.0, 1.3, 0), (0.8, 1.0, 1), (1.0, 1.3, 2), (3.0, 1.0, 3)] {
                    let params = Params { temperature, top_k, top_p, min_p, repetition_penalty, position, ..OPEN };
                    let recent = [0, 3, n as u32 / 2, n as u32 - 1, 3, n as u32];
                    assert_eq!(reference(row, &recent, &params, &mut scratch), oracle(row, &recent, &params), "row {i} of {n}, {params:?}");
                }
            }
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod random {
    use super::*;
    use proptest::prelude::*;

    fn params() -> impl Strategy<Value = Params> {
        let part = || prop_oneof![Just(0.0f32), Just(1.0), 0.0f32..1.0, 0.9f32..1.0, 0.0f32..0.1];
        let temperature = prop_oneof![Just(0.0f32), 0.01f32..3.0, Just(100.0)];
        let top_k = prop_oneof![Just(0u32), Just(0), 1u32..50, 1u32..6000];
        (temperature, top_k, part(), part(), 0.5f32..2.0, any::<u32>(), any::<u32>()).prop_map(
            |(temperature, top_k, top_p, min_p, repetition_penalty, seed, position)| Params {
                temperature,
                top_k,
                top_p,
                min_p,
                repetition_penalty,
                seed,
                position,
            },
        )
    }

    fn logits() -> impl Strategy<Value = Vec<f32>> {
        // Fine and coarse (many equals), rising and falling, some not finite.
        let value = prop_oneof![30 => -20.0f32..20.0, 1 => Just(f32::NAN), 1 => Just(f32::NEG_INFINITY), 1 => Just(-0.0f32)];
        (prop::collection::vec(value, 1..5000), prop_oneof![Just(0.0f32), Just(0.25), Just(1.0), Just(1e30)], 0..3u8, prop::bool::weighted(0.05))
            .prop_map(|(mut values, step, order, infinite)| {
                if step > 0.0 {
                    values.iter_mut().for_each(|x| *x = (*x / step).round() * step);
                }
                match order {
                    0 => values.sort_by(f32::total_cmp),
                    1 => values.sort_by(|a, b| b.total_cmp(a)),
                    _ => {}
                }
                if infinite {
                    let middle = values.len() / 2;
                    values[middle] = f32::INFINITY;
                }
                values
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn equals_the_sorting_oracle(logits in logits(), params in params(), recent in prop::collection::vec(0u32..5000, 0..70)) {
            prop_assert_eq!(sample(&logits, &recent, &params), oracle(&logits, &recent, &params));
        }
    }
}
