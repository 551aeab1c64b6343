/* Runs one trial of a plan and judges it (trial.h). */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "common/call/ahead.h"
#include "common/call/transfer.h"
#include "common/judge/calls.h"
#include "common/run/time_trial.h"
#include "common/run/train_trial.h"
#include "common/run/trial.h"

/* The kernel that the trial names, or the first that accepts the case; NULL
 * and the reason where there is none. */
static const struct impl *choose(const struct task *task, const struct backend *b, char *why,
                                 size_t size)
{
    const struct trial *t = task->t;
    const char *name = is_judged(b) && *t->kernel ? t->kernel : NULL;
    const struct call on = trial_on(task->x, t, b, NULL);
    const struct chosen c = impl_choose(&on, name);

    if (!c.kernel && !c.last)
        snprintf(why, size, "%s has no kernel%s%s", t->call.op->name, name ? " " : "",
                 name ? name : "");
    else if (!c.kernel)
        snprintf(why, size, "kernel %s declines: %s", c.last->name, c.why);
    return c.kernel;
}

static int run_on(const struct task *task, const struct backend *b, const struct impl *k)
{
    struct result *r = task->r;
    const int judged = is_judged(b);
    const struct run c = {.call = trial_on(task->x, task->t, b, k),
                          .repeats = task->x->repeats,
                          .ahead = judged ? task->ahead : NULL};

    if (c.repeats) /* nothing is copied while it is timed */
        ahead_wait(task->ahead);
    return ran_run(&r->ran[r->n_ran++], &c, r->inputs);
}

/* Parity, for a backend that is judged; properties for it and the yardstick. */
static int judge(const struct task *task, const struct ran *ran, struct truth *truth)
{
    struct result *r = task->r;
    int checks = task->x->checks;
    struct bounds bounds;
    const struct run c = {.call = ran->call};

    bounds_from(&bounds, &ran->call, truth);
    bounds.thorough = !!(checks & CHECK_POWER);
    if (checks & CHECK_PARITY && ran != &r->ran[YARDSTICK] &&
        check_parity(ran->t, &bounds, &r->verdicts))
        return -1;
    if (checks & CHECK_PARITY && ran != &r->ran[YARDSTICK] && is_program(ran->call.op)) {
        task->step("its calls", task->data);
        if (check_calls(&ran->call, ran->t, task->t->seed, &r->verdicts))
            return -1;
    }
    if (!(checks & CHECK_PROPERTIES))
        return 0;
    task->step("properties", task->data);
    return check_properties(&c, r->inputs, &bounds, &r->verdicts);
}

/* What would pass, by the bounds of a kernel that declares nothing. */
static int find_passing(const struct task *task, struct truth *truth)
{
    struct passing p;
    struct bounds bounds;

    if (!(task->x->checks & CHECK_POWER) || *task->stop)
        return 0;
    if (op_reference_work(&task->t->call) > PASSING_WORK) {
        result_skip(task->r, "what would pass", "over 10^9 FLOP: ask of a smaller case");
        return 0;
    }
    task->step("what would pass", task->data);
    bounds_from(&bounds, &truth->call, truth);
    const struct results all = results_of(&truth->call);
    const int e = passing_find(&bounds, &all, task->t->seed, task->stop, &p) ||
                  check_parity(truth->yard, &bounds, &task->r->seen) ||
                  !(task->r->passing = lines_text(&p.pass));
    passing_free(&p);
    return e ? -1 : 0;
}

static int judge_all(const struct task *task)
{
    const struct result *r = task->r;
    struct truth truth = result_truth(r);

    if (!(task->x->checks & (CHECK_PARITY | CHECK_PROPERTIES | CHECK_POWER)))
        return 0;
    task->step("roundings", task->data);
    int e = truth_begin(&truth);
    for (int i = YARDSTICK; !e && i < r->n_ran && !*task->stop; i++)
        e = judge(task, &r->ran[i], &truth);
    e = e || find_passing(task, &truth);
    truth_end(&truth);
    return e;
}

/* Every kernel of b that accepts the case; *n becomes how many do. */
static int run_each(const struct task *task, const struct backend *b, int *n)
{
    const struct trial *t = task->t;
    const struct call on = trial_on(task->x, t, b, NULL);
    const struct impl *ordered[MAX_KERNELS + 1];

    impl_order(&on, ordered);
    for (const struct impl *const *k = ordered; *k && !*task->stop; k++) {
        const struct call f = trial_on(task->x, t, b, *k);
        if (impl_declines(&f))
            continue;
        if (task->r->n_ran == MAX_RAN)
            return err_set("more than %d kernels", MAX_RAN);
        if (run_on(task, b, *k))
            return -1;
        ++*n;
    }
    return 0;
}

/* On one backend: with the first kernel that accepts the case, or with every
 * one; *judged becomes how many do that are to be judged. */
static int run_backend(const struct task *task, const struct backend *b, int *judged)
{
    const struct trial *t = task->t;
    char why[200];
    const char *no = backend_unavailable(task->x->contexts, b);
    const struct impl *k = no ? NULL : choose(task, b, why, sizeof why);

    if (!k && !is_judged(b))
        return err_set("%s: %s", b->name, no ? no : why);
    if (!k) {
        result_skip(task->r, b->name, no ? no : why);
        return 0;
    }
    task->step(b->name, task->data);
    if (task->x->every_kernel && is_judged(b) && !*t->kernel)
        return run_each(task, b, judged);
    *judged += is_judged(b);
    return run_on(task, b, k);
}

