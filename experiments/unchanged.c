/* Is a dump what run-ablation wrote (unchanged.h)?  It keeps its plan, and what follows from that is made
 * again and compared. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5.h>

#include "common/api/api.h"
#include "common/base/err.h"
#include "common/base/h5.h"
#include "common/base/quote.h"
#include "common/plan/keys.h"
#include "common/store/given.h"
#include "common/store/header.h"
#include "common/store/links.h"
#include "common/store/write_trial.h"
#include "experiments/begin.h"
#include "experiments/unchanged.h"

enum { MAX_PATH = 64, SHOWN = 300 };

/* A dump that is being checked. */
struct checking {
    const char *name;
    hid_t file, root;
    int schema;
    int n; /* trials, as it says */
    struct note *note;
};

static void note_inputs(struct checking *k, int i, const char *what, int unchecked)
{
    snprintf(k->note[i].inputs, MAX_NOTE, "%s", what);
    k->note[i].inputs_unchecked = unchecked;
}

/* ---- its plan ---- */

/* The trials are there, and no others. */
static int check_members(const struct checking *k)
{
    H5G_info_t info;
    char path[MAX_PATH];

    for (int i = 0; i < k->n; i++) {
        snprintf(path, sizeof path, "/trial/%04d", i + 1);
        if (H5Lexists(k->file, path, H5P_DEFAULT) <= 0)
            return err_set("trial %d of %d, %s, is not there", i + 1, k->n, path);
    }
    hid_t g = H5Gopen2(k->file, "/trial", H5P_DEFAULT);
    int e = g < 0 || H5Gget_info(g, &info) < 0 ? h5_cannot("see its trials") : 0;
    if (!e && info.nlinks != (hsize_t)k->n)
        e = err_set("/trial has %d members, and the plan %d trials", (int)info.nlinks, k->n);
    h5_drop(g);
    return e;
}

/* The plan of a text: an ini file's, or words.  Nonzero after err_set(). */
static int plan_again(const char *text, const char *source, struct experiment *x)
{
    const int words = strcmp(source, "-t") == 0;
    char *faults = NULL;
    size_t size;
    FILE *errors = open_memstream(&faults, &size);

    if (!errors)
        return err_set("no memory");
    int e = words ? plan_words(text, x, errors) : plan_read_text(text, source, x, errors);
    fclose(errors);
    if (e) {
        faults[strcspn(faults, "\n")] = 0;
        err_set("%.*s", quote_fit(faults, 200), faults);
    }
    free(faults);
    x->contexts = process_contexts();
    return e ? -1 : 0;
}

/* The words of a line before those that say where its inputs come from, as they are read now: a
 * parameter that the version which wrote them did not have gets its default.  Nonzero after err_set(). */
static int read_head(const char *line, struct trial *t)
{
    char head[MAX_LINE];

    if (strlen(line) >= sizeof head)
        return err_set("its line is too long");
    strcpy(head, line);
    char *from = strstr(head, " input=");
    if (from)
        *from = 0;
    return words_parse(head, 0, t);
}

/* Do two lines make the same trial? */
static int same_words(const char *a, const char *b)
{
    const char *c = strstr(a, " input="), *d = strstr(b, " input=");
    struct trial t, u;

    return strcmp(a, b) == 0 || (strcmp(c ? c : "", d ? d : "") == 0 && !read_head(a, &t) &&
                                 !read_head(b, &u) && strcmp(t.text, u.text) == 0);
}

static char *line_of(const struct checking *k, int i)
{
    hid_t g = header_trial(k->file, i);
    char *line = g < 0 ? NULL : h5_get_text(g, "line");

    h5_drop(g);
    if (!line)
        err_at("trial %d", i + 1);
    return line;
}

/* The lines are those of the n trials of a plan. */
static int check_lines(const struct checking *k, const struct trial *trial, int n)
{
    int e = 0;

    if (n != k->n)
        return err_set("holds another plan than its attribute ini says: of %d trials, not %d", k->n,
                       n);
    for (int i = 0; !e && i < n; i++) {
        char *line = line_of(k, i);
        e = !line ? -1
            : !same_words(line, trial[i].text)
                ? err_set("holds another plan than its attribute ini says: trial %d is '%.*s' "
                          "there, not '%.*s'",
                          i + 1, quote_fit(line, SHOWN), line, quote_fit(trial[i].text, SHOWN),
                          trial[i].text)
                : 0;
        free(line);
    }
    return e;
}

