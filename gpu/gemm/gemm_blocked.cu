/* gemm, kernels `blocked` and `splitk`: a block of 256 threads makes a tile of c of 128 x 128, a
 * warp 32 x 64 of it, a thread 8 x 8, so that eight numbers read from shared memory serve 64
 * multiply-adds.  Where 128 x 128 would leave much of the chip idle a tile is 64 x 64, and four
 * groups of two warps each take every fourth part of k and add up at the end.
 *
 * k goes by in stages.  While one is multiplied the next is on its way from global memory into
 * registers, and within a stage the next k's numbers from shared memory.  Both operands lie in
 * shared memory with k slowest, whatever way they are stored: an operand whose rows lie along k is
 * turned on its way in, and rows padded by four floats keep that free of conflicts.
 *
 * `splitk` gives each tile to several blocks, each with a slice of k, and adds up their sums in
 * the order of the slices; `blocked` does so only where k is so long that one sum after the other
 * would lose too much. */
#include "gpu/gemm/gemm.cuh"

enum {
    THREADS = 256,
    WARP_M = 32,
    WARP_N = 64,
    DEPTH = 8, /* k of a group in a stage */
    PADDING = 4,
    LONGEST = 16, /* runs of k that one of a thread's sums is of */
    RESIDENT = 2  /* blocks on an SM */
};

/* What follows from the side of a tile. */
template <int SIDE>
struct tile {
    enum {
        WARPS_M = SIDE / WARP_M,
        WARPS_N = SIDE / WARP_N,
        GROUP = 32 * WARPS_M * WARPS_N, /* threads that make a tile */
        GROUPS = THREADS / GROUP,
        STAGE = DEPTH * GROUPS,
        QUADS = SIDE * STAGE / 4 / THREADS, /* of each operand, a thread in a stage */
        APART = 4 * THREADS / SIDE,         /* of a thread's quads, in k */
        PITCH = SIDE + PADDING,
        B = STAGE * PITCH, /* where b's stage begins */
        HALF = 2 * B
    };
};

/* ---- four neighbours in memory ---- */

template <typename T>
struct quad_of;
template <>
struct quad_of<float> {
    typedef float4 type;
};
template <>
struct quad_of<__nv_bfloat16> {
    typedef uint2 type;
};

static __device__ __forceinline__ float4 widened(float4 x)
{
    return x;
}

/* A bf16 is the upper half of a float. */
static __device__ __forceinline__ float4 widened(uint2 x)
{
    return make_float4(__uint_as_float(x.x << 16), __uint_as_float(x.x & 0xffff0000),
                       __uint_as_float(x.y << 16), __uint_as_float(x.y & 0xffff0000));
}

/* The first n of four, one by one, and zeros. */
static __device__ __forceinline__ float4 gathered(const float *from, int n)
{
    return make_float4(n > 0 ? from[0] : 0, n > 1 ? from[1] : 0, n > 2 ? from[2] : 0,
                       n > 3 ? from[3] : 0);
}

static __device__ __forceinline__ uint2 gathered(const __nv_bfloat16 *from, int n)
{
    const unsigned short *bits = (const unsigned short *)from;
    const unsigned x = n > 0 ? bits[0] : 0, y = n > 1 ? bits[1] : 0;
    const unsigned z = n > 2 ? bits[2] : 0, w = n > 3 ? bits[3] : 0;
    return make_uint2(x | y << 16, z | w << 16);
}

static __device__ __forceinline__ float4 load4(const float *from)
{
    return *(const float4 *)from;
}

static __device__ __forceinline__ float4 load4(const __nv_bfloat16 *from)
{
    return widened(*(const uint2 *)from);
}

static __device__ __forceinline__ void store4(float *to, float4 x)
{
    *(float4 *)to = x;
}

static __device__ __forceinline__ void store4(__nv_bfloat16 *to, float4 x)
{
    const __nv_bfloat162 pair[2] = {__floats2bfloat162_rn(x.x, x.y),
                                    __floats2bfloat162_rn(x.z, x.w)};
    uint2 both;
    memcpy(&both, pair, sizeof both);
    *(uint2 *)to = both;
}

/* ---- an operand's way into shared memory ---- */

/* One thread's share.  ALONG_K: four neighbours in memory are of one row of op(a), or column of
 * op(b), else of one k.  WIDE: they are fetched at once, for lines are of so many times four;
 * what lies beyond the operand's last row is not stored, so its place holds some row twice. */
template <typename T, int SIDE, bool ALONG_K, bool WIDE>
struct supply {
    typedef tile<SIDE> t;
    const T *at;   /* the next stage's first quad */
    int64_t apart; /* lines of memory */
    int beside;    /* how many rows there are from the quad's first on */
    typename quad_of<T>::type x[t::QUADS];

