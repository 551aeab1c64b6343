/* Times: their summary, the replay of passes, and the comparison with the times of an earlier
 * run. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/call/cases.h"
#include "common/report/baseline.h"
#include "common/run/trial.h"
#include "common/store/store.h"
#include "tests/here.h"
#include "tests/tap.h"

/* ---- a backend whose clock is the test's, and which replays passes ---- */

enum { RUNS = 5 };

/* Median 4, distances from it 1, 3, 5, 2, 0.  A replayed run takes these times, a direct one ten
 * times as long; ran counts both. */
static const double ticks[RUNS] = {5, 1, 9, 2, 4};
static int ran[2], recorded, replayed, forgotten, fails;
static double unit;

static enum pass the_pass;
static const struct call *the_call;

static int counted_stop(struct context *x, double *seconds)
{
    (void)x;
    *seconds = unit * ticks[ran[unit == 1]++ % RUNS];
    return 0;
}

static int direct_start(struct context *x)
{
    (void)x;
    unit = 10; /* unless replay() says otherwise */
    return 0;
}

static int record(const struct pass_of *list, int n, void **to)
{
    the_call = list->call;
    the_pass = list->pass;
    fails |= n != 1;
    recorded++;
    *to = &the_pass;
    return fails;
}

static int replay(struct context *x, void *from)
{
    (void)x;
    unit = 1;
    replayed++;
    return from == &the_pass ? call_pass(the_call, the_pass) : 1;
}

static void forget(void *from)
{
    forgotten += from == &the_pass;
}

static void replays(void)
{
    struct machine m = cpu;
    const struct backend b = {"ref32", NULL, &m, F32, F32};
    const struct op *o = op_find("linear");
    struct call f;
    struct outcome out;

    cases_one(o, "rows=3 dim_in=4 dim_out=5", &f);
    struct tensors *t = tensors_new(&f);
    tensors_draw(t, &f, 1, 1);
    m.timing.start = direct_start, m.timing.stop = counted_stop;
    struct run c = {.call = call_here(&f, &b, op_kernel(o, &ref32, 0)), .repeats = RUNS};

    ran[0] = RUNS - 1; /* the first run is not timed */
    c.forward_only = 1;
    ok(run_op(&c, t, &out) == 0 && out.median[FORWARD] == 40 && out.min[FORWARD] == 10 &&
           out.max[FORWARD] == 90 && out.spread[FORWARD] == 20 && out.runs[FORWARD] == RUNS &&
           out.no_graph[FORWARD] == 40,
       "median, ends and spread of the timed runs");

    m.timing.record = record, m.timing.replay = replay, m.timing.forget = forget;
    ran[0] = RUNS - 1, ran[1] = RUNS;
    ok(run_op(&c, t, &out) == 0 && out.median[FORWARD] == 4 && out.spread[FORWARD] == 2 &&
           out.no_graph[FORWARD] == 40 && ran[0] == 2 * RUNS && ran[1] == 2 * RUNS,
       "a pass that can be recorded is timed by replays, and plainly beside them");
    ok(recorded == 1 && replayed == RUNS && forgotten == 1, "it is recorded once, then forgotten");
    c.repeats = 0;
    ok(run_op(&c, t, &out) == 0 && recorded == 1 && out.runs[FORWARD] == 0,
       "a pass that is not timed is not recorded");
    c.repeats = RUNS, fails = 1;
    ok(run_op(&c, t, &out) != 0 && recorded == 2 && replayed == RUNS &&
           strstr(err_text(), "forward, cannot be recorded as a graph: "),
       "a pass that cannot be recorded is an error: %s", err_text());
    tensors_free(t);
}

/* The references' machine as one whose passes are recorded; nothing has been replayed. */
static struct machine recording(void)
{
    struct machine m = cpu;

    m.timing.start = direct_start, m.timing.stop = counted_stop;
    m.timing.record = record, m.timing.replay = replay, m.timing.forget = forget;
    fails = replayed = 0;
    return m;
}

