/* One update of a run (update.h). */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/call/transfer.h"
#include "common/ops/adamw.h"
#include "common/ops/examples.h"
#include "common/ops/schedule.h"
#include "common/ops/sum_squares.h"
#include "common/train/rates.h"
#include "common/train/start.h"
#include "common/train/update.h"

/* ---- memory ---- */

static const struct memory *memory_of(const struct update *u)
{
    return &u->b->machine->memory;
}

/* Zeros; NULL after err_set(). */
static void *take(struct update *u, int64_t n, enum dtype type)
{
    const size_t bytes = (n ? n : 1) * types[type].bytes;
    void *p = u->n_memory < (int)COUNT(u->memory) ? memory_of(u)->alloc(u->x, bytes) : NULL;

    if (!p)
        return err_null("%s: cannot allocate %zu bytes", u->b->name, bytes);
    u->memory[u->n_memory++] = p;
    u->bytes += (int64_t)bytes;
    u->most = u->bytes > u->most ? u->bytes : u->most;
    const int e = memory_of(u)->fill(u->x, p, 0, bytes);
    return e ? err_null("%s: %s", u->b->name, u->b->machine->strerror(e)) : p;
}

static void *behind(void *p, int64_t n, enum dtype type)
{
    return (char *)p + n * types[type].bytes;
}

/* Tensor `arg` of a call, zeros, unless it is placed; NULL after err_set(). */
static void *take_arg(struct update *u, struct call *f, int arg)
{
    if (!f->arg[arg])
        f->arg[arg] = take(u, op_count(f, arg), call_type(f, arg, 0));
    return f->arg[arg];
}

/* All that is not placed. */
static int take_rest(struct update *u, struct call *f)
{
    int e = 0;
    for (int i = 0; !e && i < f->op->n_args; i++)
        e = op_has(f, i) && !take_arg(u, f, i);
    return e;
}

/* ---- calls ---- */

/* A call on a backend, of the kernel that is its default there. */
static int begin_call(struct update *u, int i, const struct call *f, const struct backend *b)
{
    struct call *c = &u->call[i];

    *c = call_on(f, b, NULL, u->x);
    const struct chosen k = impl_choose(c, NULL);
    if (!k.kernel)
        return err_set("%s: %s takes no such call: %s", b->name, f->op->name,
                       k.why ? k.why : "it has no kernel");
    c->kernel = k.kernel;
    return 0;
}

/* Parameters that are real numbers, by their names. */
struct real_value {
    const char *name;
    double value;
};

static int set_reals(struct call *f, const struct real_value *of, int n)
{
    for (int i = 0; i < n; i++) {
        int place;
        if (!op_param(f->op, of[i].name, &place))
            return err_set("%s has no parameter %s", f->op->name, of[i].name);
        f->real[place] = of[i].value;
    }
    return 0;
}

static const struct backend *wide_of(const struct backend *b)
{
    for (const struct backend *const *all = backends(); *all; all++)
        if ((*all)->machine == b->machine && (*all)->type == b->wide)
            return *all;
    return b;
}

/* ---- the batch ---- */

static int put_gaps(struct call *f)
{
    const int gaps = PLACE(examples, gaps);

    if (!op_has(f, gaps))
        return 0;
    double *x = malloc(op_count(f, gaps) * sizeof *x);
    if (!x)
        return err_set("no memory for the gaps of mqar");
    f->op->arg[gaps].draw(f, gaps, 0, x);
    const int e = transfer_put(f, call_type(f, gaps, 0), f->arg[gaps], x, op_count(f, gaps));
    free(x);
    return e;
}

static int place_batch(struct update *u, const unsigned char *corpus)
{
    struct call *f = &u->call[UPDATE_BATCH];
    const int at = PLACE(examples, corpus);
    int e = begin_call(u, UPDATE_BATCH, &u->cell->batch, u->b) || take_rest(u, f);

    if (!e && op_has(f, at))
        e = transfer_put(f, U8, f->arg[at], corpus, op_count(f, at));
    return e || put_gaps(f);
}

/* Another split's, into the same tokens and targets. */
static int place_held_out(struct update *u)
{
    struct call *f = &u->held_out;

    *f = u->call[UPDATE_BATCH];
    f->arg[PLACE(examples, counter)] = NULL;
    DIM(f, 'Q') = 0; /* no end of them */
    return take_arg(u, f, PLACE(examples, counter)) ? 0 : -1;
}

