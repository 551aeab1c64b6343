/* ref.h - for the files in ref/, each compiled three times:
 *
 *     defined    stored as    computed in
 *     REF64      double       double         ref64, the oracle
 *     REF32      float        float          ref32, the yardstick of fp32
 *     REF_BF16   bf16         float          ref_bf16, the yardstick of bf16
 *
 * A tensor that the contract calls wide is of type real; every other is of
 * type num, and load() and store() go between the two. */
#ifndef REF_H
#define REF_H

#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tgmath.h>

#include <cblas.h>

#include "common/base/err.h"
#include "common/base/half.h"
#include "common/call/call.h"
#include "common/call/sites.h"

#if defined REF64
typedef double real, num;
#define REF(name) ref64_##name
#define STORED F64
#define blas_gemm cblas_dgemm
#elif defined REF32
typedef float real, num;
#define REF(name) ref32_##name
#define STORED F32
#define blas_gemm cblas_sgemm
static inline real load(num x)
{
    return x;
}
static inline num store(real x)
{
    return x;
}
#elif defined REF_BF16
typedef float real;
typedef bf16 num;
#define REF(name) ref_bf16_##name
#define STORED BF16
#define blas_gemm cblas_sgemm
static inline real load(num x)
{
    return from_bf16(x);
}
static inline num store(real x)
{
    return to_bf16(x);
}
#endif

/* Is a tensor stored in a type other than that of the computation, so that a product needs a copy? */
enum { COPIES = sizeof(num) < sizeof(real) };

/* The noise of the passes that this thread computes (common/call/sites.h). */
extern _Thread_local struct noise REF(noise);

#ifdef REF64
/* The smallest normal float: what is less may become 0. */
static const double LEAST_FLOAT = 0x1p-126;
static const float FLOAT_UNIT = 0x1p-24f;

/* x, off by up to `unit` of itself, up or down; 0: x itself.  Values of one size are off alike. */
static inline double disturbed(double x, float unit, unsigned place)
{
    const double size = fabs(x);
    uint64_t bits;

    if (!(unit > 0))
        return x;
    memcpy(&bits, &size, sizeof bits);
    bits ^= (place + ((uint64_t)ref64_noise.key << 32)) * 0xd1342543de82ef95;
    bits = (bits ^ bits >> 29) * 0x9e3779b97f4a7c15;
    bits = (bits ^ bits >> 32) * 0xd1342543de82ef95;
    if (size < LEAST_FLOAT && bits >> 63)
        return 0;
    return x * (1 + (double)unit * (double)(int64_t)bits * 0x1p-63); /* infinity stays */
}

/* The same for what a type of that unit stores: nothing happens to what it holds. */
static inline double disturbed_in(double x, float unit, unsigned place)
{
    const double cut = x * (1 + (double)unit * 0x1p53), rounded = cut - (cut - x);

    if (unit > 4 * FLOAT_UNIT && fabs(rounded - x) <= 4 * FLOAT_UNIT * fabs(x))
        return x;
    return disturbed(x, unit, place);
}

/* The same of what a composition of operators stores.  (Two roundings in a row, and a sign that one
 * decides, are no accident: what lies behind them is found only by rounding.) */
static inline double disturbed_at_site(double x, unsigned place)
{
    if (!ref64_noise.exact)
        return disturbed_in(x, ref64_noise.at_sites, place);
    if (ref64_noise.at_sites > 0x1p-10f)
        return from_bf16(to_bf16((float)x));
    return ref64_noise.at_sites > FLOAT_UNIT ? from_f16(to_f16((float)x)) : (float)x;
}

/* The same of a sum of terms that are each rounded a few times in float, and may cancel: together they have
 * that size. */
static inline double disturbed_sum(double x, double size, unsigned place)
{
    return x + disturbed(size, 8 * FLOAT_UNIT, place) - size;
}

