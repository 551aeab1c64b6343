/* Statistics of several seeds (statistics.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/philox.h"
#include "common/statistics/statistics.h"

/* ---- values in order ---- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double sum_of(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

/* The sum of those in places `from` to `to` of x in order, over their number. */
static double mean_between(const double *x, int n, int from, int to)
{
    double few[64], *sorted = n > 64 ? malloc((size_t)n * sizeof *x) : few;

    if (!sorted)
        return NAN;
    memcpy(sorted, x, (size_t)n * sizeof *x);
    qsort(sorted, (size_t)n, sizeof *x, by_value);
    const double mean = sum_of(sorted + from, to - from) / (to - from);
    if (sorted != few)
        free(sorted);
    return mean;
}

double interquartile_mean(const double *x, int n)
{
    return mean_between(x, n, n / 4, n - n / 4);
}

double plain_mean(const double *x, int n)
{
    return mean_between(x, n, 0, n);
}

double median_of(const double *x, int n)
{
    return mean_between(x, n, (n - 1) / 2, n / 2 + 1);
}

/* ---- the normal distribution ---- */

static double normal_below(double z)
{
    return erfc(-z / M_SQRT2) / 2;
}

/* The z below which a share of the normal distribution lies: Acklam's rational approximation, 1e-9 off, and a step of
 * Halley's method. */
static double normal_quantile(double share)
{
    static const double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,
                               -2.759285104469687e+02, 1.383577518672690e+02,
                               -3.066479806614716e+01, 2.506628277459239e+00},
                        b[] = {-5.447609879822406e+01, 1.615858368580409e+02,
                               -1.556989798598866e+02, 6.680131188771972e+01,
                               -1.328068155288572e+01, 1},
                        c[] = {-7.784894002430293e-03, -3.223964580411365e-01,
                               -2.400758277161838e+00, -2.549732539343734e+00,
                               4.374664141464968e+00,  2.938163982698783e+00},
                        d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00,
                               3.754408661907416e+00, 1};
    const double tail = share < 0.5 ? share : 1 - share, middle = share - 0.5, r = middle * middle;
    double z;

    if (share <= 0 || share >= 1)
        return share <= 0 ? -INFINITY : INFINITY;
    if (tail < 0.02425) {
        const double q = sqrt(-2 * log(tail));
        z = (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
            ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + d[4]);
        z = share < 0.5 ? z : -z;
    } else {
        z = (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * middle /
            (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + b[5]);
    }
    const double e = normal_below(z) - share, u = e * sqrt(2 * M_PI) * exp(z * z / 2);
    return z - u / (1 + z * u / 2);
}

/* ---- bootstrap ---- */

/* The i-th word of a sequence. */
static uint32_t word_of(uint64_t seed, uint64_t sequence, uint64_t i)
{
    const struct philox counter = {
        {(uint32_t)(i >> 2), (uint32_t)(i >> 34), (uint32_t)sequence, (uint32_t)(sequence >> 32)}};
    return philox4x32(counter, (uint32_t)seed, (uint32_t)(seed >> 32)).word[i & 3];
}

enum { SEQUENCE_SIGNS = 1, SEQUENCE_RESAMPLES };

/* The value below which a share of n values in order lies. */
static double quantile(const double *sorted, int n, double share)
{
    const double at = share * (n - 1);
    const int i = (int)at < n - 1 ? (int)at : n - 1, next = i + 1 < n ? i + 1 : i;
    return sorted[i] + (at - i) * (sorted[next] - sorted[i]);
}

/* The acceleration: the skewness of the statistic with one value left out. */
static double acceleration(const double *x, int n, double (*statistic)(const double *x, int n),
                           double *left, double *without)
{
    double squares = 0, cubes = 0;

    for (int i = 0; i < n; i++) {
        memcpy(left, x, (size_t)i * sizeof *x);
        memcpy(left + i, x + i + 1, (size_t)(n - 1 - i) * sizeof *x);
        without[i] = statistic(left, n - 1);
    }
    const double mean = sum_of(without, n) / n;
    for (int i = 0; i < n; i++) {
        const double off = mean - without[i];
        squares += off * off;
        cubes += off * off * off;
    }
    return squares > 0 ? cubes / (6 * squares * sqrt(squares)) : 0;
}

static const double SHARES[] = {0.025, 0.975};

static void intervals(const double *sorted, double z0, double a, struct bootstrap *to)
{
    double bca[2];

    for (int side = 0; side < 2; side++) {
        const double z = z0 + normal_quantile(SHARES[side]);
        bca[side] = quantile(sorted, RESAMPLES, normal_below(z0 + z / (1 - a * z)));
    }
    to->bca = (struct interval){bca[0], bca[1]};
    to->percentile = (struct interval){quantile(sorted, RESAMPLES, SHARES[0]),
                                       quantile(sorted, RESAMPLES, SHARES[1])};
}

