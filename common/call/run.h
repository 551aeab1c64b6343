/* run.h - runs one operation on one backend, from the host's tensors to the
 * host's: doubles, or bytes. */
#ifndef RUN_H
#define RUN_H

#include "common/call/contract.h"
#include "common/call/machine.h"

/* The tensors of one case on the host; x[i] the values and g[i] the gradients of argument i; g0[i]
 * the initial gradient, if the call adds to it; NULL where there is none.  Of a tensor of bytes b[i]
 * has the values, and the others are NULL. */
struct tensors {
    double *x[MAX_ARGS];
    double *g[MAX_ARGS];
    double *g0[MAX_ARGS];
    unsigned char *b[MAX_ARGS];
    /* None, or of a run's results: its inputs.  All that the run was given, inputs, gradients
     * of outputs and initial gradients, is then another's, which must outlive them. */
    struct arg_set given;
};

/* The values of argument i, doubles or bytes, or with `grad` its gradient; NULL where there are
 * none. */
static inline void *tensors_values(const struct tensors *t, int i, int grad)
{
    return grad ? t->g[i] : t->b[i] ? (void *)t->b[i] : t->x[i];
}
/* Gets the values of argument i, or its gradient, from where a placed call has them; nothing where one of the two has
 * none.  Nonzero after err_set(). */
int tensors_get(const struct tensors *t, const struct call *placed, int i, int grad);

/* The bytes of one of its elements on the host. */
static inline size_t tensors_each(const struct call *f, int i)
{
    return op_is_bytes(f, i) ? 1 : sizeof(double);
}

/* NULL after err_set() if there is not enough memory. */
struct tensors *tensors_new(const struct call *f);
void tensors_free(struct tensors *t);
struct tensors *tensors_copy(const struct call *f, const struct tensors *t);
/* A copy of what a run is given, inputs, gradients of outputs and initial gradients, alone; NULL
 * after err_set(). */
struct tensors *tensors_given(const struct call *f, const struct tensors *t);
/* Memory for the results of a run that is given these; NULL after err_set(). */
struct tensors *tensors_results(const struct call *f, const struct tensors *given);
/* Bytes of a struct tensors. */
int64_t tensors_bytes(const struct call *f);

/* Draws the inputs, the gradients of the outputs and the initial gradients.  Initial states are 0,
 * unless `nonzero_state`. */
void tensors_draw(struct tensors *t, const struct call *f, uint64_t seed, int nonzero_state);
/* Rounds them to the types in which the call stores them, so that the oracle gets the same values. */
void tensors_round(struct tensors *t, const struct call *f);

/* Rounds n values to a type. */
void values_round(enum dtype type, double *x, int64_t n);

/* A call, and how it is run.  Its tensors are not placed. */
struct run {
    struct call call;
    int forward_only;
    /* The maximum number of timed runs, after a warm-up; 0: one run, without times.  Where the
     * backend replays passes, the same number of runs without replay comes before. */
    int repeats;
    int guards; /* put guard bands around every tensor and check them afterwards */
    /* Do not initialise memory, for tools that find reads of uninitialised memory;
     * not together with guards. */
    int unpoisoned;
    double between;  /* relative perturbation of each element that forward saved, before backward */
    int between_key; /* perturb them in another way */
    /* Or perturb each by up to the unit of the type in which this call stores it; or NULL. */
    const struct call *between_as;
    struct noise noise;  /* of both passes, where the backend can have it */
    int other_poison;    /* fill memory with OTHER_POISON in place of POISON */
    int watch;           /* measure outcome.used */
    struct ahead *ahead; /* where what it is given may be already (ahead.h); or NULL */
};

/* The byte that a tensor's memory is filled with before a run: 0xffff... is a NaN in every type,
 * 0x7f7f... finite. */
enum { POISON = 0xff, OTHER_POISON = 0x7f };

struct outcome {
    double median[N_PASSES], min[N_PASSES], max[N_PASSES]; /* seconds */
    double spread[N_PASSES];   /* the median of the times' distances from the median */
    double no_graph[N_PASSES]; /* the median without a graph; where there is none, `median` */
    int runs[N_PASSES];        /* that were timed */
    struct launches launches[N_PASSES]; /* of a pass that was timed */
    int64_t peak;                       /* the maximum bytes in use on the backend */
    int64_t used;     /* the same by the backend's own count, if `watch` is set; else 0 */
    char overrun[48]; /* a tensor with a damaged guard band, or "" */
};

/* Predicts the bytes that the call needs, refuses it if they are not free, and lets the
 * backend allocate them at once; c->ahead gives its own back where they are needed.  Nonzero after err_set(). */
int run_reserve(const struct run *c);

/* Runs forward, then backward.  Reads the inputs, output gradients and initial gradients of t and
 * writes the other tensors.  A gradient to which backward adds is the initial one and one backward
 * pass, however often that was timed.  Elements that a kernel does not write are NaN, or, with
 * other_poison, large; of bytes they are the poison itself.  Nonzero after err_set(), also where
 * whoever watches this thread asks for an early end (watch.h), which comes after the pass that runs. */
int run_op(const struct run *c, struct tensors *t, struct outcome *out);
/* The same into tensors_results(); NULL after err_set(). */
struct tensors *run_copy(const struct run *c, const struct tensors *inputs, struct outcome *out);

#endif
