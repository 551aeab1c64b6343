/* The passes of a program: its calls one after the other, or in reverse, on any machine (instance.h).
 *
 * What backward reads are arguments of the program, or made again by calls of forward before it.  All else lies in
 * the workspace: results until their last reader, gradients from the last reader's backward pass to that of the call that wrote the tensor; zeros for
 * states that are not given and for the gradients of results that nobody reads; behind these the workspace of
 * one call at a time. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/call/machine.h"
#include "common/program/instance.h"
#include "common/program/places.h"

/* A pass of a call: of forward, which backward may have to make again, or of backward. */
struct entry {
    int step;
    enum pass pass;
    struct call call;
};

/* A pass of a program on a backend: what runs, in order; what lies in the workspace. */
struct sequence {
    const struct instance *m;
    const struct call *f;
    enum pass pass;
    struct entry *entry;
    int n;
    /* Of each tensor, the value and then the gradient; then the twins; then the zeros. */
    struct lying *lying;
    int n_twins;
    size_t bytes; /* of all of them */
    size_t zeros; /* of those that are to be 0 */
};

static const struct step *step_of(const struct sequence *c, int e)
{
    return &c->m->step[c->entry[e].step];
}

/* A gradient that a call writes beside another one of the same tensor, and which is then added: of a call that
 * reads a tensor twice. */
static int is_twin(const struct step *s, int arg)
{
    for (int i = 0; i < arg; i++)
        if (s->tensor[i] == s->tensor[arg] && s->call.op->arg[i].flags & IN &&
            s->call.op->arg[i].flags & DIFF)
            return 1;
    return 0;
}

static int has_gradient(const struct step *s, int arg, unsigned flag)
{
    const unsigned flags = s->call.op->arg[arg].flags;
    return s->tensor[arg] >= 0 && flags & flag && flags & DIFF;
}

/* Does a gradient lie by itself: a twin, or one that nobody needs? */
static int is_apart(const struct sequence *c, const struct step *s, int arg)
{
    return !c->m->tensor[s->tensor[arg]].needs || is_twin(s, arg);
}

static size_t bytes_of(const struct call *c, int arg, int grad)
{
    return (size_t)op_count(c, arg) * types[call_type(c, arg, grad)].bytes;
}

static void larger(size_t *max, size_t bytes)
{
    *max = bytes > *max ? bytes : *max;
}

/* ---- what runs ---- */

static void add_entry(struct sequence *c, int step, enum pass p)
{
    c->entry[c->n].step = step;
    c->entry[c->n].pass = p;
    c->n++;
}

/* Those calls of a group again that make what its backward passes read. */
static void add_reruns(struct sequence *c, int group)
{
    for (int s = 0; s < c->m->n_steps; s++)
        if (c->m->step[s].group == group && c->m->step[s].rerun)
            add_entry(c, s, FORWARD);
}

static void add_entries(struct sequence *c)
{
    int made = 0;

    for (int s = 0; c->pass == FORWARD && s < c->m->n_steps; s++)
        add_entry(c, s, FORWARD);
    for (int s = c->m->n_steps - 1; c->pass == BACKWARD && s >= 0; s--) {
        const struct step *step = &c->m->step[s];
        if (!step->active)
            continue;
        if (step->group && step->group != made)
            add_reruns(c, step->group);
        made = step->group ? step->group : made;
        add_entry(c, s, BACKWARD);
    }
}

/* ---- what lies where ---- */

static struct lying *value_in(const struct sequence *c, int tensor)
{
    return &c->lying[tensor];
}

static struct lying *gradient_in(const struct sequence *c, int tensor)
{
    return &c->lying[c->m->n_tensors + tensor];
}

static struct lying *twin_in(const struct sequence *c, int twin)
{
    return &c->lying[2 * c->m->n_tensors + twin];
}

static struct lying *zeros_in(const struct sequence *c)
{
    return twin_in(c, c->n_twins);
}

/* Is the value of a tensor, for this entry, in the workspace?  What backward makes again is, with all
 * that is made on the way. */
