"""ablate.judge: right functions pass, wrong ones are caught."""

import os

import numpy as np
import pytest

import ablate
import kernels
from ablate import _library
from ablate._case import Case, to_bf16
from functions import FUNCTIONS, NO_NUMBERS, SAME_RESULTS, WRONG, drawn, functions

CASES = int(os.environ.get("ABLATE_JUDGE_CASES", "200"))


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_right_ones_pass(op, dtype):
    words = f"{FUNCTIONS[op][0]} dtype={dtype}"
    forward, backward = functions(words)
    verdicts = ablate.judge(forward, words, backward)
    assert verdicts.ok
    assert len(verdicts) >= 6


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("op", FUNCTIONS)
def test_wrong_ones_are_caught(op, wrong):
    words = FUNCTIONS[op][0]
    verdicts = ablate.judge(*_swap(WRONG[wrong](*functions(words)), words))
    assert verdicts.failed and not verdicts.ok


def _swap(pair, words):
    return pair[0], words, pair[1]


@pytest.mark.parametrize("op", FUNCTIONS)
def test_no_false_alarm_in_drawn_cases(op):
    share = -(-CASES // len(FUNCTIONS))
    powerless = 0
    for i in range(share):
        words = drawn(op, 1, i)
        forward, backward = functions(words)
        with np.errstate(all="ignore"):
            verdicts = ablate.judge(forward, words, backward)
        assert not verdicts.failed, verdicts
        powerless += bool(verdicts.powerless)
    print(f"{op}: {share} cases, {powerless} of them powerless in part")


def test_inputs_that_are_changed_are_named():
    def forward(x):
        y = np.maximum(x, 0)
        x *= 2
        return y
    verdicts = ablate.judge(forward, "relu rows=4 dim=5")
    assert {"inputs unchanged"} == {r.check for r in verdicts.failed}


def test_a_function_that_differs_from_call_to_call():
    n = iter(range(9))
    verdicts = ablate.judge(lambda x: np.maximum(x, 0) * (1 + 1e-7 * next(n)), "relu rows=4 dim=5")
    assert verdicts.failed


def test_no_check_is_an_error():
    with pytest.raises(ablate.Error, match="gave no result"):
        ablate.judge(lambda x: {}, "relu rows=4 dim=5")


def test_a_case_in_which_a_null_answer_is_right_enough():
    verdicts = ablate.judge(lambda x: np.full_like(x, 0.25),
                            "softmax rows=6 columns=4 scale=1e-6 dtype=bf16 fill=normal")
    assert verdicts.powerless and not verdicts.ok and not verdicts.failed
    assert verdicts.reasons == {"y": "powerless"} and verdicts.ok_or("powerless")
    assert len(verdicts.cases) == 7  # it was drawn again


@pytest.mark.parametrize("returned, message", [
    (lambda x: x[0], r"y has the shape \[5\], it should have \[4, 5\]"),
    (lambda x: {"z": x}, "the outputs have no z; they are y"),
    (lambda x: (x, x), "the function returned a tuple of 2; it is to return y"),
])
def test_what_cannot_be_judged(returned, message):
    with pytest.raises(ablate.Error, match=message):
        ablate.judge(returned, "relu rows=4 dim=5")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("op", FUNCTIONS)
def test_results_that_are_no_numbers(op):
    words = FUNCTIONS[op][0]
    forward, backward = functions(words)

    def changed(function, change):
        return lambda *a, **k: {n: change(np.asarray(v)) for n, v in function(*a, **k).items()}
    for other in NO_NUMBERS.values():
        for f, b in (changed(forward, other), None), (forward, changed(backward, other)):
            with pytest.raises(ablate.Error, match="^[A-Za-z_]+ (has|is) "):
                ablate.judge(f, words, b)
    for change in SAME_RESULTS.values():
        assert ablate.judge(changed(forward, change), words, changed(backward, change)).ok


def _result(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


ONE = "it is to return y: the array, or a dict or a tuple of it$"
TWO = "it is to return o, lse: a dict of arrays by these names, or a tuple in this order$"
ODD_RESULTS = {
    "None": (lambda y: None, f"returned None; {ONE}"),
    "a text": (lambda y: "y", f"returned an object of the type str; {ONE}"),
    "bytes": (lambda y: b"y", f"returned an object of the type bytes; {ONE}"),
    "a generator": (lambda y: (a for a in [y]), f"returned an object of the type generator; {ONE}"),
    "an iterator": (lambda y: map(abs, [y]), f"returned an object of the type map; {ONE}"),
    "a set": (lambda y: {1}, f"returned an object of the type set; {ONE}"),
    "values of a dict": (lambda y: {"y": y}.values(), f"returned an object of the type dict_values; {ONE}"),
    "a function": (lambda y: _result, f"returned an object of the type function; {ONE}"),
    "an object": (lambda y: object(), f"returned an object of the type object; {ONE}"),
    "a tuple that is too long": (lambda y: (y, y), f"returned a tuple of 2; {ONE}"),
    "a list of rows": (lambda y: y.tolist(), f"returned a list of 4; {ONE}"),
    "an unknown name": (lambda y: {"out": y}, "the outputs have no out; they are y$"),
    "a name that is no text": (lambda y: {0: y}, "the outputs have no 0; they are y$"),
    "a tuple in a tuple": (lambda y: ((y,),), "y is tuple, and no array of numbers$"),
    "ragged lists": (lambda y: [[[1], [1, 2]]], "y is list, and no array of numbers$"),
    "a generator in a tuple": (lambda y: ((a for a in y),), "y is generator, and no array of numbers$"),
    "a dict in a dict": (lambda y: {"y": {"y": y}}, "y is dict, and no array of numbers$"),
    "a text in a dict": (lambda y: {"y": "y"}, "y is str, and no array of numbers$"),
    "a number": (lambda y: 1.5, r"y has the shape \[\], it should have \[4, 5\]$"),
    "nothing": (lambda y: {}, "the function gave no result of softmax"),
    "an empty tuple": (lambda y: (), "the function gave no result of softmax"),
}


@pytest.mark.parametrize("kind", ODD_RESULTS)
def test_odd_results(kind):
    """One sentence says what was returned, and what is wanted."""
    change, sentence = ODD_RESULTS[kind]
    with pytest.raises(ablate.Error, match=sentence):
        ablate.judge(lambda x: change(_result(x)), "softmax rows=4 columns=5")


def test_odd_gradients():
    words = "softmax rows=4 columns=5"
    for found, sentence in [
            (None, "^backward returned None; it is to return d_x: the array"),
            ((1, 2), "^backward returned a tuple of 2; it is to return d_x: the array"),
            ({"x": 1, "d_x": 1}, "^the gradients have d_x twice, as d_x and x$"),
            ({"y": 1}, "^the gradients have no y; they are d_x$")]:
        with pytest.raises(ablate.Error, match=sentence):
            ablate.judge(_result, words, lambda inputs, upstream: found)
    for found in (), {}, [None]:
        verdicts = ablate.judge(_result, words, lambda inputs, upstream: found)
        assert not verdicts.ok and verdicts.reasons == {"d_x": "not given"}
        assert ablate.judge(_result, words, lambda inputs, upstream: found, without="d_x").ok
    with pytest.raises(ablate.Error, match="^backward returned an array; it is to return an empty dict: "
                                           "there are no gradients here$"):
        ablate.judge(lambda x: np.zeros(4), "histogram size=100 bins=4", lambda inputs, upstream: np.zeros(4))
    with pytest.raises(ablate.Error, match=f"^the function returned a list of 3; {TWO}"):
        ablate.judge(lambda **inputs: [1, 2, 3], "attention batch=1 steps=2 heads=1 dim=2")


def test_an_array_of_another_library_is_one():
    class Array:  # as JAX's: neither NumPy's nor a sequence to it
        def __init__(self, values):
            self.values, self.dtype = values, values.dtype

        def __array__(self, dtype=None, copy=None):
            return self.values

        def __len__(self):
            return len(self.values)

    assert ablate.judge(lambda x: Array(_result(x)), "softmax rows=4 columns=5").ok


@pytest.mark.parametrize("kind", [">f2", "<f2"])
def test_float16_of_either_byte_order_says_so_by_itself(kind):
    forward, backward = functions(WEIGHTS)
    wide = lambda i, u: {"d_w": backward(i, u)["d_w"].astype(kind)}
    assert "rounds d_w:fp16" in str(ablate.judge(forward, WEIGHTS, wide))


def test_results_of_pytorch_that_are_views():
    torch = pytest.importorskip("torch")
    words = "relu rows=4 dim=5"
    assert ablate.judge(lambda x: torch._neg_view(-torch.tensor(x).relu()), words).ok
    for other in lambda t: t > 0, lambda t: t + 0j, lambda t: (t + 0j).conj(), torch.Tensor.to_sparse:
        with pytest.raises(ablate.Error, match="^y (has|is) "):
            ablate.judge(lambda x: other(torch.tensor(x).relu()), words)


def test_an_initial_state_that_is_ignored():
    def forward(k, v, q, S0):
        r = ablate.op("e74_cell")(k=k, v=v, q=q)
        return {"out": r.out, "S_T": r.S_T}
    words = "e74_cell steps=4 batch=2 n_state=5"
    assert ablate.judge(forward, words).failed
    assert not ablate.judge(forward, words + " input=normal").failed


def test_wrong_words():
    with pytest.raises(ablate.Error, match="no such operation"):
        ablate.judge(lambda x: x, "rellu rows=4")


def test_a_table_is_printed():
    forward, backward = functions("relu rows=4 dim=5")
    text = str(ablate.judge(forward, "relu rows=4 dim=5", backward))
    assert "parity" in text and "0 failed" in text


# A gradient that the contract has in float32, given in bf16.
WEIGHTS = "rmsnorm rows=64 columns=256 dtype=bf16"


def _rmsnorm(cast):
    forward, backward = functions(WEIGHTS)

    def narrow(inputs, upstream):
        found = backward(inputs, upstream)
        return {**found, "d_w": cast(to_bf16(found["d_w"].astype(np.float32)))}
    return forward, WEIGHTS, narrow


def test_a_gradient_in_bf16_is_refused_unless_it_says_so():
    plain = _rmsnorm(np.asarray)
    assert {r.tensor for r in ablate.judge(*plain).failed} == {"d_w"}
    verdicts = ablate.judge(*plain, rounds="d_w:bf16")
    assert verdicts.ok
    assert all("rounds d_w:bf16" in r.note for r in verdicts if r.check == "parity"
               and r.verdict == "pass")
    assert {r.distance for r in verdicts if r.check == "repeat"} == {""}


def test_an_array_of_bf16_says_so_by_itself():
    torch = pytest.importorskip("torch")
    verdicts = ablate.judge(*_rmsnorm(lambda x: torch.tensor(x).to(torch.bfloat16)))
    assert verdicts.ok
    assert "rounds d_w:bf16" in str(verdicts)


def test_what_is_rounded_is_not_a_way_to_be_wrong():
    forward, words, backward = _rmsnorm(np.asarray)
    wrong = lambda inputs, upstream: {"d_w": 1.01 * backward(inputs, upstream)["d_w"]}
    assert ablate.judge(forward, words, wrong, rounds="d_w:bf16").failed


@pytest.mark.parametrize("rounds, message", [
    ("d_w:bf17", "bf17 is none of the types fp32, bf16, fp16"),
    ("foo:bf16", "foo is no result of rmsnorm here, and none of its sites, which are xhat dxhat"),
    ("xhat:", "xhat: is not NAME:TYPE"),
    ("xhat:bf16 xhat:fp16", "xhat is named twice"),
    ("rstd:bf16", "rstd is kept for the backward pass, and never given"),
    (5, "rounds is text, NAME:TYPE and blanks between such words, not int"),
    ("xhat", "xhat is not NAME:TYPE"),
    ("y:bf16", "y is bf16, and bf16 is no coarser"),
])
def test_words_that_say_nothing_of_rounding(rounds, message):
    with pytest.raises(ablate.Error, match=message):
        ablate.judge(*_rmsnorm(np.asarray), rounds=rounds)


def test_a_site_in_bf16():
    """The normalised row in bf16, whose effect on a sum in float32 must be declared."""
    forward, _ = functions(WEIGHTS)

    def stored(inputs, upstream):
        x, d_y = inputs["x"].astype(float), upstream["d_y"].astype(float)
        n = to_bf16((x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)).astype(np.float32))
        return {"d_w": (d_y * n).sum(0)}
    assert ablate.judge(forward, WEIGHTS, stored).failed
    assert ablate.judge(forward, WEIGHTS, stored, rounds="xhat:bf16", without="d_x").ok


def test_llamas_rmsnorm_of_long_rows():
    """A column has one weight, so its gradient's rounding is alike where the upstream gradient is."""
    words = "rmsnorm rows=128 columns=2048 dtype=bf16"
    right = kernels.stored(words, kernels.rmsnorm(words, form="bf16(x r) w"))
    for seed in range(3):
        assert ablate.judge(right[0], f"{words} seed={seed + 1}", right[1]).ok


def test_scores_in_bf16_must_be_declared():
    words = ("attention batch=2 steps=130 heads=2 dim=128 mask=causal scale=0.5 d_lse=zero "
             "dtype=bf16 seed=1")
    eager = kernels.stored(words, kernels.attention(words, between=kernels.bf16,
                                                    form="divided first", scores=kernels.bf16))
    forward = lambda **inputs: {"o": eager[0](**inputs)["o"]}
    assert ablate.judge(forward, words, eager[1]).failed
    assert ablate.judge(forward, words, eager[1], rounds="S:bf16", without="lse").ok


@pytest.mark.parametrize("cast", ["bfloat16", "float16"])
def test_equal_values_that_are_given_in_a_coarser_type(cast):
    """They are all rounded one way."""
    torch = pytest.importorskip("torch")
    words = "reduce rows=64 length=300 kind=mean"

    def backward(inputs, upstream):
        d = torch.tensor(upstream["d_y"]).double()[:, None].expand(64, 300) / 300
        return {"d_x": d.to(getattr(torch, cast))}
    assert not ablate.judge(lambda x: x.astype(float).mean(1), words, backward).failed


def test_huge_logits_are_judged():
    right = ablate.op("cross_entropy")
    words = "cross_entropy rows=64 vocabulary=100 fill=outliers"
    for factor, ok in (1, True), (1.05, False), (0, False):
        def scaled(logits, target):
            found = right(logits=logits, target=target)
            return {n: factor * getattr(found, n) for n in ("loss", "row_loss", "lse")}
        assert ablate.judge(scaled, words).ok == ok


def test_what_would_pass():
    """The judge says which mistakes a case does not show; by the results that were given."""
    def rmsnorm(x, w):
        return x / np.sqrt((x * x).mean(1, keepdims=True) + np.float32(1e-6)) * w

    words = "rmsnorm rows=16 columns=64 dtype=bf16 fill=normal"
    plain = ablate.judge(rmsnorm, words)
    assert plain.ok and plain.would_pass is None and "would pass" not in str(plain)
    verdicts = ablate.judge(rmsnorm, words, power=True)
    assert verdicts.ok and "eps = 0" in verdicts.would_pass and "would pass: eps = 0" in str(verdicts)
    # Of a gradient's mistake nothing is asked where outputs alone were given.
    assert "dw has all rows but the last" not in verdicts.would_pass
    tiny = ablate.judge(rmsnorm, words.replace("normal", "tiny"), power=True)
    assert "eps = 0" not in tiny.would_pass and "w drawn anew" not in tiny.would_pass


def test_what_is_seen():
    """An error that is said to be seen is refused, and one that is less passes."""
    words = "rmsnorm rows=16 columns=64 fill=normal"

    def off(by):
        def rmsnorm(x, w):
            x = x.astype(np.float64)
            return (1 + by) * x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * w
        return ablate.judge(rmsnorm, words, power=True)

    seen = [v.sees for v in off(0) if v.check == "parity"]
    assert len(seen) == 3 and 1e-8 < min(seen) and max(seen) < 1e-6
    assert not off(1.1 * seen[0]).ok and off(0.4 * min(seen)).ok


def test_what_would_pass_as_declared():
    """What a function declares that it rounds hides more: so it does here."""
    def rmsnorm(x, w, eps=1e-6):
        y = x / np.sqrt((x.astype(float) ** 2).mean(1, keepdims=True) + eps) * w
        return kernels.bf16(y).astype(np.float32)

    words = "rmsnorm rows=64 columns=256 fill=normal"
    verdicts = ablate.judge(rmsnorm, words, rounds="y:bf16", power=True)
    assert verdicts.ok and "eps = 0" in verdicts.would_pass
    assert ablate.judge(lambda x, w: rmsnorm(x, w, 0), words, rounds="y:bf16").ok
    with pytest.raises(ablate.Error, match="z is no output or gradient"):
        _library.call("abl_passing", Case(words), "z", None)
