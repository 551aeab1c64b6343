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
 * rows, through the chunks (where `split` has it, through those of a piece).
 * Half of its warps are the chain: three short products a chunk, the state in
 * their accumulators.  The others bring what the chain needs, a chunk or two ahead, and make the outputs from what it leaves in
 * shared memory.  Backward walks G from the end, and finish() makes the keys'
 * gradients of all chunks side by side: they need the state before each chunk,
 * which is a checkpoint where CHUNK is a multiple of the interval, else
 * forward's walk is repeated; its bits are the same.  Each of these kernels
 * starts while the one before it ends.
 *
 * Bound by memory where there are many rows, else by the chain. */
#include "gpu/device/async.cuh"
#include "gpu/device/cluster.cuh"
#include "gpu/device/math.cuh"
#include "gpu/device/mma.cuh"
#include "gpu/device/named_barrier.cuh"
#include "gpu/device/pdl.cuh"
#include "gpu/e74/e74_cell_chunked.cuh"

/* ---- M, P and r of a chunk ---- */

enum { INVERSE = 16 + 8 /* padded(16) */ };

/* One 16 x 16 block on the diagonal of 1 + A, inverted: a thread a column. */
static __device__ void invert_block(const float *A, float *inverse)
{
    const int column = threadIdx.x % 32;
    float x[16];
    if (column >= 16)
        return;
    #pragma unroll 16
    for (int i = 0; i < 16; i++) {
        float row[16];
        #pragma unroll 4
        for (int k = 0; k < i; k += 4)
            memcpy(row + k, __builtin_assume_aligned(A + i * WIDTH + k, 16), 4 * sizeof *row);
        x[i] = i == column ? 1 : 0;
        #pragma unroll 16
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
        const float *at =
            block + (fragment_column() + i / 2 * 8) * apart + fragment_row() + i % 2 * 8;
        split_bf16(at[0], at[apart], &s.high[i], &s.low[i]);
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
    #pragma unroll 4
    for (int e = 1; e < 4; e++) {
        const int i = j + e;
        if (i >= 4)
            break;
        float sum[2][4] = {}, block[2][4] = {};
        #pragma unroll 4
        for (int d = 0; d < e; d++)
            multiply_split_bf16(sum, N[d], A + 16 * i * WIDTH + 16 * (j + d), WIDTH);
        multiply_split_bf16(block, as_fragment_a(sum), inverses + i * 16 * INVERSE, INVERSE);
        for (int n = 0; n < 8; n++)
            block[n / 4][n % 4] = -block[n / 4][n % 4];
        N[e] = as_fragment_a(block);
        for (int n = 0; n < 8; n++) {
            const int row = 8 * (n / 4) + fragment_column() + n % 2,
                      column = fragment_row() + n % 4 / 2 * 8;
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
    #pragma unroll 8
    for (int i = 0; i < N / 2; i += 8) {
        const uint4 eight = *(const uint4 *)(k + i);
        const unsigned pairs[] = {eight.x, eight.y, eight.z, eight.w};
        #pragma unroll 4
        for (int j = 0; j < 4; j++) {
            squares = fmaf(low_of_pair(pairs[j]), low_of_pair(pairs[j]), squares);
            squares = fmaf(high_of_pair(pairs[j]), high_of_pair(pairs[j]), squares);
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
    #pragma unroll 4
    for (int i = 0; i < 4; i++) {
        const int t = 16 * warp() + fragment_row() + i % 2 * 8,
                  s = first + i / 2 * 8 + fragment_column();
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
    #pragma unroll 4
    for (int i = 0; i < 16; i += 4)
        if (column < m + 16)
            *(uint4 *)(to + (row + i) * CHUNK + column) =
                *(const uint4 *)(from + (row + i) * WIDTH + column);
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
    #pragma unroll 1
    for (int i = threadIdx.x; i < CHUNK * N / 8; i += THREADS) {
        int row, column;
        eight_of<N>(i, &row, &column);
        const bf16 *k = K + row * padded(N) + column;
        bf16 *x = X + row * padded(N) + column;
        for (int j = 0; j < 8; j += 2)
            *(unsigned *)(x + j) =
                pack_bf16x2(load(k + j) * load(x + j), load(k + j + 1) * load(x + j + 1));
        if (row < at.steps && column < p.c.N)
            *(uint4 *)(p.x + start(p, at) + row * p.c.BH * p.c.N + column) = *(const uint4 *)x;
    }
}

/* So many blocks of factor() at least have registers on an SM. */
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

    pdl_launch_dependents();
    carve<N>(p, buffer, &w);
    bring_steps<N, THREADS>(p, at, w.K, p.c.k);
    bring_steps<N, THREADS>(p, at, w.Q, p.c.q);
    if (p.c.z)
        bring_steps<N, THREADS>(p, at, w.X, p.c.z);
    cp_async_commit();
    cp_async_wait<0>();
    if (p.c.z)
        find_X<N>(p, at, w.K, w.X);
    __syncthreads();

    find_scales<N>(w.K, w.scales);
    float a[CHUNK / 8][4] = {}, q[CHUNK / 8][4] = {};
    #pragma unroll 4
    for (int i = 0; i < CHUNK; i += 16)
        if (i <= m)
            multiply_both<RIGHT, 2, N>(a + i / 8, w.X, q + i / 8, w.Q, padded(N), m, w.K, padded(N),
                                       i);
    __syncthreads();
    #pragma unroll 4
    for (int i = 0; i < CHUNK; i += 16)
        if (i <= m)
            put_A(w.A, a + i / 8, w.scales, i);
    cut_triangle<false, CHUNK / 8>(q, m, 0);
    store_strip<CHUNK / 8>(w.P, WIDTH, m, 0, q);
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

/* ---- forward ---- */

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
    #pragma unroll 32
    for (int i = 0; i < pairs<N, SLICE>(); i++)
        keep_pair(p, state, pair_element<N, SLICE>(p, r, first, i), nth_pair(S, i));
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
    #pragma unroll 32
    for (int i = 0; i < pairs<N, SLICE>(); i += 2) {
        const int m = i / 2 / (RUN / 8), n = i / 2 % (RUN / 8);
        unsigned a[4], b[4];
        float sum[4];
        load_fragment_a<true>(a, left, padded(SLICE), 16 * m, k);
        load_fragment_b<false>(b, right, padded(N), k, warp() * RUN + n / 2 * 16);
        #pragma unroll 4
        for (int j = 0; j < 4; j++) {
            const int step = fragment_column() + j / 2 * 8;
            a[j] &= (step < some ? 0xffff : 0) | (step + 1 < some ? 0xffff0000 : 0);
            sum[j] = S.x[m][n][j];
        }
        mma_bf16(sum, a, b + n % 2 * 2);
        keep_pair(p, state, pair_element<N, SLICE>(p, r, first, i), sum);
        keep_pair(p, state, pair_element<N, SLICE>(p, r, first, i + 1), sum + 2);
    }
}

/* The same where there are checkpoints in it. */
template <int N, int SLICE>
static __device__ __forceinline__ void add_and_keep(const plan &p, const rows &r,
                                                    slice<N, SLICE> &S, const bf16 *left,
                                                    const bf16 *right, int t, int *next, int *slot)
{
    #pragma unroll 1
    for (int k = 0; k < CHUNK; k += 16) {
        for (; *next < min(t + k + 16, (int)p.c.T); *next += (int)p.c.K, ++*slot)
            keep_between(p, r, *slot * p.c.BH + r.bh, S, left, right, k, *next - t - k);
        add_steps(S, left, right, k);
    }
}

/* What is wanted of a chunk when the outputs of the one before it are made. */
template <int N, int SLICE>
static __device__ __forceinline__ void send_for_P(const plan &p, const rows &r,
                                                  const hand_over<N, SLICE> &w, int chunk)
{
    if (chunk >= r.begin && chunk < r.end && has_outputs(p))
        bring_factor<shape<N, SLICE>::CREW>(p, map_shared_rank(p, chunk, r.bh), P_OF,
                                            operands_of(p, FORWARD, w, chunk).P);
}

/* y and out. */
template <int TILES>
static __device__ __forceinline__ void send_outputs(const plan &p, const place &at, const share &s,
                                                    const share &of_all, bf16 *by, int apart,
                                                    float (*y)[4])
{
    send_strip<TILES>(p, at, s, of_all, p.c.y, by, apart, y);
    #pragma unroll 32
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
    const int K = (int)p.c.K, from = r.begin * CHUNK;
    int slot = from / K + (from % K > 0); /* a checkpoint's place, and its step */
    int next = has_outputs(p) ? slot * K : (int)p.c.T;

    wait_for_starts(p);
    slice<N, SLICE> S = first_slice<N, SLICE>(p, r);
    for (int chunk = r.begin; chunk < r.end; chunk++) {
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
        store_strip<TILES>(w.middle, APART, m, n, reads);
        warps_sync<WARPS>();
        multiply<NEITHER, TILES, CHUNK>(d, o.M, WIDTH, m, w.middle, APART, n, 0, m + 16);
        scale_rows<TILES>(d, o.scales, m);
        store_strip<TILES>(D, APART, m, n, d);
        warps_sync<WARPS>();
        if (next == t) {
            keep_slice(p, r, slot++ * p.c.BH + r.bh, S);
            next += K;
        }
        if (next < min(t + CHUNK, (int)p.c.T))
            add_and_keep(p, r, S, D, o.K, t, &next, &slot);
        else
            add_chunk(S, D, o.K);
    }
    block_barrier();
    store_last(p, r, S);
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

    pdl_wait();
    pdl_launch_dependents();
    for (int i = 0; i < p.stages - 1; i++) {
        send_for(p, FORWARD, r, w, r.begin + i);
        send_for_P(p, r, w, r.begin + i - 1);
        cp_async_commit();
    }
    for (int chunk = r.begin;; chunk++) {
        wait_for_one(p);
        block_barrier();
        send_for(p, FORWARD, r, w, chunk + p.stages - 1);
        send_for_P(p, r, w, chunk + p.stages - 2);
        cp_async_commit();
        if (chunk > r.begin && has_outputs(p)) {
            multiply<NEITHER, TILES, CHUNK>(y, operands_of(p, FORWARD, w, chunk - 1).P, WIDTH, m,
                                            w.change + (chunk - 1) % 2 * h::VALUES, APART, n, 0,
                                            m + 16);
            send_outputs<TILES>(p, map_shared_rank(p, chunk - 1, r.bh), s, of_all, w.leaving, APART,
                                y);
        }
        if (chunk == r.end)
            return;
        if (sums_up(p))
            continue;
        const bf16 *const state = w.state + chunk % 2 * h::STATE;
        if (p.states) {
            store_factor<N, SLICE>(p, r, p.states + map_shared_rank(p, chunk, r.bh).item * p.c.M,
                                   state);
            continue;
        }
        for (int i = 0; i < 4 * TILES; i++)
            y[i / 4][i % 4] = 0;
        multiply<RIGHT, TILES, N>(y, operands_of(p, FORWARD, w, chunk).Q, padded(N), m, state,
                                  padded(N), n);
    }
}

/* With p.states it leaves those, just as they were in forward, and no more.  Summing up, it
 * leaves what pieces end with. */
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

plan chunked_plan(const struct frame *f, enum pass pass, size_t *bytes)
{
    plan p = {};
    p.c = call_of(f);
    p.chunks = p.length = (int)ceil_div(p.c.T, CHUNK);
    p.pieces = 1;
    p.fill = gpu_limits()->walkers;
    p.kept = (int)(CHUNK / p.c.K);
    *bytes = divide(&p, pass, f->choice[E74_PROJ] == E74_TIED_KVQ, (char *)f->work);
    return p;
}

template <int N>
static cudaError_t launch_factor(const plan &p)
{
    factor_memory w;
    const int shared = carve<N>(p, NULL, &w);
    CUDA(cudaFuncSetAttribute(factor<N>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    factor<N><<<p.chunks * p.c.BH, THREADS, shared, gpu_stream()>>>(p);
    return cudaGetLastError();
}

cudaError_t chunked_factor(const plan &p)
{
    return p.c.N <= 64 ? launch_factor<64>(p) : launch_factor<128>(p);
}

struct forward_walk {
    static constexpr enum pass pass = FORWARD;
    template <int N, int SLICE>
    static void (*kernel(void))(plan)
    {
        return walk_forward<N, SLICE>;
    }
};

cudaError_t chunked_walk_forward(const plan &p)
{
    return walk<forward_walk>(p);
}

static int forward(const struct frame *f)
{
    size_t bytes;
    plan p = chunked_plan(f, FORWARD, &bytes);
    p.starts = p.c.first;
    p.end = p.c.last;
    CUDA(chunked_factor(p));
    return chunked_walk_forward(p);
}

static int backward(const struct frame *f)
{
    size_t bytes;
    plan p = chunked_plan(f, BACKWARD, &bytes);
    CUDA(chunked_factor(p));
    p.starts = p.c.first;
    if (p.states)
        CUDA(chunked_walk_forward(p));
    p.starts = p.c.dlast;
    p.end = p.c.dfirst;
    CUDA(chunked_walk_backward(p));
    return chunked_finish(p);
}

static size_t work(const struct frame *f, enum pass pass)
{
    size_t bytes;
    chunked_plan(f, pass, &bytes);
    return bytes;
}

const char *chunked_declines(const struct frame *f)
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
                                              chunked_declines,
                                              "bf16 factors",
                                              0x1p-8,
                                              CHUNK};
