/* Copies the result of a trial from file to file (copy_trial.h).
 *
 * H5Ocopy() sets references to 0 in attributes between files, and dimension scales are attached by these.  So it
 * copies datasets without their attributes; these follow when all datasets are there, and their references are
 * translated.  Nor can it make objects that are linked nowhere: each copy is made in a group that is, opened, and taken
 * out of it.  (A second link would not do, nor would moving the first: it changes the object's header on disk, which a
 * killed process may leave half written.) */
#include "config.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/h5.h"
#include "common/store/copy_trial.h"

enum { MAX_MEMBER = 256, MAX_VALUE = 1 << 24 };

/* Where an object is in its file, and a reference to its copy. */
struct copied {
    haddr_t from;
    hobj_ref_t to;
};

/* A member of the trial's group, linked nowhere as yet. */
struct part {
    char name[MAX_MEMBER];
    hid_t id;
};

struct copying {
    struct copied *list;
    struct part *part;
    int n, n_parts;
};

static int place_of(hid_t object, haddr_t *place)
{
    H5O_info_t info;
    if (H5Oget_info(object, &info) < 0)
        return h5_cannot("see where an object is");
    *place = info.addr;
    return 0;
}

/* ---- attributes ---- */

static int translate_reference(const struct copying *c, hid_t at, hobj_ref_t *r)
{
    haddr_t place;

    if (!*r)
        return 0;
    hid_t object = H5Rdereference2(at, H5P_DEFAULT, H5R_OBJECT, r);
    int e = object < 0 ? h5_cannot("follow a reference") : place_of(object, &place);

    h5_drop(object);
    for (int i = 0; !e && i < c->n; i++)
        if (c->list[i].from == place) {
            *r = c->list[i].to;
            return 0;
        }
    return e ? -1 : err_set("refers to what is not in the trial");
}

/* All references in a value of that type in memory; `at` is in the file that they are from. */
static int translate(const struct copying *c, hid_t at, hid_t type, void *value)
{
    const H5T_class_t class = H5Tget_class(type);
    int e = 0;

    if (class == H5T_REFERENCE)
        return H5Tequal(type, H5T_STD_REF_OBJ) > 0 ? translate_reference(c, at, value)
                                                   : err_set("refers to a part of a dataset");
    if (class == H5T_VLEN) {
        const hvl_t *all = value;
        hid_t of = H5Tget_super(type);
        const size_t size = H5Tget_size(of);
        for (size_t i = 0; !e && i < all->len; i++)
            e = translate(c, at, of, (char *)all->p + i * size);
        h5_drop(of);
    }
    for (int i = 0; class == H5T_COMPOUND && !e && i < H5Tget_nmembers(type); i++) {
        hid_t of = H5Tget_member_type(type, (unsigned)i);
        e = translate(c, at, of, (char *)value + H5Tget_member_offset(type, (unsigned)i));
        h5_drop(of);
    }
    return e;
}

/* An attribute, as its type on disk and in memory, and its extent. */
struct attribute {
    hid_t id, stored, given, space;
};

static int put_value(const struct copying *c, const struct attribute *a, hid_t to, const char *name)
{
    const hssize_t n = H5Sget_simple_extent_npoints(a->space);
    const size_t size = H5Tget_size(a->given);

    if (n < 0 || n > MAX_VALUE || size > MAX_VALUE || (size_t)n * size > MAX_VALUE)
        return err_set("has too many values");
    char *value = calloc(n + 1, size);
    if (!value)
        return err_set("no memory for it");
    const int got = H5Aread(a->id, a->given, value) >= 0;
    int e = got ? 0 : h5_cannot("be read");
    for (hssize_t i = 0; !e && i < n; i++)
        e = translate(c, a->id, a->given, value + i * size);
    if (!e) {
        hid_t put = H5Aexists(to, name) > 0
                        ? H5Aopen(to, name, H5P_DEFAULT)
                        : H5Acreate2(to, name, a->stored, a->space, H5P_DEFAULT, H5P_DEFAULT);
        e = put < 0 || H5Awrite(put, a->given, value) < 0 ? h5_cannot("be written") : 0;
        h5_drop(put);
    }
    if (got)
        H5Dvlen_reclaim(a->given, a->space, H5P_DEFAULT, value);
    free(value);
    return e;
}

