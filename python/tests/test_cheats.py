"""Ways to cheat `ablate.judge`: each is caught, and its right twin, by the same machinery, is ok.

A cheat makes from words a forward and a backward function: with `right` the twin.  UNCAUGHT are those
that one process cannot see, each with the reason; that they pass is tested, too."""

import gc
import os
import subprocess
import sys
import threading
import time
from typing import Any, NamedTuple

import numpy as np
import pytest

import ablate
import kernels
from ablate import _judge, _library, _verdicts
from ablate._case import Case
from functions import functions
from kernels import bf16, kept_bits, single, stored

SEEDS = int(os.environ.get("ABLATE_CHEAT_SEEDS", "1"))

SOFTMAX = "softmax rows=9 columns=20"
GEMM = "gemm M=9 N=10 K=11"
SWIGLU = "swiglu rows=9 dim=12"
RMSNORM = "rmsnorm rows=9 columns=20"
# Keys of -inf (fill=masked) need a kernel that skips them: 0 times these is NaN in the gradient of q.
ATTENTION = "attention batch=1 steps=12 heads=2 dim=8 mask=causal fill=normal"


class Cheat(NamedTuple):
    """One way to cheat: how `make(words, right)` makes it, and how it is judged."""

    kind: str
    words: str
    make: Any
    twin: bool
    error: str  # if that is what the judge says of it
    options: dict


CHEATS: dict[str, Cheat] = {}


def cheat(kind, words, twin=True, error="", **options):
    """Puts a function into the table."""
    def put(make):
        CHEATS[f"{kind} {make.__name__}"] = Cheat(kind, words, make, twin, error, options)
        return make
    return put


def judged(one, right, seed):
    forward, backward = one.make(one.words, right)
    with np.errstate(all="ignore"):
        return ablate.judge(forward, one.words, backward, seed=seed, **one.options)


# ---- A: off by too little for a coarse bound ----

def changed(words, how, of=None, right=False):
    """The right kernel, whose results are changed before they are rounded."""
    kernel = getattr(kernels, words.split()[0])(words)
    return stored(words, kernel, **({} if right else {"change": how, "of": of}))


@cheat("A", "gemm M=32 N=32 K=64 dtype=bf16")
def one_percent_in_bf16(words, right):
    return changed(words, lambda y: 1.01 * y.astype(float), right=right)


@cheat("A", "silu rows=64 dim=64 dtype=bf16")
def three_per_mille_in_bf16(words, right):
    return changed(words, lambda y: 1.003 * y.astype(float), right=right)


@cheat("A", "gemm M=32 N=32 K=64")
def a_millionth_in_fp32(words, right):
    return changed(words, lambda y: (1 + 1e-6) * y.astype(float), right=right)


@cheat("A", "silu rows=16 dim=64")
def four_ulp_in_fp32(words, right):
    return changed(words, lambda y: y + 4 * np.spacing(np.abs(single(y))).astype(float), right=right)


@cheat("A", "silu rows=64 dim=64 dtype=bf16")
def bf16_by_cutting(words, right):
    store = {} if right else {"store": lambda y: kept_bits(y, 8)}
    return stored(words, kernels.silu(words), **store)


@cheat("A", "gemm M=32 N=32 K=64")
def twenty_bits(words, right):
    store = {} if right else {"store": lambda y: kept_bits(y, 20)}
    return stored(words, kernels.gemm(words), **store)


@cheat("A", "rmsnorm rows=16 columns=256 dtype=bf16")
def columns_left_out_of_a_mean(words, right):
    return stored(words, kernels.rmsnorm(words, seen=None if right else 248))


@cheat("A", "gemm M=32 N=32 K=64 dtype=bf16")
def fp8_operands(words, right):
    return stored(words, kernels.gemm(words, operands=single if right else kernels.e4m3))


@cheat("A", "gemm M=16 N=16 K=512 dtype=bf16")
def one_product_lost(words, right):
    return stored(words, kernels.gemm(words, lost=None if right else ...))


@cheat("A", "gemm M=16 N=16 K=512")
def one_product_lost_in_one_element(words, right):
    return stored(words, kernels.gemm(words, lost=None if right else (5, 7)))


@cheat("A", "attention batch=1 steps=32 heads=2 dim=40 mask=causal fill=normal dtype=bf16")
def the_scale_of_a_padded_width(words, right):
    return stored(words, kernels.attention(words, scale=(40 if right else 36) ** -0.5))


@cheat("A", SOFTMAX)
def no_maximum_subtracted(words, right):
    def forward(x):
        e = np.exp(x - x.max(-1, keepdims=True) if right else x)
        return e / e.sum(-1, keepdims=True)
    return forward, None


