/* check.h - the checks of an operation, and their verdicts.
 *
 * Every check adds verdicts to a list; nothing here prints or exits.  A
 * function returns nonzero, after err_set(), only if a run was not
 * possible. */
#ifndef CHECK_H
#define CHECK_H

#include "common/call/run.h"
#include "common/judge/distance.h"

/* What a verdict would have seen: the smallest errors that are over its bounds.  With few samples those
 * that a wrong result would come to are taken for larger than they are, so that no more is promised than
 * holds.  0: any bit; NAN: not known. */
struct power {
    double all;     /* of all elements alike, as a fraction of each */
    double slice;   /* the same of one row of the last axis, the median row; NAN: it has no rows */
    double element; /* of one element, as a fraction of the largest; in the median row */
    int samples;    /* that the bounds take account of; 0: nothing is known */
};
extern const struct power power_unknown;

struct verdict {
    const char *check; /* "parity", "differences", "repeat", "batch", ...; "goal", "default" */
    const char *backend, *kernel;
    char tensor[32]; /* "out", "d_x"; of a time the pass */
    /* By the measure that is the largest part of its bound, or the furthest over it; of a slice as
     * fractions of its root mean square, or where that is 0 of the tensor's; of a time seconds. */
    double error;
    double norm;       /* |a - b|_2 / |b|_2 */
    double bound;      /* passes if error <= bound and is finite */
    char worst[64];    /* index of the worst element, "[3,0,17]", or the slice "[3,:,:]" */
    int64_t first_bad; /* first time step where an element, or the step, is over the bound, or -1 */
    int pass;
    int unjudged;             /* it did not fail, but the bound is too coarse to judge it */
    int missed;               /* a time over its bound that is only reported: it did not fail */
    const char *why;          /* or it was not looked at, for this reason; else NULL */
    int64_t judged, elements; /* how many of its elements were looked at, and how many it has */
    const char *distance; /* the name of the measure; "" of bits, and where nothing was measured */
    int64_t at;           /* where the worst is: flat index, and a bit for each axis on which the */
    unsigned fixed;       /* ... slice has one index; all of them for an element */
    int64_t slices, coarse; /* how many slices it has, and of these those that cannot be judged */
    struct power power;
    int64_t update; /* of a run of training, from 1; 0: of none */
};

struct verdicts {
    struct verdict *v;
    int n;
};

/* Appends a verdict, which the caller completes; NULL after err_set(). */
struct verdict *verdict_add(struct verdicts *list, const char *check, const char *tensor,
                            const struct backend *b, const struct impl *k);
void verdicts_free(struct verdicts *list);
/* The number of failed verdicts from index `from` on; the number that cannot be judged. */
int verdicts_failed(const struct verdicts *list, int from);
int verdicts_unjudged(const struct verdicts *list, int from);
int verdicts_missed(const struct verdicts *list);
/* Is it on a time, a goal or the choice of the default kernel, and not on a tensor? */
int verdict_of_time(const struct verdict *v);
/* "pass", "fail", "missed", "not judged", or "cannot be judged". */
const char *verdict_word(const struct verdict *v);

/* ---- results ---- */

/* Are all bits equal, NaNs included? */
int same_bits(const double *a, const double *b, int64_t n);

/* A result is an output, a saved tensor, or the gradient of an input. */
int op_results(const struct call *f, int arg, int grad);
/* Its doubles; NULL of a result of bytes, which tensors_values() has. */
double *tensors_result(const struct tensors *t, int arg, int grad);
/* Do all results have the same bits? */
int tensors_same(const struct call *f, const struct tensors *a, const struct tensors *b);
/* For each result: argument i, or with `grad` its gradient. */
#define FOR_RESULTS(f, i, grad)                                                                    \
    for (int i = 0; i < (f)->op->n_args; i++)                                                      \
        for (int grad = 0; grad < 2; grad++)                                                       \
            if (op_results(f, i, grad))
/* What a struct has for argument i, in the arrays x and g, or with `grad` for its gradient. */
#define X_OR_G(s, i, grad) (*((grad) ? &(s).g[i] : &(s).x[i]))

/* Moves every input, gradient of an output and initial gradient by `unit` times its value, up or
 * down at random.  An input with the flag BELOW (a logit) is moved by `unit` times 2 more than its
 * distance from the largest of its row: a kernel rounds that distance, its exponential, and the
 * quotient of that and the sum.  Whole numbers and bytes stay.  `which`, from 0, is the number of the
 * sample. */
