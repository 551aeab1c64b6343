"""definitions_examples.py - the examples of tasks in NumPy (definitions.py).

Written from the tasks: groups are multiplication tables of sorted permutations, sums are cumulative, a row of
mqar is filled by a dictionary.  The words are those of definitions_attention.philox.
"""
import itertools

import numpy as np

from definitions_attention import philox

TASKS = ["parity", "counter", "word", "copy", "mqar", "bytes"]
SPLITS = ["train", "validation", "test"]
GROUPS = ["s3", "a4", "a5", "s5", "z60"]


def transposes(a):
    """Are a transposition's the tokens?"""
    return a["task"] == "word" and a["elements"] in ("s3", "s5") and a["generators"] == "transpositions"


def word_of(counter, low, high):
    """Word 0 of a counter."""
    a, b, c, d = counter
    for _ in range(10):
        x, y = 0xd2511f53 * a, 0xcd9e8d57 * c
        a, b, c, d = y >> 32 ^ b ^ low, y & 0xffffffff, x >> 32 ^ d ^ high, x & 0xffffffff
        low, high = (low + 0x9e3779b9) & 0xffffffff, (high + 0xbb67ae85) & 0xffffffff
    return a


class Words:
    """The words of rows."""

    def __init__(self, a, counter):
        last = a["task"] in TASKS[:3] and a["supervise"] == "last"
        numbers = [TASKS.index(a["task"]), SPLITS.index(a["split"]), int(a["steps"]),
                   int(a["modulus"]) if a["task"] == "counter" else 0,
                   int(a["moves"] == "yes") if a["task"] == "counter" else 0,
                   GROUPS.index(a["elements"]) if a["task"] == "word" else 0,
                   int(transposes(a)),
                   int(last), int(a["min"]) if last else 0,
                   int(a["vocabulary"]) if a["task"] in ("copy", "mqar") else 0,
                   int(a["pairs"]) if a["task"] == "mqar" else 0]
        self.tag = 0
        for number in numbers:
            self.tag = (self.tag * 1000003 + number) % 2**32
        seed, batch = int(a["task_seed"]) % 2**64, int(a["batch"])
        self.key = seed % 2**32, seed // 2**32
        if int(a.get("period", 0)):
            counter %= int(a["period"])
        self.rows = [(counter * batch + r) % 2**64 for r in range(batch)]

    def below(self, i, n, row=None):
        """A number below n for each row, or that one, by word i."""
        if row is not None:
            r = self.rows[row]
            return word_of((i, r % 2**32, r // 2**32, self.tag), *self.key) * n >> 32
        counter = np.array([[i, r % 2**32, r // 2**32, self.tag] for r in self.rows], np.uint64)
        return (philox(counter, self.key)[:, 0] * np.uint64(n) >> np.uint64(32)).astype(np.int64)


def elements(group):
    """All permutations in order, the even ones alone for A_n."""
    every = sorted(itertools.permutations(range(int(group[1]))))
    if group[0] == "s":
        return every
    return [p for p in every if sum(p[j] < p[i] for i in range(len(p)) for j in range(i, len(p))) % 2 == 0]


def table(group, transpositions):
    """The product of element e and token x, at [e,x]."""
    if group == "z60":
        return np.add.outer(np.arange(60), np.arange(60)) % 60
    every = elements(group)
    tokens = every
    if transpositions:
        n = len(every[0])
        tokens = []
        for i, j in itertools.combinations(range(n), 2):
            swapped = list(range(n))
            swapped[i], swapped[j] = j, i
            tokens.append(tuple(swapped))
    return np.array([[every.index(tuple(x[k] for k in p)) for x in tokens] for p in every])


def states(a, words):
    T, B = int(a["steps"]), int(a["batch"])
    times = {"parity": lambda: np.array([[0, 1], [1, 0]]),
             "counter": lambda: counting(int(a["modulus"]), a["moves"] == "yes"),
             "word": lambda: table(a["elements"], transposes(a))}[a["task"]]()
    length = np.full(B, T)
    if a["supervise"] == "last":
        length = int(a["min"]) + words.below(2**31, T - int(a["min"]) + 1)
    token, target, state = np.zeros((T, B), np.int64), np.full((T, B), -1), np.zeros(B, np.int64)
    for t in range(T):
        token[t] = np.where(t < length, words.below(t, times.shape[1]), 0)
        state = times[state, token[t]]
        asked = t == length - 1 if a["supervise"] == "last" else True
        target[t] = np.where(asked, state, -1)
    return token, target


def counting(m, moves):
    step = np.array([-1, 0, 1]) if moves else np.arange(m)
    return np.add.outer(np.arange(m), step) % m


def copy(a, words):
    T, V, B = int(a["steps"]), int(a["vocabulary"]), int(a["batch"])
    n = T // 2
    given = np.array([words.below(i, V) for i in range(n)]).reshape(n, B)
    token = np.concatenate([given, np.full((1, B), V), np.full((n, B), V + 1)])
    return token, np.concatenate([np.full((n + 1, B), -1), given])


def without(drawn, words, row, first, n, attempts, taken):
    """A number below n that is not taken, or None."""
    for attempt in range(attempts):
        x = drawn(words.below(first + attempt, n, row))
        if x not in taken:
            return x
    return None


def mqar(a, words, gaps):
    T, V, P, B = int(a["steps"]), int(a["vocabulary"]), int(a["pairs"]), int(a["batch"])
    token = np.array([words.below(2**29 + t, V) for t in range(T)])
    target = np.full((T, B), -1)
    for b in range(B):
        pairs, places = {}, []
        for i in range(P):
            for which, taken in (0, pairs.keys()), (1, pairs.values()):
                x = without(lambda x: x + which * (V // 2), words, b, which * 2**30 + i * 2**16, V // 2,
                            2**16 - 1, list(taken)[:i])
                if x is None:
                    x = next(y for y in range(which * (V // 2), V) if y not in list(taken)[:i])
                token[2 * i + which, b] = x
            pairs[int(token[2 * i, b])] = int(token[2 * i + 1, b])
        for i, (key, value) in enumerate(pairs.items()):
            last = [0]

            def gap(x):
                last[0] = int(np.searchsorted(gaps, x, side="right"))
                return last[0]
            g = without(gap, words, b, 2**28 + i * 2**12, int(gaps[-1]), 2**12 - 1, places)
            if g is None:
                g = next(h % len(gaps) for h in range(last[0], 2 * len(gaps)) if h % len(gaps) not in places)
            places.append(g)
            token[2 * P + 2 * g, b], target[2 * P + 2 * g, b] = key, value
    return token, target


def text(a, words, corpus):
    T, C = int(a["steps"]), int(a["corpus"])
    parts = {"train": (0, C * 18 // 20), "validation": (C * 18 // 20 + T, C * 19 // 20),
             "test": (C * 19 // 20 + T, C)}
    first, end = parts[a["split"]]
    start = first + words.below(0, end - first - T)
    at = start + np.arange(T)[:, None]
    return corpus[at], corpus[at + 1]


def results(a, given):
    words = Words(a, int(given["counter"][0]))
    if a["task"] in TASKS[:3]:
        token, target = states(a, words)
    elif a["task"] == "copy":
        token, target = copy(a, words)
    elif a["task"] == "mqar":
        token, target = mqar(a, words, given["gaps"].astype(np.int64))
    else:
        token, target = text(a, words, given["corpus"])
    return {"token": token.astype(np.float64), "target": target.astype(np.float64)}