/* A special function's result. */
static inline double disturbed_special(double x, unsigned place)
{
    const double unit = ref64_noise.special;
    return ref64_noise.lean ? x * (1 + ref64_noise.lean * unit)
                            : disturbed(x, ref64_noise.special, place);
}
/* How far above a row's maximum it may be what a kernel subtracts before exp.  Equal scores then have no sum
 * that is exact. */
static inline double above_maximum(void)
{
    const int some = ref64_noise.loaded > 0 && ref64_noise.order == FORWARDS;
    return some ? (double)(ref64_noise.key * 2654435761u) * 0x1p-32 : 0;
}
/* The line and the length of the file's name, without folders: the noise does not depend on where the
 * source lies. */
#define HERE ((unsigned)(__LINE__ + 4096 * strlen(strrchr("/" __FILE__, '/'))))
#define load(x) disturbed(x, ref64_noise.loaded, HERE)
/* The same of what is subtracted from others that are as large, which are exact: off alike in all of them. */
#define load_alike(x) disturbed(x, ref64_noise.loaded, 0)
/* What float arithmetic rounds of x. */
#define rounding_of(x) (ref64_noise.loaded > 0 ? rounded(x) - (x) : 0)
#define store(x) (ref64_noise.stored > 0 ? disturbed_in(x, ref64_noise.stored, 0) : (x))
#define special(x) disturbed_special(x, HERE)
#define constant(x) disturbed(x, ref64_noise.loaded, HERE)
#define at_site(n) (ref64_noise.at_sites > 0 && ref64_noise.sites >> (n)&1)
#define site(n, x) (at_site(n) ? disturbed_at_site(x, HERE) : (x))
/* Are they moved there, and not rounded? */
#define moved_at_site(n) (at_site(n) && !ref64_noise.exact)
#define site_of_terms(n, x, size) (at_site(n) ? disturbed_sum(x, size, HERE) : (x))
/* These are macros of tgmath.h. */
#undef sqrt
#undef exp
#undef tanh
#undef log
#define sqrt(x) special((sqrt)(x))
#define exp(x) special((exp)(x))
#define tanh(x) special((tanh)(x))
#define log(x) special((log)(x))
#define rounded(x) disturbed(x, ref64_noise.loaded, HERE)
#else
/* What a kernel may have from an approximate instruction. */
#define special(x) (x)
#define load_alike(x) load(x)
/* What float arithmetic rounds. */
#define rounded(x) (x)
#define rounding_of(x) ((void)(x), (real)0)
#define above_maximum() ((real)0)
/* A number that all of a pass computes with, which a kernel may round once. */
#define constant(x) (x)
/* A value that a composition of operators would store: site n of the contract. */
#define at_site(n) 0
#define moved_at_site(n) 0
#define site(n, x) (x)
/* A value that a kernel may have as a sum of terms that cancel, and are of that size. */
#define site_of_terms(n, x, size) (0 ? (size) : (x))
#endif

/* x as composed operators have it that store by x, site `at`, for the products that follow: n elements in
 * memory of their own.  NULL after err_set(). */
static inline void *scaled_at_site(int at, real by, const num *x, int64_t n)
{
#ifdef REF64
    real *scaled = malloc(n * sizeof *scaled);

    if (!scaled)
        return err_null("no memory for %lld elements", (long long)n);
    for (int64_t i = 0; i < n; i++)
        scaled[i] = by != 0 ? site(at, by * x[i]) / by : x[i];
    return scaled;
#else
    (void)at;
    (void)by;
    (void)x;
    (void)n;
    return NULL;
#endif
}

