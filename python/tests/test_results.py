"""Results that a program has computed: judged for drawn inputs, and for its own arrays."""

import numpy as np
import pytest

import ablate
from ablate import draw, judge_results, random_words
from ablate._case import Case, to_bf16
from ablate._table import OUTPUT
from functions import FUNCTIONS, functions

WORDS = "softmax rows=4 columns=5 scale=2"


def results(words, case):
    forward, backward = functions(words)
    return {**forward(**case.inputs), **backward(case.inputs, case.upstream)}


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_right_results_pass_and_wrong_ones_fail(op, dtype, own):
    words = f"{FUNCTIONS[op][0]} dtype={dtype}"
    case = draw(words)
    given = {"inputs": case.inputs, "upstream": case.upstream} if own else {}
    found = results(words, case)
    verdicts = judge_results(case.words, results=found, **given)
    assert not verdicts.failed and {v.tensor for v in verdicts} == set(found)
    for name, array in found.items():
        wrong = judge_results(case.words, results={name: 1.5 * np.asarray(array, float)}, **given)
        assert [v.tensor for v in wrong.failed] == [name] and not wrong.ok


def test_sizes_follow_from_the_arrays():
    case = draw(WORDS)
    found = results(WORDS, case)
    verdicts = judge_results("softmax scale=2", case.inputs, found, upstream=case.upstream)
    assert verdicts.ok and "rows=4 columns=5" in verdicts.words
    assert all("arrays given" in v.note for v in verdicts)


def test_values_of_ones_own():
    x = to_bf16(np.random.default_rng(0).normal(size=(7, 9)).astype(np.float32))
    d_y = np.ones((7, 9), np.float32) + np.arange(9)
    for dtype in "fp32", "bf16":
        forward, backward = functions(f"softmax rows=7 columns=9 dtype={dtype}")
        found = {**forward(x=x), **backward({"x": x}, {"d_y": d_y})}
        assert judge_results(f"softmax dtype={dtype}", {"x": x}, found, upstream={"d_y": d_y}).ok
        # Their results for other values fail.
        assert judge_results(f"softmax dtype={dtype}", {"x": -x}, {"y": found["y"]}).failed


def test_states_and_gradients_that_are_left_out_are_zero():
    r = np.random.default_rng(0)
    given = {n: r.normal(size=(3, 2, 1, 4)).astype(np.float32) for n in ("k", "v", "q")}
    d_out = r.normal(size=(3, 2, 4)).astype(np.float32)
    found = dict(ablate.op("e74_cell")(**given, d_out=d_out))
    assert judge_results("e74_cell", given, found, upstream={"d_out": d_out}).ok
    # The words' initial states are those of draw() alone.
    assert judge_results("e74_cell input=nonzero", given, found, upstream={"d_out": d_out}).ok


def test_drawn_inputs_with_an_upstream_gradient_of_ones_own():
    case = draw(WORDS)
    d_y = np.ones((4, 5), np.float32)
    d_y[:, 0] = 3
    _, backward = functions(WORDS)
    found = backward(case.inputs, {"d_y": d_y})
    assert judge_results(WORDS, results=found, upstream={"d_y": d_y}).ok
    assert judge_results(WORDS, results=found).failed


def test_whole_numbers_and_bytes():
    case = draw("histogram size=100 bins=4")
    found = dict(ablate.op("histogram", bins=4)(**case.inputs))
    assert judge_results(case.words, results=found).ok
    found["counts"][0] += 1
    assert judge_results("histogram bins=4", case.inputs, found).failed
    case = draw("quantise format=q8_0 dim_out=2 dim_in=64")
    found = dict(ablate.op("quantise", format="q8_0")(**case.inputs))
    assert {str(a.dtype) for a in found.values()} == {"uint8"}
    assert judge_results(case.words, results=found).ok


def test_coarser_results_say_so():
    words = "rmsnorm rows=64 columns=256 dtype=bf16"
    case = draw(words)
    d_w = results(words, case)["d_w"]
    narrow = judge_results(words, results={"d_w": d_w.astype(np.float16)})
    assert narrow.ok and "rounds d_w:fp16" in narrow[0].note
    rounded = {"d_w": to_bf16(d_w.astype(np.float32))}
    assert judge_results(words, results=rounded).failed
    assert judge_results(words, results=rounded, rounds="d_w:bf16").ok


def test_a_null_answer_that_would_pass():
    x = np.abs(draw("relu rows=4 dim=5").inputs["x"])
    x[0, 0] = -1e-8
    verdicts = judge_results("relu", {"x": x}, {"y": np.maximum(x, 0)})
    assert verdicts.powerless and not verdicts.ok and not verdicts.failed
    assert verdicts[0].note == "a copy of x would pass; arrays given"


X = np.ones((4, 5), np.float32)
Y = np.full((4, 5), 0.2)


