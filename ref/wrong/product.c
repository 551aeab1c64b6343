/* Kernels of gemm, gemm_splitk, gemm_batched, gemv, linear, lora that are wrong (wrong.h). */
#include "common/call/contract.h"
#include "common/ops/gemm.h"
#include "common/ops/gemv.h"
#include "common/ops/linear.h"
#include "common/ops/lora.h"
#include "ref/wrong/wrong.h"

/* ---- gemm, gemm_splitk, gemm_batched ---- */

static real element_of_A(const struct call *f, const num *A, int64_t m, int64_t k)
{
    return load(A[f->choice[GEMM_TRANSPOSE_A] ? k * DIM(f, 'M') + m : m * DIM(f, 'K') + k]);
}

static real element_of_B(const struct call *f, const num *B, int64_t k, int64_t n)
{
    return load(B[f->choice[GEMM_TRANSPOSE_B] ? n * DIM(f, 'K') + k : k * DIM(f, 'N') + n]);
}

/* What one element of C is: the sum over these terms of A and B, and what is done with it. */
struct gemm_way {
    real (*sum)(const struct call *f, const num *A, const num *B, int64_t m, int64_t n);
    int64_t rows; /* of a tile of C: where it is not whole, C is 0; 0: no tiles */
};

static int gemm_elements(const struct call *f, const struct gemm_way *way)
{
    const struct gemm *a = ARGS(f, gemm);
    const num *A = a->A, *B = a->B, *C0 = a->C0;
    num *C = a->C;
    const int64_t G = DIM(f, 'G'), M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');
    const real alpha = f->real[GEMM_ALPHA], beta = f->real[GEMM_BETA];

    for (int64_t i = 0; i < G * M * N; i++) {
        const int64_t g = i / (M * N), m = i / N % M, n = i % N;
        const real sum = way->sum(f, A + g * M * K, B + g * K * N, m, n);
        const int lost = way->rows && m >= whole(M, way->rows);
        C[i] = store(lost ? 0 : alpha * sum + (C0 ? beta * load(C0[i]) : 0));
    }
    return 0;
}

static real sum_up_to(const struct call *f, const num *A, const num *B, int64_t m, int64_t n,
                      int64_t K)
{
    real sum = 0;
    for (int64_t k = 0; k < K; k++)
        sum += element_of_A(f, A, m, k) * element_of_B(f, B, k, n);
    return sum;
}

static real sum_of_all(const struct call *f, const num *A, const num *B, int64_t m, int64_t n)
{
    return sum_up_to(f, A, B, m, n, DIM(f, 'K'));
}

static real sum_of_tiles(const struct call *f, const num *A, const num *B, int64_t m, int64_t n)
{
    return sum_up_to(f, A, B, m, n, whole(DIM(f, 'K'), 16));
}

/* A part of K for each of four blocks. */
static real sum_of_parts(const struct call *f, const num *A, const num *B, int64_t m, int64_t n)
{
    return sum_up_to(f, A, B, m, n, whole(DIM(f, 'K'), 4));
}

/* The ten bits of tf32's significand. */
static real tf32(real x)
{
    float y = (float)x;
    uint32_t bits;
    memcpy(&bits, &y, sizeof bits);
    bits = (bits + 0x1000) & ~0x1fffu;
    memcpy(&y, &bits, sizeof y);
    return y;
}

static real sum_in_tf32(const struct call *f, const num *A, const num *B, int64_t m, int64_t n)
{
    real sum = 0;
    for (int64_t k = 0; k < DIM(f, 'K'); k++)
        sum += tf32(element_of_A(f, A, m, k)) * tf32(element_of_B(f, B, k, n));
    return sum;
}

static real sum_in_bf16(const struct call *f, const num *A, const num *B, int64_t m, int64_t n)
{
    float sum = 0;
    for (int64_t k = 0; k < DIM(f, 'K'); k++)
        sum = from_bf16(to_bf16(sum + element_of_A(f, A, m, k) * element_of_B(f, B, k, n)));
    return sum;
}

/* Of 64 parts of K, each rounded before they are added. */
static real parts_in_bf16(const struct call *f, const num *A, const num *B, int64_t m, int64_t n)
{
    const int64_t K = DIM(f, 'K'), part = (K + 63) / 64;
    float all = 0;
    for (int64_t first = 0; first < K; first += part) {
        float sum = 0;
        for (int64_t k = first; k < first + part && k < K; k++)
            sum += element_of_A(f, A, m, k) * element_of_B(f, B, k, n);
        all = from_bf16(to_bf16(all + sum));
    }
    return all;
}

