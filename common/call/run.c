/* Runs one operation on one backend: memory, copies, passes, times (run.h). */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/number.h"
#include "common/call/ahead.h"
#include "common/call/run.h"
#include "common/call/transfer.h"
#include "common/call/watch.h"

/* ---- tensors on the host ---- */

/* The values of argument i, which are there: zeros, in memory that is not touched before it is used,
 * then by all cores.  Nothing where there is no memory. */
static void values_new(struct tensors *t, const struct call *f, int i)
{
    if (op_is_bytes(f, i))
        t->b[i] = calloc(op_count(f, i), 1);
    else
        t->x[i] = calloc(op_count(f, i), sizeof(double));
}

struct tensors *tensors_new(const struct call *f)
{
    const struct op *o = f->op;
    struct tensors *t = calloc(1, sizeof *t);

    for (int i = 0; t && i < o->n_args; i++) {
        const int64_t n = op_count(f, i);
        const int gradient = (o->arg[i].flags & DIFF) != 0, initial = call_accumulates(f, i);
        if (!n)
            continue;
        values_new(t, f, i);
        t->g[i] = gradient ? calloc(n, sizeof(double)) : NULL;
        t->g0[i] = initial ? calloc(n, sizeof(double)) : NULL;
        if (!tensors_values(t, i, 0) || (gradient && !t->g[i]) || (initial && !t->g0[i])) {
            tensors_free(t);
            t = NULL;
        }
    }
    if (!t)
        err_set("%s: no memory for its tensors", o->name);
    return t;
}

/* NULL where x is, or where there is no memory: then *full becomes 0. */
static double *copied(const double *x, int64_t n, int *full)
{
    double *copy = x ? malloc(n * sizeof *copy) : NULL;

    if (copy)
        widen(F64, copy, x, n);
    *full &= !x || copy;
    return copy;
}

/* The same of bytes. */
static unsigned char *copied_bytes(const unsigned char *b, int64_t n, int *full)
{
    unsigned char *copy = b ? malloc(n) : NULL;

    if (copy)
        memcpy(copy, b, n);
    *full &= !b || copy;
    return copy;
}

int tensors_get(const struct tensors *t, const struct call *placed, int i, int grad)
{
    const void *there = (grad ? placed->grad : placed->arg)[i];
    void *to = tensors_values(t, i, grad);

    return there && to
               ? transfer_get(placed, call_type(placed, i, grad), to, there, op_count(placed, i))
               : 0;
}

struct tensors *tensors_given(const struct call *f, const struct tensors *t)
{
    const struct op *o = f->op;
    struct tensors *copy = calloc(1, sizeof *copy);
    int full = copy != NULL;

    for (int i = 0; full && i < o->n_args; i++) {
        const int64_t n = op_count(f, i);
        if (o->arg[i].flags & IN) {
            copy->x[i] = copied(t->x[i], n, &full);
            copy->b[i] = copied_bytes(t->b[i], n, &full);
        }
        if (o->arg[i].flags & OUT)
            copy->g[i] = copied(t->g[i], n, &full);
        copy->g0[i] = copied(t->g0[i], n, &full);
    }
    if (!full) {
        tensors_free(copy);
        return err_null("no memory for another input of %s", o->name);
    }
    return copy;
}

struct tensors *tensors_results(const struct call *f, const struct tensors *given)
{
    const struct op *o = f->op;
    struct tensors *t = calloc(1, sizeof *t);
    int full = t != NULL;

    for (int i = 0; full && i < o->n_args; i++) {
        const int64_t n = op_count(f, i);
        const int input = (o->arg[i].flags & IN) != 0, gradient = (o->arg[i].flags & DIFF) != 0;
        if (input)
            set_add(&t->given, i);
        if (!n)
            continue;
        if (input) {
            t->x[i] = given->x[i];
            t->b[i] = given->b[i];
        } else {
            values_new(t, f, i);
        }
        if (gradient)
            t->g[i] = input ? calloc(n, sizeof(double)) : given->g[i];
        t->g0[i] = given->g0[i];
        full = tensors_values(t, i, 0) && (!gradient || t->g[i]);
    }
    if (!full) {
        tensors_free(t);
        return err_null("%s: no memory for its results", o->name);
    }
    return t;
}

