/* Fills the rows of the tables of times (time_rows.h). */
#include "config.h"

#include <math.h>
#include <string.h>

#include "common/store/time_rows.h"

#define TIME_COLUMN(...) COLUMN_OF(time_row, __VA_ARGS__)
#define CROSSOVER_TIME_COLUMN(...) COLUMN_OF(crossover_time, __VA_ARGS__)
#define CROSSOVER_COLUMN(...) COLUMN_OF(crossover_row, __VA_ARGS__)

const struct column time_columns[] = {TIME_COLUMNS(TIME_COLUMN){NULL}};
const struct column crossover_time_columns[] = {
    CROSSOVER_TIME_COLUMNS(CROSSOVER_TIME_COLUMN){NULL}};
const struct column crossover_columns[] = {CROSSOVER_COLUMNS(CROSSOVER_COLUMN){NULL}};

static const struct time_row no_time = {TIME_COLUMNS(COLUMN_NONE)};
static const struct crossover_time no_crossover_time = {CROSSOVER_TIME_COLUMNS(COLUMN_NONE)};

int times_has(const struct ran *ran)
{
    return ran->outcome.runs[FORWARD] > 0;
}

/* The worst error of a pass's results, outputs or gradients, and whose. */
static void find_worst(const struct result *r, enum pass p, struct time_row *row)
{
    double error = -1;
    const char *tensor = "";

    for (int i = 0; i < r->verdicts.n; i++) {
        const struct verdict *v = &r->verdicts.v[i];
        int gradient = strncmp(v->tensor, "d_", 2) == 0;
        if (strcmp(v->backend, row->backend) == 0 && strcmp(v->kernel, row->kernel) == 0 &&
            gradient == (p == BACKWARD) && !verdict_of_time(v) && !(v->error <= error)) {
            error = v->error;
            tensor = v->tensor;
        }
    }
    if (error >= 0) {
        row->error = error;
        row->worst = tensor;
    }
}

/* The fractions of the ceilings that it reached, where they are known. */
static void find_fractions(const struct ceilings *c, const struct call *f, enum pass p,
                           struct time_row *row)
{
    double min_time[N_CEILINGS];

    if (!ceilings_of(c, f->backend))
        return;
    min_times(c, f, p, min_time);
#define SET_FRACTION(with, ID, name) row->name = min_time[AT_##ID] / row->median;
    CEILINGS(SET_FRACTION, )
    row->bound_by = ceiling_names[binding(min_time)];
}

/* Its place under the roofline, and what its launches take of an SM. */
static void find_roofline(const struct ceilings *c, const struct profile *p, struct time_row *row)
{
    const struct launches *l = &p->launches;
    const struct roofline r = roofline_of(c, p);

    row->intensity = r.intensity;
    row->ridge = r.ridge;
    row->attainable = r.attainable;
    row->efficiency = r.efficiency;
    if (!l->n)
        return;
    row->launches = l->n;
    if (l->registers < 0)
        return;
    row->registers = l->registers;
    row->spills = l->spills;
    row->smem = l->smem;
    row->blocks_per_sm = l->blocks_per_sm;
    row->occupancy = occupancy_of(l);
    row->waves = waves_of(l);
}

struct profile time_profile(const struct ceilings *c, const struct ran *ran, enum pass p)
{
    struct profile profile = profile_of(&ran->call, p, &ran->outcome);
    double min_time[N_CEILINGS];

    if (ceilings_of(c, ran->call.backend)) {
        min_times(c, &ran->call, p, min_time);
        profile.latency = min_time[AT_LATENCY] / profile.seconds;
        profile.special = min_time[AT_SPECIAL] / profile.seconds;
    }
    return profile;
}

struct time_row time_row(const struct ceilings *c, const struct result *r, const struct ran *ran,
                         enum pass p)
{
    const struct call *f = &ran->call;
    const struct op *o = f->op;
    const struct backend *b = f->backend;
    const struct outcome *out = &ran->outcome;
    struct time_row row = no_time;

    row.backend = ran_name(ran);
    row.kernel = f->kernel->name;
    row.pass = pass_names[p];
    row.line = r->trial->text;
    row.judged = r->sampled ? "sampled" : "full";
    row.verdict = "fail";
    if (!times_has(ran))
        return row;
    row.verdict = b == yardstick(b) && !ran->name ? "yardstick" : "pass";
    row.median = out->median[p];
    row.min = out->min[p];
    row.max = out->max[p];
    row.spread = out->spread[p];
    row.median_no_graph = out->no_graph[p];
    row.runs = out->runs[p];
    row.method = b->machine->timing.method;
    row.tokens = case_tokens(f);
    row.flops = o->flops(f, p);
    row.bytes = op_bytes(f, p);
    row.specials = o->specials ? o->specials(f, p) : 0;
    row.tokens_per_s = row.tokens / row.median;
    row.flops_per_s = row.flops / row.median;
    row.bytes_per_s = row.bytes / row.median;
    row.peak_bytes = out->peak;
    row.saved_bytes = op_saved(f);
    row.predicted_bytes = ran->predicted;
    if (ran->outcome.used)
        row.used_bytes = ran->outcome.used;
    find_fractions(c, f, p, &row);
    const struct profile profile = time_profile(c, ran, p);
    find_roofline(ceilings_of(c, b), &profile, &row);
    find_worst(r, p, &row);
    return row;
}

struct time_row declined_row(const struct result *r, const struct declined *d, const char *verdict)
{
    struct time_row row = no_time;
    row.backend = d->backend->name;
    row.kernel = d->kernel->name;
    row.verdict = verdict;
    row.line = r->trial->text;
    return row;
}

struct crossover_time crossover_time(const struct result *r, const struct crossover *g, int i,
                                     enum pass p)
{
    const struct outcome *out = &g->outcome[i];
    return (struct crossover_time){.trial = -1,
                                   .backend = g->backend->name,
                                   .kernel = g->kernel->name,
                                   .pass = pass_names[p],
                                   .what = "time",
                                   .batch = g->batch[i],
                                   .rows = g->rows[i],
                                   .median = out->median[p],
                                   .min = out->min[p],
                                   .max = out->max[p],
                                   .runs = out->runs[p],
                                   .line = r->trial->text};
}

struct crossover_row crossover_row(const struct crossover *g, enum pass p)
{
    return (struct crossover_row){.backend = g->backend->name,
                                  .kernel = g->kernel->name,
                                  .pass = pass_names[p],
                                  .rows = crossover_rows(g, p),
                                  .stopped = g->stopped};
}

struct crossover_time crossover_as_time(const struct result *r, const struct crossover *g,
                                        enum pass p)
{
    struct crossover_time row = no_crossover_time;
    row.backend = g->backend->name;
    row.kernel = g->kernel->name;
    row.pass = pass_names[p];
    row.what = "crossover";
    row.rows = crossover_rows(g, p);
    row.line = r->trial->text;
    return row;
}
