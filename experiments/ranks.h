/* ranks.h - the processes that mpirun or srun started, by MPI. */
#ifndef RANKS_H
#define RANKS_H

#include <stddef.h>

/* This process among them, and among those of its node; alone: 0 of 1. */
struct ranks {
    int rank, size, local, locals;
};

/* To be called once, before anything else of these.  When the process of rank 0 exits, the others get RANK_ENDS.  Nonzero
 * after err_set(): there are several, and no MPI was built in. */
int ranks_begin(struct ranks *to);

/* What a message is for. */
enum rank_tag {
    RANK_IS = 1,  /* to rank 0, the first: a struct ranks */
    RANK_MESSAGE, /* between the leader and a member */
    RANK_LOST,    /* that rank's member is lost: why */
    RANK_STOPS,   /* as SIGTERM */
    RANK_ENDS
};
void rank_send(int rank, enum rank_tag tag, const void *message, size_t bytes);
/* The next message that has come: returns its bytes, -1: none has.  It is to be freed. */
long rank_receive(int *rank, enum rank_tag *tag, void **message);

#endif
