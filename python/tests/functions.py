"""Ten operations in NumPy, both passes, and ways to get them wrong."""

import ctypes
import re

import numpy as np

import ablate
from ablate._case import Case
from ablate._library import call
from ablate._table import parameters


def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))


def softmax(p, x):
    s = np.float32(p["scale"]) * x
    e = np.exp(s - s.max(-1, keepdims=True))
    return {"y": e / e.sum(-1, keepdims=True)}


def softmax_back(p, x, d_y):
    y = softmax(p, x)["y"]
    return {"d_x": np.float32(p["scale"]) * y * (d_y - (d_y * y).sum(-1, keepdims=True))}


def silu(p, x):
    return {"y": x * sigmoid(x)}


def silu_back(p, x, d_y):
    s = sigmoid(x)
    return {"d_x": d_y * s * (1 + x * (1 - s))}


def relu(p, x):
    return {"y": np.maximum(x, 0)}


def relu_back(p, x, d_y):
    return {"d_x": np.where(x > 0, d_y, 0)}


def swiglu(p, a, b):
    return {"y": a * sigmoid(a) * b}


def swiglu_back(p, a, b, d_y):
    s = sigmoid(a)
    return {"d_a": d_y * b * s * (1 + a * (1 - s)), "d_b": d_y * a * s}


def rmsnorm(p, x, w):
    x = x.astype(np.float64)
    return {"y": w * x / np.sqrt((x * x).mean(-1, keepdims=True) + p["eps"])}


def rmsnorm_back(p, x, w, d_y):
    x, w, d_y = (t.astype(np.float64) for t in (x, w, d_y))
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + p["eps"])
    g, n = w * d_y, x * r
    return {"d_x": r * (g - n * (g * n).mean(-1, keepdims=True)), "d_w": (d_y * n).sum(0)}


def layernorm(p, x, w, b):
    x = x.astype(np.float64)
    c = x - x.mean(-1, keepdims=True)
    return {"y": w * c / np.sqrt((c * c).mean(-1, keepdims=True) + p["eps"]) + b}


def layernorm_back(p, x, w, b, d_y):
    x, w, d_y = (t.astype(np.float64) for t in (x, w, d_y))
    c = x - x.mean(-1, keepdims=True)
    r = 1 / np.sqrt((c * c).mean(-1, keepdims=True) + p["eps"])
    n, g = c * r, w * d_y
    d_x = r * (g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True))
    return {"d_x": d_x, "d_w": (d_y * n).sum(0), "d_b": d_y.sum(0)}


def gemm(p, A, B, C0=0):
    A, B = (A.T if p["transpose_a"] == "yes" else A), (B.T if p["transpose_b"] == "yes" else B)
    return {"C": p["alpha"] * (A.astype(np.float64) @ B) + p["beta"] * C0}


def gemm_back(p, A, B, d_C, C0=None):
    a, b = (A.T if p["transpose_a"] == "yes" else A), (B.T if p["transpose_b"] == "yes" else B)
    d = d_C.astype(np.float64)
    d_a, d_b = p["alpha"] * d @ b.T, p["alpha"] * a.T @ d
    found = {"d_A": d_a.T if p["transpose_a"] == "yes" else d_a,
             "d_B": d_b.T if p["transpose_b"] == "yes" else d_b}
    return found if C0 is None else found | {"d_C0": p["beta"] * d}


def gemv(p, A, x, y0=0):
    a = A.T if p["transpose_a"] == "yes" else A
    return {"y": p["alpha"] * (a.astype(np.float64) @ x) + p["beta"] * y0}


def gemv_back(p, A, x, d_y, y0=None):
    a, d = (A.T if p["transpose_a"] == "yes" else A), d_y.astype(np.float64)
    d_a = p["alpha"] * np.outer(d, x)
    found = {"d_A": d_a.T if p["transpose_a"] == "yes" else d_a, "d_x": p["alpha"] * (a.T @ d)}
    return found if y0 is None else found | {"d_y0": p["beta"] * d}


def transpose(p, x):
    return {"out": x.swapaxes(1, 2)}


def transpose_back(p, x, d_out):
    return {"d_x": d_out.swapaxes(1, 2)}


def scan(p, x):
    y = np.cumsum(x.astype(np.float64), -1)
    return {"y": y if p["kind"] == "inclusive" else y - x}


def scan_back(p, x, d_y):
    d = np.cumsum(d_y[:, ::-1].astype(np.float64), -1)[:, ::-1]
    return {"d_x": d if p["kind"] == "inclusive" else d - d_y}


