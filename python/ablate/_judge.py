"""Somebody's function judged by the oracle."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ._case import Case, Rows, Run, numbers
from ._library import DOUBLES, Error, call
from ._records import html_table
from ._table import INPUT, OUTPUT

# Cases are drawn again with another seed so many times where a null answer would pass.
_REDRAWN = 4


class Verdict(NamedTuple):
    """One check of one tensor: `verdict` is "pass", "fail", "cannot be judged" (the bound is too
    coarse) or "powerless" (a null answer, such as zeros, would have passed)."""

    check: str
    tensor: str
    error: float  # of the distance that is the largest part of its bound; infinite: NaN or inf
    bound: float
    worst: str = ""  # index of the worst element, or slice
    first_bad_step: int | None = None
    verdict: str = "pass"
    note: str = ""
    distance: str = ""  # "max", "rms", "gain", "offset", "slice", "slice gain"; "": equal bits
    slices: int = 0  # rows and indices of axes that were compared
    coarse: int = 0  # those of them that cannot be judged
    # The smallest errors that would have failed: of all elements alike and of one row of the last
    # axis, as fractions of each element, and of one element, as a fraction of the largest; the last
    # two in the median row.  0: any bit, nan: not known.
    sees: float = math.nan
    sees_row: float = math.nan
    sees_element: float = math.nan


class Verdicts(Sequence[Verdict]):
    """All verdicts on a function; str() is a table."""

    def __init__(self, words: str, rows: list[Verdict], would_pass: list[str] | None = None):
        if not rows:
            raise Error(f"nothing was checked: {words}")
        self.words, self._rows = words, rows
        # Changes of the case that would have passed, "eps = 0"; None: that was not asked.
        self.would_pass = would_pass

    def __getitem__(self, i: Any) -> Any:
        return self._rows[i]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Verdict]:
        return iter(self._rows)

    def _of(self, verdict: str) -> list[Verdict]:
        return [row for row in self._rows if row.verdict == verdict]

    @property
    def failed(self) -> list[Verdict]:
        """Those that failed."""
        return self._of("fail")

    @property
    def powerless(self) -> list[Verdict]:
        """Those by which a wrong answer would have passed."""
        return self._of("powerless")

    @property
    def unjudged(self) -> list[Verdict]:
        """Those whose bound is too coarse."""
        return self._of("cannot be judged")

    @property
    def ok(self) -> bool:
        """At least one check passed, none failed, and none was powerless."""
        return not self.failed and not self.powerless and bool(self._of("pass"))

    @property
    def _counts(self) -> str:
        return (f"{len(self)} checks, {len(self.failed)} failed"
                + (f", {len(self.powerless)} powerless" if self.powerless else "")
                + (f", {len(self.unjudged)} cannot be judged" if self.unjudged else ""))

    def __str__(self) -> str:
        lines = [self.words,
                 f"{'check':<16} {'tensor':<12} {'error':>8} {'bound':>8}  {'distance':<10}  "
                 f"{'sees':>7}  verdict"]
        for r in self._rows:
            note = _remark(r)
            note = f": {note}" if note else ""
            lines.append(f"{r.check:<16} {r.tensor:<12} {r.error:8.1e} {r.bound:8.1e}  "
                         f"{r.distance:<10}  {_seen(r.sees):>7}  {r.verdict}{_place(r)}{note}")
        return "\n".join([*lines, *self._passing, self._counts])

    @property
    def _passing(self) -> list[str]:
        if self.would_pass is None:
            return []
        return [f"would pass: {what}" for what in self.would_pass or ["nothing that was asked"]]

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [{**r._asdict(), "note": (_place(r) + "; " + _remark(r)).strip(" ;,")}
                for r in self._rows]
        state = "passed" if self.ok else "not passed"
        return html_table(["check", "tensor", "error", "bound", "distance", "sees", "verdict",
                           "note"], rows,
                          f"{self.words}: {state}, {self._counts}")


def _seen(x: float) -> str:
    """"0.1 %", or where that is nothing "3.5e-07"."""
    if math.isnan(x):
        return "-"
    return "any bit" if x == 0 else f"{100 * x:.2g} %" if x >= 1e-4 else f"{x:.1e}"


def _place(r: Verdict) -> str:
    where = f"  at {r.worst}" if r.verdict == "fail" and r.worst else ""
    return where + (f", first at step {r.first_bad_step}" if r.first_bad_step is not None else "")


def _remark(r: Verdict) -> str:
    coarse = f"{r.coarse} of {r.slices} slices cannot be judged" if r.coarse else ""
    return "; ".join(n for n in (r.note, coarse) if n)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """max |a - b| / max |b| over what is finite in b; infinite where a is not as b is elsewhere."""
    x, y = (np.ascontiguousarray(z, np.float64) for z in (a, b))
    return float(call("abl_distance", x.ctypes.data_as(DOUBLES), y.ctypes.data_as(DOUBLES), y.size))


# The types of arrays that are coarser than float32, and the units of the types that a contract has.
_NARROW = {"bfloat16": "bf16", "torch.bfloat16": "bf16", "float16": "fp16", "torch.float16": "fp16"}
_UNITS = {"fp64": 2.0**-53, "fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}


class _Given(np.ndarray):
    """An array that knows the type in which it was given: "bf16", "fp16", or ""."""

    given = ""

    def __array_finalize__(self, array: Any) -> None:
        self.given = getattr(array, "given", "")


def _array(name: str, value: Any) -> np.ndarray:
    """The values of an array of NumPy, ml_dtypes or PyTorch; one that is narrow in float32."""
    narrow = _NARROW.get(str(getattr(value, "dtype", "")), "")
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if narrow else value
        value = value.resolve_neg() if value.is_neg() else value
    array = numbers(name, value)
    narrow = narrow or _NARROW.get(str(array.dtype), "")
    if not narrow:
        return array
    array = array.astype(np.float32).view(_Given)
    array.given = narrow
    return array


def _is_array(value: Any) -> bool:
    return np.isscalar(value) or any(hasattr(value, a) for a in ("detach", "__array__", "dtype"))


def _wanted(names: list[str], what: str) -> str:
    """What a function is to return."""
    if not names:
        return f"an empty dict: there are no {what} here"
    if len(names) == 1:
        return f"{names[0]}: the array, or a dict or a tuple of it"
    return f"{', '.join(names)}: a dict of arrays by these names, or a tuple in this order"


def _by_name(values: Mapping[Any, Any], names: list[str], what: str) -> dict[str, Any]:
    """The items by the names of the table: the gradient of x is given as d_x, or as x."""
    given: dict[str, Any] = {}
    for n, v in values.items():
        name = n if n in names else f"d_{n}"
        if name not in names:
            raise Error(f"the {what} have no {n}; they are {', '.join(names)}")
        if name in given:
            raise Error(f"the {what} have {name} twice, as {name} and {name[2:]}")
        given[name] = v
    return given


def _named(values: Any, names: list[str], who: str, what: str) -> dict[str, np.ndarray]:
    """What a function returned, by name: a mapping, a sequence in the table's order, or one array."""
    if isinstance(values, Mapping):
        given = _by_name(values, names, what)
    elif isinstance(values, (str, bytes)) or not (_is_array(values) or isinstance(values, Sequence)):
        of = "None" if values is None else f"an object of the type {type(values).__name__}"
        raise Error(f"{who} returned {of}; it is to return {_wanted(names, what)}")
    else:
        row = [values] if _is_array(values) else list(values)
        if len(row) > len(names):
            of = "an array" if _is_array(values) else f"a {type(values).__name__} of {len(row)}"
            raise Error(f"{who} returned {of}; it is to return {_wanted(names, what)}")
        given = dict(zip(names, row))
    return {n: _array(n, v) for n, v in given.items() if v is not None}


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
        found = _named(self.function(**inputs), self.case.names(OUTPUT), "the function",
                       "outputs")
        found = {n: a if self.case.tensor(n).bytes else a.astype(np.float64)
                 for n, a in found.items()}
        if self.backward is not None:
            gradients = _named(self.backward(inputs, upstream), self.case.gradients(INPUT),
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
            if given and name not in said and _UNITS[given] > _UNITS.get(kept, 1):
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
