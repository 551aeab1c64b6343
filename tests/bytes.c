/* Tensors of bytes, through all that a call's tensors go through: drawn, run, judged in full and by
 * sample. */
#include "config.h"

#include <math.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "common/judge/sampled.h"
#include "tests/here.h"
#include "tests/bytes.h"

static const struct backend *const references[] = {&ref64, &ref32, &ref_bf16};

/* The case of these settings, its inputs drawn; NULL after a failed line. */
static struct tensors *new_case(const char *settings, uint64_t seed, struct call *f)
{
    struct tensors *t = cases_one(&op_histogram, settings, f) ? NULL : tensors_new(f);

    if (t)
        tensors_draw(t, f, seed, 1);
    else
        ok(0, "%s", err_text());
    return t;
}

/* ---- drawn ---- */

static int equal(const struct call *f, const struct tensors *a, const struct tensors *b, int arg,
                 int64_t n)
{
    return memcmp(tensors_values(a, arg, 0), tensors_values(b, arg, 0), n * tensors_each(f, arg)) ==
           0;
}

static void draws(void)
{
    struct call f, longer;
    int count[256] = {0}, all = 0, odd = 0;

#ifdef _OPENMP
    omp_set_num_threads(1);
#endif
    struct tensors *one = new_case("rows=40 steps=1000", 7, &f);
#ifdef _OPENMP
    omp_set_num_threads(8);
#endif
    struct tensors *many = new_case("rows=40 steps=1000", 7, &f);
    struct tensors *more = new_case("rows=41 steps=1000", 7, &longer);
    struct tensors *other = new_case("rows=40 steps=1000", 8, &f);
    const int64_t n = op_count(&f, W);
    if (one && many && more && other) {
        ok(equal(&f, one, many, W, n) && equal(&f, one, many, C0, 40), "8 threads draw as 1 does");
        ok(equal(&f, one, more, W, n) && equal(&f, one, more, C0, 40),
           "a byte's value does not depend on the size");
        ok(!equal(&f, one, other, W, n), "but on the seed");
        double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            count[one->b[W][i]]++;
            sum += one->b[W][i] / (double)n;
        }
        for (int i = 0; i < 256; i++)
            all += count[i] > 0;
        ok(all == 256 && fabs(sum - 127.5) < 2, "any byte is drawn: %d, of mean %.4g", all, sum);
        for (int i = 0; i < 40; i++)
            odd += one->b[C0][i] % 2;
        ok(!odd, "a contract's own draw is taken");
        ok(!one->x[W] && !one->g[W] && one->x[X] && !one->b[X], "bytes are no doubles");
    }
    tensors_free(one);
    tensors_free(many);
    tensors_free(more);
    tensors_free(other);
}

static void memory(void)
{
    struct call f;
    const int e = cases_one(&op_histogram, "rows=1000 steps=1000", &f);
    const int64_t all = 1000000;

    for (size_t k = 0; !e && k < COUNT(references); k++) {
        const struct call c = call_on(&f, references[k], NULL, NULL);
        const int64_t real = 4 * types[references[k]->type].bytes;
        ok(op_memory(&c) == (real + 3) * all + 2000 && op_saved(&c) == all &&
               op_bytes(&c, FORWARD) == (real / 2 + 3) * all + 2000,
           "%s: a call needs one byte for each", references[k]->name);
    }
    ok(!e && tensors_bytes(&f) == (4 * 8 + 3) * all + 2000, "and so does the host");
}

/* ---- run and judged ---- */

/* Of a kernel that there is for each type. */
static struct run run_of(const struct call *f, const struct backend *b, const struct impl *k)
{
    return (struct run){.call = call_here(f, b, in_type(k, b->type))};
}

static int is_right(const struct tensors *t, int64_t N, int64_t T)
{
    int right = 1;

    for (int64_t n = 0; n < N; n++) {
        int sum = t->b[C0][n];
        for (int64_t i = n * T; i < (n + 1) * T; i++) {
            sum += t->b[W][i];
            right &= t->b[V][i] == sum % 256 && t->b[HIDDEN_W][i] == (t->b[W][i] ^ HIDDEN);
        }
        right &= t->b[C][n] == sum % 256;
    }
    return right;
}

static void runs(void)
{
    struct call f;
    struct tensors *in = new_case("rows=30 steps=50", 1, &f), *of[3][2] = {{NULL}};

    for (int k = 0; in && k < 3; k++) {
        struct run c = run_of(&f, references[k], right);
        tensors_round(in, &c.call);
        for (c.guards = 0; c.guards < 2; c.guards++) {
            of[k][c.guards] = run_copy(&c, in, NULL);
            ok((seen == in->b[W]) == !c.guards, "%s %s", references[k]->name,
               c.guards ? "has a copy of bytes between guards" : "has bytes where they are");
        }
        ok(of[k][0] && of[k][1] && is_right(of[k][0], 30, 50) && is_right(of[k][1], 30, 50),
           "%s has the right bytes, with guards and without", references[k]->name);
        ok(of[k][0]->b[W] == in->b[W], "its results share the inputs' bytes");
        ok(equal(&f, of[k][0], of[0][0], V, 1500) && equal(&f, of[k][0], of[0][0], C, 30) &&
               tensors_same(&c.call, of[k][0], of[k][1]),
           "and all backends the same");
    }
    struct tensors *copy = in ? tensors_copy(&f, of[0][1]) : NULL;
    ok(copy && tensors_same(&f, copy, of[0][1]), "a copy has the same results");
    copy->b[C][29] ^= 0x80;
    ok(!tensors_same(&f, copy, of[0][1]), "and, one bit changed, others");
    tensors_free(copy);
    for (int k = 0; k < 6; k++)
        tensors_free(of[k / 2][k % 2]);
    tensors_free(in);
}

