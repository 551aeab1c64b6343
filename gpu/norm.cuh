/* norm.cuh - what the kernels of rmsnorm, layernorm and qk_norm share: a call of any of them, and
 * how threads divide rows among them.
 *
 * Everything is a template on CENTRED: is a row's mean taken off first, and a bias added?  That is
 * layernorm; else it is rmsnorm, and qk_norm is rmsnorm of two matrices in one launch. */
#ifndef NORM_CUH
#define NORM_CUH

#include "gpu/gpu.cuh"
#include "gpu/ptx.cuh"

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

/* dw, and db if CENTRED, alone. */
template <typename T, bool CENTRED>
int norm_columns(const norm_call &p);

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
size_t fused_norm_work(const norm_call &p, size_t size, bool centred); /* of backward */

/* The ladder of an operation whose file says how a frame becomes a norm_call, call_of(), and whether
 * it is CENTRED. */
#define NORM_RUNG(rung)                                                                            \
    template <typename T>                                                                          \
    static int rung##_forward(const struct frame *f)                                               \
    {                                                                                              \
        return rung##_norm<T, CENTRED>(call_of(f));                                                \
    }                                                                                              \
    template <typename T>                                                                          \
    static int rung##_backward(const struct frame *f)                                              \
    {                                                                                              \
        return rung##_norm_back<T, CENTRED>(call_of(f));                                           \
    }                                                                                              \
    template <typename T>                                                                          \
    static const char *rung##_declines(const struct frame *f)                                      \
    {                                                                                              \
        return rung##_norm_declines(call_of(f), sizeof(T));                                        \
    }
#define NORM_IMPL(bits, T, rung, idea, work)                                                       \
    static const struct impl rung##bits = {#rung,                                                  \
                                           idea,                                                   \
                                           {rung##_forward<T>, rung##_backward<T>},                \
                                           work,                                                   \
                                           rung##_declines<T>,                                     \
                                           NULL,                                                   \
                                           0,                                                      \
                                           0}
