"""The operators of torch.ops.ablate, made from the library's table.

For an operation `name` with inputs and outputs there are

    ablate::name(Tensor? input, ..., str settings) -> Tensor[]
    ablate::name_backward(Tensor?[] read, Tensor?[] upstream, str words) -> Tensor[]

The results of the first are all outputs that the operation may have, those that it has not here
without elements, and then what is saved for backward; `settings` are the parameters that the shapes do not show.  `read` are the tensors that backward reads, `upstream` the
gradients of the outputs that have one (None: zeros), `words` the call with all its sizes; the results
are the gradients of the inputs that have one, in their stored types."""

import functools
from typing import Any, Callable

import torch
from torch.autograd.function import once_differentiable

from .. import _table
from .._call import Op
from .._library import Error
from .._plan import BACKWARD, FORWARD, Plan, backend_for, words_for
from .._table import INPUT, OUTPUT

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16,
          "fp16": torch.float16, "int64": torch.int64}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
LIBRARY = torch.library.Library("ablate", "DEF")
_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 0)
_below_autograd = torch._C._AutoDispatchBelowAutograd


class TensorPlan:
    """A plan with all that a call on tensors of one device needs."""

    def __init__(self, name: str, plan: Plan, device: torch.device):
        self.plan, self.device = plan, device
        spec = plan.tensors
        self.dtypes = [DTYPES[t.dtype] for t in spec]
        # The operator's results: shape, type, place in the call; outputs that are absent are empty.
        here = {t.name: i for i, t in enumerate(spec)}
        outputs = [here.get(t.name) for t in _table.op_tensors(name) if t.role == OUTPUT]
        self.results = [((0,), torch.float32, None) if i is None else
                        (spec[i].shape, DTYPES[spec[i].dtype], i) for i in outputs + plan.saved]
        self.upstream = [[i for _, _, i in self.results].index(i) for i in plan.upstream]
        self.gradients = [(t.shape, DTYPES[t.grad_dtype])
                          for t in map(spec.__getitem__, plan.gradients)]
        self._zeros: dict[tuple[int, int], torch.Tensor] = {}

    def zeros(self, i: int, grad: int) -> torch.Tensor:
        """Zeros of tensor i or its gradient, which nothing writes; they are kept, unless a graph's
        memory would be."""
        if (found := self._zeros.get((i, grad))) is None:
            t = self.plan.tensors[i]
            found = torch.zeros(t.shape, dtype=DTYPES[t.grad_dtype if grad else t.dtype],
                                device=self.device)
            if not (found.is_cuda and torch.cuda.is_current_stream_capturing()):
                self._zeros[i, grad] = found
        return found

    def run(self, which: int, pointers: list[int], gradients: list[int]) -> None:
        """A pass on the current stream."""
        bytes_ = self.plan.workspace[which]
        workspace = torch.empty(bytes_, dtype=torch.uint8, device=self.device) if bytes_ else None
        address = 0
        if workspace is not None:
            address = workspace.data_ptr()
            if address & 255:  # a CPU's allocator aligns by less
                workspace = torch.empty(bytes_ + 256, dtype=torch.uint8, device=self.device)
                address = (workspace.data_ptr() + 255) & ~255
        stream = _stream(self.device.index) if self.device.type == "cuda" else 0
        self.plan.run(which, pointers, gradients, address, stream)


def _dense(t: torch.Tensor) -> torch.Tensor:
    """The tensor, or a dense copy of it at an address that a call accepts."""
    t = t.contiguous()
    return t.clone() if t.data_ptr() & 15 else t


@functools.lru_cache(maxsize=None)
def _op(name: str, settings: str) -> Op:
    return Op(name, **dict(word.split("=", 1) for word in settings.split()))


@functools.lru_cache(maxsize=4096)
def _plan(words: str, kind: str, index: int) -> TensorPlan:
    dtype = words.partition(" dtype=")[2].split(" ")[0]
    device = torch.device(kind, index) if kind == "cuda" else torch.device(kind)
    return TensorPlan(words.split(" ")[0], Plan(words, backend_for(kind, dtype), max(index, 0)), device)


def _storage(inputs: list[torch.Tensor | None]) -> str:
    """The storage type of a call: bf16 if an input is; else fp64 if one is; else fp32."""
    found = {t.dtype for t in inputs if t is not None}
    return next((NAMES[d] for d in (torch.bfloat16, torch.float64) if d in found), "fp32")


