/* The place of a time under the roofline, and the advice: made-up profiles, one for each rule and on
 * both sides of each boundary. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/run/roofline.h"
#include "tests/tap.h"

/* A device of round numbers: 1e12 bytes, 1e13 FLOP/s in fp32, 1e14 on tensor cores, a second. */
static const struct ceilings device = {
    .memory = 1e12, .tensor = 1e14, .fp32 = 1e13, .special = 1e12, .launch = 2e-6};

/* A launch that fills the device: 132 SMs, two blocks of 512 threads on each. */
static const struct launches full = {.n = 1,
                                     .blocks = 264,
                                     .threads = 512,
                                     .registers = 64,
                                     .smem = 49152,
                                     .blocks_per_sm = 2,
                                     .sms = 132,
                                     .threads_per_sm = 2048};

static int near(double a, double b)
{
    return (isnan(a) && isnan(b)) || fabs(a - b) <= 1e-12 * fabs(b);
}

static void is(const char *what, const struct profile *p, const struct ceilings *c,
               struct roofline expected)
{
    const struct roofline r = roofline_of(c, p);
    const int good = near(r.intensity, expected.intensity) && near(r.ridge, expected.ridge) &&
                     near(r.attainable, expected.attainable) &&
                     near(r.efficiency, expected.efficiency);

    if (!ok(good, "%s", what))
        printf("# %g %g %g %g\n", r.intensity, r.ridge, r.attainable, r.efficiency);
}

static void places(void)
{
    struct profile p = {.seconds = 2e-3, .flops = 2e9, .bytes = 1e9};
    is("left of the ridge the slope binds", &p, &device, (struct roofline){2, 10, 2e12, .5});
    p.flops = 1e10;
    is("at the ridge slope and peak meet", &p, &device, (struct roofline){10, 10, 1e13, .5});
    p.flops = 1.6e10;
    is("right of it the peak binds", &p, &device, (struct roofline){16, 10, 1e13, .8});
    p.half = 1;
    is("16 bits without products: FP32's peak", &p, &device, (struct roofline){16, 10, 1e13, .8});
    p.products = .8e10;
    is("half of the FLOPs in products: the tensor cores'", &p, &device,
       (struct roofline){16, 100, 1.6e13, .5});
    p.products = .79e10;
    is("fewer: FP32's", &p, &device, (struct roofline){16, 10, 1e13, .8});
    p.products = 1.6e10, p.half = 0;
    is("32 bits: FP32's", &p, &device, (struct roofline){16, 10, 1e13, .8});
    p.flops = p.products = 0;
    is("no FLOPs: the bytes alone", &p, &device, (struct roofline){NAN, 10, NAN, .5});
    p.flops = 1e10, p.bytes = 0;
    is("no bytes: the FLOPs alone", &p, &device, (struct roofline){NAN, 10, NAN, .5});
    p.flops = 0;
    is("neither: nothing", &p, &device, (struct roofline){NAN, 10, NAN, NAN});
    p.flops = 1e10, p.bytes = 1e9;
    is("no ceilings: the intensity", &p, NULL, (struct roofline){10, NAN, NAN, NAN});
    p.seconds = 0;
    is("no time: no efficiency", &p, &device, (struct roofline){10, 10, 1e13, NAN});
    is("ceilings of 0: nothing is divided", &p, &(struct ceilings){.memory = 0},
       (struct roofline){10, NAN, NAN, NAN});
}

static void launches(void)
{
    struct launches l = full;

    ok(near(occupancy_of(&l), .5) && near(waves_of(&l), 1), "two blocks of 512 fill half an SM");
    l.threads = 33;
    ok(near(occupancy_of(&l), 2 * 64. / 2048), "threads count by whole warps");
    l.blocks = 66;
    ok(near(waves_of(&l), .25), "a quarter of the blocks is a quarter of a wave");
    l = (struct launches){0};
    ok(isnan(occupancy_of(&l)) && isnan(waves_of(&l)), "of nothing nothing is known");
}

static void advises(const char *what, const struct profile *p, const char *expected)
{
    char text[ADVICE];
    const char *have = advice(&device, p, text);

    if (!ok(*expected ? strstr(have, expected) != NULL : !*have, "%s: %s", what,
            *expected ? expected : "no advice"))
        printf("# %s\n", have);
}

/* At 79 % of the memory's limit, with nothing that is wrong. */
static struct profile of_memory(void)
{
    return (struct profile){.seconds = 1e-3 / .79, .flops = 1e9, .bytes = 1e9, .launches = full};
}

