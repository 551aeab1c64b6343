/* The learning rates of a run (rates.h). */
#include "config.h"

#include <math.h>

#include "common/train/rates.h"

/* How far the fall has come, 0 ... 1. */
static double fallen(const struct cell *c, int64_t u)
{
    const int64_t from = c->schedule == SCHEDULE_WSD ? c->updates - c->decay : c->warmup;
    return u <= from ? 0 : (double)(u - from) / (double)(c->updates - from);
}

double rate_at(const struct cell *c, int64_t u)
{
    const double x = fallen(c, u), f = c->final;

    if (u <= c->warmup)
        return c->lr * (double)u / (double)c->warmup;
    switch (c->schedule) {
    case SCHEDULE_COSINE: return c->lr * (f + (1 - f) * (1 + cos(M_PI * x)) / 2);
    case SCHEDULE_CONSTANT: return c->lr;
    default: return c->lr * (1 - (1 - f) * x);
    }
}

double unbias_at(double beta, int64_t t)
{
    return 1 / (1 - pow(beta, (double)t));
}
