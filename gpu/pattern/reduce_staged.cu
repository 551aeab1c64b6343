/* reduce, kernel `staged`: y[r] = sum, mean, max (with argmax) or 2-norm of row r of x.  A block copies
 * many short rows to shared memory as one copy, wherever they begin (gpu/device/staged.cuh), and each
 * team of lanes reduces rows of its own.
 *
 * Backward, dx of a row is dy, dy / n, dy at the argmax, or dy x / y.  A block copies its rows' dy, and
 * of a max at, of a norm x and y, assembles dx in shared memory, and copies it back. */
#include "gpu/device/launch.cuh"
#include "gpu/device/staged.cuh"
#include "gpu/pattern/reduce.cuh"

/* The bytes that a block has in shared memory, if one step of its teams has no more. */
enum { STAGED_BYTES = 16 << 10 };

/* ---- forward ---- */

struct staged_job {
    int64_t R;
    const void *x;
    void *y;
    int64_t *at; /* of a max */
    bool norm;
    float divisor; /* of a mean, else 1 */
};

template <typename T>
static __device__ __forceinline__ void store_result(const staged_job &j, int64_t row,
                                                    const total &found)
{
    store((T *)j.y + row, j.norm ? sqrtf(found.sum) : found.sum / j.divisor);
}

template <typename T>
static __device__ __forceinline__ void store_result(const staged_job &j, int64_t row,
                                                    const argmax &found)
{
    store((T *)j.y + row, found.x);
    j.at[row] = found.at == INT64_MAX ? 0 : found.at; /* all are -inf */
}

template <typename F, typename T, typename S>
__global__ void STAGED_BOUNDS(T) staged_kernel(const staged_job j, const staged s)
{
    extern __shared__ uint4 staged_smem[];
    const staged_chunk own(j.R, s, blockIdx.x);
    const staged_lane<S> at;
    T *rows = (T *)staged_smem;

    stage_in(rows, (const T *)j.x + own.first * s.N, own.there * s.N);
    stage_ready();
    #pragma unroll 1
    for (int r = at.team; r < s.rows; r += s.teams) {
        const int n = r < own.there ? s.N : 0;
        float x[S::K];
        F found = F::none();
        at.load_row(x, rows + r * s.N, n, F::padding());
        #pragma unroll
        for (int k = 0; k < S::K; k++) {
            const float one[1] = {x[k]};
            found.accumulate(one, at.column(k), true, j.norm);
        }
        found = fold_lanes<S::LANES>(found);
        if (n && at.lane == 0)
            store_result<T>(j, own.first + r, found);
    }
}

/* ---- backward ---- */

struct staged_job_back {
    int64_t R;
    const void *dy;
    const void *x, *y; /* of a norm, or NULL */
    void *dx;
    const int64_t *at; /* of a max, or NULL */
    float divisor;     /* of a mean, else 1 */
};

/* A block's rows in shared memory: x, which dx replaces; at of a max; dy; y of a norm. */
template <typename T>
struct staged_back {
    T *rows;
    int64_t *at;
    T *dy, *y;

    __device__ __forceinline__ staged_back(void *smem, const staged &s, bool max)
    {
        rows = (T *)smem;
        at = (int64_t *)(rows + s.elements());
        dy = (T *)(at + (max ? s.rows : 0));
        y = dy + s.rows;
    }
};

template <typename T, bool NORM, typename S>
__global__ void STAGED_BOUNDS(T) staged_back_kernel(const staged_job_back j, const staged s)
{
    extern __shared__ uint4 staged_smem[];
    const staged_chunk own(j.R, s, blockIdx.x);
    const staged_lane<S> at;
    const staged_back<T> in(staged_smem, s, j.at);

    stage_in(in.dy, (const T *)j.dy + own.first, own.there);
    if (NORM) {
        stage_in(in.rows, (const T *)j.x + own.first * s.N, own.there * s.N);
        stage_in(in.y, (const T *)j.y + own.first, own.there);
    } else if (j.at) {
        stage_in(in.at, j.at + own.first, own.there);
    }
    stage_ready();
    #pragma unroll 1
    for (int r = at.team; r < own.there; r += s.teams) {
        const float dy = load(in.dy + r), y = NORM ? load(in.y + r) : 1;
        const float dx_other = j.at || y == 0 ? 0 : dy / (NORM ? y : j.divisor);
        T *const row = in.rows + r * s.N;
        if constexpr (NORM) {
            const staged_columns<S, T> x(at, row, s.N);
            at.store_row(row, s.N, [&](int k) { return dx_other * x[k]; });
        } else {
            const int argmax = j.at ? (int)in.at[r] : -1;
            at.store_row(row, s.N, [&](int k) { return at.column(k) == argmax ? dy : dx_other; });
        }
    }
    __syncthreads();
    stage_out((T *)j.dx + own.first * s.N, in.rows, own.there * s.N);
}

