/* What is known of dropout without any reference, on every kernel of every backend that can run here:
 * elements are 0 or 1 / (1 - p) times x, about a share p of them 0, the same ones of x and of dy; other
 * seeds and counters have other masks, which agree no more often than chance has it.  And of attention:
 * another counter has another mask. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/suite.h"

enum { ROWS = 67, COLUMNS = 301, N = ROWS * COLUMNS, SIGMAS = 6 };

/* The tensors of a case after both passes, of x = dy = 1 where it is dropout; NULL: none. */
static struct tensors *answer(const struct on *on, const char *op, const char *settings,
                              struct call *f)
{
    const struct op *o = op_find(op);
    struct tensors *t = NULL;

    if (cases_one(o, settings, f) == 0) {
        *f = call_here(f, on->backend, on->kernel);
        if (declined(f))
            return NULL;
        t = tensors_new(f);
    }
    if (!t) {
        ok(0, "%s %s %s: %s", on->backend->name, op, settings, err_text());
        return NULL;
    }
    tensors_draw(t, f, 1, 1);
    for (int i = 0; i < N && strcmp(op, "dropout") == 0; i++)
        t->x[op_arg(o, "x")][i] = t->g[op_arg(o, "y")][i] = 1;
    tensors_round(t, f);
    const struct run c = {.call = *f};
    if (run_op(&c, t, NULL) == 0)
        return t;
    ok(0, "%s %s %s: %s", on->backend->name, op, settings, err_text());
    tensors_free(t);
    return NULL;
}

/* Is n within some standard deviations of N p? */
static int near(double n, double p)
{
    return fabs(n - N * p) <= SIGMAS * sqrt(N * p * (1 - p));
}

/* The mask of these settings; nonzero where there is none.  Its share and its two values are judged. */
static int mask_of(const struct on *on, double p, const char *more, char *mask)
{
    const double tolerance = 2 * types[on->backend->type].unit + types[F32].unit;
    const int y = op_arg(op_find("dropout"), "y"), x = op_arg(op_find("dropout"), "x");
    char settings[200];
    struct call f;
    int kept = 0, good = 1;

    snprintf(settings, sizeof settings, "rows=%d dim=%d dropout=%g %s", ROWS, COLUMNS, p, more);
    struct tensors *t = answer(on, "dropout", settings, &f);
    if (!t)
        return -1;
    const double *made = tensors_result(t, y, 0), *back = tensors_result(t, x, 1);
    for (int i = 0; i < N; i++) {
        mask[i] = made[i] != 0;
        kept += mask[i];
        good &= made[i] == back[i] && fabs(made[i] * (1 - p) - mask[i]) <= tolerance;
    }
    ok(good && near(kept, 1 - p), "%s %s: %s: %d of %d elements, 1 / (1 - p) each, in both passes",
       on->backend->name, on->kernel->name, settings, kept, N);
    tensors_free(t);
    return 0;
}

static void masks(const struct on *on, double p)
{
    /* The last has the mask of the first. */
    static const char *const more[] = {"dropout_step=0",         "dropout_step=1",
                                       "dropout_step=2",         "dropout_step=4294967295",
                                       "dropout_seed=2",         "dropout_seed=4294967296",
                                       "dropout_step=4294967296"};
    enum { MASKS = sizeof more / sizeof *more };
    char *mask = malloc((size_t)MASKS * N);
    int bad = !mask, good = 1;

    for (int k = 0; !bad && k < MASKS; k++)
        bad = mask_of(on, p, more[k], mask + k * N);
    for (int k = 0; !bad && k < MASKS; k++)
        for (int j = 0; j < k; j++) {
            int same = 0;
            for (int i = 0; i < N; i++)
                same += mask[k * N + i] == mask[j * N + i];
            good &= j == 0 && k == MASKS - 1 ? same == N : near(same, p * p + (1 - p) * (1 - p));
        }
    if (!bad)
        ok(good, "%s %s: dropout=%g: masks of other counters and seeds agree by chance",
           on->backend->name, on->kernel->name, p);
    free(mask);
}

static void of_attention(const struct on *on)
{
    static const char *const step[] = {"0", "1", "4294967296"};
    const int o = op_arg(op_find("attention"), "o"), v = op_arg(op_find("attention"), "v");
    struct tensors *t[3];
    struct call f[3];
    char settings[200];
    int all = 1;

    for (int k = 0; k < 3; k++) {
        snprintf(settings, sizeof settings,
                 "batch=1 steps=9 heads=2 dim=4 mask=full dropout=0.5 dropout_step=%s", step[k]);
        t[k] = answer(on, "attention", settings, &f[k]);
        all &= t[k] != NULL;
    }
    if (all) {
        const size_t bytes = (size_t)op_count(&f[0], o) * sizeof(double);
        int other = 1, same = 1;
        for (int grad = 0; grad < 2; grad++) {
            const int arg = grad ? v : o;
            const double *first = tensors_result(t[0], arg, grad);
            other &= memcmp(first, tensors_result(t[1], arg, grad), bytes) != 0;
            same &= memcmp(first, tensors_result(t[2], arg, grad), bytes) == 0;
        }
        ok(other && same, "%s %s: attention has another mask for another counter, modulo 2^32",
           on->backend->name, on->kernel->name);
    }
    for (int k = 0; k < 3; k++)
        tensors_free(t[k]);
}

int main(void)
{
    const struct impl *k;
    const char *why = NULL;

    for (const struct backend *const *b = backends(); *b; b++) {
        if (backend_unavailable(here(), *b))
            continue;
        for (int n = 0; (k = op_kernel(op_find("dropout"), *b, n)); n++) {
            if (other_kernel(k))
                continue;
            masks(&(struct on){*b, k}, 0.1);
            masks(&(struct on){*b, k}, 0.5);
            masks(&(struct on){*b, k}, 0.95);
        }
        for (int n = 0; (k = op_kernel(op_find("attention"), *b, n)); n++)
            if (!other_kernel(k))
                of_attention(&(struct on){*b, k});
    }
    if (!any_gpu(&why))
        skip(why, "the same on a GPU");
    return done();
}
