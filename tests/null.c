/* What the library's functions do with NULL: each function of ablate.h, with NULL in each place
 * of a pointer, one at a time.  The places are read from ablate.h, so that a new one without a
 * row here fails.  Each call is a child's, which a crash ends alone. */
#include "config.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/ablate.h"
#include "tests/tap.h"

/* ---- the calls ---- */

enum { N = 2, SECONDS = 60 };
static double array[N];
static unsigned char bytes[N];
static char file[] = "null.XXXXXX";
static const char *const words = "relu rows=1 dim=2";

/* Those that are called on have been made before, by the child alone: the parent uses no threads,
 * which its children would lack. */
static abl_case *c;
static abl_result *r, *mine;
static abl_verdicts *v;
static abl_call *call;
static abl_campaign *campaign;
static float numbers[2][4] __attribute__((aligned(16)));
static void *tensors[] = {numbers[0], numbers[1]};
static const abl_result *list[2];

static int make(void)
{
    c = abl_case_new(words);
    r = abl_run(c, "ref64", NULL, 1);
    mine = abl_result_new(c, "mine");
    v = abl_judge(c, "ref32", NULL, ABL_PARITY);
    call = abl_call_new(words, "ref32", 0, NULL);
    campaign = abl_campaign_new("relu");
    list[0] = r;
    return c && r && mine && v && call && campaign;
}

/* The status of a child: its call did what it should, made no error of NULL, or made another one;
 * or what it needs could not be made. */
enum { GOOD, ACCEPTED, ANOTHER, UNMADE };

/* The noun by which the sentence names a parameter. */
static const char *noun(const char *parameter)
{
    static const char *const nouns[][2] = {
        {"c", "case"},
        {"campaign", "campaign"},
        {"call", "call"},
        {"tensors", "list of tensors"},
        {"gradients", "list of gradients"},
        {"r", "result"},
        {"v", "list of verdicts"},
        {"op", "operation"},
        {"backend", "backend"},
        {"to", "destination"},
        {"name", "name"},
        {"words", "string of words"},
        {"values", "array"},
        {"wanted", "array that is wanted"},
        {"file", "name of the file"},
        {"group", "group"},
        {"results", "list of results"},
        {"d", "dump"},
    };
    for (size_t i = 0; i < sizeof nouns / sizeof *nouns; i++)
        if (strcmp(nouns[i][0], parameter) == 0)
            return nouns[i][1];
    return parameter;
}

/* Rows that were there, as "abl_run(backend)". */
enum { MAX_ROWS = 200, LENGTH = 80 };
static char rows[MAX_ROWS][LENGTH];
static int n_rows;

static void row(const char *call, const char *parameter)
{
    if (n_rows < MAX_ROWS)
        snprintf(rows[n_rows++], LENGTH, "%s(%s)", call, parameter);
}

static int row_exists(const char *text)
{
    int n = 0;
    for (int i = 0; i < n_rows; i++)
        n += strcmp(rows[i], text) == 0;
    return n;
}

/* Whether abl_error() is the sentence for this NULL. */
static int sentence(const char *call, const char *parameter)
{
    char text[200];
    snprintf(text, sizeof text, "%s: the %s is NULL", call, noun(parameter));
    if (strcmp(abl_error(), text) == 0)
        return GOOD;
    printf("# \"%s\", not \"%s\"\n", abl_error(), text);
    fflush(stdout);
    return ANOTHER;
}

/* In the child that is to make the call: 0. */
static pid_t begin(void)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid)
        return pid;
    alarm(SECONDS);
    if (!make())
        _exit(UNMADE);
    return 0;
}

