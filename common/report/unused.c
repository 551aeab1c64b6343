/* Lists the datasets beside the tensors that trials read (unused.h). */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5.h>
#include <hdf5_hl.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/h5.h"
#include "common/report/unused.h"
#include "common/store/header.h"

/* ---- trials that read the same group ---- */

/* A group's name without a slash at its ends; its length in *n. */
static const char *bare(const char *group, size_t *n)
{
    group += strspn(group, "/");
    for (*n = strlen(group); *n && group[*n - 1] == '/'; --*n)
        ;
    return group;
}

static int same_group(const struct trial *a, const struct trial *b)
{
    size_t n, m;
    const char *x = bare(a->group, &n), *y = bare(b->group, &m);

    return a->input == INPUT_HDF5 && b->input == INPUT_HDF5 && n == m && memcmp(x, y, n) == 0 &&
           strcmp(a->file, b->file) == 0;
}

/* The inputs of an operation that trials take from a group. */
struct used {
    const struct op *op;
    struct arg_set inputs;
};

/* Each operation once. */
struct all_used {
    struct used *of;
    int n;
};

/* Those of this operation, none if it is new; NULL: no memory. */
static struct used *used_of(struct all_used *all, const struct op *o)
{
    for (int i = 0; i < all->n; i++)
        if (op_same(all->of[i].op, o))
            return &all->of[i];
    struct used *more = grow(all->of, all->n, sizeof *more);
    if (!more)
        return NULL;
    all->of = more;
    more[all->n] = (struct used){.op = o};
    return &more[all->n++];
}

/* What trials take from the group of trial i; nonzero: no memory. */
static int find_used(const struct experiment *x, int i, struct all_used *all)
{
    for (int k = i; k < x->n; k++) {
        const struct call *f = &x->trial[k].call;
        if (!same_group(&x->trial[k], &x->trial[i]))
            continue;
        struct used *used = used_of(all, f->op);
        if (!used)
            return -1;
        for (int arg = 0; arg < f->op->n_args; arg++)
            if (f->op->arg[arg].flags & IN && op_has(f, arg))
                set_add(&used->inputs, arg);
    }
    return 0;
}

static int is_used(const struct all_used *all, const char *name)
{
    for (int i = 0; i < all->n; i++) {
        int arg = op_arg(all->of[i].op, name);
        if (arg >= 0 && set_has(&all->of[i].inputs, arg))
            return 1;
    }
    return 0;
}

/* ---- a group ---- */

/* A dataset that is not the dimension scale of others. */
static int is_tensor(hid_t group, const char *name)
{
    hid_t id = H5Oopen(group, name, H5P_DEFAULT);
    int is = id >= 0 && H5Iget_type(id) == H5I_DATASET && H5DSis_scale(id) <= 0;

    h5_drop(id);
    return is;
}

enum { SHOWN = 8, MAX_NAME = 128 };

static int list_group(hid_t group, const struct all_used *used, char *list, size_t size)
{
    H5G_info_t info;
    char name[MAX_NAME];
    size_t at = 0;
    int n = 0;

    if (H5Gget_info(group, &info) < 0)
        return 0;
    for (hsize_t k = 0; k < info.nlinks; k++) {
        if (H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, k, name, sizeof name,
                               H5P_DEFAULT) <= 0 ||
            is_used(used, name) || !is_tensor(group, name))
            continue;
        if (n++ < SHOWN && at < size)
            at += snprintf(list + at, size - at, "%s%s", at ? ", " : "", name);
    }
    if (n > SHOWN && at < size)
        snprintf(list + at, size - at, " and %d more", n - SHOWN);
    return n;
}

/* Does a dump of this program have other tensors than inputs in this group? */
static int is_results(hid_t file, const char *group, size_t n)
{
    return header_schema(file) && (n < 3 || memcmp(group + n - 3, "/in", 3) != 0);
}

static void list_file(const struct experiment *x, int i, char *text, size_t size)
{
    const struct trial *t = &x->trial[i];
    struct all_used used = {NULL, 0};
    char list[SHOWN * (MAX_NAME + 2) + 32] = "";
    size_t n;
    const char *path = bare(t->group, &n);
    hid_t file = h5_open(t->file, H5F_ACC_RDONLY);
    hid_t group = file < 0 ? -1 : H5Gopen2(file, n ? t->group : "/", H5P_DEFAULT);

    if (!find_used(x, i, &used) && group >= 0 && !is_results(file, path, n) &&
        list_group(group, &used, list, sizeof list))
        snprintf(text, size, "%s%s%.*s: not used: %s", t->file, n ? ":/" : "", (int)n, path, list);
    free(used.of);
    h5_drop(group);
    h5_drop(file);
}

void unused_datasets(const struct experiment *x, int i, char *text, size_t size)
{
    *text = 0;
    if (x->trial[i].input != INPUT_HDF5)
        return;
    for (int k = 0; k < i; k++)
        if (same_group(&x->trial[k], &x->trial[i]))
            return;
    QUIETLY(list_file(x, i, text, size))
}
