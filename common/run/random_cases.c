/* Draw cases from the contracts' parameters and run them; make a case that fails smaller as long as
 * it fails in the same way. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/progress.h"
#include "common/base/quote.h"
#include "common/call/sample.h"
#include "common/run/random_cases.h"
#include "common/run/trial.h"

/* ---- a stream of random numbers from a key ---- */

struct source {
    uint64_t key, next;
};

static double uniform(struct source *s)
{
    return draw_uniform(s->key, s->next++);
}

/* 0 ... n - 1 */
static int64_t one_of(struct source *s, int64_t n)
{
    return (int64_t)(uniform(s) * (double)n);
}

static int64_t within(int64_t x, int64_t min, int64_t max)
{
    return x < min ? min : x > max ? max : x;
}

/* ---- a case ---- */

static int64_t draw_whole(struct source *s)
{
    static const int primes[] = {2,  3,  5,  7,  11, 13, 17, 19, 23,  29,  31,  37, 41,
                                 43, 47, 53, 59, 61, 67, 73, 97, 127, 131, 257, 521};
    double kind = uniform(s);

    if (kind < 0.3)
        return 1 + one_of(s, 4);
    if (kind < 0.55)
        return primes[one_of(s, COUNT(primes))];
    if (kind < 0.85)
        return (1ll << (1 + one_of(s, 10))) + one_of(s, 3) - 1;
    return (int64_t)exp(uniform(s) * log(400));
}

/* Half of them longer than a sample: any number, or around a power of two. */
static int64_t draw_long(struct source *s)
{
    enum { SHORT = 8, LONG = 20000 };
    double kind = uniform(s);

    if (kind < 0.5)
        return draw_whole(s);
    if (kind < 0.8)
        return (int64_t)exp(log(SAMPLE_ROWS) + uniform(s) * (log(LONG) - log(SAMPLE_ROWS)));
    return ((int64_t)SHORT << (3 + one_of(s, 9))) + one_of(s, 3) - 1;
}

static double draw_real(struct source *s, const struct real_range *range)
{
    double kind = uniform(s), x = range->initial;

    if (kind < 0.1)
        x = 0;
    else if (kind < 0.2)
        x = 1;
    else if (kind < 0.6)
        x = 4 * uniform(s) - 2;
    else if (kind < 0.7)
        x = exp(20 * uniform(s) - 10);
    else if (kind < 0.71)
        x = range->max;
    else if (kind < 0.72)
        x = range->min;
    return fmin(fmax(x, range->min), range->max);
}

/* A whole number of p's range; often 0 and the least, which mean "as another" or "without end". */
static int64_t draw_number(struct source *s, const struct random *r, const struct param *p)
{
    if (p->min <= 0 && uniform(s) < 0.3)
        return uniform(s) < 0.5 ? 0 : p->min;
    const int64_t x = r->sampled ? draw_long(s) : draw_whole(s);
    if (p->seed && x % 2)
        return (int64_t)((uint64_t)x * 0x9e3779b97f4a7c15); /* with high bits */
    return within(x, p->min, p->max);
}

static void draw_param(struct source *s, const struct random *r, struct call *f, int i)
{
    const struct param *p = &f->op->param[i];
    int n = 0;

    while (p->choices && p->choices[n])
        n++;
    if (p->choices)
        f->choice[i] = (int)one_of(s, n);
    else if (p->real)
        f->real[i] = draw_real(s, p->real);
    else
        DIM(f, p->letter) = draw_number(s, r, p);
}

/* Set parameters that do not apply to their defaults, as reading the case's words does. */
static void reset_inapplicable(const struct op *o, struct call *f)
{
    struct call initial;

    op_defaults(o, &initial);
    for (int i = 0; i < o->n_params; i++) {
        const struct param *p = &o->param[i];
        if (!p->unless || !p->unless(f))
            continue;
        f->choice[i] = initial.choice[i];
        f->real[i] = initial.real[i];
        if (p->letter)
            DIM(f, p->letter) = DIM(&initial, p->letter);
    }
}

