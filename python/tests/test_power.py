"""What the judge refuses, and what it does not: kernels that are wrong in ways that published ones
were, and right ones that round and add in their own order, by both doors."""

import os
import shutil
import subprocess
from typing import Any, NamedTuple

import numpy as np
import pytest

import ablate
import kernels as K
from kernels import stored

PROGRAM = os.environ.get("ABLATE_PROGRAM") or shutil.which("run-ablation")

CASES = {
    "rmsnorm": "rmsnorm rows=64 columns=256",
    "layernorm": "layernorm rows=64 columns=256",
    "gemm": "gemm M=64 N=64 K=256",
    "softmax": "softmax rows=64 columns=128",
    "silu": "silu rows=64 dim=128",
    "swiglu": "swiglu rows=64 dim=128",
    "scan": "scan rows=16 length=200",
    "rope": "rope steps=32 batch=2 heads=2 dim=16",
    "cross_entropy": "cross_entropy rows=64 vocabulary=100",
    "attention": "attention batch=1 steps=64 heads=2 dim=80 mask=causal",
}


class Row(NamedTuple):
    """A case and a kernel; the results that are wrong, None: each."""

    words: str
    kernel: Any
    wrong: set | None = None


WRONG: dict[str, Row] = {}
RIGHT: dict[str, Row] = {}


def wrong(what, words, kernel, of=None, **how):
    op, dtype = words.split()[0], words.split("dtype=")[1]
    if how:
        kernel = stored(words, kernel, of=of, **how)
    else:
        kernel = stored(words, kernel)
    WRONG[f"{op} {dtype} {what}"] = Row(words, kernel, of)


def right(what, words, kernel):
    op, dtype = words.split()[0], words.split("dtype=")[1]
    RIGHT[f"{op} {dtype} {what}"] = Row(words, stored(words, kernel))


def times(factor):
    return lambda y: np.float64(factor) * y


def four_ulp(y):
    return single64(y) + 4 * np.spacing(np.abs(K.single(y))).astype(np.float64)


def single64(y):
    return np.asarray(y, np.float64)


def ends_early(y):
    """25 of 64 rows are 0."""
    y = np.array(y)
    y[39:] = 0
    return y


def cut_to(bits):
    return lambda y: K.kept_bits(y, bits)


def wrong_by_a_factor():
    for op, factors in {"rmsnorm": (1.05, 1.03, 1.01), "layernorm": (1.05, 1.03, 1.01),
                        "gemm": (0.95, 0.97, 1.02, 1.05, 1.01), "softmax": (1.01,)}.items():
        words = CASES[op] + " dtype=bf16"
        for factor in factors:
            wrong(f"times {factor}", words, getattr(K, op)(words), change=times(factor))
    for op in ("gemm", "rmsnorm", "softmax", "scan", "rope", "silu"):
        words = CASES[op] + " dtype=fp32"
        wrong("times 1 + 1e-6", words, getattr(K, op)(words), change=times(1 + 1e-6))
        wrong("4 ulp too large", words, getattr(K, op)(words), change=four_ulp)


def wrong_by_its_rounding():
    for op in ("silu", "gemm", "rmsnorm", "scan"):
        words = CASES[op] + " dtype=bf16"
        wrong("cut to bf16", words, getattr(K, op)(words), store=cut_to(8))
    for op in ("gemm", "rmsnorm", "softmax", "scan", "rope", "silu"):
        words = CASES[op] + " dtype=fp32"
        wrong("cut to 20 bits", words, getattr(K, op)(words), store=cut_to(20))
    words = CASES["gemm"] + " dtype=bf16"
    wrong("operands in e4m3", words, K.gemm(words, operands=K.e4m3))
    wrong("operands in e5m2", words, K.gemm(words, operands=K.e5m2))


