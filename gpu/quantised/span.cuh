/* span.cuh - 32 weights of a row, which one thread unpacks: two runs of 16 neighbours, so that few
 * loads and one or two scales serve them all.  A row is a sequence of spans; a format's span has
 *
 *     load(rows, n, i)           span i of row n, raw
 *     first(i, run)              where a run begins in the row
 *     weights(run, table, w)     the 16 weights of a run; `table` is nf4's
 *     quants(run, c)             weights 4 c ... 4 c + 3 of a run, as the four signed bytes q of a
 *     line(run)                  word, and s and m of the run: a weight is s q - m; not of nf4
 *
 * Blocks of q4_k and q5_k are at multiples of 16 bytes, those of q6_k and q8_0 at even addresses. */
#ifndef SPAN_CUH
#define SPAN_CUH

#include "gpu/device/bits.cuh"
#include "gpu/quantised/decode.cuh"

enum { SPAN = 32, RUN = 16 };

/* The rows of the first of some matrices: K-quants and q8_0 by their bytes, nf4 with its scales. */
struct packed_rows {
    const uint8_t *W;
    int64_t K, row_bytes;
    nf4_scales scales;
    int log2_block;
    int64_t bytes, blocks, groups; /* of a matrix */

    __host__ packed_rows(const struct call *f, const struct dequantise &a)
        : W((const uint8_t *)a.W), K(DIM(f, 'K')),
          row_bytes(f->choice[QUANTISED_FORMAT] == NF4 ? DIM(f, 'K') / 2 : DIM(f, 'R')),
          scales(nf4_scales_of(a)), log2_block(nf4_log2_block(f)), bytes(DIM(f, 'N') * row_bytes),
          blocks(DIM(f, 'B')), groups(DIM(f, 'C'))
    {
    }
    /* Go on to matrix l. */
    __device__ __forceinline__ void move_to(int64_t l)
    {
        W += l * bytes;
        if (scales.absmax) {
            scales.absmax += l * blocks;
        } else if (scales.absmax8) {
            scales.absmax8 += l * blocks;
            scales.absmax2 += l * groups;
            scales.offset += l;
        }
    }
};

/* Sixteen bytes from an even address: words from the multiple of four below it, shifted. */
static __device__ __forceinline__ uint4 even_words(const uint8_t *at)
{
    const unsigned odd = (unsigned)((uintptr_t)at & 2);
    const unsigned *from = (const unsigned *)(at - odd);
    const unsigned w1 = from[1], w2 = from[2], w3 = from[3];
    const unsigned last = odd ? half_word(at + 14) : 0;
    return {funnel_right(from[0], w1, 8 * odd), funnel_right(w1, w2, 8 * odd),
            funnel_right(w2, w3, 8 * odd), funnel_right(w3, last, 8 * odd)};
}

static __device__ __forceinline__ unsigned word_of(const uint4 &v, int k)
{
    return k == 0 ? v.x : k == 1 ? v.y : k == 2 ? v.z : v.w;
}

/* ---- q4_k, q5_k: 16 bytes of qs, low halves, and high ones 32 weights on ---- */

/* d s_j and dmin m_j of the first 16 bytes of a block: the words d:dmin, a[0 ... 3], a[4 ... 7], a[8 ... 11]. */
static __device__ __forceinline__ float2 scale_and_minimum(const uint4 &head, int j)
{
    const int at = 8 * (j & 3);
    const unsigned s = head.y >> at, m = head.z >> at, both = head.w >> at;
    const unsigned s6 = j < 4 ? s & 63 : (both & 15) | (s >> 2 & 48);
    const unsigned m6 = j < 4 ? m & 63 : (both >> 4 & 15) | (m >> 2 & 48);
    const float d = __half2float(__ushort_as_half((unsigned short)head.x));
    const float dmin = __half2float(__ushort_as_half((unsigned short)(head.x >> 16)));
    return make_float2(d * (float)(int)s6, dmin * (float)(int)m6);
}

template <typename F>
struct span;

template <int BYTES, int QS>
struct span_k {
    uint4 head, q, h;
    int p; /* of the block's eight */