    /* Of the quad's place in the stage. */
    static __device__ __forceinline__ int depth(void)
    {
        const int i = threadIdx.x;
        return ALONG_K ? i % 2 * 4 + i / (2 * SIDE) * 8 : i / (SIDE / 4);
    }
    static __device__ __forceinline__ int side(void)
    {
        const int i = threadIdx.x;
        return ALONG_K ? i / 2 % SIDE : i % (SIDE / 4) * 4;
    }

    /* The tile's rows begin at `first` of `rows`, its k at `begin` of K. */
    __device__ __forceinline__ void open(const T *from, int64_t first, int64_t rows, int64_t begin,
                                         int64_t K)
    {
        const int64_t row = min(first + side(), ALONG_K ? rows - 1 : WIDE ? rows - 4 : rows - 1);
        const int64_t k = begin + depth();
        apart = ALONG_K ? K : rows;
        beside = (int)min(rows - row, (int64_t)4);
        at = from + (ALONG_K ? row * apart + k : k * apart + row);
    }

    /* The next stage's, of which `there` are left in k. */
    __device__ __forceinline__ void fetch(int there)
    {
        #pragma unroll 2
        for (int i = 0; i < t::QUADS; i++) {
            const T *from = at + i * t::APART * (ALONG_K ? 1 : apart);
            const int left = there - i * t::APART - depth();
            x[i] = {};
            if (!WIDE)
                x[i] = gathered(from, ALONG_K ? left : left > 0 ? beside : 0);
            else if (left > 0)
                x[i] = *(const typename quad_of<T>::type *)from;
        }
        at += t::STAGE * (ALONG_K ? 1 : apart);
    }

    __device__ __forceinline__ void put(float *stage) const
    {
        float *to = stage + depth() * t::PITCH + side();
        #pragma unroll 2
        for (int i = 0; i < t::QUADS; i++, to += t::APART * t::PITCH) {
            const float4 y = widened(x[i]);
            if (!ALONG_K) {
                store4(to, y);
                continue;
            }
            to[0] = y.x;
            to[t::PITCH] = y.y;
            to[2 * t::PITCH] = y.z;
            to[3 * t::PITCH] = y.w;
        }
    }
};

/* ---- a thread's 8 x 8 ---- */

/* Eight numbers of an operand at one k, in two quads `apart`. */
static __device__ __forceinline__ void take(float x[8], const float *from, int apart)
{
    const float4 first = load4(from), second = load4(from + apart);
    x[0] = first.x, x[1] = first.y, x[2] = first.z, x[3] = first.w;
    x[4] = second.x, x[5] = second.y, x[6] = second.z, x[7] = second.w;
}

static __device__ __forceinline__ void multiply_add(float sum[8][8], const float a[8],
                                                    const float b[8])
{
    #pragma unroll 8
    for (int i = 0; i < 8; i++) {
        #pragma unroll 8
        for (int j = 0; j < 8; j++)
            sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
    }
}

/* The sums of all groups in the threads of the first, the upper half added to the lower until
 * there is one. */
template <int SIDE>
static __device__ __forceinline__ void add_groups(float sum[8][8], float *room)
{
    const int group = threadIdx.x / tile<SIDE>::GROUP, in = threadIdx.x % tile<SIDE>::GROUP;

    for (int half = tile<SIDE>::GROUPS / 2; half; half /= 2) {
        float *mine = room + group % half * 64 * tile<SIDE>::GROUP + in;
        __syncthreads();
        #pragma unroll 64
        for (int e = 0; e < 64; e++)
            if (group >= half && group < 2 * half)
                mine[e * tile<SIDE>::GROUP] = sum[e / 8][e % 8];
        __syncthreads();
        #pragma unroll 64
        for (int e = 0; e < 64; e++)
            if (group < half)
                sum[e / 8][e % 8] += mine[e * tile<SIDE>::GROUP];
    }
}

/* Four sums of one row of c, from column n on. */
template <typename C, bool WIDE>
static __device__ __forceinline__ void finish(C *c, const C *c0, float alpha, float beta,
                                              const float sum[4], int left)
{
    if (WIDE) {
        const float4 was = c0 ? load4(c0) : make_float4(0, 0, 0, 0);
        store4(c,
               make_float4(fmaf(alpha, sum[0], beta * was.x), fmaf(alpha, sum[1], beta * was.y),
                           fmaf(alpha, sum[2], beta * was.z), fmaf(alpha, sum[3], beta * was.w)));
    } else {
        #pragma unroll 4
        for (int e = 0; e < 4; e++)
            if (e < left)
                store(c + e, c0 ? fmaf(alpha, sum[e], beta * load(c0 + e)) : alpha * sum[e]);
    }
}

