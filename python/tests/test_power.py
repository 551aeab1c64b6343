"""What the judge refuses, and what it does not: kernels that are wrong in ways that published ones
were, and right ones that round and add in their own order, by both doors."""

import os
import shutil
import subprocess
from typing import Any, NamedTuple

import numpy as np
import pytest

import ablate
import kernels
from kernels import (ORDERS, approximate, bf16, folded, kept_bits, mean_of, single, stored,
                     welford)

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
    """A case and a kernel; the results that must be refused, None: each; `alone`: no others;
    `rounds`: what it declares."""

    words: str
    kernel: Any
    wrong: set | None = None
    alone: bool = True
    rounds: str = ""


WRONG: dict[str, Row] = {}
RIGHT: dict[str, Row] = {}


def wrong(what, words, kernel, of=None, alone=True, rounds="", **how):
    """A row of the wrong ones: `how` makes a right kernel wrong, in the results that `of` names."""
    op, dtype = words.split()[0], words.split("dtype=")[1]
    WRONG[f"{op} {dtype} {what}"] = Row(words, stored(words, kernel, of=of, **how), of,
                                          alone, rounds)


def right(what, words, kernel, rounds=""):
    op, dtype = words.split()[0], words.split("dtype=")[1]
    RIGHT[f"{op} {dtype} {what}"] = Row(words, stored(words, kernel), rounds=rounds)


def of_op(op, dtype, **options):
    """The words of an operation's case, and its kernel."""
    words = f"{CASES[op]} dtype={dtype}"
    return words, getattr(kernels, op)(words, **options)


def times(factor):
    return lambda y: np.float64(factor) * y


def four_ulp_up(y):
    return y + 4 * np.spacing(np.abs(single(y))).astype(np.float64)


def ends_early(y):
    """25 of 64 rows are 0."""
    y = np.array(y)
    y[39:] = 0
    return y


def cut_to(bits):
    return lambda y: kept_bits(y, bits)


def wrong_by_a_factor():
    for op, factors in {"rmsnorm": (1.05, 1.03, 1.01), "layernorm": (1.05, 1.03, 1.01),
                        "gemm": (0.95, 0.97, 1.02, 1.05, 1.01), "softmax": (1.01,), "silu": (1.01,),
                        "swiglu": (1.01,), "scan": (1.01,), "rope": (1.01,), "attention": (1.01,),
                        "cross_entropy": (1.01,)}.items():
        for factor in factors:
            wrong(f"times {factor}", *of_op(op, "bf16"), change=times(factor))
    for op, of in {"rmsnorm": {"y", "d_x"}, "layernorm": {"y", "d_x"}, "gemm": None, "scan": None,
                   "silu": None, "swiglu": None, "softmax": {"y"}}.items():
        wrong("times 1.003", *of_op(op, "bf16"), of=of, change=times(1.003))
    for op in ("gemm", "rmsnorm", "softmax", "scan", "rope", "silu"):
        wrong("times 1 + 1e-6", *of_op(op, "fp32"), change=times(1 + 1e-6))
    for op, of in {"gemm": None, "rmsnorm": {"y", "d_x"}, "softmax": {"y"},
                   "rope": None, "silu": None}.items():
        wrong("4 ulp too large", *of_op(op, "fp32"), of=of, change=four_ulp_up)


def wrong_by_its_rounding():
    for op, of in {"silu": None, "gemm": None, "rmsnorm": {"y", "d_x"}, "scan": None}.items():
        wrong("cut to bf16", *of_op(op, "bf16"), of=of, store=cut_to(8))
    for op in ("gemm", "rmsnorm", "softmax", "scan", "rope", "silu"):
        wrong("cut to 20 bits", *of_op(op, "fp32"), of={"y"} if op == "softmax" else None,
              store=cut_to(20))
    for name in ("e4m3", "e5m2"):
        wrong(f"operands in {name}", *of_op("gemm", "bf16", operands=getattr(kernels, name)))


