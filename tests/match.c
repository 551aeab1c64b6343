/* The size of a model, by formulas of its own; and models that are made equal (match). */
#include "config.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/call/cases.h"
#include "common/plan/nearest.h"
#include "common/run/training_time.h"
#include "tests/here.h"
#include "tests/plans.h"

/* ---- sizes ---- */

/* Outside the blocks, of parity: 2 tokens and 2 classes; and what a mixer's block has around it, of a width of d and of m
 * behind the mixer. */
#define OUTER(d) (2 * (d) + 2 * (d))
#define LAST(d) (d)
#define AROUND(d, m) ((d) + (d) * (m))
/* FLOPs of a token: a norm 4 an element, a sum 1, a product 2; the loss 4 a class, and which is largest 1. */
#define LAST_FLOPS(d) (4 * (d) + 2 * 2 * (d) + (4 + 1) * 2)
#define AROUND_FLOPS(d, m) (4 * (d) + 2 * (d) * (m) + (d))

static const struct {
    const char *mixer, *words;
    enum dtype type;
    struct cell_size is;
} sizes[] = {
    /* The first four are a published table's. */
    {"e74", "proj=full z_mod=row n_state=16 width=32", F32, {2768, 2640, 1024, 0}},
    {"e74", "proj=no_z n_state=16 width=32", F32, {2240, 2112, 1024, 0}},
    {"e74", "state=diagonal proj=no_z n_state=32 width=32", F32, {4288, 4160, 128, 0}},
    {"dual_memory", "dim=32 slots=8 width=32", F32, {4576, 4448, 1152, 0}},
    /* k, v, q, z and b_z, of 2 heads; 3 products of n x n. */
    {"e74",
     "proj=full z_mod=row n_state=4 heads=2 width=6 length=7 batch=3",
     F32,
     {OUTER(6) + LAST(6) + 4 * 8 * 6 + 8 + AROUND(6, 8), LAST(6) + 4 * 8 * 6 + 8 + AROUND(6, 8),
      2 * 4 * 4 * 4, LAST_FLOPS(6) + AROUND_FLOPS(6, 8) + 4 * 2 * 8 * 6 + 3 * 2 * 8 * 4}},
    /* The state is kept in fp32. */
    {"e74",
     "proj=no_z state=blockdiag block_size=4 n_state=8 width=6 blocks=3",
     BF16,
     {OUTER(6) + LAST(6) + 3 * (3 * 8 * 6 + AROUND(6, 8)), LAST(6) + 3 * (3 * 8 * 6 + AROUND(6, 8)),
      3 * 8 * 4 * 4, LAST_FLOPS(6) + 3 * (AROUND_FLOPS(6, 8) + 3 * 2 * 8 * 6 + 3 * 2 * 8 * 4)}},
    /* V, which all sequences share, is a weight and no state; so is W_r. */
    {"e74",
     "proj=no_z state=lowrank rank=3 n_state=8 heads=2 width=6",
     F32,
     {OUTER(6) + LAST(6) + 3 * 16 * 6 + 2 * 2 * 8 * 3 + AROUND(6, 16),
      LAST(6) + 3 * 16 * 6 + 2 * 2 * 8 * 3 + AROUND(6, 16), 2 * 8 * 3 * 4,
      LAST_FLOPS(6) + AROUND_FLOPS(6, 16) + 3 * 2 * 16 * 6 + 3 * 2 * 16 * 3 + 3 * 2 * 16 * 3}},
    /* Its own norm, W_o and sum are within; the norm and the sum are counted 5 an element. */
    {"e74_block",
     "proj=no_z n_state=4 width=6 mlp=5",
     F32,
     {OUTER(6) + LAST(6) + 3 * 4 * 6 + AROUND(6, 4) + 6 + 3 * 5 * 6,
      LAST(6) + 3 * 4 * 6 + AROUND(6, 4) + 6 + 3 * 5 * 6, 4 * 4 * 4,
      LAST_FLOPS(6) + AROUND_FLOPS(6, 4) + 3 * 2 * 4 * 6 + 3 * 2 * 4 * 4 +
          (4 * 6 + 3 * 2 * 5 * 6 + 5 * 5 + 6)}},
    /* The last h and the tape. */
    {"dual_memory",
     "dim=8 slots=3 width=6 blocks=2",
     BF16,
     {OUTER(6) + LAST(6) + 2 * (2 * 8 * 8 + 8 + 8 * 6 + 3 * 8 + AROUND(6, 8)),
      LAST(6) + 2 * (2 * 8 * 8 + 8 + 8 * 6 + 3 * 8 + AROUND(6, 8)), 2 * (8 + 3 * 8) * 4,
      LAST_FLOPS(6) + 2 * (AROUND_FLOPS(6, 8) + 2 * 8 * (2 * 8 + 6) + 9 * 8 * 3)}},
    /* 4 heads of q, 2 of k and v; norms of q and k, whose rotations are 3 an element; of 7 queries the
     * first sees one key, the last 7: 28 / 7 = 4 each. */
    {"attention",
     "heads=4 kv_heads=2 dim=2 width=6 length=7 batch=3",
     BF16,
     {OUTER(6) + LAST(6) + 16 * 6 + 4 + AROUND(6, 8), LAST(6) + 16 * 6 + 4 + AROUND(6, 8),
      7 * 2 * (2 + 2) * 2,
      LAST_FLOPS(6) + AROUND_FLOPS(6, 8) + 2 * 16 * 6 + (4 + 3) * (4 + 2) * 2 +
          4 * 4 * 2 * (2 + 2)}},
    {"attention",
     "heads=1 dim=2 width=6 length=70 mask=window left=4 right=0",
     F32,
     {OUTER(6) + LAST(6) + 6 * 6 + 4 + AROUND(6, 2), LAST(6) + 6 * 6 + 4 + AROUND(6, 2),
      5 * (2 + 2) * 4, 0}},
    {"none",
     "width=6 head=tied blocks=2",
     F32,
     {2 * 6 + LAST(6) + 2 * AROUND(6, 6), LAST(6) + 2 * AROUND(6, 6), 0,
      LAST_FLOPS(6) + 2 * AROUND_FLOPS(6, 6)}},
    {"none",
     "width=6 task=counter modulus=5 moves=yes",
     F32,
     {3 * 6 + 5 * 6 + LAST(6) + AROUND(6, 6), LAST(6) + AROUND(6, 6), 0, 0}},
};

