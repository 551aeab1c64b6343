/* norm.cuh - what the kernels of rmsnorm, layernorm and qk_norm share: a call of any of them, and
 * how threads divide rows among them.
 *
 * Everything is a template on CENTRED: is a row's mean taken off first, and a bias added?  That is
 * layernorm; else it is rmsnorm, and qk_norm is rmsnorm of two matrices in one launch. */
#ifndef NORM_CUH
#define NORM_CUH

#include "gpu/device/cluster.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/gpu.cuh"

/* ---- a call ---- */

/* A matrix [R,N] whose rows are brought to one size, and all that belongs to it; NULL: not in
 * this pass, or not in this operation. */
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
    norm_rows of[NORM_MATRICES];
    int N;
    float share; /* 1 / N */
    float eps;
    float *work;
};

static inline int64_t all_rows(const norm_call &p)
{
    return p.of[0].R + (p.n > 1 ? p.of[1].R : 0);
}

/* ---- the ladder, whose rungs are in rmsnorm.cu, rmsnorm_row.cu, rmsnorm_fused.cu ---- */

template <typename T, bool CENTRED>
int plain_norm(const norm_call &p);
template <typename T, bool CENTRED>
int plain_norm_back(const norm_call &p);
const char *plain_norm_declines(const norm_call &p, size_t size);

/* dw, and db if CENTRED, alone, from x and dy read anew; and the workspace that takes. */
template <typename T, bool CENTRED>
int norm_columns(const norm_call &p);
size_t norm_columns_work(const norm_call &p, size_t size, bool centred);

template <typename T, bool CENTRED>
int row_norm(const norm_call &p);
template <typename T, bool CENTRED>
int row_norm_back(const norm_call &p);
const char *row_norm_declines(const norm_call &p, size_t size);

template <typename T, bool CENTRED>
int fused_norm(const norm_call &p);
template <typename T, bool CENTRED>
int fused_norm_back(const norm_call &p);
const char *fused_norm_declines(const norm_call &p, size_t size);
size_t fused_norm_work(const norm_call &p, size_t size, bool centred);

/* The ladder of an operation whose file says how a frame becomes a norm_call, call_of(), and whether
 * it is CENTRED. */
#define NORM_PASS(rung, pass, function)                                                            \
    template <typename T>                                                                          \
    static int rung##_##pass(const struct frame *f)                                                \
    {                                                                                              \
        return function<T, CENTRED>(call_of(f));                                                   \
    }
#define NORM_BACKWARD(rung, columns_work)                                                          \
    NORM_PASS(rung, backward, rung##_norm_back)                                                    \
    template <typename T>                                                                          \
    static size_t rung##_work(const struct frame *f, enum pass pass)                               \
    {                                                                                              \
        return pass == BACKWARD ? columns_work(call_of(f), sizeof(T), CENTRED) : 0;                \
    }                                                                                              \
    template <typename T>                                                                          \
    static const char *rung##_declines(const struct frame *f)                                      \
    {                                                                                              \
        return rung##_norm_declines(call_of(f), sizeof(T));                                        \
    }
#define NORM_IMPL(bits, T, rung, forward, idea)                                                    \
    static const struct impl rung##bits = {                                                        \
        #rung, idea, {forward<T>, rung##_backward<T>}, rung##_work<T>, rung##_declines<T>, NULL,   \
        0,     0}
