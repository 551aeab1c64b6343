/* Rotary position embedding: pair i of each head of x [B,T,H,D] at step t is rotated by the angle
 * (offset + t) theta^(-2i/D); backward rotates by minus this angle.
 *
 * naive has one thread per pair; table has one block for `steps` steps of `heads` heads. */
#include "common/ops/rope.h"
#include "gpu/device/async.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/device/vector.cuh"

/* The arguments of a pass: y is x rotated; the angle is negated if direction is -1. */
struct rotation {
    const void *x;
    void *y;
    int64_t B, T, H, D, offset;
    int direction;
    bool half;
    double log_theta; /* log2(theta) */
};

struct angle {
    float cosine, sine;
};

/* The cosine and sine of the angle of pair i at step t.  sincospi takes the angle in units of
 * pi, so its range reduction is exact for any position.  The angle is a double, because at far
 * positions a float would have no correct digits after the range reduction. */
static __device__ angle angle_of(const rotation &r, int64_t t, int64_t i)
{
    const double frequency = exp2(-2.0 * (double)i / (double)r.D * r.log_theta);
    double sine, cosine;
    sincospi(r.direction * (double)(r.offset + t) * (frequency * 0.318309886183790671538), &sine,
             &cosine);
    return {(float)cosine, (float)sine};
}

/* The indices in a head of the two elements of pair i. */
static __device__ __forceinline__ int64_t first_of(const rotation &r, int64_t i)
{
    return r.half ? i : 2 * i;
}
static __device__ __forceinline__ int64_t second_of(const rotation &r, int64_t i)
{
    return r.half ? i + r.D / 2 : 2 * i + 1;
}

static __device__ __forceinline__ void rotate(float *first, float *second, const angle &a)
{
    const float p = *first, q = *second;
    *first = p * a.cosine - q * a.sine;
    *second = p * a.sine + q * a.cosine;
}

/* ---- naive: one thread per pair and its angle ---- */

enum { THREADS = 256 };

template <typename T>
__global__ void naive_kernel(rotation r)
{
    const int64_t pair = (int64_t)blockIdx.x * THREADS + threadIdx.x, pairs = r.D / 2;
    if (pair >= r.B * r.T * r.H * pairs)
        return;
    const int64_t head = pair / pairs, i = pair % pairs;
    const T *x = (const T *)r.x + head * r.D;
    T *y = (T *)r.y + head * r.D;
    float p = load(x + first_of(r, i)), q = load(x + second_of(r, i));

    rotate(&p, &q, angle_of(r, head / r.H % r.T, i));
    store(y + first_of(r, i), p);
    store(y + second_of(r, i), q);
}

template <typename T>
static int naive(struct context *on, const rotation &r)
{
    const int64_t pairs = r.B * r.T * r.H * (r.D / 2);
    naive_kernel<T><<<ceil_div(pairs, THREADS), THREADS, 0, on->stream>>>(r);
    return cudaGetLastError();
}

OF_CALL(const char *, naive_declines,
        DIM(f, 'B') * DIM(f, 'T') * DIM(f, 'H') * (DIM(f, 'D') / 2) / THREADS >= INT32_MAX
            ? "more pairs than a grid has threads for"
            : NULL)

/* ---- table: a block computes the angles of its steps once, for all its heads ---- */

/* A block rotates `heads` consecutive heads, counted over all sequences, at `steps` steps.  There
 * are few angles per element, so computing them in double takes no extra time. */
struct partition {
    int steps, heads;
    int64_t step_blocks, head_blocks; /* number of blocks over the steps and over the heads */
};

enum {
    BLOCK_BYTES = 32 << 10,
    TABLE_MAX = 4096,
    ROWS_IN_FLIGHT = 4,
    RESIDENT = 4 /* blocks per SM, each with 32 KB in flight */
};
/* The pairs of a thread in flight; more do not help in bf16, where addresses take most of the time. */
template <typename T>
constexpr int PAIRS = storage<T>::PER_WORD == 2 ? 1 : 4;
enum { STAGED_BYTES = 2 * ROWS_IN_FLIGHT * THREADS * sizeof(uint4) };

static struct partition partition_of(const rotation &r, size_t size)
{
    const int64_t heads = r.B * r.H, elements = BLOCK_BYTES / size;
    struct partition s;

    s.heads = (int)min(heads, max((int64_t)1, elements / r.D));
    s.head_blocks = ceil_div(heads, s.heads);
    s.steps =
        (int)min(min(r.T, TABLE_MAX / (r.D / 2)), max((int64_t)1, elements / (r.D * s.heads)));
    s.step_blocks = ceil_div(r.T, s.steps);
    return s;
}

/* The heads first, first + stride, ... below end, counted over all sequences. */
struct head_range {
    unsigned first, stride, end;
};

