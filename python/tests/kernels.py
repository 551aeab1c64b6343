"""Kernels in NumPy: right ones as people write them, and wrong ones as some were published.

A maker such as `softmax(words, ...)` returns a forward and a backward function, whose results are
not rounded yet; `stored()` rounds them as the case stores them."""

import numpy as np

from functions import settings, sigmoid

LOG2E = np.float32(1.4426950408889634)


# ---- roundings ----

def single(x):
    return np.asarray(x, np.float32)


def kept_bits(x, bits):
    """x in float, cut off after so many bits of its significand."""
    mask = np.uint32(0xFFFFFFFF << (24 - bits) & 0xFFFFFFFF)
    return (np.ascontiguousarray(x, np.float32).view(np.uint32) & mask).view(np.float32)


def bf16(x):
    """x rounded to the nearest bf16, ties to even, in float32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    nearest = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    return (nearest & np.uint32(0xFFFF0000)).view(np.float32).reshape(np.shape(x))


def fp8(x, bits, smallest):
    """x rounded to so many bits; below 2^smallest the spacing stays as it is there."""
    exponent = np.maximum(np.frexp(x)[1], smallest + 1)
    return single(np.ldexp(np.rint(np.ldexp(x, bits - exponent)), exponent - bits))


def e4m3(x):
    return fp8(x, 4, -6)


def e5m2(x):
    return fp8(x, 3, -14)


# What a case stores in fp32 though its type is bf16.
WIDE = {"rmsnorm": {"d_w"}, "layernorm": {"d_w", "d_b"}, "attention": {"lse"},
        "cross_entropy": {"loss", "row_loss", "lse"}}


def stored(words, kernel, change=lambda y: y, of=None, store=None):
    """A kernel whose results are rounded: by `store`, or to the nearest value.  `change` is applied
    before that; to the results that `of` names, or to all."""
    forward, backward = kernel
    narrow = bf16 if "dtype=bf16" in words.split() else single
    wide = WIDE.get(words.split()[0], ()) if narrow is bf16 else ()

    def rounded(results):
        made = {}
        for name, y in results.items():
            usual = single if name in wide else narrow
            how = store if store and name not in wide else usual
            made[name] = how(change(y)) if of is None or name in of else usual(y)
        return made
    return ((lambda **inputs: rounded(forward(**inputs))),
            backward and (lambda inputs, upstream: rounded(backward(inputs, upstream))))


# ---- sums over the last axis, which stays with length 1 ----

def in_double(t):
    return t.sum(-1, keepdims=True, dtype=np.float64)


def ascending(t):
    return np.cumsum(t, -1, dtype=np.float32)[..., -1:]


def descending(t):
    return ascending(t[..., ::-1])


def pairwise(t):
    t = single(t)
    while t.shape[-1] > 1:
        odd = t[..., t.shape[-1] // 2 * 2:]
        t = np.concatenate([t[..., :-1:2] + t[..., 1::2], odd], -1)
    return t


def eighths(t):
    """Eight parts by themselves, then their sum: split K."""
    return ascending(np.concatenate([ascending(part) for part in np.array_split(t, 8, -1)], -1))


def shuffled(t):
    """In an order of chance, as float atomics add; it is the same in each call."""
    return ascending(t[..., np.random.default_rng(1).permutation(t.shape[-1])])


ORDERS = {"ascending": ascending, "descending": descending, "pairwise": pairwise,
          "eighths": eighths, "shuffled": shuffled}


def mean_of(order):
    return lambda t: single(order(t) / np.float32(t.shape[-1]))


def welford(t):
    """The mean, corrected by each element."""
    mean = np.zeros_like(t[..., :1])
    for n in range(t.shape[-1]):
        mean += (t[..., n:n + 1] - mean) / np.float32(n + 1)
    return mean


# ---- norms ----

def rmsnorm(words, mean=mean_of(in_double), seen=None, form="x r w"):
    """`seen`: the columns that the mean is over; `form`: Gemma's "x r w" has one rounding, Llama's
    "bf16(x r) w" two, and its gradient, too."""
    eps = np.float32(settings(words)["eps"])

    def rstd(x):
        return 1 / np.sqrt(mean(np.square(x[:, :seen])) + eps)

    def forward(x, w):
        n = x * rstd(x)
        return {"y": (n if form == "x r w" else bf16(n)) * w}

    def backward(inputs, upstream):
        x, w, d = inputs["x"], inputs["w"], upstream["d_y"]
        r = rstd(x)
        n, g = x * r, w * d
        g = g if form == "x r w" else bf16(g)
        return {"d_x": r * (g - n * mean(g * n)), "d_w": in_double((d * n).T)[:, 0]}
    return forward, backward


def layernorm(words, mean=mean_of(in_double), seen=None):
    """`seen`: the columns that the mean is over, and the variance."""
    eps = np.float32(settings(words)["eps"])

    def normal(x):
        c = x - mean(x[:, :seen])
        r = 1 / np.sqrt(mean(np.square(c[:, :seen])) + eps)
        return c * r, r

    def forward(x, w, b):
        return {"y": normal(x)[0] * w + b}

    def backward(inputs, upstream):
        d, (n, r) = upstream["d_y"], normal(inputs["x"])
        g = inputs["w"] * d
        return {"d_x": r * (g - mean(g) - n * mean(g * n)), "d_w": in_double((d * n).T)[:, 0],
                "d_b": in_double(d.T)[:, 0]}
    return forward, backward


# ---- products and sums ----

def gemm(words, order=None, operands=single, lost=None):
    """`order`: how the sums over K run; `operands` rounds A and B; C lacks its last product in the
    elements that `lost` indexes."""
    def product(a, b):
        a, b = operands(a), operands(b)
        if order:
            return order(a[:, None] * b.T[None])[..., 0]
        return a.astype(np.float64) @ b

    def forward(A, B):
        C = product(A, B)
        if lost is not None:
            C[lost] -= np.outer(A[:, -1], B[-1])[lost]
        return {"C": C}

    def backward(inputs, upstream):
        d = upstream["d_C"]
        return {"d_A": product(d, inputs["B"].T), "d_B": product(inputs["A"].T, d)}
    return forward, backward


def lora(words):
    """s ((x A^T) B^T) + x W^T with each operator's result in bf16, and the gradients of that."""
    p = settings(words)
    scale = np.float32(p["alpha"] / p["rank"])

    def forward(x, W, A, B):
        return {"y": bf16(x @ W.T) + bf16(scale * bf16(bf16(x @ A.T) @ B.T))}

    def backward(inputs, upstream):
        x, W, A, B = (inputs[n] for n in "xWAB")
        d = upstream["d_y"]
        d_term = bf16(scale * d)
        d_h = bf16(d_term @ B)
        return {"d_x": bf16(d @ W) + bf16(d_h @ A), "d_A": d_h.T @ x, "d_B": d_term.T @ bf16(x @ A.T)}
    return forward, backward