/* The loop over the terms of a sum, in the order that the noise says. */
static inline int64_t in_order(int64_t i, int64_t n)
{
    return REF(noise).order == BACKWARDS ? n - 1 - i : i;
}
#define FOR_SUM(i, n)                                                                              \
    for (int64_t i##_at = 0, i; i##_at < (n) && (i = in_order(i##_at, n), 1); i##_at++)

static inline real sigmoid(real x)
{
    return 1 / (1 + exp(-x));
}

/* The maximum of a row is NaN if one of its elements is. */
static inline real max_or_nan(real a, real b)
{
    return isnan(a) || a > b ? a : b;
}

/* With noise on sums the oracle has them in float, as a kernel does. */
static inline int sums_in_float(void)
{
#ifdef REF64
    static const float HALF = 0x1p-25f; /* of float's unit: the noise of a finer type is less */
    return ref64_noise.loaded > HALF;
#else
    return 0;
#endif
}

/* What a sum is after an addition. */
static inline real summed(real x)
{
    return sums_in_float() ? (float)x : x;
}
#define add_to(sum, x) ((sum) = summed((sum) + (x)))

static inline real dot_in_order(const real *a, const real *b, int64_t n)
{
    real sum = 0;
    FOR_SUM (i, n)
        add_to(sum, a[i] * b[i]);
    return sum;
}

static inline real dot(const real *a, const real *b, int64_t n)
{
    real sum = 0;
    if (REF(noise).order != AS_BUILT)
        return dot_in_order(a, b, n);
    #pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* y += a x */
static inline void add(real *y, real a, const real *x, int64_t n)
{
    for (int64_t i = 0; sums_in_float() && i < n; i++)
        y[i] = (float)(y[i] + a * x[i]);
    for (int64_t i = 0; !sums_in_float() && i < n; i++)
        y[i] += a * x[i];
}

/* y [columns] = A^T x for A [rows,columns] */
static inline void times_transposed(const real *A, const real *x, real *y, int64_t rows,
                                    int64_t columns)
{
    memset(y, 0, columns * sizeof *y);
    for (int64_t i = 0; i < rows; i++)
        add(y, x[i], A + i * columns, columns);
}

/* x, with noise a rounding to the type `kept` from it. */
static inline real kept_as(enum dtype kept, real x)
{
#ifdef REF64
    if (!(ref64_noise.stored > 0))
        return x;
    if (ref64_noise.order == BACKWARDS &&
        kept == BF16) /* what a kernel does to it is known to the bit */
        return from_bf16(to_bf16((float)x));
    return disturbed_in(x, (float)types[kept].unit, 0);
#else
    (void)kept;
    return x;
#endif
}

/* The same of n elements, in place. */
static inline void kept_all(enum dtype kept, real *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = kept_as(kept, x[i]);
}

/* n elements, from `first` on, of a tensor that is stored in the type `kept`; the oracle stores
 * all of them as real. */
static inline void put_kept(enum dtype kept, void *at, int64_t first, const real *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (kept == F32 || sizeof(real) == sizeof(double))
            ((real *)at)[first + i] = kept_as(kept, x[i]);
        else if (kept == BF16)
            ((bf16 *)at)[first + i] = to_bf16(x[i]);
        else
            ((f16 *)at)[first + i] = to_f16(x[i]);
    }
}

static inline void get_kept(enum dtype kept, const void *at, int64_t first, real *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (kept == F32 || sizeof(real) == sizeof(double))
            x[i] = ((const real *)at)[first + i];
        else if (kept == BF16)
            x[i] = from_bf16(((const bf16 *)at)[first + i]);
        else
            x[i] = from_f16(((const f16 *)at)[first + i]);
    }
}

/* The operands of a matrix product are real.  Where a tensor is stored so, these three use the
 * tensor itself; else a copy at *work, which then points behind the copy. */
static inline real *to_fill(num *x, int64_t n, real **work)
{
    real *copy = COPIES ? *work : (real *)(void *)x;
    *work += COPIES * n;
    return copy;
}

static inline const real *widened(const num *x, int64_t n, real **work)
{
    real *copy = to_fill((num *)x, n, work);
    #pragma omp parallel for if (COPIES)
    for (int64_t i = 0; i < COPIES * n; i++)
        copy[i] = load(x[i]);
    return copy;
}

static inline void filled(num *x, const real *from, int64_t n)
{
#ifdef REF64
    const int changes = ref64_noise.stored > 0;
#else
    const int changes = COPIES;
#endif
    #pragma omp parallel for if (COPIES)
    for (int64_t i = 0; i < changes * n; i++)
        x[i] = store(from[i]);
}

