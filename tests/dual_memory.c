/* Properties of dual_memory that follow from no other test of its contract: a zero tape
 * collapses, the default does not, and a warning says so; entmax is exact; the memory that
 * checkpoints save.  On every kernel of every backend that can run here.
 *
 * From a zero tape all slots stay equal for ever: each step's scores are equal, so attention is
 * 1/slots, so the same is written to each slot, and the gradients of all slots are equal too. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/ops/dual_memory.h"
#include "tests/suite.h"

/* ---- running ---- */

/* A run's result in one tensor, by name. */
static double *result(const struct op *o, const struct tensors *t, const char *name, int grad)
{
    return tensors_result(t, op_arg(o, name), grad);
}

/* Nonzero, after a line of TAP, if a run failed. */
static int failed(int error, const char *what)
{
    return error && !ok(0, "%s: %s", what, err_text());
}

/* Run it; `what` becomes the backend, the kernel and the case.  Nonzero after a line that says why
 * it failed. */
static int run_here(const struct call *f, const struct on *on, struct tensors *t,
                    char what[MAX_TEXT])
{
    struct run c = {.call = call_here(f, on->backend, on->kernel)};
    char text[MAX_TEXT];

    op_text(f, text);
    snprintf(what, MAX_TEXT, "%s %s %.*s", on->backend->name, on->kernel->name, MAX_TEXT - 60,
             text);
    return failed(run_op(&c, t, NULL), what);
}

/* Drawn tensors for a case that the kernel takes; else NULL. */
static struct tensors *drawn(const struct call *f, const struct on *on)
{
    const struct call c = call_here(f, on->backend, on->kernel);
    if (declined(&c))
        return NULL;
    struct tensors *t = tensors_new(f);
    if (failed(!t, f->op->name))
        return NULL;
    tensors_draw(t, f, 1, 1);
    return t;
}

/* ---- the collapse ---- */

/* The distance between the largest and the smallest of the N weights of a row:
 * its minimum and maximum over all rows. */
struct spread {
    double min, max;
};

static struct spread spread(const double *p, int64_t rows, int64_t N)
{
    struct spread s = {INFINITY, 0};
    for (int64_t m = 0; m < rows; m++) {
        double low = p[m * N], high = low;
        for (int64_t n = 1; n < N; n++) {
            low = fmin(low, p[m * N + n]);
            high = fmax(high, p[m * N + n]);
        }
        s.min = fmin(s.min, high - low);
        s.max = fmax(s.max, high - low);
    }
    return s;
}

/* The largest distance of n elements from x. */
static double farthest(const double *p, int64_t n, double x)
{
    double far = 0;
    for (int64_t i = 0; i < n; i++)
        far = fmax(far, fabs(p[i] - x));
    return far;
}

/* How many of the tapes [.,N,D] have slots that all have the same bits. */
static int64_t alike(const double *M, int64_t tapes, int64_t N, int64_t D)
{
    int64_t count = 0;
    for (int64_t b = 0; b < tapes; b++) {
        int same = 1;
        for (int64_t n = 1; n < N; n++)
            same &= same_bits(M + b * N * D, M + (b * N + n) * D, D);
        count += same;
    }
    return count;
}

/* The largest distance of the tape from a moving average of v, of rate 1/N, that begins at 0. */
static double from_average(const struct call *f, const double *v, const double *M_T)
{
    int64_t T = DIM(f, 'T'), BD = DIM(f, 'B') * DIM(f, 'D'), D = DIM(f, 'D'), N = DIM(f, 'N');
    double far = 0;
    for (int64_t i = 0; i < BD; i++) {
        double mean = 0;
        for (int64_t t = 0; t < T; t++)
            mean += (v[t * BD + i] - mean) / (double)N;
        for (int64_t n = 0; n < N; n++)
            far = fmax(far, fabs(M_T[(i / D * N + n) * D + i % D] - mean));
    }
    return far;
}

/* Make the gradients of the final tape equal: those of each first slot. */
static void level(double *dM, int64_t tapes, int64_t N, int64_t D)
{
    for (int64_t b = 0; b < tapes; b++)
        for (int64_t n = 1; n < N; n++)
            memcpy(dM + (b * N + n) * D, dM + b * N * D, D * sizeof *dM);
}

