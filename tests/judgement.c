/* Does the judgement pass right results and fail wrong ones?  Right cases that it once failed, and
 * gradients that are wrong where slopes jump; and the cases that `run-ablation --random` draws. */
#include "config.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/err.h"
#include "common/random.h"
#include "common/trial.h"
#include "data/input.h"
#include "tests/tap.h"

static const volatile int go_on = 0;

static void quiet(const char *what, void *data)
{
    (void)what;
    (void)data;
}

static void print_bad(const struct verdicts *list)
{
    for (int i = 0; i < list->n; i++)
        if (!list->v[i].pass || list->v[i].unjudged)
            printf("# %s %s, %s: off by %.3g, bound %.3g\n", list->v[i].backend, list->v[i].check,
                   list->v[i].tensor, list->v[i].error, list->v[i].bound);
}

/* ---- right results pass ---- */

static const char *const right[] = {
    /* a slope that jumps within the steps of some elements, whatever the step */
    "relu rows=100 dim=1000",
    "linear act=relu rows=64",
    "linear rows=29 dim_in=1 dim_out=83 bias=yes act=relu dtype=bf16",
    /* ties */
    "reduce kind=max rows=64 length=256 dtype=bf16",
    "reduce kind=max rows=1 length=1024 dtype=bf16 seed=3",
    /* saturated: the differences are exactly 0 */
    "softmax rows=1 columns=2 scale=11",
    "softmax rows=1 columns=2 scale=11 seed=7",
    /* a second derivative that jumps: entmax changes its support */
    "dual_memory preset=e25 tape=each tape_init=normal checkpoint_dtype=fp32 steps=2 batch=31 "
    "dim=5 dim_in=5 slots=63 checkpoint_interval=32 seed=20261123",
    /* few elements, of which one sample of roundings says little */
    "dual_memory preset=e29c tape=shared tape_init=normal checkpoint_dtype=fp32 steps=2 batch=1 "
    "dim=3 dim_in=3 slots=2 checkpoint_interval=32 clamp=20 seed=20261123",
};

static void passes(const char *words)
{
    struct experiment x;
    struct result r;

    if (plan_words(words, &x, stdout)) {
        ok(0, "%s", words);
        return;
    }
    x.repeats = 0;
    x.every_kernel = 1;
    int e = trial_run(&x, &x.trial[0], &go_on, quiet, NULL, &r);
    if (!ok(!e && r.verdicts.n && !r.failed && !verdicts_unjudged(&r.verdicts, 0), "%s", words))
        printf("# %s\n", e ? err_text() : "");
    print_bad(&r.verdicts);
    result_free(&r);
    plan_free(&x);
}

/* ---- wrong results fail ---- */

/* Differences of the oracle's gradients in a case, one of which is then off. */
static void differs(const char *words, const char *tensor, double factor)
{
    struct experiment x;
    struct verdicts list = {0};

    if (plan_words(words, &x, stdout)) {
        ok(0, "%s", words);
        return;
    }
    const struct trial *t = &x.trial[0];
    struct tensors *inputs = tensors_new(t->op, &t->sizes);
    struct call c = {.op = t->op, .backend = &ref64, .sizes = &t->sizes};
    c.kernel = op_kernels(t->op, &ref64)[0];
    int arg = op_arg(t->op, tensor), e = !inputs || input_fill(t, inputs, NULL);
    if (!e)
        tensors_round(inputs, t->op, &t->sizes, reference_of(t->type));
    e = e || run_op(&c, inputs, NULL);
    for (int64_t i = 0; !e && i < op_count(t->op, &t->sizes, arg); i++)
        inputs->g[arg][i] *= factor;
    e = e || check_differences(t->op, &t->sizes, inputs, 0, 2, NULL, &list);
    int failed = 0;
    for (int i = 0; i < list.n; i++)
        failed |= !list.v[i].pass && strcmp(list.v[i].tensor + 2, tensor) == 0;
    ok(!e && failed == (factor != 1), "d_%s times %g is found %s: %s", tensor, factor,
       factor != 1 ? "wrong" : "right", words);
    if (failed == (factor == 1))
        print_bad(&list);
    verdicts_free(&list);
    tensors_free(inputs);
    plan_free(&x);
}