/* An operand of a product: op(X) [rows,columns], where X is row-major, its rows ld elements apart,
 * and op is X itself or its transpose. */
struct matrix {
    const real *at;
    int64_t rows, columns, ld;
    CBLAS_TRANSPOSE op;
};

/* X [rows,columns], dense. */
static inline struct matrix matrix(const real *at, int64_t rows, int64_t columns)
{
    return (struct matrix){at, rows, columns, columns, CblasNoTrans};
}

static inline struct matrix transposed(struct matrix X)
{
    CBLAS_TRANSPOSE op = X.op == CblasTrans ? CblasNoTrans : CblasTrans;
    return (struct matrix){X.at, X.columns, X.rows, X.ld, op};
}

/* The float of element (i, k) of X. */
static inline float element_of(const struct matrix *X, int64_t i, int64_t k)
{
    return (float)X->at[X->op == CblasTrans ? k * X->ld + i : i * X->ld + k];
}

enum { TILE_ROWS = 8, TILE_COLUMNS = 16 };

/* Up to TILE_ROWS x TILE_COLUMNS elements, from (i, j) on, of C = alpha A B + beta C. */
static inline void tile_in_order(real alpha, const struct matrix *A, const struct matrix *B,
                                 real beta, real *C, int64_t ldc, int64_t i, int64_t j)
{
    const int tall = A->rows - i < TILE_ROWS ? (int)(A->rows - i) : TILE_ROWS;
    const int wide = B->columns - j < TILE_COLUMNS ? (int)(B->columns - j) : TILE_COLUMNS;
    float sum[TILE_ROWS][TILE_COLUMNS] = {{0}}, b[TILE_COLUMNS] = {0};

    FOR_SUM (k, A->columns) {
        for (int x = 0; x < wide; x++)
            b[x] = element_of(B, k, j + x);
        for (int y = 0; y < tall; y++) {
            const float a = element_of(A, i + y, k);
            for (int x = 0; x < TILE_COLUMNS; x++)
                sum[y][x] += a * b[x];
        }
    }
    for (int y = 0; y < tall; y++)
        for (int x = 0; x < wide; x++) {
            real *c = &C[(i + y) * ldc + j + x];
            *c = (alpha == 0 ? 0 : alpha * sum[y][x]) + (beta == 0 ? 0 : beta * *c);
        }
}

#ifdef REF64
/* The same in double, of sums that lose so much of themselves at each term that they are added: tensor cores cut off what
 * they add, so that a sum which falls back from a larger one has lost a part of that. */
static inline void tile_cut(double alpha, const struct matrix *A, const struct matrix *B,
                            double beta, double *C, int64_t ldc, int64_t i, int64_t j)
{
    const int tall = A->rows - i < TILE_ROWS ? (int)(A->rows - i) : TILE_ROWS;
    const int wide = B->columns - j < TILE_COLUMNS ? (int)(B->columns - j) : TILE_COLUMNS;
    const double left = 1 - (double)ref64_noise.cut;
    double sum[TILE_ROWS][TILE_COLUMNS] = {{0}}, b[TILE_COLUMNS] = {0};

    for (int64_t n = 0; n < A->columns; n++) {
        const int64_t k = ref64_noise.key % 2 ? A->columns - 1 - n : n;
        for (int x = 0; x < wide; x++)
            b[x] = B->at[B->op == CblasTrans ? (j + x) * B->ld + k : k * B->ld + j + x];
        for (int y = 0; y < tall; y++) {
            const double a = A->at[A->op == CblasTrans ? k * A->ld + i + y : (i + y) * A->ld + k];
            for (int x = 0; x < TILE_COLUMNS; x++)
                sum[y][x] = (sum[y][x] + a * b[x]) * left;
        }
    }
    for (int y = 0; y < tall; y++)
        for (int x = 0; x < wide; x++) {
            double *c = &C[(i + y) * ldc + j + x];
            *c = (alpha == 0 ? 0 : alpha * sum[y][x]) + (beta == 0 ? 0 : beta * *c);
        }
}
#endif

