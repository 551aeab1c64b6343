/* e74_cell, kernel `chunked`: f = linear on tensor cores, CHUNK steps at once.
 *
 * Within a chunk that begins with state S, with r = 1 / (|k| + eps), x = k, or
 * z k where there is a z, and u = r x, the steps are a triangular system:
 *
 *     delta_t = v_t - r_t S x_t - sum over s < t of A_ts delta_s
 *     A = strictly lower part of (r X) (r K)^T
 *     M = (1 + A)^-1,  P = lower part of Q K^T
 *     Delta = M (V - r X S^T),  D = r Delta
 *     Y = Q S^T + P D,  S <- S + D^T K
 *
 * k, q, v are never scaled, so that they are exact as bf16; S, M, P and what is
 * made of them are rounded to bf16 where they are factors, and sums are float.
 * With G = dL/dS after the chunk and dY = dout (y silu(y))':
 *
 *     E = M^T (r (P^T dY + K G^T)) = dV,  F = r E
 *     G <- G + dY^T Q - F^T X
 *     p = lower part of dY D^T,  a = strictly lower part of -F D^T
 *     dQ = dY S + p K,  r dU = -F S + a K,  r dK^ = D G + p^T Q + a^T X
 *
 * Where q is k, r P r is 1 + A, but for eps on the diagonal, so that dY^T Q and
 * dY's share of F^T X are equal: neither is computed, since their difference's
 * error would be larger than G, of which then only dS_T's share is left:
 *
 *     E = dY / r + M^T (r K G^T - ((1 - r^2 |k|^2) / r) dY)
 *
 * factor() makes M, P, r and X of all chunks side by side.  Then a block walks
 * one (sequence, head) and SLICE rows of its state, which never meet other
 * rows, through the chunks.  Half of its warps are the chain: three short
 * products a chunk, the state in their accumulators.  The others bring what the
 * chain needs, a chunk or two ahead, and make the outputs from what it leaves in
 * shared memory.  Backward walks G from the end, and finish() makes the keys'
 * gradients of all chunks side by side: they need the state before each chunk,
 * which is a checkpoint where CHUNK is a multiple of the interval, else
 * forward's walk is repeated; its bits are the same.  Each of these kernels
 * starts while the one before it ends.
 *
 * Bound by memory where there are many rows, else by the chain. */
#include "gpu/e74_cell.cuh"
#include "gpu/tiles.cuh"

enum {
    CHUNK = 64,
    THREADS = 128, /* a warp for each strip of 16 steps */
#ifdef CUDA_EMULATE
    BLOCKS_MIN = 3, /* so that small cases meet all lengths of a slice */
#else
    BLOCKS_MIN = 128, /* slices become shorter until there are as many walkers */
#endif
    STAGES_MAX = 3, /* chunks in a walker's shared memory: this one, and those on their way */
    SHARED_MAX = 227 * 1024,
    SHARED_OF_TWO = 113 * 1024, /* the most for two blocks on a multiprocessor */
    WIDTH = CHUNK + 8           /* padded(CHUNK) */
};

struct plan {
    call c;
    int chunks;
    int slices;     /* blocks that share a state */
    int stages;     /* as many as there is room for, 2 or 3 */
    int kept;       /* checkpoints in a chunk, where they begin with it */
    bf16 *factors;  /* [chunks][BH][M P][CHUNK][CHUNK] */
    float2 *scales; /* [chunks][BH][CHUNK]: r, and r / |k| */
    bf16 *x;        /* [T][BH][N]: k, or z k */
    bf16 *states;   /* [chunks][BH][N][N] before each chunk; NULL: none are wanted */
    bf16 *dstates;  /* the same of G, after each */
    bf16 *dy;       /* [T][BH][N]: dY */
    float *dv;      /* [T][BH][N]: where v is k */
};

/* Steps of one (sequence, head). */
struct place {
    int64_t t, bh, item; /* the first step; the item among chunks x BH */
    int steps;
};

static __device__ __forceinline__ place place_of(const plan &p, int64_t chunk, int64_t bh)
{
    const int64_t t = chunk * CHUNK;
    return {t, bh, chunk * p.c.BH + bh, (int)min((int64_t)CHUNK, p.c.T - t)};
}

/* A block's, where there is a block for each. */
static __device__ __forceinline__ place own_place(const plan &p)
{
    const unsigned BH = (unsigned)p.c.BH;
    return place_of(p, blockIdx.x / BH, blockIdx.x % BH);
}

/* Where its vectors begin in a tensor [T][BH][N]; those of the next step are
 * BH * N further. */
static __device__ __forceinline__ int64_t start(const plan &p, const place &at)
{
    return (at.t * p.c.BH + at.bh) * p.c.N;
}

static __host__ __device__ __forceinline__ bool tied_q(const plan &p)
{
    return p.c.q == p.c.k;
}

static __device__ __forceinline__ int warp(void)
{
    return threadIdx.x / 32;
}

/* ---- from global memory ---- */

/* Eight numbers of a matrix of CHUNK rows that thread threadIdx.x + i takes. */
template <int COLUMNS>
static __device__ __forceinline__ void eight_of(int i, int *row, int *column)
{
    *row = i / (COLUMNS / 8);
    *column = i % (COLUMNS / 8) * 8;
}

/* ALL rows of a matrix to shared memory, zeros where there are no more rows or
 * columns; the same eight numbers to each of the THREADS as by eight_of(). */
template <int COLUMNS, int THREADS, int ALL = CHUNK>
static __device__ __forceinline__ void bring(bf16 *to, const bf16 *from, int64_t apart, int rows,
                                             int columns)
{
    constexpr int EACH = COLUMNS / 8, ROWS = THREADS / EACH;
    const int thread = thread_again() % THREADS, first = thread / EACH, column = thread % EACH * 8;

    to += first * padded(COLUMNS) + column;
    from += first * apart + column;
    UNROLL(8)
    for (int i = 0; i < ALL / ROWS; i++, from += ROWS * apart) {
        const bool any = first + i * ROWS < rows && column < columns;
        cp_async16(to + i * ROWS * padded(COLUMNS), from, any ? 16 : 0);
    }
}

/* Four numbers as they lie in memory, and rounded. */
template <typename T>
struct four;
template <>
struct four<float> {
    typedef float4 raw;
};
template <>
struct four<__half> {
    typedef uint2 raw;
};

static __device__ __forceinline__ uint2 rounded(const float4 &x)
{
    return {pack(x.x, x.y), pack(x.z, x.w)};
}

static __device__ __forceinline__ uint2 rounded(const uint2 &halves)
{
    __half x[4];
    memcpy(x, &halves, sizeof x);
    return {pack(__half2float(x[0]), __half2float(x[1])),
            pack(__half2float(x[2]), __half2float(x[3]))};
}

/* The same of a matrix of another type, rounded; eight loads are under way at
 * once, none of which depends on a condition. */
template <int COLUMNS, int THREADS, int ALL, typename T>
static __device__ __forceinline__ void bring_rounded(bf16 *to, const T *from, int64_t apart,
                                                     int rows, int columns)
{
    typedef typename four<T>::raw raw;
    constexpr int EACH = COLUMNS / 4, ROWS = THREADS / EACH;
    const int thread = thread_again() % THREADS, first = thread / EACH, column = thread % EACH * 4;
    const bool some = column < columns;

    UNROLL(1)
    for (int i = first; i < ALL; i += 8 * ROWS) {
        raw x[8];
        UNROLL(8)
        for (int j = 0; j < 8; j++) {
            const int row = i + j * ROWS;
            x[j] = *(const raw *)(from + (row < rows && some ? row * apart + column : 0));
        }
        __syncwarp(); /* else the compiler waits for one before it loads the next */
        UNROLL(8)
        for (int j = 0; j < 8; j++) {
            const int row = i + j * ROWS;
            const uint2 four = rounded(x[j]);
            *(uint2 *)(to + row * padded(COLUMNS) + column) =
                row < rows && some ? four : uint2{0, 0};
        }
    }
}

template <int COLUMNS, int ALL>
static __device__ __forceinline__ void bring_steps(const plan &p, const place &at, bf16 *to,
                                                   const void *from, int first)
{
    bring<COLUMNS, ALL>(to, (const bf16 *)from + start(p, at) + first, p.c.BH * p.c.N, at.steps,
                        p.c.N - first);
}

enum which_factor { M_OF, P_OF };

/* M or P of a chunk: which is zero beyond the block on the diagonal. */
template <int THREADS>
static __device__ __forceinline__ void bring_factor(const plan &p, const place &at,
                                                    which_factor which, bf16 *to)
{
    constexpr int ROWS = THREADS / (CHUNK / 8);
    const bf16 *from = p.factors + (2 * at.item + which) * CHUNK * CHUNK;
    const int thread = thread_again() % THREADS, first = thread / 8, column = thread % 8 * 8;

    UNROLL(4)
    for (int i = 0; i < CHUNK; i += ROWS) {
        const int row = first + i;
        cp_async16(to + row * WIDTH + column, from + row * CHUNK + column,
                   column / 16 <= row / 16 ? 16 : 0);
    }
}