static int is_lying(const struct sequence *c, int e, int tensor)
{
    const struct tensor *t = &c->m->tensor[tensor];

    if (t->origin != RESULT)
        return 0;
    if (c->pass == FORWARD)
        return t->place < 0;
    return t->remade ||
           (c->entry[e].pass == FORWARD && c->m->step[t->step].group == step_of(c, e)->group);
}

static void live(struct lying *l, int time, size_t bytes)
{
    if (!l->bytes)
        *l = (struct lying){time, time, bytes, 0};
    l->from = time < l->from ? time : l->from;
    l->to = time > l->to ? time : l->to;
}

static void live_values(struct sequence *c, int e)
{
    const struct step *step = step_of(c, e);
    const struct call *call = &c->entry[e].call;

    for (int i = 0; i < call->op->n_args; i++) {
        const int t = step->tensor[i];
        if (t >= 0 && c->m->tensor[t].origin == ZEROS)
            larger(&c->zeros, bytes_of(call, i, 0));
        else if (t >= 0 && is_lying(c, e, t))
            live(value_in(c, t), e, bytes_of(call, i, 0));
    }
}

/* That of a result that is an output, which nobody reads, is where the caller has it. */
static void live_gradients(struct sequence *c, int e)
{
    const struct step *step = step_of(c, e);
    const struct call *call = &c->entry[e].call;

    for (int i = 0; i < call->op->n_args; i++) {
        const struct tensor *t = step->tensor[i] >= 0 ? &c->m->tensor[step->tensor[i]] : NULL;
        const size_t bytes = t ? bytes_of(call, i, 1) : 0;
        if (has_gradient(step, i, OUT) && !t->backs && !t->output)
            larger(&c->zeros, bytes);
        else if (has_gradient(step, i, OUT) && t->backs)
            live(gradient_in(c, step->tensor[i]), e, bytes);
        if (!has_gradient(step, i, IN))
            continue;
        if (is_apart(c, step, i))
            live(twin_in(c, c->n_twins++), e, bytes);
        else if (t->origin == RESULT)
            live(gradient_in(c, step->tensor[i]), e, bytes);
    }
}

/* Those of a tensor's readers that are later have written its gradient: the others add. */
static int add_later(struct sequence *c)
{
    char *written = calloc(c->m->n_tensors + 1, 1);

    for (int e = 0; written && e < c->n; e++) {
        const struct step *step = step_of(c, e);
        for (int i = 0; c->entry[e].pass == BACKWARD && i < step->call.op->n_args; i++) {
            if (!has_gradient(step, i, IN) || is_apart(c, step, i))
                continue;
            if (written[step->tensor[i]])
                set_add(&c->entry[e].call.accumulate, i);
            written[step->tensor[i]] = 1;
        }
    }
    free(written);
    return written ? 0 : -1;
}

static int count_twins(const struct sequence *c)
{
    int n = 0;
    for (int s = 0; s < c->m->n_steps; s++)
        for (int i = 0; i < c->m->step[s].call.op->n_args; i++)
            n += has_gradient(&c->m->step[s], i, IN) && is_apart(c, &c->m->step[s], i);
    return n;
}

static void sequence_free(struct sequence *c)
{
    free(c->entry);
    free(c->lying);
}

/* The calls on the backend of f, and the places; nonzero: no memory. */
static int sequence_of(struct sequence *c, const struct call *f, enum pass p)
{
    const struct instance *m = instance_of(f->op);

    *c = (struct sequence){.m = m, .f = f, .pass = p};
    c->entry = malloc((2 * m->n_steps + 1) * sizeof *c->entry);
    c->lying = calloc(2 * m->n_tensors + count_twins(c) + 1, sizeof *c->lying);
    if (!c->entry || !c->lying)
        return -1;
    add_entries(c);
    for (int e = 0; e < c->n; e++) {
        struct call *call = &c->entry[e].call;
        *call = call_on(&step_of(c, e)->call, f->backend, NULL, f->context);
        call->kernel = impl_choose(call, NULL).kernel;
    }
    if (add_later(c))
        return -1;
    for (int e = 0; e < c->n; e++) {
        live_values(c, e);
        if (c->entry[e].pass == BACKWARD)
            live_gradients(c, e);
    }
    live(zeros_in(c), 0, c->zeros);
    live(zeros_in(c), c->n, c->zeros);
    c->bytes = places_find(c->lying, 2 * m->n_tensors + c->n_twins + 1);
    return c->bytes == SIZE_MAX ? -1 : 0;
}

