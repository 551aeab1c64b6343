"""Dumps of many trials, and with what other programs may have left in them."""

import html.parser
import math
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import ablate
from ablate import _dump
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


def test_a_table_is_one_read(tmp_path, monkeypatch):
    """Dump.table() asks the library once for each table of a trial, however many columns and rows."""
    for n in (1, 5):
        file = written(tmp_path / f"{n}.h5")
        with h5py.File(file, "r+") as h5:
            rows = np.zeros(100, [(c, TEXTS) for c in "backend kernel check tensor verdict pass".split()]
                            + [(c, "f8") for c in "error bound median".split()])
            for name in "backend", "kernel", "check", "tensor", "verdict", "pass":
                rows[name] = "x"
            for name in "check", "time":
                h5["trial/0001"].create_dataset(name, data=rows)
            for i in range(2, n + 1):
                h5.copy(h5["trial/0001"], h5["trial"], name=f"{i:04d}")
        monkeypatch.setitem(sys.modules, "pandas", None)
        dump, calls = ablate.open(file), []
        with monkeypatch.context() as patch:
            patch.setattr(_dump, "call", lambda *a: calls.append(a[0]) or call(*a))
            table = dump.table()
        assert [row["checks"] for row in table] == [100] * n
        assert len(calls) == 2 * n, calls


def test_the_cells_of_a_table(tmp_path):
    """All that h5py reads, exactly; more text than fits at once."""
    columns = {"a text": TEXTS, "real": "f8", "short": "f4", "whole": "i8", "seed": "u8", "byte": "u1",
               "another": TEXTS}
    values = [("", np.nan, 0.1, -2**63, 2**64 - 1, 255, "a\nb\t"), ("ü" * 9000, np.inf, -0.0, 0, 0, 0, ""),
              ("x", 5e-324, 1e-45, 2**53 + 1, 2**53 + 1, 1, "ü"), ("", -np.inf, 1 / 3, -1, 1, 7, " ")]
    file = written(tmp_path / "cells.h5")
    with h5py.File(file, "r+") as h5:
        h5["trial/0001"].create_dataset("check", data=np.array(values, list(columns.items())))
        h5["trial/0001"].create_dataset("time", data=np.zeros(0, list(columns.items())))
    trial, = ablate.open(file).trials
    with h5py.File(file) as h5:
        want = [{n: v.decode() if isinstance(v, bytes) else v.item() for n, v in zip(columns, row)}
                for row in h5["trial/0001/check"][:]]
    assert repr(list(trial.verdicts)) == repr(want) and trial.times == []


@pytest.mark.parametrize("kind, sentence", [
    ("S9", "texts of a fixed length"), ("?", "neither texts nor numbers"),
    (("i4", 3), "neither texts nor numbers"), ([("b", "i4")], "neither texts nor numbers")])
def test_columns_of_other_types(kind, sentence, tmp_path):
    file = written(tmp_path / "odd.h5")
    with h5py.File(file, "r+") as h5:
        h5["trial/0001"].create_dataset("check", data=np.zeros(2, [("n", "i4"), ("a", kind)]))
    with pytest.raises(ablate.Error, match=f"0001/check: column a has {sentence}$"):
        ablate.open(file).trials[0].verdicts


NO_TABLES = {
    "whole numbers": np.arange(5), "a number": 7, "a text": "abc", "nothing": h5py.Empty("f"),
    "records of two axes": np.zeros((2, 2), [("a", "i4")]), "one record": np.zeros((), [("a", "i4")]),
    "a group": None,
}


