/* The library by its own header: its functions, and their messages where they
 * cannot do what a program asks for. */
#include "config.h"

#include <fcntl.h>
#include <math.h>
#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hdf5.h>

#include "common/ablate.h"
#include "tests/tap.h"

enum { MAX = 4096 };
static double x[MAX], y[MAX];
static const char *const words = "e74_cell state=diagonal steps=9 batch=2 heads=2 n_state=4 seed=3";

static void error_says(const char *sentence)
{
    if (!ok(strstr(abl_error(), sentence) != NULL, "refused: %s", sentence))
        printf("# %s\n", abl_error());
}

static int64_t count(const abl_case *c, const char *name)
{
    struct abl_tensor t;
    for (int i = 0; abl_tensor(c, i, &t) == 0; i++)
        if (strcmp(t.name, name) == 0)
            return t.count;
    return 0;
}

static void table(void)
{
    struct abl_param p;
    struct abl_tensor t;
    int n_ops = 0, n_params = 0, n_tensors = 0, n_kernels = 0;

    for (const char *op; (op = abl_op(n_ops)); n_ops++) {
        n_tensors = n_params = 0;
        while (abl_param(op, n_params, &p) == 0)
            n_params++;
        while (abl_op_tensor(op, n_tensors, &t) == 0)
            n_tensors++;
        n_kernels += abl_kernel(op, "ref64", 0) != NULL;
        ok(n_params > 0 && n_tensors > 0 && abl_formula(op), "%s: %d parameters, %d tensors", op,
           n_params, n_tensors);
    }
    ok(n_kernels == n_ops, "the oracle has a kernel for each");
    ok(abl_param("nothing", 0, &p) == -1 && !abl_formula("nothing"), "no such operation");
    ok(!abl_unavailable("ref64") && abl_unavailable("nothing"), "backends that can run say so");
    ok(abl_device("ref32") && abl_backend(0) && !abl_backend(99), "backends have names");
    ok(strcmp(abl_backend_dtype("gpu_bf16"), abl_dtype_name(ABL_BF16)) == 0 &&
           strcmp(abl_backend_machine("gpu_bf16"), "cuda") == 0 &&
           strcmp(abl_backend_machine("ref64"), "cpu") == 0 && strcmp(abl_dtype_name(0), "") == 0 &&
           strcmp(abl_dtype_name(ABL_UINT8), "uint8") == 0 && !abl_dtype_name(ABL_UINT8 + 1) &&
           !abl_dtype_name(-1) && !abl_backend_dtype("gpu64"),
       "a machine and a type");
}

static void values(void)
{
    abl_case *c = abl_case_new(words);
    int64_t n = c ? count(c, "k") : 0;

    ok(c && n == 9 * 2 * 2 * 4, "a case from words");
    if (!c)
        return;
    ok(abl_get(c, "k", x, n) == 0 && x[0] != 0, "its inputs are drawn");
    abl_draw(c, 4, 1);
    ok(abl_get(c, "k", y, n) == 0 && memcmp(x, y, n * sizeof *x), "and drawn again");
    ok(abl_set(c, "k", x, n) == 0 && abl_get(c, "k", y, n) == 0 && !memcmp(x, y, n * sizeof *x),
       "and set");
    ok(abl_get(c, "d_out", x, count(c, "out")) == 0 && x[0] != 0, "output gradients, too");
    ok(abl_set(c, "out", x, n) == -1, "an output cannot be set");
    error_says("is a result");
    ok(abl_set(c, "k", x, n - 1) == -1, "nor half of an input");
    error_says("144 elements, not 143");
    ok(abl_set(c, "U0", x, n) == -1, "nor a tensor that the case lacks");
    error_says("no tensor U0");
    ok(!abl_case_new("e74_cell state=round"), "no such choice");
    error_says("state = round: not one of");
    ok(!abl_case_new("e74_cell steps=1,2"), "two cases");
    error_says("make 2 cases");
    ok(!abl_run(c, "ref_bf16", NULL, 0), "a backend of another type");
    error_says("stores bf16, the case is dtype=fp32");
    ok(!abl_run(c, "ref32", "fastest", 0), "no such kernel");
    error_says("no kernel fastest");
    abl_case_free(c);
}

