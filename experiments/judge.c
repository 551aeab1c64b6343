/* run-ablation judge (judge.h): each trial of a dump, by the library's own functions. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/api/api.h"
#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/grow.h"
#include "common/base/h5.h"
#include "common/report/report.h"
#include "common/store/check_rows.h"
#include "common/store/header.h"
#include "experiments/begin.h"
#include "experiments/judge.h"
#include "experiments/unchanged.h"

enum { GOOD = 0, CHECK_FAILED = 1, BAD_INPUT = 2, INTERRUPTED = 130 };
enum { MAX_GIVEN = MAX_RAN - YARDSTICK - 1, MAX_NAME = 48, MAX_PATH = 200 };

/* The programs whose results a trial has. */
struct names {
    char name[MAX_GIVEN][MAX_NAME];
    int n;
};

/* Of a program's results in all trials of an operation, which were given, and which judged, be it well
 * or ill; [1]: gradients. */
struct tally {
    const struct op *op;
    const char *name;
    unsigned char given[2][MAX_ARGS], judged[2][MAX_ARGS];
};

/* A trial that is being judged. */
struct judging {
    const struct judge_words *w;
    const volatile int *stop;
    struct report *report;
    const struct names *all; /* the programs that gave results of any trial */
    const struct note *note; /* of each trial, what could not be checked */
    int missing, unchecked;  /* of all trials */
    struct tally *tally;     /* of each operation and program */
    int n_tallies;
    struct result r;
    abl_case *c;
    abl_result *given[MAX_GIVEN];
    abl_verdicts *verdicts[MAX_GIVEN];
    struct tensors set[MAX_GIVEN]; /* of each, what it gave; the result owns it */
};

/* ---- what is in the dump ---- */

static void path_of(int i, const char *name, char path[MAX_PATH])
{
    snprintf(path, MAX_PATH, "/trial/%04d%s%s", i + 1, *name ? "/" : "", name);
}

/* The text of an attribute: its length, -2 where there is none, -1 after err_set(). */
static int64_t text_of(const abl_dump *d, const char *path, const char *name, char *text,
                       size_t size)
{
    struct abl_attribute a;
    int64_t n;

    for (int k = 0; (n = abl_dump_attribute(d, path, k, &a, text, (int64_t)size)) >= 0; k++)
        if (a.type == ABL_TEXT && strcmp(a.name, name) == 0)
            break;
    return n;
}

/* ---- whose a group is ---- */

/* Was it written with a backend's results?  -1 after err_set(). */
static int is_backends(const abl_dump *d, const char *path)
{
    char text[MAX_NAME];
    const int64_t n = text_of(d, path, "kernel", text, sizeof text);
    return n == -1 ? -1 : n >= 0;
}

/* Is it a tensor that every program is given, in the group in, dout or dinit? */
static int is_given(const struct call *f, const char *group, const struct abl_member *m)
{
    const int initial = strcmp(group, "dinit") == 0;
    const unsigned flags = strcmp(group, "in") == 0 ? IN : (initial ? IN : OUT) | DIFF;

    for (int i = 0; m->kind == ABL_DATASET && i < f->op->n_args; i++) {
        const struct arg *a = &f->op->arg[i];
        if ((strcmp(a->name, m->name) == 0 || (a->was && strcmp(a->was, m->name) == 0)) &&
            (a->flags & flags) == flags && (!initial || call_accumulates(f, i)))
            return 1;
    }
    return 0;
}

/* The members of a group that ablate wrote: those that it is given, or a sample's backends. */
static int check_members(const abl_dump *d, const char *file, const char *path, const char *name,
                         const struct call *f)
{
    const int sample = strcmp(name, "sample") == 0;
    struct abl_member m;
    int e;

    for (int k = 0; (e = abl_dump_member(d, path, k, &m)) == 0; k++) {
        char inner[MAX_PATH + sizeof m.name];
        snprintf(inner, sizeof inner, "%s/%s", path, m.name);
        const int own =
            !sample ? is_given(f, name, &m) : m.kind == ABL_GROUP && is_backends(d, inner);
        if (!own)
            return err_set("%s: %s: the group %s is ablate's own; results belong into another",
                           file, inner, name);
    }
    return e < 0 ? -1 : 0;
}