static void size_of(int i)
{
    struct call f;
    struct cell_size got, is = sizes[i].is;
    const int e = cases_one(cell_op(sizes[i].mixer), sizes[i].words, &f) ||
                  cell_size(&f, sizes[i].type, &got);

    if (!e && is.flops == 0)
        is.flops = got.flops;
    if (!ok(!e && memcmp(&got, &is, sizeof is) == 0, "%s %s: parameters, state, FLOPs",
            sizes[i].mixer, sizes[i].words) &&
        !e)
        printf("# %g, %g inner, state %g, FLOPs %g; by formula %g, %g, %g, %g\n", got.parameters,
               got.inner, got.state, got.flops, is.parameters, is.inner, is.state, is.flops);
    else if (e)
        printf("# %s\n", err_text());
}

/* ---- the nearest number ---- */

/* Quantities, as the search meets them; refused: -1. */
static double rises(int64_t i)
{
    return (double)(3 * i * i + 7);
}
static double of_eights(int64_t i)
{
    return i % 8 ? -1 : (double)i;
}
static double of_divisors(int64_t i)
{
    return 720720 % i ? -1 : (double)i * 5;
}
static double stays(int64_t i)
{
    return i ? 50 : 80;
}
/* 0 stands for 12. */
static double of_none(int64_t i)
{
    return 10 * (double)(i ? i : 12);
}
static double falls(int64_t i)
{
    return i > 4000 ? -1 : fabs((double)i - 300) + 5;
}
static double has_end(int64_t i)
{
    return i > 100 ? -1 : (double)i;
}

static int64_t asked; /* how often */

static int at(void *data, int64_t i, double *quantity)
{
    double (*const *of)(int64_t) = data;

    asked++;
    *quantity = (*of)(i);
    return *quantity < 0;
}

