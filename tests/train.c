/* Training: keys, starts, rates, and updates on every backend. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/file.h"
#include "common/call/transfer.h"
#include "common/ops/adamw.h"
#include "common/ops/examples.h"
#include "common/ops/schedule.h"
#include "common/train/judge.h"
#include "common/train/rates.h"
#include "common/train/run.h"
#include "common/train/start.h"
#include "tests/suite.h"

/* A check whose reason, where it fails, is its own text. */
#define check(good, ...) (ok(good, __VA_ARGS__) ? 1 : (printf("# " __VA_ARGS__), puts(""), 0))

static const char *const mixers[] = {"e74", "e74_block", "dual_memory", "attention", "none"};

/* A case of a mixer; nonzero, and a failed line, where it is none. */
static int cell_of(const char *mixer, const char *words, struct call *f, struct cell *c)
{
    const struct op *o = cell_op(mixer);
    const int e = !o || cases_one(o, words, f) || cell_read(f, 3, c);

    if (e) {
        check(0, "%s: %s", mixer, words);
        printf("# %s\n", err_text());
    }
    return e;
}

/* ---- keys ---- */

static int unique(const struct op *o)
{
    int good = 1;
    for (int i = 0; i < o->n_params; i++)
        for (int j = 0; j < i; j++) {
            const int same = strcmp(o->param[i].name, o->param[j].name) == 0 ||
                             (o->param[i].letter && o->param[i].letter == o->param[j].letter);
            if (same)
                printf("# %s and %s\n", o->param[i].name, o->param[j].name);
            good &= !same;
        }
    return good;
}

/* Those of examples apply where they apply there. */
static int apply_alike(const struct op *o)
{
    static const char *const cases[] = {"task=parity",           "task=counter",
                                        "task=word elements=s5", "task=copy",
                                        "task=mqar length=128",  "task=parity supervise=last"};
    int good = 1;

    for (int i = 0; i < (int)COUNT(cases); i++) {
        struct call f, g;
        char words[100] = "", *length;
        snprintf(words, sizeof words, "%s", cases[i]);
        if (cases_one(o, words, &f))
            return printf("# %s: %s\n", words, err_text()), 0;
        if ((length = strstr(words, "length")))
            memcpy(length, "steps ", 6), memmove(length + 5, length + 6, strlen(length + 6) + 1);
        if (cases_one(&op_examples, strstr(words, "copy") ? "task=copy steps=33" : words, &g))
            return printf("# %s: %s\n", words, err_text()), 0;
        for (int p = 0; p < op_examples.n_params; p++) {
            const struct param *own = op_param(o, op_examples.param[p].name, NULL);
            if (op_examples.param[p].unless && own)
                good &= !own->unless(&f) == !op_examples.param[p].unless(&g) ||
                        strcmp(own->name, "corpus") == 0;
        }
    }
    return good;
}

static void keys(void)
{
    for (int i = 0; i < (int)COUNT(mixers); i++) {
        const struct op *o = cell_op(mixers[i]);
        check(o && unique(o), "%s: no two keys have one name", mixers[i]);
        check(o && cell_op(mixers[i]) == o && is_cell(o), "%s: one operation", mixers[i]);
        check(o && apply_alike(o), "%s: the task's keys apply where they do for examples",
              mixers[i]);
    }
    check(!cell_op("lstm") &&
              strstr(err_text(), "lstm: not one of e74 e74_block dual_memory attention none"),
          "an unknown mixer: %s", err_text());
}

static void refused(void)
{
    static const struct {
        const char *mixer, *words, *says;
    } bad[] = {{"e74", "warmup=60 updates=50", "warmup = 60"},
               {"e74", "schedule=wsd warmup=30 decay=30 updates=50", "decay = 30"},
               {"e74", "until=51 updates=50", "until = 51"},
               {"none", "head=tied task=counter moves=yes", "5 classes"},
               {"e74", "task=copy length=8", "steps = 8"},
               {"e74", "task=mqar length=8", "steps = 8"},
               {"e74", "state=blockdiag n_state=16 block_size=3", "model:"},
               {"e74", "task=bytes length=200", "8200"},
               {"dual_memory", "tape=each", "tape = each: M0 would be another"},
               {"e74", "state=lowrank V=each", "V = each: V0 would be another"},
               {"e74", "checkpoint_dtype=bf16", "keeps its states in fp32"},
               {"e74", "blocks=200 width=8", "tensors"},
               {"attention", "heads=67108865", "dim_out"},
               {"attention", "dim=7", "model:"}};

    for (int i = 0; i < (int)COUNT(bad); i++) {
        struct call f;
        const int e = cases_one(cell_op(bad[i].mixer), bad[i].words, &f);
        check(e && strstr(err_text(), bad[i].says), "refused: %s %s: %s", bad[i].mixer,
              bad[i].words, e ? err_text() : "taken");
    }
}

/* ---- rates ---- */

