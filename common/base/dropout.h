/* dropout.h - which elements are dropped: those whose word of Philox is below floor(p 2^32), by the key
 * (seed + 0x9e3779b9 floor(seed / 2^32)) mod 2^32.
 *
 * The last word of a counter is u mod 2^32, where u is the element of a tensor.  Kernels read it on the
 * device: a program advances it, and a graph that is launched again draws another mask. */
#ifndef DROPOUT_H
#define DROPOUT_H

#include <stddef.h>

#include "common/base/philox.h"

/* For contracts: the largest p; the seed, and what the tensor of u has where it is drawn. */
#define DROPOUT_MOST 0.95
#define DROPOUT_SEED_PARAM(letter_, unless_)                                                       \
    {                                                                                              \
        .name = "dropout_seed", .letter = letter_, .initial = 1, .max = INT64_MAX,                 \
        .help = "key of the words that say which", .unless = unless_, .seed = 1                    \
    }
#define DROPOUT_STEP_PARAM(letter_, unless_)                                                       \
    {                                                                                              \
        .name = "dropout_step", .letter = letter_, .max = (int64_t)1 << 53,                        \
        .help = "u, what the tensor counter has", .unless = unless_, .aside = 1, .draw = 1         \
    }

struct dropout_mask {
    uint32_t threshold, key;
};

static inline struct dropout_mask dropout_mask(double p, int64_t seed)
{
    const uint64_t bits = (uint64_t)seed;
    const struct dropout_mask m = {(uint32_t)(p * 0x1p32),
                                   (uint32_t)bits + 0x9e3779b9u * (uint32_t)(bits >> 32)};
    return m;
}

/* u mod 2^32; 0 where there is no tensor. */
static inline ON_HOST_AND_DEVICE uint32_t dropout_step(const void *counter)
{
    return counter ? (uint32_t) * (const int64_t *)counter : 0;
}

static inline ON_HOST_AND_DEVICE int dropout_keeps(const struct dropout_mask *m, uint32_t word)
{
    return word >= m->threshold;
}

#endif
