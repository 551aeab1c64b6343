"""Verdicts on somebody's function."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ._library import Error
from ._records import html_table


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