static void rules(void)
{
    struct profile p = of_memory();

    advises("just below 80 %", &p, "memory at 79 %: wider loads");
    p.seconds = 1e-3 / .81;
    advises("just above", &p, "");
    p = of_memory();
    p.launches.threads = 511 - 31;
    advises("occupancy below half", &p, "memory at 79 %, occupancy 47 % (64 registers, 48.0 KiB)");
    p.launches = (struct launches){0};
    advises("launches that are not known", &p, "memory at 79 %: wider loads");

    p = of_memory();
    p.seconds = 5.9e-6, p.flops = p.bytes = 1e6;
    advises("less than three launches", &p, "bound by its launch, 2 us of 5.9 us");
    p.seconds = 6.1e-6;
    advises("more, and memory at 16 %", &p, "");
    p.launches.n = 10, p.seconds = 59e-6;
    advises("ten launches", &p, "bound by launches: 10 take 20 us of 59 us");

    p = of_memory();
    p.launches.spills = 24;
    advises("spills", &p, "24 bytes of local memory per thread");
    p.latency = .9;
    advises("spills come before the chain", &p, "24 bytes");
    p.launches.spills = 0;
    advises("a chain", &p, "chain of dependent operations, 90 % of its latency");
    p.latency = .5, p.launches.blocks = 60;
    advises("half of the latency, before the blocks", &p, "chain of dependent operations");
    p.latency = .49;
    advises("less", &p, "blocks for 60 of 132 SMs");
    p.launches.blocks = 198;
    advises("blocks for all SMs, not full", &p, "blocks for 75 % of what the SMs hold");
    p.launches.blocks = 264;
    advises("full", &p, "memory at 79 %");
    p.special = .5;
    advises("half of the special functions", &p, "special functions at 50 %");
    p.special = .49;
    advises("less of them", &p, "memory at 79 %");
}

static void rules_of_flops(void)
{
    struct profile p = {.seconds = 1e-3 / .49, .flops = 1e10, .bytes = 1e8, .launches = full};

    advises("FLOPs at 49 %", &p, "FLOPs at 49 %");
    p.seconds = 1e-3 / .51;
    advises("at 51 %", &p, "");
    p.seconds = 1e-3 / .49, p.launches.threads = 224;
    advises("occupancy below a quarter", &p, "occupancy 22 %: fewer registers (64) or less shared");
    p.launches.threads = 256;
    advises("a quarter", &p, "FLOPs at 49 %");
    p.half = 1, p.products = p.flops = 1e11, p.seconds = 1.01e-2;
    advises("products slower than FP32 units", &p, "products without tensor cores");
    p.seconds = .99e-2;
    advises("faster, and FLOPs at 10 %", &p, "");
    p.flops = p.products = 0, p.bytes = 0;
    advises("neither FLOPs nor bytes", &p, "");

    char text[ADVICE];
    p = of_memory();
    ok(!*advice(NULL, &p, text), "no ceilings: no advice");
}

/* What is far from each ceiling is a chain's, where there is one. */
static void rules_of_chains(void)
{
    struct profile p = of_memory();

    p.seconds = 1e-3 / .31;
    advises("memory at 31 %", &p, "memory at 31 %: wider loads");
    p.launches.threads = 256;
    advises("at 31 %, of few warps", &p, "memory at 31 %, occupancy 25 %");
    p.seconds = 1e-3 / .29;
    advises("at 29 %, of few warps", &p, "");
    p.launches = full;
    advises("at 29 %", &p, "");
    p.steps = 1000;
    advises("a chain", &p, "a chain of 1000 steps, 3448 ns each");
    p.latency = .1;
    advises("and its latency", &p,
            "a chain of 1000 steps, 3448 ns each; its operations' latency is 345 ns");
    p.launches.blocks = 100;
    advises("before the blocks", &p, "a chain of 1000 steps, 3448 ns each");
    p.launches.blocks = 265;
    advises("in two waves", &p,
            "a chain of 1000 steps, in 2 waves, 1724 ns each; its operations' latency is 345 ns");
    p.launches = full;
    p.special = .31;
    advises("special functions at 31 %", &p, "");
    p.special = 0, p.seconds = 1e-3 / .31;
    advises("memory at 31 %, and a chain", &p, "memory at 31 %: wider loads");
    p.latency = .5;
    advises("half of the latency", &p, "bound by the chain of dependent operations");
    p = of_memory();
    p.bytes = 0, p.flops = 1e9, p.seconds = 1e-3, p.steps = 10;
    advises("FLOPs at 10 %, and a chain", &p, "a chain of 10 steps, 100000 ns each");
}

int main(void)
{
    places();
    launches();
    rules();
    rules_of_flops();
    rules_of_chains();
    return done();
}
