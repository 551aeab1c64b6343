/* philox.h - Philox-4x32-10, a generator of random numbers by counter: Salmon, Moraes, Dror, Shaw,
 * "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).  The same words on all backends. */
#ifndef PHILOX_H
#define PHILOX_H

#include <stdint.h>

#include "common/base/types.h"

struct philox {
    uint32_t word[4];
};

/* The four words of a counter, by the key's two. */
static inline ON_HOST_AND_DEVICE struct philox philox4x32(struct philox counter, uint32_t key_low,
                                                          uint32_t key_high)
{
    uint32_t a = counter.word[0], b = counter.word[1], c = counter.word[2], d = counter.word[3];

    for (int round = 0; round < 10; round++) {
        const uint64_t x = 0xd2511f53ull * a, y = 0xcd9e8d57ull * c;
        a = (uint32_t)(y >> 32) ^ b ^ key_low;
        c = (uint32_t)(x >> 32) ^ d ^ key_high;
        b = (uint32_t)y;
        d = (uint32_t)x;
        key_low += 0x9e3779b9;
        key_high += 0xbb67ae85;
    }
    const struct philox words = {{a, b, c, d}};
    return words;
}

#endif
