/* dumps.h - how the suites of the store write dumps and read them back: with trials and verdicts made
 * by hand, in files that have the process's number in their names. */
#ifndef DUMPS_H
#define DUMPS_H

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hdf5.h>
#include <hdf5_hl.h>
#include <omp.h>

#include "common/base/err.h"
#include "common/call/cases.h"
#include "common/store/store.h"
#include "tests/here.h"
#include "tests/tap.h"

/* ---- an experiment by hand ---- */

enum { TRIALS = 12 };

static char output[64], part[80];
static struct trial trials[TRIALS];
static struct result results[TRIALS];

static inline void trial(int i, const char *op, const char *text, enum dtype type)
{
    struct trial *t = &trials[i];
    char words[MAX_TEXT];

    *t = (struct trial){.call.op = op_find(op), .type = type, .seed = 100 + i};
    if (cases_one(t->call.op, text, &t->call))
        ok(0, "%s", err_text());
    t->accumulate = i % 4 == 3;
    t->call.accumulate = t->accumulate ? op_gradients(t->call.op) : set_none();
    op_text(&t->call, words);
    snprintf(t->text, sizeof t->text, "%s %s seed=%d%s", op, words, 100 + i,
             t->accumulate ? " accumulate=yes" : "");
}

/* Run it on the oracle and its yardstick, with some verdicts. */
static inline void result(struct result *r, const struct trial *t, int repeats)
{
    const struct backend *b[] = {&ref64, reference_of(t->type)};
    *r = (struct result){.trial = t, .inputs = tensors_new(&t->call), .n_ran = 2};

    tensors_draw(r->inputs, &t->call, t->seed, 1);
    const struct call rounded = call_here(&t->call, b[1], NULL);
    tensors_round(r->inputs, &rounded);
    for (int k = 0; k < 2; k++) {
        struct ran *ran = &r->ran[k];
        struct run c = {.call = call_here(&t->call, b[k], op_kernel(t->call.op, b[k], 0)),
                        .repeats = repeats};
        *ran = (struct ran){.call = c.call, .t = tensors_copy(&t->call, r->inputs)};
        if (run_op(&c, ran->t, &ran->outcome))
            ok(0, "%s", err_text());
    }
    struct verdict *v = verdict_add(&r->verdicts, "parity", "out", b[1], r->ran[1].call.kernel);
    *v = (struct verdict){v->check, v->backend, v->kernel, "out", 1, 2, 4, "[3,0,17]", -1, 1, 0};
    v->missed = 1;
    v = verdict_add(&r->verdicts, "repeat", "d_x", b[1], r->ran[1].call.kernel);
    *v = (struct verdict){v->check, v->backend, v->kernel, "d_x", 1, 2, 0, "", 5, 0, 0};
    v = verdict_add(&r->verdicts, "differences", "d_x", b[0], r->ran[0].call.kernel);
    *v = (struct verdict){v->check, v->backend, v->kernel, "d_x", 0, 0, 4, "", -1, 1, 1};
    r->failed = 1;
    r->skipped = 3;
    snprintf(r->skips, sizeof r->skips, "gpu32: no device\nnothing more\n");
}

static inline struct experiment experiment(int n, enum save save, int compress, int repeats)
{
    struct experiment x = {.seed = 11,
                           .contexts = here(),
                           .save = save,
                           .compress = compress,
                           .repeats = repeats,
                           .n = n,
                           .trial = trials};
    static char ini[] = "[experiment]\nname = \xc3\xa4hnlich\n[trial]\nop = e74\n";
    snprintf(x.name, sizeof x.name, "store");
    snprintf(x.output, sizeof x.output, "%s", output);
    x.text = ini;
    return x;
}

/* The trials and their results, and the names of the files. */
static inline void trials_new(void)
{
    omp_set_num_threads(1); /* a child has only the thread that forked */
    static const char *const small[] = {
        "steps=5 batch=2 heads=2 n_state=4 dim=3 state=full proj=full z_mod=row",
        "steps=5 batch=2 heads=2 n_state=4 dim=3 state=lowrank rank=3",
        "steps=4 batch=2 heads=1 n_state=6 block_size=3 dim=3 state=blockdiag",
        "steps=3 batch=3 heads=1 n_state=5 dim=3 state=diagonal proj=tied_kvq",
        "steps=20 batch=8 heads=2 n_state=16 dim=20 state=full nonlin=rmsnorm",
    };

    snprintf(output, sizeof output, "store-%ld.h5", (long)getpid());
    snprintf(part, sizeof part, "%s.part", output);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    for (int i = 0; i < TRIALS; i++)
        if (i == 5)
            trial(i, "linear", "rows=1100 dim_in=64 dim_out=130", F32);
        else
            trial(i, "e74", small[i % 6 % 5], i % 2 ? BF16 : F32);
    for (int i = 0; i < TRIALS; i++)
        result(&results[i], &trials[i], 2);
}

