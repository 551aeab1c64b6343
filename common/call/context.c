/* The contexts that somebody opened, one on a device for all backends of its machine (machine.h). */
#include "config.h"

#include "common/base/err.h"
#include "common/call/contract.h"
#include "common/call/machine.h"

enum { CHOSEN = -1 };

/* The index of b's on that device, or of the chosen one; or that behind the last. */
static int find(const struct contexts *all, const struct backend *b, int device)
{
    int i = 0;
    while (i < all->n && !(all->of[i].machine == b->machine &&
                           (device == CHOSEN ? all->of[i].chosen : all->of[i].device == device)))
        i++;
    return i;
}

/* The index of b's on that device, or with `choose` of the chosen one, which it becomes if there is none;
 * -1 after err_set(). */
static int index_of(struct contexts *all, const struct backend *b, int device, int choose)
{
    if (!all)
        return err_set("no contexts for the %s machine", b->machine->name);
    const int chosen = find(all, b, CHOSEN);
    const int i = choose && chosen < all->n ? chosen : find(all, b, device);

    if (i == COUNT(all->of))
        return err_set("more than %d devices", i);
    if (i == all->n) {
        struct context *x = b->machine->device.open(device);
        if (!x)
            return -1;
        all->of[all->n].machine = b->machine;
        all->of[all->n].device = device;
        all->of[all->n++].x = x;
    }
    all->of[i].chosen |= choose;
    return i;
}

struct context *context_of(struct contexts *all, const struct backend *b)
{
    const int i = b->machine->device.open ? index_of(all, b, 0, 1) : -1;
    return i < 0 ? NULL : all->of[i].x;
}

struct context *context_on(struct contexts *all, const struct backend *b, int device)
{
    const int i = device < 0 ? err_set("the first is 0") : index_of(all, b, device, 0);
    return i < 0 ? NULL : all->of[i].x;
}

const char *backend_unavailable(struct contexts *all, const struct backend *b)
{
    const struct device *d = &b->machine->device;
    const char *no = d->unavailable();

    if (no || !d->open)
        return no;
    struct context *x = context_of(all, b);
    return !x ? err_text() : d->lost ? d->lost(x) : NULL;
}

const char *context_use(struct contexts *all, const struct backend *b, int device)
{
    const char *no = b->machine->device.unavailable();

    if (no || !b->machine->device.open)
        return no ? no : device ? "it has device 0 alone" : NULL;
    const int i = index_of(all, b, device, 1);
    return i < 0                         ? err_text()
           : all->of[i].device != device ? "another one is in use already"
                                         : NULL;
}

const char *backend_device(struct contexts *all, const struct backend *b)
{
    const char *no = b->machine->device.unavailable();
    struct context *x = no ? NULL : context_of(all, b);
    return no ? no : !x && b->machine->device.open ? err_text() : b->machine->device.name(x);
}

void contexts_close(struct contexts *all)
{
    for (int i = 0; i < all->n; i++)
        if (all->of[i].machine->device.close)
            all->of[i].machine->device.close(all->of[i].x);
    all->n = 0;
}