template <int THREADS>
static __device__ __forceinline__ void bring_scales(const plan &p, const place &at, float2 *to)
{
    const int t = threadIdx.x % THREADS * 2;
    if (t < CHUNK)
        cp_async16(to + t, p.scales + at.item * CHUNK + t);
}

/* ---- M, P and r of a chunk ---- */

enum { INVERSE = 16 + 8 /* padded(16) */ };

/* One 16 x 16 block on the diagonal of 1 + A, inverted: a thread a column. */
static __device__ void invert_block(const float *A, float *inverse)
{
    const int column = threadIdx.x % 32;
    float x[16];
    if (column >= 16)
        return;
    UNROLL(16)
    for (int i = 0; i < 16; i++) {
        float row[16];
        UNROLL(4)
        for (int k = 0; k < i; k += 4)
            memcpy(row + k, __builtin_assume_aligned(A + i * WIDTH + k, 16), 4 * sizeof *row);
        x[i] = i == column ? 1 : 0;
        UNROLL(16)
        for (int k = 0; k < i; k++)
            x[i] = fmaf(-row[k], x[k], x[i]);
        inverse[i * INVERSE + column] = x[i];
    }
}

/* A 16 x 16 block of floats in shared memory as a left factor, flipped. */
static __device__ split take_flipped(const float *block, int apart)
{
    split s;
    for (int i = 0; i < 4; i++) {
        const float *at = block + (pair() + i / 2 * 8) * apart + line() + i % 2 * 8;
        split_pair(at[0], at[apart], &s.high[i], &s.low[i]);
    }
    return s;
}

/* Column j of the 16 x 16 blocks of M, by warp j, from the diagonal down:
 * M_ij = -M_ii sum over k of A_ik M_kj.  It is kept flipped, because sums in
 * the order that mma leaves them in can be the next product's left factor. */
static __device__ void invert_column(const float *A, const float *inverses, bf16 *M)
{
    const int j = warp();
    split N[4];

    const float *diagonal = inverses + j * 16 * INVERSE;
    for (int i = threadIdx.x % 32; i < 256; i += 32)
        store(M + (16 * j + i / 16) * WIDTH + 16 * j + i % 16, diagonal[i / 16 * INVERSE + i % 16]);
    N[0] = take_flipped(diagonal, INVERSE);
    UNROLL(4)
    for (int e = 1; e < 4; e++) {
        const int i = j + e;
        if (i >= 4)
            break;
        float sum[2][4] = {}, block[2][4] = {};
        UNROLL(4)
        for (int d = 0; d < e; d++)
            multiply_split(sum, N[d], A + 16 * i * WIDTH + 16 * (j + d), WIDTH);
        multiply_split(block, as_left(sum), inverses + i * 16 * INVERSE, INVERSE);
        for (int n = 0; n < 8; n++)
            block[n / 4][n % 4] = -block[n / 4][n % 4];
        N[e] = as_left(block);
        for (int n = 0; n < 8; n++) {
            const int row = 8 * (n / 4) + pair() + n % 2, column = line() + n % 4 / 2 * 8;
            store(M + (16 * i + row) * WIDTH + 16 * j + column, block[n / 4][n % 4]);
        }
    }
}

/* r and r / |k| of all steps, two threads each. */
template <int N>
static __device__ void find_scales(const bf16 *K, float2 *scales)
{
    const bf16 *k = K + threadIdx.x / 2 * padded(N) + threadIdx.x % 2 * (N / 2);
    float squares = 0;
    UNROLL(8)
    for (int i = 0; i < N / 2; i += 8) {
        const uint4 eight = *(const uint4 *)(k + i);
        const unsigned pairs[] = {eight.x, eight.y, eight.z, eight.w};
        UNROLL(4)
        for (int j = 0; j < 4; j++) {
            squares = fmaf(first_of(pairs[j]), first_of(pairs[j]), squares);
            squares = fmaf(second_of(pairs[j]), second_of(pairs[j]), squares);
        }
    }
    squares += __shfl_xor_sync(0xffffffff, squares, 1);
    const float length = sqrtf(squares), r = 1 / (length + (float)E74_EPSILON);
    if (threadIdx.x % 2 == 0)
        scales[threadIdx.x / 2] = {r, length > 0 ? r / length : 0};
}

/* Of the warp's strip of (r X) (r K)^T the 16 columns from `first`, strictly
 * below the diagonal. */
static __device__ void put_A(float *A, const float (*sum)[4], const float2 *scales, int first)
{
    UNROLL(4)
    for (int i = 0; i < 4; i++) {
        const int t = 16 * warp() + line() + i % 2 * 8, s = first + i / 2 * 8 + pair();
        const float *x = sum[i / 2] + i % 2 * 2;
        const float one = x[0] * scales[t].x * scales[s].x;
        const float other = x[1] * scales[t].x * scales[s + 1].x;
        *(float2 *)(A + t * WIDTH + s) = {s < t ? one : 0, s + 1 < t ? other : 0};
    }
}

/* The rows from m of M or of P to global memory, up to the last block that is
 * not zero; nobody reads what is beyond. */
static __device__ __forceinline__ void store_lower(bf16 *to, const bf16 *from, int m)
{
    const int lane = threadIdx.x % 32, row = m + lane / 8, column = lane % 8 * 8;
    UNROLL(4)
    for (int i = 0; i < 16; i += 4)
        if (column < m + 16)
            *(uint4 *)(to + (row + i) * CHUNK + column) =
                *(const uint4 *)(from + (row + i) * WIDTH + column);
}

/* The strip from row m, column `first` of a square, all zero above its
 * diagonal; STRICTLY: on it as well. */
template <bool STRICTLY, int TILES>
static __device__ __forceinline__ void cut_triangle(float (*sum)[4], int m, int first)
{
    UNROLL(32)
    for (int i = 0; i < 4 * TILES; i++) {
        const int t = m + line() + i / 2 % 2 * 8, s = first + i / 4 * 8 + pair() + i % 2;
        if (STRICTLY ? s >= t : s > t)
            sum[i / 4][i % 4] = 0;
    }
}

/* What factor() has in shared memory. */
struct factor_memory {
    bf16 *K, *X, *Q;     /* [CHUNK][N] */
    bf16 *M, *P;         /* [CHUNK][CHUNK], in K's and Q's place */
    float *A, *inverses; /* [CHUNK][CHUNK], [4][16][16] */
    float2 *scales;      /* [CHUNK] */
};

/* Returns the bytes it takes. */
template <int N>
static __host__ __device__ __forceinline__ int carve(const plan &p, unsigned char *from,
                                                     factor_memory *w)
{
    const int keys = CHUNK * padded(N);
    bf16 *at = (bf16 *)from;

    w->K = w->M = at, at += keys;
    w->Q = w->P = at, at += keys;
    w->A = (float *)at, at += CHUNK * WIDTH * (sizeof(float) / sizeof(bf16));
    w->inverses = (float *)at, at += 4 * 16 * INVERSE * (sizeof(float) / sizeof(bf16));
    w->scales = (float2 *)at, at += CHUNK * (sizeof(float2) / sizeof(bf16));
    w->X = p.c.z ? at : w->K, at += p.c.z ? keys : 0;
    return (int)((unsigned char *)at - from);
}

/* From z in shared memory to z k, which others want, too. */
template <int N>
static __device__ __forceinline__ void find_X(const plan &p, const place &at, const bf16 *K,
                                              bf16 *X)
{
    UNROLL(1)
    for (int i = threadIdx.x; i < CHUNK * N / 8; i += THREADS) {
        int row, column;
        eight_of<N>(i, &row, &column);
        const bf16 *k = K + row * padded(N) + column;
        bf16 *x = X + row * padded(N) + column;
        for (int j = 0; j < 8; j += 2)
            *(unsigned *)(x + j) =
                pack(load(k + j) * load(x + j), load(k + j + 1) * load(x + j + 1));
        if (row < at.steps && column < p.c.N)
            *(uint4 *)(p.x + start(p, at) + row * p.c.BH * p.c.N + column) = *(const uint4 *)x;
    }
}

/* So many blocks of factor() at least have registers on a multiprocessor. */
static constexpr int factors(int N)
{
    return N > 64 ? 3 : 4;
}

