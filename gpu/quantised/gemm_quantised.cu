/* gemm_quantised: y = x W^T and dx = dy W, with quantised W.  naive: one thread per element, which
 * decodes each weight; tiled: tiles decoded to shared memory; unfused: W decoded to the workspace, then
 * cuBLAS.  gemm_quantised.cuh has the others. */
#include "gpu/quantised/gemm_quantised.cuh"

#include "gpu/device/vector.cuh"
#include "gpu/gemm/product.cuh"
#include "gpu/quantised/decode.cuh"
#include "gpu/quantised/dequantise.cuh"

enum { THREADS = 256, MAX_BLOCKS = 0x7fffffff, TILE = 64, DEPTH = 32 };

/* Element (d, c) of B. */
template <pass P, typename W>
static __device__ __forceinline__ float weight_at(const W &w, int64_t d, int64_t c)
{
    return P == FORWARD ? w.at(c, d) : w.at(d, c);
}

/* ---- naive ---- */

template <typename T, pass P, typename W>
__global__ void each_element(products_of<T> s, W w)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, m = i / s.C, c = i % s.C;
    float sum = 0;

    if (m >= s.M)
        return;
    for (int64_t d = 0; d < s.D; d++)
        sum += load(s.a + m * s.D + d) * weight_at<P>(w, d, c);
    store(s.c + i, sum);
}

/* ---- tiled ---- */

/* A block computes TILE x TILE elements, a thread 4 x 4 of them: rows 4 i ... of those, columns j, j +
 * 16 ....  All of a row's sum is in the order of d. */
template <typename T, pass P, typename W>
__global__ void __launch_bounds__(THREADS, 2) tile_elements(products_of<T> s, W w)
{
    __shared__ float A[DEPTH][TILE + 4];
    __shared__ float B[DEPTH][TILE + 1];
    const int64_t m0 = (int64_t)blockIdx.y * TILE, c0 = (int64_t)blockIdx.x * TILE;
    const int i = (int)threadIdx.x / 16 * 4, j = (int)threadIdx.x % 16;
    float sum[4][4] = {};

    for (int64_t d0 = 0; d0 < s.D; d0 += DEPTH) {
        for (int e = (int)threadIdx.x; e < TILE * DEPTH; e += THREADS) {
            const int d = e % DEPTH, r = e / DEPTH;
            A[d][r] = m0 + r < s.M && d0 + d < s.D ? load(s.a + (m0 + r) * s.D + d0 + d) : 0;
        }
        for (int e = (int)threadIdx.x; e < TILE * DEPTH; e += THREADS) {
            const int d = P == FORWARD ? e % DEPTH : e / TILE,
                      c = P == FORWARD ? e / DEPTH : e % TILE;
            B[d][c] = c0 + c < s.C && d0 + d < s.D ? weight_at<P>(w, d0 + d, c0 + c) : 0;
        }
        __syncthreads();
        #pragma unroll 4
        for (int d = 0; d < DEPTH; d++)
            for (int y = 0; y < 4; y++)
                for (int x = 0; x < 4; x++)
                    sum[y][x] += A[d][i + y] * B[d][j + 16 * x];
        __syncthreads();
    }
    for (int y = 0; y < 4; y++)
        for (int x = 0; x < 4; x++)
            if (m0 + i + y < s.M && c0 + j + 16 * x < s.C)
                store(s.c + (m0 + i + y) * s.C + c0 + j + 16 * x, sum[y][x]);
}

/* ---- launches ---- */

enum { naive, tiled };

template <typename T, int KERNEL, pass P>
static int run_pass(const struct call *f)
{
    return each_matrix<T, P>(f, [&](const products_of<T> &s, const struct dequantise &a) {
        const dim3 tiles((unsigned)ceil_div(s.C, TILE), (unsigned)ceil_div(s.M, TILE));
        const dim3 grid = KERNEL == tiled ? tiles : dim3((unsigned)ceil_div(s.M * s.C, THREADS));
        return with_matrix(f, a, [&](const auto &w) {
            typedef std::decay_t<decltype(w)> W;
            const auto kernel = KERNEL == tiled ? tile_elements<T, P, W> : each_element<T, P, W>;
            kernel<<<grid, THREADS, 0, gpu_stream(f)>>>(s, w);
            return (int)cudaGetLastError();
        });
    });
}

const char *gemm_quantised_no_spans(const struct call *f)
{
    if (DIM(f, 'K') % 32)
        return "dim_in that 32 does not divide";
    if (DIM(f, 'L') > 65535)
        return "more than 65535 matrices";
    return DIM(f, 'M') > 64 ? "more than 64 rows of x" : NULL;
}

OF_CALL(const char *, naive_declines,
        ceil_div(DIM(f, 'M') * max(DIM(f, 'N'), DIM(f, 'K')), THREADS) > MAX_BLOCKS
            ? "more elements than a grid of blocks has threads for"
            : NULL)
OF_CALL(const char *, tiled_declines,
        ceil_div(DIM(f, 'M'), TILE) > 65535 ? "more than 4194240 rows of x" : NULL)

/* ---- unfused ---- */

template <typename T, pass P>
static int unfused_pass(const struct call *f)
{
    const int64_t N = DIM(f, 'N'), K = DIM(f, 'K');
    T *w = (T *)f->work;
    return each_matrix<T, P>(f, [&](const products_of<T> &s, const struct dequantise &a) {
        const int e = unpack(f, a, w);
        return e ? e
                 : product(f->context, matrix<T>{s.a, s.M, s.D, false},
                           P == FORWARD ? matrix<T>{w, K, N, true} : matrix<T>{w, N, K, false}, 0,
                           s.c);
    });
}

/* W, decoded. */
template <typename T>
static size_t unfused_work(const struct call *f, enum pass)
{
    return sizeof(T) * DIM(f, 'N') * DIM(f, 'K');
}

GPU_KERNEL(naive, .idea = "one thread per element, which decodes each weight",
           .pass = {run_pass<T, naive, FORWARD>, run_pass<T, naive, BACKWARD>},
           .declines = naive_declines, .rows_alone = 1);
GPU_KERNEL(tiled, .idea = "tiles of W decoded to shared memory",
           .pass = {run_pass<T, tiled, FORWARD>, run_pass<T, tiled, BACKWARD>},
           .declines = tiled_declines, .rows_alone = 1);

/* It rounds weights to T. */
GPU_KERNEL(unfused, .idea = "W decoded to the workspace, then cuBLAS",
           .pass = {unfused_pass<T, FORWARD>, unfused_pass<T, BACKWARD>}, .work = unfused_work<T>,
           .declines = unpack_declines, .approximates = storage<T>::WEIGHTS_ROUNDED,
           .unit = storage<T>::UNIT, .products = 1);

#define EACH(T)                                                                                    \
    &gemm_quantised_warp<T>::kernel, &gemm_quantised_dp4a<T>::kernel, &unfused_impl<T>,            \
        &tiled_impl<T>, &naive_impl<T>,
GPU_KERNELS(gemm_quantised, &gemm_quantised_mma, GPU_TYPES(EACH));