/* Sizes that must be multiples, down to one, or else up. */
static void make_multiples(const struct op *o, struct call *f)
{
    for (int i = 0; i < o->n_params; i++) {
        const struct param *p = &o->param[i];
        const int64_t m = p->multiple ? p->multiple(f) : 0;
        if (m)
            DIM(f, p->letter) = DIM(f, p->letter) < m ? m : DIM(f, p->letter) / m * m;
    }
}

double random_work(const struct call *f)
{
    const struct op *o = f->op;
    return o->flops(f, FORWARD) + o->flops(f, BACKWARD) + (double)tensors_bytes(f);
}

static int is_drawn(const struct random *r, int i)
{
    return !r->of || r->drawn >> i & 1;
}

/* Complete *f with at most `max` of work, by halving one size after the other. */
static int make_small(struct source *s, const struct random *r, struct call *f, double max)
{
    const struct op *o = f->op;
    enum { TRIES = 100 };

    for (int i = 0; i < TRIES; i++) {
        struct call whole = *f;
        const int which = (int)one_of(s, o->n_params);
        const struct param *p = &o->param[which];
        reset_inapplicable(o, &whole);
        make_multiples(o, &whole);
        if (!op_complete(&whole) && random_work(&whole) <= max) {
            *f = whole;
            return 0;
        }
        if (p->letter && is_drawn(r, which))
            DIM(f, p->letter) = within(DIM(f, p->letter) / 2, p->min, p->max);
    }
    return -1;
}

/* Does backward add to the gradients, if there are any? */
static void set_accumulate(struct trial *t, int yes)
{
    t->accumulate = yes && op_has_gradients(t->call.op);
    t->call.accumulate = t->accumulate ? op_gradients(t->call.op) : set_none();
}

/* Is there a result that a sample cuts? */
static int is_cut(const struct call *f)
{
    struct sample s;
    char axes[ALL_AXES];

    sample_draw(&s, f, SAMPLE_ROWS, 0);
    sample_all_axes(f, &s, axes);
    return *axes != 0;
}

/* A case of at most `max` of work; nonzero where it must be drawn again. */
static int draw_case(struct source *s, const struct random *r, struct trial *t, double max)
{
    const struct op *o = t->call.op;

    op_defaults(o, &t->call);
    if (r->of)
        t->call = r->of->call;
    for (int p = 0; p < o->n_params; p++)
        if (is_drawn(r, p))
            draw_param(s, r, &t->call, p);
    if (r->sampled && o->time) /* its references are loops, and a result may take many samples */
        max /= 10;
    return make_small(s, r, &t->call, max) || (r->sampled && !is_cut(&t->call));
}

/* The work of r->of where all sizes that are drawn are the least. */
static double least_work(const struct random *r)
{
    const struct op *o = r->of->call.op;
    struct call f = r->of->call;

    for (int i = 0; i < o->n_params; i++)
        if (o->param[i].letter && is_drawn(r, i))
            DIM(&f, o->param[i].letter) = o->param[i].min;
    make_multiples(o, &f);
    return op_complete(&f) ? 0 : random_work(&f);
}

