/* norm.cuh - code shared by the kernels of rmsnorm, layernorm and qk_norm: their arguments, and the
 * mapping of rows to teams of threads.
 *
 * y = w xhat + b, xhat = (x - mean(x)) rstd.  Everything is a template on CENTRED.  If it is true
 * (layernorm), a row's mean is subtracted and a bias b is added; otherwise (rmsnorm) mean = b = 0.
 * qk_norm is rmsnorm of two matrices in one launch. */
#ifndef NORM_CUH
#define NORM_CUH

#include "common/ops/norm.h"
#include "gpu/device/cluster.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/device/segment.cuh"

/* ---- a call ---- */

/* A matrix x [R,N] whose rows are normalised, and the other tensors of the operation.  NULL: this
 * pass or this operation does not have the tensor. */
struct norm_rows {
    int64_t R;
    const void *x, *w, *b;
    void *y;
    float *mean, *rstd;
    const void *dy;
    void *dx;
    float *dw, *db;
};

enum { NORM_MATRICES = 2 };

struct norm_call {
    int n; /* matrices */
    norm_rows matrix[NORM_MATRICES];
    int N;
    float inv_N; /* 1 / N */
    float eps;
    float *work;
};

static inline norm_call make_norm_call(const struct call *f, int n, int64_t N, double eps)
{
    norm_call p = {};
    p.n = n;
    p.N = (int)N;
    p.inv_N = 1.0f / p.N;
    p.eps = (float)eps;
    p.work = (float *)f->work;
    return p;
}

/* The call of rmsnorm, or of layernorm without b and the mean; A is the type of its arguments. */
template <typename A>
static norm_call one_matrix(const struct call *f, const A *a, const A *d)
{
    norm_call p = make_norm_call(f, 1, DIM(f, 'N'), f->real[NORM_EPS]);
    norm_rows &m = p.matrix[0];
    m.R = DIM(f, 'R');
    m.x = a->x, m.w = a->w, m.y = a->y, m.rstd = (float *)a->rstd;
    m.dy = d->y, m.dx = d->x, m.dw = (float *)d->w;
    return p;
}

static inline int64_t all_rows(const norm_call &p)
{
    return p.matrix[0].R + (p.n > 1 ? p.matrix[1].R : 0);
}

/* ---- the kernels, which are in rmsnorm.cu and rmsnorm_row.cu, _fused.cu and _staged.cu ---- */

template <typename T, bool CENTRED>
int plain_norm(struct context *on, const norm_call &p);
template <typename T, bool CENTRED>
int plain_norm_back(struct context *on, const norm_call &p);
const char *plain_norm_declines(struct context *on, const norm_call &p, size_t size);

/* Computes dw, and db if CENTRED, from x and dy, which it reads again; and the size of its
 * workspace. */
template <typename T, bool CENTRED>
int norm_columns(struct context *on, const norm_call &p);
size_t norm_columns_work(struct context *on, const norm_call &p, size_t size, bool centred);

template <typename T, bool CENTRED>
int row_norm(struct context *on, const norm_call &p);
template <typename T, bool CENTRED>
int row_norm_back(struct context *on, const norm_call &p);
const char *row_norm_declines(struct context *on, const norm_call &p, size_t size);

template <typename T, bool CENTRED>
int fused_norm(struct context *on, const norm_call &p);
template <typename T, bool CENTRED>
int fused_norm_back(struct context *on, const norm_call &p);
const char *fused_norm_declines(struct context *on, const norm_call &p, size_t size);
size_t fused_norm_work(struct context *on, const norm_call &p, size_t size, bool centred);

template <typename T, bool CENTRED>
int staged_norm(struct context *on, const norm_call &p);
template <typename T, bool CENTRED>
int staged_norm_back(struct context *on, const norm_call &p);
const char *staged_norm_declines(struct context *on, const norm_call &p, size_t size);
size_t staged_norm_work(struct context *on, const norm_call &p, size_t size, bool centred);

