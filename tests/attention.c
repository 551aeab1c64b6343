/* Cases of attention whose answers are known without any reference: rows that see nothing, one query,
 * one key, keys that are all -inf, scores of +-1e4, equal scores, a scale that leaves nothing of the
 * scores, NaN and infinity in what nobody sees, NaN in one query.  On every kernel of every backend that
 * can run here; sizes that are no multiples of a tile. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/ops/attention.h"
#include "tests/suite.h"

/* ---- asking ---- */

/* A case on a kernel, and its tensors. */
struct asked {
    struct call f;
    struct tensors *t;
    char what[MAX_TEXT];
};

static int ask(struct asked *a, const struct on *on, const char *settings)
{
    const struct op *o = op_find("attention");
    struct call f;

    memset(a, 0, sizeof *a);
    snprintf(a->what, sizeof a->what, "%s %s %s", on->backend->name, on->kernel->name, settings);
    if (cases_one(o, settings, &f))
        return ok(0, "%s: %s", a->what, err_text());
    a->f = call_here(&f, on->backend, on->kernel);
    if (declined(&a->f))
        return 0;
    a->t = tensors_new(&a->f);
    if (!a->t)
        return ok(0, "%s: %s", a->what, err_text());
    tensors_draw(a->t, &a->f, 1, 1);
    return 1;
}

/* The answer; 0 after a line that says why there is none. */
static int answer(struct asked *a)
{
    const struct run c = {.call = a->f};

    tensors_round(a->t, &a->f);
    return !run_op(&c, a->t, NULL) || ok(0, "%s: %s", a->what, err_text());
}

/* A tensor by its name, or "d_" and its name; and the number of its elements. */
static double *tensor(const struct asked *a, const char *name, int64_t *n)
{
    const int grad = strncmp(name, "d_", 2) == 0, arg = op_arg(a->f.op, name + 2 * grad);

    *n = op_count(&a->f, arg);
    return a->f.op->arg[arg].flags & IN && !grad   ? a->t->x[arg]
           : a->f.op->arg[arg].flags & OUT && grad ? a->t->g[arg]
                                                   : tensors_result(a->t, arg, grad);
}

static double *values(const struct asked *a, const char *name)
{
    int64_t n;
    return tensor(a, name, &n);
}

static void give(const struct asked *a, const char *name, double x)
{
    int64_t n;
    double *to = tensor(a, name, &n);
    for (int64_t i = 0; i < n; i++)
        to[i] = x;
}

/* The tolerance of a result whose elements are of this size: some roundings of the sums, one of what is
 * stored. */
static double close_to(const struct asked *a, double size)
{
    return size * (types[a->f.backend->type].unit + 32 * types[a->f.backend->wide].unit);
}

/* The largest distance of n elements from x, infinite if one of the two is NaN; equal ones, infinities
 * too, have none. */
static double farthest(const double *got, int64_t n, double x)
{
    double far = 0;
    for (int64_t i = 0; i < n; i++)
        if (got[i] != x)
            far = fmax(far, isnan(got[i] - x) ? INFINITY : fabs(got[i] - x));
    return far;
}

static double farthest_of(const struct asked *a, const char *name, double x)
{
    int64_t n;
    const double *got = tensor(a, name, &n);
    return farthest(got, n, x);
}

static int64_t count_nan(const double *x, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += isnan(x[i]);
    return count;
}

/* The worst of several distances. */
static double worst(int n, const double *off)
{
    double far = 0;
    for (int i = 0; i < n; i++)
        far = fmax(far, off[i]);
    return far;
}
#define WORST(...) worst(sizeof(double[]){__VA_ARGS__} / sizeof(double), (double[]){__VA_ARGS__})

static void known(struct asked *a, const char *answer_is, double off, double tolerance)
{
    if (!ok(off <= tolerance, "%s: %s", answer_is, a->what))
        printf("# off by %.3g, tolerance %.3g\n", off, tolerance);
    tensors_free(a->t);
}

