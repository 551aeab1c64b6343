/* The cases of a campaign (campaign.h). */
#include "config.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/call/cases.h"
#include "common/run/campaign.h"
#include "common/run/random_cases.h"

/* Cases of a contract that take more work are left to the suites. */
#define MOST_WORK 1e8
/* The draws of a case whose sizes are all named. */
enum { FILLS = 3 };

/* ---- what words leave open ---- */

#define BIT(i) (UINT64_C(1) << (i))

/* The parameters that words name: a bit for each. */
static uint64_t named_in(const char *words, const struct op *o)
{
    uint64_t named = 0;
    int quoted = 0, begins = 1;

    for (const char *at = words; *at; at++) {
        const size_t n = begins ? strcspn(at, "= \t\n\"") : 0;
        char key[64];
        int place;
        if (n && n < sizeof key && at[n] == '=') {
            memcpy(key, at, n);
            key[n] = 0;
            if (op_param(o, key, &place))
                named |= BIT(place);
        }
        quoted ^= *at == '"';
        begins = !quoted && isspace((unsigned char)*at);
    }
    return named;
}

/* Is it the length of an axis of an input here, by itself? */
static int is_size(const struct call *f, const struct param *p)
{
    if (!p->letter || p->min < 1 || p->seed || (p->unless && p->unless(f)))
        return 0;
    for (int i = 0; i < f->op->n_args; i++)
        if (f->op->arg[i].flags & IN && op_has(f, i) && strchr(op_shape(f, i), p->letter))
            return 1;
    return 0;
}

/* Are the inputs drawn, and not read? */
static int is_drawn(const struct trial *t)
{
    return t->input == INPUT_NORMAL || t->input == INPUT_NONZERO;
}

static void find_open(struct campaign *c, uint64_t named)
{
    const struct call *f = &c->asked.call;

    for (int i = 0; i < f->op->n_params && is_drawn(&c->asked); i++) {
        const struct param *p = &f->op->param[i];
        if (named & BIT(i))
            continue;
        if (is_size(f, p))
            c->open |= BIT(i);
        else if (p->draw && !(p->unless && p->unless(f)))
            c->drawn |= BIT(i);
    }
}

/* ---- the listed cases ---- */

static int add_listed(struct campaign *c, const struct call *f)
{
    struct trial t = c->asked;

    t.call = *f;
    t.seed = c->asked.seed + (uint64_t)c->n;
    if (plan_text(&t))
        return -1;
    struct trial *more = grow(c->listed, (int)c->n, sizeof *more);
    if (!more)
        return err_set("no memory for a campaign");
    c->listed = more;
    more[c->n++] = t;
    return 0;
}

static int same_case(const struct call *a, const struct call *b)
{
    char one[MAX_TEXT], other[MAX_TEXT];
    op_text(a, one);
    op_text(b, other);
    return strcmp(one, other) == 0;
}

/* What the words ask for, of this case of the contract: its open sizes, and how its inputs are drawn. */
static int add_agreeing(const struct call *of, void *data)
{
    struct campaign *c = data;
    struct call f = c->asked.call;

    for (int i = 0; i < f.op->n_params; i++) {
        const struct param *p = &f.op->param[i];
        if (p->letter && (c->open | c->drawn) & BIT(i))
            DIM(&f, p->letter) = DIM(of, p->letter);
        if (!p->letter && c->drawn & BIT(i)) {
            f.choice[i] = of->choice[i];
            f.real[i] = of->real[i];
        }
    }
    if (op_complete(&f) || random_work(&f) > MOST_WORK)
        return 0; /* these sizes do not go with the words */
    for (int64_t i = 0; i < c->n; i++)
        if (same_case(&c->listed[i].call, &f))
            return 0;
    return add_listed(c, &f);
}

static int by_work(const void *a, const void *b)
{
    const struct trial *x = a, *y = b;
    const double p = random_work(&x->call), q = random_work(&y->call);
    return p != q ? (p > q) - (p < q) : (x->seed > y->seed) - (x->seed < y->seed);
}

/* The asked call with open size `which` long, and the others as given, up to their multiples. */
static struct call long_call(const struct campaign *c, int which, int64_t length, int64_t others)
{
    struct call f = c->asked.call;
    const struct param *param = f.op->param;

    for (int k = 0; k < f.op->n_params; k++)
        if (c->open & BIT(k))
            DIM(&f, param[k].letter) = k == which ? length : others;
    for (int k = 0; k < f.op->n_params; k++) {
        const int64_t m = param[k].multiple ? param[k].multiple(&f) : 1;
        if (c->open & BIT(k) && m > 1)
            DIM(&f, param[k].letter) = (DIM(&f, param[k].letter) + m - 1) / m * m;
    }
    return f;
}

