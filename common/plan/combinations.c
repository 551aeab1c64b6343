/* The combinations of a section's lists (combinations.h).
 *
 * Lists are taken in the order of the operation's parameters: whether one applies follows from
 * those before it (param->unless), so that each combination is met once, and none is skipped. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/call/contract.h"
#include "common/call/machine.h"
#include "common/plan/plan.h"
#include "common/plan/combinations.h"

struct walk {
    const struct lists *l;
    int order[MAX_LISTS]; /* of the lists: keys of every trial, then parameters in their order */
    int last;             /* the last in order[] that may not apply; -1: there is none */
    char *applies;        /* of each list: to a combination that was tried */
    int tried;
    struct combinations *made;
    int most;
    int at[MAX_LISTS];
};

static struct walk begin(const struct lists *l, const struct op *o)
{
    struct walk w = {.l = l, .last = -1};
    int n = 0;

    for (int i = 0; i < l->n; i++)
        if (!op_param(o, l->list[i].key, NULL))
            w.order[n++] = i;
    for (int k = 0; k < o->n_params; k++)
        for (int i = 0; i < l->n; i++)
            if (strcmp(l->list[i].key, o->param[k].name) == 0) {
                w.last = o->param[k].unless ? n : w.last;
                w.order[n++] = i;
            }
    return w;
}

/* List i of order[], and its parameter; or NULL: a key of every trial. */
static const struct list *list_at(const struct walk *w, int i, const struct op *o,
                                  const struct param **param)
{
    const struct list *list = &w->l->list[w->order[i]];
    *param = op_param(o, list->key, NULL);
    return list;
}

static int does_apply(const struct param *param, const struct call *f)
{
    return !param || !param->unless || !param->unless(f);
}

/* What the lists from order[i] on make together with the values before, which f has.  Values that
 * no `unless` can read are not tried. */
static double count(struct walk *w, int i, struct call f)
{
    const struct param *param;
    double n = 0;

    if (i == w->l->n) {
        w->tried++;
        return 1;
    }
    const struct list *list = list_at(w, i, f.op, &param);
    if (!does_apply(param, &f))
        return count(w, i + 1, f);
    w->applies[w->order[i]] = 1;
    if (!param || param->letter || i >= w->last)
        return list->n_values * count(w, i + 1, f);
    for (int v = 0; v < list->n_values && w->tried <= MAX_TRIALS; v++) {
        op_set(&f, list->key, list->value[v]);
        n += count(w, i + 1, f);
    }
    return n;
}

double combinations_count(const struct lists *l, const struct call *base, char applies[],
                          int *least)
{
    struct walk w = begin(l, base->op);

    memset(applies, 0, l->n);
    w.applies = applies;
    const double n = count(&w, 0, *base);
    *least = w.tried > MAX_TRIALS;
    return n;
}

static void add_row(struct walk *w)
{
    struct combinations *p = w->made;

    if (p->n == w->most)
        return;
    int *row = p->row + (size_t)p->n++ * (1 + p->n_lists);
    row[0] = p->n_lists;
    memcpy(row + 1, w->at, p->n_lists * sizeof *row);
}

/* Add the combinations that count() counts. */
static void make(struct walk *w, int i, struct call f)
{
    const struct param *param;

    if (i == w->l->n) {
        add_row(w);
        return;
    }
    const struct list *list = list_at(w, i, f.op, &param);
    if (!does_apply(param, &f)) {
        w->at[w->order[i]] = LEFT_OUT;
        make(w, i + 1, f);
        return;
    }
    for (int v = 0; v < list->n_values; v++) {
        w->at[w->order[i]] = v;
        if (param)
            op_set(&f, list->key, list->value[v]);
        make(w, i + 1, f);
    }
}

static int by_place(const void *a, const void *b)
{
    const int *x = a, *y = b;

    for (int i = 1; i <= *x; i++) {
        const int left = x[i] == LEFT_OUT ? 0 : x[i], right = y[i] == LEFT_OUT ? 0 : y[i];
        if (left != right)
            return left - right;
    }
    return 0;
}

int combinations_make(struct combinations *p, const struct lists *l, const struct call *base,
                      int most)
{
    struct walk w = begin(l, base->op);
    const size_t bytes = (1 + l->n) * sizeof *p->row;

    *p = (struct combinations){.n_lists = l->n, .row = malloc((most ? most : 1) * bytes)};
    if (!p->row)
        return err_set("no memory for %d trials", most);
    w.made = p;
    w.most = most;
    make(&w, 0, *base);
    qsort(p->row, p->n, bytes, by_place);
    return 0;
}

void combinations_free(struct combinations *p)
{
    free(p->row);
    *p = (struct combinations){0};
}

void combinations_choose(const struct combinations *p, int i, struct lists *l)
{
    const int *row = p->row + (size_t)i * (1 + p->n_lists);

    for (int k = 0; k < l->n; k++)
        l->list[k].at = row[1 + k];
}

void combinations_first(const struct lists *l, const struct call *base, struct call *f)
{
    const struct walk w = begin(l, base->op);
    const struct param *param;

    *f = *base;
    for (int i = 0; i < l->n; i++) {
        const struct list *list = list_at(&w, i, base->op, &param);
        if (param && does_apply(param, f))
            op_set(f, list->key, list->value[0]);
    }
}
