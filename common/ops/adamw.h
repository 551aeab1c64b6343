/* adamw: one step of Adam with decoupled weight decay (Loshchilov and Hutter 2019), for N
 * parameters at once.  The step t counts from 1.
 *
 *     m' = beta1 m + (1 - beta1) g
 *     v' = beta2 v + (1 - beta2) g^2
 *     p' = p - lr (m' / (1 - beta1^t) / (sqrt(v' / (1 - beta2^t)) + eps) + weight_decay p)
 *
 * With a master copy the step updates the copy, and p' is the copy rounded to the type that p is
 * stored in; p itself is then not read.
 *
 * The N parameters are `tensors` tensors, one behind the other, ever longer: tensor k begins at
 * adamw_begin().  As models hold weights (even k) and biases (odd), decay = alternate decays only
 * the even ones. */
#include <stdint.h>

struct adamw {
    void *p; /* only without a master copy */
    void *g, *m, *v;
    void *master;
    void *p_next, *m_next, *v_next;
    void *master_next;
};

/* The places of the parameters. */
enum {
    ADAMW_N,
    ADAMW_TENSORS,
    ADAMW_STEP,
    ADAMW_DECAY,
    ADAMW_MASTER,
    ADAMW_LR,
    ADAMW_BETA1,
    ADAMW_BETA2,
    ADAMW_EPS,
    ADAMW_WEIGHT_DECAY,
    ADAMW_FILL
};
enum { DECAY_ALL, DECAY_ALTERNATE };

/* With at most this many tensors, of all 2^30 parameters, it stays below 2^62. */
enum { ADAMW_MAX_TENSORS = 65535 };

/* Where tensor k of K begins among N parameters, k = K: their end. */
static inline int64_t adamw_begin(int64_t N, int64_t K, int64_t k)
{
    return N * (k * (k + 1)) / (K * (K + 1));
}