@pytest.mark.parametrize("arguments, sentence", [
    (("softmx", {"x": X}, {"y": Y}), "there is no operation softmx"),
    (("", {"x": X}, {"y": Y}), "there is no operation"),
    (("softmax dim=3", {"x": X}, {"y": Y}), "softmax has no parameter dim"),
    (("softmax rows", {"x": X}, {"y": Y}), "expected key=value at: rows"),
    (("softmax scale=1 scale=2", {"x": X}, {"y": Y}), "scale is listed twice"),
    (("softmax rows=3", {"x": X}, {"y": Y}), "x has 4 along rows, rows = 3 is asked for"),
    (("softmax input=hdf5 file=a.h5", {"x": X}, {"y": Y}), "input=hdf5: read the file, and give its"),
    (("softmax", {}, {"y": Y}), r"x is missing: \[rows,columns\]"),
    (("softmax", {"z": X}, {"y": Y}), "softmax has no input z here; it has x"),
    (("softmax", {"x": X[0]}, {"y": Y}), r"x is \[5\], it has the axes rows, columns"),
    (("softmax", {"x": X > 0}, {"y": Y}), "x has the type bool"),
    (("softmax", {"x": X / 3.0}, {"y": Y}), None),
    (("softmax", {"x": np.full((4, 5), 1 / 3)}, {"y": Y}), r"x has 0.333+ at \[0, 0\], which fp32 does not"),
    (("softmax dtype=bf16", {"x": X / 3}, {"y": Y}), r"x has 0.333.* at \[0, 0\], which bf16 does not hold"),
    (("softmax", X, {"y": Y}), "inputs is a dict of arrays by name, not ndarray"),
    (("softmax", {"x": X}, Y), "results is a dict of arrays by name, not ndarray"),
    (("softmax", {"x": X}), "results is a dict of arrays by name, not NoneType"),
    (("softmax", {"x": X}, {}), "there is no result to judge; they are y, d_x"),
    (("softmax", {"x": X}, {"y": None}), "there is no result to judge"),
    (("softmax", {"x": X}, {"z": Y}), "the results have no z; they are y, d_x"),
    (("softmax", {"x": X}, {"y": Y[:3]}), r"y has the shape \[3, 5\], it should have \[4, 5\]"),
    (("softmax", {"x": X}, {"y": np.zeros((4, 5), int)}), "y has the type int64, and not that of real"),
    (("softmax", {"x": X}, {"d_x": Y}), "d_x needs the gradients of the outputs: upstream = d_y"),
    (("softmax", {"x": X}, {"y": Y}, "y:fp7"), "rounds: fp7 is none of the types"),
    (("softmax", {"x": X}, {"y": Y}, 5), "rounds is text"),
    (("softmax", {"x": X}, {"y": Y}, "", {"d_z": Y}), "softmax has no input d_z here"),
    (("softmax accumulate=yes rows=4 columns=5", None, {"d_x": Y}), "accumulate=yes: "),
])
def test_wrong_calls_have_a_sentence(arguments, sentence):
    if sentence is None:
        assert judge_results(*arguments).ok
        return
    with pytest.raises(ablate.Error, match=f"^{sentence}"):
        judge_results(*arguments)


def test_a_case_as_arrays():
    case = draw("e74_cell steps=3 batch=2 n_state=4 dtype=bf16 seed=5")
    assert case.inputs["k"].shape == (3, 2, 1, 4) and case.upstream["d_out"].shape == (3, 2, 4)
    assert case.inputs["S0"].any() and set(case.upstream) == set(Case(case.words).gradients(OUTPUT))
    assert np.array_equal(case.inputs["k"], to_bf16(case.inputs["k"]))
    again = draw(case.words)
    assert again.words == case.words
    assert all(np.array_equal(again.inputs[n], a) for n, a in case.inputs.items())
    assert not draw("e74_cell steps=3 batch=2 n_state=4 input=normal").inputs["S0"].any()


def test_what_is_drawn_is_what_a_judged_function_gets():
    seen = []

    def softmax(x):
        seen.append(x.copy())
        return np.exp(2 * x) / np.exp(2 * x).sum(1, keepdims=True)
    ablate.judge(softmax, WORDS + " seed=3")
    assert any(np.array_equal(draw(WORDS + " seed=3").inputs["x"], x) for x in seen)


def test_random_words():
    words = [random_words("softmax", seed=2, index=i) for i in range(20)]
    assert len(set(words)) > 10 and all(w.startswith("softmax rows=") for w in words)
    assert words[3] == random_words("softmax", seed=2, index=3) != random_words("softmax", seed=3, index=3)
    assert {random_words(index=i).split()[0] for i in range(200)} > {"softmax", "gemm"}
    for w in words[:5]:
        assert draw(w).inputs["x"].ndim == 2
    random_words(seed=2**64 - 1, index=2**63 - 1)
    for arguments, sentence in [(("softmx",), "there is no operation softmx"), ((5,), "op is the name of")]:
        with pytest.raises(ablate.Error, match=sentence):
            random_words(*arguments)
    for key, value in ("seed", -1), ("seed", 2**64), ("index", -1), ("index", 2**63), ("index", 1.0):
        with pytest.raises(ablate.Error, match=f"^{key} = {value} is no whole number from 0 to 2"):
            random_words(**{key: value})
