/* The keys of [experiment], and those of [trial] that are no parameter of its
 * operation: what each may be, what it sets, and what it is for.  Two tables at
 * the end; everything before them is one function a key. */
#include "config.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "common/cases.h"
#include "common/err.h"
#include "common/keys.h"
#include "common/number.h"

/* ---- values ---- */

/* The place of value in names, which ends with NULL; -1 after err_set(). */
static int one_of(const char *key, const char *value, const char *const *names)
{
    char known[200] = "";
    for (int i = 0; names[i]; i++) {
        size_t n = strlen(known);
        if (strcmp(names[i], value) == 0)
            return i;
        snprintf(known + n, sizeof known - n, " %s", names[i]);
    }
    return err_set("%s = %s: not one of%s", key, value, known);
}

static int seed(const char *value, uint64_t *x)
{
    return number_seed(value, UINT64_MAX, x) ? err_at("seed = %s", value) : 0;
}

static int small(const char *key, const char *value, int min, int max, int *x)
{
    int64_t wide;
    if (number_whole(value, min, max, &wide))
        return err_at("%s = %s", key, value);
    *x = (int)wide;
    return 0;
}

/* Any text without control characters, of size - 1 bytes at most. */
static int plain_text(const char *key, const char *value, char *to, size_t size)
{
    for (const char *c = value; *c; c++)
        if (iscntrl((unsigned char)*c))
            return err_set("%s: a control character (%d) stands in it", key, *c);
    if (strlen(value) >= size)
        return err_set("%s: longer than %zu characters", key, size - 1);
    strcpy(to, value);
    return 0;
}

/* May it stand in the name of an experiment? */
int key_is_name(char c)
{
    return strchr("_-.", c) || (isascii((unsigned char)c) && isalnum((unsigned char)c));
}

/* ---- the keys of [experiment] ---- */

const char *const measure_names[] = {"check", "time", "regime", NULL};

static int experiment_name(void *to, const char *value)
{
    struct experiment *x = to;
    for (const char *c = value; *c; c++)
        if (!key_is_name(*c))
            return err_set("name = %s: may have letters, digits, '_', '-' and '.' only", value);
    return plain_text("name", value, x->name, sizeof x->name);
}

static int experiment_seed(void *to, const char *value)
{
    return seed(value, &((struct experiment *)to)->seed);
}

static int experiment_backends(void *to, const char *value)
{
    struct experiment *x = to;
    const struct backend *b = backend_find(value);
    char known[200] = "";

    for (const struct backend *const *all = backends(); !b && *all; all++) {
        size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, " %s", (*all)->name);
    }
    if (!b)
        return err_set("backends = %s: not one of those in this build:%s", value, known);
    if (x->n_backends == (int)COUNT(x->backend))
        return err_set("backends: more than %zu", COUNT(x->backend));
    x->backend[x->n_backends++] = b;
    return 0;
}

static int experiment_device(void *to, const char *value)
{
    return small("device", value, 0, 1023, &((struct experiment *)to)->device);
}

const char *const check_names[] = {"differences", "parity", "properties", "none", NULL};
const int check_flags[] = {CHECK_DIFFERENCES, CHECK_PARITY, CHECK_PROPERTIES, CHECK_NONE};

static int experiment_checks(void *to, const char *value)
{
    struct experiment *x = to;
    int i = one_of("checks", value, check_names);

    if (i < 0)
        return -1;
    if (x->checks & CHECK_NONE || (check_flags[i] == CHECK_NONE && x->checks))
        return err_set("checks: nothing can stand beside none");
    x->checks |= check_flags[i];
    return 0;
}

static int experiment_measure(void *to, const char *value)
{
    int i = one_of("measure", value, measure_names);
    if (i >= 0)
        ((struct experiment *)to)->measure = (enum measure)i;
    return i < 0 ? -1 : 0;
}

static int experiment_directions(void *to, const char *value)
{
    return small("directions", value, 1, 64, &((struct experiment *)to)->directions);
}

static int experiment_repeats(void *to, const char *value)
{
    return small("repeats", value, 0, 1000, &((struct experiment *)to)->repeats);
}

