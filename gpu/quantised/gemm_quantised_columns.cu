/* gemm_quantised, dx = dy W for few rows of dy:
 *
 *     dx[m][k] = sum over n of  dy[m][n] w[n][k]
 *
 * in floats, or on tensor cores with w rounded to bf16.  A block has some spans of 32 columns (span.cuh) and a
 * slab of rows of W, which its eight warps share; the sums of the warps are added, then those of the slabs,
 * both in order: whatever the number of rows of dy, a row's bits are the same. */
#include "gpu/device/fragment.cuh"
#include "gpu/device/vector.cuh"
#include "gpu/quantised/gemm_quantised.cuh"
#include "gpu/quantised/span.cuh"

enum { WARPS = 8, THREADS = 32 * WARPS };

/* How W is divided among blocks: so many spans, at most so many slabs, and rows for a warp at once. */
struct division {
    int spans, slabs, rows;
};
static constexpr division of_floats = {32, 32, 1}, of_tensor_cores = {8, 16, 16};

/* The rows of W in slabs of so many, and the sums of each: [slabs, M, K]. */
struct slabs_of {
    int64_t rows, n;
    float *sums;

    __host__ slabs_of(const struct call *f, const division &p)
        : rows(ceil_div(DIM(f, 'N'), (int64_t)p.slabs * p.rows * WARPS) * p.rows * WARPS),
          n(ceil_div(DIM(f, 'N'), rows)), sums((float *)f->work)
    {
    }
    size_t bytes(const struct call *f) const
    {
        return sizeof(float) * n * DIM(f, 'M') * DIM(f, 'K');
    }
};

/* ---- in floats: a thread has a span ---- */

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
            const int64_t i = (int64_t)blockIdx.x * of_floats.spans + e / RUN;
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
    const int64_t i = min((int64_t)blockIdx.x * of_floats.spans + threadIdx.x % 32, w.K / SPAN - 1);
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

/* ---- on tensor cores ---- */

/* dy is the left operand of mma m16n8k16, and 16 rows of W the right one: a lane has a span of the four rows
 * 2 t, 2 t + 1, 2 t + 8, 2 t + 9, t = lane % 4, and of spans the one g = lane / 4.  So tile k of a run has
 * element k of that run of eight spans. */
struct sums_of_spans {
    float of[2][RUN][4];
};

/* Row i of those four, in a group of 16. */
static __device__ __forceinline__ int row_of_four(int i)
{
    return fragment_column() + i / 2 * 8 + i % 2;
}

/* dy of 16 rows and of 16 columns from n on; of rows and columns that there are not, zeros. */
static __device__ __forceinline__ void load_dy(unsigned *a, const products_of<bf16> &s, int64_t n)
{
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        const int64_t m = fragment_row() + i % 2 * 8;
        float dy[2];
        #pragma unroll
        for (int k = 0; k < 2; k++) {
            const int64_t column = n + row_of_four(i / 2 * 2 + k);
            dy[k] = m < s.M && column < s.D ? load(s.a + m * s.D + column) : 0;
        }
        a[i] = pack_bf16x2(dy[0], dy[1]);
    }
}

/* sum += dy of 16 rows of W from n on. */
template <typename F>
static __device__ __forceinline__ void add_group(sums_of_spans &sum, const products_of<bf16> &s,
                                                 const packed_rows &w, const float *table,
                                                 int64_t n, int64_t i)
{
    span<F> got[4];
    unsigned a[4];

    #pragma unroll
    for (int r = 0; r < 4; r++)
        got[r].load(w, min(n + row_of_four(r), s.D - 1), i);
    load_dy(a, s, n);
    #pragma unroll
    for (int run = 0; run < 2; run++) {
        unsigned b[RUN][2];
        #pragma unroll
        for (int half = 0; half < 2; half++) {
            float even[RUN], odd[RUN];
            got[2 * half].weights(run, table, even);
            got[2 * half + 1].weights(run, table, odd);
            #pragma unroll
            for (int k = 0; k < RUN; k++)
                b[k][half] = pack_bf16x2(even[k], odd[k]);
        }
        #pragma unroll
        for (int k = 0; k < RUN; k++)
            mma_bf16(sum.of[run][k], a, b[k]);
    }
}

