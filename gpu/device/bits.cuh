/* bits.cuh - PRMT, SHF and DP4A: bytes and bits of words, for weights in up to 8 bits. */
#ifndef BITS_CUH
#define BITS_CUH

#include "gpu/gpu.cuh"

/* Byte i of the result is the byte of b:a (b the upper four) that nibble i of `which` names. */
static __device__ __forceinline__ unsigned byte_perm(unsigned a, unsigned b, unsigned which)
{
#ifdef __CUDACC__
    return __byte_perm(a, b, which);
#else
    const uint64_t both = (uint64_t)b << 32 | a;
    unsigned to = 0;
    for (int i = 0; i < 4; i++)
        to |= (unsigned)(both >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
    return to;
#endif
}

/* The lower word of high:low, shifted right by up to 31 bits. */
static __device__ __forceinline__ unsigned funnel_right(unsigned low, unsigned high, unsigned bits)
{
#ifdef __CUDACC__
    return __funnelshift_r(low, high, bits);
#else
    return (unsigned)(((uint64_t)high << 32 | low) >> bits);
#endif
}

/* sum + the dot product of the four signed bytes of a and of b. */
static __device__ __forceinline__ int dot_bytes(unsigned a, unsigned b, int sum)
{
#ifdef __CUDACC__
    return __dp4a((int)a, (int)b, sum);
#else
    for (int i = 0; i < 32; i += 8)
        sum += (int8_t)(a >> i) * (int8_t)(b >> i);
    return sum;
#endif
}

/* Byte k of a word, minus `offset`, as a float: the byte is the end of 2^23's mantissa. */
static __device__ __forceinline__ float float_of_byte(unsigned word, int k, float offset)
{
    return __uint_as_float(byte_perm(word, 0x4b000000, 0x7650 + k)) - (8388608 + offset);
}

#endif
