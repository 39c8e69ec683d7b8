//! What a test of one operation needs of a device: to put numbers in and to take them out.

#[cfg(all(feature = "candle", not(target_arch = "wasm32")))]
use rillm::backend::candle::Candle;
use rillm::backend::cpu::{Cpu, Variant};
use rillm::backend::{Backend, Kind, Slot, Tensor, TensorSpec};
use rillm::quant::Format;

/// A device whose buffers a test can fill and look at.
pub trait Device: Backend {
    /// Whether it computes as the references do: int8 activations, f16 scales, bits that any instruction set gives. Others may differ from a
    /// float computation by 2 %.
    const EXACT: bool;
    fn values(&mut self, slot: Slot) -> Vec<f32>;
    fn fill(&mut self, slot: Slot, values: &[f32]);
}

impl Device for Cpu {
    const EXACT: bool = true;
    fn values(&mut self, slot: Slot) -> Vec<f32> {
        self.slot_mut(slot).to_vec()
    }
    fn fill(&mut self, slot: Slot, values: &[f32]) {
        self.slot_mut(slot)[..values.len()].copy_from_slice(values);
    }
}

#[cfg(all(feature = "candle", not(target_arch = "wasm32")))]
impl Device for Candle {
    const EXACT: bool = false;
    fn values(&mut self, slot: Slot) -> Vec<f32> {
        Candle::values(self, slot).unwrap()
    }
    fn fill(&mut self, slot: Slot, values: &[f32]) {
        Candle::fill(self, slot, values).unwrap();
    }
}

/// A device under test.
pub struct Bench<D> {
    pub device: D,
}

impl<D: Device> Bench<D> {
    pub fn matrix(&mut self, format: Format, rows: usize, cols: usize, bytes: &[u8]) -> Tensor {
        let spec = TensorSpec { name: "w", format, rows, cols, kind: Kind::Matrix };
        let t = self.device.tensor(&spec).unwrap();
        // in strips of different heights, as a loader does
        let row = bytes.len() / rows;
        let mut at = 0;
        for height in [1, 2, 5, 64].into_iter().cycle() {
            let end = (at + height).min(rows);
            self.device.upload(t, at..end, &bytes[at * row..end * row]).unwrap();
            at = end;
            if at == rows {
                return t;
            }
        }
        unreachable!()
    }

    pub fn vector(&mut self, values: &[f32]) -> Tensor {
        let spec = TensorSpec { name: "norm", format: Format::F32, rows: 1, cols: values.len(), kind: Kind::Vector };
        let t = self.device.tensor(&spec).unwrap();
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.device.upload(t, 0..1, &bytes).unwrap();
        t
    }

    pub fn filled(&mut self, width: usize, values: &[f32]) -> Slot {
        let slot = self.device.slot(width);
        self.device.begin(values.len() / width).unwrap();
        self.device.fill(slot, values);
        slot
    }

    /// What a buffer holds, after what was asked for is done.
    pub fn values(&mut self, slot: Slot, n: usize) -> Vec<f32> {
        let _ = pollster::block_on(self.device.read()).unwrap();
        self.device.values(slot)[..n].to_vec()
    }

    /// How far a result may be off: so much on a device that computes as the references do.
    pub fn limit(&self, exact: f64) -> f64 {
        if D::EXACT { exact } else { 0.02 }
    }

    pub fn name(&self) -> String {
        format!("{:?}", self.device.describe())
    }
}

pub fn cpus() -> impl Iterator<Item = Bench<Cpu>> {
    Variant::available().into_iter().map(|v| Bench { device: Cpu::new(v) })
}

#[cfg(all(feature = "candle", not(target_arch = "wasm32")))]
pub fn candle() -> Bench<Candle> {
    Bench { device: Candle::new("cpu").unwrap() }
}

/// Runs a block for every device, `$b` being its `Bench`.
macro_rules! on_every_device {
    ($b:ident => $block:block) => {
        for mut $b in crate::device::cpus() $block
        #[cfg(all(feature = "candle", not(target_arch = "wasm32")))]
        {
            let mut $b = crate::device::candle();
            $block
        }
    };
}
pub(crate) use on_every_device;

/// The relative distance of two vectors in the L2 norm.
pub fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let sum = |f: &dyn Fn(f64, f64) -> f64| a.iter().zip(b).map(|(&a, &b)| f(f64::from(a), f64::from(b))).sum::<f64>();
    (sum(&|a, b| (a - b).powi(2)) / sum(&|_, b| b * b).max(1e-30)).sqrt()
}

/// The bits that one instruction set gave are those that the next one gives.
pub fn same_bits<D: Device>(_: &Bench<D>, seen: &mut Option<Vec<u32>>, now: &[f32], what: &str) {
    if !D::EXACT {
        return;
    }
    let bits: Vec<u32> = now.iter().map(|x| x.to_bits()).collect();
    match seen {
        None => *seen = Some(bits),
        Some(before) => assert!(*before == bits, "{what}: instruction sets differ"),
    }
}

/// The contract of a product on this device: a device that isn't exact is held against floats.
pub fn product<D: Device>(_: &Bench<D>, format: Format, rows: usize, cols: usize) -> rillm::ops::linear::Params {
    let p = rillm::ops::linear::Params::new(format, rows, cols);
    rillm::ops::linear::Params { int8: p.int8 && D::EXACT, ..p }
}