/* DO(T, CENTRED) for all instances of these. */
#define NORM_INSTANCES(DO) GPU_TYPES(DO, false) GPU_TYPES(DO, true)

/* ---- teams ---- */

/* A team of threads processes a row.  If the row lies in up to 32 words of 16 bytes, the team has one
 * lane per word, rounded up to a power of two, and processes several rows at once; otherwise the team is a
 * warp, a block or a cluster of blocks.  Each thread holds up to NORM_HELD vectors in forward, and
 * up to NORM_ELEMENTS elements in backward, which keeps two floats for each.  Teams depend on N
 * alone, so the bits of a row do too. */
enum { NORM_HELD = 4, NORM_ELEMENTS = 16, NORM_TEAM_BLOCKS = 8 };

template <typename T>
static constexpr __host__ __device__ int held_back(void)
{
    static_assert(NORM_ELEMENTS >= 2 * WIDTH<T>,
                  "the rows of a narrow team have a single vector per lane");
    return NORM_ELEMENTS / WIDTH<T>;
}

/* Threads of a block of several small teams, and the maximum of any block in forward and in
 * backward.  Rows that are not aligned take more registers. */
enum {
    NORM_TEAMS_THREADS = 128,
    NORM_THREADS = 512,
    NORM_THREADS_UNALIGNED = 256,
    NORM_THREADS_BACK = 512
};

static constexpr __host__ __device__ int max_threads_forward(bool aligned)
{
    return aligned ? NORM_THREADS : NORM_THREADS_UNALIGNED;
}

static inline int limit_threads(struct context *on, int limit)
{
    return min(limit, on->limits.norm_threads);
}

struct norm_layout {
    int cluster; /* blocks of a team; 0: the row is too long for any team */
    int threads; /* of a block */
    int lanes;   /* of a team in a block: a power of two up to a warp, or whole warps */
    int teams;   /* per block; 1 if a team is a cluster */
    int span;    /* vectors of a row per block */
    int rows;    /* that a team processes at once */
};

#define NORM_TOO_LONG "a row longer than a cluster's threads hold"

/* The layout if a thread holds up to `held` vectors and a block has at most `limit` threads. */
static inline norm_layout layout_of(struct context *on, int64_t N, size_t size, int held, int limit)
{
    const int64_t V = 16 / size, vectors = ceil_div(N, V), block = (int64_t)held * limit;
    const int64_t words = N % V ? ceil_div(N + V - 1, V) : vectors; /* that a row may lie in */
    const int max_cluster = on->properties.clusterLaunch ? NORM_TEAM_BLOCKS : 1;
    norm_layout l = {
        1, limit_threads(on, NORM_TEAMS_THREADS), 1, 1, (int)vectors, words <= 32 ? held : 1};

    while (l.cluster <= max_cluster && ceil_div(vectors, l.cluster) > block)
        l.cluster *= 2;
    if (l.cluster > max_cluster) {
        l.cluster = 0;
    } else if (vectors <= 32 * held) {
        while (l.lanes < min(words, (int64_t)32))
            l.lanes *= 2;
        l.teams = l.threads / l.lanes;
    } else {
        l.span = (int)ceil_div(vectors, l.cluster);
        l.threads = l.lanes = (int)ceil_div(ceil_div(l.span, held), 32) * 32;
    }
    return l;
}

static inline norm_layout layout_forward(struct context *on, int64_t N, size_t size)
{
    return layout_of(on, N, size, NORM_HELD,
                     limit_threads(on, max_threads_forward(N * size % 16 == 0)));
}

static inline norm_layout layout_backward(struct context *on, int64_t N, size_t size)
{
    return layout_of(on, N, size, (int)(NORM_ELEMENTS * size / 16),
                     limit_threads(on, NORM_THREADS_BACK));
}

/* The number of clusters for each matrix; most clusters are a single block. */
struct norm_grid {
    int64_t clusters[NORM_MATRICES];
};