/* ---- the model ---- */

/* A part of the layout: where its weight and its gradient are. */
static void place_part(struct update *u, const struct layout_part *p, int wide)
{
    struct call *f = &u->call[UPDATE_MODEL];
    const enum dtype type = wide ? u->b->wide : u->b->type;
    const int64_t before = wide ? u->layout.storage.elements : 0;

    f->arg[p->arg] = behind(u->weights[wide], p->at, type);
    f->grad[p->arg] = behind(u->gradients, before + p->at, u->b->wide);
}

static void place_parts(struct update *u)
{
    for (int i = 0; i < u->layout.storage.n; i++)
        place_part(u, &u->layout.storage.part[i], 0);
    for (int i = 0; i < u->layout.wide.n; i++)
        place_part(u, &u->layout.wide.part[i], 1);
}

static int take_weights(struct update *u)
{
    const int64_t storage = u->layout.storage.elements, wide = u->layout.wide.elements;
    const int same = u->b->type == u->b->wide;

    u->elements = storage + wide;
    u->weights[0] = take(u, same ? u->elements : storage, u->b->type);
    if (!u->weights[0])
        return -1;
    u->weights[1] = same ? behind(u->weights[0], storage, u->b->type) : take(u, wide, u->b->wide);
    u->gradients = take(u, u->elements, u->b->wide);
    u->moment[0] = take(u, u->elements, u->b->wide);
    u->moment[1] = take(u, u->elements, u->b->wide);
    u->master = same ? NULL : take(u, storage, u->b->wide);
    return !u->weights[1] || !u->gradients || !u->moment[0] || !u->moment[1] ||
           (!same && !u->master);
}

/* Tokens and targets are the batch's; outputs and what is saved are its own, the loss's gradient is the scale. */
static int place_model(struct update *u)
{
    struct call *f = &u->call[UPDATE_MODEL];
    const struct call *batch = &u->call[UPDATE_BATCH];

    if (begin_call(u, UPDATE_MODEL, &u->cell->model, u->b))
        return -1;
    layout_find(&u->layout, f);
    if (take_weights(u))
        return -1;
    place_parts(u);
    f->arg[op_arg(f->op, "token")] = batch->arg[PLACE(examples, token)];
    f->arg[op_arg(f->op, "target")] = batch->arg[PLACE(examples, target)];
    return take_rest(u, f);
}

/* ---- norm, schedule, AdamW ---- */

static int place_norm(struct update *u)
{
    struct call f;

    op_defaults(&op_sum_squares, &f);
    DIM(&f, 'N') = u->elements;
    if (op_complete(&f) || begin_call(u, UPDATE_NORM, &f, u->wide))
        return -1;
    u->call[UPDATE_NORM].arg[PLACE(sum_squares, x)] = u->gradients;
    return take_rest(u, &u->call[UPDATE_NORM]);
}

/* Its tables, U values each. */
static int put_tables(struct update *u, const struct call *f)
{
    const struct cell *c = u->cell;
    const int64_t U = c->until;
    double *x = malloc(3 * U * sizeof *x);
    int e = 0;

    if (!x)
        return err_set("no memory for the rates of %lld updates", (long long)U);
    for (int64_t i = 0; i < U; i++) {
        x[i] = rate_at(c, i + 1);
        x[U + i] = unbias_at(c->beta1, i + 1);
        x[2 * U + i] = unbias_at(c->beta2, i + 1);
    }
    const int at[] = {PLACE(schedule, rates), PLACE(schedule, unbias1s), PLACE(schedule, unbias2s)};
    for (int i = 0; !e && i < 3; i++)
        e = transfer_put(f, call_type(f, at[i], 0), f->arg[at[i]], x + i * U, U);
    free(x);
    return e;
}

