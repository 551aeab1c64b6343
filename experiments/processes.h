/* processes.h - the processes that the trials of an experiment are dealt out to: members, each a process of its own that runs
 * this program again with the same words.  The first process, which leads, sends each of them commands, receives what they
 * say, and learns that one is lost: killed, or crashed.  Under mpirun and srun each rank has one member, as its child: a
 * member that is lost costs no rank, without which MPI would end all.
 *
 * A message is any bytes.  Messages between two processes keep their order.  A member ends when the leader does. */
#ifndef PROCESSES_H
#define PROCESSES_H

#include <stddef.h>

#include "experiments/ranks.h"

struct processes;

/* ---- the leader's ---- */

/* n members on this machine, from 0, that run this program with argv, and behind them one of each further rank, which
 * processes_serve() starts there.  NULL after err_set(). */
struct processes *processes_start(int n, const struct ranks *own, char *const *argv);
int processes_count(const struct processes *c);
/* Where a member is: its number among those of its node, and how many these are. */
void process_place(const struct processes *c, int member, int *number, int *of);

/* In a rank from 1 on: its member runs, and its messages go to rank 0 and back, until that exits.  0. */
int processes_serve(char *const *argv);

/* Nonzero: that member is lost, and so is the message. */
int process_send(struct processes *c, int member, const void *message, size_t bytes);

/* What came of a member. */
struct received {
    int member;
    enum {
        RECEIVED_NOTHING,
        RECEIVED_MESSAGE,
        RECEIVED_LOST
    } what;        /* NOTHING: of nobody, in that time */
    void *message; /* to be freed; NULL but of MESSAGE */
    size_t bytes;
    char why[80]; /* of LOST: "ended by signal 9"; said once */
};
/* Waits so many milliseconds for something.  A signal ends the wait.  Nonzero after err_set(): no memory. */
int processes_receive(struct processes *c, int milliseconds, struct received *to);
/* All are to end early, as if each had been sent SIGTERM. */
void processes_stop(struct processes *c);
/* Waits until all have ended, as a message must have said; after some seconds they are killed. */
void processes_end(struct processes *c);

/* ---- a member's ---- */

struct leader;
/* NULL: this process leads, or is alone.  To be called once, as early as may be. */
struct leader *process_leader(void);
/* Nonzero: the leader is gone. */
int leader_send(struct leader *l, const void *message, size_t bytes);
/* Waits so many milliseconds, or until there is one with -1, for a message, which is to be freed.  Returns its bytes; 0: there
 * is none; -1: the leader is gone. */
long leader_receive(struct leader *l, int milliseconds, void **message);

#endif
