/* decode.cuh - weights of a block of quantised ones, in float, which is exact (common/ops/quantised.h).
 *
 * A format has weight(), one of a block, and eights(): the weights of lane 0 ... LANES - 1, eight for
 * each, all from a few neighbouring bytes.  They are two times four neighbours, at `first` and at
 * `second`.  Blocks are at even addresses; those of q4_k and q5_k, at multiples of 16. */
#ifndef DECODE_CUH
#define DECODE_CUH

#include "common/ops/quantised.h"
#include "gpu/device/vector.cuh"

struct eight {
    float w[8];
    int first, second;
};

static __device__ __forceinline__ unsigned half_word(const uint8_t *at)
{
    return *(const uint16_t *)at;
}

static __device__ __forceinline__ float f16_at(const uint8_t *at)
{
    __half x;
    memcpy(&x, (const uint16_t *)at, sizeof x);
    return __half2float(x);
}

/* One store: ptxas 13.0 makes a conversion of the store of a half's low byte. */
static __device__ __forceinline__ void put_f16(uint8_t *at, float x)
{
    *(uint16_t *)at = __half_as_ushort(__float2half(x));
}

/* Four bytes, from an even address; from a multiple of four. */
static __device__ __forceinline__ unsigned even_word(const uint8_t *at)
{
    return half_word(at) | half_word(at + 2) << 16;
}
static __device__ __forceinline__ unsigned word_at(const uint8_t *at)
{
    return *(const unsigned *)at;
}

/* d s_j and dmin m_j of q4_k and q5_k. */
struct line {
    float scale, minimum;

    __device__ __forceinline__ line(const uint8_t *block, int j)
    {
        const uint8_t *a = block + 4;
        const int s = j < 4 ? a[j] & 63 : (a[4 + j] & 15) | (a[j - 4] >> 6) << 4;
        const int m = j < 4 ? a[4 + j] & 63 : a[4 + j] >> 4 | (a[j] >> 6) << 4;
        scale = f16_at(block) * (float)s;
        minimum = f16_at(block + 2) * (float)m;
    }
    __device__ __forceinline__ float at(int q) const { return scale * (float)q - minimum; }
};

/* Byte k of a word. */
static __device__ __forceinline__ int byte_of(unsigned word, int k)
{
    return word >> 8 * k & 255;
}

struct q4_k {
    enum { WEIGHTS = 256, BYTES = 144, LANES = 32 };

    static __device__ __forceinline__ float weight(const uint8_t *block, int i)
    {
        const int byte = block[16 + 32 * (i / 64) + i % 32];
        return line(block, i / 32).at(byte >> 4 * (i / 32 % 2) & 15);
    }
    static __device__ __forceinline__ eight eights(const uint8_t *block, int lane)
    {
        const int j = lane / 8 * 2, first = 64 * (lane / 8) + 4 * (lane % 8);
        const unsigned q = word_at(block + 16 + 4 * lane);
        const line low(block, j), high(block, j + 1);
        eight e = {{}, first, first + 32};
        #pragma unroll 4
        for (int k = 0; k < 4; k++) {
            e.w[k] = low.at(byte_of(q & 0x0f0f0f0f, k));
            e.w[4 + k] = high.at(byte_of(q >> 4 & 0x0f0f0f0f, k));
        }
        return e;
    }
};

struct q5_k {
    enum { WEIGHTS = 256, BYTES = 176, LANES = 32 };

    static __device__ __forceinline__ float weight(const uint8_t *block, int i)
    {
        const int byte = block[48 + 32 * (i / 64) + i % 32],
                  fifth = block[16 + i % 32] >> i / 32 & 1;
        return line(block, i / 32).at((byte >> 4 * (i / 32 % 2) & 15) + 16 * fifth);
    }
    static __device__ __forceinline__ eight eights(const uint8_t *block, int lane)
    {
        const int j = lane / 8 * 2, first = 64 * (lane / 8) + 4 * (lane % 8);
        const unsigned q = word_at(block + 48 + 4 * lane),
                       h = word_at(block + 16 + 4 * (lane % 8)) >> j;
        const unsigned q_low = (q & 0x0f0f0f0f) | (h & 0x01010101) << 4;
        const unsigned q_high = (q >> 4 & 0x0f0f0f0f) | (h >> 1 & 0x01010101) << 4;
        const line low(block, j), high(block, j + 1);
        eight e = {{}, first, first + 32};
        #pragma unroll 4
        for (int k = 0; k < 4; k++) {
            e.w[k] = low.at(byte_of(q_low, k));
            e.w[4 + k] = high.at(byte_of(q_high, k));
        }
        return e;
    }
};

struct q6_k {
    enum { WEIGHTS = 256, BYTES = 210, LANES = 32 };

    static __device__ __forceinline__ float scale(const uint8_t *block, int i)
    {
        return f16_at(block + 208) * (float)(int8_t)block[192 + i / 16];
    }
    static __device__ __forceinline__ float weight(const uint8_t *block, int i)
    {
        const int low = block[64 * (i / 128) + i % 64] >> 4 * (i % 128 / 64) & 15;
        const int high = block[128 + 32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3;
        return scale(block, i) * (float)(low + 16 * high - 32);
    }
    static __device__ __forceinline__ eight eights(const uint8_t *block, int lane)
    {
        const int half = lane / 16, i = 4 * (lane % 16), first = 128 * half + i;
        const unsigned low = even_word(block + 4 * lane);
        const unsigned high = even_word(block + 128 + 32 * half + i % 32) >> i / 32 * 2;
        const unsigned q_low = (low & 0x0f0f0f0f) | (high & 0x03030303) << 4;
        const unsigned q_high = (low >> 4 & 0x0f0f0f0f) | (high >> 4 & 0x03030303) << 4;
        const float s_low = scale(block, first), s_high = scale(block, first + 64);
        eight e = {{}, first, first + 64};
        #pragma unroll 4
        for (int k = 0; k < 4; k++) {
            e.w[k] = s_low * (float)(byte_of(q_low, k) - 32);
            e.w[4 + k] = s_high * (float)(byte_of(q_high, k) - 32);
        }
        return e;
    }
};

struct q8_0 {
    enum { WEIGHTS = 32, BYTES = 34, LANES = 4 };

