/* attend.cuh - softmax and the exact 1.5-entmax over up to 64 slots, inside one
 * warp, and back through them.
 *
 * SLOTS (8, 16, 32 or 64) scores belong to SLOTS / OWN lanes, OWN to each, in any order;
 * the lanes are neighbours, or APART from each other, and a warp holds as many such sets
 * as it has lanes for.  A slot that is only padding has the score -INFINITY and gets
 * exactly 0.  All sums are trees over lanes, in an order that depends on SLOTS and OWN
 * alone.
 *
 * entmax15 sorts nothing: every slot adds up those that are not below it, which are
 * what a sorted list would have before it, and so finds the tau that would hold if
 * it were the last of the support; the support's last is the one with the longest
 * list among those whose tau does not exceed them.
 *
 * Where the largest score is NaN or infinite, all weights are NaN. */
#ifndef ATTEND_CUH
#define ATTEND_CUH

#include "common/ops/dual_memory.h"
#include "gpu/device/math.cuh"

template <int SLOTS, int OWN_ = (SLOTS > 32 ? 2 : 1), int APART = 1>
struct attention {
    enum { OWN = OWN_, GROUP = SLOTS / OWN };

    static __device__ __forceinline__ float sum(const float x[OWN])
    {
        float all = 0;
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++)
            all += x[i];
        #pragma unroll 5
        for (int far = GROUP / 2; far > 0; far /= 2)
            all += __shfl_xor_sync(~0u, all, far * APART);
        return all;
    }

    static __device__ __forceinline__ float most(const float x[OWN])
    {
        float all = x[0];
        #pragma unroll OWN
        for (int i = 1; i < OWN; i++)
            all = max_nan(all, x[i]);
        #pragma unroll 5
        for (int far = GROUP / 2; far > 0; far /= 2)
            all = max_nan(all, __shfl_xor_sync(~0u, all, far * APART));
        return all;
    }

    /* e^(a - top), and their sum. */
    static __device__ __forceinline__ float powers(float p[OWN], const float a[OWN], float top)
    {
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++)
            p[i] = exp2_approx(1.442695041f * (a[i] - top));
        return sum(p);
    }

    /* From the largest score on, or from a bound that is known before the scores are; unless
     * that is so far up that next to nothing is left. */
    static __device__ __forceinline__ void softmax(float p[OWN], const float a[OWN], float bound)
    {
        const float least = 1e-20f;
        float all = powers(p, a, bound);
        if (__any_sync(~0u, all < least))
            all = powers(p, a, most(a));
        const float share = rcp_approx(all);
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++) { /* what is left over, too: equal scores get 1/N exactly */
            const float near = p[i] * share;
            p[i] = fmaf(fmaf(-near, all, p[i]), share, near);
        }
    }

    static __device__ __forceinline__ void entmax15(float p[OWN], const float a[OWN])
    {
        const float top = most(a);
        float u[OWN], add[OWN] = {}, squares[OWN] = {}, tau[OWN];
        const int first = (int)threadIdx.x % 32 & ~((GROUP - 1) * APART); /* of the lanes */
        int count[OWN] = {}, longest = 0;

        #pragma unroll OWN
        for (int i = 0; i < OWN; i++)
            u[i] = 0.5f * (a[i] - top); /* from the largest on, which changes no p */
        #pragma unroll SLOTS
        for (int j = 0; j < SLOTS; j++) {
            const float other = __shfl_sync(~0u, u[j / GROUP], first + j % GROUP * APART);
            #pragma unroll OWN
            for (int i = 0; i < OWN; i++)
                if (other >= u[i] && other > -2) { /* none so far down is in the support */
                    count[i]++;
                    add[i] += other;
                    squares[i] = fmaf(other, other, squares[i]);
                }
        }
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++) {
            const float share = rcp_approx((float)max(count[i], 1)), mean = add[i] * share;
            const float spread = fmaf(-add[i], mean, squares[i]);
            tau[i] = mean - sqrt_approx(fmaxf((1 - spread) * share, 0.0f));
            count[i] = u[i] > -2 && tau[i] <= u[i] ? count[i] : 0;
            longest = max(longest, count[i]);
        }
        #pragma unroll 5
        for (int far = GROUP / 2; far > 0; far /= 2)
            longest = max(longest, __shfl_xor_sync(~0u, longest, far * APART));
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++)
            tau[i] = count[i] == longest ? tau[i] : -INFINITY;
        const float found = most(tau); /* ties have found the same one */
        const float threshold = longest > 0 ? found : NAN;
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++) {
            const float over = max_nan(u[i] - threshold, 0.0f);
            p[i] = over * over;
        }
    }

    /* Scores to weights, where no score is above the bound. */
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
        attend(kind, p, a, most(a));
    }

    /* From dL/dp to dL/da, in place: slope (d - <slope,d> / sum of slopes), where the
     * slope is p of a softmax and its root of an entmax; 0 where no p is. */
    static __device__ __forceinline__ void back(int kind, const float p[OWN], float d[OWN])
    {
        float slope[OWN], part[OWN];
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++) {
            slope[i] = kind == DUAL_SOFTMAX ? p[i] : sqrt_approx(p[i]);
            part[i] = slope[i] * d[i];
        }
        const float all = sum(slope), along = sum(part) * rcp_approx(all > 0 ? all : 1);
        #pragma unroll OWN
        for (int i = 0; i < OWN; i++)
            d[i] = slope[i] * (d[i] - along);
    }
};

#endif
