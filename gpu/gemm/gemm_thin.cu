/* gemm: the two products of a backward pass where K is long and M, N are short (thin).  Each sums
 * over a short dimension; its result has a short side and a long one,
 *
 *     z[l][s] = alpha sum over k of x[l][k] y[k][s],    k, s < SHORT, l to any length,
 *
 * and it is bound by memory bandwidth.  Blocks are persistent: each keeps y in shared memory and
 * takes every gridDim.x-th tile of TALL rows of x.  A tile of x is loaded, multiplied and replaced
 * by its tile of z in the same buffer.  Both have their layout of global memory: x is contiguous
 * along k or l, z along s or l.  In fp32 there is one buffer, and the SM's other blocks hide the
 * latency of a block's loads.  In bf16 there are two, and the next tile is in flight during a
 * product.
 *
 * fp32: a thread computes 8 x 8 of z, four k at a time.  bf16: on tensor cores, a warp computes
 * two blocks of 16 rows of z in the layout of global memory. */
#include "gpu/device/async.cuh"
#include "gpu/device/fragment.cuh"
#include "gpu/device/launch.cuh"
#include "gpu/gemm/gemm.cuh"

enum {
    THREADS = 128,
    TALL = 128,
    SHORT = 64,
    MIN_L = 1024,  /* minimum length of the long side */
    RESIDENT = 4,  /* blocks per SM */
    THREADS_S = 8, /* fp32: threads along s, and along l */
    THREADS_L = THREADS / THREADS_S
};

template <typename T>
struct thin {
    const T *x, *y;
    T *z;
    int64_t L, tiles;
    int S, K;
    int stride_s, stride_k; /* of y */
    float alpha;
};

/* The leading dimensions of a block's tiles in shared memory, padded so that vectors of four in a
 * column, or of eight rows, have no bank conflicts.  X_ALONG_K: x is contiguous along k, else along
 * l. */
template <typename T, bool X_ALONG_K, bool Z_ALONG_L>
struct leading_dims {
    enum {
        PAD = 16 / sizeof(T),
        Y = SHORT + PAD,
        X = (X_ALONG_K ? +SHORT : +TALL) + PAD,
        Z = Z_ALONG_L                                ? TALL + PAD
            : X_ALONG_K && storage<T>::PER_WORD == 1 ? SHORT + 2 * PAD
                                                     : SHORT + PAD
    };
};

/* Bytes of shared memory: y, and per stage the maximum of x and z. */
template <typename T>
struct smem_bytes {
    enum {
        SINGLE = storage<T>::PER_WORD == 1,
        STAGES = SINGLE ? 1 : 2,
        Y = SHORT * (SHORT * sizeof(T) + 16),
        X = TALL * (SHORT * sizeof(T) + 32),
        ALL = Y + STAGES * X
    };
};

/* ---- to and from memory ---- */

/* A thread's part of a copy of HEIGHT rows of WIDTH elements: 16 bytes of every STEP-th row. */
template <int HEIGHT, int WIDTH, typename T>
struct copy_map {
    enum { ELEMENTS = 16 / sizeof(T), VECTORS = WIDTH / ELEMENTS, STEP = THREADS / VECTORS };
    static __device__ __forceinline__ int row(void) { return threadIdx.x / VECTORS; }
    static __device__ __forceinline__ int column(void) { return threadIdx.x % VECTORS * ELEMENTS; }
};

/* Copies from global to shared memory by cp.async; rows and columns beyond those given are zero. */
template <int HEIGHT, int WIDTH, typename T>
static __device__ __forceinline__ void load_tile(T *to, int smem_ld, const T *from, int64_t ld,
                                                 int rows, int columns)
{
    typedef copy_map<HEIGHT, WIDTH, T> map;
    const int n = map::column() < columns ? rows : 0;
    const T *at = from + map::row() * ld + map::column();
    to += map::row() * smem_ld + map::column();
    #pragma unroll 4
    for (int r = 0; r < HEIGHT; r += map::STEP, at += map::STEP * ld)
        cp_async16(to + r * smem_ld, r + map::row() < n ? at : from, r + map::row() < n ? 16 : 0);
}

/* Copies from shared to global memory. */
template <int HEIGHT, int WIDTH, typename T>
static __device__ __forceinline__ void store_tile(T *to, int64_t ld, const T *from, int smem_ld,
                                                  int rows, int columns)
{
    typedef copy_map<HEIGHT, WIDTH, T> map;
    const int n = map::column() < columns ? rows : 0;
    T *at = to + map::row() * ld + map::column();
    from += map::row() * smem_ld + map::column();
    #pragma unroll 4
    for (int r = 0; r < HEIGHT; r += map::STEP, at += map::STEP * ld)
        if (r + map::row() < n)
            *(uint4 *)at = *(const uint4 *)(from + r * smem_ld);
}

