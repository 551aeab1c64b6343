/* What operations say they cost, counted by hand; what follows from that and
 * from ceilings; and the probes that measure these. */
#include "config.h"

#include <string.h>
#include <time.h>

#include "common/bench.h"
#include "tests/suite.h"

/* ---- costs ---- */

/* What one pass is to cost; flops 0: not counted here. */
struct count {
    const char *op, *settings;
    enum pass pass;
    double flops, products, specials;
    struct chain chain;
};

static double ask(double (*cost)(const struct frame *, enum pass), const struct frame *f,
                  enum pass p)
{
    return cost ? cost(f, p) : 0;
}

static int near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

static void check_count(const struct count *c)
{
    const struct op *o = op_find(c->op);
    struct frame f;

    if (cases_one(o, c->settings, &f)) {
        ok(0, "%s", err_text());
        return;
    }
    double flops = ask(o->flops, &f, c->pass), products = ask(o->products, &f, c->pass);
    double specials = ask(o->specials, &f, c->pass);
    struct chain got = o->chain ? o->chain(&f, c->pass) : (struct chain){0, 0, 0};
    int same = got.steps == c->chain.steps && got.flops == c->chain.flops &&
               got.specials == c->chain.specials;
    if (!ok((!c->flops || near(flops, c->flops)) && near(products, c->products) &&
                near(specials, c->specials) && same && products <= flops,
            "%s %s, %s", c->op, c->settings, c->pass == FORWARD ? "forward" : "backward"))
        printf("# %g flops, %g in products, %g specials, %g steps of %g + %g\n", flops, products,
               specials, got.steps, got.flops, got.specials);
}

/* At T 3, B 2, n 4 there are 6 steps of a sequence, 24 rows, 96 elements of a
 * full state; a pass over it is 192 FLOPs; two specials for a norm, two for a
 * sigmoid.  Its first state is the only checkpoint: 2 of 3 are bent anew. */
/* Dual memory at T 3, B 2, N 4, D 8 and width 5 of x: 6 steps of a sequence, 48
 * numbers of h, 192 elements of a tape.  W_h and W_write take 768 FLOPs each, W_x
 * 480, W_gate 2304.  An element of the tape takes 9 forward; backward 21: replayed 3,
 * domega 3, dv 2, the query's gradient 2, dM 3, drho 2, dM 4, dh 2.  Two attentions
 * a step are 5 specials by softmax, 4 by entmax (backward 5).  In the chain a dot
 * product over D is 1 + 3 deep, over the slots 1 + 2. */
