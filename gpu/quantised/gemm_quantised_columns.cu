/* gemm_quantised, dx = dy W for few rows of dy.  A thread has a span of 32 columns (span.cuh) and adds
 *
 *     dx[m][k] = sum over n of  dy[m][n] w[n][k]
 *
 * over rows n of W.  A block has 32 spans and a slab of rows, which its eight warps share; the sums of the
 * warps are added, then those of the slabs, both in order: whatever the number of rows of dy, a row's bits
 * are the same. */
#include "gpu/device/vector.cuh"
#include "gpu/quantised/gemm_quantised.cuh"
#include "gpu/quantised/span.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS, COLUMNS = 32 * SPAN, MOST_SLABS = 32 };

/* The rows of W in slabs of so many, and the sums of each: [slabs, M, K]. */
struct slabs_of {
    int64_t rows, n;
    float *sums;

    __host__ explicit slabs_of(const struct call *f)
        : rows(ceil_div(DIM(f, 'N'), MOST_SLABS * WARPS) * WARPS), n(ceil_div(DIM(f, 'N'), rows)),
          sums((float *)f->work)
    {
    }
};

/* sum[m] += dy[m][n] of a row's span. */
template <typename T, int MT, typename S>
static __device__ __forceinline__ void
add_row(float (*sum)[2][RUN], const S &got, const float *table, const products_of<T> &s, int64_t n)
{
    #pragma unroll
    for (int run = 0; run < 2; run++) {
        float w[RUN];
        got.weights(run, table, w);
        #pragma unroll
        for (int m = 0; m < MT; m++) {
            const float dy = load(s.a + min((int64_t)m, s.M - 1) * s.D + n);
            #pragma unroll
            for (int k = 0; k < RUN; k++)
                sum[m][run][k] = fmaf(dy, w[k], sum[m][run][k]);
        }
    }
}

/* The sums of the warps, for a row of dy, to `to`, that row's sums of the slab. */
template <typename F>
static __device__ __forceinline__ void add_warps(const float (*sum)[RUN], float *to, int64_t K)
{
    __shared__ float of_warp[WARPS][32 * (RUN + 1)];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;

    #pragma unroll
    for (int run = 0; run < 2; run++) {
        #pragma unroll
        for (int k = 0; k < RUN; k++)
            of_warp[warp][lane * (RUN + 1) + k] = sum[run][k];
        __syncthreads();
        for (int e = (int)threadIdx.x; e < 32 * RUN; e += THREADS) {
            const int64_t i = (int64_t)blockIdx.x * 32 + e / RUN;
            float all = 0;
            #pragma unroll
            for (int of = 0; of < WARPS; of++)
                all += of_warp[of][e / RUN * (RUN + 1) + e % RUN];
            if (i < K / SPAN)
                to[span<F>::first(i, run) + e % RUN] = all;
        }
        __syncthreads();
    }
}

template <typename T, typename F, int MT>
__global__ void __launch_bounds__(THREADS, MT == 4 ? 1 : 2)
    columns_of_slab(products_of<T> s, packed_rows w, slabs_of slabs)
{
    constexpr int AT_ONCE = MT == 1 ? 4 : 2;
    __shared__ float table[16];
    const int64_t i = min((int64_t)blockIdx.x * 32 + threadIdx.x % 32, w.K / SPAN - 1);
    const int64_t m0 = (int64_t)blockIdx.z * MT, M = s.M;
    const int64_t end = min((blockIdx.y + 1) * slabs.rows, s.D);
    float sum[MT][2][RUN] = {};

    s.a += m0 * s.D;
    s.M -= m0;
    if (std::is_same<F, nf4>::value)
        load_nf4_table(table);
    for (int64_t n = blockIdx.y * slabs.rows + threadIdx.x / 32; n < end; n += AT_ONCE * WARPS) {
        span<F> got[AT_ONCE];
        #pragma unroll
        for (int r = 0; r < AT_ONCE; r++)
            got[r].load(w, min(n + r * WARPS, s.D - 1), i);
        #pragma unroll
        for (int r = 0; r < AT_ONCE; r++)
            if (n + r * WARPS < end)
                add_row<T, MT>(sum, got[r], table, s, n + r * WARPS);
    }
    #pragma unroll
    for (int m = 0; m < MT; m++)
        if (m < s.M)
            add_warps<F>(sum[m], slabs.sums + (blockIdx.y * M + m0 + m) * w.K, w.K);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) add_slabs(products_of<T> s, slabs_of slabs)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, each = s.M * s.C;
    float all = 0;

    if (i >= each)
        return;
    #pragma unroll 8
    for (int64_t j = 0; j < slabs.n; j++)
        all += slabs.sums[j * each + i];
    store(s.c + i, all);
}

/* ---- launches ---- */

template <typename T, typename F, int MT>
static int launch(const struct call *f, const products_of<T> &s, const packed_rows &w)
{
    const slabs_of slabs(f);
    const dim3 grid((unsigned)ceil_div(s.C, COLUMNS), (unsigned)slabs.n,
                    (unsigned)ceil_div(s.M, MT));

    columns_of_slab<T, F, MT><<<grid, THREADS, 0, gpu_stream(f)>>>(s, w, slabs);
    CUDA(cudaGetLastError());
    add_slabs<T><<<(unsigned)ceil_div(s.M * s.C, THREADS), THREADS, 0, gpu_stream(f)>>>(s, slabs);
    return cudaGetLastError();
}

template <typename T>
int gemm_quantised_columns_backward(const struct call *f)
{
    int e = 0;

    for (int64_t l = 0; !e && l < DIM(f, 'L'); l++) {
        const products_of<T> s = products_of_pass<T, BACKWARD>(f, l);
        const packed_rows w(f, gemm_quantised_W(f, l, sizeof(float)));
        e = with_format(f, [&](auto format) {
            typedef decltype(format) F;
            return s.M == 1   ? launch<T, F, 1>(f, s, w)
                   : s.M == 2 ? launch<T, F, 2>(f, s, w)
                              : launch<T, F, 4>(f, s, w);
        });
    }
    return e;
}
template int gemm_quantised_columns_backward<float>(const struct call *f);
template int gemm_quantised_columns_backward<__nv_bfloat16>(const struct call *f);

size_t gemm_quantised_columns_work(const struct call *f, enum pass p)
{
    return p == BACKWARD ? sizeof(float) * slabs_of(f).n * DIM(f, 'M') * DIM(f, 'K') : 0;
}
