/* First fit, the largest first (places.h). */
#include "config.h"

#include <stdint.h>
#include <stdlib.h>

#include "common/program/places.h"

/* The larger first; of equal ones the earlier. */
static int larger(const void *a, const void *b)
{
    const struct lying *x = *(const struct lying *const *)a, *y = *(const struct lying *const *)b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes) : (x > y) - (x < y);
}

static int by_place(const void *a, const void *b)
{
    const struct lying *x = *(const struct lying *const *)a, *y = *(const struct lying *const *)b;
    return (x->at > y->at) - (x->at < y->at);
}

/* The first place for x beside those of `met`, in the order of their places. */
static size_t first_fit(const struct lying *x, struct lying *const *met, int n)
{
    size_t at = 0;

    for (int i = 0; i < n && at + x->bytes > met[i]->at; i++)
        if (met[i]->at + met[i]->bytes > at)
            at = met[i]->at + met[i]->bytes;
    return at;
}

size_t places_find(struct lying *list, int n)
{
    struct lying **order = malloc((n ? 2 * n : 1) * sizeof *order), **met = order + n;
    size_t all = 0;

    if (!order)
        return SIZE_MAX;
    for (int i = 0; i < n; i++) {
        list[i].bytes = (list[i].bytes + 255) / 256 * 256;
        list[i].at = 0;
        order[i] = &list[i];
    }
    qsort(order, n, sizeof *order, larger);
    for (int i = 0; i < n && order[i]->bytes; i++) {
        int n_met = 0;
        for (int j = 0; j < i; j++)
            if (order[j]->from <= order[i]->to && order[i]->from <= order[j]->to)
                met[n_met++] = order[j];
        qsort(met, n_met, sizeof *met, by_place);
        order[i]->at = first_fit(order[i], met, n_met);
        if (order[i]->at + order[i]->bytes > all)
            all = order[i]->at + order[i]->bytes;
    }
    free(order);
    return all;
}