#define NORM_LADDER(op, bits, T)                                                                   \
    NORM_IMPL(bits, T, plain, plain_forward,                                                       \
              "a block a row, read anew for each sum and for the result");                         \
    NORM_IMPL(bits, T, row, row_forward, "a team of threads keeps a row in registers");            \
    NORM_IMPL(bits, T, fused, fused_forward,                                                       \
              "teams stay, the next rows are on their way; backward: dx and dw in one pass");      \
    GPU_KERNEL_LIST(op, bits, &fused##bits, &row##bits, &plain##bits)
#define NORM_OPERATION(op)                                                                         \
    NORM_PASS(plain, forward, plain_norm)                                                          \
    NORM_PASS(row, forward, row_norm)                                                              \
    NORM_PASS(fused, forward, fused_norm)                                                          \
    NORM_BACKWARD(plain, norm_columns_work)                                                        \
    NORM_BACKWARD(row, norm_columns_work)                                                          \
    NORM_BACKWARD(fused, fused_norm_work)                                                          \
    NORM_LADDER(op, 32, float);                                                                    \
    NORM_LADDER(op, 16, __nv_bfloat16)

/* ---- sixteen bytes of a row ---- */

/* How many numbers they are. */
template <typename T>
static constexpr __host__ __device__ int per_vector(void)
{
    return 16 / sizeof(T);
}

/* They, as they are computed with. */
template <typename T>
struct numbers {
    float x[16 / sizeof(T)];
};

/* `half` is 16.  Where the compiler does not know that, it widens v anew, and registers hold only v
 * meanwhile, not what it was widened to before. */
template <typename T>
static __device__ __forceinline__ numbers<T> widened(const uint4 &v, int half = 16)
{
    const unsigned word[4] = {v.x, v.y, v.z, v.w};
    numbers<T> n;
    #pragma unroll 4
    for (int i = 0; i < 4; i++) {
        if (sizeof(T) == 4) {
            n.x[i] = __uint_as_float(word[i]);
        } else {
            n.x[2 * i % per_vector<T>()] = __uint_as_float(word[i] << half);
            n.x[(2 * i + 1) % per_vector<T>()] = __uint_as_float(word[i] & ~0u << half);
        }
    }
    return n;
}

/* Of a row, where `left` columns are left from here on (none: 0 or less), and zeros.  ALIGNED:
 * rows are of a multiple of 16 bytes. */
template <typename T, bool ALIGNED>
static __device__ __forceinline__ uint4 load_vector(const T *from, int left)
{
    uint4 v = make_uint4(0, 0, 0, 0);
    if (ALIGNED) {
        if (left > 0)
            v = *(const uint4 *)from;
    } else {
        alignas(16) T x[per_vector<T>()];
        #pragma unroll 8
        for (int j = 0; j < per_vector<T>(); j++) {
            store(x + j, 0.0f);
            if (j < left)
                x[j] = from[j];
        }
        memcpy(&v, x, sizeof v);
    }
    return v;
}

/* (Said in one word: as an assignment, the compiler has made four of it.) */
template <typename T, bool ALIGNED>
static __device__ __forceinline__ void store_vector(T *to, int left, const numbers<T> &n)
{
    alignas(16) T x[per_vector<T>()];
    #pragma unroll 8
    for (int j = 0; j < per_vector<T>(); j++)
        store(x + j, n.x[j]);
    if (ALIGNED) {
        uint4 v;
        memcpy(&v, x, sizeof v);
        if (left > 0)
            __stcs((uint4 *)to, v);
    } else {
        #pragma unroll 8
        for (int j = 0; j < per_vector<T>(); j++)
            if (j < left)
                to[j] = x[j];
    }
}

/* ---- teams ---- */

/* A row is a team's: of as many lanes of a warp as it has vectors, if these are few, which then
 * takes several rows at once; else of a warp, a block or a cluster of blocks.  Each thread has up to
 * HELD vectors in forward, and up to NUMBERS numbers in backward, which keeps two floats for each.
 * Teams depend on N alone, and so do a row's bits. */
enum { HELD = 4, NUMBERS = 16, CLUSTER_MOST = 8 };

template <typename T>
static constexpr __host__ __device__ int held_back(void)
{
    static_assert(NUMBERS >= 2 * per_vector<T>(),
                  "a single vector is what a narrow team's rows have");
    return NUMBERS / per_vector<T>();
}

/* Threads of a block that is of several small teams, and of any block in forward and in backward;
 * fewer where rows are not aligned, whose numbers one by one take more registers. */
enum { TEAMS_THREADS = 128, THREADS_MOST = 512, UNALIGNED_MOST = 256, BACK_MOST = 512 };

static constexpr __host__ __device__ int most_forward(bool aligned)
{
    return aligned ? THREADS_MOST : UNALIGNED_MOST;
}

static inline int threads_most(int most)
{
    return min(most, gpu_limits()->norm_threads);
}

struct norm_layout {
    int cluster; /* blocks of a team; 0: there is no team so large */
    int threads; /* of a block */
    int lanes;   /* of a team: a power of two up to a warp, or whole warps */
    int teams;   /* of a block; of a cluster, if that is one team, 1 */
    int span;    /* vectors of a row that one block has */
    int rows;    /* that a team takes at once */
};

#define TOO_LONG "a row longer than a cluster's threads hold"

/* Threads that have up to `held` vectors, `most` a block. */
static inline norm_layout layout_of(int64_t N, size_t size, int held, int most)
{
    const int64_t vectors = ceil_div(N, 16 / size), block = (int64_t)held * most;
    const int cluster_most = gpu_properties().clusterLaunch ? CLUSTER_MOST : 1;
    norm_layout l = {1, threads_most(TEAMS_THREADS), 1, 1, (int)vectors, vectors <= 32 ? held : 1};

    while (l.cluster <= cluster_most && ceil_div(vectors, l.cluster) > block)
        l.cluster *= 2;
    if (l.cluster > cluster_most) {
        l.cluster = 0;
    } else if (vectors <= 32 * held) {
        while (l.lanes < min(vectors, (int64_t)32))
            l.lanes *= 2;
        l.teams = l.threads / l.lanes;
    } else {
        l.span = (int)ceil_div(vectors, l.cluster);
        l.threads = l.lanes = (int)ceil_div(ceil_div(l.span, held), 32) * 32;
    }
    return l;
}

static inline norm_layout layout_forward(int64_t N, size_t size)
{
    return layout_of(N, size, HELD, threads_most(most_forward(N * size % 16 == 0)));
}

static inline norm_layout layout_backward(int64_t N, size_t size)
{
    return layout_of(N, size, (int)(NUMBERS * size / 16), threads_most(BACK_MOST));
}

/* Clusters (of a single block, mostly) for each matrix. */
struct norm_grid {
    int64_t clusters[NORM_MATRICES];
};

/* (An index that only runs would put the grid into memory.) */
static __device__ __forceinline__ int64_t clusters_of(const norm_grid &grid, int matrix)
{
    return matrix ? grid.clusters[1] : grid.clusters[0];
}

static inline int64_t all_clusters(const norm_grid &grid)
{
    return grid.clusters[0] + grid.clusters[1];
}

/* `most` clusters, shared among the matrices as their rows are, but no more than have rows: one
 * beyond `most` would begin when the others are done. */
static inline norm_grid shared_grid(const norm_call &p, const norm_layout &l, int64_t most)
{
    norm_grid grid = {};
    int64_t left = most;
    for (int i = 0; i < p.n; i++) {
        const int64_t others = p.n - 1 - i;
        int64_t share = left;
        if (others)
            share = min((int64_t)((double)most * p.of[i].R / all_rows(p) + 0.5), most - others);
        share = max(share, (int64_t)1);
        left -= share;
        grid.clusters[i] = min(share, ceil_div(p.of[i].R, (int64_t)l.teams * l.rows));
    }
    return grid;
}

/* A thread's place. */
struct member {
    int matrix;
    int lanes, lane;     /* of the team, within the block */
    int here;            /* the team's number among the block's */
    int cluster, rank;   /* blocks of the team, and which this is */
    int64_t unit, units; /* the cluster's number among those of the matrix */
    int64_t team, teams; /* the team's */
    int first, end;      /* columns of the block's */
};

/* (Divisions are slow, and nothing is fetched before they are done.) */
static __device__ __forceinline__ member member_of(int N, int vector, const norm_layout &l,
                                                   const norm_grid &grid)
{
    member m;
    const unsigned cluster = l.cluster > 1 ? blockIdx.x / (unsigned)l.cluster : blockIdx.x;
    m.matrix = cluster >= grid.clusters[0];
    m.lanes = l.lanes;
    m.here = l.teams > 1 ? (int)(threadIdx.x / (unsigned)l.lanes) : 0;
    m.lane = (int)threadIdx.x - m.here * l.lanes;
    m.cluster = l.cluster;
    m.rank = (int)(blockIdx.x - cluster * l.cluster);
    m.unit = cluster - (m.matrix ? grid.clusters[0] : 0);
    m.units = clusters_of(grid, m.matrix);
    m.team = m.unit * l.teams + m.here;
    m.teams = m.units * l.teams;
    m.first = m.rank * l.span * vector;
    m.end = min(m.first + l.span * vector, N);
    return m;
}

/* Where the thread's u-th vector begins. */
static __device__ __forceinline__ int column_of(const member &m, int u, int vector)
{
    return m.first + (u * m.lanes + m.lane) * vector;
}

/* Where a team's warps and blocks leave sums for each other, in turns, even ones in one half and
 * odd ones in the other: who reads those of a turn need not fear the next one's. */
struct meeting {
    float2 warp[2][32];
    float2 block[2][CLUSTER_MOST];
};

/* The thread's u-th vector of what all rows share. */
template <typename T, bool ALIGNED>
static __device__ __forceinline__ uint4 shared_vector(const void *from, const member &m, int u)
{
    const int n = column_of(m, u, per_vector<T>());
    return load_vector<T, ALIGNED>((const T *)from + n, m.end - n);
}

/* Before one of a cluster's blocks may write to another's shared memory, that must have begun. */
static __device__ __forceinline__ void cluster_meets(const member &m)
{
    if (m.cluster > 1)
        cluster_sync();
}

/* A team of several warps meets: those of its block. */
static __device__ __forceinline__ void team_sync(const member &m)
{
    named_barrier_sync(m.here + 1, m.lanes);
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

/* Sums over those of the team that are in the thread's warp, for each of them the same.  NARROW:
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

/* Over all of it; one or two numbers, if that is more than a warp. */
template <bool NARROW, int COUNT>
static __device__ __forceinline__ void add_up(float (&s)[COUNT], const member &m, meeting *met,
                                              int turn)
{
    add_lanes<NARROW>(s, m);
    if (NARROW || m.lanes <= 32)
        return;
    const int half = turn & 1, thread = (int)threadIdx.x;
    if (thread % 32 == 0)
        met->warp[half][thread / 32] = make_float2(s[0], s[COUNT - 1]);
    team_sync(m);
    float2 sum = sum_of(met->warp[half] + m.here * m.lanes / 32, m.lanes / 32);
    if (m.cluster > 1) {
        if (thread < m.cluster)
            *map_shared_rank(&met->block[half][m.rank], thread) = sum;
        cluster_sync();
        sum = sum_of(met->block[half], m.cluster);
    }
    s[0] = sum.x;
    s[COUNT - 1] = COUNT > 1 ? sum.y : sum.x;
}

/* ---- mean and squares of what several have of a row ---- */

/* Some numbers of a row: how many, their sum and mean, and the squares of what they are off it. */
struct alignas(16) spread {
    float count, sum, mean, squares;
};

/* `count` numbers, share = 1 / count, in `parts` parts, as one.  No squares are those of numbers far
 * from 0: they are taken about the part's own mean, and how far that is off the common one is a few
 * numbers' affair (Chan, Golub and LeVeque). */
static __device__ __forceinline__ spread as_one(const spread *part, int parts, int count,
                                                float share)
{
    spread all = {(float)count, 0, 0, 0};
    #pragma unroll 4
    for (int i = 0; i < parts; i++)
        all.sum += part[i].sum;
    all.mean = __fmul_rn(all.sum, share);
    #pragma unroll 4
    for (int i = 0; i < parts; i++) {
        const float off = part[i].mean - all.mean;
        all.squares += fmaf(__fmul_rn(part[i].count, off), off, part[i].squares);
    }
    return all;
}

/* How many numbers of the row the thread's warp has; all, if the team is within it. */
template <int V, int UNITS>
static __device__ __forceinline__ int warp_count(const member &me)
{
    int count = 0;
    #pragma unroll 8
    for (int u = 0; u < UNITS; u++)
        count += max(0, min(me.end - column_of(me, u, V) + me.lane % 32 * V, 32 * V));
    return count;
}

/* ---- what is computed with a vector ---- */

/* Of one row. */
struct row_stats {
    float mean, rstd;
};

template <bool CENTRED>
static __device__ __forceinline__ void put_stats(const norm_rows &m, int64_t row,
                                                 const row_stats &of)
{
    m.rstd[row] = of.rstd;
    if (CENTRED)
        m.mean[row] = of.mean;
}

/* Beyond the last row there are zeros. */
template <bool CENTRED>
static __device__ __forceinline__ row_stats get_stats(const norm_rows &m, int64_t row)
{
    row_stats of = {0, 0};
    if (row < m.R) {
        of.rstd = m.rstd[row];
        if (CENTRED)
            of.mean = m.mean[row];
    }
    return of;
}

/* Which product meets which sum in one rounding is said here (__fmul_rn: it does not), not left
 * to the compiler, which chose otherwise from row to row of an unrolled loop: then the bits of a
 * row depend on where it stands. */

template <bool CENTRED>
static __device__ __forceinline__ float deviation(float x, const row_stats &row)
{
    return CENTRED ? x - row.mean : x;
}

/* ---- the backward pass of a team's rows ---- */

/* The vectors of them that a thread has: in registers, ... */
template <int COUNT>
struct held {
    uint4 v[COUNT];

    __device__ __forceinline__ uint4 at(int i) const { return v[i]; }
};

/* ... or in shared memory, so far apart, where the thread itself has had them put. */
template <int APART>
struct laid {
    const uint4 *v;

    __device__ __forceinline__ uint4 at(int i) const { return v[i * APART]; }
};

/* dx = rstd (g - level - xhat along) of the rows from `first` on, g = w dy, of the means along =
 * mean(g xhat), level = mean(g); and to the columns' sums what the rows add.  `turn` counts calls. */
template <typename T, bool CENTRED, bool ALIGNED, int UNITS, typename X, typename C>
static __device__ __forceinline__ void put_slopes(const norm_call &p, const member &me,
                                                  meeting *met, int turn, int64_t first, X x, X dy,
                                                  const uint4 *w, const row_stats *of, C *columns)
{
    enum { V = 16 / sizeof(T), COUNT = held_back<T>(), ROWS = COUNT / UNITS };
    enum { SUMS = CENTRED ? 2 : 1 };
    const norm_rows &m = p.of[me.matrix];
    float xhat[COUNT][V], g[COUNT][V], s[ROWS * SUMS] = {};

    #pragma unroll 8
    for (int i = 0; i < COUNT; i++) {
        const int r = i / UNITS, u = i % UNITS;
        const numbers<T> xs = widened<T>(x.at(i)), dys = widened<T>(dy.at(i));
        const numbers<T> ws = widened<T>(w[u]);
        #pragma unroll 8
        for (int j = 0; j < V; j++) {
            xhat[i][j] = of[r].rstd * deviation<CENTRED>(xs.x[j], of[r]);
            g[i][j] = __fmul_rn(ws.x[j], dys.x[j]);
            s[r * SUMS] = fmaf(g[i][j], xhat[i][j], s[r * SUMS]);
            if (CENTRED)
                s[r * SUMS + 1] += g[i][j];
            columns->add(u, j, dys.x[j], xhat[i][j]);
        }
    }
    add_up<UNITS == 1>(s, me, met, turn);
    #pragma unroll 8
    for (int i = 0; i < COUNT; i++) {
        const int r = i / UNITS, n = column_of(me, i % UNITS, V);
        const float along = __fmul_rn(s[r * SUMS], p.share);
        const float level = __fmul_rn(s[(r + 1) * SUMS - 1], p.share);
        const int64_t row = first + r;
        numbers<T> dx;
        #pragma unroll 8
        for (int j = 0; j < V; j++)
            dx.x[j] = of[r].rstd * fmaf(-xhat[i][j], along, CENTRED ? g[i][j] - level : g[i][j]);
        if (row < m.R)
            store_vector<T, ALIGNED>((T *)m.dx + row * p.N + n, me.end - n, dx);
    }
}

/* ---- sums of columns ---- */

/* A thread's, of its vectors. */
template <typename T, bool CENTRED, int UNITS>
struct column_sums {
    enum { V = 16 / sizeof(T) };
    float dw[UNITS][V], db[UNITS][V]; /* db only if CENTRED */

    __device__ __forceinline__ void add(int u, int j, float dy, float xhat)
    {
        dw[u][j] = fmaf(dy, xhat, dw[u][j]);
        if (CENTRED)
            db[u][j] += dy;
    }
};

/* The sums x of all the block's teams, in their order, to the block's part of `parts`. */
template <int UNITS, int V>
static __device__ __forceinline__ void leave_sums(float *parts, const float (&x)[UNITS][V], int N,
                                                  const member &me, float *room)
{
    const int width = me.lanes * UNITS * V, teams = (int)blockDim.x / me.lanes;

    __syncthreads();
    #pragma unroll 8
    for (int u = 0; u < UNITS; u++) {
        #pragma unroll 8
        for (int j = 0; j < V; j++)
            room[me.here * width + (u * me.lanes + me.lane) * V + j] = x[u][j];
    }
    __syncthreads();
    for (int n = threadIdx.x; n < me.end - me.first; n += blockDim.x) {
        float sum = 0;
        #pragma unroll 4
        for (int i = 0; i < teams; i++)
            sum += room[i * width + n];
        parts[me.unit * N + me.first + n] = sum;
    }
}

/* Where in the workspace the parts of a matrix's dw begin; those of db follow. */
static __device__ __forceinline__ float *parts_of(const norm_call &p, const norm_grid &grid,
                                                  int matrix, int sums)
{
    return p.work + (matrix ? grid.clusters[0] * p.N * sums : 0);
}

static inline size_t parts_bytes(const norm_call &p, const norm_grid &grid, bool centred)
{
    return all_clusters(grid) * p.N * (centred ? 2 : 1) * sizeof(float);
}

/* A block's sums of columns to its parts.  There is `room` in shared memory for a float from each
 * thread for each of its columns. */
template <typename T, bool CENTRED, int UNITS>
static __device__ __forceinline__ void leave_parts(const norm_call &p, const norm_grid &grid,
                                                   const column_sums<T, CENTRED, UNITS> &sums,
                                                   const member &me, float *room)
{
    float *parts = parts_of(p, grid, me.matrix, CENTRED ? 2 : 1);
    leave_sums(parts, sums.dw, p.N, me, room);
    if (CENTRED)
        leave_sums(parts + me.units * p.N, sums.db, p.N, me, room);
}

/* The parts of all blocks, added in their order, by a launch that may start early: dw and db. */
template <bool CENTRED>
int norm_add_parts(const norm_call &p, const norm_grid &grid);

/* ---- launches ---- */

/* The instance of a kernel, in a template on T and CENTRED, for rows of N numbers, of which a thread
 * has up to `held` vectors. */
#define KERNEL_FOR(kernel, N, layout, held)                                                        \
    ((N) % per_vector<T>()                                                                         \
         ? ((layout).rows > 1 ? kernel<T, CENTRED, false, 1> : kernel<T, CENTRED, false, held>)    \
         : ((layout).rows > 1 ? kernel<T, CENTRED, true, 1> : kernel<T, CENTRED, true, held>))

struct teams_launch {
    cudaLaunchConfig_t config;
    cudaLaunchAttribute size;
};

static inline void prepare_teams(teams_launch *to, int64_t clusters, const norm_layout &l,
                                 size_t shared)
{
    *to = {};
    to->size.id = cudaLaunchAttributeClusterDimension;
    to->size.val.clusterDim.x = l.cluster;
    to->size.val.clusterDim.y = to->size.val.clusterDim.z = 1;
    to->config.gridDim = dim3((unsigned)(clusters * l.cluster));
    to->config.blockDim = dim3(l.threads);
    to->config.dynamicSmemBytes = shared;
    to->config.stream = gpu_stream();
    to->config.attrs = &to->size;
    to->config.numAttrs = l.cluster > 1;
}

/* A kernel of the teams of `grid`, with so much dynamic shared memory. */
static inline cudaError_t launch_teams(void (*kernel)(norm_call, norm_layout, norm_grid),
                                       const norm_layout &l, size_t shared, const norm_call &p,
                                       const norm_grid &grid)
{
    teams_launch launch;
    prepare_teams(&launch, all_clusters(grid), l, shared);
    return cudaLaunchKernelEx(&launch.config, kernel, p, l, grid);
}

#endif
