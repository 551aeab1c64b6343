/* Goals, and the choice of the default kernel: from words, and as verdicts on made-up times. */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/err.h"
#include "common/call/cases.h"
#include "common/report/goal_text.h"
#include "common/run/goals.h"
#include "tests/plans.h"

/* ---- made-up results ---- */

enum { RUNS = 5 };
static const struct impl fused = {.name = "fused"}, product = {.name = "product"},
                         third = {.name = "third"};

/* A trial whose kernels have been timed, and the machine: in a second it moves the bytes of forward,
 * and does its FLOPs. */
struct made {
    struct trial t;
    struct ceilings ceilings;
    struct experiment x;
    struct result r;
};

static void made_free(struct made *m)
{
    verdicts_free(&m->r.verdicts);
}

/* Of softmax, with these goals or NULL; no kernel has run. */
static void made_new(struct made *m, const char *forward, const char *backward)
{
    const char *const goal[N_PASSES] = {forward, backward};
    const struct op *o = op_find("softmax");

    memset(m, 0, sizeof *m);
    cases_one(o, "rows=8 columns=16", &m->t.call);
    const struct call on = call_on(&m->t.call, &ref32, NULL, NULL);
    m->t.type = F32;
    for (enum pass p = FORWARD; p < N_PASSES; p++)
        if (goal[p] && goal_read(NULL, goal_keys[p], goal[p], &m->t.goal[p]))
            printf("# %s\n", err_text());
    m->ceilings = (struct ceilings){.memory = op_bytes(&on, FORWARD),
                                    .fp32 = o->flops(&m->t.call, FORWARD),
                                    .tensor = 1,
                                    .special = 1};
    m->x = (struct experiment){.measure = MEASURE_TIME, .ceilings = &m->ceilings, .repeats = RUNS};
    m->r = (struct result){.trial = &m->t};
}

/* One more kernel of gpu32 has run, and takes so long; 0: it failed parity. */
static void add(struct made *m, const struct impl *k, double forward, double backward)
{
    const double seconds[] = {forward, backward};
    struct ran *ran = &m->r.ran[m->r.n_ran++];

    *ran = (struct ran){.call = call_on(&m->t.call, &ref32, NULL, NULL)};
    ran->call.backend = &gpu32;
    ran->call.kernel = k;
    for (enum pass p = FORWARD; p < N_PASSES; p++) {
        ran->outcome.median[p] = seconds[p];
        ran->outcome.runs[p] = seconds[p] > 0 ? RUNS : 0;
    }
}

/* The verdict of that check and pass, or NULL. */
static const struct verdict *verdict_on(const struct made *m, const char *check, enum pass p)
{
    const struct verdict *found = NULL;
    int n = 0;

    for (int i = 0; i < m->r.verdicts.n; i++) {
        const struct verdict *v = &m->r.verdicts.v[i];
        if (strcmp(v->check, check) == 0 && strcmp(v->tensor, pass_names[p]) == 0) {
            found = v;
            n++;
        }
    }
    return n == 1 ? found : NULL;
}

/* Judge, and expect this word of one verdict; "none": there is no such one. */
static const struct verdict *expect_word(struct made *m, const char *what, const char *check,
                                         enum pass p, const char *word)
{
    verdicts_free(&m->r.verdicts);
    m->r.skipped = 0;
    *m->r.skips = 0;
    const int e = goals_judge(&m->x, &m->r);
    const struct verdict *v = verdict_on(m, check, p);
    const char *got = v ? verdict_word(v) : "none";

    if (!ok(!e && strcmp(got, word) == 0, "%s: %s", what, word))
        printf("# %s %s, error %g, bound %g, skipped: %s\n", check, got, v ? v->error : 0,
               v ? v->bound : 0, m->r.skips);
    return v;
}

/* ---- goals ---- */