template <int N>
__global__ void __launch_bounds__(THREADS, factors(N)) factor(plan p)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    const place at = own_place(p);
    bf16 *const to = p.factors + 2 * at.item * CHUNK * CHUNK;
    const int m = 16 * warp();
    factor_memory w;

    let_next_kernel_start();
    carve<N>(p, buffer, &w);
    bring_steps<N, THREADS>(p, at, w.K, p.c.k, 0);
    bring_steps<N, THREADS>(p, at, w.Q, p.c.q, 0);
    if (p.c.z)
        bring_steps<N, THREADS>(p, at, w.X, p.c.z, 0);
    cp_async_commit();
    cp_async_wait<0>();
    if (p.c.z)
        find_X<N>(p, at, w.K, w.X);
    __syncthreads();

    find_scales<N>(w.K, w.scales);
    float a[CHUNK / 8][4] = {}, q[CHUNK / 8][4] = {};
    UNROLL(4)
    for (int i = 0; i < CHUNK; i += 16)
        if (i <= m)
            multiply_both<RIGHT, 2, N>(a + i / 8, w.X, q + i / 8, w.Q, padded(N), m, w.K, padded(N),
                                       i);
    __syncthreads();
    UNROLL(4)
    for (int i = 0; i < CHUNK; i += 16)
        if (i <= m)
            put_A(w.A, a + i / 8, w.scales, i);
    cut_triangle<false, CHUNK / 8>(q, m, 0);
    put_strip<CHUNK / 8>(w.P, WIDTH, m, 0, q);
    if (threadIdx.x < CHUNK)
        p.scales[at.item * CHUNK + threadIdx.x] = w.scales[threadIdx.x];
    __syncwarp(); /* the warp's own: its strip of P, and its block on A's diagonal */
    store_lower(to + CHUNK * CHUNK, w.P, m);
    invert_block(w.A + m * (WIDTH + 1), w.inverses + warp() * 16 * INVERSE);
    __syncthreads();
    invert_column(w.A, w.inverses, w.M);
    __syncthreads();
    store_lower(to, w.M, m);
}

/* ---- a walker's state and operands ---- */

/* A walker's block is two crews of as many warps.  Of the chain's crew each warp
 * has a RUN of the state's columns; of a chunk's steps each warp of either makes
 * TILES tiles of a strip. */
template <int N, int SLICE>
struct shape {
    static constexpr int WARPS = N * SLICE > 64 * 64 ? 8 : 4, CREW = 32 * WARPS;
    static constexpr int RUN = N / WARPS, TILES = SLICE / 8 / (WARPS / 4);
};

/* So many walkers' blocks at least have registers on a multiprocessor. */
static constexpr int walkers(int N, int SLICE)
{
    return N * SLICE < 64 * 64 ? 2 : 1;
}

/* SLICE rows of a state, as a thread has them. */
template <int N, int SLICE>
struct slice {
    float x[SLICE / 16][shape<N, SLICE>::RUN / 8][4];
};

/* A warp's share of a chunk's rows: its steps from m, and its columns. */
struct share {
    int m, first;
};

static __device__ __forceinline__ share share_of(int tiles, int warp)
{
    return {warp % 4 * 16, warp / 4 * 8 * tiles};
}

/* Which state, and the first of its rows. */
struct rows {
    int64_t bh;
    int first;
};

static __device__ __forceinline__ rows rows_of(const plan &p, int count)
{
    return {blockIdx.x / p.slices, (int)(blockIdx.x % p.slices) * count};
}

/* A thread has so many pairs of neighbouring numbers of it. */
template <int N, int SLICE>
static constexpr __host__ __device__ int pairs(void)
{
    return SLICE / 16 * (shape<N, SLICE>::RUN / 8) * 2;
}

template <int N, int SLICE>
static __device__ __forceinline__ float *nth_pair(slice<N, SLICE> &S, int i)
{
    constexpr int TILES = shape<N, SLICE>::RUN / 8;
    return S.x[i / 2 / TILES][i / 2 % TILES] + i % 2 * 2;
}

/* Pair i's place in the slice. */
template <int N, int SLICE>
static __device__ __forceinline__ int pair_row(int i)
{
    return i / 2 / (shape<N, SLICE>::RUN / 8) * 16 + i % 2 * 8 + line();
}

template <int N, int SLICE>
static __device__ __forceinline__ int pair_column(int i)
{
    constexpr int RUN = shape<N, SLICE>::RUN;
    return warp() * RUN + i / 2 % (RUN / 8) * 8 + pair();
}

/* The place of a thread's first pair in its state. */
template <int N, int SLICE>
static __device__ __forceinline__ int first_element(const plan &p, const rows &r)
{
    const int lane = thread_again() % 32;
    return (r.first + lane / 4) * p.c.N + warp() * shape<N, SLICE>::RUN + lane % 4 * 2;
}

/* Pair i's, from there; -1 where the state has no such row or column. */
template <int N, int SLICE>
static __device__ __forceinline__ int pair_element(const plan &p, const rows &r, int first, int i)
{
    constexpr int RUN = shape<N, SLICE>::RUN;
    const int row = i / 2 / (RUN / 8) * 16, column = i / 2 % (RUN / 8) * 8;
    return r.first + row < p.c.N && warp() * RUN + column < p.c.N
               ? first + (row + i % 2 * 8) * p.c.N + column
               : -1;
}

/* `state` is a state's place among those of its kind: one for each (sequence,
 * head), for each of a checkpoint's, for each of a chunk's. */
template <int N, int SLICE>
static __device__ slice<N, SLICE> load_slice(const plan &p, const rows &r, const float *states,
                                             int64_t state)
{
    const int first = first_element<N, SLICE>(p, r);
    slice<N, SLICE> S;
    UNROLL(32)
    for (int i = 0; i < pairs<N, SLICE>(); i++) {
        const int e = pair_element<N, SLICE>(p, r, first, i);
        const float2 both = e < 0 ? float2{0, 0} : *(const float2 *)(states + state * p.c.M + e);
        nth_pair(S, i)[0] = both.x;
        nth_pair(S, i)[1] = both.y;
    }
    return S;
}

template <int N, int SLICE>
static __device__ __forceinline__ void store_slice(const plan &p, const rows &r, float *states,
                                                   int64_t state, slice<N, SLICE> &S)
{
    const int first = first_element<N, SLICE>(p, r);
    UNROLL(32)
    for (int i = 0; i < pairs<N, SLICE>(); i++) {
        const int e = pair_element<N, SLICE>(p, r, first, i);
        if (e >= 0)
            *(float2 *)(states + state * p.c.M + e) = {nth_pair(S, i)[0], nth_pair(S, i)[1]};
    }
}

/* Two numbers of a checkpoint. */
static __device__ __forceinline__ void keep_pair(const plan &p, int64_t state, int e,
                                                 const float *x)
{
    if (e < 0)
        return;
    if (p.c.kept == KEPT_F32) {
        *(float2 *)((float *)p.c.checkpoints + state * p.c.M + e) = {x[0], x[1]};
    } else {
        put_kept(p.c, state, e, x[0]);
        put_kept(p.c, state, e + 1, x[1]);
    }
}

template <int N, int SLICE>
static __device__ __forceinline__ void keep_slice(const plan &p, const rows &r, int64_t state,
                                                  slice<N, SLICE> &S)
{
    const int first = first_element<N, SLICE>(p, r);
    UNROLL(32)
    for (int i = 0; i < pairs<N, SLICE>(); i++)
        keep_pair(p, state, pair_element<N, SLICE>(p, r, first, i), nth_pair(S, i));
}

/* To shared memory as a factor. */
template <int N, int SLICE>
static __device__ __forceinline__ void put_slice(bf16 *to, slice<N, SLICE> &S)
{
    UNROLL(32)
    for (int i = 0; i < pairs<N, SLICE>(); i++)
        *(unsigned *)(to + pair_row<N, SLICE>(i) * padded(N) + pair_column<N, SLICE>(i)) =
            pack(nth_pair(S, i)[0], nth_pair(S, i)[1]);
}

/* From there to its place in a state in global memory, by the other crew. */
template <int N, int SLICE>
static __device__ __forceinline__ void store_factor(const plan &p, const rows &r, bf16 *state,
                                                    const bf16 *from)
{
    constexpr int CREW = shape<N, SLICE>::CREW, EACH = N / 8, ROWS = CREW / EACH;
    const int first = threadIdx.x % CREW / EACH, column = threadIdx.x % EACH * 8;
    UNROLL(8)
    for (int i = 0; i < SLICE; i += ROWS) {
        const int row = first + i;
        if ((ROWS <= SLICE || row < SLICE) && r.first + row < p.c.N && column < p.c.N)
            *(uint4 *)(state + (r.first + row) * p.c.N + column) =
                *(const uint4 *)(from + row * padded(N) + column);
    }
}

