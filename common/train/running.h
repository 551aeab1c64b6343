/* running.h - a run of training on its way, for run.c and checkpoint.c. */
#ifndef TRAIN_RUNNING_H
#define TRAIN_RUNNING_H

#include "common/train/free.h"

struct running {
    const struct training *t;
    struct trained *to;
    struct update u;
    struct free_run *free; /* NULL: none */
    struct verdicts *list;
    struct update_values now;
    double reported;
    int64_t skipped_running, reached; /* updates; validations running that reached the target */
    int64_t
        settled;  /* the last update behind which all that is due has been done, validations too */
    int whole;    /* updates are there, and none is half made */
    double saved; /* when the last checkpoint was written, or was to be */
    int64_t kept; /* the update that the checkpoint was written at; 0: none */
    int spoilt;   /* the file of the checkpoint is damaged: only the one before is whole */
    int warned;   /* that it cannot be written */
};

#endif