/* An experiment's lines, or where the dump does not say whether something ran, either way. */
static int check_experiment(const struct checking *k, struct experiment *x)
{
    char there[8];
    const int only = h5_same_text(k->root, "inputs_only", no_yes[1], there, sizeof there);
    int e = only ? 0 : check_lines(k, x->trial, x->n);

    if (only || (e && !*there))
        e = plan_inputs_only(x) || check_lines(k, x->trial, x->n);
    return e;
}

/* Words that make one trial of the library's, in a type that a plan does not have. */
static int check_one_trial(const struct checking *k, const char *words)
{
    struct trial *t = malloc(sizeof *t);
    int e = t ? words_parse(words, 0, t) : err_set("no memory");

    e = e || check_lines(k, t, 1);
    free(t);
    return e;
}

/* The plan that the file keeps, made again; `kept`: it has a hash of its lines, which agrees. */
static int check_plan(struct checking *k, int kept)
{
    char *text = h5_get_text(k->root, "ini"),
         *source = text ? h5_get_text(k->root, "source") : NULL;
    struct experiment x;
    int e = !source;

    if (!kept)
        snprintf(k->note->plan, MAX_NOTE,
                 "plan: no hash of it is there: trials may be missing, not checked");
    if (!e && strstr(text, "dtype=fp64") && strcmp(source, "-t") == 0) {
        e = check_one_trial(k, text);
    } else if (!e && !plan_again(text, source, &x)) {
        e = check_experiment(k, &x);
        plan_free(&x);
    } else if (!e && !kept) {
        snprintf(k->note->plan, MAX_NOTE,
                 "plan: no hash of it is there, and it cannot be made again, so that no line was "
                 "checked: %s",
                 err_text());
    }
    free(source);
    free(text);
    return e;
}

/* ---- what programs are given ---- */

/* A trial of the dump: its group, its line, and what it gives. */
struct given_trial {
    hid_t group;
    const char *line;
    abl_case *c;
    struct call call; /* as it stores the tensors */
};

/* Is a dataset of that name, or of the one that it had, in one of the groups? */
static int is_there(const struct given_trial *g, enum given which, const struct arg *a)
{
    const char *const name[] = {a->name, a->was};
    char path[MAX_PATH];
    int there = 0;

    if (H5Lexists(g->group, given_groups[which], H5P_DEFAULT) <= 0)
        return 0;
    for (int k = 0; !there && k < 2 && name[k]; k++) {
        snprintf(path, sizeof path, "%s/%s", given_groups[which], name[k]);
        there = H5Lexists(g->group, path, H5P_DEFAULT) > 0;
    }
    return there;
}

/* Every tensor that is given is there, but for scalars that the settings say: those of an operation that had
 * none then. */
static int check_there(const struct given_trial *g)
{
    const struct op *o = g->call.op;

    for (enum given w = 0; w < N_GIVEN; w++)
        for (int i = 0; i < o->n_args; i++)
            if (given_values(&g->call, g->c->t, i, w) && !o->arg[i].settled &&
                !is_there(g, w, &o->arg[i]))
                return err_set("%s/%s is not there", given_groups[w], o->arg[i].name);
    return 0;
}

/* The trial of the whole line, less the kernel and the goals, which another build need not know;
 * nonzero after err_set(): its file is not there. */
static int read_whole(const char *line, struct trial *t)
{
    char words[MAX_LINE];

    if (strlen(line) >= sizeof words)
        return err_set("its line is too long");
    strcpy(words, line);
    words[goals_begin(words)] = 0;
    char *from = strstr(words, " input="), *kernel = from ? strstr(from, " kernel=") : NULL;
    if (kernel && !strchr(kernel, '"'))
        *kernel = 0;
    return words_parse(words, 0, t);
}

/* Does the file that the inputs are from hold what it held then? */
static int same_contents(const struct given_trial *g, const struct trial *t)
{
    char now[MAX_CONTENTS], there[MAX_CONTENTS];

    return !header_contents(t, now) && h5_same_text(g->group, "contents", now, there, sizeof there);
}

