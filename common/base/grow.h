/* grow.h - lists and texts that grow at their end. */
#ifndef GROW_H
#define GROW_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A list of n elements with space for one more, its length a power of two; NULL: no memory, and
 * `list` stays. */
static inline void *grow(void *list, int n, size_t size)
{
    return n & (n - 1) ? list : realloc(list, (n ? 2 * (size_t)n : 1) * size);
}

/* Append to a text in `size` bytes, cut to fit. */
__attribute__((format(printf, 3, 4))) static inline void append(char *text, size_t size,
                                                                const char *fmt, ...)
{
    size_t n = strlen(text);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text + n, size - n, fmt, ap);
    va_end(ap);
}

#endif
