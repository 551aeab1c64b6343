/* super_block.cuh - a super-block of q4_k, q5_k, q6_k from 256 weights (common/ops/quantised.h has the
 * formulas): a thread has E of them.  A scale is that of PER weights, which LANES lanes share; ALL
 * lanes share the super-block.  Sums are pairwise, in a thread, then over lanes. */
#ifndef SUPER_BLOCK_CUH
#define SUPER_BLOCK_CUH

#include <float.h>

#include "common/ops/quantised.h"
#include "gpu/device/rounded.cuh"
#include "gpu/quantised/decode.cuh"

/* What a search knows of its call. */
struct fit {
    quantise_search search;
    struct quantise_steps r;
    bool importance;

    __device__ __forceinline__ rounded step(int k) const
    {
        return rounded((float)(r.first + k * r.step)) / 1000;
    }
    static __device__ __forceinline__ rounded factor(int k)
    {
        return rounded((float)(97 + k)) / 100;
    }
};

/* The codes of a super-block, of q6_k without their + 32. */
struct super_codes {
    int8_t q[SUPER_BLOCK], s[16], m[8];
};

static __device__ __forceinline__ float clamp(rounded x, float low, float high)
{
    return fminf(fmaxf(x.x, low), high);
}

static __device__ __forceinline__ float round_to(rounded x, float low, float high)
{
    return clamp(rintf(x.x), low, high);
}

/* What fp16 makes of a scale. */
static __device__ __forceinline__ __half half_scale(rounded d)
{
    return __float2half(clamp(d, -65504, 65504));
}

template <int FORMAT, int E>
struct super_block {
    static constexpr int PER = FORMAT == Q6_K ? 16 : 32, ALL = SUPER_BLOCK / E;
    static constexpr int LANES = PER / E, TOP = FORMAT == Q4_K ? 15 : 31;
    static constexpr int BYTES = FORMAT == Q4_K ? 144 : FORMAT == Q5_K ? 176 : 210;
    static constexpr bool LINE = FORMAT != Q6_K; /* x = s q - m, with m */

    fit f;
    int lane;
    rounded x[E], v[E]; /* the weights, and their weights in the error */
    rounded s, m;       /* of the block */
    float d, dmin;      /* as fp16 has them */

    /* ---- sums ---- */

    /* Of t(i) over a block; of t, the same on all lanes of a block, over the super-block. */
    template <typename F>
    static __device__ __forceinline__ rounded block_sum(const F &t)
    {
        rounded term[E];
        #pragma unroll
        for (int i = 0; i < E; i++)
            term[i] = t(i);
        return pairwise_lanes<1, LANES>(pairwise(term));
    }
    static __device__ __forceinline__ rounded super_sum(rounded t)
    {
        return pairwise_lanes<LANES, ALL>(t);
    }

    /* ---- what an error counts ---- */

    template <typename T>
    __device__ __forceinline__ void read(const T *w, const T *importance)
    {
        float largest = 0;

        #pragma unroll
        for (int i = 0; i < E; i++) {
            x[i] = load(w + lane * E + i);
            v[i] = importance ? load(importance + lane * E + i) : 1;
            largest = fmaxf(largest, v[i].x);
        }
        if (first_largest<1, LANES>(largest, lane) == 0)
            #pragma unroll
            for (int i = 0; i < E; i++)
                v[i] = 1;
        if (f.search == PUBLISHED)
            weigh();
    }

    __device__ __forceinline__ void weigh()
    {
        const rounded squares = block_sum([&](int i) { return x[i] * x[i]; });
        const rounded square = super_sum(squares) / SUPER_BLOCK;
        const rounded rms = sqrtf((squares / PER).x);

        #pragma unroll
        for (int i = 0; i < E; i++)
            if (LINE)
                v[i] =
                    f.importance ? v[i] * sqrtf((2 * square + x[i] * x[i]).x) : rms + fabsf(x[i].x);
            else if (!f.importance)
                v[i] = x[i] * x[i];
    }

    /* ---- the scale of a block ---- */

    __device__ __forceinline__ rounded error(const float *q, rounded s_, rounded m_) const
    {
        return block_sum([&](int i) {
            const rounded off = s_ * q[i] - m_ - x[i];
            return v[i] * off * off;
        });
    }

    __device__ __forceinline__ void line_codes(rounded steps, rounded lo, float *q) const
    {
        #pragma unroll
        for (int i = 0; i < E; i++)
            q[i] = round_to(steps * (x[i] - lo), 0, TOP);
    }

