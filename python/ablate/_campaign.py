"""Somebody's function judged by the oracle, in the cases that words name."""

import contextlib
import ctypes
import math
import secrets
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from ._judge import Asked, Judged
from ._library import Error, Handle, call, fail
from ._table import INPUT, OUTPUT, op_tensors
from ._verdicts import Verdict, Verdicts

_SECONDS = 10.0  # of a campaign, and at most of looking for a smaller case
_REDRAWN = 4  # times that a case is drawn again while a result was not judged with power
_WORDS = 1 << 13  # bytes of a case's words
_ASKING = 10  # what asks what would pass takes so many times as long as the calls
_ASKED = 8  # in so many cases all mistakes are met


def _system_seed() -> int:
    return secrets.randbelow(2**31)


def _words_with(words: str, seed: int | None) -> str:
    """With a seed, the system's own where none is given, and initial states that are not 0."""
    named = {w.split("=")[0] for w in words.split()}
    if seed is not None and "seed" in named:
        raise Error(f"seed={seed} is given twice: {words}")
    if "seed" not in named:
        words += f" seed={_system_seed() if seed is None else seed}"
    if "input" not in named:
        words += " input=nonzero"
    return words


class _Cases(Handle):
    """The cases that words name."""

    def __init__(self, words: str):
        super().__init__(call("abl_campaign_new", words), "abl_campaign_free")
        self.of = words
        self.is_open = bool(call("abl_campaign_is_open", self))
        self.listed = int(call("abl_campaign_listed", self))

    def words(self, i: int) -> str:
        if (text := call("abl_campaign_words", self, i)) is None:
            raise fail()
        return text

    def smaller(self, words: str) -> Iterable[str]:
        """The words of cases that are a step smaller."""
        text = ctypes.create_string_buffer(_WORDS)
        k = 0
        while call("abl_campaign_smaller", self, words, k, text, _WORDS) == 0:
            yield text.value.decode()
            k += 1


def _kinds(rows: Iterable[Verdict]) -> set[tuple[str, str]]:
    return {(r.check, r.tensor) for r in rows if r.verdict == "fail"}


