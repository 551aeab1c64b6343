"""The arrays that a caller gives for results to be written to, `out`: which result each is for, that it can
take it, and that nothing else is in its memory but the input that the result may overwrite."""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ._library import Error
from ._table import OUTPUT, Tensor


def label(name: str) -> str:
    """What a message calls the array for a result."""
    return f'out["{name}"]'


def named(op: str, out: Any, results: Collection[str], outputs: Sequence[str]) -> dict[str, Any]:
    """The arrays by the names of their results; one array is that of the only output."""
    if out is None:
        return {}
    if not isinstance(out, Mapping):
        if len(outputs) != 1:
            raise Error(f"{op} has the outputs {', '.join(outputs)} here: give out as a dict of arrays by "
                        "these names")
        return {outputs[0]: out}
    for name in out:
        if name not in results:
            raise Error(f"{op} has no result {name} here; it has {', '.join(results)}")
    return {n: a for n, a in out.items() if a is not None}


def check_shape(name: str, shape: Sequence[int], t: Tensor) -> None:
    """An Error, if an array is not of its result's shape."""
    if tuple(shape) != t.shape:
        sizes = ", ".join(f"{a} {n}" for a, n in zip(t.axes, t.shape))
        raise Error(f"{label(name)} is {list(shape)}, it is to be {list(t.shape)} ({sizes})")


def _torch_tensor(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def on_host(name: str, array: Any, t: Tensor, dtype: type) -> np.ndarray:
    """The memory of an array of NumPy, or of a tensor of PyTorch, that can take the result."""
    if _torch_tensor(array):
        try:
            held = array.numpy()
        except Exception as error:  # it asks for a gradient, is on a GPU, in bf16, a negative view
            raise Error(f"{label(name)} is no tensor that NumPy can write: "
                        + str(error).strip().splitlines()[0]) from None
    elif not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise Error(f"{label(name)} is {type(array).__name__}: results are written to arrays of NumPy, and to "
                    "tensors of PyTorch")
    else:
        held = array
    check_shape(name, held.shape, t)
    if held.dtype != dtype:
        raise Error(f"{label(name)} is {held.dtype}, in this call it is to be {np.dtype(dtype)}")
    if not held.flags.c_contiguous:
        raise Error(f"{label(name)} is not contiguous: its strides are {list(held.strides)} bytes")
    if not held.flags.writeable:
        raise Error(f"{label(name)} is read-only")
    return held


class _Memory:
    """Elements anywhere, for NumPy, which compares their places and does not read them."""

    def __init__(self, address: int, shape: Sequence[int], strides: Sequence[int], size: int):
        self.__array_interface__ = {"version": 3, "data": (address, True), "typestr": f"|V{size}",
                                    "shape": tuple(shape), "strides": tuple(size * s for s in strides)}


def memory(address: int, shape: Sequence[int], strides: Sequence[int], size: int) -> np.ndarray:
    """Elements of `size` bytes, the strides counted in elements; a GPU's memory as well."""
    return np.asarray(_Memory(address, shape, strides, size))


def _is_same(a: np.ndarray, b: np.ndarray) -> bool:
    return (a.ctypes.data == b.ctypes.data and a.shape == b.shape and a.dtype == b.dtype
            and a.flags.c_contiguous and b.flags.c_contiguous)


def check_overlaps(out: Mapping[str, np.ndarray], given: Mapping[str, np.ndarray],
                   tensors: Iterable[Tensor], backward: bool = False) -> None:
    """An Error, if a result has memory in common with another one, or with anything that is given: other
    than an output that has all of the input that it overwrites, unless backward then reads that."""
    there = {t.name: t for t in tensors}
    done: list[str] = []
    for name, array in out.items():
        for other in done:
            if np.shares_memory(array, out[other]):
                raise Error(f"{label(name)} overlaps {label(other)}: each result is to have its own memory")
        done.append(name)
        over = there[name].overwrites if name in there and there[name].role == OUTPUT else ""
        for other, input_ in given.items():
            if not np.shares_memory(array, input_):
                continue
            if other != over:
                may = f": it may overwrite {over} alone" if over in there else ": it may overwrite no input"
                raise Error(f"{label(name)} overlaps {other}{may}")
            if not _is_same(array, input_):
                raise Error(f"{label(name)} overlaps {other}: it is to be the same array, or to have no memory "
                            "in common with it")
            if backward and there[over].in_backward:
                raise Error(f"{label(name)} is {other}, which backward reads: give it another array")


def written(arrays: Iterable[Any]) -> None:
    """PyTorch learns that tensors have changed, so that its autograd uses no old value of them."""
    for array in arrays:
        if _torch_tensor(array) and not array.is_inference():
            sys.modules["torch"].autograd.graph.increment_version(array)
