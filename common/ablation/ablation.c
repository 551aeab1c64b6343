/* What many runs say of each other (ablation.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/ablation/ablation.h"
#include "common/base/err.h"
#include "common/base/fnv.h"
#include "common/base/grow.h"

static const double SIGNIFICANT = 0.05;

const char *const comparison_words[] = {
    [NOT_CLAIMED] = "",  [NO_DIFFERENCE] = "no difference shown",
    [BETTER] = "better", [WORSE] = "worse",
    [EQUAL] = "equal",   [TOO_FEW_SEEDS] = "too few seeds"};

void comparison_text(const struct compared_pair *p, char text[COMPARISON_TEXT])
{
    snprintf(text, COMPARISON_TEXT, "%s", comparison_words[p->word]);
    if (p->word == BETTER || p->word == WORSE)
        append(text, COMPARISON_TEXT, p->adjusted < 0.0005 ? ", p %.1e" : ", p %.3f", p->adjusted);
}

int ablation_drawn(const struct ablation *a, int from, int to)
{
    int most = 0;

    for (int i = 0; i < a->n_pairs; i++) {
        const struct compared_pair *p = &a->pair[i];
        if (p->word != NOT_CLAIMED && p->a >= from && p->a < to && p->n > SIGNS_EXACT)
            most = p->n > most ? p->n : most;
    }
    return most;
}

/* ---- values ---- */

double run_value(const struct stored_run *r, const struct run_test *t)
{
    const double at_chance = r->in_bits ? -log2(r->chance) : r->chance;
    const double value = r->in_bits ? t->loss / log(2) : t->accuracy;

    return r->end == RUN_DIVERGED || !isfinite(value) ? at_chance : value;
}

static double validated_value(const struct stored_run *r)
{
    const double at_chance = r->in_bits ? -log2(r->chance) : r->chance;
    return r->end == RUN_DIVERGED || !isfinite(r->validated) ? at_chance : r->validated;
}

/* Resamples of each statistic are drawn by a seed of its own. */
static uint64_t seed_of(uint64_t seed, const char *a, const char *b, const char *task,
                        int64_t length)
{
    uint64_t hash = fnv1a64(FNV_BEGIN, &seed, sizeof seed);

    hash = fnv1a64(hash, a, strlen(a) + 1);
    hash = fnv1a64(hash, b, strlen(b) + 1);
    hash = fnv1a64(hash, task, strlen(task) + 1);
    return fnv1a64(hash, &length, sizeof length);
}

/* ---- the rate of a cell ---- */

static int is_of(const struct stored_run *r, const char *variant, const char *task)
{
    return strcmp(r->variant, variant) == 0 && strcmp(r->task, task) == 0;
}

static int searches_at(const struct stored_run *r, const struct ablated_cell *c, double rate)
{
    return !r->confirms && r->rate == rate && is_of(r, c->variant, c->task);
}

static int by_rate(const void *a, const void *b)
{
    const struct searched_rate *x = a, *y = b;
    return (x->rate > y->rate) - (x->rate < y->rate);
}

static int find_rates(const struct runs *r, struct ablated_cell *c)
{
    for (int i = 0; i < r->n; i++) {
        const struct stored_run *run = &r->run[i];
        int k = 0;
        if (run->confirms || !is_of(run, c->variant, c->task))
            continue;
        while (k < c->n_rates && c->rate[k].rate != run->rate)
            k++;
        if (k == c->n_rates) {
            struct searched_rate *more = grow(c->rate, c->n_rates, sizeof *more);
            if (!more)
                return err_set("no memory for the rates of a search");
            c->rate = more;
            more[c->n_rates++] = (struct searched_rate){.rate = run->rate};
        }
        c->rate[k].n++;
    }
    if (c->n_rates)
        qsort(c->rate, c->n_rates, sizeof *c->rate, by_rate);
    return 0;
}

/* Of the runs of a cell at one of its rates; x is memory for two values each. */
static void sum_up_rate(const struct runs *r, const struct ablated_cell *c,
                        struct searched_rate *of, double *x)
{
    double *const updates = x + of->n;
    int n = 0;