/* Values that a tensor cannot have are refused, and the tensor stays as it was. */
static void wrong_values(void)
{
    static const double above[] = {0, 7, 6}, below[] = {0, 6, -1}, half[] = {0.5, 0, 0},
                        good[] = {6, -100, 0};
    abl_case *c = abl_case_new("cross_entropy rows=3 vocabulary=7");

    ok(c && abl_set(c, "target", good, 3) == 0, "indices, and one to be ignored, can be set");
    ok(c && abl_set(c, "target", above, 3) == -1, "an index above its range cannot");
    error_says("target has 7 at [1]: 0 to 6, or ignore_index (-100)");
    ok(c && abl_set(c, "target", below, 3) == -1, "nor a negative index");
    error_says("target has -1 at [2]: 0 to 6");
    ok(c && abl_set(c, "target", half, 3) == -1, "nor a fraction");
    error_says("target has 0.5 at [0], cross_entropy's target takes whole numbers");
    ok(c && abl_get(c, "target", x, 3) == 0 && !memcmp(x, good, sizeof good), "target stays");
    abl_case_free(c);
}

/* A finite value that the storage type cannot hold is refused in inputs and in results. */
static void too_large(void)
{
    static const double legal[] = {1, INFINITY, NAN, 4, 5, 6}, large[] = {1, 2, 3, 4, 5, 1e39},
                        above[] = {1, 2, 3.4e38, 4, 5, 6};
    abl_case *c = abl_case_new("silu rows=2 dim=3"),
             *half = abl_case_new("silu rows=2 dim=3 dtype=bf16");
    abl_result *r = c ? abl_result_new(c, "mine") : NULL;

    ok(c && abl_set(c, "x", legal, 6) == 0, "infinity and NaN can be set");
    ok(c && abl_set(c, "x", large, 6) == -1, "1e39 in fp32 cannot");
    error_says("x has 1e+39 at [1,2]: the largest fp32 is 3.40282e+38");
    ok(c && abl_get(c, "x", x, 6) == 0 && !memcmp(x, legal, sizeof legal), "x stays");
    ok(c && abl_set(c, "d_y", large, 6) == -1, "nor in the gradient of an output");
    error_says("d_y has 1e+39 at [1,2]: the largest fp32");
    ok(c && abl_set(c, "x", above, 6) == 0, "3.4e38 can");
    ok(half && abl_set(half, "x", above, 6) == -1, "but not in bf16");
    error_says("x has 3.4e+38 at [0,2]: the largest bf16 is 3.38953e+38");
    ok(r && abl_result_set(r, "y", large, 6) == -1, "nor 1e39 in a result");
    error_says("y has 1e+39 at [1,2]: the largest fp32 is 3.40282e+38");
    ok(r && abl_result_set(r, "y", legal, 6) == 0, "where infinity and NaN can be set");
    abl_result_free(r);
    abl_case_free(half);
    abl_case_free(c);
}

/* A run of the oracle; NULL if there is none. */
static abl_result *run(abl_case *c)
{
    abl_result *r = c ? abl_run(c, "ref64", NULL, 3) : NULL;
    int64_t n = c ? count(c, "out") : 0;
    struct abl_time time;

    ok(r && abl_result_get(r, "out", x, n) == 0 && abl_result_get(r, "d_k", y, n) == 0 &&
           isfinite(x[n - 1]) && isfinite(y[n - 1]),
       "a run has results");
    ok(r && abl_time(r, ABL_BACKWARD, &time) == 0 && time.min <= time.median &&
           time.median <= time.max && time.flops > 0 && abl_peak(r) > 0,
       "and times");
    return r;
}

