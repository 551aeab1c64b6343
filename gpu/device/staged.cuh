/* staged.cuh - consecutive rows of any length in shared memory.
 *
 * A block has a multiple of V = WIDTH<T> rows at a time, so that in memory they begin at a multiple of 16
 * bytes, and end there, whatever their length N.  They are copied at once: by cp.async of 16 bytes,
 * and back by stores of 16 bytes; only the tensor's last elements are copied one by one.
 *
 * A team of LANES neighbouring lanes has one row at a time: lane l the columns l + k LANES, k < K.  So an
 * element's lane follows from its column, and a row has the same bits at any address.  LANES and K are
 * a staged_shape. */
#ifndef STAGED_CUH
#define STAGED_CUH

#include "gpu/device/async.cuh"
#include "gpu/device/opaque.cuh"
#include "gpu/device/vector.cuh"

/* DO(LANES, K) for the shapes, those for shorter rows first: the fewer lanes, the fewer shuffles, but the
 * more registers. */
#define STAGED_COLUMNS 1024
#define STAGED_SHAPES(DO)                                                                          \
    DO(1, 1)                                                                                       \
    DO(1, 2)                                                                                       \
    DO(1, 4)                                                                                       \
    DO(1, 6)                                                                                       \
    DO(1, 8)                                                                                       \
    DO(1, 12)                                                                                      \
    DO(1, 16)                                                                                      \
    DO(4, 6)                                                                                       \
    DO(4, 8)                                                                                       \
    DO(4, 12)                                                                                      \
    DO(8, 8) DO(8, 12) DO(16, 8) DO(16, 12) DO(32, 8) DO(32, 12) DO(32, 16) DO(32, 24) DO(32, 32)

template <int LANES_, int K_>
struct staged_shape {
    static constexpr int LANES = LANES_, K = K_;
};

/* start() with the first shape that holds rows of N columns, N <= STAGED_COLUMNS.  Lanes that have
 * rows of 16 columns each would read two banks, so such rows have the next shape. */
template <typename F>
static inline int staged_start(int64_t N, const F &start)
{
#define IF_IT_FITS(lanes, k)                                                                       \
    if (N <= (lanes) * (k) && !((lanes) == 1 && N == 16))                                          \
        return start(staged_shape<lanes, k>());
    STAGED_SHAPES(IF_IT_FITS)
#undef IF_IT_FITS
    return cudaErrorInvalidValue; /* not reached: kernels decline longer rows */
}

/* ---- the rows of a block ---- */

struct staged {
    int N;
    int threads, teams; /* of a block */
    int rows;           /* of a block at a time: a multiple of the teams, and of V */

    /* Elements of these rows. */
    __host__ __device__ int elements() const { return rows * N; }
};

/* The index-th rows that a block has at a time, of R: from `first` on, and how many of them there are. */
struct staged_chunk {
    int64_t first;
    int there;

    __device__ __forceinline__ staged_chunk(int64_t R, const staged &s, int64_t index)
        : first(index * s.rows), there((int)max((int64_t)0, min((int64_t)s.rows, R - first)))
    {
    }
};

/* For R rows of N <= STAGED_COLUMNS columns: as many rows as fill about `bytes`, at least one for each
 * team, and no more than occupy the SMs. */
template <typename T>
static inline staged staged_rows(int64_t R, int64_t N, int64_t bytes, int sms)
{
    const int threads = 32 * WIDTH<T>;
    const int teams = threads / staged_start(N, [](auto shape) -> int { return shape.LANES; });
    const int64_t each = teams * N * (int64_t)sizeof(T);
    const int64_t steps = min(bytes / each, ceil_div(R, (int64_t)teams * sms));

    return {(int)N, threads, teams, teams * (int)max(steps, (int64_t)1)};
}

#define STAGED_TOO_LONG "rows of more than " NUMBER(STAGED_COLUMNS) " columns"
#define STAGED_NO_SMEM "less shared memory than a block's rows take"

/* Measured on an H100, rows of 1 to 1024 columns: this is the fastest for all rows that are not a
 * multiple of 16 bytes, and for those of one or three times 16 bytes.  Others read vectors as fast
 * without it. */
template <typename T>
static inline int staged_is_slower(int64_t N)
{
    return in_vectors<T>(N) && N != WIDTH<T> && N != 3 * WIDTH<T>;
}

/* A kernel's __launch_bounds__: 768 threads per SM, so 80 registers for each. */
#define STAGED_BOUNDS(T) __launch_bounds__(32 * WIDTH<T>, 24 / WIDTH<T>)

/* ---- parts of a tensor ---- */

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

/* Waits for all that the block's threads have begun to copy. */
static __device__ __forceinline__ void stage_ready(void)
{
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
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

/* The columns of a lane in a row of which n columns are there; S is a staged_shape. */
template <typename S>
struct staged_lane {
    int team, lane;

    __device__ __forceinline__ staged_lane()
        : team((int)threadIdx.x / S::LANES), lane((int)threadIdx.x % S::LANES)
    {
    }
    /* The k-th. */
    __device__ __forceinline__ int column(int k) const { return lane + k * S::LANES; }

    /* Loads them; `fill` for those that are not there. */
    template <typename T>
    __device__ __forceinline__ void load_row(float (&x)[S::K], const T *row, int n,
                                             float fill) const
    {
        #pragma unroll
        for (int k = 0; k < S::K; k++)
            x[k] = column(k) < n ? load(row + column(k)) : fill;
    }
    /* Stores them; x(k) is the k-th.  (n is compared again: the results of K comparisons would take
     * registers.) */
    template <typename T, typename F>
    __device__ __forceinline__ void store_row(T *row, int n, const F &x) const
    {
        make_opaque(n);
        #pragma unroll
        for (int k = 0; k < S::K; k++)
            if (column(k) < n)
                store(row + column(k), x(k));
    }
};

/* The columns of a lane, zeros for those that are not there: in registers if they are few, or read at
 * each use. */
template <typename S, typename T>
struct staged_columns {
    static constexpr bool HELD = S::K <= 12;
    const staged_lane<S> &at;
    const T *row;
    int n;
    float x[HELD ? S::K : 1];

    __device__ __forceinline__ staged_columns(const staged_lane<S> &at, const T *row, int n)
        : at(at), row(row), n(n)
    {
        if constexpr (HELD)
            at.load_row(x, row, n, 0);
    }
    __device__ __forceinline__ float operator[](int k) const
    {
        if constexpr (HELD)
            return x[k];
        else
            return at.column(k) < n ? load(row + at.column(k)) : 0;
    }
};

#endif
