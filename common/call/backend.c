/* The backends, and the kernels of an operation on one (machine.h). */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "common/base/grow.h"
#include "common/call/contract.h"
#include "common/call/machine.h"

const struct backend *const *backends(void)
{
    static const struct backend *const all[] = {&ref64, &ref32, &ref_bf16, &gpu32, &gpu_bf16, NULL};
    return all;
}

int is_gpu(const struct backend *b)
{
    for (int i = 0; b && gpu_backends[i]; i++)
        if (gpu_backends[i] == b)
            return 1;
    return 0;
}

const struct backend *reference_of(enum dtype t)
{
    for (const struct backend *const *b = backends(); *b; b++)
        if ((*b)->type == t && !is_gpu(*b))
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

/* b's entry of o; NULL: it has none. */
static const struct kernels *kernels_of(const struct op *o, const struct backend *b)
{
    for (const struct kernels *k = b->kernels; k->op; k++)
        if (k->op == o)
            return k;
    return NULL;
}

static const struct impl *const no_kernels[] = {NULL};

const struct impl *const *op_kernels(const struct op *o, const struct backend *b)
{
    const struct kernels *k = kernels_of(o, b);
    return k ? k->impl : no_kernels;
}

const struct impl *const *op_wrong(const struct op *o, const struct backend *b)
{
    const struct kernels *k = kernels_of(o, b);
    return k && k->wrong ? k->wrong : no_kernels;
}

int kernel_known(const struct op *o, const struct backend *const *b, const char *name,
                 char known[MAX_KNOWN])
{
    int is_known = 0;

    strcpy(known, " ");
    for (; *b; b++)
        for (const struct impl *const *k = op_kernels(o, *b); *k; k++) {
            char word[64];
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
    return f->kernel->declines ? f->kernel->declines(f) : NULL;
}

struct chosen impl_choose(const struct call *f, const char *name)
{
    struct chosen c = {NULL, NULL, NULL};
    const struct impl *yielding = NULL;
    struct call each = *f;

    for (const struct impl *const *k = op_kernels(f->op, f->backend); *k && !c.kernel; k++) {
        if (name && strcmp((*k)->name, name) != 0)
            continue;
        each.kernel = *k;
        const char *why = impl_declines(&each);
        if (why)
            c.why = why, c.last = *k;
        else if (!name && (*k)->yields && (*k)->yields(&each))
            yielding = yielding ? yielding : *k;
        else
            c.kernel = *k;
    }
    c.kernel = c.kernel ? c.kernel : yielding;
    c.why = c.kernel ? NULL : c.why;
    return c;
}

void impl_order(const struct call *f, const struct impl *to[MAX_KERNELS + 1])
{
    const struct impl *first = impl_choose(f, NULL).kernel;
    int n = 0;

    if (first)
        to[n++] = first;
    for (const struct impl *const *k = op_kernels(f->op, f->backend); *k && n < MAX_KERNELS; k++)
        if (*k != first)
            to[n++] = *k;
    to[n] = NULL;
}