    for (int i = 0; i < r->n; i++)
        if (searches_at(&r->run[i], c, of->rate)) {
            x[n] = validated_value(&r->run[i]);
            updates[n++] = r->run[i].learned ? (double)r->run[i].learned : INFINITY;
        }
    of->validated = interquartile_mean(x, n);
    of->updates = median_of(updates, n);
}

/* Is rate k better than the best until now, which is smaller? */
static int is_better(const struct ablated_cell *c, int k)
{
    const struct searched_rate *best = &c->rate[c->best], *now = &c->rate[k];

    if (now->validated != best->validated)
        return c->in_bits ? now->validated < best->validated : now->validated > best->validated;
    return now->updates < best->updates;
}

static int choose_rate(const struct runs *r, struct ablated_cell *c)
{
    int most = 0;

    c->best = -1;
    if (find_rates(r, c))
        return -1;
    for (int k = 0; k < c->n_rates; k++)
        most = c->rate[k].n > most ? c->rate[k].n : most;
    double *x = malloc((2 * (size_t)most + 1) * sizeof *x);
    if (!x)
        return err_set("no memory for %d seeds", most);
    for (int k = 0; k < c->n_rates; k++) {
        sum_up_rate(r, c, &c->rate[k], x);
        c->best = k && !is_better(c, k) ? c->best : k;
    }
    free(x);
    c->at_end = c->n_rates < 2 ? 0 : c->best == 0 ? -1 : c->best == c->n_rates - 1;
    return 0;
}

int ablation_best_rate(const struct runs *r, const char *variant, const char *task, double *rate)
{
    struct ablated_cell c = {.n = 0};
    int e = 0;

    for (int i = 0; i < r->n; i++)
        if (is_of(&r->run[i], variant, task))
            c.in_bits = r->run[i].in_bits;
    snprintf(c.variant, sizeof c.variant, "%s", variant);
    snprintf(c.task, sizeof c.task, "%s", task);
    e = choose_rate(r, &c);
    if (!e && c.best < 0)
        e = err_set("no run of %s on %s has searched a rate", variant, task);
    if (!e)
        *rate = c.rate[c.best].rate;
    free(c.rate);
    return e;
}

/* ---- the results of a cell ---- */

static int is_result(const struct ablated_cell *c, const struct stored_run *r, int confirmed)
{
    if (!is_of(r, c->variant, c->task) || r->confirms != confirmed)
        return 0;
    return confirmed || (c->best >= 0 && r->rate == c->rate[c->best].rate);
}

static int take_results(const struct runs *r, struct ablated_cell *c)
{
    int confirmed = 0;

    for (int i = 0; i < r->n; i++)
        confirmed |= r->run[i].confirms && is_of(&r->run[i], c->variant, c->task);
    c->searched = !confirmed && c->n_rates > 1;
    for (int i = 0; i < r->n; i++) {
        if (!is_result(c, &r->run[i], confirmed))
            continue;
        int *more = grow(c->run, c->n, sizeof *more), at = c->n;
        if (!more)
            return err_set("no memory for the runs of a cell");
        for (c->run = more; at && r->run[more[at - 1]].seed > r->run[i].seed; at--)
            more[at] = more[at - 1];
        more[at] = i;
        c->n++;
    }
    return 0;
}

/* The longer ones' mean. */
static double mean_of_longer(const struct stored_run *r)
{
    double sum = 0;
    int n = 0;

    for (int k = 1; k < r->n_tests; k++)
        if (r->test[k].length > r->test[0].length) {
            sum += run_value(r, &r->test[k]);
            n++;
        }
    return n ? sum / n : NAN;
}

static void count_learned(const struct runs *r, struct ablated_cell *c)
{
    const struct stored_run *first = &r->run[c->run[0]];

    if (c->in_bits) {
        c->solved = c->holds = -1;
        return;
    }
    c->holds = isnan(mean_of_longer(first)) ? -1 : 0;
    for (int i = 0; i < c->n; i++) {
        const struct stored_run *run = &r->run[c->run[i]];
        c->solved += run_value(run, &run->test[0]) >= SOLVED;
        c->holds += c->holds >= 0 && mean_of_longer(run) >= HOLDS;
    }
    c->solved_in = wilson(c->solved, c->n);
    if (c->holds >= 0)
        c->holds_in = wilson(c->holds, c->n);
}

