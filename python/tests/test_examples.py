"""examples: 100 000 rows of each task against a slow definition, the first rows as text, and what holds of all."""

import os
import pathlib
import sys

import numpy as np
import pytest

import ablate

TESTS = pathlib.Path(os.environ.get("srcdir") or pathlib.Path(__file__).parents[2]) / "tests"
sys.path.insert(0, str(TESTS))
definitions = pytest.importorskip("definitions_examples")

ROWS = 100_000
CORPUS = np.frombuffer(bytes(range(256)) * 20, np.uint8)
TASKS = {
    "parity": {"steps": 40},
    "parity, the last token": {"task": "parity", "supervise": "last", "min": 7, "steps": 20},
    "counter": {"modulus": 5, "steps": 20},
    "counter, moves": {"task": "counter", "moves": "yes", "modulus": 7, "steps": 20},
    "word": {"elements": "a5", "steps": 10},
    "word, transpositions": {"task": "word", "elements": "s5", "generators": "transpositions", "steps": 10},
    "word, Z60": {"task": "word", "elements": "z60", "steps": 5},
    "copy": {"steps": 21},
    "mqar": {"steps": 20, "pairs": 3, "vocabulary": 32},
    "bytes": {"steps": 16},
}


def gaps(steps, pairs, power=0.01):
    r = np.arange(1, (steps - 2 * pairs) // 2 + 1)
    return np.cumsum(1 + np.floor(2.0**12 * r ** (power - 1))).astype(np.int64)


def made(name, batch, update=0, **more):
    """The tokens and targets, [steps,batch], and those of the definition."""
    settings = {"task": name, **TASKS[name], **more}
    given = {"counter": np.array([update])}
    if settings["task"] == "mqar":
        given["gaps"] = gaps(settings["steps"], settings["pairs"])
    if settings["task"] == "bytes":
        given["corpus"] = CORPUS
    found = ablate.op("examples", batch=batch, **settings)(**given)
    a = {"split": "train", "supervise": "every", "min": 1, "modulus": 5, "moves": "no", "elements": "s3",
         "generators": "all", "vocabulary": 16, "pairs": 4, "corpus": len(CORPUS), "task_seed": 1, **settings}
    want = definitions.results({**a, "batch": batch}, {**given, "corpus": CORPUS.astype(np.int64)})
    return found.token, found.target, want


@pytest.mark.parametrize("name", TASKS)
def test_the_definition(name):
    token, target, want = made(name, ROWS, update=3)
    assert np.array_equal(token, want["token"]) and np.array_equal(target, want["target"])


FIRST = {  # of the first two rows the first tokens and the last targets
    "parity": (
        "1 1 0 0 1 0 1 1 0 1 1 1 | 0 1 0 1 0 1 1 0 1 1 1 1",
        "0 0 1 0 1 0 1 0 0 1 1 0 | 0 0 0 0 0 1 1 1 1 1 0 0"),
    "parity, the last token": (
        "1 0 0 1 0 0 0 0 0 1 0 1 | . . . . . . . . . . . 1",
        "1 1 0 1 0 1 1 0 1 1 1 1 | . . . . . . . . . . . 0"),
    "counter": (
        "2 1 2 1 4 1 2 2 3 1 0 3 | 3 4 4 2 4 3 2 2 4 4 4 1",
        "3 3 2 4 3 1 3 1 1 4 4 3 | 1 0 4 2 1 0 3 2 3 3 4 3"),
    "counter, moves": (
        "2 0 1 1 1 2 0 1 2 2 0 2 | 1 2 1 2 2 2 2 1 0 6 6 5",
        "2 1 2 2 2 2 1 0 0 1 2 0 | 3 3 4 3 4 5 5 5 4 5 6 6"),
    "word": (
        "34 59 27 0 42 6 49 50 3 24 | 34 25 5 5 36 25 35 43 52 48",
        "48 3 8 24 0 30 21 54 19 24 | 48 37 14 5 5 26 1 55 56 53"),
    "word, transpositions": (
        "5 4 2 6 5 5 9 8 7 5 | 14 12 72 77 28 77 101 51 75 25",
        "3 6 8 1 6 9 4 5 7 0 | 105 45 35 29 97 73 75 25 27 3"),
    "word, Z60": (
        "8 26 29 23 10 | 8 34 3 26 36",
        "15 25 41 58 15 | 15 40 21 19 34"),
    "copy": (
        "14 14 5 13 12 3 1 13 11 12 16 17 | . . 14 14 5 13 12 3 1 13 11 12",
        "13 10 8 2 2 4 15 2 0 6 16 17 | . . 13 10 8 2 2 4 15 2 0 6"),
    "mqar": (
        "14 30 6 28 13 18 6 22 13 29 14 19 | 18 . 30 . . . . . . . . .",
        "5 31 10 21 14 17 10 1 14 1 17 5 | 17 . . . . . 31 . . . . ."),
    "bytes": (
        "27 28 29 30 31 32 33 34 35 36 37 38 | 32 33 34 35 36 37 38 39 40 41 42 43",
        "94 95 96 97 98 99 100 101 102 103 104 105 | 99 100 101 102 103 104 105 106 107 108 109 110"),
}


@pytest.mark.parametrize("name", TASKS)
def test_the_first_rows(name):
    token, target, _ = made(name, 2)
    rows = tuple(" ".join(map(str, token[:12, r])) + " | " +
                 " ".join("." if y < 0 else str(y) for y in target[-12:, r]) for r in range(2))
    assert rows == FIRST[name]


@pytest.mark.parametrize("name", TASKS)
def test_splits_and_updates_have_other_rows(name):
    rows = [made(name, 50, update, split=split)[0]
            for split in ("train", "validation", "test") for update in (0, 1)]
    columns = [tuple(c) for r in rows for c in r.T]
    assert len(set(columns)) > (0.5 if name == "bytes" else 0.9) * len(columns)


def test_batches_are_parts_of_one_stream():
    whole = made("parity", 12, 0)[0]
    parts = [made("parity", 4, u)[0] for u in range(3)]
    assert np.array_equal(whole, np.concatenate(parts, axis=1))


def test_mqar_asks_each_key_once_for_its_value():
    token, target, _ = made("mqar", 500)
    for t, y in zip(token.T, target.T):
        pairs = dict(zip(t[0:6:2], t[1:6:2]))
        asked = [(t[i], y[i]) for i in range(6, 20) if y[i] >= 0]
        assert len(pairs) == len(set(pairs.values())) == 3 and sorted(asked) == sorted(pairs.items())
        assert all(k < 16 <= v < 32 for k, v in pairs.items()) and np.all(y[:6] == -1)


def test_copy_asks_for_what_was_given():
    token, target, _ = made("copy", 100)
    assert np.array_equal(target[11:], token[:10]) and np.all(target[:11] == -1)
    assert np.all(token[10] == 16) and np.all(token[11:] == 17)