def scaled_gemm(words):
    """alpha (A B) with each operator's result in bf16, and the gradients of that."""
    alpha = np.float32(settings(words)["alpha"])

    def backward(inputs, upstream):
        d = bf16(alpha * upstream["d_C"])
        return {"d_A": d @ inputs["B"].T, "d_B": inputs["A"].T @ d}
    return (lambda A, B: {"C": alpha * bf16(A @ B)}), backward


def adamw(words):
    """All factors are floats, and 1 - lr weight_decay is one of them."""
    p = settings(words)
    factor = {n: 1 - p[n] ** p["step"] for n in ("beta1", "beta2")}
    kept, step_size = single(1 - p["lr"] * p["weight_decay"]), single(p["lr"] / factor["beta1"])
    root, eps = single(factor["beta2"] ** 0.5), single(p["eps"])

    def forward(g, m, v, skip, **of):
        if skip[0]:
            return {"p_next": of["p"], "m_next": m, "v_next": v}
        g = of["factor"] * g
        m = m + single(1 - p["beta1"]) * (g - m)
        v = single(p["beta2"]) * v + single(1 - p["beta2"]) * g * g
        return {"p_next": kept * of["p"] - step_size * (m / (np.sqrt(v) / root + eps)), "m_next": m,
                "v_next": v}
    return forward, None


def doubling(x):
    """Each element's sum with those before it, in steps of 1, 2, 4, as a tree."""
    y, step = x.copy(), 1
    while step < y.shape[-1]:
        y[:, step:] = y[:, step:] + y[:, :-step]
        step *= 2
    return y