/* The verdicts on `mine`, which has one fault at its end; x is the oracle's out. */
static abl_verdicts *judged(abl_case *c, abl_result *mine)
{
    int64_t n = c ? count(c, "out") : 0;
    struct abl_verdict v = {.error = 0};
    abl_verdicts *all = abl_judge(c, "ref32", NULL, ABL_PARITY | ABL_PROPERTIES | ABL_DIFFERENCES);
    ok(all && abl_count(all) > 20 && !abl_failed(all), "ref32 is judged good");
    abl_verdicts_free(all);

    ok(mine && !abl_judge_result(c, mine), "a result without anything");
    error_says("nothing was set");
    ok(mine && abl_result_set(mine, "out", x, n) == 0, "results of one's own");
    all = abl_judge_result(c, mine);
    ok(all && abl_count(all) == 1 && abl_failed(all) == 0, "good ones");
    abl_verdicts_free(all);
    x[n - 1] += 1e-3;
    abl_result_set(mine, "out", x, n);
    all = abl_judge_result(c, mine);
    ok(all && abl_failed(all) == 1 && abl_verdict(all, 0, &v) == 0 && v.first_bad == 8 &&
           strchr(v.worst, '8') && strcmp(v.backend, "mine") == 0,
       "and a bad one");
    ok(!abl_result_new(c, "ref64") && !abl_result_new(c, "a/b"), "names that are taken");
    x[n - 1] -= 1e-3;
    for (int64_t i = 0; i < n; i++)
        x[i] *= i % 2 ? 1 + 0x1p-11 : 1 - 0x1p-11;
    abl_result_set(mine, "out", x, n);
    ok(mine && abl_result_rounds(mine, "out:bf16") == 0, "that it is given in bf16");
    abl_verdicts *as_bf16 = abl_judge_result(c, mine);
    const int seen = as_bf16 && abl_verdict(as_bf16, 0, &v) == 0;
    ok(seen && abl_failed(as_bf16) == 0 && strcmp(v.kernel, "given, rounds out:bf16") == 0,
       "makes roundings to bf16 right, and the verdict says so: %s, %s off by %.2g, bound %.2g",
       v.kernel, v.distance, v.error, v.bound);
    abl_verdicts_free(as_bf16);
    ok(mine && abl_result_rounds(mine, "out:fp32") == -1, "it is that already");
    error_says("out is fp32, and fp32 is no coarser");
    as_bf16 = abl_judge_result(c, mine);
    ok(as_bf16 && abl_failed(as_bf16) == 0, "what was said before stays");
    abl_verdicts_free(as_bf16);
    ok(mine && abl_result_rounds(mine, "") == 0, "and no longer");
    as_bf16 = abl_judge_result(c, mine);
    ok(as_bf16 && abl_failed(as_bf16) == 1, "in float they are wrong");
    abl_verdicts_free(as_bf16);
    return all;
}

/* A dump of the case, of both results and of the verdicts, written and read back. */
static void dumped(const abl_case *c, const abl_result *r, const abl_result *mine,
                   const abl_verdicts *all)
{
    int64_t n = c ? count(c, "out") : 0;
    char file[] = "library.XXXXXX";
    int fd = mkstemp(file);
    const abl_result *both[] = {r, mine};
    close(fd);
    ok(fd >= 0 && abl_write(file, c, both, 2, all) == 0, "a dump of it all");
    abl_case *again = abl_case_read(file, "/trial/0001");
    ok(again && abl_get(c, "d_out", x, n) == 0 && abl_get(again, "d_out", y, n) == 0 &&
           memcmp(x, y, n * sizeof *x),
       "the case read back has inputs as they were run, rounded");
    ok(again && fabs(x[0] - y[0]) <= 0x1p-24 * fabs(x[0]), "to float");
    abl_result *read = again ? abl_result_new(again, "other") : NULL;
    ok(read && abl_result_read(read, file, "/trial/0001/ref64") == 0 &&
           abl_result_get(read, "d_k", y, n) == 0 && abl_result_get(r, "d_k", x, n) == 0 &&
           !memcmp(x, y, n * sizeof *x),
       "a result read back is the same");
    ok(read && abl_result_read(read, file, "/trial/0001/mine") == 0, "also one's own");
    ok(read && abl_result_read(read, file, "/trial/0002/mine") == -1, "no such group");
    error_says("has no group /trial/0002/mine");
    ok(!abl_case_read("nowhere.h5", "/trial/0001"), "no such file");
    error_says("nowhere.h5 cannot be read");
    unlink(file);
    abl_result_free(read);
    abl_case_free(again);
}

static void results(void)
{
    abl_case *c = abl_case_new(words);
    abl_result *r = run(c), *mine = abl_result_new(c, "mine");
    abl_verdicts *all = judged(c, mine);

    dumped(c, r, mine, all);
    abl_verdicts_free(all);
    abl_result_free(r);
    abl_result_free(mine);
    abl_case_free(c);
}