static void rates(void)
{
    static const struct {
        const char *words;
        int64_t U, W;
        double last;
    } of[] = {{"schedule=cosine updates=100 warmup=10", 100, 10, 0.1},
              {"schedule=linear updates=100 warmup=1 final=0.25", 100, 1, 0.25},
              {"schedule=wsd updates=100 warmup=7 decay=20 final=0", 100, 7, 0},
              {"schedule=constant updates=50 warmup=5", 50, 5, 1},
              {"schedule=cosine updates=1 warmup=0", 1, 0, 0.1}};

    for (int i = 0; i < (int)COUNT(of); i++) {
        struct call f;
        struct cell c;
        int one = 1, rises = 1;
        double most = 0;
        if (cell_of("none", of[i].words, &f, &c))
            continue;
        for (int64_t u = 1; u <= of[i].U; u++) {
            const double r = rate_at(&c, u), before = u > 1 ? rate_at(&c, u - 1) : 0;
            most = fmax(most, r);
            rises &= u > of[i].W || r > before;
            one &= u <= of[i].W + 1 || r <= before;
        }
        check(rises && one && fabs(most - (of[i].U == 1 ? of[i].last : 1) * c.lr) < 1e-18 &&
                  rate_at(&c, 1) > 0 && fabs(rate_at(&c, of[i].U) - of[i].last * c.lr) < 1e-18,
              "%s: up to lr, and down to %g of it", of[i].words, of[i].last);
    }
    struct call f;
    struct cell c;
    if (!cell_of("none", "schedule=cosine updates=110 warmup=10 lr=2 final=0.5", &f, &c)) {
        check(rate_at(&c, 5) == 1 && fabs(rate_at(&c, 60) - 1.5) < 1e-15,
              "cosine: half way of the fall, not of the run");
        c.schedule = SCHEDULE_LINEAR;
        check(fabs(rate_at(&c, 35) - 1.75) < 1e-15, "linear: a quarter of the fall");
        c.schedule = SCHEDULE_WSD, c.decay = 20;
        check(rate_at(&c, 90) == 2 && fabs(rate_at(&c, 95) - 1.75) < 1e-15,
              "wsd: a quarter of its decay");
    }
    check(unbias_at(0.9, 1) == 1 / (1 - 0.9) && unbias_at(0, 5) == 1,
          "the corrections of the first step, and of no memory");
}

/* ---- starts ---- */

struct moments {
    double mean, size;
};

static struct moments moments_of(const double *x, int64_t n)
{
    struct moments m = {0, 0};
    for (int64_t i = 0; i < n; i++)
        m.mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        m.size += (x[i] - m.mean) * (x[i] - m.mean) / (double)n;
    m.size = sqrt(m.size);
    return m;
}

static double *start_of(const struct cell *c, const char *name, uint64_t seed, int64_t *n)
{
    const int arg = op_arg(c->model.op, name);
    double *x;

    *n = arg < 0 ? 0 : op_count(&c->model, arg);
    x = *n ? malloc(*n * sizeof *x) : NULL;
    if (x)
        start_draw(&c->model, arg, c->blocks, seed, x);
    return x;
}

/* Its mean and deviation, within 5 of their own. */
static void starts_at(const char *mixer, const char *words, const char *name, double mean,
                      double size)
{
    struct call f;
    struct cell c;
    int64_t n;

    if (cell_of(mixer, words, &f, &c))
        return;
    double *x = start_of(&c, name, 7, &n);
    const struct moments m = x ? moments_of(x, n) : (struct moments){NAN, NAN};
    const double off = size > 0 ? 5 * size / sqrt((double)n) : 1e-7;
    check(fabs(m.mean - mean) <= off && fabs(m.size - size) <= off,
          "%s %s: %s starts at %.3g, %.3g", mixer, words, name, m.mean, m.size);
    free(x);
}

static int same_start(const char *words, const char *other, uint64_t seed, const char *name)
{
    struct call f;
    struct cell c, d;
    int64_t n = 0, m = 0;
    int same;

    if (cell_of("e74", words, &f, &c) || cell_of("e74", other, &f, &d))
        return -1;
    double *x = start_of(&c, name, 7, &n), *y = start_of(&d, name, seed, &m);
    same = x && y && n == m && same_bits(x, y, n);
    free(x);
    free(y);
    return same;
}

static void starts(void)
{
    starts_at("e74", "width=64 task=copy", "x.E", 0, 1);
    starts_at("e74", "width=64", "1.m.W_k", 0, 1 / sqrt(64));
    starts_at("e74", "width=32 n_state=128 blocks=3", "2.o.W", 0, 1 / sqrt(128 * 6));
    starts_at("e74", "width=32 mlp=128 blocks=2", "2.d.W", 0, 1 / sqrt(128 * 4));
    starts_at("e74", "width=32 mlp=128 blocks=2", "2.g.W", 0, 1 / sqrt(32));
    starts_at("e74_block", "width=64 n_state=64 blocks=2", "2.x.W_o", 0, 1 / sqrt(64 * 4));
    starts_at("e74_block", "width=64", "1.x.w_norm", 1, 0);
    starts_at("e74", "proj=full", "1.m.b_z", 1, 0);
    starts_at("e74", "proj=full z_act=sigmoid", "1.m.b_z", log(9), 0);
    starts_at("e74", "proj=full z_act=twice_sigmoid", "1.m.b_z", 0, 0);
    starts_at("e74", "", "1.n.w", 1, 0);
    starts_at("e74", "width=64 task=mqar length=128", "logits.W", 0, 1 / sqrt(64));
    starts_at("e74", "state=lowrank n_state=64", "1.m.V0", 0, 1 / sqrt(8));
    starts_at("dual_memory", "dim=64 slots=32", "1.m.M0", 0, 1 / sqrt(64));
    starts_at("dual_memory", "dim=64", "1.m.b_h", 0, 0);
    starts_at("dual_memory", "preset=e29c dim=64", "1.m.g_r", 1, 0);
    starts_at("dual_memory", "preset=e29c dim=64", "1.m.b_g", 0, 0);
    starts_at("attention", "", "1.s.w_q", 1, 0);
    check(same_start("nonlin=tanh", "nonlin=linear proj=full", 7, "1.m.W_k") == 1,
          "weights of one name start alike in two variants");
    check(same_start("nonlin=tanh", "nonlin=tanh", 8, "1.m.W_k") == 0, "and not by another seed");
}

/* ---- updates ---- */