def wrong_by_what_is_left_out():
    for dtype in ("fp32", "bf16"):
        for op in ("rmsnorm", "layernorm"):
            words = f"{CASES[op]} dtype={dtype}"
            wrong("8 of 256 columns not in the mean", words, getattr(K, op)(words, seen=248),
                  of={"y", "d_x"})
        words = f"gemm M=64 N=64 K=2048 dtype={dtype}"
        wrong("one of 2048 products lost", words, K.gemm(words, lost=1), of={"C"})
        for op in ("rmsnorm", "softmax"):
            words = f"{CASES[op]} dtype={dtype}"
            wrong("25 of 64 rows of a gradient 0", words, getattr(K, op)(words), of={"d_x"},
                  change=ends_early)
        words = f"{CASES['cross_entropy']} dtype={dtype}"
        wrong("no softmax in the gradient", words, K.cross_entropy(words, has_softmax=False),
              of={"d_logits"})
        words = f"{CASES['attention']} dtype={dtype}"
        wrong("one key of 64 skipped in a row", words, K.attention(words, skipped=63),
              of={"o", "lse"})
        wrong("one key of 41 skipped in a row", words, K.attention(words, skipped=40),
              of={"o", "lse"})
        for dim, padded in ((80, 72), (40, 36), (120, 128)):
            words = f"attention batch=1 steps=64 heads=2 dim={dim} mask=causal dtype={dtype}"
            wrong(f"1 / sqrt({padded}) for 1 / sqrt({dim})", words,
                  K.attention(words, scale=padded ** -0.5))
    words = "softmax rows=64 columns=512 scale=4 dtype=fp32"
    wrong("below 1e-4 of the largest 0", words, K.softmax(words, share=1e-4))
    for dtype in ("fp32", "bf16"):
        words = f"softmax rows=64 columns=2048 dtype={dtype}"
        wrong("below 2^-12 0", words, K.softmax(words, smallest=2 ** -12))
    words = "attention batch=1 steps=64 heads=2 dim=80 mask=causal scale=1 dtype=fp32"
    wrong("below 1e-4 of the largest 0", words, K.attention(words, share=1e-4), of={"o", "lse"})


def all_right():
    for dtype in ("fp32", "bf16"):
        for op in CASES:
            words = f"{CASES[op]} dtype={dtype}"
            right("as it is", words, getattr(K, op)(words))
        for name, order in K.ORDERS.items():
            words = f"{CASES['gemm']} dtype={dtype}"
            right(f"sums {name}", words, K.gemm(words, order=order))
            words = f"{CASES['scan']} dtype={dtype}"
            right(f"sums {name}", words, K.scan(words, order=order))
            for op in ("rmsnorm", "layernorm"):
                words = f"{CASES[op]} dtype={dtype}"
                right(f"sums {name}", words, getattr(K, op)(words, mean=K.mean_of(order)))
        words = f"{CASES['scan']} dtype={dtype}"
        right("sums doubling", words, K.scan(words, order="doubling"))
        for op in ("rmsnorm", "layernorm"):
            words = f"{CASES[op]} dtype={dtype}"
            right("Welford", words, getattr(K, op)(words, mean=K.welford))
    words = CASES["rmsnorm"] + " dtype=bf16"
    right("Llama", words, K.rmsnorm(words, form="bf16(x r) w"))
    words = CASES["swiglu"] + " dtype=bf16"
    right("silu in bf16", words, K.swiglu(words, between=K.bf16))
    words = CASES["attention"] + " dtype=bf16"
    right("P in bf16", words, K.attention(words, between=K.bf16))
    right("P in bf16, divided before", words, K.attention(words, between=K.bf16, normal=True))
    for scale in (1, 0.3, 4):
        for dtype in ("fp32", "bf16"):
            words = f"{CASES['softmax']} scale={scale} dtype={dtype}"
            right(f"scale {scale} folded into exp2", words, K.softmax(words, K.folded))
    words = CASES["softmax"] + " dtype=bf16"
    for side in (1, -1):
        right(f"ex2.approx {side:+}", words, K.softmax(words, K.approximate(side)))


wrong_by_a_factor()
wrong_by_its_rounding()
wrong_by_what_is_left_out()
all_right()


def judged(row):
    return ablate.judge(row.kernel[0], row.words, row.kernel[1])


@pytest.mark.parametrize("row", WRONG)
def test_wrong_ones_are_refused(row):
    verdicts = judged(WRONG[row])
    checked = {r.tensor for r in verdicts}
    of = WRONG[row].wrong or checked
    for check in ("parity", "fresh values"):
        assert of <= {r.tensor for r in verdicts.failed if r.check == check}, verdicts
    assert {r.tensor for r in verdicts.failed} <= of, verdicts


@pytest.mark.parametrize("row", RIGHT)
def test_right_ones_pass(row):
    verdicts = judged(RIGHT[row])
    assert verdicts.ok and not verdicts.unjudged, verdicts
