/* A verdict says what it would have seen: an error that is a little larger is refused, and after all
 * samples one that is a little smaller passes.
 *
 *     power [OPERATION]
 *     power --table               the table of doc/experiments.md: what is seen at ordinary sizes, and the
 *                                 median of the contract's cases
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/suite.h"

enum { FEW_ROWS = 100 };
static const double MORE = 1.02, LESS = 0.98;

/* A result of a case, and what its verdict sees. */
struct seen {
    struct question *q;
    const struct call *f;
    int arg, grad, thorough;
    struct power power;
    int64_t n;
    const double *want;
    double *wrong; /* room for n */
};

/* Is it refused?  -1 after err_set(). */
static int refused(const struct seen *s, const double *x, struct power *power)
{
    struct verdict v;
    const struct tensor_pair pair = {s->f, s->arg, s->grad, x, s->want};
    const int found = refuses(&pair, &s->q->truth, s->thorough, &v);

    if (found >= 0 && power)
        *power = v.power;
    return found;
}

static int refused_all(const struct seen *s, double error)
{
    for (int64_t i = 0; i < s->n; i++)
        s->wrong[i] = s->want[i] * (1 + error);
    return refused(s, s->wrong, NULL);
}

/* In how many of some rows is an error refused: of all of the row, or of its first element? */
static int refused_rows(const struct seen *s, double error, int element, int *rows)
{
    const struct slices slices = slices_of(s->f, s->arg);
    const int64_t step = slices.rows > FEW_ROWS ? slices.rows / FEW_ROWS : 1;
    double most = 0;
    int found = 0;

    *rows = 0;
    for (int64_t i = 0; i < s->n; i++)
        most = fmax(most, isfinite(s->want[i]) ? fabs(s->want[i]) : 0);
    for (int64_t r = 0; r < slices.rows; r += step) {
        memcpy(s->wrong, s->want, (size_t)s->n * sizeof *s->wrong);
        double size = 0;
        for (int64_t i = r * slices.columns; i < (r + 1) * slices.columns; i++) {
            size = fmax(size, fabs(s->want[i]));
            s->wrong[i] = element ? s->want[i] : s->want[i] * (1 + error);
        }
        if (element)
            s->wrong[r * slices.columns] += error * most;
        if (!(size > 0))
            continue;
        ++*rows;
        found += refused(s, s->wrong, NULL) == 1;
    }
    return found;
}

static int promised, kept; /* with few samples */

static void test_result(const struct seen *s, const char *case_text)
{
    const struct power *p = &s->power;
    char name[32], what[MAX_TEXT + 200];
    int rows;

    tensor_name(s->f->op, s->arg, s->grad, name);
    snprintf(what, sizeof what, "%s %s %s, %s", s->f->op->name, s->f->backend->name, name,
             case_text);
    if (!s->thorough) { /* an estimate: of the largest of few samples */
        promised++;
        kept += refused_all(s, MORE * p->all) == 1;
        return;
    }
    ok(refused_all(s, MORE * p->all) == 1, "sees %.3g of all: %s", p->all, what);
    ok(refused_all(s, LESS * p->all) == 0, "and less would pass: %s", what);
    if (p->samples && !isnan(p->slice)) {
        const int row = refused_rows(s, MORE * p->slice, 0, &rows);
        ok(2 * row >= rows - 1, "sees %.3g of a row in %d of %d: %s", p->slice, row, rows, what);
    }
    const int element = refused_rows(s, MORE * p->element, 1, &rows);
    ok(2 * element >= rows - 1, "sees %.3g of an element in %d of %d: %s", p->element, element,
       rows, what);
}

static int is_asked(const struct call *f, int arg, int grad)
{
    const unsigned flags = f->op->arg[arg].flags;
    return (grad || flags & OUT) && !(flags & (WHOLE | BYTES | BIT_EXACT));
}

