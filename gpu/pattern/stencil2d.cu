/* y[b,i,j] = sum of x[b,k,l] over |k - i| <= R, |l - j| <= R, divided by (2 R + 1)^2; x, y [B,H,W],
 * zeros outside an image.  Backward is the same on dy.
 *
 * naive has one thread per output, halo one block per square tile, separable one block per strip
 * of columns, registers one warp per strip. */
#include "common/ops/stencil2d.h"
#include "gpu/device/async.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/device/vector.cuh"
#include "gpu/pattern/stencil.cuh"

/* The arguments of a pass: x [B,H,W], and its means y [B,H,W]. */
struct means {
    const void *x;
    void *y;
    int64_t B, H, W, R;
    int64_t down, across; /* R limited to H - 1, and to W - 1 */
    float scale;
};

static const char TOO_MANY[] = "more outputs than the blocks of a grid cover";

/* ---- naive: one thread per output, which reads its window from global memory ---- */

enum { THREADS = 256 };

template <typename T>
__global__ void naive_kernel(means m)
{
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= m.B * m.H * m.W)
        return;
    const int64_t row = at / m.W, i = row % m.H, j = at % m.W;
    const T *image = (const T *)m.x + (row - i) * m.W;
    float sum = 0;
    for (int64_t k = max(i - m.R, (int64_t)0); k <= min(i + m.R, m.H - 1); k++)
        for (int64_t l = max(j - m.R, (int64_t)0); l <= min(j + m.R, m.W - 1); l++)
            sum += load(image + k * m.W + l);
    store((T *)m.y + at, sum * m.scale);
}

template <typename T>
static int naive(struct context *on, const means &m)
{
    naive_kernel<T><<<ceil_div(m.B * m.H * m.W, THREADS), THREADS, 0, on->stream>>>(m);
    return cudaGetLastError();
}

static const char *naive_declines(struct context *, const struct means &m)
{
    return m.B * m.H * m.W / THREADS >= INT32_MAX ? TOO_MANY : NULL;
}

/* ---- halo: a tile with a halo of R on all sides in shared memory, read once ---- */

enum { SIDE = 32, BATCH = 8 }; /* a tile is a square; a block processes BATCH rows at once */

template <typename T>
__global__ void halo_kernel(means m, int wide, int high)
{
    extern __shared__ __align__(16) float tile[]; /* [down + SIDE + down][across + SIDE + across] */
    const int down = (int)m.down, across = (int)m.across;
    const int pitch = SIDE + 2 * across, tile_height = SIDE + 2 * down;
    const int64_t image = blockIdx.x / wide / high * m.H * m.W;
    const int64_t top = blockIdx.x / wide % high * (int64_t)SIDE;
    const int64_t left = blockIdx.x % wide * (int64_t)SIDE;

    for (int k = threadIdx.y; k < tile_height; k += BATCH)
        for (int l = threadIdx.x; l < pitch; l += SIDE) {
            const int64_t i = top - down + k, j = left - across + l;
            tile[k * pitch + l] = i >= 0 && i < m.H && j >= 0 && j < m.W
                                      ? load((const T *)m.x + image + i * m.W + j)
                                      : 0;
        }
    __syncthreads();
    for (int i = threadIdx.y; i < SIDE && top + i < m.H; i += BATCH) {
        float sum = 0;
        for (int k = 0; k <= 2 * down; k++)
            for (int l = 0; l <= 2 * across; l++)
                sum += tile[(i + k) * pitch + threadIdx.x + l];
        if (left + threadIdx.x < m.W)
            store((T *)m.y + image + (top + i) * m.W + left + threadIdx.x, sum * m.scale);
    }
}

static size_t halo_bytes(const means &m)
{
    return sizeof(float) * (SIDE + 2 * m.down) * (SIDE + 2 * m.across);
}

template <typename T>
static int halo(struct context *on, const means &m)
{
    const int wide = (int)ceil_div(m.W, SIDE), high = (int)ceil_div(m.H, SIDE);
    const int bytes = (int)halo_bytes(m);

    CUDA(allow_smem(halo_kernel<T>, bytes));
    halo_kernel<T><<<m.B * wide * high, dim3(SIDE, BATCH), bytes, on->stream>>>(m, wide, high);
    return cudaGetLastError();
}

