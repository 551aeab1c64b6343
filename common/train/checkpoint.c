/* Checkpoints of unfinished runs (checkpoint.h).
 *
 * Every value is passed by one call, by which it is written and read: nothing can be kept and not be read back. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/fnv.h"
#include "common/base/grow.h"
#include "common/base/record.h"
#include "common/ops/examples.h"
#include "common/train/checkpoint.h"
#include "common/train/running.h"

enum { FORMAT = 2, BEFORE = 8, SENTENCE = CHECKPOINT_LINE + 1200 };

/* ---- whose it is ---- */

static void pass_format(struct record *k)
{
    int64_t format = FORMAT;

    record_int(k, &format);
    if (format != FORMAT) {
        err_set("is of format %lld; this version reads %d", (long long)format, FORMAT);
        record_refuse(k);
    }
}

static void pass_of(struct record *k, struct checkpoint_of *o)
{
    pass_format(k);
    record_text(k, o->plan, sizeof o->plan);
    record_text(k, o->line, sizeof o->line);
    record_text(k, o->corpus, sizeof o->corpus);
    record_text(k, o->seed, sizeof o->seed);
    record_text(k, o->backend, sizeof o->backend);
    record_text(k, o->device, sizeof o->device);
    record_text(k, o->build, sizeof o->build);
}

static void say(const struct checkpoints *c, const char *line)
{
    if (c->say)
        c->say(line, c->data);
}

/* The checkpoint, or the one before it where that is damaged or missing; NULL: there is none that is whole.  `c`, or
 * NULL, is to be told of damage; *spoilt: the first is damaged. */
static struct record *open_either(const char *file, const struct checkpoints *c, int *spoilt)
{
    char before[sizeof c->file + BEFORE], line[SENTENCE];
    int missing, none;
    struct record *k = record_open(file, &missing);

    *spoilt = !k && !missing;
    if (k)
        return k;
    if (*spoilt)
        snprintf(line, sizeof line, "%.*s", (int)sizeof line - 200, err_text());
    snprintf(before, sizeof before, "%s.before", file);
    k = record_open(before, &none);
    if (*spoilt && c) {
        append(line, sizeof line,
               k ? "; the run goes on from the one before" : "; the run begins anew");
        say(c, line);
    } else if (!k && !none && c) {
        snprintf(line, sizeof line, "%.*s; the run begins anew", (int)sizeof line - 200,
                 err_text());
        say(c, line);
    }
    return k;
}

int checkpoint_read_of(const char *file, struct checkpoint_of *to)
{
    int spoilt;
    struct record *k = open_either(file, NULL, &spoilt);

    if (!k)
        return 1;
    pass_of(k, to);
    const int e = record_failed(k);
    if (e)
        return record_close(k, 1);
    record_drop(k);
    return 0;
}

/* What is another's: "line, build"; "" where it is the run's own.  *first becomes the first of them. */
struct difference {
    const char *what, *there, *here;
};
static void compare(const struct checkpoint_of *there, const struct checkpoint_of *here,
                    char words[CHECKPOINT_TEXT], struct difference *first)
{
    const struct difference of[] = {
        {"plan", there->plan, here->plan},          {"line", there->line, here->line},
        {"corpus", there->corpus, here->corpus},    {"seed", there->seed, here->seed},
        {"backend", there->backend, here->backend}, {"device", there->device, here->device},
        {"build", there->build, here->build}};

    *words = 0;
    *first = (struct difference){NULL, NULL, NULL};
    for (int i = 0; i < (int)COUNT(of); i++)
        if (strcmp(of[i].there, of[i].here) != 0) {
            if (!*words)
                *first = of[i];
            append(words, CHECKPOINT_TEXT, "%s%s", *words ? ", " : "", of[i].what);
        }
}

/* Is that another run's, and not to be taken?  *words becomes what is another's. */
static int refuse_other(const struct checkpoints *c, const struct checkpoint_of *there,
                        char words[CHECKPOINT_TEXT])
{
    struct difference d;

    compare(there, &c->of, words, &d);
    if (!*words || c->use == CHECKPOINT_ANY)
        return 0;
    err_set("%s: is of another %s: '%s', not '%s'", c->file, d.what, d.there, d.here);
    return err_advise(ADVICE_ANYWAY | ADVICE_MOVE);
}