void tensors_free(struct tensors *t)
{
    const int results = t && set_any(&t->given);

    for (int i = 0; t && i < MAX_ARGS; i++) {
        const int input = set_has(&t->given, i);
        if (!results || !input)
            free(tensors_values(t, i, 0));
        if (!results || input)
            free(t->g[i]);
        if (!results)
            free(t->g0[i]);
    }
    free(t);
}

struct tensors *tensors_copy(const struct call *f, const struct tensors *t)
{
    const struct op *o = f->op;
    struct tensors *copy = tensors_new(f);
    for (int i = 0; copy && i < o->n_args; i++) {
        int64_t n = op_count(f, i);
        if (t->x[i])
            widen(F64, copy->x[i], t->x[i], n);
        if (t->b[i])
            memcpy(copy->b[i], t->b[i], n);
        if (t->g[i])
            widen(F64, copy->g[i], t->g[i], n);
        if (copy->g0[i])
            widen(F64, copy->g0[i], t->g0[i], n);
    }
    return copy;
}

int64_t tensors_bytes(const struct call *f)
{
    const struct op *o = f->op;
    int64_t sum = 0;
    for (int i = 0; i < o->n_args; i++)
        sum += op_count(f, i) * (tensors_each(f, i) + 8 * ((o->arg[i].flags & DIFF) != 0) +
                                 8 * call_accumulates(f, i));
    return sum;
}

void tensors_draw(struct tensors *t, const struct call *f, uint64_t seed, int nonzero_state)
{
    /* Not seed + 1: with x of one seed and y of the next the first letter could make the keys equal. */
    const uint64_t upstream = draw_key(seed, "upstream"), initial = draw_key(seed, "initial");
    const struct op *o = f->op;
    for (int i = 0; i < o->n_args; i++) {
        const struct arg *a = &o->arg[i];
        int state = !a->fill_of && a->fill == ZERO;
        enum fill fill = nonzero_state && state ? UNIT : op_fill(f, i);
        if (a->flags & IN && t->b[i] && a->draw_bytes)
            a->draw_bytes(f, i, draw_key(seed, a->name), t->b[i]);
        else if (a->flags & IN && t->b[i])
            op_draw_bytes(f, i, seed, t->b[i]);
        else if (a->flags & IN && t->x[i] && a->draw)
            a->draw(f, i, draw_key(seed, a->name), t->x[i]);
        else if (a->flags & IN && t->x[i])
            op_draw(f, i, fill, seed, t->x[i]);
        if (a->flags & OUT && t->g[i])
            op_draw(f, i, a->fill_of ? a->fill_of(f) : NORMAL, upstream, t->g[i]);
        if (t->g0[i])
            op_draw(f, i, NORMAL, initial, t->g0[i]);
    }
}

void values_round(enum dtype type, double *x, int64_t n)
{
    enum { CHUNK = 1 << 12 };

    #pragma omp parallel for if (n > CHUNK)
    for (int64_t i = 0; i < n; i += CHUNK) {
        double bits[CHUNK]; /* no type is larger */
        const int64_t some = n - i < CHUNK ? n - i : CHUNK;
        narrow(type, bits, x + i, some);
        widen(type, x + i, bits, some);
    }
}

void tensors_round(struct tensors *t, const struct call *f)
{
    const struct op *o = f->op;
    for (int i = 0; i < o->n_args; i++) {
        int64_t n = op_count(f, i);
        if (o->arg[i].flags & IN && t->x[i])
            values_round((enum dtype)f->type[i], t->x[i], n);
        if (o->arg[i].flags & OUT && t->g[i])
            values_round((enum dtype)f->grad_type[i], t->g[i], n);
        if (t->g0[i])
            values_round((enum dtype)f->grad_type[i], t->g0[i], n);
    }
}

/* ---- tensors on a backend ---- */

enum { BAND = 256, GUARD = 0xa5 }; /* bytes of a guard band, and each of them */

/* A tensor there: where its memory begins, and where it begins itself. */
struct place {
    void *memory, *at;
    size_t bytes;
    enum dtype type;
};

static struct place place_of_type(int type, int64_t n)
{
    return (struct place){.type = (enum dtype)type, .bytes = n * types[type].bytes};
}

static int place_failed(const struct run *c, int e)
{
    return transfer_failed(&c->call, e);
}

static const struct memory *memory_of(const struct run *c)
{
    return &c->call.backend->machine->memory;
}

