/* softmax.cuh - the online softmax: the sum of exp(x - top) over elements that arrive part by part,
 * where top is the maximum of those so far. */
#ifndef DEVICE_SOFTMAX_CUH
#define DEVICE_SOFTMAX_CUH

#include "gpu/device/reduce.cuh"

/* The lowest finite float: with it as maximum, the power of -inf is 0, and its own power is 1. */
#define LOWEST (-3.402823466e38f)

/* The running maximum, and the running sum of the powers relative to it.  The sum is 0 if all
 * elements so far are -inf. */
struct running {
    float top = LOWEST, sum = 0;
};

/* Rescales the sum to the new maximum `top`.  Returns the factor, by which all that was summed with
 * these powers must be multiplied. */
static __device__ __forceinline__ float rescale(running &so_far, float top, float scale)
{
    const float factor = power(so_far.top, top, scale);

    so_far.sum *= factor;
    so_far.top = top;
    return factor;
}

#endif
