/* y[b,i] = sum of x[b,k] over |k - i| <= R, divided by 2 R + 1; x, y [B,N], zeros outside a row.
 * Backward is the same on dy.
 *
 * naive has one thread per output, halo and sliding one block per tile of a row, flat one per tile of
 * all rows, one after the other. */
#include "common/ops/stencil1d.h"
#include "gpu/device/launch.cuh"
#include "gpu/pattern/stencil.cuh"

/* The arguments of a pass: x [B,N], and its means y [B,N]. */
struct means {
    const void *x;
    void *y;
    int64_t B, N, R; /* R is limited to N - 1 */
    float scale;
};

enum { THREADS = 256 };

/* ---- naive: one thread per output, which reads its window from global memory ---- */

template <typename T>
__global__ void naive_kernel(means m)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= m.B * m.N)
        return;
    const int64_t i = at % m.N;
    const T *row = (const T *)m.x + (at - i);
    float sum = 0;
    for (int64_t k = max(i - m.R, (int64_t)0); k <= min(i + m.R, m.N - 1); k++)
        sum += load(row + k);
    store((T *)m.y + at, sum * m.scale);
}

template <typename T>
static int naive(struct context *on, const means &m)
{
    naive_kernel<T><<<ceil_div(m.B * m.N, THREADS), THREADS, 0, on->stream>>>(m);
    return cudaGetLastError();
}

OF_CALL(const char *, naive_declines,
        DIM(f, 'B') * DIM(f, 'N') / THREADS >= INT32_MAX ? "more elements than a grid has threads"
                                                         : NULL)

/* ---- halo: a tile of a row and a halo of R on each side in shared memory, read once ---- */

enum { HALO_TILE = 1024 };

template <typename T>
__global__ void halo_kernel(means m, int tiles)
{
    extern __shared__ __align__(16) float tile[]; /* [R + HALO_TILE + R] */
    const int64_t row = blockIdx.x / tiles * m.N, first = blockIdx.x % tiles * (int64_t)HALO_TILE;
    const int R = (int)m.R;

    for (int p = threadIdx.x; p < HALO_TILE + 2 * R; p += THREADS) {
        const int64_t i = first - R + p;
        tile[p] = i >= 0 && i < m.N ? load((const T *)m.x + row + i) : 0;
    }
    __syncthreads();
    for (int p = threadIdx.x; p < HALO_TILE && first + p < m.N; p += THREADS) {
        float sum = 0;
        for (int k = 0; k <= 2 * R; k++)
            sum += tile[p + k];
        store((T *)m.y + row + first + p, sum * m.scale);
    }
}

static size_t halo_bytes(int64_t R)
{
    return sizeof(float) * (HALO_TILE + 2 * R);
}

template <typename T>
static int halo(struct context *on, const means &m)
{
    const int tiles = (int)ceil_div(m.N, HALO_TILE), bytes = (int)halo_bytes(m.R);
    CUDA(allow_smem(halo_kernel<T>, bytes));
    halo_kernel<T><<<m.B * tiles, THREADS, bytes, on->stream>>>(m, tiles);
    return cudaGetLastError();
}

static const char *does_not_fit(const struct call *f, int64_t tile, size_t bytes)
{
    if (bytes > gpu_limits(f)->smem)
        return "a tile with its neighbours is more than the shared memory of a block";
    return DIM(f, 'B') * ceil_div(DIM(f, 'N'), tile) > INT32_MAX
               ? "more tiles than a grid has blocks"
               : NULL;
}

OF_CALL(const char *, halo_declines,
        does_not_fit(f, HALO_TILE, halo_bytes(reach(DIM(f, 'R'), DIM(f, 'N')))))

/* ---- sliding: K neighbouring outputs use the same sum of the common part of their windows ---- */

enum { OUTPUTS = 16 }; /* outputs of a thread */

/* Threads per row, or per tile of it. */
static int threads_for(int64_t N)
{
    return (int)min((int64_t)THREADS, ceil_div(ceil_div(N, OUTPUTS), 32) * 32);
}

/* The bytes of shared memory for the tile and the sums of its chunks. */
static size_t sliding_bytes(int64_t N, int64_t R)
{
    const int64_t length = threads_for(N) * OUTPUTS + 2 * ceil_div(R, 8) * 8;
    return sizeof(float) * (length + length / 32 + 1 + length / 4);
}

/* Each thread first sums chunks of K elements, then computes windows from the sums of chunks: an
 * output needs about 2 + 2R/K^2 reads of shared memory instead of 2R + 1.  The tile has 16 elements
 * per thread: 16 KB in flight per block in fp32. */