static void nearest(const char *what, double (*of)(int64_t), int64_t min, int64_t now,
                    double target, int64_t below, int64_t above)
{
    const struct nearest n = {at, &of, target, min, 1 << 30, now};
    struct nearest_two two;

    asked = 0;
    const int e = nearest_find(&n, &two);
    const int64_t got[] = {two.below.there ? two.below.number : -1,
                           two.above.there ? two.above.number : -1};
    if (!ok(!e && got[0] == below && got[1] == above && asked < 40000, "nearest: %s, %g from %lld",
            what, target, (long long)now))
        printf("# below %lld, above %lld, asked %lld times\n", (long long)got[0], (long long)got[1],
               (long long)asked);
}

static void search(void)
{
    struct nearest_two two = {{1, 41, 2740}, {1, 42, 2801}};

    for (int64_t now = 1; now < 100; now += 7)
        nearest("it rises", rises, 1, now, 3 * 23 * 23 + 8, 23, 24);
    nearest("it rises, with that very value", rises, 1, 3, 3 * 1000000. + 7, 1000, 1001);
    nearest("all are more", rises, 1, 40, 9, -1, 1);
    nearest("multiples", of_eights, 1, 16, 1004, 1000, 1008);
    nearest("multiples, from above", of_eights, 1, 16000, 1004, 1000, 1008);
    nearest("divisors", of_divisors, 1, 16, 5 * 100, 99, 104);
    nearest("divisors, from above", of_divisors, 1, 720720, 5 * 100, 99, 104);
    nearest("it stays", stays, 1, 3, 60, 3, -1);
    nearest("0 stands for another", of_none, 0, 0, 119, 11, 0);
    nearest("it falls", falls, 1, 8, 20, 285, 284);
    nearest("it has an end", has_end, 1, 8, 150, 100, -1);
    nearest("it has an end within", has_end, 1, 90, 99.5, 99, 100);
    ok(!nearest_within(&two, 2768, 0.01), "neither is within 1 %%");
    ok(nearest_within(&two, 2768, 0.0102) == &two.below, "one is within 1.02 %%");
    ok(nearest_within(&two, 2780, 0.02) == &two.above, "the nearer of two");
}

/* ---- plans ---- */

#define HEAD(how) "[experiment]\nmeasure = train\nreference = z\nmatch = " how "\n"
#define Z                                                                                          \
    "[model z]\nmixer = e74\nproj = full\nz_mod = row\nn_state = 16\nwidth = 32\n"                 \
    "[task bits]\ntask = parity\nlength = 8\n[train]\nbatch = 2\nlr = 1e-2, 1e-3\nseed = 1, 2\n"
#define TRIAL(models) "[trial]\nmodel = " models "\ntask = bits\n"

static double quantity(const struct trial *t, const char *how)
{
    struct cell_size size = {0, 0, 0, 0};

    cell_size(&t->call, t->type, &size);
    return strcmp(how, "parameters") == 0 ? size.inner
           : strcmp(how, "state") == 0    ? size.state
                                          : size.flops;
}

/* The value of a key in all trials of a variant; -1: not the same. */
static int64_t value_of(const struct experiment *x, const char *variant, const char *key)
{
    int64_t value = -1;
    int n = 0;

    for (int i = 0; i < x->n; i++) {
        const struct trial *t = &x->trial[i];
        const struct param *p = op_param(t->call.op, key, NULL);
        if (strcmp(t->variant, variant) != 0)
            continue;
        const int64_t of = p ? DIM(&t->call, p->letter) : -1;
        char word[64];
        snprintf(word, sizeof word, " %s=%lld ", key, (long long)of);
        value = (n++ && of != value) || !strstr(t->text, word) ? -1 : of;
    }
    return value;
}

/* All are within 1 % of the reference, and the variant has that value. */
static void matched(const char *what, const char *how, const char *ini, const char *variant,
                    const char *key, int64_t value)
{
    struct experiment x;

    if (!good_ini(what, ini, &x))
        return;
    const double target = quantity(&x.trial[0], how);
    int equal = strcmp(x.trial[0].variant, "z") == 0;
    for (int i = 0; i < x.n; i++)
        equal &= fabs(quantity(&x.trial[i], how) - target) <= 0.01 * target;
    if (!ok(equal && value_of(&x, variant, key) == value, "%s: %s = %lld, all equal", what, key,
            (long long)value))
        printf("# %s = %lld; reference %g, the last %g\n", key,
               (long long)value_of(&x, variant, key), target, quantity(&x.trial[x.n - 1], how));
    plan_free(&x);
}