/* A goal of a pass is reached by a kernel that takes `seconds`, and by none that takes longer. */
static void boundary(const char *goal, enum pass p, double seconds)
{
    struct made m;
    char what[120];

    for (int over = 0; over < 2; over++) {
        const double is = over ? seconds * (1 + 1e-9) : seconds;
        made_new(&m, p == FORWARD ? goal : NULL, p == BACKWARD ? goal : NULL);
        add(&m, &fused, p == FORWARD ? is : 1, p == BACKWARD ? is : 1);
        add(&m, &product, 1.5, 1.5);
        add(&m, &third, 1.25, 1.25);
        snprintf(what, sizeof what, "%s, %s in %.12g s", goal, pass_names[p], is);
        const struct verdict *v = expect_word(&m, what, "goal", p, over ? "fail" : "pass");
        ok(v && v->error == is && fabs(v->bound / seconds - 1) < 1e-12 && v->pass == !over &&
               strcmp(v->kernel, "fused") == 0 && strcmp(v->backend, "gpu32") == 0 &&
               !verdict_on(&m, "goal", p == FORWARD ? BACKWARD : FORWARD) && !m.r.skipped,
           "it is the default's, and of that pass alone");
        made_free(&m);
    }
}

static void boundaries(void)
{
    struct made m;

    made_new(&m, NULL, NULL);
    const struct op *o = m.t.call.op;
    const struct call on = call_on(&m.t.call, &ref32, NULL, NULL);
    const double bytes = op_bytes(&on, BACKWARD) / op_bytes(&on, FORWARD);
    const double flops = o->flops(&m.t.call, BACKWARD) / o->flops(&m.t.call, FORWARD);
    const double specials = o->specials(&m.t.call, FORWARD);
    made_free(&m);
    boundary("80 % memory", FORWARD, 1.25);
    boundary("80 % memory", BACKWARD, bytes / .8);
    boundary("50 % fp32", FORWARD, 2);
    boundary("200 % fp32", BACKWARD, flops / 2);
    boundary("100 % special", FORWARD, specials);
    boundary("3 s", FORWARD, 3);
    boundary("12 us", BACKWARD, 12e-6);
    boundary("250 ns", FORWARD, 250e-9);
    boundary("0.5 ms", BACKWARD, .5e-3);
    boundary("80 % best", FORWARD, 1.25 / .8);
    boundary("50 % best", BACKWARD, 2.5);
    boundary("80 % product", FORWARD, 1.5 / .8);
    boundary("120 % product", BACKWARD, 1.25);
}

/* The default is judged, whichever is fastest; with `kernel`, that one. */
static void judged_kernel(void)
{
    struct made m;

    made_new(&m, "2 s", NULL);
    add(&m, &fused, 3, 3);
    add(&m, &product, 1, 1);
    const struct verdict *v = expect_word(&m, "the default is slow", "goal", FORWARD, "fail");
    ok(v && strcmp(v->kernel, "fused") == 0, "and another kernel's time is not taken for it");
    m.x.goals_reported = 1;
    v = expect_word(&m, "with --goals report", "goal", FORWARD, "missed");
    ok(v && v->pass && verdicts_missed(&m.r.verdicts) == 3 && !verdicts_failed(&m.r.verdicts, 0) &&
           !verdicts_unjudged(&m.r.verdicts, 0),
       "which is not failed, and counted apart");
    made_free(&m);

    made_new(&m, "2 s", NULL);
    strcpy(m.t.kernel, "product");
    add(&m, &product, 1, 1);
    v = expect_word(&m, "kernel = product", "goal", FORWARD, "pass");
    ok(v && strcmp(v->kernel, "product") == 0, "it is judged");
    made_free(&m);

    made_new(&m, "90 % best", NULL);
    add(&m, &fused, 1, 1);
    expect_word(&m, "90 % best of one kernel", "goal", FORWARD, "pass");
    made_free(&m);
}

/* Skipped, once for the goal of forward, with this reason. */
static void skipped(struct made *m, const char *what, const char *reason)
{
    char line[300];

    expect_word(m, what, "goal", FORWARD, "none");
    snprintf(line, sizeof line, "goal: %s\n", reason);
    if (!ok(m->r.skipped == 1 && strcmp(m->r.skips, line) == 0, "skipped: %s", reason))
        printf("# %d: %s\n", m->r.skipped, m->r.skips);
    made_free(m);
}