/* ---- launches ---- */

OF_CALL(bool, is_max, f->choice[REDUCE_KIND] == REDUCE_MAX)
OF_CALL(bool, is_norm, f->choice[REDUCE_KIND] == REDUCE_NORM2)

/* The bytes that backward has of a row besides dx. */
template <typename T>
static int64_t beside_row(const struct call *f)
{
    return (is_norm(f) ? 2 : 1) * sizeof(T) + (is_max(f) ? sizeof(int64_t) : 0);
}

template <typename T>
static staged staged_of(const struct call *f, enum pass p)
{
    const int64_t N = elements_of(f), row = N * sizeof(T);
    const int64_t bytes =
        p == BACKWARD ? STAGED_BYTES * row / (row + beside_row<T>(f)) : (int64_t)STAGED_BYTES;
    return staged_rows<T>(rows_of(f), N, bytes, gpu_limits(f)->sms);
}

template <typename T>
static size_t staged_smem_bytes(const struct call *f, enum pass p)
{
    const staged s = staged_of<T>(f, p);
    return s.elements() * sizeof(T) + (p == BACKWARD ? s.rows * beside_row<T>(f) : 0);
}

template <typename F, typename T>
static int staged_fold(const struct call *f)
{
    const struct reduce *a = ARGS(f, reduce);
    const staged_job j = {rows_of(f), a->x, a->y, (int64_t *)a->at, is_norm(f), divisor_of(f)};
    const staged s = staged_of<T>(f, FORWARD);
    const size_t bytes = staged_smem_bytes<T>(f, FORWARD);

    return staged_start(s.N, [&](auto shape) -> int {
        const auto kernel = staged_kernel<F, T, decltype(shape)>;
        CUDA(allow_smem(kernel, bytes));
        kernel<<<ceil_div(j.R, s.rows), s.threads, bytes, gpu_stream(f)>>>(j, s);
        return cudaGetLastError();
    });
}

template <typename T>
int staged_reduce(const struct call *f)
{
    return is_max(f) ? staged_fold<argmax, T>(f) : staged_fold<total, T>(f);
}

template <typename T, bool NORM>
static int staged_spread(const struct call *f)
{
    const struct reduce *a = ARGS(f, reduce), *g = GRADS(f, reduce);
    const staged_job_back j = {rows_of(f),         g->y, NORM ? a->x : NULL,
                               NORM ? a->y : NULL, g->x, is_max(f) ? (const int64_t *)a->at : NULL,
                               divisor_of(f)};
    const staged s = staged_of<T>(f, BACKWARD);
    const size_t bytes = staged_smem_bytes<T>(f, BACKWARD);

    return staged_start(s.N, [&](auto shape) -> int {
        const auto kernel = staged_back_kernel<T, NORM, decltype(shape)>;
        CUDA(allow_smem(kernel, bytes));
        kernel<<<ceil_div(j.R, s.rows), s.threads, bytes, gpu_stream(f)>>>(j, s);
        return cudaGetLastError();
    });
}

template <typename T>
int staged_reduce_back(const struct call *f)
{
    return is_norm(f) ? staged_spread<T, true>(f) : staged_spread<T, false>(f);
}

/* ---- what it takes ---- */

template <typename T>
const char *staged_reduce_declines(const struct call *f)
{
    if (elements_of(f) > STAGED_COLUMNS)
        return STAGED_TOO_LONG;
    const size_t bytes = max(staged_smem_bytes<T>(f, FORWARD), staged_smem_bytes<T>(f, BACKWARD));
    return bytes > gpu_limits(f)->smem ? STAGED_NO_SMEM : NULL;
}

/* A warp reads long rows of whole vectors as fast. */
template <typename T>
int staged_reduce_yields(const struct call *f)
{
    enum { LONG_BYTES = 1024 };
    const int64_t N = elements_of(f);
    return in_vectors<T>(N) && N * sizeof(T) >= LONG_BYTES;
}

#define EACH(T)                                                                                    \
    template int staged_reduce<T>(const struct call *);                                            \
    template int staged_reduce_back<T>(const struct call *);                                       \
    template const char *staged_reduce_declines<T>(const struct call *);                           \
    template int staged_reduce_yields<T>(const struct call *);
GPU_TYPES(EACH)
