/* The contract of reduce: sizes, tensors, costs, cases with known results. */
#include <math.h>

#include "common/call/contract.h"
#include "common/ops/reduce.h"

static const char *const kinds[] = {"sum", "max", "mean", "norm2", NULL};
static const char *const overs[] = {"rows", "all", NULL};
static const char *const fills[] = {"normal", "masked", NULL};

static const struct param params[] = {
    SIZE_PARAM("rows", 'R', 4096, "rows of x"),
    SIZE_PARAM("length", 'N', 4096, "elements of a row"),
    CHOICE_PARAM("kind", kinds, REDUCE_SUM, "the reduction"),
    CHOICE_PARAM("over", overs, REDUCE_EACH_ROW, "of each row, or of all of x"),
    FILL_PARAM(fills, "x"),
};

static const struct axis axes[] = {{'U', "one"}, {0, NULL}};

OF_CALL(int, is_max, f->choice[REDUCE_KIND] == REDUCE_MAX)
OF_CALL(int, is_norm2, f->choice[REDUCE_KIND] == REDUCE_NORM2)
OF_CALL(const char *, result_shape, f->choice[REDUCE_OVER] == REDUCE_ALL ? "U" : "R")

OF_CALL(const char *, each, f->choice[REDUCE_OVER] == REDUCE_ALL ? "" : "R")

static const struct arg args[] = {
    ARG(reduce, x, "RN", IN | DIFF, NORMAL, .back = is_norm2, .fill_choice = "fill",
        .sample = each),
    ARG(reduce, y, "R", OUT | SAVED | DIFF, .shape_of = result_shape, .back = is_norm2,
        .sample = each),
    ARG(reduce, at, "R", SAVED | WHOLE, .when = is_max, .shape_of = result_shape, .sample = each),
};

#define EACH_KIND "kind=sum,max,mean,norm2 "

/* All of x is a row of it, if it is laid out so. */
#define ONE_ROW(kind)                                                                              \
    {                                                                                              \
        kind " of all is of one row", "over=rows rows=1 length=300 kind=" kind,                    \
            "over=all rows=3 length=100 kind=" kind, "", "", "y x", NULL                           \
    }
static const struct identity identities[] = {
    ONE_ROW("sum"),
    ONE_ROW("max"),
    ONE_ROW("mean"),
    ONE_ROW("norm2"),
    {"the largest of 0, 1, 0 is their sum", "rows=5 length=5 kind=max", "rows=5 length=5 kind=sum",
     "x=eye", "", "y", NULL},
};

static int derive(struct call *f)
{
    DIM(f, 'U') = 1;
    return 0;
}

static double flops(const struct call *f, enum pass p)
{
    double n = (double)DIM(f, 'R') * DIM(f, 'N');
    return p == FORWARD ? (is_norm2(f) ? 2 * n : n) : is_norm2(f) ? n : 0;
}

/* A square root, or what dy is divided by. */
static double specials(const struct call *f, enum pass p)
{
    (void)p;
    return is_norm2(f) ? (double)DIM(f, *result_shape(f)) : 0;
}

static const struct known known[] = {
    {"length=4 kind=max", {1, 3, 3, 2}, 0, "d_x", {0, 1, 0, 0}},
    {"length=4 kind=max", {1, NAN, 3, NAN}, 0, "y", {NAN}},
    {"length=4 kind=max", {1, NAN, INFINITY, NAN}, 0, "d_x", {0, 1, 0, 0}},
    {"length=4 kind=max", KNOWN_ALL(-INFINITY), 0, "y", {-INFINITY}},
    {"length=4 kind=max", KNOWN_ALL(-INFINITY), 0, "d_x", {1, 0, 0, 0}},
    {"length=4 kind=norm2", {0, -0.0, 0, 0}, 0, "d_x", KNOWN_ALL(0)},
    {"length=4 kind=norm2", {0, NAN, 0, 0}, 0, "d_x", KNOWN_ALL(NAN)},
    {.settings = NULL},
};

static const char *const large[] = {"rows=65600 length=32749", "rows=65600 length=32749 kind=max",
                                    NULL};

const struct op op_reduce = {
    .name = "reduce",
    .formula = "y = sum, max, mean or 2-norm of x",
    .source = "common/ops/reduce.h",
    SIGNATURE(reduce, params, args),
    .axis = axes,
    .cases = "rows=1 length=1 over=rows,all " EACH_KIND
             "; rows=5 length=33 over=rows,all " EACH_KIND "; rows=3 length=72 " EACH_KIND
             "; rows=1 length=40004 kind=max,norm2; rows=1000 length=33 kind=max; "
             "rows=9 length=1001 kind=sum,max,norm2; "
             "fill=masked rows=15 length=1,5,33,260 " EACH_KIND
             "; fill=masked rows=14 length=20008,20011 kind=max; "
             "fill=masked rows=15 length=33 over=all kind=max",
    .shapes = "rows=257 length=1,2,31 over=rows,all " EACH_KIND
              "; rows=3 length=4096,4099 " EACH_KIND "; rows=301 length=5,8,11,16,26,50 " EACH_KIND
              "; rows=19 length=70,100,197,300,390,638,770,1001 " EACH_KIND
              "; fill=masked rows=300 length=1,3,9,40,130,1000 kind=max"
              "; rows=2 length=4104,20011 over=rows,all " EACH_KIND
              "; rows=1 length=65536 over=rows,all " EACH_KIND "; rows=300 length=260 " EACH_KIND
              "; fill=masked rows=14 length=1,31,4096,4099,65537 kind=max",
    .known = known,
    .large = large,
    IDENTITIES(identities),
    .derive = derive,
    .flops = flops,
    .specials = specials,
};