static const char *halo_declines(struct context *on, const struct means &m)
{
    if (halo_bytes(m) > on->limits.smem)
        return "a tile with its neighbours is more than the shared memory of a block";
    return m.B * ceil_div(m.W, SIDE) * ceil_div(m.H, SIDE) > INT32_MAX ? TOO_MANY : NULL;
}

/* ---- strips: the work of a block ---- */

/* A block processes a strip of columns from top to bottom, four columns per thread, and writes
 * `height` rows. */
struct strips {
    int threads;    /* of a block */
    int64_t across; /* strips side by side in an image */
    int64_t down;   /* strips one above the other */
    int64_t height;
};

enum { THREAD_COLUMNS = 4 };

static int threads_for(int64_t W, int max_threads)
{
    return (int)min((int64_t)max_threads, ceil_div(ceil_div(W, THREAD_COLUMNS), 32) * 32);
}

/* Strips of equal height for `slots` resident blocks.  The height is a multiple of the window,
 * so that the group of a row does not depend on `slots`.  It is at least two windows, because
 * each block reads a window's rows more than it writes. */
static strips strips_of(const means &m, int threads, int64_t slots)
{
    const int64_t window = 2 * m.down + 1;
    strips s = {threads, ceil_div(m.W, threads * THREAD_COLUMNS), 0, 0};
    const int64_t down = max((int64_t)1, slots / (s.across * m.B));

    s.height = ceil_div(max(ceil_div(m.H, down), 2 * window), window) * window;
    s.down = ceil_div(m.H, s.height);
    return s;
}

static const char *too_many_strips(const means &m, int threads)
{
    const strips s = strips_of(m, threads, INT32_MAX);
    return m.B * s.across * s.down > INT32_MAX ? TOO_MANY : NULL;
}

/* A block's strip: the offset of its image, its first column, its first row, its number of rows. */
struct strip {
    int64_t image, left, top;
    int rows;
};

static __device__ __forceinline__ strip strip_of(const means &m, const strips &s)
{
    const int64_t block = blockIdx.x / s.across, top = block % s.down * s.height;
    return {block / s.down * m.H * m.W, blockIdx.x % s.across * s.threads * THREAD_COLUMNS, top,
            (int)min(s.height, m.H - top)};
}

/* ---- separable: sums over windows of rows, then sums of these over windows of columns ---- */

enum { ROWS_PER_STEP = 4 }; /* rows in shared memory at a time */

struct smem_layout {
    int margin, length, pitch; /* columns left of the strip; elements; leading dimension */
    int sums;                  /* sums of chunks that are stored per row */
    size_t bytes;
};

template <typename T>
static smem_layout smem_layout_of(const means &m, int threads)
{
    const int window = 2 * (int)m.across + 1;
    smem_layout r;

    r.margin = margin_of<T>(m.across, m.W);
    r.length = threads * THREAD_COLUMNS + 2 * r.margin;
    r.pitch = padded(r.length) + 1;
    r.sums = threads + max(0, chunks_within<THREAD_COLUMNS>(window));
    r.bytes = sizeof(float) * ((2 * m.down + 1) * threads * THREAD_COLUMNS +
                               (int64_t)ROWS_PER_STEP * (r.pitch + r.sums));
    return r;
}

/* h[j] = the sum over the window in a row around column j, for four neighbouring columns. */
static __device__ __forceinline__ void sum_across(float h[THREAD_COLUMNS], const float *s,
                                                  const float *sums, int p, int window)
{
    if (window >= THREAD_COLUMNS)
        slide<THREAD_COLUMNS>(h, s, sums, p, window);
    else
        for (int j = 0; j < THREAD_COLUMNS; j++) {
            h[j] = 0;
            for (int k = 0; k < window; k++)
                h[j] += s[padded(p + j + k)];
        }
}

/* The row sums h of a column are divided into groups as high as a window (van Herk).  A window is a
 * suffix of one group and a prefix of the next.  The ring buffer holds the suffix sums of a group;
 * h of the next group overwrites them, while `above` is the running prefix sum of that group.
 * Nothing is subtracted, so errors do not grow with the strip's height.  An output costs three
 * additions for any R. */