def wrong_by_what_is_left_out():
    for dtype in ("fp32", "bf16"):
        wrong("8 of 256 columns not in the mean", *of_op("rmsnorm", dtype, seen=248))
        wrong("8 of 256 columns not in the mean", *of_op("layernorm", dtype, seen=248),
              of={"y", "d_x", "d_w"})
        words = f"gemm M=32 N=32 K=2048 dtype={dtype}"
        wrong("one of 2048 products lost", words, kernels.gemm(words, lost=...), of={"C"})
        for op in ("rmsnorm", "softmax"):
            wrong("25 of 64 rows of a gradient 0", *of_op(op, dtype), of={"d_x"}, change=ends_early)
        wrong("no softmax in the gradient", *of_op("cross_entropy", dtype, has_softmax=False),
              of={"d_logits"})
        wrong("one key of 64 skipped in a row", *of_op("attention", dtype, skipped=63),
              of={"o", "lse"}, alone=False)
        wrong("one key of 41 skipped in a row", *of_op("attention", dtype, skipped=40),
              of={"o", "lse"}, alone=False)
    for dim, padded in ((80, 72), (40, 36), (120, 128)):
        words = f"attention batch=1 steps=64 heads=2 dim={dim} mask=causal dtype=bf16"
        wrong(f"1 / sqrt({padded}) for 1 / sqrt({dim})", words,
              kernels.attention(words, scale=padded ** -0.5))
    words = "gemm M=32 N=32 K=2048 dtype=fp32"
    wrong("one product lost in one element", words, kernels.gemm(words, lost=(5, 7)), of={"C"})
    words = "softmax rows=64 columns=512 scale=4 dtype=fp32"
    wrong("below 1e-4 of the largest 0", words, kernels.softmax(words, share=1e-4))
    for dtype in ("fp32", "bf16"):
        words = f"softmax rows=16 columns=2048 dtype={dtype}"
        wrong("below 2^-12 0", words, kernels.softmax(words, smallest=2 ** -12))
    words = "attention batch=1 steps=64 heads=2 dim=80 mask=causal scale=1 dtype=fp32"
    wrong("below 1e-4 of the largest 0", words, kernels.attention(words, share=1e-4))


def right_in_another_order():
    for dtype in ("fp32", "bf16"):
        for op in CASES:
            right("as it is", *of_op(op, dtype))
        for name, order in ORDERS.items():
            right(f"sums {name}", *of_op("gemm", dtype, order=order))
            right(f"sums {name}", *of_op("scan", dtype, order=order))
            for op in ("rmsnorm", "layernorm"):
                right(f"sums {name}", *of_op(op, dtype, mean=mean_of(order)))
        for op in ("rmsnorm", "layernorm"):
            right("Welford", *of_op(op, dtype, mean=welford))
        right("sums doubling", *of_op("scan", dtype, order="doubling"))
        right("online", *of_op("attention", dtype, form="online"))


def right_by_its_rounding():
    right("Gemma", *of_op("rmsnorm", "bf16", form="x r w"))
    right("Llama", *of_op("rmsnorm", "bf16", form="bf16(x r) w"))
    right("silu in bf16", *of_op("swiglu", "bf16", between=bf16))
    for form in ("divided last", "divided first", "online"):
        right(f"P in bf16, {form}", *of_op("attention", "bf16", between=bf16, form=form))
    for dtype in ("fp32", "bf16"):
        for scale in (0.3, 1, 4):
            words = f"{CASES['softmax']} scale={scale} fill=normal dtype={dtype}"
            right(f"scale {scale} folded into exp2", words, kernels.softmax(words, folded))
        right("scale folded into exp2", *of_op("attention", dtype, exponentials=folded))
    for side in (1, -1):
        for op in ("softmax", "attention"):
            words = f"{CASES[op]} fill=normal dtype=bf16"
            exponentials = approximate(side)
            right(f"ex2.approx {side:+}", words, getattr(kernels, op)(words, exponentials=exponentials))


# As PyTorch composes them: more is rounded, or added up, than in the formula.
# The words, and a factor that must be refused of these results.
COMPOSED = {
    "adamw": ("adamw parameters=65536 step=100 lr=0.0003 weight_decay=0.1 fill=normal dtype=fp32",
              1 + 1e-6, {"p_next"}),
    "smoothed_cross_entropy": ("cross_entropy rows=64 vocabulary=2048 label_smoothing=0.1 "
                               "d_rows=zero fill=normal dtype=fp32", 1 + 3e-6, {"d_logits"}),
    "lora": ("lora rows=1 dim_in=2 dim_out=254 rank=3 dtype=bf16", 1.05, {"d_B"}),
    "scaled_gemm": ("gemm M=3 N=5 K=7 alpha=0.3 dtype=bf16", 1.05, None)}


