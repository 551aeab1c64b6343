"""Somebody's function in one case: its calls, and what the oracle says of each."""

import itertools
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ._answers import distance, powerless, verdict_of
from ._case import Case, Rows, Run
from ._library import Error, call
from ._returned import memory, named, narrowed, said
from ._table import INPUT, OUTPUT
from ._verdicts import Verdict

# A function is called at least so often in a case, and at most, within about so many seconds.
_FEWEST, _MOST, _SECONDS = 4, 12, 1.0
# The draws of a case besides its own have its seed plus a multiple of this.
_OTHER_SEED = 1 << 40

Arrays = dict[str, np.ndarray]


class Values(NamedTuple):
    """What a function is given: inputs, and gradients of outputs ("d_y")."""

    inputs: Arrays
    upstream: Arrays

    def all(self) -> Arrays:
        return {**self.inputs, **self.upstream}

    def copy(self) -> "Values":
        """The same at other addresses."""
        return Values(*({n: a.copy() for n, a in part.items()} for part in self))


class Asked(NamedTuple):
    """A function, and what was said of it."""

    function: Callable[..., Any]
    backward: Callable[..., Any] | None
    rounds: str
    without: frozenset[str] = frozenset()  # results that it need not give


def _shares(a: np.ndarray, b: np.ndarray) -> bool:
    try:
        return np.shares_memory(a, b, max_work=10**6)
    except Exception:  # they are too involved to say
        return False


@contextmanager
def _stays() -> Iterator[None]:
    """sys.exit() by a function would end the judge, with exit status 0 perhaps."""
    try:
        yield
    except SystemExit as error:
        raise Error(f"the function ended the program, with {error.code!r}") from error


class _Calls:
    """A function while it is called in one case."""

    def __init__(self, asked: Asked, case: Case):
        self.asked, self.case = asked, case
        self.rows: list[Verdict] = []
        self._earlier: list[tuple[str, Arrays]] = []  # what each call returned

    def run(self, values: Values, which: str) -> Arrays:
        """Call the function; its results are copies.  Its inputs must be as they were, and what it
        returned is its own until then: it is overwritten now."""
        before = values.copy()
        with said(self.case.words), _stays():
            outputs = self.asked.function(**values.inputs)
        self._unchanged(values, before, which)
        returned = named(outputs, self.case.names(OUTPUT), "the function", "outputs",
                         self.case.whole)
        if self.asked.backward is not None:
            with said(self.case.words), _stays():
                gradients = self.asked.backward(dict(values.inputs), dict(values.upstream))
            returned |= named(gradients, self.case.gradients(INPUT), "backward", "gradients",
                              self.case.whole)
        for name, array in returned.items():
            shape = self.case.tensor(name).shape
            if array.shape != shape:
                raise Error(f"{name} has the shape {list(array.shape)}, it should have {list(shape)}")
        found = {n: a.copy() for n, a in returned.items()}
        self._own({n: memory(a) for n, a in returned.items()}, values, which)
        self._unchanged(values, before, which)
        return found

    def fail(self, check: str, name: str, note: str, error: float = math.inf) -> None:
        self.rows.append(Verdict(check, name, error, 0, verdict="fail", note=note))

    def _unchanged(self, values: Values, before: Values, which: str) -> None:
        """What is given stays as it is."""
        for name, array in values.all().items():
            was = before.all()[name]
            if array.tobytes() != was.tobytes():
                self.fail("inputs unchanged", name, f"changed by {which}",
                          distance(array.astype(float), was.astype(float)))
                array[...] = was

    def _own(self, returned: Arrays, values: Values, which: str) -> None:
        """Results may share memory with inputs alone, whose rows they then are; others are spoiled."""
        given = list(values.all().values())
        mine = {n: a for n, a in returned.items() if a.size and not any(_shares(a, g) for g in given)}
        names = list(mine)
        for i, name in enumerate(names):
            for other in names[:i]:
                if _shares(mine[name], mine[other]):
                    self.fail("own memory", name, f"it is in the memory of {other}, in {which}")
            for when, earlier in self._earlier:
                for other, array in earlier.items():
                    if _shares(mine[name], array):
                        self.fail("own memory", name, f"{which} gave the memory that {other} of "
                                                      f"{when} has")
        for array in mine.values():
            if array.flags.writeable:
                array[...] = np.nan if array.dtype.kind not in "iu" else np.iinfo(array.dtype).max
        self._earlier.append((which, mine))


