"""Layers with the weights of an operation's contract, under its names, so that a state_dict says what
they are."""

from typing import Any

import torch

from .. import _table
from .._library import Error
from .._table import INPUT
from ._ops import OPERATORS


def draw(name: str, p: torch.Tensor) -> None:
    """Draw a parameter of that name in a contract: a matrix from N(0, 1/columns); the weights of a norm
    are 1, biases, and numbers that are not real, 0."""
    if p.dim() > 1 and p.is_floating_point():
        torch.nn.init.normal_(p, std=p.shape[-1] ** -0.5)
    elif name == "w" or name.startswith(("w_", "g_")):
        torch.nn.init.ones_(p)
    else:
        torch.nn.init.zeros_(p)


class Layer(torch.nn.Module):
    """An operation as a layer.  Its inputs but x and the initial states are parameters: matrices are
    drawn from N(0, 1/columns), biases are 0, the weights of a norm 1.  Sizes and choices are
    keywords, as in ablate.op().

    layer(x) returns the output; layer(x, state) and layer(x, return_state=True) the output and the
    final state, a dict that the next call takes as its initial one.  x is [steps, batch, dim]; with
    batch_first, x and the output are [batch, steps, dim]."""

    operation: str
    learned_states: tuple[str, ...] = ()  # initial states that are parameters, without the batch

    def __init__(self, *, batch_first: bool = False, device: Any = None, dtype: Any = None,
                 **settings: Any):
        super().__init__()
        self.batch_first, self.settings = batch_first, settings
        spec = _table.op_tensors(self.operation)
        self._outputs = [t.name for t in spec if t.role == _table.OUTPUT]
        words = " ".join([self.operation, "steps=1", "batch=1",
                          *(f"{k}={v}" for k, v in settings.items())])
        there = {t.name: t for t in _table.words_tensors(words) if t.role == INPUT}
        self._states = [n for n, t in there.items() if t.state]
        for n, t in there.items():
            if n == "x" or (t.state and n not in self.learned_states):
                continue
            shape = t.shape[1:] if n in self.learned_states and t.axes[0] == "batch" else t.shape
            self.register_parameter(n, torch.nn.Parameter(torch.empty(shape, device=device,
                                                                      dtype=dtype)))
        self._batched = [n for n in self.learned_states
                         if n in there and there[n].axes[0] == "batch"]
        self._settings = " ".join(f"{k}={settings[k]}" for k in sorted(settings))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        for name, p in self.named_parameters():
            draw(name, p)

    def extra_repr(self) -> str:
        return self._settings

    def forward(self, x: torch.Tensor, state: dict[str, torch.Tensor] | None = None,
                return_state: bool = False) -> Any:
        """The output, and, where a state is given or asked for, the final state."""
        if x.dim() != 3:
            raise Error(f"x is {list(x.shape)}, it has three axes: steps, batch, dim")
        if self.batch_first:
            x = x.transpose(0, 1)
        given = {"x": x, **(state or {})}
        for n in self._parameters:
            p = self._parameters[n]
            given[n] = p.expand(x.shape[1], *p.shape) if n in self._batched else p
        operator = OPERATORS[self.operation]
        results = operator(*[given.get(n) for n in operator.inputs], self._settings)
        out = results[0].transpose(0, 1) if self.batch_first else results[0]
        if state is None and not return_state:
            return out
        final = dict(zip(self._outputs, results))
        return out, {n: final[n[:-1] + "_T" if n.endswith("0") else n] for n in self._states}


class E74(Layer):
    """The matrix-state delta-rule layer: k, v, q and z are W x, then the cell; the output is
    [steps, batch, heads * n_state].

        E74(dim=256, heads=4, n_state=32, state="full", proj="no_z", nonlin="tanh")"""

    operation = "e74"
    learned_states = ("V0",)


class E74Block(E74):
    """x + E74(rmsnorm(x)) W_o^T: a layer of a model, its output is shaped like x."""

    operation = "e74_block"


class DualMemory(Layer):
    """A recurrent cell with a tape of slots, E23 to E29c: `preset` names one.

        DualMemory(dim=128, slots=16, preset="e23")"""

    operation = "dual_memory"
    learned_states = ("M0",)


class Attention(torch.nn.Module):
    """Softmax attention with its projections: x [batch, steps, dim] to the same shape.  `kv_heads`
    shares keys and values among heads; mask, left, right, softcap, dropout are the operation's."""

    def __init__(self, dim: int, heads: int, kv_heads: int | None = None, bias: bool = False,
                 device: Any = None, dtype: Any = None, **settings: Any):
        super().__init__()
        if dim % heads:
            raise Error(f"heads = {heads} does not divide dim = {dim}")
        self.heads, self.kv_heads, self.width = heads, kv_heads or heads, dim // heads
        options = {"bias": bias, "device": device, "dtype": dtype}
        self.q = torch.nn.Linear(dim, heads * self.width, **options)
        self.k = torch.nn.Linear(dim, self.kv_heads * self.width, **options)
        self.v = torch.nn.Linear(dim, self.kv_heads * self.width, **options)
        self.o = torch.nn.Linear(heads * self.width, dim, **options)
        settings = {"kv_heads": self.kv_heads, **settings}
        self._settings = " ".join(f"{k}={settings[k]}" for k in sorted(settings))

    def extra_repr(self) -> str:
        return self._settings

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The output, [batch, steps, dim]."""
        q, k, v = (layer(x).unflatten(-1, (heads, self.width)) for layer, heads in
                   ((self.q, self.heads), (self.k, self.kv_heads), (self.v, self.kv_heads)))
        given = {"q": q, "k": k, "v": v}
        operator = OPERATORS["attention"]
        o = operator(*[given.get(n) for n in operator.inputs], self._settings)[0]
        return self.o(o.flatten(-2))
