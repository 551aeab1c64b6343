"""definitions.py - the definition of every operation, once more, in NumPy.

Written from the formulas of the contracts (common/ops/*.h) and of the papers, not from ref/*.c:
finite differences agree with a forward pass that is consistently wrong, this does not.

DEFINITIONS[operation] is a Definition.  Its `results` takes the operation's parameters and its
inputs, each a dictionary by the contract's names, and returns all that the forward pass writes,
outputs and the tensors that it saves for the backward pass, in double.  Parameters are numbers, or the
names of choices.  Where it has `gradients`, they take besides the gradients of the outputs, and return
those of the inputs.
"""
import numpy as np

import definitions_attention
import definitions_cross_entropy
import definitions_embedding
import definitions_examples
import definitions_quantised
import definitions_torch

DEFINITIONS = {}
UNIT = np.finfo(np.float64).eps


class Definition:
    """How far the oracle may be off, relative to the largest element of a result, follows from
    `roundings`: how many lead to an element, or a function of parameters, inputs and results that
    returns it; 0: nothing is rounded, and results are equal.  They add up like a random walk:
    by their root.

    `gradients(parameters, inputs, upstream)` returns (gradient, size) by the inputs' names: the size
    is the largest element of the same sums without signs, to which what is rounded is relative, for a
    gradient may cancel to nothing.  `torch` is the module that has the same from PyTorch."""

    def __init__(self, results, roundings, gradients=None, torch=None):
        self.results, self.roundings, self.gradients = results, roundings, gradients
        self.torch = torch

    def bound(self, a, given, results):
        n = self.roundings(a, given, results) if callable(self.roundings) else self.roundings
        return 8 * np.sqrt(n) * UNIT


def define(name, roundings):
    def take(results):
        DEFINITIONS[name] = Definition(results, roundings)
        return results
    return take


def largest(x):
    """The maximum of |x| over its finite elements."""
    return np.max(np.abs(x), where=np.isfinite(x), initial=0)


def distance(got, want, size=None):
    """The largest difference, relative to `size` or the largest element of `want`, and where it is.  NaN
    and infinities must be the same, and are not counted otherwise."""
    if got.shape != want.shape:
        return np.inf, f"shape {list(got.shape)} for {list(want.shape)}"
    finite = np.isfinite(want)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(got - want))
    difference[~same & ~(finite & np.isfinite(got))] = np.inf
    worst = np.unravel_index(np.argmax(difference), difference.shape)
    size = largest(want) if size is None else size
    error = difference[worst] / size if size else difference[worst]
    return error, "[" + ",".join(str(i) for i in worst) + "]"


# ---- shared by several operations ----

def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x / (1 + np.exp(-x))


ACTS = {"none": lambda x: x, "silu": silu, "relu": lambda x: np.maximum(x, 0)}


def times(matrix, vector):
    """Matrix times vector, over all leading axes."""
    return np.einsum("...ij,...j->...i", matrix, vector)


def outer(a, b):
    return a[..., :, None] * b[..., None, :]


def transposed(matrix, choice="yes"):
    return np.swapaxes(matrix, -1, -2) if choice == "yes" else matrix


def weights(x, made):
    """`made` of x, over the last axis.  -inf is a masked entry, of weight 0; where nothing is
    left, or there is a NaN or inf, all weights are NaN, as in PyTorch."""
    return np.where(np.isfinite(np.max(x, axis=-1, keepdims=True)), made, np.nan)


def softmax(x, scale=1):
    """Over the last axis."""
    e = np.exp(scale * (x - np.max(x, axis=-1, keepdims=True)))
    return weights(x, e / np.sum(e, axis=-1, keepdims=True))


HALVINGS = 80    # of an interval of length 1: more than a double has bits


def entmax15(x):
    """[x/2 - tau]+^2 of sum 1: the sum falls as tau rises, from 1 or more to 0."""
    u = x / 2 - np.max(x / 2, axis=-1, keepdims=True)
    low, high = np.full_like(u[..., :1], -1), np.zeros_like(u[..., :1])
    for _ in range(HALVINGS):
        tau = (low + high) / 2
        much = np.sum(np.maximum(u - tau, 0)**2, axis=-1, keepdims=True) >= 1
        low, high = np.where(much, tau, low), np.where(much, high, tau)
    return weights(x, np.maximum(u - low, 0)**2)


