"""The shared library, by ctypes: its functions with their types, and its errors as exceptions."""

import ctypes
import os
import pathlib
from ctypes import POINTER, c_char, c_char_p, c_double, c_int, c_int64, c_ubyte, c_uint64, c_void_p
from typing import Any

from ._version import __version__
from ._wait import Waiter

MAX_RANK = 6


class Error(Exception):
    """What the library refuses or cannot do: its own sentence."""


class CParam(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("help", c_char_p), ("choices", POINTER(c_char_p)),
                ("initial", c_int64), ("min", c_int64), ("max", c_int64), ("real", c_int),
                ("real_initial", c_double), ("real_min", c_double), ("real_max", c_double)]


class CTensor(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("role", c_int), ("has_gradient", c_int), ("rank", c_int),
                ("axis", c_char_p * MAX_RANK), ("size", c_int64 * MAX_RANK), ("count", c_int64),
                ("whole", c_int), ("state", c_int), ("bytes", c_int), ("dtype", c_int),
                ("grad_dtype", c_int), ("in_backward", c_int), ("settled", c_int),
                ("overwrites", c_char_p)]


class CVerdict(ctypes.Structure):
    _fields_ = [("check", c_char_p), ("backend", c_char_p), ("kernel", c_char_p),
                ("tensor", c_char * 32), ("error", c_double), ("norm", c_double),
                ("bound", c_double), ("worst", c_char * 64), ("first_bad", c_int64),
                ("passed", c_int), ("unjudged", c_int), ("distance", c_char_p),
                ("slices", c_int64), ("coarse", c_int64),
                ("sees", c_double), ("sees_row", c_double), ("sees_element", c_double)]


class CMember(ctypes.Structure):
    _fields_ = [("name", c_char * 128), ("kind", c_int), ("rank", c_int),
                ("size", c_int64 * MAX_RANK), ("axis", (c_char * 64) * MAX_RANK),
                ("count", c_int64), ("columns", c_int)]


class CAttribute(ctypes.Structure):
    _fields_ = [("name", c_char * 128), ("type", c_int), ("whole", c_int64), ("real", c_double)]


DOUBLES = POINTER(c_double)
BYTES = POINTER(c_ubyte)
HANDLE, TEXT = c_void_p, c_char_p