/* A run that is made by hand. */
struct by_hand {
    struct cell cell;
    struct update u;
    struct update_values v;
};

static int begin(struct by_hand *r, const struct backend *b, const char *mixer, const char *words)
{
    struct call f;

    memset(&r->u, 0, sizeof r->u);
    return cell_of(mixer, words, &f, &r->cell) ||
           update_open(&r->u, &r->cell, b, context_of(here(), b), 3, NULL);
}

static int updates(struct by_hand *r, int n)
{
    int e = 0;
    for (int i = 0; !e && i < n; i++)
        e = update_run(&r->u) || update_read(&r->u, &r->v);
    return e;
}

static void failed(int e)
{
    if (e)
        printf("# %s\n", err_text());
}

#define SMALL "width=8 batch=3 length=5 updates=6 lr=1e-2 eval_rows=3 "
static const struct {
    const char *mixer, *words;
} models[] = {{"e74", SMALL "n_state=4 state=full proj=full z_mod=row"},
              {"e74", SMALL "n_state=4 blocks=2 nonlin=rmsnorm head=tied"},
              {"dual_memory", SMALL "dim=8 slots=3 mlp=12"},
              {"attention", SMALL "heads=2 dim=4"}};

/* All of a run's states by another way to make it, `how`. */
static void *state_after(const struct backend *b, int model, const char *more, int n,
                         int (*how)(struct by_hand *r, int n))
{
    struct by_hand *r = malloc(sizeof *r);
    char words[300];

    snprintf(words, sizeof words, "%s %s", models[model].words, more);
    const int e = !r || begin(r, b, models[model].mixer, words) || how(r, n);
    failed(e);
    void *state = e ? NULL : update_state(&r->u);
    if (r)
        update_close(&r->u);
    free(r);
    return state;
}

/* Call by call. */
static int by_calls(struct by_hand *r, int n)
{
    int e = 0;
    for (int i = 0; !e && i < n; i++)
        e = update_passes(&r->u) || update_read(&r->u, &r->v);
    return e;
}

/* With validations between. */
static int with_validations(struct by_hand *r, int n)
{
    struct evaluated v;
    int e = 0;
    for (int i = 0; !e && i < n; i++)
        e = updates(r, 1) || update_evaluate(&r->u, SPLIT_VALIDATION, 1, 7, &v) ||
            update_evaluate(&r->u, SPLIT_TEST, 1, 7, &v);
    return e;
}

/* Each update once more from the state before it. */
static int made_again(struct by_hand *r, int n)
{
    int e = 0;
    for (int i = 0; !e && i < n; i++) {
        void *before = update_state(&r->u);
        e = !before || updates(r, 1) || update_restore(&r->u, before) || updates(r, 1);
        free(before);
    }
    return e;
}

/* Judged. */
static int judged(struct by_hand *r, int n)
{
    struct verdicts list = {0};
    struct judged_update how;
    int e = 0;

    for (int i = 0; !e && i < n; i++)
        e = update_judged(&r->u, 1, &list, &how) || update_read(&r->u, &r->v);
    check(!e && list.n > 50 && !verdicts_failed(&list, 0) && how.rows > 0,
          "%s: %d updates judged: %d verdicts, %d failed", r->u.b->name, n, list.n,
          verdicts_failed(&list, 0));
    print_failures(&list, e);
    verdicts_free(&list);
    return e;
}

static void same_states(const struct backend *b, int model, const char *more,
                        int (*how)(struct by_hand *r, int n), const char *what)
{
    enum { N = 4 };
    struct by_hand *r = malloc(sizeof *r);
    void *own = state_after(b, model, "", N, updates), *other = state_after(b, model, more, N, how);
    const char *differ = "not made";

    if (r && own && other && !begin(r, b, models[model].mixer, models[model].words))
        differ = update_states_differ(&r->u, own, other);
    check(!differ, "%s: %s: the same bits %s%s%s", b->name, models[model].mixer, what,
          differ ? ": not in " : "", differ ? differ : "");
    if (r)
        update_close(&r->u);
    free(r);
    free(own);
    free(other);
}

/* Weights, m and v alone: a scale of the loss that is a power of 2 changes no other bit. */
static void scaled(const struct backend *b, int model)
{
    struct by_hand *r = malloc(sizeof *r), *s = malloc(sizeof *s);
    char words[300];
    int same = 0;

    snprintf(words, sizeof words, "%s loss_scale=1024", models[model].words);
    int e = begin(r, b, models[model].mixer, models[model].words) ||
            begin(s, b, models[model].mixer, words) || updates(r, 3) || updates(s, 3);
    double *x = malloc(r->u.elements * sizeof *x), *y = malloc(r->u.elements * sizeof *y);
    e = e || update_weights(&r->u, x) || update_weights(&s->u, y);
    same = !e && same_bits(x, y, r->u.elements) && r->v.norm == s->v.norm && s->v.scale == 1024;
    check(same, "%s: %s: a loss that is 1024 times as large changes no bit of the weights", b->name,
          models[model].mixer);
    failed(e);
    free(x);
    free(y);
    update_close(&r->u);
    update_close(&s->u);
    free(r);
    free(s);
}

/* ---- the optimiser alone ---- */

/* Its passes: the norm, the schedule, AdamW. */
static int step(struct update *u)
{
    int e = 0;
    for (int i = UPDATE_NORM; !e && i < UPDATE_CALLS; i++)
        e = u->call[i].op ? call_pass(&u->call[i], FORWARD) : 0;
    return e;
}