/* (If the index were not constant, the compiler would put the grid into local memory.) */
static __device__ __forceinline__ int64_t clusters_of(const norm_grid &grid, int matrix)
{
    return matrix ? grid.clusters[1] : grid.clusters[0];
}

static inline int64_t all_clusters(const norm_grid &grid)
{
    return grid.clusters[0] + grid.clusters[1];
}

/* A cluster for each `rows` rows. */
static inline norm_grid row_grid(const norm_call &p, int64_t rows)
{
    norm_grid grid = {};
    for (int i = 0; i < p.n; i++)
        grid.clusters[i] = ceil_div(p.matrix[i].R, rows);
    return grid;
}

/* Divides `limit` clusters among the matrices in proportion to their rows.  There are no clusters
 * without rows, and never more than `limit` clusters, because one more would start only when the
 * others have ended. */
static inline norm_grid shared_grid(const norm_call &p, const norm_layout &l, int64_t limit)
{
    norm_grid grid = {};
    int64_t left = limit;
    for (int i = 0; i < p.n; i++) {
        const int64_t others = p.n - 1 - i;
        int64_t share = left;
        if (others)
            share =
                min((int64_t)((double)limit * p.matrix[i].R / all_rows(p) + 0.5), limit - others);
        share = max(share, (int64_t)1);
        left -= share;
        grid.clusters[i] = min(share, ceil_div(p.matrix[i].R, (int64_t)l.teams * l.rows));
    }
    return grid;
}

/* A thread's coordinates. */
struct member {
    int matrix;
    int lanes, lane;   /* of the team, within the block */
    int base, stride;  /* the index of its first vector, and from one to the next */
    int team_in_block; /* the team's index in the block */
    int cluster, rank; /* blocks of the team, and this block's rank */
    int64_t cluster_index,
        num_clusters;    /* the cluster's index in its matrix, and the matrix's clusters */
    int64_t team, teams; /* the team's index in its matrix, and the matrix's teams */
    int first, end;      /* columns of the block */
};

/* Sets a thread's lane.  Its vectors have a stride of the team's lanes; if rows are not ALIGNED, they
 * are those of its lane in its warp's segment (gpu/device/segment.cuh). */
template <bool ALIGNED, int VECTORS>
static __device__ __forceinline__ void set_lane(member *m, int lane)
{
    m->lane = lane;
    m->base = first_vector<ALIGNED, VECTORS>(lane);
    m->stride = vector_stride<ALIGNED>(m->lanes);
}

/* (It has few divisions, because they are slow and the first load depends on them.) */
template <bool ALIGNED, int VECTORS>
static __device__ __forceinline__ member member_of(int N, int vector, const norm_layout &l,
                                                   const norm_grid &grid)
{
    member m;
    const unsigned cluster = l.cluster > 1 ? blockIdx.x / (unsigned)l.cluster : blockIdx.x;
    m.matrix = cluster >= grid.clusters[0];
    m.lanes = l.lanes;
    m.team_in_block = l.teams > 1 ? (int)(threadIdx.x / (unsigned)l.lanes) : 0;
    set_lane<ALIGNED, VECTORS>(&m, (int)threadIdx.x - m.team_in_block * l.lanes);
    m.cluster = l.cluster;
    m.rank = (int)(blockIdx.x - cluster * l.cluster);
    m.cluster_index = cluster - (m.matrix ? grid.clusters[0] : 0);
    m.num_clusters = clusters_of(grid, m.matrix);
    m.team = m.cluster_index * l.teams + m.team_in_block;
    m.teams = m.num_clusters * l.teams;
    m.first = m.rank * l.span * vector;
    m.end = min(m.first + l.span * vector, N);
    return m;
}

/* The first column of the thread's u-th vector. */
static __device__ __forceinline__ int column_of(const member &m, int u, int vector)
{
    return m.first + (u * m.stride + m.base) * vector;
}