int checkpoint_refused(const struct checkpoints *c)
{
    struct checkpoint_of *there = malloc(sizeof *there);
    char words[CHECKPOINT_TEXT];
    int e = !there ? err_set("no memory for a checkpoint") : checkpoint_read_of(c->file, there);

    e = e > 0 ? 0 : e || refuse_other(c, there, words);
    free(there);
    return e ? -1 : 0;
}

/* ---- what is in it ---- */

/* Must be this. */
static void pass_same(struct record *k, const char *what, int64_t here)
{
    int64_t there = here;

    record_int(k, &there);
    if (!record_failed(k) && there != here) {
        err_set("has %lld %s, and the run has %lld: it cannot go on from it", (long long)there,
                what, (long long)here);
        record_refuse(k);
    }
}

/* A number that is an int. */
static void pass_small(struct record *k, int *x)
{
    int64_t wide = *x;

    record_int(k, &wide);
    *x = (int)wide;
}

static void pass_state(struct record *k, struct update *u)
{
    const size_t bytes = update_state_bytes(u);
    void *state = record_is_read(k) ? calloc(1, bytes) : update_state(u);

    if (!state && record_is_read(k))
        err_set("no memory for the state of a run, %zu bytes", bytes);
    if (!state) {
        record_refuse(k);
        return;
    }
    record_bytes(k, state, bytes);
    record_real(k, &u->scale);
    if (record_is_read(k) && !record_failed(k) && update_restore(u, state))
        record_refuse(k);
    free(state);
}

static void pass_values(struct record *k, struct update_values *v)
{
    record_real(k, &v->loss);
    record_real(k, &v->norm);
    record_real(k, &v->rate);
    record_real(k, &v->factor);
    record_real(k, &v->scale);
    record_int(k, &v->u);
    record_int(k, &v->t);
    record_int(k, &v->good);
    record_int(k, &v->right);
    pass_small(k, &v->skipped);
}

/* Are the last values those of the last update? */
static void check_counters(struct record *k, const struct running *r)
{
    if (record_failed(k) || r->now.u == r->to->done)
        return;
    err_set("has values of update %lld, and %lld updates", (long long)r->now.u,
            (long long)r->to->done);
    record_refuse(k);
}

static void pass_curves(struct record *k, struct running *r)
{
    struct trained *to = r->to;
    double *const of[] = {to->loss, to->norm, to->factor, to->rate, to->scale};

    record_int(k, &to->done);
    if (to->done < 0 || to->done > r->t->cell->until) {
        err_set("has %lld updates, more than the run", (long long)to->done);
        record_refuse(k);
        to->done = 0;
    }
    for (int i = 0; i < (int)COUNT(of); i++)
        record_bytes(k, of[i], to->done * sizeof *of[i]);
    record_bytes(k, to->skipped, to->done);
    record_int(k, &to->n_skipped);
}

/* A list of n elements with space for one more, as grow() has them, where it is read. */
static void *take_list(struct record *k, void *list, int64_t n, size_t size)
{
    int64_t space = 1;

    if (!record_is_read(k))
        return list;
    while (space <= n)
        space *= 2;
    void *more = calloc(space, size);
    if (!more) {
        err_set("no memory for %lld of a run", (long long)n);
        record_refuse(k);
        return list;
    }
    free(list);
    return more;
}

static void pass_validations(struct record *k, struct trained *to)
{
    int64_t n = to->n_validations;

    record_count(k, &n, sizeof *to->validation);
    to->validation = take_list(k, to->validation, n, sizeof *to->validation);
    for (int64_t i = 0; i < n && !record_failed(k); i++) {
        struct validation *v = &to->validation[i];
        record_int(k, &v->update);
        record_real(k, &v->loss);
        record_real(k, &v->accuracy);
        record_real(k, &v->seconds);
        to->n_validations = (int)i + 1;
    }
}

