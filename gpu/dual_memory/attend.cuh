/* attend.cuh - softmax and the exact 1.5-entmax over up to 64 slots, inside one warp, and their
 * gradients.
 *
 * SLOTS (8, 16, 32 or 64) scores are distributed over a group of SLOTS / OWN lanes, OWN per lane,
 * in any order.  The lanes of a group are neighbours, and a warp holds as many groups as fit.
 * Padding has the score -INFINITY and gets exactly 0.  All sums are trees over lanes, in an order
 * that depends only on SLOTS and OWN.
 *
 * entmax15 does not sort.  Each slot sums the scores that are not below its own, which are a prefix
 * of the sorted list, and computes the tau that holds if this slot is the last of the support.  The
 * last slot of the support is the one with the longest prefix among those whose tau does not exceed
 * their score.
 *
 * Where the maximum is NaN or infinite, all weights are NaN. */
#ifndef ATTEND_CUH
#define ATTEND_CUH

#include "common/ops/dual_memory.h"
#include "gpu/device/math.cuh"
#include "gpu/device/reduce.cuh"

template <int SLOTS>
struct attention {
    enum { OWN = SLOTS > 32 ? 2 : 1, GROUP = SLOTS / OWN };

    static __device__ __forceinline__ float sum(const float x[OWN])
    {
        float all = 0;
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++)
            all += x[i];
        return warp_sum<GROUP>(all);
    }

    static __device__ __forceinline__ float row_max(const float x[OWN])
    {
        float all = x[0];
        #pragma unroll OWN
        for (int i = 1; i < OWN; i++)
            all = max_nan(all, x[i]);
        return warp_max<GROUP>(all);
    }

    /* e^(a - top), and their sum. */
    static __device__ __forceinline__ float powers(float p[OWN], const float a[OWN], float top)
    {
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++)
            p[i] = power(a[i], top, LOG2E);
        return sum(p);
    }

    /* exp(a - bound), normalised; the bound is the maximum or an upper bound known earlier.  Where
     * the bound is so far above the maximum that the sum is below min_sum, the maximum is used. */
    static __device__ __forceinline__ void softmax(float p[OWN], const float a[OWN], float bound)
    {
        const float min_sum = 1e-20f;
        float all = powers(p, a, bound);
        if (__any_sync(~0u, all < min_sum))
            all = powers(p, a, row_max(a));
        const float inverse = rcp_approx(all);
        #pragma unroll OWN
        for (int i = 0; i < OWN;
             i++) { /* one correction of the division: equal scores get 1/N exactly */
            const float near = p[i] * inverse;
            p[i] = fmaf(fmaf(-near, all, p[i]), inverse, near);
        }
    }

    static __device__ __forceinline__ void entmax15(float p[OWN], const float a[OWN])
    {
        const float top = row_max(a);
        float u[OWN], add[OWN] = {}, squares[OWN] = {}, tau[OWN];
        const int first = (int)threadIdx.x % 32 & ~(GROUP - 1); /* first lane of the group */
        int count[OWN] = {}, longest = 0;

        #pragma unroll OWN
        for (int i = 0; i < OWN; i++)
            u[i] = 0.5f * (a[i] - top); /* subtracting the maximum changes no p */
        #pragma unroll SLOTS
        for (int j = 0; j < SLOTS; j++) {
            const float other = __shfl_sync(~0u, u[j / GROUP], first + j % GROUP);
            #pragma unroll OWN
            for (int i = 0; i < OWN; i++)
                if (other >= u[i] && other > -2) { /* nothing below -2 is in the support */
                    count[i]++;
                    add[i] += other;
                    squares[i] = fmaf(other, other, squares[i]);
                }
        }
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++) {
            const float inverse = rcp_approx((float)max(count[i], 1)), mean = add[i] * inverse;
            const float spread = fmaf(-add[i], mean, squares[i]);
            tau[i] = mean - sqrt_approx(fmaxf((1 - spread) * inverse, 0.0f));
            count[i] = u[i] > -2 && tau[i] <= u[i] ? count[i] : 0;
            longest = max(longest, count[i]);
        }
        #pragma unroll 5
        for (int offset = GROUP / 2; offset > 0; offset /= 2)
            longest = max(longest, __shfl_xor_sync(~0u, longest, offset));
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++)
            tau[i] = count[i] == longest ? tau[i] : -INFINITY;
        const float found = row_max(tau); /* ties have the same tau */
        const float threshold = longest > 0 ? found : NAN;
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++) {
            const float over = max_nan(u[i] - threshold, 0.0f);
            p[i] = over * over;
        }
    }

    /* Computes weights from scores; no score is above the bound. */
    static __device__ __forceinline__ void attend(int kind, float p[OWN], const float a[OWN],
                                                  float bound)
    {
        if (kind == DUAL_SOFTMAX)
            softmax(p, a, bound);
        else
            entmax15(p, a);
    }

    static __device__ __forceinline__ void attend(int kind, float p[OWN], const float a[OWN])
    {
        attend(kind, p, a, row_max(a));
    }

    /* Replaces dL/dp by dL/da: slope (d - <slope,d> / sum of slopes), where the slope is p for
     * softmax and sqrt(p) for entmax15; 0 where p is 0. */
    static __device__ __forceinline__ void back(int kind, const float p[OWN], float d[OWN])
    {
        float slope[OWN], part[OWN];
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++) {
            slope[i] = kind == DUAL_SOFTMAX ? p[i] : sqrt_approx(p[i]);
            part[i] = slope[i] * d[i];
        }
        const float all = sum(slope), dot = sum(part) * rcp_approx(all > 0 ? all : 1);
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++)
            d[i] = slope[i] * (d[i] - dot);
    }
};

#endif
