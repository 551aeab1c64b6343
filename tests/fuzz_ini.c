/* Mutated inis and words: each gives a plan, or at least one message of the
 * right form; nothing crashes, hangs or leaks (a build with a sanitizer
 * detects leaks).
 *
 *     tests/fuzz_ini [COUNT [FIRST]]        default: 1000 cases, from 0
 *
 * A case follows from its number alone, so that `fuzz_ini 1 NUMBER` runs one
 * again.  Three of four are inis, begun from those in experiments/; the fourth
 * is a line of words, begun from the cases of a contract. */
#include "config.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/number.h"
#include "common/plan/plan.h"
#include "tests/chance.h"
#include "tests/tap.h"

enum { MAX_SEEDS = 64, HANG = 60 /* seconds */, SHOWN = 50 /* of one file's faults */ };

/* ---- text that is changed ---- */

struct text {
    char *c;
    size_t n;
};

static void give_up(const char *why)
{
    printf("Bail out! %s\n", why);
    exit(EXIT_FAILURE);
}

static void insert(struct text *t, size_t at, const char *more, size_t n)
{
    t->c = realloc(t->c, t->n + n + 1);
    if (!t->c)
        give_up("no memory");
    memmove(t->c + at + n, t->c + at, t->n - at);
    memcpy(t->c + at, more, n);
    t->n += n;
    t->c[t->n] = 0;
}

static void erase(struct text *t, size_t at, size_t n)
{
    memmove(t->c + at, t->c + at + n, t->n - at - n);
    t->n -= n;
    t->c[t->n] = 0;
}

static struct text text_of(const char *c, size_t n)
{
    struct text t = {NULL, 0};
    insert(&t, 0, c, n);
    return t;
}

/* ---- mutations ---- */

static const char *const tokens[] = {"[trial]",
                                     "[experiment]",
                                     "[trial x]",
                                     "[",
                                     "]",
                                     "=",
                                     ",",
                                     ";",
                                     "#",
                                     "\"",
                                     "\"\"",
                                     "\n",
                                     "\r\n",
                                     " ",
                                     "\t",
                                     "\n  ",
                                     "=\n",
                                     ",,",
                                     "\xef\xbb\xbf",
                                     "\x1b[31m",
                                     "\x01",
                                     "\xc2\x9b",
                                     "%s%n",
                                     "0",
                                     "-1",
                                     "+5",
                                     "007",
                                     "1e3",
                                     "1e999",
                                     "-1e-999",
                                     "0x10",
                                     "inf",
                                     "nan",
                                     "1_000",
                                     ".",
                                     "18446744073709551615",
                                     "18446744073709551616",
                                     "9223372036854775808",
                                     "1073741824",
                                     "99999999999999999999999999",
                                     "name = ",
                                     "seed = ",
                                     "op = ",
                                     "op = e74\n",
                                     "file = ",
                                     "file = -\n",
                                     "file = /dev/zero\n",
                                     "file = ../data/sample.txt\n",
                                     "input = hdf5\n",
                                     "input = text\n",
                                     "group = /\n",
                                     "input = gguf\n",
                                     "tensor = ",
                                     "tensor = w:a b:c\n",
                                     "file = ../tests/small.gguf\n",
                                     "kernel = ",
                                     "checks = none\n",
                                     "measure = time\n",
                                     "goal = 90 % memory\n",
                                     "goal_backward = 12 us\n",
                                     "goal = ",
                                     "measure = crossover\n",
                                     "repeats = 0\n",
                                     "dtype = bf16\n",
                                     "backends = ref32\n",
                                     "state = lowrank\n",
                                     "rank = 3\n",
                                     "proj = full\n",
                                     "z_mod = row\n",
                                     "steps = ",
                                     "batch = ",
                                     "n_state = ",
                                     "heads = ",
                                     "rows = ",
                                     "rows = 1000:60000 random 20\n",
                                     "rows = 1000 / columns\n",
                                     "steps = 11 .. 26\n",
                                     "seed = 1:9999 random 9999\n",
                                     "batch = 64:4096 x2, 7\n",
                                     "rows = 9:3 random 2\n",
                                     "rows = 10:20\n",
                                     ":",
                                     "..",
                                     "1 ..",
                                     "0:5 x2",
                                     "-3 .. 3",
                                     "64:256 x1",
                                     "10:20 random",
                                     " random 3",
                                     " x2",
                                     "1 .. 9223372036854775807",
                                     "1:9223372036854775807 x3",
                                     "1:9223372036854775807 random 3",
                                     "1 .. 18446744073709551615",
                                     "1:18446744073709551615 x3",
                                     "1:18446744073709551615 random 3",
                                     "dim = ",
                                     "= 3\n"};

static void change_bytes(struct text *t, struct chance *r)
{
    for (size_t k = 1 + any(r, 4); k; k--) {
        char byte = (char)any(r, 256);
        size_t at = any(r, t->n);
        if (any(r, 3) == 0 && t->n)
            erase(t, at, 1);
        else if (any(r, 2) && t->n)
            t->c[at] = byte;
        else
            insert(t, at, &byte, 1);
    }
}