/* A backend whose memory is not the process's, as far as a run knows. */
static struct context *lend(struct context *x, int products)
{
    (void)products;
    return x;
}

static void elsewhere(void)
{
    struct call f;
    struct tensors *in = new_case("rows=30 steps=50", 1, &f);
    struct machine m = cpu;
    const struct backend b = {"ref32", NULL, &m, F32, F32};

    m.lending.lend = lend;
    const struct run c = run_of(&f, &b, right);
    struct tensors *t = in ? run_copy(&c, in, NULL) : NULL;
    ok(t && seen != in->b[W] && is_right(t, 30, 50), "bytes go to a device, and back");
    tensors_free(t);
    tensors_free(in);
}

/* What forward leaves to backward is off, but not bytes. */
static void between(void)
{
    struct call f;
    struct tensors *in = new_case("rows=30 steps=50", 1, &f);
    struct run c = run_of(&f, &ref64, right);
    struct tensors *t = in ? run_copy(&c, in, NULL) : NULL;

    c.between = 0.5;
    struct tensors *off = t ? run_copy(&c, in, NULL) : NULL;
    ok(off && !equal(&f, t, off, Y, 1500), "outputs are perturbed between the passes");
    ok(off && equal(&f, t, off, V, 1500) && equal(&f, t, off, HIDDEN_W, 1500) &&
           same_bits(t->g[X], off->g[X], 1500),
       "bytes are not");
    tensors_free(off);
    tensors_free(t);
    tensors_free(in);
}

static void distances(void)
{
    enum { MANY = 100000 };
    static unsigned char a[MANY], b[MANY];
    struct verdicts list = {0};
    struct call f;

    b[700] = b[701] = b[77777] = b[99999] = 1;
    const struct distance d = bytes_distance(a, b, MANY), none = bytes_distance(a, a, MANY);
    ok(d.max == 4. / MANY && d.norm == d.max && d.worst == 700 && none.max == 0,
       "the distance of bytes is their share, and has the first");
    const struct tensor_pair pair = {&f, V, 0, a, b + 700};
    const int e = cases_one(&op_histogram, "rows=5 steps=10", &f);
    f = call_on(&f, &ref32, in_type(right, F32), NULL);
    ok(!e && !check_tensor("parity", &pair, 4, &list) && list.n == 1 && !list.v[0].pass &&
           list.v[0].bound == 0,
       "no bound is wide enough for a wrong byte");
    verdicts_free(&list);
}

/* The first verdict of a check on a tensor, or NULL. */
static const struct verdict *find(const struct verdicts *list, const char *check,
                                  const char *tensor)
{
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->v[i].check, check) == 0 && strcmp(list->v[i].tensor, tensor) == 0)
            return &list->v[i];
    return NULL;
}

static int fails(const struct verdicts *list, const char *check, const char *tensor)
{
    const struct verdict *v = find(list, check, tensor);
    return v && !v->pass;
}

/* Parity and properties of a kernel, and of the oracle the differences. */
static int judged(const struct call *f, const struct backend *b, const struct impl *k,
                  struct question *q, struct verdicts *list)
{
    const struct run c = run_of(f, b, k);
    struct tensors *got = NULL;
    struct bounds bounds;
    struct outcome out;
    int e = judge_parity(&c, q, &got, &bounds, &out, list) ||
            check_properties(&c, q->inputs, &bounds, list) ||
            (b == &ref64 && check_differences(&c.call, q->truth.oracle, 100, 2, NULL, list));

    tensors_free(got);
    if (e)
        ok(0, "%s", err_text());
    return e;
}

