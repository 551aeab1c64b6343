/* gemm, gemm_splitk, gemm_batched: the first rungs of the ladder, the one that cuBLAS is, and the
 * lists of all kernels. */
#include "gpu/gemm/gemm.cuh"
#include "gpu/gemm/product.cuh"

/* ---- dC0 ---- */

enum { SCALING = 256 };

template <typename T>
__global__ void scale(T *to, const T *from, float by, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * SCALING + threadIdx.x;
    if (i < n)
        store(to + i, by * load(from + i));
}

template <typename T>
int gemm_scale(T *to, const T *from, float by, int64_t n)
{
    scale<<<ceil_div(n, SCALING), SCALING, 0, gpu_stream()>>>(to, from, by, n);
    return cudaGetLastError();
}

template int gemm_scale(float *, const float *, float, int64_t);
template int gemm_scale(__nv_bfloat16 *, const __nv_bfloat16 *, float, int64_t);

/* ---- sums of parts ---- */

enum { COLUMNS = 32, ROWS = 32 };

/* 32 elements a block.  Its threads of one element each take every blockDim.y-th part; then the
 * first adds up theirs. */
template <typename C>
__global__ void add_parts(const float *parts, int64_t n_parts, int64_t n, float alpha, float beta,
                          const C *c0, C *c)
{
    __shared__ float of[ROWS][COLUMNS];
    const int64_t i = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    float sum = 0;

    #pragma unroll 8
    for (int64_t p = threadIdx.y; p < n_parts; p += blockDim.y)
        sum += i < n ? parts[p * n + i] : 0;
    of[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || i >= n)
        return;
    for (unsigned y = 1; y < blockDim.y; y++)
        sum += of[y][threadIdx.x];
    store(c + i, c0 ? fmaf(alpha, sum, beta * load(c0 + i)) : alpha * sum);
}

template <typename C>
int gemm_add_parts(const float *parts, int64_t n_parts, int64_t n, float alpha, float beta,
                   const C *c0, C *c)
{
    const dim3 block(COLUMNS, n_parts < ROWS ? (int)n_parts : +ROWS);
    const int64_t blocks = ceil_div(n, COLUMNS);
    add_parts<<<blocks, block, 0, gpu_stream()>>>(parts, n_parts, n, alpha, beta, c0, c);
    return cudaGetLastError();
}

template int gemm_add_parts(const float *, int64_t, int64_t, float, float, const float *, float *);
template int gemm_add_parts(const float *, int64_t, int64_t, float, float, const __nv_bfloat16 *,
                            __nv_bfloat16 *);

/* ---- what the first rungs share ---- */

/* Element i of all of c, of which `sum` is the product's. */
template <typename T, typename C>
static __device__ void finish(const gemm_problem<T, C> &p, int64_t i, float sum)
{
    store(p.c + i, p.c0 ? fmaf(p.alpha, sum, p.beta * load(p.c0 + i)) : p.alpha * sum);
}

/* Where a block's tile of c begins: blocks go along rows of tiles, then down, then to the next
 * product. */
struct corner {
    int64_t g, m, n;
};

template <typename T, typename C>
static __device__ corner corner_of(const gemm_problem<T, C> &p, int side)
{
    const int64_t across = ceil_div(p.N, side), down = ceil_div(p.M, side);
    const int64_t row = blockIdx.x / across;
    return {row / down, row % down * side, blockIdx.x % across * side};
}

template <typename T, typename C>
static int64_t tiles_of(const gemm_problem<T, C> &p, int side)
{
    return p.batch * ceil_div(p.M, side) * ceil_div(p.N, side);
}

/* An element of a matrix as it is stored; beyond its ends 0. */
template <typename T>
static __device__ float element(const T *of, int64_t row, int64_t column, int64_t rows,
                                int64_t columns)
{
    return row < rows && column < columns ? load(of + row * columns + column) : 0;
}

/* ---- naive ---- */

enum { NAIVE = 256 };

/* One thread an element of c, neighbours along a row: what a warp reads of b lies side by side
 * and of a is one number, but every number comes from memory as often as it is multiplied. */
