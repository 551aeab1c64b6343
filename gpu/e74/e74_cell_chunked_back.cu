/* e74_cell, kernel `chunked`, the way back: the walk of G, and the keys' gradients.
 * The idea is in e74_cell_chunked.cu. */
#include "gpu/device/async.cuh"
#include "gpu/device/cluster.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/device/opaque.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/e74/e74_cell_chunked.cuh"

/* ---- backward ---- */

template <int N, int SLICE>
static __device__ __forceinline__ void send_for_dout(const plan &p, const rows &r,
                                                     const hand_over<N, SLICE> &w, int chunk)
{
    constexpr int CREW = shape<N, SLICE>::CREW;
    if (chunk < r.begin)
        return;
    const operands o = operands_of(p, BACKWARD, w, chunk);
    const place at = map_shared_rank(p, chunk, r.bh);
    bring_steps<SLICE, CREW>(p, at, o.y, p.c.y, r.first, columns_of(p, r));
    bring_steps<SLICE, CREW>(p, at, o.dy, p.c.dout, r.first, columns_of(p, r));
}

/* Where a thread's pairs of a strip lie in a tensor [T][BH][N]. */
struct spots {
    int64_t first, further; /* its first; from there to the other row */
    int tiles[2];           /* of each row there are so many */
};