/* The offset of head `head`, counted over all sequences, at step t. */
static __device__ __forceinline__ int64_t row_of(const rotation &r, int64_t t, unsigned head)
{
    const unsigned H = (unsigned)r.H, b = head / H;
    return ((b * r.T + t) * H + (head - b * H)) * r.D;
}

/* Prefetches the vectors at elements k and k + D/2 of the heads h with cp.async.  Both forms need
 * these vectors; only the pairs within them differ.  The vectors of ROWS_IN_FLIGHT heads are in
 * flight together; their slots in shared memory are used by this thread only. */
template <typename T>
static __device__ __forceinline__ void prefetch(vec<T> (*own)[THREADS], const rotation &r,
                                                int64_t t, int k, const head_range &h)
{
    #pragma unroll ROWS_IN_FLIGHT
    for (int n = 0; n < ROWS_IN_FLIGHT; n++)
        if (h.first + n * h.stride < h.end) {
            const T *row = (const T *)r.x + k + row_of(r, t, h.first + n * h.stride);
            cp_async16(own[2 * n], row);
            cp_async16(own[2 * n + 1], row + r.D / 2);
        }
    cp_async_commit();
}

/* Rotates these vectors of all heads h; those of the first ROWS_IN_FLIGHT heads have been
 * prefetched.  The angles are kept in registers. */
template <typename T, bool HALF>
static __device__ __forceinline__ void rotate_vectors(vec<T> (*own)[THREADS], const rotation &r,
                                                      const angle *table, int64_t t, int k,
                                                      head_range h)
{
    constexpr int W = WIDTH<T>;
    const int middle = (int)(r.D / 2);
    T *y = (T *)r.y + k;
    angle a[W];

    #pragma unroll 8
    for (int i = 0; i < W; i++)
        a[i] = table[HALF ? k + i : i < W / 2 ? k / 2 + i : (middle + k - W) / 2 + i];
    while (h.first < h.end) {
        cp_async_wait<0>();
        #pragma unroll ROWS_IN_FLIGHT
        for (int n = 0; n < ROWS_IN_FLIGHT; n++)
            if (h.first + n * h.stride < h.end) {
                T *row = y + row_of(r, t, h.first + n * h.stride);
                float both[2 * W];
                unpack(*own[2 * n], both);
                unpack(*own[2 * n + 1], both + W);
                #pragma unroll 8
                for (int i = 0; i < W; i++)
                    if (HALF)
                        rotate(&both[i], &both[W + i], a[i]);
                    else
                        rotate(&both[2 * i], &both[2 * i + 1], a[i]);
                store_vec(row, pack<T>(both));
                store_vec(row + middle, pack<T>(both + W));
            }
        h.first += ROWS_IN_FLIGHT * h.stride;
        prefetch<T>(own, r, t, k, h);
    }
}

/* The same for one pair: used if half a head is not a whole number of vectors.  The pairs of
 * PAIRS heads are loaded together. */
template <typename T, bool HALF>
static __device__ __forceinline__ void rotate_pair(const rotation &r, const angle *table, int64_t t,
                                                   int i, const head_range &h)
{
    const int64_t first = HALF ? i : 2 * i, second = HALF ? i + r.D / 2 : 2 * i + 1;
    const angle a = table[i];
    const T *x = (const T *)r.x;
    T *y = (T *)r.y;

    for (unsigned head = h.first; head < h.end; head += PAIRS<T> * h.stride) {
        float p[PAIRS<T>], q[PAIRS<T>];
        #pragma unroll
        for (int n = 0; n < PAIRS<T>; n++)
            if (head + n * h.stride < h.end) {
                const int64_t row = row_of(r, t, head + n * h.stride);
                p[n] = load(x + row + first);
                q[n] = load(x + row + second);
            }
        #pragma unroll
        for (int n = 0; n < PAIRS<T>; n++)
            if (head + n * h.stride < h.end) {
                const int64_t row = row_of(r, t, head + n * h.stride);
                rotate(&p[n], &q[n], a);
                store(y + row + first, p[n]);
                store(y + row + second, q[n]);
            }
    }
}

/* A thread has one column of vectors or of pairs at a time.  Neighbouring threads have
 * neighbouring columns, then heads, then steps.  The first vectors of a thread are in flight
 * while the angles are computed. */
