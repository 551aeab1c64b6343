/* divisor.cuh - division by what does not change in a launch. */
#ifndef DIVISOR_CUH
#define DIVISOR_CUH

#include "gpu/gpu.cuh"

/* n / by for n < 2^31, as a product: where 2^(l - 1) < by <= 2^l, the factor 2^(31 + l) / by, rounded
 * up, is less than 2^32 and too large by less than by / 2^(31 + l), n times which is less than 1 / by. */
struct divisor {
    unsigned by, factor;
    int shift;

    __device__ __forceinline__ unsigned quotient(unsigned n) const
    {
        return (unsigned)((uint64_t)n * factor >> shift);
    }
};

static inline divisor divisor_of(int64_t by)
{
    int shift = 31;
    while ((int64_t)1 << (shift - 31) < by)
        shift++;
    return {(unsigned)by, (unsigned)((((uint64_t)1 << shift) + by - 1) / by), shift};
}

#endif