/* A case whose backward adds to gradients: they are drawn, and read back with the case. */
static void accumulating(void)
{
    enum { N = 6 };
    double sum[N], again[N], alone[N];
    char file[] = "library.XXXXXX";
    int fd = mkstemp(file), differ = 0;
    abl_case *c = abl_case_new("silu rows=2 dim=3 accumulate=yes"), *read = NULL;
    abl_case *one = abl_case_new("silu rows=2 dim=3");

    close(fd);
    abl_draw(c, 5, 0);
    abl_draw(one, 5, 0);
    abl_result *r = abl_run(c, "ref32", NULL, 0), *other = abl_run(one, "ref32", NULL, 0);
    ok(abl_write(file, c, NULL, 0, NULL) == 0 && (read = abl_case_read(file, "/trial/0001")),
       "a case with initial gradients is written and read");
    abl_result *back = read ? abl_run(read, "ref32", NULL, 0) : NULL;
    ok(back && abl_result_get(r, "d_x", sum, N) == 0 &&
           abl_result_get(back, "d_x", again, N) == 0 && memcmp(sum, again, sizeof sum) == 0,
       "its gradients are the same");
    ok(other && abl_result_get(other, "d_x", alone, N) == 0, "those of a case that overwrites");
    for (int i = 0; i < N; i++)
        differ += sum[i] != alone[i];
    ok(differ == N, "are not");
    unlink(file);
    abl_result_free(r);
    abl_result_free(back);
    abl_result_free(other);
    abl_case_free(c);
    abl_case_free(read);
    abl_case_free(one);
}

/* A number that is no pass, or no checks, is refused by each function that is given one. */
static void passes_and_checks(void)
{
    const int passes[] = {-1, 2, 7};
    abl_case *c = abl_case_new("silu rows=1 dim=4");
    abl_call *call = abl_call_new("silu rows=1 dim=4", "ref32", 0, NULL);
    abl_result *r = abl_run(c, "ref32", NULL, 1);
    struct abl_time time;
    static float n[2][4] __attribute__((aligned(16))) = {{1, 2, 3, 4}, {5, 6, 7, 8}};
    struct {
        struct abl_block head;
        void *tensors[4];
    } block = {.tensors = {n[0], n[1], n[0], n[1]}};
    void *tensors[] = {n[0], n[1]};

    for (int i = 0; i < 3; i++) {
        const enum abl_pass pass = (enum abl_pass)passes[i];
        ok(abl_time(r, pass, &time) == -1, "abl_time, pass %d", passes[i]);
        error_says("abl_time: there is no pass");
        ok(abl_call_workspace(call, pass) == -1, "abl_call_workspace, pass %d", passes[i]);
        error_says("there is no pass");
        ok(abl_call_run(call, pass, tensors, tensors, NULL, 0, NULL) == -1, "abl_call_run");
        error_says("there is no pass");
        block.head.pass = passes[i];
        ok(abl_call_run_trusted(call, &block.head) == -1, "abl_call_run_trusted");
        error_says("there is no pass");
    }
    ok(n[0][0] == 1 && n[1][0] == 5, "and nothing was written");
    ok(!abl_judge(c, "ref32", NULL, 8 + ABL_PARITY), "abl_judge, checks 9");
    error_says("there are no checks 9");
    abl_result_free(r);
    abl_call_free(call);
    abl_case_free(c);
}

static uint64_t seed_in(const char *file)
{
    abl_dump *d = abl_dump_open(file);
    struct abl_attribute a = {.name = ""};

    for (int i = 0; strcmp(a.name, "dropout_seed") != 0; i++)
        if (abl_dump_attribute(d, "/trial/0001", i, &a, NULL, 0) < 0)
            break;
    abl_dump_free(d);
    return a.type == (a.whole < 0 ? ABL_LARGE : ABL_WHOLE) ? (uint64_t)a.whole : 0;
}

/* A seed has all its 64 bits: in words, in a dump, and in what it draws. */
/* How many lines of `text` are no lines of `among`? */
static int lines_not_in(const char *text, const char *among)
{
    int n = 0;

    for (const char *at = text; *at; at += strcspn(at, "\n") + 1) {
        char line[404], all[4096];
        snprintf(line, sizeof line, "\n%.*s\n", (int)strcspn(at, "\n"), at);
        snprintf(all, sizeof all, "\n%s", among);
        n += strstr(all, line) == NULL;
    }
    return n;
}

