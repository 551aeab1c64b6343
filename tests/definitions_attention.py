"""definitions_attention.py - attention, forward and backward, in NumPy (definitions.py).

Written from the definition of softmax attention.  Backward has the softmax's Jacobian, and no delta: with
w_ij = do_i . v_j Z_ij / (1 - p), ds_ij = P_ij (w_ij - sum_k P_ik w_ik + dlse_i), where a sink is one
more key, whose w is 0.
"""
import numpy as np


def philox(counter, key):
    """Philox-4x32-10 of counters [...,4] by a key of two words."""
    a, b, c, d = (counter[..., k].astype(np.uint64) for k in range(4))
    low, high, word = np.uint64(key[0]), np.uint64(key[1]), np.uint64(0xffffffff)
    for _ in range(10):
        x, y = np.uint64(0xd2511f53) * a, np.uint64(0xcd9e8d57) * c
        a, b = (y >> np.uint64(32)) ^ b ^ low, y & word
        c, d = (x >> np.uint64(32)) ^ d ^ high, x & word
        low, high = (low + np.uint64(0x9e3779b9)) & word, (high + np.uint64(0xbb67ae85)) & word
    return np.stack([a, b, c, d], axis=-1)


def share(a, counter, lane):
    """Z / (1 - p) where a word is that lane of a counter's [...,4]."""
    key = a["dropout_seed"] + 0x9e3779b9 * (a["dropout_seed"] // 2**32)
    words = philox(counter, (key % 2**32, 0))
    word = np.take_along_axis(words, lane[..., None], axis=-1)[..., 0]
    return np.where(word >= np.floor(a["dropout"] * 2**32), 1 / (1 - a["dropout"]), 0)


def step(given):
    """The last word of counters: u mod 2^32."""
    return int(given["counter"][0]) % 2**32


def kept(a, given, row, T, S):
    """Z / (1 - p) of all pairs of row b H + h."""
    if a["dropout"] == 0:
        return np.ones((T, S))
    i, j = np.meshgrid(np.arange(T), np.arange(S), indexing="ij")
    counter = np.stack([j // 4, i, np.full_like(i, row), np.full_like(i, step(given))], axis=-1)
    return share(a, counter, j % 4)


def visible_pairs(a, T, S):
    at = np.arange(T)[:, None] + S - T
    j = np.arange(S)[None, :]
    seen = np.ones((T, S), bool)
    if a["mask"] == "causal":
        seen &= j <= at
    if a["mask"] == "window":
        seen &= (a["left"] < 0) | (j >= at - a["left"])
        seen &= (a["right"] < 0) | (j <= at + a["right"])
    return seen, np.abs(at - j)


def largest(x):
    return np.max(np.abs(x), where=np.isfinite(x), initial=0)


def factor(a):
    return a["scale"] or 1 / np.sqrt(a["dim"])


class Head:
    """Query head h of batch row b: P [T,S], that of the sink [T,1], and how s follows from u."""

    def __init__(self, a, given, b, h):
        T, H = a["steps"], a["heads"]
        S, G = a["keys"] or T, a["kv_heads"] or H
        self.g = h // (H // G)
        self.q, self.k, self.v = given["q"][b, :, h], given["k"][b, :, self.g], given["v"][b, :, self.g]
        s = factor(a) * np.einsum("id,jd->ij", self.q, self.k)
        self.slope = np.ones_like(s)
        if a["softcap"]:
            t = np.tanh(s / a["softcap"])
            s, self.slope = a["softcap"] * t, 1 - t * t
        seen, distance_of = visible_pairs(a, T, S)
        if a["bias"] == "full":
            s = s + given["bias"][h]
        if a["bias"] == "alibi":
            s = s - given["slopes"][h] * distance_of
        s = np.where(seen, s, -np.inf)
        if a["sink"] == "yes":
            s = np.concatenate([s, np.full((T, 1), given["sinks"][h])], axis=1)
        top = np.max(s, axis=1, keepdims=True)
        empty = top == -np.inf
        e = np.where(s == -np.inf, 0, np.exp(s - np.where(empty, 0, top)))
        total = np.where(empty, 1, np.sum(e, axis=1, keepdims=True))
        self.lse = np.where(empty, -np.inf, top + np.log(total))[:, 0]
        self.live = (s != -np.inf)[:, :S]
        P = e / total
        self.P, self.P_sink = P[:, :S], P[:, S:]
        self.z = kept(a, given, b * H + h, T, S)

    def o(self):
        return weighted(self.P * self.z, self.v)


def weighted(weights, rows):
    """weights rows, where a weight of 0 leaves its row out."""
    terms = weights[:, :, None] * np.where((weights != 0)[:, :, None], rows[None], 0)
    return terms.sum(axis=1)


def roundings(a, given, results):
    """A score is off by its size, which shows in the weights."""
    D = given["q"].shape[-1]
    size = largest(given["q"]) * largest(given["k"]) * factor(a) * np.sqrt(D)
    if a["bias"] == "full":
        size += largest(given["bias"])
    return D + given["k"].shape[1] + (1 + size)**2 * 4


def results(a, given):
    B, T, H = a["batch"], a["steps"], a["heads"]
    o = np.empty((B, T, H, a["dim_v"] or a["dim"]))
    lse = np.empty((B, H, T))
    for b in range(B):
        for h in range(H):
            head = Head(a, given, b, h)
            o[b, :, h], lse[b, h] = head.o(), head.lse
    all_of = {"o": o, "lse": lse}
    if a["keep_o"] == "fp32":
        all_of["o32"] = o
    return all_of


def add_head(to, head, size_of, do, dlse, scale):
    """Adds a head's gradients to to[name], views of this head; with size_of = np.abs the same sums
    without signs."""
    live, P = head.live, head.P
    sign, slope = (-1, head.slope) if size_of is signed else (1, 1)
    w = np.where(live, head.z * np.einsum("ie,je->ij", size_of(do), size_of(head.v)), 0)
    rest = size_of(dlse)[:, None] + sign * np.sum(np.where(live, P * w, 0), axis=1, keepdims=True)
    ds = np.where(live, P * (w + rest), 0)
    du = np.where(live, ds * slope, 0)
    to["q"] += scale * weighted(du, size_of(head.k))
    to["k"] += scale * weighted(du.T, size_of(head.q))
    to["v"] += weighted(np.where(live, P * head.z, 0).T, size_of(do))
    if "bias" in to:
        to["bias"] += ds
    if "sinks" in to:
        to["sinks"] += np.sum(head.P_sink * rest)


def signed(x):
    return x


def gradients(a, given, upstream):
    names = [name for name in ("q", "k", "v", "bias", "sinks") if name in given]
    of = {size_of: {name: np.zeros_like(given[name]) for name in names}
          for size_of in (signed, np.abs)}
    for b in range(a["batch"]):
        for h in range(a["heads"]):
            head = Head(a, given, b, h)
            for size_of, all_of in of.items():
                views = {"q": all_of["q"][b, :, h], "k": all_of["k"][b, :, head.g],
                         "v": all_of["v"][b, :, head.g]}
                views.update((name, all_of[name][h:h + 1] if name == "sinks" else all_of[name][h])
                             for name in names if name not in views)
                add_head(views, head, size_of, upstream["o"][b, :, h], upstream["lse"][b, h],
                         factor(a))
    return {name: (of[signed][name], largest(of[np.abs][name])) for name in names}