template <typename T, bool HALF, bool WIDE>
__global__ void __launch_bounds__(THREADS, RESIDENT) table_kernel(rotation r, partition s)
{
    extern __shared__ __align__(16) unsigned char smem[]; /* prefetched vectors, if WIDE; angles */
    vec<T>(*own)[THREADS] = (vec<T>(*)[THREADS])((vec<T> *)smem + threadIdx.x);
    angle *table = (angle *)(smem + (WIDE ? STAGED_BYTES : 0)); /* [steps][D/2] */
    const int pairs = (int)(r.D / 2), columns = WIDE ? pairs / WIDTH<T> : pairs;
    const int64_t first = blockIdx.x % s.step_blocks * s.steps;
    const unsigned begin = (unsigned)(blockIdx.x / s.step_blocks) * s.heads;
    const unsigned end = (unsigned)min(begin + (int64_t)s.heads, r.B * r.H);
    const int steps = (int)min((int64_t)s.steps, r.T - first);
    const int wide = min(columns, THREADS),
              rows = THREADS / wide; /* threads per head; heads at a time */
    const int for_heads = min(rows, s.heads), for_steps = rows / for_heads;
    const int row = threadIdx.x / wide, column_width = WIDE ? WIDTH<T> : 1;
    const head_range heads = {begin + row % for_heads, (unsigned)for_heads, end};
    const bool active = row < for_steps * for_heads;
    const auto prefetch_column = [&](int step, int column) {
        if (WIDE && step < steps)
            prefetch<T>(own, r, first + step, column * column_width, heads);
    };

    if (active)
        prefetch_column(row / for_heads, threadIdx.x % wide);
    for (int i = threadIdx.x; i < steps * pairs; i += THREADS)
        table[i] = angle_of(r, first + i / pairs, i % pairs);
    __syncthreads();
    if (!active)
        return;
    for (int step = row / for_heads; step < steps; step += for_steps)
        for (int column = threadIdx.x % wide; column < columns; column += wide) {
            const angle *angles = table + step * pairs;
            if (WIDE)
                rotate_vectors<T, HALF>(own, r, angles, first + step, column * column_width, heads);
            else
                rotate_pair<T, HALF>(r, angles, first + step, column, heads);
            if (column + wide < columns)
                prefetch_column(step, column + wide);
            else
                prefetch_column(step + for_steps, threadIdx.x % wide);
        }
}

template <typename T, bool HALF, bool WIDE>
static int table_launch(struct context *on, const rotation &r)
{
    const partition s = partition_of(r, sizeof(T));
    const int bytes = (WIDE ? STAGED_BYTES : 0) + (int)(sizeof(angle) * s.steps * (r.D / 2));
    const auto kernel = table_kernel<T, HALF, WIDE>;
    CUDA(allow_smem(kernel, bytes));
    kernel<<<s.step_blocks * s.head_blocks, THREADS, bytes, on->stream>>>(r, s);
    return cudaGetLastError();
}

template <typename T>
static int table(struct context *on, const rotation &r)
{
    if (in_vectors<T>(r.D / 2))
        return r.half ? table_launch<T, true, true>(on, r) : table_launch<T, false, true>(on, r);
    return r.half ? table_launch<T, true, false>(on, r) : table_launch<T, false, false>(on, r);
}

/* ---- both ---- */

static rotation rotation_of(const struct call *f, const void *x, void *y, int direction)
{
    return {x,
            y,
            DIM(f, 'B'),
            DIM(f, 'T'),
            DIM(f, 'H'),
            DIM(f, 'D'),
            DIM(f, 'O'),
            direction,
            f->choice[ROPE_FORM] == ROPE_HALF,
            log2(f->real[ROPE_THETA])};
}

static const char *table_declines(const struct call *f)
{
    if (DIM(f, 'D') / 2 > TABLE_MAX)
        return "dim: a step's angles are more than a block's table";
    const partition s = partition_of(rotation_of(f, NULL, NULL, 1), sizeof(float));
    return DIM(f, 'B') * DIM(f, 'H') > INT32_MAX || s.step_blocks * s.head_blocks > INT32_MAX
               ? "more heads than a grid has blocks for"
               : NULL;
}

template <int (*kernel)(struct context *on, const rotation &r)>
static int forward(const struct call *f)
{
    const struct rope *a = ARGS(f, rope);
    return kernel(f->context, rotation_of(f, a->x, a->y, 1));
}

template <int (*kernel)(struct context *on, const rotation &r)>
static int backward(const struct call *f)
{
    const struct rope *g = GRADS(f, rope);
    return kernel(f->context, rotation_of(f, g->y, g->x, -1));
}

GPU_KERNEL(naive, .idea = "one thread per pair and its angle",
           .pass = {forward<naive<T>>, backward<naive<T>>}, .declines = naive_declines);
GPU_KERNEL(table, .idea = "angles once per block, for all its heads; vectors of both halves",
           .pass = {forward<table<T>>, backward<table<T>>}, .declines = table_declines);

GPU_KERNELS(rope, IN_TYPES(table) IN_TYPES(naive));
