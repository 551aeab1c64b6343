"""Operations as functions of NumPy arrays."""

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from . import _device, _out, _table
from ._case import Case, Run, are_few, numbers
from ._library import Error
from ._returned import said
from ._table import INPUT, OUTPUT, Tensor

_WORDS = ("dtype", "seed")


class Result(Mapping[str, np.ndarray]):
    """Outputs, and gradients where they were asked for: `r.out`, `r["d_x"]`."""

    def __init__(self, values: dict[str, np.ndarray], backend: str, words: str):
        self._values, self.backend, self.words = values, backend, words

    def __getitem__(self, name: str) -> np.ndarray:
        return self._values[name]

    def __getattr__(self, name: str) -> np.ndarray:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(f"there is no result {name}; there are "
                                 f"{', '.join(self.__dict__.get('_values', {}))}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._values]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{n} {list(v.shape)}" for n, v in self.items())
        return f"<{self.words}, on {self.backend}: {shapes}>"


def _words(op: str, settings: Mapping[str, Any]) -> str:
    return " ".join([op, *(f"{k}={v}" for k, v in settings.items())])


@functools.lru_cache(maxsize=1024)
def _tensors_of(words: str) -> tuple[Tensor, ...]:
    return tuple(_table.words_tensors(words))


def _shapes(words: str) -> list[tuple[int, ...]]:
    return [t.shape for t in _tensors_of(words)]


def _shape_error(name: str, array: np.ndarray, t: Tensor, more: str) -> Error:
    if array.ndim != len(t.axes):
        return Error(f"{name} is {list(array.shape)}, it has the axes {', '.join(t.axes)}{more}")
    shape = ", ".join(f"{a} {n}" for a, n in zip(t.axes, t.shape))
    return Error(f"{name} is {list(array.shape)}, it should be {list(t.shape)} ({shape})")


