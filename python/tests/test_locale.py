"""Numbers are C's, whatever locale Python has: it is that of the whole process."""

import locale
import subprocess

import numpy as np
import pytest

import ablate


@pytest.fixture(params=["de_DE", "tr_TR"])
def language(request, tmp_path, monkeypatch):
    """That locale, made here; "C" again afterwards."""
    try:
        subprocess.run(["localedef", "-c", "-i", request.param, "-f", "UTF-8",
                        tmp_path / f"{request.param}.UTF-8"], capture_output=True, check=False)
    except OSError:
        pytest.skip("no localedef")
    was = locale.setlocale(locale.LC_ALL)
    monkeypatch.setenv("LOCPATH", str(tmp_path))
    try:
        locale.setlocale(locale.LC_ALL, f"{request.param}.UTF-8")
    except locale.Error:
        pytest.skip("no locales' sources")
    yield request.param
    monkeypatch.undo()  # the locale of before is not in that folder
    locale.setlocale(locale.LC_ALL, was)


def test_words_functions_and_verdicts(language, tmp_path):
    assert locale.localeconv()["decimal_point"] == ","
    with pytest.raises(ablate.Error, match="has 0.5 at"):
        ablate.op("cross_entropy")(logits=np.ones((2, 3)), target=np.array([0.5, 1]))
    x = np.random.default_rng(1).standard_normal((2, 3))
    words = "softmax rows=2 columns=3 scale=1.5"

    def softmax(x):
        e = np.exp(1.5 * (x - x.max(-1, keepdims=True)))
        return e / e.sum(-1, keepdims=True)
    verdicts = ablate.judge(softmax, words)
    assert verdicts.ok and "scale=1.5" in str(verdicts)
    assert np.allclose(ablate.op("softmax", scale=1.5)(x=x).y, softmax(x), atol=1e-6)
    with pytest.raises(ablate.Error, match="not a decimal number"):
        ablate.judge(softmax, words.replace("1.5", "1,5x"))
    assert locale.localeconv()["decimal_point"] == ","
