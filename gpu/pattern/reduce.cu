/* y[r] = sum, mean, max (with argmax) or 2-norm of row r of x [R,N]; or y of all of x, which is
 * then one row of R N elements.
 *
 * A group of threads (a warp or a block) reduces one row or one chunk of a row.  Backward, a
 * group writes dx of one chunk.  Short rows: kernel staged (reduce_staged.cu). */
#include "gpu/pattern/reduce.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/device/segment.cuh"

enum {
    BLOCK = 256,            /* threads of a block whose groups are warps */
    MAX_THREADS = 256,      /* threads of a group */
    AHEAD = 8,              /* accesses that a thread has in flight at once */
    AHEAD_BACK = 4,         /* the same in backward, which also writes */
    CHAIN = 64,             /* rounds in one partial sum: this keeps rounding errors small */
    MAX_BLOCKS = 0x7fffffff /* blocks of a grid */
};

/* ---- mapping of rows to threads ---- */

/* Rows of n elements, each divided into `chunks` chunks of `chunk` elements; the last chunk may be
 * shorter.  One group of threads, a warp or a block, processes a chunk. */
struct partition {
    int64_t rows, n, chunk, chunks;
    int group; /* threads */
};

/* The group is the smallest that has a whole chunk in flight with `ahead` vectors per thread, but
 * has at most MAX_THREADS threads. */
template <typename T>
static partition partition_of(int64_t rows, int64_t n, int64_t chunk, int ahead)
{
    partition p = {rows, n, min(n, chunk), ceil_div(n, chunk), 32};
    while (p.group < MAX_THREADS && ceil_div(p.chunk, WIDTH<T>) > p.group * ahead)
        p.group *= 2;
    return p;
}

static int threads_of(const partition &p)
{
    return p.group > 32 ? p.group : BLOCK;
}

static int64_t blocks_of(const partition &p)
{
    return ceil_div(p.rows * p.chunks, threads_of(p) / p.group);
}

/* A thread's chunk of a row, and its index in the group. */
struct work_tile {
    int64_t number, row, begin; /* the chunk's index; its row; its first column */
    int64_t n;                  /* elements of the chunk */
    int first;                  /* index of the thread and of its first access */
};

static __device__ __forceinline__ work_tile work_tile_of(const partition &p)
{
    const bool one_warp = p.group == 32;
    work_tile w;
    w.number = one_warp ? (int64_t)blockIdx.x * (BLOCK / 32) + threadIdx.x / 32 : blockIdx.x;
    w.first = one_warp ? threadIdx.x % 32 : threadIdx.x;
    w.row = p.chunks == 1 ? w.number : w.number / p.chunks;
    w.begin = (w.number - w.row * p.chunks) * p.chunk;
    w.n = min(p.n - w.begin, p.chunk);
    return w;
}

/* The arguments of a reduction. */
struct job {
    partition by;
    const void *x;
    const int64_t *from; /* the index in its row of the maximum that x is, or NULL */
    void *y;
    int64_t *at;        /* of a max */
    int kept;           /* the type of y */
    bool squared, root; /* of a norm */
    float divisor;      /* of a mean */
};

static __device__ void store_result(const job &j, const work_tile &w, const total &found)
{
    put_kept(j.kept, j.y, w.number, j.root ? sqrtf(found.sum) : found.sum / j.divisor);
}

static __device__ void store_result(const job &j, const work_tile &w, const argmax &found)
{
    put_kept(j.kept, j.y, w.number, found.x);
    const int64_t at = found.at == INT64_MAX ? w.begin : found.at; /* all are -inf */
    j.at[w.number] = j.from ? j.from[w.row * j.by.n + at] : at;
}

/* ---- tree ---- */

/* One block per row: a tree in shared memory reduces the results of its threads. */
template <typename F, typename T>
__global__ void __launch_bounds__(BLOCK) tree_kernel(job j)
{
    enum { RUN = AHEAD * CHAIN };
    __shared__ F partial[BLOCK];
    const work_tile w = work_tile_of(j.by);
    const T *x = (const T *)j.x + w.row * w.n;
    F found = F::none();

    for (int64_t i = threadIdx.x; i < w.n;) {
        F run = F::none();
        for (int k = 0; k < RUN && i < w.n; k++, i += BLOCK) {
            const float one[1] = {load(x + i)};
            run.accumulate(one, i, true, j.squared);
        }
        found.merge(run);
    }
    partial[threadIdx.x] = found;
    for (int half = BLOCK / 2; half; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half)
            partial[threadIdx.x].merge(partial[threadIdx.x + half]);
    }
    if (threadIdx.x == 0)
        store_result(j, w, partial[0]);
}

