/* dual_memory.cuh - the interface of dual_memory's recurrence: the part between the
 * products with x and the gate, both of which are in dual_memory.cu. */
#ifndef DUAL_MEMORY_CUH
#define DUAL_MEMORY_CUH

#include <type_traits>

#include "common/ops/dual_memory.h"
#include "gpu/gpu.cuh"

namespace dual
{

/* Sizes, choices and tensors of one call; T is the storage type.  Forward reads xp
 * and writes the saved tensors; backward reads the gate's terms of every step's dh and
 * dread, and writes dp and dv; products of these with the saved tensors are the
 * gradients of the weights and of x. */
struct recurrence {
    int64_t steps, batch, K; /* K: steps between checkpoints, at most `steps` */
    int D, N;
    int64_t M;   /* elements of a sequence's tape */
    float scale; /* 1/sqrt(D) */
    int attention, query;
    int each;                        /* is there an initial tape per sequence? */
    int kept;                        /* storage type of checkpoints */
    const void *W_h, *W_write, *b_h; /* T */
    const void *xp;                  /* T [T,B,D]: W_x x */
    const float *h0, *M0;
    float *h, *rho, *omega; /* [T,B,D], [T,B,N] twice */
    void *v;                /* T [T,B,D] */
    void *read;             /* T [T,B,D], or NULL: not saved */
    void *checkpoints;
    float *h_T, *M_T;
    const void *dh, *dread; /* T [T,B,D]; dread NULL: 0 */
    const float *dh_T, *dM_T;
    void *dp, *dv;   /* T [T,B,D]: gradients of tanh's argument and of v */
    float *dh0, *dM; /* [B,D]; [B,N,D], per sequence */
    void *work;
};

/* That of a call of dual_memory: sizes, choices and tensors; and for a pass, also what is in the
 * layer's workspace.  T is the storage type. */
recurrence recurrence_of(const struct call *f);
template <typename T>
recurrence recurrence_in(const struct call *f, enum pass p);

/* The ideas of its kernels, and of the layer around each. */
#define STEPS_IDEA "four launches per step, products by cuBLAS; one block per sequence"
#define PERSISTENT_IDEA                                                                            \
    "a cluster of blocks for some sequences, weights on chip, one launch per pass"
#define TEMPLATE_D_IDEA "persistent, with slots and width known to the compiler"

/* Kernels of the recurrence: their passes read and write what recurrence_in() gives; the bytes of
 * work() are their own part of the workspace. */
GPU_KERNEL_IN(steps);
GPU_KERNEL_IN(persistent);
extern const struct impl template_d; /* of bf16 */

enum { MAX_SLOTS = 64 };

/* Calls run(n), where n.value is the number of slots as a compile-time constant, at least N. */
template <typename RUN>
static inline auto with_slots(int N, const RUN &run)
{
    return N <= 8    ? run(std::integral_constant<int, 8>{})
           : N <= 16 ? run(std::integral_constant<int, 16>{})
           : N <= 32 ? run(std::integral_constant<int, 32>{})
                     : run(std::integral_constant<int, MAX_SLOTS>{});
}

static inline __device__ void put_kept(const recurrence &r, int64_t slot, int64_t e, float x)
{
    ::put_kept(r.kept, r.checkpoints, slot * r.M + e, x);
}

static inline __device__ float get_kept(const recurrence &r, int64_t slot, int64_t e)
{
    return ::get_kept(r.kept, r.checkpoints, slot * r.M + e);
}

/* A tape's element after the write; it has the same bits in every kernel. */
static inline __device__ float written(float M, float omega, float v)
{
    return fmaf(omega, v, __fmul_rn(1 - omega, M));
}

}    // namespace dual

#endif
