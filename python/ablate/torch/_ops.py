"""The operators of torch.ops.ablate, made from the library's table.

For an operation `name` with inputs and outputs there are

    ablate::name(Tensor? input, ..., str settings) -> Tensor[]
    ablate::name_backward(Tensor?[] read, Tensor?[] upstream, str words) -> Tensor[]

The results of the first are all outputs that the operation may have, those that it has not here
without elements, and then what is saved for backward; `settings` are the parameters that the shapes
do not show.  `read` are the tensors that backward reads, `upstream` the gradients of the outputs that
have one (None: zeros), `words` the call with all its sizes; the results are the gradients of the
inputs that have one, in their stored types.

There is one derivative, in reverse mode.  Forward mode, a derivative of a gradient and the transforms
of torch.func are an Error."""

import functools
from typing import Any, Callable

import torch
from torch import library
from torch.autograd import forward_ad

from .. import _out, _table
from .._call import Op
from .._library import Error
from .._plan import BACKWARD, FORWARD, Plan, backend_for, words_for
from .._table import INPUT, OUTPUT

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16,
          "fp16": torch.float16, "int64": torch.int64, "uint8": torch.uint8}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
MOST_PLANS = 4096  # kept of an operation; then they are made anew
LIBRARY = library.Library("ablate", "DEF")
_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 0)
_below_autograd = torch._C._AutoDispatchBelowAutograd
_PLAIN = {torch.Tensor, torch.nn.Parameter, type(None)}
_no_modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)
_no_transforms: Callable[[], Any] = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: 1)
_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
_is_tracked = torch._C._functorch.is_gradtrackingtensor
# Not rounded by an autocast: losses, sums, optimisers, and what moves elements.
AS_GIVEN = {"accuracy", "adamw", "cross_entropy", "dropout", "embedding", "schedule", "sum_squares", "transpose"}
_is_tracing = torch._C._get_tracing_state


def _is_plain(tensors: Any) -> bool:
    """Would PyTorch's dispatcher, which takes longer than all that is done here, find these kernels
    for the tensors, and nothing else: no subclass, mode, transform or trace?"""
    for t in tensors:
        if type(t) not in _PLAIN:
            return False
    return not _no_modes() and _no_transforms() is None


