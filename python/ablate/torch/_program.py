"""Programs of calls as modules: Program, and the operators that it calls.

    ablate::program(Tensor?[] inputs, str file, str text, str settings) -> Tensor[]
    ablate::program_backward(Tensor?[] read, Tensor?[] upstream, str file, str text, str words) -> Tensor[]

As those of an operation (_ops.py), of the program with this text, whose inputs are the declared ones and
then the parameters.  `file` is the text's name in messages; it is not read.  `words` are all sizes."""

import collections
import contextlib
import functools
import hashlib
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator
from typing import Any

import torch

from .. import _call, _table
from .._library import Error
from .._plan import Plan, backend_for
from .._table import INPUT, OUTPUT
from ._ops import DTYPES, NAMES, Operator, TensorPlan, backward, backward_fake, define, define_backward
from .nn import draw


@functools.lru_cache(maxsize=None)
def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="ablate-")


def _kept(file: str, text: str) -> str:
    """A file of this process that has the text, which the library reads by its name: another of the same
    name may come, and this one is written again where someone has removed it."""
    mark = hashlib.sha256(text.encode()).hexdigest()[:32]
    path = pathlib.Path(_folder().name, mark, os.path.basename(file))
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8",
                                         newline="") as new:
            new.write(text)
        os.replace(new.name, path)
    return str(path)


def _words(path: str, settings: str) -> str:
    return f"program={path} {settings}".rstrip()


class ProgramOperator(Operator):
    """A program with some of its sizes set."""

    def __init__(self, file: str, text: str, settings: str):
        self.key, self.path = (file, text, settings), _kept(file, text)
        with self.named():
            spec = _table.words_tensors(_words(self.path, settings))
        self._set(os.path.basename(file), "program=" + self.path, spec)
        self.forward, self.backward = self._dispatch, self._dispatch_back
        # The lines NAME [AXES] of the text (common/program/program.h).
        declared = set(re.findall(r"^[ \t]*([A-Za-z_][\w.]*)[ \t]*\[", text, re.M))
        self.declared = [n for n in self.inputs if n in declared]
        self.parameters = [t for t in spec if t.role == INPUT and t.name not in declared]
        outputs = ["_".join(reversed(t.name.split("."))) for t in spec if t.role == OUTPUT]
        self.n_outputs = len(outputs)
        self.outputs = collections.namedtuple("outputs", outputs, rename=True)  # type: ignore[misc]

    def __reduce__(self) -> Any:
        return program_operator, self.key

    def _dispatch(self, *arguments: Any) -> list[torch.Tensor]:
        return _forward(list(arguments[:-1]), self.key[0], self.key[1], arguments[-1])

    def _dispatch_back(self, read: Any, upstream: Any, words: str) -> list[torch.Tensor]:
        sizes = words.split(" ", 2)[2]  # behind "program program=FILE"
        return _backward(read, upstream, self.key[0], self.key[1], sizes)

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Errors have the name of the file that the text was read from."""
        try:
            yield
        except Error as error:
            raise Error(str(error).replace(self.path, self.key[0])) from None

    def make_plan(self, inputs: list[torch.Tensor | None], settings: str, dtype: str = "") -> TensorPlan:
        _kept(*self.key[:2])
        with self.named():
            return super().make_plan(inputs, settings, dtype)

    def types(self, dtype: str) -> dict[str, torch.dtype]:
        """Those of the tensors in this storage type."""
        _kept(*self.key[:2])
        with self.named():
            plan = Plan(_words(self.path, f"{self.key[2]} dtype={dtype}".lstrip()), backend_for("cpu", dtype))
        return {t.name: DTYPES[t.dtype] for t in plan.tensors}


@functools.lru_cache(maxsize=256)
def program_operator(file: str, text: str, settings: str) -> ProgramOperator:
    """The operator of a text; messages have the file's name.  Error: the sizes do not fit."""
    return ProgramOperator(file, text, settings)


def _kernel(method: str, *first: Any) -> Any:
    def run(inputs: Any, file: str, text: str, settings: str) -> list[torch.Tensor]:
        return getattr(program_operator(file, text, settings), method)(*first, *inputs, settings)
    return run


def _kernel_back(of: Any) -> Any:
    def run(read: Any, upstream: Any, file: str, text: str, words: str) -> list[torch.Tensor]:
        return of(_words(_kept(file, text), words), read, upstream)
    return run


