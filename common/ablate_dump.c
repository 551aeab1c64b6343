/* ablate.h's functions for dumps, by store.h and h5.h. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5.h>

#include "common/ablate_types.h"
#include "common/err.h"
#include "common/h5.h"
#include "common/store.h"

/* A result as the store takes it: without what was not set. */
static void set_only(const abl_result *r, struct tensors *t, struct ran *to)
{
    for (int i = 0; i < MAX_ARGS; i++) {
        t->x[i] = r->has_x[i] ? r->t->x[i] : NULL;
        t->g[i] = r->has_g[i] ? r->t->g[i] : NULL;
    }
    *to = (struct ran){.backend = r->backend, .kernel = r->kernel, .t = t, .outcome = r->outcome};
}

int abl_write(const char *file, const abl_case *c, const abl_result *const *results, int n,
              const abl_verdicts *v)
{
    struct trial trial = c->trial;
    struct experiment x = {.name = "case",
                           .seed = trial.seed,
                           .save = SAVE_ALL,
                           .compress = 1,
                           .text = trial.text,
                           .source = c->source,
                           .n_sources = c->n_sources,
                           .n = 1,
                           .trial = &trial};
    struct result r = {.trial = &trial};
    struct tensors some[COUNT(r.ran)];

    if (strlen(file) >= sizeof x.output)
        return err_set("the name of a file is too long: %.60s...", file);
    if (n < 0 || n > (int)COUNT(r.ran))
        return err_set("%d results are more than the %zu that a dump can hold", n, COUNT(r.ran));
    strcpy(x.output, file);
    for (int i = 0; i < n; i++) {
        if (strcmp(results[i]->trial.text, trial.text) != 0)
            return err_set("a result of another case: %.400s", results[i]->trial.text);
        set_only(results[i], &some[i], &r.ran[i]);
        x.repeats = i == 0 || results[i]->repeats == x.repeats ? results[i]->repeats : 0;
    }
    r.n_ran = n;
    if (v) {
        r.verdicts = v->list;
        r.failed = abl_failed(v);
    }
    r.inputs = case_rounded(c);
    struct store *s = r.inputs ? store_open(&x, STORE_REPLACE | STORE_WHOLE) : NULL;
    int e = !s || store_write(s, 0, &r);
    if (s) {
        char why[512];
        snprintf(why, sizeof why, "%s", err_text());
        if (store_close(s, !e))
            e = 1;
        else if (e)
            err_set("%s", why);
    }
    tensors_free(r.inputs);
    return e ? -1 : 0;
}

/* The dataset of tensor number `arg` in a group, if it is there, into x; *found counts them. */
static int read_one(hid_t group, const struct trial *t, int arg, double *x, int *found)
{
    const char *name = t->op->arg[arg].name, *was = t->op->arg[arg].was;
    const char *shape = op_shape(t->op, &t->sizes, arg);
    int64_t size[MAX_RANK];
    int rank = (int)strlen(shape);

    if (was && H5Lexists(group, name, H5P_DEFAULT) <= 0)
        name = was;
    if (!x || H5Lexists(group, name, H5P_DEFAULT) <= 0)
        return 0;
    for (int i = 0; i < rank; i++)
        size[i] = DIM(&t->sizes, shape[i]);
    if (h5_read_tensor(group, name, rank, size, x))
        return err_more(" (%.300s)", t->text);
    ++*found;
    return 1;
}

/* All tensors whose flags have one of `flags`, from a group within a group. */
static int read_all(hid_t at, const char *within, const struct trial *t, unsigned flags,
                    double *const *x, int *has, int *found)
{
    int e = 0;
    if (*within && H5Lexists(at, within, H5P_DEFAULT) <= 0)
        return 0;
    hid_t group = H5Gopen2(at, *within ? within : ".", H5P_DEFAULT);
    if (group < 0)
        return err_set("%s is no group", within);
    for (int i = 0; e >= 0 && i < t->op->n_args; i++) {
        if (!(t->op->arg[i].flags & flags))
            continue;
        e = read_one(group, t, i, x[i], found);
        if (e > 0 && has)
            has[i] = 1;
    }
    H5Gclose(group);
    return e < 0 ? -1 : 0;
}

/* With the group open, do what `read` does; HDF5 itself prints nothing. */
static int with_group(const char *file, const char *group, int (*read)(hid_t group, void *data),
                      void *data)
{
    int e;
    H5E_BEGIN_TRY
    {
        hid_t f = H5Fopen(file, H5F_ACC_RDONLY, H5P_DEFAULT), g = -1;
        if (f < 0)
            e = err_set("%s cannot be read: %s", file, h5_reason());
        else if ((g = H5Gopen2(f, group, H5P_DEFAULT)) < 0)
            e = err_set("%s has no group %s", file, group);
        else if ((e = read(g, data)))
            err_at("%s:%s", file, group);
        if (g >= 0)
            H5Gclose(g);
        if (f >= 0)
            H5Fclose(f);
    }
    H5E_END_TRY
    return e;
}

static int read_case(hid_t g, void *data)
{
    abl_case *c = data;
    int found = 0;
    if (read_all(g, "in", &c->trial, IN, c->t->x, NULL, &found) ||
        read_all(g, "dout", &c->trial, OUT, c->t->g, NULL, &found))
        return -1;
    return found ? 0 : err_set("none of the inputs of %s is there", c->trial.op->name);
}

int abl_read(abl_case *c, const char *file, const char *group)
{
    return with_group(file, group, read_case, c) || case_add_source(c, file) ? -1 : 0;
}

static int read_result(hid_t g, void *data)
{
    abl_result *r = data;
    int found = 0;
    if (read_all(g, "", &r->trial, OUT | SAVED, r->t->x, r->has_x, &found) ||
        read_all(g, "d", &r->trial, IN, r->t->g, r->has_g, &found))
        return -1;
    return found ? 0 : err_set("none of the results of %s is there", r->trial.op->name);
}

int abl_result_read(abl_result *r, const char *file, const char *group)
{
    return with_group(file, group, read_result, r);
}

/* The words of a trial's attribute `line`, less those that say where its
 * inputs came from: they are in the dump. */
static int read_line(hid_t g, void *data)
{
    char *line = h5_get_text(g, "line");

    if (!line)
        return err_more(": not a trial of ours");
    char *from = strstr(line, " input=");
    if (from)
        *from = 0;
    *(abl_case **)data = abl_case_new(line);
    free(line);
    return *(abl_case **)data ? 0 : -1;
}

abl_case *abl_case_read(const char *file, const char *group)
{
    abl_case *c = NULL;
    if (!with_group(file, group, read_line, &c) && abl_read(c, file, group)) {
        abl_case_free(c);
        c = NULL;
    }
    return c;
}
