/* Does the judgement pass right results and fail wrong ones?  Right cases that it once failed, and
 * gradients that are wrong where slopes jump; and the cases that `run-ablation --random` draws. */
#include "config.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/call/cases.h"
#include "common/judge/check.h"
#include "common/run/input.h"
#include "common/run/random_cases.h"
#include "common/run/trial.h"
#include "tests/here.h"
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
    /* the gate's term of dL/dh, which kernels store, and dL/dh_T cancel in the last row */
    "dual_memory preset=e29c tape=shared tape_init=normal checkpoint_dtype=fp32 steps=1 batch=10 "
    "dim=1 "
    "dim_in=2 slots=1 checkpoint_interval=1 clamp=1 dtype=bf16 seed=788975 input=normal",
};

/* All kernels; may checks be without a judgement? */
static void passes(const char *words, int unjudged)
{
    struct experiment x;
    struct result r;

    if (plan_words(words, &x, stdout)) {
        ok(0, "%s", words);
        return;
    }
    x.contexts = here();
    x.repeats = 0;
    x.every_kernel = 1;
    int e = trial_run(&x, &x.trial[0], &go_on, quiet, NULL, &r);
    if (!ok(!e && r.verdicts.n && !r.failed && (unjudged || !verdicts_unjudged(&r.verdicts, 0)),
            "%s", words)) {
        printf("# %s\n", e ? err_text() : "");
        print_bad(&r.verdicts);
    }
    result_free(&r);
    plan_free(&x);
}

/* Right results that are nothing but rounding: they may not fail, but need not be judged. */
static const char *const rounding[] = {
    /* d_S0 has the factor 1 - k^2 with k / (|k| + eps) for k */
    "e74_block state=full proj=no_z nonlin=linear steps=1 batch=1 n_state=1 checkpoint_interval=1 "
    "dim=32 eps=1e-06 seed=589387",
    /* d_U0 and d_W_r have the factor 1 - U^2, where U is nearly 1, and the kernel uses tanh.approx */
    "e74_block state=lowrank proj=no_z checkpoint_dtype=bf16 steps=2 batch=1 n_state=1 rank=1 "
    "checkpoint_interval=1 dim=26 eps=1e-06 dtype=bf16 seed=864694 input=nonzero",
    /* d_x is 0, as the difference of equal terms, one of which FMA rounds and the other not */
    "layernorm rows=1 columns=1 eps=1e-06 seed=270416",
    /* from 456 steps on the state overflows in double */
    "e74_block state=lowrank proj=no_z nonlin=linear steps=468 batch=1 n_state=1 rank=1 "
    "checkpoint_interval=1 dim=1 eps=0.59901011318799424 dtype=bf16 seed=75526 input=nonzero",
    /* as the first, of d_W_k */
    "e74_block state=lowrank proj=no_z trajectory=store checkpoint_dtype=bf16 steps=32 batch=1 "
    "heads=10 n_state=1 rank=1 dim=1 eps=1e-06 dtype=bf16 seed=194528 input=nonzero",
};

/* ---- noise in the oracle ---- */

/* The largest distance of a result from the exact one; -1 where it could not be run. */
static double disturbed(const struct op *o, const struct call *f, const struct tensors *inputs,
                        const struct tensors *exact, struct noise noise)
{
    struct run c = {.call = call_on(f, &ref64, NULL, NULL), .noise = noise};
    c.call.kernel = op_kernel(o, &ref64, 0);
    struct tensors *t = run_copy(&c, inputs, NULL);
    double most = t ? 0 : -1;

    FOR_RESULTS (f, i, grad)
        if (t)
            most = fmax(most, distance(tensors_result(t, i, grad), tensors_result(exact, i, grad),
                                       op_count(f, i))
                                  .max);
    tensors_free(t);
    return most;
}

