"""What the library says of a result, and of answers that know nothing."""

from collections.abc import Iterator, Mapping

import numpy as np

from ._case import Case
from ._library import DOUBLES, CVerdict, call
from ._verdicts import Verdict


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """max |a - b| / max |b| over what is finite in b; infinite where a is not as b is elsewhere."""
    x, y = (np.ascontiguousarray(z, np.float64) for z in (a, b))
    return float(call("abl_distance", x.ctypes.data_as(DOUBLES), y.ctypes.data_as(DOUBLES), y.size))


def verdict_of(row: CVerdict, check: str, note: str) -> Verdict:
    """A verdict of the library."""
    verdict = ("cannot be judged" if row.unjudged else "pass") if row.passed else "fail"
    return Verdict(check, row.tensor.decode(), row.error, row.bound, row.worst.decode(),
                   None if row.first_bad < 0 else row.first_bad, verdict, note,
                   row.distance.decode(), row.slices, row.coarse, row.sees, row.sees_row,
                   row.sees_element)


def _null_answers(want: np.ndarray, other: np.ndarray | None,
                  inputs: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    yield "zeros", np.zeros_like(want)
    yield "the wrong sign", -want
    if other is not None:
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


# What is off by less than any type shows is right.
_RIGHT = 1e-9


def powerless(case: Case, row: Verdict, inputs: Mapping[str, np.ndarray],
              other: np.ndarray | None = None) -> Verdict:
    """The verdict on a result for these inputs, or, that it is powerless: an answer that knows little, and
    is not right by itself, would have passed as well.  `other` is the result of other inputs."""
    if row.verdict != "pass" or case.tensor(row.tensor).bytes:
        return row
    want = case.expected(row.tensor)
    for what, answer in _null_answers(want, other, inputs):
        x = np.ascontiguousarray(answer, np.float64)
        if want.size and distance(x, want) > _RIGHT and call(
                "abl_would_pass", case, row.tensor, x.ctypes.data_as(DOUBLES), x.size):
            note = "; ".join(filter(None, [f"{what} would pass", row.note]))
            return row._replace(verdict="powerless", note=note)
    return row
