/* The contexts that the process itself opened, one on a device for all backends of its machine
 * (machine.h); of each machine, the one that was chosen first serves those that name no device. */
#include "config.h"

#include <pthread.h>

#include "common/base/err.h"
#include "common/call/contract.h"
#include "common/call/machine.h"

enum { MAX_OWN = 256, CHOSEN = -1 };
struct own {
    struct context *(*open)(int device); /* of the machine, and of each that opens it alike */
    struct context *x;
    int device;
    int chosen;
};

/* The place of b's on that device, or of the chosen one; or the place behind the last. */
static int find_own(const struct own *all, int n, const struct backend *b, int device)
{
    int i = 0;
    while (i < n && !(all[i].open == b->machine->device.open &&
                      (device == CHOSEN ? all[i].chosen : all[i].device == device)))
        i++;
    return i;
}

/* b's on that device, or the chosen one, opened if there is none; `choose`: it is that from now on,
 * unless there is one. */
static struct own own_of(const struct backend *b, int device, int choose)
{
    static struct {
        struct own of[MAX_OWN];
        int n;
    } all;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct own found = {NULL, NULL, 0, 0};

    if (!b->machine->device.open)
        return found;
    pthread_mutex_lock(&lock);
    const int chosen = find_own(all.of, all.n, b, CHOSEN), on = device < 0 ? 0 : device;
    const int i = choose && chosen < all.n ? chosen : find_own(all.of, all.n, b, on);
    if (i == MAX_OWN) {
        err_set("more than %d devices", MAX_OWN);
    } else if (i == all.n) {
        all.of[i] = (struct own){b->machine->device.open, b->machine->device.open(on), on, 0};
        all.n += all.of[i].x != NULL;
    }
    if (i < all.n) {
        all.of[i].chosen |= choose;
        found = all.of[i];
    }
    pthread_mutex_unlock(&lock);
    return found;
}

struct context *context_of(const struct backend *b)
{
    return own_of(b, CHOSEN, 1).x;
}

struct context *context_on(const struct backend *b, int device)
{
    return device < 0 ? err_null("the first is 0") : own_of(b, device, 0).x;
}

const char *backend_unavailable(const struct backend *b)
{
    const struct device *d = &b->machine->device;
    const char *no = d->unavailable();

    if (no || !d->open)
        return no;
    struct context *x = context_of(b);
    return !x ? err_text() : d->lost ? d->lost(x) : NULL;
}

const char *backend_use(const struct backend *b, int device)
{
    const char *no = b->machine->device.unavailable();

    if (no || !b->machine->device.open)
        return no ? no : "it has no devices to choose";
    const struct own own = own_of(b, device, 1);
    return !own.x ? err_text() : own.device != device ? "another one is in use already" : NULL;
}

const char *backend_device(const struct backend *b)
{
    const char *no = b->machine->device.unavailable();
    return no ? no : b->machine->device.name(context_of(b));
}
