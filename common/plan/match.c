/* Models that are made equal (match.h). */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/number.h"
#include "common/plan/match.h"
#include "common/plan/nearest.h"
#include "common/plan/training.h"
#include "common/train/size.h"

static const double MATCH_PART = 0.01;

const char *const match_names[] = {"none", "parameters", "state", "flops", NULL};

/* ---- the key adjust ---- */

void match_refuse(struct plan *p, const struct ini_section *s, const struct lists *l,
                  const struct trial *t)
{
    const struct ini_entry *e = section_entry(s, "adjust");
    const struct op *o = t->call.op;
    const struct param *param = e && o ? op_param(o, t->adjust, NULL) : NULL;

    if (!e || !o || !*t->adjust)
        return;
    if (!is_cell(o)) {
        plan_fault(p, e->line, "adjust: only measure = train makes models equal");
        return;
    }
    if (cell_part(o, t->adjust) != CELL_OF_MODEL || !param || !param->letter)
        plan_fault(p, e->line,
                   "adjust = %s: it must be a key of the mixer or the model that is a whole number",
                   t->adjust);
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->list[i].key, t->adjust) == 0 && l->list[i].n_values > 1)
            plan_fault(p, e->line,
                       "adjust = %s: it has several values in line %d; one can be adjusted",
                       t->adjust, l->list[i].line);
}

/* ---- the quantity ---- */

static int quantity_of(const struct call *f, enum dtype type, enum match match, double *quantity)
{
    struct cell_size size;
    const int e = cell_size(f, type, &size);

    *quantity = match == MATCH_PARAMETERS ? size.inner
                : match == MATCH_STATE    ? size.state
                                          : size.flops;
    return e;
}

/* Whole but for FLOPs. */
static const char *plain(double x, char text[NUMBER_TEXT])
{
    snprintf(text, NUMBER_TEXT, x == floor(x) ? "%.0f" : "%.6g", x);
    return text;
}

/* ---- the reference ---- */

struct matching {
    struct plan *p;
    const struct ini *ini;
    enum match match;
    char reference[sizeof((struct experiment *)NULL)->reference];
    int line;          /* which names it */
    int *of_reference; /* of each trial: is it one of the reference's? */
};

static const struct ini_section *model_named(const struct ini *ini, const char *name)
{
    for (int i = 0; i < ini->n; i++)
        if (section_is(ini->section[i].name, "model") &&
            strcmp(section_name(&ini->section[i]), name) == 0)
            return &ini->section[i];
    return NULL;
}

/* By its variant or, unless that is 0, by its [model]'s line. */
static int is_reference(const struct trial *t, const char *variant, int model_line)
{
    return model_line ? t->model_line == model_line : *t->variant && !strcmp(t->variant, variant);
}

/* Marks those trials, from one of them on; returns how many there are. */
static int mark(struct matching *m, int model_line, const struct trial **first)
{
    const struct experiment *x = m->p->x;
    int n = 0;

    *first = NULL;
    for (int i = 0; i < x->n; i++) {
        m->of_reference[i] = is_reference(&x->trial[i], m->reference, model_line);
        n += m->of_reference[i];
        if (m->of_reference[i] && !*first)
            *first = &x->trial[i];
    }
    return n;
}

/* Each variant once, behind blanks. */
static void variants_of(const struct experiment *x, char *to, size_t size)
{
    *to = 0;
    for (int i = 0; i < x->n; i++) {
        int known = !*x->trial[i].variant;
        for (int k = 0; k < i && !known; k++)
            known = strcmp(x->trial[k].variant, x->trial[i].variant) == 0;
        if (!known)
            append(to, size, " %s", x->trial[i].variant);
    }
}

