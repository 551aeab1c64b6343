/* quantise: weights to the bytes of q8_0 and nf4, in float (common/ops/quantised.h). */
#include <float.h>

#include "common/ops/quantised.h"
#include "ref/ref.h"

static float largest(const float *x, int64_t n)
{
    float maximum = 0;
    for (int64_t i = 0; i < n; i++)
        maximum = fmaxf(maximum, fabsf(x[i]));
    return maximum;
}

/* Up to 256 weights, from `first` on. */
static int64_t load_block(const num *w, int64_t first, int64_t block, int64_t n, float *x)
{
    const int64_t some = n - first < block ? n - first : block;
    for (int64_t i = 0; i < some; i++)
#ifdef NARROW
        x[i] = load(w[first + i]);
#else
        x[i] = (float)w[first + i];
#endif
    return some;
}

/* ---- q8_0 ---- */

/* Codes are 0 where 1/d is no finite float, far below fp16. */
static void q8_0(const float *x, uint8_t *block)
{
    const float d = largest(x, 32) / 127, inverse = 1 / d <= FLT_MAX ? 1 / d : 0;
    const f16 half = to_f16(d);

    block[0] = (uint8_t)half.bits;
    block[1] = (uint8_t)(half.bits >> 8);
    for (int i = 0; i < 32; i++)
        block[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
}

/* ---- nf4 ---- */

/* How many midpoints of neighbours in an ascending table x exceeds. */
static int code_of(const float *table, int n, float x)
{
    int code = 0;
    for (int i = 0; i + 1 < n; i++)
        code += x > (table[i] + table[i + 1]) * 0.5f;
    return code;
}

/* Codes of n weights; of an odd n the last byte has a zero's in its low half. */
static void nf4(const float *x, int64_t n, float absmax, uint8_t *bytes)
{
    static const float table[] = {NF4_TABLE};
    const float inverse = 1 / absmax;
    enum { ZERO_CODE = 7 };

    for (int64_t i = 0; i < n + n % 2; i++) {
        const int code = i == n || absmax == 0 ? ZERO_CODE : code_of(table, 16, x[i] * inverse);
        bytes[i / 2] = (uint8_t)(i % 2 ? bytes[i / 2] | code : code << 4);
    }
}

/* ---- double_quant ---- */

/* The sum of up to NF4_GROUP values, pairwise: by halves, zeros behind the last. */
static double group_sum(const double *x, int64_t n)
{
    double s[NF4_GROUP] = {0};

    memcpy(s, x, n * sizeof *x);
    for (int half = NF4_GROUP / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            s[i] += s[i + half];
    return s[0];
}

/* Overwrites x. */
static double sum(double *x, int64_t n)
{
    for (; n > 1; n = (n + NF4_GROUP - 1) / NF4_GROUP)
        for (int64_t g = 0; g * NF4_GROUP < n; g++) {
            const int64_t left = n - g * NF4_GROUP;
            x[g] = group_sum(x + g * NF4_GROUP, left < NF4_GROUP ? left : NF4_GROUP);
        }
    return x[0];
}

/* The scales of n blocks as bytes, a factor for each group of them, and an offset. */
static void quantise_scales(const struct quantise *a, const float *absmax, double *copy, int64_t n)
{
    static const float map[] = {NF4_MAP};
    const int64_t groups = (n + NF4_GROUP - 1) / NF4_GROUP;

    for (int64_t b = 0; b < n; b++)
        copy[b] = absmax[b];
    const float offset = (float)(sum(copy, n) / (double)n);
    *(real *)a->offset = offset;
    #pragma omp parallel for
    for (int64_t g = 0; g < groups; g++) {
        const int64_t first = g * NF4_GROUP, some = n - first < NF4_GROUP ? n - first : NF4_GROUP;
        float x[NF4_GROUP];
        for (int64_t i = 0; i < some; i++)
            x[i] = absmax[first + i] - offset;
        const float maximum = largest(x, some), inverse = 1 / maximum;
        ((real *)a->absmax2)[g] = maximum;
        for (int64_t i = 0; i < some; i++)
            ((uint8_t *)a->absmax8)[first + i] =
                (uint8_t)(maximum == 0 ? 127 : code_of(map, 256, x[i] * inverse));
    }
}

/* ---- the pass ---- */

static int forward(const struct call *f)
{
    const struct quantise *a = ARGS(f, quantise);
    const int is_nf4 = QUANTISE_FORMAT(f) == NF4;
    const int64_t block = is_nf4 ? DIM(f, 'G') : 32, n = DIM(f, 'N') * DIM(f, 'K');
    const int64_t blocks = (n + block - 1) / block;
    float *absmax = f->work;

    #pragma omp parallel for
    for (int64_t b = 0; b < blocks; b++) {
        float x[256];
        const int64_t some = load_block(a->w, b * block, block, n, x);
        if (!is_nf4) {
            q8_0(x, (uint8_t *)a->W + b * quantised_block(Q8_0).bytes);
            continue;
        }
        absmax[b] = largest(x, some);
        nf4(x, some, absmax[b], (uint8_t *)a->W + b * block / 2);
        if (a->absmax)
            ((real *)a->absmax)[b] = absmax[b];
    }
    if (a->absmax8)
        quantise_scales(a, absmax, (double *)f->work + (blocks + 1) / 2, blocks);
    return 0;
}

/* The scales of blocks, and a copy that is summed. */
static size_t work(const struct call *f, enum pass p)
{
    (void)p;
    return QUANTISE_FORMAT(f) == NF4 ? ((DIM(f, 'B') + 1) / 2 + DIM(f, 'B')) * sizeof(double) : 0;
}

REF_KERNEL(quantise, "plain", "one block after the other, in parallel", forward, NULL,
           .work = work);
