/* The time of an update of training as one recording, beside the sum of its calls' own, each recorded by itself on the same
 * tensors; tokens per second; and the bytes that it takes.  Where the machine records nothing: nothing. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/train/update.h"
#include "tests/recorded.h"
#include "tests/suite.h"

enum { CORPUS = 1 << 20 };

/* All calls of an update but the model, each by itself. */
static double sum_of_others(const struct update *u, int *failed)
{
    double sum = 0;

    for (int i = 0; i < u->n_passes; i++) {
        if (u->pass[i].call == &u->call[UPDATE_MODEL])
            continue;
        const double seconds = time_of(&u->pass[i], 1);
        *failed |= seconds < 0;
        sum += seconds;
    }
    return sum;
}

static void times(struct update *u, const char *nonlin)
{
    const struct call *batch = &u->call[UPDATE_BATCH];
    const double tokens = (double)DIM(batch, 'T') * (double)DIM(batch, 'B');
    int failed = 0;
    const double one = time_of(u->pass, u->n_passes), others = sum_of_others(u, &failed);
    const struct sum_of_times sum = sum_of_calls(&u->call[UPDATE_MODEL]);
    const double all = others + sum.seconds[FORWARD] + sum.seconds[BACKWARD];

    failed |= one <= 0 || sum.failed;
    if (!failed && one > 1.10 * all && others_may_use(u->b)) {
        skip("others may use the device meanwhile", "%s: %s: the time of an update", u->b->name,
             nonlin);
        return;
    }
    ok(!failed && one <= 1.10 * all,
       "%s: %s: an update %.3f ms, %.3f of the sum of its calls' %.3f ms (%.3f + %.3f, others "
       "%.3f): %.1f M tokens/s, "
       "%.1f MiB",
       u->b->name, nonlin, one * 1e3, one / all, all * 1e3, sum.seconds[FORWARD] * 1e3,
       sum.seconds[BACKWARD] * 1e3, others * 1e3, tokens / one * 1e-6, (double)u->bytes / 1048576);
}

static void test(const struct backend *b, const char *nonlin)
{
    struct update *u = calloc(1, sizeof *u);
    struct cell *c = malloc(sizeof *c);
    unsigned char *corpus = malloc(CORPUS);
    struct call f;
    int e = !u || !c || !corpus;

    for (int i = 0; !e && i < CORPUS; i++)
        corpus[i] = (unsigned char)(draw_uniform(1, (uint64_t)i) * 256);
    op_defaults(cell_op("e74"), &f);
    static const char *const keys[][2] = {
        {"width", "256"},  {"blocks", "2"},   {"heads", "4"},
        {"n_state", "64"}, {"task", "bytes"}, {"length", "256"},
        {"batch", "256"},  {"state", "full"}, {"updates", "5000"}};
    for (int i = 0; !e && i < (int)COUNT(keys); i++)
        e = op_set(&f, keys[i][0], keys[i][1]);
    if (!e)
        cell_set_corpus(&f, CORPUS);
    e = e || op_set(&f, "nonlin", nonlin) || op_complete(&f) || cell_read(&f, 1, c) ||
        update_open(u, c, b, context_of(here(), b), 1, corpus) || update_run(u) || update_run(u);
    if (e) {
        ok(0, "%s: %s", b->name, nonlin);
        printf("# %s\n", err_text());
    } else {
        times(u, nonlin);
    }
    if (u)
        update_close(u);
    free(u);
    free(c);
    free(corpus);
}

int main(void)
{
    static const char *const nonlins[] = {"linear", "tanh"};

    for (const struct backend *const *b = backends(); *b; b++) {
        const char *why = backend_unavailable(here(), *b);
        if (!is_judged(*b))
            continue;
        for (int i = 0; i < (int)COUNT(nonlins); i++) {
            if (why || !(*b)->machine->timing.record)
                skip(why ? why : "nothing is recorded there", "%s: %s: an update", (*b)->name,
                     nonlins[i]);
            else
                test(*b, nonlins[i]);
        }
    }
    return done();
}
