/* attention.cuh - a call of attention on the device, and its scores (common/ops/attention.h). */
#ifndef ATTENTION_CUH
#define ATTENTION_CUH

#include "common/ops/attention.h"
#include "gpu/gpu.cuh"

/* The sizes, the options, and where rows are.  Of more than 128 bytes kernels have a copy, and spill registers. */
struct attention_shape {
    int64_t B, T, S, H, G;
    int D, E;
    struct attention_window window;
    struct dropout_mask dropout;
    float scale, softcap, keep;  /* keep: 1 / (1 - p) */
    bool plain;                  /* s_ij = u_ij where i sees j, and nothing is dropped */
    const float *slopes, *sinks; /* or NULL */
    const void *counter;         /* or NULL */

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
static_assert(sizeof(attention_shape) <= 128, "kernels would spill registers");

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
            !a->bias && !a->slopes && !(f->real[ATTENTION_SOFTCAP] > 0) &&
                !(f->real[ATTENTION_DROPOUT] > 0),
            (const float *)a->slopes,
            (const float *)a->sinks,
            a->counter};
}

/* The inputs; the last two of the backward pass alone. */
template <typename T>
struct given {
    const T *q, *k, *v, *bias, *d_o;
    const float *lse;
};

template <typename T>
static inline given<T> given_of(const struct call *f, enum pass p)
{
    const struct attention *a = ARGS(f, attention), *g = GRADS(f, attention);
    return {(const T *)a->q,
            (const T *)a->k,
            (const T *)a->v,
            (const T *)a->bias,
            p == BACKWARD ? (const T *)g->o : NULL,
            p == BACKWARD ? (const float *)a->lse : NULL};
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

/* Z_ij / (1 - p) of row (b H + h); u = dropout_step(n.counter) */
static __device__ __forceinline__ float kept_share(const attention_shape &n, uint32_t u,
                                                   int64_t row, int64_t i, int64_t j)
{
    return attention_kept(&n.dropout, u, row, i, j) ? n.keep : 0;
}

/* P_ij Z_ij / (1 - p), du_ij and ds_ij. */
struct weights {
    float P, du, ds;
};

/* All are 0 where i does not see j, whatever the other arguments hold; z = Z_ij / (1 - p), dp = do_i . v_j */
static __device__ __forceinline__ weights weights_of(const score &x, float P, float z, float dp,
                                                     float delta)
{
    if (x.s == -INFINITY)
        return {0, 0, 0};
    const float ds = P * (z * dp - delta);
    return {P * z, ds * x.slope, ds};
}

/* delta_i = do_i . o_i - dlse_i for all rows (attention.cu). */
template <typename T>
int attention_delta(const struct call *f, float *delta);
/* dsinks[h] = -sum_{b,i} exp(sinks[h] - lse_i) delta_i */
int attention_dsinks(const struct call *f, const float *delta);

/* The kernel `tiled`: its passes, the bytes of its workspace, and why it declines a case. */
template <typename T>
int tiled_forward(const struct call *f);
template <typename T>
int tiled_backward(const struct call *f);
bool tiled_forward_fits(const struct call *f);
size_t tiled_work(const struct call *f, enum pass p);
const char *tiled_declines(const struct call *f);

#endif
