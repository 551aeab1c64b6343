/* gemm, the two products of a backward pass where k is long and M, N are short, which are thin: each
 * has a short sum, a short side and a long one,
 *
 *     z[l][s] = alpha sum over k of x[l][k] y[k][s],    k, s < SHORT, l to any length,
 *
 * and memory is what they wait for.  Blocks stay, with y in shared memory, and walk over l: TALL
 * rows of x come, are multiplied, and go, through the same place of shared memory, as they lie in
 * memory: along k or along l, and z along s or along l.  In fp32 nothing of a block is in flight
 * while it multiplies: that is what the other blocks of the SM are for.  In bf16, where
 * there is room for it, the next rows are.
 *
 * fp32: a thread makes 8 x 8 of z, by quads of k.  bf16: tensor cores, a warp at a time, 16 rows of
 * z as it lies in memory. */
#include "gpu/device/async.cuh"
#include "gpu/device/fragment.cuh"
#include "gpu/gemm/gemm.cuh"

enum {
    THREADS = 128,
    TALL = 128,
    SHORT = 64,
    LEAST = 1024, /* long enough to be thin */
    RESIDENT = 4, /* blocks of an SM */
    ACROSS = 8,   /* fp32: threads across s */
    DOWN = THREADS / ACROSS
};

template <typename T>
struct thin {
    const T *x, *y;
    T *z;
    int64_t L, tiles;
    int S, K;
    int next_s, next_k; /* of y, in memory */
    float alpha;
};

/* Which of a block's tiles are in shared memory, and how far apart their rows are there: so that
 * quads of a column, or of eight rows, lie in different banks. */
template <typename T, bool ALONG_K, bool Z_ALONG_L>
struct places {
    enum {
        PAD = 16 / sizeof(T),
        Y = SHORT + PAD,
        X = (ALONG_K ? +SHORT : +TALL) + PAD,
        Z = Z_ALONG_L                               ? TALL + PAD
            : ALONG_K && sizeof(T) == sizeof(float) ? SHORT + 2 * PAD
                                                    : SHORT + PAD
    };
};

/* Bytes: of y, and of as many stages as there are of the larger of x and z. */
template <typename T>
struct shared_room {
    enum {
        SINGLE = sizeof(T) == sizeof(float),
        STAGES = SINGLE ? 1 : 2,
        Y = SHORT * (SHORT * sizeof(T) + 16),
        X = TALL * (SHORT * sizeof(T) + 32),
        ALL = Y + STAGES * X
    };
};

/* ---- to and from memory ---- */

/* HIGH rows of WIDE numbers, of which so many are there, and zeros: a thread's share, 16 bytes of
 * every STEP-th row. */
template <int HIGH, int WIDE, typename T>
struct share {
    enum { EACH = 16 / sizeof(T), ACROSS = WIDE / EACH, STEP = THREADS / ACROSS };
    static __device__ __forceinline__ int row(void) { return threadIdx.x / ACROSS; }
    static __device__ __forceinline__ int column(void) { return threadIdx.x % ACROSS * EACH; }
};

template <int HIGH, int WIDE, typename T>
static __device__ __forceinline__ void bring(T *to, int pitch, const T *from, int64_t apart,
                                             int rows, int columns)
{
    typedef share<HIGH, WIDE, T> mine;
    const int n = mine::column() < columns ? rows : 0;
    const T *at = from + mine::row() * apart + mine::column();
    to += mine::row() * pitch + mine::column();
    #pragma unroll 4
    for (int r = 0; r < HIGH; r += mine::STEP, at += mine::STEP * apart)
        cp_async16(to + r * pitch, r + mine::row() < n ? at : from, r + mine::row() < n ? 16 : 0);
}

/* The other way. */
template <int HIGH, int WIDE, typename T>
static __device__ __forceinline__ void take_away(T *to, int64_t apart, const T *from, int pitch,
                                                 int rows, int columns)
{
    typedef share<HIGH, WIDE, T> mine;
    const int n = mine::column() < columns ? rows : 0;
    T *at = to + mine::row() * apart + mine::column();
    from += mine::row() * pitch + mine::column();
    #pragma unroll 4
    for (int r = 0; r < HIGH; r += mine::STEP, at += mine::STEP * apart)
        if (r + mine::row() < n)
            *(uint4 *)at = *(const uint4 *)(from + r * pitch);
}

/* y as [s][k], zero beyond its ends. */
template <typename T>
static __device__ __forceinline__ void bring_y(T *to, int pitch, const thin<T> &p)
{
    #pragma unroll 32
    for (int i = threadIdx.x; i < SHORT * SHORT; i += THREADS) {
        const int s = p.next_s == 1 ? i % SHORT : i / SHORT;
        const int k = p.next_s == 1 ? i / SHORT : i % SHORT;
        store(to + s * pitch + k, s < p.S && k < p.K ? load(p.y + s * p.next_s + k * p.next_k) : 0);
    }
}

