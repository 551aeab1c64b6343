/* gemm.cuh - the common interface of all gemm kernels.  gemm_problem describes one product;
 * adapters make it from a frame of gemm, gemm_splitk or gemm_batched, once forward and twice
 * backward.
 *
 * A kernel is an engine: a struct that derives from gemm_engine<itself> and defines
 *
 *     template <typename T, typename C> static int multiply(struct context *on, const gemm_problem<T, C> &p);
 *
 * gemm_kernel() then is the kernel's struct impl, with both passes, for one storage type.
 * The lists of all three operations (at the end of gpu/gemm/gemm.cu) may contain it. */
#ifndef GEMM_CUH
#define GEMM_CUH

#include "common/ops/gemm.h"
#include "gpu/gpu.cuh"

/* The products per partial sum.  A longer sum is the sum of such partial sums, because the rounding
 * error of an addition grows with the sum so far. */
enum { GEMM_RUN = 512 };

/* c[g] = alpha op(a[g]) op(b[g]) + beta c0[g] for g < batch.  All matrices are dense and row-major;
 * op(a) is [M,K], op(b) is [K,N].  The sums are float. */
template <typename T, typename C = T>
struct gemm_problem {
    const T *a, *b;
    const C *c0; /* NULL: nothing is added */
    C *c;
    int64_t M, N, K, batch;
    bool trans_a, trans_b; /* a is stored as [K,M], b as [N,K] */
    float alpha, beta;
    float *workspace; /* of workspace(p) bytes */
};

template <typename T>
static gemm_problem<T> gemm_of(const struct call *f)
{
    const struct gemm *a = ARGS(f, gemm);
    gemm_problem<T> p = {};
    p.a = (const T *)a->A;
    p.b = (const T *)a->B;
    p.c0 = (const T *)a->C0;
    p.c = (T *)a->C;
    p.M = DIM(f, 'M');
    p.N = DIM(f, 'N');
    p.K = DIM(f, 'K');
    p.batch = DIM(f, 'G');
    p.trans_a = f->choice[GEMM_TRANSPOSE_A];
    p.trans_b = f->choice[GEMM_TRANSPOSE_B];
    p.alpha = (float)f->real[GEMM_ALPHA];
    p.beta = (float)f->real[GEMM_BETA];
    p.workspace = (float *)f->work;
    return p;
}

/* The product that computes da from p and dc, the gradient of its c.  da has the layout of the
 * stored a: da^T [K,M] = alpha op(b) dc^T if a is stored transposed, else da [M,K] = alpha dc
 * op(b)^T. */
template <typename T, typename C>
static gemm_problem<T> gemm_to_a(const gemm_problem<T, C> &p, const T *dc, T *da)
{
    gemm_problem<T> d = {};
    d.a = p.trans_a ? p.b : dc;
    d.b = p.trans_a ? dc : p.b;
    d.trans_a = p.trans_a && p.trans_b;
    d.trans_b = p.trans_a || !p.trans_b;
    d.M = p.trans_a ? p.K : p.M;
    d.N = p.trans_a ? p.M : p.K;
    d.K = p.N;
    d.c = da;
    d.batch = p.batch;
    d.alpha = p.alpha;
    d.workspace = p.workspace;
    return d;
}

/* The product that computes db, in the layout of the stored b: db^T [N,K] = alpha dc^T op(a), or db
 * [K,N] = alpha op(a)^T dc. */
template <typename T, typename C, typename D>
static gemm_problem<T, D> gemm_to_b(const gemm_problem<T, C> &p, const T *dc, D *db)
{
    gemm_problem<T, D> d = {};
    d.a = p.trans_b ? dc : p.a;
    d.b = p.trans_b ? p.a : dc;
    d.trans_a = p.trans_b || !p.trans_a;
    d.trans_b = p.trans_b && p.trans_a;
    d.M = p.trans_b ? p.N : p.K;
    d.N = p.trans_b ? p.K : p.N;
    d.K = p.M;
    d.c = db;
    d.batch = p.batch;
    d.alpha = p.alpha;
    d.workspace = p.workspace;
    return d;
}

/* Defaults of an engine: it needs no workspace, takes every problem, and computes da and db one
 * after the other.  workspace() and declines() must not dereference the pointers of a problem. */
