"""Arrays on a GPU, of PyTorch, CuPy or JAX: their memory by DLPack, without a copy; and arrays of NumPy
in the types that a reference stores, where results are to be written to the caller's."""

import ctypes
import functools
import importlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _out
from ._library import Error
from ._plan import BACKWARD, FORWARD, Plan, backend_for, words_for
from ._table import INPUT, Tensor

_CUDA, _MANAGED = 2, 13
_TYPES = {(2, 32): "fp32", (2, 64): "fp64", (2, 16): "fp16", (4, 16): "bf16", (0, 64): "int64",
          (1, 8): "uint8", (6, 8): "bool", (5, 64): "complex64", (5, 128): "complex128"}
_FULL = {"fp32": "float32", "fp64": "float64", "bf16": "bfloat16", "fp16": "float16", "int64": "int64",
         "uint8": "uint8"}


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int),
                ("device_id", ctypes.c_int), ("ndim", ctypes.c_int), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class View:
    """An array's memory, as DLPack shows it to this stream."""

    def __init__(self, name: str, array: Any, stream: int):
        if hasattr(array, "resolve_neg"):  # DLPack does not tell the sign of PyTorch's negative views
            array = array.resolve_neg()
        # 0 is the default stream here, and not allowed there, where that is 1
        self._capsule = array.__dlpack__(stream=stream or 1)
        t = _DLTensor.from_address(_pointer(self._capsule, b"dltensor"))
        self.shape = tuple(t.shape[i] for i in range(t.ndim))
        self.ndim, self.device = t.ndim, t.device_id
        self.size = t.bits // 8
        self.dtype = _TYPES.get((t.code, t.bits), f"type {t.code} of {t.bits} bits")
        self.address = (t.data or 0) + t.byte_offset
        dense = 1
        for i in reversed(range(t.ndim)):
            if t.strides and t.shape[i] != 1 and t.strides[i] != dense:
                raise Error(f"{name} is not dense: its strides are "
                            f"{[t.strides[j] for j in range(t.ndim)]}")
            dense *= t.shape[i]

    def memory(self) -> np.ndarray:
        """Its elements, as _out compares them."""
        return _out.memory(self.address, self.shape,
                           [math.prod(self.shape[i + 1:]) for i in range(self.ndim)], self.size)


class _Torch:
    """New arrays, and the stream that the caller's next work is on."""

    def __init__(self, module: Any):
        self.module = module

    def new(self, shape: tuple[int, ...], dtype: str, device: int, fill: str) -> Any:
        """`fill`: "zeros" or "empty"."""
        return getattr(self.module, fill)(shape, dtype=getattr(self.module, _FULL[dtype]),
                                          device=f"cuda:{device}")

    def address(self, array: Any, stream: int) -> tuple[int, Any]:
        """Of a new array, and what keeps it valid."""
        view = View("a result", array, stream)
        return view.address, view

    def stream(self, device: int) -> int:
        return self.module.cuda.current_stream(device).cuda_stream

    def finish(self, plan: Plan, stream: int) -> None:
        """Nothing: the results are used on the same stream."""


class _CuPy(_Torch):
    def new(self, shape: tuple[int, ...], dtype: str, device: int, fill: str) -> Any:
        if dtype == "bf16":
            raise Error("CuPy has no bfloat16")
        with self.module.cuda.Device(device):
            return getattr(self.module, fill)(shape, dtype=_FULL[dtype])

    def stream(self, device: int) -> int:
        with self.module.cuda.Device(device):
            return self.module.cuda.get_current_stream().ptr


class _Jax(_Torch):
    """JAX shows no stream: the default one is used, and waited for."""

    def new(self, shape: tuple[int, ...], dtype: str, device: int, fill: str) -> Any:
        # always zeros: JAX has no array without a value
        where = [d for d in self.module.devices() if d.local_hardware_id == device]
        with self.module.default_device(where[0]):
            return self.module.numpy.zeros(shape, dtype=_FULL[dtype]).block_until_ready()

    def stream(self, device: int) -> int:
        return 0

    def finish(self, plan: Plan, stream: int) -> None:
        plan.wait(stream)


