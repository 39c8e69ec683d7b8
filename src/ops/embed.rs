//! `embed`: token ids -> rows of the embedding table, scaled.

/// The plain numbers of an `embed`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Params {
    /// What every value is multiplied with (1 for llama, sqrt(dim) for Gemma).
    pub scale: f32,
}

/// `out[i] = scale * table[ids[i]]`. `table`: `[vocab, dim]` dequantized; `out`: `[ids, dim]`.
pub fn reference(table: &[f32], ids: &[u32], out: &mut [f32], p: &Params) {
    let dim = out.len() / ids.len().max(1);
    for (row, &id) in out.chunks_exact_mut(dim.max(1)).zip(ids) {
        let from = &table[id as usize * dim..][..dim];
        row.iter_mut().zip(from).for_each(|(x, w)| *x = w * p.scale);
    }
}
