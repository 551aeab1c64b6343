/* The variants of a plan by their names (variants.h). */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/guess.h"
#include "common/plan/training.h"
#include "common/plan/variants.h"
#include "common/train/cell.h"

/* ---- names ---- */

const char *variant_named(const struct experiment *x, const char *name)
{
    const char *found = "";
    int n = 0;

    for (int i = 0; i < x->n; i++)
        if (strcmp(x->trial[i].variant, name) == 0)
            return x->trial[i].variant;
    for (int i = 0; i < x->n; i++)
        if (strcmp(x->trial[i].model, name) == 0 && strcmp(x->trial[i].variant, found) != 0) {
            found = x->trial[i].variant;
            n++;
        }
    return n == 1 ? found : "";
}

/* Why that name is no variant's, for err_set(). */
static int no_variant(const struct experiment *x, const char *name)
{
    struct guess g = {name, NULL, 0};
    const char *of_model[2] = {"", ""};
    int n = 0;

    for (int i = 0; i < x->n; i++) {
        guess_among(&g, x->trial[i].variant);
        if (strcmp(x->trial[i].model, name) == 0 && n < 2 &&
            strcmp(x->trial[i].variant, of_model[0]) != 0)
            of_model[n++] = x->trial[i].variant;
    }
    if (n == 2)
        return err_set("[model %s] has several variants: name one, as %s or %s", name, of_model[0],
                       of_model[1]);
    return g.best ? err_set("no [trial] has a variant %s; did you mean '%s'?", name, g.best)
                  : err_set("no [trial] has a variant %s", name);
}

/* A name from *at on, up to one of `ends`, which is left; as a variant's, or NULL after err_set(). */
static const char *take_name(const struct experiment *x, const char **at, const char *ends)
{
    char name[128];
    size_t n;

    *at += strspn(*at, " \t\n");
    n = strcspn(*at, ends);
    const char *end = *at + n;
    while (n && strchr(" \t\n", (*at)[n - 1]))
        n--;
    snprintf(name, sizeof name, "%.*s", (int)n, *at);
    *at = end;
    if (!*name)
        return err_null("a name is missing");
    const char *v = variant_named(x, name);
    if (*v)
        return v;
    no_variant(x, name);
    return NULL;
}

/* The next pair of `compare`, as the names of variants of x, from *at on; 0 at the end, -1 after err_set(). */
struct variant_pair {
    const char *a, *b;
};
static int variants_pair(const struct experiment *x, const char **at, struct variant_pair *to)
{
    if (!**at)
        return 0;
    if (!(to->a = take_name(x, at, ":,")))
        return -1;
    if (**at != ':')
        return err_set("a pair is A : B; there is no ':' behind %s", to->a);
    ++*at;
    if (!(to->b = take_name(x, at, ":,")))
        return -1;
    if (**at == ':')
        return err_set("a pair is A : B; there is a second ':' behind %s", to->b);
    if (strcmp(to->a, to->b) == 0)
        return err_set("%s : %s compares it with itself", to->a, to->b);
    *at += **at == ',';
    return 1;
}

/* ---- cells ---- */

static void refuse_run_twice(struct plan *p, const struct trial *a, const struct trial *b)
{
    const double one = cell_rate(&a->call), other = cell_rate(&b->call);

    if (a->seed != b->seed)
        return;
    if (one == other)
        plan_fault(p, b->line, "%s on %s: its run of seed %" PRIu64 " is there twice", b->variant,
                   b->task, b->seed);
    else if (cell_waits(&a->call) || cell_waits(&b->call))
        plan_fault(p, b->line, "%s on %s: seed %" PRIu64 " is to confirm, and searches, too",
                   b->variant, b->task, b->seed);
}

/* Nonzero: they are. */
static int refuse_mixed(struct plan *p, const struct trial *first, const struct trial *t)
{
    const char *what = training_difference(first, t);

    if (what && first->line != t->line)
        plan_fault(p, t->line,
                   "%s on %s has another %s than in the [trial] of line %d: one of them needs "
                   "another name",
                   t->variant, t->task, what, first->line);
    else if (what)
        plan_fault(p, t->line,
                   "two models or tasks are called %s on %s, which differ in %s: rename one",
                   t->variant, t->task, what);
    return what != NULL;
}

