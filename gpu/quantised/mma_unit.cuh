/* mma_unit.cuh - 256 weights of a row, a unit, as the left operand of mma m16n8k16: bytes in shared
 * memory to pairs of bf16, which are exact but for nf4's table.
 *
 * A warp has rows g and g + 8, g = lane / 4.  Of each 32 weights the lane t = lane % 4 takes 8, where they
 * are neighbours in memory and in x: 8 t ... 8 t + 7; or, with scales for 16 weights (HALVES), 4 t ...
 * 4 t + 3 and 16 + 4 t ... .  (In which order the products' k are added does not matter, as long as x has the
 * same.)  A format has
 *
 *     BYTES, ALIGNED   of a unit in a row, and where it may begin
 *     OFFSET           0, or what pairs() adds to each quant
 *     WHOLE_UNITS      has a row whole units?
 *     ELSEWHERE        are scales in other tensors?
 *     TABLE_BYTES      of the table in shared memory, which fill_pairs() fills
 *     UNROLLED         how many parts in a row its registers allow
 *     pairs(at, j, t, table, p)    eight weights of the j-th 32 of a unit at `at`, in fours of pairs
 *     lines(at)        the scales of a unit; of(at, j, half): the one of a part; where there is an OFFSET,
 *                      minima too, and scales(t), minima(t): pairs of them without d and dmin */
#ifndef MMA_UNIT_CUH
#define MMA_UNIT_CUH

#include "gpu/device/bits.cuh"
#include "gpu/device/fragment.cuh"
#include "gpu/quantised/span.cuh"

enum { MMA_UNIT = 256, PARTS = MMA_UNIT / 32 };

/* The multiple of 16 before an address. */
static __device__ __forceinline__ const uint8_t *aligned_down(const uint8_t *at)
{
    return (const uint8_t *)((uintptr_t)at & ~(uintptr_t)15);
}

/* Two bf16 minus two others, exactly: both, and the differences, have 8 bits. */
static __device__ __forceinline__ unsigned minus_bf16x2(unsigned pair, unsigned other)
{
#ifdef __CUDACC__
    __nv_bfloat162 x, by;
    memcpy(&x, &pair, sizeof x);
    memcpy(&by, &other, sizeof by);
    x = __hsub2(x, by);
    memcpy(&pair, &x, sizeof x);
    return pair;
#else
    return pack_bf16x2(low_of_pair(pair) - low_of_pair(other),
                       high_of_pair(pair) - high_of_pair(other));
#endif
}

/* Bytes below 128, of two words, plus 128: the byte is the end of 128's mantissa. */
static __device__ __forceinline__ void pairs_of_words(unsigned low, unsigned high, unsigned *p)
{
    p[0] = byte_perm(low, 0x43, 0x4140);
    p[1] = byte_perm(low, 0x43, 0x4342);
    p[2] = byte_perm(high, 0x43, 0x4140);
    p[3] = byte_perm(high, 0x43, 0x4342);
}

template <typename F>
struct unit;

/* Where scales are elsewhere, or in each block of a unit. */
struct no_lines {
    no_lines() = default;
    __device__ __forceinline__ explicit no_lines(const uint8_t *) {}
};

/* scale (byte k of a word), exactly, where the byte is below 128: it is the end of 128's mantissa. */
struct scaled_bytes {
    float scale, minus; /* -128 scale */

    scaled_bytes() = default;
    __device__ __forceinline__ explicit scaled_bytes(unsigned short bits)
        : scale(__half2float(__ushort_as_half(bits))), minus(-128 * scale)
    {
    }
    __device__ __forceinline__ float of(unsigned word, int k) const
    {
        return fmaf(scale, __uint_as_float(byte_perm(word, 0x43, 0x4055 | k << 8)), minus);
    }
};

/* Of q4_k and q5_k. */
struct lines_k {
    scaled_bytes d;
    float dmin;
    unsigned s[2], m[2]; /* four in a word */

    lines_k() = default;
    __device__ __forceinline__ explicit lines_k(const uint4 &head)
        : d((unsigned short)head.x),
          dmin(__half2float(__ushort_as_half((unsigned short)(head.x >> 16)))),
          s{head.y & 0x3f3f3f3f, (head.w & 0x0f0f0f0f) | (head.y >> 2 & 0x30303030)},
          m{head.z & 0x3f3f3f3f, (head.w >> 4 & 0x0f0f0f0f) | (head.z >> 2 & 0x30303030)}
    {
    }
    __device__ __forceinline__ explicit lines_k(const uint8_t *at) : lines_k(*(const uint4 *)at) {}
    __device__ __forceinline__ float of(const uint8_t *, int j, int) const
    {
        return d.of(j < 4 ? s[0] : s[1], j % 4);
    }
    /* Bytes 2 t and 2 t + 1 of eight, as bf16. */
    static __device__ __forceinline__ unsigned pair_of(const unsigned *eight, int t)
    {
        const unsigned four = t < 2 ? eight[0] : eight[1];
        return minus_bf16x2(byte_perm(four, 0x43, t % 2 ? 0x4342 : 0x4140), 0x43004300 /* 128 */);
    }
    __device__ __forceinline__ unsigned scales(int t) const { return pair_of(s, t); }
    __device__ __forceinline__ unsigned minima(int t) const { return pair_of(m, t); }
};

/* ---- q4_k, q5_k ---- */

