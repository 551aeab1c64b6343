/* No member of a trial is another's (links.h): results that are a link to the oracle's, or to another
 * program's, are nobody's. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/h5.h"
#include "common/base/quote.h"
#include "common/store/links.h"

enum { DEEPEST = 16, MAX_PLACE = 1024 };

/* Where a walk is. */
struct walk {
    char path[MAX_PLACE];
    int depth;
};

static int refuse(const struct walk *w, const char *is)
{
    return err_set("%.*s is %s: each program writes its values into datasets of its own",
                   quote_fit(w->path, 300), w->path, is);
}

/* The values of a dataset are in this file, and are no part of other datasets. */
static int check_values(hid_t dataset, const struct walk *w)
{
    hid_t how = H5Dget_create_plist(dataset);
    int e = how < 0 ? err_set("%s cannot be read: %s", w->path, h5_reason()) : 0;

    if (!e && H5Pget_layout(how) == H5D_VIRTUAL)
        e = refuse(w, "a virtual dataset, of the values of others");
    else if (!e && H5Pget_external_count(how) > 0)
        e = refuse(w, "a dataset whose values are in another file (external storage)");
    h5_drop(how);
    return e;
}

static int check_members(hid_t group, struct walk *w);

static int check_object(hid_t at, const char *name, struct walk *w)
{
    hid_t object = H5Oopen(at, name, H5P_DEFAULT);
    const H5I_type_t type = object < 0 ? H5I_BADID : H5Iget_type(object);
    H5O_info_t info;
    int e = 0;

    if (object < 0 || H5Oget_info(object, &info) < 0)
        e = err_set("%s cannot be opened: %s", w->path, h5_reason());
    else if (type != H5I_DATATYPE && info.rc > 1)
        e = refuse(w, "an object that has another name, too (a hard link)");
    else if (type == H5I_DATASET)
        e = check_values(object, w);
    else if (type == H5I_GROUP && w->depth == DEEPEST)
        e = err_set("%.*s...: its groups are too deep", quote_fit(w->path, 300), w->path);
    else if (type == H5I_GROUP) {
        w->depth++;
        e = check_members(object, w);
        w->depth--;
    }
    if (object >= 0)
        H5Oclose(object);
    return e;
}

/* One link of a group; the walk's path is the group's. */
static int check_link(hid_t group, const char *name, H5L_type_t type, struct walk *w)
{
    const size_t n = strlen(w->path);

    if (n + strlen(name) + 2 > sizeof w->path)
        return err_set("%.*s...: its names are too long", quote_fit(w->path, 300), w->path);
    sprintf(w->path + n, "/%s", name);
    int e = type == H5L_TYPE_SOFT       ? refuse(w, "a soft link")
            : type == H5L_TYPE_EXTERNAL ? refuse(w, "a link into another file (external link)")
            : type != H5L_TYPE_HARD     ? refuse(w, "a link of an unknown kind")
                                        : check_object(group, name, w);
    w->path[n] = 0;
    return e;
}

static herr_t visit(hid_t group, const char *name, const H5L_info_t *info, void *data)
{
    return check_link(group, name, info->type, data) ? -1 : 0;
}

static int check_members(hid_t group, struct walk *w)
{
    char said[512];

    err_set("%s", "");
    if (H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, visit, w) >= 0)
        return 0;
    snprintf(said, sizeof said, "%s", err_text());
    return *said ? -1 : err_set("%s: cannot see its members: %s", w->path, h5_reason());
}

int links_check(hid_t file, const char *path)
{
    struct walk w = {.depth = 0};
    H5L_info_t info;

    if (H5Lget_info(file, path, &info, H5P_DEFAULT) < 0)
        return err_set("there is no %s", path);
    return check_link(file, path + 1, info.type, &w);
}
