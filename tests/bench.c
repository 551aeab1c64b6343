/* The costs that operations state, against a count by hand; the times that follow from costs
 * and ceilings; and the probes that measure the ceilings. */
#include "config.h"

#include <string.h>
#include <time.h>

#include "common/run/ceilings.h"
#include "tests/suite.h"

/* ---- costs ---- */

static double cost_of(double (*cost)(const struct call *, enum pass), const struct call *f,
                      enum pass p)
{
    return cost ? cost(f, p) : 0;
}

static int near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static void check_cost(const struct op *o, const struct cost *c)
{
    struct call f;

    if (cases_one(o, c->settings, &f)) {
        ok(0, "%s", err_text());
        return;
    }
    double flops = cost_of(o->flops, &f, c->pass), products = cost_of(o->products, &f, c->pass);
    double specials = cost_of(o->specials, &f, c->pass);
    struct chain got = o->chain ? o->chain(&f, c->pass) : (struct chain){0, 0, 0};
    int same = got.steps == c->chain.steps && got.flops == c->chain.flops &&
               got.specials == c->chain.specials;
    if (!ok((!c->flops || near(flops, c->flops)) && near(products, c->products) &&
                near(specials, c->specials) && same && products <= flops,
            "%s %s, %s", o->name, c->settings, c->pass == FORWARD ? "forward" : "backward"))
        printf("# %g flops, %g in products, %g specials, %g steps of %g + %g\n", flops, products,
               specials, got.steps, got.flops, got.specials);
}

/* ---- times from costs and ceilings ---- */

/* An H200's ceilings, measured once. */
static const struct ceilings h200 = {
    .memory = 4.25e12,
    .tensor = 766e12,
    .fp32 = 132 * 128 * 2 * 1.98e9,
    .special = 132 * 16 * 1.98e9,
    .flop_time = 4 / 1.98e9,
    .special_time = 17 / 1.98e9,
};

static void ceilings(void)
{
    const struct op *o = op_find("e74_cell");
    double min[N_CEILINGS], fp32[N_CEILINGS];
    struct call f;

    if (cases_one(o, "steps=512 batch=32 n_state=64 nonlin=tanh", &f)) {
        ok(0, "%s", err_text());
        return;
    }
    const struct call in_bf16 = call_on(&f, &ref_bf16, NULL, NULL),
                      in_fp32 = call_on(&f, &ref32, NULL, NULL);
    min_times(&h200, &in_bf16, FORWARD, min);
    min_times(&h200, &in_fp32, FORWARD, fp32);
    ok(near(min[AT_LATENCY], 512 * (8 * 4 + 17) / 1.98e9), "latency is steps times their chain");
    ok(min[AT_SPECIAL] > 16.1e-6 && min[AT_SPECIAL] < 16.8e-6,
       "tanh and sigmoid of 16384 token-heads take 16.1 us and a little");
    ok(near(min[AT_MEMORY], op_bytes(&in_bf16, FORWARD) / 4.25e12), "each tensor once");
    ok(fp32[AT_TENSOR] == 0 && near(fp32[AT_FP32], o->flops(&f, FORWARD) / h200.fp32) &&
           near(min[AT_FP32], fp32[AT_FP32] / 3),
       "products are for tensor cores in bf16, for FP32 in fp32");
    ok(binding(min) == AT_SPECIAL, "the one that allows least speed binds");
    ok(case_tokens(&f) == 512 * 32 && case_rows(&f) == 32, "tokens and rows");
    ok(!ceilings_of(&h200, &ref64), "a GPU's ceilings say nothing of the CPU");
}

static struct crossover growing(int n, const double *seconds)
{
    struct crossover g = {.n = n};
    for (int i = 0; i < n; i++) {
        g.batch[i] = (int64_t)1 << i;
        g.rows[i] = (double)g.batch[i];
        g.outcome[i].median[FORWARD] = seconds[i];
    }
    return g;
}

static void crossing(void)
{
    struct crossover rising = growing(6, (const double[]){10, 10, 10, 16, 32, 64});
    struct crossover flat = growing(4, (const double[]){10, 10, 11, 13});
    struct crossover single = growing(1, (const double[]){10});
    ok(near(crossover_rows(&rising, FORWARD), 5), "2 per row and 10 for few cross over at 5 rows");
    ok(crossover_rows(&flat, FORWARD) == 0, "a time that hardly grows has not crossed over");
    ok(crossover_rows(&single, FORWARD) == 0, "nor has one point");
}

/* ---- probes ---- */

static void probes(void)
{
    struct ceilings c;
    struct timespec from, to;

    clock_gettime(CLOCK_MONOTONIC, &from);
    const char *why = ceilings_measure(here(), &c);
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (why && backend_unavailable(here(), judged_backend(0))) {
        skip(why, "probes");
        return;
    }
    const double all[] = {c.memory,    c.tensor,       c.fp32,   c.special,
                          c.flop_time, c.special_time, c.launch, c.clock};
    int good = !why;
    for (size_t i = 0; good && i < COUNT(all); i++)
        good = all[i] > 0 && isfinite(all[i]);
    ok(good, "%s: all ceilings are measured, in %.2f s", backend_device(here(), judged_backend(0)),
       (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec));
    printf("# %.3g B/s, %.3g and %.3g FLOP/s, %.3g specials/s, %.3g and %.3g s, launch %.3g s\n",
           c.memory, c.tensor, c.fp32, c.special, c.flop_time, c.special_time, c.launch);
    if (!emulated(judged_backend(0)))
        ok(c.tensor > c.fp32 && c.fp32 > c.special && c.flop_time < c.special_time,
           "and stand to each other as they must");
}

int main(void)
{
    for (int i = 0; i < N_OPS; i++)
        for (const struct cost *c = ops[i]->cost; c && c->settings; c++)
            check_cost(ops[i], c);
    ceilings();
    crossing();
    probes();
    return done();
}