/* ---- what is known ---- */

/* The average over the S keys of v, in one head. */
static double average(const struct asked *a, int64_t b, int64_t g, int64_t e, int64_t step)
{
    const int64_t S = DIM(&a->f, 'S'), G = DIM(&a->f, 'G'), E = DIM(&a->f, 'E');
    const double *v = values(a, "v");
    double sum = 0;
    int64_t n = 0;

    for (int64_t j = 0; j < S; j += step, n++)
        sum += v[((b * S + j) * G + g) * E + e];
    return sum / (double)n;
}

/* How far o is from the average of every step-th v. */
static double from_average(const struct asked *a, int64_t step)
{
    const struct call *f = &a->f;
    const int64_t T = DIM(f, 'T'), H = DIM(f, 'H'), E = DIM(f, 'E'), G = DIM(f, 'G');
    const double *o = values(a, "o");
    double far = 0;

    for (int64_t b = 0; b < DIM(f, 'B'); b++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t e = 0; e < E; e++) {
                const double mean = average(a, b, h * G / H, e, step);
                for (int64_t i = 0; i < T; i++)
                    far = fmax(far, farthest(o + ((b * T + i) * H + h) * E + e, 1, mean));
            }
    return far;
}

/* Of 70 queries over 3 keys, aligned at the end, the first 67 see none: o = 0, lse = -inf, or the sink, and
 * d_q = 0.  The next sees the first key alone: o is its v. */
static void empty_rows(const struct on *on, int sink)
{
    struct asked a;

    if (!ask(&a, on,
             sink ? "batch=1 steps=70 keys=3 heads=2 dim=5 mask=causal sink=yes"
                  : "batch=1 steps=70 keys=3 heads=2 dim=5 mask=causal"))
        return;
    if (sink)
        give(&a, "sinks", 2);
    if (!answer(&a))
        return;
    const double *lse = values(&a, "lse"), *o = values(&a, "o"), *v = values(&a, "v");
    const double none = sink ? 2 : -INFINITY;
    double off = WORST(farthest(o, (int64_t)67 * 2 * 5, 0),
                       farthest(values(&a, "d_q"), (int64_t)67 * 2 * 5, 0), farthest(lse, 67, none),
                       farthest(lse + 70, 67, none));
    if (!sink)
        for (int e = 0; e < 2 * 5; e++)
            off = fmax(off, farthest(o + 67 * 2 * 5 + e, 1, v[e]));
    known(&a, "rows that see nothing", off, 0);
}

/* One key: P = 1, so o = v, lse = s, d_v = sum do, and dq = scale dlse k. */
static void one_key(const struct on *on)
{
    struct asked a;
    double off = 0;

    if (!ask(&a, on, "batch=1 steps=37 keys=1 heads=1 dim=1 mask=full scale=1"))
        return;
    give(&a, "k", 2);
    if (!answer(&a))
        return;
    const double *q = values(&a, "q"), *lse = values(&a, "lse"), *dq = values(&a, "d_q");
    const double *dlse = values(&a, "d_lse"), *d_o = values(&a, "d_o");
    double sum = 0;
    for (int i = 0; i < 37; i++) {
        off = WORST(off, farthest(lse + i, 1, 2 * q[i]), farthest(dq + i, 1, 2 * dlse[i]));
        sum += d_o[i];
    }
    off = WORST(off, from_average(&a, 1), farthest_of(&a, "d_v", sum));
    known(&a, "one key", off, close_to(&a, 8));
}