static int test_call(const struct call *f, int thorough)
{
    struct question q;
    char text[MAX_TEXT];
    int e = question_new(&q, f);

    op_text(f, text);
    FOR_RESULTS (f, i, grad) {
        struct seen s = {&q, f, i, grad, thorough, power_unknown, op_count(f, i), NULL, NULL};
        if (e || !is_asked(f, i, grad))
            continue;
        s.want = truth_wants(&q.truth, i, grad);
        s.wrong = malloc((size_t)s.n * sizeof *s.wrong + 1);
        e = !s.wrong || refused(&s, s.want, &s.power) != 0;
        if (!e && s.power.samples && s.power.all < 0.25)
            test_result(&s, text);
        free(s.wrong);
    }
    question_free(&q);
    return e ? -1 : 0;
}

static int test_case(const struct call *f, void *data)
{
    static const struct backend *const on[] = {&ref32, &ref_bf16};
    (void)data;

    for (size_t k = 0; k < COUNT(on); k++) {
        const struct call c = call_here(f, on[k], op_kernel(f->op, on[k], 0));
        if (test_call(&c, 0) || test_call(&c, 1))
            return -1;
    }
    return 0;
}

static const struct {
    const char *op, *words;
} cases[] = {
    {"rmsnorm", "rows=24 columns=256; rows=30 columns=7 eps=0.5"},
    {"layernorm", "rows=24 columns=96"},
    {"softmax", "rows=24 columns=128"},
    {"gemm", "M=32 N=24 K=64"},
    {"silu", "rows=16 dim=96"},
    {"swiglu", "rows=16 dim=96"},
    {"scan", "rows=16 length=50"},
    {"rope", "steps=8 batch=2 heads=2 dim=16"},
    {"attention", "batch=1 steps=32 heads=2 dim=16 mask=causal"},
    {"cross_entropy", "rows=16 vocabulary=50"},
    {"linear", "rows=24 dim_in=32 dim_out=20 bias=yes act=silu"},
    {"e74_cell", "steps=8 batch=2 n_state=16"},
    {"embedding", "rows=64 vocabulary=20 width=24 tokens=zipf"},
    {"adamw", "parameters=300"},
};

/* ---- the table ---- */

static const struct {
    const char *op, *words;
} ordinary[] = {
    {"transpose", "rows=64 columns=48"},
    {"reduce", "kind=mean rows=64 length=256"},
    {"sum_squares", "length=1000"},
    {"scan", "rows=64 length=200"},
    {"stencil1d", "length=1000 radius=4"},
    {"stencil2d", "height=40 width=50 radius=2"},
    {"gemm", "M=64 N=64 K=256"},
    {"gemm_splitk", "M=16 N=16 K=2048"},
    {"gemm_batched", "batch=4 M=32 N=32 K=64"},
    {"gemv", "M=256 K=256"},
    {"linear", "rows=48 dim_in=64 dim_out=56 bias=yes act=silu"},
    {"lora", "rows=48 dim_in=64 dim_out=56 rank=8"},
    {"gemm_quantised", "rows=16 dim_in=512 dim_out=64"},
    {"silu", "rows=32 dim=96"},
    {"relu", "rows=32 dim=96"},
    {"swiglu", "rows=96 dim=256"},
    {"add", "rows=32 dim=96"},
    {"rmsnorm", "rows=64 columns=256"},
    {"layernorm", "rows=64 columns=256"},
    {"qk_norm", "batch=2 steps=16 heads=4 kv_heads=2 head_dim=64"},
    {"softmax", "rows=64 columns=128"},
    {"entmax15", "rows=64 columns=32"},
    {"cross_entropy", "rows=64 vocabulary=100"},
    {"embedding", "rows=512 vocabulary=50 width=32 tokens=zipf"},
    {"dropout", "rows=32 dim=96"},
    {"schedule", "updates=100"},
    {"adamw", "parameters=10000"},
    {"rope", "steps=32 batch=2 heads=2 dim=16"},
    {"attention", "batch=1 steps=64 heads=2 dim=80 mask=causal"},
    {"diag_delta", "steps=32 batch=4 n_state=32"},
    {"e74_cell", "steps=16 batch=4 n_state=16"},
    {"e74", "steps=16 batch=4 n_state=16 dim=32"},
    {"e74_block", "steps=16 batch=4 n_state=16 dim=32"},
    {"dual_memory", "steps=8 batch=4 dim=16 slots=8"},
};

