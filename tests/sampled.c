/* Judgement by sample: that the case cut to a sample has the elements of the whole, whatever the
 * contract says may be sampled; that all elements of a product are looked at; and that a sample
 * refuses what full judgement refuses, and nothing else. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/call/cases.h"
#include "common/judge/sampled.h"
#include "tests/suite.h"

/* ---- which rows ---- */

static int ascending(const int64_t *row, int n, int64_t last)
{
    int good = row[0] == 0 && row[n - 1] == last;
    for (int i = 1; i < n; i++)
        good &= row[i - 1] < row[i];
    return good;
}

static void test_rows(void)
{
    static const int64_t sizes[] = {65, 66, 127, 1000, 1 << 30};
    struct call f;
    struct sample s, again, other;

    op_defaults(op_find("softmax"), &f);
    int good = 1, differ = 0;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        DIM(&f, 'R') = sizes[i];
        sample_draw(&s, &f, SAMPLE_ROWS, 1);
        sample_draw(&again, &f, SAMPLE_ROWS, 1);
        sample_draw(&other, &f, SAMPLE_ROWS, 2);
        const int64_t *row = s.row['R' - 'A'];
        good &= s.n['R' - 'A'] == SAMPLE_ROWS && ascending(row, SAMPLE_ROWS, sizes[i] - 1);
        for (int k = 1; k < SAMPLE_ROWS; k++) /* none further apart than two parts */
            good &= row[k] - row[k - 1] <= 2 * ((sizes[i] - 2) / (SAMPLE_ROWS - 2) + 1);
        good &= memcmp(&s, &again, sizeof s) == 0;
        differ += memcmp(&s, &other, sizeof s) != 0;
    }
    ok(good, "the first row, the last, and one of each equal part, the same for the same seed");
    ok(differ >= 4, "others for another seed");
    DIM(&f, 'R') = SAMPLE_ROWS;
    sample_draw(&s, &f, SAMPLE_ROWS, 1);
    ok(!s.n['R' - 'A'], "an axis of no more rows is not cut");
    op_defaults(op_find("gemm"), &f);
    sample_draw(&s, &f, SAMPLE_ROWS, 1);
    ok(s.n['K' - 'A'] == SAMPLE_ROWS && s.n['M' - 'A'] == SAMPLE_ROWS - 1 &&
           s.n['N' - 'A'] == SAMPLE_ROWS - 2,
       "no two axes have as many rows");
}

/* ---- the case that is cut has the elements of the whole ---- */

/* A wrong word in a contract shows here: an element that depends on rows that were cut. */
static double cut_off_by(const struct call *f, int most, int64_t *cut)
{
    const struct call whole = call_on(f, &ref64, op_kernel(f->op, &ref64, 0), NULL);
    struct tensors *inputs = tensors_new(&whole);
    struct sampled s = {.n_cuts = 0};
    double off = -1;

    if (!inputs)
        return INFINITY;
    tensors_draw(inputs, &whole, 7, 1);
    struct tensors *got = run_copy(&(const struct run){.call = whole}, inputs, NULL);
    if (got && !sampled_find_rows(&s, &whole, inputs, most, 3)) {
        struct verdicts list = {NULL, 0};
        off = check_sampled(got, &whole, &s, &list) ? INFINITY : 0;
        for (int i = 0; i < list.n; i++) {
            off = list.v[i].why ? off : fmax(off, list.v[i].error);
            *cut += !list.v[i].why && list.v[i].judged < list.v[i].elements;
        }
        verdicts_free(&list);
    }
    sampled_free(&s);
    tensors_free(got);
    tensors_free(inputs);
    return off;
}

enum { FEW = 2 };

struct cut_cases {
    double worst;
    int64_t cases, cut;
    char where[MAX_TEXT];
};

static int cut_case(const struct call *f, void *data)
{
    struct cut_cases *c = data;
    const double off = cut_off_by(f, FEW, &c->cut);

    c->cases++;
    if (!(off <= c->worst)) {
        c->worst = off;
        op_text(f, c->where);
    }
    return 0;
}

/* Sums may be in another order: as many roundings as a sum of some 10^4 terms has.  Shapes are
 * tried where no case has an axis that is long enough. */
