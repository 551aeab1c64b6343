/* Sequences of thousands of steps: every kernel, every gradient, and by how much the error grows.  Under emulation the longest
 * are fewer, and run on the first kernel alone. */
#include "config.h"

#include <string.h>

#include "common/report/growth_text.h"
#include "common/run/trial.h"
#include "tests/suite.h"

/* The growth of each result's error, on a comment line; the largest error of a quarter over the smallest. */
static double growth(const struct result *r, const struct ran *ran)
{
    double most = 1;

    FOR_RESULTS (&ran->call, i, grad) {
        struct quarters q;
        char name[TENSOR_TEXT];
        if (ran->call.op->arg[i].flags & SAVED ||
            !growth_of(&ran->call, i, tensors_values(ran->t, i, grad),
                       tensors_values(r->ran[ORACLE].t, i, grad), &q))
            continue;
        tensor_name(ran->call.op, i, grad, name);
        printf("# %s %s %s:", ran_name(ran), ran->call.kernel->name, name);
        for (int k = 0; k < QUARTERS; k++)
            printf(" %.2e", q.error[k]);
        puts("");
        most = fmax(most, growth_spread(&q));
    }
    return most;
}

/* So many verdicts of that check. */
static int counted(const struct verdicts *list, const char *check)
{
    int n = 0;
    for (int i = 0; i < list->n; i++)
        n += strcmp(list->v[i].check, check) == 0;
    return n;
}

/* All results of a trial, and that no quarter of the steps has 8 times the error of another. */
static void judged(const struct experiment *x, const struct result *r)
{
    const int kernels = r->n_ran - YARDSTICK - 1;
    int results = 0, gradients = 0;
    char text[MAX_TEXT];

    FOR_RESULTS (&r->trial->call, i, grad) {
        const unsigned flags = r->trial->call.op->arg[i].flags;
        results += !(flags & SAVED);
        gradients += grad;
    }
    op_text(&r->trial->call, text);
    report(&r->trial->call, &r->verdicts, 0, types[r->trial->type].name);
    ok(counted(&r->verdicts, "differences") == gradients &&
           counted(&r->verdicts, "parity") >= kernels * results &&
           (kernels || backend_unavailable(x->contexts, judged_backend(0))),
       "%d gradients by differences, %d results of %d kernels", gradients, results, kernels);
    for (int j = YARDSTICK; j < r->n_ran; j++) {
        const double most = growth(r, &r->ran[j]);
        ok(most < 8, "%s %s: the error of a quarter is at most %.2g times that of another",
           ran_name(&r->ran[j]), r->ran[j].call.kernel->name, most);
    }
}

static void sequence(const char *nonlin, const char *type, int steps, int every_kernel)
{
    static const volatile int go_on = 0;
    static struct result r;
    struct experiment x;
    char words[300];

    snprintf(words, sizeof words,
             "e74_cell state=full proj=full nonlin=%s dtype=%s steps=%d batch=1 n_state=16 "
             "repeats=0 save=none "
             "checks=differences,parity",
             nonlin, type, steps);
    int e = plan_words(words, &x, stdout);
    if (e) {
        ok(0, "%s", words);
        return;
    }
    x.contexts = here();
    x.every_kernel = every_kernel;
    if (trial_run(&x, &x.trial[0], &go_on, no_step, NULL, &r))
        ok(0, "%s: %s", words, err_text());
    else
        judged(&x, &r);
    result_free(&r);
    plan_free(&x);
}

int main(void)
{
    static const char *const nonlin[] = {"tanh", "rmsnorm", "frobnorm"};
    const struct backend *b = judged_backend(0);
    const int real =
        !backend_unavailable(here(), b) && !strstr(backend_device(here(), b), "emulated");

#ifdef __SANITIZE_ADDRESS__
    const int brief = 1; /* ten times as long */
#else
    const int brief = 0;
#endif

    for (size_t i = 0; i < (brief ? 1 : COUNT(nonlin)); i++) {
        sequence(nonlin[i], "fp32", 4096, real);
        if (brief)
            continue;
        sequence(nonlin[i], "bf16", 4096, real);
        if (real || i == 0)
            sequence(nonlin[i], "fp32", 32768, real);
        if (real)
            sequence(nonlin[i], "bf16", 32768, 1);
    }
    return done();
}
