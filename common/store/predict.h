/* predict.h - how large a dump will be. */
#ifndef PREDICT_H
#define PREDICT_H

#include "common/store/store.h"

/* Bytes of the file of x, at most, and near that where nothing is compressed and tensors are large; with a
 * store, of the trials that it does not have yet.  -1 after err_set(). */
double predict_dump(const struct experiment *x, struct store *s);
/* The same of trial i alone. */
double predict_trial(const struct experiment *x, int i);
/* The same of a run of training, whose weights are kept, and whose updates are judged, or not; without that of a dump. */
double predict_training(const struct trial *t, int keep, int judged);
/* Bytes of the files of x->workers workers, one each at a time, while they are written: those of the largest trials, with a
 * store of those that it does not have yet.  -1 after err_set(). */
double predict_workers(const struct experiment *x, struct store *s);
/* Is there space for the dump and these where the output will be, and DUMP_SPARE bytes more, which a trial needs
 * while it is written?  Nonzero after err_set(); 0 also where the file
 * system does not say. */
int predict_fits(const struct experiment *x, struct store *s);

#endif