#define GEMM_FORWARD(name, ...)                                                                    \
    static int name(const struct call *f)                                                          \
    {                                                                                              \
        return gemm_elements(f, &(const struct gemm_way){__VA_ARGS__});                            \
    }

GEMM_FORWARD(gemm_tiles, sum_of_tiles, 0)
WRONG_PASSES(gemm_k_tail_lost, "terms behind the last multiple of 16 are not in the sums",
             gemm_tiles, right_backward);

GEMM_FORWARD(gemm_rows, sum_of_all, 16)
WRONG_PASSES(gemm_row_tail_lost, "rows of C behind the last multiple of 16 are 0", gemm_rows,
             right_backward);

GEMM_FORWARD(gemm_rounded, sum_in_tf32, 0)
WRONG_PASSES(gemm_tf32, "A and B are rounded to tf32", gemm_rounded, right_backward,
             .unseen = "bf16: a tf32 holds each bf16");

GEMM_FORWARD(gemm_narrow_sums, sum_in_bf16, 0)
WRONG_PASSES(gemm_bf16_sums, "the sums are rounded to bf16 at each addition", gemm_narrow_sums,
             right_backward);

WRONG_UNLESS(adds_C0, f->real[GEMM_BETA] != 0, "beta = 0")
WRONG_CALL(gemm_no_beta, "C0 is added without beta", g.real[GEMM_BETA] = 1, .declines = adds_C0);

/* C = alpha (A B + beta C0). */
static int gemm_scaled_twice_in(const struct call *f)
{
    struct call g = *f;
    g.real[GEMM_BETA] *= f->real[GEMM_ALPHA];
    return right_forward(&g);
}
WRONG_PASSES(gemm_alpha_times_beta, "C0 is multiplied by alpha as well", gemm_scaled_twice_in,
             right_backward, .declines = adds_C0);

static int gemm_without_alpha(const struct call *f)
{
    struct call g = *f;
    g.real[GEMM_ALPHA] = 1;
    return right_backward(&g);
}
WRONG_PASSES(gemm_no_alpha_back, "the gradients are without alpha", right_forward,
             gemm_without_alpha);

/* dB [K,N] where B is stored as [N,K]. */
static void gemm_untransposed(const struct call *f)
{
    const struct gemm *a = ARGS(f, gemm), *d = GRADS(f, gemm);
    const int64_t M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');

    for (int64_t g = 0; g < DIM(f, 'G'); g++) {
        const num *A = (const num *)a->A + g * M * K, *dC = (const num *)d->C + g * M * N;
        num *dB = (num *)d->B + g * K * N;
        for (int64_t k = 0; k < K; k++)
            for (int64_t n = 0; n < N; n++) {
                real sum = 0;
                for (int64_t m = 0; m < M; m++)
                    sum += element_of_A(f, A, m, k) * load(dC[m * N + n]);
                dB[k * N + n] = store((real)f->real[GEMM_ALPHA] * sum);
            }
    }
}
WRONG_UNLESS(transposes_B, f->choice[GEMM_TRANSPOSE_B], "B is not transposed")
WRONG_AFTER(gemm_dB_untransposed, "dB is not transposed as B is", BACKWARD, gemm_untransposed,
            .declines = transposes_B);

WRONG_KERNELS(gemm, &gemm_k_tail_lost, &gemm_row_tail_lost, &gemm_tf32, &gemm_bf16_sums,
              &gemm_no_beta, &gemm_alpha_times_beta, &gemm_no_alpha_back, &gemm_dB_untransposed);

GEMM_FORWARD(splitk_whole_parts, sum_of_parts, 0)
WRONG_PASSES(splitk_rest_lost, "of K in four parts the remainder is not in the sums",
             splitk_whole_parts, right_backward);

GEMM_FORWARD(splitk_narrow_parts, parts_in_bf16, 0)
WRONG_PASSES(splitk_bf16_parts, "parts of the sums are added in bf16", splitk_narrow_parts,
             right_backward);

/* Each of four blocks adds beta C0. */
static int splitk_beta_each_in(const struct call *f)
{
    struct call g = *f;
    g.real[GEMM_BETA] *= DIM(f, 'K') < 4 ? (double)DIM(f, 'K') : 4;
    return right_forward(&g);
}
WRONG_PASSES(splitk_beta_each, "each of four parts of K adds beta C0", splitk_beta_each_in,
             right_backward, .declines = adds_C0);

WRONG_KERNELS(gemm_splitk, &splitk_rest_lost, &splitk_bf16_parts, &splitk_beta_each, &gemm_no_beta,
              &gemm_no_alpha_back, &gemm_dB_untransposed);