/* Timed runs add to the gradients, too; those that are read have had one, and that a replay. */
static void accumulates(void)
{
    const struct op *o = op_find("linear");
    const struct machine m = recording();
    const struct backend b = {"ref32", NULL, &m, F32, F32};
    struct call f;
    int same = 1;

    cases_one(o, "rows=3 dim_in=4 dim_out=5", &f);
    f.accumulate = op_gradients(o);
    struct run c = {.call = call_here(&f, &b, op_kernel(o, &ref32, 0)), .repeats = RUNS}, alone = c;
    struct tensors *t = tensors_new(&c.call);
    tensors_draw(t, &c.call, 1, 1);
    tensors_round(t, &c.call);
    alone.call.accumulate = set_none();
    alone.repeats = 0;
    struct tensors *of_one = run_copy(&alone, t, NULL);
    int e = !of_one || run_op(&c, t, NULL);
    for (int i = 0; !e && i < o->n_args; i++)
        for (int64_t j = 0; t->g0[i] && j < op_count(&f, i); j++)
            same &= t->g[i][j] == (double)((float)t->g0[i][j] + (float)of_one->g[i][j]);
    ok(!e && same, "gradients that were added to in many timed runs");
    ok(replayed == 2 * RUNS + 1, "are those of one replay: of %d", replayed);
    tensors_free(of_one);
    tensors_free(t);
}

/* Timed runs overwrite inputs, too; what is read comes from those that were given. */
static void overwrites(void)
{
    const struct op *o = op_find("adamw");
    const struct machine m = recording();
    const struct backend b = {"ref32", NULL, &m, F32, F32};
    struct call f;
    int same = 1;

    cases_one(o, "parameters=7", &f);
    struct run alone = {.call = call_here(&f, &b, op_kernel(o, &ref32, 0))}, c = alone;
    struct tensors *t = tensors_new(&c.call);
    tensors_draw(t, &c.call, 1, 1);
    tensors_round(t, &c.call);
    c.call.in_place = 1, c.repeats = RUNS;
    struct tensors *of_one = run_copy(&alone, t, NULL);
    int e = !of_one || run_op(&c, t, NULL);
    for (int i = 0; !e && i < o->n_args; i++)
        for (int64_t j = 0; o->arg[i].flags & OUT && j < op_count(&f, i); j++)
            same &= t->x[i][j] == of_one->x[i][j];
    ok(!e && same && replayed == RUNS + 1, "outputs in place after many timed runs, of %d replays",
       replayed);
    tensors_free(of_one);
    tensors_free(t);
}

/* ---- two times ---- */

static struct timing timing(double median, double spread, int runs)
{
    struct timing t = {.median = median, .spread = spread, .runs = runs};
    strcpy(t.backend, "gpu32");
    strcpy(t.kernel, "rows");
    strcpy(t.pass, "forward");
    strcpy(t.method, "L2 flushed");
    return t;
}

static void judged(const char *name, struct timing was, struct timing is, double threshold,
                   enum pace expected)
{
    struct comparison c = compare_times(&was, &is, threshold);
    if (!ok(c.pace == expected && (c.pace == NOT_COMPARED) == (c.why != NULL), "%s", name))
        printf("# pace %d, expected %d, limit %g\n", c.pace, expected, c.limit);
}

