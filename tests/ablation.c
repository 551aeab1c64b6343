/* What runs say of each other: known answers, and a thousand made-up experiments, of which few may claim what is not there.
 *
 *     ablation              all
 *     ablation --power      how often a true difference is claimed, by its size and by seeds: a table */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/ablation/ablation.h"
#include "common/ablation/tables.h"
#include "common/base/err.h"
#include "common/call/call.h"
#include "common/call/contract.h"
#include "tests/tap.h"

/* Its text once more on a comment line, where tests/check-faults.sh looks for it. */
#define check(good, ...) (ok(good, __VA_ARGS__) ? 1 : (printf("# " __VA_ARGS__), puts(""), 0))

enum { MAX_RUNS = 2000 };
static struct stored_run all[MAX_RUNS];

/* Runs that are being made up. */
static struct runs begin(void)
{
    return (struct runs){0, all, 0};
}

/* One at the training length 32, and at 256. */
static struct stored_run *add(struct runs *r, const char *variant, double rate, int seed,
                              double at32, double at256)
{
    struct stored_run *to = &r->run[r->n];

    *to = (struct stored_run){.trial = r->n,
                              .rate = rate,
                              .seed = (uint64_t)seed,
                              .chance = 0.5,
                              .tokens = 2048,
                              .validated = at32,
                              .to_target = INFINITY,
                              .n_tests = 2,
                              .test = {{32, at32, 0.1}, {256, at256, 0.2}}};
    snprintf(to->variant, sizeof to->variant, "%s", variant);
    snprintf(to->task, sizeof to->task, "parity");
    r->n++;
    return to;
}

static const struct ablation_how against_a = {
    .baseline = "a", .margin = 0.01, .seed = 1, .intervals = 1};

static int near(double x, double y)
{
    return fabs(x - y) <= 1e-12 * fmax(1, fabs(y));
}

static const struct ablated_cell *cell_of(const struct ablation *a, const char *variant)
{
    for (int i = 0; i < a->n_cells; i++)
        if (strcmp(a->cell[i].variant, variant) == 0)
            return &a->cell[i];
    return NULL;
}

/* The pair of a variant at that length. */
static const struct compared_pair *pair_of(const struct ablation *a, const char *variant,
                                           int64_t length)
{
    for (int i = 0; i < a->n_pairs; i++)
        if (strcmp(a->cell[a->pair[i].a].variant, variant) == 0 && a->pair[i].length == length)
            return &a->pair[i];
    return NULL;
}

/* ---- the best rate ---- */

static void best_rates(void)
{
    struct runs r = begin();
    double rate = 0;

    for (int seed = 1; seed <= 4; seed++) {
        add(&r, "a", 1e-3, seed, 0.8, 0.5);
        add(&r, "a", 3e-3, seed, seed == 4 ? 0.1 : 0.9, 0.5); /* one stray seed */
        add(&r, "a", 1e-2, seed, 0.7, 0.5);
    }
    check(!ablation_best_rate(&r, "a", "parity", &rate) && rate == 3e-3,
          "the best rate is by the IQM: a stray seed moves nothing");
    check(ablation_best_rate(&r, "b", "parity", &rate) != 0, "a cell without a search has none");

    r = begin();
    for (int seed = 1; seed <= 3; seed++) {
        add(&r, "a", 1e-2, seed, 1, 1)->learned = 50;
        add(&r, "a", 1e-3, seed, 1, 1)->learned = 80;
        add(&r, "a", 3e-3, seed, 1, 1)->learned = 50;
    }
    check(!ablation_best_rate(&r, "a", "parity", &rate) && rate == 3e-3,
          "of equal ones: fewer updates, then the smaller rate");

    r = begin();
    for (int seed = 1; seed <= 3; seed++) {
        struct stored_run *low = add(&r, "a", 1e-3, seed, 0.5, 0.5),
                          *high = add(&r, "a", 1e-2, seed, 0.5, 0.5);
        low->in_bits = high->in_bits = 1;
        low->validated = 2.5, high->validated = 2.4;
    }
    check(!ablation_best_rate(&r, "a", "parity", &rate) && rate == 1e-2, "bits: the fewest");
    r.run[1].end = r.run[3].end = RUN_DIVERGED;
    r.run[0].chance = r.run[1].chance = r.run[2].chance = r.run[3].chance = 1.0 / 256;
    check(!ablation_best_rate(&r, "a", "parity", &rate) && rate == 1e-3,
          "a run that diverged is at chance: 8 bits");
}