@cheat("A", "softmax", cases=36)
def no_maximum_subtracted_in_a_campaign(words, right):
    return no_maximum_subtracted(words, right)


def norm(words, mean, eps, right):
    def forward(x, w, b=0):
        x = single(x)
        c = x - x.mean(-1, keepdims=True) if mean else x
        if mean and not right:
            v = (x * x).mean(-1, keepdims=True) - x.mean(-1, keepdims=True) ** 2
        else:
            v = (c.astype(float) ** 2).mean(-1, keepdims=True)
        return c / np.sqrt(v + eps) * w + b
    return forward, None


@cheat("A", "layernorm rows=13 columns=96")
def mean_of_squares_less_squared_mean(words, right):
    return norm(words, True, 1e-6, right)


@cheat("A", "layernorm columns=96", cases=8)
def mean_of_squares_less_squared_mean_in_a_campaign(words, right):
    return norm(words, True, 1e-6, right)


@cheat("A", "rmsnorm rows=13 columns=96")
def no_eps(words, right):
    return norm(words, False, 1e-6 if right else 0, True)


@cheat("A", "rmsnorm columns=40 dtype=bf16", cases=10)
def no_eps_in_a_campaign(words, right):
    forward, _ = norm(words, False, 1e-6 if right else 0, True)
    return lambda x, w: bf16(forward(x, w)), None


@cheat("A", "softmax rows=8 columns=2048")
def small_probabilities_zero(words, right):
    return stored(words, kernels.softmax(words, smallest=0 if right else 2 ** -12))


@cheat("A", "silu rows=64 dim=64")
def two_per_mille_in_arrays_of_float16(words, right):
    """The type of an array widens the bounds, and hides no factor."""
    forward, _ = functions(words)
    return (lambda x: ((1 if right else 1.002) * forward(x=x)["y"].astype(float)).astype(np.float16)), None


# ---- B: where a maximum over a whole tensor looks the other way ----

def at(words, where, right, of=None, by=1.05):
    """The right kernel, but for one part of its results, which `where` indexes."""
    def how(y):
        y = np.array(y, np.float64)
        y[where] *= by
        return y
    return changed(words, how, of, right)


@cheat("B", "softmax rows=32 columns=64 dtype=bf16")
def one_row(words, right):
    return at(words, 5, right, {"y"})


@cheat("B", "gemm M=32 N=32 K=64 dtype=bf16")
def one_column(words, right):
    return at(words, (slice(None), 7), right, {"C"})


@cheat("B", "attention batch=1 steps=16 heads=4 dim=16 mask=causal fill=normal dtype=bf16")
def one_head(words, right):
    return at(words, (slice(None), slice(None), 3), right, {"o"})


@cheat("B", "scan rows=8 length=64 dtype=bf16")
def one_step(words, right):
    return at(words, (slice(None), 40), right, {"y"})


@cheat("B", "gemm M=32 N=32 K=64")
def one_element(words, right):
    return at(words, (3, 4), right, {"C"})


@cheat("B", "rmsnorm rows=32 columns=64 fill=tiny", without="d_w")
def small_rows_beside_large_ones(words, right):
    def how(y):
        size = np.abs(y).max(-1, keepdims=True)
        return np.where(size < 1e-3 * size.max(), 1.05 * y.astype(float), y)
    return changed(words, how, {"d_x"}, right)


@cheat("B", "softmax rows=64 columns=32 dtype=bf16")
def some_rows_of_a_gradient_zero(words, right):
    return at(words, slice(39, None), right, {"d_x"}, 0)


def where_sizes(words, right, is_wrong, part=slice(None)):
    """A softmax that is wrong in those sizes alone, by 5 % in a part of each row."""
    plain, _ = functions(words)

    def forward(x):
        y = plain(x=x)["y"].astype(np.float64)
        if is_wrong(*x.shape) and not right:
            y[:, part] *= 1.05
        return y
    return forward, None


