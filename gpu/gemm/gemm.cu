/* gemm, gemm_splitk, gemm_batched: c[g] = alpha op(a[g]) op(b[g]) + beta c0[g].  This file has the
 * simplest kernels (naive: one thread per element; tiled: one block per 32 x 32 tile, in shared
 * memory; registers: one thread per 4 x 4 elements), cuBLAS, and the lists of all kernels. */
#include "gpu/gemm/gemm.cuh"
#include "gpu/gemm/product.cuh"

/* ---- dC0 ---- */

enum { SCALING = 256 };

template <typename T>
__global__ void scale(T *to, const T *from, float factor, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * SCALING + threadIdx.x;
    if (i < n)
        store(to + i, factor * load(from + i));
}

template <typename T>
int gemm_scale(struct context *on, T *to, const T *from, float factor, int64_t n)
{
    scale<<<ceil_div(n, SCALING), SCALING, 0, on->stream>>>(to, from, factor, n);
    return cudaGetLastError();
}

#define SCALE(T) template int gemm_scale(struct context *on, T *, const T *, float, int64_t);
GPU_TYPES(SCALE)

/* ---- sums of parts ---- */

enum { COLUMNS = 32, ROWS = 32 };

/* One block per 32 elements.  Each of an element's threads adds every blockDim.y-th part; then the
 * element's first thread adds their sums. */
template <typename C>
__global__ void add_parts(const float *parts, int64_t n_parts, int64_t n, float alpha, float beta,
                          const C *c0, C *c)
{
    __shared__ float partial[ROWS][COLUMNS];
    const int64_t i = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    float sum = 0;

    #pragma unroll 8
    for (int64_t p = threadIdx.y; p < n_parts; p += blockDim.y)
        sum += i < n ? parts[p * n + i] : 0;
    partial[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || i >= n)
        return;
    for (unsigned y = 1; y < blockDim.y; y++)
        sum += partial[y][threadIdx.x];
    store(c + i, c0 ? fmaf(alpha, sum, beta * load(c0 + i)) : alpha * sum);
}

template <typename C>
int gemm_add_parts(struct context *on, const float *parts, int64_t n_parts, int64_t n, float alpha,
                   float beta, const C *c0, C *c)
{
    const dim3 block(COLUMNS, n_parts < ROWS ? (int)n_parts : +ROWS);
    const int64_t blocks = ceil_div(n, COLUMNS);
    add_parts<<<blocks, block, 0, on->stream>>>(parts, n_parts, n, alpha, beta, c0, c);
    return cudaGetLastError();
}

#define ADD_PARTS(T)                                                                               \
    template int gemm_add_parts(struct context *on, const float *, int64_t, int64_t, float, float, \
                                const T *, T *);
GPU_TYPES(ADD_PARTS)

/* ---- common to the simplest kernels ---- */

/* The epilogue of element i of c; `sum` is the element of op(a) op(b). */
template <typename T, typename C>
static __device__ void finish(const gemm_problem<T, C> &p, int64_t i, float sum)
{
    store(p.c + i, p.c0 ? fmaf(p.alpha, sum, p.beta * load(p.c0 + i)) : p.alpha * sum);
}

/* The coordinates of a block's tile of c: blockIdx.x counts tiles along n, then along m, then
 * products. */
struct block_coord {
    int64_t g, m, n;
};

template <typename T, typename C>
static __device__ block_coord block_coord_of(const gemm_problem<T, C> &p, int side)
{
    const int64_t tiles_n = ceil_div(p.N, side), tiles_m = ceil_div(p.M, side);
    const int64_t row = blockIdx.x / tiles_n;
    return {row / tiles_m, row % tiles_m * side, blockIdx.x % tiles_n * side};
}

template <typename T, typename C>
static int64_t tiles_of(const gemm_problem<T, C> &p, int side)
{
    return p.batch * ceil_div(p.M, side) * ceil_div(p.N, side);
}

/* An element of a stored matrix; 0 outside of it. */
template <typename T>
static __device__ float element(const T *of, int64_t row, int64_t column, int64_t rows,
                                int64_t columns)
{
    return row < rows && column < columns ? load(of + row * columns + column) : 0;
}

/* ---- naive ---- */

enum { NAIVE = 256 };

/* One thread per element of c; neighbouring threads compute neighbouring columns.  If b is not
 * transposed, a warp's loads of b coalesce, and its loads of a read one address; but every element
 * is loaded once per multiplication. */