/* Loads y as [s][k], padded with zeros. */
template <typename T>
static __device__ __forceinline__ void load_y(T *to, int smem_ld, const thin<T> &p)
{
    #pragma unroll 32
    for (int i = threadIdx.x; i < SHORT * SHORT; i += THREADS) {
        const int s = p.stride_s == 1 ? i % SHORT : i / SHORT;
        const int k = p.stride_s == 1 ? i / SHORT : i % SHORT;
        store(to + s * smem_ld + k,
              s < p.S && k < p.K ? load(p.y + s * p.stride_s + k * p.stride_k) : 0);
    }
}

/* ---- fp32 ---- */

/* The i-th of a thread's eight rows.  Where x is contiguous along l, they are two vectors of
 * four. */
template <bool X_ALONG_K>
static __device__ __forceinline__ int row_of(int i)
{
    const int t = threadIdx.x / THREADS_S;
    return X_ALONG_K ? t + THREADS_L * i : 4 * t + i % 4 + TALL / 2 * (i / 4);
}

/* Computes the tile of z and writes it over the tile of x. */
template <bool X_ALONG_K, bool Z_ALONG_L>
static __device__ __forceinline__ void multiply_tile(float *x, const float *y, int K, float alpha)
{
    typedef leading_dims<float, X_ALONG_K, Z_ALONG_L> ld;
    const int s0 = threadIdx.x % THREADS_S;
    float sum[8][8] = {};

    #pragma unroll 1
    for (int k = 0; k < K; k += 4) {
        float fixed[8][4], vector[2][4];
        #pragma unroll 8
        for (int i = 0; i < 8; i++)
            unpack(load_vec<4>(X_ALONG_K ? x + row_of<X_ALONG_K>(i) * ld::X + k
                                         : y + (s0 + THREADS_S * i) * ld::Y + k),
                   fixed[i]);
        if (X_ALONG_K) {
            #pragma unroll 8
            for (int j = 0; j < 8; j++) {
                unpack(load_vec<4>(y + (s0 + THREADS_S * j) * ld::Y + k), vector[0]);
                #pragma unroll 32
                for (int i = 0; i < 32; i++)
                    sum[i % 8][j] = fmaf(fixed[i % 8][i / 8], vector[0][i / 8], sum[i % 8][j]);
            }
        } else {
            #pragma unroll 4
            for (int d = 0; d < 4; d++) {
                unpack(load_vec<4>(x + (k + d) * ld::X + row_of<X_ALONG_K>(0)), vector[0]);
                unpack(load_vec<4>(x + (k + d) * ld::X + row_of<X_ALONG_K>(4)), vector[1]);
                #pragma unroll 64
                for (int i = 0; i < 64; i++)
                    sum[i / 8][i % 8] =
                        fmaf(vector[i / 32][i / 8 % 4], fixed[i % 8][d], sum[i / 8][i % 8]);
            }
        }
    }
    __syncthreads();
    #pragma unroll 64
    for (int i = 0; i < 64; i++) {
        const int l = row_of<X_ALONG_K>(i / 8), s = s0 + THREADS_S * (i % 8);
        x[Z_ALONG_L ? s * ld::Z + l : l * ld::Z + s] = alpha * sum[i / 8][i % 8];
    }
}

/* ---- bf16 ---- */

/* A warp computes two blocks of 16 x 64 of z in the layout of global memory: side by side where z
 * is contiguous along l, else one below the other. */
template <bool X_ALONG_K, bool Z_ALONG_L>
static __device__ __forceinline__ void multiply_tile(bf16 *x, const bf16 *y, int, float alpha)
{
    typedef leading_dims<bf16, X_ALONG_K, Z_ALONG_L> ld;
    const int NEXT_COLUMN = Z_ALONG_L ? 64 : 0, NEXT_ROW = Z_ALONG_L ? 0 : 16;
    const int row = threadIdx.x / 32 * (16 + NEXT_ROW);
    unsigned packed[2][8][2];

    #pragma unroll 2
    for (int b = 0; b < 2; b++) {
        float sum[8][4] = {};
        if (Z_ALONG_L)
            multiply<X_ALONG_K ? RIGHT : NEITHER, 8, SHORT>(sum, {y, ld::Y, row},
                                                            {x, ld::X, b * NEXT_COLUMN});
        else
            multiply<X_ALONG_K ? RIGHT : BOTH, 8, SHORT>(sum, {x, ld::X, row + b * NEXT_ROW},
                                                         {y, ld::Y, 0});
        #pragma unroll 16
        for (int i = 0; i < 16; i++)
            packed[b][i / 2][i % 2] =
                pack_bf16x2(alpha * sum[i / 2][i % 2 * 2], alpha * sum[i / 2][i % 2 * 2 + 1]);
    }
    __syncthreads();
    bf16 *z = x + (row + fragment_row()) * ld::Z + fragment_column();
    #pragma unroll 32
    for (int i = 0; i < 32; i++)
        *(unsigned *)(z + (i / 16 * NEXT_ROW + i % 2 * 8) * ld::Z + i / 16 * NEXT_COLUMN +
                      i / 2 % 8 * 8) = packed[i / 16][i / 2 % 8][i % 2];
}

