#include "gpu/columns.cuh"
#include "gpu/ptx.cuh"
#include "gpu/stencil.cuh"
#include "common/ops/stencil2d.h"

/* What a pass is given: y [B,H,W], the means of x [B,H,W]. */
struct means {
    const void *x;
    void *y;
    int64_t B, H, W, R;
    int64_t down, across; /* R, no further than the image */
    float scale;
};

static const char TOO_MANY[] = "more outputs than a grid has room for";

/* ---- naive: an output, a thread, its whole window from memory ---- */

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
static int naive(const means &m)
{
    naive_kernel<T><<<ceil_div(m.B * m.H * m.W, THREADS), THREADS, 0, gpu_stream()>>>(m);
    return cudaGetLastError();
}

static const char *naive_declines(const struct means &m)
{
    return m.B * m.H * m.W / THREADS >= INT32_MAX ? TOO_MANY : NULL;
}

/* ---- halo: a tile with R neighbours on all sides and corners in shared memory, read once ---- */

enum { SIDE = 32, LINES = 8 }; /* a tile is a square, LINES of it at a time */

template <typename T>
__global__ void halo_kernel(means m, int wide, int high)
{
    extern __shared__ __align__(16) float tile[]; /* [down + SIDE + down][across + SIDE + across] */
    const int down = (int)m.down, across = (int)m.across;
    const int pitch = SIDE + 2 * across, lines = SIDE + 2 * down;
    const int64_t image = blockIdx.x / wide / high * m.H * m.W;
    const int64_t top = blockIdx.x / wide % high * (int64_t)SIDE;
    const int64_t left = blockIdx.x % wide * (int64_t)SIDE;

    for (int k = threadIdx.y; k < lines; k += LINES)
        for (int l = threadIdx.x; l < pitch; l += SIDE) {
            const int64_t i = top - down + k, j = left - across + l;
            tile[k * pitch + l] = i >= 0 && i < m.H && j >= 0 && j < m.W
                                      ? load((const T *)m.x + image + i * m.W + j)
                                      : 0;
        }
    __syncthreads();
    for (int i = threadIdx.y; i < SIDE && top + i < m.H; i += LINES) {
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
static int halo(const means &m)
{
    const int wide = (int)ceil_div(m.W, SIDE), high = (int)ceil_div(m.H, SIDE);
    const int bytes = (int)halo_bytes(m);

    CUDA(cudaFuncSetAttribute(halo_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    halo_kernel<T><<<m.B * wide * high, dim3(SIDE, LINES), bytes, gpu_stream()>>>(m, wide, high);
    return cudaGetLastError();
}

static const char *halo_declines(const struct means &m)
{
    if (halo_bytes(m) > gpu_properties().sharedMemPerBlockOptin)
        return "a tile with its neighbours is more than the shared memory of a block";
    return m.B * ceil_div(m.W, SIDE) * ceil_div(m.H, SIDE) > INT32_MAX ? TOO_MANY : NULL;
}

/* ---- strips: what the last two kernels share ---- */

/* A block goes down a strip of columns, four a thread, and writes `height` rows of it. */
struct strips {
    int threads;    /* of a block */
    int64_t across; /* strips of an image */
    int64_t down;   /* blocks one above the other */
    int64_t height;
};

enum { FOUR = 4 };

static int threads_for(int64_t W, int most)
{
    return (int)min((int64_t)most, ceil_div(ceil_div(W, FOUR), 32) * 32);
}

/* So that `slots` blocks, which run at the same time, have equal shares; but two windows' height at
 * least, as each reads a window's rows more than it writes. */
static strips strips_of(const means &m, int threads, int64_t slots)
{
    const int64_t window = 2 * m.down + 1;
    strips s = {threads, ceil_div(m.W, threads * FOUR), 0, 0};
    const int64_t down = max((int64_t)1, slots / (s.across * m.B));

    s.height = ceil_div(max(ceil_div(m.H, down), 2 * window) - 1, window) * window + 1;
    s.down = ceil_div(m.H, s.height);
    return s;
}

static const char *too_many_strips(const means &m, int threads)
{
    const strips s = strips_of(m, threads, INT32_MAX);
    return m.B * s.across * s.down > INT32_MAX ? TOO_MANY : NULL;
}

/* A block's part. */
struct strip {
    int64_t image, left, top;
    int rows;
};

static __device__ __forceinline__ strip strip_of(const means &m, const strips &s)
{
    const int64_t block = blockIdx.x / s.across, top = block % s.down * s.height;
    return {block / s.down * m.H * m.W, blockIdx.x % s.across * s.threads * FOUR, top,
            (int)min(s.height, m.H - top)};
}

/* ---- separable: sums along rows, and of these down columns ---- */

enum { AT_ONCE = 4 }; /* rows that are in shared memory together */

struct room {
    int margin, length, pitch; /* of a row: left of the strip; in numbers; in floats */
    int sums;                  /* chunks of a row whose sums are kept */
    size_t bytes;
};

template <typename T>
static room room_of(const means &m, int threads)
{
    const int window = 2 * (int)m.across + 1;
    room r;

    r.margin = margin_of<T>(m.across, m.W);
    r.length = threads * FOUR + 2 * r.margin;
    r.pitch = padded(r.length) + 1;
    r.sums = threads + max(0, chunks_within<FOUR>(window));
    r.bytes =
        sizeof(float) * ((2 * m.down + 1) * threads * FOUR + (int64_t)AT_ONCE * (r.pitch + r.sums));
    return r;
}

/* Sums over four neighbours' windows. */
static __device__ __forceinline__ void sum_across(float h[FOUR], const float *s, const float *sums,
                                                  int p, int window)
{
    if (window >= FOUR)
        slide<FOUR>(h, s, sums, p, window);
    else
        for (int j = 0; j < FOUR; j++) {
            h[j] = 0;
            for (int k = 0; k < window; k++)
                h[j] += s[padded(p + j + k)];
        }
}

/* Down a column, the sums h of rows come in groups as high as a window.  A window is the end of
 * one group and the beginning of the next: what a group has in all from row r on is kept in a ring,
 * where h of the group after it takes its place, and the sum of those is carried along.  So again
 * nothing is subtracted, nothing drifts however high the strip, and an output costs three
 * additions whatever R is. */
template <typename T>
__global__ void __launch_bounds__(THREADS, 3) separable_kernel(means m, strips all, room r)
{
    extern __shared__ __align__(16) float memory[];
    const strip s = strip_of(m, all);
    const int threads = all.threads, down = 2 * (int)m.down + 1, across = 2 * (int)m.across + 1;
    const int inputs = s.rows + down - 1, begin = r.margin - (int)m.across;
    const int share = threads / AT_ONCE, line = threadIdx.x / share, one = threadIdx.x % share;
    four<float> *ring = (four<float> *)memory + threadIdx.x; /* [down], `threads` apart */
    float *rows = memory + down * threads * FOUR, *sums = rows + AT_ONCE * r.pitch;
    const T *x = (const T *)m.x + s.image;
    T *y = (T *)m.y + s.image;
    float above[FOUR] = {};
    int place = 0; /* in the group */

    for (int first = 0; first < inputs; first += AT_ONCE) {
        const int64_t i = s.top - m.down + first + line;
        const bool there = i >= 0 && i < m.H;
        __syncthreads();
        fill(rows + line * r.pitch, there ? x + i * m.W : x, s.left - r.margin, r.length,
             there ? m.W : 0, in_vectors<T>(m.W), one, share);
        __syncthreads();
        sum_chunks<FOUR>(sums + line * r.sums, rows + line * r.pitch, begin, r.sums, one, share);
        __syncthreads();
        UNROLL(1)
        for (int n = 0; n < AT_ONCE && first + n < inputs; n++) {
            const int64_t to = first + n - (down - 1);
            four<float> h, kept = {};
            four<T> out;
            sum_across(h.x, rows + n * r.pitch, sums + n * r.sums + threadIdx.x,
                       begin + (int)threadIdx.x * FOUR, across);
            if (place + 1 < down)
                kept = ring[(place + 1) * threads];
            for (int j = 0; j < FOUR; j++) {
                above[j] += h.x[j];
                store(&out.x[j], (kept.x[j] + above[j]) * m.scale);
            }
            if (to >= 0)
                store_four(y + (s.top + to) * m.W, (int)m.W, (int)s.left + (int)threadIdx.x * FOUR,
                           out);
            ring[place * threads] = h;
            if (++place < down)
                continue;
            for (int k = down - 2; k >= 0; k--) {
                for (int j = 0; j < FOUR; j++)
                    h.x[j] += ring[k * threads].x[j];
                ring[k * threads] = h;
            }
            for (int j = 0; j < FOUR; j++)
                above[j] = 0;
            place = 0;
        }
    }
}

/* As wide as there is room for the ring. */
template <typename T>
static int separable_threads(const means &m)
{
    int threads = threads_for(m.W, THREADS);
    while (threads > 32 && room_of<T>(m, threads).bytes > gpu_properties().sharedMemPerBlockOptin)
        threads -= 32;
    return threads;
}

template <typename T>
static int separable(const means &m)
{
    const int threads = separable_threads<T>(m);
    const room r = room_of<T>(m, threads);
    int on_one;

    CUDA(cudaFuncSetAttribute(separable_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              (int)r.bytes));
    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&on_one, separable_kernel<T>, threads,
                                                       r.bytes));
    const strips s = strips_of(m, threads, (int64_t)on_one * gpu_properties().multiProcessorCount);
    separable_kernel<T><<<m.B * s.across * s.down, threads, r.bytes, gpu_stream()>>>(m, s, r);
    return cudaGetLastError();
}

static const char *separable_declines(const struct means &m)
{
    const int threads = separable_threads<float>(m);
    if (room_of<float>(m, threads).bytes > gpu_properties().sharedMemPerBlockOptin ||
        room_of<__nv_bfloat16>(m, threads).bytes > gpu_properties().sharedMemPerBlockOptin)
        return "the rows of a window are more than the shared memory of a block";
    return too_many_strips(m, threads);
}

/* ---- registers: separable, with the window known to the compiler and the ring in registers ---- */

enum { RADIUS_MAX = 4, STRIP_THREADS = 128, STAGES = 3 };

/* Of a row in shared memory: the strip, and a vector on each side. */
template <typename T>
static __host__ __device__ __forceinline__ int pitch_of(int threads)
{
    return threads * FOUR + 2 * WIDTH<T>;
}

/* From row `first` of the image on, a window's rows of the strip on their way into `stage`, and
 * zeros where there is no image. */
template <typename T, int R>
static __device__ __forceinline__ void send_for_rows(T *stage, const means &m, const strip &s,
                                                     int64_t first, int threads)
{
    enum { ROWS = 2 * R + 1 };
    const T *image = (const T *)m.x + s.image;
    const int pitch = pitch_of<T>(threads), tid = threadIdx.x;
    const auto send = [&](int row, int p) {
        const int64_t i = first + row, j = s.left - WIDTH<T> + p;
        const bool there = i >= 0 && i < m.H && j >= 0 && j < m.W;
        cp_async16(stage + row * pitch + p, there ? image + i * m.W + j : image, there ? 16 : 0);
    };

    if (!in_vectors<T>(m.W)) {
        for (int row = 0; row < ROWS; row++)
            for (int p = tid; p < pitch; p += threads) {
                const int64_t i = first + row, j = s.left - WIDTH<T> + p;
                if (i >= 0 && i < m.H && j >= 0 && j < m.W)
                    stage[row * pitch + p] = image[i * m.W + j];
                else
                    store(&stage[row * pitch + p], 0);
            }
        return;
    }
    constexpr int TOGETHER = WIDTH<T> / FOUR; /* rows that the threads send for at once: 1 or 2 */
    const int vectors = threads / TOGETHER, line = tid < vectors ? 0 : 1;
    UNROLL(9)
    for (int row = line; row < ROWS; row += TOGETHER)
        send(row, (1 + tid - line * vectors) * WIDTH<T>);
    if (tid < 2 * ROWS)
        send(tid / 2, tid % 2 * (pitch - WIDTH<T>));
}

template <typename T>
static __device__ __forceinline__ void read_four(float x[FOUR], const T *from)
{
    const four<T> f = *(const four<T> *)from;
    UNROLL(4)
    for (int j = 0; j < FOUR; j++)
        x[j] = load(&f.x[j]);
}

/* Sums over the windows of the four numbers at `row`: what all four share, and of the six beside
 * it each its own. */
template <typename T, int R>
static __device__ __forceinline__ void sum_near(float h[FOUR], const T *row)
{
    float x[3 * FOUR], shared = 0, left = 0, right = 0;
    const float *first = x + FOUR - R; /* of window 0 */

    UNROLL(3)
    for (int n = 0; n < 3; n++)
        read_four(x + n * FOUR, row + (n - 1) * FOUR);
    UNROLL(8)
    for (int k = FOUR - 1; k <= 2 * R; k++)
        shared += first[k];
    UNROLL(4)
    for (int j = FOUR - 1; j >= 0; j--) {
        h[j] = left + shared;
        if (j > 0)
            left += first[j - 1];
    }
    UNROLL(4)
    for (int j = 1; j < FOUR; j++) {
        right += first[2 * R + j];
        h[j] += right;
    }
}

/* A group of rows is a stage: while one is added up, two are on their way by cp.async, 2 (2R+1) rows
 * of 2 KB in fp32 for a block, which is 100 KB and more on a multiprocessor. */
template <typename T, int R>
__global__ void __launch_bounds__(STRIP_THREADS) registers_kernel(means m, strips all)
{
    enum { ROWS = 2 * R + 1 };
    extern __shared__ __align__(16) unsigned char staged[];
    const strip s = strip_of(m, all);
    const int threads = all.threads, pitch = pitch_of<T>(threads), tid = threadIdx.x;
    const int groups = (s.rows + ROWS - 1 + ROWS - 1) / ROWS;
    T *stages = (T *)staged; /* [STAGES][ROWS][pitch] */
    T *y = (T *)m.y + s.image + (s.top - (ROWS - 1)) * m.W;
    float kept[ROWS][FOUR] = {};
    const auto send_for = [&](int group) {
        if (group < groups)
            send_for_rows<T, R>(stages + group % STAGES * ROWS * pitch, m, s,
                                s.top - R + group * ROWS, threads);
        cp_async_commit();
    };

    UNROLL(2)
    for (int group = 0; group < STAGES - 1; group++)
        send_for(group);
    for (int group = 0; group < groups; group++) {
        const T *stage = stages + group % STAGES * ROWS * pitch + WIDTH<T> + tid * FOUR;
        float above[FOUR] = {};
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        send_for(group + STAGES - 1);
        UNROLL(9)
        for (int r = 0; r < ROWS; r++) {
            const int i = group * ROWS + r;
            float h[FOUR];
            four<T> out;
            sum_near<T, R>(h, stage + r * pitch);
            UNROLL(4)
            for (int j = 0; j < FOUR; j++) {
                above[j] += h[j];
                store(&out.x[j], (r + 1 < ROWS ? kept[r + 1][j] + above[j] : above[j]) * m.scale);
                kept[r][j] = h[j];
            }
            if (i >= ROWS - 1 && i < s.rows + ROWS - 1)
                store_four(y + i * m.W, (int)m.W, (int)s.left + tid * FOUR, out);
        }
        UNROLL(9)
        for (int r = ROWS - 2; r >= 0; r--)
            for (int j = 0; j < FOUR; j++)
                kept[r][j] += kept[r + 1][j];
    }
}

template <typename T, int R>
static int registers_of(const means &m)
{
    const int threads = threads_for(m.W, STRIP_THREADS);
    const int bytes = STAGES * (2 * R + 1) * pitch_of<T>(threads) * (int)sizeof(T);
    int on_one;

    CUDA(cudaFuncSetAttribute(registers_kernel<T, R>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              bytes));
    CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&on_one, registers_kernel<T, R>, threads,
                                                       bytes));
    const strips s = strips_of(m, threads, (int64_t)on_one * gpu_properties().multiProcessorCount);
    registers_kernel<T, R><<<m.B * s.across * s.down, threads, bytes, gpu_stream()>>>(m, s);
    return cudaGetLastError();
}

