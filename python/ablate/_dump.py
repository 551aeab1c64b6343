"""What is in a dump of run-ablation, read by the library."""

import ctypes
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ._library import CAttribute, CMember, DOUBLES, Error, Handle, call
from ._records import Records

_GROUP, _DATASET = range(2)
_TEXT, _WHOLE, _REAL, _LARGE = range(4)


class Array(np.ndarray):
    """A tensor of a dump: an array in float64 with the names of its axes, `axes`."""

    axes: tuple[str, ...] = ()


def _members(file: Handle, path: str) -> Iterator[CMember]:
    member, i = CMember(), 0
    while call("abl_dump_member", file, path, i, ctypes.byref(member)) == 0:
        yield member
        member, i = CMember(), i + 1


def _attributes(file: Handle, path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    one, text, i = CAttribute(), ctypes.create_string_buffer(1 << 16), 0
    while (n := call("abl_dump_attribute", file, path, i, ctypes.byref(one), text, len(text))) >= 0:
        if n >= len(text):
            text = ctypes.create_string_buffer(n + 1)
            continue
        name = one.name.decode()
        found[name] = (text.value.decode(errors="replace") if one.type == _TEXT
                       else one.whole if one.type == _WHOLE
                       else one.whole % 2**64 if one.type == _LARGE else one.real)
        i += 1
    return found


_CELL: dict[str, Callable[[str], Any]] = {"s": str, "i": int, "d": float}


def _table(file: Handle, path: str) -> Records:
    text = ctypes.create_string_buffer(1 << 14)
    while (n := call("abl_dump_table", file, path, text, len(text))) > len(text):
        text = ctypes.create_string_buffer(n)
    count, *cells = text.raw[:n].decode(errors="replace").split("\0")[:-1]
    k = int(count)
    columns = {cells[i][1:]: [*map(_CELL[cells[i][0]], cells[k + i::k])] for i in range(k)}
    return Records(dict(zip(columns, row)) for row in zip(*columns.values()))


# The columns that Dump.table() reads.
_NUMBER, _WORD = (int, float), str
_CHECKS = {"backend": _WORD, "kernel": _WORD, "check": _WORD, "tensor": _WORD, "verdict": _WORD,
           "error": _NUMBER, "bound": _NUMBER}
_TIMES = {"backend": _WORD, "kernel": _WORD, "pass": _WORD, "median": _NUMBER}


def _has(rows: Records, columns: dict[str, Any], where: str) -> Records:
    """The rows; an Error where they have not these columns."""
    for name, kind in columns.items():
        if rows and not isinstance(rows[0].get(name), kind):
            raise Error(f"{where}: there is no column {name} of "
                        + ("texts" if kind is _WORD else "numbers"))
    return rows


# Verdicts on times, whose error and bound are seconds.
_OF_TIMES = "goal", "default", "baseline"


def _ratio(row: dict[str, Any]) -> float:
    """error / bound; infinite for NaN and for bits that differ, NaN for bits that are the same."""
    if not row["bound"]:
        return math.nan if row["error"] == 0 else math.inf
    ratio = row["error"] / row["bound"]
    return ratio if ratio >= 0 else math.inf


def _worst(checks: list[dict[str, Any]]) -> dict[str, Any]:
    """The largest error / bound of a backend's checks, and what it is of."""
    worst: dict[str, Any] = {}
    for row in checks:
        ratio = _ratio(row)
        if row["check"] in _OF_TIMES or row["verdict"] == "cannot be judged" or math.isnan(ratio):
            continue
        if not worst or ratio > worst["ratio"]:
            worst = {"error": row["error"], "bound": row["bound"], "ratio": ratio,
                     "check": row["check"], "tensor": row["tensor"],
                     "distance": row.get("distance", "")}
    return worst or {"error": math.nan, "bound": math.nan, "ratio": math.nan, "check": "",
                     "tensor": "", "distance": ""}


def _backend_row(backend: str, kernel: str, checks: list[dict[str, Any]],
                 times: list[dict[str, Any]]) -> dict[str, Any]:
    """What a trial has of one backend and kernel."""
    def count(verdict: str) -> int:
        return sum(row["verdict"] == verdict for row in checks)

    def median(which: str) -> float:
        return next((t["median"] for t in times if t["pass"] == which), math.nan)

    def size(column: str) -> int | None:
        largest = max((t.get(column, -1) for t in times), default=-1)
        return largest if largest >= 0 else None

    return {"backend": backend, "kernel": kernel, "checks": len(checks), "failed": count("fail"),
            "unjudged": count("cannot be judged"), "missed": count("missed"), **_worst(checks),
            "forward": median("forward"), "backward": median("backward"),
            "saved_bytes": size("saved_bytes"), "peak_bytes": size("peak_bytes")}


class Trial:
    """A trial of a dump.  `trial["ref64/out"]` is a tensor."""

    def __init__(self, dump: "Dump", name: str):
        self._dump, self.name, self.path = dump, name, f"/trial/{name}"
        self.attributes = _attributes(dump._file, self.path)
        self._members = {m.name.decode(): m for m in _members(dump._file, self.path)}

    @property
    def words(self) -> str:
        """The line that run-ablation -t takes."""
        return self.attributes["line"]

    @property
    def op(self) -> str:
        """The operation."""
        return self.attributes["op"]

    @property
    def groups(self) -> list[str]:
        """in, dout, and the backends and programs that have results."""
        return [n for n, m in self._members.items() if m.kind == _GROUP]

    def _rows(self, table: str) -> Records:
        if table not in self._members:
            return Records()
        return _table(self._dump._file, f"{self.path}/{table}")

    @property
    def verdicts(self) -> Records:
        """The rows of its table of checks: tensor, backend, error, bound, verdict ..."""
        return self._rows("check")

    @property
    def times(self) -> Records:
        """The rows of its table of times, in seconds."""
        return self._rows("time")

    def _backends(self) -> list[dict[str, Any]]:
        """Rows of Dump.table(): of each backend and kernel that has checks or times."""
        at = f"{self._dump.file}:{self.path}"
        checks = _has(self.verdicts, _CHECKS, f"{at}/check")
        times = _has(self.times, _TIMES, f"{at}/time")
        names = dict.fromkeys((row["backend"], row["kernel"]) for row in [*checks, *times])
        made = [_backend_row(*name, [r for r in checks if (r["backend"], r["kernel"]) == name],
                             [r for r in times if (r["backend"], r["kernel"]) == name])
                for name in names]
        found = made or [_backend_row("", "", [], [])]
        counts = "failed", "unjudged", "missed"  # of the trial; a row has its backend's
        settings = {f"setting_{name}" if name in found[0] else name: value
                    for name, value in self.attributes.items() if name not in counts}
        line = {"line": settings.pop("line")} if "line" in settings else {}
        return [{"trial": self.name, **settings, **row, **line} for row in found]

    def tensors(self, group: str) -> dict[str, Array]:
        """All tensors of a group, "in", "ref64", "ref64/d", by name."""
        path = f"{self.path}/{group}"
        return {m.name.decode(): _array(self._dump._file, path, m)
                for m in list(_members(self._dump._file, path)) if m.kind == _DATASET}

    def __getitem__(self, path: str) -> Array:
        group, _, name = path.rpartition("/")
        for m in _members(self._dump._file, f"{self.path}/{group}" if group else self.path):
            if m.name.decode() == name and m.kind == _DATASET:
                return _array(self._dump._file, f"{self.path}/{group}" if group else self.path, m)
        raise KeyError(f"trial {self.name} has no tensor {path}")

    def xarray(self, group: str) -> Any:
        """The tensors of a group as an xarray.Dataset."""
        try:
            import xarray
        except ImportError:
            raise Error("Trial.xarray() needs the package xarray") from None
        return xarray.Dataset({n: (a.axes, np.asarray(a)) for n, a in self.tensors(group).items()},
                              attrs=self.attributes)

    def __repr__(self) -> str:
        return f"<trial {self.name}: {self.words}>"


def _array(file: Handle, path: str, m: CMember) -> Array:
    values = np.empty(tuple(m.size[i] for i in range(m.rank)))
    call("abl_dump_read", file, f"{path}/{m.name.decode()}", values.ctypes.data_as(DOUBLES),
         values.size)
    array = values.view(Array)
    array.axes = tuple(m.axis[i].value.decode() or f"axis_{i}" for i in range(m.rank))
    return array


class Dump:
    """A dump of run-ablation: `trials`, and `attributes` of the whole, such as its ini."""

    def __init__(self, file: str):
        self.file = str(file)
        self._file = Handle(call("abl_dump_open", self.file), "abl_dump_free")
        self.attributes = _attributes(self._file, "/")
        self.trials = [Trial(self, m.name.decode()) for m in list(_members(self._file, "/trial"))]

    def table(self) -> Any:
        """A row for each trial and each backend and kernel that has checks or times there, other
        programs among them: a pandas.DataFrame, or where pandas is not there a list of dicts that
        prints as a table, also in a notebook.

        A row has the trial's attributes (settings, dtype, seed, n_parameters, parameter_bytes,
        line ...), and of its backend: kernel, the counts checks, failed, unjudged and missed; the
        check with the largest error / bound: error, bound, ratio, check, tensor, distance; the
        median times forward and backward in seconds; saved_bytes and peak_bytes.  What is not known
        is NaN or None.  A setting that has the name of such a column is setting_kernel."""
        rows = Records(row for trial in self.trials for row in trial._backends())
        try:
            import pandas
        except ImportError:
            return rows
        return pandas.DataFrame(list(rows)).set_index("trial") if rows else pandas.DataFrame()

    def __repr__(self) -> str:
        return f"<{self.file}: {len(self.trials)} trials>"


def open(file: Any) -> Dump:
    """A dump, to be read.  Error: there is none, or it is no dump."""
    return Dump(file)