/* Ten steps of gradients that are 0: what decays does by the product of 1 - rate decay, nothing else moves. */
static void decay_alone(const struct backend *b, const char *mixer, const char *words)
{
    struct by_hand *r = malloc(sizeof *r);
    int e = begin(r, b, mixer, words);
    const struct layout *l = &r->u.layout;
    const int64_t n = r->u.elements;
    double *before = malloc(n * sizeof *before), *after = malloc(n * sizeof *after), factor = 1;
    int parts = 0, decayed = 0, right = 1;

    e = e || update_weights(&r->u, before);
    for (int i = 0; !e && i < 10; i++) {
        e = step(&r->u) || update_read(&r->u, &r->v);
        factor *= 1 - r->v.rate * r->cell.weight_decay;
    }
    e = e || update_weights(&r->u, after);
    for (int k = 0; !e && k < 2; k++)
        for (int i = 0; i < (k ? l->wide.n : l->storage.n); i++) {
            const struct layout_part *p = k ? &l->wide.part[i] : &l->storage.part[i];
            const int64_t at = p->at + (k ? l->storage.elements : 0);
            const double by = p->decays ? factor : 1;
            for (int64_t j = at; j < at + p->n; j++)
                right &= fabs(after[j] - by * before[j]) <= 1e-5 * fabs(before[j]) &&
                         (p->decays || after[j] == before[j]);
            parts++;
            decayed += p->decays;
        }
    check(!e && right && decayed && decayed < parts && r->v.t == 10,
          "%s: %s: without a gradient %d of %d tensors decay, by %.6f, the others stay", b->name,
          mixer, decayed, parts, factor);
    failed(e);
    free(before);
    free(after);
    update_close(&r->u);
    free(r);
}

static int put_gradient(struct update *u, double value)
{
    return transfer_put(&u->call[UPDATE_NORM], u->b->wide, u->gradients, &value, 1);
}

/* Steps of gradients that are known, against the formulas, for the first weight of each buffer. */
static void known_steps(const struct backend *b, const char *words, int steps)
{
    struct by_hand *r = malloc(sizeof *r);
    int e = begin(r, b, "dual_memory", words);
    const struct cell *c = &r->cell;
    const int64_t n = r->u.elements, at[2] = {0, r->u.layout.storage.elements};
    double *w = malloc(n * sizeof *w), *g = calloc(n, sizeof *g), worst = 0;
    double p[2], m[2] = {0, 0}, v[2] = {0, 0};

    e = e || update_weights(&r->u, w);
    for (int k = 0; !e && k < 2; k++)
        p[k] = w[at[k]];
    for (int t = 1; !e && t <= steps; t++) {
        const double rate = rate_at(c, t), norm = 0.5 * t;
        g[at[0]] = 0.3 * t, g[at[1]] = -0.4 * t; /* of norm t / 2 */
        e = transfer_put(&r->u.call[UPDATE_NORM], r->u.b->wide, r->u.gradients, g, n) ||
            step(&r->u);
        const double factor = c->clip > 0 ? fmin(1, c->clip / (norm + 1e-6)) : 1;
        for (int k = 0; k < 2; k++) {
            const double gk = factor * g[at[k]], decay = k ? 0 : c->weight_decay;
            m[k] = c->beta1 * m[k] + (1 - c->beta1) * gk;
            v[k] = c->beta2 * v[k] + (1 - c->beta2) * gk * gk;
            const double mean = m[k] / (1 - pow(c->beta1, t)),
                         root = sqrt(v[k] / (1 - pow(c->beta2, t)));
            p[k] -= rate * (mean / (root + c->eps) + decay * p[k]);
        }
    }
    e = e || update_weights(&r->u, w);
    for (int k = 0; !e && k < 2; k++)
        worst = fmax(worst, fabs(w[at[k]] - p[k]));
    check(!e && worst <= (b->wide == F64 ? 1e-13 : 2e-6),
          "%s: %d steps of known gradients: %.2g off: %s", b->name, steps, worst, words);
    failed(e);
    free(w);
    free(g);
    update_close(&r->u);
    free(r);
}

#define STEPS "width=8 dim=8 slots=3 length=5 batch=2 updates=200 "
static void all_known_steps(const struct backend *b)
{
    known_steps(b, STEPS "lr=0.05 weight_decay=0.5 beta1=0.8 beta2=0.6 warmup=3", 8);
    known_steps(b, STEPS "lr=0.05 weight_decay=0.1 clip=0 adam_eps=0.1 schedule=constant warmup=0",
                5);
    /* each too small to be seen by a weight of bf16 */
    known_steps(b, STEPS "lr=1e-5 schedule=constant warmup=0", 150);
}

/* The weights that the model reads are the masters', rounded. */
static void rounded_masters(const struct backend *b)
{
    struct by_hand *r = malloc(sizeof *r);
    int e = begin(r, b, "e74", SMALL "n_state=4") || updates(r, 3);
    const int64_t n = r->u.layout.storage.elements;
    double *w = malloc(r->u.elements * sizeof *w), *stored = malloc(n * sizeof *stored);

    e = e || update_weights(&r->u, w) ||
        transfer_get(&r->u.call[UPDATE_MODEL], b->type, stored, r->u.weights[0], n);
    const int rounded = !e && !same_bits(w, stored, n);
    if (!e)
        values_round(b->type, w, n);
    check(!e && rounded == (b->type != b->wide) && same_bits(w, stored, n),
          "%s: the model reads masters, rounded", b->name);
    failed(e);
    free(w);
    free(stored);
    update_close(&r->u);
    free(r);
}