@pytest.mark.parametrize("table", ["check", "time"])
@pytest.mark.parametrize("what", NO_TABLES)
def test_what_is_no_table(table, what, tmp_path):
    """Where a table is to be, a sentence says what it is not: here, in a judgement, in reports."""
    if not PROGRAM:
        pytest.skip("ABLATE_PROGRAM is not set")
    file = written(tmp_path / "odd.h5")
    with h5py.File(file, "r+") as h5:
        h5["trial/0001/mine/y"] = h5["trial/0001/in/x"][...]
        if what == "a group":
            h5["trial/0001"].create_group(table)
        else:
            h5["trial/0001"].create_dataset(table, data=NO_TABLES[what])
    sentence = f"{table}: not a table of rows with named columns"
    judges = table == "check" and what != "a group"  # results may not stand in a group of that name
    for words in ["--report"], ["--summary"], *[["judge"]] * judges:
        done = subprocess.run([PROGRAM, *words, "odd.h5"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 2 and f"odd.h5: trial 1: {sentence}\n" in done.stdout + done.stderr
    trial, = ablate.open(file).trials
    for read in (lambda: trial.verdicts if table == "check" else trial.times), ablate.open(file).table:
        with pytest.raises(ablate.Error) as error:
            read()
        assert str(error.value) == f"{file}:/trial/0001/{sentence}"


def test_a_table_of_other_columns(tmp_path):
    for kind, sentence in ("i4", "backend of texts"), (TEXTS, "error of numbers"):
        file = written(tmp_path / f"{sentence}.h5")
        with h5py.File(file, "r+") as h5:
            names = "backend", "kernel", "check", "tensor", "verdict", "error", "bound"
            h5["trial/0001"].create_dataset("check", data=np.full(2, 1 if kind == "i4" else "x", [(n, kind) for n in names]))
        with pytest.raises(ablate.Error, match=f"0001/check: there is no column {sentence}$"):
            ablate.open(file).table()
        assert len(ablate.open(file).trials[0].verdicts) == 2


PROGRAM = os.environ.get("ABLATE_PROGRAM", "")
WORDS = ("e74_cell steps=4 batch=2 n_state=3 state=full,diagonal seed=1,2,3 repeats=2 "
         "checks=differences,properties")


@pytest.fixture
def seeds(tmp_path):
    """A dump of two states and three seeds."""
    if not PROGRAM:
        pytest.skip("ABLATE_PROGRAM is not set")
    subprocess.run([PROGRAM, "-t", WORDS, "-o", tmp_path / "seeds.h5"], check=True,
                   capture_output=True)
    return tmp_path / "seeds.h5"


def records(file, monkeypatch):
    """Its table, as where pandas is not there."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    return ablate.open(file).table()


class Table(html.parser.HTMLParser):
    """Cells of an HTML table; other elements than a table's are an error."""

    def __init__(self, source):
        super().__init__()
        self.open, self.rows, self.marked = [], [], []
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        assert tag in ("table", "caption", "thead", "tbody", "tr", "th", "td"), tag
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
            self.marked.append(bool(attributes))
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("th", "td"):
            self.rows[-1][-1] += data


def test_a_row_for_each_trial_and_backend(seeds, monkeypatch):
    table = records(seeds, monkeypatch)
    rows = [r for r in table if r["backend"].startswith("ref")]
    assert [(r["trial"], r["backend"]) for r in rows] == [
        (f"{i:04d}", b) for i in range(1, 7) for b in ("ref64", "ref32")]
    assert {(r["state"], r["seed"], r["dtype"], r["input"], r["kernel"], r["op"]) for r in rows} == {
        (s, n, "fp32", "normal", "plain", "e74_cell") for s in ("full", "diagonal") for n in (1, 2, 3)}
    trials = {t.name: t for t in ablate.open(seeds).trials}
    for r in rows:
        trial = trials[r["trial"]]
        checks = [v for v in trial.verdicts if v["backend"] == r["backend"]]
        assert r["checks"] == len(checks) > 0 and r["failed"] == r["unjudged"] == 0
        worst = max((v for v in checks if v["bound"] > 0), key=lambda v: v["error"] / v["bound"],
                    default=None)
        if worst:
            assert (r["error"], r["bound"], r["tensor"]) == (
                worst["error"], worst["bound"], worst["tensor"])
            assert r["ratio"] == worst["error"] / worst["bound"]
        else:
            assert math.isnan(r["ratio"]) and r["backend"] == "ref32"
        for which in ("forward", "backward"):
            time_row, = [t for t in trial.times if (t["backend"], t["pass"]) == (r["backend"], which)]
            assert r[which] == time_row["median"] > 0
            assert r["saved_bytes"] == time_row["saved_bytes"] > 0
        assert r["line"] == trial.words and trial.attributes["complete"] == 1


def test_the_table_prints(seeds, monkeypatch):
    table = records(seeds, monkeypatch)
    lines = str(table).splitlines()
    assert max(map(len, lines)) < 400 and sum(" ref64 " in line for line in lines) == 6
    assert "steps=4" in " ".join(lines[:5]) and lines == repr(table).splitlines()
    rows = Table(table._repr_html_()).rows
    assert {"trial", "state", "seed", "backend", "ratio", "forward"} <= set(rows[0])
    assert len(rows) == 1 + len(table)
    forward = rows[1][rows[0].index("forward")].split()
    scale = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1}[forward[1]]
    assert math.isclose(float(forward[0]) * scale, table[0]["forward"], rel_tol=6e-3)


def test_names_of_other_programs_are_text(tmp_path, monkeypatch):
    if not PROGRAM:
        pytest.skip("ABLATE_PROGRAM is not set")
    file, name = tmp_path / "given.h5", 'a"<b>,c'
    subprocess.run([PROGRAM, "--inputs", "softmax rows=5 columns=7", "-o", file],
                   check=True, capture_output=True)
    with h5py.File(file, "r+") as h5:
        h5[f"trial/0001/{name}/y"] = h5["trial/0001/in/x"][...]
    assert subprocess.run([PROGRAM, "judge", file], capture_output=True).returncode == 1
    with h5py.File(file, "r+") as h5:
        h5["trial/0001"].attrs["kernel"] = "warp"
    row, = records(file, monkeypatch)
    assert (row["backend"], row["kernel"], row["setting_kernel"]) == (name, "given", "warp")
    assert row["failed"] == 1 and row["ratio"] > 1 and math.isnan(row["forward"])
    for source in (records(file, monkeypatch), ablate.open(file).trials[0].verdicts):
        table = Table(source._repr_html_())
        assert table.marked == [False, True]
        assert table.rows[1][table.rows[0].index("backend")] == name
        assert name in str(source)


def test_a_dump_without_checks_and_times(tmp_path, monkeypatch):
    row, = records(written(tmp_path / "inputs.h5"), monkeypatch)
    assert row["op"] == "silu" and row["checks"] == 0 and row["backend"] == ""


def test_the_earlier_schema(monkeypatch):
    file = os.path.join(os.path.dirname(__file__), "../../tests/ablate-1.h5")
    if not os.path.exists(file):
        pytest.skip("tests/ablate-1.h5 is not there")
    assert any(r["forward"] > 0 for r in records(file, monkeypatch))


def test_a_data_frame(seeds):
    pandas = pytest.importorskip("pandas")
    frame = ablate.open(seeds).table()
    assert isinstance(frame, pandas.DataFrame) and frame.index.name == "trial"
    mean = frame[frame.backend == "ref64"].groupby("state")["ratio"].mean()
    assert set(mean.index) == {"full", "diagonal"} and (mean > 0).all()


def test_verdicts_in_a_notebook():
    def wrong(x):
        return 2 * np.asarray(x)

    verdicts = ablate.judge(wrong, "silu rows=2 dim=3")
    table = Table(verdicts._repr_html_())
    assert table.rows[0] == ["check", "tensor", "error", "bound", "distance", "sees", "verdict",
                             "note"]
    assert len(table.rows) == 1 + len(verdicts) and not verdicts.ok
    assert table.marked[1:] == [v.verdict == "fail" for v in verdicts]
    assert ": not ok, " in verdicts._repr_html_()
    odd = ablate.Verdicts("<b>&", [ablate.Verdict("parity", "<i>", 0.0, 1.0, note='"<u>"')])
    assert Table(odd._repr_html_()).rows[1][1] == "<i>" and "&lt;b&gt;&amp;" in odd._repr_html_()