template <typename T>
__global__ void __launch_bounds__(THREADS, 3) separable_kernel(means m, strips all, smem_layout r)
{
    extern __shared__ __align__(16) float memory[];
    const strip s = strip_of(m, all);
    const int threads = all.threads, down = 2 * (int)m.down + 1, across = 2 * (int)m.across + 1;
    const int inputs = s.rows + down - 1, begin = r.margin - (int)m.across;
    const int threads_per_row = threads / ROWS_PER_STEP,
              row_in_step = threadIdx.x / threads_per_row;
    const group_thread by = {(int)threadIdx.x % threads_per_row, threads_per_row};
    four<float> *ring = (four<float> *)memory + threadIdx.x; /* [down], stride `threads` */
    float *rows = memory + down * threads * THREAD_COLUMNS, *sums = rows + ROWS_PER_STEP * r.pitch;
    const T *x = (const T *)m.x + s.image;
    T *y = (T *)m.y + s.image;
    float above[THREAD_COLUMNS] = {};
    int slot = 0; /* row in the group */

    for (int first = 0; first < inputs; first += ROWS_PER_STEP) {
        const int64_t i = s.top - m.down + first + row_in_step;
        const bool valid = i >= 0 && i < m.H;
        __syncthreads();
        fill(rows + row_in_step * r.pitch, valid ? x + i * m.W : x, s.left - r.margin, r.length,
             valid ? m.W : 0, in_vectors<T>(m.W), by);
        __syncthreads();
        sum_chunks<THREAD_COLUMNS>(sums + row_in_step * r.sums, rows + row_in_step * r.pitch, begin,
                                   r.sums, by);
        __syncthreads();
        #pragma unroll 1
        for (int n = 0; n < ROWS_PER_STEP && first + n < inputs; n++) {
            const int64_t to = first + n - (down - 1);
            four<float> h, kept = {};
            four<T> out;
            sum_across(h.x, rows + n * r.pitch, sums + n * r.sums + threadIdx.x,
                       begin + (int)threadIdx.x * THREAD_COLUMNS, across);
            if (slot + 1 < down)
                kept = ring[(slot + 1) * threads];
            for (int j = 0; j < THREAD_COLUMNS; j++) {
                above[j] += h.x[j];
                store(&out.x[j], (kept.x[j] + above[j]) * m.scale);
            }
            if (to >= 0)
                store_four(y + (s.top + to) * m.W, (int)m.W,
                           (int)s.left + (int)threadIdx.x * THREAD_COLUMNS, out);
            ring[slot * threads] = h;
            if (++slot < down)
                continue;
            for (int k = down - 2; k >= 0; k--) {
                for (int j = 0; j < THREAD_COLUMNS; j++)
                    h.x[j] += ring[k * threads].x[j];
                ring[k * threads] = h;
            }
            for (int j = 0; j < THREAD_COLUMNS; j++)
                above[j] = 0;
            slot = 0;
        }
    }
}

/* The threads of a block: as many as shared memory has space for. */
template <typename T>
static int separable_threads(struct context *on, const means &m)
{
    int threads = threads_for(m.W, THREADS);
    while (threads > 32 && smem_layout_of<T>(m, threads).bytes > on->limits.smem)
        threads -= 32;
    return threads;
}

template <typename T>
static int separable(struct context *on, const means &m)
{
    const int threads = separable_threads<T>(on, m);
    const smem_layout r = smem_layout_of<T>(m, threads);
    int blocks_per_sm;

    CUDA(allow_smem(separable_kernel<T>, r.bytes));
    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, separable_kernel<T>, threads,
                                                       r.bytes));
    const strips s = strips_of(m, threads, (int64_t)blocks_per_sm * on->limits.sms);
    separable_kernel<T><<<m.B * s.across * s.down, threads, r.bytes, on->stream>>>(m, s, r);
    return cudaGetLastError();
}