class Op:
    """An operation with some of its parameters set; called on arrays, it takes the others that are
    lengths of axes from their shapes, such as attention's `keys` and `kv_heads`.

        ablate.op("softmax", scale=2)(x=x).y
        ablate.op("softmax")(x=x, d_y=d_y).d_x

    Arguments are the inputs by name, and, for gradients, those of the outputs ("d_y"; those that
    are left out are 0).  Initial states can be left out: they are 0; and so can scalars that
    settings say (adamw's rate: lr).  Arrays in float64 are run by
    the oracle, ref64, and not rounded; in float32 by ref32.  `backend` names another, `kernel` one
    of its kernels.  Results are float64 from ref64, else float32, int64 for whole numbers, and
    uint8 for bytes.  What is no array of real numbers (bool, complex, text, objects, dates, masked
    elements) is an error, and so are numbers that float64 does not hold.

    Arrays of PyTorch, CuPy or JAX that are on a GPU stay there: gpu32 or gpu_bf16 runs on their
    memory, on the current stream of their library, and the results are arrays of it, in the types
    that the backend stores.

    `out` has arrays for results, which are written and returned: a dict by the results' names, or
    the array of the only output.

        ablate.op("adamw", lr=3e-4, step=1)(p=p, g=g, m=m, v=v, out={"p_next": p, "m_next": m, "v_next": v})

    Each is contiguous, and of the shape and the type that the result has without `out`: an array of
    NumPy or a tensor of PyTorch, or, where the inputs are on a GPU, an array there.  It may be the
    input that the output overwrites by the contract (adamw's p, m, v and master, add's a, dropout's x,
    schedule's u, t, good and scale, gemm's C0, gemv's y0); else it has no memory in common with another array of the call.  ref64 and ref32
    compute real numbers of their type where these lie, and copy nothing; Ctrl-C waits for them.
    Error: a name, a shape or a value is wrong, or the backend cannot run it here."""

    def __init__(self, name: str, **settings: Any):
        self.__doc__ = _table.description(name)
        self.name, self.settings = name, settings
        self.parameters = {p.name: p for p in _table.parameters(name)}
        self.inputs = [t.name for t in _table.op_tensors(name) if t.role == INPUT]
        self.derived = {axis: p for axis, p in _table.derived_axes(name).items()
                        if str(settings.get(p, "")) != "0"}
        for key in settings:
            if key not in self.parameters and key not in _WORDS:
                raise Error(f"{name} has no parameter {key}; it has {', '.join(self.parameters)}")

    def __repr__(self) -> str:
        return f"ablate.op({_words(self.name, self.settings)!r})"

    def _sizes(self, arrays: Mapping[str, np.ndarray], tensors: Sequence[Tensor]) -> dict[str, int]:
        """The sizes that the arrays' axes show, by the names of parameters."""
        sizes: dict[str, int] = {}
        shown: dict[str, str] = {k: f"{k} = {v} is asked for" for k, v in self.settings.items()}
        known = {t.name: t for t in tensors}
        for name, array in arrays.items():
            t = known.get(name) or known.get(name.removeprefix("d_"))
            if t is None or len(t.axes) != array.ndim:
                continue
            for axis, n in zip(t.axes, array.shape):
                key = self.derived.get(axis, axis)
                p = self.parameters.get(key)
                if p is None or p.kind != "whole":
                    continue
                earlier = sizes.get(key, self.settings.get(key, n))
                if int(earlier) != n:
                    where = shown[key]
                    raise Error(f"{name} has {n} along {axis}, "
                                + (where if " = " in where else f"{where} has {earlier}"))
                sizes.setdefault(key, n)
                shown.setdefault(key, name)
        return {k: n for k, n in sizes.items() if k not in self.settings}

    def _tensors(self, settings: Mapping[str, Any]) -> Sequence[Tensor]:
        """The tensors with these settings, whose derived axes have names of their own."""
        derived = {p: 1 for p in self.derived.values() if p not in settings}
        choices = {k: v for k, v in settings.items()
                   if k in self.parameters and self.parameters[k].kind == "choice"}
        for more in settings, choices:  # the default sizes may not go with the first
            try:
                return _tensors_of(_words(self.name, {**more, **derived}))
            except Error:
                pass
        return _table.op_tensors(self.name)

    def _sized(self, settings: Mapping[str, Any], sizes: dict[str, int]) -> str:
        """The words with these sizes, less those of derived axes that are as without."""
        words = _words(self.name, {**settings, **sizes})
        for p in self.derived.values():
            if p in sizes:
                fewer = {k: n for k, n in sizes.items() if k != p}
                shorter = _words(self.name, {**settings, **fewer})
                if _shapes(shorter) == _shapes(words):
                    words, sizes = shorter, fewer
        return words

    def _place(self, arrays: Mapping[str, np.ndarray],
               more: Mapping[str, Any]) -> tuple[str, bool]:
        """The words of the case that has these arrays, and whether it is known to be short."""
        settings = {**more, **self.settings}
        words = self._sized(settings, self._sizes(arrays, self._tensors(settings)))
        there = {t.name: t for t in _tensors_of(words)}
        for name, array in arrays.items():
            t = there.get(name) or there.get(name.removeprefix("d_"))
            of = name in there and there[name].role == INPUT
            upstream = not of and t is not None and t.role == OUTPUT and name == "d_" + t.name
            if t is None or not (of or (upstream and t.has_gradient)):
                inputs = [n for n, u in there.items() if u.role == INPUT]
                raise Error(f"{self.name} has no input {name} here; it has {', '.join(inputs)}"
                            + self._choices_with(name))
            if array.shape != t.shape:
                raise _shape_error(name, array, t, self._axes_with(t.name, array))
        return words, are_few(there.values())

    def _tensors_with(self, key: str, value: Any) -> Sequence[Tensor]:
        """With one setting more, or another; none where it does not go with the others."""
        try:
            return _tensors_of(_words(self.name, {**self.settings, key: value}))
        except Error:
            return ()

    def _choices_with(self, name: str) -> str:
        """The settings with which there is an input of that name: "; bias=full has it"."""
        if name not in self.inputs:
            return ""
        found = []
        for p in self.parameters.values():
            now = str(self.settings.get(p.name, p.default))
            others = [c for c in p.choices if c != now]
            if p.kind == "real" and float(now) == 0 and p.min <= 0.5 <= p.max:
                others = ["0.5"]  # a share, of nothing until now
            for choice in others:
                if any(t.name == name for t in self._tensors_with(p.name, choice)):
                    found.append(f"{p.name}={choice}")
        return f"; with {' or '.join(found)} there is {name}" if found else ""

    def _axes_with(self, name: str, array: np.ndarray) -> str:
        """The whole number with which the tensor has as many axes: "; with width=7 rows, width"."""
        for p in self.parameters.values():
            value = array.shape[-1] if array.ndim else 0
            if p.kind != "whole" or p.name in self.settings or not p.min <= value <= p.max:
                continue
            for t in self._tensors_with(p.name, value):
                if t.name == name and len(t.axes) == array.ndim:
                    return f"; with {p.name}={value} {', '.join(t.axes)}"
        return ""

    def _refuse_mask(self, name: str, array: Any) -> None:
        """An Error, if an array of True and False is given to an operation that takes a bias."""
        p = self.parameters.get("mask")
        if (p and "bias" in self.inputs and (name == "bias" or name not in self.inputs)
                and str(getattr(array, "dtype", "")).rpartition(".")[2] == "bool"):
            raise Error(f"{name} has the type bool: set bias=\"full\" and give a bias that is added to the "
                        f"scores, bias=np.where({name}, 0, -np.inf), or set mask=\"causal\" (one of "
                        f"{', '.join(p.choices)})")

    def __call__(self, *, backend: str | None = None, kernel: str | None = None, out: Any = None,
                 **arrays: Any) -> Result:
        for name, array in arrays.items():
            self._refuse_mask(name, array)
        if any(_device.on_gpu(array) for array in arrays.values()):
            found, plan = _device.run(self, arrays, kernel, backend, out)
            return Result(found, plan.backend, plan.words)
        given = {name: numbers(name, array) for name, array in arrays.items()}
        double = any(a.dtype == np.float64 for a in given.values())
        backend = backend or ("ref64" if double else "ref32")
        dtype = _table.stored(backend)
        words, few = self._place(given, {"dtype": dtype})
        with said(words):
            if out is None:
                return self._run(Case(words, few), given, backend, kernel)
            held = {n: a if isinstance(a, np.ndarray) else given[n] for n, a in arrays.items()}
            return self._run_into(words, few, given, held, backend, kernel, out)

    def _run_into(self, words: str, few: bool, given: Mapping[str, np.ndarray],
                  held: Mapping[str, np.ndarray], backend: str, kernel: str | None, out: Any) -> Result:
        """The same with the results in the arrays of `out`; `held`: what is given, in its own memory."""
        there = {t.name: t for t in _tensors_of(words)}
        outputs = [n for n, t in there.items() if t.role == OUTPUT]
        places = {n: there[n] for n in outputs}
        if backward := any("d_" + n in given for n in outputs):
            places |= {"d_" + n: t for n, t in there.items() if t.role == INPUT and t.has_gradient}
        wanted = _out.named(self.name, out, places, outputs)
        to = {n: _out.on_host(n, a, places[n], _type(places[n], n, backend)) for n, a in wanted.items()}
        _out.check_overlaps(to, held, there.values(), backward)
        if direct := _device.run_on_host(words, backend, kernel, given, there, to):
            found, words = direct[0], direct[1].words
        else:
            result = self._run(Case(words, few), given, backend, kernel)
            found, words = dict(result), result.words
            for n, array in to.items():
                np.copyto(array, found[n], casting="no")
        _out.written(wanted.values())
        return Result({n: wanted.get(n, a) for n, a in found.items()}, backend, words)

    def _run(self, case: Case, given: Mapping[str, np.ndarray], backend: str,
             kernel: str | None) -> Result:
        backward = any(name in case.gradients(OUTPUT) for name in given)
        for name in case.names(INPUT) + case.gradients(OUTPUT):
            if name in given:
                if case.dtype == "fp32":
                    _check_whole(name, given[name], case.tensor(name))
                case.set(name, given[name])
            elif name in case.gradients(OUTPUT):
                case.set(name, np.zeros(case.tensor(name).shape))
            elif not (case.tensor(name).state or case.tensor(name).settled):
                raise Error(f"{name} is missing: {_shape(case.tensor(name))}")
        run = Run.of(case, backend, kernel, backward)
        names = case.names(OUTPUT) + (case.gradients(INPUT) if backward else [])
        return Result({n: run.get(n).astype(_type(case.tensor(n), n, backend), copy=False)
                       for n in names}, backend, case.words)


