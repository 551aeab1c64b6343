"""The build backend: setuptools', with the library put into a copy of the package.

The library is the one that the environment variable ABLATE_LIBRARY or the setting `library` of the
frontend names (pip install --config-settings library=FILE ./python).  Otherwise it is made: where the
source around this folder is configured, there, by its own make; else in a folder of its own, which
goes at the end.  ABLATE_CONFIGURE, or the setting `configure`, has options of configure, such as
--without-cuda, and always takes such a folder.  The source is written to only by its own make, and by an
editable installation.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from setuptools import build_meta

PYTHON = pathlib.Path(__file__).resolve().parent.parent
TOP = PYTHON.parent
# What is not copied: what git, make, pip and Python leave in the source.
LEFT = [".git", "ci.tmp", "faults.tmp", "wheel.tmp", "dist", "build", "_lib", "autom4te.cache", "__pycache__",
        ".deps", ".dirstamp", "*.egg-info", "*.o", "*.a", "*.so", "*.so.*", "*.log", "*.trs", "*.ptxas",
        "ablate-*.tar.gz"]
CONFIGURED = ["Makefile", "config.h", "config.status", "stamp-h1", "run-ablation"]

__all__ = ["build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable",
           "get_requires_for_build_wheel", "prepare_metadata_for_build_editable",
           "prepare_metadata_for_build_wheel"]


# ---- what is said ----

def _say(text):
    """Show a line to who waits.  pip shows nothing of a backend without -v, so it goes to the terminal itself,
    if this process is in its foreground, where nothing stops it; else to the output."""
    with contextlib.suppress(OSError):
        terminal = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY)
        try:
            if os.tcgetpgrp(terminal) == os.getpgrp():
                os.write(terminal, f"\r\nablate: {text}\r\n".encode())
                return
        finally:
            os.close(terminal)
    print(f"ablate: {text}", flush=True)


def _stop(sentence):
    raise SystemExit(f"ablate: {sentence}")


# ---- commands ----

def _environment():
    """Without the options of a make that has called pip."""
    return {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}


def _run(command, folder, said=None):
    """Run it; `said`, if given, is called with each line of its output, which is passed on."""
    try:
        with subprocess.Popen(command, cwd=folder, env=_environment(), text=True, errors="replace",
                              stdout=subprocess.PIPE if said else None) as process:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                said(line)
        status = process.returncode
    except OSError as error:
        status = error
    if status:
        _stop(f"{' '.join(map(str, command))}: {f'exit status {status}' if status.__class__ is int else status}"
              "; ./install-deps in the source installs what is needed, pip -v shows the compiler's messages, "
              "and ABLATE_LIBRARY can name a library that is there")


def _make(folder):
    """Make the library in a folder that is configured, and say how far it is."""
    made = [0, time.monotonic()]
    listed = subprocess.run(["make", "-n", "libablate.so"], cwd=folder, env=_environment(), text=True,
                            capture_output=True, check=False)
    files = sum(" -c -o " in line for line in listed.stdout.splitlines())

    def count(line):
        made[0] += line.split(maxsplit=1)[:1] in (["CC"], ["CXX"], ["NVCC"])
        if time.monotonic() - made[1] > 15:
            made[1] = time.monotonic()
            _say(f"{made[0]} of {max(files, made[0])} files")

    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    _run(["make", f"-j{processors or 1}", "V=0", "libablate.so"], folder, count)
    return pathlib.Path(folder) / "libablate.so"


# ---- the source and the library ----

def _configured():
    return (TOP / "config.status").exists()


def _source(folder):
    """A source that configure takes from another folder: this one, or a copy if it is configured itself."""
    if not (TOP / "configure").exists():
        _stop(f"there is no {TOP}/configure to build the library with; ABLATE_LIBRARY can name a library "
              "that is there")
    if not _configured():
        return TOP
    left = shutil.ignore_patterns(*LEFT)
    copy = pathlib.Path(folder) / "source"
    shutil.copytree(TOP, copy, symlinks=True, ignore=lambda where, names: {
        *left(where, names), *(CONFIGURED if pathlib.Path(where) == TOP else [])})
    return copy


def _configure(folder, options):
    """Configure in an empty folder."""
    source = _source(folder)
    build = pathlib.Path(folder) / "build"
    build.mkdir()
    _run([source / "configure", "-q", *options], build)
    return build


def _current():
    """Has the configured source a library that make would leave as it is?"""
    return (TOP / "libablate.so").exists() and subprocess.run(
        ["make", "-q", "libablate.so"], cwd=TOP, env=_environment(), check=False, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL).returncode == 0


def _setting(settings, name, variable):
    """A setting of the frontend, which may be a list, or else an environment variable."""
    value = (settings or {}).get(name) or os.environ.get(variable, "")
    return value if isinstance(value, str) else " ".join(value)


def _library(settings, folder):
    """The library to put into the package."""
    named = _setting(settings, "library", "ABLATE_LIBRARY")
    if named:
        library = pathlib.Path(named)
        if not library.is_file():
            _stop(f"there is no library {library}")
        _say(f"takes the library {library}")
        return library
    options = _setting(settings, "configure", "ABLATE_CONFIGURE").split()
    if _configured() and not options:
        if _current():
            _say(f"takes the library that is built in {TOP}")
            return TOP / "libablate.so"
        if os.access(TOP, os.W_OK):
            _say(f"builds the library in {TOP}, as it is configured; ABLATE_CONFIGURE=--without-cuda builds another "
                 "one, without CUDA")
            return _make(TOP)
    build = _configure(folder, options)
    if "#define HAVE_CUDA 1" not in (build / "config.h").read_text():
        _say("builds the library without CUDA, which takes half a minute on 2 processors")
    else:
        _say("builds the library with its CUDA kernels, which takes 6 minutes on 2 processors and 80 seconds on "
             "16; ABLATE_CONFIGURE=--without-cuda leaves them out")
    return _make(build)


def _check(library):
    """Can the package load it?  (In another process, which may crash.)"""
    script = ("import sys, types; p = types.ModuleType('ablate'); p.__path__ = [sys.argv[1]]\n"
              "sys.modules['ablate'] = p\n"
              "try: import ablate._library\n"
              "except Exception as error: sys.exit(str(error))")
    process = subprocess.run([sys.executable, "-B", "-c", script, PYTHON / "ablate"], text=True, check=False,
                             capture_output=True, env={**os.environ, "ABLATE_LIBRARY": str(library.resolve())})
    if process.returncode:
        last = (process.stderr.strip().splitlines() or [f"status {process.returncode}"])[-1]
        _stop(f"the package cannot use the library {library}: {last}")


# ---- hooks ----

@contextlib.contextmanager
def _staged():
    """Work in a copy of the package: the source may be read-only, and setuptools writes into it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "python"
        shutil.copytree(PYTHON, copy, ignore=shutil.ignore_patterns(*LEFT))
        for path in [copy, *copy.rglob("*")]:
            path.chmod(path.stat().st_mode | 0o200)
        before = os.getcwd()
        os.chdir(copy)
        try:
            yield copy
        finally:
            os.chdir(before)