    __device__ __forceinline__ void load(const packed_rows &rows, int64_t n, int64_t i)
    {
        const uint8_t *block = rows.W + n * rows.row_bytes + i / 8 * BYTES;
        p = (int)(i % 8);
        head = *(const uint4 *)block;
        q = *(const uint4 *)(block + QS + 16 * p);
        if (QS == 48)
            h = *(const uint4 *)(block + 16 + 16 * (p % 2));
    }
    static __device__ __forceinline__ int64_t first(int64_t i, int run)
    {
        return i / 8 * 256 + 64 * (i % 8 / 2) + 16 * (i % 2) + 32 * run;
    }
    __device__ __forceinline__ float2 line(int run) const
    {
        return scale_and_minimum(head, p / 2 * 2 + run);
    }
    __device__ __forceinline__ unsigned quants(int run, int c) const
    {
        unsigned v = word_of(q, c) >> 4 * run & 0x0f0f0f0f;
        if (QS == 48)
            v |= (word_of(h, c) >> (p / 2 * 2 + run) & 0x01010101) << 4;
        return v;
    }
    __device__ __forceinline__ void weights(int run, const float *, float *w) const
    {
        const float2 of = line(run);
        #pragma unroll
        for (int c = 0; c < 4; c++) {
            const unsigned v = quants(run, c);
            #pragma unroll
            for (int k = 0; k < 4; k++)
                w[4 * c + k] = fmaf(of.x, float_of_byte(v, k, 0), -of.y);
        }
    }
};
template <>
struct span<q4_k> : span_k<144, 16> {
};
template <>
struct span<q5_k> : span_k<176, 48> {
};

/* ---- q6_k: 16 bytes of ql, low halves, and high ones 64 weights on ---- */

template <>
struct span<q6_k> {
    uint4 q, h;
    float scale[2];
    int p;

    __device__ __forceinline__ void load(const packed_rows &rows, int64_t n, int64_t i)
    {
        const uint8_t *block = rows.W + n * rows.row_bytes + i / 8 * 210;
        p = (int)(i % 8);
        q = even_words(block + 16 * p);
        h = even_words(block + 128 + 32 * (p / 4) + 16 * (p % 2));
        const float d = f16_at(block + 208);
        #pragma unroll
        for (int run = 0; run < 2; run++)
            scale[run] = d * (float)(int8_t)block[192 + 8 * (p / 4) + p % 4 + 4 * run];
    }
    static __device__ __forceinline__ int64_t first(int64_t i, int run)
    {
        return i / 8 * 256 + 128 * (i % 8 / 4) + 16 * (i % 4) + 64 * run;
    }
    __device__ __forceinline__ float2 line(int run) const
    {
        return make_float2(scale[run], 32 * scale[run]);
    }
    __device__ __forceinline__ unsigned quants(int run, int c) const
    {
        return (word_of(q, c) >> 4 * run & 0x0f0f0f0f) |
               (word_of(h, c) >> (p % 4 / 2 * 2 + 4 * run) & 0x03030303) << 4;
    }
    __device__ __forceinline__ void weights(int run, const float *, float *w) const
    {
        #pragma unroll
        for (int c = 0; c < 4; c++) {
            const unsigned v = quants(run, c);
            #pragma unroll
            for (int k = 0; k < 4; k++)
                w[4 * c + k] = scale[run] * float_of_byte(v, k, 32);
        }
    }
};

/* ---- q8_0: a block; nf4: 16 bytes ---- */

template <>
struct span<q8_0> {
    uint4 q[2];
    float d;

    __device__ __forceinline__ void load(const packed_rows &rows, int64_t n, int64_t i)
    {
        const uint8_t *block = rows.W + n * rows.row_bytes + i * 34;
        d = f16_at(block);
        q[0] = even_words(block + 2);
        q[1] = even_words(block + 18);
    }
    static __device__ __forceinline__ int64_t first(int64_t i, int run)
    {
        return SPAN * i + RUN * run;
    }
    __device__ __forceinline__ float2 line(int) const { return make_float2(d, 0); }
    __device__ __forceinline__ unsigned quants(int run, int c) const { return word_of(q[run], c); }
    __device__ __forceinline__ void weights(int run, const float *, float *w) const
    {
        #pragma unroll
        for (int c = 0; c < 4; c++)
            #pragma unroll
            for (int k = 0; k < 4; k++)
                w[4 * c + k] = d * float_of_byte(quants(run, c) ^ 0x80808080, k, 128);
    }
};

template <>
struct span<nf4> {
    uint4 q;
    float absmax;

    __device__ __forceinline__ void load(const packed_rows &rows, int64_t n, int64_t i)
    {
        q = *(const uint4 *)(rows.W + n * rows.row_bytes + 16 * i);
        absmax = rows.scales.at((n * rows.K + SPAN * i) >> rows.log2_block);
    }
    static __device__ __forceinline__ int64_t first(int64_t i, int run)
    {
        return SPAN * i + RUN * run;
    }
    __device__ __forceinline__ void weights(int run, const float *table, float *w) const
    {
        #pragma unroll
        for (int c = 0; c < 2; c++) {
            const unsigned v = word_of(q, 2 * run + c);
            #pragma unroll
            for (int k = 0; k < 8; k++)
                w[8 * c + k] = table[v >> nf4_shift(k) & 15] * absmax;
        }
    }
};

#endif