template <typename T, int K>
__global__ void __launch_bounds__(THREADS) sliding_kernel(means m, int tiles, int margin)
{
    extern __shared__ __align__(16) float s[];
    const int threads = blockDim.x, tile = threads * OUTPUTS, length = tile + 2 * margin;
    const int64_t row = blockIdx.x / tiles * m.N, first = blockIdx.x % tiles * (int64_t)tile;
    const int window = 2 * (int)m.R + 1,
              begin = margin - (int)m.R; /* begin of the first output's window */
    const bool wide = in_vectors<T>(m.N);
    const group_thread by = {(int)threadIdx.x, threads};
    float *sums = s + padded(length) + 1, y[OUTPUTS];

    fill(s, (const T *)m.x + row, first - margin, length, m.N, wide, by);
    __syncthreads();
    if (K > 1) {
        sum_chunks<K>(sums, s, begin, tile / K + chunks_within<K>(window), by);
        __syncthreads();
    }
    #pragma unroll 16
    for (int n = 0; n < OUTPUTS / K; n++) {
        const int chunk = threadIdx.x + n * threads;
        slide<K>(y + n * K, s, sums + chunk, begin + chunk * K, window);
    }
    __syncthreads();
    #pragma unroll 16
    for (int n = 0; n < OUTPUTS; n++)
        s[padded((threadIdx.x + n / K * threads) * K + n % K)] = y[n] * m.scale;
    __syncthreads();

    T *to = (T *)m.y + row + first;
    if (wide)
        for (int p = threadIdx.x * WIDTH<T>; p < tile && first + p < m.N; p += threads * WIDTH<T>)
            store_vec(to + p, pack<T>(s + padded(p)));
    else
        for (int p = threadIdx.x; p < tile && first + p < m.N; p += threads)
            store(to + p, s[padded(p)]);
}

template <typename T, int K>
static int sliding_by(struct context *on, const means &m)
{
    const int threads = threads_for(m.N), tiles = (int)ceil_div(m.N, threads * OUTPUTS);
    const int bytes = (int)sliding_bytes(m.N, m.R), margin = margin_of<T>(m.R, m.N);

    CUDA(allow_smem(sliding_kernel<T, K>, bytes));
    sliding_kernel<T, K><<<m.B * tiles, threads, bytes, on->stream>>>(m, tiles, margin);
    return cudaGetLastError();
}

/* Selects K: a window must not be shorter than a chunk. */
template <typename T>
static int sliding(struct context *on, const means &m)
{
    const int64_t window = 2 * m.R + 1;
    return window >= 16  ? sliding_by<T, 16>(on, m)
           : window >= 4 ? sliding_by<T, 4>(on, m)
                         : sliding_by<T, 1>(on, m);
}

static const char *sliding_declines(const struct call *f)
{
    const int64_t N = DIM(f, 'N');
    return does_not_fit(f, threads_for(N) * OUTPUTS, sliding_bytes(N, reach(DIM(f, 'R'), N)));
}

/* ---- flat: a tile of all rows as they follow each other in memory ---- */

/* The tile begins at a multiple of 16 bytes, wherever rows begin, so all accesses are vectors.  A thread
 * has V neighbouring outputs at a time, and adds an element of their windows to all of them. */
#define FLAT_RADIUS 16
enum { FLAT_TILE = THREADS * OUTPUTS };

/* s[padded(p)] = x[first + p] for p < length, zero outside the `all` elements of x; first and length are
 * multiples of a vector. */
template <typename T>
static __device__ __forceinline__ void fill_flat(float *s, const T *x, int64_t first, int length,
                                                 int64_t all)
{
    const int64_t whole = all / WIDTH<T> * WIDTH<T>, at = whole + threadIdx.x;
    const group_thread by = {(int)threadIdx.x, THREADS};

    fill(s, x, first, length, whole, true, by);
    __syncthreads();
    if (at < all && at >= first && at - first < length)
        s[padded((int)(at - first))] = load(x + at);
    __syncthreads();
}

/* y[j] = sum of s[p + j ... p + j + window - 1], j < V, where valid(j, d) holds for element d of a
 * window, in the order of d. */
template <int V, typename F>
static __device__ __forceinline__ void add_windows(float (&y)[V], const float *s, int p, int window,
                                                   const F &valid)
{
    float ring[V]; /* element d + j of the windows, at (d + j) % V */

    #pragma unroll
    for (int j = 0; j < V; j++) {
        y[j] = 0;
        ring[j] = s[padded(p + j)];
    }
    for (int first = 0; first < window; first += V)
        #pragma unroll
        for (int i = 0; i < V; i++) {
            if (first + i >= window)
                break;
            #pragma unroll
            for (int j = 0; j < V; j++)
                y[j] += valid(j, first + i) ? ring[(i + j) % V] : 0;
            ring[i] = s[padded(p + first + i + V)];
        }
}