static const char *separable_declines(struct context *on, const struct means &m)
{
    const int threads = separable_threads<float>(on, m);
    if (smem_layout_of<float>(m, threads).bytes > on->limits.smem ||
        smem_layout_of<__nv_bfloat16>(m, threads).bytes > on->limits.smem)
        return "the rows of a window are more than the shared memory of a block";
    return too_many_strips(m, threads);
}

/* ---- registers: separable, with R a template parameter, and no barriers ---- */

/* A warp processes a strip of rows, 16 bytes of each row per lane, independently of other warps.
 * Each lane prefetches its part of the next rows with cp.async.  It gets the neighbours of its
 * elements from the neighbouring lanes by shuffles, so the first and the last lane write nothing.
 * In a row or a column, two neighbouring windows share all but two elements, and the shared ones
 * are added in the same order from either end.  So the bits depend neither on the begin of a strip
 * nor on its direction.  Every other strip goes upwards: then two strips that share rows read them
 * at the same time, once from DRAM. */

enum {
    MAX_RADIUS = 4,
    WRITING_LANES = 30, /* lanes of a warp that write */
    WARPS = 4,          /* warps of a block */
    MAX_WARPS = 32      /* warps per SM; fewer warps have longer strips */
};

/* The rows that a warp has in flight: a multiple of two and of the length of a window's history, so
 * that all indices of the history are constant. */
template <int R>
constexpr int AHEAD = R < 4 ? 12 : 16;

struct bands {
    int64_t across; /* strips side by side */
    int down;       /* strips of an image one above the other */
    int height;     /* rows that a strip writes */
};

/* Inserts x at the front of the history and drops the oldest element. */
template <int N>
static __device__ __forceinline__ void push(float (&last)[N], float x)
{
    #pragma unroll 4
    for (int k = N - 1; k > 0; k--)
        last[k] = last[k - 1];
    last[0] = x;
}

/* The sum over a sliding window of 2 R + 1 elements, which are added in pairs: R pairs, and one
 * element before them or after them. */
template <int R>
struct window {
    static_assert(1 <= R && R <= 4, "how the pairs are added is written for these");
    enum { PAIRS = R == 3 ? 2 : 1 };
    float first, pairs;              /* first element of an open pair; sum of the last R pairs */
    float second[R];                 /* second elements of the last pairs, newest first */
    float pair[PAIRS], two_pairs[2]; /* sums of one pair, and of two neighbouring pairs */

    /* Both take the next element x, and return the sum over the window that ends with x. */
    __device__ __forceinline__ float push_first(float x)
    {
        first = x;
        return pairs + x;
    }
    __device__ __forceinline__ float push_second(float x)
    {
        const float now = first + x;
        if (R == 1) {
            pairs = now;
        } else if (R == 2) {
            pairs = now + pair[0];
        } else if (R == 3) {
            pairs = (now + pair[1 % PAIRS]) + pair[0];
        } else {
            const float two = now + pair[0];
            pairs = two + two_pairs[1];
            push(two_pairs, two);
        }
        push(pair, now);
        const float sum = second[R - 1] + pairs;
        push(second, x);
        return sum;
    }
};

/* h = the sums over the windows in a row, for the elements of a lane's vector (shfl.up,
 * shfl.down). */
template <typename T, int R>
static __device__ __forceinline__ void sum_row(float h[WIDTH<T>], const vec<T> &v)
{
    enum { PER = 4 / sizeof(T), BESIDE = (R + PER - 1) / PER }; /* elements per word; halo words */
    typedef vec<T, PER> word;
    float x[(BESIDE + 4 + BESIDE) * PER];
    window<R> sum = {};

    #pragma unroll 4
    for (int k = 0; k < BESIDE; k++) {
        unpack(word{__shfl_up_sync(~0u, v.word[4 - BESIDE + k], 1)}, x + k * PER);
        unpack(word{__shfl_down_sync(~0u, v.word[k], 1)}, x + (BESIDE + 4 + k) * PER);
    }
    unpack(v, x + BESIDE * PER);
    #pragma unroll 16
    for (int k = 0; k < 2 * R + WIDTH<T>; k++) {
        const float next = x[BESIDE * PER - R + k];
        const float all = k % 2 ? sum.push_first(next) : sum.push_second(next);
        if (k >= 2 * R)
            h[k - 2 * R] = all;
    }
}