/* A group that has a name of ablate's own is ablate's: another program's results in it would not be
 * judged.  Nonzero after err_set(). */
static int check_own(const abl_dump *d, const char *file, const char *path, const char *name,
                     const struct call *f)
{
    static const char *const groups[] = {"in", "dout", "dinit", "sample"};

    for (size_t i = 0; i < COUNT(groups); i++)
        if (strcmp(name, groups[i]) == 0)
            return check_members(d, file, path, name, f);
    const int own = backend_find(name) ? is_backends(d, path) : 0;
    return own > 0 ? 0
           : own < 0
               ? -1
               : err_set("%s: %s: this name is ablate's own; give the results another", file, path);
}

/* The groups of a trial that are another program's; or that of `as`, if it is there.  Nonzero after
 * err_set(): one of them cannot be judged. */
static int find_names(const struct judge_words *w, const abl_dump *d, int i, const struct trial *t,
                      struct names *to)
{
    struct abl_member m;
    char path[MAX_PATH], inner[MAX_PATH];
    int e;

    to->n = 0;
    path_of(i, "", path);
    if (!w->as && dump_unseen(d, path))
        return -1;
    for (int k = 0; (e = abl_dump_member(d, path, k, &m)) == 0; k++) {
        if (m.kind != ABL_GROUP || (w->as && strcmp(m.name, w->as) != 0))
            continue;
        path_of(i, m.name, inner);
        if (name_is_taken(m.name)) {
            if (check_own(d, w->file, inner, m.name, &t->call))
                return -1;
            continue;
        }
        if (to->n == MAX_GIVEN || strlen(m.name) >= MAX_NAME)
            return err_set("%s: %s: more than %d programs, or a name of more than %d characters",
                           path, m.name, MAX_GIVEN, MAX_NAME - 1);
        strcpy(to->name[to->n++], m.name);
    }
    return e < 0 ? -1 : 0;
}

/* Datasets of a program's group that are no results of the operation. */
static int note_strangers(struct judging *j, const abl_dump *d, int i, const char *name, int grad)
{
    const struct call *f = &j->c->trial.call;
    struct abl_member m;
    char path[MAX_PATH], why[MAX_PATH + 80];
    int e;

    path_of(i, name, path);
    if (grad)
        snprintf(path + strlen(path), sizeof path - strlen(path), "/d");
    for (int k = 0; (e = abl_dump_member(d, path, k, &m)) == 0; k++) {
        const int arg = op_arg(f->op, m.name);
        if (m.kind != ABL_DATASET || (arg >= 0 && op_results(f, arg, grad)))
            continue;
        snprintf(why, sizeof why, "%s%s is no %s of %s", grad ? "d/" : "", m.name,
                 grad ? "gradient" : "result", f->op->name);
        result_skip(&j->r, name, why);
    }
    return e < 0 ? -1 : 0;
}

static int has_gradients(const abl_dump *d, int i, const char *name)
{
    struct abl_member m;
    char path[MAX_PATH];

    path_of(i, name, path);
    for (int k = 0; abl_dump_member(d, path, k, &m) == 0; k++)
        if (m.kind == ABL_GROUP && strcmp(m.name, "d") == 0)
            return 1;
    return 0;
}

/* NULL after err_set(), and of NULL. */
static char *copy_of(const char *text)
{
    char *copy = text ? strdup(text) : NULL;
    return !text || copy ? copy : err_null("no memory for a text");
}

enum { MAX_WORD = 64 };

/* The first name of a list between commas, without the blanks around it; returns the list behind it, or NULL. */
static const char *first_name(const char *list, char name[MAX_WORD])
{
    const char *end = list + strcspn(list, ","), *from = list + strspn(list, " \t");
    int n = from < end ? (int)(end - from) : 0;

    while (n && (from[n - 1] == ' ' || from[n - 1] == '\t'))
        n--;
    snprintf(name, MAX_WORD, "%.*s", n, from);
    return *end ? end + 1 : NULL;
}