int random_trial(const struct random *r, int64_t i, struct trial *t)
{
    enum { TRIES = 1000, OF_OP = 20, MORE = 100 };
    struct source s = {draw_key(r->seed, "random") + (uint64_t)i * 0x9e3779b97f4a7c15, 0};
    double least = r->sampled ? 1e7 : 3e3, most = r->sampled ? 1e9 : 1e6;

    if (r->of) {
        least = fmax(least, 2 * least_work(r));
        most = fmax(most, 2 * least);
    }
    const double max_work = exp(log(least) + uniform(&s) * (log(most) - log(least)));
    *t = (struct trial){.call.op = r->only ? r->only : ops[one_of(&s, N_OPS)]};
    t->sampled = r->sampled;
    t->type = uniform(&s) < 0.5 ? F32 : BF16;
    t->input = uniform(&s) < 0.5 ? INPUT_NORMAL : INPUT_NONZERO;
    t->seed = (uint64_t)one_of(&s, 1 << 20);
    if (r->of)
        *t = *r->of;
    for (int n = 0; n < TRIES; n++) {
        if (r->sampled && !r->only && n % OF_OP == OF_OP - 1) /* it has nothing to sample */
            t->call.op = ops[one_of(&s, N_OPS)];
        /* Settings that are named may leave no case of little work. */
        if (draw_case(&s, r, t, r->of ? ldexp(max_work, n / MORE) : max_work))
            continue;
        if (!r->of)
            set_accumulate(t, uniform(&s) < 0.25);
        return plan_text(t);
    }
    return err_set("%s refuses every case that was drawn%s", t->call.op->name,
                   r->sampled ? ", or has none that can be sampled" : "");
}

/* ---- is it right? ---- */

/* The first failure of a case; `check` is NULL where there is none. */
struct failure {
    const char *check, *kernel;
    const struct backend *backend;
    int error;      /* it could not be run */
    char text[600]; /* of an error, or of the first checks that failed */
};

static void quiet(const char *what, void *data)
{
    (void)what;
    (void)data;
}

static void note_failure(struct failure *to, const struct verdict *v)
{
    if (!to->check) {
        to->check = v->check;
        to->kernel = v->kernel;
        to->backend = backend_find(v->backend);
    }
    if (strlen(to->text) < sizeof to->text - 200)
        append(to->text, sizeof to->text, "      %s %s %s, %s: off by %.3g at %s, bound %.3g\n",
               v->backend, v->kernel, v->check, v->tensor, v->error, *v->worst ? v->worst : "-",
               v->bound);
}

/* Run it.  Nonzero where a backend was lost, or it was interrupted. */
static int judge(const struct experiment *x, const struct trial *t, const volatile int *stop,
                 struct failure *to, struct random_count *count)
{
    struct result *r = calloc(1, sizeof *r); /* large for the stack */
    int e = r ? trial_run(x, t, stop, quiet, NULL, r) : err_set("no memory for a result");

    *to = (struct failure){.check = NULL};
    for (int i = 0; !e && i < r->verdicts.n; i++)
        if (!r->verdicts.v[i].pass)
            note_failure(to, &r->verdicts.v[i]);
    if (e && !*stop) {
        to->error = 1;
        to->check = "error";
        snprintf(to->text, sizeof to->text, "      %.*s\n", quote_fit(err_text(), 500), err_text());
    }
    if (r && count && !*stop) {
        count->cases++;
        count->checks += r->verdicts.n;
        count->failed += to->check != NULL;
        count->unjudged += verdicts_unjudged(&r->verdicts, 0) > 0;
        count->skipped += r->skipped;
    }
    if (r)
        result_free(r);
    free(r);
    return *stop;
}

/* ---- smaller ---- */

/* Parameter i of f a step nearer to the minimum, the k-th way to do so; 0: there is none. */
static int reduce(const struct op *o, struct call *f, int i, int k)
{
    const struct param *p = &o->param[i];
    struct call initial;

    op_defaults(o, &initial);
    if (p->choices || p->real) {
        int other = p->choices ? f->choice[i] != initial.choice[i] : f->real[i] != initial.real[i];
        f->choice[i] = initial.choice[i];
        f->real[i] = initial.real[i];
        return k == 0 && other;
    }
    int64_t *x = &DIM(f, p->letter), was = *x;
    const int64_t to[] = {p->min, was / 2, was - 1};
    if (k >= (int)COUNT(to) || was == p->min)
        return 0;
    *x = within(to[k], p->min, p->max);
    return 1;
}

int random_reduce(struct call *f, int i, int k)
{
    if (!reduce(f->op, f, i, k))
        return 0;
    reset_inapplicable(f->op, f);
    return op_complete(f) ? -1 : 1;
}

