/* places.h - where tensors lie that live for a part of a pass: by first fit, the largest first. */
#ifndef PROGRAM_PLACES_H
#define PROGRAM_PLACES_H

#include <stddef.h>

/* It lives from one step to another, these among them, and begins at `at`, a multiple of 256. */
struct lying {
    int from, to;
    size_t bytes, at;
};

/* Places them; returns the bytes that they take, or SIZE_MAX: no memory.  Those of 0 bytes lie at 0. */
size_t places_find(struct lying *list, int n);

#endif
