/* Values there and here, converted in chunks (transfer.h): where the machine has pinned memory for it, one chunk is converted
 * while others are on their way. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/call/transfer.h"

/* Elements that are converted at a time: as many as fit into a buffer, of the largest type. */
enum { CHUNK = RING_BYTES / 8 };

static _Thread_local double spent;

double transfer_spent(void)
{
    return spent;
}

static int64_t chunk_at(int64_t from, int64_t n)
{
    return n - from < CHUNK ? n - from : CHUNK;
}

int transfer_failed(const struct call *f, int e)
{
    return e ? err_set("%s: %s", f->backend->name, f->backend->machine->strerror(e)) : 0;
}

/* Values of a tensor, here and there; `put`: those here are read, and not written. */
struct way {
    const struct call *call;
    enum dtype type;
    void *there, *here;
    int64_t n;
    int put;
};

static const struct memory *memory_of(const struct way *w)
{
    return &w->call->backend->machine->memory;
}

/* Chunk k of it: its bytes there, and how many elements; 0 behind the last. */
static char *chunk_there(const struct way *w, int64_t k)
{
    return (char *)w->there + k * CHUNK * (int64_t)types[w->type].bytes;
}

static int64_t chunk_count(const struct way *w, int64_t k)
{
    return k * CHUNK < w->n ? chunk_at(k * CHUNK, w->n) : 0;
}

/* Converts chunk k, between what is here and its bits. */
static void convert(const struct way *w, int64_t k, void *bits)
{
    const int64_t some = chunk_count(w, k);
    double *x = w->here;

    if (w->type == U8 && w->put)
        memcpy(bits, (char *)w->here + k * CHUNK, some);
    else if (w->type == U8)
        memcpy((char *)w->here + k * CHUNK, bits, some);
    else if (w->put)
        narrow(w->type, bits, x + k * CHUNK, some);
    else
        widen(w->type, x + k * CHUNK, bits, some);
}

/* Chunk after chunk: each is waited for. */
static int one_by_one(const struct way *w)
{
    const size_t each = types[w->type].bytes;
    const struct memory *m = memory_of(w);
    struct context *x = w->call->context;
    int e = 0;

    if (w->type == U8)
        return transfer_failed(w->call, w->put ? m->put(x, w->there, w->here, w->n)
                                               : m->get(x, w->here, w->there, w->n));
    void *bits = malloc(chunk_at(0, w->n) * each + 1);
    if (!bits)
        return err_set("no memory for a tensor of %lld elements", (long long)w->n);
    for (int64_t k = 0; !e && chunk_count(w, k); k++) {
        const size_t bytes = chunk_count(w, k) * each;
        if (w->put)
            convert(w, k, bits);
        e = w->put ? m->put(x, chunk_there(w, k), bits, bytes)
                   : m->get(x, bits, chunk_there(w, k), bytes);
        if (!w->put && !e)
            convert(w, k, bits);
    }
    free(bits);
    return transfer_failed(w->call, e);
}

/* ---- through the ring ---- */

/* Chunk k goes through buffer k % RING, as soon as the copy of chunk k - RING is done. */
static int put_all(const struct way *w)
{
    const struct memory *m = memory_of(w);
    struct context *x = w->call->context;
    void *bits;
    int e = 0;

    for (int64_t k = 0; !e && chunk_count(w, k); k++) {
        e = m->pinned(x, (int)(k % RING), &bits);
        if (e)
            break;
        convert(w, k, bits);
        e = m->send(x, chunk_there(w, k), (int)(k % RING),
                    chunk_count(w, k) * types[w->type].bytes);
    }
    for (int i = 0; !e && i < RING; i++)
        e = m->pinned(x, i, &bits);
    return e;
}

static int fetch(const struct way *w, int64_t k)
{
    return chunk_count(w, k)
               ? memory_of(w)->fetch(w->call->context, (int)(k % RING), chunk_there(w, k),
                                     chunk_count(w, k) * types[w->type].bytes)
               : 0;
}

static int get_all(const struct way *w)
{
    void *bits;
    int e = 0;

    for (int64_t k = 0; !e && k < RING; k++)
        e = fetch(w, k);
    for (int64_t k = 0; !e && chunk_count(w, k); k++) {
        e = memory_of(w)->pinned(w->call->context, (int)(k % RING), &bits);
        if (e)
            break;
        convert(w, k, bits);
        e = fetch(w, k + RING);
    }
    return e;
}

/* What is one chunk has nothing to go beside. */
static int has_ring(const struct way *w, int *e)
{
    const struct memory *m = memory_of(w);
    void *bits = NULL;

    if (w->n <= CHUNK || !m->pinned)
        return 0;
    *e = m->pinned(w->call->context, 0, &bits);
    return bits || *e;
}

static int transfer(const struct way *w)
{
    const double began = seconds_now();
    int e = 0;

    if (has_ring(w, &e))
        e = transfer_failed(w->call, e ? e : w->put ? put_all(w) : get_all(w));
    else
        e = one_by_one(w);
    if (w->call->backend->machine->lending.lend)
        spent += seconds_now() - began;
    return e;
}

int transfer_put(const struct call *f, enum dtype type, void *there, const void *values, int64_t n)
{
    return transfer(&(const struct way){f, type, there, (void *)(uintptr_t)values, n, 1});
}

int transfer_get(const struct call *f, enum dtype type, void *values, const void *there, int64_t n)
{
    return transfer(&(const struct way){f, type, (void *)(uintptr_t)there, values, n, 0});
}
