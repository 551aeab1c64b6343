/* staged.cuh - consecutive rows of any length in shared memory.
 *
 * A block has a multiple of V = WIDTH<T> rows at a time, so that in memory they begin at a multiple of 16
 * bytes, and end there, whatever their length N.  They are copied at once: by cp.async of 16 bytes,
 * and back by stores of 16 bytes; only the tensor's last elements are copied one by one.
 *
 * A team of LANES neighbouring lanes has one row at a time: lane l the vectors l + j LANES, j < K / W, of W
 * columns each.  W is 1 or, where rows are whole vectors of 16 bytes, and so aligned to 16 bytes in shared
 * memory, V: then a lane reads 16 bytes at once, and compares with the row's end once per vector.  An
 * element's lane follows from its column, so a row has the same bits at any address.  LANES, K and W are a
 * staged_shape. */
#ifndef STAGED_CUH
#define STAGED_CUH

#include <type_traits>

#include "gpu/device/async.cuh"
#include "gpu/device/opaque.cuh"
#include "gpu/device/vector.cuh"

/* DO(LANES, K) for the shapes of W = 1, those for shorter rows first: the fewer lanes, the fewer shuffles,
 * but the more registers. */
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

/* DO(LANES, K / W, SHORTEST) for those of W = V, and the vectors of their shortest rows. */
#define STAGED_WIDE_SHAPES(DO)                                                                     \
    DO(1, 1, 1)                                                                                    \
    DO(2, 1, 2)                                                                                    \
    DO(4, 1, 3)                                                                                    \
    DO(8, 1, 5)                                                                                    \
    DO(8, 2, 9) DO(8, 3, 17) DO(8, 4, 25) DO(16, 4, 33) DO(32, 4, 65) DO(32, 8, 129)

/* A lane's first FULL columns are there in all rows of the shape, so that they need no comparison. */
template <int LANES_, int K_, int W_ = 1, int FULL_ = 0>
struct staged_shape {
    static constexpr int LANES = LANES_, K = K_, W = W_, FULL = FULL_;
};

/* start() with the first shape of W = 1 that holds rows of N columns, N <= STAGED_COLUMNS.  Lanes that
 * have rows of 16 columns each would read two banks, so such rows have the next shape. */
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

/* The same with a shape of W = V where rows are whole vectors. */
template <typename T, typename F>
static inline int staged_start_wide(int64_t N, const F &start)
{
    enum { V = WIDTH<T> };

    if (!in_vectors<T>(N))
        return staged_start(N, start);
#define IF_IT_FITS(lanes, vectors, shortest)                                                       \
    if constexpr (lanes * vectors * V <= STAGED_COLUMNS)                                           \
        if (N >= shortest * V && N <= lanes * vectors * V)                                         \
            return start(staged_shape<lanes, vectors * V, V, shortest / lanes * V>());
    STAGED_WIDE_SHAPES(IF_IT_FITS)
#undef IF_IT_FITS
    return cudaErrorInvalidValue; /* not reached */
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

/* For R rows of N <= STAGED_COLUMNS columns, each of so many lanes: as many rows as fill about `bytes`, at
 * least one for each team, and no more than occupy the SMs. */
template <typename T>
static inline staged staged_rows(int64_t R, int64_t N, int64_t bytes, int sms, int lanes)
{
    const int threads = 32 * WIDTH<T>, teams = threads / lanes;
    const int64_t each = teams * N * (int64_t)sizeof(T);
    const int64_t steps = min(bytes / each, ceil_div(R, (int64_t)teams * sms));

    return {(int)N, threads, teams, teams * (int)max(steps, (int64_t)1)};
}

/* For the kernels that staged_start() starts. */
template <typename T>
static inline staged staged_rows(int64_t R, int64_t N, int64_t bytes, int sms)
{
    const auto lanes = [](auto shape) -> int { return shape.LANES; };
    return staged_rows<T>(R, N, bytes, sms, staged_start(N, lanes));
}

/* For those that staged_start_wide() starts. */
template <typename T>
static inline staged staged_rows_wide(int64_t R, int64_t N, int64_t bytes, int sms)
{
    const auto lanes = [](auto shape) -> int { return shape.LANES; };
    return staged_rows<T>(R, N, bytes, sms, staged_start_wide<T>(N, lanes));
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
    __device__ __forceinline__ int column(int k) const
    {
        return (k / S::W * S::LANES + lane) * S::W + k % S::W;
    }
    /* Does the lane have this one? */
    __device__ __forceinline__ bool owns(int column) const
    {
        return column / S::W % S::LANES == lane;
    }
    /* Is the k-th there?  If so, its whole vector is. */
    __device__ __forceinline__ bool has(int k, int n) const
    {
        return k < S::FULL || column(k / S::W * S::W) < n;
    }

    /* Loads them; `fill` for those that are not there. */
    template <typename T>
    __device__ __forceinline__ void load_row(float (&x)[S::K], const T *row, int n,
                                             float fill) const
    {
        #pragma unroll
        for (int k = 0; k < S::K; k++)
            x[k] = column(k) < n ? load(row + column(k)) : fill;
    }
    template <typename T>
    __device__ __forceinline__ void load_row(vec<T, S::W> (&v)[S::K / S::W], const T *row, int n,
                                             float fill) const
    {
        #pragma unroll
        for (int k = 0; k < S::K; k += S::W)
            v[k / S::W] = has(k, n) ? load_vec<S::W>(row + column(k))
                                    : make_vec<T, S::W>([&](int) { return fill; });
    }
    /* Stores them; x(k) is the k-th.  (n is compared again: the results of K comparisons would take
     * registers.) */
    template <typename T, typename F>
    __device__ __forceinline__ void store_row(T *row, int n, const F &x) const
    {
        make_opaque(n);
        #pragma unroll
        for (int k = 0; k < S::K; k += S::W)
            if (has(k, n))
                store_vec(row + column(k), make_vec<T, S::W>([&](int i) { return x(k + i); }));
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

/* The columns of a lane in registers; `fill` for those that are not there.  Vectors stay packed. */
template <typename S, typename T>
struct staged_vectors {
    std::conditional_t<S::W == 1, float, vec<T, S::W>> v[S::K / S::W];

    __device__ __forceinline__ staged_vectors(const staged_lane<S> &at, const T *row, int n,
                                              float fill)
    {
        at.load_row(v, row, n, fill);
    }
    __device__ __forceinline__ float operator[](int k) const
    {
        if constexpr (S::W == 1)
            return v[k];
        else
            return v[k / S::W][k % S::W];
    }
};

#endif
