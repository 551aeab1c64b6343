/* Costs from a contract: what a pass moves, saves and allocates (contract.h). */
#include "config.h"

#include <string.h>

#include "common/call/contract.h"
#include "common/call/machine.h"

int additions(int64_t n)
{
    int depth = 0;
    while ((int64_t)1 << depth < n)
        depth++;
    return depth;
}

double op_product(const struct call *f, const char *letters)
{
    double product = 1;
    for (; *letters; letters++)
        product *= DIM(f, *letters);
    return product;
}

double op_reference_work(const struct call *f)
{
    static const double LOOPS = 30;
    return (f->op->flops(f, FORWARD) + f->op->flops(f, BACKWARD)) * (f->op->time ? LOOPS : 1);
}

int op_read_back(const struct call *f, int arg)
{
    const struct arg *a = &f->op->arg[arg];
    return a->flags & (IN | SAVED) && !(a->flags & NOT_BACK) && (!a->back || a->back(f));
}

double op_bytes(const struct call *f, enum pass p)
{
    double sum = 0;
    for (int i = 0; i < f->op->n_args; i++) {
        const struct arg *a = &f->op->arg[i];
        double n = (double)op_count(f, i), read = n > 0 && a->read ? a->read(f) : n;
        if (p == FORWARD || op_read_back(f, i))
            sum += (p == FORWARD ? read : n) * types[f->type[i]].bytes;
        if (p == BACKWARD && a->flags & DIFF)
            sum += (call_accumulates(f, i) ? 2 : 1) * n * types[f->grad_type[i]].bytes;
    }
    return sum;
}

int64_t op_saved(const struct call *f)
{
    int64_t sum = 0;
    for (int i = 0; i < f->op->n_args; i++)
        if (f->op->arg[i].flags & SAVED && op_read_back(f, i))
            sum += op_count(f, i) * types[f->type[i]].bytes;
    return sum;
}

/* The elements of a tensor; of bytes in a file's format, whose last axis they are, the weights in
 * their place. */
static double parameters_in(const struct call *f, int arg)
{
    const char *shape = op_shape(f, arg), *weights = f->op->arg[arg].stands_for;
    double n = (double)op_count(f, arg);

    if (!weights || n == 0)
        return n;
    n /= (double)DIM(f, shape[strlen(shape) - 1]);
    for (; *weights; weights++)
        n *= strchr(shape, *weights) ? 1 : (double)DIM(f, *weights);
    return n;
}

double op_parameters(const struct call *f, int64_t *bytes)
{
    double n = 0;

    *bytes = 0;
    for (int i = 0; i < f->op->n_args; i++) {
        const struct arg *a = &f->op->arg[i];
        if (op_is_parameter(f, i) || a->flags & SCALES)
            *bytes += op_count(f, i) * types[f->type[i]].bytes;
        if (op_is_parameter(f, i))
            n += parameters_in(f, i);
    }
    return n;
}

int64_t op_memory(const struct call *f)
{
    size_t forward = op_work(f, FORWARD), backward = op_work(f, BACKWARD);
    int64_t sum = forward > backward ? forward : backward;

    for (int i = 0; i < f->op->n_args; i++) {
        int64_t n = op_count(f, i);
        sum += call_overwrites(f, i) < 0 ? n * types[f->type[i]].bytes : 0;
        if (f->op->arg[i].flags & DIFF)
            sum += n * types[f->grad_type[i]].bytes;
    }
    return sum;
}