static int is_listed(const char *list, const char *name)
{
    char listed[MAX_WORD];

    while (list) {
        list = first_name(list, listed);
        if (strcmp(listed, name) == 0)
            return 1;
    }
    return 0;
}

/* Words of --partial. */
static const char TRIALS[] = "trials", GRADIENTS[] = "gradients", UNCHECKED[] = "unchecked";

/* May it be absent, and be given and not be judged? */
static int is_partial(const struct judging *j, const char *tensor, int grad)
{
    return is_listed(j->w->partial, tensor) || (grad && is_listed(j->w->partial, GRADIENTS));
}

/* Something of a program is not there: skipped where it may be absent, else missing. */
static void note_absent(struct judging *j, const char *name, const char *why, int may_be)
{
    if (may_be)
        result_skip(&j->r, name, why);
    else
        result_miss(&j->r, name, why);
}

/* Results that it did not give: saved tensors are its own affair. */
static void note_missing(struct judging *j, const abl_result *g, const char *name)
{
    char tensor[32], why[80];

    FOR_RESULTS (&g->call, a, grad) {
        if (!(g->call.op->arg[a].flags & (IN | OUT)) || X_OR_G(g->has, a, grad))
            continue;
        tensor_name(g->call.op, a, grad, tensor);
        snprintf(why, sizeof why, "%s is not given", tensor);
        note_absent(j, name, why, is_partial(j, tensor, grad));
    }
}

static int has_name(const struct names *names, const char *name)
{
    for (int k = 0; k < names->n; k++)
        if (strcmp(names->name[k], name) == 0)
            return 1;
    return 0;
}

/* Programs that gave results of another trial, and none of this one. */
static void note_left_out(struct judging *j, const struct names *names)
{
    for (int k = 0; k < j->all->n; k++)
        if (!has_name(names, j->all->name[k]))
            note_absent(j, j->all->name[k], "the trial has no results of it",
                        is_listed(j->w->partial, TRIALS));
}

/* What unchanged() said of trial i. */
static void note_dump(struct judging *j, int i)
{
    const struct note *n = &j->note[i];
    const char *const text[] = {n->plan, n->inputs};
    const int unchecked[] = {1, n->inputs_unchecked};

    for (int k = 0; k < 2; k++)
        if (*text[k] && unchecked[k] && !is_listed(j->w->partial, UNCHECKED))
            result_uncheck(&j->r, "the dump", text[k]);
        else if (*text[k])
            result_skip(&j->r, "the dump", text[k]);
}

/* ---- a trial ---- */

/* The results of each program; nonzero after err_set(). */
static int read_given(struct judging *j, int i, const struct names *names)
{
    char path[MAX_PATH];

    for (int k = 0; k < names->n; k++) {
        path_of(i, names->name[k], path);
        j->given[k] = abl_result_new(j->c, names->name[k]);
        if (!j->given[k] || abl_result_read(j->given[k], j->w->file, path))
            return -1;
    }
    return 0;
}

/* The first of n programs that declares a rounding, or the first. */
static const abl_result *declaring(const struct judging *j, int n)
{
    for (int k = 0; k < n; k++)
        if (strstr(j->given[k]->call.kernel->name, "rounds"))
            return j->given[k];
    return j->given[0];
}

/* What would pass as the outputs and gradients that every program gave, where there are any. */
static int ask_passing(struct judging *j, int n)
{
    const struct call *f = &j->c->trial.call;
    char all[MAX_ARGS * 2 * 33] = "", name[32];

    FOR_RESULTS (f, a, grad) {
        int by_all = grad || f->op->arg[a].flags & OUT;
        for (int k = 0; k < n; k++)
            by_all = by_all && X_OR_G(j->given[k]->has, a, grad);
        tensor_name(f->op, a, grad, name);
        if (by_all)
            append(all, sizeof all, "%s%s", *all ? " " : "", name);
    }
    return *all && !(j->r.passing = copy_of(abl_passing(j->c, all, declaring(j, n)))) ? -1 : 0;
}

enum { TELLING = 16 };

/* Has a result the oracle's bits in every element, of which so many are no float that its program cannot
 * have computed them in its type?  It was copied, or computed in double and not rounded. */
