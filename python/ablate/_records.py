"""Rows of a table that print as one: as text, and as HTML in a notebook."""

import html
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Columns whose values are seconds.
_SECONDS = {"forward", "backward", "median", "min", "max", "spread", "median_no_graph"}
_FAILED = ' style="color:#b3151c;font-weight:600"'
_WIDEST = 40  # characters of a cell of text
_LONGEST = 60  # rows that are printed
_WIDE = 20  # columns, from which on those that are the same in all rows are left out
_ALWAYS = "trial", "backend", "failed"


def _seconds(x: float) -> str:
    for size, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(x) >= 0.9995 * size:
            return f"{x / size:.3g} {unit}"
    return f"{x / 1e-9:.3g} ns"


def readable(column: str, value: Any) -> str:
    """A value as a person reads it; what is not known is a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float):
        return _seconds(value) if column in _SECONDS and math.isfinite(value) else f"{value:.3g}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode()
                   for c in str(value))


def is_bad(row: Mapping[str, Any]) -> bool:
    """Is it on something that failed?"""
    failed = row.get("failed")
    return row.get("verdict") in ("fail", "powerless") or (isinstance(failed, int) and failed > 0)


def html_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], caption: str = "") -> str:
    """An HTML table in which rows that failed are marked."""
    escape = html.escape
    lines = ["<table>"]
    if caption:
        lines.append(f'<caption style="text-align:left">{escape(caption)}</caption>')
    lines.append("<thead><tr>" + "".join(f"<th>{escape(c)}</th>" for c in columns)
                 + "</tr></thead>\n<tbody>")
    for row in rows:
        cells = "".join(f"<td>{escape(readable(c, row.get(c)))}</td>" for c in columns)
        lines.append(f"<tr{_FAILED if is_bad(row) else ''}>{cells}</tr>")
    return "\n".join(lines) + "\n</tbody></table>"


class Records(list[dict[str, Any]]):
    """A list of dicts, the rows of a table."""

    @property
    def columns(self) -> list[str]:
        """The names of all columns."""
        return list(dict.fromkeys(name for row in self for name in row))

    def _shown(self) -> tuple[list[str], str]:
        """The columns to print; of a wide table those that differ, and a line of the others."""
        columns = self.columns
        if len(columns) <= _WIDE or len(self) < 2:
            return columns, ""
        same = [c for c in columns if c not in _ALWAYS
                and len({readable(c, row.get(c)) for row in self}) == 1]
        line = " ".join(f"{c}={readable(c, self[0].get(c))}" for c in same
                        if self[0].get(c) not in ("", None))
        return [c for c in columns if c not in same], line

    def _repr_html_(self) -> str:
        columns, line = self._shown()
        return html_table(columns, self, line)

    def __repr__(self) -> str:
        if not self:
            return "[]"
        columns, same = self._shown()
        cells = [columns] + [[readable(c, row.get(c)) for c in columns] for row in self[:_LONGEST]]
        cells = [[c if len(c) <= _WIDEST else c[:_WIDEST - 1] + "…" for c in line] for line in cells]
        widths = [max(map(len, column)) for column in zip(*cells)]
        lines = textwrap.wrap(same, 100)
        lines += ["  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in cells]
        if len(self) > _LONGEST:
            lines.append(f"{len(self) - _LONGEST} further rows")
        return "\n".join(lines)

    __str__ = __repr__