static void jumps(void)
{
    static const char *const words[][2] = {
        {"relu rows=300 dim=100", "x"},
        {"linear rows=29 dim_in=1 dim_out=83 bias=yes act=relu dtype=bf16", "W"},
        {"entmax15 rows=20 columns=63", "x"},
    };
    for (size_t i = 0; i < COUNT(words); i++) {
        differs(words[i][0], words[i][1], 1);
        differs(words[i][0], words[i][1], 1.0001);
    }
}

/* Gradients of 1e-12 of logits near 1e4: most of a difference of them is rounding. */
static void hopeless(void)
{
    static const char words[] = "softmax rows=2 columns=47 scale=1e-06 fill=outliers seed=169795 "
                                "checks=differences repeats=0";
    struct experiment x;
    struct result r;

    if (plan_words(words, &x, stdout)) {
        ok(0, "%s", words);
        return;
    }
    ok(!trial_run(&x, &x.trial[0], &go_on, quiet, NULL, &r) && !r.failed &&
           verdicts_unjudged(&r.verdicts, 0) > 0,
       "a check that cannot be judged is neither passed nor failed");
    result_free(&r);
    plan_free(&x);
}

/* ---- cases that are drawn ---- */

/* How many of the values of choice p of an operation were drawn. */
static int seen_all(const struct op *o, int p, const unsigned *seen)
{
    int n = 0;
    while (o->param[p].choices[n])
        n++;
    return *seen == (1u << n) - 1;
}

static void draws(void)
{
    enum { EACH = 400 };
    for (int i = 0; i < N_OPS; i++) {
        const struct op *o = ops[i];
        struct random r = {.seed = 1, .only = o};
        unsigned seen[MAX_PARAMS] = {0}, types = 0;
        int same = 1, all = 1, e = 0;
        for (int64_t n = 0; !e && n < EACH; n++) {
            struct trial t, again;
            struct experiment x;
            e = random_trial(&r, n, &t) || random_trial(&r, n, &again) ||
                plan_words(t.text, &x, stdout);
            if (e)
                break;
            same &= strcmp(t.text, again.text) == 0 && strcmp(t.text, x.trial[0].text) == 0;
            for (int p = 0; p < o->n_params; p++)
                if (!o->param[p].unless || !o->param[p].unless(&t.sizes))
                    seen[p] |= 1u << t.sizes.choice[p];
            types |= 1u << (t.type == BF16);
            plan_free(&x);
        }
        for (int p = 0; p < o->n_params; p++)
            all &= !o->param[p].choices || seen_all(o, p, &seen[p]);
        ok(!e && same, "%s: a drawn case is the same again, and that of its words", o->name);
        ok(all && types == 3, "%s: %d cases have every choice and storage type", o->name, EACH);
    }
}

/* ---- and made smaller ---- */

static int large(const struct trial *t, void *data)
{
    ++*(int *)data;
    return DIM(&t->sizes, 'R') >= 7 && DIM(&t->sizes, 'N') * DIM(&t->sizes, 'R') >= 30;
}

static void shrinks(void)
{
    struct experiment x;
    int runs = 0;

    if (plan_words("softmax rows=900 columns=700 scale=3", &x, stdout)) {
        ok(0, "the words can be read");
        return;
    }
    struct trial *t = &x.trial[0];
    random_shrink(t, large, &runs);
    const int64_t R = DIM(&t->sizes, 'R'), N = DIM(&t->sizes, 'N');
    ok(R >= 7 && R * N >= 30 && (R - 1 < 7 || (R - 1) * N < 30) && R * (N - 1) < 30,
       "no size can be less: %s", t->text);
    ok(runs < 100 && !strstr(t->text, "scale=3"), "after %d runs, choices and reals as by default",
       runs);
    plan_free(&x);
}

int main(void)
{
    omp_set_num_threads(1); /* thousands of runs, each too small to be shared */
    for (size_t i = 0; i < COUNT(right); i++)
        passes(right[i]);
    jumps();
    hopeless();
    draws();
    shrinks();
    return done();
}
