"""Operations called on arrays: the dump's bits, the table, the sentences of errors."""

import os
import shutil
import subprocess
import threading

import numpy as np
import pytest

import ablate
from ablate import _table
from ablate._case import Case, Run
from ablate._table import INPUT, OUTPUT
from functions import NO_NUMBERS, SAME_NUMBERS, drawn

PROGRAM = os.environ.get("ABLATE_PROGRAM") or shutil.which("run-ablation")
USABLE = [b for b, why in ablate.backends().items() if why is None]


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    """A dump of one trial by run-ablation."""
    assert PROGRAM, "ABLATE_PROGRAM is to name run-ablation"
    folder = tmp_path_factory.mktemp("dumps")

    def run(words):
        file = folder / "trial.h5"
        subprocess.run([PROGRAM, "-t", f"{words} repeats=0 checks=none", "-o", file, "--force"],
                       check=True, capture_output=True)
        return ablate.open(file)
    return run


def same(a, b):
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=True)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ablate.ops())
def test_the_bits_of_the_dump(name, dtype, dump):
    judged = 0
    for i in range(2):
        words = drawn(name, 7, i).replace(" dtype=fp32", f" dtype={dtype}")
        trial = dump(words.replace(" dtype=bf16", f" dtype={dtype}")).trials[0]
        choices = {p.name: trial.attributes[p.name] for p in _table.parameters(name)
                   if p.name in trial.attributes}
        op = ablate.op(name, **choices, seed=trial.attributes["seed"])
        given = trial.tensors("in") | ({"d_" + n: a for n, a in trial.tensors("dout").items()}
                                       if "dout" in trial.groups else {})
        for backend in set(USABLE) & set(trial.groups):
            result = op(**{n: np.asarray(a) for n, a in given.items()}, backend=backend)
            for n, want in trial.tensors(backend).items():
                assert same(result[n], np.asarray(want)), (backend, n, words)
                judged += 1
            gradients = {"d_" + n: a for n, a in trial.tensors(f"{backend}/d").items()} \
                if any("d_" + n in result for n in trial.tensors("in")) else {}
            for n, want in gradients.items():
                assert same(result[n], np.asarray(want)), (backend, n, words)
                judged += 1
    assert judged


@pytest.mark.parametrize("name", ablate.ops())
def test_help_follows_from_the_table(name):
    text = ablate.op(name).__doc__
    for p in _table.parameters(name):
        assert p.name in text and p.help in text
    for t in _table.op_tensors(name):
        assert t.name in text
    assert _table.formula(name) in text


X = np.ones((4, 5))


@pytest.mark.parametrize("call, sentence", [
    (lambda: ablate.op("softmx"), "there is no operation softmx"),
    (lambda: ablate.op("softmax", dim=3), "softmax has no parameter dim"),
    (lambda: ablate.op("softmax")(), "x is missing"),
    (lambda: ablate.op("softmax")(x=X, z=X), "softmax has no input z here; it has x"),
    (lambda: ablate.op("softmax")(x=X, y=X), "softmax has no input y here"),
    (lambda: ablate.op("softmax")(x=X[0]), r"x is \[5\], it has the axes rows, columns"),
    (lambda: ablate.op("softmax")(x=X, d_y=X[:3]), "d_y has 3 along rows, x has 4"),
    (lambda: ablate.op("softmax", rows=3)(x=X), "x has 4 along rows, rows = 3 is asked for"),
    (lambda: ablate.op("softmax", scale="much")(x=X), "scale = much: not a decimal number"),
    (lambda: ablate.op("softmax", fill="soft")(x=X), "fill = soft: not one of"),
    (lambda: ablate.op("softmax")(x=X, backend="gpu99"), "there is no backend gpu99"),
    (lambda: ablate.op("softmax")(x=X, kernel="fastest"), "softmax has no kernel fastest"),
    (lambda: ablate.op("softmax")(x=np.full((2, 2), 1e39), backend="ref32"),
     r"x has 1e\+39 at \[0,0\]"),
    (lambda: ablate.op("swiglu")(a=X, b=X[:, :4]), "b has 4 along dim, a has 5"),
    (lambda: ablate.op("e74_cell")(k=np.ones((3, 2, 1, 64)), v=np.ones((3, 2, 1, 63)),
                                   q=np.ones((3, 2, 1, 64))),
     "v has 63 along n_state, k has 64"),
    (lambda: ablate.op("dequantise", format="q8_0", dim_out=1, dim_in=32)(W=np.full((1, 34), 256)),
     "W has values that are no bytes: 0 to 255"),
    (lambda: ablate.op("quantise", format="q8_0")(w=np.full((2, 32), 3.1e9)),
     r"w has 3.1e\+09 at \[0,0\]: q8_0's fp16 scale ends at 65504"),
    (lambda: ablate.op("quantise", format="nf4")(w=np.full((2, 3), np.nan)),
     r"w has nan at \[0,0\]: only finite weights are quantised"),
    (lambda: ablate.op("dequantise", format="q8_0", dim_out=1, dim_in=32)(
        W=np.array([[0, 0x7C] + [1] * 32], np.uint8)), "W: block 0 has scale inf"),
])
def test_wrong_calls_have_a_sentence(call, sentence):
    with pytest.raises(ablate.Error, match=sentence):
        call()


