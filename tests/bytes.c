/* Tensors of bytes, through all that a call's tensors go through: drawn, run, judged in full and by
 * sample, stored and read, by the library's functions as well.
 *
 * The operation is made here, with inputs, outputs, states and saved tensors of bytes.  It stands in
 * the list of operations, and on the references, in the place of histogram: the linker takes that
 * from this file, not from the archive. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hdf5.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "common/ablate.h"
#include "common/base/h5.h"
#include "common/judge/sampled.h"
#include "tests/suite.h"

/* ---- the operation ---- */

/* c_t = c_{t-1} + W_t, V_t = c_t, all modulo 256; y = x (W - 128) / 64; and W itself, hidden, is
 * saved for backward. */
struct bytes {
    void *x, *W, *c0, *y, *V, *c, *saved;
};

static const struct param params[] = {
    SIZE_PARAM("rows", 'N', 3, "rows of all"),
    SIZE_PARAM("steps", 'T', 5, "steps of all"),
};

/* Even numbers. */
static void draw_even(const struct call *f, int arg, uint64_t key, unsigned char *b)
{
    for (int64_t i = 0; i < op_count(f, arg); i++)
        b[i] = (unsigned char)(2 * (int)(128 * draw_uniform(key, i)));
}

static int refuse_255(const struct call *f, int arg, const char *place, const unsigned char *b)
{
    for (int64_t i = 0; i < op_count(f, arg); i++)
        if (b[i] == 255)
            return err_set("%s has 255 at %lld", place, (long long)i);
    return 0;
}

static const struct arg args[] = {
    ARG(bytes, x, "NT", IN | DIFF, NORMAL),
    ARG(bytes, W, "NT", IN | BYTES | NOT_BACK),
    ARG(bytes, c0, "N", IN | BYTES | NOT_BACK, .draw_bytes = draw_even, .bytes_check = refuse_255),
    ARG(bytes, y, "NT", OUT | DIFF),
    ARG(bytes, V, "NT", OUT | BYTES),
    ARG(bytes, c, "N", OUT | BYTES, .continues = "c0"),
    ARG(bytes, saved, "NT", SAVED | BYTES),
};

static const struct identity list_of_identities[] = {
    {"copied", "rows=3 steps=4", "rows=3 steps=4", NULL, "W=W c0=c0", "y V c", NULL},
    {"real input", "rows=3 steps=4", "rows=3 steps=4", NULL, "x=ones", "V c", NULL},
};

/* A factor of bytes is no number: nothing may take it for one. */
static const struct product products[] = {{.result = "y", .left = "x", .right = "W"}, {NULL}};

COST(flops, "NT", 2, 1)

const struct op op_histogram = {
    .name = "bytes",
    .formula = "V = bytes",
    .source = "tests/bytes.c",
    SIGNATURE(bytes, params, args),
    .identity = list_of_identities,
    .n_identities = COUNT(list_of_identities),
    .product = products,
    .cases = "rows=3 steps=5",
    .flops = flops,
    .batch = 'N',
    .time = 'T',
};

static double load(enum dtype t, const void *at, int64_t i)
{
    double x;
    types[t].widen(&x, (const char *)at + i * types[t].bytes, 1);
    return x;
}

static void store(enum dtype t, void *at, int64_t i, double x)
{
    types[t].narrow((char *)at + i * types[t].bytes, &x, 1);
}

enum { HIDDEN = 0x55 };

/* How wrong a kernel is; its impl.data. */
enum fault { RIGHT, WRONG, SHORT, OVERRUN, VARYING, FORGETFUL, N_FAULTS };
static const enum fault faults[] = {RIGHT, WRONG, SHORT, OVERRUN, VARYING, FORGETFUL};

/* Where the last run had W. */
static const void *seen;