/* S += the sum of left_t right_t^T over the 16 steps from k on. */
template <int N, int SLICE>
static __device__ __forceinline__ void add_steps(slice<N, SLICE> &S, const bf16 *left,
                                                 const bf16 *right, int k)
{
    constexpr int RUN = shape<N, SLICE>::RUN;
    unsigned b[RUN / 16][4];
    UNROLL(2)
    for (int n = 0; n < RUN / 16; n++)
        take_right<false>(b[n], right, padded(N), k, warp() * RUN + 16 * n);
    UNROLL(4)
    for (int m = 0; m < SLICE / 16; m++) {
        unsigned a[4];
        take_left<true>(a, left, padded(SLICE), 16 * m, k);
        UNROLL(2)
        for (int n = 0; n < RUN / 16; n++) {
            mma_bf16(S.x[m][2 * n], a, b[n]);
            mma_bf16(S.x[m][2 * n + 1], a, b[n] + 2);
        }
    }
}

/* A checkpoint after `some` of these steps, maybe none; S stays.  Rare, so one
 * tile at a time, in few registers. */
template <int N, int SLICE>
static __device__ __forceinline__ void keep_between(const plan &p, const rows &r, int64_t state,
                                                    const slice<N, SLICE> &S, const bf16 *left,
                                                    const bf16 *right, int k, int some)
{
    constexpr int RUN = shape<N, SLICE>::RUN;
    const int first = first_element<N, SLICE>(p, r);
    UNROLL(32)
    for (int i = 0; i < pairs<N, SLICE>(); i += 2) {
        const int m = i / 2 / (RUN / 8), n = i / 2 % (RUN / 8);
        unsigned a[4], b[4];
        float sum[4];
        take_left<true>(a, left, padded(SLICE), 16 * m, k);
        take_right<false>(b, right, padded(N), k, warp() * RUN + n / 2 * 16);
        UNROLL(4)
        for (int j = 0; j < 4; j++) {
            const int step = pair() + j / 2 * 8;
            a[j] &= (step < some ? 0xffff : 0) | (step + 1 < some ? 0xffff0000 : 0);
            sum[j] = S.x[m][n][j];
        }
        mma_bf16(sum, a, b + n % 2 * 2);
        keep_pair(p, state, pair_element<N, SLICE>(p, r, first, i), sum);
        keep_pair(p, state, pair_element<N, SLICE>(p, r, first, i + 1), sum + 2);
    }
}

/* S += the sum over a chunk. */
template <int N, int SLICE>
static __device__ __forceinline__ void add_chunk(slice<N, SLICE> &S, const bf16 *left,
                                                 const bf16 *right)
{
    UNROLL(4)
    for (int k = 0; k < CHUNK; k += 16)
        add_steps(S, left, right, k);
}

/* The same where there are checkpoints in it. */
template <int N, int SLICE>
static __device__ __forceinline__ void add_and_keep(const plan &p, const rows &r,
                                                    slice<N, SLICE> &S, const bf16 *left,
                                                    const bf16 *right, int t, int *next, int *slot)
{
    UNROLL(1)
    for (int k = 0; k < CHUNK; k += 16) {
        for (; *next < min(t + k + 16, (int)p.c.T); *next += (int)p.c.K, ++*slot)
            keep_between(p, r, *slot * p.c.BH + r.bh, S, left, right, k, *next - t - k);
        add_steps(S, left, right, k);
    }
}

/* What a walker needs of a chunk, in shared memory for a few chunks each. */
struct operands {
    bf16 *K, *X, *Q; /* [CHUNK][N] */
    bf16 *M, *P;     /* [CHUNK][CHUNK] */
    bf16 *v, *y;     /* [CHUNK][SLICE]: v forward, y backward */
    bf16 *dy;        /* the same: dout, then dY; for one chunk more */
    float2 *scales;  /* [CHUNK] */
};

/* What the crews hand over, and how. */
template <int N, int SLICE>
struct hand_over {
    static constexpr int KEYS = CHUNK * padded(N), SQUARE = CHUNK * WIDTH,
                         VALUES = CHUNK * padded(SLICE), STATE = SLICE * padded(N);
    bf16 *state;   /* two of [SLICE][N]: S before, or G after a chunk, as a factor */
    bf16 *change;  /* two of [CHUNK][SLICE]: D, or E */
    bf16 *middle;  /* [CHUNK][SLICE], two backward: between two products of the chain */
    bf16 *leaving; /* the same, forward: results on their way */
    bf16 *stages, *dys;
};

/* Returns the numbers that one chunk takes. */
template <int N, int SLICE>
static __host__ __device__ __forceinline__ int carve(const plan &p, enum pass pass, bf16 *at,
                                                     operands *o)
{
    typedef hand_over<N, SLICE> h;
    bf16 *const from = at;

    o->K = at, at += h::KEYS;
    o->M = at, at += h::SQUARE;
    o->v = o->y = at, at += h::VALUES;
    o->scales = (float2 *)at, at += CHUNK * (sizeof(float2) / sizeof(bf16));
    o->P = at, at += pass == BACKWARD && tied_q(p) ? 0 : h::SQUARE;
    o->Q = tied_q(p) ? o->K : at, at += tied_q(p) ? 0 : h::KEYS;
    o->X = p.c.z ? at : o->K, at += p.c.z ? h::KEYS : 0;
    return (int)(at - from);
}

/* Returns the bytes of the block's memory. */
template <int N, int SLICE>
static __host__ __device__ __forceinline__ int carve(const plan &p, enum pass pass,
                                                     unsigned char *from, hand_over<N, SLICE> *w)
{
    typedef hand_over<N, SLICE> h;
    bf16 *at = (bf16 *)from;
    operands o;

    w->state = at, at += 2 * h::STATE;
    w->change = at, at += 2 * h::VALUES;
    w->middle = at, at += h::VALUES;
    w->leaving = at, at += h::VALUES;
    w->stages = at, at += p.stages * carve<N, SLICE>(p, pass, at, &o);
    w->dys = at, at += pass == BACKWARD ? (p.stages + 1) * h::VALUES : 0;
    return (int)((unsigned char *)at - from);
}

template <int N, int SLICE>
static __device__ __forceinline__ operands operands_of(const plan &p, enum pass pass,
                                                       const hand_over<N, SLICE> &w, int chunk)
{
    const unsigned nth = (unsigned)chunk % (unsigned)p.stages;
    operands o;
    const int size = carve<N, SLICE>(p, pass, w.stages, &o);
    carve<N, SLICE>(p, pass, w.stages + nth * size, &o);
    o.dy = w.dys + (unsigned)chunk % (unsigned)(p.stages + 1) * hand_over<N, SLICE>::VALUES;
    return o;
}

/* What a chunk begins with. */
template <int N, int SLICE>
static __device__ __forceinline__ void send_for(const plan &p, enum pass pass, const rows &r,
                                                const hand_over<N, SLICE> &w, int chunk)
{
    constexpr int CREW = shape<N, SLICE>::CREW;
    if (chunk < 0 || chunk >= p.chunks)
        return;
    const operands o = operands_of(p, pass, w, chunk);
    const place at = place_of(p, chunk, r.bh);
    bring_steps<N, CREW>(p, at, o.K, p.c.k, 0);
    if (!tied_q(p))
        bring_steps<N, CREW>(p, at, o.Q, p.c.q, 0);
    if (p.c.z)
        bring_steps<N, CREW>(p, at, o.X, p.x, 0);
    bring_factor<CREW>(p, at, M_OF, o.M);
    if (pass == BACKWARD && !tied_q(p))
        bring_factor<CREW>(p, at, P_OF, o.P);
    if (pass == FORWARD)
        bring_steps<SLICE, CREW>(p, at, o.v, p.c.v, r.first);
    bring_scales<CREW>(p, at, o.scales);
}

/* What is wanted of a chunk when the outputs of the one before it are made. */
template <int N, int SLICE>
static __device__ __forceinline__ void send_for_P(const plan &p, const rows &r,
                                                  const hand_over<N, SLICE> &w, int chunk)
{
    if (chunk >= 0 && chunk < p.chunks)
        bring_factor<shape<N, SLICE>::CREW>(p, place_of(p, chunk, r.bh), P_OF,
                                            operands_of(p, FORWARD, w, chunk).P);
}

template <int N, int SLICE>
static __device__ __forceinline__ void send_for_dout(const plan &p, const rows &r,
                                                     const hand_over<N, SLICE> &w, int chunk)
{
    constexpr int CREW = shape<N, SLICE>::CREW;
    if (chunk < 0)
        return;
    const operands o = operands_of(p, BACKWARD, w, chunk);
    const place at = place_of(p, chunk, r.bh);
    bring_steps<SLICE, CREW>(p, at, o.y, p.c.y, r.first);
    bring_steps<SLICE, CREW>(p, at, o.dy, p.c.dout, r.first);
}

/* What was sent for last may still be under way, but nothing before. */
static __device__ __forceinline__ void wait_for_one(const plan &p)
{
    if (p.stages == STAGES_MAX)
        cp_async_wait<STAGES_MAX - 2>();
    else
        cp_async_wait<0>();
}

