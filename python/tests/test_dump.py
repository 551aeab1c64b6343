"""Dumps of many trials, and with what other programs may have left in them."""

import subprocess
import sys
import time

import numpy as np
import pytest

import ablate
from ablate._case import Case
from ablate._library import call

h5py = pytest.importorskip("h5py")

TEXTS = h5py.string_dtype()
ODD = {
    "fixed": np.array([b"x" * 300] * 2), "numbers": np.arange(2), "a number": 7, "a text": "abc",
    "a long fixed text": np.bytes_(b"y" * 5000), "many texts": np.array(["a"] * 50, TEXTS),
    "one text": np.array(["a"], TEXTS), "nothing": h5py.Empty("f"), "reals": np.ones((3, 3)),
    "lists": np.array([np.arange(3, dtype=np.int32), np.arange(5, dtype=np.int32)], object),
    "records": np.zeros(2, [("a", "i4"), ("b", "f8")]),
}


def written(file):
    case = Case("silu rows=2 dim=3")
    call("abl_write", str(file), case, None, 0, None)
    return file


@pytest.mark.parametrize("name", ["DIMENSION_LABELS", "CLASS", "NAME", "DIMENSION_LIST",
                                  "REFERENCE_LIST"])
def test_odd_attributes_of_axes(name, tmp_path):
    """A dataset with them is read, or an error says why; nothing crashes."""
    files = []
    for i, (kind, value) in enumerate(ODD.items()):
        files.append(str(written(tmp_path / f"{i}.h5")))
        with h5py.File(files[-1], "r+") as file:
            attributes = file["trial/0001/in/x"].attrs
            if name in attributes:
                del attributes[name]
            attributes.create(name, value,
                              dtype=h5py.vlen_dtype(np.int32) if kind == "lists" else None)
    read = ("import sys, ablate\n"
            "for file in sys.argv[1:]:\n"
            "    trial = ablate.open(file).trials[0]\n"
            "    try:\n"
            "        for group in trial.groups:\n"
            "            for array in trial.tensors(group).values(): print(array.shape, array.axes)\n"
            "    except ablate.Error as error: print(error)\n")
    done = subprocess.run([sys.executable, "-c", read, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(2, 3)") >= len(files)


def test_opening_takes_time_by_the_number_of_trials(tmp_path):
    seconds = []
    for n in (100, 1600):
        file = written(tmp_path / f"{n}.h5")
        with h5py.File(file, "r+") as h5:
            for i in range(2, n + 1):
                h5.copy(h5["trial/0001"], h5["trial"], name=f"{i:04d}", without_attrs=False)
        begin = time.process_time()
        assert len(ablate.open(file).trials) == n
        seconds.append(time.process_time() - begin)
    assert seconds[1] < 3 * 16 * seconds[0]