/* Its memory filled with poison, and the bands around it with GUARD. */
static int place_poison(const struct run *c, const struct place *p, size_t band)
{
    const struct memory *m = memory_of(c);
    struct context *x = c->call.context;
    int e = band ? m->fill(x, p->memory, GUARD, band) : 0;
    e = e ? e : m->fill(x, p->at, c->other_poison ? OTHER_POISON : POISON, p->bytes);
    e = e || !band ? e : m->fill(x, (char *)p->at + p->bytes, GUARD, band);
    return place_failed(c, e);
}

/* Allocate it, poisoned, between its guards. */
static int place_new(const struct run *c, struct place *p, size_t bytes, int64_t *used)
{
    size_t band = c->guards ? BAND : 0, all = bytes + 2 * band;

    p->bytes = bytes;
    p->memory = memory_of(c)->alloc(c->call.context, all ? all : 1);
    if (!p->memory)
        return err_set("%s: cannot allocate %zu bytes", c->call.backend->name, all);
    p->at = (char *)p->memory + band;
    *used += bytes;
    return c->unpoisoned ? 0 : place_poison(c, p, band);
}

/* Write doubles there, or bytes as they are, unless they are there already. */
static int place_put(const struct run *c, struct place *p, const void *values, int64_t n)
{
    const void *there = ahead_find(c->ahead, values, p->type, n);
    const size_t bytes = n * types[p->type].bytes;

    return there ? place_failed(c, memory_of(c)->copy(c->call.context, p->at, there, bytes))
                 : transfer_put(&c->call, p->type, p->at, values, n);
}

/* Look at the guards before and behind it. */
static int look_at_guards(const struct run *c, const struct place *p, int *intact)
{
    unsigned char bits[BAND];
    int e = 0;

    for (int side = 0; !e && side < 2; side++) {
        const char *at = side ? (char *)p->at + p->bytes : p->memory;
        e = memory_of(c)->get(c->call.context, bits, at, BAND);
        for (size_t i = 0; !e && i < BAND; i++)
            *intact &= bits[i] == GUARD;
    }
    return place_failed(c, e);
}

/* Read it back, as doubles or, bytes, as they are. */
static int place_read(const struct run *c, const struct place *p, void *values, int64_t n)
{
    return transfer_get(&c->call, p->type, values, p->at, n);
}

/* Look at its guards, and read it back, unless values is NULL, or where it is already. */
static int place_get(const struct run *c, const struct place *p, void *values, int64_t n,
                     int *intact)
{
    if (c->guards && p->memory && look_at_guards(c, p, intact))
        return -1;
    return values && values != p->at ? place_read(c, p, values, n) : 0;
}

/* Are the host's tensors of that type what a kernel takes: the oracle's doubles, and the bytes of a
 * backend that runs on any memory of the process? */
static int is_at_host(const struct run *c, enum dtype type)
{
    return !c->guards && (type == F64 || (type == U8 && !c->call.backend->machine->lending.lend));
}

/* A tensor of the run: what is given is put there.  Such values are where they are and are not
 * copied, unless guards are to stand around them, or `own`: they are to be overwritten. */
static int place_tensor(const struct run *c, struct place *p, void *values, int given, int own,
                        int64_t *used)
{
    const int64_t n = (int64_t)(p->bytes / types[p->type].bytes);

    if (own || !is_at_host(c, p->type))
        return place_new(c, p, p->bytes, used) || (given && place_put(c, p, values, n));
    p->at = values;
    *used += p->bytes;
    return given || c->unpoisoned ? 0 : place_poison(c, p, 0);
}

int run_reserve(const struct run *c)
{
    const struct backend *b = c->call.backend;
    ahead_wait(c->ahead);
    int64_t needs = op_memory(&c->call), has = b->machine->memory.left(c->call.context);
    int64_t tensors = 2 * c->call.op->n_args + 1; /* each with its guards, and rounded up */
    char text[NUMBER_TEXT], available[NUMBER_TEXT];
    int e = 0;

    number_bytes((double)needs, text);
    if (needs > has && c->ahead) {
        ahead_drop(c->ahead);
        has = b->machine->memory.left(c->call.context);
    }
    if (needs > has)
        return err_set("%s on %s needs %s, %s are free", c->call.op->name, b->name, text,
                       number_bytes((double)has, available));
    const int64_t all = needs + tensors * 4 * BAND;
    if (b->machine->memory.reserve && (e = b->machine->memory.reserve(c->call.context, all)) &&
        c->ahead) {
        ahead_drop(c->ahead);
        e = b->machine->memory.reserve(c->call.context, all);
    }
    return e ? err_set("%s: cannot reserve %s: %s", b->name, text, b->machine->strerror(e)) : 0;
}

