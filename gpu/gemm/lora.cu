/* lora: h = alpha / R x A^T, y = x W^T + h B^T.  naive: one thread per element of each result;
 * product: cuBLAS, added up in place. */
#include "common/ops/lora.h"
#include "gpu/gemm/layer.cuh"
#include "gpu/gemm/product.cuh"

enum { TILE = 16 };

OF_CALL(float, scale_of, (float)(f->real[LORA_ALPHA] / (double)DIM(f, 'R')))
OF_CALL(int64_t, narrow_elements, DIM(f, 'M') * DIM(f, 'R'))

/* ---- naive ---- */

/* Element [m][n] of a product: the sum over k < K of a[m][k] b[k][n], with their strides. */
template <typename T>
struct factors {
    const T *a;
    int64_t am, ak;
    const T *b;
    int64_t bk, bn, K;
};

template <typename T>
static __device__ float element(const factors<T> &p, int64_t m, int64_t n)
{
    float sum = 0;
    for (int64_t k = 0; k < p.K; k++)
        sum += load(p.a + m * p.am + k * p.ak) * load(p.b + k * p.bk + n * p.bn);
    return sum;
}

/* One thread per element of c [M,N] = scale times one product, plus the other product.  U is float
 * for dA and dB. */
template <typename T, typename U>
__global__ void lora_products(float scale, factors<T> one, factors<T> other, U *c, int64_t M,
                              int64_t N)
{
    const int64_t m = (int64_t)blockIdx.y * TILE + threadIdx.y;
    const int64_t n = (int64_t)blockIdx.x * TILE + threadIdx.x;
    if (m < M && n < N)
        store(c + m * N + n, scale * element(one, m, n) + element(other, m, n));
}

template <typename T, typename U>
static int naive_product(struct context *on, float scale, const factors<T> &one,
                         const factors<T> &other, U *c, int64_t M, int64_t N)
{
    const dim3 grid((unsigned)ceil_div(N, TILE), (unsigned)ceil_div(M, TILE)), block(TILE, TILE);
    lora_products<<<grid, block, 0, on->stream>>>(scale, one, other, c, M, N);
    return cudaGetLastError();
}

template <typename T>
static int naive_forward(const struct call *f)
{
    const struct lora *a = ARGS(f, lora);
    const int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D'), R = DIM(f, 'R');
    const T *x = (const T *)a->x, *W = (const T *)a->W, *A = (const T *)a->A, *B = (const T *)a->B;
    const factors<T> none = {};
    T *h = (T *)a->h;

    int e = naive_product<T>(f->context, scale_of(f), {x, C, 1, A, 1, C, C}, none, h, M, R);
    return e ? e
             : naive_product<T>(f->context, 1, {x, C, 1, W, 1, C, C}, {h, R, 1, B, 1, R, R},
                                (T *)a->y, M, D);
}

template <typename T>
static int naive_backward(const struct call *f)
{
    const struct lora *a = ARGS(f, lora), *g = GRADS(f, lora);
    const int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D'), R = DIM(f, 'R');
    const T *x = (const T *)a->x, *W = (const T *)a->W, *A = (const T *)a->A, *B = (const T *)a->B;
    const T *h = (const T *)a->h, *dy = (const T *)g->y;
    const factors<T> none = {};
    T *dh = (T *)f->work;

    int e = naive_product<T>(f->context, scale_of(f), {dy, D, 1, B, R, 1, D}, none, dh, M, R);
    e = e ? e
          : naive_product<T>(f->context, 1, {dy, D, 1, W, C, 1, D}, {dh, R, 1, A, C, 1, R},
                             (T *)g->x, M, C);
    e = e ? e : naive_product<T>(f->context, 1, {dh, 1, R, x, C, 1, M}, none, (float *)g->A, R, C);
    return e ? e
             : naive_product<T>(f->context, 1, {dy, 1, D, h, R, 1, M}, none, (float *)g->B, D, R);
}

/* The size of dh. */
template <typename T>
static size_t naive_work(const struct call *f, enum pass p)
{
    return p == BACKWARD ? narrow_elements(f) * sizeof(T) : 0;
}

