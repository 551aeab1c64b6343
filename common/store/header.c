/* The attributes of a dump's root: the experiment, and the comparison with it (header.h). */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/fnv.h"
#include "common/base/gguf.h"
#include "common/base/grow.h"
#include "common/base/h5.h"
#include "common/plan/keys.h"
#include "common/program/program.h"
#include "common/store/header.h"
#include "common/train/cell.h"

/* By version, from 1; the last is written, and all are read.  In ablate-1 the columns `runs` and
 * `method` of the table `time` are called `repeats` and `caches`. */
static const char *const schemas[] = {"ablate-1", "ablate-2"};
#define SCHEMA schemas[HEADER_SCHEMA - 1]

/* ---- the keys that decide what is in the file ---- */

/* The last ones are of measure = train alone. */
enum { N_KEYS = 10, N_KEYS_OF_ALL = 7 };
struct key_text {
    const char *key;
    char text[512];
};

/* Names beside each other, of those whose bit is set. */
static void join_flags(int flags, char *text, size_t size)
{
    *text = 0;
    for (int i = 0; check_names[i]; i++)
        if (flags & check_flags[i] && check_flags[i] != CHECK_NONE)
            append(text, size, "%s%s", *text ? ", " : "", check_names[i]);
    if (!*text)
        append(text, size, "none");
}

static void join_backends(const struct experiment *x, char *text, size_t size)
{
    snprintf(text, size, "%s", x->n_backends ? "" : "all");
    for (int i = 0; i < x->n_backends; i++)
        append(text, size, "%s%s", i ? ", " : "", x->backend[i]->name);
}

/* Returns how many there are. */
static int keys_of(const struct experiment *x, struct key_text k[N_KEYS])
{
    static const char *const keys[N_KEYS] = {"measure", "checks",   "directions", "repeats",
                                             "save",    "compress", "backends",   "baseline",
                                             "compare", "margin"};
    for (int i = 0; i < N_KEYS; i++)
        k[i].key = keys[i];
    snprintf(k[0].text, sizeof k[0].text, "%s", measure_names[x->measure]);
    /* Power adds no verdict: with and without it, and --verbose, which asks for it, the plan is the same. */
    join_flags(x->checks & ~CHECK_POWER, k[1].text, sizeof k[1].text);
    snprintf(k[2].text, sizeof k[2].text, "%d", x->directions);
    snprintf(k[3].text, sizeof k[3].text, "%d", x->repeats);
    snprintf(k[4].text, sizeof k[4].text, "%s", save_names[x->save]);
    snprintf(k[5].text, sizeof k[5].text, "%d", x->compress);
    join_backends(x, k[6].text, sizeof k[6].text);
    snprintf(k[7].text, sizeof k[7].text, "%s", x->baseline);
    snprintf(k[8].text, sizeof k[8].text, "%s", x->compare);
    snprintf(k[9].text, sizeof k[9].text, "%.15g", x->margin);
    return x->measure == MEASURE_TRAIN ? N_KEYS : N_KEYS_OF_ALL;
}

/* ---- written ---- */

/* May it run?  The references in any case. */
static int takes_part(const struct experiment *x, const struct backend *b)
{
    int named = !x->n_backends || !is_judged(b);
    for (int i = 0; i < x->n_backends; i++)
        named |= x->backend[i] == b;
    return named && !backend_unavailable(x->contexts, b);
}

void header_device(const struct experiment *x, char *text, size_t size)
{
    *text = 0;
    for (const struct backend *const *b = backends(); *b; b++)
        if (takes_part(x, *b))
            append(text, size, "%s%s: %s", *text ? "\n" : "", (*b)->name,
                   backend_device(x->contexts, *b));
}

/* Goes on with the next one's line, and the text of its program, if it has one, their 0 included. */
static uint64_t hash_trial(uint64_t hash, const char *line, const char *program)
{
    hash = fnv1a64(hash, line, strlen(line) + 1);
    return program ? fnv1a64(hash, program, strlen(program) + 1) : hash;
}

static void plan_hash_text(uint64_t hash, int n, char text[MAX_CONTENTS])
{
    snprintf(text, MAX_CONTENTS, "fnv1a64 %016" PRIx64 ", %d trials", hash, n);
}

