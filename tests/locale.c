/* Numbers and letters are C's, whatever locale the program that uses the library has, or one of its threads;
 * and that locale is as it was after every call.  The locales are made here. */
#include "config.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/ablate.h"
#include "tests/tap.h"

enum { MAX_TEXT = 1 << 20, DRAWN = 6 };

static char folder[] = "/tmp/ablate-locale.XXXXXX";

/* glibc's newlocale() forgets the folders of LOCPATH where all that is asked for is "C"; the program is told
 * by a file. */
static const char forgotten[] = "leak:argz_add_sep\n";

__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return forgotten;
}

static void suppress_in_children(void)
{
    char path[64], options[128];
    FILE *file;

    snprintf(path, sizeof path, "%s/forgotten", folder);
    snprintf(options, sizeof options, "suppressions=%s:print_suppressions=0", path);
    if (!(file = fopen(path, "w")) || fputs(forgotten, file) < 0 || fclose(file) ||
        setenv("LSAN_OPTIONS", options, 1))
        abort();
}

/* What the library says and computes, in text; numbers in hexadecimal digits of their bits. */
struct seen {
    char text[MAX_TEXT];
    size_t n;
};

static void see_bytes(struct seen *s, const char *text)
{
    size_t n = strlen(text);

    if (s->n + n + 2 > sizeof s->text)
        abort();
    memcpy(s->text + s->n, text, n);
    s->n += n;
    s->text[s->n++] = '\n';
    s->text[s->n] = 0;
}

static void see_number(struct seen *s, double x)
{
    char text[32];
    unsigned long long bits;

    memcpy(&bits, &x, sizeof bits);
    snprintf(text, sizeof text, "%016llx", bits);
    see_bytes(s, text);
}

/* ---- what is done ---- */

/* The locale of this thread; what it prints, and the object itself. */
static int unchanged(locale_t was)
{
    static const char *const lower = "i";
    char text[16];

    snprintf(text, sizeof text, "%.1f%c", 1.5, *lower);
    return uselocale(NULL) == was && text[1] == *localeconv()->decimal_point;
}

static void see_verdicts(struct seen *s, const abl_verdicts *v)
{
    struct abl_verdict x;

    if (!v)
        see_bytes(s, abl_error());
    for (int i = 0; v && abl_verdict(v, i, &x) == 0; i++) {
        see_bytes(s, x.tensor);
        see_bytes(s, x.worst);
        see_number(s, x.error);
        see_number(s, x.bound);
    }
}

/* Attributes and tensors of the trial in a dump. */
static void see_dump(struct seen *s, const char *file)
{
    abl_dump *d = abl_dump_open(file);
    struct abl_attribute a;
    char text[4096];

    if (!d)
        see_bytes(s, abl_error());
    for (int i = 0; d && abl_dump_attribute(d, "/trial/0001", i, &a, text, sizeof text) >= 0; i++) {
        see_bytes(s, a.name);
        see_bytes(s, a.type == ABL_TEXT ? text : "");
        see_number(s, a.type == ABL_TEXT ? 0 : a.real);
    }
    abl_dump_free(d);
}

/* One case: its words, its results' verdicts, and its dump. */
static void see_case(struct seen *s, const char *words, const char *file)
{
    abl_case *c = abl_case_new(words);

    if (!c) {
        see_bytes(s, abl_error());
        return;
    }
    see_bytes(s, abl_text(c));
    abl_verdicts *v = abl_judge(c, strstr(words, "bf16") ? "ref_bf16" : "ref32", NULL, ABL_PARITY);
    see_verdicts(s, v);
    if (abl_write(file, c, NULL, 0, v))
        see_bytes(s, abl_error());
    else
        see_dump(s, file);
    abl_verdicts_free(v);
    abl_case_free(c);
}

/* What has a number in it is said, and read, in these. */
static const char *const said[] = {
    "attention steps=3 dim=4 scale=1.5",
    "attention steps=3 dim=4 scale=1,5",
    "adamw parameters=5 lr=0.25 eps=1e-3 decayed=2",
    "adamw parameters=5 lr=0,25",
    "adamw parameters=5 lr=-0.5",
    "rmsnorm rows=2 columns=3 eps=1e-400",
    "dual_memory preset=e29c steps=2 dim=3 slots=2 clamp=1.5",
    "softmax rows=2 columns=2.5",
    "SOFTMAX rows=2 columns=2",
    "softmax rows=2 columns=2 FILL=normal",
    "softmax rows=2 columns=2 dtype=FP16",
    "e74 state=Diagonal steps=2",
    "softmax rows=2 columns=2 fill=lInear",
};

static void see_all(struct seen *s, const char *file)
{
    char words[4096];
    const char *op;

    s->n = 0;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        see_case(s, said[i], file);
    for (int i = 0; (op = abl_op(i)); i++)
        for (int k = 0; k < DRAWN; k++) {
            if (abl_random(op, 1, k, words, sizeof words))
                see_bytes(s, abl_error());
            see_bytes(s, words);
            abl_case *c = abl_case_new(words);
            see_bytes(s, c ? abl_text(c) : abl_error());
            abl_case_free(c);
        }
}

/* ---- locales ---- */

static const char *file_in_folder(const char *name, char path[64])
{
    snprintf(path, 64, "%s/%s", folder, name);
    return path;
}

