"""Products with quantised weights: what must come out, of every kernel that can run here."""

import numpy as np
import pytest

import ablate
from ablate._table import kernels

RUNS = [(b, k) for b, why in ablate.backends().items() if not why
        for k, _ in kernels("gemm_quantised")[b]]
FORMATS = {"q4_k": 256, "q5_k": 256, "q6_k": 256, "q8_0": 32, "nf4": 64}
SINGLE = {"nf4": {"double_quant": "no"}}
N = 20
random = np.random.default_rng(8)


def packed(form, n=N, k=None, w=None):
    """The tensors of W, and its weights."""
    k = k or FORMATS[form]
    w = random.standard_normal((n, k)).astype(np.float32) if w is None else w
    sizes = dict(format=form, dim_out=n, dim_in=k, **SINGLE.get(form, {}))
    W = dict(ablate.op("quantise", **sizes)(w=w, backend="ref32"))
    return W, ablate.op("dequantise", **sizes)(**W, backend="ref32").w


def product(run, form, k, n=N, weights=1, **tensors):
    """y, or d_x where there is a d_y."""
    op = ablate.op("gemm_quantised", format=form, dim_out=n, dim_in=k, weights=weights,
                   **SINGLE.get(form, {}))
    try:
        result = op(backend=run[0], kernel=run[1], **tensors)
    except ablate.Error as error:
        if "declines" in str(error):
            pytest.skip(str(error))
        raise
    return result["d_x"] if "d_y" in tensors else result.y


def rounding(run):
    return 2.0**-8 if run[0].endswith("bf16") else 2.0**-20


def taken(run, x):
    """x as the kernel computes with it: dp4a's is integers times a scale that 32 of them share."""
    x = x.astype(np.float32)
    if run[1] != "dp4a":
        return x.astype(float)
    blocks = x.reshape(-1, 32)
    d = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
    q = np.rint(blocks / np.where(d > 0, d, np.float32(1))).clip(-127, 127)
    return (d.astype(float) * q).reshape(x.shape)


def bf16(x):
    """x cut to what bf16 can store."""
    return (x.astype(np.float32).view(np.uint32) & 0xffff0000).view(np.float32)


each = pytest.mark.parametrize("form", FORMATS)
each_run = pytest.mark.parametrize("run", RUNS, ids="-".join)


@each
@each_run
def test_product_with_one_is_what_the_bytes_stand_for(run, form):
    k = FORMATS[form]
    W, w = packed(form)
    bound = rounding(run) * np.abs(w).max()
    y = np.concatenate([product(run, form, k, x=np.eye(k, dtype=np.float32)[i:i + 64], **W)
                        for i in range(0, k, 64)])
    assert np.abs(y.T - w).max() <= bound
    d_x = product(run, form, k, x=np.zeros((N, k), np.float32), d_y=np.eye(N, dtype=np.float32), **W)
    assert np.abs(d_x - w).max() <= bound


@each_run
def test_q5_k_without_fifth_bits_is_q4_k(run):
    W, _ = packed("q4_k", k=512)
    blocks = W["W"].reshape(-1, 144)
    five = np.concatenate([blocks[:, :16], np.zeros((len(blocks), 32), np.uint8), blocks[:, 16:]], 1)
    x = bf16(random.standard_normal((3, 512)))
    y = product(run, "q4_k", 512, x=x, W=W["W"])
    assert np.array_equal(y, product(run, "q5_k", 512, x=x, W=five.reshape(N, -1)))
    five[:, 16:48] = 255    # 16 d s more for each weight
    more = (product(run, "q5_k", 512, x=x, W=five.reshape(N, -1)) - y).astype(float)
    d = blocks[:, :2].copy().view("<f2").astype(float)
    low, both = blocks[:, 4:8], blocks[:, 12:16]
    s = np.concatenate([low & 63, both & 15 | low >> 6 << 4], 1)
    want = taken(run, x) @ np.repeat(16 * d * s, 32, 1).reshape(N, -1).T
    assert np.abs(more - want).max() <= 16 * rounding(run) * np.abs(want).max()