/* Nonzero after a fault. */
static int find_reference(struct matching *m)
{
    const struct experiment *x = m->p->x;
    const struct ini_section *model = model_named(m->ini, m->reference);
    const struct trial *first;
    char known[1024];

    if (mark(m, 0, &first))
        return 0;
    if (!model || !mark(m, model->line, &first)) {
        variants_of(x, known, sizeof known);
        plan_fault(m->p, m->line, "reference = %s: the plan has no such variant%s%s", m->reference,
                   *known ? "; it has" : ", as no [trial] names a [model]", known);
        return -1;
    }
    for (int i = 0; i < x->n; i++)
        if (m->of_reference[i] && strcmp(x->trial[i].variant, first->variant) != 0) {
            plan_fault(m->p, m->line,
                       "reference = %s: [%s] is several variants, %s and %s; name one",
                       m->reference, model->name, first->variant, x->trial[i].variant);
            return -1;
        }
    return 0;
}

/* The reference's trial that a trial is compared with; NULL: none. */
static const struct trial *reference_for(const struct matching *m, const struct trial *t)
{
    const struct experiment *x = m->p->x;

    for (int i = 0; i < x->n; i++)
        if (m->of_reference[i] && x->trial[i].type == t->type &&
            training_same_task(&x->trial[i], t))
            return &x->trial[i];
    return NULL;
}

/* ---- a variant ---- */

static const char *name_of(const struct trial *t)
{
    return *t->variant ? t->variant : "a trial without a [model]";
}

/* A trial with another value of its key. */
struct adjusting {
    const struct trial *t;
    enum match match;
    struct call call;
};

static int set_key(struct adjusting *a, int64_t number)
{
    char text[32];

    snprintf(text, sizeof text, "%lld", (long long)number);
    a->call = a->t->call;
    return op_set(&a->call, a->t->adjust, text) || op_complete(&a->call);
}

static int at(void *data, int64_t number, double *quantity)
{
    struct adjusting *a = data;

    return set_key(a, number) || quantity_of(&a->call, a->t->type, a->match, quantity);
}

/* "41 has 2740, 42 has 2801" */
static void nearest_text(const struct nearest_two *two, char *to, size_t size)
{
    const struct nearest_one *both[] = {&two->below, &two->above};
    char number[NUMBER_TEXT];

    *to = 0;
    for (int i = 0; i < 2; i++)
        if (both[i]->there)
            append(to, size, "%s%lld has %s", *to ? ", " : "", (long long)both[i]->number,
                   plain(both[i]->quantity, number));
}

/* The key's value for which it is equal; nonzero after a fault. */
static int adjust(struct matching *m, struct adjusting *a, const struct trial *r, double target)
{
    const struct param *param = op_param(a->t->call.op, a->t->adjust, NULL);
    const struct nearest n = {at,         a,          target,
                              param->min, param->max, DIM(&a->t->call, param->letter)};
    const char *why = param->unless ? param->unless(&a->t->call) : NULL;
    struct nearest_two two;
    char number[NUMBER_TEXT], near[200];

    if (why) {
        plan_fault(m->p, a->t->adjust_line, "adjust = %s: %s", a->t->adjust, why);
        return -1;
    }
    if (nearest_find(&n, &two)) {
        plan_fault(m->p, a->t->adjust_line, "%s", err_text());
        return -1;
    }
    const struct nearest_one *one = nearest_within(&two, target, MATCH_PART);
    if (one)
        return set_key(a, one->number);
    nearest_text(&two, near, sizeof near);
    plan_fault(m->p, a->t->adjust_line, "match = %s: no %s of %s comes within 1 %% of %s's %s; %s",
               match_names[m->match], a->t->adjust, name_of(a->t), name_of(r),
               plain(target, number), near);
    return -1;
}

