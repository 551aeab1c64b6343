/* gemm_quantised, warp: y = x W^T for few rows of x.  A block has ROWS rows of W, and its threads share
 * the spans of these (span.cuh); all sums are added in one order, whatever the number of rows of x. */
#include "gpu/device/vector.cuh"
#include "gpu/quantised/row_sums.cuh"
#include "gpu/quantised/span.cuh"

enum { THREADS = 128, WARPS = THREADS / 32, ROWS = 4 };

/* Sixteen elements, from an address that is a multiple of 16 bytes. */
template <typename T>
static __device__ __forceinline__ void load_run(const T *from, float *x)
{
    constexpr int N = WIDTH<T>;
    #pragma unroll
    for (int k = 0; k < RUN; k += N)
        unpack(load_vec<N>(from + k), x + k);
}

/* sum[r][m] += of a run of row r. */
template <typename T, int MT, typename S>
static __device__ __forceinline__ void add_run(float (*sum)[MT], const S *got, int run,
                                               const float *table, const T *x, int64_t K, int rows)
{
    float w[ROWS][RUN];

    #pragma unroll
    for (int r = 0; r < ROWS; r++)
        got[r].weights(run, table, w[r]);
    #pragma unroll
    for (int m = 0; m < MT; m++) {
        float of_x[RUN];
        if (m >= rows)
            break;
        load_run(x + m * K, of_x);
        #pragma unroll
        for (int r = 0; r < ROWS; r++)
            #pragma unroll
            for (int k = 0; k < RUN; k++)
                sum[r][m] = fmaf(w[r][k], of_x[k], sum[r][m]);
    }
}

template <typename T, typename F, int MT>
__global__ void __launch_bounds__(THREADS, MT == 1 ? 3 : 2)
    warp_rows(products_of<T> s, packed_rows w)
{
    __shared__ float table[16];
    __shared__ float of_warp[WARPS][ROWS * MT];
    const int64_t n0 = (int64_t)blockIdx.x * ROWS, m0 = (int64_t)blockIdx.y * MT;
    const int rows = (int)min(s.M - m0, (int64_t)MT);
    float sum[ROWS][MT] = {};

    s.move_to(blockIdx.z);
    w.move_to(blockIdx.z);
    if (std::is_same<F, nf4>::value)
        load_nf4_table(table);
    each_run<F, ROWS, THREADS>(w, n0, s.C, [&](const span<F> *got, int run, int64_t first) {
        add_run(sum, got, run, table, s.a + m0 * w.K + first, w.K, rows);
    });
    store_sums<ROWS>(sum, of_warp, s, n0, m0);
}

/* ---- launches ---- */

template <typename T, typename F, int MT>
static int launch(const struct call *f, const products_of<T> &s, const packed_rows &w)
{
    warp_rows<T, F, MT><<<grid_of_rows<ROWS, MT>(f, s), THREADS, 0, gpu_stream(f)>>>(s, w);
    return cudaGetLastError();
}

template <typename T>
static int forward(const struct call *f)
{
    const products_of<T> s = products_of_pass<T, FORWARD>(f, 0);
    const packed_rows w(f, gemm_quantised_W(f, 0, sizeof(float)));

    return with_format(f, [&](auto format) {
        return with_rows_of_x(s.M, [&](auto MT) {
            return launch<T, decltype(format), decltype(MT)::value>(f, s, w);
        });
    });
}

GPU_KERNEL_OF(gemm_quantised_warp, warp,
              .idea = "a block four rows of W, 32 weights per thread from 16 bytes",
              .pass = {forward<T>, gemm_quantised_columns_backward<T>},
              .work = gemm_quantised_columns_work, .declines = gemm_quantised_no_spans,
              .rows_alone = 1);
