/* The contract of cross_entropy: sizes, tensors, costs, cases with known results. */
#include <math.h>

#include "common/call/contract.h"
#include "common/ops/cross_entropy.h"

static const char *const d_rows[] = {"drawn", "zero", NULL};

static const struct param params[] = {
    SIZE_PARAM("rows", 'R', 512, "rows of logits"),
    SIZE_PARAM("vocabulary", 'V', 4096, "logits of a row"),
    WHOLE_PARAM("ignore_index", 'I', -100, -(1 << 30), 1 << 30,
                "the target of rows that do not count"),
    REAL_PARAM("label_smoothing", 0, 0, 1, "share of a target that goes to all alike"),
    FILL_PARAM(fill_names, "logits"),
    [CROSS_D_ROWS] = DRAW_PARAM("d_rows", d_rows, 0,
                                "gradients of row_loss and lse; zero: as where only loss is used"),
};

static const struct axis axes[] = {{'O', "one"}, {0}};

/* But the gradient knows how many rows count. */
OF_CALL(const char *, each, ((void)f, "R"))

OF_CALL(enum fill, fill_of_rows, f->choice[CROSS_D_ROWS] ? ZERO : NORMAL)

/* Some rows behind the first are ignored. */
static void draw_target(const struct call *f, int arg, uint64_t key, double *x)
{
    const int64_t n = op_count(f, arg);
    const uint64_t ignored = draw_key(key, "ignored");

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        x[i] = i && draw_uniform(ignored, i) < 0.125 ? (double)DIM(f, 'I')
                                                     : floor(draw_uniform(key, i) * DIM(f, 'V'));
}

static const struct arg args[] = {
    ARG(cross_entropy, logits, "RV", IN | DIFF | BELOW, NORMAL, .fill_choice = "fill"),
    ARG(cross_entropy, target, "R", IN | WHOLE, INDEX, .draw = draw_target),
    ARG(cross_entropy, loss, "O", OUT | DIFF | WIDE),
    ARG(cross_entropy, row_loss, "R", OUT | DIFF | WIDE, .fill_of = fill_of_rows, .sample = each),
    ARG(cross_entropy, lse, "R", OUT | DIFF | WIDE, .fill_of = fill_of_rows, .sample = each),
    ARG(cross_entropy, top, "R", SAVED | WIDE, .sample = each),
    ARG(cross_entropy, sum, "R", SAVED | WIDE, .sample = each),
    ARG(cross_entropy, count, "O", SAVED | WHOLE),
};

static int derive(struct call *f)
{
    DIM(f, 'O') = 1;
    return 0;
}

OF_CALL(int64_t, index_range, DIM(f, 'V'))

COST(flops, "RV", 4 + (f->real[CROSS_SMOOTHING] > 0), 4)
COST(specials, "RV", 1, 1)

#define LOG_2 0.69314718055994530942

static const struct known known[] = {
    {"vocabulary=4", {0, -INFINITY, 0, -INFINITY}, 0, "row_loss", {LOG_2}},
    {"vocabulary=4", {0, -INFINITY, 0, -INFINITY}, 0, "d_logits", {-0.5, 0, 0.5, 0}},
    {"vocabulary=4", {0, -INFINITY, 0, -INFINITY}, 1, "row_loss", {INFINITY}},
    {"vocabulary=4", {0, -INFINITY, 0, -INFINITY}, 1, "loss", {INFINITY}},
    {"vocabulary=4", {0, -INFINITY, 0, -INFINITY}, 1, "lse", {LOG_2}},
    {"vocabulary=4", {0, -INFINITY, 0, -INFINITY}, 1, "d_logits", {0.5, -1, 0.5, 0}},
    {"vocabulary=4", KNOWN_ALL(1e4), 3, "row_loss", {2 * LOG_2}},
    {"vocabulary=4 label_smoothing=0.5", KNOWN_ALL(1e4), 3, "row_loss", {2 * LOG_2}},
    {"vocabulary=4", KNOWN_ALL(1e4), 3, "d_logits", {0.25, 0.25, 0.25, -0.75}},
    {"vocabulary=4", {0, NAN, INFINITY, 0}, 0, "row_loss", {NAN}},
    {"vocabulary=4", {0, NAN, INFINITY, 0}, 0, "lse", {NAN}},
    {"vocabulary=4", {0, NAN, INFINITY, 0}, 0, "d_logits", KNOWN_ALL(NAN)},
    {"vocabulary=4", {0, INFINITY, 0, 0}, 0, "row_loss", {NAN}},
    {"vocabulary=4", {0, INFINITY, 0, 0}, 0, "lse", {INFINITY}},
    {"vocabulary=4", KNOWN_ALL(-INFINITY), 0, "row_loss", {NAN}},
    {"vocabulary=4", KNOWN_ALL(-INFINITY), 0, "lse", {-INFINITY}},
    {"vocabulary=4", KNOWN_ALL(-INFINITY), 0, "d_logits", KNOWN_ALL(NAN)},
    {"vocabulary=4 ignore_index=2", {0, NAN, 1, 2}, 2, "loss", {0}},
    {"vocabulary=16", KNOWN_ALL(1e4), 9, "row_loss", {4 * LOG_2}},
    {"vocabulary=16 label_smoothing=0.5", KNOWN_ALL(1e4), 9, "row_loss", {4 * LOG_2}},
    {"vocabulary=16", {[9] = -INFINITY}, 9, "row_loss", {INFINITY}},
    {"vocabulary=16 label_smoothing=0.5", {[9] = -INFINITY}, 0, "row_loss", {INFINITY}},
    {"vocabulary=16", {[9] = NAN, [10] = INFINITY}, 0, "lse", {NAN}},
    {"vocabulary=16", {[14] = NAN}, 0, "row_loss", {NAN}},
    {"vocabulary=16", {[14] = NAN}, 0, "d_logits", KNOWN_ALL(NAN)},
    {"vocabulary=16", {[5] = INFINITY}, 0, "lse", {INFINITY}},
    {"vocabulary=16", KNOWN_ALL(-INFINITY), 0, "row_loss", {NAN}},
    {"vocabulary=16", KNOWN_ALL(-INFINITY), 0, "lse", {-INFINITY}},
    {"vocabulary=16 ignore_index=9", {[9] = NAN}, 9, "loss", {0}},
    {"vocabulary=1", {3.75}, 0, "loss", {0}},
    {"vocabulary=1 label_smoothing=0.17", {-1e4}, 0, "row_loss", {0}},
    {.settings = NULL},
};