static void pairs(void)
{
    const double sigma = 1.4826;
    struct timing other = timing(100, 0, 5);
    strcpy(other.method, "L2 flushed, graph replay");

    judged("the same", timing(100, 1, 5), timing(100, 1, 5), .05, AS_BEFORE);
    judged("4.9 % slower", timing(100, 0, 5), timing(104.9, 0, 5), .05, AS_BEFORE);
    judged("5.1 % slower", timing(100, 0, 5), timing(105.1, 0, 5), .05, SLOWER);
    judged("4.9 % faster", timing(100, 0, 5), timing(95.1, 0, 5), .05, AS_BEFORE);
    judged("5.1 % faster", timing(100, 0, 5), timing(94.9, 0, 5), .05, FASTER);
    judged("5.1 % slower, where 6 % may be", timing(100, 0, 5), timing(105.1, 0, 5), .06,
           AS_BEFORE);
    judged("any slower, where none may be", timing(100, 0, 5), timing(100.1, 0, 5), 0, SLOWER);
    judged("20 % slower, within the noise of then", timing(100, 5, 5), timing(120, 0, 5), .05,
           AS_BEFORE);
    judged("20 % slower, within the noise of now", timing(100, 0, 5), timing(120, 5, 5), .05,
           AS_BEFORE);
    judged("20 % faster, within the noise", timing(100, 5, 5), timing(80, 0, 5), .05, AS_BEFORE);
    judged("25 % slower, over the noise", timing(100, 5, 5), timing(125, 0, 5), .05, SLOWER);
    judged("25 % slower, within that of both", timing(100, 5, 5), timing(125, 5, 5), .05,
           AS_BEFORE);
    judged("25 % faster, over the noise", timing(100, 5, 5), timing(75, 0, 5), .05, FASTER);
    judged("one run has no noise", timing(100, 0, 1), timing(200, 0, 5), .05, NOT_COMPARED);
    judged("nor do two", timing(100, 0, 5), timing(200, 0, 2), .05, NOT_COMPARED);
    judged("times taken in another way", other, timing(100, 0, 5), .05, NOT_COMPARED);
    judged("a time that is none", timing(100, 0, 5), timing(NAN, 0, 5), .05, NOT_COMPARED);

    struct timing was = timing(100, 3, 9), is = timing(100, 4, 9);
    struct comparison c = compare_times(&was, &is, .05);
    ok(fabs(c.noise - 3 * sigma * 5) < 1e-9 && c.limit == c.noise, "noise is that of both runs");
}

/* ---- devices ---- */

static void devices(void)
{
    static const char gpu[] = "NVIDIA H200, capability 9.0, 132 multiprocessors at 1980 MHz "
                              "(measured), memory at 3201 MHz, driver 580.95.05, CUDA 13.0";
    static const struct {
        const char *name, *text;
        int same;
    } other[] = {
        {"itself", gpu, 1},
        {"with another driver",
         "NVIDIA H200, capability 9.0, 132 multiprocessors at 1980 MHz (measured), memory at "
         "3201 MHz, driver 575.1, CUDA 12.9",
         1},
        {"with its clock within 1 %",
         "NVIDIA H200, capability 9.0, 132 multiprocessors at 1969 MHz (measured), memory at "
         "3201 MHz, driver 580.95.05, CUDA 13.0",
         1},
        {"with a slower clock",
         "NVIDIA H200, capability 9.0, 132 multiprocessors at 1755 MHz (measured), memory at "
         "3201 MHz, driver 580.95.05, CUDA 13.0",
         0},
        {"with slower memory",
         "NVIDIA H200, capability 9.0, 132 multiprocessors at 1980 MHz (measured), memory at "
         "2619 MHz, driver 580.95.05, CUDA 13.0",
         0},
        {"with fewer multiprocessors",
         "NVIDIA H200, capability 9.0, 131 multiprocessors at 1980 MHz (measured), memory at "
         "3201 MHz, driver 580.95.05, CUDA 13.0",
         0},
        {"of another name",
         "NVIDIA H100, capability 9.0, 132 multiprocessors at 1980 MHz (measured), memory at "
         "3201 MHz, driver 580.95.05, CUDA 13.0",
         0},
        {"cut short", "NVIDIA H200, capability 9.0", 0},
    };
    for (size_t i = 0; i < COUNT(other); i++)
        ok(same_device(gpu, other[i].text) == other[i].same &&
               same_device(other[i].text, gpu) == other[i].same,
           "a device and one %s", other[i].name);
    ok(same_device("AMD EPYC, 2 cores", "AMD EPYC, 2 cores") &&
           !same_device("AMD EPYC, 2 cores", "AMD EPYC, 20 cores"),
       "a device without clocks");
}