int bootstrap(const double *x, int n, double (*statistic)(const double *x, int n), uint64_t seed,
              struct bootstrap *to)
{
    double *found = malloc((RESAMPLES + 2 * (size_t)n) * sizeof *found);
    const double value = statistic(x, n);
    double below = 0;

    if (!found)
        return err_set("no memory for %d resamples", RESAMPLES);
    double *drawn = found + RESAMPLES, *without = drawn + n;
    for (int r = 0; r < RESAMPLES; r++) {
        for (int i = 0; i < n; i++)
            drawn[i] = x[(uint64_t)word_of(seed, SEQUENCE_RESAMPLES,
                                           (uint64_t)r * (uint64_t)n + (uint64_t)i) *
                             (uint64_t)n >>
                         32];
        found[r] = statistic(drawn, n);
        below += found[r] < value ? 1 : found[r] == value ? 0.5 : 0;
    }
    qsort(found, RESAMPLES, sizeof *found, by_value);
    const double a = n > 1 ? acceleration(x, n, statistic, drawn, without) : 0;
    const double share = fmin(fmax(below, 0.5), RESAMPLES - 0.5) / RESAMPLES;
    intervals(found, normal_quantile(share), a, to);
    free(found);
    return 0;
}

/* ---- shares and signs ---- */

struct interval wilson(int k, int n)
{
    const double z = normal_quantile(0.975), share = (double)k / n, more = z * z / n;
    const double middle = share + more / 2,
                 off = z * sqrt(share * (1 - share) / n + more / (4 * n));

    return (struct interval){k == 0 ? 0 : (middle - off) / (1 + more),
                             k == n ? 1 : (middle + off) / (1 + more)};
}

/* Sums that differ by roundings of the n terms alone are alike. */
static double least_of_alike(const double *d, int n)
{
    double size = 0;
    for (int i = 0; i < n; i++)
        size += fabs(d[i]);
    return fabs(sum_of(d, n)) - size * n * 0x1p-52;
}

static double signed_sum(const double *d, int n, uint64_t minus)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += minus >> i & 1 ? -d[i] : d[i];
    return sum;
}

static double all_signs(const double *d, int n)
{
    enum { LOW = SIGNS_EXACT / 2 };
    const double least = least_of_alike(d, n);
    const int low =
        n - 1 < LOW ? n - 1
                    : LOW; /* the other half of all ways has the same sums with the other sign */
    const uint64_t lows = (uint64_t)1 << low, highs = (uint64_t)1 << (n - 1 - low);
    double sum[1 << LOW];
    uint64_t as_far = 0;

    for (uint64_t way = 0; way < lows; way++)
        sum[way] = signed_sum(d, low, way);
    for (uint64_t way = 0; way < highs; way++) {
        const double high = d[n - 1] + signed_sum(d + low, n - 1 - low, way);
        for (uint64_t i = 0; i < lows; i++)
            as_far += fabs(high + sum[i]) >= least;
    }
    return (double)as_far / (double)(lows * highs);
}

static double drawn_signs(const double *d, int n, uint64_t seed)
{
    const double least = least_of_alike(d, n);
    uint64_t as_far = 1, at = 0;

    for (int way = 0; way < SIGN_DRAWS - 1; way++) {
        double sum = 0;
        uint32_t signs = 0;
        for (int i = 0; i < n; i++, signs >>= 1) {
            if (i % 32 == 0)
                signs = word_of(seed, SEQUENCE_SIGNS, at++);
            sum += signs & 1 ? -d[i] : d[i];
        }
        as_far += fabs(sum) >= least;
    }
    return (double)as_far / SIGN_DRAWS;
}

double sign_flip(const double *difference, int n, uint64_t seed)
{
    return n <= SIGNS_EXACT ? all_signs(difference, n) : drawn_signs(difference, n, seed);
}

double sign_flip_least(int n)
{
    return n <= SIGNS_EXACT ? ldexp(1, 1 - n) : 1.0 / SIGN_DRAWS;
}

/* ---- several tests ---- */

void holm(const double *p, double *adjusted, int n)
{
    double largest = 0;

    for (int i = 0; i < n; i++)
        adjusted[i] = NAN;
    for (int rank = 0; rank < n; rank++) {
        int least = -1;
        for (int i = 0; i < n; i++)
            if (isnan(adjusted[i]) && (least < 0 || p[i] < p[least]))
                least = i;
        largest = fmax(largest, fmin(1, (n - rank) * p[least]));
        adjusted[least] = largest;
    }
}