template <typename T>
static int registers(const means &m)
{
    static int (*const of[])(const means &) = {registers_of<T, 1>, registers_of<T, 2>,
                                               registers_of<T, 3>, registers_of<T, RADIUS_MAX>};
    return of[m.R - 1](m);
}

static const char *registers_declines(const struct means &m)
{
    return m.R < 1 || m.R > RADIUS_MAX ? "radius: there are instances for 1, 2, 3 and 4"
                                       : too_many_strips(m, threads_for(m.W, STRIP_THREADS));
}

/* ---- both passes ---- */

static means means_of(const struct frame *f, const void *x, void *y)
{
    const int64_t H = DIM(f, 'H'), W = DIM(f, 'W'), R = DIM(f, 'R');
    const float window = 2 * R + 1;
    return {x, y, DIM(f, 'B'), H, W, R, reach(R, H), reach(R, W), 1 / (window * window)};
}

template <int (*kernel)(const means &m)>
static int forward(const struct frame *f)
{
    const struct stencil2d *a = ARGS(f, stencil2d);
    return kernel(means_of(f, a->x, a->y));
}

template <int (*kernel)(const means &m)>
static int backward(const struct frame *f)
{
    const struct stencil2d *g = GRADS(f, stencil2d);
    return kernel(means_of(f, g->y, g->x));
}

template <const char *(*why)(const means &m)>
static const char *declines(const struct frame *f)
{
    return why(means_of(f, NULL, NULL));
}

#define KERNEL(bits, T, name, idea)                                                                \
    static const struct impl name##bits = {                                                        \
        #name, idea, {forward<name<T>>, backward<name<T>>}, NULL, declines<name##_declines>, NULL, \
        0,     0}
#define KERNELS(bits, T)                                                                           \
    KERNEL(bits, T, naive, "one thread an output, its window from memory");                        \
    KERNEL(bits, T, halo, "a square tile and its neighbours in shared memory");                    \
    KERNEL(bits, T, separable, "sums along rows, and of these down a strip; a ring of a window");  \
    KERNEL(bits, T, registers, "R known to the compiler: the ring in registers, rows sent for");   \
    GPU_KERNEL_LIST(stencil2d, bits, &registers##bits, &separable##bits, &halo##bits, &naive##bits)

KERNELS(32, float);
KERNELS(16, __nv_bfloat16);