/* ---- a file ---- */

static char file[256];

/* Write a file of one trial whose times are median and spread. */
static int write_file(const char *words, double median, double spread)
{
    static const volatile int go_on = 0;
    struct experiment x;
    struct result r;

    if (plan_words(words, &x, stdout))
        return -1;
    x.contexts = here();
    snprintf(x.output, sizeof x.output, "%s", file);
    struct store *s = store_open(&x, STORE_REPLACE);
    int e = !s || trial_run(&x, &x.trial[0], &go_on, no_step, NULL, &r);
    for (int i = 0; !e && i < r.n_ran; i++)
        for (int p = 0; p < N_PASSES; p++) {
            r.ran[i].outcome.median[p] = median;
            r.ran[i].outcome.spread[p] = spread;
            r.ran[i].outcome.runs[p] = 5;
        }
    e = e || store_write(s, 0, &r) || store_close(s, 1);
    result_free(&r);
    plan_free(&x);
    if (e)
        printf("# %s\n", err_text());
    return e;
}

static const char *pace_of(const struct comparison *list, int n, const char *kernel, int pass)
{
    static const char *const pass_name[] = {"forward", "backward"};
    static const char *const pace[] = {[AS_BEFORE] = "as before", "slower", "faster", "skipped"};
    for (int i = 0; i < n; i++) {
        const struct timing *t = list[i].is.runs ? &list[i].is : &list[i].was;
        if (strcmp(t->backend, "ref32") == 0 && strcmp(t->kernel, kernel) == 0 &&
            strcmp(t->pass, pass_name[pass]) == 0)
            return pace[list[i].pace];
    }
    return "nothing";
}

/* A trial's times now, of the yardstick alone. */
static struct timing now_timing[2];

static struct timings now(const char *line, double forward, const char *kernel)
{
    struct timings t = {.timing = now_timing, .n = 2};
    snprintf(t.line, sizeof t.line, "%s", line);
    for (int p = 0; p < 2; p++) {
        now_timing[p] = timing(p ? 100 : forward, 1, 5);
        strcpy(now_timing[p].backend, "ref32");
        snprintf(now_timing[p].kernel, sizeof now_timing[p].kernel, "%s", kernel);
        strcpy(now_timing[p].pass, p ? "backward" : "forward");
        snprintf(now_timing[p].method, sizeof now_timing[p].method, "%s",
                 ref32.machine->timing.method);
    }
    return t;
}

/* Times of the trial `line` and of others, compared with those in `file`. */
static void comparisons(const char *device, const char *line, const char *kernel)
{
    struct comparison *list;
    struct baseline *b = baseline_open(file, .05, device);
    if (!ok(b != NULL, "a file of times is a baseline"))
        return;

    struct timings t = now(line, 120, kernel);
    int n = baseline_compare(b, &t, &list);
    ok(n == 4 && strcmp(pace_of(list, n, kernel, FORWARD), "slower") == 0 &&
           strcmp(pace_of(list, n, kernel, BACKWARD), "as before") == 0,
       "slower forward, and backward as before");
    ok(list[2].pace == NOT_COMPARED && strcmp(list[2].was.backend, "ref64") == 0 &&
           !list[2].is.runs,
       "a time that is in the baseline alone is not compared");
    free(list);

    t = now(line, 80, kernel);
    n = baseline_compare(b, &t, &list);
    ok(strcmp(pace_of(list, n, kernel, FORWARD), "faster") == 0, "faster forward");
    free(list);

    t = now(line, 120, "new");
    n = baseline_compare(b, &t, &list);
    ok(n == 6 && strcmp(pace_of(list, n, "new", FORWARD), "skipped") == 0 &&
           strcmp(pace_of(list, n, kernel, FORWARD), "skipped") == 0,
       "another kernel has no counterpart, and the one that was is not compared");
    free(list);

    char with_goals[MAX_LINE + 80];
    snprintf(with_goals, sizeof with_goals,
             "%s measure=time goal=\"90 %% memory\" goal_backward=\"12 us\"", line);
    t = now(with_goals, 120, kernel);
    n = baseline_compare(b, &t, &list);
    ok(n == 4 && strcmp(pace_of(list, n, kernel, FORWARD), "slower") == 0,
       "goals do not change whose times they are");
    free(list);

    t = now("linear rows=4", 120, kernel);
    n = baseline_compare(b, &t, &list);
    ok(n == 2 && list[0].pace == NOT_COMPARED && strstr(list[0].why, "no such trial"),
       "other words have no counterpart");
    free(list);
    baseline_free(b);
}