static void test_cut(const struct op *o)
{
    const char *const text[] = {o->cases, o->shapes};
    struct cut_cases c = {0, 0, 0, ""};
    struct call f;
    int e = 0;

    for (int i = 0; !e && i < 2 && !c.cut; i++)
        e = text[i] ? cases_each(o, text[i], cut_case, &c) : 0;
    if (e)
        ok(0, "%s: %s", o->name, err_text());
    else if (!ok(c.worst < 1e-11, "%s cut to %d rows has the elements of the whole: %d cases",
                 o->name, FEW, (int)c.cases))
        printf("# off by %.2g: %s\n", c.worst, c.where);
    if (!e && !c.cut && o->batch) /* e74_block: none has a batch of more than two */
        e = cases_each(o, "batch=5 steps=3", cut_case, &c);
    op_defaults(o, &f);
    if (!op_complete(&f) && sample_some(&f))
        ok(c.cut > 0, "%s: %d results were cut", o->name, (int)c.cut);
}

/* ---- what is wrong anywhere ---- */

/* A case of a yardstick, judged fully and by sample. */
struct bench {
    struct call call;
    struct tensors *inputs, *got;
    struct truth truth;
    struct sampled sampled;
};

static int bench_seed(struct bench *b, const char *op, const char *settings,
                      const struct backend *on,
                      void (*change)(const struct call *, struct tensors *), uint64_t seed)
{
    *b = (struct bench){.inputs = NULL};
    if (cases_one(op_find(op), settings, &b->call))
        return -1;
    b->call = call_here(&b->call, on, op_kernel(b->call.op, on, 0));
    b->inputs = tensors_new(&b->call);
    if (!b->inputs)
        return -1;
    tensors_draw(b->inputs, &b->call, seed, 1);
    if (change)
        change(&b->call, b->inputs);
    tensors_round(b->inputs, &b->call);
    b->got = run_copy(&(const struct run){.call = b->call}, b->inputs, NULL);
    return !b->got || truth_find(&b->truth, &b->call, b->inputs) ||
           sampled_find_rows(&b->sampled, &b->call, b->inputs, 16, 11);
}

static int bench_new(struct bench *b, const char *op, const char *settings,
                     const struct backend *on,
                     void (*change)(const struct call *, struct tensors *))
{
    return bench_seed(b, op, settings, on, change, 5);
}

static void bench_free(struct bench *b)
{
    sampled_free(&b->sampled);
    truth_free(&b->truth);
    tensors_free(b->got);
    tensors_free(b->inputs);
}

/* The verdict whose error is the largest part of its bound. */
struct worst {
    double error, bound;
    int failed; /* checks */
};

/* The same of max alone, since a sample has no other measure of all elements. */
static void by_max(struct bench *b, struct worst *w)
{
    struct bounds bounds;

    bounds_from(&bounds, &b->call, &b->truth);
    w->error = 0;
    w->bound = 1;
    FOR_RESULTS (&b->call, i, grad) {
        const struct tensor_pair pair = {&b->call, i, grad, tensors_values(b->got, i, grad),
                                         truth_wants(&b->truth, i, grad)};
        const double error = pair_distance(&pair).max;
        const double bound = X_OR_G(bounds, i, grad).of[BY_MAX];
        if (error / bound > w->error / w->bound) {
            w->error = error;
            w->bound = bound;
        }
    }
}

static struct worst worst_of(struct bench *b, int by_sample)
{
    struct verdicts list = {NULL, 0};
    const struct judge j = {&b->truth, by_sample ? &b->sampled : NULL};
    struct worst w = {0, 1, 0};

    w.failed = check_case(&j, &b->call, b->got, &list) ? 1000 : verdicts_failed(&list, 0);
    for (int i = 0; i < list.n; i++) {
        const struct verdict *v = &list.v[i];
        if ((v->error / v->bound > w.error / w.bound && !v->unjudged) || !v->pass)
            w = (struct worst){v->error, v->bound, w.failed};
    }
    if (!by_sample)
        by_max(b, &w);
    verdicts_free(&list);
    return w;
}

enum wrong { REPLACED, NEGATED, ZEROED, TENTH, NOT_A_NUMBER, INFINITE, FAR_OFF, N_WRONG };