static void plan_text_of(const struct experiment *x, char text[MAX_CONTENTS])
{
    uint64_t lines = FNV_BEGIN;

    for (int i = 0; i < x->n; i++)
        lines = hash_trial(lines, x->trial[i].text, program_text_of(x->trial[i].call.op));
    plan_hash_text(lines, x->n, text);
}

static int put_keys(hid_t root, const struct experiment *x)
{
    struct key_text k[N_KEYS];
    const int n = keys_of(x, k);
    int e = 0;

    for (int i = 0; !e && i < n; i++)
        e = h5_put_text(root, k[i].key, k[i].text);
    return e;
}

int header_put_plan(hid_t root, const struct experiment *x)
{
    char plan[MAX_CONTENTS];

    plan_text_of(x, plan);
    return put_keys(root, x) || h5_put_text(root, "name", x->name) ||
           h5_put_text(root, "plan", plan);
}

int header_write(hid_t root, const struct experiment *x)
{
#if defined __GNUC__ && !defined __clang__
    static const char compiler[] = "GCC " __VERSION__;
#else
    static const char compiler[] = __VERSION__;
#endif
    char host[256] = "", date[32], device[2048], plan[MAX_CONTENTS];
    time_t now = time(NULL);
    struct tm utc;

    gethostname(host, sizeof host - 1);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    header_device(x, device, sizeof device);
    plan_text_of(x, plan);
    return h5_put_text(root, "schema", SCHEMA) || h5_put_text(root, "version", PACKAGE_VERSION) ||
           put_keys(root, x) || h5_put_text(root, "name", x->name) ||
           h5_put_text(root, "ini", x->text ? x->text : "") ||
           h5_put_text(root, "source", x->file ? x->file : "-t") ||
           h5_put_seed(root, "seed", x->seed) || h5_put_text(root, "host", host) ||
           h5_put_text(root, "device", device) || h5_put_text(root, "compiler", compiler) ||
           h5_put_text(root, "date", date) || h5_put_int(root, "n_trials", x->n) ||
           h5_put_text(root, "plan", plan) ||
           h5_put_text(root, "inputs_only", no_yes[x->inputs_only]);
}

/* ---- the contents of an input ---- */

/* The other shards of a model, from which its tensors may come as well. */
static int hash_shards(const char *name, uint64_t *hash, uint64_t *bytes)
{
    struct gguf *g = gguf_open(name);
    int e = !g;

    for (const struct gguf *s = g ? g->next : NULL; !e && s; s = s->next)
        e = file_hash(s->file, hash, bytes);
    gguf_close(g);
    return e;
}

int header_contents(const struct trial *t, char contents[MAX_CONTENTS])
{
    uint64_t hash = FNV_BEGIN, bytes = 0;

    if (is_cell(t->call.op)) { /* its runs are held against what the plan has read */
        snprintf(contents, MAX_CONTENTS, "%s", t->contents);
        return 0;
    }
    if (file_hash(t->file, &hash, &bytes) ||
        (t->input == INPUT_GGUF && hash_shards(t->file, &hash, &bytes)))
        return -1;
    file_contents_text(hash, bytes, contents);
    return 0;
}

/* ---- trials ---- */

hid_t header_trial(hid_t file, int i)
{
    char path[32];
    snprintf(path, sizeof path, "/trial/%04d", i + 1);
    hid_t g = H5Gopen2(file, path, H5P_DEFAULT);
    return g < 0 ? h5_cannot("open %s", path) : g;
}

int header_complete(hid_t trial)
{
    int64_t complete = 0;
    if (h5_get_int(trial, "complete", &complete))
        return -1;
    return complete != 0;
}

int header_trials(hid_t file)
{
    hid_t root = H5Gopen2(file, "/", H5P_DEFAULT);
    int64_t n = 0;
    int e = h5_get_int(root, "n_trials", &n);

    if (!e && (n < 0 || n > MAX_TRIALS))
        e = err_set("attribute n_trials is %" PRId64 ", not 0 to %d", n, MAX_TRIALS);
    h5_drop(root);
    return e ? -1 : (int)n;
}

