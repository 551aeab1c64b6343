/* What parity refuses, and what it does not: results of each case that are wrong in a way that
 * published kernels are, and others that are right, each judged by itself. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/half.h"
#include "tests/suite.h"

/* A case in the storage type of a backend, its truth, and right results. */
struct bench {
    struct call call;
    struct question q;
    struct tensors *right;
};

static int bench_new(struct bench *b, const char *op, const char *words, const struct backend *on)
{
    *b = (struct bench){.right = NULL};
    if (cases_one(op_find(op), words, &b->call))
        return -1;
    b->call = call_here(&b->call, on, op_kernel(b->call.op, on, 0));
    if (question_new(&b->q, &b->call))
        return -1;
    b->right = run_copy(&(const struct run){.call = b->call}, b->q.inputs, NULL);
    return b->right ? 0 : -1;
}

static void bench_free(struct bench *b)
{
    question_free(&b->q);
    tensors_free(b->right);
}

/* Is x, in place of a result, refused?  -1 after err_set(); what was found goes to `said`. */
static int refused(struct bench *b, int arg, int grad, const double *x, char said[96])
{
    struct verdict v;
    const struct tensor_pair pair = {&b->call, arg, grad, x, truth_wants(&b->q.truth, arg, grad)};
    const int found = refuses(&pair, &b->q.truth, 0, &v);

    if (found >= 0)
        snprintf(said, 96, "%s off by %.2g, bound %.2g", v.distance, v.error, v.bound);
    return found;
}

/* ---- ways to be wrong: from the right value and the place, another ---- */

struct way {
    const char *name;
    double (*wrong)(double x, int64_t i, int64_t n, double value);
    double value;
    enum dtype of;   /* the storage type in which it must be seen */
    int64_t least;   /* in results of at least so many elements */
    const char *but; /* results in which it need not be, " softmax:d_x " */
};

static double scaled(double x, int64_t i, int64_t n, double value)
{
    (void)i;
    (void)n;
    return value * x;
}

static double shifted(double x, int64_t i, int64_t n, double value)
{
    (void)i;
    (void)n;
    return x + value * 0x1p-23 * fabs(x);
}

/* The last 25 of 64 parts are 0. */
static double ends_early(double x, int64_t i, int64_t n, double value)
{
    (void)value;
    return i >= n - n * 25 / 64 ? 0 : x;
}

/* So many bits of it are kept, the others cut off. */
static double cut(double x, int64_t i, int64_t n, double value)
{
    int exponent;
    const double part = frexp(x, &exponent);
    (void)i;
    (void)n;
    return ldexp(trunc(ldexp(part, (int)value)), exponent - (int)value);
}

static const struct way ways[] = {
    {"times 1.05", scaled, 1.05, BF16, 1, ""},
    {"times 0.95", scaled, 0.95, BF16, 1, ""},
    {"times 1.03", scaled, 1.03, BF16, 1, ""},
    {"times 0.97", scaled, 0.97, BF16, 1, ""},
    {"times 1.02", scaled, 1.02, BF16, 16, ""},
    {"times 1.01", scaled, 1.01, BF16, 16, ""},
    {"times 0.99", scaled, 0.99, BF16, 16, ""},
    {"times 1.003", scaled, 1.003, BF16, 2000,
     " cross_entropy:d_logits softmax:d_x attention:d_q attention:d_k "},
    {"cut to 8 bits", cut, 8, BF16, 1000,
     " cross_entropy:d_logits softmax:d_x attention:d_q attention:d_k e74_cell:d_k e74_cell:d_v "
     "e74_cell:d_q "
     "e74_cell:out "},
    {"times 1 + 1e-6", scaled, 1 + 1e-6, F32, 256, " e74_cell:out "},
    {"4 ulp too large", shifted, 4, F32, 256, " e74_cell:out "},
    {"cut to 20 bits", cut, 20, F32, 256,
     " attention:d_q attention:d_k e74_cell:d_q e74_cell:out "},
    {"the last 25 of 64 parts 0", ends_early, 0, F32, 64, ""},
    {"the last 25 of 64 parts 0", ends_early, 0, BF16, 64, ""},
};