/* Its call made equal, into a->call; nonzero after a fault. */
static int make_equal(struct matching *m, struct adjusting *a)
{
    const struct trial *t = a->t, *r = reference_for(m, t);
    double own, target;
    char one[NUMBER_TEXT], other[NUMBER_TEXT];

    a->call = t->call;
    if (!r) {
        plan_fault(m->p, m->line, "reference = %s: it has no trial on the task of %s%s%s in %s",
                   m->reference, name_of(t), *t->task ? ", " : "", t->task, types[t->type].name);
        return -1;
    }
    if (quantity_of(&r->call, r->type, m->match, &target) ||
        quantity_of(&t->call, t->type, m->match, &own)) {
        plan_fault(m->p, t->model_line, "%s", err_text());
        return -1;
    }
    if (nearest_is_within(own, target, MATCH_PART))
        return 0;
    if (*t->adjust)
        return adjust(m, a, r, target);
    plan_fault(
        m->p, t->model_line,
        "match = %s: %s has %s, and %s %s, more than 1 %% off: adjust = KEY would say what may "
        "change",
        match_names[m->match], name_of(t), plain(own, one), name_of(r), plain(target, other));
    return -1;
}

/* ---- all of them ---- */

/* Gives a trial the value that another got. */
static int take_value(struct plan *p, struct trial *t, const struct call *from)
{
    const struct param *param = op_param(t->call.op, t->adjust, NULL);
    char text[32], need[NUMBER_TEXT], have[NUMBER_TEXT];

    if (!param || DIM(from, param->letter) == DIM(&t->call, param->letter))
        return 0;
    snprintf(text, sizeof text, "%lld", (long long)DIM(from, param->letter));
    if (op_set(&t->call, t->adjust, text) || op_complete(&t->call) || plan_text(t)) {
        plan_fault(p, t->adjust_line, "%s", err_text());
        return -1;
    }
    const double bytes = p->elsewhere ? 0 : training_memory(t);
    if (bytes > p->available)
        plan_fault(p, t->adjust_line, "with %s = %s %s needs %s of memory, %s are available",
                   t->adjust, text, name_of(t), number_bytes(bytes, need),
                   number_bytes(p->available, have));
    return bytes > p->available;
}

/* Trials that are alike stand one behind the other, but for an outer list: one search serves them. */
static void match_all(struct matching *m)
{
    struct experiment *x = m->p->x;
    struct trial *before = malloc(sizeof *before);
    struct adjusting a = {.t = NULL, .match = m->match};
    int good = 0;

    if (!before) {
        plan_fault(m->p, m->line, "no memory");
        return;
    }
    for (int i = 0; i < x->n; i++) {
        if (m->of_reference[i])
            continue;
        if (!a.t || !training_alike(before, &x->trial[i])) {
            *before = x->trial[i];
            a.t = before;
            good = make_equal(m, &a) == 0;
        }
        if (good)
            take_value(m->p, &x->trial[i], &a.call);
    }
    free(before);
}

void match_models(struct plan *p, const struct ini *ini)
{
    const struct experiment *x = p->x;
    const struct ini_section *s = NULL;
    struct matching m = {.p = p, .ini = ini, .match = (enum match)x->match};

    for (int i = 0; i < ini->n && !s; i++)
        s = section_is(ini->section[i].name, "experiment") ? &ini->section[i] : NULL;
    const struct ini_entry *match = s ? section_entry(s, "match") : NULL,
                           *named = s ? section_entry(s, "reference") : NULL;
    if (named && !match)
        plan_fault(p, named->line,
                   "reference: match = parameters, state or flops compares with it");
    if (!match || m.match == MATCH_NONE)
        return;
    snprintf(m.reference, sizeof m.reference, "%s", *x->reference ? x->reference : x->baseline);
    named = named ? named : section_entry(s, "baseline");
    m.line = named ? named->line : match->line;
    if (x->measure != MEASURE_TRAIN)
        plan_fault(p, match->line, "match: only measure = train has models that are made equal");
    else if (!p->file)
        plan_fault(p, match->line, "match: words have no [model]s that could be made equal");
    else if (!*m.reference)
        plan_fault(p, match->line,
                   "match = %s needs reference = MODEL, which the others are made "
                   "equal to",
                   match_names[m.match]);
    if (p->n_faults)
        return;
    m.of_reference = calloc(x->n, sizeof *m.of_reference);
    if (!m.of_reference)
        plan_fault(p, match->line, "no memory");
    else if (!find_reference(&m))
        match_all(&m);
    free(m.of_reference);
}
