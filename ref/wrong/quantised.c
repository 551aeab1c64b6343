/* Kernels of dequantise, quantise, gemm_quantised that are wrong (wrong.h). */
#include "common/ops/gemm_quantised.h"
#include "common/ops/quantised_op.h"
#include "ref/decode.h"
#include "ref/wrong/wrong.h"

/* ---- mistakes in reading a block ---- */

/* Changes a block of the format, so that the right weights of what it has become are the wrong ones of
 * what it was. */
typedef void change(enum quantised format, uint8_t *block);

/* The scale of a block, by the place of its fp16. */
static float half_at(const uint8_t *at)
{
    return from_f16((f16){(uint16_t)(at[0] | at[1] << 8)});
}

static void put_half(uint8_t *at, float d)
{
    const f16 half = to_f16(d);
    at[0] = (uint8_t)half.bits;
    at[1] = (uint8_t)(half.bits >> 8);
}

static int offset_of_d(enum quantised format)
{
    return format == Q6_K ? 208 : 0;
}

static void no_minimum(enum quantised format, uint8_t *block)
{
    (void)format;
    block[2] = block[3] = 0;
}

static void low_bits_of_scales(enum quantised format, uint8_t *block)
{
    (void)format;
    for (int k = 4; k < 12; k++)
        block[k] &= 63;
}

static void d_in_bf16(enum quantised format, uint8_t *block)
{
    uint8_t *at = block + offset_of_d(format);
    put_half(at, from_bf16(to_bf16(half_at(at))));
}

static void no_fifth_bit(enum quantised format, uint8_t *block)
{
    (void)format;
    memset(block + 16, 0, 32);
}

/* The bytes of two codes each. */
static void exchange_halves(enum quantised format, uint8_t *block)
{
    const int from = format == Q4_K ? 16 : format == Q5_K ? 48 : 0;
    for (int k = from; k < from + 128; k++)
        block[k] = (uint8_t)(block[k] >> 4 | block[k] << 4);
}

WRONG_UNLESS(has_minimum, quantised_format(f) <= Q5_K, "no minima")
WRONG_UNLESS(has_fifth_bit, quantised_format(f) == Q5_K, "no fifth bit")
WRONG_UNLESS(is_k_quant, quantised_format(f) <= Q6_K, "no k-quant")
WRONG_UNLESS(has_half, quantised_format(f) != NF4, "no fp16 scale")
WRONG_UNLESS(is_double, quantised_is_double(f), "scales are not quantised")
WRONG_UNLESS(is_nf4, quantised_is_nf4(f), "no nf4")
WRONG_UNLESS(is_q8_0, quantised_format(f) == Q8_0, "no q8_0")
WRONG_UNLESS(is_q6_k, quantised_format(f) == Q6_K, "no q6_k")

/* Without the offset of all absmax, which is as large as they are. */
static void no_offset(struct call *f, int place)
{
    static const real zeros[1] = {0};
    f->arg[place] = (void *)(uintptr_t)zeros;
}

/* ---- dequantise ---- */

/* One block after the other. */
static int dequantise_changed(const struct call *f, change *change)
{
    const enum quantised format = quantised_format(f);
    const struct quantised_block b = quantised_block(format);
    const struct dequantise *a = ARGS(f, dequantise);
    const int64_t n = DIM(f, 'N') * DIM(f, 'K') / b.weights;
    uint8_t block[210];

    for (int64_t i = 0; i < n; i++) {
        struct call one = *f;
        memcpy(block, (const uint8_t *)a->W + i * b.bytes, b.bytes);
        change(format, block);
        DIM(&one, 'N') = 1;
        DIM(&one, 'K') = b.weights;
        one.arg[PLACE(dequantise, W)] = block;
        one.arg[PLACE(dequantise, w)] = (num *)a->w + i * b.weights;
        const int e = right_forward(&one);
        if (e)
            return e;
    }
    return 0;
}