template <typename T, typename C>
__global__ void multiply_naive(gemm_problem<T, C> p)
{
    const int64_t i = (int64_t)blockIdx.x * NAIVE + threadIdx.x;
    if (i >= p.batch * p.M * p.N)
        return;
    const int64_t g = i / (p.M * p.N), m = i / p.N % p.M, n = i % p.N;
    const T *a = p.a + g * p.M * p.K + (p.trans_a ? m : m * p.K);
    const T *b = p.b + g * p.K * p.N + (p.trans_b ? n * p.K : n);
    const int64_t stride_a = p.trans_a ? p.M : 1, stride_b = p.trans_b ? 1 : p.N;
    float sum = 0;
    for (int64_t first = 0; first < p.K; first += GEMM_RUN) {
        const int64_t end = min(first + GEMM_RUN, p.K);
        float run = 0;
        for (int64_t k = first; k < end; k++)
            run = fmaf(load(a + k * stride_a), load(b + k * stride_b), run);
        sum += run;
    }
    finish(p, i, sum);
}

struct gemm_naive : gemm_engine<gemm_naive> {
    template <typename T, typename C>
    static const char *declines(struct context *, const gemm_problem<T, C> &p)
    {
        return ceil_div(p.batch * p.M * p.N, NAIVE) > 0x7fffffff
                   ? "more elements of a result than a grid has threads (549755813632)"
                   : NULL;
    }

    template <typename T, typename C>
    static int multiply(struct context *on, const gemm_problem<T, C> &p)
    {
        const int64_t blocks = ceil_div(p.batch * p.M * p.N, NAIVE);
        multiply_naive<<<blocks, NAIVE, 0, on->stream>>>(p);
        return cudaGetLastError();
    }
};

/* ---- tiled ---- */

enum { TILE = 32 };

/* A block keeps a tile of each operand in shared memory, so that an element loaded from global
 * memory is used 32 times.  Loads run along the stored rows, whether transposed or not; the padding
 * avoids bank conflicts where a tile is written by columns. */
template <typename T, typename C>
__global__ void multiply_tiled(gemm_problem<T, C> p)
{
    __shared__ float as[TILE][TILE + 1];
    __shared__ float bs[TILE][TILE + 1];
    const block_coord at = block_coord_of(p, TILE);
    const T *a = p.a + at.g * p.M * p.K, *b = p.b + at.g * p.K * p.N;
    const int x = threadIdx.x, y = threadIdx.y;
    float sum = 0, run = 0;

    for (int64_t k = 0; k < p.K; k += TILE) {
        __syncthreads();
        if (p.trans_a)
            as[x][y] = element(a, k + y, at.m + x, p.K, p.M);
        else
            as[y][x] = element(a, at.m + y, k + x, p.M, p.K);
        if (p.trans_b)
            bs[x][y] = element(b, at.n + y, k + x, p.N, p.K);
        else
            bs[y][x] = element(b, k + y, at.n + x, p.K, p.N);
        __syncthreads();
        #pragma unroll 32
        for (int i = 0; i < TILE; i++)
            run = fmaf(as[y][i], bs[i][x], run);
        if ((k + TILE) % GEMM_RUN == 0 || k + TILE >= p.K)
            sum += run, run = 0;
    }
    if (at.m + y < p.M && at.n + x < p.N)
        finish(p, (at.g * p.M + at.m + y) * p.N + at.n + x, sum);
}

struct gemm_tiled : gemm_engine<gemm_tiled> {
    template <typename T, typename C>
    static const char *declines(struct context *, const gemm_problem<T, C> &p)
    {
        return tiles_of(p, TILE) > 0x7fffffff ? "more than 2147483647 tiles of 32 x 32" : NULL;
    }

    template <typename T, typename C>
    static int multiply(struct context *on, const gemm_problem<T, C> &p)
    {
        const dim3 block(TILE, TILE);
        multiply_tiled<<<tiles_of(p, TILE), block, 0, on->stream>>>(p);
        return cudaGetLastError();
    }
};

/* ---- registers ---- */

enum { SIDE = 64, DEPTH = 16, STRIDE = 16, EACH = SIDE / STRIDE, THREADS = STRIDE * STRIDE };

/* Loads SIDE rows from `first` on and DEPTH columns from k on of op(a), or of op(b)^T, as
 * [k][row]. */
template <typename T>
static __device__ void load_tile(float (*tile)[SIDE + 1], const T *of, bool along_k, int64_t first,
                                 int64_t rows, int64_t k, int64_t K)
{
    for (int i = threadIdx.x; i < SIDE * DEPTH; i += THREADS) {
        const int row = along_k ? i / DEPTH : i % SIDE, depth = along_k ? i % DEPTH : i / SIDE;
        tile[depth][row] = along_k ? element(of, first + row, k + depth, rows, K)
                                   : element(of, k + depth, first + row, K, rows);
    }
}

/* A thread computes 4 x 4 elements in registers: it reads 8 elements from shared memory per 16 FMA,
 * where `tiled` reads 2 per FMA. */