static void pass_judged(struct record *k, struct trained *to)
{
    int64_t n = to->n_judged;

    record_count(k, &n, sizeof *to->judged);
    to->judged = take_list(k, to->judged, n, sizeof *to->judged);
    for (int64_t i = 0; i < n && !record_failed(k); i++) {
        record_int(k, &to->judged[i].update);
        record_int(k, &to->judged[i].rows);
        to->n_judged = (int)i + 1;
    }
}

/* ---- verdicts ---- */

/* A text that the run owns; a verdict's lie in the program, or here. */
static const char *owned(struct record *k, struct trained *to, const char *text)
{
    for (int i = 0; i < to->n_texts; i++)
        if (strcmp(to->text[i], text) == 0)
            return to->text[i];
    char **more = grow(to->text, to->n_texts, sizeof *more), *copy = more ? strdup(text) : NULL;
    to->text = more ? more : to->text;
    if (copy)
        return to->text[to->n_texts++] = copy;
    err_set("no memory for a verdict");
    record_refuse(k);
    return "";
}

static void pass_shared(struct record *k, struct trained *to, const char **x)
{
    char text[CHECKPOINT_TEXT] = "";
    int there = *x != NULL;

    pass_small(k, &there);
    if (!record_is_read(k) && there)
        snprintf(text, sizeof text, "%s", *x);
    record_text(k, text, sizeof text);
    if (record_is_read(k))
        *x = there ? owned(k, to, text) : NULL;
}

static void pass_power(struct record *k, struct power *p)
{
    record_real(k, &p->all);
    record_real(k, &p->slice);
    record_real(k, &p->element);
    pass_small(k, &p->samples);
}

static void pass_verdict(struct record *k, struct trained *to, struct verdict *v)
{
    const char **shared[] = {&v->check, &v->backend, &v->kernel, &v->why, &v->distance};
    int64_t *whole[] = {&v->first_bad, &v->judged, &v->elements, &v->at,
                        &v->slices,    &v->coarse, &v->update};
    int *flag[] = {&v->pass, &v->unjudged, &v->missed}, fixed = (int)v->fixed;

    for (int i = 0; i < (int)COUNT(shared); i++)
        pass_shared(k, to, shared[i]);
    record_text(k, v->tensor, sizeof v->tensor);
    record_text(k, v->worst, sizeof v->worst);
    record_real(k, &v->error);
    record_real(k, &v->norm);
    record_real(k, &v->bound);
    for (int i = 0; i < (int)COUNT(whole); i++)
        record_int(k, whole[i]);
    for (int i = 0; i < (int)COUNT(flag); i++)
        pass_small(k, flag[i]);
    pass_small(k, &fixed);
    v->fixed = (unsigned)fixed;
    pass_power(k, &v->power);
}

static void pass_verdicts(struct record *k, struct running *r)
{
    int64_t n = r->list->n;

    record_count(k, &n, sizeof(int64_t));
    r->list->v = take_list(k, r->list->v, n, sizeof *r->list->v);
    for (int64_t i = 0; i < n && !record_failed(k); i++) {
        pass_verdict(k, r->to, &r->list->v[i]);
        r->list->n = (int)i + 1;
    }
}

/* ---- what is kept, and times ---- */

static void pass_array(struct record *k, double **x, int64_t n)
{
    int there = *x != NULL;

    pass_small(k, &there);
    if (there && !*x && !(*x = calloc(n, sizeof **x))) {
        err_set("no memory for what is kept of a run");
        record_refuse(k);
    }
    if (there && *x)
        record_bytes(k, *x, n * sizeof **x);
}

static void pass_kept(struct record *k, struct running *r)
{
    const struct call *f = &r->t->cell->batch;
    const int64_t batch = op_count(f, PLACE(examples, token));

    pass_array(k, &r->to->start, r->u.elements);
    for (int i = 0; i < KEPT_BATCHES; i++) {
        pass_array(k, &r->to->token[i], batch);
        pass_array(k, &r->to->target[i], op_count(f, PLACE(examples, target)));
    }
}