class _Host(_Torch):
    """NumPy's arrays, at the addresses that a call takes."""

    def new(self, shape: tuple[int, ...], dtype: str, device: int, fill: str) -> Any:
        # NumPy has no bf16, in which a call may keep tensors of its own: their bits.
        of = np.dtype("uint16" if dtype == "bf16" else _FULL[dtype])
        bytes_ = math.prod(shape) * of.itemsize
        buffer = getattr(np, fill)(bytes_ + 16, np.uint8)
        first = -buffer.ctypes.data % 16
        return buffer[first:first + bytes_].view(of).reshape(shape)

    def address(self, array: Any, stream: int) -> tuple[int, Any]:
        return array.ctypes.data, array

    def stream(self, device: int) -> int:
        return 0


_SPACES = {"torch": _Torch, "cupy": _CuPy, "jax": _Jax, "jaxlib": _Jax}


def on_gpu(array: Any) -> bool:
    """Is it an array in a GPU's memory?"""
    try:
        return int(array.__dlpack_device__()[0]) in (_CUDA, _MANAGED)
    except (AttributeError, BufferError, RuntimeError, ValueError):  # no array, or nowhere
        return False


def _space(array: Any) -> _Torch:
    name = type(array).__module__.split(".")[0]
    if name not in _SPACES:
        raise Error(f"an array of {name} on a GPU: those of torch, cupy and jax are known")
    return _SPACES[name](importlib.import_module("jax" if name == "jaxlib" else name))


@functools.lru_cache(maxsize=4096)
def _plan(words: str, backend: str, device: int, kernel: str | None) -> Plan:
    return Plan(words, backend, device, kernel)


def _check(name: str, view: View, dtype: str) -> int:
    if view.dtype != dtype:
        raise Error(f"{name} is {view.dtype}, in this call it is to be {dtype}")
    if view.address % 16:
        raise Error(f"{name} is misaligned: its address is no multiple of 16 bytes")
    return view.address


def _out_views(op: Any, out: Any, arrays: Mapping[str, Any], views: Mapping[str, View], plan: Plan,
               stream: int) -> tuple[dict[str, Any], dict[str, int]]:
    """The caller's arrays for results, by name, and their addresses; an Error before anything runs."""
    there = {t.name: t for t in plan.tensors}
    names = [plan.names[i] for i in plan.outputs]
    backward = any(f"d_{n}" in views for n in names)
    types = {n: there[n].dtype for n in names}
    if backward:
        types |= {f"d_{plan.names[i]}": plan.tensors[i].grad_dtype for i in plan.gradients}
    held = _out.named(op.name, out, types, names)
    seen: dict[str, View] = {}
    for n, array in held.items():
        text, first = _out.label(n), next(iter(arrays))
        if not on_gpu(array):
            raise Error(f"{text} is on the host, {first} on a GPU")
        if isinstance(_space(array), _Jax):
            raise Error(f"{text} is an array of JAX, which cannot be written")
        if getattr(array, "requires_grad", False):
            raise Error(f"{text} asks for a gradient: give it detached")
        if hasattr(array, "is_neg") and array.is_neg():
            raise Error(f"{text} is a negative view: give it an array of its own")
        seen[n] = view = View(text, array, stream)
        if view.device != plan.device:
            raise Error(f"{text} is on GPU {view.device}, {first} on GPU {plan.device}")
        _out.check_shape(n, view.shape, there[n] if n in there else there[n[2:]])
        _check(text, view, types[n])
    _out.check_overlaps({n: v.memory() for n, v in seen.items()},
                        {n: v.memory() for n, v in views.items()}, plan.tensors, backward)
    return held, {n: v.address for n, v in seen.items()}


def run(op: Any, arrays: Mapping[str, Any], kernel: str | None, backend: str | None = None,
        out: Any = None) -> tuple[dict[str, Any], Plan]:
    """Outputs, and gradients if one of an output is given, as arrays of the same library; `out` has some
    of them."""
    first = next(iter(arrays))
    for name, array in arrays.items():
        if not on_gpu(array):
            raise Error(f"{name} is on the host, {first} on a GPU")
    space = _space(arrays[first])
    device = int(arrays[first].__dlpack_device__()[1])
    stream = space.stream(device)
    views = {n: View(n, a, stream) for n, a in arrays.items()}
    for n, v in views.items():
        if v.device != device:
            raise Error(f"{n} is on GPU {v.device}, {first} on GPU {device}")
    dtype = next((d for d in ("bf16", "fp64") if any(v.dtype == d for v in views.values())), "fp32")
    plan = _plan(words_for(op, views, dtype), backend_for("cuda", dtype), device, kernel)
    if backend not in (None, plan.backend):
        raise Error(f"these arrays are {plan.backend}'s, not {backend}'s")
    held, at = _out_views(op, out, arrays, views, plan, stream)
    found = _passes(plan, space, _addresses(plan, views), stream, at)
    _out.written(held.values())
    return {n: held.get(n, a) for n, a in found.items()}, plan