def root_mean_square(x, eps):
    """1 / sqrt(mean(x^2) + eps), over the last axis."""
    return 1 / np.sqrt(np.mean(x * x, axis=-1) + eps)


def of_sums(n, terms, sums):
    """The roundings of sums of n terms: more of themselves where they are small beside the
    root of their terms' squares, `terms`."""
    size = largest(sums)
    return n * max(1, largest(terms) / size)**2 if size else n


# ---- shared-memory patterns ----

@define("transpose", 0)
def transpose(a, given):
    return {"out": np.swapaxes(given["x"], 1, 2)}


def reduce_roundings(a, given, results):
    if a["kind"] == "max":
        return 0
    axis = None if a["over"] == "all" else -1
    n = given["x"].size if a["over"] == "all" else given["x"].shape[-1]
    root = np.linalg.norm(given["x"], axis=axis)
    return of_sums(n, root / n if a["kind"] == "mean" else root, results["y"])


@define("reduce", reduce_roundings)
def reduce(a, given):
    x = given["x"] if a["over"] == "rows" else given["x"].reshape(1, -1)
    if a["kind"] == "max":
        return {"y": np.max(x, axis=-1), "at": np.argmax(x, axis=-1)}
    made = {"sum": np.sum, "mean": np.mean, "norm2": np.linalg.norm}[a["kind"]]
    return {"y": made(x, axis=-1)}


def sum_squares(a, given):
    return {"y": np.array([np.sum(given["x"]**2)])}


def sum_squares_gradients(a, given, upstream):
    return {"x": (2 * given["x"] * upstream["y"], None)}


DEFINITIONS["sum_squares"] = Definition(
    sum_squares, lambda a, given, results: given["x"].size, sum_squares_gradients)


@define("scan", lambda a, given, results: given["x"].shape[-1])
def scan(a, given):
    y = np.cumsum(given["x"], axis=-1)
    if a["kind"] == "exclusive":
        y = np.concatenate((np.zeros_like(y[:, :1]), y[:, :-1]), axis=-1)
    return {"y": y}


def window_sums(x, radius, axis):
    """Of the elements within radius of each place of an axis; outside there are zeros."""
    x = np.moveaxis(x, axis, 0)
    sums = [np.sum(x[max(i - radius, 0):i + radius + 1], axis=0) for i in range(len(x))]
    return np.moveaxis(np.stack(sums), 0, axis)


def window(a, given, results):
    return 2 * min(int(a["radius"]), max(given["x"].shape[1:])) + 1


@define("stencil1d", window)
def stencil1d(a, given):
    radius = int(a["radius"])
    return {"y": window_sums(given["x"], radius, 1) / (2 * radius + 1)}


@define("stencil2d", lambda a, given, results: 2 * window(a, given, results))
def stencil2d(a, given):
    radius = int(a["radius"])
    box = window_sums(window_sums(given["x"], radius, 1), radius, 2)
    return {"y": box / (2 * radius + 1)**2}