static __device__ __forceinline__ spots spots_of(const plan &p, const place &at, const share &s)
{
    const int t = s.m + fragment_row(), tiles = (p.c.N - s.first) / 8;
    const int64_t apart = p.c.BH * p.c.N;
    return {start(p, at) + t * apart + s.first + fragment_column(),
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
    *(unsigned *)((bf16 *)tensor + e) = pack_bf16x2(one, other);
}

/* sum += the strip's rows of A, each times its own number. */
template <int TILES>
static __device__ __forceinline__ void add_rows(float (*sum)[4], const bf16 *A, int apart,
                                                const share &s, float one, float other)
{
    #pragma unroll 16
    for (int i = 0; i < 2 * TILES; i++) {
        const unsigned x = shared_pair(A, apart, s, i);
        const float times = i % 2 ? other : one;
        float *to = strip_pair(sum, i);
        to[0] = fmaf(times, low_of_pair(x), to[0]);
        to[1] = fmaf(times, high_of_pair(x), to[1]);
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
    #pragma unroll 16
    for (int i = 0; i < 2 * TILES; i++)
        if (has(own, i))
            *(float2 *)(p.dv + element(own, i)) = {strip_pair(E, i)[0], strip_pair(E, i)[1]};
}

/* Eight dout in shared memory become dY. */
static __device__ __forceinline__ void through_gate(bf16 *dout, const bf16 *y)
{
    #pragma unroll 4
    for (int i = 0; i < 8; i += 2) {
        float dy[2];
        for (int j = 0; j < 2; j++) {
            const float yi = load(y + i + j), gate = sigmoid(yi);
            dy[j] = load(dout + i + j) * yi * gate * fmaf(yi, 1 - gate, 2.0f);
        }
        *(unsigned *)(dout + i) = pack_bf16x2(dy[0], dy[1]);
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
    const place at = map_shared_rank(p, chunk, r.bh);
    #pragma unroll 4
    for (int i = 0; i < CHUNK * SLICE / 8; i += CREW) {
        int row, column;
        eight_of<SLICE>(i + threadIdx.x % CREW, &row, &column);
        bf16 *const dy = o.dy + row * padded(SLICE) + column;
        through_gate(dy, o.y + row * padded(SLICE) + column);
        if (row < at.steps && r.first + column < p.c.N && !sums_up(p))
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

    wait_for_starts(p);
    slice<N, SLICE> G = first_slice<N, SLICE>(p, r);
    for (int chunk = r.end - 1; chunk >= r.begin; chunk--) {
        const operands o = operands_of(p, BACKWARD, w, chunk);
        bf16 *const state = w.state + chunk % 2 * h::STATE;
        float sum[TILES][4] = {}, E[TILES][4] = {}, F[TILES][4];

        put_slice(state, G);
        block_barrier();
        const float one = o.scales[m + fragment_row()].x,
                    other = o.scales[m + fragment_row() + 8].x;
        if (!tied_q(p))
            multiply<LEFT, TILES, CHUNK>(sum, o.P, WIDTH, m, o.dy, APART, n, m);
        multiply<RIGHT, TILES, N>(sum, o.K, padded(N), m, state, padded(N), n);
        scale_rows<TILES>(sum, one, other);
        if (tied_q(p))
            add_rows<TILES>(sum, o.dy, APART, s, short_of_one(one), short_of_one(other));
        store_strip<TILES>(ddelta, APART, m, n, sum);
        if (!tied_q(p))
            add_chunk(G, o.dy, o.Q);
        warps_sync<WARPS>();
        multiply<LEFT, TILES, CHUNK>(E, o.M, WIDTH, m, ddelta, APART, n, m);
        #pragma unroll 32
        for (int i = 0; i < 4 * TILES; i++)
            F[i / 4][i % 4] = E[i / 4][i % 4];
        scale_rows<TILES>(F, -one, -other);
        store_strip<TILES>(minus_F, APART, m, n, F);
        warps_sync<WARPS>();
        add_chunk(G, minus_F, o.X);
        if (tied_q(p))
            add_rows<TILES>(E, o.dy, APART, s, 1 / one, 1 / other);
        if (sums_up(p))
            continue;
        if (p.dv)
            put_float<TILES>(p, map_shared_rank(p, chunk, r.bh), of_all, E);
        else
            store_strip<TILES>(w.change + chunk % 2 * h::VALUES, APART, m, n, E);
    }
    block_barrier();
    store_last(p, r, G);
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

    pdl_wait();
    pdl_launch_dependents();
    send_for_dout(p, r, w, r.end - 1);
    cp_async_commit();
    for (int i = 1; i < p.stages; i++) {
        send_for(p, BACKWARD, r, w, r.end - i);
        send_for_dout(p, r, w, r.end - i - 1);
        cp_async_commit();
    }
    wait_for_one(p);
    through_gates(p, r, w, r.end - 1);
    for (int chunk = r.end - 1;; chunk--) {
        wait_for_one(p);
        block_barrier();
        send_for(p, BACKWARD, r, w, chunk - p.stages + 1);
        send_for_dout(p, r, w, chunk - p.stages);
        cp_async_commit();
        if (chunk + 1 < r.end && !p.dv && !sums_up(p))
            store_strip<TILES>(p, map_shared_rank(p, chunk + 1, r.bh), s, of_all, p.c.dv,
                               w.change + (chunk + 1) % 2 * h::VALUES, padded(SLICE));
        if (chunk < r.begin)
            return;
        if (chunk > r.begin)
            through_gates(p, r, w, chunk - 1);
        if (!sums_up(p))
            store_factor<N, SLICE>(p, r, p.dstates + map_shared_rank(p, chunk, r.bh).item * p.c.M,
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
    return {pack_bf16x2(x.x, x.y), pack_bf16x2(x.z, x.w)};
}

static __device__ __forceinline__ uint2 rounded(const uint2 &halves)
{
    __half x[4];
    memcpy(x, &halves, sizeof x);
    return {pack_bf16x2(__half2float(x[0]), __half2float(x[1])),
            pack_bf16x2(__half2float(x[2]), __half2float(x[3]))};
}

/* The same of a matrix of another type, rounded; eight loads are in flight at
 * once, none of which depends on a condition. */
template <int COLUMNS, int THREADS, int ALL, typename T>
static __device__ __forceinline__ void bring_rounded(bf16 *to, const T *from, int64_t apart,
                                                     int rows, int columns)
{
    typedef typename four<T>::raw raw;
    constexpr int EACH = COLUMNS / 4, ROWS = THREADS / EACH;
    const int thread = opaque_thread_index() % THREADS, first = thread / EACH,
              column = thread % EACH * 4;
    const bool some = column < columns;

    #pragma unroll 1
    for (int i = first; i < ALL; i += 8 * ROWS) {
        raw x[8];
        #pragma unroll 8
        for (int j = 0; j < 8; j++) {
            const int row = i + j * ROWS;
            x[j] = *(const raw *)(from + (row < rows && some ? row * apart + column : 0));
        }
        __syncwarp(); /* else the compiler waits for one before it loads the next */
        #pragma unroll 8
        for (int j = 0; j < 8; j++) {
            const int row = i + j * ROWS;
            const uint2 four = rounded(x[j]);
            *(uint2 *)(to + row * padded(COLUMNS) + column) =
                row < rows && some ? four : uint2{0, 0};
        }
    }
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

    #pragma unroll 4
    for (int i = 0; i < BLOCKS; i++) {
        const int column = first + i * STEP;
        float part[2][4] = {}, strict[2][4] = {};
        if (column > m)
            break;
        multiply_both<RIGHT, 2, N>(part, w.dY, strict, w.E, padded(N), m, w.D, padded(N), column);
        cut_triangle<false, 2>(part, m, column);
        store_strip<2>(w.lower, WIDTH, m, column, part);
        cut_triangle<true, 2>(strict, m, column);
        scale_rows<2>(strict, -w.scales[m + fragment_row()].x, -w.scales[m + fragment_row() + 8].x);
        for (int j = 0; j < 4; j++)
            held[i][j] = pack_bf16x2(strict[j / 2][j % 2 * 2], strict[j / 2][j % 2 * 2 + 1]);
    }
    if (N > STRIP)
        __syncthreads();
    else
        __syncwarp(); /* nobody else reads this strip of E */
    #pragma unroll 4
    for (int i = 0; i < BLOCKS; i++) {
        const int column = first + i * STEP;
        if (column > m)
            break;
        for (int j = 0; j < 4; j++) {
            const int row = m + fragment_row() + j % 2 * 8;
            *(unsigned *)(w.a + row * WIDTH + column + j / 2 * 8 + fragment_column()) = held[i][j];
        }
    }
}

/* r du in dkey becomes what it adds to r dk^; dz is stored. */
static __device__ __forceinline__ void through_z(const plan &p, const place &at, const bf16 *K,
                                                 int apart, const share &s, float (*dkey)[4])
{
    const spots own = spots_of(p, at, s);
    #pragma unroll 16
    for (int i = 0; i < 2 * TILES; i++) {
        if (!has(own, i))
            continue;
        const int64_t e = element(own, i);
        const unsigned z = load_pair(p.c.z, e), k = shared_pair(K, apart, s, i);
        float *du = strip_pair(dkey, i);
        store_pair(p.c.dz, e, du[0] * low_of_pair(k), du[1] * high_of_pair(k));
        du[0] *= low_of_pair(z);
        du[1] *= high_of_pair(z);
    }
}

/* <k, r dk^> r / |k| of the thread's two steps; where two warps share a strip,
 * all have come to the end of their products. */
template <int N>
static __device__ __forceinline__ void find_along(const chunk_memory &w, const share &s,
                                                  float (*dkey)[4], float along[2])
{
    along[0] = along[1] = 0;
    #pragma unroll 16
    for (int i = 0; i < 2 * TILES; i++) {
        const unsigned k = shared_pair(w.K, padded(N), s, i);
        along[i % 2] = fmaf(low_of_pair(k), strip_pair(dkey, i)[0], along[i % 2]);
        along[i % 2] = fmaf(high_of_pair(k), strip_pair(dkey, i)[1], along[i % 2]);
    }
    #pragma unroll 2
    for (int h = 0; h < 2; h++) {
        along[h] += __shfl_xor_sync(0xffffffff, along[h], 1);
        along[h] += __shfl_xor_sync(0xffffffff, along[h], 2);
        if (N > STRIP && fragment_column() == 0)
            w.along[s.first / STRIP * CHUNK + s.m + fragment_row() + 8 * h] = along[h];
    }
    if (N > STRIP)
        __syncthreads();
    #pragma unroll 2
    for (int h = 0; h < 2; h++) {
        const int t = s.m + fragment_row() + 8 * h;
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
    #pragma unroll 16
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
    #pragma unroll 16
    for (int i = 0; i < 2 * TILES; i++) {
        const unsigned k = shared_pair(K, apart, s, i);
        float *x = strip_pair(dkey, i);
        x[0] = fmaf(-along[i % 2], low_of_pair(k), x[0]);
        x[1] = fmaf(-along[i % 2], high_of_pair(k), x[1]);
        if (!p.c.dq) {
            x[0] += strip_pair(dq, i)[0];
            x[1] += strip_pair(dq, i)[1];
        }
    }
}

/* So many blocks of finish() at least fit on an SM. */
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
    pdl_wait();
    bring_steps<N, ALL>(p, at, w.K, p.c.k);
    if (p.c.z)
        bring_steps<N, ALL>(p, at, w.X, p.x);
    bring_steps<N, ALL>(p, at, w.D, p.c.v);
    bring_factor<ALL>(p, at, M_OF, w.M);
    bring_scales<ALL>(p, at, w.scales);
    bring_first<N>(p, at, w.S);
    cp_async_commit();
    bring_steps<N, ALL>(p, at, w.dY, p.dy);
    if (p.dv)
        bring_float<N>(p, at, w.E);
    else
        bring_steps<N, ALL>(p, at, w.E, p.c.dv);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();

    float reads[TILES][4] = {}, d[TILES][4] = {};
    multiply<RIGHT, TILES, N>(reads, w.X, APART, m, w.S, APART, first);
    scale_rows<TILES>(reads, w.scales, m);
    subtract_from<TILES>(reads, w.D, APART, s);
    store_strip<TILES>(w.D, APART, m, first, reads);
    __syncthreads();
    multiply<NEITHER, TILES, CHUNK>(d, w.M, WIDTH, m, w.D, APART, first, 0, m + 16);
    scale_rows<TILES>(d, w.scales, m);
    cp_async_wait<0>();
    __syncthreads(); /* M has been read, and what D takes the place of */
    store_strip<TILES>(w.D, APART, m, first, d);
    float dkey[TILES][4] = {}, dq[TILES][4] = {}, along[2];
    multiply_both<NEITHER, TILES, N>(dkey, w.E, dq, w.dY, APART, m, w.S, APART, first);
    scale_rows<TILES>(dkey, -w.scales[m + fragment_row()].x, -w.scales[m + fragment_row() + 8].x);
    __syncthreads();
    bring_state<N>(p, w.G, p.dstates + at.item * p.c.M);
    cp_async_commit();

    put_triangles<N>(w, m);
    __syncthreads();
    if (!tied_q(p))
        bring_steps<N, ALL>(p, at, w.Q, p.c.q);
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

struct backward_walk {
    static constexpr enum pass pass = BACKWARD;
    template <int N, int SLICE>
    static void (*kernel(void))(plan)
    {
        return walk_backward<N, SLICE>;
    }
};

cudaError_t chunked_walk_backward(const plan &p)
{
    return walk<backward_walk>(p);
}

template <int N>
static cudaError_t launch_finish(const plan &p)
{
    chunk_memory w;
    return launch(finish<N>, p, p.chunks * p.c.BH, finish_threads(N), carve<N>(p, NULL, &w));
}

cudaError_t chunked_finish(const plan &p)
{
    return p.c.N <= 64 ? launch_finish<64>(p) : launch_finish<128>(p);
}
