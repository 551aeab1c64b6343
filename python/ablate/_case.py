"""A case of the library and its results, with NumPy arrays."""

import ctypes
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ._library import BYTES, DOUBLES, CVerdict, Error, Handle, call, call_here
from ._table import INPUT, Tensor, case_tensors


def _has_masked(value: Any) -> bool:
    """Is an element masked, of an array or of one in lists?  NumPy makes of these an array of numbers."""
    left, seen = [value], set()
    while left:
        one = left.pop()
        if isinstance(one, np.ma.MaskedArray):
            if np.ma.is_masked(one):
                return True
        elif isinstance(one, (str, bytes, memoryview)) or id(one) in seen:
            continue
        elif isinstance(one, Sequence):
            seen.add(id(one))
            holders = {k for k in set(map(type, one)) if issubclass(k, (Sequence, np.ma.MaskedArray))}
            left += [x for x in one if type(x) in holders] if holders else []
    return False


def numbers(name: str, value: Any) -> np.ndarray:
    """An array of real numbers that float64 holds, in this machine's byte order; an Error says why a
    value is none."""
    if _has_masked(value):
        raise Error(f"{name} has masked elements: fill them, or leave them out")
    try:
        array = np.asarray(value)
    except Exception as error:  # of NumPy, or of the library whose array it is
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise Error(f"{name} is no array of numbers: {reason}") from None
    if array.dtype == object and not array.ndim:
        raise Error(f"{name} is {type(value).__name__}, and no array of numbers")
    kind, bytes_ = array.dtype.kind, array.dtype.itemsize
    # bfloat16 and others that a package defines have the kind of what is no number
    if kind not in "iuf" and not (kind == "V" and np.can_cast(array.dtype, np.float64)):
        raise Error(f"{name} has the type {array.dtype}, and not that of real numbers")
    if kind == "f" and bytes_ > 8:
        with np.errstate(over="ignore"):
            wide, array = array, array.astype(np.float64)
        if not np.array_equal(wide, array, equal_nan=True):
            raise Error(f"{name} is {wide.dtype} with values that float64 does not hold: round them")
    if (kind in "iu" and bytes_ > 4 and array.size
            and max(int(array.max()), -int(array.min())) > 2**53):
        raise Error(f"{name} has whole numbers beyond 2^53, which float64 does not hold")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _put(function: str, handle: Any, t: Tensor, name: str, values: np.ndarray) -> None:
    """Give a tensor's values to a function of the library, or its twin for bytes."""
    given = numbers(name, values)
    if t.bytes and given.dtype != np.uint8:
        with np.errstate(invalid="ignore"):
            narrow = given.astype(np.uint8)
        if not np.array_equal(narrow, given):
            raise Error(f"{name} has values that are no bytes: 0 to 255")
    array = np.ascontiguousarray(given, np.uint8 if t.bytes else np.float64)
    call(function + "_bytes" * t.bytes, handle, name,
         array.ctypes.data_as(BYTES if t.bytes else DOUBLES), array.size)


def _take(function: str, handle: Any, t: Tensor, name: str) -> np.ndarray:
    """A tensor's values from a function of the library, or its twin for bytes."""
    array = np.empty(t.shape, np.uint8 if t.bytes else np.float64)
    call(function + "_bytes" * t.bytes, handle, name,
         array.ctypes.data_as(BYTES if t.bytes else DOUBLES), array.size)
    return array


# Elements up to which one run is short: a product of them with each other is some milliseconds.
_FEW = 4096


def are_few(tensors: Iterable[Tensor]) -> bool:
    """Is one run of a case that has these tensors known to be short?"""
    return sum(math.prod(t.shape) for t in tensors) <= _FEW


def to_bf16(array: np.ndarray) -> np.ndarray:
    """float32 values, rounded to the nearest bf16, ties to even."""
    x = np.ascontiguousarray(array, np.float32)
    bits = x.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), x, rounded.view(np.float32))


