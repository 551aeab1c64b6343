#include "common/ops/rope.h"
#include "gpu/device/async.cuh"
#include "gpu/device/vector.cuh"

/* What a pass is given: y is x turned, or turned back where direction is -1. */
struct turning {
    const void *x;
    void *y;
    int64_t B, T, H, D, offset;
    int direction;
    bool half;
    double log_theta; /* to base 2 */
};

struct angle {
    float cosine, sine;
};

/* The angle of pair i at step t.  In units of pi, so that whole turns are taken off exactly however
 * far the position is; in double, because of a float nothing would be left then. */
static __device__ angle angle_of(const turning &r, int64_t t, int64_t i)
{
    const double frequency = exp2(-2.0 * (double)i / (double)r.D * r.log_theta);
    double sine, cosine;
    sincospi(r.direction * (double)(r.offset + t) * (frequency * 0.318309886183790671538), &sine,
             &cosine);
    return {(float)cosine, (float)sine};
}

/* Which of a head's numbers are pair i. */
static __device__ __forceinline__ int64_t first_of(const turning &r, int64_t i)
{
    return r.half ? i : 2 * i;
}
static __device__ __forceinline__ int64_t second_of(const turning &r, int64_t i)
{
    return r.half ? i + r.D / 2 : 2 * i + 1;
}

static __device__ __forceinline__ void turn(float *first, float *second, const angle &a)
{
    const float p = *first, q = *second;
    *first = p * a.cosine - q * a.sine;
    *second = p * a.sine + q * a.cosine;
}

/* ---- naive: a pair, a thread, its angle reckoned on the spot ---- */

enum { THREADS = 256 };

template <typename T>
__global__ void naive_kernel(turning r)
{
    const int64_t pair = (int64_t)blockIdx.x * THREADS + threadIdx.x, pairs = r.D / 2;
    if (pair >= r.B * r.T * r.H * pairs)
        return;
    const int64_t head = pair / pairs, i = pair % pairs;
    const T *x = (const T *)r.x + head * r.D;
    T *y = (T *)r.y + head * r.D;
    float p = load(x + first_of(r, i)), q = load(x + second_of(r, i));

    turn(&p, &q, angle_of(r, head / r.H % r.T, i));
    store(y + first_of(r, i), p);
    store(y + second_of(r, i), q);
}

template <typename T>
static int naive(const turning &r)
{
    const int64_t pairs = r.B * r.T * r.H * (r.D / 2);
    naive_kernel<T><<<ceil_div(pairs, THREADS), THREADS, 0, gpu_stream()>>>(r);
    return cudaGetLastError();
}

static const char *naive_declines(const struct frame *f)
{
    return DIM(f, 'B') * DIM(f, 'T') * DIM(f, 'H') * (DIM(f, 'D') / 2) / THREADS >= INT32_MAX
               ? "more pairs than a grid has threads for"
               : NULL;
}

/* ---- table: the angles of some steps once a block, for its heads ---- */

/* A block turns the numbers of `steps` steps, and at each of `heads` heads out of all sequences'
 * in a row: so few angles are there to so many numbers that double costs nothing. */
struct share {
    int steps, heads;
    int64_t times, across; /* blocks, along the steps and along the heads */
};

enum {
    BLOCK_BYTES = 32 << 10,
    TABLE_MAX = 4096,
    ROWS_AHEAD = 4,
    RESIDENT = 4 /* blocks of an SM, each with 32 KB on their way */
};
enum { SENT_BYTES = 2 * ROWS_AHEAD * THREADS * sizeof(uint4) };

static struct share share_of(const turning &r, size_t size)
{
    const int64_t heads = r.B * r.H, numbers = BLOCK_BYTES / size;
    struct share s;

    s.heads = (int)min(heads, max((int64_t)1, numbers / r.D));
    s.across = ceil_div(heads, s.heads);
    s.steps = (int)min(min(r.T, TABLE_MAX / (r.D / 2)), max((int64_t)1, numbers / (r.D * s.heads)));
    s.times = ceil_div(r.T, s.steps);
    return s;
}