static double wrong(enum wrong how, double x, double other)
{
    switch (how) {
    case REPLACED: return other;
    case NEGATED: return -x;
    case ZEROED: return 0;
    case TENTH: return 1.1 * x;
    case NOT_A_NUMBER: return NAN;
    case INFINITE: return INFINITY;
    default: return 1e30;
    }
}

/* Of single elements of a result that are wrong: those that full judgement finds too far off, those
 * of them that a sample does not, and those that it finds too far off and full judgement does not.
 * The two have bounds of different samples of roundings: what is within a factor of 2 of the bound
 * does not count. */
struct planted {
    int refused, missed, alarms;
};

static struct planted plant(struct bench *b, int arg, int grad, int n)
{
    struct planted count = {0, 0, 0};
    double *x = tensors_result(b->got, arg, grad);
    const double size = (double)op_count(&b->call, arg);

    for (int i = 0; i < n; i++) {
        const int64_t at = (int64_t)(draw_uniform(17, i) * size);
        const double was = x[at], other = x[(int64_t)(draw_uniform(18, i) * size)];
        x[at] = wrong(i % N_WRONG, was, other);
        const struct worst full = worst_of(b, 0), sampled = worst_of(b, 1);
        count.refused += full.failed && full.error > 2 * full.bound;
        count.missed += full.failed && full.error > 2 * full.bound && !sampled.failed;
        count.alarms += sampled.failed && !full.failed && sampled.error < full.bound / 2;
        x[at] = was;
    }
    return count;
}

static void test_products(const char *op, const char *settings, const struct backend *on)
{
    enum { EACH = 70 };
    struct bench b;

    if (bench_new(&b, op, settings, on, NULL)) {
        ok(0, "%s %s: %s", op, settings, err_text());
        bench_free(&b);
        return;
    }
    ok(!worst_of(&b, 0).failed && !worst_of(&b, 1).failed, "%s %s %s: right results pass", on->name,
       op, settings);
    FOR_RESULTS (&b.call, i, grad) {
        char name[32];
        if (!product_of(&b.call, i, grad))
            continue;
        tensor_name(b.call.op, i, grad, name);
        const struct planted count = plant(&b, i, grad, EACH);
        ok(count.refused > EACH / 3 && !count.missed && !count.alarms,
           "%s %s %s: %d wrong elements of %s, %d far off, of which a sample misses %d; %d alarms",
           on->name, op, settings, EACH, name, count.refused, count.missed, count.alarms);
    }
    bench_free(&b);
}

/* Neighbours that have changed places: with weights of one the sums stay as they are. */
static void test_swapped(void)
{
    struct bench b;
    int e = bench_new(&b, "gemm", "M=70 N=90 K=50", &ref32, NULL);
    const int C = op_arg(op_find("gemm"), "C");

    for (int64_t i = 1; !e && i < 69; i++) { /* no sampled row: most of them */
        double *row = b.got->x[C] + 90 * i, was = row[4];
        row[4] = row[5];
        row[5] = was;
    }
    const struct worst w = e ? (struct worst){0, 1, 0} : worst_of(&b, 1);
    ok(w.failed, "neighbours that have changed places are seen");
    struct verdicts list = {NULL, 0};
    struct bounds bounds;
    if (!e)
        bounds_from(&bounds, &b.call, &b.truth);
    e = e || check_product(b.got, &b.call, &b.sampled, product_of(&b.call, C, 0),
                           &(const struct expected){1e-7, 30, &bounds}, &list);
    ok(!e && list.n == 1 && !list.v[0].pass && list.v[0].judged == 6300, "by the sums alone, too");
    verdicts_free(&list);
    bench_free(&b);
}

/* Sums of one product after the other in float, as a plain kernel has them, are right, however long
 * and however few: of thin results the sample has few elements, and of those that BLAS sums few
 * errors. */