#define DUAL "steps=3 batch=2 slots=4 dim=8 dim_in=5 "
#define SIZES "steps=3 batch=2 n_state=4 "
static const struct count counts[] = {
    {"e74_cell", SIZES "nonlin=tanh", FORWARD, 576, 384, 96 + 12 + 48, {3, 1 + 2 + 1, 1}},
    {"e74_cell", SIZES "nonlin=tanh", BACKWARD, 1728, 960, 64 + 18 + 48, {3, 1 + 1 + 2 + 1, 0}},
    {"e74_cell",
     SIZES "nonlin=tanh checkpoint_interval=1",
     BACKWARD,
     1728,
     960,
     18 + 48,
     {3, 5, 0}},
    {"e74_cell", SIZES "nonlin=linear", FORWARD, 576, 576, 12 + 48, {0, 0, 0}},
    {"e74_cell", SIZES "nonlin=linear", BACKWARD, 1728, 1728, 18 + 48, {0, 0, 0}},
    {"e74_cell", SIZES "nonlin=rmsnorm", FORWARD, 576, 384, 12 + 12 + 48, {3, 3 + 1 + 3 + 2, 2}},
    {"e74_cell", SIZES "nonlin=frobnorm", BACKWARD, 1728, 960, 18 + 18 + 48, {3, 3 + 2, 0}},
    {"e74_cell", SIZES "state=diagonal", FORWARD, 144, 0, 24 + 12 + 48, {3, 1, 1}},
    {"e74_cell",
     SIZES "state=diagonal nonlin=rmsnorm",
     FORWARD,
     144,
     0,
     12 + 12 + 48,
     {3, 1 + 3 + 2, 2}},
    {"e74_cell",
     SIZES "state=diagonal nonlin=rmsnorm",
     BACKWARD,
     432,
     0,
     18 + 18 + 48,
     {3, 3 + 1, 0}},
    {"e74_cell",
     SIZES "state=blockdiag block_size=2",
     FORWARD,
     288,
     192,
     48 + 24 + 48,
     {3, 1 + 1 + 1, 1}},
    {"e74_cell",
     SIZES "state=lowrank rank=3",
     FORWARD,
     432 + 432,
     288 + 432,
     72 + 12 + 48,
     {3, 1 + 2 + 1, 1}},
    {"e74", SIZES "dim=5", FORWARD, 576 + 3 * 240, 384 + 3 * 240, 96 + 12 + 48, {3, 4, 1}},
    {"e74", SIZES "dim=5", BACKWARD, 1728 + 6 * 240, 960 + 6 * 240, 64 + 18 + 48, {3, 5, 0}},
    {"dual_memory",
     DUAL "preset=e23",
     FORWARD,
     2016 + 1728,
     2 * 768 + 480,
     48 + 60,
     {3, 6 + 3 + 1 + 4 + 6 + 2, 2 + 1 + 2}},
    {"dual_memory",
     DUAL "preset=e23",
     BACKWARD,
     4032 + 4032,
     4032,
     0,
     {3, 4 + 5 + 3 + 2 + 5 + 5 + 2, 0}},
    {"dual_memory",
     DUAL "preset=e25",
     FORWARD,
     2016 + 1728,
     2016,
     48 + 48,
     {3, 10 + 3 + 1 + 4 + 10 + 2, 1 + 1 + 1}},
    {"dual_memory", DUAL "preset=e25", BACKWARD, 4032 + 4032, 4032, 60, {3, 26, 0}},
    {"dual_memory",
     DUAL "preset=e26",
     FORWARD,
     2016 + 1728,
     2016,
     48 + 60,
     {3, 6 + 3 + 1 + 4 + 4 + 6 + 2, 5}},
    {"dual_memory",
     DUAL "preset=e26",
     BACKWARD,
     4032 + 4032,
     4032,
     0,
     {3, 4 + 5 + 3 + 4 + 2 + 5 + 5 + 2, 0}},
    {"dual_memory",
     DUAL "preset=e29a",
     FORWARD,
     2496 + 1728 + 2 * 48,
     2016 + 480,
     48 + 60 + 96,
     {3, 26, 5}},
    {"dual_memory",
     DUAL "preset=e29b",
     FORWARD,
     4800 + 1728,
     2496 + 2304,
     48 + 60 + 96,
     {3, 26, 5}},
    {"dual_memory", DUAL "preset=e29b", BACKWARD, 9600 + 4032, 9600, 96, {3, 30, 0}},
    {"dual_memory",
     DUAL "preset=e29c",
     FORWARD,
     2496 + 1728 + 6 * 48,
     2496,
     48 + 60 + 96,
     {3, 26, 5}},
    {"diag_delta", SIZES, FORWARD, 0, 0, 24, {3, 1, 1}},
    {"diag_delta", SIZES, BACKWARD, 0, 0, 0, {3, 1, 0}},
    {"linear", "rows=3 dim_in=4 dim_out=5", FORWARD, 120, 120, 0, {0, 0, 0}},
    {"linear",
     "rows=3 dim_in=4 dim_out=5 bias=yes act=silu",
     BACKWARD,
     240 + 9 * 15,
     240,
     30,
     {0, 0, 0}},
    {"lora", "rows=3 dim_in=4 dim_out=5 rank=2", FORWARD, 120 + 108 + 6, 120 + 108, 0, {0, 0, 0}},
    {"adamw", "parameters=5", FORWARD, 0, 0, 10, {0, 0, 0}},
    {"swiglu", "rows=3 dim=4", BACKWARD, 0, 0, 24, {0, 0, 0}},
};

