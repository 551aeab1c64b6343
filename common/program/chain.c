/* The passes of a program: its calls one after the other, or in reverse, on any machine (instance.h).
 *
 * What backward reads are arguments of the program.  All else lies in the workspace: results until their last
 * reader, gradients from the last reader's backward pass to that of the call that wrote the tensor; zeros for
 * states that are not given and for the gradients of results that nobody reads; behind these the workspace of
 * one call at a time. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/call/machine.h"
#include "common/program/instance.h"
#include "common/program/places.h"

/* A pass of a program on a backend: its calls, with types and kernels; what lies in the workspace.  Step s is at the
 * time s, backwards at n_steps - 1 - s. */
struct sequence {
    const struct instance *m;
    const struct call *f;
    enum pass pass;
    struct call *call;
    struct lying
        *lying; /* of each tensor: the result or its gradient; then twins; then the zeros */
    int n_lying, n_twins;
    size_t bytes; /* of all of them */
    size_t zeros; /* of those, that are to be 0 */
};

/* A gradient that a call writes beside another one of the same tensor, and which is then added: the i-th argument
 * of a call that reads a tensor twice; or one that nobody needs. */
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

static size_t bytes_of(const struct call *c, int arg, int grad)
{
    return (size_t)op_count(c, arg) * types[call_type(c, arg, grad)].bytes;
}

static void larger(size_t *max, size_t bytes)
{
    *max = bytes > *max ? bytes : *max;
}

/* ---- what lives when ---- */

static void live(struct lying *l, int time, size_t bytes)
{
    if (!l->bytes)
        *l = (struct lying){time, time, bytes, 0};
    l->from = time < l->from ? time : l->from;
    l->to = time > l->to ? time : l->to;
}

/* Results that are no arguments of the program. */
static void live_forward(struct sequence *c, int s)
{
    const struct step *step = &c->m->step[s];

    for (int i = 0; i < step->call.op->n_args; i++) {
        const int t = step->tensor[i];
        if (t < 0 || c->m->tensor[t].place >= 0)
            continue;
        if (c->m->tensor[t].origin == ZEROS)
            larger(&c->zeros, bytes_of(&c->call[s], i, 0));
        else
            live(&c->lying[t], s, bytes_of(&c->call[s], i, 0));
    }
}

/* Gradients.  That of a result that is an output, which nobody reads, is where the caller has it. */
static void live_backward(struct sequence *c, int s)
{
    const struct step *step = &c->m->step[s];
    const int time = c->m->n_steps - 1 - s;

    for (int i = 0; i < step->call.op->n_args; i++) {
        const struct tensor *t = step->tensor[i] >= 0 ? &c->m->tensor[step->tensor[i]] : NULL;
        if (t && t->origin == ZEROS)
            larger(&c->zeros, bytes_of(&c->call[s], i, 0));
        if (has_gradient(step, i, OUT) && !t->readers && !t->output)
            larger(&c->zeros, bytes_of(&c->call[s], i, 1));
        else if (has_gradient(step, i, OUT) && t->readers)
            live(&c->lying[step->tensor[i]], time, bytes_of(&c->call[s], i, 1));
        if (!has_gradient(step, i, IN))
            continue;
        if (!t->needs || is_twin(step, i))
            live(&c->lying[c->m->n_tensors + c->n_twins++], time, bytes_of(&c->call[s], i, 1));
        else if (t->origin == RESULT)
            live(&c->lying[step->tensor[i]], time, bytes_of(&c->call[s], i, 1));
    }
}

/* Those of the tensor's readers that are later have written its gradient: this one adds. */
static void add_later(struct sequence *c)
{
    char *written = calloc(c->m->n_tensors ? c->m->n_tensors : 1, 1);

    for (int s = c->m->n_steps - 1; written && s >= 0; s--) {
        const struct step *step = &c->m->step[s];
        for (int i = 0; step->active && i < step->call.op->n_args; i++) {
            if (!has_gradient(step, i, IN) || !c->m->tensor[step->tensor[i]].needs ||
                is_twin(step, i))
                continue;
            if (written[step->tensor[i]])
                set_add(&c->call[s].accumulate, i);
            written[step->tensor[i]] = 1;
        }
    }
    free(written);
}

static int count_twins(const struct instance *m)
{
    int n = 0;
    for (int s = 0; s < m->n_steps; s++)
        for (int i = 0; i < m->step[s].call.op->n_args; i++)
            n += has_gradient(&m->step[s], i, IN) &&
                 (!m->tensor[m->step[s].tensor[i]].needs || is_twin(&m->step[s], i));
    return n;
}

static void sequence_free(struct sequence *c)
{
    free(c->call);
    free(c->lying);
}