static int experiment_output(void *to, const char *value)
{
    struct experiment *x = to;
    return plain_text("output", value, x->output, sizeof x->output);
}

const char *const save_names[] = {
    [SAVE_ALL] = "all", [SAVE_OUTPUTS] = "outputs", [SAVE_NONE] = "none", NULL};

static int experiment_save(void *to, const char *value)
{
    int i = one_of("save", value, save_names);
    if (i >= 0)
        ((struct experiment *)to)->save = (enum save)i;
    return i < 0 ? -1 : 0;
}

static int experiment_compress(void *to, const char *value)
{
    return small("compress", value, 0, 9, &((struct experiment *)to)->compress);
}

/* ---- the keys of [trial] that are no parameter of its operation ---- */

const char *const input_names[] = {"normal", "nonzero", "text", "hdf5", NULL};

/* Levenshtein's: how many letters to put in, take out or change. */
static int distance(const char *a, const char *b)
{
    int n = (int)strlen(b), row[64];

    if (n >= (int)COUNT(row) || strlen(a) >= COUNT(row))
        return (int)COUNT(row);
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int corner = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int change = corner + (a[i - 1] != b[j - 1]);
            corner = row[j];
            row[j] = row[j] + 1 < change ? row[j] + 1 : change;
            row[j] = row[j - 1] + 1 < row[j] ? row[j - 1] + 1 : row[j];
        }
    }
    return row[n];
}

void guess_among(struct guess *g, const char *candidate)
{
    size_t n = strlen(g->word);
    int d = distance(g->word, candidate), limit = n < 2 ? 0 : n < 4 ? 1 : 2;
    if (d <= limit && (!g->best || d < g->distance)) {
        g->best = candidate;
        g->distance = d;
    }
}

/* In place of a name: a set of trials for each operation, and none is set. */
static const char EVERY_OP[] = "all";

static int trial_op(void *to, const char *value)
{
    struct trial *t = to;
    struct guess g = {value, NULL, 0};
    char known[1024] = "";

    t->op = op_find(value);
    if (t->op || strcmp(value, EVERY_OP) == 0)
        return 0;
    for (int i = 0; i < N_OPS; i++) {
        size_t n = strlen(known);
        guess_among(&g, ops[i]->name);
        snprintf(known + n, sizeof known - n, " %s", ops[i]->name);
    }
    guess_among(&g, EVERY_OP);
    return g.best ? err_set("op = %s: no such operation; did you mean '%s'?", value, g.best)
                  : err_set("op = %.100s: not one of %s%s", value, EVERY_OP, known);
}

static int trial_dtype(void *to, const char *value)
{
    const char *const names[] = {dtype_names[F32], dtype_names[BF16], NULL};
    int i = one_of("dtype", value, names);
    if (i >= 0)
        ((struct trial *)to)->type = i ? BF16 : F32;
    return i < 0 ? -1 : 0;
}

static int trial_seed(void *to, const char *value)
{
    return seed(value, &((struct trial *)to)->seed);
}

static int trial_input(void *to, const char *value)
{
    int i = one_of("input", value, input_names);
    if (i >= 0)
        ((struct trial *)to)->input = (enum input_kind)i;
    return i < 0 ? -1 : 0;
}

const char *const case_names[] = {
    [CASES_NONE] = "none", [CASES_CONTRACT] = "contract", [CASES_SHAPES] = "shapes", NULL};

static int trial_cases(void *to, const char *value)
{
    int i = one_of("cases", value, case_names);
    if (i >= 0)
        ((struct trial *)to)->cases = (enum case_kind)i;
    return i < 0 ? -1 : 0;
}

static int trial_file(void *to, const char *value)
{
    struct trial *t = to;
    return plain_text("file", value, t->file, sizeof t->file);
}

static int trial_group(void *to, const char *value)
{
    struct trial *t = to;
    return plain_text("group", value, t->group, sizeof t->group);
}