/* Where head `head` of all sequences' begins at step t. */
static __device__ __forceinline__ int64_t row_of(const turning &r, int64_t t, unsigned head)
{
    const unsigned H = (unsigned)r.H, b = head / H;
    return ((b * r.T + t) * H + (head - b * H)) * r.D;
}

/* The vectors that begin at numbers k and k + D/2 of heads `head`, `head` + apart, ... below
 * `end`: in both forms, which only find other pairs in them.  ROWS_AHEAD heads' are on their way
 * together, to where only this thread goes. */
template <typename T>
static __device__ __forceinline__ void send_for(uint4 (*own)[THREADS], const turning &r, int64_t t,
                                                int k, unsigned head, unsigned apart, unsigned end)
{
    #pragma unroll ROWS_AHEAD
    for (int n = 0; n < ROWS_AHEAD; n++)
        if (head + n * apart < end) {
            const T *row = (const T *)r.x + k + row_of(r, t, head + n * apart);
            cp_async16(own[2 * n], row);
            cp_async16(own[2 * n + 1], row + r.D / 2);
        }
    cp_async_commit();
}

/* The first of them have been sent for; their angles stay in registers. */
template <typename T, bool HALF>
static __device__ __forceinline__ void turn_vectors(uint4 (*own)[THREADS], const turning &r,
                                                    const angle *table, int64_t t, int k,
                                                    unsigned head, unsigned apart, unsigned end)
{
    constexpr int W = WIDTH<T>;
    const int middle = (int)(r.D / 2);
    T *y = (T *)r.y + k;
    angle a[W];

    #pragma unroll 8
    for (int i = 0; i < W; i++)
        a[i] = table[HALF ? k + i : i < W / 2 ? k / 2 + i : (middle + k - W) / 2 + i];
    while (head < end) {
        cp_async_wait<0>();
        #pragma unroll ROWS_AHEAD
        for (int n = 0; n < ROWS_AHEAD; n++)
            if (head + n * apart < end) {
                T *row = y + row_of(r, t, head + n * apart);
                float both[2 * W];
                vector<T>::unpack(*own[2 * n], both);
                vector<T>::unpack(*own[2 * n + 1], both + W);
                #pragma unroll 8
                for (int i = 0; i < W; i++)
                    if (HALF)
                        turn(&both[i], &both[W + i], a[i]);
                    else
                        turn(&both[2 * i], &both[2 * i + 1], a[i]);
                *(uint4 *)row = vector<T>::pack(both);
                *(uint4 *)(row + middle) = vector<T>::pack(both + W);
            }
        head += ROWS_AHEAD * apart;
        send_for<T>(own, r, t, k, head, apart, end);
    }
}

/* The same of one pair, where half a head is no whole number of vectors. */
template <typename T, bool HALF>
static __device__ __forceinline__ void turn_pair(const turning &r, const angle *table, int64_t t,
                                                 int i, unsigned head, unsigned apart, unsigned end)
{
    const int64_t first = HALF ? i : 2 * i, second = HALF ? i + r.D / 2 : 2 * i + 1;

    for (; head < end; head += apart) {
        const int64_t row = row_of(r, t, head);
        float p = load((const T *)r.x + row + first), q = load((const T *)r.x + row + second);
        turn(&p, &q, table[i]);
        store((T *)r.y + row + first, p);
        store((T *)r.y + row + second, q);
    }
}

/* A thread has one column of vectors or of pairs; threads beside each other are neighbouring
 * columns, then heads, then steps.  Its first vectors are on their way while the angles are
 * reckoned. */