/* A gradient that is no number is skipped: nothing moves but u, and a scale that may. */
static void overflow(const struct backend *b)
{
    struct by_hand *r = malloc(sizeof *r);
    int e = begin(r, b, "e74", SMALL "n_state=4 loss_scale=dynamic");
    void *before = NULL, *after = NULL;
    double scale = 0;

    e = e || updates(r, 2);
    scale = r->v.scale;
    e = e || !(before = update_state(&r->u)) || put_gradient(&r->u, INFINITY) || step(&r->u) ||
        update_read(&r->u, &r->v) || !(after = update_state(&r->u));
    const char *differ = e ? "nothing" : update_states_differ(&r->u, before, after);
    check(!e && scale == 65536 && r->v.scale == 32768 && r->v.skipped && r->v.u == 3 &&
              r->v.t == 2 && r->v.good == 0 && differ && strcmp(differ, "u") == 0,
          "%s: an infinite gradient is skipped: u %lld, t %lld, the scale halves, first other: %s",
          b->name, (long long)r->v.u, (long long)r->v.t, differ ? differ : "none");
    e = e || updates(r, 1);
    check(!e && r->v.u == 4 && r->v.t == 3 && r->v.scale == 32768 && !r->v.skipped &&
              r->v.good == 1 &&
              r->v.rate ==
                  (b->type == F64 ? rate_at(&r->cell, 4) : (double)(float)rate_at(&r->cell, 4)),
          "%s: then it goes on, with the rate of the fourth update", b->name);
    failed(e);
    free(before);
    free(after);
    update_close(&r->u);
    free(r);
}

/* The norm of all gradients, clipped as a whole, by the norm and not its square. */
static void clipped(const struct backend *b, const char *mixer, const char *words)
{
    struct by_hand *r = malloc(sizeof *r);
    int e = begin(r, b, mixer, words) || updates(r, 1);
    double *g = e ? NULL : malloc(r->u.elements * sizeof *g), sum = 0;

    e = e || !g || update_gradients(&r->u, g);
    for (int64_t i = 0; !e && i < r->u.elements; i++)
        sum += g[i] * g[i] / 65536.0;
    const double want = 0.01 / (sqrt(sum) + 1e-6) / 256;
    check(!e && sqrt(sum) > 0.02 && fabs(r->v.norm - sqrt(sum)) <= 1e-5 * sqrt(sum) &&
              fabs(r->v.factor - want) <= 1e-5 * want,
          "%s: %s: the norm %.5f is clipped to 0.01, behind the scale", b->name, mixer, r->v.norm);
    failed(e);
    free(g);
    update_close(&r->u);
    free(r);
}

/* ---- judgement ---- */

static const struct impl *right; /* of a model */
static int wrong_arg;
static double wrong_by;

/* Backward, and a weight's gradient off by a part of itself. */
static int off(const struct call *f)
{
    struct call g = *f;
    const int64_t n = op_count(f, wrong_arg);
    double *x = malloc(n * sizeof *x);
    struct impl own = *right;

    own.data = f->kernel->data; /* who looks at it */
    g.kernel = &own;
    int e = !x || right->pass[BACKWARD](&g) ||
            transfer_get(f, call_type(f, wrong_arg, 1), x, f->grad[wrong_arg], n);
    for (int64_t i = 0; !e && i < n; i++)
        x[i] *= 1 + wrong_by;
    e = e || transfer_put(f, call_type(f, wrong_arg, 1), f->grad[wrong_arg], x, n);
    free(x);
    return e;
}

/* Is there one verdict that failed, of that check and tensor? */
static int only_failed(const struct verdicts *list, const char *check, const char *tensor)
{
    int n = 0, others = 0;

    for (int i = 0; i < list->n; i++) {
        const struct verdict *v = &list->v[i];
        const int is = strcmp(v->check, check) == 0 && strcmp(v->tensor, tensor) == 0;
        n += is && !v->pass;
        others += !is && !v->pass;
    }
    return n == 1 && !others;
}

/* A model whose backward pass is wrong behind its calls: the step sees it, and names the update. */
static void wrong_step(const struct backend *b)
{
    struct by_hand *r = malloc(sizeof *r);
    struct verdicts list = {0};
    struct judged_update how;
    int e = begin(r, b, "e74", SMALL "n_state=4") || updates(r, 2);
    struct impl wrong = {.name = ""};

    if (!e) {
        right = r->u.call[UPDATE_MODEL].kernel;
        wrong = *right;
        wrong.pass[BACKWARD] = off;
        wrong_by = 1e-3;
        wrong_arg = op_arg(r->u.call[UPDATE_MODEL].op, "1.m.W_v");
        r->u.call[UPDATE_MODEL].kernel = &wrong;
        r->u.ran = 0; /* no recording of the right one */
        e = update_judged(&r->u, 1, &list, &how);
    }
    check(!e && only_failed(&list, "step", "d_1.m.W_v") && list.v[0].update == 3,
          "%s: a gradient of the whole model that is off by 1e-3 is seen by the step alone, in "
          "update "
          "%lld",
          b->name, list.n ? (long long)list.v[0].update : 0);
    if (e || !only_failed(&list, "step", "d_1.m.W_v"))
        print_failures(&list, e);
    verdicts_free(&list);
    update_close(&r->u);
    free(r);
}

/* ---- batches ---- */

static int first_tokens(struct update *u, const struct call *f, double *x)
{
    const int arg = PLACE(examples, token);
    return transfer_get(&u->call[UPDATE_BATCH], call_type(f, arg, 0), x, f->arg[arg],
                        op_count(f, arg));
}

