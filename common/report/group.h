/* group.h - the trials of one operation that follow each other: they have one table, whose heading
 * has the settings that do not vary among them, and whose first columns are the others. */
#ifndef GROUP_H
#define GROUP_H

#include "common/plan/settings.h"
#include "common/report/table.h"

struct group {
    int first, n;                            /* of the trials */
    char varying[MAX_SETTINGS][MAX_SETTING]; /* the settings that are columns */
    int n_varying;
    int trips; /* has it columns of round trips? */
    struct table table;
};

/* Is trial i one of the group's? */
static inline int group_has(const struct group *g, int i)
{
    return i >= g->first && i < g->first + g->n;
}

/* *g becomes the group that trial i is in, and its table one of so many columns. */
void group_begin(struct group *g, const struct experiment *x, int i, int width);
/* The heading, and the heads of the columns. */
void group_head(const struct group *g, const struct experiment *x, const struct screen *s);
/* *row becomes a row that has the number and the settings of trial i. */
void group_trial(const struct group *g, const struct experiment *x, int i, struct row *row);

#endif