class TensorPlan:
    """A plan with all that a call on tensors of one device needs."""

    def __init__(self, all_: list[_table.Tensor], plan: Plan, device: torch.device):
        """`all_`: those that the operation may have, in the order of arguments and results."""
        self.plan, self.device = plan, device
        spec = plan.tensors
        self.dtypes = [DTYPES[t.dtype] for t in spec]
        # The operator's results: shape, type, place in the call; outputs that are absent are empty.
        here = {t.name: i for i, t in enumerate(spec)}
        outputs = [here.get(t.name) for t in all_ if t.role == OUTPUT]
        self.results = [((0,), torch.float32, None) if i is None else
                        (spec[i].shape, DTYPES[spec[i].dtype], i) for i in outputs + plan.saved]
        self.upstream_dtypes = [DTYPES[spec[i].grad_dtype] for i in plan.upstream]
        self.upstream = [[i for _, _, i in self.results].index(i) for i in plan.upstream]
        self.gradients = [(spec[i].shape, DTYPES[spec[i].grad_dtype], i) for i in plan.gradients]
        # Each input: its place in the call, and in the operator's arguments.
        places = [t.name for t in all_ if t.role == INPUT]
        self.given = [(i, places.index(plan.names[i])) for i in plan.inputs]
        # What backward reads: inputs by their place in the arguments, results by that in the results.
        made = {i: j for j, (_, _, i) in enumerate(self.results)}
        asked = dict(self.given)
        self.read_back = [(i in asked, asked[i] if i in asked else made[i]) for i in plan.read_back]
        self.not_differentiable = [j for j in range(len(self.results)) if j not in self.upstream]
        # The outputs that are present; an absent one is this tensor where nobody minds that it is.
        self.present = [j for j in range(len(outputs)) if outputs[j] is not None]
        self.constant = [j for j in self.present if j not in self.upstream]
        self.upstream_present = [self.present.index(j) for j in self.upstream]
        self.absent = torch.empty(0, device=device)
        self.n_outputs = len(outputs)
        # The gradient of each argument: its place among the gradients, or None; and those that are
        # stored in another type than the argument.
        back = {places.index(plan.names[i]): j for j, i in enumerate(plan.gradients)}
        self.back = [back.get(j) for j in range(len(places))]
        self.casts = [(j, self.dtypes[i]) for j, i in enumerate(plan.gradients)
                      if self.gradients[j][1] != self.dtypes[i]]
        # Do the tensors that backward reads lead to all inputs that have a gradient, as far as it
        # depends on inputs?
        self.linked = (not self.read_back
                       or any(not given and j in self.upstream for given, j in self.read_back)
                       or all((True, j) in self.read_back for j, g in enumerate(self.back)
                              if g is not None))
        self.no_gradient = [j for i, j in self.given if j not in back and not (spec[i].whole or spec[i].bytes)]
        self._zeros: dict[tuple[int, int, int], torch.Tensor] = {}

    def new(self, wanted: list[tuple[tuple[int, ...], torch.dtype, int | None]],
            device: torch.device, at: list[int] | None = None,
            absent: torch.Tensor | None = None) -> list[torch.Tensor]:
        """New results or gradients, and their addresses at their places.  Those that have no place
        are new as well, or `absent`."""
        made = []
        for shape, dtype, i in wanted:
            if i is None and absent is not None:
                made.append(absent)
                continue
            t = torch.empty(shape, dtype=dtype, device=device)
            made.append(t)
            if at is not None and i is not None:
                at[i] = t.data_ptr()
        return made

    def outputs(self, present: Any) -> list[torch.Tensor]:
        """All outputs, of those that are present."""
        if len(self.present) == self.n_outputs:
            return list(present[:self.n_outputs])
        found = [self.absent] * self.n_outputs
        for j, t in zip(self.present, present):
            found[j] = t
        return found

    def stream(self) -> int:
        """The current one of the device."""
        return _stream(self.device.index) if self.device.type == "cuda" else 0

    def zeros(self, i: int, grad: int) -> torch.Tensor:
        """Zeros of tensor i or its gradient, which nothing writes; they are kept for the stream that
        fills them.  Those of a graph are its own: it may outlive the plan."""
        t = self.plan.tensors[i]
        capturing = self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        key = i, grad, self.stream()
        found = None if capturing else self._zeros.get(key)
        if found is None:
            found = torch.zeros(t.shape, dtype=DTYPES[t.grad_dtype if grad else t.dtype],
                                device=self.device)
            if not capturing:
                self._zeros[key] = found
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
        self.plan.run(which, pointers, gradients, address, self.stream())


def _dense(name: str, t: torch.Tensor) -> torch.Tensor:
    """The tensor, or a dense copy of it at an address that a call accepts."""
    if t.is_neg():
        t = t.resolve_neg()
    try:
        contiguous, address = t.is_contiguous(), t.data_ptr()
    except RuntimeError:  # it is sparse, nested, MKL-DNN's or vmap's
        address = 0
    if not address:
        raise Error(f"{name} is sparse, nested, batched (is_grads_batched, vectorize) or without "
                    "storage: only dense tensors are supported")
    if not contiguous:
        t = t.contiguous()
        address = t.data_ptr()
    return t.clone() if address & 15 else t


def _memory(t: torch.Tensor) -> Any:
    """Its elements, as _out compares them; those of a negative view, which are not what is there, as bytes."""
    size = t.element_size()
    if t.is_neg():
        return _out.memory(t.data_ptr(), (*t.shape, size), (*[s * size for s in t.stride()], 1), 1)
    return _out.memory(t.data_ptr(), t.shape, t.stride(), size)