#define DEQUANTISE(name, what, change, ...)                                                        \
    static int name##_forward(const struct call *f)                                                \
    {                                                                                              \
        return dequantise_changed(f, change);                                                      \
    }                                                                                              \
    WRONG_PASSES(name, what, name##_forward, NULL, __VA_ARGS__)

DEQUANTISE(dequantise_no_minimum, "dmin m is not subtracted", no_minimum, .declines = has_minimum);
DEQUANTISE(dequantise_6_bits, "scales 4 to 7 are without their two high bits", low_bits_of_scales,
           .declines = has_minimum);
DEQUANTISE(dequantise_bf16_scale, "d is rounded to bf16", d_in_bf16, .declines = has_half);
DEQUANTISE(dequantise_4_bits, "the fifth bits of q5_k are left out", no_fifth_bit,
           .declines = has_fifth_bit);
DEQUANTISE(dequantise_halves, "the halves of a byte are exchanged", exchange_halves,
           .declines = is_k_quant);

/* w of q6_k without the 32 that is subtracted from a code; of q8_0 with bytes of 0 to 255. */
static void codes_from_0(const struct call *f)
{
    const struct dequantise *a = ARGS(f, dequantise);
    num *w = a->w;
    for (int64_t i = 0; i < DIM(f, 'N') * DIM(f, 'K'); i++) {
        const uint8_t *block = (const uint8_t *)a->W + i / SUPER_BLOCK * 210;
        const float scale = half_at(block + 208) * (float)(int8_t)block[192 + i % SUPER_BLOCK / 16];
        w[i] = store((real)((float)load(w[i]) + 32 * scale));
    }
}
WRONG_AFTER(dequantise_no_32, "32 is not subtracted from q6_k's codes", FORWARD, codes_from_0,
            .declines = is_q6_k);

static void codes_without_sign(const struct call *f)
{
    const struct dequantise *a = ARGS(f, dequantise);
    num *w = a->w;
    for (int64_t i = 0; i < DIM(f, 'N') * DIM(f, 'K'); i++) {
        const uint8_t *block = (const uint8_t *)a->W + i / 32 * 34;
        w[i] = store((real)(half_at(block) * (float)block[2 + i % 32]));
    }
}
WRONG_AFTER(dequantise_unsigned, "q8_0's codes are without a sign", FORWARD, codes_without_sign,
            .declines = is_q8_0);

static void low_half_first(const struct call *f)
{
    num *w = ARGS(f, dequantise)->w;
    for (int64_t i = 1; i < DIM(f, 'N') * DIM(f, 'K'); i += 2) {
        const num first = w[i - 1];
        w[i - 1] = w[i];
        w[i] = first;
    }
}
WRONG_UNLESS(is_nf4_of_two, quantised_is_nf4(f) && DIM(f, 'N') * DIM(f, 'K') > 1, "no two of nf4")
WRONG_AFTER(dequantise_low_first, "of a byte of nf4 the low half comes first", FORWARD,
            low_half_first, .declines = is_nf4_of_two);

WRONG_CALL(dequantise_no_offset, "the offset of double_quant is left out",
           no_offset(&g, PLACE(dequantise, offset)), .declines = is_double);

WRONG_UNLESS(is_block_32, quantised_is_nf4(f) && DIM(f, 'G') == 32 && DIM(f, 'B') > 1,
             "no blocks of 32")
WRONG_CALL(dequantise_blocks_of_64, "blocks of 32 have the scales of blocks of 64",
           DIM(&g, 'G') = 64, .declines = is_block_32);

WRONG_KERNELS(dequantise, &dequantise_no_minimum, &dequantise_6_bits, &dequantise_bf16_scale,
              &dequantise_4_bits, &dequantise_halves, &dequantise_no_32, &dequantise_unsigned,
              &dequantise_low_first, &dequantise_no_offset, &dequantise_blocks_of_64);

/* ---- quantise ---- */

/* Weight i of all, as float. */
static float weight_at(const struct call *f, int64_t i)
{
    return (float)load(((const num *)ARGS(f, quantise)->w)[i]);
}

/* How q8_0 is made: the code of x and 1 / d, and d. */
struct q8_way {
    float (*code)(float x, float inverse);
    float codes;   /* what the largest is divided by */
    int is_signed; /* the largest of x, not of |x| */
    int of_stored; /* codes are of d as fp16 has it */
};

static float away_from_0(float x, float inverse)
{
    return roundf(x * inverse);
}

static float to_even(float x, float inverse)
{
    return rintf(x * inverse);
}

static float towards_0(float x, float inverse)
{
    return truncf(x * inverse);
}

static void q8_blocks(const struct call *f, const struct q8_way *way)
{
    for (int64_t b = 0; b < DIM(f, 'N') * DIM(f, 'K') / 32; b++) {
        uint8_t *block = (uint8_t *)ARGS(f, quantise)->W + b * 34;
        float largest = 0, d;
        for (int i = 0; i < 32; i++) {
            const float x = weight_at(f, 32 * b + i);
            largest = fmaxf(largest, way->is_signed ? x : fabsf(x));
        }
        d = largest / way->codes;
        put_half(block, d);
        d = way->of_stored ? half_at(block) : d;
        const float inverse = isfinite(1 / d) ? 1 / d : 0;
        for (int i = 0; i < 32; i++) {
            const float code = way->code(weight_at(f, 32 * b + i), inverse);
            block[2 + i] = (uint8_t)(int8_t)fminf(fmaxf(code, -128), 127);
        }
    }
}

#define QUANTISE_Q8(name, what, ...)                                                               \
    static void name##_blocks(const struct call *f)                                                \
    {                                                                                              \
        q8_blocks(f, &(const struct q8_way){__VA_ARGS__});                                         \
    }                                                                                              \
    WRONG_AFTER(name, what, FORWARD, name##_blocks, .declines = is_q8_0)

QUANTISE_Q8(quantise_half_to_even, "halves go to the even code", to_even, 127, 0, 0);
QUANTISE_Q8(quantise_truncated, "codes are cut off, not rounded", towards_0, 127, 0, 0);
QUANTISE_Q8(quantise_128_codes, "d is the largest divided by 128", away_from_0, 128, 0, 0);
QUANTISE_Q8(quantise_largest_positive, "d is by the largest x, not the largest |x|", away_from_0,
            127, 1, 0);
QUANTISE_Q8(quantise_by_stored_d, "codes are by d as fp16 has it", away_from_0, 127, 0, 1);

/* A block of zeros: 0 / 0 exceeds no midpoint. */
static void zeros_divided(const struct call *f)
{
    const int64_t n = DIM(f, 'N') * DIM(f, 'K'), block = DIM(f, 'G');
    uint8_t *W = ARGS(f, quantise)->W;
    for (int64_t first = 0; first < n; first += block) {
        const int64_t end = n - first < block ? n : first + block;
        int zeros = 1;
        for (int64_t i = first; i < end; i++)
            zeros &= weight_at(f, i) == 0;
        for (int64_t i = first; zeros && i < end; i++)
            W[i / 2] &= i % 2 ? 0xf0 : 0x0f;
    }
}
WRONG_AFTER(quantise_0_by_0, "codes of zeros are of 0 / 0: 0, that of -1", FORWARD, zeros_divided,
            .declines = is_nf4);

static void nf4_low_first(const struct call *f)
{
    uint8_t *W = ARGS(f, quantise)->W;
    for (int64_t i = 0; i < DIM(f, 'P'); i++)
        W[i] = (uint8_t)(W[i] >> 4 | W[i] << 4);
}
WRONG_AFTER(quantise_low_first, "of a byte of nf4 the low half comes first", FORWARD, nf4_low_first,
            .declines = is_nf4);

/* offset as one sum in float. */
static void offset_in_float(const struct call *f)
{
    const int64_t n = DIM(f, 'N') * DIM(f, 'K'), block = DIM(f, 'G');
    float sum = 0, absmax = 0;
    for (int64_t i = 0; i < n; i++) {
        absmax = fmaxf(absmax, fabsf(weight_at(f, i)));
        if (i == n - 1 || i % block == block - 1) {
            sum += absmax;
            absmax = 0;
        }
    }
    *(real *)ARGS(f, quantise)->offset = sum / (float)DIM(f, 'B');
}
WRONG_AFTER(quantise_offset_in_float, "the offset is the mean of a sum in float", FORWARD,
            offset_in_float, .declines = is_double);

WRONG_UNLESS(has_importance, is_k_quant(f) == NULL && f->choice[QUANTISE_IMPORTANCE],
             "no importance")
WRONG_CALL(quantise_no_importance, "importance is left out",
           g.arg[PLACE(quantise, importance)] = NULL, .declines = has_importance);

/* As many super-blocks as there are. */
static void quantise_changed(const struct call *f, change *change)
{
    const struct quantised_block b = quantised_block(quantised_format(f));
    for (int64_t i = 0; i < DIM(f, 'N') * DIM(f, 'K') / b.weights; i++)
        change(quantised_format(f), (uint8_t *)ARGS(f, quantise)->W + i * b.bytes);
}

static void without_high_bits(const struct call *f)
{
    quantise_changed(f, low_bits_of_scales);
}
WRONG_AFTER(quantise_6_bits, "scales 4 to 7 are without their two high bits", FORWARD,
            without_high_bits, .declines = has_minimum);

WRONG_KERNELS(quantise, &quantise_half_to_even, &quantise_truncated, &quantise_128_codes,
              &quantise_largest_positive, &quantise_by_stored_d, &quantise_0_by_0,
              &quantise_low_first, &quantise_offset_in_float, &quantise_no_importance,
              &quantise_6_bits);

/* ---- gemm_quantised ---- */

/* Block i of matrix l, changed and decoded. */
static void decode_changed(const struct call *f, int64_t l, int64_t i, change *change, real *w)
{
    const enum quantised format = quantised_format(f);
    const struct quantised_block b = quantised_block(format);
    struct dequantise W = gemm_quantised_W(f, l, sizeof(real));
    struct call one = *f;
    uint8_t block[210];

    memcpy(block, (const uint8_t *)W.W + i * b.bytes, b.bytes);
    change(format, block);
    W.W = block;
    DIM(&one, 'N') = 1;
    DIM(&one, 'K') = b.weights;
    REF(decode)(&one, &W, w);
}

static int gemm_changed_forward(const struct call *f, change *change)
{
    const int64_t M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');
    const int per = quantised_block(quantised_format(f)).weights;
    const num *x = ARGS(f, gemm_quantised)->x;
    num *y = ARGS(f, gemm_quantised)->y;

    for (int64_t i = 0; i < DIM(f, 'L') * M * N; i++) { /* element (m, n) of product l */
        const int64_t l = i / (M * N), n = i % N;
        real w[SUPER_BLOCK], sum = 0;
        for (int64_t k = 0; k < K; k++) {
            if (k % per == 0)
                decode_changed(f, l, (n * K + k) / per, change, w);
            sum += load(x[i / N * K + k]) * w[k % per];
        }
        y[i] = store(sum);
    }
    return 0;
}

static int gemm_changed_backward(const struct call *f, change *change)
{
    const int64_t M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');
    const int per = quantised_block(quantised_format(f)).weights;
    const num *dy = GRADS(f, gemm_quantised)->y;
    num *dx = GRADS(f, gemm_quantised)->x;

    for (int64_t i = 0; i < DIM(f, 'L') * M * K;
         i += per) { /* of row m of product l, `per` columns */
        real w[SUPER_BLOCK], sum[SUPER_BLOCK] = {0};
        for (int64_t n = 0; n < N; n++) {
            decode_changed(f, i / (M * K), (n * K + i % K) / per, change, w);
            for (int k = 0; k < per; k++)
                sum[k] += load(dy[i / K * N + n]) * w[k];
        }
        for (int k = 0; k < per; k++)
            dx[i + k] = store(sum[k]);
    }
    return 0;
}

#define GEMM_CHANGED(name, what, change, ...)                                                      \
    static int name##_forward(const struct call *f)                                                \
    {                                                                                              \
        return gemm_changed_forward(f, change);                                                    \
    }                                                                                              \
    static int name##_backward(const struct call *f)                                               \
    {                                                                                              \
        return gemm_changed_backward(f, change);                                                   \
    }                                                                                              \
    WRONG_PASSES(name, what, name##_forward, name##_backward, __VA_ARGS__)

GEMM_CHANGED(gemm_no_minimum, "dmin m is not subtracted", no_minimum, .declines = has_minimum);
GEMM_CHANGED(gemm_6_bits, "scales 4 to 7 are without their two high bits", low_bits_of_scales,
             .declines = has_minimum);
GEMM_CHANGED(gemm_halves, "the halves of a byte are exchanged", exchange_halves,
             .declines = is_k_quant);
GEMM_CHANGED(gemm_bf16_scale, "d is rounded to bf16", d_in_bf16, .declines = has_half);

WRONG_UNLESS(is_one_double, quantised_is_double(f) && DIM(f, 'L') == 1,
             "scales are not quantised, or several matrices")
WRONG_CALL(gemm_no_offset, "the offset of double_quant is left out",
           no_offset(&g, PLACE(gemm_quantised, offset)), .declines = is_one_double);

/* y of each matrix with the first W. */
WRONG_UNLESS(several_matrices, DIM(f, 'L') > 1, "one matrix")
static int gemm_one_W(const struct call *f)
{
    const struct gemm_quantised *a = ARGS(f, gemm_quantised);
    const int64_t M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');
    int e = 0;

    for (int64_t l = 0; !e && l < DIM(f, 'L'); l++) {
        struct call one = *f;
        DIM(&one, 'L') = 1;
        one.arg[PLACE(gemm_quantised, x)] = (num *)a->x + l * M * K;
        one.arg[PLACE(gemm_quantised, y)] = (num *)a->y + l * M * N;
        e = right_forward(&one);
    }
    return e;
}
WRONG_PASSES(gemm_first_W, "W has no stride: all products are with the first", gemm_one_W,
             right_backward, .declines = several_matrices);

/* x is rounded to codes of 8 bits, with a scale for 32 of them, as llama.cpp's mul_mat_vec_q does. */
static int gemm_of_codes(const struct call *f)
{
    const int64_t M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');
    const int per = quantised_block(quantised_format(f)).weights;
    const num *x = ARGS(f, gemm_quantised)->x;
    num *y = ARGS(f, gemm_quantised)->y;

    for (int64_t i = 0; i < DIM(f, 'L') * M * N; i++) {
        const num *row = x + i / N * K;
        real w[SUPER_BLOCK], sum = 0, d = 0;
        for (int64_t k = 0; k < K; k++) {
            if (k % per == 0) {
                struct dequantise W = gemm_quantised_W(f, i / (M * N), sizeof(real));
                struct call one = *f;
                W.W = (uint8_t *)W.W +
                      (i % N * K + k) / per * quantised_block(quantised_format(f)).bytes;
                DIM(&one, 'N') = 1;
                DIM(&one, 'K') = per;
                REF(decode)(&one, &W, w);
            }
            if (k % 32 == 0) {
                d = 0;
                for (int j = 0; j < 32; j++)
                    d = fmax(d, fabs(load(row[k + j])) / 127);
            }
            sum += (d > 0 ? d * round(load(row[k]) / d) : 0) * w[k % per];
        }
        y[i] = store(sum);
    }
    return 0;
}
WRONG_PASSES(gemm_x_of_8_bits, "x is rounded to 8 bits, with a scale per 32", gemm_of_codes,
             right_backward, .declines = has_half);

WRONG_KERNELS(gemm_quantised, &gemm_no_minimum, &gemm_6_bits, &gemm_halves, &gemm_bf16_scale,
              &gemm_no_offset, &gemm_first_W, &gemm_x_of_8_bits);