/* ---- a thread's part of a row ---- */

/* The thread's segment of a row that is not aligned: its first column, and the thread's lane. */
struct segment {
    int first, lane;
};

static __device__ __forceinline__ segment segment_of(const member &me, int vector)
{
    const int lane = me.lane % 32;
    return {me.first + (me.base - lane) * vector, lane};
}

/* Loads the thread's vectors of a row; columns beyond the end of the block's are zero, and all if the
 * row is not valid.  ALIGNED: rows are a multiple of 16 bytes long. */
template <bool ALIGNED, typename T, int VECTORS>
static __device__ __forceinline__ void load_part(vec<T> (&v)[VECTORS], const T *row,
                                                 const member &me, bool valid)
{
    if constexpr (ALIGNED) {
        #pragma unroll 8
        for (int u = 0; u < VECTORS; u++) {
            const int n = column_of(me, u, WIDTH<T>);
            v[u] = {};
            if (valid && n < me.end)
                v[u] = load_vec<WIDTH<T>>(row + n);
        }
    } else {
        const segment own = segment_of(me, WIDTH<T>);
        load_segment(v, row + own.first, valid ? me.end - own.first : 0, own.lane, me.stride, 0);
    }
}

/* Stores them; y(u) is the u-th.  (A streaming store is one of 16 bytes; the compiler split an assignment
 * into four stores.) */
template <bool ALIGNED, int VECTORS, typename T, typename F>
static __device__ __forceinline__ void store_part(T *row, const member &me, bool valid, const F &y)
{
    if constexpr (ALIGNED) {
        #pragma unroll 8
        for (int u = 0; u < VECTORS; u++) {
            const int n = column_of(me, u, WIDTH<T>);
            const vec<T> v = y(u);
            if (valid && n < me.end)
                store_stream(row + n, v);
        }
    } else {
        const segment own = segment_of(me, WIDTH<T>);
        vec<T> v[VECTORS];
        #pragma unroll 8
        for (int u = 0; u < VECTORS; u++)
            v[u] = y(u);
        store_segment(row + own.first, v, valid ? me.end - own.first : 0, own.lane, me.stride);
    }
}

/* Shared memory for the sums of a team's warps and blocks.  It is double-buffered: even steps
 * use one half and odd steps the other, so the sums of a step may be read while those of the
 * next step are written. */
struct team_exchange {
    float2 warp[2][32];
    float2 block[2][NORM_TEAM_BLOCKS];
};

/* Loads the thread's u-th vector of w or b, which is the same for all rows and begins at a multiple of
 * 16 bytes. */
template <typename T, bool ALIGNED>
static __device__ __forceinline__ vec<T> shared_vector(const void *from, const member &m, int u)
{
    const int n = column_of(m, u, WIDTH<T>), left = m.end - n;
    vec<T> v = {};
    if (ALIGNED ? left > 0 : left >= WIDTH<T>)
        v = load_vec<WIDTH<T>>((const T *)from + n);
    else if (!ALIGNED && left > 0)
        v = load_beginning((const T *)from + n, left);
    return v;
}

/* Waits until all blocks of the cluster have started: only then may their shared memory be
 * written. */
static __device__ __forceinline__ void wait_for_cluster(const member &m)
{
    if (m.cluster > 1)
        cluster_sync();
}

/* A barrier for the team's warps in this block. */
static __device__ __forceinline__ void team_sync(const member &m)
{
    named_barrier_sync(m.team_in_block + 1, m.lanes);
}

static __device__ __forceinline__ float2 sum_of(const float2 *x, int n)
{
    float2 sum = make_float2(0, 0);
    #pragma unroll 8
    for (int i = 0; i < n; i++) {
        sum.x += x[i].x;
        sum.y += x[i].y;
    }
    return sum;
}

/* Sums over the team's lanes in the thread's warp (shfl.xor); all lanes get the same bits.  NARROW:
 * the team may be less than a warp. */
