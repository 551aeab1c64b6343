/* A verdict says what it would have seen: an error that is a little larger is refused, and after all
 * samples one that is a little smaller passes.
 *
 *     power [OPERATION]
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
    struct bounds bounds;
    struct verdicts list = {0};
    const struct tensor_pair pair = {s->f, s->arg, s->grad, x, s->want};

    bounds_from(&bounds, s->f, &s->q->truth);
    bounds.thorough = s->thorough;
    const int e = check_within("parity", &pair, &bounds, &list);
    const int found = e ? -1 : !list.v[0].pass;
    if (!e && power)
        *power = list.v[0].power;
    verdicts_free(&list);
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
        const struct call c = call_on(f, on[k], op_kernels(f->op, on[k])[0]);
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
    {"adamw", "parameters=300"},
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < COUNT(cases); i++)
        if (argc < 2 || strcmp(argv[1], cases[i].op) == 0)
            for_cases(op_find(cases[i].op), cases[i].words, test_case, NULL);
    ok(20 * kept >= 19 * promised, "with few samples %d of %d are refused", kept, promised);
    return done();
}