/* Two updates, a validation and a test have tokens of their own, and a run of another seed others. */
static void streams(const struct backend *b)
{
    enum { STREAMS = 5, MOST = 400 };
    struct by_hand *r = malloc(sizeof *r), *s = malloc(sizeof *s);
    static double x[STREAMS][MOST];
    struct evaluated v, again;
    struct call f;
    const char *words = "width=4 batch=20 length=20 updates=3 eval_rows=20 period=0";
    int e = begin(r, b, "none", words) || updates(r, 1) ||
            first_tokens(&r->u, &r->u.call[UPDATE_BATCH], x[0]) || updates(r, 1) ||
            first_tokens(&r->u, &r->u.call[UPDATE_BATCH], x[1]) ||
            update_evaluate(&r->u, SPLIT_VALIDATION, 3, 20, &v) ||
            first_tokens(&r->u, &r->u.call[UPDATE_BATCH], x[2]) ||
            update_evaluate(&r->u, SPLIT_TEST, 3, 20, &again) ||
            first_tokens(&r->u, &r->u.call[UPDATE_BATCH], x[3]);
    int same = 0;

    memset(&s->u, 0, sizeof s->u);
    e = e || cell_of("none", words, &f, &s->cell);
    e = e || cell_read(&f, 4, &s->cell) ||
        update_open(&s->u, &s->cell, b, context_of(here(), b), 4, NULL) || updates(s, 1) ||
        first_tokens(&s->u, &s->u.call[UPDATE_BATCH], x[4]);
    for (int i = 0; i < STREAMS; i++)
        for (int j = 0; j < i; j++) {
            int alike = 0;
            for (int k = 0; k < MOST; k++)
                alike += x[i][k] == x[j][k];
            same |= alike > MOST / 2 + 100; /* half of the bits, and ten deviations */
        }
    check(!e && !same, "%s: two updates, validation, test and another seed have five streams",
          b->name);
    e = e || update_evaluate(&r->u, SPLIT_VALIDATION, 3, 20, &again);
    check(!e && again.loss == v.loss && again.hits == v.hits && v.targets == 400 && v.rows == 20,
          "%s: a validation is the same whenever it comes", b->name);
    const double loss = again.loss;
    e = e || update_evaluate(&r->u, SPLIT_VALIDATION, 4, 20, &again);
    check(!e && again.loss != loss, "%s: and another one by another of the split's seed", b->name);
    failed(e);
    update_close(&r->u);
    update_close(&s->u);
    free(r);
    free(s);
}

/* Of rows with one target each the loss is the mean over the targets, near chance's log 2, and all rows of several
 * batches count. */
static void evaluated(const struct backend *b)
{
    struct by_hand *r = malloc(sizeof *r);
    struct evaluated v, one, two;
    int e = begin(r, b, "none",
                  "width=4 batch=8 length=6 supervise=last min=2 updates=3 eval_rows=8") ||
            update_evaluate(&r->u, SPLIT_VALIDATION, 1, 16, &v) ||
            update_evaluate(&r->u, SPLIT_VALIDATION, 1, 8, &one);
    int64_t targets = 0;

    two = v;
    for (int i = 0; i < 10; i++)
        targets += v.targets_at[i];
    check(!e && v.rows == 16 && v.targets == 16 && targets == 16 && one.targets == 8 &&
              one.hits <= two.hits && v.hits == v.rows_right && v.loss > 0.3 && v.loss < 3 &&
              v.loss != one.loss,
          "%s: 16 rows with a target each: loss %.4f, %lld hit", b->name, v.loss,
          (long long)v.hits);
    failed(e);
    update_close(&r->u);
    free(r);
}

/* ---- runs ---- */

/* "key=value key=value" */
static int set_words(struct call *f, const char *words)
{
    char copy[300], *at = copy, *word;
    int e = 0;

    snprintf(copy, sizeof copy, "%s", words);
    while (!e && (word = strsep(&at, " "))) {
        char *value = strchr(word, '=');
        *value = 0;
        e = op_set(f, word, value + 1);
    }
    return e;
}

static int run_of(const struct backend *b, const char *mixer, const char *words, struct cell *c,
                  struct training *t, struct verdicts *list, struct trained *to)
{
    struct call f;

    memset(to, 0, sizeof *to);
    if (cell_of(mixer, words, &f, c))
        return -1;
    *t = (struct training){
        .cell = c, .backend = b, .context = context_of(here(), b), .seed = 3, .data_seed = 1};
    return train(t, list, to);
}

static unsigned char *sample(size_t *n)
{
    const char *srcdir = getenv("srcdir");
    char file[1000];

    snprintf(file, sizeof file, "%s/data/sample.txt", srcdir ? srcdir : ".");
    return file_read(file, n);
}

/* The most targets of the batch that is there that a function of the current token alone can hit. */
static int64_t known_from_token(struct update *u, int64_t *targets)
{
    enum { MOST = 300 };
    const struct call *f = &u->call[UPDATE_BATCH];
    const int64_t n = op_count(f, PLACE(examples, token));
    double *token = malloc(n * sizeof *token), *target = malloc(n * sizeof *target);
    int64_t(*count)[MOST] = calloc(MOST, sizeof *count), sum = 0;
    int e = !token || !target || !count ||
            transfer_get(f, call_type(f, PLACE(examples, token), 0), token,
                         f->arg[PLACE(examples, token)], n) ||
            transfer_get(f, call_type(f, PLACE(examples, target), 0), target,
                         f->arg[PLACE(examples, target)], n);

    *targets = 0;
    for (int64_t i = 0; !e && i < n; i++)
        if (target[i] >= 0) {
            count[(int)token[i]][(int)target[i]]++;
            ++*targets;
        }
    for (int i = 0; !e && i < MOST; i++) {
        int64_t most = 0;
        for (int j = 0; j < MOST; j++)
            most = count[i][j] > most ? count[i][j] : most;
        sum += most;
    }
    free(token);
    free(target);
    free(count);
    return e ? -1 : sum;
}