class Case(Handle):
    """An operation, its sizes and its inputs."""

    def __init__(self, words: str, few: bool = False):
        """`few`: are_few() of its tensors."""
        super().__init__((call_here if few else call)("abl_case_new", words), "abl_case_free")
        self.tensors: dict[str, Tensor] = {t.name: t for t in case_tensors(self)}

    @property
    def words(self) -> str:
        """The words that make this case again."""
        return call("abl_text", self)

    @property
    def dtype(self) -> str:
        """The type in which it stores tensors: "fp32", "bf16", "fp64"."""
        return re.search(r" dtype=(\w+)", self.words)[1]  # type: ignore[index]

    @property
    def has_drawn_states(self) -> bool:
        """Are initial states drawn, and not 0?"""
        return " input=nonzero" in self.words

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name, or whose gradient that is."""
        return self.tensors[name] if name in self.tensors else self.tensors[name[2:]]

    def set(self, name: str, values: np.ndarray) -> None:
        """An input, or the gradient of an output."""
        _put("abl_set", self, self.tensor(name), name, values)

    def get(self, name: str) -> np.ndarray:
        """An input, or the gradient of an output, in float64, bytes in uint8."""
        return _take("abl_get", self, self.tensor(name), name)

    def expected(self, name: str) -> np.ndarray:
        """The oracle's result, in float64, bytes in uint8."""
        return _take("abl_expected", self, self.tensor(name), name)

    def stored(self, name: str) -> np.ndarray:
        """A given value as the case stores it, which from then on is the case's value: float32 for
        fp32 and bf16, int64 for whole numbers, uint8 for bytes, else float64."""
        values = self.get(name)
        if self.tensor(name).bytes:
            return values
        if self.tensor(name).whole:
            return values.astype(np.int64)
        if self.dtype == "fp64":
            return values
        t = self.tensor(name)
        kept = t.dtype if name in self.tensors else t.grad_dtype
        with np.errstate(over="ignore", invalid="ignore"):
            narrow = values.astype(np.float32)
            narrow = np.asarray(to_bf16(narrow)) if kept == "bf16" else narrow
        self.set(name, narrow)
        return narrow

    def names(self, role: int) -> list[str]:
        """The tensors of a role."""
        return [t.name for t in self.tensors.values() if t.role == role]

    @property
    def whole(self) -> frozenset[str]:
        """The tensors of whole numbers or bytes."""
        return frozenset(t.name for t in self.tensors.values() if t.whole or t.bytes)

    def gradients(self, role: int) -> list[str]:
        """The gradients of the tensors of a role, which have one: "d_x"."""
        return ["d_" + t.name for t in self.tensors.values() if t.role == role and t.has_gradient]


class Run(Handle):
    """What a backend computed for a case, or what another program did."""

    def __init__(self, case: Case, pointer: int):
        super().__init__(pointer, "abl_result_free")
        self.case = case

    @classmethod
    def of(cls, case: Case, backend: str, kernel: str | None, backward: bool) -> "Run":
        """A run of a backend's kernel; None: the first that accepts the case."""
        make = call_here if are_few(case.tensors.values()) else call
        return cls(case, make("abl_run" if backward else "abl_forward", case, backend, kernel, 0))

    @classmethod
    def given(cls, case: Case, name: str) -> "Run":
        """An empty one, of the program of that name."""
        return cls(case, call("abl_result_new", case, name))

    def set(self, name: str, values: np.ndarray) -> None:
        """A result: "out", "d_x"."""
        _put("abl_result_set", self, self.case.tensor(name), name, values)

    def get(self, name: str) -> np.ndarray:
        """A result, in float64, bytes in uint8."""
        return _take("abl_result_get", self, self.case.tensor(name), name)


class Rows(Handle):
    """Verdicts of the library."""

    def __init__(self, pointer: int):
        super().__init__(pointer, "abl_verdicts_free")

    def rows(self) -> list[CVerdict]:
        """A copy of each; they are valid as long as this object."""
        found: list[CVerdict] = []
        row = CVerdict()
        while call("abl_verdict", self, len(found), ctypes.byref(row)) == 0:
            found.append(row)
            row = CVerdict()
        return found


__all__ = ["Case", "Run", "Rows", "numbers", "to_bf16", "INPUT"]