/* Compared with what the line makes, whose last bits may be another machine's where nothing has changed
 * since; nonzero after err_set(). */
static int compare_drawn(const struct given_trial *g, const struct trial *t, const char *what,
                         int unchanged)
{
    struct tensors *drawn = case_drawn(t);
    const int e = !drawn || given_differ(&g->call, g->c->t, drawn, what, unchanged);

    tensors_free(drawn);
    return e ? -1 : 0;
}

/* Compared with the hash that was written beside them; 1: there is none. */
static int compare_hash(const struct given_trial *g)
{
    char text[GIVEN_TEXT], there[GIVEN_TEXT];
    uint64_t absent = 0;

    if (H5Aexists(g->group, "given") <= 0)
        return 1;
    for (int i = 0; i < g->call.op->n_args; i++)
        if (g->call.op->arg[i].settled && !is_there(g, GIVEN_INPUT, &g->call.op->arg[i]))
            absent |= UINT64_C(1) << i;
    given_hash(&g->call, g->c->t, absent, text);
    return h5_same_text(g->group, "given", text, there, sizeof there)
               ? 0
               : err_set("in, dout or dinit is not what was written: the hash is %s, not %s", text,
                         there);
}

/* Did the caller of abl_write() set the values?  Earlier versions do not say so. */
static int is_callers(const struct checking *k, const struct given_trial *g)
{
    char there[64];

    return h5_same_text(g->group, "given_by", GIVEN_BY_CALLER, there, sizeof there) ||
           (H5Aexists(g->group, "given") <= 0 &&
            h5_same_text(k->root, "name", "case", there, sizeof there));
}

/* The line's file, where it names one, need not be there: then *drawn is 0, and else the values were
 * compared with what it makes.  Nonzero after err_set(). */
static int check_drawn(const struct given_trial *g, int unchanged, int *drawn)
{
    struct trial *t = malloc(sizeof *t);
    const int of_file = strstr(g->line, " file=") != NULL;
    const int unread = t ? read_whole(g->line, t) : err_set("no memory");
    int e = unread && !of_file ? -1 : 0;

    *drawn = !unread && (!of_file || same_contents(g, t));
    if (*drawn)
        e = compare_drawn(g, t, of_file ? "what its file holds" : "what its line draws",
                          unchanged && !of_file);
    free(t);
    return e;
}

/* The values follow from the line, but for those of a file that has gone, a caller's, and those that a
 * version drew otherwise. */
static int check_values(struct checking *k, int i, const struct given_trial *g)
{
    const int callers = is_callers(k, g);
    const int earlier = k->schema < HEADER_SCHEMA && H5Aexists(g->group, "given") <= 0;
    int drawn = 0;

    const int no_hash = compare_hash(g);

    if (!callers && !earlier && check_drawn(g, no_hash == 0, &drawn))
        return -1;
    if (no_hash < 0)
        return compare_hash(g);
    if (callers)
        note_inputs(k, i,
                    no_hash ? "inputs: set by a caller, no hash of them is there: not checked"
                            : "inputs: set by a caller; only their hash was compared",
                    no_hash);
    else if (no_hash && !drawn)
        note_inputs(
            k, i,
            earlier ? "inputs: an earlier version drew them, and kept no hash: not checked"
                    : "inputs: their file is not as it was, no hash of them is there: not checked",
            1);
    return 0;
}

/* The value of a word of a line, without its quotes; "" where it has none. */
static void word_value(const char *line, const char *key, char value[MAX_LINE])
{
    const size_t n = strlen(key);
    int quotes = 0;

    *value = 0;
    for (const char *c = line; *c; c++) {
        quotes ^= *c == '"';
        if (quotes || *c != ' ' || strncmp(c + 1, key, n) != 0 || c[1 + n] != '=')
            continue;
        for (c += n + 2; *c && (quotes || *c != ' '); c++) {
            quotes ^= *c == '"';
            if (*c != '"' || (quotes && c[-1] == '"'))
                *value++ = *c;
        }
        *value = 0;
        return;
    }
}

