/* Kernels of rmsnorm, layernorm and qk_norm that are wrong (wrong.h). */
#include "common/call/contract.h"
#include "common/ops/norm.h"
#include "ref/wrong/wrong.h"

/* ---- rmsnorm ---- */

WRONG_CALL(rms_no_eps, "eps is left out", g.real[NORM_EPS] = 0);

/* Of a mean square, with eps, the row's divisor; the mean is over so many columns. */
struct rms {
    real (*rstd)(real mean, real eps);
    int64_t columns;
    int add_one; /* to the weight */
};

static int rms_rows(const struct call *f, const struct rms *way)
{
    const struct rmsnorm *a = ARGS(f, rmsnorm);
    const num *x = a->x, *w = a->w;
    num *y = a->y;
    real *rstd = a->rstd;
    const int64_t R = DIM(f, 'R'), N = DIM(f, 'N'), M = way->columns;

    for (int64_t i = 0; i < R; i++) {
        real squares = 0;
        for (int64_t n = 0; n < M; n++)
            squares += load(x[i * N + n]) * load(x[i * N + n]);
        rstd[i] = way->rstd(squares / M, f->real[NORM_EPS]);
        for (int64_t n = 0; n < N; n++)
            y[i * N + n] = store((way->add_one + load(w[n])) * rstd[i] * load(x[i * N + n]));
    }
    return 0;
}

static real inside(real mean, real eps)
{
    return 1 / sqrt(mean + eps);
}

static real outside(real mean, real eps)
{
    return 1 / (sqrt(mean) + eps);
}

static int64_t but_the_last(int64_t N)
{
    return N > 1 ? N - 1 : 1;
}

static int rms_outside(const struct call *f)
{
    return rms_rows(f, &(const struct rms){outside, DIM(f, 'N'), 0});
}
WRONG_PASSES(rms_eps_outside, "eps is added to the root", rms_outside, right_backward);

static int rms_vectors(const struct call *f)
{
    return rms_rows(f, &(const struct rms){inside, whole(DIM(f, 'N'), 8), 0});
}
WRONG_PASSES(rms_columns_lost, "columns behind the last multiple of 8 are not in the mean",
             rms_vectors, right_backward);

static int rms_one_more(const struct call *f)
{
    return rms_rows(f, &(const struct rms){inside, DIM(f, 'N'), 1});
}
WRONG_PASSES(rms_weight_plus_one, "the weight is w + 1, as Gemma's", rms_one_more, right_backward);

/* dx without the part that comes from the mean; f's x or k. */
static void slopes_alone(const num *w, const num *dy, const real *rstd, num *dx, int64_t R,
                         int64_t N)
{
    for (int64_t i = 0; i < R; i++)
        for (int64_t n = 0; n < N; n++)
            dx[i * N + n] = store(rstd[i] * load(w[n]) * load(dy[i * N + n]));
}

static void rms_mean_is_constant_in(const struct call *f)
{
    const struct rmsnorm *a = ARGS(f, rmsnorm), *d = GRADS(f, rmsnorm);
    slopes_alone(a->w, d->y, a->rstd, d->x, DIM(f, 'R'), DIM(f, 'N'));
}
WRONG_AFTER(rms_mean_is_constant, "dx takes the mean square for a constant", BACKWARD,
            rms_mean_is_constant_in);

static void rms_last_row_lost_in(const struct call *f)
{
    const struct rmsnorm *a = ARGS(f, rmsnorm), *d = GRADS(f, rmsnorm);
    const num *x = a->x, *dy = d->y;
    const real *rstd = a->rstd;
    real *dw = d->w;
    const int64_t N = DIM(f, 'N'), i = DIM(f, 'R') - 1;
    for (int64_t n = 0; n < N; n++)
        dw[n] -= load(dy[i * N + n]) * rstd[i] * load(x[i * N + n]);
}
WRONG_AFTER(rms_last_row_lost, "dw has all rows but the last", BACKWARD, rms_last_row_lost_in);

WRONG_KERNELS(rmsnorm, &rms_no_eps, &rms_eps_outside, &rms_columns_lost, &rms_weight_plus_one,
              &rms_mean_is_constant, &rms_last_row_lost);

/* ---- layernorm ---- */

WRONG_CALL(layer_no_eps, "eps is left out", g.real[NORM_EPS] = 0);

static real of_squares(const num *x, int64_t N, real mean)
{
    real squares = 0;
    for (int64_t n = 0; n < N; n++)
        squares += load(x[n]) * load(x[n]);
    return squares / N - mean * mean;
}

static real of_deviations(const num *x, int64_t N, real mean)
{
    real squares = 0;
    for (int64_t n = 0; n < N; n++)
        squares += (load(x[n]) - mean) * (load(x[n]) - mean);
    return squares;
}

static real unbiased(const num *x, int64_t N, real mean)
{
    return of_deviations(x, N, mean) / but_the_last(N);
}

static real biased(const num *x, int64_t N, real mean)
{
    return of_deviations(x, N, mean) / N;
}