static void results(void)
{
    struct runs r = begin();
    struct ablation a;

    for (int seed = 1; seed <= 3; seed++) {
        add(&r, "a", 1e-3, seed, 0.6, 0.5);
        add(&r, "a", 1e-2, seed, 0.9, 0.5);
        add(&r, "b", 1e-3, seed, 0.6, 0.5);
    }
    int e = ablation_of(&r, &against_a, &a);
    const struct ablated_cell *c = cell_of(&a, "a");
    check(!e && c && c->n == 3 && near(c->test[0].value, 0.9) && c->searched && c->at_end == 1 &&
              c->n_rates == 2,
          "without confirming runs the search's at its best rate, and it says so");
    check(cell_of(&a, "b") && !cell_of(&a, "b")->searched && !cell_of(&a, "b")->at_end,
          "one rate is no search");
    ablation_free(&a);

    for (int seed = 14; seed >= 11; seed--)
        add(&r, "a", 1e-2, seed, 0.5 + seed / 100.0, 0.5)->confirms = 1;
    e = ablation_of(&r, &against_a, &a);
    c = cell_of(&a, "a");
    check(!e && c->n == 4 && !c->searched && near(c->test[0].value, 0.625) &&
              r.run[c->run[0]].seed == 11 && r.run[c->run[3]].seed == 14,
          "results are those that confirm, in the order of their seeds");
    const struct compared_pair *p = pair_of(&a, "b", 256);
    check(p && p->n == 0 && p->word == TOO_FEW_SEEDS,
          "variants without a common seed are not compared");
    ablation_free(&a);
}

static void counts(void)
{
    static const double at32[] = {1, 0.99, 0.9899, 1, 1}, at256[] = {0.9, 0.95, 1, 0.8999, 0.2};
    struct runs r = begin();
    struct ablation a;

    for (int seed = 0; seed < 5; seed++)
        add(&r, "a", 1e-2, seed, at32[seed], at256[seed]);
    r.run[0].learned = 100, r.run[1].learned = 200, r.run[3].learned = 300;
    r.run[4].end = RUN_DIVERGED;
    int e = ablation_of(&r, &against_a, &a);
    const struct ablated_cell *c = cell_of(&a, "a");
    check(!e && c->solved == 3 && c->holds == 3,
          "solved from 0.99 on, holds from 0.9 on; not what diverged: %d %d", c->solved, c->holds);
    check(near(c->test[1].value, (0.9 + 0.95 + 0.8999) / 3),
          "a run that diverged counts as chance, not as its test says");
    check(c->updates == 300 && c->tokens == 300 * 2048.0,
          "the median of updates is over all, those that never learn too");
    check(c->diverged == 1 && c->stopped == 0, "and is counted");
    check(c->solved_in.low < 0.6 && c->solved_in.high > 0.6 && c->solved_in.low > 0.2,
          "its share has Wilson's interval");
    ablation_free(&a);
    r.run[0].learned = 0;
    e = ablation_of(&r, &against_a, &a);
    check(!e && isinf(cell_of(&a, "a")->updates), "no median where most do not learn");
    ablation_free(&a);
}

/* ---- words ---- */

/* n seeds of a and of others, which differ by these; the noise is the seed's, of all alike. */
static void compared(struct runs *r, int n, double by, double spread, int bits)
{
    *r = begin();
    for (int seed = 1; seed <= n; seed++) {
        const double own = 0.7 + 0.01 * (seed % 7), other = own + by + spread * (seed % 2 ? 1 : -1);
        add(r, "a", 1e-2, seed, own, own)->in_bits = bits;
        add(r, "b", 1e-2, seed, other, other)->in_bits = bits;
        for (int k = 0; bits && k < 2; k++)
            for (int t = 0; t < 2; t++)
                r->run[r->n - 1 - k].test[t].loss = r->run[r->n - 1 - k].test[t].accuracy * log(2);
    }
}

static void word(int n, double by, double spread, int bits, enum comparison_word wanted)
{
    struct runs r;
    struct ablation a;

    compared(&r, n, by, spread, bits);
    const int e = ablation_of(&r, &against_a, &a);
    const struct compared_pair *p = e ? NULL : pair_of(&a, "b", 256),
                               *shorter = e ? NULL : pair_of(&a, "b", 32);
    check(p && p->word == wanted && shorter && shorter->word == NOT_CLAIMED &&
              isnan(shorter->adjusted) && (p->word == TOO_FEW_SEEDS || near(p->p, shorter->p)),
          "%d seeds, %+g with a spread of %g, %s: %s (is %s, p %g)", n, by, spread,
          bits ? "bits" : "accuracy", comparison_words[wanted],
          p ? comparison_words[p->word] : err_text(), p ? p->p : NAN);
    ablation_free(&a);
}

