/* sigmoid.cuh - 1 / (1 + exp(-x)). */
#ifndef SIGMOID_CUH
#define SIGMOID_CUH

#include "gpu/device/ptx.cuh"

/* By 2^x and a reciprocal as the hardware has them: the accurate ones take so many instructions
 * that bf16 would wait for them, not for memory. */
static __device__ __forceinline__ float sigmoid(float x)
{
    return reciprocal(1 + exp2_approx(-1.44269504f * x));
}
#define SIGMOID "ex2.approx, rcp.approx"
#define SIGMOID_UNIT 3e-7

#endif
