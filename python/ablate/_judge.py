"""Somebody's function judged by the oracle."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ._case import Case, Rows, Run
from ._library import DOUBLES, Error, call
from ._returned import UNITS, named
from ._table import INPUT, OUTPUT
from ._verdicts import Verdict, Verdicts

# Cases are drawn again with another seed so many times where a null answer would pass.
_REDRAWN = 4


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """max |a - b| / max |b| over what is finite in b; infinite where a is not as b is elsewhere."""
    x, y = (np.ascontiguousarray(z, np.float64) for z in (a, b))
    return float(call("abl_distance", x.ctypes.data_as(DOUBLES), y.ctypes.data_as(DOUBLES), y.size))


class _Judge:
    """A function while it is judged."""

    def __init__(self, function: Callable[..., Any], words: str,
                 backward: Callable[..., Any] | None, rounds: str = ""):
        if not isinstance(rounds, str):
            raise Error("rounds is text, NAME:TYPE and blanks between such words, "
                        f"not {type(rounds).__name__}")
        self.function, self.backward, self.rounds = function, backward, rounds
        self.case = Case(words)
        if backward is not None and " accumulate=yes" in self.case.words:
            raise Error("accumulate=yes: a function cannot add to gradients that it is not given")
        self.rows: list[Verdict] = []
        self.passing: list[str] | None = None

    def draw(self, seed: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Inputs and upstream gradients of a seed, which the case has from now on."""
        call("abl_draw", self.case, seed, int(self.case.has_drawn_states))
        return ({n: self.case.stored(n) for n in self.case.names(INPUT)},
                {n: self.case.stored(n) for n in self.case.gradients(OUTPUT)})

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        """Make these the case's inputs and upstream gradients."""
        for name, array in values.items():
            self.case.set(name, array)

    def run(self, inputs: dict[str, np.ndarray], upstream: dict[str, np.ndarray],
            check: str) -> dict[str, np.ndarray]:
        """Call the function; its results are copies.  Its inputs must be as they were."""
        before = {n: a.copy() for n, a in {**inputs, **upstream}.items()}
        found = named(self.function(**inputs), self.case.names(OUTPUT), "the function",
                       "outputs")
        found = {n: a if self.case.tensor(n).bytes else a.astype(np.float64)
                 for n, a in found.items()}
        if self.backward is not None:
            gradients = named(self.backward(inputs, upstream), self.case.gradients(INPUT),
                               "backward", "gradients")
            found |= {n: a.astype(np.float64) for n, a in gradients.items()}
        for name, array in found.items():
            shape = self.case.tensor(name).shape
            if array.shape != shape:
                raise Error(f"{name} has the shape {list(array.shape)}, it should have "
                            f"{list(shape)}")
        for name, array in {**inputs, **upstream}.items():
            if array.tobytes() != before[name].tobytes():
                self.rows.append(Verdict("inputs unchanged", name,
                                         distance(array.astype(float), before[name].astype(float)),
                                         0, verdict="fail", note=f"changed by {check}"))
                array[...] = before[name]
        return found

    def narrowed(self, found: Mapping[str, np.ndarray]) -> str:
        """What is rounded: as was said, and the results that are arrays of a coarser type than the
        contract's."""
        words = self.rounds.replace(",", " ").split()
        said = {w.split(":")[0] for w in words}
        for name, array in found.items():
            t, given = self.case.tensor(name), getattr(array, "given", "")
            kept = t.dtype if name in self.case.tensors else t.grad_dtype
            if given and name not in said and UNITS[given] > UNITS.get(kept, 1):
                words.append(f"{name}:{given}")
        return " ".join(words)

    def declared(self, found: Mapping[str, np.ndarray]) -> tuple[Run, str]:
        """A result that says what these round, of which nothing is set; and that in words."""
        run, rounds = Run.given(self.case, "function"), self.narrowed(found)
        if rounds:
            call("abl_result_rounds", run, rounds)
        return run, rounds

    def parity(self, found: Mapping[str, np.ndarray], check: str) -> list[Verdict]:
        """The library's verdicts on results for the case's inputs."""
        run, rounds = self.declared(found)
        for name, array in found.items():
            run.set(name, array)
        rows = Rows(call("abl_judge_result", self.case, run))
        made = []
        for r in rows.rows():
            verdict = ("cannot be judged" if r.unjudged else "pass") if r.passed else "fail"
            made.append(Verdict(check, r.tensor.decode(), r.error, r.bound, r.worst.decode(),
                                None if r.first_bad < 0 else r.first_bad, verdict,
                                note=f"rounds {rounds}" if rounds else "",
                                distance=r.distance.decode(), slices=r.slices, coarse=r.coarse,
                                sees=r.sees, sees_row=r.sees_row, sees_element=r.sees_element))
        return made

    def find_passing(self, found: Mapping[str, np.ndarray]) -> None:
        """What would pass as these results; they are judged by all samples from then on."""
        run, _ = self.declared(found)
        self.passing = call("abl_passing", self.case, " ".join(found), run).splitlines()

    def would_pass(self, name: str, answer: np.ndarray) -> bool:
        """Would this answer for the case's inputs pass as that result?"""
        if self.case.tensor(name).bytes:
            return False
        x = np.ascontiguousarray(answer, np.float64)
        return bool(call("abl_would_pass", self.case, name, x.ctypes.data_as(DOUBLES), x.size))

    def answers(self, found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the oracle has of the results that were given."""
        return {n: self.case.expected(n) for n in found}


def _null_answers(want: np.ndarray, other: np.ndarray,
                  inputs: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """Answers that know little: a judge that lets one of them pass shows nothing."""
    yield "zeros", np.zeros_like(want)
    yield "the wrong sign", -want
    yield "the result of other inputs", other
    with np.errstate(invalid="ignore"):
        for axis in range(want.ndim):
            mean = np.mean(want, axis=axis, keepdims=True)
            yield f"the mean over axis {axis}", np.broadcast_to(mean, want.shape)
            part = want.copy()
            part[(slice(None),) * axis + (slice((want.shape[axis] + 1) // 2, None),)] = 0
            yield f"the first half of axis {axis} alone", part
    for name, array in inputs.items():
        if array.shape == want.shape and array.dtype != np.uint8:
            yield f"a copy of {name}", array.astype(np.float64)


def _powerless(judge: _Judge, rows: list[Verdict], want: Mapping[str, np.ndarray],
               other: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray]) -> dict[str, str]:
    """The results for which a null answer, that is not right by itself, would pass; which one."""
    found: dict[str, str] = {}
    for row in rows:
        right = want[row.tensor]
        if row.verdict != "pass" or not right.size:
            continue
        for what, answer in _null_answers(right, other[row.tensor], inputs):
            if distance(answer, right) > 0 and judge.would_pass(row.tensor, answer):
                found[row.tensor] = what
                break
    return found


def _mark(rows: list[Verdict], weak: Mapping[str, str]) -> list[Verdict]:
    return [r._replace(verdict="powerless", note=f"{weak[r.tensor]} would pass")
            if r.verdict == "pass" and r.tensor in weak else r for r in rows]


def _judge_seed(judge: _Judge, seed: int, power: bool = False) -> dict[str, str]:
    """All checks of a function by inputs of two seeds; the results that they have no power over."""
    other_inputs, other_upstream = judge.draw(seed + 1)
    first_inputs, first_upstream = judge.draw(seed)
    inputs = {n: a.copy() for n, a in first_inputs.items()}
    upstream = {n: a.copy() for n, a in first_upstream.items()}

    first = judge.run(inputs, upstream, "the first call")
    if not first:
        raise Error(f"the function gave no result of {judge.case.words}")
    # The same arrays with other values: what was kept of the first call is wrong now.
    for name, array in {**inputs, **upstream}.items():
        array[...] = {**other_inputs, **other_upstream}[name]
    fresh = judge.run(inputs, upstream, "the second call")
    # The first values once more, at other addresses.
    again = judge.run({n: a.copy() for n, a in first_inputs.items()},
                      {n: a.copy() for n, a in first_upstream.items()}, "the third call")

    judge.restore({**other_inputs, **other_upstream})
    fresh_rows = judge.parity(fresh, "fresh values")
    other = judge.answers(first)
    judge.restore({**first_inputs, **first_upstream})
    if power:
        judge.find_passing(first)
    rows = judge.parity(first, "parity")
    want = judge.answers(first)
    judge.rows += rows + fresh_rows
    for name, array in first.items():
        there = name in again
        same = there and array.tobytes() == again[name].tobytes()
        error = distance(again[name], array) if there else math.inf
        judge.rows.append(Verdict("repeat", name, error, 0, verdict="pass" if same else "fail",
                                  note="" if same else "not the bits of the first call"))
    return _powerless(judge, rows, want, other, first_inputs)


def judge(function: Callable[..., Any], words: str,
          backward: Callable[..., Any] | None = None, rounds: str = "",
          power: bool = False) -> Verdicts:
    """Judge a function by the oracle, in a case of `run-ablation -t`'s words.

    `function(**inputs)` is called with NumPy arrays by the table's names (float32, whole numbers as
    int64; bf16 values in float32) and returns the outputs: a dict, a tuple in the table's order, or
    one array.  `backward(inputs, upstream)` gets these and the gradients of the outputs ("d_out"),
    and returns those of the inputs in the same way ("d_x", or "x").  What is None, or not there, is
    not judged.

    `rounds` says what the function rounds on the way, or gives in a coarser type than the contract
    has: "P:bf16 d_w:bf16", sites of the operation (`run-ablation --list OP`) or results, each with
    fp32, bf16 or fp16.  The bounds allow for it, and the verdicts say so.  An array of bfloat16 or
    float16 (PyTorch's, or of NumPy's dtype) says so by itself.

    With `power` the verdicts have `would_pass`: what else would have passed as these results, such as
    "eps = 0", "S0 drawn anew" or a mistake of published kernels; and what each sees is exact.  It takes
    some 100 passes of the oracle.

    Initial states are drawn, too, unless the words say `input=normal`: then they are 0.

    The checks: `parity` with the oracle, within the bound that follows from the error of plain C
    with the same storage; `fresh values`, the same by other values in the same arrays; `repeat`,
    the bits of the first call again; `inputs unchanged`.  Where zeros, a mean, a copy of an input,
    half of the answer or the answer to other inputs would pass as well, the case is drawn again,
    and at last called powerless.

    Error: the words are wrong, a shape is wrong, a result is no array of real numbers, or nothing was
    given to be judged."""
    if " input=" not in words:
        words += " input=nonzero"
    case_seed = int(Case(words).words.split(" seed=")[1].split()[0])
    for n in range(1 + _REDRAWN):
        one = _Judge(function, words, backward, rounds)
        weak = _judge_seed(one, case_seed + 2 * n, power)
        if not weak or any(r.verdict == "fail" for r in one.rows):
            break
    return Verdicts(one.case.words, _mark(one.rows, weak), one.passing)
