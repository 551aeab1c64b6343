/* staged.cuh - consecutive rows of any length in shared memory.
 *
 * A block has a multiple of V = WIDTH<T> rows at a time, so that in memory they begin at a multiple of 16
 * bytes, and end there, whatever their length N.  They are copied as one piece: by cp.async of 16 bytes,
 * and back by stores of 16 bytes; only the tensor's last elements are copied one by one.
 *
 * A team of `lanes` neighbouring lanes, a power of two up to a warp, has one row at a time: lane l the
 * columns l + k lanes, k < K.  So an element's lane follows from its column, and a row has the same
 * bits at any address.  K is a template argument, one of STAGED_K. */
#ifndef STAGED_CUH
#define STAGED_CUH

#include <limits.h>

#include "gpu/device/async.cuh"
#include "gpu/device/opaque.cuh"
#include "gpu/device/cluster.cuh"
#include "gpu/device/vector.cuh"

/* The longest rows are those of a warp with the largest K. */
#define STAGED_COLUMNS 1024
#define STAGED_K(DO) DO(1) DO(2) DO(4) DO(6) DO(8) DO(12) DO(16) DO(24) DO(32)

/* ---- the layout, on the host ---- */

struct staged {
    int N, lanes, K;
    int threads, teams; /* of a block */
    int rows;           /* of a block at a time: a multiple of the teams, and of V */

    /* Elements of these rows. */
    __host__ __device__ int elements() const { return rows * N; }
};

/* The smallest of STAGED_K with which `lanes` lanes hold N columns; 0: none does. */
static inline int staged_k(int64_t N, int lanes)
{
#define AT_LEAST(k)                                                                                \
    if ((int64_t)lanes * (k) >= N)                                                                 \
        return (k);
    STAGED_K(AT_LEAST)
#undef AT_LEAST
    return 0;
}

/* The lanes with the fewest instructions for a row: some for each column, each step of a reduction,
 * and the row. */
static inline int staged_lanes(int64_t N)
{
    enum { COLUMN = 12, STEP = 6, ROW = 20 };
    int best = 32, cost = INT_MAX;

    for (int lanes = 1, steps = 0; lanes <= 32; lanes *= 2, steps++) {
        const int K = staged_k(N, lanes), c = lanes * (COLUMN * K + STEP * steps + ROW);
        if (K && c < cost)
            best = lanes, cost = c;
    }
    return best;
}

/* For R rows of N <= STAGED_COLUMNS columns: as many rows as fill about `bytes`, at least one for each
 * team, and no more than occupy the SMs. */
template <typename T>
static inline staged staged_rows(int64_t R, int64_t N, int64_t bytes, int sms)
{
    const int lanes = staged_lanes(N), threads = 32 * WIDTH<T>, teams = threads / lanes;
    const int64_t each = teams * N * (int64_t)sizeof(T);
    const int64_t steps = min(bytes / each, ceil_div(R, (int64_t)teams * sms));

    return {(int)N, lanes, staged_k(N, lanes), threads, teams, teams * (int)max(steps, (int64_t)1)};
}

#define STAGED_TOO_LONG "rows of more than " NUMBER(STAGED_COLUMNS) " columns"
#define STAGED_NO_ROOM "less shared memory than a block's rows take"

/* Rows that are not a multiple of 16 bytes are faster so than in kernels that read vectors: in bf16,
 * and in floats up to 32 columns. */
template <typename T>
static inline int staged_is_slower(int64_t N)
{
    return in_vectors<T>(N) || (!is_bf16<T>() && N > 32);
}

/* start(K), a std::integral_constant, for this K of STAGED_K. */
template <typename F>
static inline int staged_instance(int K, const F &start)
{
#define WITH(k)                                                                                    \
    case k: return start(std::integral_constant<int, k>());
    switch (K) {
        STAGED_K(WITH)
    }
#undef WITH
    return cudaErrorInvalidValue; /* not reached: staged_k() gives no other */
}

/* A kernel's __launch_bounds__: 768 threads per SM, so 80 registers for each. */
#define STAGED_BOUNDS(T) __launch_bounds__(32 * WIDTH<T>, 24 / WIDTH<T>)

/* ---- pieces of a tensor ---- */

/* Begins to copy n elements from a multiple of 16 bytes to shared memory, by all threads. */
template <typename T>
static __device__ __forceinline__ void stage_in(T *to, const T *from, int n)
{
    enum { V = WIDTH<T> };
    const int whole = n / V * V;

    for (int i = (int)threadIdx.x * V; i < whole; i += (int)blockDim.x * V)
        cp_async16(to + i, from + i);
    if (whole + (int)threadIdx.x < n)
        to[whole + threadIdx.x] = from[whole + threadIdx.x];
}

/* Copies n elements from shared memory, by all threads. */
template <typename T>
static __device__ __forceinline__ void stage_out(T *to, const T *from, int n)
{
    enum { V = WIDTH<T> };
    const int whole = n / V * V;

    for (int i = (int)threadIdx.x * V; i < whole; i += (int)blockDim.x * V)
        store_global(to + i, *(const vec<T> *)(from + i));
    if (whole + (int)threadIdx.x < n)
        to[whole + threadIdx.x] = from[whole + threadIdx.x];
}

/* ---- rows of a team ---- */

/* A thread's team, and its lane in it. */
struct staged_thread {
    int team, lane;

    __device__ __forceinline__ staged_thread(const staged &s)
        : team(div_pow2((int)threadIdx.x, s.lanes)), lane((int)threadIdx.x & (s.lanes - 1))
    {
    }
};

/* The lane's columns of a row, of which n are there; `fill` for the others. */
template <int K, typename T>
static __device__ __forceinline__ void staged_load(float (&x)[K], const T *row, int n, int lane,
                                                   int lanes, float fill)
{
    #pragma unroll
    for (int k = 0; k < K; k++) {
        const int column = lane + k * lanes;
        x[k] = column < n ? load(row + column) : fill;
    }
}

/* The lane's columns of a row; zeros beyond its n.  They are HELD in registers, or read at each use. */
template <int K, typename T, bool HELD>
struct staged_columns {
    const T *row;
    int n, lane, lanes;
    float x[HELD ? K : 1];

    __device__ __forceinline__ staged_columns(const T *row, int n, int lane, int lanes)
        : row(row), n(n), lane(lane), lanes(lanes)
    {
        if constexpr (HELD)
            staged_load(x, row, n, lane, lanes, 0);
    }
    __device__ __forceinline__ float operator[](int k) const
    {
        if constexpr (HELD)
            return x[k];
        else
            return lane + k * lanes < n ? load(row + lane + k * lanes) : 0;
    }
};

/* Stores them; x(k) is the k-th.  (n is compared again: the results of K comparisons take registers.) */
template <int K, typename T, typename F>
static __device__ __forceinline__ void staged_store(T *row, int n, int lane, int lanes, const F &x)
{
    make_opaque(n);
    #pragma unroll
    for (int k = 0; k < K; k++) {
        const int column = lane + k * lanes;
        if (column < n)
            store(row + column, x(k));
    }
}

#endif
