/* The roofline, and advice from it (roofline.h). */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "common/base/number.h"
#include "common/run/roofline.h"

static const double GOOD = .8;    /* efficiency that needs no advice */
static const double LAUNCHES = 3; /* a time below so many launches' is theirs */
static const double BINDING = .5; /* the fraction of latency, or of special functions, that binds */
static const double LOW = .5;     /* efficiency of what FLOPs bind */
static const double FAR = .3;     /* below this fraction of a ceiling, it is not what binds */
static const double FEW_WARPS = .25; /* occupancy with which latencies are not hidden */

struct profile profile_of(const struct call *f, enum pass p, const struct outcome *out)
{
    const struct op *o = f->op;
    return (struct profile){.seconds = out->median[p],
                            .flops = o->flops(f, p),
                            .bytes = op_bytes(f, p),
                            .products = o->products ? o->products(f, p) : 0,
                            .half = f->backend->type == BF16,
                            .steps = o->chain ? o->chain(f, p).steps : 0,
                            .launches = out->launches[p]};
}

static double peak_of(const struct ceilings *c, const struct profile *p)
{
    return p->half && p->products > 0 && 2 * p->products >= p->flops ? c->tensor : c->fp32;
}

/* a / b; NaN where one of them is not known, or 0. */
static double ratio(double a, double b)
{
    return a > 0 && b > 0 ? a / b : NAN;
}

struct roofline roofline_of(const struct ceilings *c, const struct profile *p)
{
    struct roofline r = {ratio(p->flops, p->bytes), NAN, NAN, NAN};

    if (!c)
        return r;
    const double peak = peak_of(c, p), compute = ratio(p->flops, peak),
                 traffic = ratio(p->bytes, c->memory);
    r.ridge = ratio(peak, c->memory);
    if (!isnan(r.intensity) && !isnan(r.ridge))
        r.attainable = fmin(peak, c->memory * r.intensity);
    r.efficiency = ratio(fmax(compute, traffic), p->seconds); /* fmax leaves out a NaN */
    return r;
}

double occupancy_of(const struct launches *l)
{
    return ratio((double)l->blocks_per_sm * (double)((l->threads + 31) / 32 * 32),
                 l->threads_per_sm);
}

double waves_of(const struct launches *l)
{
    return ratio((double)l->blocks, (double)l->sms * l->blocks_per_sm);
}

/* Far from each ceiling, step after step: what one takes.  Rows that do not fit at once take their steps in turn. */
static const char *of_chain(const struct profile *p, char text[ADVICE])
{
    const double waves = waves_of(&p->launches) > 1 ? ceil(waves_of(&p->launches)) : 1;
    const double ns = 1e9 * p->seconds / p->steps;
    char of_waves[40] = "", latency[60] = "";

    if (waves > 1)
        snprintf(of_waves, sizeof of_waves, ", in %.0f waves", waves);
    if (p->latency > 0)
        snprintf(latency, sizeof latency, "; its operations' latency is %.0f ns", ns * p->latency);
    snprintf(text, ADVICE, "a chain of %.0f steps%s, %.0f ns each%s", p->steps, of_waves,
             ns / waves, latency);
    return text;
}

/* Bound by memory: more bytes in flight, or fewer. */
static const char *of_memory(const struct profile *p, double efficiency, char text[ADVICE])
{
    const double occupancy = occupancy_of(&p->launches);
    char smem[NUMBER_TEXT];

    if (efficiency < FAR)
        return text;
    if (occupancy < LOW)
        snprintf(text, ADVICE,
                 "memory at %.0f %%, occupancy %.0f %% (%d registers, %s): more loads in flight",
                 100 * efficiency, 100 * occupancy, p->launches.registers,
                 number_bytes(p->launches.smem, smem));
    else
        snprintf(text, ADVICE,
                 "memory at %.0f %%: wider loads, more of them in flight, or fewer bytes",
                 100 * efficiency);
    return text;
}

/* Bound by FLOPs. */
static const char *of_compute(const struct ceilings *c, const struct profile *p, double efficiency,
                              char text[ADVICE])
{
    const double occupancy = occupancy_of(&p->launches);
    char smem[NUMBER_TEXT];

    if (occupancy < FEW_WARPS)
        snprintf(text, ADVICE, "occupancy %.0f %%: fewer registers (%d) or less shared memory (%s)",
                 100 * occupancy, p->launches.registers, number_bytes(p->launches.smem, smem));
    else if (peak_of(c, p) == c->tensor && p->flops < p->seconds * c->fp32)
        snprintf(text, ADVICE, "slower than FP32 units: products without tensor cores?");
    else if (efficiency >= FAR)
        snprintf(text, ADVICE, "FLOPs at %.0f %%: instruction mix, divergence or stalls",
                 100 * efficiency);
    return text;
}

static const char *of_blocks(const struct launches *l, char text[ADVICE])
{
    if (l->blocks < l->sms)
        snprintf(text, ADVICE, "blocks for %d of %d SMs: split the work further", (int)l->blocks,
                 l->sms);
    else
        snprintf(text, ADVICE, "blocks for %.0f %% of what the SMs hold: split the work further",
                 100 * waves_of(l));
    return text;
}

static const char *of_launches(const struct ceilings *c, const struct profile *p, char text[ADVICE])
{
    const int64_t n = p->launches.n;

    if (n > 1)
        snprintf(text, ADVICE, "bound by launches: %d take %.3g us of %.3g us; fuse them", (int)n,
                 1e6 * c->launch * (double)n, 1e6 * p->seconds);
    else
        snprintf(text, ADVICE,
                 "bound by its launch, %.3g us of %.3g us: fuse it with its neighbours",
                 1e6 * c->launch, 1e6 * p->seconds);
    return text;
}

const char *advice(const struct ceilings *c, const struct profile *p, char text[ADVICE])
{
    const struct launches *l = &p->launches;
    const struct roofline r = roofline_of(c, p);
    const double n = l->n > 1 ? (double)l->n : 1;

    *text = 0;
    if (!(r.efficiency < GOOD))
        return text;
    if (p->seconds < LAUNCHES * c->launch * n)
        return of_launches(c, p, text);
    if (l->n && l->spills > 0)
        snprintf(text, ADVICE,
                 "%d bytes of local memory per thread: registers spill, or arrays that "
                 "are indexed",
                 l->spills);
    else if (p->latency >= BINDING)
        snprintf(text, ADVICE, "bound by the chain of dependent operations, %.0f %% of its latency",
                 100 * p->latency);
    else if (p->steps > 0 && !(r.efficiency >= FAR) && !(p->special >= FAR))
        return of_chain(p, text);
    else if (waves_of(l) < 1)
        return of_blocks(l, text);
    else if (p->special >= BINDING)
        snprintf(text, ADVICE,
                 "special functions at %.0f %% of their ceiling: fewer, or approximate",
                 100 * p->special);
    else if (isnan(r.intensity) || r.intensity < r.ridge)
        return of_memory(p, r.efficiency, text);
    else if (r.efficiency < LOW)
        return of_compute(c, p, r.efficiency, text);
    return text;
}