static void put_token(struct text *t, struct chance *r)
{
    const char *token = tokens[any(r, COUNT(tokens))];
    const struct op *o = ops[any(r, N_OPS)];

    if (any(r, 3) == 0)
        token = any(r, 2) ? o->name : o->param[any(r, o->n_params)].name;
    insert(t, any(r, t->n + 1), token, strlen(token));
}

/* The start of the line that has the byte `at`; its length with the newline in `n`. */
static size_t line_at(const struct text *t, size_t at, size_t *n)
{
    size_t begin = at;
    while (begin && t->c[begin - 1] != '\n')
        begin--;
    const char *end = memchr(t->c + begin, '\n', t->n - begin);
    *n = end ? (size_t)(end - t->c) + 1 - begin : t->n - begin;
    return begin;
}

/* Copy a line, move it, or erase it. */
static void move_line(struct text *t, struct chance *r)
{
    size_t n, at = line_at(t, any(r, t->n), &n), other, to = line_at(t, any(r, t->n), &other);
    struct text line = text_of(t->c + at, n);

    if (any(r, 2)) {
        erase(t, at, n);
        to = to > t->n ? t->n : to;
    }
    if (any(r, 3))
        insert(t, to, line.c, line.n);
    free(line.c);
}

/* Replace a value by numbers or words of other places. */
static void swap_value(struct text *t, struct chance *r)
{
    size_t at = any(r, t->n), n = strcspn(t->c + at, "=\n"), from = at + n + 1, end;

    if (from >= t->n || t->c[at + n] != '=')
        return;
    end = strcspn(t->c + from, "\n");
    erase(t, from, end);
    for (size_t k = 1 + any(r, 4); k; k--) {
        size_t other = any(r, t->n), length = strcspn(t->c + other, ",\n= ");
        struct text value = text_of(t->c + other, length);
        insert(t, from, value.c, value.n);
        if (k > 1)
            insert(t, from, ",", 1);
        free(value.c);
    }
}

/* Insert a long list, a long word or many lines. */
static void grow_long(struct text *t, struct chance *r)
{
    size_t at = any(r, t->n + 1), times = 1 + any(r, any(r, 4) ? 300 : 6000);
    size_t kind = any(r, 4);
    const char *token = tokens[any(r, COUNT(tokens))];
    struct text more = text_of("", 0);

    for (size_t i = 0; i < times; i++) {
        char number[32];
        snprintf(number, sizeof number, "%zu, ", i + 1);
        if (kind == 0)
            insert(&more, more.n, number, strlen(number));
        else if (kind == 1)
            insert(&more, more.n, token, strlen(token));
        else
            insert(&more, more.n, kind == 2 ? " " : "a", 1);
    }
    insert(t, at, more.c, more.n);
    free(more.c);
}

static void mutate(struct text *t, struct chance *r)
{
    static void (*const how[])(struct text *,
                               struct chance *) = {change_bytes, put_token,  put_token,  move_line,
                                                   move_line,    swap_value, swap_value, grow_long};

    for (size_t k = any(r, 6); k; k--)
        how[any(r, any(r, 4) ? COUNT(how) - 1 : COUNT(how))](t, r);
}

/* ---- judging ---- */

/* Each line "WHERE: what", or "WHERE:LINE: what", without control characters. */
static int good_line(const char *line, size_t n, const char *where)
{
    size_t at = strlen(where);

    if (n <= at || strncmp(line, where, at) != 0 || line[at] != ':')
        return 0;
    at++;
    if (line[at] != ' ')
        at += strspn(line + at, "0123456789") + 1;
    if (at >= n || line[at - 1] != ':' || line[at] != ' ' || at + 2 > n)
        return 0;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            return 0;
    return 1;
}

static int good_messages(const char *messages, int faults, const char *where)
{
    int lines = 0, good = 1;

    for (const char *c = messages; *c; c++) {
        size_t n = strcspn(c, "\n");
        good &= good_line(c, n, where);
        lines++;
        c += n;
        if (!*c)
            return 0; /* the last line has no end */
    }
    return good && lines == (faults > SHOWN ? SHOWN + 1 : faults);
}

/* The trial's words are a plan of this trial.  (Other programs may have taken memory since its ini
 * was read.) */
static int comes_back(const struct trial *t)
{
    struct experiment again;
    char *messages = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&messages, &n);

    if (!out)
        give_up("no memory");
    int faults = plan_words(t->text, &again, out);
    fclose(out);
    int same =
        faults == 1 && strstr(messages, " of memory, ") && strstr(messages, " are available");
    if (!faults) {
        same = again.n == 1 && strcmp(again.trial[0].text, t->text) == 0;
        plan_free(&again);
    }
    free(messages);
    return same;
}