int header_finished(hid_t file)
{
    int n = header_trials(file), finished = n < 0 ? -1 : 0;
    for (int i = 0; finished >= 0 && i < n; i++) {
        hid_t g = header_trial(file, i);
        int complete = g < 0 ? -1 : header_complete(g);
        finished = complete < 0 ? err_set("trial %d is damaged", i + 1) : finished + complete;
        h5_drop(g);
    }
    return finished;
}

int header_same_lines(hid_t file)
{
    hid_t root = H5Gopen2(file, "/", H5P_DEFAULT);
    const int n = header_trials(file);
    uint64_t lines = FNV_BEGIN;
    char text[MAX_CONTENTS], there[MAX_CONTENTS];
    int e = n < 0 || root < 0 ? -1 : H5Aexists(root, "plan") <= 0;

    for (int i = 0; !e && i < n; i++) {
        hid_t g = header_trial(file, i);
        char *line = g < 0 ? NULL : h5_get_text(g, "line");
        char *program =
            line && H5Aexists(g, PROGRAM_TEXT) > 0 ? h5_get_text(g, PROGRAM_TEXT) : NULL;
        e = line ? 0 : err_at("trial %d", i + 1);
        lines = line ? hash_trial(lines, line, program) : lines;
        free(program);
        free(line);
        h5_drop(g);
    }
    plan_hash_text(lines, n, text);
    if (!e && !h5_same_text(root, "plan", text, there, sizeof there))
        e = err_set("the lines of its trials are not those that were written: they are %s, not %s",
                    text, there);
    h5_drop(root);
    return e;
}

/* ---- compared ---- */

/* Of the keys that differ, the first is reported. */
static int same_key(hid_t root, const struct key_text *k)
{
    if (H5Aexists(root, k->key) <= 0)
        return err_set("holds another plan: an earlier version, which wrote it, does not say its "
                       "%s",
                       k->key);
    char *there = h5_get_text(root, k->key);
    int e = !there ? -1
            : strcmp(there, k->text) != 0
                ? err_set("holds another plan: %s = %s, not %s", k->key, there, k->text)
                : 0;
    free(there);
    return e;
}

static int same_keys(hid_t root, const struct experiment *x)
{
    struct key_text k[N_KEYS];
    char there[512];
    int e = 0;

    if (!h5_same_text(root, "name", x->name, there, sizeof there))
        return err_set("holds another plan: '%s', not '%s'", there, x->name);
    const int n = keys_of(x, k);
    for (int i = 0; !e && i < n; i++)
        e = same_key(root, &k[i]);
    return e;
}

int header_same_plan(hid_t root, const struct experiment *x)
{
    char plan[MAX_CONTENTS], there[MAX_CONTENTS];

    plan_text_of(x, plan);
    if (same_keys(root, x))
        return -1;
    return h5_same_text(root, "plan", plan, there, sizeof there)
               ? 0
               : err_set("holds another plan: the lines of its trials are %s, not %s", there, plan);
}

/* Trials of earlier versions were all judged in full. */
static int is_sampled(hid_t trial)
{
    char there[32];
    return h5_same_text(trial, "judged", JUDGED_BY_SAMPLE, there, sizeof there);
}

static int same_line(hid_t trial, const struct trial *t, int i)
{
    char *there = h5_get_text(trial, "line");
    int e = !there ? err_at("trial %d", i + 1)
            : strcmp(there, t->text) != 0
                ? err_set("holds another plan: trial %d is '%s' there", i + 1, there)
            : is_sampled(trial) != t->sampled
                ? err_set("holds another plan: trial %d is judged %s there", i + 1,
                          t->sampled ? "in full" : "by a sample")
                : 0;
    free(there);
    return e;
}

int header_program(hid_t trial, struct program_texts *to)
{
    if (H5Aexists(trial, PROGRAM_TEXT) <= 0)
        return 0;
    char *text = h5_get_text(trial, PROGRAM_TEXT),
         *file = text ? h5_get_text(trial, "program") : NULL;
    int known = 0;
    for (int i = 0; file && i < to->n; i++)
        known |= strcmp(to->of[i].file, file) == 0;
    const int e = !file ? -1 : known ? 0 : program_texts_add(to, file, text);

    free(text);
    free(file);
    return e;
}