/* Medians to the target; x is memory for three values of each run. */
static void time_to_target(const struct runs *r, struct ablated_cell *c, double *x)
{
    const int n = c->n;

    for (int i = 0; i < n; i++) {
        const struct stored_run *run = &r->run[c->run[i]];
        x[i] = run->learned ? (double)run->learned : INFINITY;
        x[n + i] = x[i] * (double)run->tokens;
        x[2 * n + i] = run->to_target;
    }
    c->updates = median_of(x, n);
    c->tokens = median_of(x + n, n);
    c->seconds = median_of(x + 2 * n, n);
}

/* One seed has none. */
static int interval_of(const double *x, int n, double (*statistic)(const double *x, int n),
                       uint64_t seed, struct bootstrap *to)
{
    if (n > 1)
        return bootstrap(x, n, statistic, seed, to);
    to->bca = to->percentile = (struct interval){NAN, NAN};
    return 0;
}

/* The runs of a cell have the same lengths: they differ in rate and seed. */
static int sum_up_tests(const struct runs *r, const struct ablation_how *how,
                        struct ablated_cell *c, double *x)
{
    c->n_tests = r->run[c->run[0]].n_tests;
    for (int k = 0; k < c->n_tests; k++) {
        struct test_of *t = &c->test[k];
        t->length = r->run[c->run[0]].test[k].length;
        for (int i = 0; i < c->n; i++)
            x[i] = run_value(&r->run[c->run[i]], &r->run[c->run[i]].test[k]);
        t->value = interquartile_mean(x, c->n);
        if (how->intervals &&
            interval_of(x, c->n, interquartile_mean,
                        seed_of(how->seed, c->variant, "", c->task, t->length), &t->interval))
            return -1;
    }
    return 0;
}

static int sum_up(const struct runs *r, const struct ablation_how *how, struct ablated_cell *c)
{
    double *x = malloc((3 * (size_t)c->n + 1) * sizeof *x);
    int e = x ? 0 : err_set("no memory for %d runs", c->n);

    for (int i = 0; i < c->n; i++) {
        c->diverged += r->run[c->run[i]].end == RUN_DIVERGED;
        c->stopped += r->run[c->run[i]].end == RUN_STOPPED;
    }
    if (!e && c->n) {
        const struct stored_run *first = &r->run[c->run[0]];
        c->parameters = first->parameters, c->inner = first->inner;
        c->state_bytes = first->state_bytes, c->flops = first->flops;
        count_learned(r, c);
        time_to_target(r, c, x);
        e = sum_up_tests(r, how, c, x);
    }
    free(x);
    return e;
}

/* ---- pairs ---- */

/* Differences of the seeds that both cells have, in ascending order; returns how many. */
static int differences(const struct ablation *a, const struct compared_pair *p, int test_a,
                       int test_b, double *to)
{
    const struct ablated_cell *x = &a->cell[p->a], *y = &a->cell[p->b];
    int n = 0;

    for (int i = 0, k = 0; i < x->n && k < y->n;) {
        const struct stored_run *one = &a->runs->run[x->run[i]], *other = &a->runs->run[y->run[k]];
        if (one->seed == other->seed)
            to[n++] = run_value(one, &one->test[test_a]) - run_value(other, &other->test[test_b]);
        i += one->seed <= other->seed;
        k += other->seed <= one->seed;
    }
    return n;
}

const struct test_of *ablated_test_at(const struct ablated_cell *c, int64_t length)
{
    for (int k = 0; k < c->n_tests; k++)
        if (c->test[k].length == length)
            return &c->test[k];
    return NULL;
}