/* What would pass as some results of a norm, and what no result is. */
static void passing_as(abl_case *c)
{
    const char *text = abl_passing(c, NULL, NULL);
    char *all = strdup(text ? text : ""), *y;

    ok(strncmp(all, "eps = 0\n", 8) == 0, "eps = 0 would pass as all results");
    ok(text && text == abl_passing(c, NULL, NULL), "the text stays where it is asked for again");
    text = abl_passing(c, "y", NULL);
    y = strdup(text ? text : "");
    const char *refused = abl_refused(c, 0), *hidden = abl_refused(c, 1);
    ok(refused && !strstr(y, "dw has all rows but the last\n") &&
           !strstr(refused, "dw has all rows but the last\n"),
       "of a wrong d_w nothing is asked as y");
    ok(strstr(y, "eps = 0\n") != NULL, "eps = 0 would as one of them");
    ok(*refused && lines_not_in(refused, y) > 0 && strstr(refused, "x drawn anew\n"),
       "what is refused");
    ok(hidden && lines_not_in(hidden, y) == 0, "what is hidden would pass");
    text = abl_passing(c, " d_x  y d_w ", NULL);
    ok(text && strcmp(text, all) == 0, "all of them by their names");
    ok(!abl_passing(c, "y z", NULL), "no such result");
    error_says("z is no output or gradient of rmsnorm");
    ok(!abl_passing(c, "x", NULL), "an input");
    error_says("x is no output or gradient of rmsnorm");
    ok(!abl_passing(c, "rstd", NULL), "a tensor that is kept for backward");
    error_says("rstd is no output or gradient of rmsnorm");
    ok(!abl_passing(c, "a_name_that_is_longer_than_that_of_any_tensor", NULL), "a long name");
    error_says("is no output or gradient of rmsnorm");
    ok(!abl_passing(c, " ", NULL), "no name");
    error_says("no result is named");
    free(all);
    free(y);
}

/* The cases that words name. */
static void campaigns(void)
{
    abl_campaign *open = abl_campaign_new("softmax dtype=bf16 seed=7"),
                 *fixed = abl_campaign_new("softmax rows=3 columns=20 seed=7");
    const int64_t n = abl_campaign_listed(open);
    char smaller[4096];

    ok(abl_campaign_is_open(open) == 1 && n > 20, "sizes are open");
    ok(abl_campaign_is_open(fixed) == 0 && abl_campaign_listed(fixed) == 3, "all are named");
    ok(strcmp(abl_campaign_words(open, 0),
              "softmax rows=1 columns=2 scale=1 fill=normal dtype=bf16 seed=7 input=normal") == 0,
       "the first is the contract's");
    ok(strstr(abl_campaign_words(open, n + 100), " seed=") != NULL, "drawn without an end");
    ok(abl_campaign_smaller(open, "softmax rows=3 columns=2", 0, smaller, sizeof smaller) == 0 &&
           strncmp(smaller, "softmax rows=1 columns=2 ", 25) == 0,
       "a smaller one: %s", smaller);
    ok(abl_campaign_smaller(open, "softmax rows=1 columns=1", 0, smaller, sizeof smaller) == 1,
       "there is none");
    ok(abl_campaign_smaller(fixed, "softmax rows=3 columns=20", 0, smaller, sizeof smaller) == 1,
       "what is named stays");
    ok(abl_campaign_smaller(open, "relu rows=3", 0, smaller, sizeof smaller) == -1, "of another");
    error_says("words of another operation: relu rows=3");
    ok(abl_campaign_smaller(open, "softmax rows=3 columns=2", 0, smaller, 20) == -1, "few bytes");
    error_says("20 bytes are too few");
    ok(!abl_campaign_words(open, -1), "no case");
    error_says("there is no case -1");
    ok(!abl_campaign_new("softmax rows=0"), "wrong words");
    abl_campaign_free(open);
    abl_campaign_free(fixed);
}

/* What the verdict on a right result sees; 0: nothing. */
static double sees(abl_case *c, const abl_result *r)
{
    abl_verdicts *all = abl_judge_result(c, r);
    struct abl_verdict v = {.sees = 0};

    ok(all && abl_verdict(all, 0, &v) == 0 && v.pass && v.sees > 0 && v.sees < v.sees_row &&
           v.sees_row < v.sees_element && v.sees_element < 1,
       "a verdict sees %.2g, of a row %.2g, of an element %.2g", v.sees, v.sees_row,
       v.sees_element);
    abl_verdicts_free(all);
    return v.sees;
}

static void passing(void)
{
    abl_case *c = abl_case_new("rmsnorm rows=16 columns=256 dtype=bf16");
    abl_result *r = c ? abl_run(c, "ref64", NULL, 0) : NULL;
    abl_result *mine = c ? abl_result_new(c, "mine") : NULL;
    const int64_t n = c ? count(c, "y") : 0;

    if (ok(r && mine && abl_result_get(r, "y", x, n) == 0 && abl_result_set(mine, "y", x, n) == 0,
           "a result of a norm")) {
        const double few = sees(c, mine);
        passing_as(c);
        ok(sees(c, mine) <= few, "and after all samples no less");
    }
    abl_result_free(mine);
    abl_result_free(r);
    abl_case_free(c);
}

