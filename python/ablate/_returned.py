"""What a judged function returned or raised: arrays of NumPy by the table's names, and exceptions with
a note of the case."""

import array as plain
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any

import numpy as np

from ._case import Case, numbers
from ._library import Error

# The types of arrays that are coarser than float32, and the units of the types that a contract has.
_NARROW = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
UNITS = {"fp64": 2.0**-53, "fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
# What an array of a library has, NumPy's or another's.
_ARRAY = ("__array__", "__array_interface__", "__cuda_array_interface__", "__dlpack__", "detach", "dtype")
# Libraries whose arrays are in files.
_FILES = ("h5py", "netCDF4", "tables", "zarr")


class _Given(np.ndarray):
    """An array that knows the type in which it was given: "bf16", "fp16", or ""."""

    given = ""

    def __array_finalize__(self, array: Any) -> None:
        self.given = getattr(array, "given", "")


@contextmanager
def said(words: str) -> Iterator[None]:
    """What is raised inside says in a note which case it was: "in the case softmax rows=4 columns=5".
    Python 3.10, which has no notes, has that as the first cause."""
    try:
        yield
    except Exception as error:
        text = f"in the case {words}"
        if text in getattr(error, "__notes__", ()):
            raise
        if hasattr(error, "add_note"):
            error.add_note(text)
        else:
            first: BaseException = error
            while (earlier := first.__cause__ or first.__context__) is not None:
                first = earlier
            first.__cause__ = Error(text)
        raise


def _attribute(value: Any, name: str) -> Any:
    """An attribute, or None; an array that was deleted or is traced may raise any exception."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def _narrow(value: Any) -> str:
    """The type of an array, if it is coarser than float32: "bf16", "fp16"; else ""."""
    return _NARROW.get(str(_attribute(value, "dtype")).rpartition(".")[2], "")


def _has_no_values(value: Any) -> str:
    """Why an array has no values in memory; "": it has some."""
    library = type(value).__module__.split(".")[0]
    if library in _FILES:
        return f" of {library}, whose values are in a file: read them first"
    graph = _attribute(value, "__dask_graph__")
    if callable(graph) and graph() is not None:
        return ", which is not computed yet: return the values, by compute()"
    if (_attribute(_attribute(value, "device"), "type") == "meta"
            or type(value).__name__ == "FakeTensor"):
        return f" of {library}, and has no values"
    return ""


def _dense(value: Any) -> Any:
    """An array of another library, as one that NumPy takes: on the host, with each value in its place."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value
    for step in "detach", "cpu", "resolve_conj", "resolve_neg":
        if callable(getattr(value, step, None)):
            value = getattr(value, step)()
    if _narrow(value) and callable(getattr(value, "float", None)):
        value = value.float()
    for step in "numpy", "copy_to_host":
        if callable(getattr(value, step, None)):
            return getattr(value, step)()
    if hasattr(value, "__cuda_array_interface__") and callable(getattr(value, "get", None)):
        return value.get()
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return np.from_dlpack(value)
    return value


def _refuse(name: str, value: Any, want: str) -> None:
    """An Error, if a result is no array, or one whose values are not all there."""
    kind = type(value).__name__
    if not _is_array(value):
        raise Error(f"{name} is {kind}, and no array of {want}")
    if isinstance(value, np.ma.MaskedArray):
        raise Error(f"{name} has a mask: return {want}, by filled()")
    if why := _has_no_values(value):
        raise Error(f"{name} is {kind}{why}")
    if _attribute(value, "is_nested") is True:
        raise Error(f"{name} is nested: return {want} in one array")
    layout = str(_attribute(value, "layout"))
    if layout.startswith("torch.") and layout != "torch.strided":
        raise Error(f"{name} is {kind} with the layout {layout}: return {want}, by to_dense()")
    if _attribute(value, "is_quantized") is True:
        raise Error(f"{name} is quantised: return {want}, by dequantize()")


def _check_kind(name: str, array: np.ndarray, whole: bool) -> None:
    """An Error, if an array has whole numbers in place of real ones, or others in place of whole ones."""
    if not whole and array.dtype.kind in "iu":
        raise Error(f"{name} has the type {array.dtype}, and not that of real numbers: "
                    "return float32 or float64")
    if whole and array.dtype.kind not in "iu":
        wrong = np.argwhere(~(array == np.floor(array)) | np.isinf(array))
        if len(wrong):
            at = tuple(map(int, wrong[0]))
            raise Error(f"{name} has {float(array[at]):g} at {list(at)}, where whole numbers are due")


def array_of(name: str, value: Any, whole: Set[str] | None) -> np.ndarray:
    """A result's values; those of a narrow type are in float32."""
    want = "whole numbers" if whole and name in whole else "numbers"
    _refuse(name, value, want)
    narrow = _narrow(value)
    try:
        value = _dense(value)
    except Exception as error:  # by another library
        raise Error(f"{name} is no array of {want}: {_first_line(error)}") from None
    array = numbers(name, value)
    if array.dtype.kind == "V" and not _narrow(array):  # float8_e4m3fn, int4
        raise Error(f"{name} has the type {array.dtype}: return float32, float64, bfloat16 or float16")
    if whole is not None:
        _check_kind(name, array, name in whole)
    narrow = narrow or _narrow(array)
    if not narrow:
        return array
    typed = array.astype(np.float32).view(_Given)
    typed.given = narrow
    return typed


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _is_array(value: Any) -> bool:
    if isinstance(value, (str, bytes, bytearray)):
        return False
    return np.isscalar(value) or isinstance(value, (memoryview, plain.array)) or any(
        _attribute(value, a) is not None for a in _ARRAY)


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


def named(values: Any, names: list[str], who: str, what: str,
          whole: Set[str] | None = None) -> dict[str, np.ndarray]:
    """What a function returned, by name: a mapping, a sequence in the table's order, or one array.

    Arrays of PyTorch, JAX, CuPy and others are taken as NumPy's are, from a GPU as well.  What is None
    is left out.  `whole`: the names of the results that are whole numbers or bytes; all others are real
    then, and whole numbers in their place are an error.  None: that is not checked.
    Error: a name is unknown, or a result is no array of such numbers; it says which and why."""
    if isinstance(values, Mapping):
        given = _by_name(values, names, what)
    elif _is_array(values) or (isinstance(values, Sequence)
                               and not isinstance(values, (str, bytes, bytearray))):
        row = [values] if _is_array(values) else list(values)
        if len(row) > len(names):
            of = "an array" if _is_array(values) else f"a {type(values).__name__} of {len(row)}"
            raise Error(f"{who} returned {of}; it is to return {_wanted(names, what)}")
        given = dict(zip(names, row))
    else:
        of = "None" if values is None else f"an object of the type {type(values).__name__}"
        raise Error(f"{who} returned {of}; it is to return {_wanted(names, what)}")
    return {n: array_of(n, v, whole) for n, v in given.items() if v is not None}


def narrowed(case: Case, found: Mapping[str, np.ndarray], rounds: str = "") -> str:
    """What is rounded: `rounds`, and the results of named() that are arrays of a coarser type than the
    contract's, "P:bf16 d_w:bf16"."""
    words = rounds.replace(",", " ").split()
    declared = {w.split(":")[0] for w in words}
    for name, array in found.items():
        t, given = case.tensor(name), getattr(array, "given", "")
        kept = t.dtype if name in case.tensors else t.grad_dtype
        if given and name not in declared and UNITS[given] > UNITS.get(kept, 1):
            words.append(f"{name}:{given}")
    return " ".join(words)
