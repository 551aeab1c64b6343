/* The whole number for which a quantity comes nearest to a target (nearest.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/plan/nearest.h"

enum { HOLE = 1024, ALL = 4096, NONE = -1 };

/* Those that were tried, from 1 on, in any order. */
struct searching {
    const struct nearest *n;
    struct nearest_two *to;
    struct point {
        int64_t number;
        double quantity;
    } * tried;
    int n_tried;
    int no_memory;
    int64_t lo, hi,
        top; /* lo has at most the target, hi more; all from top to hi are refused; NONE: no such one */
};

static void note(struct nearest_two *to, int64_t number, double quantity, double target)
{
    struct nearest_one *one = quantity <= target ? &to->below : &to->above;
    const double apart = fabs(quantity - target), before = fabs(one->quantity - target);

    if (!one->there || apart < before || (apart == before && number < one->number))
        *one = (struct nearest_one){1, number, quantity};
}

static int is_there(struct searching *s, int64_t number, double *quantity)
{
    struct point *more;

    if (s->n->at(s->n->data, number, quantity))
        return 0;
    note(s->to, number, *quantity, s->n->target);
    if (number < 1)
        return 1;
    if (!(more = grow(s->tried, s->n_tried, sizeof *more))) {
        s->no_memory = 1;
        return 1;
    }
    s->tried = more;
    more[s->n_tried++] = (struct point){number, *quantity};
    return 1;
}

/* The first from `from` to below `end` that is not refused; NONE. */
static int64_t first(struct searching *s, int64_t from, int64_t end, double *quantity)
{
    const int64_t hole = s->n->now > HOLE ? s->n->now : HOLE;

    for (int64_t i = from; i < end && i - from < hole; i++)
        if (is_there(s, i, quantity))
            return i;
    return NONE;
}

/* Doubles lo until one has more, or none is left. */
static void go_up(struct searching *s)
{
    const int64_t end = s->n->max + 1;
    double quantity;

    while (s->hi == NONE && 2 * s->lo < end) {
        const int64_t next = first(s, 2 * s->lo, end, &quantity);
        s->top = 2 * s->lo;
        if (next == NONE)
            return;
        if (quantity > s->n->target)
            s->hi = next;
        else
            s->lo = next, s->top = end;
    }
}

/* Halves hi until one has no more. */
static void go_down(struct searching *s)
{
    const int64_t least = s->n->min > 1 ? s->n->min : 1;
    double quantity;

    while (s->lo == NONE && s->top > least) {
        const int64_t from = s->top / 2 > least ? s->top / 2 : least,
                      next = first(s, from, s->top, &quantity);
        if (next != NONE && quantity <= s->n->target) {
            s->lo = next;
            return;
        }
        if (next != NONE)
            s->hi = next;
        s->top = from;
    }
}

static void bisect(struct searching *s)
{
    double quantity;

    while (s->lo != NONE && s->top - s->lo > 1) {
        const int64_t middle = s->lo + (s->top - s->lo) / 2,
                      next = first(s, middle, s->top, &quantity);
        if (next != NONE && quantity <= s->n->target)
            s->lo = next;
        else
            s->top = middle;
    }
}

static int by_number(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

static int falls(struct searching *s)
{
    qsort(s->tried, s->n_tried, sizeof *s->tried, by_number);
    for (int i = 1; i < s->n_tried; i++)
        if (s->tried[i].quantity < s->tried[i - 1].quantity)
            return 1;
    return 0;
}

int nearest_find(const struct nearest *n, struct nearest_two *to)
{
    struct searching s = {.n = n, .to = to, .lo = NONE, .hi = NONE, .top = n->max + 1};
    double quantity;

    *to = (struct nearest_two){.below = {.there = 0}};
    for (int64_t i = n->min; i < 1; i++)
        is_there(&s, i, &quantity);
    const int64_t now = first(&s, n->now > 1 ? n->now : 1, n->max + 1, &quantity);
    if (now != NONE && quantity <= n->target) {
        s.lo = now;
        go_up(&s);
    } else if (now != NONE) {
        s.hi = s.top = now;
        go_down(&s);
    }
    bisect(&s);
    if (s.n_tried && falls(&s))
        for (int64_t i = n->min; i <= n->max && i <= ALL; i++)
            is_there(&s, i, &quantity);
    free(s.tried);
    return s.no_memory ? err_set("no memory for a search") : 0;
}

int nearest_is_within(double quantity, double target, double part)
{
    return fabs(quantity - target) <= part * fabs(target);
}

const struct nearest_one *nearest_within(const struct nearest_two *of, double target, double part)
{
    const struct nearest_one *both[] = {&of->below, &of->above}, *found = NULL;

    for (int i = 0; i < 2; i++)
        if (both[i]->there && nearest_is_within(both[i]->quantity, target, part) &&
            (!found || fabs(both[i]->quantity - target) < fabs(found->quantity - target)))
            found = both[i];
    return found;
}
