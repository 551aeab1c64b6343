/* adamw: one step of Adam with decoupled weight decay (Loshchilov and Hutter 2019), for N
 * parameters at once.
 *
 *     g~ = factor g
 *     m' = beta1 m + (1 - beta1) g~
 *     v' = beta2 v + (1 - beta2) g~^2
 *     p' = p - rate (m' unbias1 / (sqrt(v' unbias2) + eps) + weight_decay p)
 *
 * and where skip is not 0, p' = p, m' = m and v' = v, whatever g is.  Only the first `decayed` parameters
 * decay (-1: all).  rate, unbias1, unbias2, factor and skip are tensors of one element, which a
 * schedule makes where the step runs, so that a graph that is launched again takes the next step.  In step
 * t, from 1, unbias1 = 1 / (1 - beta1^t) and unbias2 = 1 / (1 - beta2^t); factor clips the gradient, and
 * undoes the scale of a loss.
 *
 * With a master copy the step updates the copy, and p' is the copy rounded to the type that p is
 * stored in; p itself is then not read, and with skip the copy is rounded again.  With grad = fp32, g is wide.
 *
 * lr, step, clip_factor and overflow say what these tensors are in a case that is drawn: lr, the
 * corrections of that step, clip_factor, and 0 or 1.
 *
 * The N parameters are a buffer of `tensors` parts, one behind the other, ever longer: each begins at a
 * multiple of 256 bytes in any type of two bytes or more, adamw_begin(), and ends at adamw_end().  What is
 * between them is 0 in all inputs, and stays 0. */
#ifndef COMMON_OPS_ADAMW_H
#define COMMON_OPS_ADAMW_H

#include <stdint.h>

struct adamw {
    void *p; /* only without a master copy */
    void *g, *m, *v;
    void *master;
    void *rate, *unbias1, *unbias2, *factor; /* [1] */
    void *skip;                              /* [1] */
    void *p_next, *m_next, *v_next;
    void *master_next;
};

/* The places of the parameters. */
enum {
    ADAMW_N,
    ADAMW_TENSORS,
    ADAMW_STEP,
    ADAMW_DECAYED,
    ADAMW_MASTER,
    ADAMW_GRAD,
    ADAMW_LR,
    ADAMW_BETA1,
    ADAMW_BETA2,
    ADAMW_EPS,
    ADAMW_WEIGHT_DECAY,
    ADAMW_FILL,
    ADAMW_CLIP_FACTOR,
    ADAMW_OVERFLOW
};

enum { GRAD_STORAGE, GRAD_FP32 };

enum {
    ADAMW_MAX_TENSORS = 65535, /* of 2^30 parameters: places stay below 2^62 */
    ADAMW_ALIGN = 128          /* elements: 256 bytes of two each */
};

/* Where part k of K would begin without gaps, k = K: their end. */
static inline int64_t adamw_packed(int64_t N, int64_t K, int64_t k)
{
    return N * (k * (k + 1)) / (K * (K + 1));
}

/* Where part k begins, k = K: the end of all. */
static inline int64_t adamw_begin(int64_t N, int64_t K, int64_t k)
{
    const int64_t begin = (adamw_packed(N, K, k) + ADAMW_ALIGN - 1) / ADAMW_ALIGN * ADAMW_ALIGN;
    return begin < N ? begin : N;
}

/* Where part k ends. */
static inline int64_t adamw_end(int64_t N, int64_t K, int64_t k)
{
    const int64_t end = adamw_begin(N, K, k) + adamw_packed(N, K, k + 1) - adamw_packed(N, K, k);
    const int64_t next = adamw_begin(N, K, k + 1);
    return end < next ? end : next;
}

/* How many decay. */
static inline int64_t adamw_decayed(int64_t decayed, int64_t N)
{
    return decayed < 0 ? N : decayed;
}

#endif