    /* A candidate's s and m, of V = sum v and Sw = sum v w; is there one? */
    __device__ __forceinline__ bool least_squares(const float *q, rounded V, rounded Sw,
                                                  rounded *s_, rounded *m_) const
    {
        const rounded Sq = block_sum([&](int i) { return v[i] * q[i]; });
        const rounded Sqq = block_sum([&](int i) { return v[i] * q[i] * q[i]; });
        const rounded Swq = block_sum([&](int i) { return v[i] * q[i] * x[i]; });
        const rounded D = V * Sqq - Sq * Sq;

        *s_ = (V * Swq - Sw * Sq) / D;
        *m_ = (Sq * Swq - Sqq * Sw) / D;
        if (m_->x < 0) {
            *m_ = 0;
            *s_ = Swq / Sqq;
        }
        return D.x > 0;
    }

    __device__ __forceinline__ void range(float *low, float *high) const
    {
        *low = 0;
        *high = x[0].x;
        #pragma unroll
        for (int i = 0; i < E; i++) {
            *low = fminf(*low, x[i].x);
            *high = fmaxf(*high, x[i].x);
        }
        #pragma unroll
        for (int at = 1; at < LANES; at *= 2) {
            *low = fminf(*low, __shfl_xor_sync(0xffffffff, *low, at));
            *high = fmaxf(*high, __shfl_xor_sync(0xffffffff, *high, at));
        }
    }

    /* All lanes compute every candidate, so that no sum of a warp lacks a lane. */
    __device__ __forceinline__ void fit_line()
    {
        float low, hi, q[E];
        rounded s_, m_;

        range(&low, &hi);
        const rounded V = block_sum([&](int i) { return v[i]; });
        const rounded Sw = block_sum([&](int i) { return v[i] * x[i]; });
        rounded lo = low;
        m = 0 - lo;
        s = hi > low ? ((hi - lo) / TOP).x : 0;
        line_codes(TOP / (hi - lo), lo, q);
        float smallest = error(q, s, m).x;
        #pragma unroll 1
        for (int k = 0; k < f.r.count; k++) {
            line_codes((TOP + f.step(k)) / (hi - lo), lo, q);
            const bool found = least_squares(q, V, Sw, &s_, &m_);
            const float now = error(q, s_, m_).x;
            if (found && hi > lo.x && now < smallest) {
                smallest = now;
                s = s_;
                m = m_;
                lo = 0 - m_;
            }
        }
    }

    __device__ __forceinline__ void fit_scale()
    {
        float star = 0, best = 0, q[E];

        #pragma unroll
        for (int i = 0; i < E; i++)
            star = fabsf(x[i].x) > fabsf(star) ? x[i].x : star;
        star = first_largest<1, LANES>(star, lane);
        s = m = 0;
        #pragma unroll 1
        for (int k = 0; k < f.r.count; k++) {
            const rounded steps = -(32 + f.step(k)).x / star;
            #pragma unroll
            for (int i = 0; i < E; i++)
                q[i] = round_to(steps * x[i], -32, 31);
            const rounded Sqq = block_sum([&](int i) { return v[i] * q[i] * q[i]; });
            const rounded Swq = block_sum([&](int i) { return v[i] * q[i] * x[i]; });
            const rounded now = Swq / Sqq;
            if (star != 0 && Sqq.x > 0 && (now * Swq).x > best) {
                best = (now * Swq).x;
                s = now;
            }
        }
    }

    /* ---- the scales of scales ---- */

