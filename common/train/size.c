/* The size of a run's model (size.h). */
#include "config.h"

#include "common/base/types.h"
#include "common/call/machine.h"
#include "common/ops/attention.h"
#include "common/program/program.h"
#include "common/train/size.h"

/* The embedding, and the head where it is not tied. */
static const char *const outer[] = {"x.E", "logits.W"};

static double elements(const struct call *f, const char *name)
{
    const int arg = op_arg(f->op, name);
    return arg < 0 ? 0 : (double)op_count(f, arg);
}

/* Bytes of a tensor that belong to one sequence. */
static double bytes_of(const struct call *f, int arg)
{
    return (double)op_count(f, arg) * types[f->type[arg]].bytes / (double)DIM(f, f->op->batch);
}

/* Of the keys and values of all tokens, those that a query sees at most. */
static double keys_and_values(const struct call *f)
{
    const struct attention_window w = attention_window(f);
    int64_t most = 0;

    for (int64_t i = 0; i < DIM(f, 'T'); i++) {
        const int64_t sees = attention_last(&w, i) - attention_first(&w, i);
        most = sees > most ? sees : most;
    }
    return (bytes_of(f, PLACE(attention, k)) + bytes_of(f, PLACE(attention, v))) * (double)most /
           (double)w.keys;
}

/* Of a call on a backend; a tensor that it has not has no elements. */
static double state_of(const struct call *f)
{
    double bytes = 0;

    if (f->op == &op_attention)
        return keys_and_values(f);
    for (int i = 0; i < f->op->n_args; i++)
        if (f->op->arg[i].continues)
            bytes += bytes_of(f, i);
    return bytes;
}

int cell_size(const struct call *f, enum dtype type, struct cell_size *to)
{
    struct cell c;
    char name[2 * MAX_NAME];
    int64_t bytes;

    *to = (struct cell_size){0, 0, 0, 0};
    if (cell_read(f, 0, &c))
        return -1;
    const struct backend *b = reference_of(type);
    const struct call model = call_on(&c.model, b, NULL, NULL);
    to->parameters = to->inner = op_parameters(&model, &bytes);
    for (int i = 0; i < (int)COUNT(outer); i++)
        to->inner -= elements(&model, outer[i]);
    for (int i = 0; i < program_calls(model.op); i++) {
        const struct call step = call_on(program_call(model.op, i, name), b, NULL, NULL);
        to->state += state_of(&step);
    }
    to->flops = model.op->flops(&model, FORWARD) /
                ((double)DIM(&c.batch, 'T') * (double)DIM(&c.batch, 'B'));
    return 0;
}
