/* sample.h - some rows of a case's axes, and the case cut to them.
 *
 * The contract says along which axes a result may be sampled: an element of it then depends only on
 * the rows of the inputs that have the same places on these axes.  So a case whose axes are cut to
 * the sampled rows, all others whole, has the same elements. */
#ifndef SAMPLE_H
#define SAMPLE_H

#include "common/call/call.h"

enum { SAMPLE_ROWS = 64, SAMPLE_AXES = MAX_RANK + 1 };

/* The rows of each axis of a case that are judged, in ascending order; n is 0 where the axis has no
 * more rows than that and is not cut. */
struct sample {
    int n[MAX_AXES];
    int64_t row[MAX_AXES][SAMPLE_ROWS];
};

/* `most` rows of the first axis that has more, 2 to SAMPLE_ROWS, and one less of each next, since in
 * a square case two axes can be taken for each other unnoticed: the first and the last row, and one
 * from each of equal parts of those between, by the seed and the axis. */
void sample_draw(struct sample *s, const struct call *f, int most, uint64_t seed);

/* The axes along which the result of an argument, its gradient or itself, may be sampled: letters in
 * alphabetical order, "" for none. */
void sample_axes(const struct call *f, int arg, char axes[SAMPLE_AXES]);
/* Those of them that are cut. */
void sample_cut_axes(const struct call *f, const struct sample *s, int arg, char axes[SAMPLE_AXES]);

/* Those that are cut of any result, in the results' order. */
enum { ALL_AXES = MAX_AXES + 1 };
void sample_all_axes(const struct call *f, const struct sample *s, char axes[ALL_AXES]);

/* Can a result of the call be sampled?  Can all of them? */
int sample_some(const struct call *f);
int sample_all(const struct call *f);
/* The oracle's work on the whole case: FLOPs, bytes moved and special functions, as FLOPs. */
double sample_work(const struct call *f);
#define SAMPLE_MUCH 2e10
/* Is that so much that it is sampled unless asked otherwise, beyond some seconds of a core; and can all of its results be, or
 * is it a program, whose calls are judged one by one?
 * Counted from the contract, so the same on every machine. */
int sample_worthwhile(const struct call *f);

/* The call with these axes cut; nonzero after err_set(). */
int sample_cut(struct call *few, const struct call *whole, const struct sample *s,
               const char *axes);

/* Where the elements of a tensor of the cut call are in the whole: of each axis the length in the
 * cut tensor, the distance of two rows in the whole one, and the rows that are taken, NULL for all
 * of them. */
struct cut_map {
    int rank;
    int64_t length[MAX_RANK], stride[MAX_RANK];
    const int64_t *row[MAX_RANK];
};
struct cut_map sample_map(const struct call *whole, const struct sample *s, const char *axes,
                          int arg);

/* The index of element i of the cut tensor in the whole. */
static inline ON_HOST_AND_DEVICE int64_t map_index(const struct cut_map *at, int64_t i)
{
    int64_t sum = 0;

    for (int k = at->rank - 1; k >= 0; k--) {
        const int64_t j = i % at->length[k];
        sum += (at->row[k] ? at->row[k][j] : j) * at->stride[k];
        i /= at->length[k];
    }
    return sum;
}

/* The elements of the whole tensor that the cut one has: doubles, or bytes where the argument is of
 * bytes. */
void sample_gather(const struct call *whole, const struct sample *s, const char *axes, int arg,
                   const void *all, void *few);
/* All inputs, gradients of outputs and initial gradients so; NULL after err_set(). */
struct tensors *sample_inputs(const struct call *few, const struct call *whole,
                              const struct sample *s, const char *axes, const struct tensors *x);

/* "64 of 3000 M, 63 of 5000 N", by the names of the axes; returns text. */
const char *sample_text(const struct call *f, const struct sample *s, const char *axes, char *text,
                        size_t size);

#endif