template <bool NARROW, int COUNT>
static __device__ __forceinline__ void add_lanes(float (&s)[COUNT], const member &m)
{
    #pragma unroll 5
    for (int d = 16; d; d /= 2) {
        if (NARROW && d >= m.lanes)
            continue;
        #pragma unroll 8
        for (int i = 0; i < COUNT; i++)
            s[i] += __shfl_xor_sync(~0u, s[i], d);
    }
}

/* Sums over the whole team.  If the team is more than a warp, COUNT is one or two. */
template <bool NARROW, int COUNT>
static __device__ __forceinline__ void add_up(float (&s)[COUNT], const member &m,
                                              team_exchange *exchange, int step)
{
    add_lanes<NARROW>(s, m);
    if (NARROW || m.lanes <= 32)
        return;
    const int half = step & 1, thread = (int)threadIdx.x;
    if (thread % 32 == 0)
        exchange->warp[half][thread / 32] = make_float2(s[0], s[COUNT - 1]);
    team_sync(m);
    float2 sum = sum_of(exchange->warp[half] + m.team_in_block * m.lanes / 32, m.lanes / 32);
    if (m.cluster > 1) {
        if (thread < m.cluster)
            *map_shared_rank(&exchange->block[half][m.rank], thread) = sum;
        cluster_sync();
        sum = sum_of(exchange->block[half], m.cluster);
    }
    s[0] = sum.x;
    s[COUNT - 1] = COUNT > 1 ? sum.y : sum.x;
}

/* ---- mean and sum of squares of a row, merged from its parts ---- */

/* The count, sum and mean of some elements of a row, and the sum of the squares of x - mean. */
struct alignas(16) moments {
    float count, sum, mean, squares;
};

/* Merges `parts` parts into one of `count` elements; share = 1 / count.  The squares of a part
 * are about its own mean, so no digits are lost if means are far from 0.  Each part adds its
 * squares, and its count times (its mean - the common mean)^2 (Chan, Golub and LeVeque). */
static __device__ __forceinline__ moments merge_moments(const moments *part, int parts, int count,
                                                        float share)
{
    moments all = {(float)count, 0, 0, 0};
    #pragma unroll 4
    for (int i = 0; i < parts; i++)
        all.sum += part[i].sum;
    all.mean = __fmul_rn(all.sum, share);
    #pragma unroll 4
    for (int i = 0; i < parts; i++) {
        const float delta = part[i].mean - all.mean;
        all.squares += fmaf(__fmul_rn(part[i].count, delta), delta, part[i].squares);
    }
    return all;
}

/* The number of elements of the row that the thread's warp holds; the whole row if the team is
 * within the warp. */
template <int V, int VECTORS>
static __device__ __forceinline__ int warp_count(const member &me)
{
    int count = 0;
    #pragma unroll 8
    for (int u = 0; u < VECTORS; u++)
        count += max(0, min(me.end - column_of(me, u, V) + me.lane % 32 * V, 32 * V));
    return count;
}

/* ---- statistics of a row ---- */

/* The statistics of one row. */
struct row_stats {
    float mean, rstd;
};

template <bool CENTRED>
static __device__ __forceinline__ void put_stats(const norm_rows &m, int64_t row,
                                                 const row_stats &stats)
{
    m.rstd[row] = stats.rstd;
    if (CENTRED)
        m.mean[row] = stats.mean;
}

/* Loads the statistics of a row; zeros beyond the last row. */
template <bool CENTRED>
static __device__ __forceinline__ row_stats get_stats(const norm_rows &m, int64_t row)
{
    row_stats stats = {0, 0};
    if (row < m.R) {
        stats.rstd = m.rstd[row];
        if (CENTRED)
            stats.mean = m.mean[row];
    }
    return stats;
}

