/* norm_ladder.cuh - the list of kernels of rmsnorm, layernorm and qk_norm. */
#ifndef NORM_LADDER_CUH
#define NORM_LADDER_CUH

#include "gpu/device/staged.cuh"
#include "gpu/row/norm.cuh"

/* The kernels of an operation.  Its file defines CENTRED, and call_of(), which returns the
 * norm_call of a frame. */
#define NORM_PASS(rung, pass, function)                                                            \
    template <typename T>                                                                          \
    static int rung##_##pass(const struct call *f)                                                 \
    {                                                                                              \
        return function<T, CENTRED>(f->context, call_of(f));                                       \
    }
#define NORM_BACKWARD(rung, columns_work)                                                          \
    NORM_PASS(rung, backward, rung##_norm_back)                                                    \
    template <typename T>                                                                          \
    static size_t rung##_work(const struct call *f, enum pass pass)                                \
    {                                                                                              \
        return pass == BACKWARD ? columns_work(f->context, call_of(f), sizeof(T), CENTRED) : 0;    \
    }                                                                                              \
    template <typename T>                                                                          \
    static const char *rung##_declines(const struct call *f)                                       \
    {                                                                                              \
        return rung##_norm_declines(f->context, call_of(f), sizeof(T));                            \
    }
#define NORM_RUNG(rung, idea_, ...)                                                                \
    GPU_KERNEL(rung, .idea = idea_, .pass = {rung##_forward<T>, rung##_backward<T>},               \
               .work = rung##_work<T>, .declines = rung##_declines<T>, ##__VA_ARGS__)
#define NORM_OPERATION(op)                                                                         \
    NORM_PASS(plain, forward, plain_norm)                                                          \
    NORM_PASS(row, forward, row_norm)                                                              \
    NORM_PASS(fused, forward, fused_norm)                                                          \
    NORM_BACKWARD(plain, norm_columns_work)                                                        \
    NORM_BACKWARD(row, norm_columns_work)                                                          \
    NORM_BACKWARD(fused, fused_norm_work)                                                          \
    NORM_PASS(staged, forward, staged_norm)                                                        \
    NORM_BACKWARD(staged, staged_norm_work)                                                        \
    template <typename T>                                                                          \
    static int staged_yields(const struct call *f)                                                 \
    {                                                                                              \
        return staged_is_slower<T>(call_of(f).N);                                                  \
    }                                                                                              \
    NORM_RUNG(plain, "a block per row, read again for each sum and for the result");               \
    NORM_RUNG(row, "a team of threads keeps a row in registers");                                  \
    NORM_RUNG(fused, "persistent teams, next rows in flight; backward: dx and dw in one pass");    \
    NORM_RUNG(staged, "many short rows at once in shared memory", .yields = staged_yields<T>);     \
    GPU_KERNELS(op, GPU_TYPES(NORM_LADDER))
#define NORM_LADDER(T) &staged_impl<T>, &fused_impl<T>, &row_impl<T>, &plain_impl<T>,

#endif
