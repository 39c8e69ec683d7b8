//! `norm_linear`: add what is pending to the residual stream, normalize, and multiply with one to three matrices.
//!
//! The normalization is RMSNorm (Zhang and Sennrich 2019, <https://arxiv.org/abs/1910.07467>): x / sqrt(mean(x^2) + eps) * weight.
//! With an activation there are two matrices, gate and up, and one output: activation(gate) * up
//! (SwiGLU and GeGLU, Shazeer 2020, <https://arxiv.org/abs/2002.05202>).

use super::linear;

/// What is applied to the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// x / (1 + exp(-x))
    Silu,
    /// GELU in its tanh form (Hendrycks and Gimpel 2016, <https://arxiv.org/abs/1606.08415>): with
    /// u = sqrt(2 / pi) (x + 0.044715 x^3) it is x / 2 (1 + tanh u), which is x / (1 + exp(-2 u)).
    Gelu,
}

/// sqrt(2 / pi)
pub const GELU_LINEAR: f32 = 0.797_884_6;
/// What the cube counts for in GELU's tanh form.
pub const GELU_CUBIC: f32 = 0.044_715;

impl Activation {
    /// The function.
    pub fn apply(self, x: f32) -> f32 {
        match self {
            Activation::Silu => x / (1.0 + (-x).exp()),
            Activation::Gelu => x / (1.0 + (-2.0 * GELU_LINEAR * x * (1.0 + GELU_CUBIC * x * x)).exp()),
        }
    }
}

/// The plain numbers of a `norm_linear`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Params {
    /// What keeps the norm from dividing by zero.
    pub eps: f32,
    /// Whether the outputs are gate and up, to be joined into the first.
    pub activation: Option<Activation>,
}

/// RMSNorm of one row, in f64.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let mean = x.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / x.len() as f64;
    let by = 1.0 / (mean + f64::from(eps)).sqrt();
    x.iter().zip(weight).map(|(&v, &w)| (f64::from(v) * by * f64::from(w)) as f32).collect()
}

/// What waits to be added to the residual: `[tokens, dim]`, and the weights `[dim]` of the norm it goes through first, if it has one.
pub type Pending<'a> = (&'a [f32], Option<&'a [f32]>);

/// Adds what is pending to the residual `x` `[tokens, dim]`.
pub fn settle(x: &mut [f32], (pending, norm): Pending, eps: f32) {
    match norm {
        None => x.iter_mut().zip(pending).for_each(|(x, y)| *x += y),
        Some(weight) => {
            let normed = pending.chunks_exact(weight.len()).flat_map(|row| rms_norm(row, weight, eps));
            x.iter_mut().zip(normed).for_each(|(x, y)| *x += y);
        }
    }
}

/// `x`: `[tokens, dim]`, becomes the new residual; `pending`: what is added first; `weight`: `[dim]`;
/// `matrices`: dequantized [rows, dim] with their parameters. Returns an output [tokens, rows] for each (one with an activation).
pub fn reference(x: &mut [f32], pending: Option<Pending>, weight: &[f32], matrices: &[(&[f32], linear::Params)], p: &Params) -> Vec<Vec<f32>> {
    if let Some(pending) = pending {
        settle(x, pending, p.eps);
    }
    let normed: Vec<f32> = x.chunks_exact(weight.len()).flat_map(|row| rms_norm(row, weight, p.eps)).collect();
    let mut outputs: Vec<Vec<f32>> = Vec::new();
    for (w, lp) in matrices {
        let mut y = vec![0.0; normed.len() / lp.cols * lp.rows];
        linear::reference(&normed, w, &mut y, lp);
        outputs.push(y);
    }
    if let Some(activation) = p.activation {
        let up = outputs.pop().unwrap_or_default();
        outputs[0].iter_mut().zip(up).for_each(|(gate, up)| *gate = activation.apply(*gate) * up);
    }
    outputs
}