/* All that is seen, of results in one type. */
struct column {
    double seen[100000];
    int n;
};

static void print_seen(double x, enum dtype type)
{
    if (type == F32 && x < 1e-4)
        printf("%.2g u", x / types[F32].unit);
    else
        printf("%.2g %%", 100 * x);
}

/* What is seen of each result that may be off: printed by its name, or added to the columns. */
static int look_at(const struct call *f, int name_them, struct column *to)
{
    struct question q;
    struct tensors *got = NULL;
    int e =
        question_new(&q, f) || !(got = run_copy(&(const struct run){.call = *f}, q.inputs, NULL));
    const char *comma = "";

    FOR_RESULTS (f, i, grad) {
        struct seen s = {&q, f, i, grad, 1, power_unknown, op_count(f, i), NULL, NULL};
        const enum dtype type = call_type(f, i, grad);
        char name[32];
        if (e || !is_asked(f, i, grad))
            continue;
        s.want = truth_wants(&q.truth, i, grad);
        e = refused(&s, tensors_result(got, i, grad), &s.power) < 0;
        if (e || !s.power.samples || isnan(s.power.all))
            continue;
        tensor_name(f->op, i, grad, name);
        if (name_them)
            printf("%s%s ", comma, name), print_seen(s.power.all, type);
        else if (type == f->backend->type && to->n < (int)COUNT(to->seen))
            to->seen[to->n++] = s.power.all;
        comma = ", ";
    }
    tensors_free(got);
    question_free(&q);
    return e ? -1 : 0;
}

struct look {
    const struct backend *on;
    struct column column;
};

static int look_at_case(const struct call *f, void *data)
{
    struct look *l = data;
    const struct call c = call_here(f, l->on, op_kernel(f->op, l->on, 0));
    return look_at(&c, 0, &l->column);
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static int table_row(const struct op *o, const char *words)
{
    static const struct backend *const on[] = {&ref32, &ref_bf16};
    static struct look l;
    struct call f;

    printf("| `%s %s` |", o->name, words);
    for (size_t k = 0; k < COUNT(on); k++) {
        if (cases_one(o, words, &f))
            return -1;
        f = call_here(&f, on[k], op_kernel(o, on[k], 0));
        putchar(' ');
        if (look_at(&f, 1, NULL))
            return -1;
        fputs(" |", stdout);
    }
    for (size_t k = 0; k < COUNT(on); k++) {
        l = (struct look){.on = on[k]};
        if (cases_each(o, o->cases, look_at_case, &l) < 0)
            return -1;
        qsort(l.column.seen, (size_t)l.column.n, sizeof *l.column.seen, by_value);
        putchar(' ');
        if (l.column.n)
            print_seen(l.column.seen[l.column.n / 2], on[k]->type);
        fputs(" |", stdout);
    }
    putchar('\n');
    fflush(stdout);
    return 0;
}

static int print_table(const char *only)
{
    puts("| case | fp32 | bf16 | contract's cases, fp32 | bf16 |\n|---|---|---|---|---|");
    for (size_t i = 0; i < COUNT(ordinary); i++)
        if ((!only || strcmp(only, ordinary[i].op) == 0) &&
            table_row(op_find(ordinary[i].op), ordinary[i].words)) {
            fprintf(stderr, "%s: %s\n", ordinary[i].op, err_text());
            return 1;
        }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--table") == 0)
        return print_table(argc > 2 ? argv[2] : NULL);
    for (size_t i = 0; i < COUNT(cases); i++)
        if (argc < 2 || strcmp(argv[1], cases[i].op) == 0)
            for_cases(op_find(cases[i].op), cases[i].words, test_case, NULL);
    ok(10 * kept >= 9 * promised, "with few samples %d of %d are refused", kept, promised);
    return done();
}