# Name: what it returns and takes.  A returned c_int or c_int64 of -1 is an error, and so is a NULL
# handle; a NULL text may mean the end of a list.
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "abl_version": (TEXT, []),
    "abl_error": (TEXT, []),
    "abl_stop_when": (None, [POINTER(c_int)]),
    "abl_op": (TEXT, [c_int]),
    "abl_formula": (TEXT, [TEXT]),
    "abl_source": (TEXT, [TEXT]),
    "abl_param": (c_int, [TEXT, c_int, POINTER(CParam)]),
    "abl_op_tensor": (c_int, [TEXT, c_int, POINTER(CTensor)]),
    "abl_backend": (TEXT, [c_int]),
    "abl_backend_dtype": (TEXT, [TEXT]),
    "abl_backend_machine": (TEXT, [TEXT]),
    "abl_dtype_name": (TEXT, [c_int]),
    "abl_unavailable": (TEXT, [TEXT]),
    "abl_device": (TEXT, [TEXT]),
    "abl_kernel": (TEXT, [TEXT, TEXT, c_int]),
    "abl_kernel_idea": (TEXT, [TEXT, TEXT, c_int]),
    "abl_case_new": (HANDLE, [TEXT]),
    "abl_case_read": (HANDLE, [TEXT, TEXT]),
    "abl_case_free": (None, [HANDLE]),
    "abl_words_tensor": (c_int, [TEXT, c_int, POINTER(CTensor)]),
    "abl_random": (c_int, [TEXT, c_uint64, c_int64, c_char_p, c_int64]),
    "abl_campaign_new": (HANDLE, [TEXT]),
    "abl_campaign_free": (None, [HANDLE]),
    "abl_campaign_listed": (c_int64, [HANDLE]),
    "abl_campaign_is_open": (c_int, [HANDLE]),
    "abl_campaign_words": (TEXT, [HANDLE, c_int64]),
    "abl_campaign_smaller": (c_int, [HANDLE, TEXT, c_int, c_char_p, c_int64]),
    "abl_text": (TEXT, [HANDLE]),
    "abl_tensor": (c_int, [HANDLE, c_int, POINTER(CTensor)]),
    "abl_draw": (None, [HANDLE, c_uint64, c_int]),
    "abl_set": (c_int, [HANDLE, TEXT, DOUBLES, c_int64]),
    "abl_get": (c_int, [HANDLE, TEXT, DOUBLES, c_int64]),
    "abl_set_bytes": (c_int, [HANDLE, TEXT, BYTES, c_int64]),
    "abl_get_bytes": (c_int, [HANDLE, TEXT, BYTES, c_int64]),
    "abl_result_set_bytes": (c_int, [HANDLE, TEXT, BYTES, c_int64]),
    "abl_result_get_bytes": (c_int, [HANDLE, TEXT, BYTES, c_int64]),
    "abl_expected_bytes": (c_int, [HANDLE, TEXT, BYTES, c_int64]),
    "abl_run": (HANDLE, [HANDLE, TEXT, TEXT, c_int]),
    "abl_forward": (HANDLE, [HANDLE, TEXT, TEXT, c_int]),
    "abl_result_new": (HANDLE, [HANDLE, TEXT]),
    "abl_result_free": (None, [HANDLE]),
    "abl_result_set": (c_int, [HANDLE, TEXT, DOUBLES, c_int64]),
    "abl_result_rounds": (c_int, [HANDLE, TEXT]),
    "abl_result_get": (c_int, [HANDLE, TEXT, DOUBLES, c_int64]),
    "abl_judge": (HANDLE, [HANDLE, TEXT, TEXT, c_int]),
    "abl_judge_result": (HANDLE, [HANDLE, HANDLE]),
    "abl_expected": (c_int, [HANDLE, TEXT, DOUBLES, c_int64]),
    "abl_would_pass": (c_int, [HANDLE, TEXT, DOUBLES, c_int64]),
    "abl_passing": (c_char_p, [HANDLE, TEXT, HANDLE]),
    "abl_refused": (c_char_p, [HANDLE, c_int]),
    "abl_distance": (c_double, [DOUBLES, DOUBLES, c_int64]),
    "abl_verdicts_free": (None, [HANDLE]),
    "abl_verdict": (c_int, [HANDLE, c_int, POINTER(CVerdict)]),
    "abl_call_new": (HANDLE, [TEXT, TEXT, c_int, TEXT]),
    "abl_call_free": (None, [HANDLE]),
    "abl_call_text": (TEXT, [HANDLE]),
    "abl_call_kernel": (TEXT, [HANDLE]),
    "abl_call_tensor": (c_int, [HANDLE, c_int, POINTER(CTensor)]),
    "abl_call_workspace": (c_int64, [HANDLE, c_int]),
    "abl_call_wait": (c_int, [HANDLE, c_void_p]),
    "abl_call_run_trusted": (c_int, [HANDLE, c_char_p]),
    "abl_write": (c_int, [TEXT, HANDLE, POINTER(c_void_p), c_int, HANDLE]),
    "abl_dump_open": (HANDLE, [TEXT]),
    "abl_dump_free": (None, [HANDLE]),
    "abl_dump_member": (c_int, [HANDLE, TEXT, c_int, POINTER(CMember)]),
    "abl_dump_attribute": (c_int64, [HANDLE, TEXT, c_int, POINTER(CAttribute), c_char_p, c_int64]),
    "abl_dump_read": (c_int, [HANDLE, TEXT, DOUBLES, c_int64]),
    "abl_dump_table": (c_int64, [HANDLE, TEXT, c_char_p, c_int64]),
}