/* ---- a run ---- */

struct places {
    struct place x[MAX_ARGS], g[MAX_ARGS], work;
};

/* The initial gradients to which backward adds. */
static int put_gradients(const struct run *c, const struct tensors *t, const struct call *f)
{
    int e = 0;
    for (int i = 0; !e && i < f->op->n_args; i++) {
        int64_t n = call_accumulates(f, i) ? op_count(f, i) : 0;
        enum dtype type = (enum dtype)f->grad_type[i];
        struct place p = place_of_type(type, n);
        p.at = f->grad[i];
        if (n && place_put(c, &p, t->g0[i], n))
            e = err_at("%s d_%s", f->op->name, f->op->arg[i].name);
    }
    return e;
}

/* The inputs that a forward pass overwrites, as they were given. */
static int put_overwritten(const struct run *c, const struct tensors *t, const struct call *f)
{
    int e = 0;
    for (int i = 0; !e && i < f->op->n_args; i++) {
        struct place p = place_of_type(f->type[i], op_count(f, i));
        p.at = f->arg[i];
        if (call_overwritten(f, i) && place_put(c, &p, tensors_values(t, i, 0), op_count(f, i)))
            e = err_at("%s %s", f->op->name, f->op->arg[i].name);
    }
    return e;
}

/* What a pass needs may not follow from addresses, which nobody knows who asks for it. */
static int work_follows_from_sizes(const struct call *f, enum pass p, size_t asked)
{
    const size_t needed = op_work(f, p);

    return needed == asked ? 0
                           : err_set("%s %s %s: asks for %zu bytes of workspace, and needs %zu "
                                     "where the tensors are there",
                                     f->op->name, f->backend->name, f->kernel->name, asked, needed);
}

/* Tensor i of the run, or no memory where it is in that of an input. */
static int put_values(const struct run *c, const struct tensors *t, int i, struct places *p,
                      int64_t *used)
{
    const struct call *f = &c->call;
    const int input = call_overwrites(f, i);

    if (input >= 0) {
        p->x[i] = p->x[input];
        p->x[i].memory = NULL;
        return 0;
    }
    p->x[i] = place_of_type(f->type[i], op_count(f, i));
    return place_tensor(c, &p->x[i], tensors_values(t, i, 0), f->op->arg[i].flags & IN,
                        call_overwritten(f, i), used);
}

static int put_all(const struct run *c, const struct tensors *t, struct places *p, struct call *f,
                   int64_t *used)
{
    const struct op *o = c->call.op;
    size_t forward = op_work(f, FORWARD), backward = op_work(f, BACKWARD);

    for (int i = 0; i < o->n_args; i++) {
        int64_t n = op_count(f, i);
        if (!n)
            continue;
        if (put_values(c, t, i, p, used))
            return err_at("%s %s", o->name, o->arg[i].name);
        f->arg[i] = p->x[i].at;
        if (!(o->arg[i].flags & DIFF) || c->forward_only)
            continue;
        p->g[i] = place_of_type(f->grad_type[i], n);
        if (place_tensor(c, &p->g[i], t->g[i], o->arg[i].flags & OUT, 0, used))
            return err_at("%s d_%s", o->name, o->arg[i].name);
        f->grad[i] = p->g[i].at;
    }
    if (work_follows_from_sizes(f, FORWARD, forward) ||
        (!c->forward_only && work_follows_from_sizes(f, BACKWARD, backward)))
        return -1;
    if (c->forward_only)
        backward = 0;
    else if (put_gradients(c, t, f))
        return -1;
    if (forward || backward) {
        if (place_new(c, &p->work, forward > backward ? forward : backward, used))
            return err_at("%s workspace", o->name);
        f->work = p->work.at;
    }
    return 0;
}