void tensors_perturb(struct tensors *t, const struct call *f, double unit, int which);
/* The roundings of the coarsest type in which the call stores one of the tensors. */
double coarsest_unit(const struct call *f);

/* The reference with b's storage type; the oracle's own is scaled from ref32. */
const struct backend *yardstick(const struct backend *b);

/* For every result, output or gradient, the largest that each distance was in samples, of all
 * elements and of each slice (distance.h). */
struct reached {
    struct whole whole;
    double *off, *gain, *size; /* one for each slice, or NULL; its size as in struct slice */
    /* Of each kind of slices: where it ends, and the medians of off and gain as parts of the size, of
     * which few slices can be less but by chance. */
    int n_kinds;
    int64_t end[MAX_RANK + 1];
    struct {
        double off, gain;
    } median[MAX_RANK + 1];
};
struct reach {
    struct reached x[MAX_ARGS], g[MAX_ARGS];
};

/* What a kernel's declarations add to the errors of right results. */
struct declared {
    const struct impl *kernel; /* that declares them */
    struct reach approximate, rounded;
    int samples; /* of its own */
    struct declared *next;
};

/* The reference values that kernels of b are judged by in one case: the results of oracle and
 * yardstick, and for every result the largest distance seen of
 *
 *     the yardstick from the oracle, and
 *     the oracle from itself where all inputs, all tensors that forward leaves to backward, or all
 *     intermediate values are off by a rounding, since a yardstick can be right by chance. */
struct truth {
    struct tensors *oracle, *yard;
    struct call call;             /* of the case on b; of no kernel */
    const struct tensors *inputs; /* of the case; the caller owns them */
    struct reach reach;
    int samples;               /* taken so far */
    struct declared *declared; /* by kernels that were judged */
};
/* Nonzero after err_set(); to be freed in any case. */
int truth_find(struct truth *t, const struct call *f, const struct tensors *inputs);
/* The same if oracle, yard, call and inputs are set already; they stay the caller's, and truth_end()
 * frees the rest. */
int truth_begin(struct truth *t);
void truth_end(struct truth *t);
void truth_free(struct truth *t);

/* A unit for every result, or 0. */
struct units {
    double x[MAX_ARGS], g[MAX_ARGS];
};

/* The bounds of kernel k for every result, of each distance: SLACK times the largest in the truth,
 * and at least so many units of the type in which the result is stored: 2 of max, 1 of rms and of a
 * slice, 1/4 of gain, offset and a slice's gain.  A gain or an offset of errors that are up or down at
 * random can be far less than usual: it is taken to be at least the rms, or the slice, of the same
 * sample divided by the root of the number of elements.  Bounds are 0 of whole numbers, of bytes and
 * of what is BIT_EXACT.  One sample can be small by chance, and can miss a place where a slope jumps: before
 * a result is judged too far, more samples are taken; and of a kernel with approximate instructions,
 * the oracle's distance from itself where its special functions are off by as much as the kernel
 * declares.  Of a kernel that rounds its inputs (impl.rounds) the oracle's distance from itself on
 * the rounded inputs is added, once and without SLACK: it is what that rounding does, not a sample.
 * They are good as long as the truth is. */
struct bounds {
    struct whole x[MAX_ARGS], g[MAX_ARGS];
    int samples; /* that it takes account of */
    struct truth *truth;
    struct declared *declared; /* in the truth; NULL: nothing, as yet */
    struct call call;          /* of the kernel */
    struct units
        given; /* the unit of a coarser type than the contract's, in which a result is given; or 0 */
    int any_given;
    int thorough; /* take all samples before a result is judged: power is that of a result that is refused */
};
enum { SLACK = 4, LEAST_FOR_GAIN = 16 }; /* elements of a slice whose gain is judged */
void bounds_from(struct bounds *to, const struct call *f, struct truth *t);
/* Take samples of what the kernel declares, then some more of all, and update the bounds; 0: there are
 * enough, 32, or for a case of much work 8, unless what is off are a `few` slices, where a slope may
 * jump. */
int bounds_sample_more(struct bounds *b, int few);
/* That result is given in a type of this unit. */
void bounds_given_in(struct bounds *b, int arg, int grad, double unit);
/* Do they allow for what the kernel declares, if it declares anything? */
int bounds_know_kernel(const struct bounds *b);
/* Those of slice i of a result, where `want` is what is known of the correct one: off, gain. */
struct slice bounds_of_slice(const struct bounds *b, int arg, int grad, int64_t i,
                             const struct slice *want);