static void test_in_order(const char *settings, uint64_t seeds)
{
    double full = 0, sampled = 0;
    int failed = 0;

    for (uint64_t seed = 0; seed < seeds; seed++) {
        struct bench b;
        int e = bench_seed(&b, "gemm", settings, &ref32, NULL, 100 + seed);
        const struct call *f = &b.call;
        const int64_t M = DIM(f, 'M'), N = DIM(f, 'N'), K = DIM(f, 'K');
        const int A = op_arg(f->op, "A"), B = op_arg(f->op, "B"), C = op_arg(f->op, "C");

        for (int64_t i = 0; !e && i < M * N; i++) {
            float sum = 0;
            for (int64_t k = 0; k < K; k++)
                sum += (float)b.inputs->x[A][i / N * K + k] * (float)b.inputs->x[B][k * N + i % N];
            b.got->x[C][i] = sum;
        }
        for (int way = 0; !e && way < 2; way++) {
            const struct worst w = worst_of(&b, way);
            *(way ? &sampled : &full) = fmax(way ? sampled : full, w.error / w.bound);
            failed += w.failed;
        }
        failed += e ? 1000 : 0;
        bench_free(&b);
    }
    ok(!failed, "gemm %s, summed in order: right in full and by sample: %.2g and %.2g of the bound",
       settings, full, sampled);
}

/* Every product of every contract is one of matrices, and its names are there. */
static void test_contracts(void)
{
    for (int k = 0; k < N_OPS; k++)
        for (const struct product *p = ops[k]->product; p && p->result; p++) {
            const char *const name[] = {p->result, p->left, p->right, p->added};
            int good = 1;
            for (int i = 0; i < 4; i++)
                good &=
                    !name[i] || op_arg(ops[k], name[i] + (strncmp(name[i], "d_", 2) ? 0 : 2)) >= 0;
            ok(good, "%s: the tensors of product %s are there", ops[k]->name, p->result);
        }
}

/* ---- inputs that a sample may not be misled by ---- */

/* All roundings have the same sign, and so have their sums. */
static void constant(const struct call *f, struct tensors *t)
{
    for (int i = 0; i < f->op->n_args; i++)
        for (int64_t k = 0; k < op_count(f, i); k++) {
            if (t->x[i])
                t->x[i][k] = 0.703125;
            if (t->g[i])
                t->g[i][k] = 0.296875;
        }
}

/* Some rows and columns 10^4 times as large as the others. */
static void outliers(const struct call *f, struct tensors *t)
{
    for (int i = 0; i < f->op->n_args; i++) {
        const char *shape = op_shape(f, i);
        const int64_t columns = DIM(f, shape[strlen(shape) - 1]);
        for (int64_t k = 0; k < op_count(f, i); k++) {
            const double by = k / columns % 37 == 5 || k % columns % 41 == 7 ? 1e4 : 1;
            if (t->x[i])
                t->x[i][k] *= by;
            if (t->g[i])
                t->g[i][k] *= by;
        }
    }
}

static void zeros(const struct call *f, struct tensors *t)
{
    for (int i = 0; i < f->op->n_args; i++)
        for (int64_t k = 0; k < op_count(f, i); k++) {
            if (t->x[i])
                t->x[i][k] = k % 97 == 3;
            if (t->g[i])
                t->g[i][k] = 0;
        }
}

/* A NaN and infinities, which reach whole rows and columns of results. */
static void not_finite(const struct call *f, struct tensors *t)
{
    for (int i = 0; i < f->op->n_args; i++)
        for (int64_t k = 0; t->x[i] && k < op_count(f, i); k += 1 + op_count(f, i) / 3)
            t->x[i][k] = k % 2 ? NAN : k % 3 ? INFINITY : -INFINITY;
}

static void huge(const struct call *f, struct tensors *t)
{
    for (int i = 0; i < f->op->n_args; i++)
        for (int64_t k = 0; t->x[i] && k < op_count(f, i); k++)
            t->x[i][k] *= 3e19;
}

static void test_inputs(const char *op, const char *settings)
{
    static const struct {
        const char *name;
        void (*change)(const struct call *f, struct tensors *t);
    } inputs[] = {{"constant", constant},
                  {"outliers", outliers},
                  {"zeros", zeros},
                  {"huge", huge},
                  {"NaN, infinity", not_finite}};
    static const struct backend *const on[] = {&ref32, &ref_bf16};

    for (size_t k = 0; k < COUNT(inputs); k++)
        for (size_t t = 0; t < COUNT(on); t++) {
            struct bench b;
            int e = bench_new(&b, op, settings, on[t], inputs[k].change);
            const struct worst none = {0, 1, 1}, full = e ? none : worst_of(&b, 0);
            const struct worst sampled = e ? none : worst_of(&b, 1);
            ok(!full.failed && !sampled.failed,
               "%s %s %s, %s: right results pass: %.2g and %.2g of the bound", on[t]->name, op,
               settings, inputs[k].name, full.error / full.bound, sampled.error / sampled.bound);
            bench_free(&b);
        }
}