/* One query over equal keys: P = 1 / S, and dk = scale q ds, where ds sums to dlse. */
static void one_query(const struct on *on)
{
    struct asked a;

    if (!ask(&a, on,
             "batch=2 steps=1 keys=133 heads=3 kv_heads=1 dim=1 dim_v=5 mask=causal scale=1"))
        return;
    give(&a, "k", 0.5);
    give(&a, "q", 3);
    give(&a, "v", 1);
    if (!answer(&a))
        return;
    const double *dlse = values(&a, "d_lse"), *dk = values(&a, "d_k"), *d_o = values(&a, "d_o");
    double off = WORST(farthest_of(&a, "o", 1), farthest_of(&a, "lse", 1.5 + log(133)));
    for (int b = 0; b < 2; b++) {
        const double sum = dlse[3 * b] + dlse[3 * b + 1] + dlse[3 * b + 2];
        off = WORST(off, farthest(dk + (int64_t)133 * b, 133, 3 * sum / 133));
        for (int e = 0; e < 5; e++) {
            const double *of = d_o + (int64_t)15 * b + e;
            off = WORST(off, farthest(values(&a, "d_v") + (int64_t)133 * 5 * b + e, 1,
                                      (of[0] + of[5] + of[10]) / 133));
        }
    }
    known(&a, "one query, equal keys", off, close_to(&a, 8));
}

/* All keys are -inf: o = 0, lse = -inf, no gradients; with a sink lse is the sink, and d_sinks sums dlse. */
static void all_masked(const struct on *on, int sink)
{
    struct asked a;
    double off = 0;

    if (!ask(&a, on,
             sink ? "batch=1 steps=67 heads=1 dim=1 mask=full scale=1 sink=yes"
                  : "batch=1 steps=67 heads=1 dim=1 mask=full scale=1"))
        return;
    give(&a, "q", 1);
    give(&a, "k", -INFINITY);
    if (sink)
        give(&a, "sinks", -3);
    if (!answer(&a))
        return;
    off = WORST(farthest_of(&a, "o", 0), farthest_of(&a, "lse", sink ? -3 : -INFINITY),
                farthest_of(&a, "d_q", 0), farthest_of(&a, "d_k", 0), farthest_of(&a, "d_v", 0));
    if (sink && off == 0) {
        const double *dlse = values(&a, "d_lse");
        double sum = 0;
        for (int i = 0; i < 67; i++)
            sum += dlse[i];
        off = farthest_of(&a, "d_sinks", sum);
    }
    known(&a, "all keys are -inf", off, sink ? close_to(&a, 64) : 0);
}

/* Scores of 1e4 and -1e4, by turns: only the first count. */
static void far_scores(const struct on *on)
{
    struct asked a;
    int64_t n;

    if (!ask(&a, on, "batch=1 steps=66 keys=130 heads=1 dim=1 dim_v=3 mask=full scale=1"))
        return;
    give(&a, "q", 100);
    double *k = tensor(&a, "k", &n), off = 0;
    for (int64_t j = 0; j < n; j++)
        k[j] = j % 2 ? -100 : 100;
    if (!answer(&a))
        return;
    for (int64_t j = 0; j < n; j++)
        if (k[j] < 0)
            off = WORST(off, farthest(values(&a, "d_v") + 3 * j, 3, 0),
                        farthest(values(&a, "d_k") + j, 1, 0));
    off = WORST(off, from_average(&a, 2));
    const double of_lse = farthest_of(&a, "lse", 1e4 + log(65)) * 1e-4;
    known(&a, "scores of 1e4 and -1e4", WORST(off, of_lse), close_to(&a, 4));
}

/* Queries of 0, or a scale of 1e-30: all scores are equal, P = 1 / S. */
static void equal_scores(const struct on *on, const char *settings)
{
    struct asked a;

    if (!ask(&a, on, settings))
        return;
    if (a.f.real[ATTENTION_SCALE] == 0)
        give(&a, "q", 0);
    if (!answer(&a))
        return;
    const double off = WORST(from_average(&a, 1), farthest_of(&a, "lse", log(129)));
    known(&a, "equal scores", off, close_to(&a, 8));
}

/* ---- what reaches no result ---- */

