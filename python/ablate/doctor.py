"""python -m ablate.doctor: what is here, and a short judgement of every kernel of every backend."""

import ctypes
import sys

from . import __version__, _table, library_path
from ._case import Case, Rows
from ._library import Error, call, texts

_PARITY = 1
_TRIES = 400  # drawn cases until the kernel takes one


def _drawn(op: str, i: int, dtype: str) -> Case:
    text = ctypes.create_string_buffer(4096)
    call("abl_random", op, 1, i, text, len(text))
    words = text.value.decode()
    for other in "fp32", "bf16":
        words = words.replace(f" dtype={other}", f" dtype={dtype}")
    return Case(words)


def _judge(op: str, backend: str, kernel: str) -> tuple[int, int, str]:
    """Checks, those that failed, and why there are none, of the first case that the kernel takes."""
    why = ""
    for i in range(_TRIES):
        try:
            case = _drawn(op, i, _table.stored(backend))
            rows = Rows(call("abl_judge", case, backend, kernel, _PARITY)).rows()
        except Error as error:
            why = str(error)
            continue
        failed = [r for r in rows if not r.passed]
        for r in failed:
            print(f"  FAILED {backend} {kernel}, {r.tensor.decode()}: off by {r.error:.1e}, bound "
                  f"{r.bound:.1e}: {case.words}")
        return len(rows), len(failed), ""
    return 0, 0, why


def main() -> int:
    """Print what is here; 1 if a kernel fails."""
    print(f"ablate {__version__}\n  library   {library_path}")
    checks = failures = untried = kernels = 0
    usable = []
    for backend, why in _table.backends().items():
        print(f"  {backend:<9} {why or call('abl_device', backend)}")
        if why is None:
            usable.append(backend)
    for backend in usable:
        for op in _table.ops():
            for kernel in texts("abl_kernel", op, backend):
                kernels += 1
                n, failed, why = _judge(op, backend, kernel)
                checks, failures = checks + n, failures + failed
                if not n:
                    untried += 1
                    print(f"  not judged {backend} {op} {kernel}: {why}")
    print(f"{kernels} kernels, {checks} checks, {failures} failed, {untried} kernels took none of "
          f"{_TRIES} drawn cases")
    return 1 if failures or not checks else 0


if __name__ == "__main__":
    sys.exit(main())
