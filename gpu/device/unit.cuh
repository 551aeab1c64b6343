/* unit.cuh - a row sixteen bytes at a time where rows are a multiple of that, else element by
 * element: a kernel is written once for both. */
#ifndef UNIT_CUH
#define UNIT_CUH

#include "gpu/gpu.cuh"

struct alignas(16) unit {
    unsigned word[4];
};

/* What one access to memory moves, and the elements in it. */
template <typename T, bool WIDE>
struct access {
    typedef T raw;
    enum { NUMBERS = 1 };

    static __device__ __forceinline__ raw none(void)
    {
        T x;
        store(&x, 0);
        return x;
    }
    static __device__ __forceinline__ void unpack(const raw &from, float (&x)[NUMBERS])
    {
        x[0] = load(&from);
    }
    static __device__ __forceinline__ raw pack(const float (&x)[NUMBERS])
    {
        T to;
        store(&to, x[0]);
        return to;
    }
};

template <>
struct access<float, true> {
    typedef unit raw;
    enum { NUMBERS = 4 };

    static __device__ __forceinline__ raw none(void) { return {{0, 0, 0, 0}}; }
    static __device__ __forceinline__ void unpack(const raw &from, float (&x)[NUMBERS])
    {
        #pragma unroll 4
        for (int i = 0; i < 4; i++)
            x[i] = __uint_as_float(from.word[i]);
    }
    static __device__ __forceinline__ raw pack(const float (&x)[NUMBERS])
    {
        unit to;
        #pragma unroll 4
        for (int i = 0; i < 4; i++)
            to.word[i] = __float_as_uint(x[i]);
        return to;
    }
};

template <>
struct access<__nv_bfloat16, true> {
    typedef unit raw;
    enum { NUMBERS = 8 };

    static __device__ __forceinline__ raw none(void) { return {{0, 0, 0, 0}}; }
    static __device__ __forceinline__ void unpack(const raw &from, float (&x)[NUMBERS])
    {
        #pragma unroll 4
        for (int i = 0; i < 4; i++) {
            x[2 * i] = __uint_as_float(from.word[i] << 16);
            x[2 * i + 1] = __uint_as_float(from.word[i] & 0xffff0000);
        }
    }
    static __device__ __forceinline__ raw pack(const float (&x)[NUMBERS])
    {
        unit to;
        #pragma unroll 4
        for (int i = 0; i < 4; i++) {
            const __nv_bfloat162 pair = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
            memcpy(&to.word[i], &pair, sizeof pair);
        }
        return to;
    }
};

/* Are rows of n elements whole units? */
template <typename T>
static bool whole_units(int64_t n)
{
    return n % (int64_t)(sizeof(unit) / sizeof(T)) == 0;
}

/* How many accesses such a row takes. */
template <typename T>
static int64_t accesses(int64_t n)
{
    return whole_units<T>(n) ? n / (int64_t)(sizeof(unit) / sizeof(T)) : n;
}

#endif