/* Stores a lane's vector of means, whose first `columns` elements are in the row. */
template <bool WIDE, typename T>
static __device__ __forceinline__ void store_mean(T *to, const float (&mean)[WIDTH<T>],
                                                  int64_t columns)
{
    if (WIDE)
        store_vec(to, pack<T>(mean));
    else
        for (int j = 0; j < WIDTH<T> && j < columns; j++)
            store(to + j, mean[j]);
}

template <typename T, int R, bool WIDE>
__global__ void __launch_bounds__(32 * WARPS, R < MAX_RADIUS ? 4 : 3)
    registers_kernel(means m, bands all)
{
    enum { ROWS = AHEAD<R> };
    __shared__ vec<T> staged[WARPS][ROWS][32];
    const int lane = threadIdx.x % 32;
    const int64_t strip = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int64_t band = strip / all.across, image = band / all.down;
    const int64_t left = (strip % all.across * WRITING_LANES + lane - 1) * WIDTH<T>;
    const int H = (int)m.H, part = (int)(band % all.down), top = part * all.height;
    const int rows = min(all.height, H - top), inputs = rows + rows % 2 + 2 * R;
    const int begin = max(top - R, 0), end = min(top + rows + R, H);
    const int step = part % 2 ? -1 : 1, first = step > 0 ? top - R : top - R + inputs - 1;
    const int64_t stride = step * m.W, start = (image * m.H + first) * m.W + left;
    const bool inside = left >= 0 && left < m.W;
    const unsigned rows_to_read = inside ? end - begin : 0;
    const unsigned rows_to_write = inside && lane > 0 && lane <= WRITING_LANES ? rows : 0;
    const T *from = (const T *)m.x + start;
    T *to = (T *)m.y + start - R * stride;
    vec<T> *own = &staged[threadIdx.x / 32][0][lane];
    window<R> down[WIDTH<T>] = {};

    const auto prefetch = [&](int i, vec<T> *slot) {
        const bool valid = (unsigned)(i - begin) < rows_to_read;
        if (WIDE)
            cp_async16(slot, valid ? from : (const T *)m.x, valid ? 16 : 0);
        else
            for (int j = 0; j < WIDTH<T>; j++)
                store((T *)slot + j, valid && left + j < m.W ? load(from + j) : 0);
        cp_async_commit();
        from += stride;
    };
    const auto write = [&](int i, const float(&mean)[WIDTH<T>]) {
        if ((unsigned)(i - top) < rows_to_write)
            store_mean<WIDE>(to, mean, m.W - left);
        to += stride;
    };

    if (image >= m.B) /* uniform in the warp */
        return;
    #pragma unroll 16
    for (int n = 0; n < ROWS; n++)
        prefetch(first + n * step, own + n * 32);
    for (int n = 0;; n += ROWS) {
        #pragma unroll 16
        for (int k = 0; k < ROWS; k++) {
            const int i = first + (n + k) * step;
            float h[WIDTH<T>], mean[WIDTH<T>];
            if (k % 2 == 0 && n + k >= inputs)
                return;
            cp_async_wait<ROWS - 1>();
            sum_row<T, R>(h, own[k * 32]);
            prefetch(i + ROWS * step, own + k * 32);
            #pragma unroll 8
            for (int j = 0; j < WIDTH<T>; j++)
                mean[j] = (k % 2 ? down[j].push_second(h[j]) : down[j].push_first(h[j])) * m.scale;
            write(i - R * step, mean);
        }
    }
}

template <typename T>
static int64_t strips_across(const means &m)
{
    return ceil_div(ceil_div(m.W, WIDTH<T>), WRITING_LANES);
}

/* Strips of equal height for `slots` resident warps.  The height is even, and at least two windows,
 * because each warp reads a window's rows more than it writes. */
static bands bands_of(const means &m, int64_t across, int64_t slots)
{
    const int64_t down = max((int64_t)1, slots / (across * m.B));
    const int64_t min_height = max(ceil_div(m.H, down), 2 * (2 * m.R + 1));
    const int64_t height = min_height + min_height % 2;
    return {across, (int)ceil_div(m.H, height), (int)height};
}