/* Do the attributes agree that repeat words which dump_trial_agrees() does not see?  A line without such
 * a word has no such attribute. */
static int words_agree(hid_t trial, const char *line)
{
    const char *const keys[] = {
        "accumulate", "in_place",         "program",          "file", "group", "tensor",
        "kernel",     goal_keys[FORWARD], goal_keys[BACKWARD]};
    char value[MAX_LINE], there[MAX_LINE];

    if (strlen(line) >= sizeof value)
        return err_set("its line is too long");
    for (size_t i = 0; i < COUNT(keys); i++) {
        word_value(line, keys[i], value);
        if (H5Aexists(trial, keys[i]) > 0 &&
            !h5_same_text(trial, keys[i], value, there, sizeof there))
            return err_set("its attribute %s is not what its line says", keys[i]);
    }
    return 0;
}

/* The input that the words behind the head of a line say, which read_head() leaves out. */
static int read_input(const char *line, struct trial *t)
{
    const char *from = strstr(line, " input=");
    const size_t n = from ? strcspn(from + 7, " ") : 0;

    for (int i = 0; input_names[i]; i++)
        if (n == strlen(input_names[i]) && strncmp(from + 7, input_names[i], n) == 0) {
            t->input = i;
            return 0;
        }
    return err_set("its line says no input: %.*s", quote_fit(line, SHOWN), line);
}

int line_read(const char *line, struct trial *t)
{
    if (read_head(line, t) || read_input(line, t))
        return -1;
    strcpy(t->text, line);
    return 0;
}

static int check_trial(struct checking *k, int i)
{
    char path[MAX_PATH];
    char *line = line_of(k, i);
    struct trial *t = malloc(sizeof *t);
    struct given_trial g = {.group = header_trial(k->file, i), .line = line};
    int e = !line || !t || g.group < 0 || line_read(line, t);

    snprintf(path, sizeof path, "/trial/%04d", i + 1);
    e = e || dump_trial_agrees(g.group, t) || words_agree(g.group, line) ||
        !(g.c = abl_case_read(k->name, path));
    if (!e) {
        g.call = call_on(&t->call, reference_of(t->type), NULL, NULL);
        e = check_there(&g) || check_values(k, i, &g);
    }
    abl_case_free(g.c);
    h5_drop(g.group);
    free(t);
    free(line);
    return e ? err_at("trial %d", i + 1) : 0;
}

/* ---- all of it ---- */

static int check_trials(struct checking *k, const volatile int *stop)
{
    const int kept = header_same_lines(k->file);
    int e = kept < 0 || check_plan(k, kept == 0);

    for (int i = 0; !e && i < k->n && !*stop; i++)
        e = check_trial(k, i);
    return e ? -1 : 0;
}

/* By the programs that the dump itself keeps. */
static int check_all(struct checking *k, const volatile int *stop)
{
    struct program_texts texts = {0, NULL};
    int e = check_members(k) || links_check(k->file, "/trial") || header_programs(k->file, &texts);
    const struct program_texts *before = program_texts_use(&texts);

    e = e || check_trials(k, stop);
    program_texts_use(before);
    program_texts_free(&texts);
    return e ? -1 : 0;
}

struct note *unchanged(const char *file, int *n, const volatile int *stop)
{
    struct checking k = {.name = file, .root = -1};
    int e;

    H5E_BEGIN_TRY
    {
        k.file = h5_open(file, H5F_ACC_RDONLY);
        e = k.file < 0 ? h5_cannot("be read as HDF5") : !(k.schema = header_schema(k.file));
        e = e || (k.n = header_trials(k.file)) < 0 ||
            (k.root = H5Gopen2(k.file, "/", H5P_DEFAULT)) < 0;
        if (!e && !(k.note = calloc((size_t)k.n + 1, sizeof *k.note)))
            e = err_set("no memory for %d trials", k.n);
        e = e || check_all(&k, stop);
        h5_drop(k.root);
        if (k.file >= 0)
            H5Fclose(k.file);
    }
    H5E_END_TRY
    *n = k.n;
    if (!e && !*stop)
        return k.note;
    free(k.note);
    return *stop ? err_null("%s", "") : (err_at("%s", file), NULL);
}
