"""Verdicts on somebody's function."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ._library import Error
from ._records import html_table

# Why a result is not judged, and no check failed.
REASONS = "not given", "cannot be judged", "powerless"


class Verdict(NamedTuple):
    """One check of one tensor: `verdict` is "pass", "fail", "cannot be judged" (the bound is too
    coarse), "powerless" (a null answer, such as zeros, would have passed) or "not given"."""

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
    words: str = ""  # of the case, which make it again


class Verdicts(Sequence[Verdict]):
    """All verdicts on a function, on every case; str() is a table of the worst of each kind."""

    def __init__(self, words: str, rows: list[Verdict], would_pass: list[str] | None = None, *,
                 without: Iterable[str] = (), notes: Sequence[str] = (), replay: str = "",
                 cut_short: str = ""):
        if not rows:
            raise Error(f"nothing was checked: {words}")
        self.words, self._rows = words, rows
        # Changes of the case that would have passed, "eps = 0"; None: that was not asked.
        self.would_pass = would_pass
        self.without = frozenset(without)  # results that need not be judged
        self.notes = list(notes)  # what else is to be said, a line each
        self.replay = replay  # the words of the smallest case that was seen failing; or ""
        self.cut_short = cut_short  # why fewer cases than there are were run; or ""

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
    def missing(self) -> list[Verdict]:
        """Results that the function did not give."""
        return self._of("not given")

    @property
    def cases(self) -> list[str]:
        """The words of each case."""
        return list(dict.fromkeys(row.words for row in self._rows))

    @property
    def reasons(self) -> dict[str, str]:
        """The results that no case judged, and why: "not given" in one of the cases, "powerless" or
        "cannot be judged" in all of them.  Those of `without` are not among them."""
        seen: dict[str, set[str]] = {}
        for row in self._rows:
            if row.check == "parity" and row.tensor not in self.without:
                seen.setdefault(row.tensor, set()).add(row.verdict)
        return {name: next(r for r in REASONS if r in found) for name, found in seen.items()
                if "not given" in found or not found & {"pass", "fail"}}

    @property
    def ok(self) -> bool:
        """Did no check fail, and did parity pass, with power, for each result of the function, but those
        of `without`, in one of the cases at least?"""
        return self.ok_or()

    def ok_or(self, *reasons: str) -> bool:
        """The same for whoever accepts these `reasons` of a result that was not judged: "not given",
        "cannot be judged", "powerless".  Error: another one."""
        for reason in reasons:
            if reason not in REASONS:
                raise Error(f"{reason} is no reason; they are {', '.join(REASONS)}")
        judged = any(r.check == "parity" and r.verdict in ("pass", *reasons) for r in self._rows)
        return judged and not self.failed and all(r in reasons for r in self.reasons.values())

    @property
    def _counts(self) -> str:
        n = len(self.cases)
        return (f"{len(self)} checks" + (f" of {n} cases" if n > 1 else "")
                + f", {len(self.failed)} failed"
                + (f", {len(self.powerless)} powerless" if self.powerless else "")
                + (f", {len(self.unjudged)} cannot be judged" if self.unjudged else "")
                + (f", {len(self.missing)} not given" if self.missing else ""))

    @property
    def _result(self) -> str:
        why = [f"{name} {reason}" for name, reason in self.reasons.items()]
        text = "ok" if self.ok else "not ok" + (f": {', '.join(why)}" if why else "")
        return text + (f", but {self.cut_short}" if self.cut_short else "")

    def _worst(self) -> list[tuple[Verdict, int, str]]:
        """Of each kind of check on each tensor the worst, how many there are, and the verdicts in words.
        Where one failed that is the worst; else the worst of those that passed, if any did."""
        groups: dict[tuple[str, str], list[Verdict]] = {}
        for row in self._rows:
            groups.setdefault((row.check, row.tensor), []).append(row)
        return [_of_group(rows) for rows in groups.values()]

    def __str__(self) -> str:
        many = len(self.cases) > 1
        lines = [self.words,
                 f"{'check':<16} {'tensor':<12} {'error':>8} {'bound':>8}  {'distance':<10}  "
                 f"{'sees':>7}  " + (f"{'of':>3}  " if many else "") + "verdict"]
        for r, n, verdict in self._worst():
            note = _remark(r)
            note = f": {note}" if note else ""
            lines.append(f"{r.check:<16} {r.tensor:<12} {r.error:8.1e} {r.bound:8.1e}  "
                         f"{r.distance:<10}  {_seen(r.sees):>7}  " + (f"{n:3}  " if many else "")
                         + f"{verdict}{_place(r)}{note}")
        return "\n".join([*lines, *self._passing, *self.notes, f"{self._counts}: {self._result}"])

    @property
    def _passing(self) -> list[str]:
        if self.would_pass is None:
            return []
        return [f"would pass: {what}" for what in self.would_pass or ["nothing that was asked"]]

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [{**r._asdict(), "of": n, "note": "; ".join(
            s for s in (verdict.partition(", ")[2], _place(r).strip(" ,"), _remark(r)) if s)}
                for r, n, verdict in self._worst()]
        columns = ["check", "tensor", "error", "bound", "distance", "sees", "verdict", "note"]
        if len(self.cases) > 1:
            columns.insert(6, "of")
        return html_table(columns, rows, "; ".join(
            [f"{self.words}: {self._result}, {self._counts}", *self._passing, *self.notes]))


def _badness(r: Verdict) -> float:
    ratio = r.error / r.bound if r.bound > 0 else math.inf if r.error > 0 else 0
    return -1 if math.isnan(ratio) else ratio


def _of_group(rows: list[Verdict]) -> tuple[Verdict, int, str]:
    """The row that is shown of some of a kind, how many they are, and their verdicts in words."""
    counts = {v: sum(r.verdict == v for r in rows) for v in ("fail", "pass", *REASONS)}
    shown = next(v for v, n in counts.items() if n)
    others = [f"{n} {v}" for v, n in counts.items() if n and v != shown and v != "pass"]
    row = max((r for r in rows if r.verdict == shown), key=_badness)
    return row, len(rows), ", ".join([shown, *others])


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