/* ---- shuffle and two_level ---- */

/* Reduces a thread's part of a chunk, AHEAD vectors of which are in flight before the first is used.
 * WIDE: rows are a multiple of 16 bytes long. */
template <typename F, typename T, bool WIDE>
static __device__ __forceinline__ F fold_share(const T *x, const work_tile &w, int threads,
                                               bool squared)
{
    enum { V = WIDTH<T> };
    const int64_t all = ceil_div(w.n, V);
    const int first = first_vector<WIDE, AHEAD>(w.first);
    F found = F::none();

    for (int64_t k = 0; k < all;) {
        F run = F::none();
        for (int round = 0; round < CHAIN && k < all; round++, k += AHEAD * threads) {
            const int remaining = (int)min(all - k, (int64_t)(AHEAD * threads)) - first;
            /* how far the thread's i-th vector is from its first */
            const auto ahead = [&](int i) { return i * vector_stride<WIDE>(threads); };
            vec<T> loaded[AHEAD];
            if constexpr (WIDE) {
                const vec<T> *p = (const vec<T> *)x + k + w.first;
                #pragma unroll AHEAD
                for (int i = 0; i < AHEAD; i++)
                    loaded[i] = load_vec(p + i * threads, i * threads < remaining);
            } else {
                const int n = (int)min(w.n - k * V, (int64_t)1 << 30);
                load_vectors<false>(loaded, x + k * V, n, 0, w.first, threads, F::padding());
            }
            #pragma unroll AHEAD
            for (int i = 0; i < AHEAD; i++) {
                float elements[V];
                unpack(loaded[i], elements);
                run.accumulate(elements, w.begin + (k + first + ahead(i)) * V, ahead(i) < remaining,
                               squared);
            }
        }
        found.merge(run);
    }
    return found;
}

/* A warp reduces by shuffles.  If the group is a block, its warps then combine their results in
 * shared memory; otherwise each warp has a chunk of its own. */
template <typename F, typename T, bool WIDE>
__global__ void __launch_bounds__(MAX_THREADS) shuffle_kernel(job j)
{
    __shared__ F partial[MAX_THREADS / 32];
    const work_tile w = work_tile_of(j.by);
    const int lane = threadIdx.x % 32;

    pdl_wait();
    pdl_launch_dependents();
    if (w.row >= j.by.rows)
        return;
    const T *x = (const T *)j.x + w.row * j.by.n + w.begin;
    F found = fold_lanes(fold_share<F, T, WIDE>(x, w, j.by.group, j.squared));
    if (j.by.group > 32) {
        if (lane == 0)
            partial[threadIdx.x / 32] = found;
        __syncthreads();
        if (threadIdx.x >= 32)
            return;
        found = fold_lanes(lane < j.by.group / 32 ? partial[lane] : F::none());
    }
    if (w.first == 0)
        store_result(j, w, found);
}

/* ---- backward ---- */

struct job_back {
    partition by;
    const void *dy;
    const void *x, *y; /* of a norm, or NULL */
    void *dx;
    const int64_t *at; /* of a max, or NULL */
    float divisor;     /* of a mean, else 1 */
};

/* One thread per element. */
template <typename T>
__global__ void __launch_bounds__(BLOCK) each_kernel(job_back j)
{
    const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x, row = i / j.by.n;
    if (row >= j.by.rows)
        return;
    float d = load((const T *)j.dy + row) / j.divisor;
    if (j.at && i - row * j.by.n != j.at[row])
        d = 0;
    if (j.x) {
        const float y = load((const T *)j.y + row);
        d = y == 0 ? 0 : d * load((const T *)j.x + i) / y;
    }
    store((T *)j.dx + i, d);
}