    /* d of the scales t: the largest by 63, or the best of a search. */
    __device__ __forceinline__ rounded scale_of_scales(rounded t) const
    {
        float largest = fmaxf(t.x, 0), smallest = INFINITY;

        #pragma unroll
        for (int at = LANES; at < ALL; at *= 2)
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, at));
        rounded best = rounded(largest) / 63;
        if (f.search != PUBLISHED || !f.importance)
            return best;
        const rounded V = block_sum([&](int i) { return v[i]; });
        #pragma unroll 1
        for (int k = 0; k < f.r.count; k++) {
            const rounded L = round_to((63 + f.step(k)) / largest * t, 0, 63);
            const rounded d_ = super_sum(V * L * t) / super_sum(V * L * L), off = d_ * L - t;
            const float now = super_sum(V * off * off).x;
            if (largest > 0 && now < smallest) {
                smallest = now;
                best = d_;
            }
        }
        return best;
    }

    /* Codes for d and dmin. */
    __device__ __forceinline__ void codes(float *s_code, float *m_code, float *q) const
    {
        *s_code = d != 0 ? round_to(s / d, LINE ? 0 : -128, LINE ? 63 : 127) : 0;
        *m_code = dmin != 0 ? round_to(m / dmin, 0, 63) : 0;
        const rounded s_ = rounded(d) * *s_code, m_ = rounded(dmin) * *m_code;
        const rounded inverse = 1 / s_.x;
        #pragma unroll
        for (int i = 0; i < E; i++)
            q[i] = s_.x != 0 ? round_to((x[i] + m_) * inverse, LINE ? 0 : -32, TOP) : 0;
    }

    /* Takes these scales, and returns the error that they cause. */
    __device__ __forceinline__ float take_scales(rounded d_, rounded dmin_)
    {
        float s_code, m_code, q[E];

        d = __half2float(half_scale(d_));
        dmin = __half2float(half_scale(dmin_));
        codes(&s_code, &m_code, q);
        return super_sum(error(q, rounded(d) * s_code, rounded(dmin) * m_code)).x;
    }

    /* Of d and dmin times 0.97 ... 1.03, the best. */
    __device__ __forceinline__ void search_scales(rounded *d_, rounded *dmin_)
    {
        const rounded d0 = *d_, dmin0 = *dmin_;
        float smallest = INFINITY;

        *d_ = d0 * f.factor(0);
        *dmin_ = dmin0 * f.factor(0);
        #pragma unroll 1
        for (int k = 0; k < 49; k += LINE ? 1 : 7) {
            const rounded d1 = d0 * f.factor(k / 7), dmin1 = dmin0 * f.factor(k % 7);
            const float now = take_scales(d1, dmin1);
            if (now < smallest) {
                smallest = now;
                *d_ = d1;
                *dmin_ = dmin1;
            }
        }
    }

    __device__ __forceinline__ void search()
    {
        rounded d_, dmin_ = 0;

        if (LINE) {
            fit_line();
            d_ = scale_of_scales(s);
            dmin_ = scale_of_scales(m);
        } else {
            fit_scale();
            d_ = -first_largest<LANES, ALL>(s.x, lane) / rounded(128);
        }
        if (f.search == WIDE_SEARCH)
            search_scales(&d_, &dmin_);
        const float now = take_scales(d_, dmin_);
        const float zeros = super_sum(block_sum([&](int i) { return v[i] * x[i] * x[i]; })).x;
        if (LINE && d == 0 && !(now < zeros))
            dmin = 0;
    }

    /* ---- bytes ---- */

    /* The codes of this thread's weights, to where all lanes see them. */
    __device__ __forceinline__ void put_codes(super_codes *to) const
    {
        float s_code, m_code, q[E];

        codes(&s_code, &m_code, q);
        #pragma unroll
        for (int i = 0; i < E; i++)
            to->q[lane * E + i] = (int8_t)(int)q[i];
        if (lane % LANES)
            return;
        to->s[lane / LANES] = (int8_t)(int)s_code;
        if (LINE)
            to->m[lane / LANES] = (int8_t)(int)m_code;
    }

    __device__ __forceinline__ void put(const super_codes *c, uint8_t *to) const
    {
        if (LINE)
            put_lines(c, to);
        else
            put_q6_k(c, to);
    }

    __device__ __forceinline__ void put_lines(const super_codes *c, uint8_t *to) const
    {
        uint8_t *qs = to + (FORMAT == Q5_K ? 48 : 16);

        for (int k = lane; k < 4; k += ALL) {
            to[4 + k] = (uint8_t)(c->s[k] | (c->s[4 + k] >> 4) << 6);
            to[8 + k] = (uint8_t)(c->m[k] | (c->m[4 + k] >> 4) << 6);
            to[12 + k] = (uint8_t)((c->s[4 + k] & 15) | (c->m[4 + k] & 15) << 4);
        }
        for (int k = lane; k < 128; k += ALL) {
            const int i = k / 32 * 64 + k % 32;
            qs[k] = (uint8_t)((c->q[i] & 15) | (c->q[i + 32] & 15) << 4);
        }
        for (int k = lane; FORMAT == Q5_K && k < 32; k += ALL) {
            unsigned fifth = 0;
            for (int j = 0; j < 8; j++)
                fifth |= (unsigned)(c->q[32 * j + k] >> 4) << j;
            to[16 + k] = (uint8_t)fifth;
        }
        if (lane == 0) {
            put_f16(to, d);
            put_f16(to + 2, dmin);
        }
    }

    __device__ __forceinline__ void put_q6_k(const super_codes *c, uint8_t *to) const
    {
        for (int k = lane; k < 128; k += ALL) {
            const int i = k / 64 * 128 + k % 64;
            to[k] = (uint8_t)(((c->q[i] + 32) & 15) | ((c->q[i + 64] + 32) & 15) << 4);
        }
        for (int k = lane; k < 64; k += ALL) {
            unsigned high = 0;
            for (int j = 0; j < 4; j++)
                high |= (unsigned)((c->q[k / 32 * 128 + 32 * j + k % 32] + 32) >> 4) << 2 * j;
            to[128 + k] = (uint8_t)high;
        }
        for (int k = lane; k < 16; k += ALL)
            to[192 + k] = (uint8_t)c->s[k];
        if (lane == 0)
            put_f16(to + 208, d);
    }
};

#endif
