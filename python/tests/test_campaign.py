"""ablate.judge over many cases: which they are, what ends them, and that right functions are ok."""

import re
import subprocess

import numpy as np
import pytest

import ablate
from ablate import _campaign
from ablate._case import Case, Run
from ablate._table import INPUT, OUTPUT
from functions import functions
from test_power import PROGRAM


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def softmax_back(inputs, upstream):
    y, d_y = softmax(inputs["x"].astype(float)), upstream["d_y"]
    return y * (d_y - (d_y * y).sum(1, keepdims=True))


def sizes(words):
    return {k: int(v) for k, v in re.findall(r" (rows|columns|steps|heads)=(\d+)", words)}


# ---- right functions ----

ORDINARY = """transpose batch=2 rows=33 columns=40
reduce rows=32 length=200 kind=sum
reduce rows=32 length=200 kind=mean
reduce rows=32 length=200 kind=mean over=all
sum_squares length=5000
scan rows=16 length=200
stencil1d rows=8 length=200
stencil2d batch=2 height=20 width=30
histogram size=1000 bins=16
gemm M=64 N=64 K=128
gemm_splitk M=32 N=32 K=512
gemm_batched batch=4 M=32 N=32 K=64
gemv M=100 K=200
linear rows=32 dim_in=64 dim_out=48
lora rows=32 dim_in=64 dim_out=48 rank=4
dequantise dim_out=32 dim_in=512
quantise dim_out=8 dim_in=512
gemm_quantised rows=4 dim_out=32 dim_in=512
silu rows=64 dim=100
relu rows=64 dim=100
swiglu rows=64 dim=100
add rows=64 dim=100
dropout rows=64 dim=100
rmsnorm rows=64 columns=256
layernorm rows=64 columns=256
qk_norm batch=2 steps=16 heads=4 kv_heads=2 head_dim=64
softmax rows=64 columns=256
entmax15 rows=64 columns=50
cross_entropy rows=64 vocabulary=1000
cross_entropy rows=64 vocabulary=100 label_smoothing=0.1
accuracy rows=64 vocabulary=10
schedule updates=100
examples task=word steps=20 batch=8
examples task=mqar steps=32 batch=8
examples task=bytes steps=20 batch=8 corpus=2000
embedding rows=64 vocabulary=50 width=40
adamw parameters=5000 tensors=1
adamw parameters=5000 tensors=1 step=1000 master=yes
rope steps=64 batch=2 heads=4 dim=64
attention batch=1 steps=64 heads=2 dim=64
attention batch=1 steps=64 heads=2 dim=64 mask=full
diag_delta steps=64 batch=4 n_state=32
e74_cell steps=32 batch=4 n_state=16 heads=2
e74_cell steps=64 batch=4 n_state=32 heads=1 state=diagonal
e74 steps=32 batch=4 n_state=16 dim=32 heads=2
e74_block steps=32 batch=4 n_state=16 dim=32 heads=2
dual_memory steps=32 batch=4 dim=32 slots=8
dual_memory steps=32 batch=4 dim=32 slots=16 preset=e29b""".splitlines()


def reference(words, backend):
    """The plain C, or the oracle, whose results are not rounded, as a function of somebody."""
    def run(inputs, upstream, backward):
        case = Case(words)
        for name, array in {**inputs, **upstream}.items():
            case.set(name, array)
        ran = Run.of(case, backend, None, backward)
        return {n: ran.get(n) for n in (case.gradients(INPUT) if backward else case.names(OUTPUT))}
    backward = lambda inputs, upstream: run(inputs, upstream, True)
    return lambda **inputs: run(inputs, {}, False), backward if Case(words).gradients(INPUT) else None


def test_all_operations_are_among_them():
    assert {words.split()[0] for words in ORDINARY} == set(ablate.ops())


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("words", ORDINARY)
def test_right_functions_are_ok_at_ordinary_sizes(words, dtype):
    words += f" dtype={dtype}"
    backends = [{"fp32": "ref32", "bf16": "ref_bf16"}[dtype]]
    for backend in backends + ["ref64"] * (words.split()[0] != "quantise"):
        forward, backward = reference(words, backend)
        verdicts = ablate.judge(forward, words, backward)
        assert verdicts.ok, verdicts