static void judge_right(const struct backend *b)
{
    static const char *const checks[] = {"parity", "repeat", "batch",
                                         "alone",  "causal", "handover"};
    struct verdicts list = {0};
    struct question q;
    struct call f;

    if (cases_one(&op_histogram, "rows=7 steps=600", &f))
        return;
    const struct call on = call_here(&f, b, NULL);
    const int e = question_new(&q, &on) || judged(&f, b, right, &q, &list);
    report(&on, &list, e, b->name);
    for (size_t i = 0; i < COUNT(checks); i++) {
        const struct verdict *v = find(&list, checks[i], "V");
        ok(v && v->pass && v->bound == 0 && v->error == 0 && !v->unjudged,
           "%s: %s of bytes is by equality", b->name, checks[i]);
    }
    ok(b != &ref64 || find(&list, "differences", "d_x"), "differences of what is real");
    verdicts_free(&list);
    const struct call by = call_here(&f, b, in_type(right, b->type));
    for (int i = 0; i < op_histogram.n_identities; i++)
        ok(!check_identity(&op_histogram.identity[i], &by, 1, &list) && list.n >= 2 &&
               !verdicts_failed(&list, 0),
           "%s: identity %s: %d verdicts", b->name, op_histogram.identity[i].name, list.n);
    verdicts_free(&list);
    static const struct identity no = {
        .name = "no", .left = "rows=3 steps=4", .right = "rows=3 steps=4", .same = "V:saved"};
    ok(!check_identity(&no, &by, 1, &list) && fails(&list, "no", "V"),
       "%s: an identity of bytes that differ fails", b->name);
    verdicts_free(&list);
    question_free(&q);
}

static void judge_wrong(const struct backend *b)
{
    struct verdicts list[N_FAULTS] = {{0}};
    struct question q;
    struct call f;

    if (cases_one(&op_histogram, "rows=3 steps=5", &f))
        return;
    const struct call on = call_here(&f, b, NULL);
    int e = question_new(&q, &on);
    for (int i = 0; !e && i < N_FAULTS; i++)
        e = i != OVERRUN && judged(&f, b, faulty(i, b->type), &q, &list[i]);
    const struct verdict *v = find(&list[WRONG], "parity", "V");
    ok(!e && v && !v->pass && strcmp(v->worst, "[2,4]") == 0 && v->error == 1 / 15. &&
           v->bound == 0 && v->first_bad == 4 && v->judged == 15,
       "%s: a wrong byte fails parity with its index", b->name);
    ok(!fails(&list[WRONG], "parity", "c") && !fails(&list[WRONG], "parity", "y"),
       "nothing else does");
    ok(fails(&list[SHORT], "written", "V") && fails(&list[SHORT], "repeat", "V"),
       "%s: a byte that is not written is seen", b->name);
    struct run beyond = run_of(&f, b, overrun); /* without guards it would damage the heap */
    struct outcome out;
    beyond.guards = 1;
    struct tensors *got = e ? NULL : run_copy(&beyond, q.inputs, &out);
    ok(got && strcmp(out.overrun, "V") == 0, "%s: one beyond the end, too", b->name);
    tensors_free(got);
    ok(fails(&list[VARYING], "repeat", "V") && !find(&list[VARYING], "written", "V"),
       "%s: and one that varies", b->name);
    ok(fails(&list[FORGETFUL], "handover", "c") && !fails(&list[FORGETFUL], "batch", "c"),
       "%s: and one that forgets its state", b->name);
    for (int i = 0; i < N_FAULTS; i++)
        verdicts_free(&list[i]);
    question_free(&q);
}

/* By a sample of the rows, which has the last. */
static void judge_sampled(const struct backend *b)
{
    struct verdicts list[2] = {{0}};
    struct sampled s = {.n_cuts = 0};
    struct call f;
    struct tensors *in = new_case("rows=500 steps=6", 3, &f);
    const struct call on = call_here(&f, b, NULL);
    int e = !in;

    if (in)
        tensors_round(in, &on);
    e = e || sampled_find(&s, &on, in, 3);
    for (int i = 0; !e && i < 2; i++) {
        const struct run c = run_of(&f, b, faulty(i, b->type));
        struct tensors *got = run_copy(&c, in, NULL);
        e = !got || check_sampled(got, &c.call, &s, &list[i]);
        tensors_free(got);
    }
    report(&on, &list[0], e, "by sample");
    const struct verdict *good = find(&list[0], "parity", "V"),
                         *bad = find(&list[1], "parity", "V");
    ok(!e && good && good->judged == SAMPLE_ROWS * 6 && good->elements == 3000 && bad &&
           !bad->pass && strcmp(bad->worst, "[499,5]") == 0,
       "%s: a wrong byte in the sample fails with its index in the whole", b->name);
    verdicts_free(&list[0]);
    verdicts_free(&list[1]);
    sampled_free(&s);
    tensors_free(in);
}

/* ---- contracts ---- */

static void contracts(void)
{
    int bad = 0;

    for (int i = 0; i < N_OPS; i++)
        for (int k = 0; k < ops[i]->n_args; k++) {
            const struct arg *a = &ops[i]->arg[k];
            const int bytes = (a->flags & BYTES) != 0;
            bad +=
                bytes && (a->flags & (DIFF | WIDE | WIDE_GRAD | TEXT | WHOLE | BELOW) || a->draw);
            bad += !bytes && (a->draw_bytes || a->bytes_check);
        }
    ok(!bad, "no tensor of bytes is something else, too");
}

int main(void)
{
    contracts();
    draws();
    memory();
    runs();
    elsewhere();
    between();
    distances();
    for (size_t k = 0; k < COUNT(references); k++) {
        judge_right(references[k]);
        judge_wrong(references[k]);
        judge_sampled(references[k]);
    }
    return done();
}