static void seeds(void)
{
    enum { N = 256 };
    static const char *const seed[] = {"1", "4294967297", "18446744073709551615",
                                       "9223372036854775807"};
    static double o[4][N];
    char some[200], file[] = "library.XXXXXX", text[32];
    int fd = mkstemp(file);

    close(fd);
    for (int i = 0; i < 4; i++) {
        snprintf(some, sizeof some,
                 "attention batch=1 steps=16 heads=1 dim=16 dropout=0.5 dropout_seed=%s", seed[i]);
        abl_case *c = abl_case_new(some), *back = NULL;
        abl_result *r = c ? abl_run(c, "ref64", NULL, 0) : NULL;
        snprintf(text, sizeof text, "dropout_seed=%s ", seed[i]);
        ok(r && strstr(abl_text(c), text) && abl_result_get(r, "o", o[i], N) == 0, "%s", text);
        if (!ok(c && abl_write(file, c, NULL, 0, NULL) == 0 &&
                    (back = abl_case_read(file, "/trial/0001")) && strstr(abl_text(back), text),
                "written and read"))
            printf("# %s\n", back ? abl_text(back) : abl_error());
        ok(seed_in(file) == strtoull(seed[i], NULL, 10), "and read as an attribute");
        for (int j = 0; j < i; j++)
            ok(memcmp(o[i], o[j], sizeof *o) != 0, "not as %s", seed[j]);
        abl_result_free(r);
        abl_case_free(c);
        abl_case_free(back);
    }
    unlink(file);
    ok(!abl_case_new("attention dropout=0.5 dropout_seed=18446744073709551616"), "2^64");
    error_says("must be 0 to 18446744073709551615");
    ok(!abl_case_new("attention dropout=0.5 dropout_seed=-1"), "-1");
    error_says("must be 0 to 18446744073709551615");
}

/* Dumps that hold integers; that replace another; that must not. */
static void dumps(void)
{
    enum { ROWS = 3 };
    double was[ROWS], is[ROWS];
    char file[] = "library.XXXXXX", text[8] = "";
    int fd = mkstemp(file);
    abl_case *c = abl_case_new("cross_entropy rows=3 vocabulary=50"), *again;

    ok(fd >= 0 && write(fd, "text", 4) == 4 && abl_write(file, c, NULL, 0, NULL) == -1,
       "a text is not replaced");
    error_says(": is no dump");
    ok(pread(fd, text, sizeof text, 0) == 4 && strcmp(text, "text") == 0, "and stays");
    close(fd);
    unlink(file);
    abl_case *other = abl_case_new("cross_entropy rows=2 vocabulary=50");
    ok(abl_write(file, other, NULL, 0, NULL) == 0 && abl_write(file, c, NULL, 0, NULL) == 0,
       "a dump is");
    again = abl_case_read(file, "/trial/0001");
    ok(again && abl_get(c, "target", was, ROWS) == 0 && abl_get(again, "target", is, ROWS) == 0 &&
           memcmp(was, is, sizeof was) == 0,
       "a tensor of integers reads back");
    ok(other && abl_read(other, file, "/trial/0001") == -1,
       "into a case of other sizes it does not");
    error_says("has another shape: it is [");
    error_says("] (cross_entropy rows=2");
    unlink(file);
    abl_case_free(again);
    abl_case_free(other);
    abl_case_free(c);
}