/* A strip's rows, each times its own number. */
template <int TILES>
static __device__ __forceinline__ void scale_rows(float (*sum)[4], float one, float other)
{
    UNROLL(8)
    for (int tile = 0; tile < TILES; tile++) {
        sum[tile][0] *= one, sum[tile][1] *= one;
        sum[tile][2] *= other, sum[tile][3] *= other;
    }
}

/* The same from row m of a chunk, times r. */
template <int TILES>
static __device__ __forceinline__ void scale_rows(float (*sum)[4], const float2 *scales, int m)
{
    scale_rows<TILES>(sum, scales[m + line()].x, scales[m + line() + 8].x);
}

/* Pair i of a thread's part of a strip: its numbers, its place in a matrix of
 * CHUNK rows in shared memory, and that in a tensor [T][BH][N], -1 if there is
 * no such step or column. */
static __device__ __forceinline__ float *strip_pair(float (*sum)[4], int i)
{
    return sum[i / 2] + i % 2 * 2;
}

static __device__ __forceinline__ unsigned shared_pair(const bf16 *A, int apart, const share &s,
                                                       int i)
{
    const int row = s.m + line() + i % 2 * 8, column = s.first + i / 2 * 8 + pair();
    return *(const unsigned *)(A + row * apart + column);
}

/* Where a thread's pairs of a strip lie in a tensor [T][BH][N]. */
struct spots {
    int64_t first, further; /* its first; from there to the other row */
    int tiles[2];           /* of each row there are so many */
};

static __device__ __forceinline__ spots spots_of(const plan &p, const place &at, const share &s)
{
    const int t = s.m + line(), tiles = (p.c.N - s.first) / 8;
    const int64_t apart = p.c.BH * p.c.N;
    return {start(p, at) + t * apart + s.first + pair(),
            8 * apart,
            {t < at.steps ? tiles : 0, t + 8 < at.steps ? tiles : 0}};
}

static __device__ __forceinline__ bool has(const spots &at, int i)
{
    return i / 2 < at.tiles[i % 2];
}

static __device__ __forceinline__ int64_t element(const spots &at, int i)
{
    return at.first + i % 2 * at.further + i / 2 * 8;
}

static __device__ __forceinline__ unsigned load_pair(const void *tensor, int64_t e)
{
    return *(const unsigned *)((const bf16 *)tensor + e);
}

static __device__ __forceinline__ void store_pair(void *tensor, int64_t e, float one, float other)
{
    *(unsigned *)((bf16 *)tensor + e) = pack(one, other);
}

/* The warp's strip, from shared memory to where it is of a tensor. */
template <int TILES>
static __device__ __forceinline__ void store_strip(const plan &p, const place &at, const share &s,
                                                   const share &of_all, void *tensor,
                                                   const bf16 *from, int apart)
{
    constexpr int ROWS = 32 / TILES; /* at once */
    const int lane = thread_again() % 32, row = s.m + lane / TILES, column = lane % TILES * 8;
    const int64_t further = p.c.BH * p.c.N;
    bf16 *to = (bf16 *)tensor + start(p, at) + row * further + of_all.first + column;

    from += row * apart + s.first + column;
    UNROLL(4)
    for (int i = 0; i < 16; i += ROWS)
        if (row + i < at.steps && of_all.first + column < p.c.N)
            *(uint4 *)(to + i * further) = *(const uint4 *)(from + i * apart);
}

/* A strip's sums to a tensor, through the warp's own part of a matrix. */
template <int TILES>
static __device__ __forceinline__ void send_strip(const plan &p, const place &at, const share &s,
                                                  const share &of_all, void *tensor, bf16 *by,
                                                  int apart, const float (*sum)[4])
{
    __syncwarp();
    put_strip<TILES>(by, apart, s.m, s.first, sum);
    __syncwarp();
    store_strip<TILES>(p, at, s, of_all, tensor, by, apart);
}

/* A strip becomes another, of bf16, less it. */
template <int TILES>
static __device__ __forceinline__ void subtract_from(float (*sum)[4], const bf16 *A, int apart,
                                                     const share &s)
{
    UNROLL(16)
    for (int i = 0; i < 2 * TILES; i++) {
        const unsigned v = shared_pair(A, apart, s, i);
        float *x = strip_pair(sum, i);
        x[0] = first_of(v) - x[0];
        x[1] = second_of(v) - x[1];
    }
}

/* ---- forward ---- */

static __device__ __forceinline__ float sigmoid(float y)
{
    return reciprocal(1 + exp2_approx(-1.44269504f * y));
}

/* y and out. */
template <int TILES>
static __device__ __forceinline__ void send_outputs(const plan &p, const place &at, const share &s,
                                                    const share &of_all, bf16 *by, int apart,
                                                    float (*y)[4])
{
    send_strip<TILES>(p, at, s, of_all, p.c.y, by, apart, y);
    UNROLL(32)
    for (int i = 0; i < 4 * TILES; i++)
        y[i / 4][i % 4] *= y[i / 4][i % 4] * sigmoid(y[i / 4][i % 4]);
    send_strip<TILES>(p, at, s, of_all, p.c.out, by, apart, y);
}

/* The chain of all chunks: Delta, and S. */
template <int N, int SLICE>
static __device__ __forceinline__ void lead_forward(const plan &p, const rows &r,
                                                    const hand_over<N, SLICE> &w)
{
    typedef hand_over<N, SLICE> h;
    constexpr int TILES = shape<N, SLICE>::TILES, WARPS = shape<N, SLICE>::WARPS;
    constexpr int APART = padded(SLICE);
    const share s = share_of(TILES, warp());
    const int m = s.m, n = s.first;
    slice<N, SLICE> S = load_slice<N, SLICE>(p, r, p.c.first, r.bh);
    int next = p.states ? (int)p.c.T : 0, slot = 0; /* of a checkpoint: its step, and its place */

    for (int chunk = 0; chunk < p.chunks; chunk++) {
        const int t = chunk * CHUNK;
        const operands o = operands_of(p, FORWARD, w, chunk);
        bf16 *const state = w.state + chunk % 2 * h::STATE;
        bf16 *const D = w.change + chunk % 2 * h::VALUES;
        float reads[TILES][4] = {}, d[TILES][4] = {};

        put_slice(state, S);
        block_barrier();
        multiply<RIGHT, TILES, N>(reads, o.X, padded(N), m, state, padded(N), n);
        scale_rows<TILES>(reads, o.scales, m);
        subtract_from<TILES>(reads, o.v, APART, s);
        put_strip<TILES>(w.middle, APART, m, n, reads);
        crew_barrier<WARPS>();
        multiply<NEITHER, TILES, CHUNK>(d, o.M, WIDTH, m, w.middle, APART, n, 0, m + 16);
        scale_rows<TILES>(d, o.scales, m);
        put_strip<TILES>(D, APART, m, n, d);
        crew_barrier<WARPS>();
        if (next == t) {
            keep_slice(p, r, slot++ * p.c.BH + r.bh, S);
            next += (int)p.c.K;
        }
        if (next < min(t + CHUNK, (int)p.c.T))
            add_and_keep(p, r, S, D, o.K, t, &next, &slot);
        else
            add_chunk(S, D, o.K);
    }
    block_barrier();
    if (!p.states)
        store_slice(p, r, p.c.last, r.bh, S);
}

/* What the chain waits for, a chunk or two ahead; and a chunk's outputs, half of
 * which are made while the chain is at the same chunk, the rest while it is at
 * the next one. */
template <int N, int SLICE>
static __device__ __forceinline__ void serve_forward(const plan &p, const rows &r,
                                                     const hand_over<N, SLICE> &w)
{
    typedef hand_over<N, SLICE> h;
    constexpr int TILES = shape<N, SLICE>::TILES, WARPS = shape<N, SLICE>::WARPS;
    constexpr int APART = padded(SLICE);
    const share s = share_of(TILES, warp() % WARPS), of_all = {s.m, r.first + s.first};
    const int m = s.m, n = s.first;
    float y[TILES][4];

    wait_for_kernel_before();
    let_next_kernel_start();
    for (int i = 0; i < p.stages - 1; i++) {
        send_for(p, FORWARD, r, w, i);
        send_for_P(p, r, w, i - 1);
        cp_async_commit();
    }
    for (int chunk = 0;; chunk++) {
        wait_for_one(p);
        block_barrier();
        send_for(p, FORWARD, r, w, chunk + p.stages - 1);
        send_for_P(p, r, w, chunk + p.stages - 2);
        cp_async_commit();
        if (chunk > 0 && !p.states) {
            multiply<NEITHER, TILES, CHUNK>(y, operands_of(p, FORWARD, w, chunk - 1).P, WIDTH, m,
                                            w.change + (chunk - 1) % 2 * h::VALUES, APART, n, 0,
                                            m + 16);
            send_outputs<TILES>(p, place_of(p, chunk - 1, r.bh), s, of_all, w.leaving, APART, y);
        }
        if (chunk == p.chunks)
            return;
        const bf16 *const state = w.state + chunk % 2 * h::STATE;
        if (p.states) {
            store_factor<N, SLICE>(p, r, p.states + place_of(p, chunk, r.bh).item * p.c.M, state);
            continue;
        }
        for (int i = 0; i < 4 * TILES; i++)
            y[i / 4][i % 4] = 0;
        multiply<RIGHT, TILES, N>(y, operands_of(p, FORWARD, w, chunk).Q, padded(N), m, state,
                                  padded(N), n);
    }
}