template <typename T, int R, bool WIDE>
static int registers_launch(struct context *on, const means &m)
{
    const auto kernel = registers_kernel<T, R, WIDE>;
    int blocks_per_sm;

    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, kernel, 32 * WARPS, 0));
    const int64_t warps = min(blocks_per_sm * WARPS, MAX_WARPS);
    const bands b = bands_of(m, strips_across<T>(m), warps * on->limits.sms);
    const int64_t blocks = ceil_div(m.B * b.across * b.down, WARPS);
    kernel<<<blocks, 32 * WARPS, 0, on->stream>>>(m, b);
    return cudaGetLastError();
}

template <typename T, int R>
static int registers_of(struct context *on, const means &m)
{
    return in_vectors<T>(m.W) ? registers_launch<T, R, true>(on, m)
                              : registers_launch<T, R, false>(on, m);
}

template <typename T>
static int registers(struct context *on, const means &m)
{
    static int (*const of[])(struct context *, const means &) = {
        registers_of<T, 1>, registers_of<T, 2>, registers_of<T, 3>, registers_of<T, MAX_RADIUS>};
    return of[m.R - 1](on, m);
}

static const char *registers_declines(struct context *, const struct means &m)
{
    if (m.R < 1 || m.R > MAX_RADIUS)
        return "radius: there are instances for 1, 2, 3 and 4";
    const int64_t across = strips_across<float>(m);
    const bands b = bands_of(m, across, INT32_MAX);
    return m.H > INT32_MAX / 2 || m.B * across * b.down / WARPS >= INT32_MAX ? TOO_MANY : NULL;
}

/* ---- both passes ---- */

static means means_of(const struct call *f, const void *x, void *y)
{
    const int64_t H = DIM(f, 'H'), W = DIM(f, 'W'), R = DIM(f, 'R');
    const float window = 2 * R + 1;
    return {x, y, DIM(f, 'B'), H, W, R, reach(R, H), reach(R, W), 1 / (window * window)};
}

template <int (*kernel)(struct context *on, const means &m)>
static int forward(const struct call *f)
{
    const struct stencil2d *a = ARGS(f, stencil2d);
    return kernel(f->context, means_of(f, a->x, a->y));
}

template <int (*kernel)(struct context *on, const means &m)>
static int backward(const struct call *f)
{
    const struct stencil2d *g = GRADS(f, stencil2d);
    return kernel(f->context, means_of(f, g->y, g->x));
}

template <const char *(*why)(struct context *on, const means &m)>
static const char *declines(const struct call *f)
{
    return why(f->context, means_of(f, NULL, NULL));
}

/* Measured on an H100, R = 1: images that are narrower than half a warp's row of vectors leave most lanes
 * without a column, unless their rows are whole vectors. */
template <typename T>
static int strips_yield(const struct call *f)
{
    const int64_t W = DIM(f, 'W');
    return DIM(f, 'R') <= 2 && W < 4 * WIDTH<T> && !in_vectors<T>(W);
}
OF_CALL(int, halo_yields, DIM(f, 'R') <= 2 && DIM(f, 'W') < SIDE / 2)

GPU_KERNEL(naive, .idea = "one thread per output, its window from global memory",
           .pass = {forward<naive<T>>, backward<naive<T>>}, .declines = declines<naive_declines>);
GPU_KERNEL(halo, .idea = "a square tile and its halo in shared memory",
           .pass = {forward<halo<T>>, backward<halo<T>>}, .declines = declines<halo_declines>,
           .yields = halo_yields);
GPU_KERNEL(separable, .idea = "sums along rows, and of these down a strip; a ring of a window",
           .pass = {forward<separable<T>>, backward<separable<T>>},
           .declines = declines<separable_declines>, .yields = strips_yield<T>);
GPU_KERNEL(registers, .idea = "R a template parameter: a warp's rows prefetched, sums in registers",
           .pass = {forward<registers<T>>, backward<registers<T>>},
           .declines = declines<registers_declines>, .yields = strips_yield<T>);

GPU_KERNELS(stencil2d, IN_TYPES(registers) IN_TYPES(separable) IN_TYPES(halo) IN_TYPES(naive));