/* Counters and the scale stay where they are: each update goes on from the one before. */
static int place_schedule(struct update *u)
{
    const struct cell *c = u->cell;
    const struct real_value reals[] = {{"clip", c->clip}, {"beta1", c->beta1}, {"beta2", c->beta2}};
    struct call f, *s = &u->call[UPDATE_SCHEDULE];

    op_defaults(&op_schedule, &f);
    DIM(&f, 'U') = c->until;
    f.choice[SCHEDULE_LOSS_SCALE] = c->dynamic ? SCALE_DYNAMIC : SCALE_FIXED;
    if (set_reals(&f, reals, COUNT(reals)) || op_complete(&f) ||
        begin_call(u, UPDATE_SCHEDULE, &f, u->wide))
        return -1;
    s->in_place = 1;
    s->arg[PLACE(schedule, g2)] = u->call[UPDATE_NORM].arg[PLACE(sum_squares, y)];
    s->arg[PLACE(schedule, u)] = u->call[UPDATE_BATCH].arg[PLACE(examples, counter)];
    for (int i = 0; i < s->op->n_args; i++) {
        const int input = call_overwrites(s, i);
        if (input >= 0 && !(s->arg[i] = take_arg(u, s, input)))
            return -1;
    }
    if (take_rest(u, s) || put_tables(u, s) ||
        transfer_put(s, u->b->wide, s->arg[PLACE(schedule, scale)], &c->loss_scale, 1))
        return -1;
    struct call *model = &u->call[UPDATE_MODEL];
    model->grad[op_arg(model->op, "loss")] = s->arg[PLACE(schedule, scale)];
    return 0;
}

/* Elements from `from` on, n of them, the first `decayed` of which decay. */
struct stepped {
    const struct backend *b;
    void *weights;
    int64_t from, n, decayed;
};

static int place_adamw(struct update *u, int i, const struct stepped *of)
{
    const struct cell *c = u->cell;
    const struct real_value reals[] = {{"beta1", c->beta1},
                                       {"beta2", c->beta2},
                                       {"eps", c->eps},
                                       {"weight_decay", c->weight_decay}};
    const enum dtype wide = u->b->wide;
    const int with_master = of->b->type != wide;
    struct call f, *a = &u->call[i];

    op_defaults(&op_adamw, &f);
    DIM(&f, 'N') = of->n;
    DIM(&f, 'Y') = of->decayed;
    f.choice[ADAMW_MASTER] = with_master;
    f.choice[ADAMW_GRAD] = GRAD_FP32;
    if (set_reals(&f, reals, COUNT(reals)) || op_complete(&f) || begin_call(u, i, &f, of->b))
        return -1;
    a->in_place = 1;
    a->arg[PLACE(adamw, g)] = behind(u->gradients, of->from, wide);
    a->arg[PLACE(adamw, m)] = a->arg[PLACE(adamw, m_next)] = behind(u->moment[0], of->from, wide);
    a->arg[PLACE(adamw, v)] = a->arg[PLACE(adamw, v_next)] = behind(u->moment[1], of->from, wide);
    a->arg[PLACE(adamw, p_next)] = of->weights;
    if (with_master)
        a->arg[PLACE(adamw, master)] = a->arg[PLACE(adamw, master_next)] = u->master;
    else
        a->arg[PLACE(adamw, p)] = of->weights;
    const struct call *s = &u->call[UPDATE_SCHEDULE];
    const int scalars[][2] = {{PLACE(adamw, rate), PLACE(schedule, rate)},
                              {PLACE(adamw, unbias1), PLACE(schedule, unbias1)},
                              {PLACE(adamw, unbias2), PLACE(schedule, unbias2)},
                              {PLACE(adamw, factor), PLACE(schedule, factor)},
                              {PLACE(adamw, skip), PLACE(schedule, skip)}};
    for (int k = 0; k < (int)COUNT(scalars); k++)
        a->arg[scalars[k][0]] = s->arg[scalars[k][1]];
    return take_rest(u, a);
}

/* One call where all weights have one type, which are then one buffer. */
static int place_steps(struct update *u)
{
    const int64_t storage = u->layout.storage.elements, wide = u->layout.wide.elements;
    const int same = u->b->type == u->b->wide;
    const struct stepped first = {u->b, u->weights[0], 0, same ? u->elements : storage,
                                  u->layout.storage.decayed};
    const struct stepped second = {u->wide, u->weights[1], storage, wide, u->layout.wide.decayed};

    return place_adamw(u, UPDATE_ADAMW, &first) ||
           (!same && wide && place_adamw(u, UPDATE_ADAMW_WIDE, &second));
}

/* ---- all of them ---- */

static void add_pass(struct update *u, int i, enum pass p)
{
    if (u->call[i].op)
        u->pass[u->n_passes++] = (struct pass_of){&u->call[i], p};
}

