"""ablate.program: a text of calls as an operation; its results are those of its calls, one after the other."""

import numpy as np
import pytest

import ablate

TEXT = """
vocabulary = 7
width = 6
rows = 5
token  [rows]
target [rows]
x = embedding token
y = rmsnorm x
logits = linear y W=x.E
loss = cross_entropy logits target
output logits
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "small.model"
    path.write_text(TEXT)
    return path


def given(dtype=np.float64):
    random = np.random.default_rng(1)
    return {"token": np.array([0, 3, 3, 6, 1]), "target": np.array([1, 2, 0, 6, 6]),
            "x.E": random.normal(size=(7, 6)).astype(dtype), "y.w": random.normal(size=6).astype(dtype)}


def by_calls(a):
    x = ablate.op("embedding")(token=a["token"], E=a["x.E"]).y
    y = ablate.op("rmsnorm")(x=x, w=a["y.w"]).y
    logits = ablate.op("linear")(x=y, W=a["x.E"]).y
    loss = ablate.op("cross_entropy")(logits=logits, target=a["target"]).loss
    return logits, loss


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_bits_of_its_calls(file, dtype):
    a = given(dtype)
    found = ablate.program(file)(**a)
    logits, loss = by_calls(a)
    assert np.array_equal(found["logits"], logits) and np.array_equal(found["loss"], loss)


@pytest.mark.parametrize("name", ["x.E", "y.w"])
def test_gradients_by_differences(file, name):
    a, step = given(), 1e-6
    found = ablate.program(file)(**a, d_loss=np.ones(1))["d_" + name]
    direction = np.random.default_rng(2).normal(size=a[name].shape)
    ends = [by_calls({**a, name: a[name] + s * step * direction})[1][0] for s in (1, -1)]
    assert np.sum(found * direction) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-7)


def test_sizes_follow_from_arrays(file):
    a = given()
    found = ablate.program(file)(**{**a, "x.E": a["x.E"][:, :4].copy(), "y.w": a["y.w"][:4].copy(),
                                    "token": a["token"][:3], "target": a["target"][:3]})
    assert found["logits"].shape == (3, 7)


def test_a_changed_file_is_read_again(file):
    assert "recompute" in ablate.program(file).parameters
    file.write_text(TEXT.replace("width = 6", "width = 3"))
    a = given()
    with pytest.raises(ablate.Error, match="x.E"):
        ablate.program(file, width=3)(**a)


@pytest.mark.parametrize("old, new, message", [
    ("rmsnorm x", "rmsnrm x", r"small.model:8: there is no operation rmsnrm; rmsnorm is one"),
    ("W=x.E", "W=x.F", r"small.model:9: there is no tensor x.F"),
    ("target [rows]", "target [columns]", r"small.model:6: target: columns is no size"),
])
def test_what_is_wrong_has_its_line(file, old, new, message):
    file.write_text(TEXT.replace(old, new))
    with pytest.raises(ablate.Error, match=message):
        ablate.program(file)


def test_files_that_are_none(tmp_path):
    with pytest.raises(ablate.Error, match="no.model: No such file"):
        ablate.program(tmp_path / "no.model")
    (tmp_path / "bytes.model").write_bytes(b"x\0y")
    with pytest.raises(ablate.Error, match="bytes.model: is no text"):
        ablate.program(tmp_path / "bytes.model")
    with pytest.raises(ablate.Error, match="has blanks"):
        ablate.program("a b.model")


def test_judged(file):
    words = f"program={file} rows=4"
    a = ablate.draw(words)
    found = ablate.program(file, rows=4)(**a.inputs, **a.upstream)
    assert ablate.judge_results(words, a.inputs, dict(found), upstream=a.upstream).ok
    wrong = {**dict(found), "logits": found["logits"] * 1.01}
    assert not ablate.judge_results(words, a.inputs, wrong, upstream=a.upstream).ok


def test_a_file_that_has_changed_is_no_other_function(file):
    a, op = given(), ablate.program(file)
    assert op(**a)
    file.write_text(TEXT.replace("rmsnorm x", "rmsnorm x eps=0.5"))
    with pytest.raises(ablate.Error, match="another text"):
        op(**a)
    file.unlink()
    with pytest.raises(ablate.Error, match="No such file"):
        op(**a)