@each
@each_run
def test_matrices_rows_and_factors(run, form):
    k = 2 * FORMATS[form]
    of = [packed(form, k=k)[0] for _ in range(3)]
    x = random.standard_normal((3, 5, k)).astype(np.float32)
    alone = [product(run, form, k, x=x[i], **of[i]) for i in range(3)]
    together = {name: np.stack([W[name] for W in of]) for name in of[0]}
    assert np.array_equal(product(run, form, k, weights=3, x=x, **together), alone)
    assert np.array_equal(product(run, form, k, x=2 * x[0], **of[0]), 2 * alone[0])
    if form != "nf4":
        order = random.permutation(N)
        y = product(run, form, k, x=x[0], W=of[0]["W"][order])
        if run[1] in ("unfused", "blas"):
            assert np.abs(y - alone[0][:, order]).max() <= rounding(run) * np.abs(y).max()
        else:
            assert np.array_equal(y, alone[0][:, order])


@each
@each_run
def test_a_row_has_the_same_bits_in_any_number_of_rows(run, form):
    """The second half of a row of W is the first again, that of x its negative: y is what rounding leaves."""
    if run[1] in ("unfused", "blas"):
        pytest.skip("its products are BLAS's, which does not promise that")
    n, k = 12, 1280         # five units of 256, so ten
    W, _ = packed(form, n, k)
    W = {name: np.concatenate([t.reshape(n, -1)] * 2, 1).reshape(t.shape[:-1] + (2 * t.shape[-1],))
         for name, t in W.items()}
    x = bf16(random.standard_normal((64, k)))
    x = np.concatenate([x, -x], 1)
    y = product(run, form, 2 * k, n, x=x, **W)
    for rows in (1, 2, 3, 5, 8, 9, 16, 17, 31, 33, 63):
        assert np.array_equal(product(run, form, 2 * k, n, x=x[:rows], **W), y[:rows])
        assert np.array_equal(product(run, form, 2 * k, n, x=x[-rows:], **W), y[-rows:])


@each
@each_run
def test_both_passes_are_one_product(run, form):
    k = FORMATS[form]
    W, _ = packed(form)
    x, d_y = (bf16(random.standard_normal((4, n))) for n in (k, N))
    y = product(run, form, k, x=x, **W).astype(float)
    d_x = product(run, form, k, x=x, d_y=d_y, **W).astype(float)
    size = np.abs(d_y) @ np.abs(y).T
    assert abs((d_y * y).sum() - (d_x * taken(run, x)).sum()) <= 4 * rounding(run) * np.trace(size)


@each
@each_run
def test_sizes_of_x(run, form):
    k = 2 * FORMATS[form]
    W, w = packed(form, k=k)
    x = random.standard_normal((6, k))
    x[1] *= 1e-37           # the reciprocal of a 127th of it is infinite
    x[2, ::40] *= 1e6       # one that is large, 31 that are small
    x[3, 32:] = 0
    x[4] = 0
    x[5, :k // 2] *= 1e-3
    x = bf16(x)
    y = product(run, form, k, x=x, **W)
    of = taken(run, x)
    size = np.abs(of) @ np.abs(w).T
    assert (np.abs(y - of @ w.T.astype(float)) <= 2 * rounding(run) * size).all()
    # smaller than 127 subnormals: 0, or about that
    assert np.abs(product(run, form, k, x=np.full((1, k), 2.0**-133, np.float32), **W)).max() < 1e-36


@each
@each_run
def test_what_is_not_finite_stays_in_its_row(run, form):
    k = 2 * FORMATS[form]
    W, _ = packed(form, k=k)
    x = bf16(random.standard_normal((4, k)))
    y = product(run, form, k, x=x, **W)
    x[1, 3], x[2, k - 1] = np.inf, np.nan
    hard = product(run, form, k, x=x, **W)
    assert np.array_equal(hard[[0, 3]], y[[0, 3]]) or run[1] in ("unfused", "blas")
    assert not np.isfinite(hard[1:3]).any()
    assert np.isnan(hard[1 if run[1] == "dp4a" else 2]).all()


@each
@each_run
def test_sums_of_x_are_not_rounded(run, form):
    """Weights sum up to about nothing, the elements of x do not: minima and sums of x cancel."""
    k = 1024
    w = random.standard_normal((N, k)).astype(np.float32)
    W, w = packed(form, k=k, w=w - w.mean(1, keepdims=True))
    x = bf16(1 + random.random((3, k)) / 4)
    want = taken(run, x) @ w.T.astype(float)
    y = product(run, form, k, x=x, **W)
    table = 2.0**-9 if form == "nf4" and run[1] in ("mma", "unfused") else 0
    decoded = 2.0**-8 if run == ("gpu_bf16", "unfused") else 0
    bound = rounding(run) * np.abs(want) + (2.0**-16 + table + decoded) * (np.abs(x) @ np.abs(w).T)
    assert (np.abs(y - want) <= bound).all()