/* All products have the first B, or add the first C0. */
WRONG_UNLESS(several, DIM(f, 'G') > 1, "one product")
static int batched_first_of(const struct call *f, int B, int C0)
{
    for (int64_t g = 0; g < DIM(f, 'G'); g++) {
        const int64_t M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');
        const struct gemm *a = ARGS(f, gemm);
        struct call one = *f;
        DIM(&one, 'G') = 1;
        one.arg[PLACE(gemm, A)] = (num *)a->A + g * M * K;
        one.arg[PLACE(gemm, B)] = (num *)a->B + (B ? 0 : g * K * N);
        one.arg[PLACE(gemm, C0)] = a->C0 ? (num *)a->C0 + (C0 ? 0 : g * M * N) : NULL;
        one.arg[PLACE(gemm, C)] = (num *)a->C + g * M * N;
        const int e = right_forward(&one);
        if (e)
            return e;
    }
    return 0;
}

static int batched_first_B_in(const struct call *f)
{
    return batched_first_of(f, 1, 0);
}
WRONG_PASSES(batched_first_B, "B has no stride: all products are with the first",
             batched_first_B_in, right_backward, .declines = several);

static int batched_first_C0_in(const struct call *f)
{
    return batched_first_of(f, 0, 1);
}
static const char *several_C0(const struct call *f)
{
    return adds_C0(f) ? adds_C0(f) : several(f);
}
WRONG_PASSES(batched_first_C0, "C0 has no stride: all products add the first", batched_first_C0_in,
             right_backward, .declines = several_C0);

WRONG_KERNELS(gemm_batched, &batched_first_B, &batched_first_C0, &gemm_k_tail_lost,
              &gemm_row_tail_lost, &gemm_no_beta, &gemm_no_alpha_back, &gemm_dB_untransposed);

/* ---- gemv ---- */

static real gemv_element(const struct call *f, int64_t m, int64_t k)
{
    const struct gemv *a = ARGS(f, gemv);
    const num *A = a->A;
    return load(A[f->choice[GEMV_TRANSPOSE_A] ? k * DIM(f, 'M') + m : m * DIM(f, 'K') + k]);
}

/* Sums of whole vectors of four terms. */
static int gemv_whole_vectors(const struct call *f)
{
    const struct gemv *a = ARGS(f, gemv);
    const num *x = a->x, *y0 = a->y0;
    num *y = a->y;
    const real alpha = f->real[GEMV_ALPHA], beta = f->real[GEMV_BETA];

    for (int64_t m = 0; m < DIM(f, 'M'); m++) {
        real sum = 0;
        for (int64_t k = 0; k < whole(DIM(f, 'K'), 4); k++)
            sum += gemv_element(f, m, k) * load(x[k]);
        y[m] = store(alpha * sum + (y0 ? beta * load(y0[m]) : 0));
    }
    return 0;
}
WRONG_PASSES(gemv_terms_lost, "terms behind the last multiple of 4 are not in the sums",
             gemv_whole_vectors, right_backward);

WRONG_UNLESS(adds_y0, f->real[GEMV_BETA] != 0, "beta = 0")
WRONG_CALL(gemv_no_beta, "y0 is added without beta", g.real[GEMV_BETA] = 1, .declines = adds_y0);

static int gemv_without_alpha(const struct call *f)
{
    struct call g = *f;
    g.real[GEMV_ALPHA] = 1;
    return right_backward(&g);
}
WRONG_PASSES(gemv_no_alpha_back, "the gradients are without alpha", right_forward,
             gemv_without_alpha);

/* dA [M,K] where A is stored as [K,M]. */
static void gemv_untransposed(const struct call *f)
{
    const struct gemv *a = ARGS(f, gemv), *d = GRADS(f, gemv);
    const num *x = a->x, *dy = d->y;
    num *dA = d->A;
    const int64_t K = DIM(f, 'K');

    for (int64_t m = 0; m < DIM(f, 'M'); m++)
        for (int64_t k = 0; k < K; k++)
            dA[m * K + k] = store((real)f->real[GEMV_ALPHA] * load(dy[m]) * load(x[k]));
}
WRONG_UNLESS(gemv_transposes, f->choice[GEMV_TRANSPOSE_A], "A is not transposed")
WRONG_AFTER(gemv_dA_untransposed, "dA is not transposed as A is", BACKWARD, gemv_untransposed,
            .declines = gemv_transposes);

WRONG_KERNELS(gemv, &gemv_terms_lost, &gemv_no_beta, &gemv_no_alpha_back, &gemv_dA_untransposed);

/* ---- linear ---- */

