#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "common/result.h"

void result_skip(struct result *r, const char *what, const char *why)
{
    append(r->skips, sizeof r->skips, "%s: %s\n", what, why);
    r->skipped++;
}

void result_decline(struct result *r, const struct backend *b, const struct impl *k,
                    const char *why)
{
    for (int i = 0; i < r->n_declined; i++)
        if (r->declined[i].backend == b && r->declined[i].kernel == k &&
            strncmp(r->declined[i].why, why, sizeof r->declined[i].why - 1) == 0)
            return;
    if (r->n_declined == MAX_RAN)
        return;
    struct declined *d = &r->declined[r->n_declined++];
    *d = (struct declined){.backend = b, .kernel = k};
    snprintf(d->why, sizeof d->why, "%s", why);
}

void result_free(struct result *r)
{
    tensors_free(r->inputs);
    free(r->growth);
    for (int i = 0; i < r->n_ran; i++)
        tensors_free(r->ran[i].t);
    verdicts_free(&r->verdicts);
}
