"""Writes tests/small.gguf by PyPI's package gguf: keys of every type, and tensors of the types that
ablate takes and of one that it does not.

    python write_gguf.py FILE.gguf"""

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


def main(file):
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
    to.write_header_to_file()
    to.write_kv_data_to_file()
    to.write_tensors_to_file()
    to.close()


if __name__ == "__main__":
    main(sys.argv[1])