class _Campaign:
    """A function on its way through the cases."""

    def __init__(self, asked: Asked, cases: _Cases, power: bool, most: int | None,
                 seconds: float | None):
        self.asked, self.cases, self.most = asked, cases, most
        if seconds is None:  # what is listed of sizes that are all named is short
            seconds = _SECONDS if self.cases.is_open and most is None else math.inf
        self.seconds = seconds
        self.asks = power or self.cases.is_open  # what would pass
        self.exact = power
        self.until = time.monotonic() + seconds
        self.rows: list[Verdict] = []
        self.done = 0
        self.pending: dict[str, None] = {}  # what would pass, and was not refused in any case
        self.hidden: dict[str, None] = {}  # what changed nothing in any
        self.refused: set[str] = set()
        self.asked_any = False
        self.replay = ""
        self.smallest: list[Verdict] = []  # of the smallest case that fails
        self.notes: list[str] = []

    def run(self) -> None:
        """All cases, up to the first that fails."""
        try:
            while not self._is_over():
                words = self.cases.words(self.done)
                self._show(words)
                one = self._judge(words)
                self.done += 1
                self.rows += one.rows
                if one.failed:
                    self._fail(one)
                    break
        finally:
            self._show("")
        if self.cases.is_open or self.done < self.cases.listed:
            self.notes.append(self._coverage())

    def _judge(self, words: str) -> Judged:
        began = time.monotonic()
        one = Judged(self.asked, words, self.until, self.done)
        took = time.monotonic() - began
        wanted = self.asks and (self.pending or self.done < _ASKED)
        if not one.failed and (self.exact or (
                wanted and took * _ASKING < self.until - time.monotonic())):
            self._note(*one.passing())
        return one

    def _note(self, passes: list[str], refused: list[str], hidden: list[str]) -> None:
        """What changes nothing in any case is no mistake of these words."""
        self.asked_any = True
        self.refused |= set(refused)
        self.hidden |= dict.fromkeys(hidden)
        self.pending |= dict.fromkeys(p for p in passes if p not in hidden)
        for what in self.refused:
            self.pending.pop(what, None)
            self.hidden.pop(what, None)
        for what in self.pending:
            self.hidden.pop(what, None)

    @property
    def would_pass(self) -> list[str] | None:
        """None where nothing was asked, or something failed."""
        if self.replay or not self.asked_any:
            return None
        return [*self.pending, *({} if self.cases.is_open else self.hidden)]

    def _is_over(self) -> bool:
        if self.done and time.monotonic() > self.until:
            return True
        if self.most is not None:
            return self.done >= self.most
        if self.done < self.cases.listed:
            return False
        if self.cases.is_open:
            return not self.pending
        left = Verdicts(self.cases.of, self.rows).reasons.values()
        return "not given" in left or not left or self.done >= self.cases.listed + _REDRAWN

    def _coverage(self) -> str:
        """What was run, in words."""
        listed = min(self.done, self.cases.listed)
        drawn = self.done - listed
        what = "of the contract's cases" if self.cases.is_open else "draws of these sizes"
        return (f"{listed} of {self.cases.listed} {what}"
                + (f", {drawn} drawn" if drawn else "")
                + (f"; {len(self.refused)} mistakes refused" if self.refused else "")
                + ("; what would pass was not asked" if self.asks and not self.asked_any else ""))

    @property
    def cut_short(self) -> str:
        """Why not all listed cases were run; or ""."""
        if self.replay or self.done >= self.cases.listed:
            return ""
        why = f"cases={self.most}" if self.most == self.done else f"{self.seconds:g} s"
        return f"{why} ended it after {self.done} of {self.cases.listed} cases"

    def _fail(self, one: Judged) -> None:
        """Find a smaller case that fails in the same way."""
        like, words = _kinds(one.rows), one.words
        until = time.monotonic() + min(_SECONDS, max(self.until - time.monotonic(), 2.0))
        smallest = self._smaller(words, like, until) if self.cases.is_open else None
        while smallest and time.monotonic() < until:
            words = smallest.words
            self.smallest = smallest.rows
            smallest = self._smaller(words, like, until)
        self.rows += self.smallest
        self.replay = words
        self.notes.append(f"again: {words}")

    def _smaller(self, words: str, like: set[tuple[str, str]], until: float) -> Judged | None:
        """A case that is a step smaller and fails alike."""
        for instead in self.cases.smaller(words):
            self._show(f"smaller: {instead}")
            if time.monotonic() > until:
                break
            with contextlib.suppress(Exception):  # the function may not take that size
                one = Judged(self.asked, instead, 0)
                if _kinds(one.rows) & like:
                    return one
        return None

    def _show(self, words: str) -> None:
        """Progress, on a terminal."""
        if not sys.stderr.isatty():
            return
        line = f"case {self.done + 1}: {words}"[:78] if words else ""
        sys.stderr.write(f"\r{line:<78}\r")
        sys.stderr.flush()


def _check_arguments(function: Any, words: Any, backward: Any, rounds: Any, cases: Any,
                     seconds: Any, seed: Any) -> None:
    """One sentence on what is no argument of judge()."""
    if not callable(function) or not isinstance(words, str):
        raise Error("judge(function, words): the function is "
                    f"{type(function).__name__}, the words are {type(words).__name__}")
    if not words.split() or "\0" in words:
        raise Error("the words begin with an operation, and have no zero byte: " + repr(words))
    if backward is not None and not callable(backward):
        raise Error(f"backward is a function, or None, not {type(backward).__name__}")
    if not isinstance(rounds, str):
        raise Error("rounds is text, NAME:TYPE and blanks between such words, "
                    f"not {type(rounds).__name__}")
    if cases is not None and (isinstance(cases, bool) or not isinstance(cases, int) or cases < 1):
        raise Error(f"cases={cases}: a whole number from 1 on")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float))
                                or not seconds >= 0):
        raise Error(f"seconds={seconds}: a number from 0 on")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise Error(f"seed={seed}: a whole number")