class Operator:
    """The two operators of an operation."""

    def __init__(self, name: str):
        self.name = name
        spec = _table.op_tensors(name)
        self.inputs = [t.name for t in spec if t.role == INPUT]
        self.with_gradient = {t.name for t in spec if t.role == INPUT and t.has_gradient}
        self.differentiable = any(t.has_gradient for t in spec)
        self._plans: dict[Any, TensorPlan] = {}
        self._define()
        self.forward = getattr(torch.ops.ablate, name).default
        if self.differentiable:
            self.backward = getattr(torch.ops.ablate, name + "_backward").default
        self._function = self._make_function()

    # ---- plans ----

    def plan(self, inputs: Any, settings: str) -> TensorPlan:
        """The plan for these inputs: found by their shapes and types."""
        key = (settings, *[t if t is None else (t.shape, t.dtype, t.get_device()) for t in inputs])
        try:
            found = self._plans.get(key)
        except TypeError:  # a symbolic size, while a graph is traced
            return self.make_plan(list(inputs), settings)
        if found is None:
            found = self._plans[key] = self.make_plan(list(inputs), settings)
        return found

    def make_plan(self, inputs: list[torch.Tensor | None], settings: str,
                  dtype: str = "") -> TensorPlan:
        there = {n: t for n, t in zip(self.inputs, inputs) if t is not None}
        first = next(iter(there))
        for n, t in there.items():
            if t.device != there[first].device:
                raise Error(f"{n} is on {t.device}, {first} on {there[first].device}")
        shapes = {n: _Shape(t.shape) for n, t in there.items()}
        words = words_for(_op(self.name, settings), shapes, dtype or _storage(inputs))
        device = there[first].device
        found = _plan(words, device.type, device.index if device.index is not None else -1)
        if not dtype:
            for t, want in zip(found.plan.tensors, found.dtypes):
                if t.name in there and there[t.name].dtype != want:
                    raise Error(f"{t.name} is {there[t.name].dtype}, in this call it is to be {want}")
        return found

    # ---- the operators ----

    def _forward(self, *arguments: Any) -> list[torch.Tensor]:
        given, settings = arguments[:-1], arguments[-1]
        p = self.plan(given, settings)
        plan = p.plan
        by_name = dict(zip(self.inputs, given))
        pointers, keep = plan.nothing.copy(), []
        for i in plan.inputs:
            t = by_name[plan.names[i]]
            t = p.zeros(i, 0) if t is None else t
            address = t.data_ptr()
            if address & 15 or not t.is_contiguous():
                t = _dense(t)
                keep.append(t)
                address = t.data_ptr()
            pointers[i] = address
        results = []
        for shape, dtype, i in p.results:
            t = torch.empty(shape, dtype=dtype, device=p.device)
            results.append(t)
            if i is not None:
                pointers[i] = t.data_ptr()
        p.run(FORWARD, pointers, plan.nothing)
        return results

    def _backward(self, read: list[torch.Tensor | None], upstream: list[torch.Tensor | None],
                  words: str) -> list[torch.Tensor]:
        device = next(t.device for t in (*read, *upstream) if t is not None)
        p = _plan(words, device.type, device.index if device.index is not None else -1)
        plan = p.plan
        pointers, gradients = plan.nothing.copy(), plan.nothing.copy()
        read = [p.zeros(i, 0) if t is None else _dense(t) for i, t in zip(plan.read_back, read)]
        for i, t in zip(plan.read_back, read):
            pointers[i] = t.data_ptr()
        above = []
        for i, t in zip(plan.upstream, upstream):
            want = DTYPES[plan.tensors[i].grad_dtype]
            t = p.zeros(i, 1) if t is None else _dense(t if t.dtype == want else t.to(want))
            above.append(t)
            gradients[i] = t.data_ptr()
        results = [torch.empty(shape, dtype=dtype, device=p.device) for shape, dtype in p.gradients]
        for i, t in zip(plan.gradients, results):
            gradients[i] = t.data_ptr()
        p.run(BACKWARD, pointers, gradients)
        return results

    def _fake(self, *arguments: Any) -> list[torch.Tensor]:
        given = arguments[:-1]
        p = self.plan(given, arguments[-1])
        device = next(t.device for t in given if t is not None)
        return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype, _ in p.results]

    def _fake_backward(self, read: list[torch.Tensor | None], upstream: list[torch.Tensor | None],
                       words: str) -> list[torch.Tensor]:
        device = next(t.device for t in (*read, *upstream) if t is not None)
        p = _plan(words, device.type, device.index if device.index is not None else -1)
        return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in p.gradients]

    def _autograd(self, *arguments: Any) -> list[torch.Tensor]:
        if (self._function is not None and torch.is_grad_enabled()
                and any(t is not None and t.requires_grad for t in arguments[:-1])):
            return list(self._function.apply(*arguments))
        with _below_autograd():
            return self.forward(*arguments)

    def _autocast(self, kind: str, *arguments: Any) -> list[torch.Tensor]:
        """Inputs in the type of the autocast, but those that are always float."""
        given, settings = list(arguments[:-1]), arguments[-1]
        want = NAMES[torch.get_autocast_dtype(kind)]
        key = torch._C.DispatchKey.AutocastCUDA if kind == "cuda" else torch._C.DispatchKey.AutocastCPU
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            if want != "bf16":
                raise Error(f"under autocast to {want}: no backend stores it; bfloat16 is there")
            p = self.make_plan(given, settings, want)
            for t, dtype in zip(p.plan.tensors, p.dtypes):
                if t.role == INPUT and not t.whole:
                    i = self.inputs.index(t.name)
                    given[i] = given[i] if given[i] is None else given[i].to(dtype)
            return self.forward(*given, settings)

    # ---- registration ----

    def _define(self) -> None:
        inputs = ", ".join(f"Tensor? {n}" for n in self.inputs)
        LIBRARY.define(f"{self.name}({inputs}, str settings) -> Tensor[]")
        for key in "CPU", "CUDA":
            LIBRARY.impl(self.name, self._forward, key)
        LIBRARY.impl(self.name, self._autograd, "Autograd")
        for kind, key in ("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA"):
            LIBRARY.impl(self.name, functools.partial(self._autocast, kind), key)
        torch.library.register_fake(f"ablate::{self.name}", self._fake, lib=LIBRARY)
        if not self.differentiable:
            return
        back = self.name + "_backward"
        LIBRARY.define(f"{back}(Tensor?[] read, Tensor?[] upstream, str words) -> Tensor[]")
        for key in "CPU", "CUDA":
            LIBRARY.impl(back, self._backward, key)
        torch.library.register_fake(f"ablate::{back}", self._fake_backward, lib=LIBRARY)

    def _make_function(self) -> Any:
        """The outer autograd.Function."""
        if not self.differentiable:
            return None
        operator = self

        def forward(ctx: Any, *arguments: Any) -> tuple[torch.Tensor, ...]:
            given = arguments[:-1]
            with _below_autograd():
                results = operator.forward(*arguments)
            p = operator.plan(given, arguments[-1])
            plan = p.plan
            by_name = dict(zip(operator.inputs, given))
            for n, asked in zip(operator.inputs, ctx.needs_input_grad):
                if asked and n not in operator.with_gradient:
                    raise Error(f"{n} of {operator.name} has no gradient: give it detached")
            by_name.update((plan.names[i], t) for t, (_, _, i) in zip(results, p.results)
                           if i is not None)
            ctx.save_for_backward(*[by_name[plan.names[i]] for i in plan.read_back])
            ctx.plan = p
            ctx.dtypes = [None if t is None else t.dtype for t in given]
            ctx.mark_non_differentiable(*[t for j, t in enumerate(results) if j not in p.upstream])
            ctx.set_materialize_grads(False)
            return tuple(results)

        @once_differentiable
        def backward(ctx: Any, *upstream: Any) -> tuple[Any, ...]:
            plan = ctx.plan.plan
            above = [upstream[j] for j in ctx.plan.upstream]
            found: dict[str, torch.Tensor] = {}
            if any(t is not None for t in above):
                results = operator.backward(list(ctx.saved_tensors), above, plan.words)
                found = dict(zip((plan.names[i] for i in plan.gradients), results))
            return (*[_cast(found.get(n), dtype) if asked else None for n, dtype, asked
                      in zip(operator.inputs, ctx.dtypes, ctx.needs_input_grad)], None)

        return type(operator.name, (torch.autograd.Function,),
                    {"forward": staticmethod(forward), "backward": staticmethod(backward)})


class _Shape:
    """What a plan is found by: sizes as whole numbers."""

    def __init__(self, shape: Any):
        self.shape = tuple(int(n) for n in shape)
        self.ndim = len(self.shape)


def _cast(t: torch.Tensor | None, dtype: torch.dtype | None) -> torch.Tensor | None:
    return t if t is None or dtype is None or t.dtype == dtype else t.to(dtype)


OPERATORS = {name: Operator(name) for name in _table.ops()}
