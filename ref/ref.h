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

#include "common/base/half.h"
#include "common/call/op.h"

#if defined REF64
typedef double real, num;
#define REF(name) ref64_##name
#define blas_gemm cblas_dgemm
#elif defined REF32
typedef float real, num;
#define REF(name) ref32_##name
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

/* Is a tensor stored in a type other than that of the computation? */
#if !defined REF64 && !defined REF32
#define NARROW
#endif

#ifdef REF64
/* The noise of the passes that this thread computes (common/call/op.h). */
extern _Thread_local struct noise ref64_noise;

/* x, off by `unit` of itself, up or down; 0: x itself. */
static inline double disturbed(double x, float unit, unsigned place)
{
    uint64_t bits;

    if (!(unit > 0))
        return x;
    memcpy(&bits, &x, sizeof bits);
    bits ^= (place + ((uint64_t)ref64_noise.key << 32)) * 0xd1342543de82ef95;
    bits = (bits ^ bits >> 29) * 0x9e3779b97f4a7c15;
    return x * (bits >> 63 ? 1 + (double)unit : 1 - (double)unit); /* infinity stays */
}
#define load(x) disturbed(x, ref64_noise.loaded, __LINE__)
#define store(x) disturbed(x, ref64_noise.stored, 0)
#define special(x) disturbed(x, ref64_noise.special, __LINE__)
/* These are macros of tgmath.h. */
#undef sqrt
#undef exp
#undef tanh
#undef log
#define sqrt(x) special((sqrt)(x))
#define exp(x) special((exp)(x))
#define tanh(x) special((tanh)(x))
#define log(x) special((log)(x))
#endif

static inline real sigmoid(real x)
{
    return 1 / (1 + exp(-x));
}

/* The maximum of a row is NaN if one of its elements is. */
static inline real max_or_nan(real a, real b)
{
    return isnan(a) || a > b ? a : b;
}

static inline real dot(const real *a, const real *b, int64_t n)
{
    real sum = 0;
    #pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
#ifdef REF64
    sum = disturbed(sum, ref64_noise.loaded, 0);
#endif
    return sum;
}

/* y += a x */
static inline void add(real *y, real a, const real *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
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
    return ref64_noise.stored > 0 ? disturbed(x, (float)types[kept].unit, 0) : x;
#else
    (void)kept;
    return x;
#endif
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
static inline const real *widened(const num *x, int64_t n, real **work)
{
#ifdef NARROW
    real *copy = *work;
    *work += n;
    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        copy[i] = load(x[i]);
    return copy;
#else
    (void)n;
    (void)work;
    return x;
#endif
}

static inline real *to_fill(num *x, int64_t n, real **work)
{
#ifdef NARROW
    real *copy = *work;
    (void)x;
    *work += n;
    return copy;
#else
    (void)n;
    (void)work;
    return x;
#endif
}

static inline void filled(num *x, const real *from, int64_t n)
{
#ifdef NARROW
    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        x[i] = store(from[i]);
#elif defined REF64
    for (int64_t i = 0; ref64_noise.stored > 0 && i < n; i++)
        x[i] = store(from[i]);
#else
    (void)x;
    (void)from;
    (void)n;
#endif
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

#ifdef REF64
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

    for (int64_t k = 0; k < A->columns; k++) {
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
#endif

/* C = alpha A B + beta C, C's rows ldc elements apart, on one thread.  With noise on sums of products
 * the oracle adds one product after the other to a float, as a thread of a plain kernel does: over
 * long sums that is off by much more than BLAS. */
static inline void scaled_product(real alpha, struct matrix A, struct matrix B, real beta, real *C,
                                  int64_t ldc)
{
#ifdef REF64
    for (int64_t i = 0; ref64_noise.loaded > 0 && i < A.rows; i += TILE_ROWS)
        for (int64_t j = 0; j < B.columns; j += TILE_COLUMNS)
            tile_in_order(alpha, &A, &B, beta, C, ldc, i, j);
    if (ref64_noise.loaded > 0)
        return;
#endif
    blas_gemm(CblasRowMajor, A.op, B.op, A.rows, B.columns, A.columns, alpha, A.at, A.ld, B.at,
              B.ld, beta, C, ldc);
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

enum { COPIES = sizeof(num) < sizeof(real) }; /* does a product need them? */

/* CBLAS takes sizes as int. */
static inline const char *too_long_for_blas(int64_t rows, int64_t columns)
{
    return rows > 0x7fffffff || columns > 0x7fffffff
               ? "a matrix with more rows or columns than CBLAS can count (2147483647)"
               : NULL;
}

/* Defines an operation's one kernel and the list of it.  Its backward pass, or NULL, comes last,
 * before other members of struct impl: REF_KERNEL(gemv, "plain", "...", forward, backward, .work =
 * work). */
#define REF_KERNEL(op, name_, idea_, forward_, ...)                                                \
    const struct impl *const REF(op)[] = {&(const struct impl){.name = name_,                      \
                                                               .idea = idea_,                      \
                                                               .pass[FORWARD] = forward_,          \
                                                               .pass[BACKWARD] = __VA_ARGS__},     \
                                          NULL}

#endif