/* Files that are no baseline for this device. */
static void no_baselines(const char *device)
{
    char other[512];

    snprintf(other, sizeof other, "ref64: %s\nref32: an abacus", backend_device(here(), &ref64));
    ok(!baseline_open(file, .05, other) && strstr(err_text(), "another device's"), "%s",
       err_text());
    ok(!baseline_open(file, .05, "gpu32: a GPU, which this file does not have") &&
           strstr(err_text(), file),
       "%s", err_text());
    ok(!baseline_open("/nowhere/x.h5", .05, device) && strstr(err_text(), "/nowhere/x.h5: "), "%s",
       err_text());
    ok(!baseline_open("/dev/null", .05, device) && strstr(err_text(), "is no HDF5 file"), "%s",
       err_text());
    if (write_file("linear rows=3 dim_in=4 dim_out=5 checks=none repeats=0", 1, 1) == 0)
        ok(!baseline_open(file, .05, device) && strstr(err_text(), "has no times"), "%s",
           err_text());
}

static void files(void)
{
    static const char words[] = "linear rows=3 dim_in=4 dim_out=5 checks=none";
    const char *tmp = getenv("TMPDIR");
    char device[512];
    struct experiment x;

    snprintf(file, sizeof file, "%s/ablate-baseline-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    int fd = mkstemp(file);
    if (fd < 0 || write_file(words, 100, 1) || plan_words(words, &x, stdout)) {
        ok(0, "a file can be made");
        return;
    }
    close(fd);
    snprintf(device, sizeof device, "ref64: %s\nref32: %s", backend_device(here(), &ref64),
             backend_device(here(), &ref32));
    comparisons(device, x.trial[0].text, op_kernel(x.trial[0].call.op, &ref32, 0)->name);
    no_baselines(device);
    plan_free(&x);
    unlink(file);
}

/* The schema before this one, which a baseline may have: tests/ablate-1.h5. */
static void earlier_schema(void)
{
    static const char words[] = "linear rows=2 dim_in=3 dim_out=2 checks=parity";
    const char *source = getenv("srcdir");
    struct comparison *list = NULL;
    struct experiment x;
    int compared = 0;

    snprintf(file, sizeof file, "%s/tests/ablate-1.h5", source ? source : ".");
    struct dump_times *then = dump_times_read(file);
    struct baseline *b = then ? baseline_open(file, .05, then->device) : NULL;
    if (!ok(b && then->n == 1 && then->trial[0].n == 4 && then->trial[0].timing[0].runs == 5 &&
                strcmp(then->trial[0].timing[0].method, ref64.machine->timing.method) == 0,
            "a dump of ablate-1 is a baseline")) {
        printf("# %s\n", err_text());
        return;
    }
    if (plan_words(words, &x, stdout))
        return;
    struct timings t = now(x.trial[0].text, 120, op_kernel(x.trial[0].call.op, &ref32, 0)->name);
    int n = baseline_compare(b, &t, &list);
    for (int i = 0; i < n; i++)
        compared += list[i].pace == SLOWER;
    ok(compared == 2, "and its times are compared");
    free(list);
    plan_free(&x);
    baseline_free(b);
    dump_times_free(then);
}

int main(void)
{
    replays();
    accumulates();
    overwrites();
    pairs();
    devices();
    files();
    earlier_schema();
    return done();
}