template <typename T, typename C>
__global__ void multiply_naive(gemm_problem<T, C> p)
{
    const int64_t i = (int64_t)blockIdx.x * NAIVE + threadIdx.x;
    if (i >= p.batch * p.M * p.N)
        return;
    const int64_t g = i / (p.M * p.N), m = i / p.N % p.M, n = i % p.N;
    const T *a = p.a + g * p.M * p.K + (p.trans_a ? m : m * p.K);
    const T *b = p.b + g * p.K * p.N + (p.trans_b ? n * p.K : n);
    const int64_t next_a = p.trans_a ? p.M : 1, next_b = p.trans_b ? 1 : p.N;
    float sum = 0;
    for (int64_t first = 0; first < p.K; first += RUN) {
        const int64_t end = min(first + RUN, p.K);
        float run = 0;
        for (int64_t k = first; k < end; k++)
            run = fmaf(load(a + k * next_a), load(b + k * next_b), run);
        sum += run;
    }
    finish(p, i, sum);
}

struct gemm_naive : gemm_engine<gemm_naive> {
    template <typename T, typename C>
    static const char *declines(const gemm_problem<T, C> &p)
    {
        return ceil_div(p.batch * p.M * p.N, NAIVE) > 0x7fffffff
                   ? "more elements of a result than a grid has threads (549755813632)"
                   : NULL;
    }

    template <typename T, typename C>
    static int multiply(const gemm_problem<T, C> &p)
    {
        const int64_t blocks = ceil_div(p.batch * p.M * p.N, NAIVE);
        multiply_naive<<<blocks, NAIVE, 0, gpu_stream()>>>(p);
        return cudaGetLastError();
    }
};

/* ---- tiled ---- */

enum { TILE = 32 };

/* A block has the tiles of both operands in shared memory, so that a number comes from memory
 * once for 32 uses.  It is read along memory's rows whatever is transposed: the padding lets a
 * tile be written by columns without conflicts. */
template <typename T, typename C>
__global__ void multiply_tiled(gemm_problem<T, C> p)
{
    __shared__ float as[TILE][TILE + 1];
    __shared__ float bs[TILE][TILE + 1];
    const corner at = corner_of(p, TILE);
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
        if ((k + TILE) % RUN == 0 || k + TILE >= p.K)
            sum += run, run = 0;
    }
    if (at.m + y < p.M && at.n + x < p.N)
        finish(p, (at.g * p.M + at.m + y) * p.N + at.n + x, sum);
}

struct gemm_tiled : gemm_engine<gemm_tiled> {
    template <typename T, typename C>
    static const char *declines(const gemm_problem<T, C> &p)
    {
        return tiles_of(p, TILE) > 0x7fffffff ? "more than 2147483647 tiles of 32 x 32" : NULL;
    }

    template <typename T, typename C>
    static int multiply(const gemm_problem<T, C> &p)
    {
        const dim3 block(TILE, TILE);
        multiply_tiled<<<tiles_of(p, TILE), block, 0, gpu_stream()>>>(p);
        return cudaGetLastError();
    }
};

/* ---- registers ---- */

enum { SIDE = 64, DEPTH = 16, APART = 16, EACH = SIDE / APART, THREADS = APART * APART };

/* SIDE rows from `first` on and DEPTH columns from k on of op(a), or of op(b)^T, as [k][row]. */
template <typename T>
static __device__ void fill(float (*tile)[SIDE + 1], const T *of, bool along_k, int64_t first,
                            int64_t rows, int64_t k, int64_t K)
{
    for (int i = threadIdx.x; i < SIDE * DEPTH; i += THREADS) {
        const int row = along_k ? i / DEPTH : i % SIDE, depth = along_k ? i % DEPTH : i / SIDE;
        tile[depth][row] = along_k ? element(of, first + row, k + depth, rows, K)
                                   : element(of, k + depth, first + row, K, rows);
    }
}

/* A thread makes 4 x 4 elements in registers: 8 numbers read from shared memory serve 16
 * multiply-adds, where `tiled` reads 2 for one. */
