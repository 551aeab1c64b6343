/* here.h - the contexts of a test's process. */
#ifndef HERE_H
#define HERE_H

#include "common/call/machine.h"

static inline struct contexts *here(void)
{
    static struct contexts all;
    return &all;
}

/* The call on a backend of this process. */
static inline struct call call_here(const struct call *f, const struct backend *b,
                                    const struct impl *k)
{
    return call_on(f, b, k, context_of(here(), b));
}

#endif
