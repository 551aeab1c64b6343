"""Calls on tensors that the caller has: one plan for each operation, shapes, types and device."""

import struct
from collections.abc import Iterable
from typing import Any

from . import _table
from ._library import Error, Handle, call, lib, texts
from ._table import INPUT, OUTPUT, SAVED

FORWARD, BACKWARD = range(2)
# By the machine, which is named as a device's kind is, "cpu" or "cuda", and the type.
BACKENDS = {(call("abl_backend_machine", b), call("abl_backend_dtype", b)): b
            for b in texts("abl_backend")}
_run = lib.abl_call_run_trusted


def backend_for(kind: str, dtype: str) -> str:
    """The backend that has tensors of a type on a kind of device, "cpu" or "cuda"."""
    if (name := BACKENDS.get((kind, dtype))) is None:
        raise Error(f"no backend stores {dtype} on {kind}; there are "
                    + ", ".join(f"{d} on {k}" for k, d in BACKENDS))
    return name


class Plan(Handle):
    """A call of the library.  It is used by any number of threads at once."""

    def __init__(self, words: str, backend: str, device: int = 0, kernel: str | None = None):
        super().__init__(call("abl_call_new", words, backend, device, kernel), "abl_call_free")
        self.words, self.backend, self.device = call("abl_call_text", self), backend, device
        self.kernel = call("abl_call_kernel", self)
        self.tensors = _table.call_tensors(self)
        self.names = [t.name for t in self.tensors]
        self.workspace = [call("abl_call_workspace", self, p) for p in (FORWARD, BACKWARD)]
        n = len(self.tensors)
        self.inputs = [i for i in range(n) if self.tensors[i].role == INPUT]
        self.results = [i for i in range(n) if self.tensors[i].role != INPUT]
        self.outputs = [i for i in self.results if self.tensors[i].role == OUTPUT]
        self.saved = [i for i in self.results if self.tensors[i].role == SAVED]
        self.read_back = [i for i in range(n) if self.tensors[i].in_backward]
        self.upstream = [i for i in self.outputs if self.tensors[i].has_gradient]
        self.gradients = [i for i in self.inputs if self.tensors[i].has_gradient]
        self._pack = struct.Struct(f"{4 + 2 * n}Q").pack
        self._pointer = self._as_parameter_
        self.nothing = [0] * n

    def run(self, which: int, pointers: Iterable[int], gradients: Iterable[int], workspace: int,
            stream: int) -> None:
        """A pass, on the addresses of tensors and gradients in the order of `tensors`."""
        if _run(self._pointer, self._pack(which, stream, workspace, self.workspace[which],
                                          *pointers, *gradients)):
            raise Error(lib.abl_error().decode())

    def wait(self, stream: int) -> None:
        """Until the stream has done all."""
        call("abl_call_wait", self, stream)


def words_for(op: Any, shapes: Any, dtype: str) -> str:
    """The words of the call with tensors of these shapes, by name; an Error where they contradict
    each other, or one is missing that is no initial state, and no scalar that settings say."""
    words, _ = op._place(shapes, {"dtype": dtype})
    for t in _table.words_tensors(words):
        if t.role == INPUT and not (t.state or t.settled) and t.name not in shapes:
            raise Error(f"{t.name} is missing: [{','.join(t.axes)}], here {list(t.shape)}")
    return words
