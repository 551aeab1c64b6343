/* worker.h - a member of a processes (processes.h): it reads the same plan as its leader, and runs trials of that, which the leader
 * names, on a device of its own.  Each trial that it has run is a file beside the output, which the leader takes. */
#ifndef EXPERIMENTS_WORKER_H
#define EXPERIMENTS_WORKER_H

#include <stdint.h>
#include <sys/types.h>

#include "common/plan/plan.h"
#include "common/report/report.h"
#include "experiments/processes.h"

enum { ITS_OWN = -2 }; /* the device of its number, if there are any */

/* What the leader says.  The first is BEGIN. */
struct command {
    enum { COMMAND_BEGIN, COMMAND_TRIAL, COMMAND_END } kind;
    /* BEGIN */
    uint64_t plan;  /* plan_lines() of it: another one is refused */
    int member;     /* its number in the processes */
    int device;     /* -1: of no GPU, or the first; ITS_OWN */
    int number, of; /* among the workers of its node */
    int report;     /* REPORT_ flags */
    /* TRIAL */
    int trial;   /* from 0 */
    double rate; /* of a run that confirms; else 0 */
};

/* What a worker says. */
struct answer {
    enum { ANSWER_READY, ANSWER_PART, ANSWER_ENDED } kind;
    int trial;
    int stopped;   /* ENDED: before its end, by a signal */
    int unwritten; /* ENDED: its file could not be written */
    double part;   /* PART: how far it is, 0 ... 1 */
    int e;         /* READY, ENDED: what run() or trial_run() returned; the text below says why */
    pid_t process;
    char device[256]; /* READY: its name, */
    int side_by_side; /* and how many trials at once the worker runs */
    struct report_sums sums;
    char text[]; /* ENDED: the lines of its report; or why */
};

/* A hash of a plan's lines, and of the text that it was read from. */
uint64_t plan_lines(const struct experiment *x);
/* The file of a trial that a worker has run: processes of two nodes may have one number, and so may workers of two runs. */
void worker_file(const struct experiment *x, int member, pid_t process, int trial, char *to,
                 size_t size);

/* Removes what killed workers left of x's trials: by who has the lock of its output. */
void worker_files_remove(const struct experiment *x);

/* Serves the leader until it says so, or is gone.  `begin` makes a context on x->device and what a trial needs besides;
 * nonzero after err_set().  Returns an exit status. */
int worker_run(struct experiment *x, struct leader *l,
               int (*begin)(struct experiment *x, void *data), void *data,
               const volatile int *stop);

#endif