static int is_oracles(const double *x, const double *oracle, int64_t n)
{
    int64_t wide = 0;

    if (!same_bits(x, oracle, n))
        return 0;
    for (int64_t i = 0; i < n && wide < TELLING; i++)
        wide += x[i] != (double)(float)x[i] && x[i] == x[i];
    return wide == TELLING;
}

/* Nonzero after err_set(): a result of program k is one of these. */
static int refuse_oracles(const struct judging *j, int k)
{
    const abl_result *g = j->given[k];
    const struct call *f = &g->call;
    const struct tensors *oracle = j->c->answer->truth.oracle;
    char tensor[32];

    if (!oracle || j->c->trial.type == F64)
        return 0;
    FOR_RESULTS (f, a, grad) {
        const double *x = X_OR_G(g->has, a, grad) ? tensors_result(g->t, a, grad) : NULL;
        const double *y = tensors_result(oracle, a, grad);
        const enum dtype type = (enum dtype)(grad ? f->grad_type[a] : f->type[a]);
        if (!x || !y || !(f->op->arg[a].flags & (IN | OUT)) || types[type].unit == 0 ||
            !is_oracles(x, y, op_count(f, a)))
            continue;
        tensor_name(f->op, a, grad, tensor);
        return err_set("%s: %s has the bits of ref64, which %s cannot hold: give the values that "
                       "your program has, and store those computed in double rounded to %s",
                       g->name, tensor, types[type].name, types[type].name);
    }
    return 0;
}

/* The verdicts on one program; nonzero after err_set(). */
static int judge_one(struct judging *j, const abl_dump *d, int i, const char *name)
{
    const int k = j->r.n_ran - YARDSTICK - 1;
    abl_result *g = j->given[k];

    j->r.n_ran++;
    if (!(j->verdicts[k] = abl_judge_result(j->c, g)) || refuse_oracles(j, k))
        return -1;
    for (int a = 0; a < MAX_ARGS; a++) {
        j->set[k].x[a] = g->has.x[a] ? g->t->x[a] : NULL;
        j->set[k].g[a] = g->has.g[a] ? g->t->g[a] : NULL;
        j->set[k].b[a] = g->has.x[a] ? g->t->b[a] : NULL;
    }
    j->r.ran[j->r.n_ran - 1] = (struct ran){.call = g->call, .name = g->name, .t = &j->set[k]};
    note_missing(j, g, name);
    return note_strangers(j, d, i, name, 0) ||
                   (has_gradients(d, i, name) && note_strangers(j, d, i, name, 1))
               ? -1
               : 0;
}

/* All verdicts as one list, which is to be freed. */
static int join(struct judging *j, int n)
{
    struct verdicts *all = &j->r.verdicts;

    for (int k = 0; k < n; k++)
        all->n += abl_count(j->verdicts[k]);
    if (!(all->v = calloc((size_t)all->n + 1, sizeof *all->v)))
        return err_set("no memory for verdicts");
    for (int k = 0, at = 0; k < n; at += abl_count(j->verdicts[k++]))
        memcpy(all->v + at, j->verdicts[k]->list.v,
               (size_t)abl_count(j->verdicts[k]) * sizeof *all->v);
    j->r.failed = verdicts_failed(all, 0);
    return 0;
}

static void end_trial(struct judging *j)
{
    for (int k = 0; k < MAX_GIVEN; k++) {
        abl_result_free(j->given[k]);
        abl_verdicts_free(j->verdicts[k]);
        j->given[k] = NULL;
        j->verdicts[k] = NULL;
    }
    free(j->r.verdicts.v);
    free(j->r.passing);
    abl_case_free(j->c);
}