static void not_judged(void)
{
    struct made m;

    made_new(&m, "2 s", NULL);
    skipped(&m, "no GPU", "no kernel ran on a GPU");
    made_new(&m, "80 % memory", NULL);
    add(&m, &fused, 1, 1);
    m.x.ceilings = NULL;
    m.x.no_ceilings = "gpu32: no probes";
    skipped(&m, "no ceilings", "no ceilings measured (gpu32: no probes)");
    made_new(&m, "80 % tensor", NULL);
    add(&m, &fused, 1, 1);
    skipped(&m, "without matrix products",
            "the ceiling tensor does not apply to forward of softmax");
    made_new(&m, "80 % latency", NULL);
    add(&m, &fused, 1, 1);
    skipped(&m, "without a recurrence", "the ceiling latency does not apply to forward of softmax");
    made_new(&m, "2 s", NULL);
    add(&m, &fused, 0, 0);
    add(&m, &product, 1, 1);
    skipped(&m, "a default that is wrong", "gpu32 fused failed parity and has no time");
    made_new(&m, "80 % product", NULL);
    add(&m, &fused, 1, 1);
    add(&m, &product, 0, 0);
    skipped(&m, "beside a kernel that is wrong", "gpu32 product failed parity and has no time");
    made_new(&m, "80 % product", NULL);
    add(&m, &fused, 1, 1);
    result_decline(&m.r, &gpu32, &product, "too wide");
    skipped(&m, "beside a kernel that declines", "gpu32 product declines: too wide");
    made_new(&m, "80 % nothing", NULL);
    add(&m, &fused, 1, 1);
    skipped(&m, "beside a kernel that is not there", "gpu32 nothing was not timed");
    made_new(&m, "2 s", NULL);
    result_decline(&m.r, &gpu32, &product, "too wide");
    skipped(&m, "all decline", "gpu32: all kernels decline");
    made_new(&m, "2 s", NULL);
    strcpy(m.t.kernel, "product");
    result_decline(&m.r, &gpu32, &product, "too wide");
    skipped(&m, "the named one declines", "gpu32 product declines: too wide");
    made_new(&m, "90 % best", NULL);
    strcpy(m.t.kernel, "product");
    add(&m, &product, 1, 1);
    skipped(&m, "the best of one that is named", "kernel = product: no other was timed");
}

/* ---- the default ---- */

static void defaults(const char *what, double first, double spread, const char *word)
{
    struct made m;

    made_new(&m, NULL, NULL);
    add(&m, &fused, first, 1);
    add(&m, &product, 1, first);
    add(&m, &third, 4, 4);
    m.r.ran[0].outcome.spread[FORWARD] = m.r.ran[1].outcome.spread[FORWARD] = spread;
    const struct verdict *v = expect_word(&m, what, "default", FORWARD, word);
    ok(v && v->error == first && strcmp(v->kernel, "fused") == 0 &&
           (!spread || fabs(v->bound - 1 - 3 * 1.4826 * sqrt(2) * spread) < 1e-12),
       "of the first kernel, the bound from the best");
    v = verdict_on(&m, "default", BACKWARD);
    ok(v && v->pass && v->error == 1, "the fastest is a good default of backward");
    made_free(&m);
}

/* None of a pass where it cannot be told. */
static void no_default(struct made *m, const char *what)
{
    expect_word(m, what, "default", FORWARD, "none");
    made_free(m);
}

static void no_defaults(void)
{
    struct made m;

    made_new(&m, NULL, NULL);
    add(&m, &fused, 9, 9);
    no_default(&m, "one kernel");
    made_new(&m, NULL, NULL);
    add(&m, &fused, 9, 9);
    add(&m, &product, 0, 0);
    no_default(&m, "beside one that failed parity");
    made_new(&m, NULL, NULL);
    add(&m, &fused, 0, 0);
    add(&m, &product, 1, 1);
    add(&m, &third, 2, 2);
    no_default(&m, "the default failed parity");
    made_new(&m, NULL, NULL);
    strcpy(m.t.kernel, "fused");
    add(&m, &fused, 9, 9);
    add(&m, &product, 1, 1);
    no_default(&m, "a kernel is named");
    made_new(&m, NULL, NULL);
    add(&m, &fused, 9, 9);
    add(&m, &product, 1, 1);
    m.r.ran[1].outcome.runs[FORWARD] = 2;
    expect_word(&m, "two runs of the best", "default", FORWARD, "none");
    ok(m.r.skipped == 1 && strstr(m.r.skips, "default: fewer than 3 runs"), "skipped once");
    made_free(&m);

    made_new(&m, NULL, NULL);
    add(&m, &fused, 1, 1);
    add(&m, &product, 1, 1);
    m.r.ran[0].call.backend = m.r.ran[1].call.backend = &ref32;
    no_default(&m, "references");
}

