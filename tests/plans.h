/* plans.h - how tests/plan, tests/refusals, tests/applies and tests/ranges judge ini files and words: in
 * a folder of their own. */
#ifndef PLANS_H
#define PLANS_H

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/plan/plan.h"
#include "tests/tap.h"

/* ---- a folder to work in, removed at the end ---- */

static char folder[256];

static inline void put(const char *file, const char *text, size_t n)
{
    FILE *out = fopen(file, "wb");
    if (!out || fwrite(text, 1, n, out) != n || fclose(out)) {
        printf("Bail out! cannot write %s\n", file);
        exit(EXIT_FAILURE);
    }
}

static inline void enter(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/ablate-plan-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder) || chdir(folder) || mkdir("sub", 0700)) {
        puts("Bail out! no temporary folder");
        exit(EXIT_FAILURE);
    }
    put("a.txt", "text", 4);
    put("a b,\"c\".txt", "text", 4);
    put("sub/b.txt", "text", 4);
    if (mkfifo("pipe", 0600))
        ok(0, "no pipe could be made");
}

static inline void leave(void)
{
    static const char *const files[] = {
        "t.ini", "a.txt", "a b,\"c\".txt", "sub/b.txt", "sub/my plan.ini", "closed.ini", "pipe"};
    for (size_t i = 0; i < COUNT(files); i++)
        unlink(files[i]);
    if (rmdir("sub") || chdir("/") || rmdir(folder))
        printf("# %s is left behind\n", folder);
}

/* ---- judging ---- */

/* Is text like the pattern, in which * is any text? */
static inline int like(const char *text, const char *pattern)
{
    if (*pattern == '*')
        return like(text, pattern + 1) || (*text && like(text + 1, pattern));
    return *text == *pattern && (!*text || like(text + 1, pattern + 1));
}

/* The messages about a file or words: n faults, a line each. */
struct messages {
    char text[8192];
    int n;
};

static inline struct messages read_plan(const char *file, const char *words, struct experiment *x)
{
    struct messages messages = {.n = 0};
    FILE *out = fmemopen(messages.text, sizeof messages.text - 1, "w");
    messages.n = file ? plan_read(file, x, out) : plan_words(words, x, out);
    fclose(out);
    return messages;
}

static inline void expect(const struct messages *messages, const char *pattern, const char *what)
{
    int lines = 0;
    for (const char *c = messages->text; *c; c++)
        lines += *c == '\n';
    if (!ok(lines == messages->n && like(messages->text, pattern), "%s", what))
        printf("# %d faults, %d lines, expected:\n# %s\n# messages:\n# %s\n", messages->n, lines,
               pattern, messages->text);
}

/* This file must be refused, with these messages. */
static inline void refused(const char *what, const char *ini, const char *pattern)
{
    struct experiment x;
    put("t.ini", ini, strlen(ini));
    struct messages messages = read_plan("t.ini", NULL, &x);
    expect(&messages, pattern, what);
    if (!messages.n)
        plan_free(&x);
}

static inline void words_refused(const char *what, const char *words, const char *pattern)
{
    struct experiment x;
    struct messages messages = read_plan(NULL, words, &x);
    expect(&messages, pattern, what);
    if (!messages.n)
        plan_free(&x);
}

/* Read a good plan, all of whose trials come back from their text. */
static inline int good(const char *what, const char *file, const char *words, struct experiment *x)
{
    struct messages messages = read_plan(file, words, x);
    int same = !messages.n;

    for (int i = 0; !messages.n && i < x->n; i++) {
        struct experiment again;
        const struct trial *a = &x->trial[i], *b;
        struct messages more = read_plan(NULL, a->text, &again);
        if (more.n) {
            printf("# %s# from: %s\n", more.text, a->text);
            same = 0;
            continue;
        }
        b = again.trial;
        int equal = again.n == 1 && a->call.op == b->call.op && a->type == b->type &&
                    a->seed == b->seed && memcmp(&a->call, &b->call, sizeof a->call) == 0 &&
                    a->input == b->input && strcmp(a->file, b->file) == 0 &&
                    strcmp(a->group, b->group) == 0 && strcmp(a->kernel, b->kernel) == 0 &&
                    strcmp(a->text, b->text) == 0;
        if (!equal)
            printf("# another trial: %s\n# from: %s\n", b->text, a->text);
        same &= equal;
        plan_free(&again);
    }
    ok(same, "%s", what);
    if (messages.n)
        printf("# %s", messages.text);
    return same;
}

static inline int good_ini(const char *what, const char *ini, struct experiment *x)
{
    put("t.ini", ini, strlen(ini));
    return good(what, "t.ini", NULL, x);
}

#define LINEAR "[trial]\nop = linear\n"
#define E74 "[trial]\nop = e74\n"

#endif
