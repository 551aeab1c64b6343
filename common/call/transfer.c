/* Values there and here, converted in chunks (transfer.h). */
#include "config.h"

#include <stdlib.h>

#include "common/base/err.h"
#include "common/call/transfer.h"

/* Elements that are converted at a time. */
enum { CHUNK = 1 << 20 };

static int64_t chunk_at(int64_t from, int64_t n)
{
    return n - from < CHUNK ? n - from : CHUNK;
}

int transfer_failed(const struct call *f, int e)
{
    return e ? err_set("%s: %s", f->backend->name, f->backend->machine->strerror(e)) : 0;
}

/* The host's `here` to `there`, or, from there, back; an error code of the machine. */
static int copy(const struct call *f, void *there, void *here, size_t bytes, int put)
{
    const struct memory *m = &f->backend->machine->memory;
    return put ? m->put(f->context, there, here, bytes) : m->get(f->context, here, there, bytes);
}

/* `put`: the values are read, and not written. */
static int transfer(const struct call *f, enum dtype type, void *there, void *values, int64_t n,
                    int put)
{
    const size_t each = types[type].bytes;
    double *x = values;
    int e = 0;

    if (type == U8)
        return transfer_failed(f, copy(f, there, values, n, put));
    void *bits = malloc(chunk_at(0, n) * each + 1);
    if (!bits)
        return err_set("no memory for a tensor of %lld elements", (long long)n);
    for (int64_t from = 0; !e && from < n; from += CHUNK) {
        const int64_t some = chunk_at(from, n);
        if (put)
            narrow(type, bits, x + from, some);
        e = copy(f, (char *)there + from * each, bits, some * each, put);
        if (!put && !e)
            widen(type, x + from, bits, some);
    }
    free(bits);
    return transfer_failed(f, e);
}

int transfer_put(const struct call *f, enum dtype type, void *there, const void *values, int64_t n)
{
    return transfer(f, type, there, (void *)(uintptr_t)values, n, 1);
}

int transfer_get(const struct call *f, enum dtype type, void *values, const void *there, int64_t n)
{
    return transfer(f, type, (void *)(uintptr_t)there, values, n, 0);
}
