/* The loss and the hits on data that a run is not trained on (update.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/call/transfer.h"
#include "common/ops/examples.h"
#include "common/train/update.h"

/* A batch on the host: [T,B]. */
struct seen_batch {
    int64_t T, B;
    int64_t *target, *hits;
    double *value; /* [T,B], what is read */
    double loss;
};

static int read_whole(const struct call *f, int arg, struct seen_batch *s, int64_t *to)
{
    const int64_t n = op_count(f, arg);

    if (transfer_get(f, call_type(f, arg, 0), s->value, f->arg[arg], n))
        return -1;
    for (int64_t i = 0; i < n; i++)
        to[i] = (int64_t)s->value[i];
    return 0;
}

/* On what: batches of a split, and the model. */
struct on {
    struct update *u;
    const struct call *batch, *model;
};

/* Batch number k, forward. */
static int run_batch(const struct on *on, int64_t k, struct seen_batch *s)
{
    const struct call *batch = on->batch, *model = on->model;
    const int counter = PLACE(examples, counter), loss = op_arg(model->op, "loss");
    const double value = (double)k;
    int e = transfer_put(batch, call_type(batch, counter, 0), batch->arg[counter], &value, 1);

    if (e)
        return e;
    e = call_pass(batch, FORWARD);
    e = e ? e : call_pass(model, FORWARD);
    if (e)
        return err_set("evaluation on %s: %s", on->u->b->name, on->u->b->machine->strerror(e));
    return read_whole(model, op_arg(model->op, "target"), s, s->target) ||
           read_whole(model, op_arg(model->op, "hits"), s, s->hits) ||
           transfer_get(model, call_type(model, loss, 0), &s->loss, model->arg[loss], 1);
}

/* A batch whose loss is no number has no hits: the first class would be the largest of NaNs. */
static void count(const struct seen_batch *s, struct evaluated *to, double *losses)
{
    int64_t targets = 0;

    for (int64_t b = 0; b < s->B; b++) {
        int right = 1;
        for (int64_t t = 0; t < s->T; t++) {
            const int64_t i = t * s->B + b;
            if (s->target[i] < 0)
                continue;
            const int64_t hit = isfinite(s->loss) && s->hits[i];
            targets++;
            to->hits += hit;
            to->targets_at[10 * t / s->T]++;
            to->hits_at[10 * t / s->T] += hit;
            right &= hit != 0;
        }
        to->rows_right += right;
    }
    to->rows += s->B;
    to->targets += targets;
    *losses += s->loss * (double)targets;
}

static int evaluate(const struct on *on, int64_t rows, struct evaluated *to)
{
    const struct update *u = on->u;
    const int64_t T = DIM(on->batch, 'T'), B = DIM(on->batch, 'B'), n = T * B;
    struct seen_batch s = {
        T, B, malloc(n * sizeof *s.target), malloc(n * sizeof *s.hits), malloc(n * sizeof *s.value),
        0};
    double losses = 0;
    int e = 0;

    *to = (struct evaluated){.rows = 0};
    if (!s.target || !s.hits || !s.value)
        e = err_set("no memory for %lld targets", (long long)n);
    else if (u->b->machine->device.enter)
        u->b->machine->device.enter(u->x);
    for (int64_t k = 0; !e && k * B < rows; k++) {
        e = u->stop && *u->stop ? err_set("interrupted") : run_batch(on, k, &s);
        if (!e)
            count(&s, to, &losses);
    }
    to->loss = to->targets ? losses / (double)to->targets : 0;
    free(s.target);
    free(s.hits);
    free(s.value);
    return e ? -1 : 0;
}

/* Whose data. */
static void set_split(struct call *batch, int split, uint64_t seed)
{
    batch->choice[EXAMPLES_SPLIT] = split;
    DIM(batch, 'X') = (int64_t)seed;
}

int update_evaluate(struct update *u, int split, uint64_t seed, int64_t rows, struct evaluated *to)
{
    const struct on on = {u, &u->held_out, &u->call[UPDATE_MODEL]};

    set_split(&u->held_out, split, seed);
    return evaluate(&on, rows, to);
}

int update_evaluate_at(struct update *u, int split, uint64_t seed, int64_t rows, int64_t length,
                       struct evaluated *to)
{
    struct at_length at;

    if (length == DIM(&u->held_out, 'T'))
        return update_evaluate(u, split, seed, rows, to);
    set_split(&u->held_out, split, seed);
    const struct on on = {u, &at.batch, &at.model};
    const int e = update_at_length(u, length, &at) || evaluate(&on, rows, to);
    update_give_back(u, &at);
    return e ? -1 : 0;
}