/* Inner parameters of z: 4 * 16 * 32 + 16, W_o 16 * 32, two norms: 2640; its state 16 * 16 * 4 bytes. */
static void plans(void)
{
    /* W_k, W_v, W_q, W_o: 128 n + 64 = 2640 for n = 20.1: 20 has 2624, and 19 is 5 % off. */
    matched("parameters", "parameters",
            HEAD("parameters") Z "[model d]\nmixer = e74\nstate = diagonal\nproj = no_z\n"
                                 "n_state = 19\nadjust = n_state\nwidth = 32\n" TRIAL("z, d"),
            "d", "n_state", 20);
    matched("parameters by mlp, from 0", "parameters",
            HEAD("parameters") Z
            "[model none]\nmixer = none\nadjust = mlp\nwidth = 32\n" TRIAL("z, none"),
            "none", "mlp", 16);
    /* 124 n + 62 = 2640 for n = 20.8. */
    /* w w of W_o, 2 w of norms and, with the MLP, 7 w: 2632 for 47.  With embedding and head it would have none. */
    matched("parameters by width, which is the head's, too", "parameters",
            HEAD("parameters") Z "[model n]\nmixer = none\nmlp = 2\nadjust = width\n" TRIAL("z, n"),
            "n", "width", 47);
    matched("each variant of a list by itself", "parameters",
            HEAD("parameters") Z "[model d]\nmixer = e74\nstate = diagonal\nproj = no_z\n"
                                 "adjust = n_state\nwidth = 32, 31\n" TRIAL("z, d"),
            "d_31", "n_state", 21);
    matched("what is equal stays", "parameters",
            HEAD("parameters") Z "[model l]\nmixer = e74\nproj = full\nz_mod = row\n"
                                 "nonlin = linear\nn_state = 16\nwidth = 32\n"
                                 "adjust = width\n" TRIAL("z, l"),
            "l", "width", 32);
    /* 256 numbers of state: a tape of 1 + slots rows of 32, or n = 256. */
    matched("state", "state",
            HEAD("state") Z "[model d]\nmixer = e74\nstate = diagonal\nproj = no_z\n"
                            "adjust = n_state\nwidth = 32\n[model m]\nmixer = dual_memory\n"
                            "dim = 32\nwidth = 32\nadjust = slots\n" TRIAL("z, d, m"),
            "m", "slots", 7);
    /* Keys and values of 8 tokens, 64 bytes for each of `dim`'s. */
    matched("state, of attention", "state",
            HEAD("state") Z "[model a]\nmixer = attention\nheads = 1\nwidth = 32\n"
                            "adjust = dim\n" TRIAL("z, a"),
            "a", "dim", 16);
    /* A slot 9 FLOPs for each of 8 columns: 1706 + 72 slots, of 7082. */
    matched("FLOPs", "flops",
            HEAD("flops") Z "[model m]\nmixer = dual_memory\ndim = 8\nadjust = slots\n"
                            "width = 32\n" TRIAL("z, m"),
            "m", "slots", 75);
    /* 128 n + 64 for n = 20.1, of which n is a multiple of 4. */
    matched("multiples alone", "parameters",
            HEAD("parameters") Z "[model b]\nmixer = e74\nstate = blockdiag\nblock_size = 4\n"
                                 "proj = no_z\nadjust = n_state\nwidth = 32\n" TRIAL("z, b"),
            "b", "n_state", 20);
    matched("the baseline is the reference", "parameters",
            "[experiment]\nmeasure = train\nbaseline = z\nmatch = parameters\n" Z
            "[model d]\nmixer = e74\nstate = diagonal\nproj = no_z\nadjust = n_state\n"
            "width = 32\n" TRIAL("z, d"),
            "d", "n_state", 20);
}

