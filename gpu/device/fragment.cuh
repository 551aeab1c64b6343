/* fragment.cuh - bf16 operands and float accumulators of mma m16n8k16: from shared memory to
 * registers and back.  A warp computes 16 rows.
 *
 * Its accumulators are tiles of 8 columns.  A thread holds four elements of tile n: columns 8n +
 * fragment_column() and the next, of row fragment_row() (elements 0 and 1) and of row
 * fragment_row() + 8 (elements 2 and 3). */
#ifndef FRAGMENT_CUH
#define FRAGMENT_CUH

#include "gpu/device/mma.cuh"
#include "gpu/device/vector.cuh"

typedef __nv_bfloat16 bf16;

static __device__ __forceinline__ int fragment_row(void)
{
    return threadIdx.x % 32 / 4;
}

static __device__ __forceinline__ int fragment_column(void)
{
    return threadIdx.x % 4 * 2;
}

/* The leading dimension of a matrix in shared memory, padded against bank conflicts: neither the 16
 * bytes of eight rows nor the pairs of a tile are in the same bank. */
static constexpr __host__ __device__ int padded(int columns)
{
    return columns + 8;
}

/* Loads the 16 x 16 block of A at row m, column k.  TRANSPOSED: memory has A^T. */
template <bool TRANSPOSED>
static __device__ __forceinline__ void load_fragment_a(unsigned a[4], const bf16 *A, int ld, int m,
                                                       int k)
{
    const int lane = threadIdx.x % 32, row = lane % 8, odd = lane / 8 % 2 * 8, high = lane / 16 * 8;
    if (TRANSPOSED)
        ldmatrix_x4<true>(a, A + (k + high + row) * ld + m + odd);
    else
        ldmatrix_x4<false>(a, A + (m + odd + row) * ld + k + high);
}

/* Loads the blocks of B for two tiles: rows from k on, columns from n on. */
template <bool TRANSPOSED>
static __device__ __forceinline__ void load_fragment_b(unsigned b[4], const bf16 *B, int ld, int k,
                                                       int n)
{
    const int lane = threadIdx.x % 32, row = lane % 8, odd = lane / 8 % 2 * 8, high = lane / 16 * 8;
    if (TRANSPOSED)
        ldmatrix_x4<false>(b, B + (n + high + row) * ld + k + odd);
    else
        ldmatrix_x4<true>(b, B + (k + odd + row) * ld + n + high);
}

/* Which of two operands are transposed in memory. */
enum flipped { NEITHER, LEFT, RIGHT, BOTH };

/* A matrix in shared memory, from row `first` on if it is a left operand, else from that column. */
struct smem_operand {
    const bf16 *at;
    int ld, first;
};

/* sum += A B: 16 rows of A, TILES * 8 columns of B, over the columns `from` ... `to` of A's DEPTH,
 * multiples of sixteen.  The loops unroll completely, so that no address is computed in them. */
template <flipped F, int TILES, int DEPTH>
static __device__ __forceinline__ void multiply(float (*sum)[4], const smem_operand &A,
                                                const smem_operand &B, int from = 0, int to = DEPTH)
{
    #pragma unroll 8
    for (int k = 0; k < DEPTH; k += 16) {
        unsigned a[4];
        if (k < from || k >= to)
            continue;
        load_fragment_a<(F & LEFT) != 0>(a, A.at, A.ld, A.first, k);
        #pragma unroll 8
        for (int tile = 0; tile < TILES; tile += 2) {
            unsigned b[4];
            load_fragment_b<(F & RIGHT) != 0>(b, B.at, B.ld, k, B.first + 8 * tile);
            mma_bf16(sum[tile], a, b);
            mma_bf16(sum[tile + 1], a, b + 2);
        }
    }
}

/* sum += A B and other += C B, where neither A nor C is transposed. */
template <flipped F, int TILES, int DEPTH>
static __device__ __forceinline__ void multiply_both(float (*sum)[4], const smem_operand &A,
                                                     float (*other)[4], const smem_operand &C,
                                                     const smem_operand &B, int to = DEPTH)
{
    #pragma unroll 8
    for (int k = 0; k < DEPTH; k += 16) {
        unsigned a[4], c[4];
        if (k >= to)
            continue;
        load_fragment_a<false>(a, A.at, A.ld, A.first, k);
        load_fragment_a<false>(c, C.at, C.ld, C.first, k);
        #pragma unroll 8
        for (int tile = 0; tile < TILES; tile += 2) {
            unsigned b[4];
            load_fragment_b<(F & RIGHT) != 0>(b, B.at, B.ld, k, B.first + 8 * tile);
            mma_bf16(sum[tile], a, b);
            mma_bf16(sum[tile + 1], a, b + 2);
            mma_bf16(other[tile], c, b);
            mma_bf16(other[tile + 1], c, b + 2);
        }
    }
}

/* Rounds accumulators and stores them at row m, column n of a matrix in shared memory. */
template <int TILES>
static __device__ __forceinline__ void store_strip(bf16 *to, int ld, int m, int n,
                                                   const float (*sum)[4])
{
    bf16 *at = to + (m + fragment_row()) * ld + n + fragment_column();
    #pragma unroll 8
    for (int tile = 0; tile < TILES; tile++) {
        *(unsigned *)(at + 8 * tile) = pack_bf16x2(sum[tile][0], sum[tile][1]);
        *(unsigned *)(at + 8 * ld + 8 * tile) = pack_bf16x2(sum[tile][2], sum[tile][3]);
    }
}

/* ---- operands split into high and low bf16 ---- */

/* A 16 x 16 left operand, each element the sum of two bf16. */
struct split {
    unsigned high[4], low[4];
};

static __device__ __forceinline__ void split_bf16(float first, float second, unsigned *high,
                                                  unsigned *low)
{
    *high = pack_bf16x2(first, second);
    *low = pack_bf16x2(first - low_of_pair(*high), second - high_of_pair(*high));
}

/* The accumulators of a 16 x 16 block as a left operand. */
static __device__ __forceinline__ split as_fragment_a(const float sum[2][4])
{
    split s;
    #pragma unroll 4
    for (int i = 0; i < 4; i++)
        split_bf16(sum[i / 2][i % 2 * 2], sum[i / 2][i % 2 * 2 + 1], &s.high[i], &s.low[i]);
    return s;
}

/* sum += a B^T, for a 16 x 16 block of floats B in shared memory. */
static __device__ __forceinline__ void multiply_split_bf16(float sum[2][4], const split &a,
                                                           const float *B, int ld)
{
    #pragma unroll 2
    for (int tile = 0; tile < 2; tile++) {
        const float *at = B + (8 * tile + fragment_row()) * ld + fragment_column();
        unsigned high[2], low[2];
        split_bf16(at[0], at[1], &high[0], &low[0]);
        split_bf16(at[8], at[9], &high[1], &low[1]);
        mma_bf16(sum[tile], a.high, high);
        mma_bf16(sum[tile], a.high, low);
        mma_bf16(sum[tile], a.low, high);
    }
}

#endif