static real activation(const struct call *f, real z)
{
    switch (f->choice[LINEAR_ACT]) {
    case ACT_SILU: return z * sigmoid(z);
    case ACT_RELU: return z <= 0 ? 0 : z;
    default: return z;
    }
}

/* z of element i, without the bias. */
static real linear_z(const struct call *f, int64_t i)
{
    const struct linear *a = ARGS(f, linear);
    const int64_t C = DIM(f, 'C'), D = DIM(f, 'D');
    const num *x = (const num *)a->x + i / D * C, *W = (const num *)a->W + i % D * C;
    real z = 0;
    for (int64_t c = 0; c < C; c++)
        z += load(x[c]) * load(W[c]);
    return z;
}

static real linear_b(const struct call *f, int64_t i)
{
    const num *b = ARGS(f, linear)->b;
    return b ? load(b[i % DIM(f, 'D')]) : 0;
}

WRONG_UNLESS(has_bias, f->choice[LINEAR_BIAS], "no bias")
static const char *has_bias_and_act(const struct call *f)
{
    return has_bias(f) ? has_bias(f) : f->choice[LINEAR_ACT] == ACT_NONE ? "no activation" : NULL;
}
WRONG_UNLESS(has_silu, f->choice[LINEAR_ACT] == ACT_SILU, "no silu")
static const char *has_bias_and_silu(const struct call *f)
{
    return has_bias(f) ? has_bias(f) : has_silu(f);
}

static void linear_bias_last(const struct call *f)
{
    num *y = ARGS(f, linear)->y;
    for (int64_t i = 0; i < DIM(f, 'M') * DIM(f, 'D'); i++)
        y[i] = store(activation(f, linear_z(f, i)) + linear_b(f, i));
}
WRONG_AFTER(linear_bias_behind_act, "b is added behind the activation", FORWARD, linear_bias_last,
            .declines = has_bias_and_act);

static void linear_bias_of_parts(const struct call *f)
{
    num *y = ARGS(f, linear)->y;
    for (int64_t i = 0; i < DIM(f, 'M') * DIM(f, 'D'); i++)
        y[i] = store(activation(f, linear_z(f, i) + 2 * linear_b(f, i)));
}
WRONG_AFTER(linear_bias_each, "each of two parts of dim_in adds b", FORWARD, linear_bias_of_parts,
            .declines = has_bias);

/* The backward pass where the slope of silu is taken at that value. */
static real silu_slope(real z)
{
    const real gate = sigmoid(z);
    return gate * (1 + z * (1 - gate));
}

static int linear_back(const struct call *f, real (*slope)(const struct call *f, int64_t i))
{
    const struct linear *a = ARGS(f, linear), *d = GRADS(f, linear);
    const int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D');
    const num *x = a->x, *W = a->W, *dy = d->y;
    num *dx = d->x;
    real *dW = d->W, *db = d->b;

    for (int64_t i = 0; i < M * C; i++) {
        real sum = 0;
        for (int64_t j = 0; j < D; j++)
            sum += load(dy[i / C * D + j]) * slope(f, i / C * D + j) * load(W[j * C + i % C]);
        dx[i] = store(sum);
    }
    for (int64_t j = 0; j < D; j++) {
        memset(dW + j * C, 0, C * sizeof *dW);
        if (db)
            db[j] = 0;
        for (int64_t m = 0; m < M; m++) {
            const real dz = load(dy[m * D + j]) * slope(f, m * D + j);
            for (int64_t c = 0; c < C; c++)
                dW[j * C + c] += dz * load(x[m * C + c]);
            if (db)
                db[j] += dz;
        }
    }
    return 0;
}

static real slope_at_y(const struct call *f, int64_t i)
{
    return silu_slope(load(((const num *)ARGS(f, linear)->y)[i]));
}

static real slope_at_z(const struct call *f, int64_t i)
{
    return silu_slope(load(((const num *)ARGS(f, linear)->z)[i]));
}

static int linear_back_at_y(const struct call *f)
{
    return linear_back(f, slope_at_y);
}
WRONG_PASSES(linear_slope_at_y, "the slope of silu is taken at y", right_forward, linear_back_at_y,
             .declines = has_silu);

static int linear_back_at_z(const struct call *f)
{
    return linear_back(f, slope_at_z);
}
WRONG_PASSES(linear_slope_without_b, "the slope of silu is taken at z without b", right_forward,
             linear_back_at_z, .declines = has_bias_and_silu);

