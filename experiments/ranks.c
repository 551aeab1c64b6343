/* Ranks by MPI (ranks.h). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "experiments/ranks.h"

/* How many processes a launcher says that it started; 1: none does. */
static int launched(void)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (getenv(sizes[i]) && atoi(getenv(sizes[i])) > 1)
            return atoi(getenv(sizes[i]));
    /* A step of srun; the batch script itself has no number of tasks in a step. */
    const char *step = getenv("SLURM_STEP_NUM_TASKS");
    return step && getenv("SLURM_PROCID") && atoi(step) > 1 ? atoi(step) : 1;
}

#ifdef HAVE_MPI
#include <mpi.h>

static struct ranks own;

static void end(void)
{
    int done = 0;

    MPI_Finalized(&done);
    for (int i = 1; !done && own.rank == 0 && i < own.size; i++)
        rank_send(i, RANK_ENDS, NULL, 0);
    if (!done)
        MPI_Finalize();
}

int ranks_begin(struct ranks *to)
{
    int provided;
    MPI_Comm node;

    *to = (struct ranks){0, 1, 0, 1};
    if (launched() < 2)
        return 0;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
        return err_set("MPI does not begin");
    MPI_Comm_rank(MPI_COMM_WORLD, &to->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &to->size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, to->rank, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &to->local);
    MPI_Comm_size(node, &to->locals);
    MPI_Comm_free(&node);
    own = *to;
    atexit(end);
    if (to->rank)
        rank_send(0, RANK_IS, to, sizeof *to);
    return 0;
}

void rank_send(int rank, enum rank_tag tag, const void *message, size_t bytes)
{
    MPI_Send(message, (int)bytes, MPI_BYTE, rank, tag, MPI_COMM_WORLD);
}

long rank_receive(int *rank, enum rank_tag *tag, void **message)
{
    MPI_Status status;
    int there, bytes;

    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, &status);
    if (!there)
        return -1;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    *message = malloc((size_t)bytes + 1);
    if (!*message)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Recv(*message, bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
    *rank = status.MPI_SOURCE;
    *tag = (enum rank_tag)status.MPI_TAG;
    return bytes;
}

#else

int ranks_begin(struct ranks *to)
{
    const int n = launched();

    *to = (struct ranks){0, 1, 0, 1};
    return n > 1 ? err_set("it was started %d times, and is built without MPI; configure "
                           "--with-mpi, or start it once",
                           n)
                 : 0;
}

void rank_send(int rank, enum rank_tag tag, const void *message, size_t bytes)
{
    (void)rank;
    (void)tag;
    (void)message;
    (void)bytes;
}

long rank_receive(int *rank, enum rank_tag *tag, void **message)
{
    (void)rank;
    (void)tag;
    (void)message;
    return -1;
}

#endif