/* Nonzero after err_set(): it could not be judged. */
static int judge_named(struct judging *j, const struct trial *t, int i, const struct names *names)
{
    char path[MAX_PATH];
    abl_dump *d = abl_dump_open(j->w->file);
    int e = !d;

    j->r = (struct result){.trial = t};
    result_no_references(&j->r);
    path_of(i, "", path);
    if (!e && names->n)
        e = !(j->c = abl_case_read(j->w->file, path));
    e = e || read_given(j, i, names);
    if (!e && names->n && j->w->verbose)
        e = ask_passing(j, names->n);
    for (int k = 0; !e && k < names->n; k++)
        e = judge_one(j, d, i, names->name[k]);
    abl_dump_free(d);
    note_left_out(j, names);
    note_dump(j, i);
    if (!e && names->n) {
        j->r.ran[ORACLE].t = j->c->answer->truth.oracle;
        j->r.ran[YARDSTICK].t = j->c->answer->truth.yard;
        e = result_round_trips(&j->r, j->c->answer->inputs, j->stop) || join(j, names->n);
    }
    return e ? -1 : 0;
}

/* ---- all of them ---- */

/* A trial of the dump in words, as judge_named() reads it, or nonzero after err_set(). */
static int read_trial(const abl_dump *d, int i, struct trial *t)
{
    char path[MAX_PATH], line[MAX_LINE];

    path_of(i, "", path);
    const int64_t n = text_of(d, path, "line", line, sizeof line);
    if (n < 0)
        return n == -1 ? -1 : err_set("%s has no attribute line", path);
    return n >= (int64_t)sizeof line ? err_set("%s: its line is too long", path)
                                     : line_read(line, t);
}

/* Adds the names that are not among them; nonzero after err_set(). */
static int add_names(struct names *all, const struct names *more)
{
    for (int k = 0; k < more->n; k++) {
        if (has_name(all, more->name[k]))
            continue;
        if (all->n == MAX_GIVEN)
            return err_set("results of more than %d programs", MAX_GIVEN);
        strcpy(all->name[all->n++], more->name[k]);
    }
    return 0;
}

/* All trials of the dump, and who gave results of each. */
static int read_trials(const struct judge_words *w, struct experiment *x, struct names **names,
                       struct names *all)
{
    abl_dump *d = abl_dump_open(w->file);
    struct abl_member m;
    int e = !d;

    while (!e && abl_dump_member(d, "/trial", x->n, &m) == 0)
        x->n++;
    if (!e && (!(x->trial = calloc((size_t)x->n + 1, sizeof *x->trial)) ||
               !(*names = calloc((size_t)x->n + 1, sizeof **names))))
        e = err_set("no memory for %d trials", x->n);
    struct program_texts texts = {0, NULL};
    const hid_t file = e ? -1 : header_open(w->file);
    e = e || file < 0 || header_programs(file, &texts);
    const struct program_texts *before = program_texts_use(&texts);
    for (int i = 0; !e && i < x->n; i++) {
        struct names *its = &(*names)[i];
        e = read_trial(d, i, &x->trial[i]) || find_names(w, d, i, &x->trial[i], its) ||
            add_names(all, its);
    }
    program_texts_use(before);
    program_texts_free(&texts);
    if (file >= 0)
        H5Fclose(file);
    abl_dump_free(d);
    if (!e && !all->n)
        e = w->as ? err_set("%s: no trial has results of %s, a group /trial/NNNN/%s", w->file,
                            w->as, w->as)
                  : err_set("%s: no trial has results of another program, a group "
                            "/trial/NNNN/NAME",
                            w->file);
    return e ? -1 : 0;
}

/* NULL after err_set(). */
static struct tally *tally_of(struct judging *j, const struct op *o, const char *name)
{
    for (int k = 0; k < j->n_tallies; k++)
        if (j->tally[k].op == o && strcmp(j->tally[k].name, name) == 0)
            return &j->tally[k];
    struct tally *more = grow(j->tally, j->n_tallies, sizeof *more);
    if (!more)
        return err_null("no memory for the results of %d programs", j->n_tallies + 1);
    j->tally = more;
    more[j->n_tallies] = (struct tally){.op = o, .name = name};
    return &more[j->n_tallies++];
}

/* Was that result judged, in any of these verdicts? */
static int has_verdict(const abl_verdicts *verdicts, const char *tensor)
{
    for (int i = 0; i < verdicts->list.n; i++)
        if (!verdicts->list.v[i].unjudged && strcmp(verdicts->list.v[i].tensor, tensor) == 0)
            return 1;
    return 0;
}