def scan(words, order=None):
    """`order`: how the sum of each element runs, or "doubling"."""
    def sums(x):
        if order == "doubling":
            return doubling(x)
        if order is None:
            return np.cumsum(x, -1, dtype=np.float64)
        return order(x[:, None] * np.tri(x.shape[1], dtype=np.float32))[..., 0]
    return ((lambda x: {"y": sums(x)}),
            lambda inputs, upstream: {"d_x": sums(upstream["d_y"][:, ::-1])[:, ::-1]})


# ---- elementwise ----

def silu(words):
    def backward(inputs, upstream):
        x = inputs["x"].astype(np.float64)
        s = sigmoid(x)
        return {"d_x": upstream["d_y"] * s * (1 + x * (1 - s))}
    return (lambda x: {"y": x * sigmoid(x.astype(np.float64))}), backward


def swiglu(words, between=single):
    """`between`: how silu and its gradient are rounded before they are read again."""
    def forward(a, b):
        return {"y": between(a * sigmoid(a)) * b}

    def backward(inputs, upstream):
        a, b, d = inputs["a"], inputs["b"], upstream["d_y"]
        s = sigmoid(a)
        return {"d_a": between(d * b) * s * (1 + a * (1 - s)), "d_b": d * between(a * s)}
    return forward, backward


def rope(words):
    p = settings(words)

    def rotated(x, way):
        half = x.shape[-1] // 2
        angle = np.outer(np.arange(x.shape[1]), p["theta"] ** (-np.arange(half) / half))
        c, s = np.cos(angle)[:, None], way * np.sin(angle)[:, None]
        u, v = x[..., :half], x[..., half:]
        return np.concatenate([u * c - v * s, u * s + v * c], -1)
    return ((lambda x: {"y": rotated(x, 1)}),
            lambda inputs, upstream: {"d_x": rotated(upstream["d_y"], -1)})


# ---- softmax and what has one: the exponentials of s - max s ----

def natural(x, scale):
    x = np.float32(scale) * x
    return np.exp(x - x.max(-1, keepdims=True))


def folded(x, scale):
    """2^(c x - c max x) by one FMA, c = scale log2 e."""
    c = np.float32(scale) * LOG2E
    shift = c * x.max(-1, keepdims=True)
    return np.exp2(single(x.astype(np.float64) * c - shift))


def approximate(side):
    """The folded one, all of whose values are off by 2^-22 to the same side."""
    return lambda x, scale: folded(x, scale) * np.float32(1 + side * 2.0 ** -22)


def softmax(words, exponentials=natural, smallest=0, share=0):
    """Probabilities below `smallest`, or below that `share` of the row's largest, are made 0."""
    scale = settings(words)["scale"]

    def probabilities(x):
        e = exponentials(x, scale)
        y = e / e.sum(-1, keepdims=True)
        return np.where(y < np.maximum(smallest, share * y.max(-1, keepdims=True)), 0, y)

    def backward(inputs, upstream):
        y, d = probabilities(inputs["x"]), upstream["d_y"]
        return {"d_x": np.float32(scale) * y * (d - (d * y).sum(-1, keepdims=True))}
    return (lambda x: {"y": probabilities(x)}), backward


def lanes(t, width=16):
    """As vectors of so many floats add a row."""
    t = np.pad(single(t), ((0, 0), (0, -t.shape[-1] % width)))
    return pairwise(ascending(t.reshape(len(t), -1, width).transpose(0, 2, 1))[..., 0])


def smoothed_cross_entropy(words):
    """With label smoothing, and the gradient of log_softmax by autograd: d - p (the sum of d)."""
    p = settings(words)
    smoothing, ignored = p["label_smoothing"], p["ignore_index"]

    def parts(logits, target):
        top = logits.max(-1, keepdims=True)
        lse = top + np.log(np.exp(logits - top).sum(-1, keepdims=True))
        hot = np.arange(logits.shape[1]) == target[:, None]
        q = single(single(1 - smoothing) * hot + single(smoothing / logits.shape[1]))
        return logits - lse, q * (target != ignored)[:, None], (target != ignored).sum(), lse

    def forward(logits, target):
        log_p, q, n, lse = parts(logits, target)
        losses = -(log_p * q).sum(-1, dtype=np.float64)
        return {"loss": losses.sum(keepdims=True) / n, "row_loss": losses, "lse": lse[:, 0]}

    def backward(inputs, upstream):
        log_p, q, n, _ = parts(**inputs)
        d = single(upstream["d_loss"] / n) * -single(q)
        return {"d_logits": d - np.exp(log_p) * lanes(d)}
    return forward, backward


