"""Arrays on a GPU, of PyTorch, CuPy or JAX: their memory by DLPack, without a copy."""

import ctypes
import functools
import importlib
from collections.abc import Mapping
from typing import Any

from ._library import Error
from ._plan import BACKWARD, FORWARD, Plan, backend_for, words_for

_CUDA, _MANAGED = 2, 13
_TYPES = {(2, 32): "fp32", (2, 64): "fp64", (2, 16): "fp16", (4, 16): "bf16", (0, 64): "int64",
          (1, 8): "uint8", (6, 8): "bool", (5, 64): "complex64", (5, 128): "complex128"}
_FULL = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "int64": "int64",
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
        self.dtype = _TYPES.get((t.code, t.bits), f"type {t.code} of {t.bits} bits")
        self.address = (t.data or 0) + t.byte_offset
        dense = 1
        for i in reversed(range(t.ndim)):
            if t.strides and t.shape[i] != 1 and t.strides[i] != dense:
                raise Error(f"{name} is not dense: its strides are "
                            f"{[t.strides[j] for j in range(t.ndim)]}")
            dense *= t.shape[i]


class _Torch:
    """New arrays, and the stream that the caller's next work is on."""

    def __init__(self, module: Any):
        self.module = module

    def new(self, shape: tuple[int, ...], dtype: str, device: int, fill: str) -> Any:
        """`fill`: "zeros" or "empty"."""
        return getattr(self.module, fill)(shape, dtype=getattr(self.module, _FULL[dtype]),
                                          device=f"cuda:{device}")

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


def run(op: Any, arrays: Mapping[str, Any], kernel: str | None) -> tuple[dict[str, Any], Plan]:
    """Outputs, and gradients if one of an output is given, as arrays of the same library."""
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
    return _passes(plan, space, views, stream), plan


def _passes(plan: Plan, space: _Torch, views: dict[str, View], stream: int) -> dict[str, Any]:
    keep: list[Any] = []
    pointers, gradients = plan.nothing.copy(), plan.nothing.copy()
    found: dict[str, Any] = {}

    def new(shape: tuple[int, ...], dtype: str, fill: str = "empty") -> tuple[Any, int]:
        array = space.new(shape, dtype, plan.device, fill)
        view = View("a result", array, stream)
        keep.extend((array, view))
        return array, view.address

    workspace = 0
    if need := max(plan.workspace):
        workspace = (new((need // 4 + 64,), "fp32")[1] + 255) & ~255
    for i, t in enumerate(plan.tensors):
        if t.name in views:
            pointers[i] = _check(t.name, views[t.name], t.dtype)
        else:
            array, pointers[i] = new(t.shape, t.dtype, "zeros" if t.state else "empty")
            if i in plan.outputs:
                found[t.name] = array
    plan.run(FORWARD, pointers, plan.nothing, workspace, stream)
    if any(f"d_{plan.names[i]}" in views for i in plan.outputs):
        for i in plan.upstream + plan.gradients:
            t, name = plan.tensors[i], f"d_{plan.names[i]}"
            if name in views:
                gradients[i] = _check(name, views[name], t.grad_dtype)
            else:
                array, gradients[i] = new(t.shape, t.grad_dtype,
                                          "zeros" if i in plan.upstream else "empty")
                if i in plan.gradients:
                    found[name] = array
        plan.run(BACKWARD, pointers, gradients, workspace, stream)
    space.finish(plan, stream)
    return found
