/* row_sums.cuh - the end of kernels whose blocks have ROWS rows of W and MT of x, and whose threads share
 * the spans of these (span.cuh); and the values of MT for a number of rows. */
#ifndef ROW_SUMS_CUH
#define ROW_SUMS_CUH

#include "gpu/device/reduce.cuh"
#include "gpu/quantised/gemm_quantised.cuh"

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
