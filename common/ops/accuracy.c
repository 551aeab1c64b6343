/* The contract of accuracy: sizes, tensors, costs, cases with known results. */
#include <math.h>

#include "common/call/contract.h"
#include "common/ops/accuracy.h"

static const char *const fills[] = {"normal", "masked", "shifted", "outliers", "ties", NULL};
static const enum fill fill_of[] = {NORMAL, MASKED, SHIFTED, OUTLIERS, UNIT};
enum { TIES = COUNT(fill_of) - 1 };

static const struct param params[] = {
    SIZE_PARAM("rows", 'R', 4096, "rows of logits"),
    SIZE_PARAM("vocabulary", 'V', 4096, "logits of a row"),
    WHOLE_PARAM("ignore_index", 'I', -100, -(1 << 30), 1 << 30,
                "the target of rows that are no hits"),
    DRAW_PARAM("fill", fills, 0,
               "how logits are drawn: N(0, 1), or hard; ties: the two largest of a row are equal"),
};

static const struct axis axes[] = {{'O', "one"}, {0}};

/* Where the largest logit of many rows is: a function of the row alone, since target, which is often
 * that, is drawn by a key of its own. */
static int64_t likely(const struct call *f, int64_t r)
{
    return (int64_t)(draw_uniform(draw_key(0, "likely"), r) * DIM(f, 'V'));
}

static int64_t first_largest(const double *x, int64_t n)
{
    int64_t at = 0;
    for (int64_t j = 1; j < n; j++)
        if (!isnan(x[at]) && !(x[j] <= x[at]))
            at = j;
    return at;
}

/* In half of the rows the largest logit and the one at the likely place are exchanged; with ties, the
 * largest are that one and another. */
static void draw_logits(const struct call *f, int arg, uint64_t key, double *x)
{
    const int64_t R = DIM(f, 'R'), V = DIM(f, 'V');
    const uint64_t exchanged = draw_key(key, "exchanged"), tie = draw_key(key, "tie");

    op_draw(f, arg, fill_of[f->choice[ACCURACY_FILL]], key, x);
    #pragma omp parallel for
    for (int64_t r = 0; r < R; r++) {
        double *row = x + r * V;
        const int64_t here = likely(f, r), top = first_largest(row, V);
        const double largest = row[top];
        if (f->choice[ACCURACY_FILL] == TIES) {
            row[here] = row[(int64_t)(draw_uniform(tie, r) * V)] = 1;
        } else if (draw_uniform(exchanged, r) < 0.5) {
            row[top] = row[here];
            row[here] = largest;
        }
    }
}

/* Half are the likely ones.  Some behind the first row are ignored, some outside. */
static void draw_target(const struct call *f, int arg, uint64_t key, double *x)
{
    const int64_t n = op_count(f, arg), V = DIM(f, 'V');
    const uint64_t kind = draw_key(key, "kind");

    #pragma omp parallel for
    for (int64_t r = 0; r < n; r++) {
        const double u = r ? draw_uniform(kind, r) : 1;
        if (u < 0.125)
            x[r] = (double)DIM(f, 'I');
        else if (u < 0.15625)
            x[r] = u < 0.140625 ? -1 : (double)V;
        else
            x[r] = u < 0.6 ? (double)likely(f, r) : floor(draw_uniform(key, r) * (double)V);
    }
}

OF_CALL(const char *, each, ((void)f, "R"))

static const struct arg args[] = {
    ARG(accuracy, logits, "RV", IN, .draw = draw_logits),
    ARG(accuracy, target, "R", IN | WHOLE, NORMAL, .draw = draw_target),
    ARG(accuracy, hits, "R", OUT | WHOLE, .sample = each),
    ARG(accuracy, count, "O", OUT | WHOLE),
};

static int derive(struct call *f)
{
    DIM(f, 'O') = 1;
    return 0;
}

COST(flops, "RV", 1, 0)

static const struct cost costs[] = {
    {"rows=3 vocabulary=5", FORWARD, 15, 0, 0, {0, 0, 0}},
    {.settings = NULL},
};

static const struct known known[] = {
    {"vocabulary=4", {0, 1, 1, 0}, 1, "hits", {1}},
    {"vocabulary=4", {0, 1, 1, 0}, 2, "hits", {0}},
    {"vocabulary=4", {0, 1, 1, 0}, 1, "count", {1}},
    {"vocabulary=4", {0, 1, 1, 0}, 2, "count", {0}},
    {"vocabulary=4", {-3, -2, -1, -2}, 2, "hits", {1}},
    {"vocabulary=4", {-0.0, 0, 0, -0.0}, 0, "hits", {1}},
    {"vocabulary=4", {-0.0, 0, 0, -0.0}, 1, "hits", {0}},
    {"vocabulary=4", {0, NAN, INFINITY, NAN}, 1, "hits", {1}},
    {"vocabulary=4", {0, NAN, INFINITY, NAN}, 2, "hits", {0}},
    {"vocabulary=4", {0, NAN, INFINITY, NAN}, 3, "hits", {0}},
    {"vocabulary=4", KNOWN_ALL(NAN), 0, "hits", {1}},
    {"vocabulary=4", KNOWN_ALL(NAN), 3, "hits", {0}},
    {"vocabulary=4", KNOWN_ALL(-INFINITY), 0, "hits", {1}},
    {"vocabulary=4", KNOWN_ALL(-INFINITY), 2, "hits", {0}},
    {"vocabulary=4 ignore_index=3", {0, 1, 2, 3}, 3, "hits", {0}},
    {"vocabulary=4 ignore_index=3", {0, 1, 2, 3}, 3, "count", {0}},
    {"vocabulary=4", {0, 1, 2, 3}, 4, "hits", {0}},
    {"vocabulary=4", {3, 2, 1, 0}, -1, "hits", {0}},
    {"vocabulary=1", {-INFINITY}, 0, "hits", {1}},
    {.settings = NULL},
};

#define HARD "fill=masked,shifted,outliers,ties "

/* The rows are independent, but not their count. */
const struct op op_accuracy = {
    .name = "accuracy",
    .formula = "hits = is the largest logit the target's?",
    .source = "common/ops/accuracy.h",
    SIGNATURE(accuracy, params, args),
    .axis = axes,
    .cases =
        "rows=1 vocabulary=1; rows=40 vocabulary=1,2 ignore_index=0; rows=70 vocabulary=2,3,10; "
        "rows=33 vocabulary=33,64,65; rows=9 vocabulary=257,1024; rows=1100 vocabulary=1,2,3; " HARD
        "rows=60 vocabulary=1,2,5,8,67 ignore_index=-100,4; " HARD "rows=25 vocabulary=1003,2500",
    .shapes = "rows=1 vocabulary=31,1031,8192; rows=257 vocabulary=1,2,3,4,8,9,15,16,17 "
              "ignore_index=0; rows=300 vocabulary=127,128,129,255,256,257,511,512,513; " HARD
              "rows=70 vocabulary=4,7,12,31,60,63,66,136,1031; " HARD
              "rows=15 vocabulary=2056,4095,8209; rows=3 vocabulary=50257; "
              "rows=300000 vocabulary=1,2; rows=30000 vocabulary=10; rows=3000 vocabulary=257",
    .known = known,
    .cost = costs,
    .derive = derive,
    .flops = flops,
};