/* The code states which products and sums are fused (fmaf) and which are not (__fmul_rn).  The
 * compiler would choose differently from row to row of an unrolled loop, and the bits of a row
 * would depend on its position. */

template <bool CENTRED>
static __device__ __forceinline__ float deviation(float x, const row_stats &row)
{
    return CENTRED ? x - row.mean : x;
}

/* ---- the backward pass of a team's rows ---- */

/* A thread's vectors of the rows, in registers. */
template <typename T, int ROWS, int VECTORS>
struct in_registers {
    vec<T> v[ROWS][VECTORS];

    __device__ __forceinline__ vec<T> at(int i) const { return v[i / VECTORS][i % VECTORS]; }
};

/* A thread's vectors of the rows in shared memory, with a stride of STRIDE vectors.  The same
 * thread has copied them. */
template <typename T, int STRIDE>
struct in_smem {
    const vec<T> *v;

    __device__ __forceinline__ vec<T> at(int i) const { return v[i * STRIDE]; }
};

/* Shared memory for the sums; the index of the step; the first row of the step. */
struct team_step {
    team_exchange *exchange;
    int step;
    int64_t first;
};

/* A thread's vectors of x, dy and w, and the statistics of the rows. */
template <typename T, typename X>
struct team_rows {
    X x, dy;
    const vec<T> *w;
    const row_stats *stats;
};

/* Computes dx = rstd (g - mean_g - xhat dot) for the rows from `first` on, where g = w dy, dot =
 * mean(g xhat) and mean_g = mean(g), and adds the rows to the column sums. */
template <typename T, bool CENTRED, bool ALIGNED, int VECTORS, typename X, typename C>
static __device__ __forceinline__ void backward_rows(const norm_call &p, const member &me,
                                                     const team_step &at,
                                                     const team_rows<T, X> &rows, C *columns)
{
    enum { V = WIDTH<T>, COUNT = held_back<T>(), ROWS = COUNT / VECTORS };
    enum { SUMS = CENTRED ? 2 : 1 };
    const norm_rows &m = p.matrix[me.matrix];
    float xhat[COUNT][V], g[COUNT][V], s[ROWS * SUMS] = {};

    #pragma unroll 8
    for (int i = 0; i < COUNT; i++) {
        const int r = i / VECTORS, u = i % VECTORS;
        const vec<T> xs = rows.x.at(i), dys = rows.dy.at(i);
        #pragma unroll 8
        for (int j = 0; j < V; j++) {
            xhat[i][j] = rows.stats[r].rstd * deviation<CENTRED>(xs[j], rows.stats[r]);
            g[i][j] = __fmul_rn(rows.w[u][j], dys[j]);
            s[r * SUMS] = fmaf(g[i][j], xhat[i][j], s[r * SUMS]);
            if (CENTRED)
                s[r * SUMS + 1] += g[i][j];
            columns->add(u, j, dys[j], xhat[i][j]);
        }
    }
    add_up<VECTORS == 1>(s, me, at.exchange, at.step);
    #pragma unroll 8
    for (int r = 0; r < ROWS; r++) {
        const float dot = __fmul_rn(s[r * SUMS], p.inv_N);
        const float mean_g = __fmul_rn(s[(r + 1) * SUMS - 1], p.inv_N);
        const int64_t row = at.first + r;
        store_part<ALIGNED, VECTORS>((T *)m.dx + row * p.N, me, row < m.R, [&](int u) {
            return make_vec<T>([&](int j) {
                const int i = r * VECTORS + u;
                return rows.stats[r].rstd *
                       fmaf(-xhat[i][j], dot, CENTRED ? g[i][j] - mean_g : g[i][j]);
            });
        });
    }
}

/* ---- sums of columns ---- */

/* A thread's sums over rows, for the columns of its vectors. */
template <typename T, bool CENTRED, int VECTORS>
struct column_sums {
    enum { V = WIDTH<T> };
    float dw[VECTORS][V], db[VECTORS][V]; /* db only if CENTRED */