/* Sends the inputs to the device on which they will be judged, while the references run. */
static struct ahead *send_ahead(const struct task *task)
{
    const struct backend *list[16];
    char why[200];
    const int n = task->x->overlap ? plan_backends(task->x, task->t, list) : 0;

    for (int i = 0; i < n; i++) {
        if (!is_judged(list[i]) || backend_unavailable(task->x->contexts, list[i]))
            continue;
        const struct impl *k = choose(task, list[i], why, sizeof why);
        const struct call f = trial_on(task->x, task->t, list[i], k);
        return k ? ahead_begin(&f, task->r->inputs) : NULL;
    }
    return NULL;
}

/* The backends from `first` on, in the list of n. */
static int run_list(const struct task *task, const struct backend *const *list, int first, int n,
                    int *judged)
{
    for (int i = first; i < n; i++) {
        if (*task->stop)
            return err_set("interrupted");
        if (run_backend(task, list[i], judged))
            return -1;
    }
    return 0;
}

/* Of the oracle's gradients; nothing is timed meanwhile, so that copies go on beside it. */
static int differences(struct task *task)
{
    struct result *r = task->r;

    if (!(task->x->checks & CHECK_DIFFERENCES))
        return 0;
    if (!task->ahead)
        task->ahead = send_ahead(task);
    task->step("differences", task->data);
    return check_differences(&task->t->call, r->ran[ORACLE].t, 0, task->x->directions, task->stop,
                             &r->verdicts);
}

static int run_all(struct task *task)
{
    const struct experiment *x = task->x;
    struct result *r = task->r;
    const struct backend *list[16];
    const int n = plan_backends(x, task->t, list);
    int judged = 0;

    if (run_list(task, list, 0, YARDSTICK + 1, &judged) || differences(task) ||
        run_list(task, list, YARDSTICK + 1, n, &judged))
        return -1;
    if (x->checks & CHECK_PARITY && !judged && !r->skipped)
        result_skip(r, "parity", "no GPU backend was asked for");
    if (judge_all(task))
        return -1;
    return *task->stop ? err_set("interrupted") : 0;
}

/* Parity on a sample, of what runs on a GPU. */
static int run_sampled(const struct task *task)
{
    struct result *r = task->r;
    const struct backend *list[16];
    int n = plan_backends(task->x, task->t, list), judged = 0, e = 0;

    result_no_references(r);
    for (int i = YARDSTICK + 1; !e && i < n && !*task->stop; i++)
        e = run_backend(task, list[i], &judged);
    if (!e && !judged && !r->skipped)
        result_skip(r, "parity", "no GPU backend was asked for");
    if (!e && judged && !*task->stop && task->x->checks & CHECK_PARITY) {
        task->step("references, on a sample", task->data);
        e = result_sample(r);
        const struct judge j = {.sampled = r->sampled};
        for (int i = YARDSTICK + 1; !e && i < r->n_ran; i++)
            e = check_ran(&j, &r->ran[i].call, r->ran[i].t, &r->verdicts);
    }
    return !e && *task->stop ? err_set("interrupted") : e;
}

/* Once its inputs are there. */
static int carry_out(struct task *task)
{
    const double before = transfer_spent();

    /* in a check the references are timed, too; of a sample they come last */
    if (task->x->measure == MEASURE_TIME || (!task->x->repeats && !task->t->sampled))
        task->ahead = send_ahead(task);
    const int e = task->x->measure == MEASURE_TIME ? timing_run(task)
                  : task->t->sampled               ? run_sampled(task)
                                                   : run_all(task);
    const struct ahead_times times = ahead_end(task->ahead);
    task->ahead = NULL;
    task->r->copies = transfer_spent() - before + times.worked;
    task->r->hidden = times.hidden;
    return e;
}

static int run_trial(struct task *task)
{
    const struct experiment *x = task->x;
    const struct trial *t = task->t;
    struct result *r = task->r;

    if (x->measure == MEASURE_CROSSOVER)
        return crossover_run(task);
    if (x->measure == MEASURE_TRAIN)
        return training_run(task);
    struct tensors *inputs = r->inputs = tensors_new(&t->call);
    if (!inputs)
        return -1;
    task->step("inputs", task->data);
    if (input_fill(t, inputs, &r->from))
        return TRIAL_BAD_INPUT;
    const struct call rounded = call_on(&t->call, reference_of(t->type), NULL, NULL);
    tensors_round(inputs, &rounded);
    if (x->inputs_only)
        return 0;
    int e = carry_out(task);
    if (!e && x->measure == MEASURE_CHECK && t->call.op->inverse) {
        task->step("the way back", task->data);
        e = result_round_trips(r, inputs, task->stop);
    }
    r->failed = verdicts_failed(&r->verdicts, 0);
    return !e && *task->stop ? err_set("interrupted") : e;
}

int trial_run(const struct experiment *x, const struct trial *t, const volatile int *stop,
              trial_step *step, void *data, struct result *r)
{
    struct task task = {x, t, stop, step, data, r, NULL};

    *r = (struct result){.trial = t};
    const int e = run_trial(&task);
    result_find_device(r, x);
    return e;
}