template <typename C, bool WIDE>
static __device__ __forceinline__ void write_tile(C *c, const C *c0, float alpha, float beta,
                                                  const float sum[8][8], int64_t m, int64_t n,
                                                  int64_t M, int64_t N)
{
    #pragma unroll 8
    for (int i = 0; i < 8; i++) {
        const int64_t row = m + i % 4 + i / 4 * (WARP_M / 2);
        #pragma unroll 2
        for (int j = 0; j < 2; j++) {
            const int64_t column = n + j * (WARP_N / 2), at = row * N + column;
            if (row < M && column < N)
                finish<C, WIDE>(c + at, c0 ? c0 + at : NULL, alpha, beta, sum[i] + 4 * j,
                                (int)min(N - column, (int64_t)4));
        }
    }
}

/* Blocks: the tiles of a row of tiles, then rows, slices of k, products.  With more than one
 * slice their sums go to p.workspace, [slices,batch,M,N], as they are.
 *
 * A warp's lanes lie 4 x 8 over its part of c, two neighbours below each other: then a quarter of
 * them reads two quads of a and four of b, which shared memory gives out without conflicts. */
template <typename T, typename C, int SIDE, bool TRANS_A, bool TRANS_B, bool WIDE>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    multiply_blocked(gemm_problem<T, C> p, int slices)
{
    typedef tile<SIDE> t;
    __shared__ __align__(16) float memory[2 * t::HALF]; /* a's stage and b's, twice */
    const unsigned across = (unsigned)ceil_div(p.N, SIDE), down = (unsigned)ceil_div(p.M, SIDE);
    const unsigned row = blockIdx.x / across, of = row / down;
    const int64_t n0 = (int64_t)(blockIdx.x % across) * SIDE, m0 = (int64_t)(row % down) * SIDE;
    const int64_t slice = of % slices, g = of / slices, stages = ceil_div(p.K, t::STAGE);
    const int begin = (int)(slice * stages / slices), end = (int)((slice + 1) * stages / slices);
    const int k = (int)(min((int64_t)end * t::STAGE, p.K) - (int64_t)begin * t::STAGE);

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = threadIdx.x / t::GROUP;
    const int m = warp % t::WARPS_M * WARP_M + (lane / 16 * 2 + lane % 2) * 4;
    const int n = warp / t::WARPS_M % t::WARPS_N * WARP_N + lane / 2 % 8 * 4;
    supply<T, SIDE, !TRANS_A, WIDE> from_a;
    supply<T, SIDE, TRANS_B, WIDE> from_b;
    float sum[8][8] = {}, a[2][8], b[2][8];

    from_a.open(p.a + g * p.M * p.K, m0, p.M, (int64_t)begin * t::STAGE, p.K);
    from_b.open(p.b + g * p.K * p.N, n0, p.N, (int64_t)begin * t::STAGE, p.K);
    from_a.fetch(k);
    from_b.fetch(k);
    from_a.put(memory);
    from_b.put(memory + t::B);
    __syncthreads();
    const float *const a_rows = memory + group * DEPTH * t::PITCH + m;
    const float *const b_rows = memory + t::B + group * DEPTH * t::PITCH + n;
    take(a[0], a_rows, WARP_M / 2);
    take(b[0], b_rows, WARP_N / 2);
    int half = 0;
    for (int left = k; left > 0; left -= t::STAGE) {
        #pragma unroll 8
        for (int j = 0; j < DEPTH; j++) {
            if (j == DEPTH - 1) {
                half ^= t::HALF;
                from_a.put(memory + half);
                from_b.put(memory + half + t::B);
                __syncthreads();
            }
            const int next = half + (j + 1) % DEPTH * t::PITCH;
            take(a[(j + 1) % 2], a_rows + next, WARP_M / 2);
            take(b[(j + 1) % 2], b_rows + next, WARP_N / 2);
            if (j == 0) {
                from_a.fetch(left - t::STAGE);
                from_b.fetch(left - t::STAGE);
            }
            multiply_add(sum, a[j % 2], b[j % 2]);
        }
    }
    add_groups<SIDE>(sum, memory);
    if (group)
        return;
    const int64_t at = g * p.M * p.N;
    if (slices == 1)
        write_tile<C, WIDE>(p.c + at, p.c0 ? p.c0 + at : NULL, p.alpha, p.beta, sum, m0 + m, n0 + n,
                            p.M, p.N);
    else
        write_tile<float, WIDE>(p.workspace + slice * p.batch * p.M * p.N + at, NULL, 1, 0, sum,
                                m0 + m, n0 + n, p.M, p.N);
}

/* ---- which tile, how many slices ---- */

struct plan {
    int side, slices;
    int64_t blocks;
    bool wide;
};