/* ---- the kernel ---- */

/* Loads the tile of x from l on. */
template <bool X_ALONG_K, typename T>
static __device__ __forceinline__ void load_x(T *to, int smem_ld, const thin<T> &p, int64_t l)
{
    const int left = (int)min(p.L - l, (int64_t)TALL);
    if (X_ALONG_K)
        load_tile<TALL, SHORT>(to, smem_ld, p.x + l * p.K, p.K, left, p.K);
    else
        load_tile<SHORT, TALL>(to, smem_ld, p.x + l, p.L, p.K, left);
}

/* Computes every gridDim.x-th tile of a product from `tile` on.  Returns the index of the block's
 * next tile within a second product that follows this one. */
template <typename T, bool X_ALONG_K, bool Z_ALONG_L>
static __device__ __forceinline__ int64_t multiply_tiles(unsigned char *shared, const thin<T> &p,
                                                         int64_t tile)
{
    typedef leading_dims<T, X_ALONG_K, Z_ALONG_L> ld;
    typedef smem_bytes<T> smem;
    T *const y = (T *)shared, *const xs = (T *)(shared + smem::Y);
    const bool PREFETCH = smem::STAGES > 1;
    const int STAGE = PREFETCH ? smem::X / sizeof(T) : 0;

    if (tile >= p.tiles)
        return tile - p.tiles;
    __syncthreads(); /* the product before is complete */
    load_y(y, ld::Y, p);
    if (PREFETCH)
        load_x<X_ALONG_K>(xs, ld::X, p, tile * TALL);
    cp_async_commit();
    for (int stage = 0; tile < p.tiles; tile += gridDim.x, stage ^= 1) {
        T *const x = xs + stage * STAGE;
        const int64_t next = tile + (PREFETCH ? gridDim.x : 0), l = tile * TALL;
        const int left = (int)min(p.L - l, (int64_t)TALL);
        __syncthreads(); /* the tile before in this stage has been stored */
        if (next < p.tiles)
            load_x<X_ALONG_K>(xs + (stage ^ 1) * STAGE, ld::X, p, next * TALL);
        cp_async_commit();
        cp_async_wait<smem::STAGES - 1>();
        __syncthreads();
        multiply_tile<X_ALONG_K, Z_ALONG_L>(x, y, p.K, p.alpha);
        __syncthreads();
        if (Z_ALONG_L)
            store_tile<SHORT, TALL>(p.z + l, p.L, x, ld::Z, p.S, left);
        else
            store_tile<TALL, SHORT>(p.z + l * p.S, p.S, x, ld::Z, left, p.S);
    }
    return tile - p.tiles;
}

/* Computes the tiles of da, then the tiles of db.  The layouts of A and B determine those of x and
 * z. */
template <typename T, bool TRANS_A, bool TRANS_B>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    multiply_thin(const thin<T> to_a, const thin<T> to_b)
{
    extern __shared__ __align__(16) unsigned char shared[];
    const int64_t tile = multiply_tiles<T, !TRANS_B, !TRANS_A>(shared, to_a, blockIdx.x);
    multiply_tiles<T, TRANS_A, TRANS_B>(shared, to_b, tile);
}

/* For da the sum is over n and s is m; for db the sum is over m and s is n. */
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
    t.stride_s = to_b ? 1 : (int)p.N;
    t.stride_k = to_b ? (int)p.N : 1;
    t.alpha = p.alpha;
    return t;
}

template <typename T>
bool gemm_thin_fits(const gemm_problem<T> &p)
{
    const int ELEMENTS = 16 / sizeof(T);
    return p.batch == 1 && p.M <= SHORT && p.N <= SHORT && p.K >= MIN_L &&
           !(p.M % ELEMENTS || p.N % ELEMENTS || p.K % ELEMENTS);
}

template <typename T>
int gemm_thin(struct context *on, const gemm_problem<T> &p, const T *dc, T *da, T *db)
{
    const thin<T> to_a = thin_of(p, p.b, dc, da, false), to_b = thin_of(p, p.a, dc, db, true);
    void (*const kernel)(thin<T>, thin<T>) =
        p.trans_a   ? p.trans_b ? multiply_thin<T, true, true> : multiply_thin<T, true, false>
          : p.trans_b ? multiply_thin<T, false, true>
                    : multiply_thin<T, false, false>;
    const int64_t resident = RESIDENT * on->limits.sms;
    const int blocks = (int)min(to_a.tiles + to_b.tiles, resident), bytes = smem_bytes<T>::ALL;

    CUDA(allow_smem(kernel, bytes));
    kernel<<<blocks, THREADS, bytes, on->stream>>>(to_a, to_b);
    return cudaGetLastError();
}

#define EACH(T)                                                                                    \
    template bool gemm_thin_fits(const gemm_problem<T> &);                                         \
    template int gemm_thin(struct context *on, const gemm_problem<T> &, const T *, T *, T *);
GPU_TYPES(EACH)