class Judged:
    """A function in one case, and the verdicts on it: `rows`."""

    def __init__(self, asked: Asked, words: str, until: float = math.inf, turn: int = 0):
        """`until`: no more calls than are needed after that time of time.monotonic(); `turn`: which
        of the inputs is the first to be changed alone."""
        self.asked, self.until, self.turn = asked, until, turn
        self.case, self.other = Case(words), Case(words)
        if asked.backward is not None and " accumulate=yes" in self.case.words:
            raise Error("accumulate=yes: a function cannot add to gradients that it is not given")
        self.words = self.case.words
        self.random = random.Random(words)
        self.calls = _Calls(asked, self.case)
        self.found: Arrays = {}
        self._rows: list[Verdict] = []
        self._judge()

    @property
    def rows(self) -> list[Verdict]:
        return [r._replace(words=self.words) for r in [*self._rows, *self.calls.rows]]

    @property
    def failed(self) -> bool:
        return any(r.verdict == "fail" for r in [*self._rows, *self.calls.rows])

    # ---- what it is given ----

    def _stored(self, case: Case) -> Values:
        upstream = {n: case.stored(n) for n in case.gradients(OUTPUT)}
        for name, array in upstream.items():
            if name[2:] in self.asked.without:  # nothing follows from an output that is not given
                array[...] = 0
                case.set(name, array)
        return Values({n: case.stored(n) for n in case.names(INPUT)}, upstream)

    def _drawn(self, k: int) -> Values:
        """Another draw of the case's inputs."""
        seed = int(self.words.split(" seed=")[1].split()[0])
        call("abl_draw", self.other, (seed + k * _OTHER_SEED) % 2**64,
             int(self.case.has_drawn_states))
        return self._stored(self.other)

    def _changed(self, first: Values, fresh: Values, name: str, at: int | None) -> Values | None:
        """The first values but for one of `name`, the fresh ones', at a place of chance if that is
        None; None: these are the same."""
        values = first.copy()
        array, instead = values.all()[name].reshape(-1), fresh.all()[name].reshape(-1)
        if self.case.tensor(name).bytes:  # a byte alone may be no weight
            array[...] = instead
            return values
        places = [self.random.randrange(array.size) for _ in range(8)] if at is None else [at]
        with np.errstate(invalid="ignore"):
            far = np.nan_to_num(np.abs(array[places].astype(float) - instead[places]), posinf=1)
        if not far.any():
            return None
        at = places[int(np.argmax(far))]
        array[at] = instead[at]
        return values

    def _exchanged(self, first: Values, name: str) -> Values | None:
        """The first values, two of `name` in each other's place: their sum and the largest stay."""
        values = first.copy()
        array = values.all()[name].reshape(-1)
        places = [self.random.randrange(array.size) for _ in range(8)]
        a, b = min(places, key=lambda i: array[i]), max(places, key=lambda i: array[i])
        if self.case.tensor(name).bytes or not array[a] < array[b]:
            return None
        array[[a, b]] = array[[b, a]]
        return values

    # ---- what is said of it ----

    def _declared(self, case: Case, found: Arrays) -> tuple[Run, str]:
        """A result that says what these round, of which nothing is set; and that in words."""
        run = Run.given(case, "function")
        rounds = narrowed(case, found, self.asked.rounds)
        if rounds:
            call("abl_result_rounds", run, rounds)
        return run, rounds

    def _parity(self, case: Case, found: Arrays, check: str) -> list[Verdict]:
        """The library's verdicts on results for a case's inputs."""
        run, rounds = self._declared(case, found)
        for name, array in found.items():
            run.set(name, array)
        note = f"rounds {rounds}" if rounds else ""
        judged = Rows(call("abl_judge_result", case, run))
        return [verdict_of(row, check, note) for row in judged.rows()]

    def _elsewhere(self, values: Values, check: str, which: str) -> None:
        """Call the function on other values, and judge it by these."""
        for name, array in values.all().items():
            self.other.set(name, array)
        found = self.calls.run(values, which)
        self._complete(found, check)
        self._rows += self._parity(self.other, found, check)

    def _complete(self, found: Arrays, check: str) -> None:
        """Nothing may be left out that was given at first."""
        for name in self.found.keys() - found.keys():
            self.calls.fail(check, name, "it was not given")

    def _again(self, values: Values, which: str) -> None:
        """Call the function on the first values again."""
        found = self.calls.run(values, which)
        self._complete(found, "repeat")
        for name in self.found.keys() & found.keys():
            same = found[name].tobytes() == self.found[name].tobytes()
            if same and any(r.check == "repeat" and r.tensor == name for r in self._rows):
                continue
            self._rows.append(Verdict(
                "repeat", name, 0.0 if same else distance(found[name], self.found[name]), 0,
                verdict="pass" if same else "fail",
                note="" if same else f"not the bits of the first call, in {which}"))

    def _missing(self) -> list[Verdict]:
        wanted = self.case.names(OUTPUT)
        if self.asked.backward is not None:
            wanted = wanted + self.case.gradients(INPUT)
        return [Verdict("parity", n, math.nan, math.nan, verdict="not given")
                for n in wanted if n not in self.found]

    def _judge(self) -> None:
        """The calls, of which the first that is wrong is the last."""
        began = time.monotonic()
        first = self._stored(self.case)
        fresh = self._drawn(1)
        arrays = first.copy()
        self.found = self.calls.run(arrays, "the first call")
        if not self.found:
            raise Error(f"the function gave no result of {self.words}")
        self._rows = self._parity(self.case, self.found, "parity") + self._missing()
        if self.failed:
            return
        # The same arrays with other values: what was kept of the first call is wrong now.
        for name, array in arrays.all().items():
            array[...] = fresh.all()[name]
        self._elsewhere(arrays, "fresh values", "the second call")
        other = {n: self.other.expected(n) for n in self.found}
        each = time.monotonic() - began
        for n, step in enumerate(self._more(first, fresh, self._number(each))):
            if self.failed:
                return
            step(f"call {n + 3}")
        if not self.failed:
            self._mark(other, first)

    def _number(self, each: float) -> int:
        """How many calls of the function there are, where two took `each` seconds."""
        left = min(_SECONDS, self.until - time.monotonic())
        return int(min(max(_FEWEST, 2 + 2 * left / max(each, 1e-9)), _MOST))

    def _changes(self, first: Values, fresh: Values, names: list[str]) -> Iterator[Values]:
        """One value of each input changed, then two exchanged, then the last and the first changed."""
        for values in (*(self._changed(first, fresh, n, None) for n in names),
                       *(self._exchanged(first, n) for n in names),
                       *(self._changed(first, fresh, n, at) for at in (-1, 0) for n in names)):
            if values:
                yield values

    def _more(self, first: Values, fresh: Values,
              number: int) -> Iterator[Callable[[str], None]]:
        """Calls from the third to the last: one value changed in each input, the first values again,
        everything new, more such changes, and the first again."""
        names = list(first.inputs if self.asked.backward is None else first.all())
        names = names[self.turn % len(names):] + names[:self.turn % len(names)]
        changes = self._changes(first, fresh, names)

        draws = itertools.count(2)

        def again(which: str) -> None:
            self._again(first.copy(), which)

        def anew(which: str) -> None:
            self._elsewhere(self._drawn(next(draws)), "fresh values", which)

        def change(which: str) -> None:
            if values := next(changes, None):
                self._elsewhere(values, "one value new", which)
            else:
                anew(which)

        each = [change] * min(len(names), number - 3)
        more = [again, anew, *[change] * number][:number - 3 - len(each)]
        yield from [*each, *more, again]

    # ---- what would pass ----

    def _mark(self, other: Arrays, first: Values) -> None:
        """Call those powerless by which an answer that knows little would pass."""
        self._rows = [powerless(self.case, r, first.inputs, other.get(r.tensor))
                      if r.check == "parity" else r for r in self._rows]

    def passing(self) -> tuple[list[str], list[str], list[str]]:
        """What would pass as these results; what would not; and what would since it changes nothing here.
        They are judged by all samples from then on, and what their verdicts see is exact."""
        run, _ = self._declared(self.case, self.found)
        passes = call("abl_passing", self.case, " ".join(self.found), run).splitlines()
        exact = {r.tensor: r for r in self._parity(self.case, self.found, "parity")}
        for i, row in enumerate(self._rows):
            if row.check == "parity" and row.tensor in exact:
                new = exact[row.tensor]
                self._rows[i] = row._replace(error=new.error, bound=new.bound, sees=new.sees,
                                             sees_row=new.sees_row, sees_element=new.sees_element,
                                             distance=new.distance)
        return passes, *(call("abl_refused", self.case, k).splitlines() for k in range(2))