static int get_all(const struct run *c, struct tensors *t, const struct places *p,
                   struct outcome *out)
{
    const struct op *o = c->call.op;
    for (int i = 0; i < o->n_args; i++) {
        int64_t n = op_count(&c->call, i);
        int input = o->arg[i].flags & IN, intact = 1;
        if (!n || (input && c->forward_only && !c->guards))
            continue;
        if (place_get(c, &p->x[i], input ? NULL : tensors_values(t, i, 0), n, &intact))
            return -1;
        if (p->g[i].at && place_get(c, &p->g[i], input ? t->g[i] : NULL, n, &intact))
            return -1;
        if (!intact && !out->overrun[0])
            snprintf(out->overrun, sizeof out->overrun, "%s", o->arg[i].name);
    }
    if (p->work.at) {
        int intact = 1;
        if (c->guards && place_get(c, &p->work, NULL, 0, &intact))
            return -1;
        if (!intact && !out->overrun[0])
            snprintf(out->overrun, sizeof out->overrun, "workspace");
    }
    return 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Half of the values are below it.  They are put in order. */
static double median_of(double *x, int n)
{
    qsort(x, n, sizeof *x, by_size);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static int run_failed(const struct run *c, enum pass p, const char *what, int e)
{
    return err_set("%s on %s, kernel %s, %s%s: %s", c->call.op->name, c->call.backend->name,
                   c->call.kernel->name, pass_names[p], what,
                   c->call.backend->machine->strerror(e));
}

/* The pass itself, or where it was recorded, the record of it. */
static int run_once(const struct run *c, const struct call *f, enum pass p, void *recorded,
                    double *seconds)
{
    const struct backend *b = f->backend;
    const double began = seconds_now();
    int e = b->machine->timing.start ? b->machine->timing.start(f->context) : 0;

    if (!e)
        e = recorded ? b->machine->timing.replay(f->context, recorded) : call_pass(f, p);
    if (!e && b->machine->timing.stop)
        e = b->machine->timing.stop(f->context, seconds);
    else
        *seconds = seconds_now() - began;
    if (!e)
        watch_ran(f, p);
    return e ? run_failed(c, p, recorded ? ", replayed" : "", e) : watch_stopped();
}

/* The times of several runs; of slow ones, as many as fit into a second. */
static int run_timed(const struct run *c, const struct call *f, enum pass p, void *recorded,
                     double *seconds, int *runs)
{
    static const double ENOUGH = 1;
    double began = seconds_now();
    int n = 0, e = 0;

    for (; !e && n < c->repeats && (n == 0 || seconds_now() - began < ENOUGH); n++)
        e = run_once(c, f, p, recorded, seconds + n);
    *runs = n;
    return e;
}

static void note_times(struct outcome *out, enum pass p, double *seconds, int n)
{
    out->median[p] = median_of(seconds, n);
    out->min[p] = seconds[0];
    out->max[p] = seconds[n - 1];
    out->runs[p] = n;
    for (int i = 0; i < n; i++)
        seconds[i] = fabs(seconds[i] - out->median[p]);
    out->spread[p] = median_of(seconds, n);
}

/* Times of a pass that has run.  Where it can be recorded, those of replays come last, so that the
 * results which are judged are those that were timed.  Where every run has added to the gradients, or
 * overwritten inputs, one more begins with those that were given. */
static int run_times(const struct run *c, const struct call *f, enum pass p,
                     const struct tensors *t, double *seconds, struct outcome *out)
{
    void *recorded = NULL;
    double untimed;
    int n, e = 0;

    if (c->call.backend->machine->timing.record) {
        e = run_timed(c, f, p, NULL, seconds, &n);
        if (e)
            return e;
        out->no_graph[p] = median_of(seconds, n);
        e = c->call.backend->machine->timing.record(&(const struct pass_of){f, p}, 1, &recorded);
        if (e)
            return run_failed(c, p, ", cannot be recorded as a graph", e);
        if (c->call.backend->machine->timing.launches)
            out->launches[p] = c->call.backend->machine->timing.launches(recorded);
    }
    e = run_timed(c, f, p, recorded, seconds, &n);
    if (!e)
        note_times(out, p, seconds, n);
    if (!e && (p == BACKWARD ? set_any(&f->accumulate) : f->in_place))
        e = (p == BACKWARD ? put_gradients : put_overwritten)(c, t, f) ||
            run_once(c, f, p, recorded, &untimed);
    if (recorded)
        c->call.backend->machine->timing.forget(recorded);
    else
        out->no_graph[p] = out->median[p];
    return e;
}

/* Once, and until the clock is up if it is to be timed; then timed. */
static int run_pass(const struct run *c, const struct call *f, enum pass p, const struct tensors *t,
                    struct outcome *out)
{
    double *seconds = calloc(c->repeats ? c->repeats : 1, sizeof *seconds), began = seconds_now();
    int e;

    if (!seconds)
        return err_set("no memory for %d times", c->repeats);
    do
        e = run_once(c, f, p, NULL, seconds);
    while (!e && c->repeats && seconds_now() - began < c->call.backend->machine->timing.warm_up);
    if (!e && c->repeats)
        e = run_times(c, f, p, t, seconds, out);
    free(seconds);
    return e;
}

/* Perturb the tensors that forward left, outputs and saved ones, by c->between of themselves, up or
 * down, as c->between_key draws.  Whole numbers and bytes stay. */
static double between_factor(const struct run *c, int arg, double u)
{
    if (c->between_as)
        return 1 + (2 * u - 1) * types[c->between_as->type[arg]].unit;
    return u < 0.5 ? 1 + c->between : 1 - c->between;
}

static int perturb_between(const struct run *c, struct places *p)
{
    const struct op *o = c->call.op;
    int e = 0;

    for (int i = 0; !e && i < o->n_args; i++) {
        const int unread = c->between_as && !op_read_back(&c->call, i);
        int64_t n = o->arg[i].flags & (IN | WHOLE | BYTES) || unread ? 0 : op_count(&c->call, i);
        uint64_t key = draw_key(1 + c->between_key, o->arg[i].name);
        int intact = 1;
        double *x = n ? malloc(n * sizeof *x) : NULL;
        if (n && !x)
            return err_set("no memory for a copy of %s", o->arg[i].name);
        e = n ? place_get(c, &p->x[i], x, n, &intact) : 0;
        #pragma omp parallel for
        for (int64_t j = 0; j < n; j++)
            x[j] *= between_factor(c, i, draw_uniform(key, j));
        if (!e && n)
            e = place_put(c, &p->x[i], x, n);
        free(x);
    }
    return e;
}

/* What is free once the machine has its buffers for copies, which are no run's. */
static int64_t left_with_buffers(const struct run *c)
{
    void *ignored;

    if (memory_of(c)->pinned)
        memory_of(c)->pinned(c->call.context, 0, &ignored);
    return memory_of(c)->left(c->call.context);
}

int run_op(const struct run *c, struct tensors *t, struct outcome *out)
{
    struct places p = {0};
    struct outcome local;
    struct call f = c->call;

    out = out ? out : &local;
    memset(out, 0, sizeof *out);
    if (!c->call.kernel)
        return err_set("%s has no kernel on %s", c->call.op->name, c->call.backend->name);
    const char *no = impl_declines(&c->call);
    if (no)
        return err_set("%s on %s: kernel %s declines: %s", c->call.op->name, c->call.backend->name,
                       c->call.kernel->name, no);
    if (watch_stopped())
        return -1;
    int noisy = c->call.backend->machine->disturb && noise_any(&c->noise);
    const int64_t before = c->watch ? left_with_buffers(c) : 0;
    int e = put_all(c, t, &p, &f, &out->peak);
    if (noisy)
        c->call.backend->machine->disturb(c->call.backend->type, c->noise);
    if (!e)
        e = run_pass(c, &f, FORWARD, t, out);
    if (!e && (c->between > 0 || c->between_as))
        e = perturb_between(c, &p);
    if (!e && !c->forward_only && op_passes(c->call.op) == N_PASSES)
        e = run_pass(c, &f, BACKWARD, t, out);
    if (noisy)
        c->call.backend->machine->disturb(c->call.backend->type, (struct noise){0});
    if (c->watch) /* what a pass allocates, it keeps */
        out->used = before - memory_of(c)->left(c->call.context);
    if (!e)
        e = get_all(c, t, &p, out);
    for (int i = 0; i < MAX_ARGS; i++) {
        if (p.x[i].memory)
            memory_of(c)->free(c->call.context, p.x[i].memory);
        if (p.g[i].memory)
            memory_of(c)->free(c->call.context, p.g[i].memory);
    }
    if (p.work.memory)
        memory_of(c)->free(c->call.context, p.work.memory);
    return e;
}

struct tensors *run_copy(const struct run *c, const struct tensors *inputs, struct outcome *out)
{
    struct tensors *t = tensors_results(&c->call, inputs);
    if (t && run_op(c, t, out)) {
        tensors_free(t);
        t = NULL;
    }
    return t;
}