def attended(q, k, v):
    """Every query sees all keys, those of its group's head."""
    k, v = (np.repeat(a, q.shape[2] // a.shape[2], 2) for a in (k, v))
    P = np.exp(np.einsum("bthd,bshd->bhts", q, k) / np.sqrt(q.shape[-1]))
    return np.einsum("bhts,bshe->bthe", P / P.sum(-1, keepdims=True), v)


def heads(S=5, G=4, E=3, H=4):
    r = np.random.default_rng(0)
    return {n: r.normal(size=shape) for n, shape in
            [("q", (2, 5, H, 3)), ("k", (2, S, G, 3)), ("v", (2, S, G, E))]}


@pytest.mark.parametrize("settings", [{}, {"bias": "full"}])
@pytest.mark.parametrize("sizes, words", [
    ({}, "keys=0 kv_heads=0 dim=3 dim_v=0"),
    ({"S": 7}, "keys=7 kv_heads=0 dim=3 dim_v=0"),
    ({"S": 3}, "keys=3 kv_heads=0 dim=3 dim_v=0"),
    ({"G": 2}, "keys=0 kv_heads=2 dim=3 dim_v=0"),
    ({"E": 6}, "keys=0 kv_heads=0 dim=3 dim_v=6"),
    ({"S": 7, "G": 1, "E": 2}, "keys=7 kv_heads=1 dim=3 dim_v=2"),
])
def test_keys_and_kv_heads_follow_from_the_arrays(sizes, words, settings):
    given = heads(**sizes)
    more = {"bias": np.zeros((4, 5, sizes.get("S", 5)))} if settings else {}
    found = ablate.op("attention", mask="full", **settings)(**given, **more, d_o=attended(**given))
    assert f" {words} " in found.words
    assert np.allclose(found.o, attended(**given), rtol=1e-12)
    assert found.d_k.shape == given["k"].shape


def test_shapes_need_no_memory():
    shapes = {t.name: t.shape for t in _table.words_tensors("softmax rows=10000000 columns=1000000")}
    assert shapes["x"] == (10**7, 10**6)


def test_derived_axes_follow_from_the_table():
    assert _table.derived_axes("attention") == {"key": "keys", "kv_head": "kv_heads", "width_v": "dim_v"}
    assert _table.derived_axes("softmax") == {}


@pytest.mark.parametrize("settings, sizes, sentence", [
    ({"keys": 6}, {"S": 7}, "k has 7 along key, keys = 6 is asked for"),
    ({"keys": 0}, {"S": 7}, "k has 7 along steps, q has 5"),
    ({"kv_heads": 8}, {"G": 2}, "k has 2 along kv_head, kv_heads = 8 is asked for"),
    ({}, {"G": 3}, "attention: kv_heads = 3 does not divide heads = 4"),
])
def test_keys_that_contradict(settings, sizes, sentence):
    with pytest.raises(ablate.Error, match=sentence):
        ablate.op("attention", **settings)(**heads(**sizes))
    assert "kv_heads=8" in ablate.op("attention", kv_heads=8)(**heads(G=8, H=16)).words


def test_a_mask_has_two_ways_to_be_said():
    mask = np.tril(np.ones((4, 5, 5), bool))
    for settings, name in ({"bias": "full"}, "bias"), ({}, "bias"), ({}, "mask"), ({}, "attn_mask"):
        with pytest.raises(ablate.Error) as caught:
            ablate.op("attention", **settings)(**heads(), **{name: mask})
        assert str(caught.value) == (
            f'{name} has the type bool: set bias="full" and give a bias that is added to the scores, '
            f'bias=np.where({name}, 0, -np.inf), or set mask="causal" (one of full, causal, window)')
    added = ablate.op("attention", mask="full", bias="full")(**heads(), bias=np.where(mask, 0, -np.inf))
    assert np.allclose(added.o, ablate.op("attention", mask="causal")(**heads()).o, rtol=1e-12)
    with pytest.raises(ablate.Error, match="^x has the type bool, and not that of real numbers$"):
        ablate.op("softmax")(x=mask[0])


def test_an_input_of_another_choice():
    with pytest.raises(ablate.Error, match="axes batch, rows, columns; with width=7 batch, rows, columns, width$"):
        ablate.op("transpose")(x=np.ones((2, 3, 5, 7)))
    with pytest.raises(ablate.Error, match="it has q, k, v; with dropout=0.5 there is counter$"):
        ablate.op("attention")(**dict.fromkeys("qkv", np.ones((1, 2, 1, 4))), counter=np.ones(1, int))
    with pytest.raises(ablate.Error, match="skip; with master=no there is p$"):
        ablate.op("adamw", master="yes")(**dict.fromkeys(["p", "g", "m", "v", "master"], np.ones(4)))
    with pytest.raises(ablate.Error, match="it has scale, count; with what=update there is g2$"):
        ablate.op("schedule", what="loss")(scale=np.ones(1), count=np.ones(1, int), g2=np.ones(1))
    with pytest.raises(ablate.Error, match="it has q, k, v; with sink=yes there is sinks$"):
        ablate.op("attention")(**heads(), sinks=np.zeros(4))


def small(name, dtype):
    """An operation with choices, and inputs and upstream gradients of a small case that is drawn."""
    cases = [Case(drawn(name, 7, i).replace(" dtype=fp32", f" dtype={dtype}")) for i in range(8)]
    case = min(cases, key=lambda c: sum(t.count for t in c.tensors.values()))
    choices = {p.name: case.words.split(f" {p.name}=")[1].split()[0]
               for p in _table.parameters(name) if f" {p.name}=" in case.words}
    return ablate.op(name, **choices), {n: case.stored(n) for n in
                                        case.names(INPUT) + case.gradients(OUTPUT)}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ablate.ops())
def test_what_is_no_array_of_numbers_is_refused(name):
    op, given = small(name, "fp32")
    for n, array in given.items():
        for other in NO_NUMBERS.values():
            with pytest.raises(ablate.Error, match=f"^{n} (has|is) "):
                op(**{**given, n: other(array)})
        if array.dtype == np.float32:
            with pytest.raises(ablate.Error, match=f"^{n} has whole numbers that float32"):
                op(**{**given, n: np.full(array.shape, 2**24 + 1)})


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
@pytest.mark.parametrize("name", ablate.ops())
def test_the_same_numbers_in_another_form(name, dtype):
    op, given = small(name, dtype)
    want = op(**given)
    for change in SAME_NUMBERS.values():
        got = op(**{n: change(a) for n, a in given.items()})
        assert got.backend == want.backend
        assert all(same(got[n], a) for n, a in want.items())


@pytest.mark.parametrize("other", NO_NUMBERS.values())
def test_a_case_and_a_result_take_numbers_alone(other):
    case = Case("softmax rows=4 columns=5")
    for set_, n in (case.set, "x"), (case.set, "d_y"), (Run.given(case, "it").set, "y"):
        with pytest.raises(ablate.Error, match=f"^{n} (has|is) "):
            set_(n, other(np.ones((4, 5))))


def test_states_that_are_left_out_are_zero():
    k, v, q = (np.random.default_rng(i).normal(size=(3, 2, 1, 4)) for i in range(3))
    cell = ablate.op("e74_cell")
    assert same(cell(k=k, v=v, q=q).out, cell(k=k, v=v, q=q, S0=np.zeros((2, 1, 4, 4))).out)


def test_bytes_are_uint8():
    W = np.array([[0, 0x38] + [256 - 3, 7] * 16], np.uint8)  # d = 0.5
    w = ablate.op("dequantise", format="q8_0", dim_out=1, dim_in=32)(W=W).w
    assert w.dtype == np.float32 and np.array_equal(w, [[-1.5, 3.5] * 16])


def test_double_is_not_rounded():
    x = np.array([[1.0, 1.0 + 1e-12]])
    y = ablate.op("softmax")(x=x).y
    assert y.dtype == np.float64 and y[0, 0] != y[0, 1]
    assert ablate.op("softmax")(x=x.astype(np.float32)).y.dtype == np.float32


def test_threads():
    x = np.random.default_rng(0).normal(size=(30, 40))
    want, found = ablate.op("softmax")(x=x).y, []
    threads = [threading.Thread(target=lambda: found.append(ablate.op("softmax")(x=x).y))
               for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 8 and all(same(y, want) for y in found)


def test_a_dump(dump):
    d = dump("e74_cell steps=5 batch=2 n_state=3")
    trial = d.trials[0]
    assert trial.op == "e74_cell" and trial.attributes["steps"] == 5
    assert trial["in/k"].axes == ("steps", "batch", "heads", "n_state")
    assert trial["ref64/d/k"].shape == (5, 2, 1, 3)
    assert len(d.table()) == 1 and trial.verdicts == [] and trial.times == []
    with pytest.raises(KeyError, match="no tensor in/z"):
        trial["in/z"]
    with pytest.raises(ablate.Error, match="has no /trial/0001/nobody"):
        trial.tensors("nobody")


def test_what_is_no_dump(tmp_path):
    (tmp_path / "text.h5").write_text("text")
    with pytest.raises(ablate.Error, match="cannot be read as HDF5"):
        ablate.open(tmp_path / "text.h5")
    with pytest.raises(ablate.Error, match="No such file"):
        ablate.open(tmp_path / "nothing.h5")