/* A dump with an index that its own case cannot have. */
static void dumped_index(void)
{
    static const double good[] = {0, 6, 2}, outside[] = {0, 9, 2};
    char file[] = "library.XXXXXX";
    int fd = mkstemp(file);
    abl_case *c = abl_case_new("cross_entropy rows=3 vocabulary=9");

    close(fd);
    ok(fd >= 0 && c && abl_write(file, c, NULL, 0, NULL) == 0, "a dump with a target");
    hid_t f = H5Fopen(file, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t d = H5Dopen2(f, "/trial/0001/in/target", H5P_DEFAULT);
    ok(H5Dwrite(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, outside) >= 0,
       "that somebody changes");
    H5Dclose(d);
    H5Fclose(f);
    ok(!abl_case_read(file, "/trial/0001"), "is not read as a case");
    error_says(":/trial/0001: target has 9 at [1]: 0 to 8, or ignore_index (-100)");
    ok(abl_set(c, "target", good, 3) == 0 && abl_read(c, file, "/trial/0001") == -1 &&
           abl_get(c, "target", x, 3) == 0 && !memcmp(x, good, sizeof good),
       "nor into a case, whose target stays");
    unlink(file);
    abl_case_free(c);
}

/* The file that a case was read from has other names, and keeps its results under all of them. */
static void source(void)
{
    char file[] = "library.XXXXXX", names[6][300], from[512];
    int fd = mkstemp(file);
    abl_case *c = abl_case_new("cross_entropy rows=3 vocabulary=50"), *again[3];
    abl_result *r = abl_run(c, "ref64", NULL, 0);

    close(fd);
    ok(r && abl_write(file, c, (const abl_result *[]){r}, 1, NULL) == 0, "a dump with a result");
    snprintf(names[0], sizeof names[0], "%s", file);
    snprintf(names[1], sizeof names[1], "./%s", file);
    snprintf(names[2], sizeof names[2], "%.200s/%s", getcwd(from, sizeof from) ? from : ".", file);
    snprintf(names[3], sizeof names[3], "%s.soft", file);
    snprintf(names[4], sizeof names[4], "%s.hard", file);
    snprintf(names[5], sizeof names[5], "%s.h5", file);
    ok(!symlink(file, names[3]) && !link(file, names[4]), "and two links");
    again[0] = abl_case_read(file, "/trial/0001");
    again[1] = abl_case_read(names[3], "/trial/0001");
    snprintf(from, sizeof from, "%s input=hdf5 file=%s group=/trial/0001/in",
             "cross_entropy rows=3 vocabulary=50", names[4]);
    again[2] = abl_case_new(from);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 5; i++) {
            ok(again[k] && abl_write(names[i], again[k], NULL, 0, NULL) == -1,
               "case %d is not written to its source, as %s", k, names[i]);
            error_says(k < 2 ? "is a file that the case was read from" : "is the input of trial 1");
        }
    ok(r && abl_result_read(r, file, "/trial/0001/ref64") == 0, "the result is still there");
    ok(again[0] && abl_write(names[5], again[0], NULL, 0, NULL) == 0 &&
           abl_write(names[5], again[0], NULL, 0, NULL) == 0,
       "another file is written, and replaced");
    ok(again[0] && abl_read(again[0], names[5], "/trial/0001") == 0 &&
           abl_write(names[5], again[0], NULL, 0, NULL) == -1,
       "unless it was read, too");
    error_says("is a file that the case was read from");
    for (int i = 0; i < 6; i++)
        unlink(names[i]);
    for (int k = 0; k < 3; k++)
        abl_case_free(again[k]);
    abl_result_free(r);
    abl_case_free(c);
}

/* Files may have at most so many bytes, as on a full disk: the child's status is 0 where the case
 * is not written. */
