"""ablate: every operation as plain C, the oracle, and as CUDA; judge a kernel by the oracle.

    ablate.ops()                                    the operations
    help(ablate.op("softmax"))                      formula, parameters, tensors, kernels
    ablate.op("softmax")(x=x).y                     run one on NumPy arrays
    ablate.program("lm.model")                      a model that is a text of calls, the same
    ablate.judge(function, "softmax columns=100")   judge a function
    ablate.draw("softmax columns=100")              a case's inputs, as NumPy arrays
    ablate.judge_results("softmax", {"x": x}, {"y": y})   judge what a program has computed
    ablate.random_words("softmax")                  the words of a drawn case
    ablate.open("e74_diag.h5")                      read a dump

All of it follows from the library's table, so that an operation that is added there is here."""

from ._call import Op, Result, op, program
from ._dump import Dump, Trial, open
from ._campaign import judge
from ._library import Error, library_path
from ._results import Drawn, draw, judge_results, random_words
from ._table import backends, ops
from ._verdicts import Verdict, Verdicts
from ._version import __version__

__all__ = ["Drawn", "Dump", "Error", "Op", "Result", "Trial", "Verdict", "Verdicts", "__version__",
           "backends", "draw", "judge", "judge_results", "library_path", "op", "open", "ops",
           "program", "random_words"]