static int power_of_two(int64_t n)
{
    return (n & (n - 1)) == 0;
}

static void judge_collapse(const struct op *o, const struct call *f, const struct on *on,
                           const struct tensors *t, const char *what)
{
    int64_t rows = DIM(f, 'T') * DIM(f, 'B'), N = DIM(f, 'N'), D = DIM(f, 'D');
    int64_t first = op_count(f, op_arg(o, "M0")) / (N * D);
    const double *rho = result(o, t, "rho", 0), *omega = result(o, t, "omega", 0);
    const double *v = result(o, t, "v", 0), *M_T = result(o, t, "M_T", 0);
    double gap = 2 * types[on->backend->wide].unit, even = 1 / (double)N;
    int exact = dual_parts(f).attention == DUAL_SOFTMAX && power_of_two(N);
    double uneven = fmax(spread(rho, rows, N).max, spread(omega, rows, N).max);
    double off = fmax(farthest(rho, rows * N, even), farthest(omega, rows * N, even));
    double astray = from_average(f, v, M_T), size = farthest(v, rows * D, 0);

    if (!ok(uneven == 0 && off <= (exact ? 0 : 2 * gap * even),
            "from zero every weight is 1/%lld: %s", (long long)N, what))
        printf("# the weights of a step differ by up to %.3g, from 1/N by %.3g\n", uneven, off);
    if (!ok(alike(M_T, DIM(f, 'B'), N, D) == DIM(f, 'B') &&
                astray <= 4 * gap * (double)DIM(f, 'T') * size,
            "from zero the slots stay one moving average: %s", what))
        printf("# off by %.3g\n", astray);
    ok(alike(result(o, t, "M0", 1), first, N, D) == first,
       "from zero the slots' gradients are alike: %s", what);
}

static void judge_default(const struct op *o, const struct call *f, const struct tensors *t,
                          const char *what)
{
    int64_t rows = DIM(f, 'T') * DIM(f, 'B'), N = DIM(f, 'N'), D = DIM(f, 'D');
    int64_t first = op_count(f, op_arg(o, "M0")) / (N * D);
    double reading = spread(result(o, t, "rho", 0), rows, N).min;
    double writing = spread(result(o, t, "omega", 0), rows, N).min;

    if (!ok(reading > 0 && writing > 0 && !alike(result(o, t, "M_T", 0), DIM(f, 'B'), N, D) &&
                !alike(result(o, t, "M0", 1), first, N, D),
            "by default none of that: %s", what))
        printf("# the weights of a step differ by %.3g and %.3g or more\n", reading, writing);
}

static int collapse(const struct call *f, void *data)
{
    const struct op *o = f->op;
    const struct on *on = data;
    char what[MAX_TEXT];

    struct tensors *t = drawn(f, on);
    if (!t)
        return 0;
    level(result(o, t, "M_T", 1), DIM(f, 'B'), DIM(f, 'N'), DIM(f, 'D'));
    if (!run_here(f, on, t, what)) {
        if (f->choice[DUAL_TAPE_INIT] == DUAL_ZERO)
            judge_collapse(o, f, on, t, what);
        else if (DIM(f, 'N') > 1)
            judge_default(o, f, t, what);
    }
    tensors_free(t);
    return 0;
}

/* A warning says so where the tape is zero, and only there. */
static int warning(const struct call *f, void *data)
{
    const struct op *o = f->op;
    const char *said = o->warning(f);
    int collapses = f->choice[DUAL_TAPE_INIT] == DUAL_ZERO && DIM(f, 'N') > 1;
    char text[MAX_TEXT];

    (void)data;
    op_text(f, text);
    ok(collapses ? said && strstr(said, "tape_init = zero") : !said, "%s: %s",
       collapses ? "warned of" : "no warning", text);
    return 0;
}

/* ---- attention, by its properties ---- */

static int64_t argmax(const double *p, int64_t n)
{
    int64_t top = 0;
    for (int64_t i = 1; i < n; i++)
        top = p[i] > p[top] ? i : top;
    return top;
}

/* How far weights p of scores a are from entmax15's.  Those alone have the sum 1, are
 * (a/2 - tau)^2 with one tau where they are not 0, and have an a/2 of at most tau elsewhere. */