/* ---- what is not judged is never passed ---- */

static void test_not_judged(void)
{
    struct bench b;
    struct verdicts list = {NULL, 0};
    int e = bench_new(&b, "layernorm", "rows=40 columns=24", &ref32, NULL) ||
            check_sampled(b.got, &b.call, &b.sampled, &list);
    int unjudged = 0, judged = 0;

    for (int i = 0; !e && i < list.n; i++) {
        const struct verdict *v = &list.v[i];
        const int sums = strcmp(v->tensor, "d_w") == 0 || strcmp(v->tensor, "d_b") == 0;
        unjudged += sums && v->unjudged && v->why && v->judged == 0 && v->elements == 24 &&
                    strcmp(verdict_word(v), "not judged") == 0;
        judged += !sums && !v->unjudged && v->judged < v->elements;
    }
    ok(unjudged == 2 && judged == 4 && verdicts_unjudged(&list, 0) == 2,
       "layernorm: d_w and d_b are not judged, all others are");
    verdicts_free(&list);
    bench_free(&b);
    struct call f;
    op_defaults(op_find("histogram"), &f);
    ok(!sample_some(&f), "histogram cannot be sampled");
    ok(!cases_one(op_find("reduce"), "over=all", &f) && !sample_some(&f) &&
           !cases_one(op_find("reduce"), "", &f) && sample_all(&f),
       "reduce can, unless it is over all");
}

static int count_worthwhile(const struct call *f, void *data)
{
    *(int *)data += sample_worthwhile(f);
    return 0;
}

static void test_worthwhile(void)
{
    struct call f;

    ok(!cases_one(op_find("gemm"), "M=1000 N=1000 K=1000", &f) && !sample_worthwhile(&f),
       "6 GFLOP are judged in full");
    ok(!cases_one(op_find("gemm"), "M=3000 N=5000 K=7000", &f) && sample_worthwhile(&f),
       "630 GFLOP are not");
    ok(!cases_one(op_find("layernorm"), "rows=1000000 columns=4096", &f) && !sample_worthwhile(&f),
       "but where a result cannot be sampled");
    for (int k = 0; k < N_OPS; k++)
        for (const char *const *text = (const char *const[]){ops[k]->cases, ops[k]->shapes, NULL};
             *text; text++) {
            int much = 0;
            if (cases_each(ops[k], *text, count_worthwhile, &much) || much)
                ok(0, "%s: %d cases of the suites would be sampled", ops[k]->name, much);
        }
}

int main(void)
{
    static const char *const products[][2] = {
        {"gemm", "M=70 N=90 K=50 alpha=0.5 beta=-1.5"},
        {"gemm", "M=33 N=65 K=129 transpose_a=yes transpose_b=yes"},
        {"gemm", "M=40 N=30 K=1 transpose_a=yes"},
        {"gemm", "M=1 N=80 K=60 transpose_a=yes"},
        {"gemm_batched", "M=20 N=40 K=30 batch=5 transpose_b=yes"},
        {"linear", "rows=60 dim_in=50 dim_out=70 bias=yes act=silu"},
        {"linear", "rows=60 dim_in=50 dim_out=70 bias=yes act=relu"},
        {"linear", "rows=60 dim_in=50 dim_out=70 bias=yes"},
        {"lora", "rows=60 dim_in=50 dim_out=70 rank=20"},
    };

    test_rows();
    for (int i = 0; i < N_OPS; i++)
        test_cut(ops[i]);
    test_contracts();
    test_swapped();
    for (size_t i = 0; i < COUNT(products); i++) {
        test_products(products[i][0], products[i][1], &ref32);
        test_products(products[i][0], products[i][1], &ref_bf16);
    }
    test_inputs("gemm", "M=90 N=110 K=70");
    test_inputs("linear", "rows=90 dim_in=50 dim_out=70 bias=yes act=silu");
    test_inputs("softmax", "rows=90 columns=33");
    test_in_order("M=1 N=40 K=65536", 8);
    test_not_judged();
    test_worthwhile();
    return done();
}