static void list_passes(struct update *u)
{
    for (int i = 0; i < UPDATE_CALLS; i++) {
        add_pass(u, i, FORWARD);
        if (i == UPDATE_MODEL)
            add_pass(u, i, BACKWARD);
    }
}

static void add_state(struct update *u, const char *name, void *at, int64_t n, enum dtype type)
{
    if (n)
        u->state[u->n_state++] = (struct region){name, at, n * types[type].bytes};
}

static void list_state(struct update *u)
{
    const struct call *s = &u->call[UPDATE_SCHEDULE];
    const enum dtype wide = u->b->wide;
    const int64_t storage = u->layout.storage.elements;
    static const char *const counters[] = {"u", "t", "good", "scale"};

    add_state(u, "weights", u->weights[0], storage, u->b->type);
    add_state(u, "wide weights", u->weights[1], u->elements - storage, wide);
    if (u->master)
        add_state(u, "master", u->master, storage, wide);
    add_state(u, "m", u->moment[0], u->elements, wide);
    add_state(u, "v", u->moment[1], u->elements, wide);
    for (int i = 0; i < (int)COUNT(counters); i++) {
        const int arg = op_arg(s->op, counters[i]);
        add_state(u, counters[i], s->arg[arg], 1, call_type(s, arg, 0));
    }
}

/* One workspace for all, the largest. */
static int take_work(struct update *u)
{
    size_t most = 0;
    void *work;

    for (int i = 0; i < u->n_passes; i++) {
        const size_t bytes = op_work(u->pass[i].call, u->pass[i].pass);
        most = bytes > most ? bytes : most;
    }
    if (!(work = take(u, (int64_t)most, U8)))
        return -1;
    for (int i = 0; i < UPDATE_CALLS; i++)
        u->call[i].work = work;
    return 0;
}

static int draw_weights(struct update *u, uint64_t seed, double *x)
{
    const struct call *f = &u->call[UPDATE_MODEL];
    const struct layout_buffer *of[] = {&u->layout.storage, &u->layout.wide};
    const int64_t before[] = {0, u->layout.storage.elements};
    const int64_t blocks = u->cell->blocks;

    for (int k = 0; k < 2; k++)
        for (int i = 0; i < of[k]->n; i++)
            start_draw(f, of[k]->part[i].arg, blocks, seed, x + before[k] + of[k]->part[i].at);
    return update_set_weights(u, x);
}

int update_open(struct update *u, const struct cell *c, const struct backend *b, struct context *x,
                uint64_t seed, const unsigned char *corpus)
{
    *u = (struct update){.cell = c, .b = b, .wide = wide_of(b), .x = x, .scale = c->loss_scale};
    if (place_batch(u, corpus) || place_model(u) || place_norm(u) || place_schedule(u) ||
        place_steps(u))
        return -1;
    list_passes(u);
    list_state(u);
    if (place_held_out(u))
        return -1;
    double *w = calloc(u->elements, sizeof *w);
    const int e = !w ? err_set("no memory for %lld weights", (long long)u->elements)
                     : take_work(u) || draw_weights(u, seed, w);
    free(w);
    return e ? -1 : 0;
}

void update_close(struct update *u)
{
    if (u->recorded)
        u->b->machine->timing.forget(u->recorded);
    for (int i = 0; i < u->n_memory; i++)
        memory_of(u)->free(u->x, u->memory[i]);
    *u = (struct update){.n_memory = 0};
}

/* ---- an update ---- */

static void enter(const struct update *u)
{
    if (u->b->machine->device.enter)
        u->b->machine->device.enter(u->x);
}

int update_passes(struct update *u)
{
    enter(u);
    for (int i = 0; i < u->n_passes; i++) {
        const struct call *f = u->pass[i].call;
        const int e = call_pass(f, u->pass[i].pass);
        if (e)
            return err_set("%s on %s, %s: %s", f->op->name, f->backend->name,
                           pass_names[u->pass[i].pass], u->b->machine->strerror(e));
    }
    u->ran = 1;
    return 0;
}

int update_run(struct update *u)
{
    const struct timekeeping *t = &u->b->machine->timing;
    int e = 0;

    if (!u->ran || !t->record)
        return update_passes(u);
    enter(u);
    if (!u->recorded)
        e = t->record(u->pass, u->n_passes, &u->recorded);
    e = e ? e : t->replay(u->x, u->recorded);
    return e ? err_set("%s: an update as one graph: %s", u->b->name, u->b->machine->strerror(e))
             : 0;
}

