#!/usr/bin/env python3
"""Makes the small GGUF fixtures beside it with an outside tool, so that reader and writer can't share a mistake.

    pip install gguf==0.19.0 && python3 tests/data/make_gguf.py

gguf-py.gguf        version 3: a value of every type, tensors of every format, each with `NAME.f32`, gguf-py's reading of it
gguf-py-v2.gguf     three tensors, general.alignment = 64, as version 2
gguf-py-align64.gguf  the same three as version 3
gguf-py-big-endian.gguf  the same three, big-endian
"""

from pathlib import Path

import numpy as np
import gguf
import gguf.gguf_writer
from gguf import GGMLQuantizationType as T, GGUFEndian, GGUFWriter
from gguf.quants import dequantize, quantize

HERE = Path(__file__).parent
rng = np.random.default_rng(20)


def write(name, fill, version=3, endianess=GGUFEndian.LITTLE):
    gguf.gguf_writer.GGUF_VERSION = version
    writer = GGUFWriter(HERE / name, "llama", endianess=endianess)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def k_blocks(kind, scale_offsets):
    """Random blocks with plausible scales: gguf-py reads k-quants but does not make them."""
    size = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = rng.integers(0, 256, (1, size), dtype=np.uint8)
    for at in scale_offsets:
        scales = rng.uniform(-0.1, 0.1, (1, 1)).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8)
    return blocks


def everything(w):
    w.add_uint8("test.u8", 200)
    w.add_int8("test.i8", -100)
    w.add_uint16("test.u16", 60_000)
    w.add_int16("test.i16", -30_000)
    w.add_uint32("test.u32", 4_000_000_000)
    w.add_int32("test.i32", -2_000_000_000)
    w.add_uint64("test.u64", 2**63)
    w.add_int64("test.i64", -(2**63))
    w.add_float32("test.f32", 0.1)
    w.add_float64("test.f64", 0.1)
    w.add_bool("test.bool", True)
    w.add_string("test.string", "Rinnsal, ruisseau, 小川, 🏞")
    w.add_array("test.strings", ["a", "", "ö", "🏞"])
    w.add_array("test.i32s", [-1, 0, 1])
    w.add_array("test.f32s", [0.5, -0.25])
    w.add_array("test.bools", [True, False])
    for kind in [T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0]:
        values = rng.normal(0, 0.05, (1, 32)).astype(np.float32)
        data = quantize(values, kind)
        raw = None if kind in (T.F32, T.F16) else kind
        w.add_tensor(kind.name, data, raw_dtype=raw)
        w.add_tensor(kind.name + ".f32", dequantize(data, kind))
    for kind, offsets in [(T.Q4_K, [0, 2]), (T.Q5_K, [0, 2]), (T.Q6_K, [208])]:
        data = k_blocks(kind, offsets)
        w.add_tensor(kind.name, data, raw_dtype=kind)
        w.add_tensor(kind.name + ".f32", dequantize(data, kind))


def three(w):
    w.add_custom_alignment(64)
    for i in range(3):
        w.add_tensor(f"t{i}", np.full((1, 5), i + 1, dtype=np.float32))


write("gguf-py.gguf", everything)
write("gguf-py-v2.gguf", three, version=2)
write("gguf-py-align64.gguf", three)
write("gguf-py-big-endian.gguf", three, endianess=GGUFEndian.BIG)