def _addresses(plan: Plan, views: Mapping[str, View]) -> dict[str, int]:
    """Of all that is given, which has the types of the call."""
    there = {t.name: t.dtype for t in plan.tensors}
    there |= {f"d_{plan.names[i]}": plan.tensors[i].grad_dtype for i in plan.upstream}
    return {n: _check(n, v, there[n]) for n, v in views.items()}


def run_on_host(words: str, backend: str, kernel: str | None, given: Mapping[str, np.ndarray],
                tensors: Mapping[str, Tensor],
                out: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], Plan] | None:
    """The results of a reference on these arrays, those in `out` where they lie; None: an array, or the
    check of its values, is not for a call on the caller's memory."""
    plain = all(t.settled or (not (t.whole or t.bytes)
                              and (t.state or t.role != INPUT or t.name in given))
                for t in tensors.values())
    host = next((np.dtype(f) for b, f in (("ref64", "f8"), ("ref32", "f4")) if b == backend), None)
    if host is None or not plain or any(a.ctypes.data % 16 for a in out.values()):
        return None
    space, at, keep = _Host(np), {}, []
    for n, a in given.items():
        of = np.dtype("i8") if n in tensors and tensors[n].whole else host
        if not np.can_cast(a.dtype, of):
            return None
        if a.dtype != of or not a.flags.c_contiguous or a.ctypes.data % 16:
            dense = space.new(a.shape, next(d for d, full in _FULL.items() if full == of.name), 0, "empty")
            dense[...] = a
            a = dense
        keep.append(a)
        at[n] = a.ctypes.data
    plan = _plan(words, backend, 0, kernel)
    found = _passes(plan, space, at, 0, {n: a.ctypes.data for n, a in out.items()})
    return {n: out.get(n, a) for n, a in found.items()}, plan


def _passes(plan: Plan, space: _Torch, given: Mapping[str, int], stream: int,
            out: Mapping[str, int]) -> dict[str, Any]:
    """Results by name, from the addresses of what is given; those of `out` are None."""
    keep: list[Any] = []
    pointers, gradients = plan.nothing.copy(), plan.nothing.copy()
    found: dict[str, Any] = {}

    def new(shape: tuple[int, ...], dtype: str, fill: str = "empty") -> tuple[Any, int]:
        array = space.new(shape, dtype, plan.device, fill)
        address, view = space.address(array, stream)
        keep.extend((array, view))
        return array, address

    workspace = 0
    if need := max(plan.workspace):
        workspace = (new((need // 4 + 64,), "fp32")[1] + 255) & ~255
    for i, t in enumerate(plan.tensors):
        if t.name in given:
            pointers[i] = given[t.name]
        elif t.name in out:
            found[t.name], pointers[i] = None, out[t.name]
        elif not t.settled:
            array, pointers[i] = new(t.shape, t.dtype, "zeros" if t.state else "empty")
            if i in plan.outputs:
                found[t.name] = array
    plan.run(FORWARD, pointers, plan.nothing, workspace, stream)
    if any(f"d_{plan.names[i]}" in given for i in plan.outputs):
        for i in plan.upstream + plan.gradients:
            t, name = plan.tensors[i], f"d_{plan.names[i]}"
            if name in given:
                gradients[i] = given[name]
            elif name in out:
                found[name], gradients[i] = None, out[name]
            else:
                array, gradients[i] = new(t.shape, t.grad_dtype,
                                          "zeros" if i in plan.upstream else "empty")
                if i in plan.gradients:
                    found[name] = array
        plan.run(BACKWARD, pointers, gradients, workspace, stream)
    space.finish(plan, stream)
    return found