@functools.lru_cache(maxsize=None)
def _op(name: str, settings: str) -> Op:
    return Op(name, **dict(word.split("=", 1) for word in settings.split()))


@functools.lru_cache(maxsize=MOST_PLANS)
def _plan(words: str, device: torch.device) -> TensorPlan:
    if device.type == "meta":  # shapes and types are the CPU's
        device = torch.device("cpu")
    dtype = words.partition(" dtype=")[2].split(" ")[0]
    op, plan = words.split(" ")[0], Plan(words, backend_for(device.type, dtype), device.index or 0)
    return TensorPlan(plan.tensors if is_program(op) else _table.op_tensors(op), plan, device)


def is_program(op: str) -> bool:
    """Is it a program's, program=FILE?  Its tensors follow from its sizes: none is absent in a call."""
    return op.startswith("program=")


def _device_of(tensors: Any) -> torch.device:
    return next(t.device for t in tensors if t is not None)


def _storage(inputs: list[torch.Tensor | None]) -> str:
    """The storage type of a call: bf16 if an input is; else fp64 if one is; else fp32."""
    found = {t.dtype for t in inputs if t is not None}
    return next((NAMES[d] for d in (torch.bfloat16, torch.float64) if d in found), "fp32")


def backward(words: str, read: list[torch.Tensor | None],
             upstream: list[torch.Tensor | None]) -> list[torch.Tensor]:
    """The gradients of the call of these words."""
    return _run_back(_plan(words, _device_of((*read, *upstream))), read, upstream)


def backward_fake(words: str, read: list[torch.Tensor | None],
                  upstream: list[torch.Tensor | None]) -> list[torch.Tensor]:
    """The same, in shapes and types."""
    device = _device_of((*read, *upstream))
    p = _plan(words, device)
    return p.new(p.gradients, device)


def _run_back(p: TensorPlan, read: Any, upstream: Any) -> list[torch.Tensor]:
    plan = p.plan
    pointers, gradients, keep = plan.nothing.copy(), plan.nothing.copy(), []
    for i, t in zip(plan.read_back, read):
        if t is None and plan.tensors[i].settled:
            continue
        t = p.zeros(i, 0) if t is None else _dense(plan.names[i], t)
        keep.append(t)
        pointers[i] = t.data_ptr()
    for i, dtype, t in zip(plan.upstream, p.upstream_dtypes, upstream):
        t = p.zeros(i, 1) if t is None else _dense("d_" + plan.names[i],
                                                   t if t.dtype == dtype else t.to(dtype))
        keep.append(t)
        gradients[i] = t.data_ptr()
    results = p.new(p.gradients, p.device, gradients)
    p.run(BACKWARD, pointers, gradients)
    return results


def define(name: str, arguments: str, kernel: Callable[..., Any]) -> Any:
    """Registers ablate::name, and returns it: `kernel(method, ...)` is that method of the Operator which the
    arguments belong to, with the others before its own."""
    LIBRARY.define(f"{name}({arguments}) -> Tensor[]")
    for key in "CPU", "CUDA":
        LIBRARY.impl(name, kernel("_forward"), key)
    LIBRARY.impl(name, kernel("_autograd"), "Autograd")
    for kind, key in ("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA"):
        LIBRARY.impl(name, kernel("_autocast", kind), key)
    library.register_fake(f"ablate::{name}", kernel("_fake"), lib=LIBRARY)
    LIBRARY.impl(name, kernel("_refuse_transform"), "FuncTorchBatched")
    return getattr(torch.ops.ablate, name).default


