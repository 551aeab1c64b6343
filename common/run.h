/* run.h - carry out one operation on one backend, from host doubles to host
 * doubles. */
#ifndef RUN_H
#define RUN_H

#include "common/op.h"

/* The tensors of one case as doubles on the host; x[i] the values and g[i]
 * the gradients of argument i; NULL where there is none. */
struct tensors {
    double *x[MAX_ARGS];
    double *g[MAX_ARGS];
};

/* NULL after err_set() where there is no memory for it. */
struct tensors *tensors_new(const struct op *o, const struct frame *f);
void tensors_free(struct tensors *t);
struct tensors *tensors_copy(const struct op *o, const struct frame *f, const struct tensors *t);
/* Bytes of a struct tensors. */
int64_t tensors_bytes(const struct op *o, const struct frame *f);

/* Draw the inputs and the gradients of the outputs.  With `nonzero_state`, no input
 * is zero, as initial states by default are. */
void tensors_draw(struct tensors *t, const struct op *o, const struct frame *f, uint64_t seed,
                  int nonzero_state);
/* Round them to what b stores, so that the oracle can be given the same. */
void tensors_round(struct tensors *t, const struct op *o, const struct frame *f,
                   const struct backend *b);

/* One run to be made: kernel k of op o on backend b, sizes f. */
struct call {
    const struct op *op;
    const struct backend *backend;
    const struct impl *kernel;
    const struct frame *sizes;
    int forward_only;
    /* Timed runs at most, after a warm-up; 0: run once, untimed.  Where the
     * backend replays passes, as many again without come before. */
    int repeats;
    int guards; /* put guard bands around every tensor and check them afterwards */
    /* Leave memory as it comes, for tools that watch for reads of what nobody
     * wrote; not together with guards. */
    int unpoisoned;
    double between;   /* relative perturbation of each element that forward left, before backward */
    int other_poison; /* fill memory with large values in place of NaN */
};

struct outcome {
    double median[N_PASSES], min[N_PASSES], max[N_PASSES]; /* seconds */
    double spread[N_PASSES];   /* the median of the times' distances from the median */
    double no_graph[N_PASSES]; /* the median without a graph; where there is none, `median` */
    int runs[N_PASSES];        /* that were timed */
    int64_t peak;              /* most bytes on the backend at once */
    char overrun[48];          /* a tensor with a damaged guard band, or "" */
};

/* Predict what the call takes, refuse it where that is not free, and have the
 * backend allocate it at once.  Nonzero after err_set(). */
int run_reserve(const struct call *c);

/* Run forward, then backward, reading the inputs and output gradients of t
 * and writing everything else into it.  Elements that a kernel does not write are NaN, or with
 * other_poison large.
 * Nonzero after err_set(). */
int run_op(const struct call *c, struct tensors *t, struct outcome *out);
/* The same on a copy of the inputs; NULL after err_set(). */
struct tensors *run_copy(const struct call *c, const struct tensors *inputs, struct outcome *out);

#endif
