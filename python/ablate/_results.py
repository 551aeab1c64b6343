"""Cases as arrays, and results that a program has computed, judged without a function to call:

    case = ablate.draw("softmax rows=4 columns=5")
    ablate.judge_results(case.words, results={"y": program(case.inputs["x"])})

and a step of one's own program, by its own arrays:

    ablate.judge_results("softmax dtype=bf16", inputs={"x": x}, upstream={"d_y": d_y},
                         results={"y": y, "d_x": d_x})"""

import ctypes
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ._answers import powerless, verdict_of
from ._call import Op
from ._case import Case, Rows, Run, to_bf16
from ._library import Error, call
from ._returned import array_of, named, narrowed
from ._table import INPUT, OUTPUT
from ._verdicts import Verdicts


class Drawn(NamedTuple):
    """A case as arrays, by the table's names.  Values are those that the storage type holds: float32
    for fp32 and bf16, int64 for whole numbers, uint8 for bytes."""

    words: str  # which make this case again
    inputs: dict[str, np.ndarray]
    upstream: dict[str, np.ndarray]  # the gradients of the outputs, "d_y"


_MAX_WORDS = 1 << 16


def random_words(op: str | None = None, *, seed: int = 1, index: int = 0) -> str:
    """The words of the `index`-th case, from 0, that a seed draws from the contract of an operation;
    None: from those of all.  The same three draw the same words.

    Sizes are around 1, primes, powers of two and their neighbours; choices, numbers and the storage
    type are any that the contract allows.  A case is small: it runs in milliseconds.
    Error: there is no such operation, or `seed` is not in 0 to 2^64 - 1, or `index` in 0 to 2^63 - 1."""
    if not (op is None or isinstance(op, str)):
        raise Error(f"op is the name of an operation, or None, not {type(op).__name__}")
    for name, n, bits in ("seed", seed, 64), ("index", index, 63):
        if not (isinstance(n, (int, np.integer)) and 0 <= n < 1 << bits):
            raise Error(f"{name} = {n} is no whole number from 0 to 2^{bits} - 1")
    to = ctypes.create_string_buffer(_MAX_WORDS)
    call("abl_random", op, int(seed), int(index), to, len(to))
    return to.value.decode()


def _word(words: str, key: str) -> str:
    """The value of a key in the words of a case; "": it is not there."""
    found = re.search(rf"(?:^|\s){key}=(\S*)", words)
    return found[1] if found else ""


def _check_words(words: str) -> None:
    if _word(words, "input") not in ("", "normal", "nonzero"):
        raise Error(f"input={_word(words, 'input')}: read the file, and give its arrays as inputs")


def _drawn_case(words: str) -> tuple[Case, Drawn]:
    _check_words(words)
    case = Case(words if _word(words, "input") else f"{words} input=nonzero")
    return case, Drawn(case.words, {n: case.stored(n) for n in case.names(INPUT)},
                       {n: case.stored(n) for n in case.gradients(OUTPUT)})


def draw(words: str) -> Drawn:
    """The case of `run-ablation -t`'s words as arrays, of the shapes that help(ablate.op(...)) shows.
    Initial states are drawn, too, unless the words say `input=normal`: then they are 0.
    Error: the words are wrong."""
    return _drawn_case(words)[1]


def _check_held(name: str, array: np.ndarray, dtype: str) -> None:
    """An Error, if the type that stores an input rounds it: the program was given another value."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "bf16":
            held = np.asarray(to_bf16(array))
        elif dtype in ("fp16", "fp32"):
            held = array.astype(np.float16 if dtype == "fp16" else np.float32)
        else:
            return
    wrong = np.argwhere(~((array == held) | np.isnan(array)))
    if len(wrong):
        at = tuple(map(int, wrong[0]))
        raise Error(f"{name} has {float(array[at])!r} at {list(at)}, which {dtype} does not hold: give the "
                    f"values as the program read them, or name their type by dtype=")


def _with_sizes(words: str, arrays: Mapping[str, np.ndarray]) -> str:
    """The words with the sizes that these arrays have, whose values replace what `input` would draw."""
    name, *more = words.split() or [""]
    settings = dict(word.split("=", 1) for word in more if "=" in word)
    if len(settings) < len(more):
        Case(words)
        raise Error(f"the words have a key twice: {words}")
    settings.pop("input", None)
    return Op(name, **settings)._place(arrays, {})[0]


def _given_case(words: str, inputs: Mapping[str, Any], upstream: Mapping[str, Any]) -> Case:
    """The case of the caller's own arrays."""
    _check_words(words)
    arrays = {n: array_of(n, a, None) for n, a in {**inputs, **upstream}.items()}
    case = Case(_with_sizes(words, arrays))
    for name in case.names(INPUT) + case.gradients(OUTPUT):
        t = case.tensor(name)
        if name in arrays:
            _check_held(name, arrays[name], t.dtype if name in case.tensors else t.grad_dtype)
            case.set(name, arrays[name])
        elif t.settled:
            continue
        elif t.state or name not in case.tensors:
            case.set(name, np.zeros(t.shape))
        else:
            raise Error(f"{name} is missing: [{','.join(t.axes)}]")
    return case