_forward = define("program", "Tensor?[] inputs, str file, str text, str settings", _kernel)
_backward = define_backward("program", "str file, str text, str words", _kernel_back(backward),
                            _kernel_back(backward_fake))


def _read(name: str, settings: dict[str, Any]) -> str:
    """The text of a file whose program takes these settings; else an Error."""
    _call.program(name, **settings)
    try:
        return pathlib.Path(name).read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"program = {name}: {error}") from None


class Program(torch.nn.Module):
    """A program of calls (doc/experiments.md, op = program) as a module, whose parameters are the program's.

        model = ablate.torch.Program("lm.model", blocks=2, width=64, device="cuda", dtype=torch.bfloat16)
        result = model(token=token, target=target)
        result.loss.backward()

    The file is read here, and its text kept: the module, its copies and its pickles need no file.  Keywords
    are sizes of the program.  Those that are not given follow, in a call, from the shapes of its tensors,
    such as steps and batch; here, for the shapes of the parameters, they are the program's own.

    Parameters have the program's names, "x.E", "1.m.W_k", which are the keys of state_dict(); those that
    have no gradient (lora's W) do not ask for one.  They are of `dtype` (float32, bfloat16, on the CPU also
    float64), but float32 where the contract says so (attention's sinks); so are their gradients.

    A call takes the declared inputs by name, or in their order; initial states may be left out, and are 0.
    It returns the outputs as a named tuple in the order that help(ablate.program(file)) shows, 1.y of a block
    as y_1, or the only one.  Forward is one call of the library, and so is backward; autograd, torch.compile,
    CUDA graphs, torch.utils.checkpoint and torch.autocast work as with operations, and what is refused is
    the same.

    Error: a line of the text is wrong, a size is unknown or does not fit; an input is missing, unknown or
    misshapen, of another type or on another device."""

    def __init__(self, file: str | os.PathLike[str], /, *, device: Any = None, dtype: Any = None,
                 **sizes: Any):
        super().__init__()
        name = os.fspath(file)
        settings = " ".join(f"{k}={sizes[k]}" for k in sorted(sizes))
        self._settings = settings
        self._operator = operator = program_operator(name, _read(name, sizes), settings)
        device = torch.get_default_device() if device is None else torch.device(device)
        dtype = dtype or torch.get_default_dtype()
        stored = NAMES.get(dtype, str(dtype))
        backend_for("cpu" if device.type == "meta" else device.type, stored)
        types = operator.types(stored)
        self._paths: list[list[str]] = []
        for t in operator.parameters:
            empty = torch.empty(t.shape, device=device, dtype=types[t.name])
            self._add(t.name.split("."), torch.nn.Parameter(empty, requires_grad=t.has_gradient))
        self.reset_parameters()

    def _add(self, path: list[str], p: torch.nn.Parameter) -> None:
        """Adds a parameter below modules of the parts of its name."""
        at: torch.nn.Module = self
        for part in path[:-1]:  # (add_module() refuses the names of a module's methods)
            at = at._modules.setdefault(part, torch.nn.Module())  # type: ignore[assignment]
        at._parameters[path[-1]] = p
        self._paths.append(path)

    def _parameter(self, path: list[str]) -> torch.Tensor:
        at: Any = self
        for part in path[:-1]:
            at = at._modules[part]
        return getattr(at, path[-1])

    def reset_parameters(self) -> None:
        """Draw the parameters anew, as those of the layers of ablate.torch.nn."""
        for path in self._paths:
            draw(path[-1], self._parameter(path))

    def extra_repr(self) -> str:
        return " ".join([self._operator.key[0], self._settings]).rstrip()

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The outputs, a named tuple, or the only one."""
        operator = self._operator
        declared = operator.declared
        if len(inputs) > len(declared):
            raise Error(f"{operator.name} has {len(declared)} inputs, {', '.join(declared)}: "
                        f"{len(inputs)} are given")
        given = dict(zip(declared, inputs))
        for n, t in named.items():
            if n in given or n not in declared:
                why = ("is given twice" if n in given else "is a parameter of the module" if n in operator.inputs
                       else f"is no input of {operator.name}; it has {', '.join(declared)}")
                raise Error(f"{n} {why}")
            given[n] = t
        if not self._paths and all(t is None for t in given.values()):
            raise Error(f"{operator.name} has no input; it has {', '.join(declared)}")
        results = operator(*[given.get(n) for n in declared], *[self._parameter(p) for p in self._paths],
                           self._settings)
        results = results[:operator.n_outputs]
        return results[0] if len(results) == 1 else operator.outputs(*results)