def right_as_composed():
    for name, (words, factor, of) in COMPOSED.items():
        kernel = getattr(kernels, name)(words)
        rounds = "d_A:bf16 d_B:bf16" if name == "lora" else ""
        right("composed", words, kernel, rounds)
        wrong(f"composed, times {factor}", words, kernel, of, rounds=rounds, change=times(factor))


wrong_by_a_factor()
wrong_by_its_rounding()
wrong_by_what_is_left_out()
right_in_another_order()
right_by_its_rounding()
right_as_composed()


def judged(row):
    return ablate.judge(row.kernel[0], row.words, row.kernel[1], row.rounds)


@pytest.mark.parametrize("row", WRONG)
def test_wrong_ones_are_refused(row):
    verdicts = judged(WRONG[row])
    checked = {r.tensor for r in verdicts}
    of = WRONG[row].wrong or checked
    assert of <= {r.tensor for r in verdicts.failed if r.check == "parity"}, verdicts
    assert not WRONG[row].alone or {r.tensor for r in verdicts.failed} <= of, verdicts


@pytest.mark.parametrize("row", RIGHT)
def test_right_ones_pass(row):
    verdicts = judged(RIGHT[row])
    assert verdicts.ok and not verdicts.unjudged, verdicts


# ---- through a dump, as a program in another language would ----

# Each of another kind.
WRONG_IN_A_DUMP = [
    "rmsnorm bf16 times 1.01", "layernorm bf16 8 of 256 columns not in the mean",
    "gemm bf16 times 0.97", "gemm bf16 operands in e4m3", "gemm bf16 one of 2048 products lost",
    "scan bf16 cut to bf16", "attention bf16 1 / sqrt(72) for 1 / sqrt(80)",
    "attention bf16 one key of 64 skipped in a row",
    "cross_entropy bf16 no softmax in the gradient", "softmax bf16 25 of 64 rows of a gradient 0",
    "gemm fp32 times 1 + 1e-6", "gemm fp32 4 ulp too large", "rope fp32 cut to 20 bits",
    "softmax fp32 below 1e-4 of the largest 0"]
RIGHT_IN_A_DUMP = [
    "rmsnorm bf16 Llama", "swiglu bf16 silu in bf16", "attention bf16 P in bf16, divided last",
    "softmax bf16 ex2.approx +1", "gemm bf16 sums eighths", "cross_entropy bf16 as it is",
    "gemm fp32 sums descending", "scan fp32 sums pairwise", "layernorm fp32 Welford",
    "softmax fp32 scale 4 folded into exp2"]


def exit_status_in_a_dump(row, folder):
    """That of `run-ablation judge`, and what it printed, for a kernel's results beside the inputs
    of its case."""
    h5py = pytest.importorskip("h5py")
    file = str(folder / "case.h5")

    def run(*arguments):
        return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60)
    assert run("--inputs", row.words, "-o", file).returncode == 0
    with h5py.File(file, "r+") as f:
        trial = f["trial/0001"]
        inputs = {n: a[...] for n, a in trial["in"].items()}
        upstream = {"d_" + n: a[...] for n, a in trial["dout"].items()}
        for name, y in row.kernel[0](**inputs).items():
            trial[f"mine/{name}"] = y
        for name, y in row.kernel[1](inputs, upstream).items():
            trial[f"mine/d/{name[2:]}"] = y
    done = run("judge", file)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("row", WRONG_IN_A_DUMP)
def test_wrong_ones_in_a_dump_are_refused(row, tmp_path):
    status, printed = exit_status_in_a_dump(WRONG[row], tmp_path)
    assert status == 1 and "mine parity" in printed, printed


@pytest.mark.parametrize("row", RIGHT_IN_A_DUMP)
def test_right_ones_in_a_dump_pass(row, tmp_path):
    status, printed = exit_status_in_a_dump(RIGHT[row], tmp_path)
    assert status == 0 and " 0 failed" in printed and " 0 skipped" in printed, printed
