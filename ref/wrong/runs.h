/* runs.h - for wrong kernels (wrong.h): the right one's pass on a call, one of whose tensors is
 * replaced; and passes that a file has of its own, with its mistakes as bits. */
#ifndef WRONG_RUNS_H
#define WRONG_RUNS_H

#include "common/call/contract.h"
#include "ref/wrong/wrong.h"

/* The pass with zeros for an argument, or for its gradient, where the call has it. */
static inline int right_with_zeros(const struct call *f, enum pass p, int arg, int grad)
{
    struct call g = *f;
    void **at = grad ? &g.grad[arg] : &g.arg[arg];

    if (!*at)
        return right_pass(f, p);
    void *zeros = calloc((size_t)op_count(f, arg), sizeof(double));
    if (!zeros)
        return 1;
    *at = zeros;
    const int e = right_pass(&g, p);
    free(zeros);
    return e;
}

/* The pass with ones for an argument, which is stored as num; or is wide. */
static inline int right_with_ones(const struct call *f, enum pass p, int arg)
{
    struct call g = *f;
    const int wide = f->op->arg[arg].flags & WIDE;
    const int64_t n = op_count(f, arg);
    real *ones = malloc((size_t)n * sizeof *ones);

    if (!ones)
        return 1;
    for (int64_t i = 0; i < n; i++)
        if (wide)
            ones[i] = 1;
        else
            ((num *)ones)[i] = store(1);
    g.arg[arg] = ones;
    const int e = right_pass(&g, p);
    free(ones);
    return e;
}

/* run_forward(f, bits) and run_backward(f, bits) of the file; where bits are 0 the right pass. */
#define WRONG_BITS(id, what, forward_bits, backward_bits, ...)                                     \
    static int id##_forward(const struct call *f)                                                  \
    {                                                                                              \
        return (forward_bits) ? run_forward(f, forward_bits) : right_forward(f);                   \
    }                                                                                              \
    static int id##_backward(const struct call *f)                                                 \
    {                                                                                              \
        return (backward_bits) ? run_backward(f, backward_bits) : right_backward(f);               \
    }                                                                                              \
    WRONG_PASSES(id, what, id##_forward, id##_backward, __VA_ARGS__)

#endif