/* The largest difference of two answers in a tensor; NaN differs. */
static double differ(const struct asked *a, const struct asked *b, const char *name)
{
    int64_t n;
    const double *x = tensor(a, name, &n), *y = values(b, name);
    double far = 0;
    for (int64_t i = 0; i < n; i++)
        far = fmax(far, farthest(x + i, 1, y[i]));
    return far;
}

static const char *const results[] = {"o", "lse", "d_q", "d_k", "d_v"};

/* Keys 0 to 69 of 140 that no query sees, and then NaN or infinity in their k and v: not one result
 * changes, and the gradients there are 0. */
static void unseen(const struct on *on, double odd)
{
    const char *const settings = "batch=1 steps=70 keys=140 heads=2 dim=33 dim_v=6 "
                                 "mask=window left=0 right=3";
    struct asked a, b;
    double off = 0;

    if (!ask(&a, on, settings))
        return;
    if (!ask(&b, on, settings))
        return;
    for (int64_t i = 0; i < (int64_t)70 * 2 * 33; i++)
        values(&b, "k")[i] = odd;
    for (int64_t i = 0; i < (int64_t)70 * 2 * 6; i++)
        values(&b, "v")[i] = odd;
    if (!answer(&a) || !answer(&b))
        return;
    for (size_t i = 0; i < COUNT(results); i++)
        off = fmax(off, differ(&a, &b, results[i]));
    off = WORST(off, farthest(values(&b, "d_k"), (int64_t)70 * 2 * 33, 0),
                farthest(values(&b, "d_v"), (int64_t)70 * 2 * 6, 0));
    tensors_free(a.t);
    known(&b, isnan(odd) ? "NaN in keys that nobody sees" : "infinity in keys that nobody sees",
          off, 0);
}

/* NaN in query 40 of 70: its o, lse and d_q are NaN, and so are the gradients of the keys that it sees, 0 to
 * 40; all else is as without. */
static void one_nan(const struct on *on)
{
    const char *const settings = "batch=1 steps=70 heads=1 dim=36 dim_v=4 mask=causal";
    struct asked a, b;

    if (!ask(&a, on, settings))
        return;
    if (!ask(&b, on, settings))
        return;
    values(&b, "q")[40 * 36 + 7] = NAN;
    if (!answer(&a) || !answer(&b))
        return;
    int all = 1;
    for (size_t r = 0; r < COUNT(results); r++) {
        const int of_keys = r >= 3; /* d_k and d_v */
        int64_t n;
        double *x = tensor(&a, results[r], &n), *y = values(&b, results[r]);
        const int64_t width = n / 70, first = of_keys ? 0 : 40 * width, last = 41 * width;
        all &= count_nan(y + first, last - first) == last - first;
        memcpy(y + first, x + first, (last - first) * sizeof *x);
    }
    double off = all ? 0 : INFINITY;
    for (size_t r = 0; r < COUNT(results); r++)
        off = fmax(off, differ(&a, &b, results[r]));
    tensors_free(a.t);
    known(&b, "NaN in one query", off, 0);
}

/* ---- all of it ---- */

static void judge(const struct on *on)
{
    for (int sink = 0; sink < 2; sink++) {
        empty_rows(on, sink);
        all_masked(on, sink);
    }
    one_key(on);
    one_query(on);
    far_scores(on);
    equal_scores(on, "batch=2 steps=70 keys=129 heads=2 dim=3 mask=full");
    equal_scores(on, "batch=2 steps=70 keys=129 heads=2 dim=3 mask=full scale=1e-30");
    unseen(on, NAN);
    unseen(on, INFINITY);
    one_nan(on);
}

int main(void)
{
    const struct impl *k;
    const struct op *o = op_find("attention");
    const char *why = NULL;

    for (const struct backend *const *b = backends(); *b; b++)
        if (!backend_unavailable(here(), *b))
            for (int n = 0; (k = op_kernel(o, *b, n)); n++)
                if (!other_kernel(k))
                    judge(&(struct on){*b, k});
    if (!any_gpu(&why))
        skip(why, "the same on a GPU");
    return done();
}