static double entmax_off(const double *p, const double *a, int64_t N)
{
    int64_t top = argmax(p, N);
    double tau = -sqrt(p[top]), sum = 0, off = 0;

    for (int64_t n = 0; n < N; n++) {
        double over = (a[n] - a[top]) / 2 - tau;
        off = fmax(off, p[n] > 0 ? fabs(over - sqrt(p[n])) : over);
        sum += p[n];
    }
    return fmax(off, fabs(sum - 1));
}

/* How far they are from softmax's, whose ratios are those of the exponentials. */
static double softmax_off(const double *p, const double *a, int64_t N)
{
    int64_t top = argmax(p, N);
    double sum = 0, off = 0;

    for (int64_t n = 0; n < N; n++) {
        off = fmax(off, fabs(p[n] - p[top] * exp(a[n] - a[top])));
        sum += p[n];
    }
    return fmax(off, fabs(sum - 1));
}

static int64_t zeros_in(const double *p, int64_t n)
{
    int64_t zeros = 0;
    for (int64_t i = 0; i < n; i++)
        zeros += p[i] == 0;
    return zeros;
}

static double attention_off(const struct call *f, const double *p, const double *a, int64_t N)
{
    return (dual_parts(f).attention == DUAL_ENTMAX15 ? entmax_off : softmax_off)(p, a, N);
}

/* At dim = 4 the scores of the first step are half of M0 h0: with h0 = (2,0,0,0)
 * they are the first elements of the slots. */
enum { SLOTS = 8, WIDTH = 4 };
#define FIRST_STEP "steps=1 batch=1 slots=8 dim=4 preset=e25,e23"

static const struct scores {
    const char *what;
    double a[SLOTS];
    int64_t zeros; /* weights of entmax15 that are 0 */
} scores[] = {
    {"all equal", {3, 3, 3, 3, 3, 3, 3, 3}, 0},
    {"one ahead by less than 2", {-1.75, -1.75, 0, -1.75, -1.75, -1.75, -1.75, -1.75}, 0},
    {"one ahead by more than 2", {-2.25, -2.25, 0, -2.25, -2.25, -2.25, -2.25, -2.25}, 7},
    {"one far ahead", {-500, -500, -500, -500, -500, -500, -500, 500}, 7},
    {"two tied ahead of all", {1, -7, -7, 1, -7, -7, -7, -7}, 6},
    {"four tied behind one", {0.5, 0, 0, -8, -8, 0, 0, -8}, 3},
    {"a stair", {-1.75, 0, -0.25, -0.5, -0.75, -1, -1.25, -1.5}, 2},
    {"far from 0", {8000, 8000.5, 8000, 7990, 7990, 7990, 7990, 7990}, 5},
};

static int given_scores(const struct call *f, void *data)
{
    const struct op *o = f->op;
    const struct on *on = data;
    double gap = 2 * types[on->backend->wide].unit;
    int exact_zeros = dual_parts(f).attention == DUAL_ENTMAX15;
    char what[MAX_TEXT];

    struct tensors *t = drawn(f, on);
    if (!t)
        return 0;
    double *h0 = t->x[op_arg(o, "h0")], *M0 = t->x[op_arg(o, "M0")];
    memcpy(h0, (const double[WIDTH]){2}, WIDTH * sizeof *h0);
    for (size_t i = 0; i < COUNT(scores); i++) {
        const struct scores *s = &scores[i];
        const double *rho = result(o, t, "rho", 0);
        for (int n = 0; n < SLOTS; n++)
            M0[WIDTH * n] = s->a[n];
        if (run_here(f, on, t, what))
            break;
        double off = attention_off(f, rho, s->a, SLOTS);
        int64_t zeros = zeros_in(rho, SLOTS);
        if (!ok(off <= SLOTS * gap && (!exact_zeros || zeros == s->zeros), "attention, %s: %s",
                s->what, what))
            printf("# off by %.3g, %lld weights are 0\n", off, (long long)zeros);
    }
    tensors_free(t);
    return 0;
}

/* The scores of slots M for a query. */
static void score(const double *M, const double *query, int64_t N, int64_t D, double *a)
{
    for (int64_t n = 0; n < N; n++) {
        double sum = 0;
        for (int64_t j = 0; j < D; j++)
            sum += M[n * D + j] * query[j];
        a[n] = sum / sqrt((double)D);
    }
}