    __device__ __forceinline__ void add(int u, int j, float dy, float xhat)
    {
        dw[u][j] = fmaf(dy, xhat, dw[u][j]);
        if (CENTRED)
            db[u][j] += dy;
    }
};

/* Adds the sums x of the block's teams in the order of the teams, and stores the results to the
 * block's part of `parts`. */
template <int VECTORS, int V>
static __device__ __forceinline__ void store_sums(float *parts, const float (&x)[VECTORS][V], int N,
                                                  const member &me, float *smem)
{
    const int width = me.lanes * VECTORS * V, teams = (int)blockDim.x / me.lanes;

    __syncthreads();
    #pragma unroll 8
    for (int u = 0; u < VECTORS; u++) {
        #pragma unroll 8
        for (int j = 0; j < V; j++)
            smem[me.team_in_block * width + column_of(me, u, V) - me.first + j] = x[u][j];
    }
    __syncthreads();
    for (int n = threadIdx.x; n < me.end - me.first; n += blockDim.x) {
        float sum = 0;
        #pragma unroll 4
        for (int i = 0; i < teams; i++)
            sum += smem[i * width + n];
        parts[me.cluster_index * N + me.first + n] = sum;
    }
}

/* The address of a matrix's parts of dw in the workspace; the parts of db follow. */
static __device__ __forceinline__ float *parts_of(const norm_call &p, const norm_grid &grid,
                                                  int matrix, int sums)
{
    return p.work + (matrix ? grid.clusters[0] * p.N * sums : 0);
}

static inline size_t parts_bytes(const norm_call &p, const norm_grid &grid, bool centred)
{
    return all_clusters(grid) * p.N * (centred ? 2 : 1) * sizeof(float);
}

/* Stores a block's column sums to its parts.  `smem` is shared memory with one float per thread and
 * column of the thread. */
template <typename T, bool CENTRED, int VECTORS>
static __device__ __forceinline__ void store_parts(const norm_call &p, const norm_grid &grid,
                                                   const column_sums<T, CENTRED, VECTORS> &sums,
                                                   const member &me, float *smem)
{
    float *parts = parts_of(p, grid, me.matrix, CENTRED ? 2 : 1);
    store_sums(parts, sums.dw, p.N, me, smem);
    if (CENTRED)
        store_sums(parts + me.num_clusters * p.N, sums.db, p.N, me, smem);
}

/* Adds the parts of all blocks, in the order of the blocks, to dw and db; launched with PDL. */
template <bool CENTRED>
int norm_add_parts(struct context *on, const norm_call &p, const norm_grid &grid);

/* ---- launches ---- */

/* Selects the instance of a kernel for rows of N elements, of which a thread holds up to `held`
 * vectors.  Used inside a template on T and CENTRED. */
#define NORM_KERNEL(kernel, N, layout, held)                                                       \
    ((N) % WIDTH<T>                                                                                \
         ? ((layout).rows > 1 ? kernel<T, CENTRED, false, 1> : kernel<T, CENTRED, false, held>)    \
         : ((layout).rows > 1 ? kernel<T, CENTRED, true, 1> : kernel<T, CENTRED, true, held>))

static inline void prepare_teams(struct context *on, cluster_launch *to, int64_t clusters,
                                 const norm_layout &l, size_t shared)
{
    cluster_launch_init(on, to, clusters, l.cluster, l.threads, shared);
}

/* Launches a kernel with the teams of `grid` and `shared` bytes of dynamic shared memory. */
static inline cudaError_t launch_teams(struct context *on,
                                       void (*kernel)(norm_call, norm_layout, norm_grid),
                                       const norm_layout &l, size_t shared, const norm_call &p,
                                       const norm_grid &grid)
{
    cluster_launch launch;
    prepare_teams(on, &launch, all_clusters(grid), l, shared);
    return cudaLaunchKernelEx(&launch.config, kernel, p, l, grid);
}

#endif