static int refused_by_disk(const char *file, const abl_case *c, rlim_t bytes)
{
    const struct rlimit limit = {bytes, bytes};
    int status = -1;

    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        _exit(setrlimit(RLIMIT_FSIZE, &limit) || abl_write(file, c, NULL, 0, NULL) != -1 ||
              !strstr(abl_error(), "File too large"));
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

/* What cannot be written leaves nothing, and the message is no program's. */
static void not_written(void)
{
    char file[] = "library.XXXXXX", part[sizeof file + 8];
    int fd = mkstemp(file);

    omp_set_num_threads(1); /* a sanitizer's malloc() is not made for a fork beside threads */
    abl_case *c = abl_case_new("linear rows=600 dim_in=400 dim_out=400");
    abl_case *small = abl_case_new("cross_entropy rows=3 vocabulary=50");

    close(fd);
    unlink(file);
    snprintf(part, sizeof part, "%s.part", file);
    ok(refused_by_disk(file, c, 3 << 19) && access(file, F_OK) && access(part, F_OK),
       "a disk that is too small for a case keeps no part of it");
    ok(refused_by_disk(file, c, 1000) && access(file, F_OK) && access(part, F_OK),
       "nor does a full one");
    ok(abl_write(file, c, NULL, 0, NULL) == 0 && rename(file, part) == 0 &&
           abl_write(file, small, NULL, 0, NULL) == -1 && access(part, F_OK) == 0,
       "results of a run that was interrupted are not thrown away");
    error_says("holds 1 finished trial");
    ok(!strstr(abl_error(), " -") && !strstr(abl_error(), "--"), "which needs no option's name");
    unlink(part);
    unlink(file);
    abl_case_free(small);
    abl_case_free(c);
}

/* A tensor that older dumps have by another name. */
static void renamed(void)
{
    char file[] = "library.XXXXXX";
    int fd = mkstemp(file);
    abl_case *c = abl_case_new("histogram size=50 bins=3 data=wild");
    abl_result *r = abl_run(c, "ref64", NULL, 0), *read = abl_result_new(c, "read");
    const abl_result *written[] = {r};

    close(fd);
    ok(fd >= 0 && abl_write(file, c, written, 1, NULL) == 0, "a dump with a histogram");
    hid_t f = H5Fopen(file, H5F_ACC_RDWR, H5P_DEFAULT);
    ok(H5Lmove(f, "/trial/0001/ref64/outside", f, "/trial/0001/ref64/apart", H5P_DEFAULT,
               H5P_DEFAULT) >= 0,
       "its outside by the name of older dumps");
    H5Fclose(f);
    ok(abl_result_read(read, file, "/trial/0001/ref64") == 0 &&
           abl_result_get(r, "outside", x, 3) == 0 && abl_result_get(read, "outside", y, 3) == 0 &&
           memcmp(x, y, 3 * sizeof *x) == 0,
       "reads back");
    unlink(file);
    abl_result_free(r);
    abl_result_free(read);
    abl_case_free(c);
}

/* A call that is asked to end early fails; then the library and the case are as before. */
static volatile int stop;

static void on_alarm(int number)
{
    (void)number;
    stop = 1;
}

static void interrupted(void)
{
    static const char *const file = "library_stop.h5";
    abl_case *c = abl_case_new("e74 steps=256 batch=8 n_state=64 dim=64");
    abl_case *small = abl_case_new(words);
    const int written = abl_write(file, small, NULL, 0, NULL);
    abl_dump *d = abl_dump_open(file);

    signal(SIGALRM, on_alarm);
    abl_stop_when(&stop);
    alarm(1);
    ok(!abl_judge(c, "ref32", NULL, ABL_PARITY | ABL_PROPERTIES | ABL_DIFFERENCES), "is left");
    error_says("interrupted");
    ok(stop == 1, "for that reason");
    ok(!abl_run(small, "ref64", NULL, 0), "and so is the next call");
    error_says("interrupted");
    ok(!abl_case_new(words) && abl_expected(small, "out", x, count(small, "out")) == -1,
       "and any other that computes");
    abl_dump_free(d);
    const int fd = open(file, O_RDWR);
    ok(!written && d && fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0,
       "but a dump that is freed is closed");
    close(fd);
    unlink(file);
    stop = 0;
    abl_verdicts *v = abl_judge(small, "ref32", NULL, ABL_PARITY);
    ok(v && abl_count(v) > 0 && abl_failed(v) == 0, "until it is no longer asked for");
    stop = 1;
    abl_stop_when(NULL);
    ok(abl_expected(small, "out", x, count(small, "out")) == 0, "NULL: nothing asks any more");
    abl_verdicts_free(v);
    abl_case_free(small);
    abl_case_free(c);
}

/* Every backend that can run here, a GPU or its emulation among them. */
static void everywhere(void)
{
    static const char *const types[] = {"fp32", "bf16"};
    const char *b;

    for (int i = 0; (b = abl_backend(i)); i++) {
        int judged = 0, failed = 0;
        if (abl_unavailable(b)) {
            printf("# %s: %s\n", b, abl_unavailable(b));
            continue;
        }
        for (int t = 0; t < 2; t++) {
            char text[100];
            snprintf(text, sizeof text, "diag_delta batch=2 steps=5 n_state=7 dtype=%s", types[t]);
            abl_case *c = abl_case_new(text);
            abl_verdicts *v = c ? abl_judge(c, b, NULL, ABL_PARITY | ABL_PROPERTIES) : NULL;
            judged += v ? abl_count(v) : 0;
            failed += v ? abl_failed(v) : 0;
            abl_verdicts_free(v);
            abl_case_free(c);
        }
        ok(judged > 0 && !failed, "%s through the library: %d checks", b, judged);
    }
}

int main(void)
{
    table();
    values();
    wrong_values();
    too_large();
    results();
    accumulating();
    passes_and_checks();
    passing();
    campaigns();
    seeds();
    dumps();
    dumped_index();
    source();
    not_written();
    renamed();
    interrupted();
    everywhere();
    return done();
}