/* Counts the results of a trial that was judged; nonzero after err_set(). */
static int count_results(struct judging *j, const struct names *names)
{
    char tensor[32];

    for (int k = 0; k < names->n; k++) {
        const abl_result *g = j->given[k];
        const struct op *o = g->call.op;
        struct tally *t = tally_of(j, o, names->name[k]);
        if (!t)
            return -1;
        FOR_RESULTS (&g->call, a, grad) {
            if (!(o->arg[a].flags & (IN | OUT)) || !X_OR_G(g->has, a, grad))
                continue;
            tensor_name(o, a, grad, tensor);
            t->given[grad][a] = 1;
            t->judged[grad][a] |= has_verdict(j->verdicts[k], tensor);
        }
    }
    return 0;
}

/* The verdicts take the place of all earlier ones on the same programs, whoever wrote them. */
static int keep_verdicts(const struct judging *j, int i, const struct verdicts *list)
{
    const char *name[MAX_GIVEN];

    for (int k = 0; k < j->all->n; k++)
        name[k] = j->all->name[k];
    return checks_add(j->w->file, i, list, &(struct programs){name, j->all->n});
}

/* Nonzero: an error, which is in the report.  Nothing is kept of a trial in which an early end was asked
 * for: it may be judged in part. */
static int judge_and_keep(struct judging *j, const struct trial *t, int i,
                          const struct names *names)
{
    int e = judge_named(j, t, i, names);

    if (*j->stop)
        return 0;
    if (!e) {
        report_trial(j->report, i, &j->r);
        e = count_results(j, names) || keep_verdicts(j, i, &j->r.verdicts);
    } else {
        report_error(j->report, i, err_text());
        return keep_verdicts(j, i, &(struct verdicts){.n = 0}), 1;
    }
    if (e)
        report_error(j->report, i, err_text());
    return e != 0;
}

/* Of each trial, how many results of other programs were judged, be it well or ill. */
static int count_judged(const struct result *r)
{
    return r->verdicts.n - verdicts_unjudged(&r->verdicts, 0);
}

/* A result that no trial could judge has not passed, unless it may be absent; returns how many of
 * the operation there are. */
static int note_results(const struct judging *j, const struct op *o)
{
    char tensor[32];
    int n = 0;

    for (const struct tally *t = j->tally; t < j->tally + j->n_tallies; t++)
        for (int i = 0; t->op == o && i < 2 * o->n_args; i++) {
            const int grad = i >= o->n_args, a = i % o->n_args;
            tensor_name(o, a, grad, tensor);
            if (!t->given[grad][a] || t->judged[grad][a] || is_partial(j, tensor, grad))
                continue;
            report_note(j->report, "%s: %s of %s could not be judged in any trial: that is no pass",
                        o->name, tensor, t->name);
            n++;
        }
    return n;
}

/* Nor has an operation none of whose results was judged; returns how many lines that takes. */
static int note_unjudged(const struct judging *j, const struct experiment *x, const int *judged)
{
    int n = 0;

    for (int i = 0; i < x->n; i++) {
        const struct op *o = x->trial[i].call.op;
        int first = 1, sum = 0;
        for (int k = 0; k < x->n; k++)
            if (x->trial[k].call.op == o) {
                first = first && k >= i;
                sum += judged[k];
            }
        const int results = first ? note_results(j, o) : 0;
        n += results;
        if (!first || sum || results)
            continue;
        report_note(j->report, "%s: no result of it was judged: that is no pass", o->name);
        n++;
    }
    return n;
}

static int judge_trials(struct judging *j, const struct experiment *x, const struct names *names)
{
    int errors = 0, *judged = calloc((size_t)x->n + 1, sizeof *judged);

    if (!judged)
        return err_set("no memory for %d trials", x->n), BAD_INPUT;
    report_head_judged(j->report, j->w->file, j->w->as);
    for (int i = 0; i < x->n && !*j->stop; i++) {
        const int e = judge_and_keep(j, &x->trial[i], i, &names[i]);
        judged[i] = e ? 1 : count_judged(&j->r); /* an error is reported as one */
        j->missing += j->r.missing;
        j->unchecked += j->r.unchecked;
        errors += e;
        end_trial(j);
        j->c = NULL;
    }
    const int none = *j->stop ? 0 : note_unjudged(j, x, judged);
    const int failed = report_end(j->report, j->w->file, *j->stop);
    free(judged);
    return *j->stop                                       ? INTERRUPTED
           : errors                                       ? BAD_INPUT
           : failed || none || j->missing || j->unchecked ? CHECK_FAILED
                                                          : GOOD;
}