#define NORM_LADDER(op, bits, T)                                                                   \
    NORM_IMPL(bits, T, plain, "a block a row, read anew for each sum and for the result", NULL);   \
    NORM_IMPL(bits, T, row, "a team of threads keeps a row in registers", NULL);                   \
    NORM_IMPL(bits, T, fused, "rows on their way ahead in shared memory; dx and dw in one pass",   \
              fused_work<T>);                                                                      \
    GPU_KERNEL_LIST(op, bits, &fused##bits, &row##bits, &plain##bits)
#define NORM_OPERATION(op)                                                                         \
    NORM_RUNG(plain)                                                                               \
    NORM_RUNG(row)                                                                                 \
    NORM_RUNG(fused)                                                                               \
    template <typename T>                                                                          \
    static size_t fused_work(const struct frame *f, enum pass pass)                                \
    {                                                                                              \
        return pass == BACKWARD ? fused_norm_work(call_of(f), sizeof(T), CENTRED) : 0;             \
    }                                                                                              \
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

/* Where that is more registers than the vector itself, it is made anew for every use, one use
 * after the other, so that there is room for more vectors. */
template <typename T>
static __device__ __forceinline__ numbers<T> widened(uint4 v)
{
    if (sizeof(T) < 4)
        taken_anew(&v);
    const unsigned word[4] = {v.x, v.y, v.z, v.w};
    numbers<T> n;
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        if (sizeof(T) == 4) {
            n.x[i] = __uint_as_float(word[i]);
        } else {
            n.x[2 * i % per_vector<T>()] = __uint_as_float(word[i] << 16);
            n.x[(2 * i + 1) % per_vector<T>()] = __uint_as_float(word[i] & 0xffff0000);
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
        UNROLL(8)
        for (int j = 0; j < per_vector<T>(); j++) {
            store(x + j, 0.0f);
            if (j < left)
                x[j] = from[j];
        }
        memcpy(&v, x, sizeof v);
    }
    return v;
}

template <typename T, bool ALIGNED>
static __device__ __forceinline__ void store_vector(T *to, int left, const numbers<T> &n)
{
    alignas(16) T x[per_vector<T>()];
    UNROLL(8)
    for (int j = 0; j < per_vector<T>(); j++)
        store(x + j, n.x[j]);
    if (ALIGNED) {
        uint4 v;
        memcpy(&v, x, sizeof v);
        if (left > 0)
            *(uint4 *)to = v;
    } else {
        UNROLL(8)
        for (int j = 0; j < per_vector<T>(); j++)
            if (j < left)
                to[j] = x[j];
    }
}

/* ---- teams ---- */

/* A row is a team's: of as many lanes of a warp as it has vectors, if these are few, which then
 * takes HELD rows at once; else of a warp, a block or a cluster of blocks, of which each thread
 * has up to HELD vectors.  Teams depend on N alone, and so do a row's bits. */
enum { HELD = 4, CLUSTER_MOST = 8 };

/* Threads of a block that is of several teams, and of any block; fewer where rows are not aligned,
 * whose numbers one by one take more registers.  Emulated: so few that small cases meet teams of
 * all kinds. */
#ifdef CUDA_EMULATE
enum { TEAMS_THREADS = 64, THREADS_MOST = 64, UNALIGNED_MOST = 64 };
#else
enum { TEAMS_THREADS = 128, THREADS_MOST = 384, UNALIGNED_MOST = 256 };
#endif

static constexpr __host__ __device__ int threads_most(bool aligned)
{
    return aligned ? THREADS_MOST : UNALIGNED_MOST;
}

struct norm_layout {
    int cluster; /* blocks of a team; 0: there is no team so large */
    int threads; /* of a block */
    int lanes;   /* of a team: a power of two up to a warp, or the block */
    int span;    /* vectors of a row that one block has */
    int rows;    /* that a team takes at once: HELD or 1 */
};

#define TOO_LONG "a row longer than a cluster's threads hold"

static inline norm_layout layout_of(int64_t N, size_t size)
{
    const int64_t vectors = ceil_div(N, 16 / size);
    const int64_t block = (int64_t)HELD * threads_most(N * size % 16 == 0);
    const int cluster_most = gpu_properties().clusterLaunch ? CLUSTER_MOST : 1;
    norm_layout l = {1, TEAMS_THREADS, 1, (int)vectors, vectors <= 32 ? HELD : 1};

    while (l.cluster <= cluster_most && ceil_div(vectors, l.cluster) > block)
        l.cluster *= 2;
    if (l.cluster > cluster_most) {
        l.cluster = 0;
    } else if (vectors <= 32 * HELD) {
        while (l.lanes < min(vectors, (int64_t)32))
            l.lanes *= 2;
    } else {
        l.span = (int)ceil_div(vectors, l.cluster);
        l.threads = l.lanes = (int)ceil_div(ceil_div(l.span, HELD), 32) * 32;
    }
    return l;
}

/* Teams of a block; of a cluster, if that is one team, 1. */
static inline __host__ __device__ int teams_of(const norm_layout &l)
{
    return l.threads / l.lanes;
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

/* A thread's place. */
struct member {
    int matrix;
    int lanes, lane;     /* of the team, within the block */
    int cluster, rank;   /* blocks of the team, and which this is */
    int64_t unit, units; /* the cluster's number among those of the matrix */
    int64_t team, teams; /* the team's */
    int first, end;      /* columns of the block's */
};

static __device__ __forceinline__ member member_of(int N, int vector, const norm_layout &l,
                                                   const norm_grid &grid)
{
    member m;
    const int64_t cluster = blockIdx.x / (unsigned)l.cluster;
    m.matrix = cluster >= grid.clusters[0];
    m.lanes = l.lanes;
    m.lane = (int)threadIdx.x % l.lanes;
    m.cluster = l.cluster;
    m.rank = (int)(blockIdx.x % (unsigned)l.cluster);
    m.unit = cluster - (m.matrix ? grid.clusters[0] : 0);
    m.units = clusters_of(grid, m.matrix);
    m.team = m.unit * teams_of(l) + (int)threadIdx.x / l.lanes;
    m.teams = m.units * teams_of(l);
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
    float2 warp[2][THREADS_MOST / 32];
    float2 block[2][CLUSTER_MOST];
};

/* The thread's vectors of what all rows share. */
template <typename T, bool ALIGNED, int UNITS>
static __device__ __forceinline__ void load_columns(uint4 *v, const void *from, const member &m)
{
    UNROLL(4)
    for (int u = 0; u < UNITS; u++) {
        const int n = column_of(m, u, per_vector<T>());
        v[u] = load_vector<T, ALIGNED>((const T *)from + n, m.end - n);
    }
}

/* Before one of a cluster's blocks may write to another's shared memory, that must have begun. */
static __device__ __forceinline__ void cluster_meets(const member &m)
{
    if (m.cluster > 1)
        cluster_sync();
}

static __device__ __forceinline__ float2 sum_of(const float2 *x, int n)
{
    float2 sum = make_float2(0, 0);
    UNROLL(4)
    for (int i = 0; i < n; i++) {
        sum.x += x[i].x;
        sum.y += x[i].y;
    }
    return sum;
}

/* Sums over the team, for each of its threads the same.  More than two numbers: of teams within a
 * warp only. */
template <int COUNT>
static __device__ __forceinline__ void add_up(float (&s)[COUNT], const member &m, meeting *met,
                                              int turn)
{
    for (int d = min(m.lanes, 32) / 2; d; d /= 2) {
        UNROLL(8)
        for (int i = 0; i < COUNT; i++)
            s[i] += __shfl_xor_sync(~0u, s[i], d);
    }
    if (COUNT > 2 || m.lanes <= 32)
        return;
    const int half = turn & 1, thread = (int)threadIdx.x;
    if (thread % 32 == 0)
        met->warp[half][thread / 32] = make_float2(s[0], s[COUNT - 1]);
    __syncthreads();
    float2 sum = sum_of(met->warp[half], m.lanes / 32);
    if (m.cluster > 1) {
        if (thread < m.cluster)
            *place_of(&met->block[half][m.rank], thread) = sum;
        cluster_sync();
        sum = sum_of(met->block[half], m.cluster);
    }
    s[0] = sum.x;
    s[COUNT - 1] = COUNT > 1 ? sum.y : sum.x;
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

/* The sum of x. */
template <typename T>
static __device__ __forceinline__ float sum_vector(const uint4 &x)
{
    const numbers<T> xs = widened<T>(x);
    float sum = 0;
    UNROLL(8)
    for (int j = 0; j < per_vector<T>(); j++)
        sum += xs.x[j];
    return sum;
}

/* The sum of the squares of x - mean; columns beyond the row's end have no part in it. */
template <typename T, bool CENTRED>
static __device__ __forceinline__ float sum_squares(const uint4 &x, const row_stats &row, int left)
{
    const numbers<T> xs = widened<T>(x);
    float sum = 0;
    UNROLL(8)
    for (int j = 0; j < per_vector<T>(); j++) {
        const float d = deviation<CENTRED>(xs.x[j], row);
        sum = fmaf(d, !CENTRED || j < left ? d : 0, sum);
    }
    return sum;
}

template <typename T, bool CENTRED>
static __device__ __forceinline__ numbers<T> normalised(const uint4 &x, const uint4 &w,
                                                        const uint4 &b, const row_stats &row)
{
    const numbers<T> xs = widened<T>(x), ws = widened<T>(w), bs = widened<T>(b);
    numbers<T> y;
    UNROLL(8)
    for (int j = 0; j < per_vector<T>(); j++) {
        const float xhat = row.rstd * deviation<CENTRED>(xs.x[j], row);
        y.x[j] = CENTRED ? fmaf(ws.x[j], xhat, bs.x[j]) : ws.x[j] * xhat;
    }
    return y;
}

/* To s[0] the sum of g xhat, g = w dy; to s[1], if CENTRED, that of g. */
template <typename T, bool CENTRED>
static __device__ __forceinline__ void add_slopes(const uint4 &x, const uint4 &dy, const uint4 &w,
                                                  const row_stats &row, float *s)
{
    const numbers<T> xs = widened<T>(x), dys = widened<T>(dy), ws = widened<T>(w);
    UNROLL(8)
    for (int j = 0; j < per_vector<T>(); j++) {
        const float g = __fmul_rn(ws.x[j], dys.x[j]);
        s[0] = fmaf(g, row.rstd * deviation<CENTRED>(xs.x[j], row), s[0]);
        if (CENTRED)
            s[1] += g;
    }
}

/* dx = rstd (g - level - xhat along), of the means along = mean(g xhat), level = mean(g); and to
 * the u-th of the thread's columns' sums what the row adds. */
template <typename T, bool CENTRED, typename C>
static __device__ __forceinline__ numbers<T> slope(const uint4 &x, const uint4 &dy, const uint4 &w,
                                                   const row_stats &row, float along, float level,
                                                   int u, C *columns)
{
    const numbers<T> xs = widened<T>(x), dys = widened<T>(dy), ws = widened<T>(w);
    numbers<T> dx;
    UNROLL(8)
    for (int j = 0; j < per_vector<T>(); j++) {
        const float xhat = row.rstd * deviation<CENTRED>(xs.x[j], row);
        const float g = __fmul_rn(ws.x[j], dys.x[j]);
        dx.x[j] = row.rstd * fmaf(-xhat, along, CENTRED ? g - level : g);
        columns->add(u, j, dys.x[j], xhat);
    }
    return dx;
}

/* ---- what is done with a team's rows ---- */

/* The vectors of them that a thread has: in registers, ... */
template <typename T, int UNITS>
struct held {
    uint4 v[HELD / UNITS][UNITS];

    __device__ __forceinline__ uint4 at(int r, int u) const { return v[r][u]; }
};

/* ... or in shared memory, where the thread itself has had them put. */
template <int UNITS>
struct laid {
    const uint4 *v;

    __device__ __forceinline__ uint4 at(int r, int u) const
    {
        return v[(r * UNITS + u) * blockDim.x + threadIdx.x];
    }
};

/* Forward: y, rstd and mean of the rows from `first` on; `turn` counts calls. */
template <typename T, bool CENTRED, bool ALIGNED, int UNITS, typename X>
static __device__ __forceinline__ void put_rows(const norm_call &p, const member &me, meeting *met,
                                                int turn, int64_t first, X x, const uint4 *w,
                                                const uint4 *b)
{
    enum { V = 16 / sizeof(T), ROWS = HELD / UNITS };
    const norm_rows &m = p.of[me.matrix];
    const float share = 1.0f / p.N;
    row_stats of[ROWS] = {};
    float s[ROWS] = {};

    if (CENTRED) {
        UNROLL(4)
        for (int i = 0; i < HELD; i++)
            s[i / UNITS] += sum_vector<T>(x.at(i / UNITS, i % UNITS));
        add_up(s, me, met, 0);
        UNROLL(4)
        for (int r = 0; r < ROWS; r++) {
            of[r].mean = __fmul_rn(s[r], share);
            s[r] = 0;
        }
    }
    UNROLL(4)
    for (int i = 0; i < HELD; i++)
        s[i / UNITS] += sum_squares<T, CENTRED>(x.at(i / UNITS, i % UNITS), of[i / UNITS],
                                                me.end - column_of(me, i % UNITS, V));
    add_up(s, me, met, CENTRED ? 1 : turn);
    UNROLL(4)
    for (int r = 0; r < ROWS; r++) {
        const int64_t row = first + r;
        of[r].rstd = 1 / sqrtf(fmaf(s[r], share, p.eps));
        if (row >= m.R)
            continue;
        UNROLL(4)
        for (int u = 0; u < UNITS; u++) {
            const int n = column_of(me, u, V);
            store_vector<T, ALIGNED>((T *)m.y + row * p.N + n, me.end - n,
                                     normalised<T, CENTRED>(x.at(r, u), w[u], b[u], of[r]));
        }
        if (me.lane == 0 && me.rank == 0)
            put_stats<CENTRED>(m, row, of[r]);
    }
}

/* Backward: dx of the rows from `first` on, and what these add to the columns' sums; `turn` counts
 * calls. */
template <typename T, bool CENTRED, bool ALIGNED, int UNITS, typename X, typename C>
static __device__ __forceinline__ void put_slopes(const norm_call &p, const member &me,
                                                  meeting *met, int turn, int64_t first, X x, X dy,
                                                  const uint4 *w, const row_stats *of, C *columns)
{
    enum { V = 16 / sizeof(T), ROWS = HELD / UNITS, SUMS = CENTRED ? 2 : 1 };
    const norm_rows &m = p.of[me.matrix];
    const float share = 1.0f / p.N;
    float s[ROWS * SUMS] = {};

    UNROLL(4)
    for (int i = 0; i < HELD; i++) {
        const int r = i / UNITS, u = i % UNITS;
        add_slopes<T, CENTRED>(x.at(r, u), dy.at(r, u), w[u], of[r], s + r * SUMS);
    }
    add_up(s, me, met, turn);
    UNROLL(4)
    for (int r = 0; r < ROWS; r++) {
        const int64_t row = first + r;
        const float along = __fmul_rn(s[r * SUMS], share);
        const float level = __fmul_rn(s[(r + 1) * SUMS - 1], share);
        if (row >= m.R)
            continue;
        UNROLL(4)
        for (int u = 0; u < UNITS; u++) {
            const int n = column_of(me, u, V);
            store_vector<T, ALIGNED>(
                (T *)m.dx + row * p.N + n, me.end - n,
                slope<T, CENTRED>(x.at(r, u), dy.at(r, u), w[u], of[r], along, level, u, columns));
        }
    }
}

/* ---- launches ---- */

/* The instance of a kernel, in a template on T and CENTRED, for rows of N numbers. */
#define KERNEL_FOR(kernel, N, layout)                                                              \
    ((N) % per_vector<T>()                                                                         \
         ? ((layout).rows > 1 ? kernel<T, CENTRED, false, 1> : kernel<T, CENTRED, false, HELD>)    \
         : ((layout).rows > 1 ? kernel<T, CENTRED, true, 1> : kernel<T, CENTRED, true, HELD>))

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
    prepare_teams(&launch, grid.clusters[0] + grid.clusters[1], l, shared);
    return cudaLaunchKernelEx(&launch.config, kernel, p, l, grid);
}

#endif
