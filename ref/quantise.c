/* quantise: weights to the bytes of blocks, in float (common/ops/quantised.h). */
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
#ifdef REF64
        x[i] = (float)w[first + i];
#else
        x[i] = load(w[first + i]);
#endif
    return some;
}

/* A scale, in fp16. */
static void put_half(uint8_t *at, float d)
{
    const f16 half = to_f16(d);
    at[0] = (uint8_t)half.bits;
    at[1] = (uint8_t)(half.bits >> 8);
}

/* ---- q8_0 ---- */

/* Codes are 0 where 1/d is no finite float, far below fp16. */
static void q8_0(const float *x, uint8_t *block)
{
    const float d = largest(x, 32) / 127, inverse = 1 / d <= FLT_MAX ? 1 / d : 0;

    put_half(block, d);
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

/* ---- q4_k, q5_k, q6_k ---- */

/* Of a call, and the codes of a super-block. */
struct fit {
    enum quantised format;
    enum quantise_search search;
    struct quantise_steps r;
    int n;   /* the largest code of a weight */
    int per; /* weights of a scale */
};
struct super {
    float x[SUPER_BLOCK], v[SUPER_BLOCK]; /* the weights, and their weights in the error */
    float s[16], m[8];
    float d, dmin; /* as fp16 has them */
    float error;
    int8_t s_code[16], m_code[8], q[SUPER_BLOCK];
};

/* The sum of n = 2^k values, pairwise. */
static float pairwise(const float *x, int n)
{
    float s[SUPER_BLOCK];

    memcpy(s, x, n * sizeof *x);
    for (int at = 1; at < n; at *= 2)
        for (int i = 0; i < n; i += 2 * at)
            s[i] += s[i + at];
    return s[0];
}

static float pairwise_product(const float *x, const float *y, int n)
{
    float xy[SUPER_BLOCK];
    for (int i = 0; i < n; i++)
        xy[i] = x[i] * y[i];
    return pairwise(xy, n);
}

/* Of elements that are largest in size, the first. */
static float first_largest(const float *x, int n)
{
    float first = 0;
    for (int i = 0; i < n; i++)
        first = fabsf(x[i]) > fabsf(first) ? x[i] : first;
    return first;
}

static float clamp(float x, float low, float high)
{
    return fminf(fmaxf(x, low), high);
}

/* The r of step k, and the factor of candidate k of 7 (or of one). */
static float r_of(const struct fit *f, int k)
{
    return (float)(f->r.first + k * f->r.step) / 1000;
}
static float factor_of(const struct fit *f, int k)
{
    return f->search == WIDE_SEARCH ? (float)(97 + k) / 100 : 1;
}

/* What fp16 makes of a scale. */
static float stored(float d)
{
    return from_f16(to_f16(clamp(d, -65504, 65504)));
}

/* v of the block from i on; `square` is the mean of the super-block's. */
static void weigh_block(const struct fit *f, struct super *b, const float *importance, int i,
                        float square)
{
    const float *x = b->x + i;
    const float rms = sqrtf(pairwise_product(x, x, f->per) / (float)f->per);
    int ones = 1;

    for (int k = 0; importance && k < f->per; k++)
        ones &= importance[i + k] == 0;
    for (int k = 0; k < f->per; k++) {
        const float known = ones ? 1 : importance[i + k];
        float v = known;
        if (f->search == PUBLISHED && f->format == Q6_K)
            v = importance ? known : x[k] * x[k];
        else if (f->search == PUBLISHED)
            v = importance ? known * sqrtf(2 * square + x[k] * x[k]) : rms + fabsf(x[k]);
        b->v[i + k] = v;
    }
}

/* The error of x = s q - m; q is whole, but of no integer type. */
static float line_error(const float *x, const float *v, const float *q, int n, float s, float m)
{
    float e[32];
    for (int i = 0; i < n; i++) {
        const float off = s * q[i] - m - x[i];
        e[i] = v[i] * off * off;
    }
    return pairwise(e, n);
}

static void line_codes(const float *x, float *q, float steps, float lo, float hi, int n)
{
    for (int i = 0; i < 32; i++)
        q[i] = clamp(rintf(steps / (hi - lo) * (x[i] - lo)), 0, (float)n);
}

/* s and m of least squares for these codes; is there one? */
static int least_squares(const float *x, const float *v, const float *q, float *s, float *m)
{
    const float V = pairwise(v, 32), Sw = pairwise_product(v, x, 32);
    float vq[32];

    for (int i = 0; i < 32; i++)
        vq[i] = v[i] * q[i];
    const float Sq = pairwise(vq, 32), Sqq = pairwise_product(vq, q, 32),
                Swq = pairwise_product(vq, x, 32), D = V * Sqq - Sq * Sq;
    if (!(D > 0))
        return 0;
    *s = (V * Swq - Sw * Sq) / D;
    *m = (Sq * Swq - Sqq * Sw) / D;
    if (*m < 0) {
        *m = 0;
        *s = Swq / Sqq;
    }
    return 1;
}

/* s and m of a block of q4_k or q5_k. */
static void fit_line(const struct fit *f, struct super *b, int j)
{
    const float *x = b->x + 32 * j, *v = b->v + 32 * j;
    float lo = 0, hi = x[0], q[32], s, m;

    for (int i = 0; i < 32; i++) {
        lo = fminf(lo, x[i]);
        hi = fmaxf(hi, x[i]);
    }
    b->s[j] = 0;
    b->m[j] = 0 - lo;
    if (!(hi > lo))
        return;
    b->s[j] = (hi - lo) / (float)f->n;
    line_codes(x, q, (float)f->n, lo, hi, f->n);
    float smallest = line_error(x, v, q, 32, b->s[j], b->m[j]);
    for (int k = 0; k < f->r.count && hi > lo; k++) {
        line_codes(x, q, (float)f->n + r_of(f, k), lo, hi, f->n);
        if (!least_squares(x, v, q, &s, &m))
            continue;
        const float error = line_error(x, v, q, 32, s, m);
        if (error < smallest) {
            smallest = error;
            b->s[j] = s;
            b->m[j] = m;
            lo = 0 - m;
        }
    }
}

/* s of a block of q6_k. */
static void fit_scale(const struct fit *f, struct super *b, int j)
{
    const float *x = b->x + 16 * j, *v = b->v + 16 * j;
    const float star = first_largest(x, 16);
    float best = 0, q[16], vq[16];

    b->s[j] = 0;
    for (int k = 0; k < f->r.count && star != 0; k++) {
        for (int i = 0; i < 16; i++) {
            q[i] = clamp(rintf(-(32 + r_of(f, k)) / star * x[i]), -32, 31);
            vq[i] = v[i] * q[i];
        }
        const float Sqq = pairwise_product(vq, q, 16), Swq = pairwise_product(vq, x, 16);
        const float s = Swq / Sqq;
        if (Sqq > 0 && s * Swq > best) {
            best = s * Swq;
            b->s[j] = s;
        }
    }
}

/* d for the eight scales s: the largest by 63, or the best of a search. */
static float scale_of_scales(const struct fit *f, const struct super *b, const float *s,
                             int searched)
{
    float V[8], largest = 0, smallest = INFINITY, best, L[8], VL[8], e[8];

    for (int j = 0; j < 8; j++) {
        V[j] = pairwise(b->v + 32 * j, 32);
        largest = fmaxf(largest, s[j]);
    }
    best = largest / 63;
    for (int k = 0; searched && largest > 0 && k < f->r.count; k++) {
        for (int j = 0; j < 8; j++) {
            L[j] = clamp(rintf((63 + r_of(f, k)) / largest * s[j]), 0, 63);
            VL[j] = V[j] * L[j];
        }
        const float d = pairwise_product(VL, s, 8) / pairwise_product(VL, L, 8);
        for (int j = 0; j < 8; j++)
            e[j] = V[j] * (d * L[j] - s[j]) * (d * L[j] - s[j]);
        const float error = pairwise(e, 8);
        if (error < smallest) {
            smallest = error;
            best = d;
        }
    }
    return best;
}

/* Codes of scales and weights for these d and dmin, and their error; dmin is 0 in q6_k. */
static void encode(const struct fit *f, struct super *b, float d, float dmin)
{
    const float low = f->format == Q6_K ? -128 : 0, high = f->format == Q6_K ? 127 : 63;
    const float q_low = f->format == Q6_K ? -32 : 0;
    float e[SUPER_BLOCK];

    b->d = stored(d);
    b->dmin = stored(dmin);
    for (int j = 0; j < SUPER_BLOCK / f->per; j++) {
        const float s_code = b->d != 0 ? clamp(rintf(b->s[j] / b->d), low, high) : 0;
        const float m_code = b->dmin != 0 ? clamp(rintf(b->m[j] / b->dmin), 0, 63) : 0;
        const float s = b->d * s_code, m = b->dmin * m_code;
        b->s_code[j] = (int8_t)s_code;
        if (f->format != Q6_K)
            b->m_code[j] = (int8_t)m_code;
        for (int i = f->per * j; i < f->per * (j + 1); i++) {
            const float q = s != 0 ? clamp(rintf((b->x[i] + m) * (1 / s)), q_low, (float)f->n) : 0;
            const float off = s * q - m - b->x[i];
            b->q[i] = (int8_t)q;
            e[i] = b->v[i] * off * off;
        }
    }
    b->error = pairwise(e, SUPER_BLOCK);
}

/* Where d is nothing in fp16, zeros, unless dmin alone is nearer to the weights. */
static void zeros_if_nearer(struct super *b)
{
    float e[SUPER_BLOCK];

    for (int i = 0; i < SUPER_BLOCK; i++)
        e[i] = b->v[i] * b->x[i] * b->x[i];
    if (b->d != 0 || b->error < pairwise(e, SUPER_BLOCK))
        return;
    b->d = b->dmin = 0;
    memset(b->m_code, 0, sizeof b->m_code);
}

static void choose_scales(const struct fit *f, struct super *b, int importance)
{
    const int searched = importance && f->search == PUBLISHED, wide = f->search == WIDE_SEARCH;
    float d, dmin = 0, smallest, best_d, best_dmin;

    if (f->format == Q6_K) {
        d = -first_largest(b->s, 16) / 128;
    } else {
        d = scale_of_scales(f, b, b->s, searched);
        dmin = scale_of_scales(f, b, b->m, searched);
    }
    smallest = INFINITY;
    best_d = d * factor_of(f, 0);
    best_dmin = dmin * factor_of(f, 0);
    for (int i = 0; wide && i < 49; i += f->format == Q6_K ? 7 : 1) {
        encode(f, b, d * factor_of(f, i / 7), dmin * factor_of(f, i % 7));
        if (b->error < smallest) {
            smallest = b->error;
            best_d = d * factor_of(f, i / 7);
            best_dmin = dmin * factor_of(f, i % 7);
        }
    }
    encode(f, b, best_d, best_dmin);
    if (f->format != Q6_K)
        zeros_if_nearer(b);
}

static void put_lines(const struct super *b, int fifth_bit, uint8_t *block)
{
    uint8_t *a = block + 4, *qh = block + 16, *qs = fifth_bit ? block + 48 : block + 16;

    put_half(block, b->d);
    put_half(block + 2, b->dmin);
    for (int j = 0; j < 4; j++) {
        a[j] = (uint8_t)(b->s_code[j] | (b->s_code[4 + j] >> 4) << 6);
        a[4 + j] = (uint8_t)(b->m_code[j] | (b->m_code[4 + j] >> 4) << 6);
        a[8 + j] = (uint8_t)((b->s_code[4 + j] & 15) | (b->m_code[4 + j] & 15) << 4);
    }
    for (int i = 0; i < SUPER_BLOCK; i++) {
        qs[32 * (i / 64) + i % 32] |= (uint8_t)((b->q[i] & 15) << 4 * (i / 32 % 2));
        if (fifth_bit)
            qh[i % 32] |= (uint8_t)((b->q[i] >> 4) << i / 32);
    }
}

static void put_q6_k(const struct super *b, uint8_t *block)
{
    put_half(block + 208, b->d);
    for (int j = 0; j < 16; j++)
        block[192 + j] = (uint8_t)b->s_code[j];
    for (int i = 0; i < SUPER_BLOCK; i++) {
        const int q = b->q[i] + 32;
        block[64 * (i / 128) + i % 64] |= (uint8_t)((q & 15) << 4 * (i % 128 / 64));
        block[128 + 32 * (i / 128) + i % 32] |= (uint8_t)((q >> 4) << 2 * (i % 128 / 32));
    }
}

static void super_block(const struct fit *f, const float *x, const float *importance,
                        uint8_t *block)
{
    const float square = pairwise_product(x, x, SUPER_BLOCK) / SUPER_BLOCK;
    struct super b = {.error = 0};

    memcpy(b.x, x, sizeof b.x);
    for (int i = 0; i < SUPER_BLOCK; i += f->per)
        weigh_block(f, &b, importance, i, square);
    for (int j = 0; j < SUPER_BLOCK / f->per; j++)
        if (f->format == Q6_K)
            fit_scale(f, &b, j);
        else
            fit_line(f, &b, j);
    choose_scales(f, &b, importance != NULL);
    memset(block, 0, quantised_block(f->format).bytes);
    if (f->format == Q6_K)
        put_q6_k(&b, block);
    else
        put_lines(&b, f->format == Q5_K, block);
}

static void k_quant(const struct call *f)
{
    const struct quantise *a = ARGS(f, quantise);
    const enum quantised format = f->choice[QUANTISED_FORMAT];
    const enum quantise_search search = f->choice[QUANTISE_SEARCH];
    const int64_t n = DIM(f, 'N') * DIM(f, 'K');
    const struct fit fit = {format, search, quantise_steps(format, search, a->importance != NULL),
                            format == Q4_K ? 15 : 31, format == Q6_K ? 16 : 32};

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i += SUPER_BLOCK) {
        float x[SUPER_BLOCK], importance[SUPER_BLOCK];
        load_block(a->w, i, SUPER_BLOCK, n, x);
        if (a->importance)
            load_block(a->importance, i % DIM(f, 'K'), SUPER_BLOCK, DIM(f, 'K'), importance);
        super_block(&fit, x, a->importance ? importance : NULL,
                    (uint8_t *)a->W + i / SUPER_BLOCK * quantised_block(format).bytes);
    }
}

/* ---- the pass ---- */

static int forward(const struct call *f)
{
    const struct quantise *a = ARGS(f, quantise);
    const int is_nf4 = f->choice[QUANTISED_FORMAT] == NF4;
    const int64_t block = is_nf4 ? DIM(f, 'G') : 32, n = DIM(f, 'N') * DIM(f, 'K');
    const int64_t blocks = (n + block - 1) / block;
    float *absmax = f->work;

    if (f->choice[QUANTISED_FORMAT] <= Q6_K) {
        k_quant(f);
        return 0;
    }
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
    return f->choice[QUANTISED_FORMAT] == NF4
               ? ((DIM(f, 'B') + 1) / 2 + DIM(f, 'B')) * sizeof(double)
               : 0;
}

REF_KERNEL(quantise, "plain", "one block after the other, in parallel", forward, NULL,
           .work = work);