static inline void trials_free(void)
{
    for (int i = 0; i < TRIALS; i++) {
        tensors_free(results[i].inputs);
        for (int k = 0; k < results[i].n_ran; k++)
            tensors_free(results[i].ran[k].t);
        verdicts_free(&results[i].verdicts);
    }
}

/* ---- files ---- */

static inline int there(const char *file)
{
    return access(file, F_OK) == 0;
}

static inline int write_text(const char *file, const char *text)
{
    FILE *out = fopen(file, "wb");
    return !out || fputs(text, out) < 0 || fclose(out) ? -1 : 0;
}

static inline int holds_text(const char *file, const char *text)
{
    char there[64] = "";
    FILE *in = fopen(file, "rb");
    if (in) {
        there[fread(there, 1, sizeof there - 1, in)] = 0;
        fclose(in);
    }
    return strcmp(there, text) == 0;
}

static inline void clean(void)
{
    unlink(output);
    unlink(part);
}

/* Remove what new parts were called before they had their name; how many there were. */
static inline int clean_fresh(void)
{
    char pattern[96];
    glob_t found;
    int n = 0;

    snprintf(pattern, sizeof pattern, "%s.*", part);
    if (!glob(pattern, 0, NULL, &found)) {
        n = (int)found.gl_pathc;
        for (int i = 0; i < n; i++)
            unlink(found.gl_pathv[i]);
        globfree(&found);
    }
    return n;
}

/* Open, write trials `from` to `to`, close. */
static inline int write_some(const struct experiment *x, int how, int from, int to)
{
    struct store *s = store_open(x, how);
    int e = !s;
    struct store_counts c;
    for (int i = from; !e && i < to; i++)
        if (!store_has(s, i, &c))
            e = store_write(s, i, &results[i]);
    return s && store_close(s, !e && to == x->n) ? -1 : e;
}

/* ---- reading it back, with HDF5 alone ---- */

static inline double number(hid_t at, const char *name)
{
    double x = -1;
    hid_t a = H5Aopen(at, name, H5P_DEFAULT);
    if (a >= 0) {
        H5Aread(a, H5T_NATIVE_DOUBLE, &x);
        H5Aclose(a);
    }
    return x;
}

static inline int is_text(hid_t at, const char *name, const char *want)
{
    hid_t a = H5Aopen(at, name, H5P_DEFAULT), type = a < 0 ? -1 : H5Aget_type(a);
    char *text = NULL;
    int same = type >= 0 && H5Tis_variable_str(type) > 0 && H5Aread(a, type, &text) >= 0 && text &&
               strcmp(text, want) == 0;
    H5free_memory(text);
    if (type >= 0)
        H5Tclose(type);
    if (a >= 0)
        H5Aclose(a);
    return same;
}

