/* Who waits for what a thread runs (watch.h). */
#include "config.h"

#include "common/base/err.h"
#include "common/call/watch.h"

static _Thread_local const struct watch *watching;

void watch_begin(const struct watch *w)
{
    watching = w;
}

int watch_stopped(void)
{
    return watching && watching->stop && *watching->stop ? err_set("interrupted") : 0;
}

void watch_ran(const struct call *f, enum pass p)
{
    if (watching && watching->ran)
        watching->ran(f, p, watching->data);
}

void watch_part(double part)
{
    if (watching && watching->part)
        watching->part(part, watching->data);
}
