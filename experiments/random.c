/* run-ablation --random (random.h). */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/number.h"
#include "common/plan/keys.h"
#include "common/run/random_cases.h"
#include "experiments/begin.h"
#include "experiments/random.h"

enum { GOOD = 0, CHECK_FAILED = 1, BAD_INPUT = 2, BACKEND_LOST = 3, INTERRUPTED = 130 };

static const int64_t MAX_CASES = 1000000000;

/* The number behind an option, or its default where it is not given. */
static int read_number(const char *option, const char *text, int64_t min, int64_t max, int64_t *x)
{
    return text && number_whole(text, min, max, x) ? err_at("%s %s", option, text) : 0;
}

/* --judge sampled: large cases, of which nothing but parity is checked. */
static int read_judge(const struct random_words *w, struct random *r)
{
    int judge = JUDGE_FULL;

    if (w->judge && choice_set("--judge", w->judge, judge_names, &judge))
        return -1;
    if (judge == JUDGE_AUTO)
        return err_set("--judge auto: cases are drawn to be judged in full, or to be sampled");
    r->sampled = judge == JUDGE_SAMPLED;
    if (r->sampled && w->checks && r->checks != CHECK_PARITY)
        return err_set("--checks %s: --judge sampled takes parity alone", w->checks);
    if (r->sampled)
        r->checks = CHECK_PARITY;
    return 0;
}

static int read_words(const struct random_words *w, struct random *r)
{
    struct experiment x = {.checks = 0};
    int64_t seed = 1;

    *r = (struct random){.checks = CHECK_DIFFERENCES | CHECK_PARITY | CHECK_PROPERTIES};
    if (read_number("--random", w->n, 1, MAX_CASES, &r->below) ||
        read_number("--from", w->from, 0, r->below - 1, &r->from) ||
        read_number("--seed", w->seed, 0, INT64_MAX, &seed))
        return -1;
    if (w->op && !(r->only = op_find(w->op)))
        return err_set("--op %s: there is no such operation", w->op);
    if (w->checks && key_list("checks", w->checks, &x))
        return err_at("--checks");
    if (x.checks & CHECK_POWER)
        return err_set("--checks %s: --random takes differences, parity and properties", w->checks);
    if (w->checks)
        r->checks = x.checks;
    r->seed = (uint64_t)seed;
    r->contexts = process_contexts();
    return read_judge(w, r);
}

static void print_head(const struct random *r)
{
    printf("%s %s: random cases %" PRId64 " to %" PRId64 " of seed %" PRIu64 ", %s%s\n",
           PACKAGE_NAME, PACKAGE_VERSION, r->from, r->below - 1, r->seed,
           r->only ? r->only->name : "all operations", r->sampled ? ", large, by sample" : "");
    printf("  CPU  %s\n", backend_device(NULL, &ref64));
    const char *why = backend_unavailable(r->contexts, judged_backend(0));
    if (why)
        printf("  GPU  none (%s): parity is not checked\n", why);
    else
        printf("  GPU  %s\n", backend_device(r->contexts, judged_backend(0)));
    fflush(stdout);
}

static void print_end(const struct random_count *c, double seconds)
{
    int any = c->checks || c->failed;

    printf("%" PRId64 " cases, ", c->cases);
    if (any)
        printf("%" PRId64 " failed, %" PRId64 " cannot be judged, ", c->failed, c->unjudged);
    printf("%" PRId64 " checks, %" PRId64 " skipped%s, %.0f s\n", c->checks, c->skipped,
           any ? "" : ": nothing was checked", seconds);
}

int random_command(const struct random_words *words, const volatile int *stop)
{
    struct random r;
    struct random_count c;
    double began = seconds_now();

    if (read_words(words, &r))
        return BAD_INPUT;
    print_head(&r);
    int e = random_run(&r, stop, stdout, &c);
    if (*stop)
        printf("stopped; the same with --from %" PRId64 " goes on from there\n", c.next);
    print_end(&c, seconds_now() - began);
    if (e)
        return e == RANDOM_LOST ? BACKEND_LOST : BAD_INPUT;
    return *stop ? INTERRUPTED : c.failed ? CHECK_FAILED : GOOD;
}