/* With p.states it leaves those, just as they were in forward, and no more. */
template <int N, int SLICE>
__global__ void __launch_bounds__((2 * shape<N, SLICE>::CREW), walkers(N, SLICE))
    walk_forward(plan p)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    const rows r = rows_of(p, SLICE);
    hand_over<N, SLICE> w;

    carve(p, FORWARD, buffer, &w);
    if (threadIdx.x < shape<N, SLICE>::CREW)
        lead_forward(p, r, w);
    else
        serve_forward(p, r, w);
}

/* ---- backward ---- */

/* sum += the strip's rows of A, each times its own number. */
template <int TILES>
static __device__ __forceinline__ void add_rows(float (*sum)[4], const bf16 *A, int apart,
                                                const share &s, float one, float other)
{
    UNROLL(16)
    for (int i = 0; i < 2 * TILES; i++) {
        const unsigned x = shared_pair(A, apart, s, i);
        const float times = i % 2 ? other : one;
        float *to = strip_pair(sum, i);
        to[0] = fmaf(times, first_of(x), to[0]);
        to[1] = fmaf(times, second_of(x), to[1]);
    }
}

/* (1 - r^2 |k|^2) / r, less its sign: what the diagonal of r P r lacks to 1. */
static __device__ __forceinline__ float short_of_one(float r)
{
    return (float)E74_EPSILON * fmaf((float)E74_EPSILON, r, -2.0f);
}

/* E is dv: in float where v is k and more is to be added. */
template <int TILES>
static __device__ __forceinline__ void put_float(const plan &p, const place &at, const share &s,
                                                 float (*E)[4])
{
    const spots own = spots_of(p, at, s);
    UNROLL(16)
    for (int i = 0; i < 2 * TILES; i++)
        if (has(own, i))
            *(float2 *)(p.dv + element(own, i)) = {strip_pair(E, i)[0], strip_pair(E, i)[1]};
}

/* Eight dout in shared memory become dY. */
static __device__ __forceinline__ void through_gate(bf16 *dout, const bf16 *y)
{
    UNROLL(4)
    for (int i = 0; i < 8; i += 2) {
        float dy[2];
        for (int j = 0; j < 2; j++) {
            const float yi = load(y + i + j), gate = sigmoid(yi);
            dy[j] = load(dout + i + j) * yi * gate * fmaf(yi, 1 - gate, 2.0f);
        }
        *(unsigned *)(dout + i) = pack(dy[0], dy[1]);
    }
}

/* A chunk's dout become dY: each thread those that it has sent for.  finish()
 * wants them, too. */
template <int N, int SLICE>
static __device__ __forceinline__ void through_gates(const plan &p, const rows &r,
                                                     const hand_over<N, SLICE> &w, int chunk)
{
    constexpr int CREW = shape<N, SLICE>::CREW;
    const operands o = operands_of(p, BACKWARD, w, chunk);
    const place at = place_of(p, chunk, r.bh);
    UNROLL(4)
    for (int i = 0; i < CHUNK * SLICE / 8; i += CREW) {
        int row, column;
        eight_of<SLICE>(i + threadIdx.x % CREW, &row, &column);
        bf16 *const dy = o.dy + row * padded(SLICE) + column;
        through_gate(dy, o.y + row * padded(SLICE) + column);
        if (row < at.steps && r.first + column < p.c.N)
            *(uint4 *)(p.dy + start(p, at) + row * p.c.BH * p.c.N + r.first + column) =
                *(const uint4 *)dy;
    }
}

/* The chain of all chunks, from the last: E, and G. */
template <int N, int SLICE>
static __device__ __forceinline__ void lead_backward(const plan &p, const rows &r,
                                                     const hand_over<N, SLICE> &w)
{
    typedef hand_over<N, SLICE> h;
    constexpr int TILES = shape<N, SLICE>::TILES, WARPS = shape<N, SLICE>::WARPS;
    constexpr int APART = padded(SLICE);
    const share s = share_of(TILES, warp()), of_all = {s.m, r.first + s.first};
    const int m = s.m, n = s.first;
    bf16 *const ddelta = w.middle, *const minus_F = w.leaving;
    slice<N, SLICE> G = load_slice<N, SLICE>(p, r, p.c.dlast, r.bh);

    for (int chunk = p.chunks - 1; chunk >= 0; chunk--) {
        const operands o = operands_of(p, BACKWARD, w, chunk);
        bf16 *const state = w.state + chunk % 2 * h::STATE;
        float sum[TILES][4] = {}, E[TILES][4] = {}, F[TILES][4];

        put_slice(state, G);
        block_barrier();
        const float one = o.scales[m + line()].x, other = o.scales[m + line() + 8].x;
        if (!tied_q(p))
            multiply<LEFT, TILES, CHUNK>(sum, o.P, WIDTH, m, o.dy, APART, n, m);
        multiply<RIGHT, TILES, N>(sum, o.K, padded(N), m, state, padded(N), n);
        scale_rows<TILES>(sum, one, other);
        if (tied_q(p))
            add_rows<TILES>(sum, o.dy, APART, s, short_of_one(one), short_of_one(other));
        put_strip<TILES>(ddelta, APART, m, n, sum);
        if (!tied_q(p))
            add_chunk(G, o.dy, o.Q);
        crew_barrier<WARPS>();
        multiply<LEFT, TILES, CHUNK>(E, o.M, WIDTH, m, ddelta, APART, n, m);
        UNROLL(32)
        for (int i = 0; i < 4 * TILES; i++)
            F[i / 4][i % 4] = E[i / 4][i % 4];
        scale_rows<TILES>(F, -one, -other);
        put_strip<TILES>(minus_F, APART, m, n, F);
        crew_barrier<WARPS>();
        add_chunk(G, minus_F, o.X);
        if (tied_q(p))
            add_rows<TILES>(E, o.dy, APART, s, 1 / one, 1 / other);
        if (p.dv)
            put_float<TILES>(p, place_of(p, chunk, r.bh), of_all, E);
        else
            put_strip<TILES>(w.change + chunk % 2 * h::VALUES, APART, m, n, E);
    }
    block_barrier();
    store_slice(p, r, p.c.dfirst, r.bh, G);
}

/* What the chain waits for, dY not least; and what it has found to global
 * memory. */
template <int N, int SLICE>
static __device__ __forceinline__ void serve_backward(const plan &p, const rows &r,
                                                      const hand_over<N, SLICE> &w)
{
    typedef hand_over<N, SLICE> h;
    constexpr int TILES = shape<N, SLICE>::TILES, WARPS = shape<N, SLICE>::WARPS;
    const share s = share_of(TILES, warp() % WARPS), of_all = {s.m, r.first + s.first};

    wait_for_kernel_before();
    let_next_kernel_start();
    send_for_dout(p, r, w, p.chunks - 1);
    cp_async_commit();
    for (int i = 1; i < p.stages; i++) {
        send_for(p, BACKWARD, r, w, p.chunks - i);
        send_for_dout(p, r, w, p.chunks - i - 1);
        cp_async_commit();
    }
    wait_for_one(p);
    through_gates(p, r, w, p.chunks - 1);
    for (int chunk = p.chunks - 1;; chunk--) {
        wait_for_one(p);
        block_barrier();
        send_for(p, BACKWARD, r, w, chunk - p.stages + 1);
        send_for_dout(p, r, w, chunk - p.stages);
        cp_async_commit();
        if (chunk + 1 < p.chunks && !p.dv)
            store_strip<TILES>(p, place_of(p, chunk + 1, r.bh), s, of_all, p.c.dv,
                               w.change + (chunk + 1) % 2 * h::VALUES, padded(SLICE));
        if (chunk < 0)
            return;
        if (chunk > 0)
            through_gates(p, r, w, chunk - 1);
        store_factor<N, SLICE>(p, r, p.dstates + place_of(p, chunk, r.bh).item * p.c.M,
                               w.state + chunk % 2 * h::STATE);
    }
}

template <int N, int SLICE>
__global__ void __launch_bounds__((2 * shape<N, SLICE>::CREW), walkers(N, SLICE))
    walk_backward(plan p)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    const rows r = rows_of(p, SLICE);
    hand_over<N, SLICE> w;

    carve(p, BACKWARD, buffer, &w);
    if (threadIdx.x < shape<N, SLICE>::CREW)
        lead_backward(p, r, w);
    else
        serve_backward(p, r, w);
}

