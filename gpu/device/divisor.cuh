/* divisor.cuh - quotients by a number that the host knows before the launch: a multiplication and a shift. */
#ifndef DIVISOR_CUH
#define DIVISOR_CUH

#include "gpu/gpu.cuh"

/* n > 0.  With s the bits of n - 1 and m = ceil(2^(31 + s) / n), x / n is x m / 2^(31 + s) for all x < 2^31:
 * m n is less than n <= 2^s above 2^(31 + s). */
struct divisor {
    unsigned m;
    int s; /* less 1; -1: n is 1 */

    explicit divisor(unsigned n) : m(0), s(-1)
    {
        while (n > 1u << (s + 1))
            s++;
        if (s >= 0)
            m = (unsigned)((((uint64_t)1 << (32 + s)) + n - 1) / n);
    }

    /* x / n, for x < 2^31. */
    __device__ __forceinline__ unsigned quotient(unsigned x) const
    {
        return s < 0 ? x : __umulhi(x, m) >> s;
    }
};

#endif
