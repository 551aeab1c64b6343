/* The contract of rope: sizes, tensors, costs, cases with known results. */
#include "common/base/err.h"
#include "common/call/contract.h"
#include "common/ops/rope.h"

static const char *const forms[] = {"half", "interleaved", NULL};

static const struct param params[] = {
    [ROPE_B] = SIZE_PARAM("batch", 'B', 8, "sequences"),
    [ROPE_T] = SIZE_PARAM("steps", 'T', 512, "sequence length"),
    [ROPE_H] = SIZE_PARAM("heads", 'H', 16, "heads"),
    [ROPE_D] = SIZE_PARAM("dim", 'D', 128, "width of a head, even"),
    [ROPE_OFFSET] = {.name = "offset",
                     .letter = 'O',
                     .min = 0,
                     .max = 1 << 30,
                     .help = "position of the first step"},
    [ROPE_FORM] = CHOICE_PARAM("form", forms, ROPE_HALF, "which columns are a pair"),
    [ROPE_THETA] = REAL_PARAM("theta", 10000, 1, 1e12, "base of the frequencies"),
};

OF_CALL(const char *, each, ((void)f, "BH"))

static const struct arg args[] = {
    ARG(rope, x, "BTHD", IN | DIFF | NOT_BACK, NORMAL, .sample = each),
    ARG(rope, y, "BTHD", OUT | DIFF, .sample = each),
};

static int derive(struct call *f)
{
    if (DIM(f, 'D') % 2)
        return err_set("dim = %lld: a head must be pairs, an even number", (long long)DIM(f, 'D'));
    return 0;
}

/* A pair: four products, a sum and a difference. */
COST(flops, "BTHD", 3, 3)

/* The sine and the cosine of each angle, which all sequences and heads share. */
COST(specials, "TD", 1, 1)

#define EACH_FORM " form=half,interleaved; "

const struct op op_rope = {
    .name = "rope",
    .formula = "pair i of step t turned by (offset + t) theta^(-2i/D)",
    .source = "common/ops/rope.h",
    SIGNATURE(rope, params, args),
    .cases = "batch=1 steps=1 heads=1 dim=2 offset=3" EACH_FORM
             "batch=2 steps=5 heads=3 dim=6 theta=100" EACH_FORM
             "batch=2 steps=3 heads=2 dim=64 offset=1000003" EACH_FORM
             "batch=1 steps=9 heads=1 dim=16 theta=500000 offset=7" EACH_FORM,
    .shapes =
        "batch=1 steps=31 heads=1 dim=2" EACH_FORM
        "batch=3 steps=1 heads=7 dim=130 offset=131071" EACH_FORM
        "batch=2 steps=33 heads=5 dim=48" EACH_FORM
        "batch=1 steps=257 heads=2 dim=32 offset=1000000000" EACH_FORM
        "batch=5 steps=3 heads=16 dim=128" EACH_FORM "batch=1 steps=2 heads=1 dim=5120" EACH_FORM
        "batch=1 steps=1 heads=1 dim=30002" EACH_FORM,
    .derive = derive,
    .flops = flops,
    .specials = specials,
    .batch = 'B',
    .time = 'T',
};