/* ---- in words ---- */

static void says(struct made *m, const char *expected)
{
    char *text = NULL;
    size_t size;
    struct screen s = {open_memstream(&text, &size), 120, 0, 0};

    goals_judge(&m->x, &m->r);
    goals_lines(&s, 0, &m->r);
    fclose(s.to);
    if (!ok(strcmp(text, expected) == 0, "said: %.*s", (int)strcspn(expected, "\n"), expected))
        printf("# %s", text);
    free(text);
    made_free(m);
}

static void lines(void)
{
    struct made m;

    made_new(&m, "90 % memory", NULL);
    add(&m, &fused, 1 / .752, 1);
    says(
        &m,
        "      gpu32 softmax fused: forward reached 75.2 % of memory (1.33 s), the goal is 90 %\n");
    made_new(&m, NULL, "12 us");
    add(&m, &fused, 1, 412e-6);
    says(&m, "      gpu32 softmax fused: backward took 412 us, the goal is 12 us\n");
    made_new(&m, "95 % product", NULL);
    add(&m, &fused, 400e-6, 1);
    add(&m, &product, 370e-6, 1);
    m.r.ran[0].outcome.spread[FORWARD] = 100e-6;
    says(&m,
         "      gpu32 softmax fused: forward reached 92.5 % of the speed of product (400 us, it "
         "took 370 us), the goal is 95 %\n");
    made_new(&m, NULL, NULL);
    add(&m, &fused, 412e-6, 1);
    add(&m, &product, 380e-6, 1);
    says(&m, "      gpu32 default, forward: fused 412 us, product 380 us: 8.4 % slower than the "
             "best\n");
    made_new(&m, "2 s", NULL);
    add(&m, &fused, 2, 1);
    says(&m, "");
}

/* ---- from words and ini files ---- */

/* Words from which this goal comes, as another program would write it. */
static void reads(const char *value, const char *text)
{
    struct experiment x;
    char words[200], wanted[200];

    snprintf(words, sizeof words, "softmax measure=time goal=\"%s\"", value);
    snprintf(wanted, sizeof wanted, " measure=time goal=\"%s\"", text);
    if (!good(words, NULL, words, &x))
        return;
    const char *line = x.trial[0].text, *end = line + goals_begin(line);
    ok(strcmp(x.trial[0].goal[FORWARD].text, text) == 0 && strcmp(end, wanted) == 0 &&
           x.trial[0].goal[BACKWARD].kind == GOAL_NONE,
       "is %s", text);
    plan_free(&x);
}

static void pastes_back(void)
{
    struct experiment x;

    reads("90 % memory", "90 % memory");
    reads("90%memory", "90 % memory");
    reads("+090.0  %  best", "90 % best");
    reads("12us", "12 us");
    reads("0.1 ms", "0.1 ms");
    reads("1.23456789012345 s", "1.23456789012345 s");
    reads("1e3 ns", "1000 ns");
    reads("1000 % latency", "1000 % latency");
    if (good_ini("both passes, of an ini file",
                 "[experiment]\nmeasure = time\n[trial]\nop = softmax\nrows = 2, 3\n"
                 "goal = 90 % memory\ngoal_backward = 95 % best\n",
                 &x)) {
        ok(x.n == 2 && strstr(x.trial[1].text,
                              " measure=time goal=\"90 % memory\" goal_backward=\"95 % best\""),
           "%s", x.trial[1].text);
        plan_free(&x);
    }
    if (good("a file whose name has a goal", NULL,
             "e74 input=text file=\"a b,\"\"c\"\".txt\" measure=time goal=\"2 s\"", &x)) {
        plan_free(&x);
    }
    static const char words[] = "a file=\" measure=time goal=\" x";
    ok(goals_begin(words) == strlen(words), "goals in quotes are none");
    if (good("op = all", NULL, "all measure=time goal=\"9 % best\" goal_backward=\"1 s\"", &x)) {
        int wrong = 0;
        for (int i = 0; i < x.n; i++)
            wrong += (x.trial[i].goal[BACKWARD].kind != GOAL_NONE) !=
                     (op_passes(x.trial[i].call.op) == N_PASSES);
        ok(!wrong, "an operation without backward has no goal_backward");
        plan_free(&x);
    }
}

