/* The backends, and the kernels of an operation on one (machine.h). */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "common/base/grow.h"
#include "common/call/contract.h"
#include "common/call/machine.h"

#define BACKEND(name, was, machine, type, wide)                                                    \
    const struct backend name = {#name, was, &machine, type, wide};
#include "common/call/backends.def"

const struct backend *const *backends(void)
{
#define BACKEND(name, ...) &name,
    static const struct backend *const all[] = {
#include "common/call/backends.def"
        NULL};
    return all;
}

int is_judged(const struct backend *b)
{
    return b && b->machine->judged;
}

const struct backend *judged_backend(int i)
{
    const struct backend *const *b = backends();
    while (*b && !(is_judged(*b) && i-- == 0))
        b++;
    return *b;
}

const struct backend *reference_of(enum dtype t)
{
    for (const struct backend *const *b = backends(); *b; b++)
        if ((*b)->type == t && !is_judged(*b))
            return *b;
    return NULL;
}

const struct backend *backend_find(const char *name)
{
    for (const struct backend *const *b = backends(); *b; b++)
        if (strcmp((*b)->name, name) == 0 || ((*b)->was && strcmp((*b)->was, name) == 0))
            return *b;
    return NULL;
}

/* The machine's kernels of o, of all types. */
static const struct kernels *kernels_of(const struct op *o, const struct machine *m)
{
    const struct kernels *k = m->kernels;

    if (o->kernels)
        return o->kernels;
    while (k->op && k->op != o)
        k++;
    return k;
}

/* The i-th of a list that has this type; NULL behind the last. */
static const struct impl *of_type(const struct impl *const *k, enum dtype type, int i)
{
    while (k && *k && !((*k)->type == type && i-- == 0))
        k++;
    return k ? *k : NULL;
}

const struct impl *op_kernel(const struct op *o, const struct backend *b, int i)
{
    return of_type(kernels_of(o, b->machine)->impl, b->type, i);
}

const struct impl *op_wrong(const struct op *o, const struct backend *b, int i)
{
    const struct impl *const *const *list = kernels_of(o, b->machine)->wrong;
    const struct impl *k = NULL;

    while (!k && list && *list)
        k = of_type(*list++, b->type, i);
    return k;
}

int kernel_known(const struct op *o, int judged, const char *name, char known[MAX_KNOWN])
{
    int is_known = 0;

    strcpy(known, " ");
    for (const struct backend *const *b = backends(); *b; b++)
        for (const struct impl *const *k = kernels_of(o, (*b)->machine)->impl; k && *k; k++) {
            char word[64];
            if ((*k)->type != (*b)->type || (judged && !is_judged(*b)))
                continue;
            is_known |= strcmp((*k)->name, name) == 0;
            snprintf(word, sizeof word, " %s ", (*k)->name);
            if (!strstr(known, word))
                append(known, MAX_KNOWN, "%s ", (*k)->name);
        }
    known[strlen(known) - 1] = 0;
    return is_known;
}

const struct impl *impl_declares(const struct call *f)
{
    static const struct impl none = {.name = "none"};
    struct call c = *f;
    while (c.kernel && c.kernel->link)
        c = c.kernel->link(&c);
    if (c.kernel && c.kernel->declares)
        return c.kernel->declares(&c);
    return c.kernel ? c.kernel : &none;
}

int64_t impl_chunk(const struct call *f)
{
    struct call c = *f;
    int64_t chunk = c.kernel->chunk;

    while (c.kernel && c.kernel->link) {
        c = c.kernel->link(&c);
        chunk = c.kernel && c.kernel->chunk > chunk ? c.kernel->chunk : chunk;
    }
    return chunk;
}

const char *impl_declines(const struct call *f)
{
    static _Thread_local char why[64];
    const enum dtype stores = f->kernel->type, type = f->backend->type;

    if (stores != type) {
        snprintf(why, sizeof why, "stores %s, the call is %s", types[stores].name,
                 types[type].name);
        return why;
    }
    return f->kernel->declines ? f->kernel->declines(f) : NULL;
}

struct chosen impl_choose(const struct call *f, const char *name)
{
    struct chosen c = {NULL, NULL, NULL};
    const struct impl *yielding = NULL;
    struct call each = *f;

    for (int i = 0; !c.kernel && (each.kernel = op_kernel(f->op, f->backend, i)); i++) {
        if (name && strcmp(each.kernel->name, name) != 0)
            continue;
        const char *why = impl_declines(&each);
        if (why)
            c.why = why, c.last = each.kernel;
        else if (!name && each.kernel->yields && each.kernel->yields(&each))
            yielding = yielding ? yielding : each.kernel;
        else
            c.kernel = each.kernel;
    }
    c.kernel = c.kernel ? c.kernel : yielding;
    c.why = c.kernel ? NULL : c.why;
    return c;
}

void impl_order(const struct call *f, const struct impl *to[MAX_KERNELS + 1])
{
    const struct impl *first = impl_choose(f, NULL).kernel, *k;
    int n = 0;

    if (first)
        to[n++] = first;
    for (int i = 0; n < MAX_KERNELS && (k = op_kernel(f->op, f->backend, i)); i++)
        if (k != first)
            to[n++] = k;
    to[n] = NULL;
}