template <typename T, typename C>
__global__ void __launch_bounds__(THREADS, 2) multiply_registers(gemm_problem<T, C> p)
{
    __shared__ float as[DEPTH][SIDE + 1];
    __shared__ float bs[DEPTH][SIDE + 1];
    const corner at = corner_of(p, SIDE);
    const T *a = p.a + at.g * p.M * p.K, *b = p.b + at.g * p.K * p.N;
    const int x = threadIdx.x % APART, y = threadIdx.x / APART;
    float sum[EACH][EACH] = {}, run[EACH][EACH] = {};

    for (int64_t k = 0; k < p.K; k += DEPTH) {
        __syncthreads();
        fill(as, a, !p.trans_a, at.m, p.M, k, p.K);
        fill(bs, b, p.trans_b, at.n, p.N, k, p.K);
        __syncthreads();
        #pragma unroll 4
        for (int d = 0; d < DEPTH; d++) {
            float row[EACH], column[EACH];
            #pragma unroll 4
            for (int i = 0; i < EACH; i++)
                row[i] = as[d][y + i * APART], column[i] = bs[d][x + i * APART];
            #pragma unroll 16
            for (int i = 0; i < EACH * EACH; i++)
                run[i / EACH][i % EACH] =
                    fmaf(row[i / EACH], column[i % EACH], run[i / EACH][i % EACH]);
        }
        if ((k + DEPTH) % RUN == 0 || k + DEPTH >= p.K) {
            #pragma unroll 16
            for (int i = 0; i < EACH * EACH; i++) {
                sum[i / EACH][i % EACH] += run[i / EACH][i % EACH];
                run[i / EACH][i % EACH] = 0;
            }
        }
    }
    #pragma unroll 16
    for (int i = 0; i < EACH * EACH; i++) {
        const int64_t m = at.m + y + i / EACH * APART, n = at.n + x + i % EACH * APART;
        if (m < p.M && n < p.N)
            finish(p, (at.g * p.M + m) * p.N + n, sum[i / EACH][i % EACH]);
    }
}

struct gemm_registers : gemm_engine<gemm_registers> {
    template <typename T, typename C>
    static const char *declines(const gemm_problem<T, C> &p)
    {
        return tiles_of(p, SIDE) > 0x7fffffff ? "more than 2147483647 tiles of 64 x 64" : NULL;
    }

    template <typename T, typename C>
    static int multiply(const gemm_problem<T, C> &p)
    {
        multiply_registers<<<tiles_of(p, SIDE), THREADS, 0, gpu_stream()>>>(p);
        return cudaGetLastError();
    }
};

GEMM_IMPLS(static, naive, "one thread an element of the result");
GEMM_IMPLS(static, tiled, "tiles of 32 x 32 in shared memory, padded");
GEMM_IMPLS(static, registers, "4 x 4 elements a thread in registers");

/* ---- cuBLAS, to compare with ---- */

#ifdef CUDA_EMULATE
#define AND_CUBLAS(bits)
#else

/* cuBLAS adds to what is there, so C0 is copied there first.  fp32 without TF32. */
struct gemm_cublas : gemm_engine<gemm_cublas> {
    template <typename T, typename C>
    static int multiply(const gemm_problem<T, C> &p)
    {
        const matrix<T> a = {p.a, p.M, p.K, p.trans_a}, b = {p.b, p.K, p.N, p.trans_b};
        if (p.c0)
            CUDA(cudaMemcpyAsync(p.c, p.c0, sizeof(C) * p.batch * p.M * p.N,
                                 cudaMemcpyDeviceToDevice, gpu_stream()));
        return product_batch(p.batch, p.alpha, a, b, p.c0 ? p.beta : 0, p.c);
    }
};

GEMM_IMPLS(static, cublas, "NVIDIA's library, to compare with");
#define AND_CUBLAS(bits) , &gemm_cublas##bits
#endif

/* Best first, but cublas, which is no rung of the ladder, last.  Kernels of other files are
 * declared in gpu/gemm/gemm.cuh; those of tensor cores, for bf16 alone, go in front of the lists of
 * 16. */
GPU_KERNEL_LIST(gemm, 32, &gemm_blocked32, &gemm_registers32, &gemm_tiled32,
                &gemm_naive32 AND_CUBLAS(32));
GPU_KERNEL_LIST(gemm, 16, &gemm_wgmma16, &gemm_mma16, &gemm_blocked16, &gemm_registers16,
                &gemm_tiled16, &gemm_naive16 AND_CUBLAS(16));
GPU_KERNEL_LIST(gemm_batched, 32, &gemm_blocked32, &gemm_registers32, &gemm_tiled32,
                &gemm_naive32 AND_CUBLAS(32));
GPU_KERNEL_LIST(gemm_batched, 16, &gemm_wgmma16, &gemm_mma16, &gemm_blocked16, &gemm_registers16,
                &gemm_tiled16, &gemm_naive16 AND_CUBLAS(16));
GPU_KERNEL_LIST(gemm_splitk, 32, &gemm_splitk32, &gemm_naive32 AND_CUBLAS(32));
GPU_KERNEL_LIST(gemm_splitk, 16, &gemm_wgmma16, &gemm_mma16, &gemm_splitk16,
                &gemm_naive16 AND_CUBLAS(16));