static int forward(const struct call *f)
{
    static int runs;
    const struct bytes *a = ARGS(f, bytes);
    const int64_t N = DIM(f, 'N'), T = DIM(f, 'T');
    const unsigned char *W = a->W, *c0 = a->c0;
    unsigned char *V = a->V, *c = a->c, *saved = a->saved;
    const enum fault fault = *(const enum fault *)f->kernel->data;

    seen = W;
    for (int64_t n = 0; n < N; n++) {
        unsigned char sum = c0[n];
        for (int64_t t = 0; t < T; t++) {
            const int64_t i = n * T + t;
            sum = (unsigned char)(sum + W[i]);
            store(f->type[PLACE(bytes, y)], a->y, i,
                  load(f->type[PLACE(bytes, x)], a->x, i) * (W[i] - 128) / 64);
            saved[i] = W[i] ^ HIDDEN;
            if (fault != SHORT || i < N * T - 1)
                V[i] = sum;
        }
        c[n] = (unsigned char)(fault == FORGETFUL ? sum - c0[n] : sum);
    }
    if (fault == WRONG)
        V[N * T - 1] ^= 1;
    if (fault == OVERRUN)
        V[N * T] = 1;
    if (fault == VARYING)
        V[0] = (unsigned char)runs++;
    return 0;
}

static int backward(const struct call *f)
{
    const struct bytes *a = ARGS(f, bytes), *g = GRADS(f, bytes);
    const unsigned char *saved = a->saved;

    for (int64_t i = 0; i < DIM(f, 'N') * DIM(f, 'T'); i++)
        store(f->grad_type[PLACE(bytes, x)], g->x, i,
              load(f->grad_type[PLACE(bytes, y)], g->y, i) * ((saved[i] ^ HIDDEN) - 128) / 64);
    return 0;
}

#define KERNEL(name_, fault_)                                                                      \
    static const struct impl name_ = {                                                             \
        .name = #name_, .pass = {forward, backward}, .data = &faults[fault_]}
KERNEL(right, RIGHT);
KERNEL(wrong, WRONG);
KERNEL(part, SHORT);
KERNEL(overrun, OVERRUN);
KERNEL(varying, VARYING);
KERNEL(forgetful, FORGETFUL);
#define KERNELS                                                                                    \
    {                                                                                              \
        &right, &wrong, &part, &overrun, &varying, &forgetful, NULL                                \
    }
extern const struct impl *const ref64_histogram[], *const ref32_histogram[],
                                                       *const ref_bf16_histogram[];
const struct impl *const ref64_histogram[] = KERNELS;
const struct impl *const ref32_histogram[] = KERNELS;
const struct impl *const ref_bf16_histogram[] = KERNELS;

static const struct backend *const references[] = {&ref64, &ref32, &ref_bf16};
enum { X, W, C0, Y, V, C, HIDDEN_W, N_TENSORS };

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
        const struct call c = call_on(&f, references[k], NULL);
        const int64_t real = 4 * types[references[k]->type].bytes;
        ok(op_memory(&c) == (real + 3) * all + 2000 && op_saved(&c) == all &&
               op_bytes(&c, FORWARD) == (real / 2 + 3) * all + 2000,
           "%s: a call needs one byte for each", references[k]->name);
    }
    ok(!e && tensors_bytes(&f) == (4 * 8 + 3) * all + 2000, "and so does the host");
}

/* ---- run and judged ---- */

static struct run run_of(const struct call *f, const struct backend *b, const struct impl *k)
{
    return (struct run){.call = call_on(f, b, k)};
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
        struct run c = run_of(&f, references[k], &right);
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
    struct backend b = ref32;

