"""What the library's table says: operations, their parameters, tensors, kernels."""

import ctypes
import functools
from typing import Any, NamedTuple

from ._library import CParam, CTensor, Error, call, lib, texts

INPUT, OUTPUT, SAVED = range(3)
ROLES = "in", "out", "saved"
DTYPES = texts("abl_dtype_name")  # "", "fp64", "fp32", ...


class Parameter(NamedTuple):
    """A parameter: one of `choices`, a whole number or a real one, from `min` to `max`."""

    name: str
    help: str
    kind: str  # "choice", "whole", "real"
    default: Any
    choices: tuple[str, ...] = ()
    min: float = 0
    max: float = 0

    def __str__(self) -> str:
        if self.choices:
            values = " ".join(self.choices)
        else:
            form = "g" if self.kind == "real" else "d"
            values = f"{self.min:{form}} to {self.max:{form}}" + (", real" if form == "g" else "")
        return f"{self.name:<20} {values:<34} [{self.default}]  {self.help}"


class Tensor(NamedTuple):
    """A tensor: its axes' names and, in a case, their sizes, slowest first."""

    name: str
    role: int
    has_gradient: bool
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    whole: bool
    state: bool  # an initial state: 0 where it is left out
    bytes: bool = False  # uint8
    dtype: str = ""  # of a case's or a call's: "fp64", "fp32", "bf16", "fp16", "int64", "uint8"
    grad_dtype: str = ""
    in_backward: bool = False  # backward reads it
    settled: bool = False  # of one element, which the settings say where it is left out
    overwrites: str = ""  # of an output: the input in whose memory it may be

    @property
    def count(self) -> int:
        n = 1
        for size in self.shape:
            n *= size
        return n

    def __str__(self) -> str:
        return f"{self.name:<12} {ROLES[self.role]:<6} [{','.join(self.axes)}]"


def _parameter(p: CParam) -> Parameter:
    name, text = p.name.decode(), p.help.decode()
    if p.choices:
        choices: list[str] = []
        while p.choices[len(choices)]:
            choices.append(p.choices[len(choices)].decode())
        return Parameter(name, text, "choice", choices[p.initial], tuple(choices))
    if p.real:
        return Parameter(name, text, "real", p.real_initial, (), p.real_min, p.real_max)
    return Parameter(name, text, "whole", p.initial, (), p.min, p.max)


def _list(structure: Any, make: Any, name: str, *arguments: Any) -> list[Any]:
    """A list that a function gives item by item, up to 1."""
    found: list[Any] = []
    item = structure()
    while call(name, *arguments, len(found), ctypes.byref(item)) == 0:
        found.append(make(item))
    return found


def _tensor(t: CTensor) -> Tensor:
    return Tensor(t.name.decode(), t.role, bool(t.has_gradient),
                  tuple(t.axis[i].decode() for i in range(t.rank)),
                  tuple(t.size[i] for i in range(t.rank)), bool(t.whole), bool(t.state),
                  bool(t.bytes), DTYPES[t.dtype], DTYPES[t.grad_dtype], bool(t.in_backward),
                  bool(t.settled),                   (t.overwrites or b"").decode())


def ops() -> list[str]:
    """The names of all operations."""
    return texts("abl_op")


def backends() -> dict[str, str | None]:
    """Each backend, and why it cannot run here; None: it can."""
    return {name: call("abl_unavailable", name) for name in texts("abl_backend")}


def formula(op: str) -> str:
    """The formula of an operation, in one line."""
    if (text := call("abl_formula", op)) is None:
        raise Error(lib.abl_error().decode() if op.startswith("program=")
                    else f"there is no operation {op}; ablate.ops() lists all")
    return text


def source(op: str) -> str:
    """Where its mathematics is written down."""
    return call("abl_source", op)


def parameters(op: str) -> list[Parameter]:
    """The parameters of an operation: sizes, choices and numbers."""
    return _list(CParam, _parameter, "abl_param", op)


def op_tensors(op: str) -> list[Tensor]:
    """All tensors that it may have, with the axes of its default parameters, without sizes."""
    return _list(CTensor, _tensor, "abl_op_tensor", op)


def words_tensors(words: str) -> list[Tensor]:
    """The tensors of the case of these words, with sizes."""
    return _list(CTensor, _tensor, "abl_words_tensor", words)


def stored(backend: str) -> str:
    """The type in which a backend stores tensors; an Error where there is no such backend."""
    if (dtype := call("abl_backend_dtype", backend)) is None:
        raise Error(lib.abl_error().decode())
    return dtype


@functools.lru_cache(maxsize=None)
def derived_axes(op: str) -> dict[str, str]:
    """The axes whose length a parameter sets that is 0 where it is as another's, by the parameters that
    set them: {"key": "keys", "kv_head": "kv_heads", "width_v": "dim_v"}.  Such an axis has its name where
    the parameter is not 0; found by setting each to 1, which divides all others."""

    def sizes(words: str) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for t in words_tensors(words):
            for axis, n in zip(t.axes, t.shape):
                found.setdefault(axis, set()).add(n)
        return found

    names = {p.name for p in parameters(op)}
    before = sizes(op)
    derived: dict[str, str] = {}
    for p in parameters(op):
        if p.kind == "whole" and p.default == 0 and p.min == 0:
            try:
                one = sizes(f"{op} {p.name}=1")
            except Error:  # it is no length, if 1 does not go with the defaults
                continue
            derived |= {axis: p.name for axis, n in one.items()
                        if axis not in names and n == {1} and before.get(axis) != {1}}
    return derived


def case_tensors(case: Any) -> list[Tensor]:
    """The tensors of a case, with sizes."""
    return _list(CTensor, _tensor, "abl_tensor", case)


def call_tensors(pointer: Any) -> list[Tensor]:
    """The tensors of a call on the caller's own, with sizes and types."""
    return _list(CTensor, _tensor, "abl_call_tensor", pointer)


def kernels(op: str) -> dict[str, list[tuple[str, str]]]:
    """On each backend its kernels, the preferred one first, each with its idea."""
    return {b: list(zip(texts("abl_kernel", op, b), texts("abl_kernel_idea", op, b)))
            for b in texts("abl_backend")}


def description(op: str) -> str:
    """All that the table says of an operation, as text."""
    lines = [f"{op}: {formula(op)}", "", f"source: {source(op)}", "", "parameters [default]"]
    lines += [f"    {p}" for p in parameters(op)]
    lines += ["", "tensors, with the defaults; the gradient of x is d_x"]
    lines += [f"    {t}" for t in op_tensors(op)]
    lines += ["", "kernels"]
    lines += [f"    {b:<9} {name:<10} {idea}" for b, all_ in kernels(op).items() for name, idea in all_]
    return "\n".join(lines)
