/* check.h - what must hold of an operation, and whether it does.
 *
 * Every check adds verdicts to a list; nothing here prints or exits.  A
 * function returns nonzero, after err_set(), only where a run was not
 * possible at all. */
#ifndef CHECK_H
#define CHECK_H

#include "common/run.h"

struct verdict {
    const char *check; /* "parity", "differences", "repeat", "batch", ... */
    const char *backend, *kernel;
    char tensor[32];   /* "out", "d_x" */
    double error;      /* max |a - b| / max |b|: see distance() */
    double norm;       /* |a - b|_2 / |b|_2 */
    double bound;      /* passes if error <= bound and is finite */
    char worst[64];    /* index of the worst element, "[3,0,17]" */
    int64_t first_bad; /* first time step where an element is over the bound, or -1 */
    int pass;
    int unjudged; /* it did not fail, but the bound is too coarse to judge it */
};

struct verdicts {
    struct verdict *v;
    int n;
};

/* A new one at the list's end, to be completed; NULL after err_set(). */
struct verdict *verdict_add(struct verdicts *list, const char *check, const char *tensor,
                            const struct backend *b, const struct impl *k);
void verdicts_free(struct verdicts *list);
/* How many of those from place `from` on failed; how many could not be judged. */
int verdicts_failed(const struct verdicts *list, int from);
int verdicts_unjudged(const struct verdicts *list, int from);
/* "pass", "fail", or "cannot be judged". */
const char *verdict_word(const struct verdict *v);

/* ---- distances (check.c) ---- */

/* How far a is from b, which is right.  Where b is finite, a must be: max |a - b| / max |b| over
 * these.  Where b is NaN or infinite, a must be NaN or the same infinity.  Else it is infinitely
 * far. */
/* max|a - b| / max|b| and |a - b| / |b|; where all of b is 0, as it is. */
struct distance {
    double max, norm;
    int64_t worst; /* flat index */
};
struct distance distance(const double *a, const double *b, int64_t n);
/* Are all bits equal, NaNs included? */
int same_bits(const double *a, const double *b, int64_t n);

/* A result is an output, something saved, or the gradient of an input. */
int op_results(const struct op *o, const struct frame *f, int arg, int grad);
double *tensors_result(const struct tensors *t, int arg, int grad);

/* Every input and every gradient of an output off by `unit` of itself, up or
 * down at random, one that is BELOW off by `unit` of how far below its row's
 * largest it is, and of 2: a kernel rounds that difference, its power, and the
 * quotient of that and the sum; `which` counts the ways to do so, from 0. */
void tensors_perturb(struct tensors *t, const struct op *o, const struct frame *f, double unit,
                     int which);
/* The roundings of the coarsest type that b stores one of the tensors in. */
double coarsest_unit(const struct op *o, const struct frame *f, const struct backend *b);

/* The reference with b's storage type; the oracle's own is scaled from ref32. */
const struct backend *yardstick(const struct backend *b);

/* The reference values that kernels of b are judged by in one case: the results of oracle and
 * yardstick, and for every result the largest distance seen of
 *
 *     the yardstick from the oracle, and
 *     the oracle from itself where all inputs, or all tensors that forward leaves to backward,
 *     are off by a rounding, since a yardstick can be right by chance. */
struct truth {
    struct tensors *oracle, *yard;
    const struct op *op;
    const struct frame *sizes;
    const struct backend *backend; /* b */
    const struct tensors *inputs;  /* of the case; whoever made the truth keeps them */
    double x[MAX_ARGS], g[MAX_ARGS];
    int samples; /* taken so far */
};
/* Nonzero after err_set(); to be freed in any case. */
int truth_find(struct truth *t, const struct op *o, const struct frame *f, const struct backend *b,
               const struct tensors *inputs);
/* The same where oracle, yard and the four below are there already. */
int truth_begin(struct truth *t);
void truth_free(struct truth *t);

/* How far kernel k may be off, for every result: SLACK times what the truth has seen, but at
 * least 4 units of the type that the result is stored in.  One sample can be small by chance,
 * and miss a place where a slope jumps: before anything is said to be too far, more are taken. */
struct bounds {
    double x[MAX_ARGS], g[MAX_ARGS];
    struct truth *truth;
    const struct backend *backend;
    const struct impl *kernel;
};
enum { SLACK = 8 };
void bounds_from(struct bounds *to, const struct backend *b, const struct impl *k, struct truth *t);

/* Every result of `got` against the oracle's. */
int check_parity(const struct tensors *got, struct bounds *bounds, struct verdicts *list);
/* A result of a call, the values it has and the values it should have. */
struct tensor_pair {
    const struct call *call;
    int arg, grad;
    const double *got, *want;
};
struct tensor_pair tensor_pair(const struct call *c, int arg, int grad, const struct tensors *got,
                               const struct tensors *want);
/* Bound 0 requires equal bits. */
int check_tensor(const char *check, const struct tensor_pair *pair, double bound,
                 struct verdicts *list);
/* The same with the bound of that result. */
int check_within(const char *check, const struct tensor_pair *pair, struct bounds *bounds,
                 struct verdicts *list);

/* ---- differences (differences.c) ---- */

/* The oracle's gradients in t (after a run) against central differences of
 * its forward pass: tensors of up to `exhaustive` elements element by
 * element, larger ones in `directions` random directions.  `stop`, where
 * given, ends it early when it becomes nonzero. */
int check_differences(const struct op *o, const struct frame *f, const struct tensors *t,
                      int64_t exhaustive, int directions, const volatile int *stop,
                      struct verdicts *list);

/* ---- properties (properties.c) and identities (identities.c), on any kernel ---- */

/* Nothing left unwritten, guard bands intact, two runs bit-equal whatever was
 * in memory before, a reversed batch gives the reversed result, the last row of
 * the batch gives the same bits without the others, later inputs do not change
 * earlier outputs, two runs that hand the state over equal one (bit by bit, but where
 * the kernel takes steps together that the two part). */
int check_properties(const struct call *c, const struct tensors *inputs, struct bounds *bounds,
                     struct verdicts *list);
/* The reason why k declines one of an identity's two sides, or NULL. */
const char *identity_declined(const struct op *o, const struct identity *id, const struct impl *k);
/* The two sides of an identity of o's contract. */
int check_identity(const struct op *o, const struct identity *id, const struct backend *b,
                   const struct impl *k, uint64_t seed, struct verdicts *list);
/* o->neutral's parameter changes no bit of any result. */
int check_neutral(const struct op *o, const struct frame *f, const struct backend *b,
                  const struct impl *k, uint64_t seed, struct verdicts *list);

#endif