@define("histogram", 0)
def histogram(a, given):
    x, bins = given["x"], int(a["bins"])
    counts = np.zeros(bins)
    for value in x[(x >= 0) & (x < 1)]:
        over, under = value.as_integer_ratio()    # integers: the product is exact
        counts[over * bins // under] += 1
    return {"counts": counts,
            "outside": np.array([np.sum(np.isnan(x)), np.sum(x < 0), np.sum(x >= 1)])}


# ---- quantised weights ----

DEFINITIONS["dequantise"] = Definition(definitions_quantised.dequantise, 0)
DEFINITIONS["quantise"] = Definition(definitions_quantised.quantise, 0)


def gemm_quantised_roundings(a, given, results):
    sizes = definitions_quantised.gemm_quantised(a, given, sizes=True)
    return of_sums(int(a["dim_in"]), sizes["y"], results["y"])


DEFINITIONS["gemm_quantised"] = Definition(definitions_quantised.gemm_quantised, gemm_quantised_roundings)


# ---- matrix products ----

def gemm_roundings(a, given, results):
    A, B = transposed(given["A"], a["transpose_a"]), transposed(given["B"], a["transpose_b"])
    return of_sums(int(a["K"]) + 2, abs(a["alpha"]) * np.sqrt(A**2 @ B**2), results["C"])


def gemm(a, given):
    product = transposed(given["A"], a["transpose_a"]) @ transposed(given["B"], a["transpose_b"])
    C = a["alpha"] * product
    if a["beta"] != 0:
        C = C + a["beta"] * given["C0"]
    return {"C": C}


for _name in ("gemm", "gemm_splitk", "gemm_batched"):
    define(_name, gemm_roundings)(gemm)


def gemv_roundings(a, given, results):
    squares = transposed(given["A"], a["transpose_a"])**2 @ given["x"]**2
    return of_sums(int(a["K"]) + 2, abs(a["alpha"]) * np.sqrt(squares), results["y"])


@define("gemv", gemv_roundings)
def gemv(a, given):
    y = a["alpha"] * (transposed(given["A"], a["transpose_a"]) @ given["x"])
    if a["beta"] != 0:
        y = y + a["beta"] * given["y0"]
    return {"y": y}


@define("linear", lambda a, given, results: int(a["dim_in"]) + 4)
def linear(a, given):
    z = given["x"] @ given["W"].T
    y = ACTS[a["act"]](z + given["b"] if a["bias"] == "yes" else z)
    return {"y": y, "z": z} if a["act"] == "silu" else {"y": y}


@define("lora", lambda a, given, results: int(a["dim_in"]) + int(a["rank"]))
def lora(a, given):
    h = a["alpha"] / int(a["rank"]) * (given["x"] @ given["A"].T)
    return {"y": given["x"] @ given["W"].T + h @ given["B"].T, "h": h}


# ---- rows and elements ----

@define("silu", 4)
def silu_of_all(a, given):
    return {"y": silu(given["x"])}


@define("relu", 0)
def relu(a, given):
    return {"y": np.maximum(given["x"], 0)}


@define("swiglu", 4)
def swiglu(a, given):
    return {"y": silu(given["a"]) * given["b"]}


def add(a, given):
    return {"y": given["a"] + given["b"]}


def add_gradients(a, given, upstream):
    return {name: (upstream["y"], None) for name in ("a", "b")}


DEFINITIONS["add"] = Definition(add, 0, add_gradients)


def dropped(a, given, x):
    """Z x / (1 - p), the same mask in both passes: of x and of dy."""
    if a["dropout"] == 0:
        return x
    i = np.arange(x.size).reshape(x.shape)
    four = i // 4
    counter = np.stack([four % 2**32, four // 2**32, np.zeros_like(i),
                        np.full_like(i, definitions_attention.step(given))], axis=-1)
    share = definitions_attention.share(a, counter, i % 4)
    return np.where(share > 0, x * share, 0)


def dropout(a, given):
    return {"y": dropped(a, given, given["x"])}


def dropout_gradients(a, given, upstream):
    return {"x": (dropped(a, given, upstream["y"]), None)}


DEFINITIONS["dropout"] = Definition(dropout, 2, dropout_gradients)


def row(a, given, results):
    return int(a["columns"]) + 4


@define("rmsnorm", row)
def rmsnorm(a, given):
    x = given["x"]
    rstd = root_mean_square(x, a["eps"])
    return {"y": given["w"] * (rstd[:, None] * x), "rstd": rstd}


def centred(a, given, results):
    """x - mean has the rounding of x, which is so many times as large as a deviation."""
    x = given["x"]
    deviation = np.std(x, axis=-1)
    times = largest(x) / deviation[deviation > 0].min() if x.shape[-1] > 1 and a["fill"] == "offset" else 1
    return row(a, given, results) * max(1, times)


@define("layernorm", centred)
def layernorm(a, given):
    mean = np.mean(given["x"], axis=-1)
    x = given["x"] - mean[:, None]
    rstd = root_mean_square(x, a["eps"])
    return {"y": given["w"] * (rstd[:, None] * x) + given["b"], "mean": mean, "rstd": rstd}


@define("qk_norm", lambda a, given, results: int(a["head_dim"]) + 4)
def qk_norm(a, given):
    results = {}
    for name in ("q", "k"):
        rstd = root_mean_square(given[name], a["eps"])
        results["rstd_" + name] = rstd
        results["y_" + name] = given["w_" + name] * (rstd[..., None] * given[name])
    return results


@define("softmax", row)
def softmax_of_rows(a, given):
    return {"y": softmax(given["x"], a["scale"])}


@define("entmax15", row)
def entmax15_of_rows(a, given):
    return {"p": entmax15(given["x"])}


DEFINITIONS["cross_entropy"] = Definition(
    definitions_cross_entropy.results, lambda a, given, results: given["logits"].size + 4,
    definitions_cross_entropy.gradients, definitions_cross_entropy)


@define("accuracy", 0)
def accuracy(a, given):
    """NumPy's argmax is the first of equal ones, or the first NaN."""
    target = given["target"]
    counted = (target != int(a["ignore_index"])) & (target >= 0) & (target < given["logits"].shape[-1])
    hits = counted & (np.argmax(given["logits"], axis=-1) == target)
    return {"hits": hits.astype(np.float64), "count": np.array([np.sum(hits)], np.float64)}


DEFINITIONS["embedding"] = Definition(definitions_embedding.results, definitions_embedding.roundings,
                                      definitions_embedding.gradients, definitions_embedding)


@define("examples", 0)
def examples(a, given):
    return definitions_examples.results(a, given)


@define("adamw", 16)
def adamw(a, given):
    beta1, beta2, N = a["beta1"], a["beta2"], int(a["parameters"])
    p = given["master"] if a["master"] == "yes" else given["p"]
    g, m, v = given["factor"] * given["g"], given["m"], given["v"]
    if not given["skip"]:
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        decay = np.full(N, a["weight_decay"])
        if int(a["decayed"]) >= 0:
            decay[int(a["decayed"]):] = 0
        direction = m * given["unbias1"] / (np.sqrt(v * given["unbias2"]) + a["eps"])
        p = p - given["rate"] * (direction + decay * p)
    results = {"p_next": p, "m_next": m, "v_next": v}
    return {**results, "master_next": p} if a["master"] == "yes" else results


@define("schedule", 8)
def schedule(a, given):
    if a["what"] == "loss":
        count = int(given["count"][0])
        return {"d_row": np.full(int(a["rows"]), given["scale"][0] / count if count > 0 else 0.0)}
    u, t, good = (int(given[name][0]) for name in ("u", "t", "good"))
    g2, scale, U = given["g2"][0], given["scale"][0], int(a["updates"])
    bad = not (np.isfinite(g2) and g2 >= 0 and 0 < scale < np.inf)
    inside = 0 <= u < U and 0 <= t < U
    norm = 0 if bad else np.sqrt(g2) / scale
    limit = 1 if a["clip"] == 0 or bad else min(1, a["clip"] / (norm + 1e-6))
    good = 0 if bad else good + 1
    grows = a["loss_scale"] == "dynamic" and good and good >= int(a["growth"])
    moved = 0.5 if bad else 2 if grows else 1
    results = {
        "rate": given["rates"][u] if inside else np.nan,
        "unbias1": given["unbias1s"][t] if inside else np.nan,
        "unbias2": given["unbias2s"][t] if inside else np.nan,
        "factor": np.divide(limit, scale), "skip": bad or not inside,
        "u_next": u + 1, "t_next": t + (inside and not bad), "good_next": 0 if grows else good,
        "scale_next": min(scale * moved, 2.0**24) if a["loss_scale"] == "dynamic" else scale}
    return {name: np.array([float(x)]) for name, x in results.items()}


@define("rope", lambda a, given, results: (int(a["offset"]) + given["x"].shape[1])**2)
def rope(a, given):
    """An angle is off by as many roundings as it has radians."""
    x = given["x"]
    T, D = x.shape[1], x.shape[3]
    frequency = a["theta"] ** (-2 * np.arange(D // 2) / D)
    angle = ((int(a["offset"]) + np.arange(T))[:, None] * frequency)[:, None, :]
    interleaved = a["form"] == "interleaved"
    first = slice(0, D, 2) if interleaved else slice(0, D // 2)
    second = slice(1, D, 2) if interleaved else slice(D // 2, D)
    y = np.empty_like(x)
    y[..., first] = x[..., first] * np.cos(angle) - x[..., second] * np.sin(angle)
    y[..., second] = x[..., first] * np.sin(angle) + x[..., second] * np.cos(angle)
    return {"y": y}


DEFINITIONS["attention"] = Definition(definitions_attention.results,
                                      definitions_attention.roundings,
                                      definitions_attention.gradients, definitions_torch)


# ---- recurrences: diag_delta and E74 ----

@define("diag_delta", lambda a, given, results: 4 * given["k"].shape[1])
def diag_delta(a, given):
    k, v, q = given["k"], given["v"], given["q"]
    state, s = given["s0"], np.empty_like(k)
    for t in range(k.shape[1]):
        state = np.tanh((1 - k[:, t]**2) * state + k[:, t] * v[:, t])
        s[:, t] = state
    return {"y": q * s, "s": s}


EPSILON = 1e-6    # E74's


def normalised(k):
    return k / (np.linalg.norm(k, axis=-1, keepdims=True) + EPSILON)


def nonlinearity(nonlin, P):
    """f, over all elements of one (batch, head) state: the axes after these two."""
    elements = tuple(range(2, P.ndim))
    if nonlin == "tanh":
        return np.tanh(P)
    if nonlin == "linear":
        return P
    if nonlin == "rmsnorm":
        return P / (np.sqrt(np.mean(P * P, axis=elements, keepdims=True)) + EPSILON)
    if nonlin == "frobnorm":
        return P / (np.sqrt(np.sum(P * P, axis=elements, keepdims=True)) + EPSILON)
    raise ValueError(nonlin)


class Full:
    """S [B,H,n,n]; also, block by block, [B,H,n/b,b,b]."""

    final = "S_T"

    def __init__(self, a, given):
        self.S = given["S0"]

    def split(self, vector):
        return vector

    def join(self, vector):
        return vector

    def read(self, u):
        return times(self.S, u)

    def update(self, delta, key, nonlin):
        self.S = nonlinearity(nonlin, self.S + outer(delta, key))


class Blocks(Full):
    """Each block of b elements of k, v, q and z belongs to its own block of S."""

    def split(self, vector):
        blocks, size = self.S.shape[2:4]
        return vector.reshape(vector.shape[:-1] + (blocks, size))

    def join(self, vector):
        return vector.reshape(vector.shape[:-2] + (-1,))


class Diagonal(Full):
    """S [B,H,n]: every product is element by element."""

    def read(self, u):
        return self.S * u

    def update(self, delta, key, nonlin):
        self.S = nonlinearity(nonlin, self.S + delta * key)


class LowRank(Full):
    """S = U V^T, U and V [B,H,n,r]; only U changes, and it is U that is kept here as S.  A shared
    V0 is [H,n,r]."""

    final = "U_T"

    def __init__(self, a, given):
        self.S, self.V, self.W_r = given["U0"], given["V0"], given["W_r"]
        if a["V"] == "shared":
            self.V = np.broadcast_to(self.V, self.S.shape)

    def read(self, u):
        return times(self.S, times(transposed(self.V), u))

    def update(self, delta, key, nonlin):
        self.S = nonlinearity(nonlin, self.S + outer(delta, times(self.W_r, key)))


STATES = {"full": Full, "diagonal": Diagonal, "lowrank": LowRank, "blockdiag": Blocks}


def cell(a, given, k, v, q, z):
    """All results, from k, v, q, z [T,B,H,n]; z may be None."""
    state = STATES[a["state"]](a, given)
    z_mod = a["z_mod"] if z is not None else None
    interval = 1 if a["trajectory"] == "store" else int(a["checkpoint_interval"])
    kept, y = [], np.empty(k.shape)
    for t in range(len(k)):
        if t % interval == 0:
            kept.append(state.S)
        key = normalised(state.split(k[t]))
        gate = None if z is None else state.split(z[t])
        u = gate * key if z_mod in ("column", "full") else key
        rho = state.read(u)
        if z_mod in ("row", "full"):
            rho = gate * rho
        state.update(state.split(v[t]) - rho, key, a["nonlin"])
        y[t] = state.join(state.read(state.split(q[t])))
    out = (y * y * sigmoid(y)).reshape(y.shape[:2] + (-1,))
    return {"out": out, state.final: state.S, "y": y, "checkpoints": np.stack(kept)}


def tied(proj, make):
    """k, v, q and z; make() computes those that are not tied."""
    k = make("k")
    v = k if proj == "tied_kvq" else make("v")
    q = k if proj in ("tied_kq", "tied_kvq") else make("q")
    z = make("z") if proj == "full" else None
    return k, v, q, z


def cell_roundings(a, given, results):
    """Of a step a dot product over k, over the state's rows and, of a norm, over the state."""
    n = int(a["n_state"])
    return int(a["steps"]) * 4 * n * (n if a["nonlin"] in ("rmsnorm", "frobnorm") else 1)


@define("e74_cell", cell_roundings)
def e74_cell(a, given):
    return cell(a, given, *tied(a["proj"], lambda name: given[name]))


GATES = {"sigmoid": sigmoid, "twice_sigmoid": lambda p: 2 * sigmoid(p)}


def layer(a, given, x):
    """e74 of x, which is not an input of its own in e74_block."""
    T, B, _ = x.shape
    made = {}

    def project(name):
        p = x @ given["W_" + name].T
        if name == "z":
            p = p + given["b_z"]
        made[name] = p.reshape(T, B, int(a["heads"]), int(a["n_state"]))
        return made[name]

    k, v, q, z = tied(a["proj"], project)
    if z is not None and a["z_act"] != "linear":
        z = made["gate"] = GATES[a["z_act"]](z)
    return {**cell(a, given, k, v, q, z), **made}


def layer_roundings(a, given, results):
    return cell_roundings(a, given, results) + int(a["dim"])


@define("e74", layer_roundings)
def e74(a, given):
    return layer(a, given, given["x"])


def block_roundings(a, given, results):
    """The norm, the layer and the projection back."""
    return layer_roundings(a, given, results) + int(a["dim"]) + given["W_o"].shape[1]


@define("e74_block", block_roundings)
def e74_block(a, given):
    x = given["x"]
    rstd = root_mean_square(x, a["eps"])
    normed = given["w_norm"] * (rstd[..., None] * x)
    results = layer(a, given, normed)
    read = results["out"]
    return {**results, "out": x + read @ given["W_o"].T, "normed": normed, "rstd": rstd,
            "read": read}


# ---- dual memory ----

# attention, write query, gate
PRESETS = {
    "e23": ("softmax", "h", "none"),
    "e25": ("entmax15", "h", "none"),
    "e26": ("softmax", "v", "none"),
    "e29a": ("softmax", "v", "sum"),
    "e29b": ("softmax", "v", "matrix"),
    "e29c": ("softmax", "v", "scaled"),
}
ATTENTION = {"softmax": softmax, "entmax15": entmax15}


def gate_argument(a, given, gate, z, read, h):
    if gate == "sum":
        return z + read + h
    if gate == "matrix":
        return np.concatenate((z, read, h), axis=-1) @ given["W_gate"].T
    g = z * given["g_z"] + read * given["g_r"] + h * given["g_h"] + given["b_g"]
    return np.clip(g, -float(a["clamp"]), float(a["clamp"]))


def dual_steps(a, given, xp, attend, query):
    """h, v, rho, omega, the read vector and the tape before it, at each step; the final tape."""
    h, M = given["h0"], given["M0"]
    B, D = h.shape
    if a["tape"] == "shared":
        M = np.broadcast_to(M, (B,) + M.shape)
    of = {name: [] for name in ("h", "v", "rho", "omega", "read", "tape")}
    for step in xp:
        rho = attend(times(M, h) / np.sqrt(D))
        read = times(transposed(M), rho)
        h = np.tanh(h @ given["W_h"].T + step + read + given["b_h"])
        v = h @ given["W_write"].T
        omega = attend(times(M, v if query == "v" else h) / np.sqrt(D))
        for name, value in zip(of, (h, v, rho, omega, read, M)):
            of[name].append(value)
        M = (1 - omega[..., None]) * M + outer(omega, v)
    return {name: np.stack(values) for name, values in of.items()}, M


def dual_roundings(a, given, results):
    return int(a["steps"]) * 4 * (int(a["dim"]) + int(a["slots"]))


@define("dual_memory", dual_roundings)
def dual_memory(a, given):
    if a["preset"] == "parts":
        attention, query, gate = a["attention"], a["write_query"], a["gate"]
    else:
        attention, query, gate = PRESETS[a["preset"]]
    W = given["W_x" if gate == "none" else "W_xz"]
    xp, z = np.split(given["x"] @ W.T, [len(given["b_h"])], axis=-1)
    of, M_T = dual_steps(a, given, xp, ATTENTION[attention], query)
    read, tape, out = of.pop("read"), of.pop("tape"), of["h"]
    if gate != "none":
        g = gate_argument(a, given, gate, z, read, of["h"])
        out = of["h"] * g * sigmoid(g)
        of.update(z=z, read=read)
    if gate == "matrix":
        of["g"] = g
    return {**of, "out": out, "h_T": of["h"][-1], "M_T": M_T,
            "checkpoints": tape[::int(a["checkpoint_interval"])]}