static void pass_counts(struct record *k, struct running *r)
{
    struct trained *to = r->to;
    int end = to->end;

    record_int(k, &r->skipped_running);
    record_int(k, &r->reached);
    record_int(k, &r->settled);
    record_int(k, &to->learned);
    pass_small(k, &end);
    to->end = (enum run_end)end;
    record_real(k, &to->seconds);
    record_int(k, &to->timed);
    record_real(k, &to->timed_seconds);
    record_text(k, to->resumed_anyway, sizeof to->resumed_anyway);
}

/* The names and shapes of all weights, in their order. */
static void pass_model(struct record *k, const struct update *u)
{
    const struct call *f = &u->call[UPDATE_MODEL];
    const struct layout_buffer *of[] = {&u->layout.storage, &u->layout.wide};
    uint64_t hash = FNV_BEGIN;

    for (int b = 0; b < (int)COUNT(of); b++)
        for (int i = 0; i < of[b]->n; i++) {
            const int arg = of[b]->part[i].arg;
            const char *name = f->op->arg[arg].name;
            hash = fnv1a64(hash, name, strlen(name) + 1);
            for (const char *s = op_shape(f, arg); *s; s++)
                hash = fnv1a64(hash, &DIM(f, *s), sizeof DIM(f, *s));
        }
    int64_t there = (int64_t)hash;
    record_int(k, &there);
    if (!record_failed(k) && there != (int64_t)hash) {
        err_set("has other weights than the run, which cannot go on from it");
        record_refuse(k);
    }
}

static void pass_run(struct record *k, struct running *r)
{
    int free_running = r->free != NULL;

    pass_model(k, &r->u);
    pass_same(k, "bytes of state", (int64_t)update_state_bytes(&r->u));
    pass_same(k, "tokens in a batch", op_count(&r->t->cell->batch, PLACE(examples, token)));
    pass_same(k, "runs beside it", free_running);
    if (record_failed(k))
        return;
    pass_curves(k, r);
    pass_values(k, &r->now);
    check_counters(k, r);
    pass_counts(k, r);
    pass_validations(k, r->to);
    pass_judged(k, r->to);
    pass_verdicts(k, r);
    pass_kept(k, r);
    pass_state(k, &r->u);
    if (r->free && !record_failed(k))
        free_run_pass(r->free, k, pass_state);
}

/* ---- reading and writing ---- */

static void say_taken(struct running *r, const char *others)
{
    const struct checkpoints *c = r->t->checkpoints;
    char line[SENTENCE];

    snprintf(line, sizeof line, "%s: the run goes on at update %lld of %lld", c->file,
             (long long)r->now.u, (long long)r->t->cell->until);
    if (*others)
        append(line, sizeof line, ", though that is of another %s", others);
    say(c, line);
}

/* From an open checkpoint, which is closed. */
static int go_on(struct running *r, struct record *k)
{
    const struct checkpoints *c = r->t->checkpoints;
    struct checkpoint_of *there = malloc(sizeof *there);
    char others[CHECKPOINT_TEXT] = "";

    if (!there) {
        record_drop(k);
        return err_set("no memory for a checkpoint");
    }
    pass_of(k, there);
    const int other = !record_failed(k) && refuse_other(c, there, others);
    free(there);
    if (other) {
        record_drop(k);
        return -1;
    }
    pass_run(k, r);
    if (record_close(k, 1))
        return -1;
    if (*others)
        snprintf(r->to->resumed_anyway, sizeof r->to->resumed_anyway, "%s", others);
    r->whole = r->now.u > 0;
    r->kept = r->now.u;
    say_taken(r, others);
    return 0;
}

int checkpoint_take(struct running *r)
{
    const struct checkpoints *c = r->t->checkpoints;
    struct record *k = open_either(c->file, c, &r->spoilt);

    return k ? go_on(r, k) : 0;
}

int checkpoint_write(struct running *r)
{
    const struct checkpoints *c = r->t->checkpoints;
    struct checkpoint_of *of = malloc(sizeof *of);
    struct record *k = of ? record_create(c->file) : NULL;

    if (!of)
        return err_set("no memory for a checkpoint");
    *of = c->of;
    if (k) {
        pass_of(k, of);
        pass_run(k, r);
    }
    free(of);
    if (!k || record_close(k, !r->spoilt))
        return -1;
    r->spoilt = 0;
    r->kept = r->now.u;
    return 0;
}
