/* half.h - the 16-bit types in C, rounding to nearest even, and the
 * conversions of whole tensors are built on these. */
#ifndef HALF_H
#define HALF_H

#include <stdint.h>
#include <string.h>

typedef struct {
    uint16_t bits;
} bf16;

typedef struct {
    uint16_t bits;
} f16;

static inline uint32_t float_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static inline float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

static inline bf16 to_bf16(float x)
{
    uint32_t u = float_bits(x);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (bf16){(uint16_t)(u >> 16 | 0x40)}; /* a NaN stays one */
    return (bf16){(uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16)};
}

static inline float from_bf16(bf16 h)
{
    return float_of((uint32_t)h.bits << 16);
}

static inline f16 to_f16(float x)
{
    uint32_t u = float_bits(x), sign = u >> 16 & 0x8000, mag = u & 0x7fffffff;
    if (mag > 0x7f800000)
        return (f16){(uint16_t)(sign | 0x7e00)};
    if (mag >= 0x477ff000) /* rounds to 65536 or more */
        return (f16){(uint16_t)(sign | 0x7c00)};
    if (mag < 0x38800000) {                /* below 2^-14: a multiple of 2^-24 */
        float half = float_of(mag) + 0.5f; /* adding 0.5 rounds to one */
        return (f16){(uint16_t)(sign | (float_bits(half) - 0x3f000000))};
    }
    return (f16){(uint16_t)(sign | ((mag + 0xfff + (mag >> 13 & 1) - 0x38000000) >> 13))};
}

static inline float from_f16(f16 h)
{
    uint32_t sign = (uint32_t)(h.bits & 0x8000) << 16, mag = h.bits & 0x7fff;
    if (mag >= 0x7c00)
        return float_of(sign | 0x7f800000 | (mag & 0x3ff) << 13);
    if (mag < 0x400)
        return (sign ? -1.0f : 1.0f) * (float)mag * 0x1p-24f;
    return float_of(sign | ((mag << 13) + 0x38000000));
}

#endif