/* One group per chunk. */
template <typename T, bool WIDE, bool NORM>
__global__ void __launch_bounds__(MAX_THREADS) spread_kernel(job_back j)
{
    enum { V = WIDTH<T> };
    const work_tile w = work_tile_of(j.by);
    if (w.row >= j.by.rows)
        return;
    const int64_t start = w.row * j.by.n + w.begin, argmax = j.at ? j.at[w.row] - w.begin : -1;
    const T *x = (const T *)j.x + start;
    T *dx = (T *)j.dx + start;
    const float dy = load((const T *)j.dy + w.row), y = NORM ? load((const T *)j.y + w.row) : 1;
    const float dx_other = j.at || y == 0 ? 0 : dy / (NORM ? y : j.divisor);
    const int n = (int)w.n;

    for (int k = 0; k * V < n; k += AHEAD_BACK * j.by.group) {
        vec<T> loaded[AHEAD_BACK];
        int max_here[AHEAD_BACK];
        if (NORM && !WIDE)
            load_vectors<false>(loaded, x, n, k, w.first, j.by.group, 0);
        #pragma unroll AHEAD_BACK
        for (int i = 0; i < AHEAD_BACK; i++) {
            const int vector = vector_of<WIDE, AHEAD_BACK>(k, i, w.first, j.by.group);
            const int64_t offset = argmax - (int64_t)vector * V;
            max_here[i] = offset >= 0 && offset < V ? (int)offset : -1;
            if (NORM && WIDE)
                loaded[i] = load_vec((const vec<T> *)x + vector, vector * V < n);
        }
        store_vectors<WIDE, AHEAD_BACK>(dx, n, k, w.first, j.by.group, [&](int i, int e) {
            return NORM ? dx_other * loaded[i][e] : e == max_here[i] ? dy : dx_other;
        });
    }
}

/* ---- launches ---- */

/* The elements of a chunk of a long row. */
template <typename T>
constexpr int64_t CHUNK = MAX_THREADS *AHEAD * 16 / sizeof(T);

template <typename T>
static partition rows_whole(const struct call *f)
{
    return partition_of<T>(rows_of(f), elements_of(f), elements_of(f), AHEAD);
}

template <typename T>
static partition rows_in_chunks(const struct call *f, int ahead)
{
    return partition_of<T>(rows_of(f), elements_of(f), CHUNK<T>, ahead);
}

template <typename T>
static job job_of(const struct call *f, const partition &by)
{
    const struct reduce *a = ARGS(f, reduce);
    const bool norm = f->choice[REDUCE_KIND] == REDUCE_NORM2;
    return {by, a->x, NULL, a->y, (int64_t *)a->at, storage<T>::KEPT, norm, norm, divisor_of(f)};
}

template <typename F, typename T>
static int tree_fold(const struct call *f)
{
    const partition by = {rows_of(f), elements_of(f), elements_of(f), 1, BLOCK};
    tree_kernel<F, T><<<blocks_of(by), BLOCK, 0, gpu_stream(f)>>>(job_of<T>(f, by));
    return cudaGetLastError();
}

template <typename F, typename T>
static int fold(struct context *on, const job &j)
{
    if (in_vectors<T>(j.by.n))
        shuffle_kernel<F, T, true><<<blocks_of(j.by), threads_of(j.by), 0, on->stream>>>(j);
    else
        shuffle_kernel<F, T, false><<<blocks_of(j.by), threads_of(j.by), 0, on->stream>>>(j);
    return cudaGetLastError();
}

template <typename F, typename T>
static int shuffle_fold(const struct call *f)
{
    return fold<F, T>(f->context, job_of<T>(f, rows_whole<T>(f)));
}

/* The first launch reduces chunks, the second one their results.  If a row is one chunk, there is
 * only one launch. */
template <typename F, typename T>
static int two_level_fold(const struct call *f)
{
    job whole = job_of<T>(f, rows_in_chunks<T>(f, AHEAD)), first = whole;
    const int64_t parts = whole.by.rows * whole.by.chunks;
    const bool max = std::is_same<F, argmax>::value;

    if (whole.by.chunks == 1)
        return fold<F, T>(f->context, whole);
    first.at = (int64_t *)f->work;
    first.y = first.at + (max ? parts : 0);
    first.kept = KEPT_F32;
    first.root = false;
    first.divisor = 1;
    int e = fold<F, T>(f->context, first);
    whole.by = partition_of<float>(whole.by.rows, whole.by.chunks, whole.by.chunks, AHEAD_BACK);
    whole.x = first.y;
    whole.from = max ? first.at : NULL;
    whole.squared = false;
    return e ? e
             : launch_pdl(f->context,
                          in_vectors<float>(whole.by.n) ? shuffle_kernel<F, float, true>
                                                        : shuffle_kernel<F, float, false>,
                          blocks_of(whole.by), threads_of(whole.by), 0, whole);
}