/* ---- values ---- */

static int read_one(const struct call *f, int arg, double *to)
{
    return transfer_get(f, call_type(f, arg, 0), to, f->arg[arg], 1);
}

int update_read(struct update *u, struct update_values *to)
{
    const struct call *model = &u->call[UPDATE_MODEL], *s = &u->call[UPDATE_SCHEDULE];
    double x[10];
    const struct {
        const struct call *of;
        int arg;
    } all[] = {{model, op_arg(model->op, "loss")},
               {model, op_arg(model->op, "right")},
               {s, PLACE(schedule, g2)},
               {s, PLACE(schedule, rate)},
               {s, PLACE(schedule, factor)},
               {s, PLACE(schedule, scale)},
               {s, PLACE(schedule, u)},
               {s, PLACE(schedule, t)},
               {s, PLACE(schedule, good)},
               {s, PLACE(schedule, skip)}};

    for (int i = 0; i < (int)COUNT(all); i++)
        if (read_one(all[i].of, all[i].arg, &x[i]))
            return -1;
    *to = (struct update_values){.loss = x[0],
                                 .right = (int64_t)x[1],
                                 .norm = sqrt(x[2]) / u->scale,
                                 .rate = x[3],
                                 .factor = x[4],
                                 .scale = x[5],
                                 .u = (int64_t)x[6],
                                 .t = (int64_t)x[7],
                                 .good = (int64_t)x[8],
                                 .skipped = x[9] != 0};
    u->scale = to->scale;
    return 0;
}

/* What the optimiser steps: the masters where there are some. */
int update_weights(const struct update *u, double *to)
{
    const struct call *f = &u->call[UPDATE_MODEL];
    const int64_t storage = u->layout.storage.elements, wide = u->layout.wide.elements;
    const enum dtype type = u->master ? u->b->wide : u->b->type;

    return transfer_get(f, type, to, u->master ? u->master : u->weights[0], storage) ||
           (wide && transfer_get(f, u->b->wide, to + storage, u->weights[1], wide));
}

int update_set_weights(struct update *u, const double *from)
{
    const struct call *f = &u->call[UPDATE_MODEL];
    const int64_t storage = u->layout.storage.elements, wide = u->layout.wide.elements;

    return transfer_put(f, u->b->type, u->weights[0], from, storage) ||
           (u->master && transfer_put(f, u->b->wide, u->master, from, storage)) ||
           (wide && transfer_put(f, u->b->wide, u->weights[1], from + storage, wide));
}

int update_gradients(const struct update *u, double *to)
{
    return transfer_get(&u->call[UPDATE_MODEL], u->b->wide, to, u->gradients, u->elements);
}

/* ---- another length ---- */

static int place_batch_at(struct update *u, int64_t length, struct call *to)
{
    const struct call *from = &u->held_out;
    struct call f;

    op_defaults(from->op, &f);
    for (int i = 0; i < f.op->n_params; i++) {
        f.choice[i] = from->choice[i];
        f.real[i] = from->real[i];
        if (f.op->param[i].letter)
            DIM(&f, f.op->param[i].letter) = DIM(from, f.op->param[i].letter);
    }
    DIM(&f, 'T') = length;
    if (op_complete(&f))
        return err_at("eval = %lld", (long long)length);
    *to = call_on(&f, u->b, NULL, u->x);
    to->kernel = impl_choose(to, NULL).kernel;
    to->arg[PLACE(examples, counter)] = from->arg[PLACE(examples, counter)];
    to->arg[PLACE(examples, corpus)] = from->arg[PLACE(examples, corpus)];
    return take_rest(u, to) || put_gaps(to) ||
                   !(to->work = take(u, (int64_t)op_work(to, FORWARD), U8))
               ? -1
               : 0;
}

/* The model of another size, not placed. */
static int resized_model(const struct update *u, const char *key, int64_t size, struct call *to)
{
    char text[32];
    struct call f;

    op_defaults(u->call[UPDATE_MODEL].op->family, &f);
    snprintf(text, sizeof text, "%lld", (long long)size);
    if (op_set(&f, key, text) || op_complete(&f))
        return -1;
    *to = call_on(&f, u->b, NULL, u->x);
    to->kernel = impl_choose(to, NULL).kernel;
    return 0;
}