/* ---- what follows ---- */

/* An H200 as it was measured once. */
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
    double least[N_CEILINGS], fp32[N_CEILINGS];
    struct frame f;

    if (cases_one(o, "steps=512 batch=32 n_state=64 nonlin=tanh", &f)) {
        ok(0, "%s", err_text());
        return;
    }
    least_times(&h200, o, &ref16, &f, FORWARD, least);
    least_times(&h200, o, &ref32, &f, FORWARD, fp32);
    ok(near(least[AT_LATENCY], 512 * (8 * 4 + 17) / 1.98e9), "latency is steps times their chain");
    ok(least[AT_SPECIAL] > 16.1e-6 && least[AT_SPECIAL] < 16.8e-6,
       "tanh and sigmoid of 16384 token-heads take 16.1 us and a little");
    ok(near(least[AT_MEMORY], op_bytes(o, &ref16, &f, FORWARD) / 4.25e12), "each tensor once");
    ok(fp32[AT_TENSOR] == 0 && near(fp32[AT_FP32], o->flops(&f, FORWARD) / h200.fp32) &&
           near(least[AT_FP32], fp32[AT_FP32] / 3),
       "products are for tensor cores in bf16, for FP32 in fp32");
    ok(binding(least) == AT_SPECIAL, "the one that allows least speed binds");
    ok(case_tokens(o, &f) == 512 * 32 && case_rows(o, &f) == 32, "tokens and rows");
    ok(!ceilings_of(&h200, &ref64), "a GPU's ceilings say nothing of the CPU");
}

static struct growth growing(int n, const double *seconds)
{
    struct growth g = {.n = n};
    for (int i = 0; i < n; i++) {
        g.batch[i] = (int64_t)1 << i;
        g.rows[i] = (double)g.batch[i];
        g.outcome[i].median[FORWARD] = seconds[i];
    }
    return g;
}

static void crossing(void)
{
    struct growth bent = growing(6, (const double[]){10, 10, 10, 16, 32, 64});
    struct growth flat = growing(4, (const double[]){10, 10, 11, 13});
    struct growth single = growing(1, (const double[]){10});
    ok(near(crossover(&bent, FORWARD), 5), "2 per row and 10 for few cross over at 5 rows");
    ok(crossover(&flat, FORWARD) == 0, "what hardly grows has not crossed over");
    ok(crossover(&single, FORWARD) == 0, "nor has one point");
}

/* ---- probes ---- */

static void probes(void)
{
    struct ceilings c;
    struct timespec from, to;

    clock_gettime(CLOCK_MONOTONIC, &from);
    const char *why = ceilings_measure(gpu_backends, &c);
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (why && gpu_backends[0]->unavailable()) {
        skip(why, "probes");
        return;
    }
    const double all[] = {c.memory,    c.tensor,       c.fp32,   c.special,
                          c.flop_time, c.special_time, c.launch, c.clock};
    int good = !why;
    for (size_t i = 0; good && i < COUNT(all); i++)
        good = all[i] > 0 && isfinite(all[i]);
    ok(good, "%s: all ceilings are measured, in %.2f s", gpu_backends[0]->device(),
       (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec));
    printf("# %.3g B/s, %.3g and %.3g FLOP/s, %.3g specials/s, %.3g and %.3g s, launch %.3g s\n",
           c.memory, c.tensor, c.fp32, c.special, c.flop_time, c.special_time, c.launch);
    if (!emulated(gpu_backends[0]))
        ok(c.tensor > c.fp32 && c.fp32 > c.special && c.flop_time < c.special_time,
           "and stand to each other as they must");
}

int main(void)
{
    for (size_t i = 0; i < COUNT(counts); i++)
        check_count(&counts[i]);
    ceilings();
    crossing();
    probes();
    return done();
}