template <typename T, bool HALF, bool WIDE>
__global__ void __launch_bounds__(THREADS, RESIDENT) table_kernel(turning r, share s)
{
    extern __shared__ __align__(16) unsigned char room[]; /* what is sent for, if WIDE; angles */
    uint4(*own)[THREADS] = (uint4(*)[THREADS])((uint4 *)room + threadIdx.x);
    angle *table = (angle *)(room + (WIDE ? SENT_BYTES : 0)); /* [steps][D/2] */
    const int pairs = (int)(r.D / 2), columns = WIDE ? pairs / WIDTH<T> : pairs;
    const int64_t first = blockIdx.x % s.times * s.steps;
    const unsigned begin = (unsigned)(blockIdx.x / s.times) * s.heads;
    const unsigned end = (unsigned)min(begin + (int64_t)s.heads, r.B * r.H);
    const int steps = (int)min((int64_t)s.steps, r.T - first);
    const int wide = min(columns, THREADS), rows = THREADS / wide; /* of threads */
    const int for_heads = min(rows, s.heads), for_steps = rows / for_heads;
    const int row = threadIdx.x / wide, a_column = WIDE ? WIDTH<T> : 1;
    const unsigned head = begin + row % for_heads;
    const bool works = row < for_steps * for_heads;
    const auto send = [&](int step, int column) {
        if (WIDE && step < steps)
            send_for<T>(own, r, first + step, column * a_column, head, for_heads, end);
    };

    if (works)
        send(row / for_heads, threadIdx.x % wide);
    for (int i = threadIdx.x; i < steps * pairs; i += THREADS)
        table[i] = angle_of(r, first + i / pairs, i % pairs);
    __syncthreads();
    if (!works)
        return;
    for (int step = row / for_heads; step < steps; step += for_steps)
        for (int column = threadIdx.x % wide; column < columns; column += wide) {
            const angle *turns = table + step * pairs;
            if (WIDE)
                turn_vectors<T, HALF>(own, r, turns, first + step, column * a_column, head,
                                      for_heads, end);
            else
                turn_pair<T, HALF>(r, turns, first + step, column, head, for_heads, end);
            if (column + wide < columns)
                send(step, column + wide);
            else
                send(step + for_steps, threadIdx.x % wide);
        }
}

template <typename T, bool HALF, bool WIDE>
static int table_launch(const turning &r)
{
    const share s = share_of(r, sizeof(T));
    const int bytes = (WIDE ? SENT_BYTES : 0) + (int)(sizeof(angle) * s.steps * (r.D / 2));
    const auto kernel = table_kernel<T, HALF, WIDE>;
    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    kernel<<<s.times * s.across, THREADS, bytes, gpu_stream()>>>(r, s);
    return cudaGetLastError();
}

template <typename T>
static int table(const turning &r)
{
    if (in_vectors<T>(r.D / 2))
        return r.half ? table_launch<T, true, true>(r) : table_launch<T, false, true>(r);
    return r.half ? table_launch<T, true, false>(r) : table_launch<T, false, false>(r);
}

/* ---- both ---- */

static turning turning_of(const struct frame *f, const void *x, void *y, int direction)
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

static const char *table_declines(const struct frame *f)
{
    if (DIM(f, 'D') / 2 > TABLE_MAX)
        return "dim: a step's angles are more than a block's table";
    const share s = share_of(turning_of(f, NULL, NULL, 1), sizeof(float));
    return DIM(f, 'B') * DIM(f, 'H') > INT32_MAX || s.times * s.across > INT32_MAX
               ? "more heads than a grid has blocks for"
               : NULL;
}

template <int (*kernel)(const turning &r)>
static int forward(const struct frame *f)
{
    const struct rope *a = ARGS(f, rope);
    return kernel(turning_of(f, a->x, a->y, 1));
}

template <int (*kernel)(const turning &r)>
static int backward(const struct frame *f)
{
    const struct rope *g = GRADS(f, rope);
    return kernel(turning_of(f, g->y, g->x, -1));
}

#define KERNELS(bits, T)                                                                           \
    static const struct impl naive##bits = {"naive",                                               \
                                            "one thread a pair and its angle",                     \
                                            {forward<naive<T>>, backward<naive<T>>},               \
                                            NULL,                                                  \
                                            naive_declines,                                        \
                                            NULL,                                                  \
                                            0,                                                     \
                                            0};                                                    \
    static const struct impl table##bits = {                                                       \
        "table",                                                                                   \
        "a block's angles once, for all its heads; vectors of both halves",                        \
        {forward<table<T>>, backward<table<T>>},                                                   \
        NULL,                                                                                      \
        table_declines,                                                                            \
        NULL,                                                                                      \
        0,                                                                                         \
        0};                                                                                        \
    GPU_KERNEL_LIST(rope, bits, &table##bits, &naive##bits)

KERNELS(32, float);
KERNELS(16, __nv_bfloat16);
