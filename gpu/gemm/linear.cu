/* linear, naive: y = act(x W^T + b), dz, dx = dz W, dW = dz^T x, db; one thread per element of each
 * result. */
#include "gpu/device/math.cuh"
#include "gpu/gemm/linear.cuh"

enum { TILE = 16, THREADS = 256 };

/* An operand of a product, with the strides of its rows and of its columns, so that one function
 * serves the three products of the two passes. */
template <typename T>
struct operand {
    const T *at;
    int64_t row, column;
};

struct sizes {
    int64_t M, D, C;
};

/* Element [m][n] of a b: the sum over k of a[m][k] b[k][n]. */
template <typename T>
static __device__ float element(const operand<T> &a, const operand<T> &b, int64_t m, int64_t n,
                                int64_t K)
{
    float sum = 0;
    for (int64_t k = 0; k < K; k++)
        sum += load(a.at + m * a.row + k * a.column) * load(b.at + k * b.row + n * b.column);
    return sum;
}

template <typename T, int ACT>
__global__ void linear_forward(const T *x, const T *W, const T *b, T *y, T *z, sizes s)
{
    int64_t m = (int64_t)blockIdx.y * TILE + threadIdx.y;
    int64_t n = (int64_t)blockIdx.x * TILE + threadIdx.x;
    if (m >= s.M || n >= s.D)
        return;
    float sum = element<T>({x, s.C, 1}, {W, 1, s.C}, m, n, s.C);
    if (ACT == ACT_SILU)
        store(z + m * s.D + n, sum);
    store(y + m * s.D + n, activated<ACT>(sum + (b ? load(b + n) : 0)));
}

template <typename T, int ACT>
__global__ void linear_slope(const T *dy, const T *b, const T *y, const T *z, T *dz, int64_t M,
                             int64_t D)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < M * D)
        store(dz + i, through_slope<ACT>(load(dy + i), load((ACT == ACT_SILU ? z : y) + i),
                                         b ? load(b + i % D) : 0));
}

/* C is float for dW. */
template <typename T, typename C>
__global__ void linear_product(operand<T> a, operand<T> b, C *c, int64_t M, int64_t N, int64_t K)
{
    int64_t m = (int64_t)blockIdx.y * TILE + threadIdx.y;
    int64_t n = (int64_t)blockIdx.x * TILE + threadIdx.x;
    if (m < M && n < N)
        store(c + m * N + n, element(a, b, m, n, K));
}

template <typename T>
__global__ void linear_bias_gradient(const T *dz, float *db, int64_t M, int64_t D)
{
    int64_t n = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float sum = 0;
    for (int64_t m = 0; n < D && m < M; m++)
        sum += load(dz + m * D + n);
    if (n < D)
        db[n] = sum;
}

static const dim3 tile(TILE, TILE);

static dim3 tiles(int64_t M, int64_t N)
{
    return dim3((unsigned)ceil_div(N, TILE), (unsigned)ceil_div(M, TILE));
}

template <typename T, int ACT>
static int forward_through(const struct call *f)
{
    const struct linear *a = ARGS(f, linear);
    int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D');
    linear_forward<T, ACT><<<tiles(M, D), tile, 0, gpu_stream(f)>>>(
        (const T *)a->x, (const T *)a->W, (const T *)a->b, (T *)a->y, (T *)a->z, sizes{M, D, C});
    return cudaGetLastError();
}

template <typename T>
static int forward(const struct call *f)
{
    const int act = f->choice[LINEAR_ACT];
    return act == ACT_NONE   ? forward_through<T, ACT_NONE>(f)
           : act == ACT_SILU ? forward_through<T, ACT_SILU>(f)
                             : forward_through<T, ACT_RELU>(f);
}

template <typename T, int ACT>
static int slope(const struct call *f, T *dz)
{
    const struct linear *a = ARGS(f, linear), *g = GRADS(f, linear);
    int64_t M = DIM(f, 'M'), D = DIM(f, 'D');
    linear_slope<T, ACT><<<ceil_div(M * D, THREADS), THREADS, 0, gpu_stream(f)>>>(
        (const T *)g->y, (const T *)a->b, (const T *)a->y, (const T *)a->z, dz, M, D);
    return cudaGetLastError();
}

template <typename T>
static int backward(const struct call *f)
{
    const struct linear *a = ARGS(f, linear), *g = GRADS(f, linear);
    const int64_t M = DIM(f, 'M'), C = DIM(f, 'C'), D = DIM(f, 'D');
    const int act = f->choice[LINEAR_ACT];
    const T *dz = (const T *)(act == ACT_NONE ? g->y : f->work);

    if (act != ACT_NONE)
        CUDA((cudaError_t)(act == ACT_SILU ? slope<T, ACT_SILU>(f, (T *)f->work)
                                           : slope<T, ACT_RELU>(f, (T *)f->work)));
    const operand<T> rows = {dz, D, 1}, columns = {dz, 1, D};
    const operand<T> W = {(const T *)a->W, C, 1}, x = {(const T *)a->x, C, 1};
    linear_product<<<tiles(M, C), tile, 0, gpu_stream(f)>>>(rows, W, (T *)g->x, M, C, D);
    CUDA(cudaGetLastError());
    linear_product<<<tiles(D, C), tile, 0, gpu_stream(f)>>>(columns, x, (float *)g->W, D, C, M);
    CUDA(cudaGetLastError());
    if (a->b)
        linear_bias_gradient<<<ceil_div(D, THREADS), THREADS, 0, gpu_stream(f)>>>(dz, (float *)g->b,
                                                                                  M, D);
    return cudaGetLastError();
}

/* The size of dz. */
template <typename T>
static size_t work(const struct call *f, enum pass p)
{
    return p == BACKWARD && f->choice[LINEAR_ACT] != ACT_NONE
               ? sizeof(T) * DIM(f, 'M') * DIM(f, 'D')
               : 0;
}

/* gridDim.y is at most 65535. */
OF_CALL(const char *, declines,
        ceil_div(DIM(f, 'M'), TILE) > 65535 || ceil_div(DIM(f, 'D'), TILE) > 65535
            ? "more than 1048560 rows of a matrix"
            : NULL)

GPU_KERNEL(naive, .idea = "one thread per element of each result",
           .pass = {forward<T>, backward<T>}, .work = work<T>, .declines = declines,
           .approximates = SIGMOID, .unit = SIGMOID_UNIT, .stores = "dz", .cut = CUT_OFF);

#define EACH(T) &linear_by_product<T>::kernel, &naive_impl<T>,
GPU_KERNELS(linear, &linear_fused, GPU_TYPES(EACH));