/* Without a mixer a model learns what the current token tells, and no more. */
static void controls(const struct backend *b)
{
    static const struct {
        const char *words;
        double less; /* that it may have */
    } of[] = {
        {"task=parity length=6 batch=512 updates=60 lr=1e-2 width=8", 0.02},
        {"task=counter modulus=3 length=6 batch=512 updates=60 lr=1e-2 width=8", 0.02},
        {"task=counter moves=yes modulus=5 length=4 batch=512 updates=100 lr=2e-2 width=8", 0.02},
        {"task=word length=3 batch=512 updates=100 lr=2e-2 width=16", 0.02},
        {"task=copy vocabulary=3 length=5 batch=512 updates=40 lr=1e-2 width=8", 0.05},
        {"task=mqar vocabulary=8 pairs=2 length=12 batch=512 updates=60 lr=2e-2 width=16", 0.05},
        {"task=bytes length=12 batch=256 updates=150 lr=3e-2 width=32", 0.08}};
    size_t bytes;
    unsigned char *corpus = sample(&bytes);

    for (int i = 0; corpus && i < (int)COUNT(of); i++) {
        struct by_hand *r = calloc(1, sizeof *r);
        struct evaluated v = {.targets = 0};
        struct call f;
        int64_t targets = 1, best = -1;
        op_defaults(cell_op("none"), &f);
        int e = set_words(&f, of[i].words);
        cell_set_corpus(&f, (int64_t)bytes);
        e = e || op_complete(&f) || cell_read(&f, 3, &r->cell) ||
            update_open(&r->u, &r->cell, b, context_of(here(), b), 3, corpus) ||
            updates(r, (int)r->cell.updates) || update_evaluate(&r->u, SPLIT_TEST, 1, 1, &v);
        if (!e)
            best = known_from_token(&r->u, &targets);
        const double accuracy = (double)v.hits / (double)targets,
                     most = (double)best / (double)targets;
        check(!e && targets == v.targets && accuracy <= most && accuracy >= most - of[i].less,
              "%s: no mixer: accuracy %.3f of the %.3f that the token tells: %s", b->name, accuracy,
              most, of[i].words);
        failed(e);
        update_close(&r->u);
        free(r);
    }
    free(corpus);
}

/* Every mixer learns 4 rows by heart. */
static void overfits(const struct backend *b)
{
    static const char *const of[][2] = {{"e74", "state=full n_state=16"},
                                        {"e74", "state=full proj=full z_mod=row n_state=16"},
                                        {"e74", "state=full nonlin=linear n_state=16"},
                                        {"e74", "state=diagonal nonlin=rmsnorm n_state=16 heads=4"},
                                        {"e74", "state=blockdiag n_state=16 nonlin=frobnorm"},
                                        {"e74", "state=lowrank n_state=16"},
                                        {"e74_block", "n_state=16"},
                                        {"dual_memory", "dim=32 slots=8"},
                                        {"dual_memory", "preset=e25 dim=32 slots=8"},
                                        {"dual_memory", "preset=e29a dim=32 slots=8"},
                                        {"dual_memory", "preset=e29b dim=32 slots=8"},
                                        {"dual_memory", "preset=e29c dim=32 slots=8"},
                                        {"attention", "dim=16"}};
    size_t bytes;
    unsigned char *corpus = sample(&bytes);

    for (int i = 0; corpus && i < (int)COUNT(of); i++) {
        struct by_hand *r = calloc(1, sizeof *r);
        struct call f;
        int n = 0, e;
        op_defaults(cell_op(of[i][0]), &f);
        e = set_words(&f, "task=bytes length=16 batch=4 width=64 lr=1e-2 updates=200 period=1") ||
            set_words(&f, of[i][1]);
        cell_set_corpus(&f, (int64_t)bytes);
        e = e || op_complete(&f) || cell_read(&f, 3, &r->cell) ||
            update_open(&r->u, &r->cell, b, context_of(here(), b), 3, corpus);
        r->v.loss = 1;
        for (; !e && n < 200 && !(r->v.loss < 0.05); n++)
            e = updates(r, 1);
        check(!e && r->v.loss < 0.05, "%s: %s %s knows 4 rows by heart: loss %.3f in update %d",
              b->name, of[i][0], of[i][1], r->v.loss, n);
        failed(e);
        update_close(&r->u);
        free(r);
    }
    free(corpus);
}

static void diverges(const struct backend *b)
{
    struct cell c;
    struct training t;
    struct trained r;
    struct verdicts list = {0};
    const int e =
        run_of(b, "e74",
               SMALL "n_state=4 updates=200 lr=1000 clip=0 schedule=constant proj=full z_mod=row "
                     "nonlin=linear warmup=0",
               &c, &t, &list, &r);

    check(!e && r.end == RUN_DIVERGED && r.n_skipped && r.done < 200 && r.n_validations,
          "%s: a rate of 1000 diverges at update %lld, %lld skipped", b->name, (long long)r.done,
          (long long)r.n_skipped);
    failed(e);
    trained_free(&r);
    verdicts_free(&list);
}

/* A call is judged where its values are within the range, and counted where one is not. */
static void beyond(const struct backend *b)
{
    static const double largest[] = {1, 0x1p60, 0x1p61, -0x1p61, INFINITY, NAN};
    struct call f;
    int right = !cases_one(op_find("relu"), "rows=2 dim=3", &f);

    f = call_here(&f, b, op_kernel(f.op, b, 0));
    for (int i = 0; right && i < 2 * (int)COUNT(largest); i++) {
        struct verdicts list = {0};
        struct calls c = {.list = &list, .seed = 1, .much = 1e9, .most = i % 2 ? 0x1p60 : 0};
        struct tensors *t = tensors_new(&f);
        const double x = largest[i / 2];
        t->x[op_arg(f.op, "x")][4] = x;
        right = !check_one_call(&c, "y", &f, t, NULL) &&
                (list.n == 0) == (i % 2 && !(fabs(x) <= 0x1p60)) && c.beyond == (list.n == 0);
        tensors_free(t);
        verdicts_free(&list);
    }
    check(right, "%s: calls that are given values beyond 2^60 are counted, and not judged",
          b->name);
}