static void words(void)
{
    word(10, 0.1, 0.01, 0, BETTER);
    word(10, -0.1, 0.01, 0, WORSE);
    word(10, 0.1, 0.01, 1, WORSE);
    word(10, -0.1, 0.01, 1, BETTER);
    word(10, 0.001, 0.004, 0, EQUAL);
    word(10, 0.01, 0.1, 0, NO_DIFFERENCE);
    word(5, 0.1, 0.01, 0, TOO_FEW_SEEDS); /* p is 0.0625 at the least */
    word(5, 0, 0.001, 0, EQUAL);          /* but that needs no test */
    word(4, 0, 0.001, 0, TOO_FEW_SEEDS);
    word(6, 0.1, 0.01, 0, BETTER);
    word(1, 0.1, 0, 0, TOO_FEW_SEEDS);
}

/* Five pairs of 8 seeds: p is 1/128 each at the least, and 5/128 of all together; of 7 seeds none could pass. */
static void families(void)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    struct ablation a;

    for (int n = 7; n <= 8; n++) {
        struct runs r = begin();
        for (int seed = 1; seed <= n; seed++)
            for (int v = 0; v < 6; v++)
                add(&r, names[v], 1e-2, seed, 0.9, 0.9 - (v ? 0.1 + 0.001 * seed : 0));
        const int e = ablation_of(&r, &against_a, &a);
        int worse = 0, few = 0;
        for (int i = 0; i < a.n_pairs; i++) {
            worse += a.pair[i].word == WORSE;
            few += a.pair[i].word == TOO_FEW_SEEDS;
        }
        check(!e && a.n_pairs == 10 && worse == (n == 8 ? 5 : 0) && few == (n == 8 ? 0 : 5),
              "%d seeds of 5 pairs: %d worse, %d with too few seeds", n, worse, few);
        ablation_free(&a);
    }
}

static void declared(void)
{
    static const struct pair_of_names pairs[] = {{"b", "c"}, {"c", "nobody"}};
    const struct ablation_how how = {
        .baseline = "", .pair = pairs, .n_pairs = 2, .margin = 0.01, .seed = 1};
    struct runs r = begin();
    struct ablation a;

    for (int seed = 1; seed <= 8; seed++) {
        add(&r, "a", 1e-2, seed, 0.9, 0.9);
        add(&r, "b", 1e-2, seed, 0.8, 0.8);
        add(&r, "c", 1e-2, 20 - seed, 0.7, 0.7); /* seeds 12 to 19 */
        add(&r, "c", 1e-2, seed, 0.5, 0.5);
    }
    const int e = ablation_of(&r, &how, &a);
    const struct compared_pair *p = pair_of(&a, "b", 256);
    check(!e && a.n_pairs == 2 && p && p->n == 8 && near(p->difference, 0.3) && p->word == BETTER,
          "declared pairs alone are compared, by their common seeds");
    ablation_free(&a);
}

/* ---- made-up experiments ---- */

static double normal(uint64_t key, uint64_t *i)
{
    const double u = draw_uniform(key, (*i)++), v = draw_uniform(key, (*i)++);
    return sqrt(-2 * log(1 - u)) * cos(2 * M_PI * v);
}

/* A variant's accuracy with a seed: a normal number, or one of two outcomes. */
static double outcome(uint64_t key, uint64_t *i, double of_seed, int both)
{
    if (both)
        return draw_uniform(key, (*i)++) < 0.7 ? 1 : 0.5;
    return 0.8 + 0.02 * of_seed + 0.02 * normal(key, i);
}

/* Experiment k of `variants`, of which the last is off by `by` standard deviations of a difference: a bit for each word. */
static unsigned made_up(uint64_t k, int variants, int seeds, double by, int both)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f"};
    const struct ablation_how how = {.baseline = "a", .margin = 0.01, .seed = k};
    const uint64_t key = draw_key(k, "made up");
    struct runs r = begin();
    struct ablation a;
    uint64_t i = 0;
    unsigned said = 0;

    for (int seed = 1; seed <= seeds; seed++) {
        const double of_seed = normal(key, &i);
        for (int v = 0; v < variants; v++) {
            const double x =
                outcome(key, &i, of_seed, both) + (v == variants - 1 ? by * 0.02 * sqrt(2) : 0);
            add(&r, names[v], 1e-2, seed, x, x)->n_tests = 1;
        }
    }
    if (ablation_of(&r, &how, &a))
        exit(2);
    for (int p = 0; p < a.n_pairs; p++)
        if (strcmp(a.cell[a.pair[p].a].variant, names[variants - 1]) == 0 || by == 0)
            said |= 1u << a.pair[p].word;
    ablation_free(&a);
    return said;
}

static int claims(int n, int variants, int seeds, double by, int both)
{
    int claimed = 0;

    for (int k = 0; k < n; k++)
        claimed += (made_up((uint64_t)k + 1, variants, seeds, by, both) &
                    (1u << BETTER | 1u << WORSE)) != 0;
    return claimed;
}

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { EXPERIMENTS = 60 };
#else
enum { EXPERIMENTS = 1000 };
#endif