/* Is it a result of an operation in the dump? */
static int is_result(const struct experiment *x, const char *name)
{
    for (int i = 0; i < x->n; i++) {
        const struct call *f = &x->trial[i].call;
        int grad;
        const int arg = tensor_find(f->op, name, &grad);
        if (arg >= 0 && op_results(f, arg, grad))
            return 1;
    }
    return 0;
}

static int is_word(const char *name)
{
    return strcmp(name, TRIALS) == 0 || strcmp(name, GRADIENTS) == 0 ||
           strcmp(name, UNCHECKED) == 0;
}

/* The words of --partial name something.  Nonzero after err_set(). */
static int check_partial(const struct judge_words *w, const struct experiment *x)
{
    char name[MAX_WORD];

    for (const char *at = w->partial; at;) {
        at = first_name(at, name);
        if (!*name)
            return err_set("--partial '%s': a name is empty; it takes names as d_x, and the words "
                           "%s, %s and %s",
                           w->partial, GRADIENTS, TRIALS, UNCHECKED);
        if (!is_word(name) && !is_result(x, name))
            return err_set("--partial %s: the dump has no such result; it takes names as d_x, and "
                           "the words %s, %s and %s",
                           name, GRADIENTS, TRIALS, UNCHECKED);
    }
    return 0;
}

/* A name that `--as` cannot have. */
static int check_words(const struct judge_words *w)
{
    if (w->as && name_is_taken(w->as))
        return err_set("--as %s: that group is ablate's own", w->as);
    if (access(w->file, F_OK) == 0 && access(w->file, W_OK))
        return err_set("%s cannot be written, and the verdicts belong into it", w->file);
    char holder[FILE_HOLDER];
    if (!file_unreadable(w->file) && file_is_locked(w->file, 1, H5_PATIENCE))
        return err_set("%s: %s has it open, and the verdicts belong into it", w->file,
                       file_holder(w->file, holder));
    return 0;
}

/* The dump is what it was but for results, and here are its trials and these.  Nonzero: after err_set(),
 * or stopped. */
static int read_dump(struct judging *j, struct experiment *x, struct names **names,
                     struct names *all)
{
    int n;

    if (check_words(j->w) || !(j->note = unchanged(j->w->file, &n, j->stop)))
        return -1;
    j->all = all;
    return read_trials(j->w, x, names, all) || check_partial(j->w, x);
}

static int judge_dump(struct judging *j, struct experiment *x, const struct names *names)
{
    const struct judge_words *w = j->w;
    int status = BAD_INPUT;

    abl_stop_when(j->stop);
    j->report =
        report_new(x, stdout, (w->tsv ? REPORT_TSV : 0) | (w->verbose ? REPORT_VERBOSE : 0));
    if (j->report) {
        status = judge_trials(j, x, names);
        err_set("%s", ""); /* each error is in the report */
    }
    abl_stop_when(NULL);
    report_free(j->report);
    return status;
}

int judge_command(const struct judge_words *w, const volatile int *stop)
{
    struct experiment x = {
        .name = "judge", .device = -1, .checks = CHECK_PARITY, .contexts = process_contexts()};
    struct names *names = NULL, *all = calloc(1, sizeof *all);
    struct judging *j = calloc(1, sizeof *j); /* large for the stack */
    int status = BAD_INPUT;

    if (!j || !all) {
        err_set("no memory for a result");
    } else {
        j->w = w;
        j->stop = stop;
        if (!read_dump(j, &x, &names, all))
            status = judge_dump(j, &x, names);
        else if (*stop)
            status = INTERRUPTED;
        free((void *)j->note);
    }
    free(names);
    free(x.trial);
    free(all);
    if (j)
        free(j->tally);
    free(j);
    return status;
}
