/* transfer.h - values between the host and the memory of a call's backend. */
#ifndef TRANSFER_H
#define TRANSFER_H

#include "common/call/call.h"
#include "common/call/machine.h"

/* Values of n elements, doubles, or bytes as they are, to memory of a call's backend in which they have that
 * type, and from there.  Nonzero after err_set(). */
int transfer_put(const struct call *f, enum dtype type, void *there, const void *values, int64_t n);
int transfer_get(const struct call *f, enum dtype type, void *values, const void *there, int64_t n);

/* Seconds that the calling thread has spent in them for machines with memory of their own. */
double transfer_spent(void);

/* An error code of the call's machine, 0 for none: nonzero after err_set(), with the backend's name. */
int transfer_failed(const struct call *f, int e);

#endif
