/* chance.h - draws for tests that mutate files: each case follows from its number. */
#ifndef CHANCE_H
#define CHANCE_H

#include "common/call/contract.h"
#include "common/call/machine.h"

struct chance {
    uint64_t key, i;
};

/* From 0 to below n. */
static inline size_t any(struct chance *r, size_t n)
{
    return n ? (size_t)(draw_uniform(r->key, r->i++) * (double)n) : 0;
}

#endif