/* Has that dataset these values, the type `bits`, and the names of its axes?  Bytes have 8. */
static inline int is_dataset(hid_t trial, const struct trial *t, const char *folder, int arg,
                             const void *want, int bits)
{
    const int bytes = op_is_bytes(&t->call, arg);
    char path[64];
    const char *shape = op_shape(&t->call, arg);
    int64_t n = op_count(&t->call, arg);
    void *got = malloc(n * tensors_each(&t->call, arg));

    snprintf(path, sizeof path, "%s/%s", folder, t->call.op->arg[arg].name);
    hid_t d = H5Dopen2(trial, path, H5P_DEFAULT), type = d < 0 ? -1 : H5Dget_type(d);
    int good = d >= 0 && H5Tget_size(type) == (bytes ? 1 : (size_t)bits / 8) &&
               H5Dread(d, bytes ? H5T_NATIVE_UCHAR : H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL,
                       H5P_DEFAULT, got) >= 0 &&
               memcmp(got, want, n * tensors_each(&t->call, arg)) == 0;
    for (int i = 0; good && shape[i]; i++) {
        char label[64] = "", name[64];
        hsize_t length = 0;
        snprintf(name, sizeof name, "%s", op_axis(t->call.op, shape[i]));
        if (strchr(shape, shape[i]) < shape + i)
            strcat(name, "_2");
        hid_t scale = H5Dopen2(trial, name, H5P_DEFAULT);
        hid_t space = scale < 0 ? -1 : H5Dget_space(scale);
        good = scale >= 0 && H5DSis_attached(d, scale, i) > 0 &&
               H5DSget_label(d, i, label, sizeof label) >= 0 && strcmp(label, name) == 0 &&
               H5Sget_simple_extent_dims(space, &length, NULL) == 1 &&
               length == (hsize_t)DIM(&t->call, shape[i]);
        H5Sclose(space);
        H5Dclose(scale);
    }
    if (d >= 0) {
        H5Tclose(type);
        H5Dclose(d);
    }
    free(got);
    return good;
}

static inline int is_trial(hid_t trial, const struct result *r, enum save save)
{
    const struct trial *t = r->trial;
    int good = is_text(trial, "op", t->call.op->name) && is_text(trial, "line", t->text) &&
               is_text(trial, "skips", r->skips) && number(trial, "n_checks") == r->verdicts.n &&
               number(trial, "failed") == r->failed && number(trial, "unjudged") == 1 &&
               number(trial, "skipped") == r->skipped;

    good = good && (t->accumulate ? is_text(trial, "accumulate", "yes")
                                  : H5Aexists(trial, "accumulate") == 0);
    good = good && H5Lexists(trial, "dinit", H5P_DEFAULT) == (t->accumulate && save == SAVE_ALL);
    for (int i = 0; i < t->call.op->n_args; i++) {
        unsigned flags = t->call.op->arg[i].flags;
        if (!op_has(&t->call, i))
            continue;
        if (save == SAVE_ALL && flags & IN)
            good = good && is_dataset(trial, t, "in", i, tensors_values(r->inputs, i, 0), 32);
        if (save == SAVE_ALL && flags & OUT && flags & DIFF)
            good = good && is_dataset(trial, t, "dout", i, r->inputs->g[i], 32);
        if (save == SAVE_ALL && t->accumulate && flags & IN && flags & DIFF)
            good = good && is_dataset(trial, t, "dinit", i, r->inputs->g0[i], 32);
        for (int k = 0; save != SAVE_NONE && k < r->n_ran; k++) {
            int bits = k == 0 ? 64 : 32;
            char d[32];
            snprintf(d, sizeof d, "%s/d", r->ran[k].call.backend->name);
            if (flags & OUT)
                good = good && is_dataset(trial, t, r->ran[k].call.backend->name, i,
                                          tensors_values(r->ran[k].t, i, 0), bits);
            if (save == SAVE_ALL && flags & IN && flags & DIFF)
                good = good && is_dataset(trial, t, d, i, r->ran[k].t->g[i], bits);
        }
    }
    return good;
}

/* How many trials of the file are complete; -1 if one of them does not read
 * back, -2 if there is no such file, or none that can be opened. */
static inline int complete(const char *file, int n, enum save save)
{
    hid_t f = there(file) ? H5Fopen(file, H5F_ACC_RDONLY, H5P_DEFAULT) : -1;
    int found = f < 0 ? -2 : 0;

    for (int i = 0; found >= 0 && i < n; i++) {
        char path[32];
        snprintf(path, sizeof path, "/trial/%04d", i + 1);
        hid_t g = H5Gopen2(f, path, H5P_DEFAULT);
        if (g >= 0 && number(g, "complete") == 1)
            found = is_trial(g, &results[i], save) ? found + 1 : -1;
        if (g >= 0)
            H5Gclose(g);
    }
    if (f >= 0)
        H5Fclose(f);
    return found;
}

/* ---- tests ---- */

static inline void says(int failed, const char *want, const char *what)
{
    if (!ok(failed && strstr(err_text(), want), "%s", what))
        printf("# %s\n# instead of %s\n", failed ? err_text() : "no failure", want);
}

/* The work of a child process; its exit status. */
static inline int in_child(int (*what)(void))
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(what());
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : 255;
}

#endif