struct count {
    long cases, plans, refused, bad;
};

static void judge(const char *file, const char *words, uint64_t number, struct count *count)
{
    struct experiment x;
    char *messages = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&messages, &n);

    if (!out)
        give_up("no memory");
    alarm(HANG);
    int faults = file ? plan_read(file, &x, out) : plan_words(words, &x, out);
    alarm(0);
    fclose(out);
    int good = faults ? good_messages(messages, faults, file ? file : "-t")
                      : !n && x.n > 0 && comes_back(&x.trial[number % x.n]);
    count->cases++;
    count->plans += !faults;
    count->refused += faults > 0;
    count->bad += !good;
    if (!good)
        printf("# case %llu (fuzz_ini 1 %llu): %d faults, messages: %.500s\n",
               (unsigned long long)number, (unsigned long long)number, faults, messages);
    if (!faults)
        plan_free(&x);
    free(messages);
}

/* ---- seeds ---- */

static struct text seeds[MAX_SEEDS];
static int n_seeds;
static char folder[300];

static struct text read_all(const char *file)
{
    struct text t = text_of("", 0);
    char some[4096];
    FILE *in = fopen(file, "rb");

    for (size_t n; in && (n = fread(some, 1, sizeof some, in)) > 0;)
        insert(&t, t.n, some, n);
    if (in)
        fclose(in);
    return t;
}

static void write_all(const char *file, const struct text *t)
{
    FILE *out = fopen(file, "wb");
    if (!out || fwrite(t->c, 1, t->n, out) != t->n || fclose(out))
        give_up("cannot write into the temporary folder");
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_ini(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return n > 4 && strcmp(d->d_name + n - 4, ".ini") == 0;
}

/* The inis of the source; and a folder to work in, laid out as that is. */
static void enter(void)
{
    const char *source = getenv("srcdir"), *tmp = getenv("TMPDIR");
    struct dirent **list;
    struct text sample = text_of("the matrix remembers", 20);
    char name[600];

    snprintf(name, sizeof name, "%s/experiments", source ? source : ".");
    int n = scandir(name, &list, is_ini, by_name);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s/experiments/%s", source ? source : ".", list[i]->d_name);
        if (n_seeds < MAX_SEEDS)
            seeds[n_seeds++] = read_all(name);
        free(list[i]);
    }
    if (n <= 0)
        give_up("no experiments in $srcdir");
    free(list);
    snprintf(folder, sizeof folder, "%s/ablate-fuzz-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder) || chdir(folder) || mkdir("data", 0700) || mkdir("experiments", 0700))
        give_up("no temporary folder");
    write_all("data/sample.txt", &sample);
    free(sample.c);
}

static void leave(void)
{
    unlink("experiments/t.ini");
    unlink("data/sample.txt");
    if (rmdir("experiments") || rmdir("data") || chdir("/") || rmdir(folder))
        printf("# %s is left behind\n", folder);
    for (int i = 0; i < n_seeds; i++)
        free(seeds[i].c);
}

/* ---- the cases ---- */

static void ini_case(uint64_t number, struct count *count)
{
    struct chance r = {draw_key(number, "ini"), 0};
    const struct text *seed = &seeds[any(&r, n_seeds)];
    struct text t = text_of(seed->c, seed->n);

    mutate(&t, &r);
    write_all("experiments/t.ini", &t);
    judge("experiments/t.ini", NULL, number, count);
    free(t.c);
}

static void words_case(uint64_t number, struct count *count)
{
    struct chance r = {draw_key(number, "words"), 0};
    const struct op *o = ops[any(&r, N_OPS)];
    struct text t = text_of(o->name, strlen(o->name));

    insert(&t, t.n, " ", 1);
    insert(&t, t.n, o->cases, strcspn(o->cases, ";"));
    mutate(&t, &r);
    judge(NULL, t.c, number, count);
    free(t.c);
}

static void report(const struct count *c, const char *what)
{
    ok(!c->bad && c->plans && c->refused, "%ld %s: %ld plans, %ld refused, %ld wrong", c->cases,
       what, c->plans, c->refused, c->bad);
}

int main(int argc, char **argv)
{
    struct count inis = {0}, words = {0};
    uint64_t n = 1000, first = 0;

    if ((argc > 1 && number_seed(argv[1], INT64_MAX, &n)) ||
        (argc > 2 && number_seed(argv[2], INT64_MAX, &first))) {
        fprintf(stderr, "%s: COUNT and FIRST are whole numbers: %s\n", argv[0], err_text());
        return 2;
    }
    enter();
    for (uint64_t i = first; i < first + n; i++)
        if (i % 4 == 3)
            words_case(i, &words);
        else
            ini_case(i, &inis);
    if (n > 99) {
        report(&inis, "inis");
        report(&words, "lines of words");
    } else {
        ok(!inis.bad && !words.bad, "%ld inis, %ld lines of words", inis.cases, words.cases);
    }
    leave();
    return done();
}