/* The sums of the warps, 16 rows of dx with M of them, to `to`, four tiles at a time. */
template <typename F>
static __device__ __forceinline__ void add_warps(const sums_of_spans &sum, float *to, int64_t M,
                                                 int64_t K)
{
    enum { TILES = 4, TILE = 16 * 8 };
    __shared__ float2 of_warp[WARPS][TILES * TILE / 2];
    const int warp = (int)threadIdx.x / 32, at = fragment_row() * 4 + fragment_column() / 2;

    #pragma unroll
    for (int first = 0; first < 2 * RUN; first += TILES) {
        #pragma unroll
        for (int i = 0; i < TILES; i++) {
            const float *d = sum.of[first / RUN][first % RUN + i];
            of_warp[warp][i * TILE / 2 + at] = make_float2(d[0], d[1]);
            of_warp[warp][i * TILE / 2 + at + TILE / 4] = make_float2(d[2], d[3]);
        }
        __syncthreads();
        for (int e = (int)threadIdx.x; e < TILES * TILE; e += THREADS) {
            const int tile = e % TILES, in_block = e / TILES % 8, m = e / TILES / 8;
            const int64_t i = (int64_t)blockIdx.x * of_tensor_cores.spans + in_block;
            float all = 0;
            #pragma unroll
            for (int of = 0; of < WARPS; of++)
                all += ((const float *)of_warp[of])[tile * TILE + m * 8 + in_block];
            if (i < K / SPAN && m < M)
                to[m * K + span<F>::first(i, first / RUN) + first % RUN + tile] = all;
        }
        __syncthreads();
    }
}

template <typename F>
__global__ void __launch_bounds__(THREADS, 1)
    tensor_columns_of_slab(products_of<bf16> s, packed_rows w, slabs_of slabs)
{
    __shared__ float table[16];
    const int64_t i =
        min((int64_t)blockIdx.x * of_tensor_cores.spans + fragment_row(), w.K / SPAN - 1);
    const int64_t m0 = (int64_t)blockIdx.z * 16;
    const int64_t end = min((blockIdx.y + 1) * slabs.rows, s.D);
    float *to = slabs.sums + (blockIdx.y * s.M + m0) * w.K;
    sums_of_spans sum = {};

    s.a += m0 * s.D;
    s.M -= m0;
    if (std::is_same<F, nf4>::value)
        load_nf4_table(table);
    for (int64_t n = blockIdx.y * slabs.rows + threadIdx.x / 32 * 16; n < end; n += 16 * WARPS)
        add_group<F>(sum, s, w, table, n, i);
    add_warps<F>(sum, to, s.M, w.K);
}

/* ---- launches ---- */

template <typename T>
static int add_slabs_of(const struct call *f, const products_of<T> &s, const slabs_of &slabs)
{
    const unsigned blocks = (unsigned)ceil_div(s.M * s.C, THREADS);

    CUDA(cudaGetLastError());
    add_slabs<T><<<blocks, THREADS, 0, gpu_stream(f)>>>(s, slabs);
    return cudaGetLastError();
}

/* Blocks for all columns, slabs, and rows of dy, of which a block has `rows`. */
template <typename T>
static dim3 grid_of(const products_of<T> &s, const division &p, const slabs_of &slabs, int rows)
{
    return dim3((unsigned)ceil_div(s.C, p.spans * SPAN), (unsigned)slabs.n,
                (unsigned)ceil_div(s.M, rows));
}

template <typename T, typename F, int MT>
static int launch(const struct call *f, const products_of<T> &s, const packed_rows &w)
{
    const slabs_of slabs(f, of_floats);
    const dim3 grid = grid_of(s, of_floats, slabs, MT);

    columns_of_slab<T, F, MT><<<grid, THREADS, 0, gpu_stream(f)>>>(s, w, slabs);
    return add_slabs_of(f, s, slabs);
}

template <typename F>
static int launch_tensor(const struct call *f, const products_of<bf16> &s, const packed_rows &w)
{
    const slabs_of slabs(f, of_tensor_cores);
    const dim3 grid = grid_of(s, of_tensor_cores, slabs, 16);

    tensor_columns_of_slab<F><<<grid, THREADS, 0, gpu_stream(f)>>>(s, w, slabs);
    return add_slabs_of(f, s, slabs);
}

/* go(format, products, W) of each matrix. */
template <typename T, typename Go>
static int each_packed(const struct call *f, const Go &go)
{
    return each_matrix<T, BACKWARD>(f, [&](const products_of<T> &s, const struct dequantise &a) {
        const packed_rows w(f, a);
        return with_format(f, [&](auto format) { return go(format, s, w); });
    });
}

template <typename T>
int gemm_quantised_columns_backward(const struct call *f)
{
    return each_packed<T>(f, [&](auto format, const auto &s, const auto &w) {
        typedef decltype(format) F;
        return s.M == 1   ? launch<T, F, 1>(f, s, w)
               : s.M == 2 ? launch<T, F, 2>(f, s, w)
                          : launch<T, F, 4>(f, s, w);
    });
}
#define EACH(T) template int gemm_quantised_columns_backward<T>(const struct call *f);
GPU_TYPES(EACH)

size_t gemm_quantised_columns_work(const struct call *f, enum pass p)
{
    return p == BACKWARD ? slabs_of(f, of_floats).bytes(f) : 0;
}

int gemm_quantised_mma_backward(const struct call *f)
{
    return each_packed<bf16>(f, [&](auto format, const auto &s, const auto &w) {
        return launch_tensor<decltype(format)>(f, s, w);
    });
}

size_t gemm_quantised_mma_work(const struct call *f, enum pass p)
{
    return p == BACKWARD ? slabs_of(f, of_tensor_cores).bytes(f) : 0;
}
