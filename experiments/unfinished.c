/* What an interrupted run left (unfinished.h). */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/progress.h"
#include "experiments/unfinished.h"

int unfinished_option(const char *how, enum checkpoint_use *to)
{
    if (how && strcmp(how, "anyway") != 0)
        return err_set("--resume=%s: must be anyway, or nothing", how);
    *to = how ? CHECKPOINT_ANY : CHECKPOINT_OWN;
    return 0;
}

int unfinished_store(enum checkpoint_use use)
{
    return use == CHECKPOINT_IGNORED ? 0
           : use == CHECKPOINT_OWN   ? STORE_RESUME
                                     : STORE_RESUME | STORE_ANYWAY;
}

/* A line of a run. */
static void say(const char *line, void *data)
{
    (void)data;
    progress_clear();
    fprintf(stderr, "run-ablation: %s\n", line);
}

int unfinished_begin(struct experiment *x, struct states *s, enum checkpoint_use use, int force)
{
    *s = (struct states){.use = use, .say = say};
    if (x->measure == MEASURE_TRAIN)
        return states_begin(s, x, force);
    return use == CHECKPOINT_ANY ? err_set("--resume=anyway: only measure = train has checkpoints")
                                 : 0;
}

int unfinished_refused(const struct experiment *x, struct store *store)
{
    struct store_counts counts;

    if (x->states && x->states->use == CHECKPOINT_IGNORED)
        states_clear(x);
    for (int i = 0; x->states && i < x->n; i++)
        if (!store_has(store, i, &counts) && states_refused(x, i))
            return -1;
    return 0;
}