/* ---- the keys' gradients ---- */

enum { STRIP = 64, TILES = STRIP / 8 /* the columns of a warp of finish() */ };

/* For each 64 columns, a warp for each 16 steps. */
static constexpr __host__ __device__ int finish_threads(int N)
{
    return N / STRIP * THREADS;
}

/* Where more than one matrix is named, the later takes the earlier's place. */
struct chunk_memory {
    bf16 *K, *X;     /* [CHUNK][N] */
    bf16 *D;         /* [CHUNK][N]: v, V - r X S^T, D, and then results on their way */
    bf16 *dY, *Q;    /* [CHUNK][N] */
    bf16 *E, *a;     /* [CHUNK][N], [CHUNK][CHUNK] */
    bf16 *S, *G;     /* [N][N] */
    bf16 *M, *lower; /* [CHUNK][CHUNK]: M, p */
    float2 *scales;  /* [CHUNK] */
    float *along;    /* [N / STRIP][CHUNK] */
};

/* Returns the bytes it takes: what lets FINISHERS blocks be resident, where
 * there is no z. */
template <int N>
static __host__ __device__ int carve(const plan &p, unsigned char *from, chunk_memory *w)
{
    const int keys = CHUNK * padded(N), state = N * padded(N), square = CHUNK * WIDTH;
    bf16 *at = (bf16 *)from;

    w->K = at, at += keys;
    w->D = at, at += keys;
    w->dY = at, at += keys;
    w->Q = tied_q(p) ? w->K : w->dY;
    w->E = w->a = at, at += keys;
    w->S = w->G = at, at += state;
    w->M = w->lower = at, at += square;
    w->scales = (float2 *)at, at += CHUNK * (sizeof(float2) / sizeof(bf16));
    w->along = (float *)at, at += N / STRIP * CHUNK * (sizeof(float) / sizeof(bf16));
    w->X = p.c.z ? at : w->K, at += p.c.z ? keys : 0;
    return (int)((unsigned char *)at - from);
}

/* A state. */
template <int N>
static __device__ __forceinline__ void bring_state(const plan &p, bf16 *to, const bf16 *from)
{
    bring<N, finish_threads(N), N>(to, from, p.c.N, p.c.N, p.c.N);
}

template <int N, typename T>
static __device__ __forceinline__ void bring_state(const plan &p, bf16 *to, const T *from)
{
    bring_rounded<N, finish_threads(N), N>(to, from, p.c.N, p.c.N, p.c.N);
}

/* The state before the chunk. */
template <int N>
static __device__ __forceinline__ void bring_first(const plan &p, const place &at, bf16 *S)
{
    const int64_t kept = (at.t / CHUNK * p.kept * p.c.BH + at.bh) * p.c.M;

    if (p.states)
        bring_state<N>(p, S, p.states + at.item * p.c.M);
    else if (p.c.kept == KEPT_F32)
        bring_state<N>(p, S, (const float *)p.c.checkpoints + kept);
    else if (p.c.kept == KEPT_BF16)
        bring_state<N>(p, S, (const bf16 *)p.c.checkpoints + kept);
    else
        bring_state<N>(p, S, (const __half *)p.c.checkpoints + kept);
}

/* dv, where that is kept in float. */
template <int N>
static __device__ __forceinline__ void bring_float(const plan &p, const place &at, bf16 *E)
{
    bring_rounded<N, finish_threads(N), CHUNK>(E, p.dv + start(p, at), p.c.BH * p.c.N, at.steps,
                                               p.c.N);
}

/* p = lower part of dY D^T and a = strictly lower part of -r E D^T: of the
 * warp's strip those 16 x 16 blocks that are its own, up to the diagonal's;
 * nobody reads the others.  a waits until all have read E. */
template <int N>
static __device__ __forceinline__ void put_triangles(const chunk_memory &w, int m)
{
    constexpr int STEP = 16 * (N / STRIP), BLOCKS = CHUNK / STEP;
    const int first = warp() / 4 * 16;
    unsigned held[BLOCKS][4];

    UNROLL(4)
    for (int i = 0; i < BLOCKS; i++) {
        const int column = first + i * STEP;
        float part[2][4] = {}, strict[2][4] = {};
        if (column > m)
            break;
        multiply_both<RIGHT, 2, N>(part, w.dY, strict, w.E, padded(N), m, w.D, padded(N), column);
        cut_triangle<false, 2>(part, m, column);
        put_strip<2>(w.lower, WIDTH, m, column, part);
        cut_triangle<true, 2>(strict, m, column);
        scale_rows<2>(strict, -w.scales[m + line()].x, -w.scales[m + line() + 8].x);
        for (int j = 0; j < 4; j++)
            held[i][j] = pack(strict[j / 2][j % 2 * 2], strict[j / 2][j % 2 * 2 + 1]);
    }
    if (N > STRIP)
        __syncthreads();
    else
        __syncwarp(); /* nobody else reads this strip of E */
    UNROLL(4)
    for (int i = 0; i < BLOCKS; i++) {
        const int column = first + i * STEP;
        if (column > m)
            break;
        for (int j = 0; j < 4; j++) {
            const int row = m + line() + j % 2 * 8;
            *(unsigned *)(w.a + row * WIDTH + column + j / 2 * 8 + pair()) = held[i][j];
        }
    }
}

/* r du in dkey becomes what it adds to r dk^; dz is stored. */
static __device__ __forceinline__ void through_z(const plan &p, const place &at, const bf16 *K,
                                                 int apart, const share &s, float (*dkey)[4])
{
    const spots own = spots_of(p, at, s);
    UNROLL(16)
    for (int i = 0; i < 2 * TILES; i++) {
        if (!has(own, i))
            continue;
        const int64_t e = element(own, i);
        const unsigned z = load_pair(p.c.z, e), k = shared_pair(K, apart, s, i);
        float *du = strip_pair(dkey, i);
        store_pair(p.c.dz, e, du[0] * first_of(k), du[1] * second_of(k));
        du[0] *= first_of(z);
        du[1] *= second_of(z);
    }
}

/* <k, r dk^> r / |k| of the thread's two steps; where two warps share a strip,
 * all have come to the end of their products. */
template <int N>
static __device__ __forceinline__ void find_along(const chunk_memory &w, const share &s,
                                                  float (*dkey)[4], float along[2])
{
    along[0] = along[1] = 0;
    UNROLL(16)
    for (int i = 0; i < 2 * TILES; i++) {
        const unsigned k = shared_pair(w.K, padded(N), s, i);
        along[i % 2] = fmaf(first_of(k), strip_pair(dkey, i)[0], along[i % 2]);
        along[i % 2] = fmaf(second_of(k), strip_pair(dkey, i)[1], along[i % 2]);
    }
    UNROLL(2)
    for (int h = 0; h < 2; h++) {
        along[h] += __shfl_xor_sync(0xffffffff, along[h], 1);
        along[h] += __shfl_xor_sync(0xffffffff, along[h], 2);
        if (N > STRIP && pair() == 0)
            w.along[s.first / STRIP * CHUNK + s.m + line() + 8 * h] = along[h];
    }
    if (N > STRIP)
        __syncthreads();
    UNROLL(2)
    for (int h = 0; h < 2; h++) {
        const int t = s.m + line() + 8 * h;
        if (N > STRIP)
            along[h] = w.along[t] + w.along[CHUNK + t];
        along[h] *= w.scales[t].y;
    }
}

/* dv, kept in float, joins dk. */
static __device__ __forceinline__ void add_dv(const plan &p, const place &at, const share &s,
                                              float (*dkey)[4])
{
    const spots own = spots_of(p, at, s);
    UNROLL(16)
    for (int i = 0; i < 2 * TILES; i++) {
        if (!has(own, i))
            continue;
        const float2 dv = *(const float2 *)(p.dv + element(own, i));
        strip_pair(dkey, i)[0] += dv.x;
        strip_pair(dkey, i)[1] += dv.y;
    }
}

/* From r dk^ to dk; dq joins it where q is k. */
static __device__ __forceinline__ void complete_keys(const plan &p, const bf16 *K, int apart,
                                                     const share &s, const float along[2],
                                                     float (*dkey)[4], float (*dq)[4])
{
    UNROLL(16)
    for (int i = 0; i < 2 * TILES; i++) {
        const unsigned k = shared_pair(K, apart, s, i);
        float *x = strip_pair(dkey, i);
        x[0] = fmaf(-along[i % 2], first_of(k), x[0]);
        x[1] = fmaf(-along[i % 2], second_of(k), x[1]);
        if (!p.c.dq) {
            x[0] += strip_pair(dq, i)[0];
            x[1] += strip_pair(dq, i)[1];
        }
    }
}

/* So many blocks of finish() at least fit on a multiprocessor. */
static constexpr int finishers(int N)
{
    return N > STRIP ? 2 : 4;
}