template <typename T>
__global__ void __launch_bounds__(THREADS) flat_kernel(means m, int margin)
{
    enum { V = WIDTH<T> };
    extern __shared__ __align__(16) float s[]; /* of elements first - margin ... */
    const int64_t all = m.B * m.N, first = (int64_t)blockIdx.x * FLAT_TILE;
    const unsigned N = (unsigned)m.N, R = (unsigned)m.R, column = (unsigned)(first % m.N);

    fill_flat(s, (const T *)m.x, first - margin, FLAT_TILE + 2 * margin, all);
    #pragma unroll 1
    for (int p = threadIdx.x * V; p < FLAT_TILE; p += THREADS * V) {
        const int begin = margin - (int)R + p, window = 2 * (int)R + 1;
        const int64_t left = all - first - p;
        unsigned at[V]; /* columns of the outputs */
        float y[V];

        at[0] = (column + p) % N;
        #pragma unroll
        for (int j = 1; j < V; j++)
            at[j] = at[j - 1] + 1 == N ? 0 : at[j - 1] + 1;
        if (at[0] >= R && at[0] + V + R <= N)
            add_windows<V>(y, s, begin, window, [](int, int) { return true; });
        else /* the beginning or the end of a row */
            add_windows<V>(y, s, begin, window, [&](int j, int d) { return at[j] + d - R < N; });
        #pragma unroll
        for (int j = 0; j < V; j++)
            y[j] *= m.scale;
        if (left >= V)
            store_vec((T *)m.y + first + p, pack<T>(y));
        else
            #pragma unroll
            for (int j = 0; j < V; j++)
                if (j < left)
                    store((T *)m.y + first + p + j, y[j]);
    }
}

/* The neighbours on each side of a tile, and what follows the last ring: whole vectors. */
template <typename T>
static int flat_margin(int64_t R)
{
    return (int)((ceil_div(R, WIDTH<T>) + 1) * WIDTH<T>);
}

template <typename T>
static int flat(struct context *on, const means &m)
{
    const int margin = flat_margin<T>(m.R);
    const int bytes = (int)sizeof(float) * (padded(FLAT_TILE + 2 * margin) + 1);

    CUDA(allow_smem(flat_kernel<T>, bytes));
    flat_kernel<T><<<ceil_div(m.B * m.N, FLAT_TILE), THREADS, bytes, on->stream>>>(m, margin);
    return cudaGetLastError();
}

static const char *flat_declines(const struct call *f)
{
    if (reach(DIM(f, 'R'), DIM(f, 'N')) > FLAT_RADIUS)
        return "a radius of more than " NUMBER(FLAT_RADIUS);
    if (DIM(f, 'N') > 1 << 30)
        return "rows of more than 2^30 elements";
    return DIM(f, 'B') * DIM(f, 'N') / FLAT_TILE >= INT32_MAX ? "more tiles than a grid has blocks"
                                                              : NULL;
}

/* Measured on an H100, R = 4: rows of whole vectors that fill the tiles of `sliding` are faster there,
 * because neighbouring outputs share more of their sums; in bf16 up to 3072 columns. */
template <typename T>
static int flat_yields(const struct call *f)
{
    const int64_t N = DIM(f, 'N'), tile = threads_for(N) * OUTPUTS;
    const int64_t empty = ceil_div(N, tile) * tile - N;
    return in_vectors<T>(N) && (N < 3072 || storage<T>::PER_WORD == 1) &&
           (16 * empty <= N || (N < 512 && 3 * empty <= N));
}

/* ---- both passes ---- */

static means means_of(const struct call *f, const void *x, void *y)
{
    const int64_t N = DIM(f, 'N'), R = DIM(f, 'R');
    return {x, y, DIM(f, 'B'), N, reach(R, N), 1 / (float)(2 * R + 1)};
}

template <int (*kernel)(struct context *on, const means &m)>
static int forward(const struct call *f)
{
    const struct stencil1d *a = ARGS(f, stencil1d);
    return kernel(f->context, means_of(f, a->x, a->y));
}

template <int (*kernel)(struct context *on, const means &m)>
static int backward(const struct call *f)
{
    const struct stencil1d *g = GRADS(f, stencil1d);
    return kernel(f->context, means_of(f, g->y, g->x));
}

GPU_KERNEL(naive, .idea = "one thread per output, its window from global memory",
           .pass = {forward<naive<T>>, backward<naive<T>>}, .declines = naive_declines);
GPU_KERNEL(halo, .idea = "a tile and its halo in shared memory",
           .pass = {forward<halo<T>>, backward<halo<T>>}, .declines = halo_declines);
GPU_KERNEL(sliding, .idea = "neighbouring outputs share their windows' sums of chunks",
           .pass = {forward<sliding<T>>, backward<sliding<T>>}, .declines = sliding_declines);
GPU_KERNEL(flat, .idea = "a tile of all rows, wherever they begin",
           .pass = {forward<flat<T>>, backward<flat<T>>}, .declines = flat_declines,
           .yields = flat_yields<T>);

GPU_KERNELS(stencil1d, IN_TYPES(flat) IN_TYPES(sliding) IN_TYPES(halo) IN_TYPES(naive));
