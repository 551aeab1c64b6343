/* A pass of a call: its workspace, and gradients that are added to what is there (call.h). */
#include "config.h"

#include "common/call/contract.h"
#include "common/call/machine.h"

/* Are gradients written into the workspace, and added to what is there after the pass? */
OF_CALL(int, adds_later, set_any(&f->accumulate) && !(f->kernel && f->kernel->accumulates))

static size_t kernel_work(const struct call *f, enum pass p)
{
    return f->kernel && f->kernel->work ? f->kernel->work(f, p) : 0;
}

/* Backward's workspace: the kernel's own, then the gradients that it writes, to which those of `to`
 * are set unless it is NULL.  Returns its bytes. */
static size_t place_written(const struct call *f, struct call *to)
{
    struct work_arena a = {(char *)f->work, 0};

    work_take(&a, kernel_work(f, BACKWARD));
    for (int i = 0; i < f->op->n_args; i++) {
        if (!call_accumulates(f, i))
            continue;
        void *written = work_take(&a, op_count(f, i) * types[f->grad_type[i]].bytes);
        if (to)
            to->grad[i] = written;
    }
    return a.bytes;
}

size_t op_work(const struct call *f, enum pass p)
{
    return p == BACKWARD && adds_later(f) ? place_written(f, NULL) : kernel_work(f, p);
}

/* Backward into the workspace; then what it wrote is added, each in the gradient's type. */
static int pass_and_add(const struct call *f)
{
    const struct memory *m = &f->backend->machine->memory;
    struct call c = *f;
    int e;

    c.accumulate = set_none();
    place_written(f, &c);
    e = f->kernel->pass[BACKWARD](&c);
    for (int i = 0; !e && i < f->op->n_args; i++)
        if (call_accumulates(f, i))
            e = m->add(f, grad_is_wide(f->op, i), f->grad[i], f->grad[i], c.grad[i],
                       op_count(f, i));
    return e;
}

int call_pass(const struct call *f, enum pass p)
{
    if (f->backend->machine->device.enter)
        f->backend->machine->device.enter(f->context);
    return p == BACKWARD && adds_later(f) ? pass_and_add(f) : f->kernel->pass[p](f);
}
