/* attention.cuh - a call of attention on the device, and its scores (common/ops/attention.h). */
#ifndef ATTENTION_CUH
#define ATTENTION_CUH

#include "common/ops/attention.h"
#include "gpu/gpu.cuh"

/* The sizes, the options, and where rows are. */
struct attention_shape {
    int64_t B, T, S, H, G;
    int D, E;
    struct attention_window window;
    struct attention_dropout dropout;
    float scale, softcap, keep;  /* keep: 1 / (1 - p) */
    const float *slopes, *sinks; /* or NULL */

    /* The places of a row of q or o, of k or v by the query head, and of lse. */
    __device__ __forceinline__ int64_t query(int64_t b, int64_t i, int64_t h) const
    {
        return (b * T + i) * H + h;
    }
    __device__ __forceinline__ int64_t key(int64_t b, int64_t j, int64_t h) const
    {
        return (b * S + j) * G + h * G / H;
    }
    __device__ __forceinline__ int64_t row(int64_t b, int64_t h, int64_t i) const
    {
        return (b * H + h) * T + i;
    }
    __device__ __forceinline__ bool visible(int64_t i, int64_t j) const
    {
        return attention_first(&window, i) <= j && j < attention_last(&window, i);
    }
};

static inline attention_shape attention_shape_of(const struct call *f)
{
    const struct attention *a = ARGS(f, attention);
    return {DIM(f, 'B'),
            DIM(f, 'T'),
            DIM(f, 'S'),
            DIM(f, 'H'),
            DIM(f, 'G'),
            (int)DIM(f, 'D'),
            (int)DIM(f, 'E'),
            attention_window(f),
            attention_dropout(f),
            (float)attention_scale(f),
            (float)f->real[ATTENTION_SOFTCAP],
            (float)(1 / (1 - f->real[ATTENTION_DROPOUT])),
            (const float *)a->slopes,
            (const float *)a->sinks};
}

/* s_ij and its derivative by u_ij = scale q_i . k_j. */
struct score {
    float s, slope;
};

template <typename T>
static __device__ __forceinline__ score score_of(const attention_shape &n, float u, const T *bias,
                                                 int64_t h, int64_t i, int64_t j)
{
    score x = {u, 1};

    if (n.softcap > 0) {
        const float t = tanhf(u / n.softcap);
        x.s = n.softcap * t;
        x.slope = 1 - t * t;
    }
    if (bias)
        x.s += load(bias + (h * n.T + i) * n.S + j);
    if (n.slopes)
        x.s -= n.slopes[h] * fabsf((float)(i + n.window.offset - j));
    return x;
}

/* Z_ij / (1 - p) of row (b H + h). */
static __device__ __forceinline__ float kept_share(const attention_shape &n, int64_t row, int64_t i,
                                                   int64_t j)
{
    return attention_kept(&n.dropout, row, i, j) ? n.keep : 0;
}

#endif