/* By how much the samples' largest of each measure may grow, nearly always, before a result is refused:
 * more samples are taken first.  And the bounds with it, of a result and of a slice. */
struct growth {
    double of[BY_SLICE_GAIN + 1];
};
struct growth bounds_growth(const struct bounds *b);
struct whole bounds_grown(const struct bounds *b, int arg, int grad, const struct growth *g);
struct slice slice_grown(const struct bounds *b, int arg, int grad, int64_t i,
                         const struct slice *want, const struct growth *g);
/* What they see of a result, of which `d` has the correct one's sizes; nonzero after err_set(). */
int power_find(struct power *to, const struct distances *d, const struct bounds *b, int arg,
               int grad);
/* Bounds that look at max alone. */
struct whole bound_of_max(double bound);

/* What a result should be: the oracle's, or, where the contract has one right value in each type
 * (BIT_EXACT), the yardstick's. */
const void *truth_wants(const struct truth *t, int arg, int grad);

/* Every result of `got` against what it should be; or these. */
int check_parity(const struct tensors *got, struct bounds *bounds, struct verdicts *list);
int check_these(const struct tensors *got, struct bounds *bounds, const struct results *only,
                struct verdicts *list);
/* A result of a call, the values it has and the values it should have: doubles, or bytes. */
struct tensor_pair {
    const struct call *call;
    int arg, grad;
    const void *got, *want;
};
struct distance pair_distance(const struct tensor_pair *pair);
/* Are all bits equal, NaNs included? */
int pair_same(const struct tensor_pair *pair);
struct tensor_pair tensor_pair(const struct call *c, int arg, int grad, const struct tensors *got,
                               const struct tensors *want);
/* By the largest element, or by all measures of all elements.  Bound 0 requires equal bits.  The
 * bound of bytes is 0, whatever is given. */
int check_tensor(const char *check, const struct tensor_pair *pair, double bound,
                 struct verdicts *list);
int check_whole(const char *check, const struct tensor_pair *pair, const struct whole *bound,
                struct verdicts *list);
/* By all measures, of slices too, within the bounds of that result: `got` against what it should
 * be. */
int check_within(const char *check, const struct tensor_pair *pair, struct bounds *bounds,
                 struct verdicts *list);
/* Is it within the bounds as they are?  -1 after err_set(). */
int is_within(const struct tensor_pair *pair, const struct bounds *bounds);
/* Two results of a kernel, by max and rms: each may be off by the bound. */
int check_both(const char *check, const struct tensor_pair *pair, struct bounds *bounds,
               struct verdicts *list);
/* The sum of two bounds, for max and rms; other measures are free. */
struct whole bound_of_both(const struct whole *one, const struct whole *other);

/* ---- differences (differences.c) ---- */

/* The oracle's gradients in t (after a run) against central differences of
 * its forward pass: tensors of up to `exhaustive` elements element by
 * element, larger ones in `directions` random directions.  Where the call
 * adds to gradients, those of another run, which overwrites them.  `stop`,
 * where given, ends it early when it becomes nonzero. */
int check_differences(const struct call *f, const struct tensors *t, int64_t exhaustive,
                      int directions, const volatile int *stop, struct verdicts *list);

/* ---- properties (properties.c) and identities (identities.c), on any kernel ---- */

/* All elements are written, and guard bands are intact.  (A byte is not written if it is the poison
 * of both of two runs: any may be right, so that NaN does not say it.)  Two runs have equal bits,
 * whatever was in memory before, and wherever outputs are that may be in the memory of inputs.  A
 * reversed batch gives the reversed result.  The last row of the
 * batch gives the same bits without the others.  Later inputs, but for bytes, which stay, do not
 * change earlier outputs.  Two runs, the second from the final state of the first, equal one run (bit by bit, except if they
 * split a chunk that the kernel computes together). */
int check_properties(const struct run *c, const struct tensors *inputs, struct bounds *bounds,
                     struct verdicts *list);
/* Why the kernel of the call `on` declines one of an identity's two sides, or NULL. */
const char *identity_declined(const struct identity *id, const struct call *on);
/* The two sides of an identity, by the kernel of the call `on` of its operation, and in its context. */
int check_identity(const struct identity *id, const struct call *on, uint64_t seed,
                   struct verdicts *list);
/* The parameter in the contract's `neutral` changes no bit of a result. */
int check_neutral(const struct call *f, uint64_t seed, struct verdicts *list);

#endif