static int copy_attribute(const struct copying *c, hid_t id, hid_t to, const char *name)
{
    struct attribute a = {id, H5Aget_type(id), -1, H5Aget_space(id)};
    int e =
        a.stored < 0 || a.space < 0 || (a.given = H5Tget_native_type(a.stored, H5T_DIR_DEFAULT)) < 0
            ? h5_cannot("be read")
            : put_value(c, &a, to, name);

    h5_drop(a.given);
    h5_drop(a.stored);
    h5_drop(a.space);
    return e ? err_at("attribute %s", name) : 0;
}

typedef int is_taken(const char *name, void *data);

/* Of an object, in the order in which they were made: groups keep it, datasets keep the order on disk. */
static int copy_attributes(const struct copying *c, hid_t from, hid_t to, is_taken *take,
                           void *data)
{
    const int ordered = H5Iget_type(from) == H5I_GROUP, n = H5Aget_num_attrs(from);
    int e = n < 0 ? h5_cannot("see its attributes") : 0;

    for (int i = 0; !e && i < n; i++) {
        char name[MAX_MEMBER] = "";
        hid_t a = H5Aopen_by_idx(from, ".", ordered ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME,
                                 ordered ? H5_ITER_INC : H5_ITER_NATIVE, (hsize_t)i, H5P_DEFAULT,
                                 H5P_DEFAULT);
        const ssize_t length = a < 0 ? -1 : H5Aget_name(a, sizeof name, name);
        e = length < 0                       ? h5_cannot("read its attributes")
            : length >= (ssize_t)sizeof name ? err_set("an attribute's name is too long")
            : take && !take(name, data)      ? 0
                                             : copy_attribute(c, a, to, name);
        h5_drop(a);
    }
    return e;
}

/* ---- objects ---- */

static int add_copied(struct copying *c, hid_t from, hid_t to)
{
    struct copied *more = grow(c->list, c->n, sizeof *more);

    if (!more)
        return err_set("no memory for its objects");
    c->list = more;
    if (place_of(from, &more[c->n].from))
        return -1;
    if (H5Rcreate(&more[c->n].to, to, ".", H5R_OBJECT, -1) < 0)
        return h5_cannot("refer to it");
    c->n++;
    return 0;
}

/* What is done with a member of a group and its copy, or its copy's group. */
typedef int step(struct copying *c, hid_t from, const char *name, hid_t to);

/* Each member, in the order in which it was linked. */
static int for_members(struct copying *c, hid_t from, hid_t to, step *each)
{
    H5G_info_t info;
    int e = H5Gget_info(from, &info) < 0 ? h5_cannot("see its members") : 0;

    for (hsize_t i = 0; !e && i < info.nlinks; i++) {
        char name[MAX_MEMBER];
        const ssize_t length = H5Lget_name_by_idx(from, ".", H5_INDEX_CRT_ORDER, H5_ITER_INC, i,
                                                  name, sizeof name, H5P_DEFAULT);
        if (length < 0)
            e = h5_cannot("see its members");
        else if (length >= (ssize_t)sizeof name)
            e = err_set("a name is too long");
        else if (each(c, from, name, to))
            e = err_at("%s", name);
    }
    return e;
}

/* H5Ocopy() of a dataset, less its attributes. */
static int copy_values(hid_t from, const char *name, hid_t to)
{
    hid_t how = H5Pcreate(H5P_OBJECT_COPY);
    int e = how < 0 || H5Pset_copy_object(how, H5O_COPY_WITHOUT_ATTR_FLAG) < 0 ||
                    H5Ocopy(from, name, to, name, how, H5P_DEFAULT) < 0
                ? h5_cannot("be copied")
                : 0;
    h5_drop(how);
    return e;
}