template <int N>
__global__ void __launch_bounds__(finish_threads(N), finishers(N)) finish(plan p)
{
    extern __shared__ __align__(16) unsigned char buffer[];
    constexpr int ALL = finish_threads(N), APART = padded(N);
    const place at = own_place(p);
    const share s = share_of(TILES, warp());
    const int m = s.m, first = s.first;
    chunk_memory w;

    carve<N>(p, buffer, &w);
    wait_for_kernel_before();
    bring_steps<N, ALL>(p, at, w.K, p.c.k, 0);
    if (p.c.z)
        bring_steps<N, ALL>(p, at, w.X, p.x, 0);
    bring_steps<N, ALL>(p, at, w.D, p.c.v, 0);
    bring_factor<ALL>(p, at, M_OF, w.M);
    bring_scales<ALL>(p, at, w.scales);
    bring_first<N>(p, at, w.S);
    cp_async_commit();
    bring_steps<N, ALL>(p, at, w.dY, p.dy, 0);
    if (p.dv)
        bring_float<N>(p, at, w.E);
    else
        bring_steps<N, ALL>(p, at, w.E, p.c.dv, 0);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();

    float reads[TILES][4] = {}, d[TILES][4] = {};
    multiply<RIGHT, TILES, N>(reads, w.X, APART, m, w.S, APART, first);
    scale_rows<TILES>(reads, w.scales, m);
    subtract_from<TILES>(reads, w.D, APART, s);
    put_strip<TILES>(w.D, APART, m, first, reads);
    __syncthreads();
    multiply<NEITHER, TILES, CHUNK>(d, w.M, WIDTH, m, w.D, APART, first, 0, m + 16);
    scale_rows<TILES>(d, w.scales, m);
    cp_async_wait<0>();
    __syncthreads(); /* M has been read, and what D takes the place of */
    put_strip<TILES>(w.D, APART, m, first, d);
    float dkey[TILES][4] = {}, dq[TILES][4] = {}, along[2];
    multiply_both<NEITHER, TILES, N>(dkey, w.E, dq, w.dY, APART, m, w.S, APART, first);
    scale_rows<TILES>(dkey, -w.scales[m + line()].x, -w.scales[m + line() + 8].x);
    __syncthreads();
    bring_state<N>(p, w.G, p.dstates + at.item * p.c.M);
    cp_async_commit();

    put_triangles<N>(w, m);
    __syncthreads();
    if (!tied_q(p))
        bring_steps<N, ALL>(p, at, w.Q, p.c.q, 0);
    cp_async_commit();
    multiply_both<NEITHER, TILES, CHUNK>(dq, w.lower, dkey, w.a, WIDTH, m, w.K, APART, first,
                                         m + 16);
    if (p.c.z)
        through_z(p, at, w.K, APART, s, dkey);
    multiply<LEFT, TILES, CHUNK>(dkey, w.a, WIDTH, m, w.X, APART, first, m);
    cp_async_wait<0>();
    __syncthreads();
    multiply<NEITHER, TILES, N>(dkey, w.D, APART, m, w.G, APART, first);
    multiply<LEFT, TILES, CHUNK>(dkey, w.lower, WIDTH, m, w.Q, APART, first, m);
    find_along<N>(w, s, dkey, along);
    complete_keys(p, w.K, APART, s, along, dkey, dq);
    if (p.dv)
        add_dv(p, at, s, dkey);
    if (p.c.dq)
        send_strip<TILES>(p, at, s, s, p.c.dq, w.D, APART, dq);
    send_strip<TILES>(p, at, s, s, p.c.dk, w.D, APART, dkey);
}

/* ---- launches ---- */

/* The parts of the workspace; returns its bytes. */
static size_t divide(plan *p, enum pass pass, bool tied_v, char *work)
{
    const call &c = p->c;
    const size_t items = p->chunks * c.BH, all = c.T * c.BH * c.N;
    size_t n = 0;

    p->factors = (bf16 *)(work + n), n += items * 2 * CHUNK * CHUNK * sizeof(bf16);
    p->scales = (float2 *)(work + n), n += items * CHUNK * sizeof(float2);
    p->x = (bf16 *)(c.z_inside ? work + n : NULL), n += c.z_inside ? all * sizeof(bf16) : 0;
    if (pass == FORWARD)
        return n;
    p->dstates = (bf16 *)(work + n), n += items * c.M * sizeof(bf16);
    p->dy = (bf16 *)(work + n), n += all * sizeof(bf16);
    if (tied_v)
        p->dv = (float *)(work + n), n += all * sizeof(float);
    if (CHUNK % c.K && p->chunks > 1)
        p->states = (bf16 *)(work + n), n += items * c.M * sizeof(bf16);
    return n;
}

static plan plan_of(const struct frame *f, enum pass pass, size_t *bytes)
{
    plan p = {};
    p.c = call_of(f);
    p.chunks = (int)ceil_div(p.c.T, CHUNK);
    p.kept = (int)(CHUNK / p.c.K);
    *bytes = divide(&p, pass, f->choice[E74_PROJ] == E74_TIED_KVQ, (char *)f->work);
    return p;
}

/* All of a pass's kernels but its first start early. */
static cudaError_t launch(void (*kernel)(plan), const plan &p, int64_t blocks, int threads,
                          int shared, bool first = false)
{
    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    if (!first)
        return launch_early(kernel, (unsigned)blocks, threads, shared, p);
    kernel<<<blocks, threads, shared, gpu_stream()>>>(p);
    return cudaGetLastError();
}

/* Does a walker of so many rows have room for all that it needs? */
template <int N, int SLICE>
static bool fits(plan p, enum pass pass)
{
    hand_over<N, SLICE> w;
    p.stages = 2;
    return carve(p, pass, NULL, &w) <= SHARED_MAX;
}

template <int N, int SLICE>
static cudaError_t walk(plan p, enum pass pass)
{
    hand_over<N, SLICE> w;
    p.slices = (int)ceil_div(p.c.N, SLICE);
    const int64_t blocks = p.c.BH * p.slices;
    const int most = blocks > BLOCKS_MIN && walkers(N, SLICE) > 1 ? SHARED_OF_TWO : SHARED_MAX;
    p.stages = STAGES_MAX;
    if (carve(p, pass, NULL, &w) > most)
        p.stages = 2;
    return launch(pass == FORWARD ? walk_forward<N, SLICE> : walk_backward<N, SLICE>, p, blocks,
                  2 * shape<N, SLICE>::CREW, carve(p, pass, NULL, &w));
}

template <int N>
static cudaError_t walk(const plan &p, enum pass pass)
{
    if (p.c.BH * ceil_div(p.c.N, 64) >= BLOCKS_MIN && fits<N, 64>(p, pass))
        return walk<N, 64>(p, pass);
    if (p.c.BH * ceil_div(p.c.N, 32) >= BLOCKS_MIN)
        return walk<N, 32>(p, pass);
    return walk<N, 16>(p, pass);
}

template <int N>
static int run(const plan &p, enum pass pass)
{
    const int64_t items = p.chunks * p.c.BH;
    factor_memory f;
    chunk_memory w;

    CUDA(launch(factor<N>, p, items, THREADS, carve<N>(p, NULL, &f), true));
    if (pass == FORWARD)
        return walk<N>(p, FORWARD);
    if (p.states)
        CUDA(walk<N>(p, FORWARD));
    CUDA(walk<N>(p, BACKWARD));
    return launch(finish<N>, p, items, finish_threads(N), carve<N>(p, NULL, &w));
}

static int run(const struct frame *f, enum pass pass)
{
    size_t bytes;
    const plan p = plan_of(f, pass, &bytes);
    return p.c.N <= 64 ? run<64>(p, pass) : run<128>(p, pass);
}

static int forward(const struct frame *f)
{
    return run(f, FORWARD);
}

static int backward(const struct frame *f)
{
    return run(f, BACKWARD);
}

static size_t work(const struct frame *f, enum pass pass)
{
    size_t bytes;
    plan_of(f, pass, &bytes);
    return bytes;
}

static const char *declines(const struct frame *f)
{
    const call c = call_of(f);
    const char *no = e74_plain16.declines(f);
    if (no)
        return no;
    if (f->choice[E74_STATE] != E74_FULL)
        return "only for state = full";
    if (c.nonlin != E74_LINEAR)
        return "only for nonlin = linear: otherwise steps cannot be taken together";
    if (c.z_outside)
        return "z on the row side has no chunked form: each row of a state would have its own "
               "triangular system";
    if (c.N % 16 || c.N > 128)
        return "only for n_state a multiple of 16, up to 128";
    return NULL;
}

extern "C" const struct impl e74_chunked16 = {"chunked",
                                              "64 steps at once, products on tensor cores",
                                              {forward, backward},
                                              work,
                                              declines,
                                              "bf16 factors",
                                              0x1p-8,
                                              CHUNK};
