//! Products and the embedding, for every format.

use rillm::backend::{Backend, Ids};
use rillm::ops::{embed, linear};
use rillm::quant::Format;
use rillm::quant::testing::half_offsets;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test;

use crate::common::Random;
use crate::common::blocks::random_rows;
use crate::device::{cpus, distance, on_every_device, product, same_bits};

fn floats(format: Format) -> bool {
    matches!(format, Format::F32 | Format::F16 | Format::BF16)
}

/// The K types' scales are rounded to f16 in our packed form.
fn rounded(format: Format) -> bool {
    matches!(format, Format::Q4_K | Format::Q5_K | Format::Q6_K)
}

#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn linear_equals_its_reference_for_every_format_and_awkward_sizes() {
    let mut random = Random::new(1);
    for format in Format::ALL {
        let block = format.block_len();
        let sizes: &[(usize, usize)] = if block == 1 { &[(1, 1), (5, 31), (7, 33), (12, 576)] } else { &[(1, 1), (5, 3), (33, 2), (64, 7)] };
        for &(rows, per) in sizes {
            let cols = per * block;
            let (bytes, w) = random_rows(&mut random, format, rows, cols);
            for tokens in [1, 2, 3, 4, 5, 9] {
                let x_values: Vec<f32> = (0..tokens * cols).map(|_| random.normal() * 3.0).collect();
                let mut seen = None;
                on_every_device!(b => {
                    let mut right = vec![0.0; tokens * rows];
                    linear::reference(&x_values, &w, &mut right, &product(&b, format, rows, cols));
                    let t = b.matrix(format, rows, cols, &bytes);
                    let out = b.device.slot(rows);
                    let x = b.filled(cols, &x_values);
                    b.device.linear(x, t, out);
                    let y = b.values(out, tokens * rows);
                    // but for the rounded scales everything is exact except the order of the sums
                    let limit = b.limit(if rounded(format) { 1e-3 } else { 1e-6 });
                    same_bits(&b, &mut seen, &y, "linear");
                    for (i, (&y, &right)) in y.iter().zip(&right).enumerate() {
                        let (x, w) = (&x_values[i / rows * cols..][..cols], &w[i % rows * cols..][..cols]);
                        let size: f32 = x.iter().zip(w).map(|(x, w)| (x * w).abs()).sum();
                        let d = f64::from((y - right).abs() / size);
                        assert!(d < limit, "{format:?} {rows}x{cols}, {tokens} tokens, {}: {d}", b.name());
                    }
                });
            }
        }
    }
}

/// Sums of a few products are gathered in as few bits as hold them: here they are the largest that there can be, of either sign.
#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn the_largest_products_fit() {
    let mut random = Random::new(8);
    for format in Format::ALL.into_iter().filter(|&f| !floats(f)) {
        let (rows, cols, tokens) = (9, 512, 5);
        for weight in [0xff, 0x80, 0x7f, 0x00] {
            let (mut bytes, mut w) = random_rows(&mut random, format, rows, cols);
            for block in bytes.chunks_exact_mut(format.block_bytes()) {
                let halves = half_offsets(format);
                (0..block.len()).filter(|at| !halves.iter().any(|h| (h..&(h + 2)).contains(&at))).for_each(|at| block[at] = weight);
            }
            format.dequantize(&bytes, &mut w);
            for sign in [1.0, -1.0] {
                let x_values = vec![127.0 * sign; tokens * cols];
                let mut right = vec![0.0; tokens * rows];
                let mut seen = None;
                for mut b in cpus() {
                    linear::reference(&x_values, &w, &mut right, &product(&b, format, rows, cols));
                    let t = b.matrix(format, rows, cols, &bytes);
                    let out = b.device.slot(rows);
                    let x = b.filled(cols, &x_values);
                    b.device.linear(x, t, out);
                    let y = b.values(out, tokens * rows);
                    same_bits(&b, &mut seen, &y, "linear");
                    let d = distance(&y, &right);
                    assert!(d < 1e-3, "{format:?} of {weight:#x}, {}: {d}", b.name());
                }
            }
        }
    }
}

#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn a_token_gets_the_same_bits_alone_and_among_others() {
    let mut random = Random::new(2);
    for format in Format::ALL {
        let (rows, cols) = (37, 512);
        let (bytes, _) = random_rows(&mut random, format, rows, cols);
        let x: Vec<f32> = (0..23 * cols).map(|_| random.normal()).collect();
        for mut b in cpus() {
            let t = b.matrix(format, rows, cols, &bytes);
            let out = b.device.slot(rows);
            let all = b.filled(cols, &x);
            b.device.linear(all, t, out);
            let together = b.values(out, 23 * rows);
            for (token, x) in x.chunks_exact(cols).enumerate() {
                let one = b.filled(cols, x);
                b.device.linear(one, t, out);
                assert_eq!(b.values(out, rows), together[token * rows..][..rows], "{format:?}");
            }
        }
    }
}

#[cfg_attr(not(target_arch = "wasm32"), test)]
#[cfg_attr(target_arch = "wasm32", wasm_bindgen_test)]
fn embed_gives_the_dequantized_rows() {
    let mut random = Random::new(3);
    for format in Format::ALL {
        let (rows, cols) = (9, if floats(format) { 33 } else { 256 });
        let (bytes, w) = random_rows(&mut random, format, rows, cols);
        let ids = [8, 0, 3, 3];
        for scale in [1.0, 24.0] {
            let p = embed::Params { scale };
            let mut right = vec![0.0; ids.len() * cols];
            embed::reference(&w, &ids, &mut right, &p);
            on_every_device!(b => {
                let t = b.matrix(format, rows, cols, &bytes);
                let out = b.device.slot(cols);
                b.device.begin(ids.len()).unwrap();
                b.device.embed(t, Ids::Host(&ids), out, &p);
                let d = distance(&b.values(out, right.len()), &right);
                assert!(d < if rounded(format) { 6e-4 } else { 1e-7 }, "{format:?}: {d}");
            });
        }
    }
}