template <typename T>
static size_t two_level_work(const struct call *f, enum pass p)
{
    const partition by = rows_in_chunks<T>(f, AHEAD);
    const size_t part =
        sizeof(float) + (f->choice[REDUCE_KIND] == REDUCE_MAX ? sizeof(int64_t) : 0);
    return p == FORWARD && by.chunks > 1 ? by.rows * by.chunks * part : 0;
}

/* A launch of a reduction, by sum or by max. */
typedef int folding(const struct call *f);

template <folding *SUM, folding *MAX>
static int forward(const struct call *f)
{
    return f->choice[REDUCE_KIND] == REDUCE_MAX ? MAX(f) : SUM(f);
}

static job_back job_back_of(const struct call *f, const partition &by)
{
    const struct reduce *a = ARGS(f, reduce), *g = GRADS(f, reduce);
    const bool norm = f->choice[REDUCE_KIND] == REDUCE_NORM2;
    return {
        by,           g->y, norm ? a->x : NULL, norm ? a->y : NULL, g->x, (const int64_t *)a->at,
        divisor_of(f)};
}

template <typename T>
static int each_back(const struct call *f)
{
    const job_back j = job_back_of(f, rows_whole<T>(f));
    each_kernel<T><<<ceil_div(j.by.rows * j.by.n, BLOCK), BLOCK, 0, gpu_stream(f)>>>(j);
    return cudaGetLastError();
}

template <typename T, bool NORM>
static int spread(struct context *on, const job_back &j)
{
    if (in_vectors<T>(j.by.n))
        spread_kernel<T, true, NORM><<<blocks_of(j.by), threads_of(j.by), 0, on->stream>>>(j);
    else
        spread_kernel<T, false, NORM><<<blocks_of(j.by), threads_of(j.by), 0, on->stream>>>(j);
    return cudaGetLastError();
}

template <typename T>
static int spread_back(const struct call *f)
{
    const job_back j = job_back_of(f, rows_in_chunks<T>(f, AHEAD_BACK));
    return j.x ? spread<T, true>(f->context, j) : spread<T, false>(f->context, j);
}

static const char *too_many(int64_t blocks)
{
    return blocks > MAX_BLOCKS ? "more blocks of threads than a grid has (2147483647)" : NULL;
}

OF_CALL(const char *, tree_declines, too_many(ceil_div(rows_of(f) * elements_of(f), BLOCK)))

template <typename T>
static const char *declines(const struct call *f)
{
    return too_many(blocks_of(rows_in_chunks<T>(f, AHEAD_BACK)));
}

GPU_KERNEL(staged, .idea = "many short rows at once in shared memory",
           .pass = {staged_reduce<T>, staged_reduce_back<T>}, .declines = staged_reduce_declines<T>,
           .yields = staged_reduce_yields<T>);
GPU_KERNEL(tree, .idea = "a block per row, a tree in shared memory; backward a thread per element",
           .pass = {forward<tree_fold<total, T>, tree_fold<argmax, T>>, each_back<T>},
           .declines = tree_declines);
GPU_KERNEL(shuffle, .idea = "a warp per short row, a block per long one, reduced by shuffles",
           .pass = {forward<shuffle_fold<total, T>, shuffle_fold<argmax, T>>, spread_back<T>},
           .declines = declines<T>);
GPU_KERNEL(two_level, .idea = "long rows in chunks, whose results a second launch reduces",
           .pass = {forward<two_level_fold<total, T>, two_level_fold<argmax, T>>, spread_back<T>},
           .work = two_level_work<T>, .declines = declines<T>);

GPU_KERNELS(reduce, IN_TYPES(staged) IN_TYPES(two_level) IN_TYPES(shuffle) IN_TYPES(tree));
