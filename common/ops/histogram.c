/* The contract of histogram: sizes, tensors, costs, cases with known results. */
#include <math.h>

#include "common/call/contract.h"
#include "common/ops/histogram.h"

enum { SIZE, BINS, DATA };

enum { UNIFORM, LEVEL, WILD };
static const char *const data[] = {"uniform", "level", "wild", NULL};

static const struct param params[] = {
    [SIZE] = SIZE_PARAM("size", 'N', 1048576, "elements of x"),
    [BINS] = WHOLE_PARAM("bins", 'M', 256, 1, HISTOGRAM_BINS_MAX, "bins"),
    [DATA] = DRAW_PARAM("data", data, 0, "x anywhere in 0 ... 1, all in one bin, or also outside"),
};

static const struct axis axes[] = {{'A', "kind"}, {0, NULL}};

/* Also outside of 0 ... 1: of every hundred elements one each is NaN, 0, 1, -inf and inf. */
static double wild(uint64_t key, uint64_t i)
{
    static const double edges[] = {NAN, 0, 1, -INFINITY, INFINITY};
    uint64_t edge = i % 100 - 37;
    return edge < COUNT(edges) ? edges[edge] : 1.5 * draw_uniform(key, i) - 0.25;
}

static void draw_x(const struct call *f, int arg, uint64_t key, double *x)
{
    const int64_t N = op_count(f, arg);

    #pragma omp parallel for
    for (int64_t i = 0; i < N; i++)
        switch (f->choice[DATA]) {
        case UNIFORM: x[i] = draw_uniform(key, i); break;
        case LEVEL: x[i] = draw_uniform(key, 0); break;
        case WILD: x[i] = wild(key, i); break;
        }
}

static const struct arg args[] = {
    ARG(histogram, x, "N", IN, .draw = draw_x),
    ARG(histogram, counts, "M", OUT | WHOLE),
    ARG(histogram, outside, "A", OUT | WHOLE, .was = "apart"),
};

static int derive(struct call *f)
{
    DIM(f, 'A') = HISTOGRAM_KINDS;
    return 0;
}

COST(flops, "N", 2, 0)

#define EACH_DATA " data=uniform,level,wild; "

const struct op op_histogram = {
    .name = "histogram",
    .formula = "counts[k] = how many x have floor(x M) = k",
    .source = "common/ops/histogram.h",
    SIGNATURE(histogram, params, args),
    .axis = axes,
    .cases = "size=1 bins=1" EACH_DATA "size=7 bins=3" EACH_DATA "size=1000 bins=10" EACH_DATA
             "size=3001 bins=256" EACH_DATA "size=9001 bins=50021" EACH_DATA
             "size=3001 bins=1000003 data=uniform",
    .shapes = "size=31 bins=33" EACH_DATA "size=65536 bins=257" EACH_DATA
              "size=100003 bins=7" EACH_DATA "size=20000 bins=5000" EACH_DATA
              "size=20000 bins=40000 data=uniform,wild; size=5000 bins=58109 data=uniform; "
              "size=5000 bins=100000 data=uniform,wild; size=1000 bins=3000017 data=uniform",
    .derive = derive,
    .flops = flops,
};
