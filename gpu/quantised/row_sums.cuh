/* row_sums.cuh - what kernels share whose blocks have ROWS rows of W and MT of x, and whose threads share
 * the spans of these (span.cuh). */
#ifndef ROW_SUMS_CUH
#define ROW_SUMS_CUH

#include "gpu/device/reduce.cuh"
#include "gpu/quantised/gemm_quantised.cuh"
#include "gpu/quantised/span.cuh"

/* Calls go(got, run, first) for the runs of a thread: the spans of rows from n0 on, and the column where the
 * run begins.  There are N rows. */
template <typename F, int ROWS, int THREADS, typename Go>
static __device__ __forceinline__ void each_run(const packed_rows &w, int64_t n0, int64_t N,
                                                const Go &go)
{
    for (int64_t i = threadIdx.x; i < w.K / SPAN; i += THREADS) {
        span<F> got[ROWS];
        #pragma unroll
        for (int r = 0; r < ROWS; r++)
            got[r].load(w, min(n0 + r, N - 1), i);
        #pragma unroll
        for (int run = 0; run < 2; run++)
            go(got, run, span<F>::first(i, run));
    }
}

/* The sums of a block's threads, over the lanes and then over the warps, to y from (m0, n0) on.  Their
 * order is that of the threads, whatever MT is. */
template <int ROWS, int MT, int WARPS, typename T>
static __device__ __forceinline__ void store_sums(float (*sum)[MT],
                                                  float (&of_warp)[WARPS][ROWS * MT],
                                                  const products_of<T> &s, int64_t n0, int64_t m0)
{
    const int warp = (int)threadIdx.x / 32, i = (int)threadIdx.x;

    #pragma unroll
    for (int r = 0; r < ROWS; r++)
        #pragma unroll
        for (int m = 0; m < MT; m++) {
            const float all = warp_sum(sum[r][m]);
            if (threadIdx.x % 32 == 0)
                of_warp[warp][r * MT + m] = all;
        }
    __syncthreads();
    if (i >= ROWS * MT || n0 + i / MT >= s.C || m0 + i % MT >= s.M)
        return;
    float all = of_warp[0][i];
    #pragma unroll
    for (int k = 1; k < WARPS; k++)
        all += of_warp[k][i];
    store(s.c + (m0 + i % MT) * s.C + n0 + i / MT, all);
}

/* Blocks for all rows of W, of x, and matrices. */
template <int ROWS, int MT, typename T>
static dim3 grid_of_rows(const struct call *f, const products_of<T> &s)
{
    return dim3((unsigned)ceil_div(s.C, ROWS), (unsigned)ceil_div(s.M, MT), (unsigned)DIM(f, 'L'));
}

/* go(MT), a std::integral_constant, of the rows of x of a block. */
template <typename Go>
static int with_rows_of_x(int64_t M, const Go &go)
{
    return M == 1   ? go(std::integral_constant<int, 1>())
           : M == 2 ? go(std::integral_constant<int, 2>())
           : M <= 4 ? go(std::integral_constant<int, 4>())
                    : go(std::integral_constant<int, 8>());
}

#endif