def cross_entropy(words, has_softmax=True):
    """`has_softmax`: has the gradient its probabilities?"""
    ignored = settings(words)["ignore_index"]

    def parts(logits, target):
        top = logits.max(-1, keepdims=True)
        e = np.exp(logits - top)
        total = e.sum(-1, keepdims=True)
        counts = target != ignored
        hot = np.arange(logits.shape[1]) == target[:, None]
        return top[:, 0], e / total, np.log(total)[:, 0], counts, hot

    def forward(logits, target):
        top, _, log_sum, counts, hot = parts(logits, target)
        losses = (log_sum + (top - (logits * hot).sum(-1))) * counts
        return {"loss": losses.sum(keepdims=True) / max(counts.sum(), 1), "row_loss": losses,
                "lse": top + log_sum}

    def backward(inputs, upstream):
        _, p, _, counts, hot = parts(**inputs)
        a = (upstream["d_loss"] / max(counts.sum(), 1) + upstream["d_row_loss"]) * counts
        through = (a + upstream["d_lse"])[:, None] * p if has_softmax else 0
        return {"d_logits": through - a[:, None] * hot}
    return forward, backward


def online(s, v, between, tile=16):
    """exp(s - max s) v, one tile of keys after the other: each with the largest s so far, and what
    was summed is scaled when that grows."""
    top, total = np.full_like(s[..., :1], -1e30), np.float32(0)
    for k in range(0, s.shape[-1], tile):
        part = s[..., k:k + tile]
        higher = np.maximum(top, part.max(-1, keepdims=True))
        p = between(np.exp(part - higher))
        total = total * np.exp(top - higher) + p @ v[..., k:k + tile, :]
        top = higher
    return total


def attention(words, scale=None, exponentials=natural, between=single, form="divided last", share=0,
              skipped=None, scores=single):
    """Causal.  `between`: how P and dS are rounded before products; `form`: P is "divided first" or
    "divided last" by its sum, or "online".  Probabilities below that `share` of the row's largest
    are made 0; `skipped`: a row whose key of middle weight is, in the first head; `scores`: how
    they are rounded."""
    p = settings(words)
    scale = np.float32(scale or p["scale"] or p["dim"] ** -0.5)

    def heads_first(*arrays):
        return [a.transpose(0, 2, 1, 3) for a in arrays]

    def rows(q, k):
        """Exponentials, their sums and the logarithm."""
        s = scores(q @ k.transpose(0, 1, 3, 2))
        s[..., ~np.tri(*s.shape[-2:], dtype=bool)] = -np.inf
        e = exponentials(s, scale)
        if share:
            e[e < share] = 0
        if skipped is not None:
            e[:, 0, skipped, np.argsort(e[0, 0, skipped, :skipped + 1])[skipped // 2]] = 0
        total = e.sum(-1, keepdims=True)
        return scale * s, e, total, scale * s.max(-1, keepdims=True) + np.log(total)

    def out(q, k, v):
        s, e, total, lse = rows(q, k)
        if form == "divided first":
            o = between(e / total) @ v
        else:
            o = (online(s, v, between) if form == "online" else between(e) @ v) / total
        return o, e / total, lse

    def forward(q, k, v):
        o, _, lse = out(*heads_first(q, k, v))
        return {"o": o.transpose(0, 2, 1, 3), "lse": lse[..., 0]}

    def backward(inputs, upstream):
        q, k, v, d = heads_first(*(inputs[n] for n in "qkv"), upstream["d_o"])
        o, P, _ = out(q, k, v)
        o = bf16(o) if between is bf16 else single(o)
        delta = (d * o).sum(-1, keepdims=True) - upstream["d_lse"][..., None]
        d_s = between(P * (d @ v.transpose(0, 1, 3, 2) - delta))
        found = (scale * (d_s @ k), scale * (d_s.transpose(0, 1, 3, 2) @ q),
                 between(P).transpose(0, 1, 3, 2) @ d)
        return dict(zip(("d_q", "d_k", "d_v"), heads_first(*found)))
    return forward, backward