/* Does the noise say that sums are cut? */
static inline int sums_are_cut(void)
{
#ifdef REF64
    return ref64_noise.cut > 0;
#else
    return 0;
#endif
}

static inline void tile(real alpha, const struct matrix *A, const struct matrix *B, real beta,
                        real *C, int64_t ldc, int64_t i, int64_t j)
{
#ifdef REF64
    if (sums_are_cut()) {
        tile_cut(alpha, A, B, beta, C, ldc, i, j);
        return;
    }
#endif
    tile_in_order(alpha, A, B, beta, C, ldc, i, j);
}

/* A product by the BLAS, in double in the oracle: its sums have noise. */
static inline void disturb_sums(real *C, int64_t rows, int64_t columns, int64_t ldc)
{
#ifdef REF64
    for (int64_t i = 0; ref64_noise.loaded > 0 && i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            C[i * ldc + j] = disturbed(C[i * ldc + j], ref64_noise.loaded, HERE);
#else
    (void)C;
    (void)rows;
    (void)columns;
    (void)ldc;
#endif
}

/* C = alpha A B + beta C, C's rows ldc elements apart, on one thread.  In order it adds one product
 * after the other to a float, as a thread of a plain kernel does: over long sums that is off by much
 * more than BLAS.  Where sums are cut, they are added in double. */
static inline void scaled_product(real alpha, struct matrix A, struct matrix B, real beta, real *C,
                                  int64_t ldc)
{
    const int in_order = REF(noise).order != AS_BUILT || sums_are_cut();

    for (int64_t i = 0; in_order && i < A.rows; i += TILE_ROWS)
        for (int64_t j = 0; j < B.columns; j += TILE_COLUMNS)
            tile(alpha, &A, &B, beta, C, ldc, i, j);
    if (in_order)
        return;
    blas_gemm(CblasRowMajor, A.op, B.op, A.rows, B.columns, A.columns, alpha, A.at, A.ld, B.at,
              B.ld, beta, C, ldc);
    disturb_sums(C, A.rows, B.columns, ldc);
}

static inline void product(struct matrix A, struct matrix B, real beta, real *C, int64_t ldc)
{
    scaled_product(1, A, B, beta, C, ldc);
}

/* C = alpha A B + beta C, C dense, for large ones: a panel of C's rows per thread, of the same
 * size however many threads there are. */
static inline void product_in_panels(real alpha, struct matrix A, struct matrix B, real beta,
                                     real *C)
{
    enum { PANEL = 128 };
    const int64_t M = A.rows;

    #pragma omp parallel for
    for (int64_t i = 0; i < M; i += PANEL) {
        struct matrix panel = A;
        panel.at += A.op == CblasTrans ? i : i * A.ld;
        panel.rows = M - i < PANEL ? M - i : PANEL;
        scaled_product(alpha, panel, B, beta, C + i * B.columns, B.columns);
    }
}

/* CBLAS takes sizes as int. */
static inline const char *too_long_for_blas(int64_t rows, int64_t columns)
{
    return rows > 0x7fffffff || columns > 0x7fffffff
               ? "a matrix with more rows or columns than CBLAS can count (2147483647)"
               : NULL;
}

/* Defines an operation's one kernel in this type.  Its backward pass, or NULL, comes last, before
 * other members of struct impl: REF_KERNEL(gemv, "plain", "...", forward, backward, .work = work). */
#define REF_KERNEL(op, name_, idea_, forward_, ...)                                                \
    const struct impl REF(op) = {.name = name_,                                                    \
                                 .idea = idea_,                                                    \
                                 .type = STORED,                                                   \
                                 .pass[FORWARD] = forward_,                                        \
                                 .pass[BACKWARD] = __VA_ARGS__}

#endif
