/* dequantise: the weights that bytes stand for (common/ops/quantised.h), one by one, in float, which
 * is exact: the oracle has the same, as doubles. */
#include "ref/decode.h"

static float f16_at(const uint8_t *at)
{
    return from_f16((f16){(uint16_t)(at[0] | at[1] << 8)});
}

/* s_j and m_j of a q4_k's or q5_k's a[12]. */
static int scale_of(const uint8_t *a, int j)
{
    return j < 4 ? a[j] & 63 : (a[4 + j] & 15) | (a[j - 4] >> 6) << 4;
}

static int minimum_of(const uint8_t *a, int j)
{
    return j < 4 ? a[4 + j] & 63 : a[4 + j] >> 4 | (a[j] >> 6) << 4;
}

/* d s is exact in float, and so are both products. */
static float weight_of_32(const uint8_t *block, int j, int q)
{
    const float scale = f16_at(block) * (float)scale_of(block + 4, j);
    const float minimum = f16_at(block + 2) * (float)minimum_of(block + 4, j);
    return scale * (float)q - minimum;
}

static float q4_k(const uint8_t *block, int i)
{
    const uint8_t *qs = block + 16;
    return weight_of_32(block, i / 32, qs[32 * (i / 64) + i % 32] >> 4 * (i / 32 % 2) & 15);
}

static float q5_k(const uint8_t *block, int i)
{
    const uint8_t *qh = block + 16, *qs = block + 48;
    const int low = qs[32 * (i / 64) + i % 32] >> 4 * (i / 32 % 2) & 15;
    return weight_of_32(block, i / 32, low + 16 * (qh[i % 32] >> i / 32 & 1));
}

static float q6_k(const uint8_t *block, int i)
{
    const uint8_t *ql = block, *qh = block + 128;
    const int low = ql[64 * (i / 128) + i % 64] >> 4 * (i % 128 / 64) & 15;
    const int high = qh[32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) & 3;
    return f16_at(block + 208) * (float)(int8_t)block[192 + i / 16] * (float)(low + 16 * high - 32);
}

static float q8_0(const uint8_t *block, int i)
{
    return f16_at(block) * (float)(int8_t)block[2 + i];
}

/* The scale of block b, in two roundings if it is quantised itself. */
static float absmax_of(const struct dequantise *a, int64_t b)
{
    static const float map[] = {NF4_MAP};

    if (a->absmax)
        return (float)((const real *)a->absmax)[b];
    const float of_group = (float)((const real *)a->absmax2)[b / NF4_GROUP];
    const volatile float product = map[((const uint8_t *)a->absmax8)[b]] * of_group;
    return product + (float)*(const real *)a->offset;
}

static float nf4(const struct dequantise *a, int64_t place, int64_t block)
{
    static const float table[] = {NF4_TABLE};
    const int both = ((const uint8_t *)a->W)[place / 2];
    return table[place % 2 ? both & 15 : both >> 4] * absmax_of(a, place / block);
}

/* A weight does not depend on the others. */
static float weight_of(const struct call *f, const struct dequantise *a, int64_t i)
{
    const enum quantised format = (enum quantised)f->choice[QUANTISED_FORMAT];
    static float (*const weight[])(const uint8_t *, int) = {q4_k, q5_k, q6_k, q8_0};
    const struct quantised_block b = quantised_block(format);
    const uint8_t *block = (const uint8_t *)a->W + i / b.weights * b.bytes;

    return format == NF4 ? nf4(a, i, DIM(f, 'G')) : weight[format](block, (int)(i % b.weights));
}

void REF(decode)(const struct call *f, const struct dequantise *a, real *w)
{
    const int64_t n = DIM(f, 'N') * DIM(f, 'K');

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        w[i] = weight_of(f, a, i);
}

static int forward(const struct call *f)
{
    const struct dequantise *a = ARGS(f, dequantise);
    const int64_t n = DIM(f, 'N') * DIM(f, 'K');
    num *w = a->w;

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
#ifdef REF64
        w[i] = weight_of(f, a, i);
#else
        w[i] = store(weight_of(f, a, i));
#endif
    return 0;
}

REF_KERNEL(dequantise, "plain", "one weight after the other, in parallel", forward, NULL);
