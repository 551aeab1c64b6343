/* Where a model's weights lie (layout.h). */
#include "config.h"

#include "common/program/layout.h"

static int is_trained(const struct call *f, int arg)
{
    return op_has(f, arg) && op_is_parameter(f, arg) && f->op->arg[arg].flags & DIFF;
}

/* By the contract of the call that reads it: a matrix, and no state that happens to be learned. */
static int decays(const struct call *f, int arg)
{
    const struct arg *a = &f->op->arg[arg];

    if (a->own) {
        const struct call *reader = a->own(f, &arg);
        a = &reader->op->arg[arg];
    }
    return a->flags & PARAMETER && a->fill == FAN;
}

static void add(struct layout_buffer *b, const struct call *f, int arg)
{
    const int64_t n = op_count(f, arg);

    b->part[b->n++] = (struct layout_part){arg, decays(f, arg), b->elements, n};
    b->elements += (n + LAYOUT_ALIGN - 1) / LAYOUT_ALIGN * LAYOUT_ALIGN;
}

static void find(struct layout_buffer *b, const struct call *f, unsigned wide)
{
    b->n = 0;
    b->elements = 0;
    for (int decayed = 1; decayed >= 0; decayed--) {
        for (int i = 0; i < f->op->n_args; i++)
            if (is_trained(f, i) && (f->op->arg[i].flags & WIDE) == wide && decays(f, i) == decayed)
                add(b, f, i);
        b->decayed = decayed ? b->elements : b->decayed;
    }
}

void layout_find(struct layout *to, const struct call *f)
{
    find(&to->storage, f, 0);
    find(&to->wide, f, WIDE);
}