/* ---- the passes ---- */

static void *lies_at(const struct sequence *c, const struct lying *l)
{
    return (char *)c->f->work + l->at;
}

static void *value_of(const struct sequence *c, int e, int tensor)
{
    const struct tensor *t = &c->m->tensor[tensor];

    if (t->origin == ZEROS)
        return lies_at(c, zeros_in(c));
    if (is_lying(c, e, tensor))
        return lies_at(c, value_in(c, tensor));
    return t->place >= 0 ? c->f->arg[t->place] : NULL;
}

/* The gradient that a call writes or reads. */
static void *gradient_of(const struct sequence *c, int tensor)
{
    const struct tensor *t = &c->m->tensor[tensor];

    if (t->origin != RESULT || (t->output && !t->backs))
        return c->f->grad[t->place];
    return lies_at(c, t->backs ? gradient_in(c, tensor) : zeros_in(c));
}

static void bind(struct sequence *c, int e, int *twin)
{
    const struct step *step = step_of(c, e);
    struct call *to = &c->entry[e].call;

    to->work = (char *)c->f->work + c->bytes;
    for (int i = 0; i < to->op->n_args; i++) {
        if (step->tensor[i] < 0)
            continue;
        to->arg[i] = value_of(c, e, step->tensor[i]);
        if (c->entry[e].pass == FORWARD)
            continue;
        if (has_gradient(step, i, OUT))
            to->grad[i] = gradient_of(c, step->tensor[i]);
        else if (has_gradient(step, i, IN))
            to->grad[i] = is_apart(c, step, i) ? lies_at(c, twin_in(c, (*twin)++))
                                               : gradient_of(c, step->tensor[i]);
    }
}

static int add_to(const struct call *c, int arg, void *to, const void *more)
{
    return c->backend->machine->memory.add(c, grad_is_wide(c->op, arg), to, to, more,
                                           op_count(c, arg));
}

/* To the gradient of an output that calls read comes the caller's. */
static int add_upstream(const struct sequence *c, int e)
{
    const struct step *step = step_of(c, e);
    const struct call *call = &c->entry[e].call;
    int error = 0;

    for (int i = 0; !error && i < call->op->n_args; i++) {
        const struct tensor *t = step->tensor[i] >= 0 ? &c->m->tensor[step->tensor[i]] : NULL;
        if (has_gradient(step, i, OUT) && t->output && t->backs)
            error = add_to(call, i, call->grad[i], c->f->grad[t->place]);
    }
    return error;
}

/* What a call wrote beside another gradient of the same tensor. */
static int add_twins(const struct sequence *c, int e)
{
    const struct step *step = step_of(c, e);
    const struct call *call = &c->entry[e].call;
    int error = 0;

    for (int i = 0; !error && i < call->op->n_args; i++)
        if (has_gradient(step, i, IN) && c->m->tensor[step->tensor[i]].needs && is_twin(step, i))
            error = add_to(call, i, gradient_of(c, step->tensor[i]), call->grad[i]);
    return error;
}

static int look(const struct sequence *c, int e, int after)
{
    const struct program_watch *w = c->f->kernel ? c->f->kernel->data : NULL;
    const struct entry *of = &c->entry[e];

    return w ? w->look(w, of->step, of->pass, after, &of->call) : 0;
}