/* The longest that both have. */
static int64_t longest_of(const struct ablated_cell *x, const struct ablated_cell *y)
{
    int64_t most = 0;
    for (int k = 0; k < x->n_tests; k++)
        if (x->test[k].length > most && ablated_test_at(y, x->test[k].length))
            most = x->test[k].length;
    return most;
}

static int compare(const struct ablation_how *how, struct ablation *a, struct compared_pair *p)
{
    const struct ablated_cell *x = &a->cell[p->a], *y = &a->cell[p->b];
    double *d = malloc(((size_t)x->n + 1) * sizeof *d);
    int e = d ? 0 : err_set("no memory for %d differences", x->n);

    if (!e)
        p->n = differences(a, p, (int)(ablated_test_at(x, p->length) - x->test),
                           (int)(ablated_test_at(y, p->length) - y->test), d);
    p->p = p->adjusted = p->difference = NAN;
    if (!e && p->n) {
        const uint64_t seed = seed_of(how->seed, x->variant, y->variant, x->task, p->length);
        p->difference = plain_mean(d, p->n);
        p->p = sign_flip(d, p->n, seed);
        e = interval_of(d, p->n, plain_mean, seed, &p->interval);
    }
    free(d);
    return e;
}

static int add_pair(struct ablation *a, int x, int y, int64_t length, int claimed)
{
    struct compared_pair *more = grow(a->pair, a->n_pairs, sizeof *more);

    if (!more)
        return err_set("no memory for pairs");
    a->pair = more;
    more[a->n_pairs++] = (struct compared_pair){
        .a = x, .b = y, .length = length, .word = claimed ? NO_DIFFERENCE : NOT_CLAIMED};
    return 0;
}

/* Of two cells of one task: at each length that both have. */
static int add_pairs(struct ablation *a, int x, int y)
{
    const struct ablated_cell *c = &a->cell[x];
    const int64_t most = longest_of(c, &a->cell[y]);
    int e = 0;

    for (int k = 0; !e && k < c->n_tests; k++)
        if (ablated_test_at(&a->cell[y], c->test[k].length) &&
            ablated_test_at(c, c->test[k].length) == &c->test[k])
            e = add_pair(a, x, y, c->test[k].length, c->test[k].length == most);
    return e;
}

/* The cell of a variant beside that of a task; -1: there is none, or it has no results. */
static int cell_beside(const struct ablation *a, int of, const char *variant)
{
    for (int i = 0; i < a->n_cells; i++)
        if (strcmp(a->cell[i].variant, variant) == 0 &&
            strcmp(a->cell[i].task, a->cell[of].task) == 0)
            return a->cell[i].n ? i : -1;
    return -1;
}

static int find_pairs(const struct ablation_how *how, struct ablation *a)
{
    int e = 0;

    for (int i = 0; !e && i < a->n_cells; i++) {
        const int base = *how->baseline ? cell_beside(a, i, how->baseline) : -1;
        if (base >= 0 && base != i && a->cell[i].n)
            e = add_pairs(a, i, base);
        for (int k = 0; !e && k < how->n_pairs; k++) {
            const int other = strcmp(how->pair[k].a, a->cell[i].variant) == 0
                                  ? cell_beside(a, i, how->pair[k].b)
                                  : -1;
            if (other >= 0 && a->cell[i].n)
                e = add_pairs(a, i, other);
        }
    }
    return e;
}

static enum comparison_word word_of(const struct ablation *a, const struct compared_pair *p,
                                    double margin)
{
    const struct interval *in = &p->interval.bca;
    const int off = in->low > 0 || in->high < 0;

    if (p->adjusted < SIGNIFICANT && off)
        return (p->difference > 0) != a->cell[p->a].in_bits ? BETTER : WORSE;
    return p->n >= EQUAL_SEEDS && in->low >= -margin && in->high <= margin ? EQUAL : NO_DIFFERENCE;
}

static int is_claimed_of(const struct ablation *a, const struct compared_pair *p, const char *task)
{
    return p->word != NOT_CLAIMED && strcmp(a->cell[p->a].task, task) == 0;
}