#define TIMED "[experiment]\nmeasure = time\n[trial]\nop = softmax\n"
static void refusals(void)
{
    refused("a word that is nothing", TIMED "goal = 90 % memry\n",
            "t.ini:5: goal = 90 % memry: not one of memory tensor fp32 special latency best, nor a "
            "kernel of softmax on a GPU in this build: *\n");
    refused("a fraction without %", TIMED "goal = 90 memory\n",
            "t.ini:5: goal = 90 memory: neither a time (12 us; or ns, ms, s) nor a fraction (90 % "
            "memory)\n");
    refused("no fraction", TIMED "goal = 0 % memory\n",
            "t.ini:5: goal = 0 % memory: must be more than 0\n");
    refused("a large one", TIMED "goal_backward = 1001 % best\n",
            "t.ini:5: goal_backward = 1001 % best: must be 0 to 1000\n");
    refused("no time", TIMED "goal = 0 us\n", "t.ini:5: goal = 0 us: must be more than 0\n");
    refused("less than none", TIMED "goal = -1 us\n", "t.ini:5: goal = -1 us: must be 0 to *\n");
    refused("less than any", TIMED "goal = 5e-324 ns\n",
            "t.ini:5: goal = 5e-324 ns: must be more than 0\n");
    refused("no number", TIMED "goal = best\n", "t.ini:5: goal = best: *\n");
    refused("a number alone", TIMED "goal = 12\n", "t.ini:5: goal = 12: neither a time *\n");
    refused("a word too many", TIMED "goal = 12 us fast\n",
            "t.ini:5: goal = 12 us fast: not a number and a word, as in 12 us or 90 % memory\n");
    refused("two", TIMED "goal = 12 us, 13 us\n", "t.ini:5: goal takes one value, not a list\n");
    refused("without times", "[trial]\nop = softmax\n\ngoal = 12 us\ngoal_backward = 1 s\n",
            "t.ini:4: goal: only with measure = time\n"
            "t.ini:5: goal_backward: only with measure = time\n");
    refused("of crossovers",
            "[experiment]\nmeasure = crossover\n[trial]\nop = softmax\ngoal = 1 s\n",
            "t.ini:5: goal: only with measure = time\n");
    refused("a kernel of all operations",
            "[experiment]\nmeasure = time\n[trial]\nop = all\ngoal = 95 % cublas\n",
            "t.ini:5: goal = 95 % cublas: op = all takes a time, or a fraction of a ceiling or of "
            "best; for a kernel's name one operation\n");
    refused("no backward",
            "[experiment]\nmeasure = time\n[trial]\nop = quantise\ngoal_backward = 1 s\n",
            "t.ini:5: goal_backward: quantise has no backward pass\n");
    words_refused("words", "softmax goal=\"12 us\"", "-t: goal: only with measure = time\n");
}

/* Words that stand for something else are no kernel's names; each kernel's name is a goal. */
static void kernels(void)
{
    const struct impl *k;
    int wrong = 0, n = 0;

    for (int i = 0; i < N_OPS; i++)
        for (int b = 0; judged_backend(b); b++)
            for (int n = 0; (k = op_kernel(ops[i], judged_backend(b), n)); n++) {
                struct goal g;
                char value[80];
                snprintf(value, sizeof value, "95 %% %s", k->name);
                n++;
                wrong += goal_read(ops[i], "goal", value, &g) || g.kind != GOAL_KERNEL ||
                         strcmp(g.kernel, k->name) != 0;
            }
    ok(!wrong, "%d names of kernels are goals", n);
}

int main(void)
{
    enter();
    boundaries();
    judged_kernel();
    not_judged();
    defaults("5 % slower than the best", 1.05, 0, "pass");
    defaults("5.1 % slower", 1.051, 0, "fail");
    defaults("5.1 % slower, within the noise", 1.051, .01, "pass");
    defaults("7 % slower, over the noise", 1.07, .01, "fail");
    defaults("3 times as slow as the best, faster than the slowest", 3, 0, "fail");
    no_defaults();
    lines();
    pastes_back();
    refusals();
    kernels();
    leave();
    return done();
}