template <typename T, typename C>
__global__ void __launch_bounds__(THREADS, 2) multiply_registers(gemm_problem<T, C> p)
{
    __shared__ float as[DEPTH][SIDE + 1];
    __shared__ float bs[DEPTH][SIDE + 1];
    const block_coord at = block_coord_of(p, SIDE);
    const T *a = p.a + at.g * p.M * p.K, *b = p.b + at.g * p.K * p.N;
    const int x = threadIdx.x % STRIDE, y = threadIdx.x / STRIDE;
    float sum[EACH][EACH] = {}, run[EACH][EACH] = {};

    for (int64_t k = 0; k < p.K; k += DEPTH) {
        __syncthreads();
        load_tile(as, a, !p.trans_a, at.m, p.M, k, p.K);
        load_tile(bs, b, p.trans_b, at.n, p.N, k, p.K);
        __syncthreads();
        #pragma unroll 4
        for (int d = 0; d < DEPTH; d++) {
            float row[EACH], column[EACH];
            #pragma unroll 4
            for (int i = 0; i < EACH; i++)
                row[i] = as[d][y + i * STRIDE], column[i] = bs[d][x + i * STRIDE];
            #pragma unroll 16
            for (int i = 0; i < EACH * EACH; i++)
                run[i / EACH][i % EACH] =
                    fmaf(row[i / EACH], column[i % EACH], run[i / EACH][i % EACH]);
        }
        if ((k + DEPTH) % GEMM_RUN == 0 || k + DEPTH >= p.K) {
            #pragma unroll 16
            for (int i = 0; i < EACH * EACH; i++) {
                sum[i / EACH][i % EACH] += run[i / EACH][i % EACH];
                run[i / EACH][i % EACH] = 0;
            }
        }
    }
    #pragma unroll 16
    for (int i = 0; i < EACH * EACH; i++) {
        const int64_t m = at.m + y + i / EACH * STRIDE, n = at.n + x + i % EACH * STRIDE;
        if (m < p.M && n < p.N)
            finish(p, (at.g * p.M + m) * p.N + n, sum[i / EACH][i % EACH]);
    }
}

struct gemm_registers : gemm_engine<gemm_registers> {
    template <typename T, typename C>
    static const char *declines(struct context *, const gemm_problem<T, C> &p)
    {
        return tiles_of(p, SIDE) > 0x7fffffff ? "more than 2147483647 tiles of 64 x 64" : NULL;
    }

    template <typename T, typename C>
    static int multiply(struct context *on, const gemm_problem<T, C> &p)
    {
        multiply_registers<<<tiles_of(p, SIDE), THREADS, 0, on->stream>>>(p);
        return cudaGetLastError();
    }
};

template <typename T>
static const struct impl
    naive_impl = gemm_kernel<T, gemm_naive>("naive", "one thread per element of the result");
template <typename T>
static const struct impl
    tiled = gemm_kernel<T, gemm_tiled>("tiled", "tiles of 32 x 32 in shared memory, padded");
template <typename T>
static const struct impl registers_impl =
    gemm_kernel<T, gemm_registers>("registers", "4 x 4 elements per thread in registers");

/* ---- cuBLAS, to compare with ---- */

#ifdef CUDA_EMULATE
#define CUBLAS(T)
#else

/* cuBLAS adds to c in place, so C0 is copied to c first.  fp32 is computed without TF32. */
struct gemm_cublas : gemm_engine<gemm_cublas> {
    template <typename T, typename C>
    static int multiply(struct context *on, const gemm_problem<T, C> &p)
    {
        const matrix<T> a = {p.a, p.M, p.K, p.trans_a}, b = {p.b, p.K, p.N, p.trans_b};
        if (p.c0 && p.c0 != p.c)
            CUDA(cudaMemcpyAsync(p.c, p.c0, sizeof(C) * p.batch * p.M * p.N,
                                 cudaMemcpyDeviceToDevice, on->stream));
        return product_batch(on, p.batch, p.alpha, a, b, p.c0 ? p.beta : 0, p.c);
    }
};

template <typename T>
static constexpr struct impl with_products(struct impl k)
{
    k.products = 1;
    return k;
}

template <typename T>
static const struct impl cublas_impl =
    with_products<T>(gemm_kernel<T, gemm_cublas>("cublas", "NVIDIA's library, to compare with"));
#define CUBLAS(T) &cublas_impl<T>,
#endif

/* Best first; cublas is last, because it is there only to compare with.  gpu/gemm/gemm.cuh declares
 * the kernels of other files.  Kernels that use tensor cores exist only for bf16, and are its
 * first. */
#define EACH(T) &gemm_blocks<T>::kernel, &registers_impl<T>, &tiled<T>, &naive_impl<T>, CUBLAS(T)
#define EACH_SPLITK(T) &gemm_slices<T>::kernel, &naive_impl<T>, CUBLAS(T)
#define ON_TENSOR_CORES &gemm_by_wgmma, &gemm_by_mma
GPU_KERNELS(gemm, ON_TENSOR_CORES, GPU_TYPES(EACH));
GPU_KERNELS(gemm_batched, ON_TENSOR_CORES, GPU_TYPES(EACH));
GPU_KERNELS(gemm_splitk, ON_TENSOR_CORES, GPU_TYPES(EACH_SPLITK));