static int place_model_at(struct update *u, const struct call *batch, struct call *to)
{
    const struct call *model = &u->call[UPDATE_MODEL];
    const struct layout_buffer *of[] = {&u->layout.storage, &u->layout.wide};

    if (resized_model(u, "steps", DIM(batch, 'T'), to))
        return -1;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < of[k]->n; i++) {
            const int arg = of[k]->part[i].arg;
            to->arg[op_arg(to->op, model->op->arg[arg].name)] = model->arg[arg];
        }
    to->arg[op_arg(to->op, "token")] = batch->arg[PLACE(examples, token)];
    to->arg[op_arg(to->op, "target")] = batch->arg[PLACE(examples, target)];
    return take_rest(u, to) || !(to->work = take(u, (int64_t)op_work(to, FORWARD), U8)) ? -1 : 0;
}

int update_at_length(struct update *u, int64_t length, struct at_length *to)
{
    *to = (struct at_length){.n_memory = u->n_memory, .bytes = u->bytes};
    return place_batch_at(u, length, &to->batch) || place_model_at(u, &to->batch, &to->model);
}

void update_give_back(struct update *u, const struct at_length *of)
{
    while (u->n_memory > of->n_memory)
        memory_of(u)->free(u->x, u->memory[--u->n_memory]);
    u->bytes = of->bytes;
}

/* ---- fewer rows ---- */

static void place_rows(struct update *u, void *gradients)
{
    const struct layout_buffer *of[] = {&u->layout.storage, &u->layout.wide};
    const int64_t before[] = {0, u->layout.storage.elements};

    for (int k = 0; k < 2; k++)
        for (int i = 0; i < of[k]->n; i++) {
            const struct layout_part *p = &of[k]->part[i];
            u->rows.arg[p->arg] = u->call[UPDATE_MODEL].arg[p->arg];
            u->rows.grad[p->arg] = behind(gradients, before[k] + p->at, u->b->wide);
        }
}

int update_rows(struct update *u, int64_t rows)
{
    const struct call *model = &u->call[UPDATE_MODEL];
    struct call *to = &u->rows;

    if (to->op)
        return 0;
    if (resized_model(u, "batch", rows, to))
        return -1;
    void *gradients = take(u, u->elements, u->b->wide);
    if (!gradients)
        return -1;
    place_rows(u, gradients);
    to->grad[op_arg(to->op, "loss")] = model->grad[op_arg(model->op, "loss")];
    const size_t forward = op_work(to, FORWARD), backward = op_work(to, BACKWARD);
    return take_rest(u, to) ||
                   !(to->work = take(u, (int64_t)(forward > backward ? forward : backward), U8))
               ? -1
               : 0;
}

/* ---- the state ---- */

size_t update_state_bytes(const struct update *u)
{
    size_t bytes = 0;

    for (int i = 0; i < u->n_state; i++)
        bytes += u->state[i].bytes;
    return bytes;
}

void *update_state(const struct update *u)
{
    const size_t bytes = update_state_bytes(u);
    int e = 0;

    char *state = malloc(bytes), *at = state;
    if (!state)
        return err_null("no memory for the state of a run, %zu bytes", bytes);
    for (int i = 0; !e && i < u->n_state; at += u->state[i++].bytes)
        e = memory_of(u)->get(u->x, at, u->state[i].at, u->state[i].bytes);
    if (!e)
        return state;
    free(state);
    return err_null("%s: %s", u->b->name, u->b->machine->strerror(e));
}

int update_restore(struct update *u, const void *state)
{
    const char *at = state;
    int e = 0;

    for (int i = 0; !e && i < u->n_state; at += u->state[i++].bytes)
        e = memory_of(u)->put(u->x, u->state[i].at, at, u->state[i].bytes);
    return transfer_failed(&u->call[UPDATE_MODEL], e);
}

const char *update_states_differ(const struct update *u, const void *a, const void *b)
{
    size_t at = 0;

    for (int i = 0; i < u->n_state; at += u->state[i++].bytes)
        if (memcmp((const char *)a + at, (const char *)b + at, u->state[i].bytes) != 0)
            return u->state[i].name;
    return NULL;
}