def _names(without: str | Iterable[str], words: str) -> frozenset[str]:
    """Results, by name; "gradients" are those of all inputs."""
    try:
        names = without.replace(",", " ").split() if isinstance(without, str) else list(without)
    except TypeError:
        raise Error(f"without is names of results, not {type(without).__name__}") from None
    tensors = op_tensors(words.split()[0])
    gradients = {"d_" + t.name for t in tensors if t.role == INPUT and t.has_gradient}
    known = gradients | {t.name for t in tensors if t.role == OUTPUT}
    for name in names:
        if name not in known | {"gradients"}:
            raise Error(f"without: {name} is no result of {words.split()[0]}; they are "
                        + ", ".join(sorted(known)))
    return frozenset(names) | (gradients if "gradients" in names else frozenset())


def judge(function: Callable[..., Any], words: str,
          backward: Callable[..., Any] | None = None, rounds: str = "", power: bool = False, *,
          without: str | Iterable[str] = (), cases: int | None = None,
          seconds: float | None = None, seed: int | None = None) -> Verdicts:
    """Judge a function by the oracle, in the cases that words name as `run-ablation -t` does.

    `function(**inputs)` is called with NumPy arrays by the table's names (float32, whole numbers as
    int64; bf16 values in float32) and returns the outputs: a dict, a tuple in the table's order, or
    one array.  `backward(inputs, upstream)` gets these and the gradients of the outputs ("d_out"),
    and returns those of the inputs in the same way ("d_x", or "x").

    Words that leave a size open ("softmax", "attention mask=causal dtype=bf16") mean a campaign: the
    cases of the contract that agree with them, hard inputs among them, then drawn ones, until each
    mistake that the judge knows was refused once; or `cases`, or `seconds` (10, if neither is given),
    are over before, which the verdicts say.  Parameters that are not sizes, and that the words do not
    name, have their defaults.  Words that name all sizes mean these, drawn three times, where there are hard inputs in
    other ways.  The first case that fails ends it; it is made smaller, and `replay` has its words.
    What is drawn follows from `seed`, or the word seed=, or else from the system: the words say which.

    The verdicts are `ok` if no check failed and each result was judged, with power, in one case at
    least: the outputs, and with `backward` the gradients of the inputs, but for those that `without`
    names ("lse", "d_bias d_sink"; "gradients" are all; the gradient of an output that is named there is
    0).  `reasons` says what was not judged and why, and `ok_or("powerless")` accepts that.

    `rounds` says what the function rounds on the way, or gives in a coarser type than the contract
    has: "P:bf16 d_w:bf16", sites of the operation (`run-ablation --list OP`) or results, each with
    fp32, bf16 or fp16.  The bounds allow for it, and the verdicts say so.  An array of bfloat16 or
    float16 (PyTorch's, or of NumPy's dtype) says so by itself.

    A campaign's `would_pass` are the mistakes that no case refused, such as "eps = 0", "S0 drawn anew"
    or one of published kernels.  With `power` all cases are asked, and those of words that name all
    sizes, too; and what each verdict sees is exact.  It takes some 100 passes of the oracle a case.

    Initial states are drawn, too, unless the words say `input=normal`: then they are 0.

    The checks, of 4 to 12 calls a case: `parity` with the oracle, within the bound that follows from
    the error of plain C with the same storage; `fresh values`, the same by other values in the same
    arrays, and in others; `one value new`, by one value of one input, or two in each other's place;
    `repeat`, the bits of the first call again; `inputs unchanged`; `own memory`: results share none, and what was returned is
    overwritten.  A parity by which zeros, a mean, a copy of an input, half of the answer or the answer
    to other inputs would pass as well is powerless.

    Error: the words are wrong, a shape is wrong, a result is no array of real numbers, or nothing was
    given to be judged."""
    _check_arguments(function, words, backward, rounds, cases, seconds, seed)
    words = _words_with(words, seed)
    named_by = _Cases(words)
    left_out = _names(without, words)
    campaign = _Campaign(Asked(function, backward, rounds, left_out), named_by, bool(power), cases,
                         seconds)
    campaign.run()
    return Verdicts(words if len({r.words for r in campaign.rows}) > 1 else campaign.rows[0].words,
                    campaign.rows, campaign.would_pass, without=left_out, notes=campaign.notes,
                    replay=campaign.replay, cut_short=campaign.cut_short)