    b.lend = lend;
    const struct run c = run_of(&f, &b, &right);
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
    struct run c = run_of(&f, &ref64, &right);
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
    f = call_on(&f, &ref32, &right);
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
    const struct call on = call_on(&f, b, NULL);
    const int e = question_new(&q, &on) || judged(&f, b, &right, &q, &list);
    report(&on, &list, e, b->name);
    for (size_t i = 0; i < COUNT(checks); i++) {
        const struct verdict *v = find(&list, checks[i], "V");
        ok(v && v->pass && v->bound == 0 && v->error == 0 && !v->unjudged,
           "%s: %s of bytes is by equality", b->name, checks[i]);
    }
    ok(b != &ref64 || find(&list, "differences", "d_x"), "differences of what is real");
    verdicts_free(&list);
    for (int i = 0; i < op_histogram.n_identities; i++)
        ok(!check_identity(&op_histogram, &op_histogram.identity[i], b, &right, 1, &list) &&
               list.n >= 2 && !verdicts_failed(&list, 0),
           "%s: identity %s: %d verdicts", b->name, op_histogram.identity[i].name, list.n);
    verdicts_free(&list);
    static const struct identity no = {
        .name = "no", .left = "rows=3 steps=4", .right = "rows=3 steps=4", .same = "V:saved"};
    ok(!check_identity(&op_histogram, &no, b, &right, 1, &list) && fails(&list, "no", "V"),
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
    const struct call on = call_on(&f, b, NULL);
    int e = question_new(&q, &on);
    for (int i = 0; !e && i < N_FAULTS; i++)
        e = i != OVERRUN && judged(&f, b, op_kernels(&op_histogram, b)[i], &q, &list[i]);
    const struct verdict *v = find(&list[WRONG], "parity", "V");
    ok(!e && v && !v->pass && strcmp(v->worst, "[2,4]") == 0 && v->error == 1 / 15. &&
           v->bound == 0 && v->first_bad == 4 && v->judged == 15,
       "%s: a wrong byte fails parity with its index", b->name);
    ok(!fails(&list[WRONG], "parity", "c") && !fails(&list[WRONG], "parity", "y"),
       "nothing else does");
    ok(fails(&list[SHORT], "written", "V") && fails(&list[SHORT], "repeat", "V"),
       "%s: a byte that is not written is seen", b->name);
    struct run beyond = run_of(&f, b, &overrun); /* without guards it would damage the heap */
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
    const struct call on = call_on(&f, b, NULL);
    int e = !in;

    if (in)
        tensors_round(in, &on);
    e = e || sampled_find(&s, &on, in, 3);
    for (int i = 0; !e && i < 2; i++) {
        const struct run c = run_of(&f, b, op_kernels(&op_histogram, b)[i]);
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

/* ---- the library, and files ---- */

enum { ALL = 15, STATES = 3 };
static char file[] = "bytes.XXXXXX";

static int said(const char *what)
{
    const int same = strstr(abl_error(), what) != NULL;
    if (!same)
        printf("# not \"%s\": %s\n", what, abl_error());
    return same;
}

static void in_library(void)
{
    struct abl_tensor t;
    unsigned char w[ALL], again[ALL], states[STATES] = {1, 255, 3};
    double x[ALL];
    abl_case *c = abl_case_new("bytes");
    abl_call *call = abl_call_new("bytes", "ref32", 0, NULL);

    ok(c && abl_tensor(c, W, &t) == 0 && t.bytes && !t.whole && !t.state && t.count == ALL &&
           abl_tensor(c, X, &t) == 0 && !t.bytes,
       "a tensor of bytes is described");
    ok(call && abl_call_tensor(call, W, &t) == 0 && t.dtype == ABL_UINT8, "its type is uint8");
    ok(abl_get_bytes(c, "W", w, ALL) == 0, "it is there");
    w[3] ^= 0xff;
    ok(abl_set_bytes(c, "W", w, ALL) == 0 && abl_get_bytes(c, "W", again, ALL) == 0 &&
           memcmp(w, again, ALL) == 0,
       "it is set, and is the same");
    ok(abl_set(c, "W", x, ALL) == -1 && said("of bytes, not of doubles") &&
           abl_get(c, "W", x, ALL) == -1 && said("of bytes, not of doubles"),
       "not by doubles");
    ok(abl_get_bytes(c, "x", w, ALL) == -1 && said("not of bytes"), "nor doubles by bytes");
    ok(abl_set_bytes(c, "W", w, ALL - 1) == -1 && said("15 elements, not 14"), "nor a part");
    ok(abl_set_bytes(c, "c0", states, STATES) == -1 && said("c0 has 255 at 1") &&
           abl_get_bytes(c, "c0", states, STATES) == 0 && states[1] != 255,
       "nor values that the contract refuses");

    abl_result *r = abl_run(c, "ref32", NULL, 0), *mine = abl_result_new(c, "mine");
    ok(r && abl_result_get_bytes(r, "V", w, ALL) == 0 &&
           abl_expected_bytes(c, "V", again, ALL) == 0 && memcmp(w, again, ALL) == 0,
       "a result is the oracle's");
    w[7] ^= 4;
    ok(mine && abl_result_get_bytes(mine, "V", w, ALL) == -1 && said("was not set") &&
           abl_result_set(mine, "V", x, ALL) == -1 && said("not of doubles") &&
           abl_result_set_bytes(mine, "V", w, ALL) == 0,
       "another program's is set");
    abl_verdicts *v = abl_judge_result(c, mine);
    struct abl_verdict one;
    ok(v && abl_count(v) == 1 && abl_verdict(v, 0, &one) == 0 && !one.pass &&
           strcmp(one.worst, "[1,2]") == 0,
       "and judged");
    abl_verdicts_free(v);
    v = abl_judge(c, "ref32", NULL, ABL_PARITY | ABL_PROPERTIES | ABL_DIFFERENCES);
    ok(v && abl_count(v) > 20 && abl_failed(v) == 0, "the backend is right");
    abl_verdicts_free(v);

    const abl_result *both[] = {r, mine};
    ok(abl_write(file, c, both, 2, NULL) == 0, "a dump is written");
    abl_result_free(r);
    abl_result_free(mine);
    abl_case_free(c);
    abl_call_free(call);
}

/* Is the dataset uint8? */
static int is_uint8(hid_t at, const char *name)
{
    hid_t d = H5Dopen2(at, name, H5P_DEFAULT), type = d < 0 ? -1 : H5Dget_type(d);
    const int is = type >= 0 && h5_is_bytes(type);

    h5_drop(type);
    h5_drop(d);
    return is;
}

static void read_back(void)
{
    static const char *const datasets[] = {"/trial/0001/in/W", "/trial/0001/in/c0",
                                           "/trial/0001/ref32/V", "/trial/0001/mine/V"};
    unsigned char one[ALL], other[ALL];
    double x[ALL];
    int same = 1;
    hid_t h = H5Fopen(file, H5F_ACC_RDONLY, H5P_DEFAULT);
    abl_case *c = abl_case_read(file, "/trial/0001"), *drawn = abl_case_new("bytes");
    abl_result *r = abl_result_new(c, "mine");
    abl_dump *d = abl_dump_open(file);

    for (size_t i = 0; i < COUNT(datasets); i++)
        same &= is_uint8(h, datasets[i]);
    ok(same, "inputs and results of bytes are uint8 there");
    H5Fclose(h);
    same = abl_get_bytes(c, "W", one, ALL) == 0 && abl_get_bytes(drawn, "W", other, ALL) == 0;
    other[3] ^= 0xff;
    ok(same && memcmp(one, other, ALL) == 0, "an input reads back");
    ok(abl_result_read(r, file, "/trial/0001/mine") == 0 &&
           abl_result_get_bytes(r, "V", one, ALL) == 0 &&
           abl_expected_bytes(c, "V", other, ALL) == 0 && one[7] == (other[7] ^ 4),
       "and so does a result");
    ok(d && abl_dump_read(d, "/trial/0001/mine/V", x, ALL) == 0 && x[7] == one[7],
       "as numbers, too");
    abl_dump_free(d);
    abl_result_free(r);
    abl_case_free(drawn);
    abl_case_free(c);
}

/* A dataset of that type, with the values of these bytes. */
static void put_in(hid_t h, const char *name, hid_t type, const unsigned char *values, int rank)
{
    const hsize_t dim[] = {STATES, ALL / STATES};
    hid_t space = H5Screate_simple(rank, dim, NULL);
    hid_t d = H5Dcreate2(h, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);

    H5Dwrite(d, H5T_NATIVE_UCHAR, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    h5_drop(d);
    h5_drop(space);
}

/* The file has it alone. */
static void put(const char *name, hid_t type, const unsigned char *values, int rank)
{
    hid_t h = H5Fcreate(file, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);

    put_in(h, name, type, values, rank);
    H5Fclose(h);
}

static void as_input(void)
{
    unsigned char w[ALL], got[ALL] = {0}, states[STATES] = {1, 2, 255};
    const struct {
        const char *says;
        hid_t type;
    } others[] = {{"int8", H5T_STD_I8LE},
                  {"uint16", H5T_STD_U16BE},
                  {"int64", H5T_STD_I64LE},
                  {"float64", H5T_IEEE_F64LE}};
    char words[200], text[100];

    for (int i = 0; i < ALL; i++)
        w[i] = (unsigned char)(i * 17);
    snprintf(words, sizeof words, "bytes input=hdf5 file=%s", file);
    put("W", H5T_STD_U8LE, w, 2);
    abl_case *c = abl_case_new(words);
    ok(c && abl_get_bytes(c, "W", got, ALL) == 0 && memcmp(w, got, ALL) == 0,
       "a dataset of uint8 is an input: %s", c ? "" : abl_error());
    abl_case_free(c);
    for (size_t i = 0; i < COUNT(others); i++) {
        put("W", others[i].type, w, 2);
        snprintf(text, sizeof text, "/W is %s, bytes's W takes bytes: uint8", others[i].says);
        ok(!abl_case_new(words) && said(text), "%s is refused", others[i].says);
    }
    put("W", H5T_STD_U8LE, w, 1);
    ok(!abl_case_new(words) && said("is [3], bytes's W is [3,5]"), "another shape is refused");
    put("c0", H5T_STD_U8LE, states, 1);
    ok(!abl_case_new(words) && said("/c0 has 255 at 2"), "so are values that the contract refuses");
    put("x", H5T_STD_U8LE, w, 2);
    ok(!abl_case_new(words) && said("/x is uint8, bytes's x takes floating point numbers"),
       "and bytes for a real input");
}

/* A group of inputs, as a dump has it. */
static void as_group(void)
{
    const unsigned char w[ALL] = {0}, states[STATES] = {1, 2, 255};
    unsigned char was[ALL], is[ALL];
    abl_case *c = abl_case_new("bytes");
    int same = abl_get_bytes(c, "W", was, ALL) == 0;

    hid_t h = H5Fcreate(file, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    h5_drop(H5Gcreate2(h, "wrong", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    h5_drop(H5Gcreate2(h, "refused", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    h5_drop(H5Gcreate2(h, "wrong/in", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    h5_drop(H5Gcreate2(h, "refused/in", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    put_in(h, "wrong/in/W", H5T_STD_I16LE, w, 2);
    put_in(h, "refused/in/c0", H5T_STD_U8LE, states, 1);
    H5Fclose(h);
    ok(abl_read(c, file, "wrong") == -1 && said("W is not of bytes: uint8"),
       "abl_read refuses other types");
    ok(abl_read(c, file, "refused") == -1 && said("c0 has 255 at 2"), "and values");
    same = same && abl_get_bytes(c, "W", is, ALL) == 0 && memcmp(was, is, ALL) == 0;
    ok(same, "then an input stays as it was");
    abl_case_free(c);
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
    const int fd = mkstemp(file);

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
    close(fd);
    unlink(file);
    in_library();
    read_back();
    as_input();
    as_group();
    unlink(file);
    return done();
}