def _results_of(case: Case, results: Mapping[str, Any], upstream: bool) -> dict[str, np.ndarray]:
    """The results by name, of the shapes that the case has."""
    names = case.names(OUTPUT) + case.gradients(INPUT)
    found = named(results, names, "results", "results", case.whole)
    if not found:
        raise Error(f"there is no result to judge; they are {', '.join(names)}")
    for name, array in found.items():
        shape = case.tensor(name).shape
        if array.shape != shape:
            raise Error(f"{name} has the shape {list(array.shape)}, it should have {list(shape)}")
        if name not in case.tensors and _word(case.words, "accumulate") == "yes":
            raise Error(f"accumulate=yes: what {name} was added to is not given here")
        if name not in case.tensors and not upstream:
            raise Error(f"{name} needs the gradients of the outputs: upstream = "
                        f"{', '.join(case.gradients(OUTPUT))}, of which those left out are 0")
    return found


def judge_results(words: str, inputs: Mapping[str, Any] | None = None,
                  results: Mapping[str, Any] | None = None, rounds: str = "",
                  upstream: Mapping[str, Any] | None = None) -> Verdicts:
    """Judge results that a program has computed, by the oracle.

    `inputs` are the arrays that the program had, by the table's names; sizes follow from their shapes,
    the words have the operation, its choices and `dtype`, the storage type.  Initial states can be left
    out: they are 0.  `upstream` are the gradients of the outputs ("d_y"); those that are left out are 0.
    Without `inputs` they are those that draw() has for these words, and so is `upstream`.

    `results` are outputs ("y") and gradients of inputs ("d_x"), any of them, in the shapes of the
    table.  Arrays are NumPy's, PyTorch's, JAX's or others', on a GPU as well; one of bfloat16 or float16
    says so by itself where the contract has it in a finer type.  `rounds` is as in ablate.judge().

    The verdicts are those of the check `parity`; where zeros, a mean, a copy of an input, half of the
    result, or it with the wrong sign, would pass as well, a result is powerless.
    Error: the words are wrong; an input is missing, has another shape than the others say, or values
    that the storage type does not hold; a result is unknown, or no array of numbers of its shape."""
    if not isinstance(rounds, str):
        raise Error(f"rounds is text, NAME:TYPE and blanks between such words, not {type(rounds).__name__}")
    for what, given in ("inputs", inputs), ("results", results), ("upstream", upstream):
        if not isinstance(given, Mapping) and (given is not None or what == "results"):
            raise Error(f"{what} is a dict of arrays by name, not {type(given).__name__}")
    if inputs is None:
        case, drawn = _drawn_case(words)
        if upstream is not None:
            case = _given_case(case.words, drawn.inputs, upstream)
    else:
        case = _given_case(words, inputs, upstream or {})
    found = _results_of(case, results or {}, inputs is None or upstream is not None)
    run, said = Run.given(case, "program"), narrowed(case, found, rounds)
    if said:
        call("abl_result_rounds", run, said)
    for name, array in found.items():
        run.set(name, array)
    notes = [f"rounds {said}"] * bool(said) + ["arrays given"] * (inputs is not None or upstream is not None)
    judged = Rows(call("abl_judge_result", case, run))
    had = {n: case.get(n) for n in case.names(INPUT)}
    return Verdicts(case.words, [powerless(case, verdict_of(row, "parity", "; ".join(notes)), had)
                                 for row in judged.rows()])