template <int BYTES_, int QS>
struct unit_k {
    enum { BYTES = BYTES_, ALIGNED = 16, HALVES = 0, OFFSET = 128, WHOLE_UNITS = 1 };
    enum { ELSEWHERE = 0, TABLE_BYTES = 0, UNROLLED = QS == 16 ? 8 : 4 };
    typedef lines_k lines;

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
        pairs_of_words(low, high, p);
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
    enum { BYTES = 210, ALIGNED = 2, HALVES = 1, OFFSET = 0, WHOLE_UNITS = 1 };
    enum { ELSEWHERE = 0, TABLE_BYTES = 0, UNROLLED = 4 };

    struct lines {
        float d, minus;

        lines() = default;
        __device__ __forceinline__ explicit lines(const uint8_t *at)
            : d(f16_at(at + 208)), minus(-(32768 + 128) * d)
        {
        }
        /* The scale's byte, plus 128, is in the middle of 32768's mantissa. */
        __device__ __forceinline__ float of(const uint8_t *at, int j, int half) const
        {
            const unsigned both = half_word(at + 192 + 2 * j) ^ 0x8080;
            return fmaf(d, __uint_as_float(byte_perm(both, 0x47, half ? 0x4515 : 0x4505)), minus);
        }
    };

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
        pairs_of_words(four(at, 2 * j, t), four(at, 2 * j + 1, t), p);
        #pragma unroll
        for (int k = 0; k < 4; k++)
            p[k] = minus_bf16x2(p[k], 0x43204320 /* 160 = 128 + 32 */);
    }
};

/* ---- q8_0: eight blocks ---- */

template <>
struct unit<q8_0> {
    enum { BYTES = 272, ALIGNED = 2, HALVES = 0, OFFSET = 0, WHOLE_UNITS = 0 };
    enum { ELSEWHERE = 0, TABLE_BYTES = 0, UNROLLED = 4 };

    struct lines : no_lines {
        using no_lines::no_lines;
        __device__ __forceinline__ float of(const uint8_t *at, int j, int) const
        {
            return f16_at(at + 34 * j);
        }
    };

    /* 128 + the lower seven bits, minus 128, or minus 256 where the sign is set. */
    static __device__ __forceinline__ void pairs(const uint8_t *at, int j, int t, const unsigned *,
                                                 unsigned *p)
    {
        #pragma unroll
        for (int w = 0; w < 2; w++) {
            const unsigned q = even_word(at + 34 * j + 2 + 8 * t + 4 * w);
            const unsigned low = q & 0x7f7f7f7f, sign = q & 0x80808080;
            p[2 * w] = minus_bf16x2(byte_perm(low, 0x43, 0x4140), byte_perm(sign, 0x43, 0x4140));
            p[2 * w + 1] =
                minus_bf16x2(byte_perm(low, 0x43, 0x4342), byte_perm(sign, 0x43, 0x4342));
        }
    }
};

/* ---- nf4: scales are elsewhere ---- */

template <>
struct unit<nf4> {
    enum { BYTES = 128, ALIGNED = 16, HALVES = 0, OFFSET = 0, WHOLE_UNITS = 0 };
    enum { ELSEWHERE = 1, COPIES = 16, TABLE_BYTES = 4 * 256 * COPIES, UNROLLED = 4 };

    struct lines : no_lines {
        using no_lines::no_lines;
        __device__ __forceinline__ float of(const uint8_t *, int, int) const { return 0; }
    };

    /* The table has both weights of a byte, COPIES times: two lanes of a warp are in each bank. */
    static __device__ __forceinline__ void pairs(const uint8_t *at, int j, int t,
                                                 const unsigned *table, unsigned *p)
    {
        const unsigned q = word_at(at + 16 * j + 4 * t);
        #pragma unroll
        for (int k = 0; k < 4; k++)
            p[k] = table[byte_of(q, k) * COPIES + threadIdx.x % COPIES];
    }
};

/* By all threads of a block, before a barrier: nf4's pairs by their byte. */
static __device__ __forceinline__ void fill_pairs(unsigned *table)
{
    for (int i = (int)threadIdx.x; i < 256; i += (int)blockDim.x) {
        const unsigned pair = pack_bf16x2(nf4_table[i >> 4], nf4_table[i & 15]);
        for (int k = 0; k < unit<nf4>::COPIES; k += 4)
            *(uint4 *)(table + i * unit<nf4>::COPIES + k) = {pair, pair, pair, pair};
    }
}

/* nf4's scales of a unit for this lane: of parts 2 t and 2 t + 1, rows g, g + 8 .... */
template <int R>
struct unit_scales {
    float of[2 * R][2];
};

/* Where they are: the first weights of the rows, in all weights; double_quant's offset; are those of the
 * parts 2 t and 2 t + 1 always the same? */
template <int R>
struct scales_of_rows {
    const packed_rows &w;
    int64_t first[2 * R];
    float offset;
    bool same;

    __device__ __forceinline__ unit_scales<R> at(int k) const
    {
        const int t = (int)threadIdx.x % 4, K = (int)w.K;
        unit_scales<R> s;
        #pragma unroll
        for (int r = 0; r < 2 * R; r++) {
            const int column = k + 64 * t;
            s.of[r][0] = column < K ? scale(first[r] + column) : 0;
            s.of[r][1] = same ? s.of[r][0] : column + 32 < K ? scale(first[r] + column + 32) : 0;
        }
        return s;
    }
    __device__ __forceinline__ float scale(int64_t i) const
    {
        return w.scales.at(i >> w.log2_block, offset);
    }
};

#endif
