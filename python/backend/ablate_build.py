"""The build backend: setuptools', with the library put into the package.

The library is the one that the environment variable ABLATE_LIBRARY or the setting `library` of the
frontend names (pip install --config-settings library=FILE ./python).  Otherwise the source around
this folder is configured and made in a folder of its own; ABLATE_CONFIGURE has options for that.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile

from setuptools import build_meta
from setuptools.build_meta import (get_requires_for_build_wheel, prepare_metadata_for_build_wheel)

PYTHON = pathlib.Path(__file__).resolve().parent.parent
TOP = PYTHON.parent
os.chdir(PYTHON)  # of the tarball of `make dist`, pip calls the backend in the folder above

__all__ = ["build_editable", "build_sdist", "build_wheel", "get_requires_for_build_editable",
           "get_requires_for_build_wheel", "prepare_metadata_for_build_editable",
           "prepare_metadata_for_build_wheel"]
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable


def _run(command, folder):
    try:
        subprocess.run(command, cwd=folder, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"ablate: {' '.join(map(str, command))}: {error}; ./install-deps in the "
                         "source installs what is needed, and ABLATE_LIBRARY can name a library "
                         "that is there") from None


def _made(folder):
    """The library, built from the source."""
    if not (TOP / "configure").exists():
        raise SystemExit(f"ablate: there is no {TOP}/configure to build the library with; name one "
                         "that is there by ABLATE_LIBRARY")
    options = os.environ.get("ABLATE_CONFIGURE", "").split()
    _run([TOP / "configure", "-q", *options], folder)
    _run(["make", f"-j{os.cpu_count() or 1}", "libablate.so"], folder)
    return pathlib.Path(folder) / "libablate.so"


def _with_library(settings, build):
    """Do `build` while the library is in the package."""
    named = (settings or {}).get("library") or os.environ.get("ABLATE_LIBRARY")
    place = PYTHON / "ablate" / "_lib"
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(named) if named else _made(folder)
        if not library.is_file():
            raise SystemExit(f"ablate: there is no library {library}")
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(PYTHON / "build", ignore_errors=True)
        place.mkdir()
        try:
            shutil.copy(library.resolve(), place / "libablate.so")
            subprocess.run(["strip", "--strip-unneeded", place / "libablate.so"], check=False)
            return build()
        finally:
            shutil.rmtree(place, ignore_errors=True)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """A wheel with the library in it."""
    return _with_library(config_settings, lambda: build_meta.build_wheel(
        wheel_directory, None, metadata_directory))


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """For an editable installation ABLATE_LIBRARY names the library when it is used."""
    return build_meta.build_editable(wheel_directory, None, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    """The tarball of `make dist`."""
    with tempfile.TemporaryDirectory() as folder:
        _run([TOP / "configure", "-q", "--without-cuda"], folder)
        _run(["make", "dist"], folder)
        tarball = next(pathlib.Path(folder).glob("ablate-*.tar.gz"))
        shutil.copy(tarball, sdist_directory)
        return tarball.name