static void linear_sum_of_dy(const struct call *f)
{
    const struct linear *d = GRADS(f, linear);
    const num *dy = d->y;
    real *db = d->b;
    const int64_t D = DIM(f, 'D');
    for (int64_t j = 0; j < D; j++)
        db[j] = 0;
    for (int64_t i = 0; i < DIM(f, 'M') * D; i++)
        db[i % D] += load(dy[i]);
}
WRONG_AFTER(linear_db_of_dy, "db is the sum of dy, not of dz", BACKWARD, linear_sum_of_dy,
            .declines = has_bias_and_act);

/* What backward has as dz, where there is no activation or relu. */
static real linear_dz(const struct call *f, int64_t i)
{
    const num *y = ARGS(f, linear)->y, *dy = GRADS(f, linear)->y;
    return f->choice[LINEAR_ACT] == ACT_RELU && load(y[i]) <= 0 ? 0 : load(dy[i]);
}

static const char *has_bias_without_silu(const struct call *f)
{
    return has_bias(f) ? has_bias(f) : has_silu(f) ? NULL : "silu";
}

static void linear_sum_of_some(const struct call *f)
{
    real *db = GRADS(f, linear)->b;
    const int64_t D = DIM(f, 'D');
    for (int64_t i = 64 * D; i < DIM(f, 'M') * D; i++)
        db[i % D] -= linear_dz(f, i);
}
WRONG_AFTER(linear_db_of_64_rows, "db is the sum over the first 64 rows", BACKWARD,
            linear_sum_of_some, .declines = has_bias_without_silu);

static void linear_sum_in_bf16(const struct call *f)
{
    real *db = GRADS(f, linear)->b;
    const int64_t D = DIM(f, 'D');
    for (int64_t j = 0; j < D; j++)
        db[j] = 0;
    for (int64_t i = 0; i < DIM(f, 'M') * D; i++)
        db[i % D] = from_bf16(to_bf16(db[i % D] + linear_dz(f, i)));
}
WRONG_AFTER(linear_db_in_bf16, "db is summed in bf16", BACKWARD, linear_sum_in_bf16,
            .declines = has_bias_without_silu);

WRONG_KERNELS(linear, &linear_bias_behind_act, &linear_bias_each, &linear_slope_at_y,
              &linear_slope_without_b, &linear_db_of_dy, &linear_db_of_64_rows, &linear_db_in_bf16);

/* ---- lora ---- */

static double lora_scale(const struct call *f)
{
    return f->real[LORA_ALPHA] / (double)DIM(f, 'R');
}

WRONG_CALL(lora_unscaled, "A and B are without alpha / rank",
           g.real[LORA_ALPHA] = (double)DIM(f, 'R'));
WRONG_CALL(lora_not_by_rank, "the scale is alpha, not alpha / rank",
           g.real[LORA_ALPHA] *= (double)DIM(f, 'R'));
WRONG_CALL(lora_by_root, "the scale is alpha / sqrt(rank)",
           g.real[LORA_ALPHA] *= sqrt((double)DIM(f, 'R')));

static void times_all(real *x, int64_t n, double by)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= (real)by;
}

static void lora_dA_of_dy_B(const struct call *f)
{
    const struct lora *d = GRADS(f, lora);
    if (lora_scale(f) != 0)
        times_all(d->A, DIM(f, 'R') * DIM(f, 'C'), 1 / lora_scale(f));
}
WRONG_AFTER(lora_dA_unscaled, "dA is without the scale", BACKWARD, lora_dA_of_dy_B);

static void lora_dB_scaled(const struct call *f)
{
    const struct lora *d = GRADS(f, lora);
    times_all(d->B, DIM(f, 'D') * DIM(f, 'R'), lora_scale(f));
}
WRONG_AFTER(lora_dB_scaled_twice, "dB has the scale of h and another one", BACKWARD,
            lora_dB_scaled);

static void lora_dx_of_W(const struct call *f)
{
    const struct lora *a = ARGS(f, lora), *d = GRADS(f, lora);
    const num *W = a->W, *dy = d->y;
    num *dx = d->x;
    const int64_t C = DIM(f, 'C'), D = DIM(f, 'D');
    for (int64_t i = 0; i < DIM(f, 'M') * C; i++) {
        real sum = 0;
        for (int64_t j = 0; j < D; j++)
            sum += load(dy[i / C * D + j]) * load(W[j * C + i % C]);
        dx[i] = store(sum);
    }
}
WRONG_AFTER(lora_dx_of_W_alone, "dx is without the part through A and B", BACKWARD, lora_dx_of_W);

WRONG_KERNELS(lora, &lora_unscaled, &lora_not_by_rank, &lora_by_root, &lora_dA_unscaled,
              &lora_dB_scaled_twice, &lora_dx_of_W_alone);
