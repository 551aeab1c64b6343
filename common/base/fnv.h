/* fnv.h - Fowler, Noll and Vo's hash 1a of 64 bits, byte by byte.  It finds accidents and careless
 * edits: whoever wants other bytes of the same hash finds them. */
#ifndef FNV_H
#define FNV_H

#include <stddef.h>
#include <stdint.h>

#define FNV_BEGIN UINT64_C(0xcbf29ce484222325)

static inline uint64_t fnv1a64(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *b = bytes;

    for (size_t i = 0; i < n; i++)
        hash = (hash ^ b[i]) * UINT64_C(0x100000001b3);
    return hash;
}

#endif