/* ---- fp32 ---- */

static __device__ __forceinline__ void take_quad(float to[4], const float *from)
{
    const float4 x = *(const float4 *)from;
    to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}

/* Which rows a thread has: neighbours where x lies along l. */
template <bool ALONG_K>
static __device__ __forceinline__ int row_of(int i)
{
    const int down = threadIdx.x / ACROSS;
    return ALONG_K ? down + DOWN * i : 4 * down + i % 4 + TALL / 2 * (i / 4);
}

/* The tile of z in the place of x. */
template <bool ALONG_K, bool Z_ALONG_L>
static __device__ __forceinline__ void make_tile(float *x, const float *y, int K, float alpha)
{
    typedef places<float, ALONG_K, Z_ALONG_L> at;
    const int across = threadIdx.x % ACROSS;
    float sum[8][8] = {};

    #pragma unroll 1
    for (int k = 0; k < K; k += 4) {
        float kept[8][4], other[2][4];
        #pragma unroll 8
        for (int i = 0; i < 8; i++)
            take_quad(kept[i], ALONG_K ? x + row_of<ALONG_K>(i) * at::X + k
                                       : y + (across + ACROSS * i) * at::Y + k);
        if (ALONG_K) {
            #pragma unroll 8
            for (int j = 0; j < 8; j++) {
                take_quad(other[0], y + (across + ACROSS * j) * at::Y + k);
                #pragma unroll 32
                for (int i = 0; i < 32; i++)
                    sum[i % 8][j] = fmaf(kept[i % 8][i / 8], other[0][i / 8], sum[i % 8][j]);
            }
        } else {
            #pragma unroll 4
            for (int d = 0; d < 4; d++) {
                take_quad(other[0], x + (k + d) * at::X + row_of<ALONG_K>(0));
                take_quad(other[1], x + (k + d) * at::X + row_of<ALONG_K>(4));
                #pragma unroll 64
                for (int i = 0; i < 64; i++)
                    sum[i / 8][i % 8] =
                        fmaf(other[i / 32][i / 8 % 4], kept[i % 8][d], sum[i / 8][i % 8]);
            }
        }
    }
    __syncthreads();
    #pragma unroll 64
    for (int i = 0; i < 64; i++) {
        const int l = row_of<ALONG_K>(i / 8), s = across + ACROSS * (i % 8);
        x[Z_ALONG_L ? s * at::Z + l : l * at::Z + s] = alpha * sum[i / 8][i % 8];
    }
}

/* ---- bf16 ---- */

/* A warp makes two blocks of 16 x 64 of z: below each other, or beside where z lies along l. */
template <bool ALONG_K, bool Z_ALONG_L>
static __device__ __forceinline__ void make_tile(bf16 *x, const bf16 *y, int, float alpha)
{
    typedef places<bf16, ALONG_K, Z_ALONG_L> at;
    const int RIGHT_HAND = Z_ALONG_L ? 64 : 0, BELOW = Z_ALONG_L ? 0 : 16;
    const int row = threadIdx.x / 32 * (16 + BELOW);
    unsigned made[2][8][2];

    #pragma unroll 2
    for (int b = 0; b < 2; b++) {
        float sum[8][4] = {};
        if (Z_ALONG_L)
            multiply<ALONG_K ? RIGHT : NEITHER, 8, SHORT>(sum, y, at::Y, row, x, at::X,
                                                          b * RIGHT_HAND);
        else
            multiply<ALONG_K ? RIGHT : BOTH, 8, SHORT>(sum, x, at::X, row + b * BELOW, y, at::Y, 0);
        #pragma unroll 16
        for (int i = 0; i < 16; i++)
            made[b][i / 2][i % 2] =
                pack_bf16x2(alpha * sum[i / 2][i % 2 * 2], alpha * sum[i / 2][i % 2 * 2 + 1]);
    }
    __syncthreads();
    bf16 *z = x + (row + fragment_row()) * at::Z + fragment_column();
    #pragma unroll 32
    for (int i = 0; i < 32; i++)
        *(unsigned *)(z + (i / 16 * BELOW + i % 2 * 8) * at::Z + i / 16 * RIGHT_HAND +
                      i / 2 % 8 * 8) = made[i / 16][i / 2 % 8][i % 2];
}

/* ---- the walk ---- */

/* Rows of x from l on. */
template <bool ALONG_K, typename T>
static __device__ __forceinline__ void bring_x(T *to, int pitch, const thin<T> &p, int64_t l)
{
    const int left = (int)min(p.L - l, (int64_t)TALL);
    if (ALONG_K)
        bring<TALL, SHORT>(to, pitch, p.x + l * p.K, p.K, left, p.K);
    else
        bring<SHORT, TALL>(to, pitch, p.x + l, p.L, p.K, left);
}

