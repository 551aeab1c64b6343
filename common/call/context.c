/* The contexts that the process itself opened: one for all backends that share them (op.h). */
#include "config.h"

#include <pthread.h>

#include "common/base/err.h"
#include "common/call/op.h"

enum { KINDS = 4 };
struct own {
    struct context *(*open)(int device);
    struct context *x;
    int device;
};

/* b's, opened on that device unless there is one already; device -1: on any. */
static struct own own_of(const struct backend *b, int device)
{
    static struct own all[KINDS];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct own found = {NULL, NULL, 0};
    int i = 0;

    if (!b->open)
        return found;
    pthread_mutex_lock(&lock);
    while (i < KINDS - 1 && all[i].open && all[i].open != b->open)
        i++;
    if (!all[i].x) {
        all[i] = (struct own){b->open, NULL, device > 0 ? device : 0};
        all[i].x = b->open(all[i].device);
    }
    found = all[i];
    pthread_mutex_unlock(&lock);
    return found;
}

struct context *context_of(const struct backend *b)
{
    return own_of(b, -1).x;
}

const char *backend_unavailable(const struct backend *b)
{
    const char *no = b->unavailable();

    if (no || !b->open)
        return no;
    struct context *x = context_of(b);
    return !x ? err_text() : b->lost ? b->lost(x) : NULL;
}

const char *backend_use(const struct backend *b, int device)
{
    const char *no = b->unavailable();

    if (no || !b->open)
        return no ? no : "it has no devices to choose";
    const struct own own = own_of(b, device);
    return !own.x ? err_text() : own.device != device ? "another one is in use already" : NULL;
}

const char *backend_device(const struct backend *b)
{
    const char *no = b->unavailable();
    return no ? no : b->device(context_of(b));
}