static int layer_rows(const struct call *f, real (*variance)(const num *x, int64_t N, real mean),
                      real (*divisor)(real mean, real eps))
{
    const struct layernorm *a = ARGS(f, layernorm);
    const num *w = a->w, *b = a->b;
    num *y = a->y;
    real *mean = a->mean, *rstd = a->rstd;
    const int64_t R = DIM(f, 'R'), N = DIM(f, 'N');

    for (int64_t i = 0; i < R; i++) {
        const num *x = (const num *)a->x + i * N;
        real sum = 0;
        for (int64_t n = 0; n < N; n++)
            sum += load(x[n]);
        mean[i] = sum / N;
        rstd[i] = divisor(variance(x, N, mean[i]), f->real[NORM_EPS]);
        for (int64_t n = 0; n < N; n++)
            y[i * N + n] = store(load(w[n]) * rstd[i] * (load(x[n]) - mean[i]) + load(b[n]));
    }
    return 0;
}

static int layer_squares(const struct call *f)
{
    return layer_rows(f, of_squares, inside);
}
WRONG_PASSES(layer_mean_of_squares, "the variance is E x^2 - (E x)^2", layer_squares,
             right_backward);

static int layer_unbiased(const struct call *f)
{
    return layer_rows(f, unbiased, inside);
}
WRONG_PASSES(layer_divides_by_n_less_1, "the variance is divided by columns - 1", layer_unbiased,
             right_backward);

static int layer_outside(const struct call *f)
{
    return layer_rows(f, biased, outside);
}
WRONG_PASSES(layer_eps_outside, "eps is added to the root", layer_outside, right_backward);

static void layer_mean_is_constant_in(const struct call *f)
{
    const struct layernorm *a = ARGS(f, layernorm), *d = GRADS(f, layernorm);
    const num *w = a->w, *dy = d->y;
    const real *rstd = a->rstd;
    num *dx = d->x;
    const int64_t N = DIM(f, 'N');
    for (int64_t i = 0; i < DIM(f, 'R'); i++) {
        real sum = 0;
        for (int64_t n = 0; n < N; n++)
            sum += load(w[n]) * load(dy[i * N + n]);
        for (int64_t n = 0; n < N; n++)
            dx[i * N + n] = store(load(dx[i * N + n]) + rstd[i] * sum / N);
    }
}
WRONG_AFTER(layer_mean_is_constant, "dx takes the mean for a constant", BACKWARD,
            layer_mean_is_constant_in);

static void layer_dw_of_x_in(const struct call *f)
{
    const struct layernorm *a = ARGS(f, layernorm), *d = GRADS(f, layernorm);
    const num *dy = d->y;
    const real *rstd = a->rstd, *mean = a->mean;
    real *dw = d->w;
    const int64_t N = DIM(f, 'N');
    for (int64_t i = 0; i < DIM(f, 'R'); i++)
        for (int64_t n = 0; n < N; n++)
            dw[n] += load(dy[i * N + n]) * rstd[i] * mean[i];
}
WRONG_AFTER(layer_dw_of_x, "dw is the sum of dy x / deviation, the mean not subtracted", BACKWARD,
            layer_dw_of_x_in);

WRONG_KERNELS(layernorm, &layer_no_eps, &layer_mean_of_squares, &layer_divides_by_n_less_1,
              &layer_eps_outside, &layer_mean_is_constant, &layer_dw_of_x);

/* ---- qk_norm ---- */

WRONG_CALL(qk_no_eps, "eps is left out", g.real[QK_NORM_EPS] = 0);

WRONG_CALL(qk_one_weight, "k has the weight of q",
           g.arg[PLACE(qk_norm, w_k)] = g.arg[PLACE(qk_norm, w_q)]);

static void qk_mean_is_constant_in(const struct call *f)
{
    const struct qk_norm *a = ARGS(f, qk_norm), *d = GRADS(f, qk_norm);
    slopes_alone(a->w_k, d->y_k, a->rstd_k, d->k, DIM(f, 'B') * DIM(f, 'T') * DIM(f, 'G'),
                 DIM(f, 'D'));
}
WRONG_AFTER(qk_mean_is_constant, "d_k takes the mean square for a constant", BACKWARD,
            qk_mean_is_constant_in);

/* Of kv heads in groups, dw_k has the first head alone. */
WRONG_UNLESS(several_kv_heads, DIM(f, 'G') > 1, "one kv head")
static void qk_first_head_in(const struct call *f)
{
    const struct qk_norm *a = ARGS(f, qk_norm), *d = GRADS(f, qk_norm);
    const num *k = a->k, *dy = d->y_k;
    const real *rstd = a->rstd_k;
    real *dw = d->w_k;
    const int64_t D = DIM(f, 'D'), G = DIM(f, 'G');
    for (int64_t i = 0; i < DIM(f, 'B') * DIM(f, 'T') * G; i++)
        for (int64_t n = 0; i % G && n < D; n++)
            dw[n] -= load(dy[i * D + n]) * rstd[i] * load(k[i * D + n]);
}
WRONG_AFTER(qk_first_head, "dw_k is the sum over the first kv head alone", BACKWARD,
            qk_first_head_in, .declines = several_kv_heads);

WRONG_KERNELS(qk_norm, &qk_no_eps, &qk_one_weight, &qk_mean_is_constant, &qk_first_head);