def define_backward(name: str, arguments: str, run: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """The same of ablate::name_backward(read, upstream, arguments)."""
    name += "_backward"
    LIBRARY.define(f"{name}(Tensor?[] read, Tensor?[] upstream, {arguments}) -> Tensor[]")
    for key in "CPU", "CUDA":
        LIBRARY.impl(name, run, key)
    library.register_fake(f"ablate::{name}", fake, lib=LIBRARY)
    return getattr(torch.ops.ablate, name).default


class Operator:
    """The two operators of an operation."""

    forward: Any  # of the tensors and the settings
    backward: Any  # of what backward reads, the upstream gradients, and the call's words

    def __init__(self, name: str):
        self._set(name, name, _table.op_tensors(name))
        inputs = ", ".join(f"Tensor? {n}" for n in self.inputs)
        self.forward = define(name, f"{inputs}, str settings",
                              lambda method, *first: functools.partial(getattr(self, method), *first))
        if self.differentiable:
            self.backward = define_backward(name, "str words", lambda r, u, words: backward(words, r, u),
                                            lambda r, u, words: backward_fake(words, r, u))

    def _set(self, name: str, op: str, spec: list[_table.Tensor]) -> None:
        """All but the registered operators; `name` stands in messages, `op` in words."""
        self.name, self.op = name, op
        self.inputs = [t.name for t in spec if t.role == INPUT]
        self.differentiable = any(t.has_gradient for t in spec)
        self._plans: dict[Any, TensorPlan] = {}
        self._function, self._direct = self._make_functions() if self.differentiable else (None, None)

    # ---- plans ----

    def plan(self, inputs: Any, settings: str) -> TensorPlan:
        """The plan for these inputs: found by their shapes and types."""
        key = (settings, *[t if t is None else (t.shape, t.dtype, t.get_device()) for t in inputs])
        try:
            found = self._plans.get(key)
        except TypeError:  # a symbolic size, while a graph is traced
            return self.make_plan(list(inputs), settings)
        if found is None:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
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
        words = words_for(_op(self.op, settings), shapes, dtype or _storage(inputs))
        found = _plan(words, there[first].device)
        if not dtype:
            for t, want in zip(found.plan.tensors, found.dtypes):
                if t.name in there and there[t.name].dtype != want:
                    raise Error(f"{t.name} is {there[t.name].dtype}, in this call it is to be {want}")
        return found

    # ---- the operators ----

    def __call__(self, *arguments: Any) -> Any:
        """The outputs that `forward` returns, perhaps with what is saved behind them: without the
        dispatcher where it is not needed."""
        if torch.compiler.is_compiling():
            return self.forward(*arguments)
        if _is_tracing() is not None:
            raise Error(f"torch.jit.trace does not record {self.name}: torch.export does, or "
                        "torch.compile")
        given = arguments[:-1]
        if (not _is_plain(given) or (kind := _device_of(given).type) == "meta"
                or torch.is_autocast_enabled(kind)):
            for n, t in zip(self.inputs, given):
                if not (t is None or hasattr(t, "__torch_function__")):
                    raise Error(f"{n} is {type(t).__name__}, and no tensor of PyTorch")
            return self.forward(*arguments)
        if forward_ad._current_level >= 0:
            self._refuse_tangents(given)
        p = self.plan(given, arguments[-1])
        if self._asks(given):
            return p.outputs(self._direct.apply(p, *given))
        return self._run(p, given, p.absent)

    @torch.compiler.disable
    def into(self, out: Any, *arguments: Any) -> list[torch.Tensor]:
        """The outputs, those that `out` has by name, or the only one, written to the caller's tensors."""
        given = arguments[:-1]
        tensors = {n: t for n, t in zip(self.inputs, given) if t is not None}
        p = self._plan_into(given, arguments[-1])
        there = {t.name: t for t in p.plan.tensors}
        to = _out.named(self.name, out, [p.plan.names[i] for i in p.plan.outputs],
                        [p.plan.names[i] for i in p.plan.outputs])
        for n, t in to.items():
            self._check_out(n, t, there[n], p)
        pointers, keep, seen = p.plan.nothing.copy(), [], {}
        for i, place in p.given:
            t, name = given[place], p.plan.names[i]
            if t is None and p.plan.tensors[i].settled:
                continue
            t = p.zeros(i, 0) if t is None else _dense(name, t)
            keep.append(t)
            pointers[i] = t.data_ptr()
            if name in tensors:
                seen[name] = tensors[name]
        _out.check_overlaps({n: _memory(t) for n, t in to.items()},
                            {n: _memory(t) for n, t in seen.items()}, p.plan.tensors)
        results = p.new([r for r in p.results if r[2] is None or p.plan.names[r[2]] not in to],
                        p.device, pointers, p.absent)
        for i in p.plan.outputs:
            if p.plan.names[i] in to:
                pointers[i] = to[p.plan.names[i]].data_ptr()
        p.run(FORWARD, pointers, p.plan.nothing)
        _out.written(to.values())
        made = iter(results)
        return [to[p.plan.names[i]] if i is not None and p.plan.names[i] in to else next(made)
                for _, _, i in p.results[:p.n_outputs]]

    def _plan_into(self, given: Any, settings: str) -> TensorPlan:
        """The plan of a call with out=, or an Error where tensors are no plain memory, or gradients
        are wanted."""
        if torch.compiler.is_compiling() or _is_tracing() is not None:
            raise Error(f"{self.name} with out= is not recorded in a graph: leave it out, or call it eagerly")
        for n, t in zip(self.inputs, given):
            if not (t is None or isinstance(t, torch.Tensor)):
                raise Error(f"{n} is {type(t).__name__}, and no tensor of PyTorch")
        kind = _device_of(given).type
        if not _is_plain(given) or kind == "meta" or torch.is_autocast_enabled(kind):
            raise Error(f"{self.name} with out= takes plain tensors: no subclass, mode, transform, meta "
                        "device or autocast")
        if forward_ad._current_level >= 0:
            self._refuse_tangents(given)
        if self._asks(given):
            names = [n for n, t in zip(self.inputs, given) if t is not None and t.requires_grad]
            raise Error(f"{self.name} with out= has no gradient, and {names[0]} asks for one: give it detached, "
                        "or call it within torch.no_grad()")
        return self.plan(given, settings)

    def _check_out(self, name: str, t: Any, spec: _table.Tensor, p: TensorPlan) -> None:
        """An Error, if the caller's tensor cannot take the output."""
        text = _out.label(name)
        if type(t) not in (torch.Tensor, torch.nn.Parameter):
            raise Error(f"{text} is {type(t).__name__}, and no plain tensor of PyTorch")
        if torch.is_grad_enabled() and t.requires_grad:
            raise Error(f"{text} asks for a gradient: give it detached, or call {self.name} within "
                        "torch.no_grad()")
        if t.device != p.device:
            raise Error(f"{text} is on {t.device}, in this call it is to be on {p.device}")
        _out.check_shape(name, t.shape, spec)
        if t.dtype != DTYPES[spec.dtype]:
            raise Error(f"{text} is {t.dtype}, in this call it is to be {DTYPES[spec.dtype]}")
        if t.is_neg() or _dense(text, t) is not t:
            why = ("is a negative view" if t.is_neg() else "is misaligned: its address is no multiple of 16 bytes"
                   if t.is_contiguous() else f"is not contiguous: its strides are {list(t.stride())}")
            raise Error(f"{text} {why}")

    def _asks(self, given: Any) -> bool:
        """Does an input ask for its gradient?"""
        if self._function is not None and torch.is_grad_enabled():
            for t in given:
                if t is not None and t.requires_grad:
                    return True
        return False

    def _forward(self, *arguments: Any) -> list[torch.Tensor]:
        return self._run(self.plan(arguments[:-1], arguments[-1]), arguments[:-1])

    def _run(self, p: TensorPlan, given: Any,
             absent: torch.Tensor | None = None) -> list[torch.Tensor]:
        plan = p.plan
        pointers, keep = plan.nothing.copy(), []
        for i, place in p.given:
            t = given[place]
            if t is None and plan.tensors[i].settled:
                continue
            t = p.zeros(i, 0) if t is None else _dense(plan.names[i], t)
            keep.append(t)
            pointers[i] = t.data_ptr()
        results = p.new(p.results, p.device, pointers, absent)
        p.run(FORWARD, pointers, plan.nothing)
        return results

    def _fake(self, *arguments: Any) -> list[torch.Tensor]:
        p = self.plan(arguments[:-1], arguments[-1])
        return p.new(p.results, _device_of(arguments[:-1]))

    def _autograd(self, *arguments: Any) -> list[torch.Tensor]:
        given = arguments[:-1]
        if forward_ad._current_level >= 0:
            self._refuse_tangents(given)
        if torch.is_grad_enabled() and any(t is not None and t.requires_grad and _is_wrapped(t)
                                           for t in given):
            self._refuse_transform()
        if self._asks(given):
            n = len(self.plan(given, arguments[-1]).results)
            return list(self._function.apply(*arguments)[:n])
        with _below_autograd():
            return self.forward(*arguments)

    def _autocast(self, kind: str, *arguments: Any) -> list[torch.Tensor]:
        """Inputs in the type of the autocast, but those that are always float; all as they are where that
        type would lose what the operation is about."""
        given, settings = list(arguments[:-1]), arguments[-1]
        want = NAMES[torch.get_autocast_dtype(kind)]
        key = torch._C.DispatchKey.AutocastCUDA if kind == "cuda" else torch._C.DispatchKey.AutocastCPU
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            if self.name in AS_GIVEN:
                return self.forward(*given, settings)
            if want != "bf16":
                raise Error(f"under autocast to {want}: no backend stores it; bfloat16 is there")
            p = self.make_plan(given, settings, want)
            for t, dtype in zip(p.plan.tensors, p.dtypes):
                if t.role == INPUT and not (t.whole or t.bytes):
                    i = self.inputs.index(t.name)
                    if (given[i] is not None and given[i].is_floating_point()
                            and given[i].dtype != torch.float64):
                        given[i] = given[i].to(dtype)
            return self.forward(*given, settings)

    # ---- derivatives that are not there ----

    def _refuse_tangents(self, given: Any, names: list[str] | None = None) -> None:
        """An Error, if a tensor has a tangent; `names`: they are not the inputs."""
        for n, t in zip(names or self.inputs, given):
            if t is not None and forward_ad.unpack_dual(t).tangent is not None:
                raise Error(f"{n} of {self.name} has a tangent: forward mode is not supported, "
                            "only backward")

    def _refuse_transform(self, *_: Any) -> Any:
        raise Error(f"{self.name} is not supported by the transforms of torch.func (grad, jvp, "
                    "vmap, ...): use backward() or torch.autograd.grad")

    # ---- autograd ----

    def _make_functions(self) -> tuple[Any, Any]:
        """The outer autograd.Functions: for the dispatcher, from the operator's arguments to all its
        results; and for plain tensors, from the plan and them to the outputs that are present."""
        operator = self

        def keep(ctx: Any, p: TensorPlan, given: Any,
                 results: list[torch.Tensor]) -> list[torch.Tensor]:
            # An output without elements, which leads to the inputs if nothing else that is kept does.
            link = [] if p.linked else [torch.empty(0, device=p.device)]
            ctx.save_for_backward(*[(given if input_ else results)[j] for input_, j in p.read_back],
                                  *link)
            ctx.plan = p
            ctx.set_materialize_grads(False)
            return link

        def dispatched(ctx: Any, *arguments: Any) -> tuple[torch.Tensor, ...]:
            given = arguments[:-1]
            p = operator.plan(given, arguments[-1])
            operator._refuse(p, ctx.needs_input_grad)
            with _below_autograd():
                results = operator.forward(*arguments)
            link = keep(ctx, p, given, results)
            if p.not_differentiable:
                ctx.mark_non_differentiable(*[results[j] for j in p.not_differentiable])
            return (*results, *link)

        def direct(ctx: Any, p: TensorPlan, *given: Any) -> tuple[torch.Tensor, ...]:
            if p.no_gradient:
                operator._refuse(p, ctx.needs_input_grad[1:])
            results = operator._run(p, given, p.absent)
            link = keep(ctx, p, given, results)
            if p.constant:
                ctx.mark_non_differentiable(*[results[j] for j in p.constant])
            return (*[results[j] for j in p.present], *link)

        def dispatched_back(ctx: Any, read: Any, *upstream: Any) -> tuple[Any, ...]:
            return (*operator._gradients(ctx.plan, read, [upstream[j] for j in ctx.plan.upstream],
                                         ctx.needs_input_grad), None)

        def direct_back(ctx: Any, read: Any, *upstream: Any) -> tuple[Any, ...]:
            here = [upstream[j] for j in ctx.plan.upstream_present]
            return (None, *operator._gradients(ctx.plan, read, here, ctx.needs_input_grad[1:]))

        return self._function_of(dispatched, dispatched_back), self._function_of(direct, direct_back)

    def _refuse(self, p: TensorPlan, needed: Any) -> None:
        """An Error, if an input that has no gradient asks for one."""
        for j in p.no_gradient:
            if needed[j]:
                raise Error(f"{self.inputs[j]} of {self.name} has no gradient: give it detached")

    def _gradients(self, p: TensorPlan, read: Any, upstream: list[Any],
                   needed: Any) -> list[torch.Tensor | None]:
        """The gradients of the inputs that need one."""
        for t in upstream:
            if t is not None:
                break
        else:
            return [None] * len(p.back)
        read = read[:len(p.read_back)]
        if _is_plain((*read, *upstream)):
            found = _run_back(p, read, upstream)
        else:
            found = self.backward(list(read), upstream, p.plan.words)
        for j, dtype in p.casts:
            found[j] = found[j].to(dtype)
        return [found[j] if asked else None for j, asked in zip(p.back, needed)]

    def _function_of(self, forward: Any, backward: Any) -> Any:
        """An autograd.Function; the derivative of its backward is an error."""
        operator, name = self, self.name

        def backward_once(ctx: Any, *upstream: Any) -> tuple[Any, ...]:
            read = ctx.saved_tensors
            if any(t is not None and _is_tracked(t) for t in upstream):
                operator._refuse_transform()
            if forward_ad._current_level >= 0:
                operator._refuse_tangents(upstream, [f"the gradient of output {i}"
                                                     for i in range(len(upstream))])
            if not torch.is_grad_enabled():
                return backward(ctx, read, *upstream)
            gradients = functools.partial(backward, ctx, read, *upstream)
            return _Once.apply(name, gradients, *read, *upstream)

        return type(self.name, (torch.autograd.Function,),
                    {"forward": staticmethod(forward), "backward": staticmethod(backward_once)})


class _Once(torch.autograd.Function):
    """Gradients as a function of all that they depend on, whose derivative is an Error."""

    @staticmethod
    def forward(ctx: Any, name: str, gradients: Callable[[], tuple[Any, ...]], *read: Any) -> Any:
        ctx.name = name
        return gradients()

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        raise Error(f"{ctx.name} has no second derivative: its gradient cannot be differentiated")


class _Shape:
    """What a plan is found by: sizes as whole numbers."""

    def __init__(self, shape: Any):
        self.shape = tuple(int(n) for n in shape)
        self.ndim = len(self.shape)


OPERATORS = {name: Operator(name) for name in _table.ops()}
