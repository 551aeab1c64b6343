"""ablate and PyPI's package gguf unpack to the same bits: random blocks of each format, and the tensors of
a file.  Prints TAP.

    python gguf_package.py SMALL.gguf BLOCKS"""

import os
import subprocess
import sys

import ablate
import gguf
import h5py
import numpy as np
import write_gguf

TYPES = gguf.GGMLQuantizationType
FORMATS = TYPES.Q4_K, TYPES.Q5_K, TYPES.Q6_K, TYPES.Q8_0
tests = 0


def ok(good, what):
    global tests
    tests += 1
    print(f"{'ok' if good else 'not ok'} {tests} - {what}", flush=True)


def same(a, b):
    """The same values; 0 is -0."""
    return a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)


def any_blocks(random, kind, n):
    """Random bytes, in which no fp16 scale is infinite or NaN."""
    blocks = random.integers(0, 256, (n, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8)
    for at in write_gguf.SCALES[kind]:
        scale = blocks[:, at:at + 2].copy().view("<u2")
        scale[scale & 0x7C00 == 0x7C00] &= 0xBFFF
        blocks[:, at:at + 2] = scale.view(np.uint8)
    return blocks


def unpack(kind, blocks, backend):
    weights = gguf.GGML_QUANT_SIZES[kind][0]
    op = ablate.op("dequantise", format=kind.name.lower(), dim_out=len(blocks), dim_in=weights)
    return op(W=blocks, backend=backend).w


def compare_blocks(n):
    backends = [b for b, why in ablate.backends().items() if b in ("ref64", "ref32", "gpu32") and not why]
    random = np.random.default_rng(7)
    for kind in FORMATS:
        good = dict.fromkeys(backends, True)
        for begin in range(0, n, 20000):
            blocks = any_blocks(random, kind, min(20000, n - begin))
            want = gguf.quants.dequantize(blocks, kind)
            for b in backends:
                good[b] &= same(unpack(kind, blocks, b).astype(np.float32), want)
        for b in backends:
            ok(good[b], f"{kind.name.lower()}: {b} unpacks {n} random blocks as the package does")


def compare_packed(n):
    """The bytes of q8_0 are the package's, which has no other quantiser of these formats."""
    random = np.random.default_rng(8)
    w = (random.standard_t(4, (n, 32)) * 10.0**random.integers(-6, 5, (n, 1))).astype(np.float32)
    w[:2] = [[0] * 32, [127, *np.arange(31) - 15.5]]
    want = gguf.quants.quantize(w, TYPES.Q8_0)
    for b, why in ablate.backends().items():
        if b in ("ref64", "ref32", "gpu32") and not why:
            ok(same(ablate.op("quantise", format="q8_0")(w=w, backend=b).W, want),
               f"q8_0: {b} packs {n} blocks as the package does")


def run(words):
    subprocess.run([os.environ["ABLATE_PROGRAM"], "-t", words, "-o", "w.h5"], check=True,
                   stdout=subprocess.DEVNULL)
    with h5py.File("w.h5") as f:
        trial = f["trial/0001"]
        found = trial["in/W"][...], trial["ref32/w"][...].astype(np.float32)
    os.remove("w.h5")
    return found


def compare_file(file):
    taken = {k.name.lower() for k in FORMATS}
    for t in gguf.GGUFReader(file).tensors:
        if t.tensor_type.name.lower() not in taken:
            continue
        W, w = run(f'dequantise input=gguf file="{file}" tensor={t.name}')
        ok(W.dtype == np.uint8 and np.array_equal(W, t.data), f"{t.name}: the dump has its bytes")
        ok(same(w, gguf.quants.dequantize(t.data, t.tensor_type)),
           f"{t.name}: its weights are those that the package has")


def compare_written(small):
    """A file that the package writes now, and the one that it wrote for tests/."""
    write_gguf.small("now.gguf")
    listed = subprocess.run([os.environ["ABLATE_PROGRAM"], "--list", "now.gguf"], check=True, text=True,
                            stdout=subprocess.PIPE).stdout.splitlines()[1:-1]
    there = gguf.GGUFReader("now.gguf").tensors
    want = [[t.name, t.tensor_type.name.lower(), str([int(n) for n in reversed(t.shape)]).replace(" ", ""),
             str(t.n_bytes)] for t in there]
    ok([line.split() for line in listed] == want, "--list has the tensors of a file that it wrote now")
    compare_file("now.gguf")
    compare_file(small)


if __name__ == "__main__":
    compare_blocks(int(sys.argv[2]))
    compare_packed(int(sys.argv[2]))
    compare_written(sys.argv[1])
    print(f"1..{tests}")