def _type(t: Tensor, name: str, backend: str) -> type:
    """That of a result in NumPy: the tensor's, or, by another name, its gradient's."""
    if name == t.name and (t.bytes or t.whole):
        return np.uint8 if t.bytes else np.int64
    return np.float64 if backend == "ref64" else np.float32


def _check_whole(name: str, array: np.ndarray, t: Tensor) -> None:
    """An Error, if whole numbers that stand for real ones would be rounded to float32."""
    if array.dtype.kind in "iu" and not t.whole and np.any(array.astype(np.float32) != array):
        raise Error(f"{name} has whole numbers that float32 does not hold: give it in float64")


def _shape(t: Tensor) -> str:
    return f"[{','.join(t.axes)}], here {list(t.shape)}"


def op(name: str, **settings: Any) -> Op:
    """The operation of that name, with parameters (`ablate.op("e74_cell", state="full")`); help()
    of it shows formula, parameters, tensors with their axes, and kernels."""
    return Op(name, **settings)


def program(file: str | os.PathLike[str], **settings: Any) -> Op:
    """The program of calls in that file as an operation, whose parameters are the program's sizes
    (doc/experiments.md, op = program):

        model = ablate.program("lm.model", blocks=2, width=64)
        result = model(**{"token": token, "target": target, "x.E": E, ...})
        result["loss"]

    help() of it shows the names of its inputs and parameters.  Gradients are computed where d_NAME of an
    output is given.  Error: the first line of the text that is wrong, the file cannot be read, or, when it is
    called, the file has another text than here."""
    _tensors_of.cache_clear()  # the file may be another one than before
    _table.derived_axes.cache_clear()
    name = os.fspath(file)
    if any(c in name for c in ' ,"\t\n'):
        raise Error(f"{name!r} has blanks, commas or quotes, which the name of a program may not have")
    return _Program(name, **settings)


class _Program(Op):
    """A program, which is no other one when its file is written anew."""

    def __init__(self, file: str, **settings: Any):
        super().__init__("program=" + file, **settings)
        self._file, self._text = file, self._now(file)

    @staticmethod
    def _now(file: str) -> bytes:
        try:
            with open(file, "rb") as stream:
                return stream.read()
        except OSError as error:
            raise Error(f"program = {file}: {error.strerror}") from None

    def __call__(self, *args: Any, **arrays: Any) -> Result:
        if self._now(self._file) != self._text:
            raise Error(f"program = {self._file}: the file has another text than when ablate.program() read it")
        return super().__call__(*args, **arrays)
