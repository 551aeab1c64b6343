"""Every operation as a function of PyTorch tensors, on the CPU by the references, on a GPU by the
CUDA kernels, on the current stream.

    import ablate.torch as at
    out, S_T = at.e74_cell(k=k, v=v, q=q, state="full", nonlin="tanh")

Inputs are given by name; a final state that is not needed is left alone, an initial state that is
not given is 0, a scalar that settings say is that (adamw's rate: lr), and an output that the operation has not with these parameters is None.  The
other arguments are the parameters that the shapes do not show.  Tensors are
float32 or bfloat16, on the CPU also float64; those that the contract keeps in float32 (states,
checkpoints) are that with bfloat16, too; those of bytes are uint8.  dtype="bf16" asks for the type
of results where no input shows it.  The functions work with autograd, torch.compile, CUDA
graphs, torch.utils.checkpoint and torch.autocast.  ablate.torch.nn has modules, and Program is a module of a
program of calls.  Nothing is compiled or tuned when a function is called.

`out`, a tensor for the only output or a dict by the outputs' names, is written and returned, as
ablate.op() says: in place where it is the input that the output overwrites.  Such a call has no
gradient, and is made eagerly, where torch.compile ends a graph: what asks for a gradient is refused outside torch.no_grad().

There is one derivative, in reverse mode.  Forward mode, the transforms of torch.func, the derivative
of a gradient and torch.jit.trace are an Error.

An Error says which tensor is missing, misshapen, of another type or on another device."""

from collections import namedtuple
from typing import Any, Callable

import torch as _torch

from .. import _table
from .._library import Error
from .._table import OUTPUT
from ._ops import OPERATORS

__all__ = ["Error", "Program", "nn", *OPERATORS]


def _function(name: str) -> Callable[..., Any]:
    operator = OPERATORS[name]
    inputs = tuple(operator.inputs)
    parameters = frozenset(p.name for p in _table.parameters(name)) | {"dtype"}
    outputs = [t.name for t in _table.op_tensors(name) if t.role == OUTPUT]
    n = len(outputs)
    result = namedtuple(f"{name}_outputs", outputs)  # type: ignore[misc]
    # attention's bias is a choice and a tensor: a tensor means that it is given in full
    both = {p.name: p.choices[-1] for p in _table.parameters(name)
            if p.name in inputs and p.choices}

    def function(*, out: Any = None, **arguments: Any) -> Any:
        given = [None if isinstance(arguments.get(n), str) else arguments.pop(n, None)
                 for n in inputs]
        if all(t is None for t in given):
            raise Error(f"{name} has no input; it has {', '.join(inputs)}")
        for key, choice in both.items():
            if given[inputs.index(key)] is not None:
                arguments[key] = choice
        for key in arguments:
            if key not in parameters:
                raise Error(f"{name} has no input or parameter {key}; it has {', '.join(inputs)}, "
                            f"{', '.join(sorted(parameters))}")
        settings = " ".join([f"{k}={arguments[k]}" for k in sorted(arguments)])
        results = operator(*given, settings) if out is None else operator.into(out, *given, settings)
        if n == 1:
            return results[0]
        return result(*[t if t.numel() else None for t in results[:n]])

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _table.description(name)
    return function


for _name in OPERATORS:
    globals()[_name] = _function(_name)

from . import nn  # noqa: E402
from ._program import Program  # noqa: E402