def without_the_rest_of(axis, words, right):
    """What is behind a multiple of 8 on an axis is 0."""
    plain, _ = functions(words)

    def forward(x):
        y = plain(x=x)["y"].astype(np.float64)
        if not right:
            np.moveaxis(y, axis, 0)[x.shape[axis] // 8 * 8:] = 0
        return y
    return forward, None


@cheat("B", "softmax", cases=36)
def the_columns_behind_a_multiple_of_8(words, right):
    return without_the_rest_of(1, words, right)


@cheat("B", "softmax", cases=36)
def the_rows_behind_a_multiple_of_8(words, right):
    return without_the_rest_of(0, words, right)


@cheat("B", "softmax", cases=8)
def only_large_sizes(words, right):
    return where_sizes(words, right, lambda rows, columns: columns > 1024)


@cheat("B", "softmax", cases=36)
def only_many_rows(words, right):
    return where_sizes(words, right, lambda rows, columns: rows > 100)


@cheat("B", "softmax", cases=36)
def only_one_column(words, right):
    return where_sizes(words, right, lambda rows, columns: columns == 1)


@cheat("B", "softmax", cases=36)
def only_one_row(words, right):
    return where_sizes(words, right, lambda rows, columns: rows == 1)


@cheat("B", "softmax", cases=36)
def only_odd_sizes(words, right):
    return where_sizes(words, right, lambda rows, columns: columns % 2)


@cheat("B", "softmax", cases=36)
def only_a_size_of_a_power_of_two(words, right):
    return where_sizes(words, right, lambda rows, columns: columns > 4 and not columns & (columns - 1))


@cheat("B", "softmax", cases=36)
def rows_that_have_minus_infinity(words, right):
    plain, _ = functions(words)

    def forward(x):
        y = plain(x=x)["y"]
        return y if right else np.where(np.isneginf(x).any(-1, keepdims=True), 1.05 * y, y)
    return forward, None


@cheat("B", "softmax", cases=36)
def no_nan_where_all_is_masked(words, right):
    """A row of -inf alone has no softmax."""
    plain, _ = functions(words)

    def forward(x):
        y = plain(x=x)["y"]
        return y if right else np.nan_to_num(y)
    return forward, None


@cheat("B", "softmax", cases=36)
def only_values_beyond_100(words, right):
    plain, _ = functions(words)

    def forward(x):
        return plain(x=x if right else np.clip(x, -100, 100))["y"]
    return forward, None


# ---- C: left out ----

def with_gradients(words, right, how):
    """The right function, whose gradients are changed."""
    forward, backward = functions(words)
    return forward, backward if right else lambda i, u: how(i, u, backward)


@cheat("C", RMSNORM)
def no_gradient(words, right):
    return with_gradients(words, right, lambda i, u, back: {})


@cheat("C", RMSNORM)
def one_gradient_left_out(words, right):
    return with_gradients(words, right, lambda i, u, back: {"d_x": back(i, u)["d_x"]})


@cheat("C", RMSNORM)
def a_gradient_that_is_none(words, right):
    return with_gradients(words, right, lambda i, u, back: {**back(i, u), "d_w": None})


@cheat("C", RMSNORM)
def gradients_of_zeros(words, right):
    return with_gradients(words, right,
                          lambda i, u, back: {n: np.zeros_like(g) for n, g in back(i, u).items()})


@cheat("C", RMSNORM)
def upstream_taken_as_ones(words, right):
    return with_gradients(words, right, lambda i, u, back: back(i, {n: np.ones_like(g) for n, g in u.items()}))


@cheat("C", RMSNORM, error="backward returned None")
def backward_that_returns_none(words, right):
    return with_gradients(words, right, lambda i, u, back: None)


@cheat("C", RMSNORM, without="d_w")
def without_hides_no_other(words, right):
    return with_gradients(words, right, lambda i, u, back: {"d_x": 1.01 * back(i, u)["d_x"]})


@cheat("C", RMSNORM, without="d_w")
def what_without_names_is_judged_if_given(words, right):
    return with_gradients(words, right, lambda i, u, back: {**back(i, u), "d_w": 1.01 * back(i, u)["d_w"]})


@cheat("C", ATTENTION)
def an_output_left_out(words, right):
    forward, backward = stored(words, kernels.attention(words))
    return (lambda **i: {n: y for n, y in forward(**i).items() if right or n != "lse"}), backward


@cheat("C", ATTENTION)
def a_logarithm_of_zeros(words, right):
    forward, backward = stored(words, kernels.attention(words))
    return (lambda **i: {n: y if right or n != "lse" else 0 * y for n, y in forward(**i).items()}), backward


@cheat("C", "cross_entropy rows=9 vocabulary=20")
def all_but_the_loss(words, right):
    forward, backward = stored(words, kernels.cross_entropy(words))
    return (lambda **i: {n: y for n, y in forward(**i).items() if right or n == "loss"}), backward


@cheat("C", "cross_entropy rows=9 vocabulary=20")
def a_gradient_of_the_loss_alone(words, right):
    """Those through row_loss and lse are left out."""
    forward, backward = stored(words, kernels.cross_entropy(words))

    def back(inputs, upstream):
        return backward(inputs, upstream if right else
                        {n: g if n == "d_loss" else 0 * g for n, g in upstream.items()})
    return forward, back


@cheat("C", RMSNORM)
def not_given_in_later_calls(words, right):
    calls = iter(range(10**9))

    def how(inputs, upstream, back):
        found = back(inputs, upstream)
        return found if next(calls) < 2 else {"d_x": found["d_x"]}
    return with_gradients(words, right, how)


def e74(right):
    def forward(k, v, q, S0):
        r = ablate.op("e74_cell")(k=k, v=v, q=q, **({"S0": S0} if right else {}))
        return {"out": r.out, "S_T": r.S_T}
    return forward, None


@cheat("C", "e74_cell steps=4 batch=2 n_state=5")
def an_initial_state_ignored(words, right):
    return e74(right)


@cheat("C", "e74_cell", cases=3)
def an_initial_state_ignored_in_a_campaign(words, right):
    return e74(right)


@cheat("C", "softmax rows=9 columns=20 scale=30 dtype=bf16 fill=normal")
def zeros_for_a_gradient_that_is_hard_to_judge(words, right):
    return with_gradients(words, right, lambda i, u, back: {"d_x": np.zeros_like(i["x"])})


@cheat("C", "softmax rows=9 columns=20 scale=1e-6 dtype=bf16 fill=normal", twin=False)
def the_mean_where_nothing_else_shows(words, right):
    return (lambda x: np.full_like(x, 1 / x.shape[1])), None


# ---- D: right in a few calls ----

def copies(found):
    return {n: np.array(y) for n, y in found.items()}


def cached(words, key, right):
    """Results that are kept by a key of what is given; the twin's is all of it."""
    forward, backward = functions(words)
    kept = {}

    def whole(given):
        return tuple((n, a.tobytes()) for n, a in sorted(given.items()))

    def kept_by(which, given, compute):
        found = which, whole(given) if right else key(given)
        if found not in kept:
            kept[found] = copies(compute())
        return copies(kept[found])
    return ((lambda **i: kept_by("y", i, lambda: forward(**i))),
            (lambda i, u: kept_by("d", {**i, **u}, lambda: backward(i, u))))


def keyed(kind, words=SOFTMAX):
    """Puts a cache by a key into the table."""
    def put(key):
        def make(words, right):
            return cached(words, key, right)
        make.__name__ = key.__name__
        cheat(kind, words)(make)
        return key
    return put


@keyed("D")
def cache_by_first_element(given):
    return tuple(a.flat[0] for a in given.values())


@keyed("D")
def cache_by_last_element(given):
    return tuple(a.flat[-1] for a in given.values())


@keyed("D")
def cache_by_shape(given):
    return tuple(a.shape for a in given.values())


@keyed("D")
def cache_by_address(given):
    return tuple(a.ctypes.data for a in given.values())


@keyed("D")
def cache_by_identity(given):
    return tuple(id(a) for a in given.values())


@keyed("D", GEMM)
def cache_by_one_of_two_inputs(given):
    return given["A"].tobytes()


@keyed("D", GEMM)
def cache_by_the_other_of_two_inputs(given):
    return given["B"].tobytes()


@keyed("D", SWIGLU)
def cache_by_inputs_without_upstream(given):
    return given["a"].tobytes(), given["b"].tobytes()


@keyed("D")
def cache_by_first_row(given):
    return tuple(a[0].tobytes() for a in given.values())


@keyed("D")
def cache_by_every_second_element(given):
    return tuple(a.ravel()[::2].tobytes() for a in given.values())


@keyed("D")
def cache_by_all_but_the_last_element(given):
    return tuple(a.ravel()[:-1].tobytes() for a in given.values())


@keyed("D")
def cache_by_all_but_the_first_element(given):
    return tuple(a.ravel()[1:].tobytes() for a in given.values())


@keyed("D")
def cache_by_sum(given):
    return tuple(round(float(a.sum(dtype=np.float64)), 9) for a in given.values())


@keyed("D")
def cache_by_the_sorted_values(given):
    return tuple(np.sort(a, axis=None).tobytes() for a in given.values())


@keyed("D")
def cache_by_largest_and_smallest(given):
    return tuple((a.max(), a.min()) for a in given.values())


@keyed("D", "softmax rows=64 columns=128")
def cache_by_rounded_mean(given):
    return tuple(round(float(a.mean()), 3) for a in given.values())


def by_calls(words, right, is_stale):
    """What the call before gave, in the calls that `is_stale` names by their number, from 0."""
    forward, backward = functions(words)
    count, kept = {"y": 0, "d": 0}, {}

    def of(which, compute):
        n = count[which]
        count[which] += 1
        if right or which not in kept or not is_stale(n):
            kept[which] = copies(compute())
        return copies(kept[which])
    return (lambda **i: of("y", lambda: forward(**i))), (lambda i, u: of("d", lambda: backward(i, u)))


@cheat("D", SOFTMAX)
def stale_after_three_calls(words, right):
    return by_calls(words, right, lambda n: n >= 3)


@cheat("D", SOFTMAX)
def stale_after_seven_calls(words, right):
    return by_calls(words, right, lambda n: n >= 7)


@cheat("D", SOFTMAX, cases=1)
def stale_after_seven_calls_of_one_case(words, right):
    return by_calls(words, right, lambda n: n >= 7)


@cheat("D", SOFTMAX, cases=1)
def stale_in_every_fifth_call(words, right):
    return by_calls(words, right, lambda n: n % 5 == 4)


@cheat("D", SOFTMAX)
def stale_by_a_race(words, right):
    random = np.random.default_rng(1)
    return by_calls(words, right, lambda n: random.random() < 1 / 8)


@cheat("D", SOFTMAX)
def the_result_of_the_call_before(words, right):
    forward, _ = functions(words)
    kept = []

    def previous(x):
        kept.append(forward(x=x)["y"])
        return kept[-1 if right else max(len(kept) - 2, 0)].copy()
    return previous, None


def buffered(words, right, buffer):
    """Results in memory that `buffer(name, shape)` gives; the twin's is new."""
    def into(found):
        out = {}
        for n, y in found.items():
            out[n] = np.empty(y.shape) if right else buffer(n, y.shape)
            out[n][...] = y
        return out
    forward, backward = functions(words)
    return (lambda **i: into(forward(**i))), (lambda i, u: into(backward(i, u)))


@cheat("D", SOFTMAX)
def one_static_buffer(words, right):
    kept = {}
    return buffered(words, right, lambda n, shape: kept.setdefault(n, np.empty(shape)))


@cheat("D", SOFTMAX)
def a_view_into_a_static_buffer(words, right):
    kept = np.empty(10**4)
    return buffered(words, right, lambda n, shape: kept[7:7 + np.prod(shape)].reshape(shape))


@cheat("D", SOFTMAX, cases=1)
def two_buffers_by_turns(words, right):
    """After the first call, which has its own."""
    kept, calls = {}, iter(range(10**9))

    def buffer(n, shape):
        if (k := next(calls)) < 2:
            return np.empty(shape)
        return kept.setdefault((n, k // 2 % 2), np.empty(shape))
    return buffered(words, right, buffer)


@cheat("D", SWIGLU)
def two_results_in_one_buffer(words, right):
    forward, backward = functions(words)

    def back(inputs, upstream):
        d = np.empty((2, *inputs["a"].shape))
        found = backward(inputs, upstream)
        d[0], d[1] = found["d_a"], found["d_b"]
        return {"d_a": d[0], "d_b": d[1] if right else d[0]}
    return forward, back


@cheat("D", "cross_entropy rows=1 vocabulary=20", without="lse row_loss")
def equal_results_in_one_memory(words, right):
    forward, _ = stored(words, kernels.cross_entropy(words))

    def one_loss(logits, target):
        found = forward(logits=logits, target=target)
        return {"loss": found["loss"], "row_loss": found["loss"].copy() if right else found["loss"]}
    return one_loss, None


@cheat("D", SOFTMAX)
def an_output_and_a_gradient_in_one_buffer(words, right):
    kept = {}

    def buffer(n, shape):
        if n == "y":
            kept["it"] = np.empty(shape)
        return kept["it"]
    return buffered(words, right, buffer)


@cheat("D", "silu rows=9 dim=12")
def a_static_buffer_of_float16(words, right):
    forward, _ = functions(words)
    kept = {}

    def narrow(x):
        y = np.empty(x.shape, np.float16) if right else kept.setdefault("y", np.empty(x.shape, np.float16))
        y[...] = forward(x=x)["y"]
        return y
    return narrow, None


@cheat("D", "silu rows=9 dim=12")
def a_static_buffer_of_the_other_byte_order(words, right):
    forward, _ = functions(words)
    kept, kind = {}, np.dtype(np.float32).newbyteorder("S")

    def swapped(x):
        y = np.empty(x.shape, kind) if right else kept.setdefault("y", np.empty(x.shape, kind))
        y[...] = forward(x=x)["y"]
        return y
    return swapped, None


@cheat("D", SOFTMAX)
def a_table_of_answers(words, right):
    """Those of the seeds 1 to 11 of these sizes; others get the nearest's."""
    forward, _ = functions(words)
    table = {}
    for seed in range(1, 12):
        x = Case(f"{words} seed={seed}").stored("x")
        table[x.tobytes()] = forward(x=x)["y"]
    last = table[x.tobytes()]
    return (lambda x: forward(x=x)["y"] if right else table.get(x.tobytes(), last).copy()), None


@cheat("D", SOFTMAX)
def filled_after_it_is_returned(words, right):
    forward, _ = functions(words)

    def later(x):
        x, y = x.copy(), np.zeros(x.shape)

        def fill():
            time.sleep(0 if right else 0.02)
            y[...] = forward(x=x)["y"]
        worker = threading.Thread(target=fill)
        worker.start()
        if right:
            worker.join()
        return y
    return later, None


@cheat("D", "relu rows=4 dim=5")
def inputs_changed_in_place(words, right):
    def forward(x):
        y = np.maximum(x, 0, out=None if right else x)
        return y.copy()
    return forward, None


@cheat("D", "relu rows=4 dim=5")
def the_input_overwritten_and_returned(words, right):
    return (lambda x: np.maximum(x, 0, out=None if right else x)), None


@cheat("D", "relu rows=4 dim=5")
def inputs_changed_and_restored_in_backward(words, right):
    forward, backward = functions(words)

    def doubled(x):
        y = forward(x=x)
        x *= 1 if right else 2
        return y

    def back(inputs, upstream):
        inputs["x"] *= 1 if right else 0.5
        return backward(inputs, upstream)
    return doubled, back


@cheat("D", "relu rows=4 dim=5")
def inputs_changed_by_backward(words, right):
    """The twin changes its dict alone."""
    forward, backward = functions(words)

    def back(inputs, upstream):
        found = backward(inputs, upstream)
        if right:
            inputs.clear()
        else:
            inputs["x"][0, 0] += 1
        return found
    return forward, back


@cheat("D", "relu rows=4 dim=5")
def upstream_changed(words, right):
    def back(inputs, upstream):
        d = upstream["d_y"] if not right else upstream["d_y"].copy()
        d *= inputs["x"] > 0
        return d.copy()
    return functions(words)[0], back


@cheat("D", RMSNORM)
def a_gradient_summed_over_calls(words, right):
    kept = {}

    def how(inputs, upstream, back):
        found = back(inputs, upstream)
        kept["d_w"] = found["d_w"] + kept.get("d_w", 0)
        return {**found, "d_w": kept["d_w"].copy()}
    return with_gradients(words, right, how)


@cheat("D", RMSNORM)
def backward_of_an_earlier_forward(words, right):
    """What the first forward kept is used; the twin uses what the last one kept."""
    forward, backward = functions(words)
    kept = {}

    def keeping(**inputs):
        if right or not kept:
            kept.update(copies(inputs))
        return forward(**inputs)
    return keeping, lambda i, u: backward(dict(kept), u)


@cheat("D", SOFTMAX, error="the function ended the program, with 0")
def one_that_ends_the_process(words, right):
    plain, _ = functions(words)

    def forward(x):
        if not right:
            sys.exit(0)
        return plain(x=x)
    return forward, None


@cheat("D", "relu rows=4 dim=5")
def a_view_that_has_no_memory_of_its_own(words, right):
    """One value for all of a row."""
    def forward(x):
        y = np.maximum(x, 0)
        return y if right else np.broadcast_to(y[:, :1], y.shape)
    return forward, None


# ---- E: in the judge's own process ----

class Uncaught(NamedTuple):
    """One that passes: why, and whether a process of its own for the function would stop it."""

    make: Any
    why: str
    own_process: bool
    options: dict


UNCAUGHT: dict[str, Uncaught] = {}


def uncaught(why, own_process=True, **options):
    """Puts a function into that table: it makes a forward function of a softmax that is none."""
    def put(make):
        UNCAUGHT[make.__name__] = Uncaught(make, why, own_process, options)
        return make
    return put


def zeros(x):
    return np.zeros_like(x)


@cheat("E", "relu rows=4 dim=5")
def an_array_that_lies(words, right):
    """Its class says of its values what the judge would like to hear."""
    class Lies(np.ndarray):
        def tobytes(self, *_):
            return b"right"

        def copy(self, *_):
            return self

        def astype(self, *_, **__):
            return self
    return (lambda x: np.maximum(x, 0).view(Lies) * (1 if right else 1.01)), None


@cheat("E", SOFTMAX, error="y has the shape")
def an_array_that_lies_of_its_shape(words, right):
    class Lies(np.ndarray):
        shape = property(lambda self: (9, 20))
    forward, _ = functions(words)
    return (lambda x: forward(x=x)["y"] if right else np.zeros(20).view(Lies)), None


@cheat("E", SOFTMAX)
def a_result_that_changes_when_it_is_read_again(words, right):
    forward, _ = functions(words)

    class Result:
        def __init__(self, y):
            self.reads, self.y, self.dtype = 0, y, y.dtype

        def __array__(self, dtype=None, copy=None):
            self.reads += 1
            return self.y if right or self.reads > 1 else np.zeros_like(self.y)
    return (lambda x: Result(forward(x=x)["y"])), None


@cheat("E", SOFTMAX)
def randomness_reset(words, right):
    """The judge's draws come from no generator that a function can set."""
    forward, _ = functions(words)
    answers = []

    def reset(x):
        import random
        random.seed(1)
        np.random.seed(1)
        answers.append(forward(x=x)["y"])
        return answers[-1 if right else 0].copy()
    return reset, None


@uncaught("the judge's case is in a frame below the function, and has the oracle's answers")
def oracle_in_the_frames(words, patch):
    def forward(x):
        frame = sys._getframe(1)
        while not isinstance(frame.f_locals.get("self"), _judge.Judged):
            frame = frame.f_back
        judge = frame.f_locals["self"]
        return next(c.expected("y") for c in (judge.other, judge.case)
                    if np.array_equal(c.get("x"), x, equal_nan=True))
    return forward


@uncaught("the judge's case can be found among all objects of the process")
def oracle_among_all_objects(words, patch):
    def forward(x):
        cases = [c for c in gc.get_objects() if isinstance(c, Case) and c.get("x").shape == x.shape]
        return next(c.expected("y") for c in cases if np.array_equal(c.get("x"), x, equal_nan=True))
    return forward


@uncaught("the function can make a case of its own and ask that")
def oracle_of_a_case_of_its_own(words, patch):
    def forward(x):
        case = Case(words)
        case.set("x", x)
        return case.expected("y")
    return forward


@uncaught("what the library computes is right, whoever asks it")
def the_librarys_own_operation(words, patch):
    return lambda x: ablate.op("softmax")(x=x).y


@uncaught("the function can replace how a verdict is read")
def verdicts_that_are_patched(words, patch):
    def forward(x):
        patch.setattr(_judge, "verdict_of", lambda row, check, note: _verdicts.Verdict(
            check, row.tensor.decode(), 0, 1, note=note))
        patch.setattr(_judge, "powerless", lambda case, row, *_: row)
        return np.random.default_rng(x.size).random(x.shape)
    return forward


@uncaught("the function can replace what ok is")
def ok_that_is_patched(words, patch):
    def forward(x):
        patch.setattr(_verdicts.Verdicts, "ok", True)
        return zeros(x)
    return forward


@uncaught("the function can replace calls of the library")
def the_library_patched(words, patch):
    def forward(x):
        real = _library.lib.abl_verdict

        def kind(handle, i, row):
            found = real(handle, i, row)
            row._obj.passed, row._obj.unjudged = 1, 0
            return found
        kind.restype = real.restype
        patch.setattr(_library.lib, "abl_verdict", kind)
        patch.setattr(_judge, "powerless", lambda case, row, *_: row)
        return np.ones_like(x)
    return forward


@uncaught("the function can replace NumPy's functions, by which memory is compared")
def numpy_patched(words, patch):
    plain, kept = functions(words)[0], {}

    def forward(x):
        patch.setattr(np, "shares_memory", lambda *_, **__: False)
        y = kept.setdefault(x.shape, np.empty(x.shape))
        y[...] = plain(x=x)["y"]
        return y
    return forward


@uncaught("the function can set the clock that the judge reads: only few calls are made then",
          seconds=10)
def the_clock_patched(words, patch):
    plain, calls, hours = functions(words)[0], iter(range(10**9)), iter(range(10**9, 2 * 10**9, 3600))

    def forward(x):
        patch.setattr(_judge.time, "monotonic", lambda: next(hours))
        y = plain(x=x)["y"]
        return y if next(calls) < 4 else zeros(x)
    return forward


@uncaught("who knows the seed knows all draws: give none, then the system's is taken", False)
def a_table_of_all_draws_of_a_known_seed(words, patch):
    plain, table = functions(words)[0], {}
    patch.setattr(_judge, "_SECONDS", 100)  # all calls, however slow the machine is

    def learns(x):
        return table.setdefault(x.tobytes(), plain(x=x)["y"]).copy()
    assert ablate.judge(learns, words, seed=1).ok
    return lambda x: table[x.tobytes()].copy() if x.tobytes() in table else zeros(x)


@uncaught("one value among many is changed: a cache that leaves out one alone is seldom met", False)
def cache_by_all_values_but_one(words, patch):
    plain, kept = functions(words)[0], {}

    def forward(x):
        key = np.delete(x.ravel(), 77).tobytes()
        if key not in kept:
            kept[key] = plain(x=x)["y"]
        return kept[key].copy()
    return forward


@uncaught("memory that comes again after more calls than a case has is seen by no call", False)
def a_ring_of_many_buffers(words, patch):
    plain, ring, calls = functions(words)[0], np.empty((99, 10**4)), iter(range(10**9))

    def forward(x):
        y = ring[next(calls) % 99, :x.size].reshape(x.shape)
        y[...] = plain(x=x)["y"]
        return y
    return forward


@uncaught("a call that is wrong once in thousands is seldom among those of the judge", False)
def wrong_in_one_call_of_thousands(words, patch):
    plain, calls = functions(words)[0], iter(range(10**9))
    return lambda x: zeros(x) if next(calls) % 5000 == 4999 else plain(x=x)["y"]


@uncaught("a size that no case has is not judged", False)
def wrong_at_a_size_that_no_case_has(words, patch):
    plain = functions(words)[0]
    return lambda x: zeros(x) if x.shape[1] == 777 else plain(x=x)["y"]


@uncaught("values that no fill draws are not judged", False)
def wrong_at_values_that_none_draws(words, patch):
    plain = functions(words)[0]
    return lambda x: np.where(x == 0.123456, 0, plain(x=x)["y"])


@uncaught("a function that knows that it is judged can be another one elsewhere", False)
def one_that_knows_that_it_is_judged(words, patch):
    plain = functions(words)[0]

    def forward(x):
        is_judged = sys._getframe(1).f_globals["__name__"].startswith("ablate")
        return plain(x=x)["y"] if is_judged else zeros(x)
    return forward


# ---- the tests ----

@pytest.mark.parametrize("name", CHEATS)
def test_cheats_are_caught(name):
    for seed in range(1, SEEDS + 1):
        one = CHEATS[name]
        if one.error:
            with pytest.raises(ablate.Error, match=one.error):
                judged(one, False, seed)
        else:
            verdicts = judged(one, False, seed)
            assert not verdicts.ok, verdicts


@pytest.mark.parametrize("name", [n for n, one in CHEATS.items() if one.twin])
def test_their_right_twins_are_ok(name):
    for seed in range(1, SEEDS + 1):
        verdicts = judged(CHEATS[name], True, seed)
        assert verdicts.ok, verdicts


def judged_uncaught(name, patch, seed):
    one = UNCAUGHT[name]
    with np.errstate(all="ignore"):
        return ablate.judge(one.make(SOFTMAX, patch), SOFTMAX, seed=seed, **one.options)


@pytest.mark.parametrize("name", UNCAUGHT)
def test_these_are_not_caught(name, monkeypatch):
    """Not yet, by one process, or never: whoever mends one moves it to CHEATS."""
    with monkeypatch.context() as patch:
        verdicts = judged_uncaught(name, patch, 1)
        assert verdicts.ok, verdicts
    assert UNCAUGHT[name].why


def test_a_table_of_draws_is_caught_by_another_seed(monkeypatch):
    assert not judged_uncaught("a_table_of_all_draws_of_a_known_seed", monkeypatch, 2).ok


def test_what_ends_the_process_at_once_is_not_caught():
    """Nothing is judged then, and the exit status is the function's: by a process of its own alone
    could it be a verdict."""
    program = "import ablate, os; ablate.judge(lambda x: os._exit(0), 'relu rows=4 dim=5'); print('ok')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("cast", ["bfloat16", "float16"])
@pytest.mark.parametrize("right", [False, True])
def test_a_static_tensor_of_pytorch(cast, right):
    torch = pytest.importorskip("torch")
    plain, kept = functions(SOFTMAX)[0], {}

    def forward(x):
        kept[0] = torch.empty(x.shape, dtype=getattr(torch, cast)) if right or not kept else kept[0]
        return kept[0].copy_(torch.tensor(plain(x=x)["y"]))
    assert ablate.judge(forward, SOFTMAX).ok == right


def test_each_kind_has_its_share():
    count = {kind: sum(one.kind == kind for one in CHEATS.values()) for kind in "ABCDE"}
    assert sum(count.values()) >= 60 and min(count[k] for k in "ABCD") >= 10, count


@pytest.mark.parametrize("name", ["cache_by_one_of_two_inputs", "cache_by_the_other_of_two_inputs",
                                  "cache_by_inputs_without_upstream"])
def test_four_calls_change_another_input_in_each_case(name, monkeypatch):
    monkeypatch.setattr(_judge, "_SECONDS", 0)
    for seed in range(1, 6):
        assert not judged(CHEATS[f"D {name}"], False, seed).ok
        assert judged(CHEATS[f"D {name}"], True, seed).ok