template <typename ENGINE>
struct gemm_engine {
    template <typename T, typename C>
    static size_t workspace(struct context *, const gemm_problem<T, C> &)
    {
        return 0;
    }
    template <typename T, typename C>
    static const char *declines(struct context *on, const gemm_problem<T, C> &)
    {
        return NULL;
    }
    template <typename T>
    static int multiply_back(struct context *on, const gemm_problem<T> &p, const T *dc, T *da,
                             T *db)
    {
        const int e = ENGINE::multiply(on, gemm_to_a(p, dc, da));
        return e ? e : ENGINE::multiply(on, gemm_to_b(p, dc, db));
    }
};

/* to[i] = factor from[i], i < n. */
template <typename T>
int gemm_scale(struct context *on, T *to, const T *from, float factor, int64_t n);

/* c[i] = alpha (parts[0][i] + parts[1][i] + ...) + beta c0[i], i < n, in an order that depends only
 * on the sizes; c0 may be NULL. */
template <typename C>
int gemm_add_parts(struct context *on, const float *parts, int64_t n_parts, int64_t n, float alpha,
                   float beta, const C *c0, C *c);

/* gemm_thin() (gemm_thin.cu) computes both products of p's backward pass, if gemm_thin_fits(p). */
template <typename T>
bool gemm_thin_fits(const gemm_problem<T> &p);
template <typename T>
int gemm_thin(struct context *on, const gemm_problem<T> &p, const T *dc, T *da, T *db);

/* The base of engines that use gemm_thin() for the backward passes that it can compute. */
template <typename ENGINE>
struct gemm_thin_engine : gemm_engine<ENGINE> {
    template <typename T>
    static int multiply_back(struct context *on, const gemm_problem<T> &p, const T *dc, T *da,
                             T *db)
    {
        return gemm_thin_fits(p) ? gemm_thin(on, p, dc, da, db)
                                 : gemm_engine<ENGINE>::multiply_back(on, p, dc, da, db);
    }
};

template <typename T, typename ENGINE>
static int gemm_forward(const struct call *f)
{
    return ENGINE::multiply(f->context, gemm_of<T>(f));
}

template <typename T, typename ENGINE>
static int gemm_backward(const struct call *f)
{
    const struct gemm *d = GRADS(f, gemm);
    const gemm_problem<T> p = gemm_of<T>(f);
    const T *dc = (const T *)d->C;

    CUDA(ENGINE::multiply_back(f->context, p, dc, (T *)d->A, (T *)d->B));
    return d->C0 ? gemm_scale(f->context, (T *)d->C0, dc, p.beta, p.batch * p.M * p.N) : 0;
}

template <typename T, typename ENGINE>
static size_t gemm_work(const struct call *f, enum pass pass)
{
    const gemm_problem<T> p = gemm_of<T>(f);
    if (pass == FORWARD)
        return ENGINE::workspace(f->context, p);
    const size_t to_a = ENGINE::workspace(f->context, gemm_to_a<T, T>(p, NULL, NULL));
    const size_t to_b = ENGINE::workspace(f->context, gemm_to_b<T, T, T>(p, NULL, NULL));
    return to_a > to_b ? to_a : to_b;
}

template <typename T, typename ENGINE>
static const char *gemm_declines(const struct call *f)
{
    const gemm_problem<T> p = gemm_of<T>(f);
    const char *why = ENGINE::declines(f->context, p);
    if (!why)
        why = ENGINE::declines(f->context, gemm_to_a<T, T>(p, NULL, NULL));
    return why ? why : ENGINE::declines(f->context, gemm_to_b<T, T, T>(p, NULL, NULL));
}

/* The kernel of an engine. */
template <typename T, typename ENGINE>
static constexpr struct impl gemm_kernel(const char *name, const char *idea)
{
    return {.name = name,
            .type = storage<T>::TYPE,
            .idea = idea,
            .pass = {gemm_forward<T, ENGINE>, gemm_backward<T, ENGINE>},
            .work = gemm_work<T, ENGINE>,
            .declines = gemm_declines<T, ENGINE>};
}

/* Kernels that other files define; the last two are of bf16. */
GPU_KERNEL_IN(gemm_blocks);
GPU_KERNEL_IN(gemm_slices);
extern const struct impl gemm_by_mma, gemm_by_wgmma;

#endif
