"""statistics.py - the statistics of seeds against NumPy's and SciPy's, of the samples that `tests/statistics --values` prints
on stdin.  TAP on stdout.

The resamples of a bootstrap are those of statistics.h, drawn here by Philox in NumPy; quantiles, the normal
distribution and all else are NumPy's and SciPy's."""
import sys

import numpy as np

import tap
from definitions_attention import philox

try:
    from scipy import stats
except ImportError:
    stats = None

RESAMPLES = 10000


def iqm(x, axis=-1):
    return stats.trim_mean(x, 0.25, axis=axis)


def resamples(x, seed=5):
    n = len(x)
    at = np.arange(RESAMPLES * n, dtype=np.uint64)
    counter = np.stack([at >> np.uint64(2), at * 0, at * 0 + np.uint64(2), at * 0], axis=-1)
    word = np.take_along_axis(philox(counter, (seed, 0)), (at % np.uint64(4)).astype(int)[:, None], axis=-1)[:, 0]
    return x[(word * np.uint64(n) >> np.uint64(32)).astype(int)].reshape(RESAMPLES, n)


def bootstrap(x, statistic):
    """Efron and Tibshirani, An introduction to the bootstrap, 14.3."""
    found, value = statistic(resamples(x), axis=-1), statistic(x)
    found = np.where(np.isclose(found, value, rtol=1e-14, atol=0), value, found)
    z0 = stats.norm.ppf(np.mean(found < value) + np.mean(found == value) / 2)
    left = np.array([statistic(np.delete(x, i)) for i in range(len(x))]) if len(x) > 1 else x
    off = left.mean() - left
    a = np.sum(off**3) / (6 * np.sum(off**2) ** 1.5) if np.ptp(left) > 1e-14 else 0
    z = z0 + stats.norm.ppf([0.025, 0.975])
    return [*np.quantile(found, stats.norm.cdf(z0 + z / (1 - a * z))), *np.quantile(found, [0.025, 0.975])]


def holm(p):
    order = np.argsort(p, kind="stable")
    adjusted = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return adjusted[np.argsort(order, kind="stable")]


def signs(d):
    if len(d) == 1:
        return [1.0]
    return [stats.permutation_test((d,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue]


OF = {
    "iqm": lambda x: [iqm(x)],
    "median": lambda x: [np.median(x)],
    "signs": signs,
    "holm": holm,
    "bootstrap_iqm": lambda x: bootstrap(x, iqm),
    "bootstrap_mean": lambda x: bootstrap(x, np.mean),
    "wilson": lambda x: [*stats.binomtest(int(x[0]), int(x[1])).proportion_ci(method="wilson")],
}


def main():
    seen = {name: [0, 0.0, None] for name in OF}
    for line in sys.stdin:
        name, *words = line.split()
        equals = words.index("=")
        x, got = (np.array(w, dtype=float) for w in (words[:equals], words[equals + 1:]))
        if stats is None:
            continue
        want = np.asarray(OF[name](x))
        off = np.max(np.abs(got - want) / np.maximum(1, np.abs(want)))
        seen[name][0] += 1
        if not off <= seen[name][1]:
            seen[name][1:] = off, f"{line.strip()} and not {want}"
    for name, (n, off, note) in seen.items():
        if stats is None:
            tap.skip(f"{name} is SciPy's", "no SciPy")
        else:
            tap.ok(n >= 40 and off <= 1e-9, f"{name} of {n} samples is SciPy's to {off:.1e}", [note])
    tap.done()


main()