/* 5 %, and two standard errors of so many. */
static double most_of(int n)
{
    return n * 0.05 + 2 * sqrt(n * 0.05 * 0.95);
}

static void thousand(void)
{
    const int equal = claims(EXPERIMENTS, 4, 10, 0, 0), both = claims(EXPERIMENTS / 4, 4, 10, 0, 1),
              off = claims(EXPERIMENTS / 4, 4, 10, 2, 0);

    check(equal <= most_of(EXPERIMENTS),
          "%d experiments of 4 equal variants and 10 seeds: %d claim a difference", EXPERIMENTS,
          equal);
    check(both <= most_of(EXPERIMENTS / 4), "%d where a run learns or does not: %d",
          EXPERIMENTS / 4, both);
    check(off >= 0.9 * (EXPERIMENTS / 4),
          "%d with one that is off by 2 standard deviations: %d find it", EXPERIMENTS / 4, off);
}

static void power(void)
{
    enum { EACH = 200 };

    printf("of %d experiments of 4 variants, one of them off: those that claim it\n", EACH);
    printf("seeds  0.5 sd  1 sd  1.5 sd  2 sd  3 sd\n");
    for (int seeds = 6; seeds <= 16; seeds += seeds < 8 ? 2 : seeds < 10 ? 2 : 6)
        printf("%5d  %4.0f %%  %3.0f %%  %4.0f %%  %3.0f %%  %3.0f %%\n", seeds,
               100.0 * claims(EACH, 4, seeds, 0.5, 0) / EACH,
               100.0 * claims(EACH, 4, seeds, 1, 0) / EACH,
               100.0 * claims(EACH, 4, seeds, 1.5, 0) / EACH,
               100.0 * claims(EACH, 4, seeds, 2, 0) / EACH,
               100.0 * claims(EACH, 4, seeds, 3, 0) / EACH);
}

/* Of experiments whose two variants differ by just the margin, with so much noise in a pair's difference: how often they are
 * called equal. */
static int called_equal(int n, int seeds, double noise)
{
    static const struct ablation_how how = {.baseline = "a", .margin = 0.01, .seed = 1};
    int equal = 0;

    for (int k = 0; k < n; k++) {
        const uint64_t key = draw_key((uint64_t)k + 1, "off by the margin");
        struct runs r = begin();
        struct ablation a;
        uint64_t i = 0;
        for (int seed = 1; seed <= seeds; seed++) {
            const double of_seed = 0.8 + 0.02 * normal(key, &i),
                         other = of_seed + 0.01 + noise * normal(key, &i);
            add(&r, "a", 1e-2, seed, of_seed, of_seed)->n_tests = 1;
            add(&r, "b", 1e-2, seed, other, other)->n_tests = 1;
        }
        if (ablation_of(&r, &how, &a))
            exit(2);
        equal += a.pair[0].word == EQUAL;
        ablation_free(&a);
    }
    return equal;
}

static void off_by_the_margin(void)
{
    enum { EACH = 1000 };

    printf("of %d experiments of two variants that differ by the margin: those called equal\n",
           EACH);
    printf("seeds  noise 0.002  0.005  0.01\n");
    for (int seeds = 5; seeds <= 20; seeds += seeds < 8 ? 1 : seeds < 10 ? 2 : 5)
        printf("%5d       %4.1f %%  %4.1f %%  %4.1f %%\n", seeds,
               100.0 * called_equal(EACH, seeds, 0.002) / EACH,
               100.0 * called_equal(EACH, seeds, 0.005) / EACH,
               100.0 * called_equal(EACH, seeds, 0.01) / EACH);
}

/* ---- tables ---- */

static void tables(void)
{
    struct runs r;
    struct ablation a;
    char *text = NULL;
    size_t size;

    compared(&r, 6, 0.1, 0.01, 0);
    snprintf(r.run[0].task, sizeof r.run[0].task, "pa\"r,ity");
    ablation_of(&r, &against_a, &a);
    FILE *to = open_memstream(&text, &size);
    for (int i = 0; i < ABLATION_TABLES; i++) {
        struct ablation_table t;
        if (!ablation_table(&a, i, &t))
            ablation_csv(&t, to);
        free(t.row);
    }
    fclose(to);
    check(strstr(text, "trial,task,variant,lr,seed") == text &&
              strstr(text, "\n1,\"pa\"\"r,ity\",a,0.01,1,0,done") &&
              strstr(text, "\ntask,variant,against,length,metric,seeds,difference,") &&
              strstr(text, "\nparity,b,a,256,accuracy,5,0.0"),
          "tables as CSV, with quotes where a text needs them");
    free(text);
    ablation_free(&a);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--power") == 0) {
        power();
        off_by_the_margin();
        return 0;
    }
    best_rates();
    results();
    counts();
    words();
    families();
    declared();
    tables();
    thousand();
    return done();
}