/* Each trial with those of its cell before it. */
static void check_cells(struct plan *p)
{
    const struct experiment *x = p->x;
    int *before =
        malloc(((size_t)x->n + 1) * sizeof *before); /* the one of its cell before it, or -1 */

    if (!before) {
        plan_fault(p, 0, "no memory for %d trials", x->n);
        return;
    }
    for (int i = 0; i < x->n; i++) {
        const struct trial *t = &x->trial[i];
        before[i] = i - 1;
        while (before[i] >= 0 && (strcmp(x->trial[before[i]].variant, t->variant) != 0 ||
                                  strcmp(x->trial[before[i]].task, t->task) != 0))
            before[i]--;
        const int mixed = before[i] >= 0 && refuse_mixed(p, &x->trial[before[i]], t);
        for (int k = before[i]; !mixed && k >= 0; k = before[k])
            refuse_run_twice(p, &x->trial[k], t);
    }
    free(before);
}

/* ---- the keys of [experiment] ---- */

static const struct ini_entry *entry_of(const struct ini *ini, const char *key)
{
    const struct ini_entry *e = NULL;

    for (int i = 0; !e && i < ini->n; i++)
        if (ini->section[i].name && strcmp(ini->section[i].name, "experiment") == 0)
            e = section_entry(&ini->section[i], key);
    return e;
}

static void check_baseline(struct plan *p, const struct ini_entry *e)
{
    struct experiment *x = p->x;

    if (*variant_named(x, x->baseline))
        snprintf(x->baseline, sizeof x->baseline, "%s", variant_named(x, x->baseline));
    else if (no_variant(x, x->baseline))
        plan_fault(p, e->line, "baseline = %s: %s", x->baseline, err_text());
}

/* In either direction, in "a : b, c : d". */
static int has_pair(const char *pairs, const struct variant_pair *pair)
{
    char all[4096], either[2][300];

    snprintf(all, sizeof all, ", %s,", pairs);
    snprintf(either[0], sizeof either[0], ", %s : %s,", pair->a, pair->b);
    snprintf(either[1], sizeof either[1], ", %s : %s,", pair->b, pair->a);
    return strstr(all, either[0]) || strstr(all, either[1]);
}

static void check_pairs(struct plan *p, const struct ini_entry *e)
{
    const char *at = p->x->compare;
    char pairs[2 * sizeof p->x->compare] = "";
    struct variant_pair pair = {.a = NULL};
    int more;

    while ((more = variants_pair(p->x, &at, &pair)) > 0) {
        if (has_pair(pairs, &pair)) {
            plan_fault(p, e->line, "compare: %s : %s is there twice", pair.a, pair.b);
            return;
        }
        append(pairs, sizeof pairs, "%s%s : %s", *pairs ? ", " : "", pair.a, pair.b);
    }
    if (more < 0)
        plan_fault(p, e->line, "compare: %s", err_text());
    else if (strlen(pairs) >= sizeof p->x->compare)
        plan_fault(p, e->line, "compare: its pairs are longer than %zu characters",
                   sizeof p->x->compare - 1);
    else
        strcpy(p->x->compare, pairs);
}

void variants_check(struct plan *p, const struct ini *ini)
{
    static const char *const keys[] = {"baseline", "compare", "margin"};
    const struct ini_entry *baseline = entry_of(ini, keys[0]), *compare = entry_of(ini, keys[1]);
    const int faults = p->n_faults;

    for (int i = 0; i < (int)COUNT(keys); i++) {
        const struct ini_entry *e = entry_of(ini, keys[i]);
        if (e && (p->x->measure != MEASURE_TRAIN || !p->file))
            plan_fault(p, e->line, "%s: only an ini of measure = train compares variants", e->key);
    }
    for (int i = 0; p->x->measure == MEASURE_TRAIN && !p->file && i < p->x->n; i++)
        if (cell_waits(&p->x->trial[i].call))
            plan_fault(p, 0, "lr = " BEST_RATE ": no search has found it; give a rate");
    if (p->x->measure != MEASURE_TRAIN || !p->file || p->n_faults > 0)
        return;
    check_cells(p);
    if (baseline && compare)
        plan_fault(p, compare->line, "compare beside baseline: give one of them");
    if (p->n_faults == faults && baseline)
        check_baseline(p, baseline);
    if (p->n_faults == faults && compare)
        check_pairs(p, compare);
}