int header_programs(hid_t file, struct program_texts *to)
{
    const int n = header_trials(file);
    int e = n < 0;

    for (int i = 0; !e && i < n; i++) {
        hid_t g = header_trial(file, i);
        e = g < 0 || header_program(g, to);
        h5_drop(g);
    }
    return e ? -1 : 0;
}

/* The program's calls are those that the dump has. */
static int same_program(hid_t trial, const struct trial *t, int i)
{
    const char *now = program_text_of(t->call.op);
    char *there = now ? h5_get_text(trial, PROGRAM_TEXT) : NULL;
    const int e = !now     ? 0
                  : !there ? err_at("trial %d", i + 1)
                  : strcmp(there, now)
                      ? err_set("holds another plan: %s is another program there", t->program)
                      : 0;
    free(there);
    return e;
}

int header_same_trial(hid_t trial, const struct trial *t, int i)
{
    return same_line(trial, t, i) || same_program(trial, t, i) ? -1 : 0;
}

static int same_trials(hid_t file, const struct experiment *x)
{
    int n = header_trials(file), e = 0;

    if (n < 0)
        return -1;
    if (n != x->n)
        return err_set("holds another plan: of %d trials, not %d", n, x->n);
    for (int i = 0; !e && i < n; i++) {
        hid_t g = header_trial(file, i);
        e = g < 0 ? err_set("trial %d is damaged; it can only be begun again", i + 1)
                  : header_same_trial(g, &x->trial[i], i);
        h5_drop(g);
    }
    return e;
}

int header_schema(hid_t at)
{
    hid_t root = H5Gopen2(at, "/", H5P_DEFAULT);
    char there[256] = "";
    int schema = 0;

    for (int i = 0; !schema && i < (int)COUNT(schemas); i++)
        if (h5_same_text(root, "schema", schemas[i], there, sizeof there))
            schema = i + 1;
    h5_drop(root);
    if (!schema && *there)
        err_set("has the schema '%s', not '%s'", there, SCHEMA);
    else if (!schema)
        err_set("was not written by this program");
    return schema;
}

int header_columns(const struct column *from, int schema, struct column to[], int max)
{
    static const char *const then[][2] = {
        {"runs", "repeats"}, {"method", "caches"}, {"median_no_graph", "plain"}};

    for (int n = 0; n < max; n++) {
        to[n] = from[n];
        if (!from[n].name)
            return 0;
        for (size_t i = 0; schema == 1 && i < COUNT(then); i++)
            if (strcmp(from[n].name, then[i][0]) == 0)
                to[n].name = then[i][1];
    }
    return err_set("a table of %d columns or more", max);
}

hid_t header_open(const char *name)
{
    if (access(name, R_OK))
        return err_set("%s", strerror(errno));
    if (H5Fis_hdf5(name) == 0)
        return err_set("is no HDF5 file");
    hid_t file = h5_open(name, H5F_ACC_RDONLY);
    return file < 0 ? err_set("cannot be read: %s", h5_reason()) : file;
}

enum same header_same(hid_t file, const struct experiment *x)
{
    if (!header_schema(file))
        return NOT_OURS;
    hid_t root = H5Gopen2(file, "/", H5P_DEFAULT);
    int other = x && (same_keys(root, x) || same_trials(file, x));
    h5_drop(root);
    return other ? OTHER_PLAN : SAME_PLAN;
}

int header_same_inputs(hid_t file, const struct experiment *x)
{
    char now[MAX_CONTENTS], there[MAX_CONTENTS];
    int e = 0;

    for (int i = 0; !e && i < x->n; i++) {
        const struct trial *t = &x->trial[i];
        if (!*t->file)
            continue;
        hid_t g = header_trial(file, i);
        e = g < 0 || ((!i || strcmp(t->file, t[-1].file) != 0) && header_contents(t, now));
        if (!e && !h5_same_text(g, "contents", now, there, sizeof there))
            e = err_set("trial %d read another %s then: %s, now %s", i + 1, t->file,
                        *there ? there : "unknown", now);
        h5_drop(g);
    }
    return e;
}
