/* write_training.h - a run of training in the group of its trial.
 *
 *     curve/   loss grad_norm clip lr scale skipped     [update]
 *     eval/    loss accuracy                            [evaluation], with their `update`
 *     test/    attributes; accuracy_at                  [decile], by the place in the sequence
 *     parity   table of verdicts, by update
 *     judged   table of the updates that were judged, and the rows of step parity
 *     speed/   attributes: seconds, tokens_per_s, device_bytes
 *     start/, final/    each weight by its name; and
 *     batch/   token target                             [batch,step,row], where these are kept
 *
 * Attributes of the trial: backend, device, ended, updates_done, learned_at; of a run that went on from a checkpoint of another
 * plan, line, corpus, backend, device or build resumed_anyway, with which of these. */
#ifndef WRITE_TRAINING_H
#define WRITE_TRAINING_H

#include <hdf5.h>

#include "common/run/result.h"

enum { MAX_TRAINING_PARTS = 10 };
struct training_part {
    const char *name;
    hid_t id; /* linked nowhere as yet */
};

/* Makes its groups and tables, *n of them, which the caller links and closes, in any case; `compress` is the level.
 * Nonzero after err_set(). */
int training_write(hid_t trial, const struct result *r, int compress,
                   struct training_part to[MAX_TRAINING_PARTS], int *n);
/* Bytes of its values, less its verdicts; 0 for NULL. */
int64_t training_takes(const struct trained *r);

#endif
