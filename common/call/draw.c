/* Inputs, drawn (contract.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/call/contract.h"
#include "common/call/machine.h"

/* A number that depends on nothing but its arguments, so that any element
 * of any input can be drawn by any thread in any order (splitmix64). */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

uint64_t draw_key(uint64_t seed, const char *name)
{
    for (const char *c = name; *c; c++)
        seed = mix(seed ^ (uint64_t)*c);
    return mix(seed);
}

double draw_uniform(uint64_t key, uint64_t i)
{
    return (double)(mix(key ^ mix(i)) >> 11) * 0x1p-53;
}

double draw_normal(uint64_t key, uint64_t i)
{
    double u = draw_uniform(key, 2 * i), w = draw_uniform(key, 2 * i + 1);
    return sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * w);
}

const char *const no_yes[] = {"no", "yes", NULL};
const char *const fill_names[] = {"normal", "masked", "shifted", "outliers", NULL};

enum fill op_fill(const struct call *f, int arg)
{
    const struct op *o = f->op;
    static const struct {
        const char *name;
        enum fill fill;
    } fills[] = {{"masked", MASKED}, {"shifted", SHIFTED}, {"outliers", OUTLIERS},
                 {"offset", OFFSET}, {"tiny", TINY_ROWS},  {"wide", WIDE_RANGE},
                 {"spikes", SPIKES}};
    const struct arg *a = &o->arg[arg];
    int place;

    if (a->fill_choice && op_param(o, a->fill_choice, &place)) {
        const char *name = o->param[place].choices[f->choice[place]];
        for (size_t i = 0; i < COUNT(fills); i++)
            if (strcmp(name, fills[i].name) == 0)
                return fills[i].fill;
        return a->fill;
    }
    return a->fill_of ? a->fill_of(f) : a->fill;
}

/* Where an element of a hard fill is: its row, counted from one that the seed says, and its
 * column; a column of the row that the seed says, and a value within 0 ... 1. */
struct hard {
    int64_t row, column, chosen;
    double u;
};

static struct hard hard_at(uint64_t key, int64_t i, int64_t columns)
{
    uint64_t rows = draw_key(key, "rows");
    int64_t row = i / columns;
    return (struct hard){
        .row = row + (int64_t)(draw_uniform(key, UINT64_MAX) * 1000),
        .column = i % columns,
        .chosen = (int64_t)(draw_uniform(rows, row) * columns),
        .u = draw_uniform(draw_key(key, "elements"), i),
    };
}

static double draw_masked(uint64_t key, int64_t i, int64_t columns)
{
    struct hard h = hard_at(key, i, columns);
    double x = draw_normal(key, i);

    switch (h.row % 7) {
    case 0: return h.column != h.chosen && h.u < 0.5 ? -INFINITY : x;
    case 1: return -INFINITY;
    case 2: return h.column == h.chosen ? NAN : x;
    case 3: return h.column == h.chosen ? INFINITY : x;
    case 4: return h.u < 0.2 ? NAN : h.u < 0.4 ? INFINITY : h.u < 0.7 ? -INFINITY : x;
    case 5: return floor(3 * h.u) - 1;
    default: return h.u < 0.5 ? -0.0 : 0.0;
    }
}

static double draw_outliers(uint64_t key, int64_t i, int64_t columns)
{
    struct hard h = hard_at(key, i, columns);
    double x = draw_normal(key, i), large = h.row % 2 ? 1e30 : 1e4;

    switch (h.row / 2 % 3) {
    case 0: return h.column == h.chosen ? large : x;
    case 1: return h.column != h.chosen && h.u < 0.5 ? -large : x;
    default: return h.column == h.chosen || h.u < 0.5 ? large : x;
    }
}

static double draw_tiny(uint64_t key, int64_t i, int64_t columns)
{
    static const double size[] = {1e-8, 1, 1e-3, 1e-15};
    return size[hard_at(key, i, columns).row % COUNT(size)] * draw_normal(key, i);
}

static double draw_wide(uint64_t key, int64_t i)
{
    const double x = draw_normal(key, i);
    return draw_uniform(draw_key(key, "wide"), i) < 0.5 ? 100 * fabs(x) : x;
}

static double draw_spikes(uint64_t key, int64_t i)
{
    const int spike = (int)(32 * draw_uniform(draw_key(key, "spikes"), i / 32));
    return (i % 32 == spike ? 30 : 1) * draw_normal(key, i);
}

static int64_t index_range(const struct call *f, int arg)
{
    const struct arg *a = &f->op->arg[arg];
    const struct call *own = a->own ? a->own(f, &arg) : f;
    return own->op->index_range(own);
}

void op_draw(const struct call *f, int arg, enum fill fill, uint64_t seed, double *x)
{
    const struct op *o = f->op;
    const char *shape = op_shape(f, arg);
    int64_t columns = DIM(f, shape[strlen(shape) - 1]);
    double fan = 1 / sqrt((double)columns);
    uint64_t key = draw_key(seed, o->arg[arg].name);
    int64_t n = op_count(f, arg), range = fill == INDEX ? index_range(f, arg) : 0;

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        switch (fill) {
        case ZERO: x[i] = 0; break;
        case NORMAL: x[i] = draw_normal(key, i); break;
        case FAN: x[i] = fan * draw_normal(key, i); break;
        case UNIT: x[i] = 2 * draw_uniform(key, i) - 1; break;
        case GATE: x[i] = draw_uniform(key, i); break;
        case INDEX: x[i] = floor(draw_uniform(key, i) * range); break;
        case MASKED: x[i] = draw_masked(key, i, columns); break;
        case SHIFTED: x[i] = 1e4 + draw_normal(key, i); break;
        case OUTLIERS: x[i] = draw_outliers(key, i, columns); break;
        case OFFSET: x[i] = 1e3 + draw_normal(key, i); break;
        case WIDE_RANGE: x[i] = draw_wide(key, i); break;
        case SPIKES: x[i] = draw_spikes(key, i); break;
        case TINY_ROWS: x[i] = draw_tiny(key, i, columns); break;
        }
    }
}

void op_draw_bytes(const struct call *f, int arg, uint64_t seed, unsigned char *b)
{
    const uint64_t key = draw_key(seed, f->op->arg[arg].name);
    const int64_t n = op_count(f, arg);

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        b[i] = (unsigned char)(256 * draw_uniform(key, i));
}