/* The calls on the backend of f, and the places; nonzero: no memory. */
static int sequence_of(struct sequence *c, const struct call *f, enum pass p)
{
    const struct instance *m = instance_of(f->op);
    const int most = m->n_tensors + count_twins(m) + 1;

    *c = (struct sequence){.m = m, .f = f, .pass = p};
    c->call = malloc((m->n_steps ? m->n_steps : 1) * sizeof *c->call);
    c->lying = calloc(most, sizeof *c->lying);
    if (!c->call || !c->lying)
        return -1;
    for (int s = 0; s < m->n_steps; s++) {
        c->call[s] = call_on(&m->step[s].call, f->backend, NULL, f->context);
        c->call[s].kernel = impl_choose(&c->call[s], NULL).kernel;
    }
    if (p == BACKWARD)
        add_later(c);
    for (int s = 0; s < m->n_steps; s++)
        if (p == FORWARD)
            live_forward(c, s);
        else if (m->step[s].active)
            live_backward(c, s);
    c->n_lying = m->n_tensors + c->n_twins;
    live(&c->lying[c->n_lying], 0, c->zeros);
    live(&c->lying[c->n_lying], m->n_steps, c->zeros);
    c->bytes = places_find(c->lying, c->n_lying + 1);
    return c->bytes == SIZE_MAX ? -1 : 0;
}

/* ---- the passes ---- */

static void *lies_at(const struct sequence *c, int i)
{
    return (char *)c->f->work + c->lying[i].at;
}

static void *value_of(const struct sequence *c, int tensor)
{
    const struct tensor *t = &c->m->tensor[tensor];

    if (t->place >= 0)
        return c->f->arg[t->place];
    if (t->origin == ZEROS)
        return lies_at(c, c->n_lying);
    return c->pass == FORWARD ? lies_at(c, tensor) : NULL;
}

/* The gradient that a call writes or reads. */
static void *gradient_of(const struct sequence *c, int tensor)
{
    const struct tensor *t = &c->m->tensor[tensor];

    if (t->origin != RESULT || (t->output && !t->readers))
        return c->f->grad[t->place];
    return lies_at(c, t->readers ? tensor : c->n_lying);
}

static void bind(const struct sequence *c, int s, int *twin)
{
    const struct step *step = &c->m->step[s];
    struct call *to = &c->call[s];

    to->work = (char *)c->f->work + c->bytes;
    for (int i = 0; i < to->op->n_args; i++) {
        if (step->tensor[i] < 0)
            continue;
        to->arg[i] = value_of(c, step->tensor[i]);
        if (c->pass == FORWARD || !step->active)
            continue;
        if (has_gradient(step, i, OUT))
            to->grad[i] = gradient_of(c, step->tensor[i]);
        else if (has_gradient(step, i, IN))
            to->grad[i] = !c->m->tensor[step->tensor[i]].needs || is_twin(step, i)
                              ? lies_at(c, c->m->n_tensors + (*twin)++)
                              : gradient_of(c, step->tensor[i]);
    }
}

static int add_to(const struct call *c, int arg, void *to, const void *more)
{
    return c->backend->machine->memory.add(c, call_type(c, arg, 1), to, to, more, op_count(c, arg));
}

/* To the gradient of an output that calls read comes the caller's. */
static int add_upstream(const struct sequence *c, int s)
{
    const struct step *step = &c->m->step[s];
    int e = 0;

    for (int i = 0; !e && i < step->call.op->n_args; i++) {
        const struct tensor *t = step->tensor[i] >= 0 ? &c->m->tensor[step->tensor[i]] : NULL;
        if (has_gradient(step, i, OUT) && t->output && t->readers)
            e = add_to(&c->call[s], i, c->call[s].grad[i], c->f->grad[t->place]);
    }
    return e;
}

/* What a call wrote beside another gradient of the same tensor. */
static int add_twins(const struct sequence *c, int s)
{
    const struct step *step = &c->m->step[s];
    int e = 0;

    for (int i = 0; !e && i < step->call.op->n_args; i++)
        if (has_gradient(step, i, IN) && c->m->tensor[step->tensor[i]].needs && is_twin(step, i))
            e = add_to(&c->call[s], i, gradient_of(c, step->tensor[i]), c->call[s].grad[i]);
    return e;
}

static int run(struct sequence *c)
{
    const int n = c->m->n_steps;
    int e = 0, twin = 0;

    for (int s = 0; s < n; s++)
        bind(c, s, &twin);
    if (c->zeros)
        e = c->f->backend->machine->memory.zero(c->f, lies_at(c, c->n_lying), c->zeros);
    for (int k = 0; !e && k < n; k++) {
        const int s = c->pass == FORWARD ? k : n - 1 - k;
        if (c->pass == FORWARD) {
            e = call_pass(&c->call[s], FORWARD);
        } else if (c->m->step[s].active) {
            e = add_upstream(c, s);
            e = e ? e : call_pass(&c->call[s], BACKWARD);
            e = e ? e : add_twins(c, s);
        }
    }
    return e;
}

enum { NO_MEMORY = 2 };

static int pass_of(const struct call *f, enum pass p)
{
    struct sequence c;
    const int e = sequence_of(&c, f, p) ? NO_MEMORY : run(&c);

    sequence_free(&c);
    return e;
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
    for (int s = 0; s < c.m->n_steps; s++)
        if (p == FORWARD || c.m->step[s].active)
            larger(&most, op_work(&c.call[s], p));
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
