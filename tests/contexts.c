/* Contexts: calls in several of them at once, from a host thread each, have the bits of one call
 * after the other; on two devices, where there are two. */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "common/call/cases.h"
#include "common/judge/check.h"
#include "tests/suite.h"

enum { HOSTS = 2 };

static int first_case(const struct call *f, void *data)
{
    struct call *c = data;
    struct call on = call_here(f, c->backend, NULL);

    on.kernel = impl_choose(&on, NULL).kernel;
    if (!on.kernel)
        return 0;
    *c = on;
    return 1;
}

/* The first case of an operation that a kernel of the backend takes, and its results in the process's own
 * context.  Nonzero after err_set(). */
static int question_of(struct drawn *q, const struct op *o, const struct backend *b)
{
    *q = (struct drawn){.run.call.backend = b};
    if (cases_each(o, o->cases, first_case, &q->run.call) < 0)
        return -1;
    if (!q->run.call.kernel)
        return err_set("%s has no case for %s", o->name, b->name);
    return drawn_run(q);
}

/* A host thread: all operations in its context, each from another one on. */
struct host {
    pthread_t thread;
    struct context *x;
    const struct drawn *q;
    int first;
    int same[N_OPS];
    char why[200]; /* of the last run that failed */
};

static void *work(void *data)
{
    struct host *h = data;

    for (int n = 0; n < N_OPS; n++) {
        const int i = (h->first + n) % N_OPS;
        struct run run = h->q[i].run;
        run.call.context = h->x;
        struct tensors *got = run_copy(&run, h->q[i].inputs, NULL);
        h->same[i] = got && tensors_same(&run.call, got, h->q[i].want);
        if (!got)
            snprintf(h->why, sizeof h->why, "%s", err_text());
        tensors_free(got);
    }
    return NULL;
}

/* The hosts at once, one on each of these contexts. */
static void at_once(const struct drawn *q, const struct backend *b, struct context *const x[HOSTS],
                    const char *where)
{
    struct host h[HOSTS] = {0};
    int started = 0;

    for (; started < HOSTS; started++) {
        h[started] = (struct host){.x = x[started], .q = q, .first = started * N_OPS / HOSTS};
        if (pthread_create(&h[started].thread, NULL, work, &h[started]))
            break;
    }
    for (int i = 0; i < started; i++)
        pthread_join(h[i].thread, NULL);
    for (int i = 0; i < N_OPS; i++)
        if (!ok(started == HOSTS && h[0].same[i] && h[1].same[i],
                "%s: %s, the same bits in two contexts at once%s", b->name, ops[i]->name, where))
            printf("# %s %s\n", h[0].why, h[1].why);
}

static void judge(const struct backend *b)
{
    struct drawn q[N_OPS];
    const struct device *d = &b->machine->device;
    struct context *x[HOSTS] = {d->open ? d->open(0) : NULL, d->open ? d->open(0) : NULL},
                   *other = NULL;
    int e = d->open && (!x[0] || !x[1]);

    for (int i = 0; i < N_OPS; i++)
        e |= question_of(&q[i], ops[i], b);
    if (e) {
        ok(0, "%s: %s", b->name, err_text());
        return;
    }
    at_once(q, b, x, "");
    if (is_judged(b) && (other = d->open(1))) {
        struct context *const two[HOSTS] = {x[0], other};
        at_once(q, b, two, ", on two devices");
        d->close(other);
    } else if (is_judged(b)) {
        skip(err_text(), "%s: contexts on two devices", b->name);
    }
    for (int i = 0; i < N_OPS; i++)
        drawn_free(&q[i]);
    for (int i = 0; d->close && i < HOSTS; i++)
        d->close(x[i]);
}

int main(void)
{
    for (const struct backend *const *b = backends(); *b; b++) {
        const char *why = backend_unavailable(here(), *b);
        if (why)
            skip(why, "%s: contexts", (*b)->name);
        else
            judge(*b);
    }
    return done();
}
