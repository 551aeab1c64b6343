"""Writes by PyPI's package gguf: tests/small.gguf, with keys of every type, and tensors of the types that
ablate takes and of one that it does not; and data/weights.gguf, a tensor for experiments/quantised_model.ini.

    python write_gguf.py SMALL.gguf WEIGHTS.gguf"""

import sys

import gguf
import numpy as np

TYPES = gguf.GGMLQuantizationType
FIELDS = gguf.GGUFValueType
# Byte of a block where an fp16 scale begins: random ones would be infinite or huge.
SCALES = {TYPES.Q8_0: [0], TYPES.Q4_K: [0, 2], TYPES.Q5_K: [0, 2], TYPES.Q6_K: [208]}


def random_blocks(random, kind, rows, columns):
    """Rows of random bytes, but for the scales: fp16 from 2^-10 to 2^-8, of both signs."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (rows * columns // block, size), np.uint8)
    for at in SCALES[kind]:
        scales = random.uniform(2**-10, 2**-8, len(blocks)) * random.choice([-1, 1], len(blocks))
        blocks[:, at:at + 2] = scales.astype("<f2").view(np.uint8).reshape(-1, 2)
    return blocks.reshape(rows, -1)


def weights(file):
    """Heavy tails, and a column of outliers, as weights of models have them."""
    random = np.random.default_rng(7)
    w = 0.02 * random.standard_t(5, (64, 1024)).astype(np.float32)
    w[:, 300] *= 8
    to = gguf.GGUFWriter(file, "llama")
    to.add_name("weights")
    to.add_tensor("blk.0.ffn_down.weight", gguf.quants.quantize(w, TYPES.BF16), raw_dtype=TYPES.BF16)
    close(to)


def close(to):
    to.write_header_to_file()
    to.write_kv_data_to_file()
    to.write_tensors_to_file()
    to.close()


def small(file):
    random = np.random.default_rng(42)
    to = gguf.GGUFWriter(file, "llama")
    to.add_name("small")
    to.add_custom_alignment(64)
    for kind in (FIELDS.UINT8, FIELDS.INT8, FIELDS.UINT16, FIELDS.INT16, FIELDS.UINT32, FIELDS.INT32,
                 FIELDS.UINT64, FIELDS.INT64):
        to.add_key_value(f"test.{kind.name.lower()}", 7, kind)
    to.add_key_value("test.float32", 0.5, FIELDS.FLOAT32)
    to.add_key_value("test.float64", 0.25, FIELDS.FLOAT64)
    to.add_bool("test.bool", True)
    to.add_array("test.strings", ["a", "", "bc"])
    to.add_array("test.numbers", [1, 2, 3])

    plain = random.standard_normal((3, 40)).astype(np.float32)
    to.add_tensor("plain.f32", plain)
    to.add_tensor("plain.f16", plain.astype(np.float16))
    to.add_tensor("plain.bf16", gguf.quants.quantize(plain, TYPES.BF16), raw_dtype=TYPES.BF16)
    to.add_tensor("norm.weight", np.ones(5, np.float32))
    to.add_tensor("experts", random.standard_normal((2, 3, 4)).astype(np.float32))
    for kind, rows, columns in ((TYPES.Q4_K, 3, 512), (TYPES.Q5_K, 2, 256), (TYPES.Q6_K, 3, 512),
                                (TYPES.Q8_0, 5, 96)):
        to.add_tensor(f"blk.0.{kind.name.lower()}", random_blocks(random, kind, rows, columns),
                      raw_dtype=kind)
    to.add_tensor("blk.0.q4_0", gguf.quants.quantize(plain[:, :32], TYPES.Q4_0), raw_dtype=TYPES.Q4_0)
    close(to)


if __name__ == "__main__":
    small(sys.argv[1])
    weights(sys.argv[2])