/* Each open size long by itself, where the operation takes that: behind a kernel's whole tiles. */
static int add_long(struct campaign *c)
{
    enum { LONG = 2053 };
    static const int64_t others[] = {6, 2, 1};
    int e = 0;

    for (int i = 0; i < c->asked.call.op->n_params; i++) {
        const int64_t n = c->n;
        for (size_t k = 0; !e && c->n == n && c->open & BIT(i) && k < COUNT(others); k++) {
            const struct call f = long_call(c, i, LONG, others[k]);
            e = add_agreeing(&f, c);
        }
    }
    return e;
}

/* Those of the contract, and its shapes and long ones, of little work first. */
static int list_contract(struct campaign *c)
{
    const struct op *o = c->asked.call.op;
    int e = cases_each(o, o->cases, add_agreeing, c);
    const int64_t n = c->n;

    e = e || (o->shapes && cases_each(o, o->shapes, add_agreeing, c)) || add_long(c);
    if (c->n > n)
        qsort(c->listed + n, (size_t)(c->n - n), sizeof *c->listed, by_work);
    return e ? -1 : 0;
}

/* Whichever contract draws it, such a fill has infinities or NaN. */
static int is_masked(const struct param *p, int choice)
{
    return strcmp(p->choices[choice], "masked") == 0;
}

/* Numbers that say how inputs are drawn, but not those of the defaults. */
static void draw_other_numbers(const struct campaign *c, struct call *f)
{
    for (int i = 0; i < f->op->n_params; i++) {
        const struct param *p = &f->op->param[i];
        if (!(c->drawn & BIT(i)) || p->choices)
            continue;
        if (p->real)
            f->real[i] = fmin(fmax(f->real[i] / 4, p->real->min), p->real->max);
        else
            DIM(f, p->letter) = DIM(f, p->letter) + 2 <= p->max ? DIM(f, p->letter) + 2 : p->min;
    }
}

/* f with the k-th other way to draw its inputs, all of them finite; 0: there is none. */
static int draw_otherwise(const struct campaign *c, struct call *f, int k)
{
    const struct call as_asked = *f;

    for (int i = 0; i < f->op->n_params; i++)
        for (int v = 0; c->drawn & BIT(i) && f->op->param[i].choices && f->op->param[i].choices[v];
             v++) {
            *f = as_asked;
            f->choice[i] = v;
            if (v != as_asked.choice[i] && !is_masked(&f->op->param[i], v) && !op_complete(f) &&
                k-- == 0)
                return 1;
        }
    return 0;
}

/* The words' own sizes, as they are drawn, and in two other ways, where there are any. */
static int list_fills(struct campaign *c)
{
    struct call f = c->asked.call, otherwise = f;
    int ways = 0;

    draw_other_numbers(c, &otherwise);
    for (struct call other = f; draw_otherwise(c, &other, ways); other = f)
        ways++;
    if (op_complete(&f) || add_listed(c, &f))
        return -1;
    for (int k = 0; is_drawn(&c->asked) && k < FILLS - 1; k++) {
        f = otherwise;
        if (ways)
            draw_otherwise(c, &f, (int)((c->asked.seed + (uint64_t)k) % (uint64_t)ways));
        if (op_complete(&f) || add_listed(c, &f))
            return -1;
    }
    return 0;
}

/* What the words name, and else the defaults: a size that follows from another one stays 0. */
static void set_named(struct campaign *c, const struct call *asked, uint64_t named)
{
    const struct op *o = asked->op;

    op_defaults(o, &c->asked.call);
    for (int i = 0; i < o->n_params; i++) {
        if (!(named & BIT(i)))
            continue;
        c->asked.call.choice[i] = asked->choice[i];
        c->asked.call.real[i] = asked->real[i];
        if (o->param[i].letter)
            DIM(&c->asked.call, o->param[i].letter) = DIM(asked, o->param[i].letter);
    }
}

int campaign_new(struct campaign *c, const char *words, const struct trial *asked)
{
    const uint64_t named = named_in(words, asked->call.op);

    *c = (struct campaign){.asked = *asked};
    find_open(c, named);
    set_named(c, &asked->call, named);
    return c->open ? list_contract(c) : list_fills(c);
}

void campaign_free(struct campaign *c)
{
    free(c->listed);
    *c = (struct campaign){.listed = NULL};
}

/* ---- any of them ---- */

int campaign_trial(const struct campaign *c, int64_t i, struct trial *t)
{
    const struct random r = {.seed = c->asked.seed,
                             .only = c->asked.call.op,
                             .of = &c->asked,
                             .drawn = c->open | c->drawn};

    if (i < c->n)
        *t = c->listed[i];
    else if (!c->open)
        *t = c->listed[0];
    else if (random_trial(&r, i, t))
        return -1;
    t->seed = c->asked.seed + (uint64_t)i;
    return plan_text(t);
}

int campaign_smaller(const struct campaign *c, const struct trial *t, int k, struct trial *to)
{
    for (int i = 0; i < t->call.op->n_params; i++)
        for (int way = 0; (c->open | c->drawn) & BIT(i); way++) {
            *to = *t;
            const int made = random_reduce(&to->call, i, way);
            if (!made)
                break;
            if (made > 0 && k-- == 0)
                return !plan_text(to);
        }
    return 0;
}