/* The rows are not independent: each one's gradient knows how many count. */
const struct op op_cross_entropy = {
    .name = "cross_entropy",
    .formula = "loss = mean of log sum e^logits - logits[target]",
    .source = "common/ops/cross_entropy.h",
    SIGNATURE(cross_entropy, params, args),
    .axis = axes,
    .cases = "rows=1 vocabulary=1; rows=3 vocabulary=1 ignore_index=0; rows=4 vocabulary=2; "
             "rows=7 vocabulary=33 label_smoothing=0,0.1; rows=3 vocabulary=257; "
             "rows=40 vocabulary=5 ignore_index=2 label_smoothing=0,0.3; "
             "rows=48 vocabulary=19 label_smoothing=0,0.1 d_rows=zero; "
             "rows=2 vocabulary=1024 label_smoothing=1; rows=41 vocabulary=1 label_smoothing=0.17; "
             "rows=9 vocabulary=40,72 label_smoothing=0,0.1; "
             "fill=masked,shifted,outliers rows=15 vocabulary=1,5,67 label_smoothing=0,0.1; "
             "fill=masked,shifted,outliers rows=8 vocabulary=2500",
    .shapes = "rows=1 vocabulary=31,1031,8192; rows=257 vocabulary=1,2,3,8,9 ignore_index=0; "
              "rows=3 vocabulary=257,1000,4096,5003 label_smoothing=0,0.25; "
              "fill=masked,shifted,outliers rows=17 vocabulary=3,130,8209 label_smoothing=0,0.3; "
              "rows=2 vocabulary=8209; rows=1100 vocabulary=7 ignore_index=3; "
              "rows=515 vocabulary=1,2,4,10 ignore_index=1 label_smoothing=0,0.2; "
              "rows=131 vocabulary=5,12,13,15,16,17,24,25 label_smoothing=0.1; "
              "rows=37 vocabulary=4,8,12,16,20,24,32,33,36,40,48,49,63,64,65,68,72,96,97; "
              "rows=37 vocabulary=100,127,128,129,132,136,192,193,200,256,260,264,512,516; "
              "rows=37 vocabulary=520,768,1000,1024; "
              "rows=37 vocabulary=4,16,40,72,264 label_smoothing=0.3; "
              "rows=13 vocabulary=255,256,257,384,385,511,512,513,768,769,1000; "
              "fill=masked,shifted,outliers rows=131 vocabulary=2,10 label_smoothing=0,0.3; "
              "fill=masked,shifted,outliers rows=37 vocabulary=24,136 label_smoothing=0,0.3; "
              "fill=masked,shifted,outliers rows=9 vocabulary=256,1023,1024,1025; "
              "rows=1061 vocabulary=193; rows=17001 vocabulary=2 ignore_index=1",
    .known = known,
    .derive = derive,
    .index_range = index_range,
    .no_index = "ignore_index",
    .flops = flops,
    .specials = specials,
};