template <typename T, typename C>
static int64_t tiles_of(const gemm_problem<T, C> &p, int side)
{
    return p.batch * ceil_div(p.M, side) * ceil_div(p.N, side);
}

/* In units of a tile's elements, the time that all tiles take, as many at once as the chip holds.
 * Smaller ones read more from shared memory and further away for each multiply-add. */
template <typename T, typename C>
static double time_of(const gemm_problem<T, C> &p, int side, bool split)
{
    const double rounds =
        (double)tiles_of(p, side) / (RESIDENT * (double)gpu_properties().multiProcessorCount);
    return (split ? rounds : ceil(rounds)) * side * side * (side == 64 ? 1.15 : 1);
}

/* Slices fill the chip once, if that leaves each at least four stages, and none is longer than
 * LONGEST runs.  Tensors begin where 16 divides, so lines of fours do. */
template <typename T, typename C>
static plan plan_of(const gemm_problem<T, C> &p, bool split)
{
    plan it;
    it.wide = !((p.trans_a ? p.M : p.K) % 4 || (p.trans_b ? p.K : p.N) % 4 || p.N % 4);
    it.side = it.wide && time_of(p, 128, split) <= time_of(p, 64, split) ? 128 : 64;
    const int64_t tiles = tiles_of(p, it.side);
    const int64_t stages = ceil_div(p.K, it.side == 128 ? +tile<128>::STAGE : +tile<64>::STAGE);
    const int64_t fill = RESIDENT * (int64_t)gpu_properties().multiProcessorCount / tiles;
    const int64_t most = fill < stages / 4 ? fill : stages / 4;
    const int64_t least = ceil_div(stages, LONGEST * RUN / DEPTH);
    it.slices = (int)max(split ? most : 0, max(least, (int64_t)1));
    it.blocks = tiles * it.slices;
    return it;
}

template <typename T, typename C, int SIDE, bool WIDE>
static void start(const gemm_problem<T, C> &p, const plan &it)
{
    void (*const kernel[2][2])(gemm_problem<T, C>,
                               int) = {{multiply_blocked<T, C, SIDE, false, false, WIDE>,
                                        multiply_blocked<T, C, SIDE, false, true, WIDE>},
                                       {multiply_blocked<T, C, SIDE, true, false, WIDE>,
                                        multiply_blocked<T, C, SIDE, true, true, WIDE>}};
    auto *const multiply = kernel[p.trans_a][p.trans_b];
    multiply<<<it.blocks, THREADS, 0, gpu_stream()>>>(p, it.slices);
}

template <typename T, typename C>
static int multiply_by(const gemm_problem<T, C> &p, const plan &it)
{
    if (!it.wide)
        start<T, C, 64, false>(p, it);
    else if (it.side == 64)
        start<T, C, 64, true>(p, it);
    else
        start<T, C, 128, true>(p, it);
    CUDA(cudaGetLastError());
    if (it.slices == 1)
        return 0;
    return gemm_add_parts(p.workspace, it.slices, p.batch * p.M * p.N, p.alpha, p.beta, p.c0, p.c);
}

static const char *too_many(int64_t blocks)
{
    return blocks > 0x7fffffff ? "more than 2147483647 tiles of 64 x 64" : NULL;
}

template <typename T, typename C>
static size_t room_of(const gemm_problem<T, C> &p, const plan &it)
{
    return it.slices > 1 ? sizeof(float) * it.slices * p.batch * p.M * p.N : 0;
}

struct gemm_blocked : gemm_engine<gemm_blocked> {
    template <typename T, typename C>
    static const char *declines(const gemm_problem<T, C> &p)
    {
        return too_many(plan_of(p, false).blocks);
    }

    template <typename T, typename C>
    static size_t workspace(const gemm_problem<T, C> &p)
    {
        return room_of(p, plan_of(p, false));
    }

    template <typename T, typename C>
    static int multiply(const gemm_problem<T, C> &p)
    {
        return multiply_by(p, plan_of(p, false));
    }
};

struct gemm_splitk : gemm_thin_engine<gemm_splitk> {
    template <typename T, typename C>
    static const char *declines(const gemm_problem<T, C> &p)
    {
        return too_many(plan_of(p, true).blocks);
    }

    template <typename T, typename C>
    static size_t workspace(const gemm_problem<T, C> &p)
    {
        return room_of(p, plan_of(p, true));
    }

    template <typename T, typename C>
    static int multiply(const gemm_problem<T, C> &p)
    {
        return multiply_by(p, plan_of(p, true));
    }
};

GEMM_IMPLS(extern "C", blocked, "8 x 8 a thread, 128 x 128 a block, two stages of shared memory");
GEMM_IMPLS(extern "C", splitk, "the same on slices of K that fill the chip, added up in order");