static const struct {
    const char *op, *words;
} cases[] = {
    {"rmsnorm", "rows=64 columns=256"},
    {"layernorm", "rows=64 columns=256"},
    {"softmax", "rows=64 columns=128"},
    {"gemm", "M=64 N=64 K=256"},
    {"silu", "rows=32 dim=96"},
    {"swiglu", "rows=96 dim=256"},
    {"scan", "rows=64 length=200"},
    {"rope", "steps=32 batch=2 heads=2 dim=16"},
    {"attention", "batch=1 steps=64 heads=2 dim=80 mask=causal"},
    {"cross_entropy", "rows=64 vocabulary=100"},
    {"linear", "rows=48 dim_in=64 dim_out=56 bias=yes act=silu"},
    {"e74_cell", "steps=16 batch=4 n_state=16"},
};

static int excepted(const struct bench *b, const char *tensor, const struct way *w)
{
    char name[96];
    snprintf(name, sizeof name, " %s:%s ", b->call.op->name, tensor);
    return strstr(w->but, name) != NULL;
}

static void wrong(struct bench *b, int arg, int grad)
{
    const enum dtype type = call_type(&b->call, arg, grad);
    const int64_t n = op_count(&b->call, arg);
    const double *right = tensors_result(b->right, arg, grad);
    double *x = malloc(n * sizeof *x);
    char tensor[32], said[96] = "";

    tensor_name(b->call.op, arg, grad, tensor);
    for (size_t k = 0; x && k < COUNT(ways); k++) {
        const struct way *w = &ways[k];
        if (w->of != b->call.backend->type || w->of != type || n < w->least ||
            excepted(b, tensor, w))
            continue;
        for (int64_t i = 0; i < n; i++)
            x[i] = w->wrong(w->wrong == cut ? tensors_result(b->q.truth.oracle, arg, grad)[i]
                                            : right[i],
                            i, n, w->value);
        values_round(type, x, n);
        ok(refused(b, arg, grad, x, said) == 1, "%s %s %s %s is refused: %s", b->call.op->name,
           types[type].name, tensor, w->name, said);
    }
    free(x);
}

static void right(struct bench *b, int arg, int grad)
{
    const enum dtype type = call_type(&b->call, arg, grad);
    const int64_t n = op_count(&b->call, arg);
    double *x = malloc(n * sizeof *x);
    char tensor[32], said[96] = "";

    tensor_name(b->call.op, arg, grad, tensor);
    if (x)
        memcpy(x, tensors_result(b->q.truth.oracle, arg, grad), n * sizeof *x);
    values_round(type, x, n);
    ok(x && refused(b, arg, grad, x, said) == 0, "%s %s %s the oracle's, rounded, passes: %s",
       b->call.op->name, types[type].name, tensor, said);
    ok(x && refused(b, arg, grad, tensors_result(b->right, arg, grad), said) == 0,
       "%s %s %s the plain C's passes: %s", b->call.op->name, types[type].name, tensor, said);
    free(x);
}

static int is_exact(const struct call *f, int arg)
{
    return f->op->arg[arg].flags & (WHOLE | BYTES | BIT_EXACT);
}

static void test_case(const char *op, const char *words, const struct backend *on)
{
    struct bench b;

    if (bench_new(&b, op, words, on))
        ok(0, "%s %s: %s", op, words, err_text());
    else
        FOR_RESULTS (&b.call, i, grad)
            if (!is_exact(&b.call, i) && !(b.call.op->arg[i].flags & SAVED)) {
                right(&b, i, grad);
                wrong(&b, i, grad);
            }
    bench_free(&b);
}

int main(void)
{
    for (size_t i = 0; i < COUNT(cases); i++) {
        test_case(cases[i].op, cases[i].words, &ref32);
        test_case(cases[i].op, cases[i].words, &ref_bf16);
    }
    return done();
}
