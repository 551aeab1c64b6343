"""What a judged function returned, as arrays of NumPy by the table's names."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._case import numbers
from ._library import Error

# The types of arrays that are coarser than float32, and the units of the types that a contract has.
_NARROW = {"bfloat16": "bf16", "torch.bfloat16": "bf16", "float16": "fp16", "torch.float16": "fp16"}
UNITS = {"fp64": 2.0**-53, "fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}


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


def named(values: Any, names: list[str], who: str, what: str) -> dict[str, np.ndarray]:
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
