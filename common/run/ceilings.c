/* Lower limits of a time from the ceilings of the device; the crossover (ceilings.h). */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "common/run/ceilings.h"

void min_times(const struct ceilings *c, const struct call *f, enum pass p,
               double min_time[N_CEILINGS])
{
    const struct op *o = f->op;
    double products = o->products && f->backend->type == BF16 ? o->products(f, p) : 0;
    double specials = o->specials ? o->specials(f, p) : 0;
    struct chain chain = o->chain ? o->chain(f, p) : (struct chain){0, 0, 0};
    double step = chain.flops * c->flop_time + chain.specials * c->special_time;

    min_time[AT_MEMORY] = op_bytes(f, p) / c->memory;
    min_time[AT_TENSOR] = products / c->tensor;
    min_time[AT_FP32] = (o->flops(f, p) - products) / c->fp32;
    min_time[AT_SPECIAL] = specials / c->special;
    min_time[AT_LATENCY] = chain.steps * step;
}

enum ceiling binding(const double min_time[N_CEILINGS])
{
    enum ceiling worst = AT_MEMORY;
    for (int i = 1; i < N_CEILINGS; i++)
        if (min_time[i] > min_time[worst])
            worst = (enum ceiling)i;
    return worst;
}

double case_tokens(const struct call *f)
{
    const struct op *o = f->op;
    return (o->time ? (double)DIM(f, o->time) : 1) * (o->batch ? (double)DIM(f, o->batch) : 1);
}

double case_rows(const struct call *f)
{
    const struct op *o = f->op;
    double rows = 1;
    const char batch[] = {o->batch, 0};
    for (const char *c = o->rows ? o->rows : batch; *c; c++)
        rows *= (double)DIM(f, *c);
    return rows;
}

double crossover_rows(const struct crossover *g, enum pass p)
{
    if (g->n < 2)
        return 0;
    int last = g->n - 1;
    double before = g->outcome[last - 1].median[p], after = g->outcome[last].median[p];
    double each = (after - before) / (g->rows[last] - g->rows[last - 1]);
    return 2 * each < before / g->rows[last - 1] ? 0 : g->outcome[0].median[p] / each;
}

const struct ceilings *ceilings_of(const struct ceilings *c, const struct backend *b)
{
    return b->machine->device.probe ? c : NULL;
}

const char *ceilings_measure(struct contexts *all, struct ceilings *to)
{
    static _Thread_local char why[300];
    const struct backend *b;

    snprintf(why, sizeof why, "no backend has probes");
    for (int i = 0; (b = judged_backend(i)); i++) {
        const char *no = backend_unavailable(all, b);
        if (!no && !b->machine->device.probe)
            continue;
        int e = no ? 0 : b->machine->device.probe(context_of(all, b), to);
        if (!no && !e)
            return NULL;
        snprintf(why, sizeof why, "%s: %s", b->name, no ? no : b->machine->strerror(e));
    }
    return why;
}