/* An update that overflows is no failure of a kernel, and what is no number has learned nothing. */
static void overflows(const struct backend *b)
{
    static const struct {
        const char *mixer, *words;
    } of[] = {
        {"e74",
         "width=16 length=12 batch=16 updates=200 eval_rows=8 lr=100 n_state=8 proj=full z_mod=row "
         "nonlin=linear parity_every=1 eval_every=1"},
        {"e74",
         "width=8 length=64 batch=4 updates=40 eval_rows=8 lr=0.3 n_state=4 proj=full z_mod=row "
         "nonlin=linear parity_every=1 eval_every=5 clip=0 target=0.1 patience=50"},
        {"attention",
         "dim=8 width=8 length=7 batch=4 updates=10 eval_rows=8 lr=1000 weight_decay=1000 "
         "parity_every=1 task=copy vocabulary=1 eval_every=1 target=0.5 patience=1"}};

    for (int i = 0; i < (int)COUNT(of); i++) {
        struct cell c;
        struct training t;
        struct trained r;
        struct verdicts list = {0};
        struct call f;
        memset(&r, 0, sizeof r);
        int e = cell_of(of[i].mixer, of[i].words, &f, &c);
        t = (struct training){.cell = &c,
                              .backend = b,
                              .context = context_of(here(), b),
                              .seed = 1,
                              .data_seed = 1,
                              .judged = is_judged(b) || b == &ref32};
        e = e || train(&t, &list, &r);
        int no_number = 0, credited = 0;
        for (int k = 0; !e && k < r.n_validations; k++) {
            const struct validation *v = &r.validation[k];
            no_number += !isfinite(v->loss);
            credited += !isfinite(v->loss) && (v->accuracy > 0.5 || r.learned == v->update);
        }
        check(!e && !verdicts_failed(&list, 0) && !credited,
              "%s: an update of %s overflows and none is blamed: %s: %s at update %lld, %d "
              "verdicts, %d not judged; %d validations without a "
              "number",
              b->name, of[i].mixer, of[i].words, e ? "" : run_ends[r.end], (long long)r.done,
              list.n, verdicts_unjudged(&list, 0), no_number);
        print_failures(&list, e);
        trained_free(&r);
        verdicts_free(&list);
    }
}

static void asked_to_end(const struct backend *b)
{
    struct by_hand *r = malloc(sizeof *r);
    struct evaluated v;
    const volatile int stop = 1;
    int e = !r || begin(r, b, "none", SMALL) || updates(r, 1);

    if (!e) {
        r->u.stop = &stop;
        e = !update_evaluate(&r->u, SPLIT_TEST, 1, 1000, &v);
    }
    check(!e && strcmp(err_text(), "interrupted") == 0,
          "%s: a validation ends where it is asked to", b->name);
    if (r)
        update_close(&r->u);
    free(r);
}

static void never_validated(const struct backend *b)
{
    struct cell c;
    struct training t;
    struct trained r;
    struct verdicts list = {0};
    const int e = run_of(b, "none", SMALL "eval_every=0 parity_every=0", &c, &t, &list, &r);

    check(!e && r.n_validations == 1 && r.validation[0].update == 6 && !list.n,
          "%s: eval_every = 0: one validation at the end", b->name);
    failed(e);
    trained_free(&r);
    verdicts_free(&list);
}

static void on_backend(const struct backend *b)
{
    const char *why = backend_unavailable(here(), b);

    if (why) {
        skip(why, "%s: updates", b->name);
        return;
    }
    for (int i = 0; i < (int)COUNT(models); i++) {
        same_states(b, i, "", updates, "twice");
        same_states(b, i, "", by_calls, "as one recording and call by call");
        same_states(b, i, "", with_validations, "with validations between");
        same_states(b, i, "", made_again, "from a state that is restored");
        same_states(b, i, "parity_every=0 eval_every=1", updates,
                    "however often it is judged and validated");
        if (is_judged(b) || (b->type == F32 && !i))
            same_states(b, i, "", judged, "judged");
        scaled(b, i);
    }
    decay_alone(
        b, "e74",
        "width=8 n_state=4 length=5 batch=2 updates=20 weight_decay=0.5 lr=0.1 proj=full mlp=8");
    decay_alone(b, "dual_memory",
                "width=8 dim=8 slots=3 length=5 batch=2 updates=20 weight_decay=0.5 lr=0.1");
    all_known_steps(b);
    rounded_masters(b);
    overflow(b);
    clipped(b, "e74", SMALL "n_state=4 clip=0.01 loss_scale=256");
    clipped(b, "dual_memory", SMALL "dim=8 slots=3 clip=0.01 loss_scale=256");
    if (is_judged(b) && b->type == F32)
        wrong_step(b);
    streams(b);
    evaluated(b);
    if (emulated(b))
        skip("hundreds of updates take the emulator too long", "%s: what the token tells", b->name);
    else
        controls(b);
    if (b->type == F32 && (!is_judged(b) || b->machine->timing.record))
        overfits(b);
    diverges(b);
    beyond(b);
    overflows(b);
    asked_to_end(b);
    never_validated(b);
}

int main(void)
{
    keys();
    refused();
    rates();
    starts();
    for (const struct backend *const *b = backends(); *b; b++)
        on_backend(*b);
    return done();
}