# ---- which cases ----

def test_open_sizes_are_a_campaign():
    verdicts = ablate.judge(softmax, "softmax dtype=bf16", softmax_back, seconds=60)
    assert verdicts.ok and verdicts.would_pass == [] and len(verdicts.cases) > 60, verdicts
    assert all(" dtype=bf16 " in words and " scale=1 " in words for words in verdicts.cases)
    fills = {re.search("fill=(\\w+)", words)[1] for words in verdicts.cases}
    assert fills == {"normal", "masked", "shifted", "outliers"}
    assert min(sizes(w)["columns"] for w in verdicts.cases) == 1
    assert max(sizes(w)["columns"] for w in verdicts.cases) > 10000
    assert "84 of 84 of the contract's cases" in str(verdicts)


def test_what_the_words_name_stays():
    seen = []

    def forward(**inputs):
        seen.append(inputs["q"].shape)
        return {"o": inputs["q"][:, :, :, :1]}
    verdicts = ablate.judge(forward, "attention heads=3 dim=5 dim_v=1 mask=full fill=ties", cases=3)
    assert not verdicts.ok and all(shape[2:] == (3, 5) for shape in seen)
    assert all(" mask=full " in w and " fill=ties " in w and " heads=3 " in w for w in verdicts.cases)


def test_all_sizes_are_three_draws():
    verdicts = ablate.judge(softmax, "softmax rows=3 columns=20")
    assert [re.search("fill=(\\w+)", w)[1] for w in verdicts.cases] == ["normal", "outliers", "shifted"]
    assert verdicts.would_pass is None and all(sizes(w) == {"rows": 3, "columns": 20} for w in verdicts.cases)
    named = ablate.judge(softmax, "softmax rows=3 columns=20 fill=normal")
    assert all("fill=normal" in w for w in named.cases) and len(set(named.cases)) == 3
    relu = ablate.judge(lambda x: np.maximum(x, 0), "relu rows=3 dim=20")
    assert all("fill=normal" in w for w in relu.cases)  # its other fill has NaN


def test_how_many_cases():
    assert len(ablate.judge(softmax, "softmax", cases=5).cases) == 5
    assert len(ablate.judge(softmax, "softmax rows=3 columns=20", cases=1).cases) == 1
    few = ablate.judge(softmax, "softmax", seconds=0)
    assert len(few.cases) == 1 and "1 of 84 of the contract's cases" in str(few)
    assert str(few).endswith(", but 0 s ended it after 1 of 84 cases") and few.cut_short
    assert "what would pass was not asked" in str(few) and few.would_pass is None
    assert len(ablate.judge(softmax, "softmax", cases=50, seconds=0).cases) == 1
    five = ablate.judge(softmax, "softmax", cases=5)
    assert five.cut_short == "cases=5 ended it after 5 of 84 cases"
    assert not ablate.judge(softmax, "softmax rows=3 columns=20").cut_short


def test_named_sizes_are_drawn_three_times_however_slow_the_function_is(monkeypatch):
    monkeypatch.setattr(_campaign, "_SECONDS", 0)
    assert len(ablate.judge(softmax, "softmax rows=3 columns=20").cases) == 3
    assert len(ablate.judge(softmax, "softmax rows=3 columns=20", seconds=0).cases) == 1


@pytest.mark.parametrize("wrong, message", [
    ({"cases": 0}, "cases=0: a whole number from 1 on"), ({"cases": 2.5}, "cases=2.5: a whole number"),
    ({"cases": float("nan")}, "cases=nan"), ({"cases": "3"}, "cases=3"), ({"cases": True}, "cases=True"),
    ({"seconds": -1}, "seconds=-1: a number from 0 on"), ({"seconds": float("nan")}, "seconds=nan"),
    ({"seconds": "1"}, "seconds=1"), ({"seed": 1.5}, "seed=1.5: a whole number"),
    ({"without": None}, "without is names of results, not NoneType"), ({"without": 3}, "not int"),
    ({"backward": 3}, "backward is a function, or None, not int"),
    ({"words": None}, "the words are NoneType"), ({"words": b"softmax"}, "the words are bytes"),
    ({"words": ""}, "begin with an operation"), ({"words": "softmax\0"}, "no zero byte"),
    ({"function": 3}, "the function is int"), ({"function": "softmax", "words": softmax}, "is str, the words")])