/* The pairs of a task, by what is claimed of them together.  p and adjusted are memory for one of each pair. */
static void judge_task(const struct ablation_how *how, struct ablation *a, const char *task,
                       double *p, double *adjusted)
{
    int n = 0, of = 0;

    for (int i = 0; i < a->n_pairs; i++)
        if (is_claimed_of(a, &a->pair[i], task))
            p[n++] = a->pair[i].n ? a->pair[i].p : 1;
    holm(p, adjusted, n);
    for (int i = 0; i < a->n_pairs; i++) {
        struct compared_pair *q = &a->pair[i];
        if (!is_claimed_of(a, q, task))
            continue;
        q->adjusted = adjusted[of++];
        q->word = word_of(a, q, how->margin);
        if (!q->n || (q->word == NO_DIFFERENCE && n * sign_flip_least(q->n) >= SIGNIFICANT)) {
            q->word = TOO_FEW_SEEDS;
            q->adjusted = NAN;
        }
    }
}

static int compare_all(const struct ablation_how *how, struct ablation *a)
{
    int e = find_pairs(how, a);
    double *p = malloc((2 * (size_t)a->n_pairs + 1) * sizeof *p);

    e = e || (!p && err_set("no memory for %d pairs", a->n_pairs));
    for (int i = 0; !e && i < a->n_pairs; i++)
        e = compare(how, a, &a->pair[i]);
    for (int i = 0; !e && i < a->n_cells; i++)
        if (!i || strcmp(a->cell[i].task, a->cell[i - 1].task) != 0)
            judge_task(how, a, a->cell[i].task, p, p + a->n_pairs);
    free(p);
    return e ? -1 : 0;
}

/* ---- all ---- */

/* Tasks in their order, and of each the variants in theirs. */
static int add_cell(struct ablation *a, const struct stored_run *r)
{
    int at = a->n_cells;

    for (int i = 0; i < a->n_cells; i++) {
        const struct ablated_cell *c = &a->cell[i];
        if (is_of(r, c->variant, c->task))
            return 0;
        if (strcmp(c->task, r->task) == 0)
            at = i + 1;
    }
    struct ablated_cell *more = grow(a->cell, a->n_cells, sizeof *more);
    if (!more)
        return err_set("no memory for a cell");
    a->cell = more;
    memmove(&more[at + 1], &more[at], (size_t)(a->n_cells++ - at) * sizeof *more);
    more[at] = (struct ablated_cell){.in_bits = r->in_bits, .chance = r->chance, .best = -1};
    memcpy(more[at].variant, r->variant, RUN_NAME);
    memcpy(more[at].task, r->task, RUN_NAME);
    return 0;
}

int ablation_of(const struct runs *r, const struct ablation_how *how, struct ablation *to)
{
    int e = 0;

    *to = (struct ablation){.runs = r};
    for (int i = 0; !e && i < r->n; i++)
        e = add_cell(to, &r->run[i]);
    for (int i = 0; !e && i < to->n_cells; i++) {
        struct ablated_cell *c = &to->cell[i];
        to->n_tasks += !i || strcmp(c->task, c[-1].task) != 0;
        e = choose_rate(r, c) || take_results(r, c) || sum_up(r, how, c);
    }
    return e || compare_all(how, to) ? -1 : 0;
}

struct ablated_task ablated_task_of(const struct ablation *a, int from)
{
    struct ablated_task t = {.from = from, .to = from};

    while (t.to < a->n_cells && strcmp(a->cell[t.to].task, a->cell[from].task) == 0) {
        const struct ablated_cell *c = &a->cell[t.to++];
        for (int k = 0; k < c->n_tests; k++)
            t.longest = c->test[k].length > t.longest ? c->test[k].length : t.longest;
        t.length = c->n_tests && !t.length ? c->test[0].length : t.length;
    }
    return t;
}

void ablation_free(struct ablation *a)
{
    for (int i = 0; i < a->n_cells; i++) {
        free(a->cell[i].rate);
        free(a->cell[i].run);
    }
    free(a->cell);
    free(a->pair);
    *a = (struct ablation){.runs = NULL};
}