/* Each task by itself: of the reference's keys and values, of 2 columns, 16 bytes a token. */
static void tasks(void)
{
    struct experiment x;
    int good = 1;

    if (!good_ini("two tasks",
                  HEAD("state") "[model z]\nmixer = attention\nheads = 1\ndim = 2\nwidth = 4\n"
                                "[model d]\nmixer = e74\nstate = diagonal\nproj = no_z\n"
                                "adjust = n_state\nwidth = 4\n[task bits]\ntask = parity\n"
                                "length = 8\n[task more]\ntask = parity\nlength = 24\n"
                                "[trial]\nmodel = z, d\ntask = bits, more\n",
                  &x))
        return;
    for (int i = 0; i < x.n; i++)
        good &= quantity(&x.trial[i], "state") == (strcmp(x.trial[i].task, "bits") ? 24 : 8) * 16;
    ok(good && x.n == 4, "each by itself");
    plan_free(&x);
}

/* ---- the time of runs ---- */

static void times(void)
{
    struct call f;
    struct cell c;
    const struct run_parts one = {1000, 1, 0, 0, 0, 0.001, 300}, two = {0, 0, 1, 1000, 100, 0, 0};

    if (!ok(!cases_one(cell_op("none"),
                       "updates=20 warmup=1 parity_every=4 eval_every=6 eval_rows=10 batch=4",
                       &f) &&
                !cell_read(&f, 1, &c),
            "a run of 20 updates"))
        return;
    /* Validations behind 6, 12, 18 and 20, and the test: 5 times 3 batches. */
    ok(fabs(training_run_seconds(&one, &c) - 1320.015) < 1e-9, "its time, of updates and batches");
    /* 1, 2, 4, 5, 8, 12, 16 and 20; the oracle has had its time in 1 update, and the one that it is in. */
    ok(fabs(training_run_seconds(&two, &c) - (1000 + 105 + 8)) < 1e-9,
       "where it is judged: the oracle's part");
    c.until = 3;
    ok(fabs(training_run_seconds(&one, &c) - 1303.006) < 1e-9, "of 3 of them");
}

static void costs(void)
{
    struct experiment x;
    int n = 0;

    if (!good_ini("an experiment",
                  "[experiment]\nmeasure = train\nbackends = ref32\n[model z]\nmixer = none\n"
                  "width = 8, 16\n[task bits]\ntask = parity\nlength = 8\neval = 8, 16\n"
                  "[train]\nupdates = 40\nwarmup = 1\nbatch = 2, 3\neval_rows = 4\nseed = 1, 2\n"
                  "stop = yes\n[trial]\nmodel = z\ntask = bits\n",
                  &x))
        return;
    x.contexts = here();
    struct cell_cost *c = training_costs(&x, &n);
    ok(c && n == 2 && c[0].first == 0 && c[1].first == 4 && c[0].n == 4 && c[1].n == 4,
       "two variants of 4 runs each");
    ok(c && n == 2 && c[0].size.inner == 2 * 8 + 64 && c[1].size.inner == 2 * 16 + 256,
       "their sizes");
    ok(c && n == 2 && !*c[0].unknown && c[0].seconds > 0 && c[0].seconds < 60 && c[0].at_most,
       "their time, at most");
    ok(c && n == 2 && c[1].memory > c[0].memory && c[0].memory > 0, "their memory");
    if (c) {
        ok(training_seconds(c, n) == c[0].together + c[1].together, "all of them");
    }
    free(c);
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    c = training_costs(&x, &n);
    ok(c && n == 2 && !*c[0].unknown && c[0].together == c[0].seconds &&
           c[1].together == c[1].seconds,
       "one after the other that is their time");
    free(c);
    omp_set_num_threads(4);
    c = training_costs(&x, &n);
    ok(c && n == 2 && !*c[0].unknown && c[0].together > 0 && c[0].together != c[0].seconds,
       "four side by side it is measured");
    free(c);
    omp_set_num_threads(threads);
    plan_free(&x);
}

int main(void)
{
    search();
    times();
    enter();
    plans();
    tasks();
    costs();
    leave();
    for (int i = 0; i < (int)COUNT(sizes); i++)
        size_of(i);
    return done();
}