/* gridDim.y is at most 65535. */
OF_CALL(const char *, naive_declines,
        ceil_div(max(DIM(f, 'M'), max(DIM(f, 'D'), DIM(f, 'R'))), TILE) > 65535
            ? "more than 1048560 rows of a matrix"
            : NULL)

/* ---- product ---- */

/* h or dh before rounding, and dh. */
template <typename T>
struct workspace {
    float *wide;
    T *dh;
    size_t bytes;
};

template <typename T>
static workspace<T> workspace_of(const struct call *f, enum pass p)
{
    work_arena a = {(char *)f->work, 0};
    float *wide = take<float>(&a, narrow_elements(f));
    T *dh = take<T>(&a, p == BACKWARD ? narrow_elements(f) : 0);
    return {wide, dh, a.bytes};
}

template <typename T>
__global__ void lora_scale(const float *from, float scale, T *to, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < n)
        store(to + i, scale * from[i]);
}

/* to [M,R] = scale left right: added up and scaled in float, and rounded once. */
template <typename T>
static int narrow_product(const struct call *f, const matrix<T> &left, const matrix<T> &right,
                          float *wide, T *to)
{
    const int64_t n = left.rows * right.columns;
    int e = product(f->context, left, right, 0, wide);
    if (e)
        return e;
    lora_scale<<<(unsigned)ceil_div(n, BLOCK), BLOCK, 0, gpu_stream(f)>>>(wide, scale_of(f), to, n);
    return cudaGetLastError();
}

/* Each sum of two products begins with the narrow product, because the first product is rounded
 * before the second is added, and the narrow one is smaller. */
template <typename T>
static int forward(const struct call *f)
{
    const struct lora *a = ARGS(f, lora);
    const int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D'), R = DIM(f, 'R');
    const matrix<T> x = {(const T *)a->x, M, C, false}, Wt = {(const T *)a->W, C, D, true};
    const matrix<T> At = {(const T *)a->A, C, R, true}, Bt = {(const T *)a->B, R, D, true};
    const matrix<T> h = {(const T *)a->h, M, R, false};

    int e = narrow_product(f, x, At, workspace_of<T>(f, FORWARD).wide, (T *)a->h);
    e = e ? e : product(f->context, h, Bt, 0, (T *)a->y);
    return e ? e : product(f->context, x, Wt, 1, (T *)a->y);
}

template <typename T>
static int backward(const struct call *f)
{
    const struct lora *a = ARGS(f, lora), *g = GRADS(f, lora);
    const int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D'), R = DIM(f, 'R');
    const workspace<T> w = workspace_of<T>(f, BACKWARD);
    T *dh = w.dh;
    const matrix<T> x = {(const T *)a->x, M, C, false}, W = {(const T *)a->W, D, C, false};
    const matrix<T> A = {(const T *)a->A, R, C, false}, B = {(const T *)a->B, D, R, false};
    const matrix<T> h = {(const T *)a->h, M, R, false}, dh_of_rows = {dh, M, R, false};
    const matrix<T> dy = {(const T *)g->y, M, D, false}, dyt = {dy.at, D, M, true};
    const matrix<T> dht = {dh, R, M, true};

    int e = narrow_product(f, dy, B, w.wide, dh);
    e = e ? e : product(f->context, dh_of_rows, A, 0, (T *)g->x);
    e = e ? e : product(f->context, dy, W, 1, (T *)g->x);
    e = e ? e : product(f->context, dht, x, 0, (float *)g->A);
    return e ? e : product(f->context, dyt, h, 0, (float *)g->B);
}

template <typename T>
static size_t work(const struct call *f, enum pass p)
{
    return workspace_of<T>(f, p).bytes;
}

GPU_KERNEL(naive, .idea = "one thread per element of each result",
           .pass = {naive_forward<T>, naive_backward<T>}, .work = naive_work<T>,
           .declines = naive_declines, .stores = "h dh", .cut = CUT_OFF);
GPU_KERNEL(product, .idea = "cuBLAS, added up in place", .pass = {forward<T>, backward<T>},
           .work = work<T>, .products = 1, .stores = "h dh", .cut = CUT_OFF);

GPU_KERNELS(lora, IN_TYPES(product) IN_TYPES(naive));