/* Noise moves the results by its size, and in the next run there is none. */
static void noisy(const char *name, const char *sizes, int loads, int specials)
{
    const struct op *o = op_find(name);
    const float unit = 0x1p-20f;
    struct call f;
    int e = cases_one(o, sizes, &f);
    struct tensors *inputs = e ? NULL : tensors_new(&f), *exact = NULL;
    struct run c = {.call = call_on(&f, &ref64, op_kernel(o, &ref64, 0), NULL)};

    if (inputs) {
        tensors_draw(inputs, &f, 1, 1);
        exact = run_copy(&c, inputs, NULL);
    }
    if (exact) {
        double stored = disturbed(o, &f, inputs, exact, (struct noise){unit, 0, 0, 1});
        double loaded = disturbed(o, &f, inputs, exact, (struct noise){0, unit, 0, 1});
        double special = disturbed(o, &f, inputs, exact, (struct noise){0, 0, unit, 1});
        double none = disturbed(o, &f, inputs, exact, (struct noise){.key = 1});
        ok(stored > unit / 4 && stored < 256 * unit, "%s: stored values off by %g: %g", name, unit,
           stored);
        ok(loads ? loaded > unit / 64 && loaded < 256 * unit : loaded == 0,
           "%s: loaded values off by %g: %g", name, unit, loaded);
        ok(specials ? special > unit / 64 && special < 256 * unit : special == 0,
           "%s: special functions off by %g: %g", name, unit, special);
        ok(none == 0, "%s: no noise is left", name);
    } else
        ok(0, "%s: %s", name, err_text());
    tensors_free(inputs);
    tensors_free(exact);
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
    struct tensors *inputs = tensors_new(&t->call);
    struct run c = {.call = call_on(&t->call, &ref64, NULL, NULL)};
    c.call.kernel = op_kernel(t->call.op, &ref64, 0);
    int arg = op_arg(t->call.op, tensor), e = !inputs || input_fill(t, inputs, NULL);
    const struct call rounded = call_on(&t->call, reference_of(t->type), NULL, NULL);
    if (!e)
        tensors_round(inputs, &rounded);
    e = e || run_op(&c, inputs, NULL);
    for (int64_t i = 0; !e && i < op_count(&t->call, arg); i++)
        inputs->g[arg][i] *= factor;
    e = e || check_differences(&t->call, inputs, 0, 2, NULL, &list);
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
    x.contexts = here();
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
        unsigned seen[MAX_PARAMS] = {0}, types = 0, adds = 0;
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
                if (!o->param[p].unless || !o->param[p].unless(&t.call))
                    seen[p] |= 1u << t.call.choice[p];
            types |= 1u << (t.type == BF16);
            adds |= 1u << t.accumulate;
            plan_free(&x);
        }
        for (int p = 0; p < o->n_params; p++)
            all &= !o->param[p].choices || seen_all(o, p, &seen[p]);
        ok(!e && same, "%s: a drawn case is the same again, and that of its words", o->name);
        ok(all && types == 3, "%s: %d cases have every choice and storage type", o->name, EACH);
        ok(adds == (op_has_gradients(o) ? 3 : 1), "%s: some add to gradients, if there are any",
           o->name);
    }
}

/* ---- and made smaller ---- */

static int large(const struct trial *t, void *data)
{
    ++*(int *)data;
    return DIM(&t->call, 'R') >= 7 && DIM(&t->call, 'N') * DIM(&t->call, 'R') >= 30;
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
    const int64_t R = DIM(&t->call, 'R'), N = DIM(&t->call, 'N');
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
        passes(right[i], 0);
    for (size_t i = 0; i < COUNT(rounding); i++)
        passes(rounding[i], 1);
    noisy("gemm", "M=33 N=20 K=17", 1, 0);
    noisy("linear", "rows=30 dim_in=9 dim_out=21 bias=yes", 1, 0);
    noisy("softmax", "rows=9 columns=40", 1, 1);
    noisy("softmax", "rows=9 columns=40 fill=masked", 1, 1);
    noisy("entmax15", "rows=9 columns=40 fill=masked", 1, 1);
    noisy("cross_entropy", "rows=9 vocabulary=40", 1, 1);
    noisy("e74_cell", "steps=9 batch=3 n_state=8", 1, 1);
    noisy("e74", "steps=9 batch=3 n_state=8 dim=12", 1, 1);
    noisy("dual_memory", "steps=9 batch=3 dim=8 slots=4", 1, 1);
    jumps();
    hopeless();
    draws();
    shrinks();
    return done();
}
