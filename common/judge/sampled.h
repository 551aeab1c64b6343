/* sampled.h - results judged by a sample of their rows, and by random sums of all elements of those
 * that are products of matrices. */
#ifndef SAMPLED_H
#define SAMPLED_H

#include "common/call/sample.h"
#include "common/judge/check.h"

/* The results that are sampled along the same axes: the case cut there, and its reference values. */
struct cut {
    char axes[SAMPLE_AXES];
    struct call call; /* on the backend; of no kernel */
    struct tensors *inputs;
    struct truth truth;
};

/* The random sums of a product whose factors are the case's own inputs: the same for all kernels. */
struct sums {
    const struct product *of;
    double *U; /* [products][rows][segments of a row] */
};

/* What the kernels of a backend are judged by in one case. */
struct sampled {
    struct call call;             /* of the whole case on the backend; of no kernel */
    const struct tensors *inputs; /* of the whole, or NULL; the caller owns them */
    uint64_t seed;
    struct sample sample;
    struct cut *cut;
    int n_cuts;
    struct sums *sums;
    int n_sums;
};

/* Nonzero after err_set(); to be freed in any case. */
int sampled_find(struct sampled *s, const struct call *f, const struct tensors *inputs,
                 uint64_t seed);
/* The same by at most so many rows of an axis. */
int sampled_find_rows(struct sampled *s, const struct call *f, const struct tensors *inputs,
                      int most, uint64_t seed);
void sampled_free(struct sampled *s);
/* The cut that a result is judged on, or NULL where none covers it. */
struct cut *sampled_cut(const struct sampled *s, int arg);

/* The same in two steps, for a case whose tensors are not all on the host: the cuts alone; and for
 * each one its inputs, which are its own from then on, and its reference values. */
int sampled_cuts(struct sampled *s, const struct call *f, int most, uint64_t seed);
int cut_find(struct cut *c, struct tensors *inputs);

/* Every result of `got`, which is whole, of the call f of a kernel.  What can be sampled is held
 * against the oracle as in full judgement, "parity"; then all elements of what is a product,
 * "products".  A result that no sample covers is not judged, and its verdict says so. */
int check_sampled(const struct tensors *got, const struct call *f, struct sampled *s,
                  struct verdicts *list);

/* One result, by the elements x of it, doubles or bytes, that its cut has, or not judged where there is no cut; the
 * bounds are from the cut's truth, of the whole call of a kernel. */
int check_cut(const void *x, const struct sampled *s, int arg, int grad, struct bounds *bounds,
              struct verdicts *list);

/* What the kernels of a backend are judged by in one case: the truth of all elements, or, unless it
 * is NULL, a sample; and on which results, NULL: all. */
struct judge {
    struct truth *truth;
    struct sampled *sampled;
    const struct results *only;
};
/* These results of `got` of the call f of a kernel. */
int check_case(const struct judge *j, const struct call *f, const struct tensors *got,
               struct verdicts *list);

/* A result that is a product in this call, or NULL; also where a factor or what is added is of
 * bytes, which are no numbers. */
const struct product *product_of(const struct call *f, int arg, int grad);

/* What the sample says of all elements of a result: how far off one of them is at most expected to
 * be, divided by the largest; how large that is in the sample; and the bounds. */
struct expected {
    double error, size;
    struct bounds *bounds;
};

/* Freivalds' check of a product, on all of its elements.  Rows of C = A B are cut into segments of
 * SEGMENT columns; with weights r drawn from the seed, C r is compared with A (B r), all in double:
 * one SEGMENT-th of the product's work.  The errors of a segment, each with a sign of its own, add up
 * to about the root of the sum of the squares of their weights, times one of them.  Where a sum is
 * off by more, the segment's elements are computed one by one and held against the bound: a result
 * is refused for an element that is too far off, never for a sum.  Where there are very many such
 * segments, those furthest off are. */
enum { SEGMENT = 16 };
int check_product(const struct tensors *got, const struct call *f, struct sampled *s,
                  const struct product *p, const struct expected *e, struct verdicts *list);

#endif