    static __device__ __forceinline__ float weight(const uint8_t *block, int i)
    {
        return f16_at(block) * (float)(int8_t)block[2 + i];
    }
    static __device__ __forceinline__ eight eights(const uint8_t *block, int lane)
    {
        const unsigned low = even_word(block + 2 + 8 * lane),
                       high = even_word(block + 6 + 8 * lane);
        const float d = f16_at(block);
        eight e = {{}, 8 * lane, 8 * lane + 4};
        #pragma unroll 4
        for (int k = 0; k < 4; k++) {
            e.w[k] = d * (float)(int8_t)byte_of(low, k);
            e.w[4 + k] = d * (float)(int8_t)byte_of(high, k);
        }
        return e;
    }
};

/* ---- nf4 ---- */

static __device__ const float nf4_table[16] = {NF4_TABLE};
static __device__ const float nf4_map[256] = {NF4_MAP};

/* The code of weight i. */
static __device__ __forceinline__ int nf4_code_at(const uint8_t *W, int64_t i)
{
    return W[i / 2] >> (i % 2 ? 0 : 4) & 15;
}

/* Where code k of four bytes of codes is in their word. */
static __device__ __forceinline__ int nf4_shift(int k)
{
    return 8 * (k / 2) + (k % 2 ? 0 : 4);
}

/* The table in shared memory, by a whole block of threads: the codes of a warp are in up to 16 banks,
 * each code in its own. */
static __device__ __forceinline__ void load_nf4_table(float *table)
{
    if (threadIdx.x < 16)
        table[threadIdx.x] = nf4_table[threadIdx.x];
    __syncthreads();
}

/* The scales of nf4's blocks: absmax, or else what it is quantised as. */
struct nf4_scales {
    const float *absmax;
    const uint8_t *absmax8;
    const float *absmax2, *offset;

    /* In two roundings, which no FMA may make one. */
    __device__ __forceinline__ float at(int64_t b) const { return at(b, absmax ? 0 : *offset); }
    /* The same, where the offset is already known. */
    __device__ __forceinline__ float at(int64_t b, float known) const
    {
        if (absmax)
            return absmax[b];
        return __fadd_rn(__fmul_rn(nf4_map[absmax8[b]], absmax2[b / NF4_GROUP]), known);
    }
};

static inline nf4_scales nf4_scales_of(const struct dequantise &a)
{
    return {(const float *)a.absmax, (const uint8_t *)a.absmax8, (const float *)a.absmax2,
            (const float *)a.offset};
}

/* A weight's place is shifted by so many bits to that of its scale. */
static inline int nf4_log2_block(const struct call *f)
{
    return __builtin_ctz((unsigned)DIM(f, 'G'));
}

/* ---- formats as types ---- */

/* nf4, where it is one among the others. */
struct nf4 {
};

/* Calls `go` with a value of the type of the call's format. */
template <typename Go>
static int with_format(const struct call *f, const Go &go)
{
    switch (f->choice[QUANTISED_FORMAT]) {
    case Q4_K: return go(q4_k());
    case Q5_K: return go(q5_k());
    case Q6_K: return go(q6_k());
    case Q8_0: return go(q8_0());
    default: return go(nf4());
    }
}

/* ---- a matrix of weights [N,K] ---- */

/* Of a format with rows. */
template <typename F>
struct block_matrix {
    const uint8_t *W;
    int64_t K, row_bytes;

    __host__ block_matrix(const struct call *f, const struct dequantise &a)
        : W((const uint8_t *)a.W), K(DIM(f, 'K')), row_bytes(DIM(f, 'R'))
    {
    }
    __device__ __forceinline__ float at(int64_t n, int64_t k) const
    {
        return F::weight(W + n * row_bytes + k / F::WEIGHTS * F::BYTES, (int)(k % F::WEIGHTS));
    }
};

struct nf4_matrix {
    const uint8_t *W;
    nf4_scales scales;
    int64_t K;
    int log2_block;

    __host__ nf4_matrix(const struct call *f, const struct dequantise &a)
        : W((const uint8_t *)a.W), scales(nf4_scales_of(a)), K(DIM(f, 'K')),
          log2_block(nf4_log2_block(f))
    {
    }
    __device__ __forceinline__ float at(int64_t n, int64_t k) const
    {
        const int64_t i = n * K + k;
        return nf4_table[nf4_code_at(W, i)] * scales.at(i >> log2_block);
    }
};

/* Calls `go` with the matrix of the call's format. */
template <typename Go>
static int with_matrix(const struct call *f, const struct dequantise &a, const Go &go)
{
    return with_format(f, [&](auto format) {
        typedef decltype(format) F;
        if constexpr (std::is_same<F, nf4>::value)
            return go(nf4_matrix(f, a));
        else
            return go(block_matrix<F>(f, a));
    });
}

#endif