def _find() -> tuple[ctypes.CDLL, str]:
    """The library that ABLATE_LIBRARY names, the package's own, or the system's."""
    named = os.environ.get("ABLATE_LIBRARY")
    own = sorted((pathlib.Path(__file__).parent / "_lib").glob("libablate.so*"))
    for path in [named] if named else [*map(str, own), "libablate.so.0"]:
        try:
            return ctypes.CDLL(path), path
        except OSError as error:
            reason = error
    raise Error(f"the library cannot be loaded: {reason}; ABLATE_LIBRARY can name it")


def _load() -> tuple[ctypes.CDLL, str]:
    # Both are read when their libraries are loaded: threads that spin while they wait take the
    # processor from each other, and each product is computed by one thread.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    loaded, path = _find()
    for name, (returns, takes) in _FUNCTIONS.items():
        try:
            function = getattr(loaded, name)
        except AttributeError:
            raise Error(f"{path} has no {name}: it is another version's") from None
        function.restype, function.argtypes = returns, takes
    version = loaded.abl_version().decode()
    if version != __version__:
        raise Error(f"{path} is version {version}, the package is {__version__}")
    return loaded, path


lib, library_path = _load()


# Those that can take long, with the function that frees what they return.
_LONG = {"abl_case_new": "abl_case_free", "abl_case_read": "abl_case_free", "abl_draw": "",
         "abl_run": "abl_result_free", "abl_forward": "abl_result_free",
         "abl_judge": "abl_verdicts_free", "abl_judge_result": "abl_verdicts_free",
         "abl_expected": "", "abl_expected_bytes": "", "abl_would_pass": "", "abl_passing": "",
         "abl_distance": "",
         "abl_write": "", "abl_dump_read": ""}

_waiter = Waiter(lib.abl_stop_when)


def fail() -> Error:
    """The library's last error in this thread."""
    return Error(lib.abl_error().decode())


def _made(name: str, arguments: tuple[Any, ...]) -> Any:
    """What a function returns, or its error."""
    function = getattr(lib, name)
    result = function(*[a.encode() if isinstance(a, str) else a for a in arguments])
    if function.restype is HANDLE and not result:
        return fail()
    if function.restype is c_char_p and result is None and name in _LONG:  # others end a list so
        return fail()
    if function.restype in (c_int, c_int64) and result == -1:
        return fail()
    return result.decode() if isinstance(result, bytes) else result


def _drop(name: str, result: Any) -> None:
    """Free what a function returned, unless that is an error or a number."""
    if _LONG[name] and isinstance(result, int):
        getattr(lib, _LONG[name])(result)


def call_here(name: str, *arguments: Any) -> Any:
    """The same of a call that is known to be short, for which another thread would take longer."""
    result = _made(name, arguments)
    if isinstance(result, Error):
        raise result
    return result


def call(name: str, *arguments: Any) -> Any:
    """Call a function of the library; an error is raised.  Texts go in and come out as str.  A signal
    is handled at once, whose handler may raise KeyboardInterrupt."""
    if name in _LONG and _waiter.is_wanted():
        return _waiter.run(lambda: _made(name, arguments), lambda r: _drop(name, r))
    return call_here(name, *arguments)


def texts(name: str, *arguments: Any) -> list[str]:
    """A list that a function has text by text, up to NULL."""
    found: list[str] = []
    while (text := call(name, *arguments, len(found))) is not None:
        found.append(text)
    return found


class Handle:
    """An object of the library, freed with this one."""

    def __init__(self, pointer: int, free: str):
        self.pointer, self._free = pointer, getattr(lib, free)

    @property
    def _as_parameter_(self) -> c_void_p:
        return c_void_p(self.pointer)

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            self._free(self.pointer)
            self.pointer = 0