/* Both attentions of the first step, of each sequence, for drawn inputs; the slots are
 * four times as large as usual, so that many weights of entmax15 are 0. */
static int drawn_scores(const struct call *f, void *data)
{
    const struct op *o = f->op;
    const struct on *on = data;
    int64_t B = DIM(f, 'B'), N = DIM(f, 'N'), D = DIM(f, 'D');
    int by_v = dual_parts(f).query == DUAL_QUERY_V;
    double gap = 2 * types[on->backend->wide].unit, off = 0, a[64];
    char what[MAX_TEXT];

    struct tensors *t = drawn(f, on);
    if (!t)
        return 0;
    const double *h0 = t->x[op_arg(o, "h0")], *query = result(o, t, by_v ? "v" : "h", 0);
    const double *rho = result(o, t, "rho", 0), *omega = result(o, t, "omega", 0);
    double *M0 = t->x[op_arg(o, "M0")];
    for (int64_t i = 0; i < N * D; i++)
        M0[i] *= 4;
    const struct call c = call_here(f, on->backend, on->kernel);
    tensors_round(t, &c);
    if (!run_here(f, on, t, what)) {
        for (int64_t b = 0; b < B; b++) {
            score(M0, h0 + b * D, N, D, a);
            off = fmax(off, attention_off(f, rho + b * N, a, N));
            score(M0, query + b * D, N, D, a);
            off = fmax(off, attention_off(f, omega + b * N, a, N));
        }
        int64_t zeros = zeros_in(rho, B * N) + zeros_in(omega, B * N);
        if (!ok(off <= (double)N * gap && (dual_parts(f).attention == DUAL_SOFTMAX || zeros > 0),
                "attention: %s", what))
            printf("# off by %.3g, %lld weights are 0\n", off, (long long)zeros);
    }
    tensors_free(t);
    return 0;
}

/* ---- saved memory ---- */

/* The tape after every step, as the published designs keep it, is T B N D elements
 * of the storage type. */
static void saved(const char *kept, int64_t mib)
{
    const struct op *o = op_find("dual_memory");
    struct call f;
    char text[MAX_TEXT];

    snprintf(text, sizeof text,
             "steps=512 batch=64 slots=32 dim=512 checkpoint_interval=32 checkpoint_dtype=%s",
             kept);
    if (failed(cases_one(o, text, &f), text))
        return;
    const struct call c = call_on(&f, &ref_bf16, NULL, NULL);
    int64_t bytes = op_saved(&c);
    double history = 512.0 * 64 * 32 * 512 * (double)types[BF16].bytes;
    ok(history == 0x1p30 && bytes == mib << 20,
       "saved in bf16: %lld MiB with checkpoints in %s, %.0f MiB were the whole history",
       (long long)(bytes >> 20), kept, history * 0x1p-20);
}

/* ---- all of it ---- */

static void judge(const struct on *on)
{
    const struct op *o = op_find("dual_memory");
    void *data = (void *)on;

    for_cases(o,
              emulated(on->backend)
                  ? "steps=5 batch=2 slots=2,33 dim=12 checkpoint_interval=4 "
                    "preset=e23,e25,e29b tape=each tape_init=zero,normal"
                  : "steps=9 batch=2 slots=1,2,3,7,8,16,33,64 dim=12 checkpoint_interval=4 "
                    "preset=e23,e25,e26,e29a,e29b,e29c tape=shared,each tape_init=zero,normal",
              collapse, data);
    for_cases(o, FIRST_STEP, given_scores, data);
    for_cases(o,
              "steps=1 batch=5 slots=8,24,64 dim=32 preset=parts attention=softmax,entmax15 "
              "write_query=h,v gate=none",
              drawn_scores, data);
}

int main(void)
{
    const struct impl *k;
    const struct op *o = op_find("dual_memory");
    const char *why = NULL;

    for_cases(o, "slots=1,2,16 tape=shared,each tape_init=zero,normal", warning, NULL);
    for (const struct backend *const *b = backends(); *b; b++)
        if (!backend_unavailable(here(), *b))
            for (int n = 0; (k = op_kernel(o, *b, n)); n++)
                judge(&(struct on){*b, k});
    if (!any_gpu(&why))
        skip(why, "the same on a GPU");
    saved("fp32", 168);
    saved("bf16", 136);
    return done();
}