static int run(struct sequence *c)
{
    int error = 0, twin = 0;

    for (int e = 0; e < c->n; e++)
        bind(c, e, &twin);
    if (c->zeros)
        error = c->f->backend->machine->memory.zero(c->f, lies_at(c, zeros_in(c)), c->zeros);
    for (int e = 0; !error && e < c->n; e++) {
        const int back = c->entry[e].pass == BACKWARD;
        error = back ? add_upstream(c, e) : 0;
        error = error ? error : look(c, e, 0);
        error = error ? error : call_pass(&c->entry[e].call, c->entry[e].pass);
        error = error ? error : look(c, e, 1);
        error = error || !back ? error : add_twins(c, e);
    }
    return error;
}

enum { NO_MEMORY = 2 };

static int pass_of(const struct call *f, enum pass p)
{
    struct sequence c;
    const int error = sequence_of(&c, f, p) ? NO_MEMORY : run(&c);

    sequence_free(&c);
    return error;
}

static int forward(const struct call *f)
{
    return pass_of(f, FORWARD);
}

static int backward(const struct call *f)
{
    return pass_of(f, BACKWARD);
}

static size_t work(const struct call *f, enum pass p)
{
    struct call unplaced = *f;
    struct sequence c;
    size_t most = 0;

    unplaced.work = NULL;
    if (sequence_of(&c, &unplaced, p)) {
        sequence_free(&c);
        return SIZE_MAX / 4;
    }
    for (int e = 0; e < c.n; e++)
        larger(&most, op_work(&c.entry[e].call, c.entry[e].pass));
    most += c.bytes;
    sequence_free(&c);
    return most;
}

/* The first call that no kernel takes. */
static const char *declines(const struct call *f)
{
    const struct instance *m = instance_of(f->op);
    const char *why = NULL;

    for (int s = 0; !why && s < m->n_steps; s++) {
        const struct call c = call_on(&m->step[s].call, f->backend, NULL, f->context);
        const struct chosen k = impl_choose(&c, NULL);
        why = k.kernel ? NULL : k.why ? k.why : "a call that no kernel is for";
    }
    return why;
}

/* ---- what the kernels declare ---- */

static void declare(const struct instance *m, const struct call *f, struct impl *to)
{
    *to = (struct impl){.name = "calls", .type = f->backend->type};
    for (int s = 0; s < m->n_steps; s++) {
        struct call c = call_on(&m->step[s].call, f->backend, NULL, f->context);
        c.kernel = impl_choose(&c, NULL).kernel;
        const struct impl *k = impl_declares(&c);
        to->approximates =
            k->unit > to->unit || !to->approximates ? k->approximates : to->approximates;
        to->unit = k->unit > to->unit ? k->unit : to->unit;
        to->cut = k->cut > to->cut ? k->cut : to->cut;
    }
}

/* The largest of each of them: one entry for a backend, which stays. */
static const struct impl *declares(const struct call *f)
{
    struct instance *m = (struct instance *)(void *)(uintptr_t)instance_of(f->op);
    int i = 0;

    pthread_mutex_lock(&m->program->lock);
    while (i < m->n_declared && m->declared[i].backend != f->backend)
        i++;
    if (i == m->n_declared && i < MAX_BACKENDS) {
        m->declared[i].backend = f->backend;
        declare(m, f, &m->declared[i].impl);
        m->n_declared++;
    }
    pthread_mutex_unlock(&m->program->lock);
    return i < MAX_BACKENDS ? &m->declared[i].impl : f->kernel;
}

#define OF_TYPE(type_)                                                                             \
    {                                                                                              \
        .name = "calls", .type = type_, .idea = "its calls, one after the other",                  \
        .pass = {forward, backward}, .work = work, .declines = declines, .declares = declares,     \
        .products = 1                                                                              \
    }
static const struct impl of_f64 = OF_TYPE(F64), of_f32 = OF_TYPE(F32), of_bf16 = OF_TYPE(BF16);
static const struct impl *const impls[] = {&of_f64, &of_f32, &of_bf16, NULL};
const struct kernels program_kernels = {.impl = impls};
