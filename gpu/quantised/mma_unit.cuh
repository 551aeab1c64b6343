/* mma_unit.cuh - 256 weights of a row, a unit, as the left operand of mma m16n8k16: bytes in shared
 * memory to pairs of bf16, which are exact but for nf4's table.
 *
 * A warp has rows g and g + 8, g = lane / 4.  Of each 32 weights the lane t = lane % 4 takes 8, where they
 * are neighbours in memory and in x: 8 t ... 8 t + 7; or, with scales for 16 weights (HALVES), 4 t ...
 * 4 t + 3 and 16 + 4 t ... .  (In which order the products' k are added does not matter, as long as x has the
 * same.)  A format has
 *
 *     BYTES      of a unit in a row, which begins at a multiple of ALIGNED
 *     pairs(at, j, t, table, p)    eight weights of the j-th 32 of a unit at `at`, in fours of pairs
 *     line(at, j, half)            their scale, and their minimum where the format has one (MINIMUM) */
#ifndef MMA_UNIT_CUH
#define MMA_UNIT_CUH

#include "gpu/device/bits.cuh"
#include "gpu/device/fragment.cuh"
#include "gpu/quantised/span.cuh"

enum { MMA_UNIT = 256, PARTS = MMA_UNIT / 32 };

/* Two bf16, each minus `offset`, exactly: |x| and the difference have 8 bits. */
static __device__ __forceinline__ unsigned minus_bf16x2(unsigned pair, float offset)
{
#ifdef __CUDACC__
    const __nv_bfloat162 by = __float2bfloat162_rn(offset);
    __nv_bfloat162 x;
    memcpy(&x, &pair, sizeof x);
    x = __hsub2(x, by);
    memcpy(&pair, &x, sizeof x);
    return pair;
#else
    return pack_bf16x2(low_of_pair(pair) - offset, high_of_pair(pair) - offset);
#endif
}

/* Bytes below 128, 0 and 1 of a word or else 2 and 3, minus `offset`: the byte is the end of 128's
 * mantissa. */
static __device__ __forceinline__ unsigned pair_of_bytes(unsigned word, int upper, float offset)
{
    return minus_bf16x2(byte_perm(word, 0x43, upper ? 0x4342 : 0x4140), 128 + offset);
}

static __device__ __forceinline__ void pairs_of_words(unsigned low, unsigned high, float offset,
                                                      unsigned *p)
{
    p[0] = pair_of_bytes(low, 0, offset);
    p[1] = pair_of_bytes(low, 1, offset);
    p[2] = pair_of_bytes(high, 0, offset);
    p[3] = pair_of_bytes(high, 1, offset);
}

template <typename F>
struct unit;

/* ---- q4_k, q5_k ---- */

template <int BYTES_, int QS>
struct unit_k {
    enum { BYTES = BYTES_, ALIGNED = 16, HALVES = 0, MINIMUM = 1 };

    static __device__ __forceinline__ void pairs(const uint8_t *at, int j, int t, const unsigned *,
                                                 unsigned *p)
    {
        const uint2 q = *(const uint2 *)(at + QS + 32 * (j / 2) + 8 * t);
        unsigned low = q.x >> 4 * (j % 2) & 0x0f0f0f0f, high = q.y >> 4 * (j % 2) & 0x0f0f0f0f;
        if (QS == 48) {
            const uint2 h = *(const uint2 *)(at + 16 + 8 * t);
            low |= (h.x >> j & 0x01010101) << 4;
            high |= (h.y >> j & 0x01010101) << 4;
        }
        pairs_of_words(low, high, 0, p);
    }
    static __device__ __forceinline__ float2 line(const uint8_t *at, int j, int)
    {
        return scale_and_minimum(*(const uint4 *)at, j);
    }
};
template <>
struct unit<q4_k> : unit_k<144, 16> {
};
template <>
struct unit<q5_k> : unit_k<176, 48> {
};

/* ---- q6_k ---- */

template <>
struct unit<q6_k> {
    enum { BYTES = 210, ALIGNED = 2, HALVES = 1, MINIMUM = 0 };

    /* Four weights from 16 s + 4 t on. */
    static __device__ __forceinline__ unsigned four(const uint8_t *at, int s, int t)
    {
        const int half = s / 8, i = s % 8;
        const unsigned q = even_word(at + 64 * half + 16 * (i % 4) + 4 * t);
        const unsigned h = even_word(at + 128 + 32 * half + 16 * (i % 2) + 4 * t);
        return (q >> 4 * (i / 4) & 0x0f0f0f0f) | (h >> 2 * (i / 2) & 0x03030303) << 4;
    }
    static __device__ __forceinline__ void pairs(const uint8_t *at, int j, int t, const unsigned *,
                                                 unsigned *p)
    {
        pairs_of_words(four(at, 2 * j, t), four(at, 2 * j + 1, t), 32, p);
    }
    static __device__ __forceinline__ float2 line(const uint8_t *at, int j, int half)
    {
        const float d = f16_at(at + 208);
        return make_float2(d * (float)(int8_t)at[192 + 2 * j + half], 0);
    }
};

/* ---- q8_0: eight blocks ---- */

template <>
struct unit<q8_0> {
    enum { BYTES = 272, ALIGNED = 2, HALVES = 0, MINIMUM = 0 };

    static __device__ __forceinline__ void pairs(const uint8_t *at, int j, int t, const unsigned *,
                                                 unsigned *p)
    {
        #pragma unroll
        for (int w = 0; w < 2; w++) {
            const unsigned q = even_word(at + 34 * j + 2 + 8 * t + 4 * w) ^ 0x80808080;
            #pragma unroll
            for (int k = 0; k < 2; k++)
                p[2 * w + k] =
                    pack_bf16x2(float_of_byte(q, 2 * k, 128), float_of_byte(q, 2 * k + 1, 128));
        }
    }
    static __device__ __forceinline__ float2 line(const uint8_t *at, int j, int)
    {
        return make_float2(f16_at(at + 34 * j), 0);
    }
};

/* ---- nf4: scales are elsewhere ---- */

template <>
struct unit<nf4> {
    enum { BYTES = 128, ALIGNED = 16, HALVES = 0, MINIMUM = 0 };

    /* The table has both weights of a byte. */
    static __device__ __forceinline__ void pairs(const uint8_t *at, int j, int t,
                                                 const unsigned *table, unsigned *p)
    {
        const unsigned q = word_at(at + 16 * j + 4 * t);
        #pragma unroll
        for (int k = 0; k < 4; k++)
            p[k] = table[byte_of(q, k)];
    }
    static __device__ __forceinline__ float2 line(const uint8_t *, int, int)
    {
        return make_float2(0, 0);
    }
};

/* By all threads of a block, before a barrier: nf4's pairs by their byte. */
static __device__ __forceinline__ void fill_pairs(unsigned *table)
{
    for (int i = (int)threadIdx.x; i < 256; i += (int)blockDim.x)
        table[i] = pack_bf16x2(nf4_table[i >> 4], nf4_table[i & 15]);
}

#endif
