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
#define NORM_IMPL(bits, T, rung, forward, idea, ...)                                               \
    GPU_RUNG(bits, rung, idea, {forward<T>, rung##_backward<T>}, rung##_work<T>,                   \
             rung##_declines<T>, ##__VA_ARGS__)
#define NORM_LADDER(bits, T, op)                                                                   \
    NORM_IMPL(bits, T, plain, plain_forward,                                                       \
              "a block per row, read again for each sum and for the result");                      \
    NORM_IMPL(bits, T, row, row_forward, "a team of threads keeps a row in registers");            \
    NORM_IMPL(bits, T, fused, fused_forward,                                                       \
              "persistent teams, next rows in flight; backward: dx and dw in one pass");           \
    NORM_IMPL(bits, T, staged, staged_forward, "many short rows at once in shared memory", NULL,   \
              0, THAT_YIELDS(staged_yields<T>));                                                   \
    GPU_KERNEL_LIST(op, bits, &staged##bits, &fused##bits, &row##bits, &plain##bits)
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
    GPU_TYPES(NORM_LADDER, op)

#endif