# Operation: words of a case of some size, forward, backward.
FUNCTIONS = {
    "softmax": ("softmax rows=9 columns=20 scale=0.5", softmax, softmax_back),
    "silu": ("silu rows=9 dim=12", silu, silu_back),
    "relu": ("relu rows=9 dim=12", relu, relu_back),
    "swiglu": ("swiglu rows=9 dim=12", swiglu, swiglu_back),
    "rmsnorm": ("rmsnorm rows=9 columns=20", rmsnorm, rmsnorm_back),
    "layernorm": ("layernorm rows=9 columns=20", layernorm, layernorm_back),
    "gemm": ("gemm M=9 N=9 K=9 alpha=0.5", gemm, gemm_back),
    "gemv": ("gemv M=9 K=9", gemv, gemv_back),
    "transpose": ("transpose batch=2 rows=8 columns=8", transpose, transpose_back),
    "scan": ("scan rows=9 length=20", scan, scan_back),
}


def settings(words):
    """The parameters of words, numbers as numbers."""
    op = words.split()[0]
    found = dict(w.split("=", 1) for w in Case(words).words.split()[1:])
    return {p.name: found[p.name] if p.choices else float(found[p.name])
            for p in parameters(op) if p.name in found}


def functions(words):
    """The forward and the backward function of a case."""
    _, forward, backward = FUNCTIONS[words.split()[0]]
    p = settings(words)
    return ((lambda **inputs: forward(p, **inputs)),
            (lambda inputs, upstream: backward(p, **inputs, **upstream)))


def drawn(op, seed, i):
    """Case i that a seed draws from the contract, of ordinary inputs and gradients that are
    overwritten."""
    text = ctypes.create_string_buffer(4096)
    call("abl_random", op, seed, i, text, len(text))
    return re.sub(r" fill=\w+", "", text.value.decode().replace(" accumulate=yes", ""))


def all_masked(a):
    return np.ma.array(a, mask=np.ones(np.shape(a), bool))


# What is no array of real numbers, or none that float64 holds.
NO_NUMBERS = {
    "bool": lambda a: a > 0,
    "complex": lambda a: a + 1j,
    "dates": lambda a: np.zeros(a.shape, "M8[s]"),
    "durations": lambda a: np.zeros(a.shape, "m8[s]"),
    "objects": lambda a: a.astype(object),
    "text": lambda a: np.full(a.shape, "1"),
    "texts of bytes": lambda a: np.full(a.shape, b"1"),
    "records": lambda a: np.zeros(a.shape, [("a", "f4")]),
    "masked elements": all_masked,
    "masked elements in a list": lambda a: [*map(all_masked, a)] if a.ndim else [np.ma.masked],
    "masked elements in lists": lambda a: ([[np.ma.masked] * a.shape[-1]] if a.ndim else [np.ma.masked],),
    "longdouble": lambda a: np.full(a.shape, np.longdouble(1) / 3),
    "large whole numbers": lambda a: np.full(a.shape, 2**53 + 1),
    "nothing": lambda a: [None],
    "ragged lists": lambda a: [[1], [1, 2]],
}
# The same values in another form.
SAME_NUMBERS = {
    "the other byte order": lambda a: a.astype(a.dtype.newbyteorder("S")),
    "longdouble": lambda a: a.astype(np.longdouble) if a.dtype == np.float64 else a,
    "no masked element": np.ma.array,
    "no masked element in a list": lambda a: [*map(np.ma.array, a)] if a.ndim and len(a) else a,
    "lists": lambda a: a.tolist() if a.dtype != np.float32 else a,
}
# Of these, what a function may return.
SAME_RESULTS = {k: SAME_NUMBERS[k] for k in ("the other byte order", "longdouble")}


# ---- ways to get a function wrong: from (forward, backward) to the same ----

def each(change):
    """Every output changed."""
    def wrong(forward, backward):
        def changed(**inputs):
            return {n: change(np.array(y), inputs) for n, y in forward(**inputs).items()}
        return changed, backward
    return wrong


def cut(axis):
    def change(y, inputs):
        y[(slice(None),) * (axis % y.ndim) + (slice((y.shape[axis] + 1) // 2, None),)] = 0
        return y
    return change


def last_step(y, inputs):
    y[-1] = 0
    return y


def input_copied(y, inputs):
    like = [x for x in inputs.values() if x.shape == y.shape]
    return np.array(like[0]) if like else np.resize(next(iter(inputs.values())), y.shape)


def previous(forward, backward):
    """The first answer, kept for all calls."""
    kept = {}

    def changed(**inputs):
        kept.setdefault("it", forward(**inputs))
        return kept["it"]
    return changed, backward


def wrong_sign(forward, backward):
    return forward, lambda inputs, upstream: {n: -g for n, g in backward(inputs, upstream).items()}


WRONG = {
    "zeros": each(lambda y, inputs: np.zeros_like(y)),
    "the input copied": each(input_copied),
    "the previous output": previous,
    "the first tile only": each(cut(-1)),
    "the gradient of the wrong sign": wrong_sign,
    "the last step dropped": each(last_step),
    "a mean over the wrong axis": each(lambda y, i: np.broadcast_to(y.mean(0), y.shape)),
}