static void judge(pid_t pid, const char *call, const char *parameter, const char *does)
{
    int status = 0;
    row(call, parameter);
    if (!ok(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "%s %s NULL as %s", call,
            does, parameter))
        printf("# %s %d\n", WIFSIGNALED(status) ? "signal" : "status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* The child makes the call, with NULL in the place of this parameter, and ends with `status`. */
#define CALL(call, parameter, does, status)                                                        \
    do {                                                                                           \
        pid_t pid = begin();                                                                       \
        if (!pid)                                                                                  \
            _exit(status);                                                                         \
        judge(pid, #call, #parameter, does);                                                       \
    } while (0)
/* `value` makes the call, and is whether it returned what it should. */
#define REFUSES(call, parameter, value)                                                            \
    CALL(call, parameter, "refuses", (value) ? sentence(#call, #parameter) : ACCEPTED)
#define ACCEPTS(call, parameter, value) CALL(call, parameter, "accepts", (value) ? GOOD : ANOTHER)

static void names(void)
{
    struct abl_param p;
    struct abl_tensor t;

    REFUSES(abl_formula, op, !abl_formula(NULL));
    REFUSES(abl_param, op, abl_param(NULL, 0, &p) == -1);
    REFUSES(abl_param, to, abl_param("relu", 0, NULL) == -1);
    REFUSES(abl_op_tensor, op, abl_op_tensor(NULL, 0, &t) == -1);
    REFUSES(abl_op_tensor, to, abl_op_tensor("relu", 0, NULL) == -1);
    REFUSES(abl_unavailable, backend, strcmp(abl_unavailable(NULL), abl_error()) == 0);
    REFUSES(abl_use, backend, abl_use(NULL, 0) == -1);
    REFUSES(abl_device, backend, !abl_device(NULL));
    REFUSES(abl_backend_dtype, backend, !abl_backend_dtype(NULL));
    REFUSES(abl_backend_machine, backend, !abl_backend_machine(NULL));
    REFUSES(abl_kernel, op, !abl_kernel(NULL, "ref64", 0));
    REFUSES(abl_kernel, backend, !abl_kernel("relu", NULL, 0));
    REFUSES(abl_source, op, !abl_source(NULL));
    REFUSES(abl_kernel_idea, op, !abl_kernel_idea(NULL, "ref64", 0));
    REFUSES(abl_kernel_idea, backend, !abl_kernel_idea("relu", NULL, 0));
}

static void drawn_words(void)
{
    struct abl_tensor t;
    char text[1000];

    REFUSES(abl_words_tensor, words, abl_words_tensor(NULL, 0, &t) == -1);
    REFUSES(abl_words_tensor, to, abl_words_tensor(words, 0, NULL) == -1);
    ACCEPTS(abl_random, op, abl_random(NULL, 1, 0, text, sizeof text) == 0);
    REFUSES(abl_random, words, abl_random("relu", 1, 0, NULL, 100) == -1);
}

static int draw_null(void)
{
    abl_draw(NULL, 1, 0);
    return 1;
}

static int stop_null(void)
{
    abl_stop_when(NULL);
    return 1;
}

static int free_null(void)
{
    abl_case_free(NULL);
    abl_campaign_free(NULL);
    abl_result_free(NULL);
    abl_verdicts_free(NULL);
    abl_dump_free(NULL);
    return 1;
}

static void campaigns(void)
{
    char text[4096];

    REFUSES(abl_campaign_new, words, !abl_campaign_new(NULL));
    ACCEPTS(abl_campaign_free, campaign, free_null());
    REFUSES(abl_campaign_listed, campaign, abl_campaign_listed(NULL) == -1);
    REFUSES(abl_campaign_is_open, campaign, abl_campaign_is_open(NULL) == -1);
    REFUSES(abl_campaign_words, campaign, !abl_campaign_words(NULL, 0));
    REFUSES(abl_campaign_smaller, campaign,
            abl_campaign_smaller(NULL, words, 0, text, sizeof text) == -1);
    REFUSES(abl_campaign_smaller, words,
            abl_campaign_smaller(campaign, NULL, 0, text, sizeof text) == -1);
    REFUSES(abl_campaign_smaller, to, abl_campaign_smaller(campaign, words, 0, NULL, 1) == -1);
}

static void cases(void)
{
    struct abl_tensor t;

    REFUSES(abl_case_new, words, !abl_case_new(NULL));
    REFUSES(abl_case_read, file, !abl_case_read(NULL, "/trial/0001"));
    REFUSES(abl_case_read, group, !abl_case_read("some.h5", NULL));
    ACCEPTS(abl_case_free, c, free_null());
    REFUSES(abl_text, c, !abl_text(NULL));
    REFUSES(abl_tensor, c, abl_tensor(NULL, 0, &t) == -1);
    REFUSES(abl_tensor, to, abl_tensor(c, 0, NULL) == -1);
    REFUSES(abl_draw, c, draw_null());
    ACCEPTS(abl_stop_when, stop, stop_null());
    REFUSES(abl_set, c, abl_set(NULL, "x", array, N) == -1);
    REFUSES(abl_set, name, abl_set(c, NULL, array, N) == -1);
    REFUSES(abl_set, values, abl_set(c, "x", NULL, N) == -1);
    REFUSES(abl_get, c, abl_get(NULL, "x", array, N) == -1);
    REFUSES(abl_get, name, abl_get(c, NULL, array, N) == -1);
    REFUSES(abl_get, values, abl_get(c, "x", NULL, N) == -1);
    REFUSES(abl_set_bytes, c, abl_set_bytes(NULL, "x", bytes, N) == -1);
    REFUSES(abl_set_bytes, name, abl_set_bytes(c, NULL, bytes, N) == -1);
    REFUSES(abl_set_bytes, values, abl_set_bytes(c, "x", NULL, N) == -1);
    REFUSES(abl_get_bytes, c, abl_get_bytes(NULL, "x", bytes, N) == -1);
    REFUSES(abl_get_bytes, name, abl_get_bytes(c, NULL, bytes, N) == -1);
    REFUSES(abl_get_bytes, values, abl_get_bytes(c, "x", NULL, N) == -1);
}

static void results(void)
{
    struct abl_time time;

    REFUSES(abl_run, c, !abl_run(NULL, "ref64", NULL, 0));
    REFUSES(abl_run, backend, !abl_run(c, NULL, NULL, 0));
    ACCEPTS(abl_run, kernel, abl_run(c, "ref64", NULL, 0) != NULL);
    REFUSES(abl_forward, c, !abl_forward(NULL, "ref64", NULL, 0));
    REFUSES(abl_forward, backend, !abl_forward(c, NULL, NULL, 0));
    ACCEPTS(abl_forward, kernel, abl_forward(c, "ref64", NULL, 0) != NULL);
    REFUSES(abl_result_new, c, !abl_result_new(NULL, "yours"));
    REFUSES(abl_result_new, name, !abl_result_new(c, NULL));
    ACCEPTS(abl_result_free, r, free_null());
    REFUSES(abl_result_rounds, r, abl_result_rounds(NULL, "y:bf16") == -1);
    REFUSES(abl_result_rounds, words, abl_result_rounds(mine, NULL) == -1);
    REFUSES(abl_result_set, r, abl_result_set(NULL, "y", array, N) == -1);
    REFUSES(abl_result_set, name, abl_result_set(mine, NULL, array, N) == -1);
    REFUSES(abl_result_set, values, abl_result_set(mine, "y", NULL, N) == -1);
    REFUSES(abl_result_get, r, abl_result_get(NULL, "y", array, N) == -1);
    REFUSES(abl_result_get, name, abl_result_get(r, NULL, array, N) == -1);
    REFUSES(abl_result_get, values, abl_result_get(r, "y", NULL, N) == -1);
    REFUSES(abl_result_set_bytes, r, abl_result_set_bytes(NULL, "y", bytes, N) == -1);
    REFUSES(abl_result_set_bytes, name, abl_result_set_bytes(mine, NULL, bytes, N) == -1);
    REFUSES(abl_result_set_bytes, values, abl_result_set_bytes(mine, "y", NULL, N) == -1);
    REFUSES(abl_result_get_bytes, r, abl_result_get_bytes(NULL, "y", bytes, N) == -1);
    REFUSES(abl_result_get_bytes, name, abl_result_get_bytes(r, NULL, bytes, N) == -1);
    REFUSES(abl_result_get_bytes, values, abl_result_get_bytes(r, "y", NULL, N) == -1);
    REFUSES(abl_time, r, abl_time(NULL, ABL_FORWARD, &time) == -1);
    REFUSES(abl_time, to, abl_time(r, ABL_FORWARD, NULL) == -1);
    REFUSES(abl_peak, r, abl_peak(NULL) == -1);
}

static void verdicts(void)
{
    struct abl_verdict one;

    REFUSES(abl_judge, c, !abl_judge(NULL, "ref32", NULL, ABL_PARITY));
    REFUSES(abl_judge, backend, !abl_judge(c, NULL, NULL, ABL_PARITY));
    ACCEPTS(abl_judge, kernel, abl_judge(c, "ref32", NULL, ABL_PARITY) != NULL);
    REFUSES(abl_judge_result, c, !abl_judge_result(NULL, r));
    REFUSES(abl_judge_result, r, !abl_judge_result(c, NULL));
    REFUSES(abl_expected, c, abl_expected(NULL, "y", array, N) == -1);
    REFUSES(abl_expected, name, abl_expected(c, NULL, array, N) == -1);
    REFUSES(abl_expected, values, abl_expected(c, "y", NULL, N) == -1);
    REFUSES(abl_passing, c, abl_passing(NULL, NULL, NULL) == NULL);
    ACCEPTS(abl_passing, results, abl_passing(c, NULL, NULL) != NULL);
    ACCEPTS(abl_passing, as, abl_passing(c, NULL, NULL) != NULL);
    REFUSES(abl_refused, c, abl_refused(NULL, 0) == NULL);
    REFUSES(abl_would_pass, c, abl_would_pass(NULL, "y", array, N) == -1);
    REFUSES(abl_would_pass, name, abl_would_pass(c, NULL, array, N) == -1);
    REFUSES(abl_would_pass, values, abl_would_pass(c, "y", NULL, N) == -1);
    REFUSES(abl_distance, values, isnan(abl_distance(NULL, array, N)));
    REFUSES(abl_distance, wanted, isnan(abl_distance(array, NULL, N)));
    REFUSES(abl_expected_bytes, c, abl_expected_bytes(NULL, "y", bytes, N) == -1);
    REFUSES(abl_expected_bytes, name, abl_expected_bytes(c, NULL, bytes, N) == -1);
    REFUSES(abl_expected_bytes, values, abl_expected_bytes(c, "y", NULL, N) == -1);
    ACCEPTS(abl_verdicts_free, v, free_null());
    REFUSES(abl_count, v, abl_count(NULL) == -1);
    REFUSES(abl_failed, v, abl_failed(NULL) == -1);
    REFUSES(abl_unjudged, v, abl_unjudged(NULL) == -1);
    REFUSES(abl_verdict, v, abl_verdict(NULL, 0, &one) == -1);
    REFUSES(abl_verdict, to, abl_verdict(v, 0, NULL) == -1);
}

static int misses_result(void)
{
    return abl_write(file, c, list, 2, v) == -1 && strstr(abl_error(), "result 1 in the list");
}

static void dumps(void)
{
    REFUSES(abl_write, file, abl_write(NULL, c, list, 1, v) == -1);
    REFUSES(abl_write, c, abl_write(file, NULL, list, 1, v) == -1);
    REFUSES(abl_write, results, abl_write(file, c, NULL, 1, v) == -1);
    ACCEPTS(abl_write, v, abl_write(file, c, list, 1, NULL) == 0);
    ACCEPTS(abl_write, list of 0 results, abl_write(file, c, NULL, 0, v) == 0);
    CALL(abl_write, one of the results, "refuses", misses_result() ? GOOD : ANOTHER);
    REFUSES(abl_read, c, abl_read(NULL, file, "/trial/0001") == -1);
    REFUSES(abl_read, file, abl_read(c, NULL, "/trial/0001") == -1);
    REFUSES(abl_read, group, abl_read(c, file, NULL) == -1);
    REFUSES(abl_result_read, r, abl_result_read(NULL, file, "/trial/0001/ref64") == -1);
    REFUSES(abl_result_read, file, abl_result_read(r, NULL, "/trial/0001/ref64") == -1);
    REFUSES(abl_result_read, group, abl_result_read(r, file, NULL) == -1);
}

static int call_free_null(void)
{
    abl_call_free(NULL);
    return 1;
}

static int run_with(abl_call *with, enum abl_pass pass, void *const *x, void *const *g)
{
    return abl_call_run(with, pass, x, g, NULL, 0, NULL);
}

static void calls(void)
{
    struct abl_tensor t;
    const struct abl_block block = {0};

    REFUSES(abl_call_new, words, !abl_call_new(NULL, "ref32", 0, NULL));
    REFUSES(abl_call_new, backend, !abl_call_new(words, NULL, 0, NULL));
    ACCEPTS(abl_call_new, kernel, abl_call_new(words, "ref32", 0, NULL) != NULL);
    ACCEPTS(abl_call_free, call, call_free_null());
    REFUSES(abl_call_text, call, !abl_call_text(NULL));
    REFUSES(abl_call_kernel, call, !abl_call_kernel(NULL));
    REFUSES(abl_call_tensor, call, abl_call_tensor(NULL, 0, &t) == -1);
    REFUSES(abl_call_tensor, to, abl_call_tensor(call, 0, NULL) == -1);
    REFUSES(abl_call_workspace, call, abl_call_workspace(NULL, ABL_FORWARD) == -1);
    REFUSES(abl_call_run, call, run_with(NULL, ABL_FORWARD, tensors, NULL) == -1);
    REFUSES(abl_call_run, tensors, run_with(call, ABL_FORWARD, NULL, NULL) == -1);
    REFUSES(abl_call_run, gradients, run_with(call, ABL_BACKWARD, tensors, NULL) == -1);
    ACCEPTS(abl_call_run, workspace, run_with(call, ABL_FORWARD, tensors, NULL) == 0);
    ACCEPTS(abl_call_run, stream, run_with(call, ABL_FORWARD, tensors, NULL) == 0);
    REFUSES(abl_call_wait, call, abl_call_wait(NULL, NULL) == -1);
    ACCEPTS(abl_call_wait, stream, abl_call_wait(call, NULL) == 0);
    REFUSES(abl_call_run_trusted, call, abl_call_run_trusted(NULL, &block) == -1);
    REFUSES(abl_call_run_trusted, block, abl_call_run_trusted(call, NULL) == -1);
}

/* A dump of the case, to be read. */
static const abl_dump *dump(void)
{
    return abl_write(file, c, list, 1, v) ? NULL : abl_dump_open(file);
}

static void contents(void)
{
    static const char *const checks = "/trial/0001/check", *const input = "/trial/0001/in/x";
    struct abl_member m;
    struct abl_attribute a;
    char text[200];

    REFUSES(abl_dump_open, file, !abl_dump_open(NULL));
    ACCEPTS(abl_dump_free, d, free_null());
    REFUSES(abl_dump_member, d, abl_dump_member(NULL, "/", 0, &m) == -1);
    REFUSES(abl_dump_member, group, abl_dump_member(dump(), NULL, 0, &m) == -1);
    REFUSES(abl_dump_member, to, abl_dump_member(dump(), "/", 0, NULL) == -1);
    REFUSES(abl_dump_attribute, d, abl_dump_attribute(NULL, "/", 0, &a, text, 9) == -1);
    REFUSES(abl_dump_attribute, path, abl_dump_attribute(dump(), NULL, 0, &a, text, 9) == -1);
    REFUSES(abl_dump_attribute, to, abl_dump_attribute(dump(), "/", 0, NULL, text, 9) == -1);
    REFUSES(abl_dump_attribute, text, abl_dump_attribute(dump(), "/", 0, &a, NULL, 9) == -1);
    REFUSES(abl_dump_read, d, abl_dump_read(NULL, input, array, N) == -1);
    REFUSES(abl_dump_read, dataset, abl_dump_read(dump(), NULL, array, N) == -1);
    REFUSES(abl_dump_read, values, abl_dump_read(dump(), input, NULL, N) == -1);
    REFUSES(abl_dump_table, d, abl_dump_table(NULL, checks, text, 9) == -1);
    REFUSES(abl_dump_table, table, abl_dump_table(dump(), NULL, text, 9) == -1);
    REFUSES(abl_dump_table, text, abl_dump_table(dump(), checks, NULL, 9) == -1);
}

/* ---- the places that ablate.h declares ---- */

/* The header without its comments; NULL if it cannot be read. */
static char *header(void)
{
    const char *srcdir = getenv("srcdir");
    char name[4096];
    static char text[1 << 20];

    snprintf(name, sizeof name, "%s/common/ablate.h", srcdir ? srcdir : ".");
    FILE *in = fopen(name, "r");
    if (!in)
        return NULL;
    text[fread(text, 1, sizeof text - 1, in)] = 0;
    fclose(in);
    for (char *from = text; (from = strstr(from, "/*"));) {
        char *end = strstr(from, "*/");
        memset(from, ' ', end ? (size_t)(end + 2 - from) : strlen(from));
    }
    return text;
}

/* The places of one function, whose parameters are a string up to ")". */
static void places(const char *call, char *parameters, int *n)
{
    for (char *p = strtok(parameters, ","); p; p = strtok(NULL, ",")) {
        if (!strchr(p, '*'))
            continue;
        char *end = p + strlen(p), text[2 * LENGTH];
        while (isspace((unsigned char)end[-1]))
            *--end = 0;
        while (isalnum((unsigned char)end[-1]) || end[-1] == '_')
            end--;
        snprintf(text, sizeof text, "%s(%s)", call, end);
        ok(row_exists(text) == 1, "%s of ablate.h has a row here", text);
        ++*n;
    }
}

/* Each declaration is a name abl_... and what stands between the next brackets. */
static void complete(void)
{
    char *text = header(), call[LENGTH];
    int n_calls = 0, n_places = 0;

    if (!ok(text != NULL, "ablate.h can be read"))
        return;
    for (char *at = text; (at = strstr(at, "abl_"));) {
        size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_");
        char *open = at + n, *close = strchr(open, ')');
        if (*open != '(' || !close || n >= sizeof call) {
            at = open;
            continue;
        }
        snprintf(call, sizeof call, "%.*s", (int)n, at);
        *close = 0;
        places(call, open + 1, &n_places);
        n_calls++;
        at = close + 1;
    }
    ok(n_calls > 30 && n_places > 50, "ablate.h: %d functions, %d places for NULL", n_calls,
       n_places);
}

int main(void)
{
    int fd = mkstemp(file);

    close(fd);
    unlink(file);
    names();
    cases();
    results();
    verdicts();
    dumps();
    calls();
    contents();
    drawn_words();
    campaigns();
    complete();
    unlink(file);
    return done();
}
