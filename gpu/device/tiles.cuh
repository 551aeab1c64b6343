/* tiles.cuh - products of bf16 matrices in shared memory on tensor cores: a
 * warp makes a strip of 16 rows, sums are float.
 *
 * A strip's sums lie over the warp's threads as mma m16n8k16 leaves them, in
 * tiles of 8 columns: of tile n a thread holds columns 8n + pair() and the
 * next of row line() (numbers 0 and 1) and of row line() + 8 (2 and 3). */
#ifndef TILES_CUH
#define TILES_CUH

#include "gpu/device/mma.cuh"

typedef __nv_bfloat16 bf16;

static __device__ __forceinline__ int line(void)
{
    return threadIdx.x % 32 / 4;
}

static __device__ __forceinline__ int pair(void)
{
    return threadIdx.x % 4 * 2;
}

/* How far apart the rows of a matrix of so many columns lie in shared memory:
 * so that neither eight rows' 16 bytes nor a tile's pairs share a bank. */
static constexpr __host__ __device__ int padded(int columns)
{
    return columns + 8;
}

static __device__ __forceinline__ unsigned pack(float first, float second)
{
    const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
    unsigned u;
    memcpy(&u, &both, sizeof u);
    return u;
}

/* A bf16 is the upper half of a float. */
static __device__ __forceinline__ float first_of(unsigned both)
{
    return __uint_as_float(both << 16);
}

static __device__ __forceinline__ float second_of(unsigned both)
{
    return __uint_as_float(both & 0xffff0000);
}

/* The 16 x 16 block of A at row m, column k, where A begins; FLIPPED: in
 * memory lies A^T. */
template <bool FLIPPED>
static __device__ __forceinline__ void take_left(unsigned a[4], const bf16 *A, int apart, int m,
                                                 int k)
{
    const int lane = threadIdx.x % 32, row = lane % 8, odd = lane / 8 % 2 * 8, high = lane / 16 * 8;
    if (FLIPPED)
        ldmatrix_x4<true>(a, A + (k + high + row) * apart + m + odd);
    else
        ldmatrix_x4<false>(a, A + (m + odd + row) * apart + k + high);
}

/* The same of B, for two tiles: rows from k, columns from n. */
template <bool FLIPPED>
static __device__ __forceinline__ void take_right(unsigned b[4], const bf16 *B, int apart, int k,
                                                  int n)
{
    const int lane = threadIdx.x % 32, row = lane % 8, odd = lane / 8 % 2 * 8, high = lane / 16 * 8;
    if (FLIPPED)
        ldmatrix_x4<false>(b, B + (n + high + row) * apart + k + odd);
    else
        ldmatrix_x4<true>(b, B + (k + odd + row) * apart + n + high);
}

/* Which of two factors lie transposed in memory. */
enum flipped { NEITHER, LEFT, RIGHT, BOTH };

/* sum += A B: rows from m of A, TILES * 8 columns from n of B, over the columns
 * `from` ... `to` of A's DEPTH, whole sixteens.  The loops unroll whole, so that
 * no address is reckoned in them. */
template <flipped F, int TILES, int DEPTH>
static __device__ __forceinline__ void multiply(float (*sum)[4], const bf16 *A, int a_apart, int m,
                                                const bf16 *B, int b_apart, int n, int from = 0,
                                                int to = DEPTH)
{
    UNROLL(8)
    for (int k = 0; k < DEPTH; k += 16) {
        unsigned a[4];
        if (k < from || k >= to)
            continue;
        take_left<(F & LEFT) != 0>(a, A, a_apart, m, k);
        UNROLL(8)
        for (int tile = 0; tile < TILES; tile += 2) {
            unsigned b[4];
            take_right<(F & RIGHT) != 0>(b, B, b_apart, k, n + 8 * tile);
            mma_bf16(sum[tile], a, b);
            mma_bf16(sum[tile + 1], a, b + 2);
        }
    }
}

/* The same for two left factors, neither transposed, of one right factor. */
template <flipped F, int TILES, int DEPTH>
static __device__ __forceinline__ void
multiply_both(float (*sum)[4], const bf16 *A, float (*other)[4], const bf16 *C, int apart, int m,
              const bf16 *B, int b_apart, int n, int to = DEPTH)
{
    UNROLL(8)
    for (int k = 0; k < DEPTH; k += 16) {
        unsigned a[4], c[4];
        if (k >= to)
            continue;
        take_left<false>(a, A, apart, m, k);
        take_left<false>(c, C, apart, m, k);
        UNROLL(8)
        for (int tile = 0; tile < TILES; tile += 2) {
            unsigned b[4];
            take_right<(F & RIGHT) != 0>(b, B, b_apart, k, n + 8 * tile);
            mma_bf16(sum[tile], a, b);
            mma_bf16(sum[tile + 1], a, b + 2);
            mma_bf16(other[tile], c, b);
            mma_bf16(other[tile + 1], c, b + 2);
        }
    }
}

/* A strip to shared memory, rounded: to row m, column n of a matrix there. */
template <int TILES>
static __device__ __forceinline__ void put_strip(bf16 *to, int apart, int m, int n,
                                                 const float (*sum)[4])
{
    bf16 *at = to + (m + line()) * apart + n + pair();
    UNROLL(8)
    for (int tile = 0; tile < TILES; tile++) {
        *(unsigned *)(at + 8 * tile) = pack(sum[tile][0], sum[tile][1]);
        *(unsigned *)(at + 8 * apart + 8 * tile) = pack(sum[tile][2], sum[tile][3]);
    }
}

/* ---- with the factors' rounding made good ---- */

/* A 16 x 16 left factor as the sum of two bf16 each. */
struct split {
    unsigned high[4], low[4];
};

static __device__ __forceinline__ void split_pair(float first, float second, unsigned *high,
                                                  unsigned *low)
{
    *high = pack(first, second);
    *low = pack(first - first_of(*high), second - second_of(*high));
}

/* The sums of a 16 x 16 block as a left factor. */
static __device__ __forceinline__ split as_left(const float sum[2][4])
{
    split s;
    UNROLL(4)
    for (int i = 0; i < 4; i++)
        split_pair(sum[i / 2][i % 2 * 2], sum[i / 2][i % 2 * 2 + 1], &s.high[i], &s.low[i]);
    return s;
}

/* sum += a B^T, for a 16 x 16 block of floats B in shared memory. */
static __device__ __forceinline__ void multiply_split(float sum[2][4], const split &a,
                                                      const float *B, int apart)
{
    UNROLL(2)
    for (int tile = 0; tile < 2; tile++) {
        const float *at = B + (8 * tile + line()) * apart + pair();
        unsigned high[2], low[2];
        split_pair(at[0], at[1], &high[0], &low[0]);
        split_pair(at[8], at[9], &high[1], &low[1]);
        mma_bf16(sum[tile], a.high, high);
        mma_bf16(sum[tile], a.high, low);
        mma_bf16(sum[tile], a.low, high);
    }
}

#endif