/* Does it fail where the gradients are overwritten, too?  Then *t is that. */
static void shrink_accumulate(struct trial *t, int (*fails)(const struct trial *t, void *data),
                              void *data)
{
    struct trial other = *t;

    set_accumulate(&other, 0);
    if (t->accumulate && !plan_text(&other) && fails(&other, data))
        *t = other;
}

void random_shrink(struct trial *t, int (*fails)(const struct trial *t, void *data), void *data)
{
    enum { RUNS = 400 };
    int runs = 0, smaller = 1;

    shrink_accumulate(t, fails, data);
    while (smaller && runs < RUNS) {
        smaller = 0;
        for (int i = 0; i < t->call.op->n_params; i++)
            for (int k = 0; runs < RUNS; k++) {
                struct trial other = *t;
                const int made = random_reduce(&other.call, i, k);
                if (!made)
                    break;
                if (made < 0 || plan_text(&other))
                    continue;
                runs++;
                if (fails(&other, data)) {
                    *t = other;
                    smaller = 1;
                    k = -1;
                }
            }
    }
}

/* The failure that a smaller case must have, too. */
struct same_failure {
    const struct experiment *x;
    const struct failure *like;
    const volatile int *stop;
};

static int fails_alike(const struct trial *t, void *data)
{
    const struct same_failure *l = data;
    struct failure now;

    if (*l->stop || judge(l->x, t, l->stop, &now, NULL))
        return 0;
    return now.check && strcmp(now.check, l->like->check) == 0 && now.backend == l->like->backend;
}

/* The kernel that was wrong is named, since the first that accepts may be another. */
static void report_failure(const struct experiment *x, int64_t i, struct trial *t,
                           const struct failure *f, const volatile int *stop, FILE *to)
{
    const char *sampled = t->sampled ? " judge=sampled" : "";
    if (is_judged(f->backend))
        snprintf(t->kernel, sizeof t->kernel, "%s", f->kernel);
    if (plan_text(t))
        return;
    progress_clear();
    fprintf(to, "case %" PRId64 " failed:\n%s      again: run-ablation -t '%s repeats=0%s'\n", i,
            f->text, t->text, sampled);
    fflush(to);
    progress("case %" PRId64 ": looking for a smaller one", i);
    random_shrink(t, fails_alike, &(struct same_failure){x, f, stop});
    progress_clear();
    fprintf(to, "      smallest: run-ablation -t '%s repeats=0%s'\n", t->text, sampled);
    fflush(to);
}

/* ---- all of them ---- */

static const char *lost(const int *there)
{
    for (int i = 0; judged_backend(i); i++)
        if (there[i] && judged_backend(i)->machine->device.unavailable())
            return judged_backend(i)->machine->device.unavailable();
    return NULL;
}

int random_run(const struct random *r, const volatile int *stop, FILE *to,
               struct random_count *count)
{
    struct experiment x = {.device = -1,
                           .checks = r->checks,
                           .directions = 2,
                           .every_kernel = 1,
                           .save = SAVE_NONE,
                           .contexts = r->contexts};
    int there[8] = {0};

    omp_set_num_threads(1); /* each run is too small to be shared */
    *count = (struct random_count){.next = r->from};
    for (int i = 0; judged_backend(i); i++)
        there[i] = !judged_backend(i)->machine->device.unavailable();
    for (int64_t i = r->from; i < r->below && !*stop; i++) {
        struct trial t;
        struct failure f;
        if (random_trial(r, i, &t))
            return RANDOM_REFUSED;
        progress("case %" PRId64 " of %" PRId64 ", %" PRId64 " failed: %s", i, r->below,
                 count->failed, t.call.op->name);
        if (judge(&x, &t, stop, &f, count))
            break;
        if (f.check)
            report_failure(&x, i, &t, &f, stop, to);
        count->next = i + 1;
        if (lost(there)) {
            err_set("after case %" PRId64 ": %s", i, lost(there));
            return RANDOM_LOST;
        }
    }
    progress_clear();
    return 0;
}
