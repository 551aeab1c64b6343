/* gemm_quantised, dp4a: y = x W^T for few rows of x, which are rounded to integers, as q8_1 is:
 *
 *     d = max |x| / 127,  qx = round(x / d)                  of each 32 elements of x
 *     y = sum over runs of  d (s sum(q qx) - minimum sum(qx))
 *
 * A run is 16 weights of a row, each s q - minimum, and the 16 elements of x that they multiply.
 *
 * The sums over a run are of whole numbers, four products by a DP4A; those over runs are of floats, in
 * one order, whatever the number of rows of x.  An element of x is off by at most d / 2, a 254th of the
 * largest of its 32.  Where one of these is infinite or NaN, d is NaN, and so is y. */
#include "gpu/device/vector.cuh"
#include "gpu/quantised/row_sums.cuh"
#include "gpu/quantised/span.cuh"

enum { THREADS = 128, WARPS = THREADS / 32, ROWS = 4 };

/* Of 16 elements of x; their 32 share d. */
struct alignas(8) run_of_x {
    float d;
    int sum; /* of qx */
};

/* The rounded rows of x, 16 elements an item, in the workspace. */
struct rounded_x {
    uint4 *qx;
    run_of_x *run;

    __host__ rounded_x(work_arena *a, const struct call *f)
    {
        const int64_t runs = DIM(f, 'L') * DIM(f, 'M') * DIM(f, 'K') / RUN;
        qx = take<uint4>(a, runs);
        run = take<run_of_x>(a, runs);
    }
    /* Go on by so many elements. */
    __device__ __forceinline__ void move(int64_t by)
    {
        qx += by / RUN;
        run += by / RUN;
    }
};

/* ---- x, rounded ---- */

/* A thread has four elements, so that eight have 32. */
template <typename T>
__global__ void __launch_bounds__(THREADS) round_x(const T *from, int64_t n, rounded_x to)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    float x[4], top = 0;
    unsigned qx = 0;
    int sum = 0;

    unpack(load_vec<4>(from + 4 * min(i, n / 4 - 1)), x);
    #pragma unroll
    for (int k = 0; k < 4; k++)
        top = max_nan(top, fabsf(x[k]));
    top = warp_max<8>(top);
    const float d = top < INFINITY ? top / 127 : NAN;
    #pragma unroll
    for (int k = 0; k < 4; k++) {
        /* Where d is subnormal, it is so coarse that x / d may be more than 127; where it is 0, so is x. */
        const float of = d > 0 ? fminf(fmaxf(x[k] / d, -127), 127) : 0;
        const int q = __float2int_rn(of);
        qx |= (unsigned)(q & 255) << 8 * k;
        sum += q;
    }
    sum += __shfl_xor_sync(0xffffffff, sum, 1);
    sum += __shfl_xor_sync(0xffffffff, sum, 2);
    if (4 * i >= n)
        return;
    ((unsigned *)to.qx)[i] = qx;
    if (i % 4 == 0)
        to.run[i / 4] = {d, sum};
}

/* The same on the host, for the judge. */
static void round_on_host(const struct call *f, int arg, double *x)
{
    const int64_t n = op_count(f, arg);

    for (int64_t i = 0; i + SPAN <= n; i += SPAN) {
        float top = 0;
        for (int k = 0; k < SPAN; k++)
            top = std::isfinite(x[i + k]) ? fmaxf(top, fabsf((float)x[i + k])) : INFINITY;
        const float d = top < INFINITY ? top / 127 : NAN;
        for (int k = 0; k < SPAN; k++) {
            const float of = d > 0 ? rintf((float)x[i + k] / d) : 0;
            x[i + k] = (double)d * fminf(fmaxf(of, -127), 127);
        }
    }
}

/* ---- products ---- */