def get_requires_for_build_wheel(config_settings=None):
    with _staged():
        return build_meta.get_requires_for_build_wheel()


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    metadata_directory = os.path.abspath(metadata_directory)
    with _staged():
        return build_meta.prepare_metadata_for_build_wheel(metadata_directory)


get_requires_for_build_editable = get_requires_for_build_wheel
prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def _put(library, place):
    place.mkdir(exist_ok=True)
    copy = place / "new"
    shutil.copy(library.resolve(), copy)
    subprocess.run(["strip", "--strip-unneeded", copy], check=False)
    copy.replace(place / "libablate.so")  # a process that has the old one keeps it


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """A wheel with the library in it."""
    wheel_directory = os.path.abspath(wheel_directory)
    with tempfile.TemporaryDirectory() as folder:
        library = _library(config_settings, folder)
        _check(library)
        with _staged() as copy:
            _put(library, copy / "ablate" / "_lib")
            return build_meta.build_wheel(wheel_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """The package in the source itself, with the library put beside its modules: that of the source by a link,
    so that make renews it."""
    wheel_directory = os.path.abspath(wheel_directory)
    if not os.access(PYTHON / "ablate", os.W_OK):
        _stop(f"an editable installation puts the library into {PYTHON}/ablate, which cannot be written; "
              "install without -e")
    with tempfile.TemporaryDirectory() as folder:
        library = _library(config_settings, folder)
        _check(library)
        place = PYTHON / "ablate" / "_lib"
        _put(library, place)
        if library.parent == TOP:
            (place / "libablate.so").unlink()
            (place / "libablate.so").symlink_to(library)
    before = os.getcwd()
    os.chdir(PYTHON)
    try:
        return build_meta.build_editable(wheel_directory)
    finally:
        os.chdir(before)


def build_sdist(sdist_directory, config_settings=None):
    """The tarball of `make dist`."""
    with tempfile.TemporaryDirectory() as folder:
        build = _configure(folder, ["--without-cuda"])
        _run(["make", "dist"], build)
        tarball = next(build.glob("ablate-*.tar.gz"))
        shutil.copy(tarball, sdist_directory)
        return tarball.name