def test_arguments_that_are_none(wrong, message):
    with pytest.raises(ablate.Error, match=message):
        ablate.judge(**{"function": softmax, "words": "softmax rows=3 columns=4", **wrong})


@pytest.mark.parametrize("words, size", [("gemm", "M"), ("transpose", "columns"), ("rope", "steps")])
def test_what_is_wrong_behind_512_alone(words, size):
    def wrong(**inputs):
        found = ablate.op(words, **({"beta": 0} if words == "gemm" else {}))(**inputs)
        axis = {"M": 0, "columns": 2, "steps": 1}[size]
        first = next(iter(inputs.values()))
        return {n: y * (1.01 if first.shape[axis] >= 512 else 1) for n, y in found.items()}
    assert sizes_of(ablate.judge(wrong, words).replay)[size] >= 512


def sizes_of(words):
    return {k: int(v) for k, v in re.findall(r" (\w+)=(\d+)", words)}


def test_mistakes_that_no_case_refuses_are_named():
    words = "rmsnorm rows=4 fill=normal dtype=bf16"
    right = lambda x, w: w * x / np.sqrt((x * x).mean(1, keepdims=True) + np.float32(1e-6))
    verdicts = ablate.judge(right, words, seconds=2)
    assert verdicts.ok and "eps = 0" in verdicts.would_pass
    assert "would pass: eps = 0" in str(verdicts)


# ---- seeds ----

def test_seeds(monkeypatch):
    words = "softmax rows=3 columns=20"
    one, other = (ablate.judge(softmax, words, seed=s) for s in (5, 6))
    assert " seed=5 " in one.cases[0] and " seed=7 " in one.cases[2] and " seed=6 " in other.cases[0]
    assert ablate.judge(softmax, words + " seed=5").cases == one.cases
    assert str(ablate.judge(softmax, words, seed=5)) == str(one)
    monkeypatch.undo()
    drawn = {ablate.judge(softmax, words, cases=1).cases[0] for _ in range(3)}
    assert len(drawn) == 3
    with pytest.raises(ablate.Error, match="given twice"):
        ablate.judge(softmax, words + " seed=5", seed=5)


def test_the_systems_seeds_are_its_own():
    assert len({_campaign.secrets.randbelow(2**31) for _ in range(4)}) > 1


# ---- what fails ----

def wrong_from_200_on(x):
    return softmax(x) * (1.01 if x.shape[1] >= 200 else 1)


def test_a_failing_case_is_made_smaller():
    verdicts = ablate.judge(wrong_from_200_on, "softmax dtype=bf16")
    assert sizes(verdicts.replay) == {"rows": 1, "columns": 200}
    assert str(verdicts).count(f"again: {verdicts.replay}") == 1 and not verdicts.ok
    again = ablate.judge(wrong_from_200_on, verdicts.replay)
    assert again.failed and again.cases[0] == verdicts.replay
    assert verdicts.replay in verdicts.cases and len(verdicts.failed) == 2
    assert verdicts.would_pass is None


def test_a_function_that_refuses_a_smaller_size():
    wrong = []

    def forward(x):
        if wrong and x.shape[0] == 1:
            raise ValueError("one row")
        wrong.extend([True] * (x.shape[1] >= 200))
        return wrong_from_200_on(x)
    verdicts = ablate.judge(forward, "softmax rows=3 dtype=bf16", seconds=30)
    assert sizes(verdicts.replay) == {"rows": 3, "columns": 200}
    wrong.clear()
    verdicts = ablate.judge(forward, "softmax dtype=bf16", seconds=30)
    assert sizes(verdicts.replay) == {"rows": 2, "columns": 200}


def test_an_exception_says_in_which_case():
    def forward(x):
        raise ValueError("no")
    with pytest.raises(ValueError, match="no") as error:
        ablate.judge(forward, "softmax")
    (note,) = error.value.__notes__
    assert note.startswith("in the case softmax rows=1 columns=2 ")