static int copy_object(struct copying *c, hid_t from, const char *name, hid_t to)
{
    hid_t object = H5Oopen(from, name, H5P_DEFAULT), copy = -1;
    const H5I_type_t type = object < 0 ? H5I_BADID : H5Iget_type(object);
    int e = object < 0 ? h5_cannot("be read") : 0;

    if (!e && type == H5I_GROUP) {
        e = (copy = h5_group_new(to, name, 0)) < 0 || for_members(c, object, copy, copy_object);
    } else if (!e && type == H5I_DATASET) {
        e = copy_values(from, name, to);
        if (!e && (copy = H5Dopen2(to, name, H5P_DEFAULT)) < 0)
            e = h5_cannot("be opened");
    } else if (!e)
        e = err_set("is neither a group nor a dataset");
    e = e || add_copied(c, object, copy);
    h5_drop(copy);
    h5_drop(object);
    return e ? -1 : 0;
}

static int describe_member(struct copying *c, hid_t from, const char *name, hid_t to);

/* The attributes of an object and of all below it. */
static int describe(struct copying *c, hid_t from, hid_t to)
{
    int e = from < 0 || to < 0 ? h5_cannot("be opened") : copy_attributes(c, from, to, NULL, NULL);

    return e || H5Iget_type(from) != H5I_GROUP ? e : for_members(c, from, to, describe_member);
}

static int describe_member(struct copying *c, hid_t from, const char *name, hid_t to)
{
    hid_t object = H5Oopen(from, name, H5P_DEFAULT), copy = H5Oopen(to, name, H5P_DEFAULT);
    const int e = describe(c, object, copy);

    h5_drop(copy);
    h5_drop(object);
    return e;
}

/* ---- the members of a trial ---- */

/* Copies one, so that it is linked nowhere. */
static int copy_part(struct copying *c, hid_t from, const char *name, hid_t hold)
{
    struct part *more = grow(c->part, c->n_parts, sizeof *more);

    if (!more)
        return err_set("no memory for it");
    c->part = more;
    more += c->n_parts;
    snprintf(more->name, sizeof more->name, "%s", name);
    if (copy_object(c, from, name, hold))
        return -1;
    if ((more->id = H5Oopen(hold, name, H5P_DEFAULT)) < 0)
        return h5_cannot("be opened");
    c->n_parts++;
    return H5Ldelete(hold, name, H5P_DEFAULT) < 0 ? h5_cannot("be unlinked") : 0;
}

static int describe_parts(struct copying *c, hid_t from)
{
    int e = 0;

    for (int i = 0; !e && i < c->n_parts; i++) {
        hid_t object = H5Oopen(from, c->part[i].name, H5P_DEFAULT);
        e = describe(c, object, c->part[i].id) ? err_at("%s", c->part[i].name) : 0;
        h5_drop(object);
    }
    return e;
}

static int link_parts(const struct copying *c, hid_t to)
{
    for (int i = 0; i < c->n_parts; i++)
        if (H5Olink(c->part[i].id, to, c->part[i].name, H5P_DEFAULT, H5P_DEFAULT) < 0)
            return h5_cannot("link %s", c->part[i].name);
    return 0;
}

/* ---- a trial ---- */

/* Of a trial's attributes those that its run has written: these, and all that were made after the last of those
 * that were there before, `complete`, which the caller sets. */
static int is_result(const char *name, void *data)
{
    static const char *const counts[] = {"n_checks", "failed", "unjudged", "missed", "skipped"};
    int *after = data, is = *after;

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        is |= strcmp(name, counts[i]) == 0;
    *after |= strcmp(name, "complete") == 0;
    return is;
}

static int flush(hid_t trial)
{
    return H5Fflush(trial, H5F_SCOPE_LOCAL) < 0 ? h5_cannot("write") : 0;
}

int trial_copy(hid_t from, hid_t to)
{
    struct copying c = {NULL, NULL, 0, 0};
    hid_t hold = h5_group_new(to, NULL, 0);
    int after = 0;
    int e = hold < 0 || for_members(&c, from, hold, copy_part) || describe_parts(&c, from) ||
            copy_attributes(&c, from, to, is_result, &after) || flush(to) || link_parts(&c, to) ||
            flush(to);

    for (int i = 0; i < c.n_parts; i++)
        h5_drop(c.part[i].id); /* what is linked nowhere is gone */
    h5_drop(hold);
    free(c.part);
    free(c.list);
    return e || h5_put_int(to, "complete", 1) || flush(to) ? -1 : 0;
}