/* sum[r][m] += of a run of row r. */
template <int MT, typename S>
static __device__ __forceinline__ void add_run(float (*sum)[MT], const S *got, int run,
                                               const rounded_x &x, int64_t K, int rows)
{
    unsigned q[ROWS][4];
    float s[ROWS], minimum[ROWS];

    #pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float2 line = got[r].line(run);
        s[r] = line.x;
        minimum[r] = line.y;
        #pragma unroll
        for (int c = 0; c < 4; c++)
            q[r][c] = got[r].quants(run, c);
    }
    #pragma unroll
    for (int m = 0; m < MT; m++) {
        if (m >= rows)
            break;
        const uint4 qx = x.qx[m * K / RUN];
        const run_of_x of_x = x.run[m * K / RUN];
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int dot = 0;
            #pragma unroll
            for (int c = 0; c < 4; c++)
                dot = dot_bytes(q[r][c], word_of(qx, c), dot);
            const float of_run = fmaf(s[r], (float)dot, -(minimum[r] * (float)of_x.sum));
            sum[r][m] = fmaf(of_x.d, of_run, sum[r][m]);
        }
    }
}

template <typename T, typename F, int MT>
__global__ void __launch_bounds__(THREADS, MT == 1 ? 3 : 2)
    dp4a_rows(products_of<T> s, packed_rows w, rounded_x x)
{
    __shared__ float of_warp[WARPS][ROWS * MT];
    const int64_t n0 = (int64_t)blockIdx.x * ROWS, m0 = (int64_t)blockIdx.y * MT;
    const int rows = (int)min(s.M - m0, (int64_t)MT);
    float sum[ROWS][MT] = {};

    s.move_to(blockIdx.z);
    w.move_to(blockIdx.z);
    x.move((blockIdx.z * s.M + m0) * w.K);
    each_run<F, ROWS, THREADS>(w, n0, s.C, [&](const span<F> *got, int run, int64_t first) {
        rounded_x here = x;
        here.move(first);
        add_run(sum, got, run, here, w.K, rows);
    });
    store_sums<ROWS>(sum, of_warp, s, n0, m0);
}

/* ---- launches ---- */

template <typename T, typename F, int MT>
static int launch(const struct call *f, const products_of<T> &s, const packed_rows &w,
                  const rounded_x &x)
{
    dp4a_rows<T, F, MT><<<grid_of_rows<ROWS, MT>(f, s), THREADS, 0, gpu_stream(f)>>>(s, w, x);
    return cudaGetLastError();
}

template <typename T>
static int forward(const struct call *f)
{
    const products_of<T> s = products_of_pass<T, FORWARD>(f, 0);
    const packed_rows w(f, gemm_quantised_W(f, 0, sizeof(float)));
    const int64_t n = DIM(f, 'L') * s.M * s.D;
    work_arena a = {(char *)f->work, 0};
    const rounded_x x(&a, f);

    round_x<T><<<(unsigned)ceil_div(n / 4, THREADS), THREADS, 0, gpu_stream(f)>>>(s.a, n, x);
    CUDA(cudaGetLastError());
    return with_format(f, [&](auto format) {
        typedef decltype(format) F;
        if constexpr (std::is_same<F, nf4>::value)
            return (int)cudaErrorInvalidValue;
        else
            return with_rows_of_x(
                s.M, [&](auto MT) { return launch<T, F, decltype(MT)::value>(f, s, w, x); });
    });
}

static size_t work(const struct call *f, enum pass p)
{
    work_arena a = {NULL, 0};

    if (p == BACKWARD)
        return gemm_quantised_columns_work(f, p);
    rounded_x(&a, f);
    return a.bytes;
}

OF_CALL(const char *, declines,
        f->choice[QUANTISED_FORMAT] == NF4 ? "nf4, whose weights are not integers times a scale"
                                           : gemm_quantised_no_spans(f))

GPU_KERNEL_OF(gemm_quantised_dp4a, dp4a,
              .idea = "as warp, but x rounded to 8 bits, and four products of integers at once",
              .pass = {forward<T>, gemm_quantised_columns_backward<T>}, .work = work,
              .declines = declines, .approximates = "x rounded to 8 bits of the largest of 32",
              .rows_alone = 1, .rounds = round_on_host);