/* It must be one that some backend has for the operation. */
static int trial_kernel(void *to, const char *value)
{
    struct trial *t = to;
    char known[512] = " ";

    if (!t->op)
        return 0;
    for (const struct backend *const *b = backends(); *b; b++)
        for (const struct impl *const *k = op_kernels(t->op, *b); *k; k++) {
            char name[64];
            size_t n = strlen(known);
            if (strcmp((*k)->name, value) == 0)
                return plain_text("kernel", value, t->kernel, sizeof t->kernel);
            snprintf(name, sizeof name, " %s ", (*k)->name);
            if (!strstr(known, name))
                snprintf(known + n, sizeof known - n, "%s ", (*k)->name);
        }
    known[strlen(known) - 1] = 0;
    return err_set("kernel = %.100s: not one of those of %s in this build:%s", value, t->op->name,
                   known);
}

/* ---- the tables ---- */

#define EXPERIMENT_KEYS(KEY)                                                                       \
    KEY(experiment, name, ONE, NULL, "its name; default: the file's, less .ini")                   \
    KEY(experiment, seed, ONE, "1", "seed of the trials that set none")                            \
    KEY(experiment, backends, LIST, NULL,                                                          \
        "what to judge; default: all that are there, named "                                       \
        "ones are required")                                                                       \
    KEY(experiment, device, ONE, NULL,                                                             \
        "number of the GPU, from 0 among CUDA_VISIBLE_DEVICES; named, it is required; default: 0") \
    KEY(experiment, checks, LIST, "differences, parity, properties", "what to check; or none")     \
    KEY(experiment, measure, ONE, "check",                                                         \
        "check; time: each kernel, against ceilings; regime: as the batch grows")                  \
    KEY(experiment, directions, ONE, "2", "of the central differences, for each tensor: 1 to 64")  \
    KEY(experiment, repeats, ONE, "5", "timed runs at most, 0 to 1000; 0: no times")               \
    KEY(experiment, output, ONE, NULL,                                                             \
        "HDF5 file to write, from the working directory; default: "                                \
        "NAME.h5")                                                                                 \
    KEY(experiment, save, ONE, "all", "tensors to keep in it: all, outputs or none")               \
    KEY(experiment, compress, ONE, "1", "gzip level of its tensors, 0 to 9")

#define TRIAL_KEYS(KEY)                                                                            \
    KEY(trial, op, ONE, NULL,                                                                      \
        "the operation, or all; its parameters are keys, too, and may be lists")                   \
    KEY(trial, cases, ONE, "none",                                                                 \
        "in place of parameters: the operation's cases that are tested (contract, shapes)")        \
    KEY(trial, dtype, LIST, "fp32", "storage: fp32, bf16")                                         \
    KEY(trial, seed, LIST, NULL, "of the inputs; default: the experiment's")                       \
    KEY(trial, input, ONE, "normal",                                                               \
        "what the inputs are made of: normal (drawn), nonzero (drawn, "                            \
        "initial states too), text or hdf5")                                                       \
    KEY(trial, file, ONE, NULL, "of input = text or hdf5, from the folder of the ini file")        \
    KEY(trial, group, ONE, "/", "of input = hdf5: the group that has the inputs")                  \
    KEY(trial, kernel, ONE, NULL, "name of a kernel; default: the first that accepts the case")

#define HELP(section, name, many, initial, help) {#name, initial, help},
#define SETTER(section, name, many, initial, help) {many, section##_##name},

const struct plan_key experiment_keys[] = {EXPERIMENT_KEYS(HELP){NULL, NULL, NULL}};
const struct plan_key trial_keys[] = {TRIAL_KEYS(HELP){NULL, NULL, NULL}};

const struct setter experiment_setters[] = {EXPERIMENT_KEYS(SETTER)};
const struct setter trial_setters[] = {TRIAL_KEYS(SETTER)};

int key_list(const char *key, const char *values, struct experiment *x)
{
    struct lists *l = calloc(1, sizeof *l);
    int e = l ? lists_add(l, key, values, 0) : err_set("no memory for a list");

    for (int i = 0; !e && i < l->list[0].n_values; i++)
        e = experiment_setters[key_find(experiment_keys, key)].set(x, l->list[0].value[i]);
    if (l)
        lists_free(l);
    free(l);
    x->checks &= ~CHECK_NONE;
    return e;
}

int key_find(const struct plan_key *keys, const char *name)
{
    for (int i = 0; keys[i].name; i++)
        if (strcmp(keys[i].name, name) == 0)
            return i;
    return -1;
}