# ---- ok ----

def test_what_is_not_given_is_not_ok():
    forward, backward = functions("layernorm rows=4 columns=9")
    words = "layernorm rows=4 columns=9"
    part = lambda i, u: {n: a for n, a in backward(i, u).items() if n != "d_w"}
    verdicts = ablate.judge(forward, words, part)
    assert not verdicts.ok and verdicts.reasons == {"d_w": "not given"} and len(verdicts.missing) == 3
    assert "not ok: d_w not given" in str(verdicts) and verdicts.ok_or("not given")
    assert ablate.judge(forward, words, part, without=["d_w"]).ok
    assert ablate.judge(forward, words, part, without="gradients").ok
    assert not ablate.judge(forward, words, part, without="d_x, d_b").ok
    assert ablate.judge(forward, words).ok  # gradients are not asked for


def test_no_gradient_comes_by_an_output_that_is_not_given():
    """A function that gives no lse has no gradient by it."""
    attention = "attention batch=1 steps=8 heads=2 dim=16 fill=normal"
    both, back = reference(attention, "ref32")
    alone = lambda **inputs: {"o": both(**inputs)["o"]}
    no_lse = lambda i, u: back(i, {**u, "d_lse": 0 * u["d_lse"]})
    assert ablate.judge(alone, attention, no_lse, without="lse").ok
    assert ablate.judge(both, attention, no_lse).failed


def test_without_does_not_excuse_what_is_wrong():
    forward, backward = functions("layernorm rows=4 columns=9")
    wrong = lambda i, u: {**backward(i, u), "d_w": backward(i, u)["d_w"] * 1.1}
    assert ablate.judge(forward, "layernorm rows=4 columns=9", wrong, without="d_w").failed


def test_nothing_is_ok_where_nothing_can_be_judged():
    verdicts = ablate.judge(lambda x: 0 * x, "softmax rows=64 columns=64 scale=1e6 dtype=bf16")
    assert not verdicts.ok
    half = lambda x: np.full_like(x, 0.25)
    verdicts = ablate.judge(half, "softmax rows=6 columns=4 scale=1e-6 dtype=bf16 fill=normal")
    assert not verdicts.ok and verdicts.reasons == {"y": "powerless"} and verdicts.ok_or("powerless")
    assert not verdicts.ok_or("not given", "cannot be judged")
    with pytest.raises(ablate.Error, match="tired is no reason; they are not given, "):
        verdicts.ok_or("tired")


@pytest.mark.parametrize("without, message", [
    ("z", "without: z is no result of softmax; they are d_x, y"), (["d_x", "x"], "x is no result")])
def test_wrong_names_in_without(without, message):
    with pytest.raises(ablate.Error, match=message):
        ablate.judge(softmax, "softmax rows=3 columns=4", without=without)


# ---- values of one's own ----

def test_values_of_a_file_are_those_that_are_given(tmp_path):
    h5py = pytest.importorskip("h5py")
    file = str(tmp_path / "own.h5")
    subprocess.run([PROGRAM, "--inputs", "softmax rows=8 columns=10", "-o", file], check=True,
                   stdout=subprocess.DEVNULL)
    seen = []

    def forward(x):
        seen.append(x.copy())
        return softmax(x)
    words = f"softmax rows=8 columns=10 input=hdf5 file={file} group=/trial/0001/in"
    verdicts = ablate.judge(forward, words)
    with h5py.File(file) as f:
        assert np.array_equal(seen[0], f["trial/0001/in/x"][:])
    assert verdicts.ok and len(verdicts.cases) == 1 and not np.array_equal(seen[1], seen[0])


# ---- results that have one right value in their type ----

@pytest.mark.parametrize("factor, ok", [(1, True), (1 + 2**-7, False), (1 + 2**-10, False)])
def test_what_is_rounded_once_may_be_given_before(factor, ok):
    words = "dequantise dim_out=32 dim_in=512 format=q4_k dtype=bf16"
    forward, _ = reference(words, "ref64")
    wrong = lambda **inputs: {n: factor * w for n, w in forward(**inputs).items()}
    assert ablate.judge(wrong, words).ok == ok
