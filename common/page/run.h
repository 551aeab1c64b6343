/* run.h - what a page shows of a run of training: its curves, and what it came to. */
#ifndef PAGE_RUN_H
#define PAGE_RUN_H

#include <hdf5.h>

/* Points of a curve, in order. */
struct page_curve {
    double *x, *y;
    int n;
};

struct page_run {
    char *backend, *ended;
    int diverged;
    struct page_curve loss; /* over updates, or thinned */
    struct page_curve
        mean_loss; /* of spans of updates, at their last; runs of one length have the same */
    struct page_curve validation_loss; /* over updates */
    struct page_curve accuracy;        /* of validations */
    struct page_curve accuracy_at;     /* of the test, by the place in the sequence */
    struct page_curve lengths;         /* of tests, by their length; or none */
    struct page_curve
        margins; /* the largest error / bound of each update that was judged; or none */
    double test_loss, test_accuracy, test_sequence, tokens_per_s, seconds;
    long long updates, learned_at;
};

/* That of a trial's group; *to stays NULL where there is none.  Nonzero after err_set(). */
int page_run_read(hid_t trial, struct page_run **to);
void page_run_free(struct page_run *r);

/* Leaves at most `points` points, 4 at least: the first, the last, and of each span between the least and the greatest. */
void page_curve_thin(struct page_curve *c, int points);

#endif
