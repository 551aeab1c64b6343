/* The table of storage types, and the conversion of tensors (types.h). */
#include "config.h"

#include <float.h>

#include "common/base/half.h"
#include "common/base/types.h"

/* The two loops of a type, with the expressions that convert one element. */
#define CONVERT(name, type, to_type, to_double)                                                    \
    static void narrow_##name(void *to, const double *from, int64_t n)                             \
    {                                                                                              \
        type *out = to;                                                                            \
        for (int64_t i = 0; i < n; i++)                                                            \
            out[i] = to_type(from[i]);                                                             \
    }                                                                                              \
    static void widen_##name(double *to, const void *from, int64_t n)                              \
    {                                                                                              \
        const type *in = from;                                                                     \
        for (int64_t i = 0; i < n; i++)                                                            \
            to[i] = to_double(in[i]);                                                              \
    }
#define FLOAT_TO_BF16(x) to_bf16((float)(x))
#define FLOAT_TO_F16(x) to_f16((float)(x))

CONVERT(f64, double, (double), (double))
CONVERT(f32, float, (float), (double))
CONVERT(bf16, bf16, FLOAT_TO_BF16, from_bf16)
CONVERT(f16, f16, FLOAT_TO_F16, from_f16)
CONVERT(i64, int64_t, (int64_t), (double))
CONVERT(i32, int32_t, (int32_t), (double))
CONVERT(u8, uint8_t, (uint8_t), (double))

/* A double holds all whole numbers up to 2^53. */
#define ROW(name) narrow_##name, widen_##name
const struct type types[N_DTYPES] = {
    [F64] = {"fp64", sizeof(double), 0x1p-53, DBL_MAX, F64, ROW(f64)},
    [F32] = {"fp32", sizeof(float), 0x1p-24, FLT_MAX, F32, ROW(f32)},
    [BF16] = {"bf16", sizeof(bf16), 0x1p-8, 0x1.fep127, F32, ROW(bf16)},
    [F16] = {"fp16", sizeof(f16), 0x1p-11, 65504, F32, ROW(f16)},
    [I64] = {"int64", sizeof(int64_t), 0, 0x1p53, I64, ROW(i64)},
    [I32] = {"int32", sizeof(int32_t), 0, INT32_MAX, I32, ROW(i32)},
    [U8] = {"uint8", sizeof(uint8_t), 0, UINT8_MAX, U8, ROW(u8)},
};
const char *const storage_types[] = {"fp32", "bf16", "fp16", NULL};

/* All chunks but the last have one size. */
enum { CHUNK = 1 << 14 };

void narrow(enum dtype t, void *to, const double *from, int64_t n)
{
    #pragma omp parallel for if (n > CHUNK)
    for (int64_t i = 0; i < n; i += CHUNK)
        types[t].narrow((char *)to + i * types[t].bytes, from + i, n - i < CHUNK ? n - i : CHUNK);
}

void widen(enum dtype t, double *to, const void *from, int64_t n)
{
    #pragma omp parallel for if (n > CHUNK)
    for (int64_t i = 0; i < n; i += CHUNK)
        types[t].widen(to + i, (const char *)from + i * types[t].bytes,
                       n - i < CHUNK ? n - i : CHUNK);
}