/* Every gridDim.x-th tile from this one on; returns which would be the next of another product
 * behind this one. */
template <typename T, bool ALONG_K, bool Z_ALONG_L>
static __device__ __forceinline__ int64_t walk(unsigned char *shared, const thin<T> &p,
                                               int64_t tile)
{
    typedef places<T, ALONG_K, Z_ALONG_L> at;
    typedef shared_room<T> room;
    T *const y = (T *)shared, *const xs = (T *)(shared + room::Y);
    const bool AHEAD = room::STAGES > 1;
    const int OTHER = AHEAD ? room::X / sizeof(T) : 0;

    if (tile >= p.tiles)
        return tile - p.tiles;
    __syncthreads(); /* nobody is at another product */
    bring_y(y, at::Y, p);
    if (AHEAD)
        bring_x<ALONG_K>(xs, at::X, p, tile * TALL);
    cp_async_commit();
    for (int turn = 0; tile < p.tiles; tile += gridDim.x, turn ^= 1) {
        T *const x = xs + turn * OTHER;
        const int64_t next = tile + (AHEAD ? gridDim.x : 0), l = tile * TALL;
        const int left = (int)min(p.L - l, (int64_t)TALL);
        __syncthreads(); /* what was there before has been taken away */
        if (next < p.tiles)
            bring_x<ALONG_K>(xs + (turn ^ 1) * OTHER, at::X, p, next * TALL);
        cp_async_commit();
        cp_async_wait<room::STAGES - 1>();
        __syncthreads();
        make_tile<ALONG_K, Z_ALONG_L>(x, y, p.K, p.alpha);
        __syncthreads();
        if (Z_ALONG_L)
            take_away<SHORT, TALL>(p.z + l, p.L, x, at::Z, p.S, left);
        else
            take_away<TALL, SHORT>(p.z + l * p.S, p.S, x, at::Z, left, p.S);
    }
    return tile - p.tiles;
}

/* Of da and db: by how A and B are stored, both for one and for the other. */
template <typename T, bool FLIP_A, bool FLIP_B>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    multiply_thin(const thin<T> to_a, const thin<T> to_b)
{
    extern __shared__ __align__(16) unsigned char shared[];
    const int64_t tile = walk<T, !FLIP_B, !FLIP_A>(shared, to_a, blockIdx.x);
    walk<T, FLIP_A, FLIP_B>(shared, to_b, tile);
}

/* da: the sum is over n, and s is m; db: the other way. */
template <typename T>
static thin<T> thin_of(const gemm_problem<T> &p, const T *x, const T *dc, T *z, bool to_b)
{
    thin<T> t = {};
    t.x = x;
    t.y = dc;
    t.z = z;
    t.L = p.K;
    t.tiles = ceil_div(p.K, TALL);
    t.S = (int)(to_b ? p.N : p.M);
    t.K = (int)(to_b ? p.M : p.N);
    t.next_s = to_b ? 1 : (int)p.N;
    t.next_k = to_b ? (int)p.N : 1;
    t.alpha = p.alpha;
    return t;
}

template <typename T>
bool gemm_thin_fits(const gemm_problem<T> &p)
{
    const int EACH = 16 / sizeof(T);
    return p.batch == 1 && p.M <= SHORT && p.N <= SHORT && p.K >= LEAST &&
           !(p.M % EACH || p.N % EACH || p.K % EACH);
}

template <typename T>
int gemm_thin(const gemm_problem<T> &p, const T *dc, T *da, T *db)
{
    const thin<T> to_a = thin_of(p, p.b, dc, da, false), to_b = thin_of(p, p.a, dc, db, true);
    void (*const kernel)(thin<T>, thin<T>) =
        p.flip_a   ? p.flip_b ? multiply_thin<T, true, true> : multiply_thin<T, true, false>
          : p.flip_b ? multiply_thin<T, false, true>
                   : multiply_thin<T, false, false>;
    const int64_t places = RESIDENT * gpu_properties().multiProcessorCount;
    const int blocks = (int)min(to_a.tiles + to_b.tiles, places), bytes = shared_room<T>::ALL;

    CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    kernel<<<blocks, THREADS, bytes, gpu_stream()>>>(to_a, to_b);
    return cudaGetLastError();
}

template bool gemm_thin_fits(const gemm_problem<float> &);
template bool gemm_thin_fits(const gemm_problem<bf16> &);
template int gemm_thin(const gemm_problem<float> &, const float *, float *, float *);
template int gemm_thin(const gemm_problem<bf16> &, const bf16 *, bf16 *, bf16 *);