static int make_locale(const char *language)
{
    char command[256];

    snprintf(command, sizeof command,
             "localedef -c -i %s -f UTF-8 %s/%s.UTF-8 >%s/log 2>&1; test -f %s/%s.UTF-8/LC_NUMERIC",
             language, folder, language, folder, folder, language);
    return system(command) == 0;
}

static struct seen wanted, got;

static void compare(const char *what)
{
    size_t at = 0;

    while (at < wanted.n && wanted.text[at] == got.text[at])
        at++;
    while (at > 0 && wanted.text[at - 1] != '\n')
        at--;
    if (!ok(wanted.n == got.n && !memcmp(wanted.text, got.text, got.n), "%s", what))
        printf("# %.*s, and C has %.*s\n", (int)strcspn(got.text + at, "\n"), got.text + at,
               (int)strcspn(wanted.text + at, "\n"), wanted.text + at);
}

static void in_process(const char *language, const char *file)
{
    char name[32], what[96];

    snprintf(name, sizeof name, "%s.UTF-8", language);
    if (!ok(setlocale(LC_ALL, name) && *localeconv()->decimal_point == ',', "%s is there", name))
        return;
    see_all(&got, file);
    ok(unchanged(LC_GLOBAL_LOCALE), "%s is as it was", name);
    setlocale(LC_ALL, "C");
    snprintf(what, sizeof what, "setlocale(LC_ALL, \"%s\"): words, bits, errors and dumps", name);
    compare(what);
}

/* ---- two threads ---- */

struct thread {
    pthread_t id;
    const char *name;
    char file[64];
    struct seen *seen;
    int kept;
};

static void *in_thread(void *data)
{
    struct thread *t = data;
    const locale_t own = newlocale(LC_ALL_MASK, t->name, NULL);

    uselocale(own);
    see_all(t->seen, t->file);
    t->kept = unchanged(own);
    uselocale(LC_GLOBAL_LOCALE);
    freelocale(own);
    return NULL;
}

static void two_threads(void)
{
    struct thread t[] = {{.name = "de_DE.UTF-8"}, {.name = "C"}};

    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "thread%d.h5", i);
        file_in_folder(name, t[i].file);
        t[i].seen = calloc(1, sizeof *t[i].seen);
        if (!t[i].seen || pthread_create(&t[i].id, NULL, in_thread, &t[i]))
            abort();
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i].id, NULL);
        got = *t[i].seen;
        free(t[i].seen);
        compare(i ? "beside it one in C's locale" : "a thread by uselocale()");
        ok(t[i].kept, "thread %d keeps its own", i);
    }
}

/* ---- the program ---- */

/* Its plan, records, report and page in a locale, less their times and the measured clock, in
 * a file of the folder. */
static int run_in(const char *name)
{
    static const char script[] =
        "cd %s && export LC_ALL=%s && run=$OLDPWD/run-ablation &&"
        " for w in 'attention steps=3 dim=4 scale=1.5' 'adamw parameters=5 lr=0.25'; do"
        " $run -n -t \"$w\"; $run -t \"$w repeats=0\" --tsv -o a.h5; rm a.h5;"
        " $run -t \"$w repeats=0\" -o a.h5 | grep -v '^a.h5'; rm a.h5; done 2>&1 |"
        " sed '/^  GPU /s/[0-9]* MHz (measured)/MHz/' >%s.txt;"
        " $run --report c.h5 -o %s.html >log 2>&1";
    char command[1024];

    snprintf(command, sizeof command, script, folder, name, name, name);
    return system(command);
}

static void program(const char *language)
{
    char name[32], command[512];

    snprintf(
        command, sizeof command,
        "./run-ablation -t 'attention steps=3 dim=4 scale=1.5' --force -o %s/c.h5 >%s/log 2>&1",
        folder, folder);
    snprintf(name, sizeof name, "%s.UTF-8", language);
    ok(system(command) == 0 && run_in("C") == 0 && run_in(name) == 0, "LC_ALL=%s run-ablation",
       name);
    snprintf(command, sizeof command,
             "cd %s && grep -q 'scale=1\\.5' C.txt && grep -q '\t[0-9.]*e-[0-9]*\t' C.txt && cmp "
             "C.txt %s.txt",
             folder, name);
    ok(system(command) == 0, "plan, records and report are the same");
    snprintf(command, sizeof command,
             "cd %s && grep -q '[0-9]\\.[0-9]' C.html && cmp C.html %s.html", folder, name);
    ok(system(command) == 0, "and the page of a dump");
}

int main(void)
{
    static const char *const languages[] = {"de_DE", "tr_TR"};
    char file[64], command[64];

    if (!mkdtemp(folder))
        abort();
    setenv("LOCPATH", folder, 1);
    suppress_in_children();
    file_in_folder("case.h5", file);
    see_all(&wanted, file);
    ok(strstr(wanted.text, "scale=1.5") && strstr(wanted.text, "lr=0.25"), "in C's locale");
    for (int i = 0; i < 2; i++) {
        if (!make_locale(languages[i])) {
            skip("no localedef, or no locales' sources", "%s", languages[i]);
            continue;
        }
        in_process(languages[i], file);
        program(languages[i]);
        if (i == 0)
            two_threads();
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command))
        printf("# %s is left\n", folder);
    return done();
}
