/* Reads a dump for a page (dump.h). */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/grow.h"
#include "common/base/h5.h"
#include "common/page/dump.h"
#include "common/store/header.h"

enum {
    MAX_COUNT = 100000000,
    MAX_ROWS = 100000,
    MAX_ALL_ROWS = 2000000,
    MAX_GROUPS = 256,
    MAX_COLUMNS = 64
};

/* ---- attributes ---- */

/* A text to be freed, "" where there is none; NULL: no memory. */
static char *text_of(hid_t at, const char *name)
{
    char *text = h5_get_text(at, name);
    return text ? text : strdup("");
}

static int64_t count_of(hid_t at, const char *name)
{
    int64_t n = 0;
    return h5_get_int(at, name, &n) || n < 0 ? 0 : n < MAX_COUNT ? n : MAX_COUNT;
}

static void read_ceilings(hid_t file, struct page_dump *d)
{
    struct ceilings *c = &d->ceilings;
    hid_t g =
        H5Lexists(file, "ceilings", H5P_DEFAULT) > 0 ? H5Gopen2(file, "ceilings", H5P_DEFAULT) : -1;

    d->has_ceilings =
        g >= 0 && !h5_get_double(g, "memory", &c->memory) &&
        !h5_get_double(g, "tensor", &c->tensor) && !h5_get_double(g, "fp32", &c->fp32) &&
        !h5_get_double(g, "special", &c->special) && c->memory > 0 && c->fp32 > 0 && c->tensor > 0;
    h5_drop(g);
}

static int read_root(hid_t file, struct page_dump *d)
{
    static const char *const names[] = {
#define FACT_NAME(name, label) #name,
        PAGE_FACTS(FACT_NAME)};
    hid_t root = H5Gopen2(file, "/", H5P_DEFAULT);
    int e = root < 0 || !(d->name = text_of(root, "name")) || !(d->ini = text_of(root, "ini"));

    for (int i = 0; !e && i < N_FACTS; i++)
        e = !(d->fact[i] = text_of(root, names[i]));
    h5_drop(root);
    if (!e)
        read_ceilings(file, d);
    return e ? err_set("cannot be read") : 0;
}

/* ---- tables ---- */

/* The type of the rows in memory.  HDF5 matches columns by name, and leaves others as they are. */
static hid_t row_type(const struct column *c, size_t size, int schema)
{
    struct column then[MAX_COLUMNS];

    if (header_columns(c, schema, then, MAX_COLUMNS))
        return -1;
    hid_t type = h5_row_type(then, size);
    return type < 0 ? h5_cannot("make the type of a row") : type;
}

/* HDF5 gives NULL for a text that is empty, or whose column is not there: each such text of the
 * rows becomes `to`, or the other way round before HDF5 frees them. */
static const char none[] = "";

static void replace_texts(const struct column *column, void *rows, int n, size_t size,
                          const char *from, const char *to)
{
    for (int i = 0; i < n; i++)
        for (const struct column *c = column; c->name; c++) {
            const char **text = (const char **)((char *)rows + (size_t)i * size + c->offset);
            if (c->kind == 's' && *text == from)
                *text = to;
        }
}

static void free_rows(const struct column *column, hid_t type, void *rows, int n)
{
    const size_t size = type < 0 ? 0 : H5Tget_size(type);
    const hsize_t dim = (hsize_t)n;
    hid_t space = n ? H5Screate_simple(1, &dim, NULL) : -1;

    if (space >= 0) {
        replace_texts(column, rows, n, size, none, NULL);
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, rows);
    }
    h5_drop(space);
    free(rows);
}

/* A table of a trial, if it is there: *rows gets its rows and *n how many. */
static int read_table(hid_t trial, const char *name, hid_t type, void **rows, int *n)
{
    if (H5Lexists(trial, name, H5P_DEFAULT) <= 0)
        return 0;
    const struct h5_table as = {type, 0, MAX_ROWS};
    int there;
    hid_t table = h5_table(trial, name, &as, &there);
    int e = table < 0;
    if (!e && !(*rows = calloc((size_t)there + 1, H5Tget_size(type))))
        e = err_set("no memory for %d rows of the table %s", there, name);
    if (!e && there && H5Dread(table, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, *rows) < 0)
        e = h5_cannot("read the table %s", name);
    else if (!e)
        *n = there;
    h5_drop(table);
    return e ? -1 : 0;
}

/* ---- a trial ---- */

/* Cuts "e74 steps=128 file="a b"" into its operation and settings, in place; blanks between quotes
 * belong to a value. */
static void cut_words(struct page_trial *t)
{
    char *at = t->words;

    t->op = at;
    for (int first = 1; *at; first = 0) {
        char *word = at, *equals;
        int quoted = 0;
        for (; *at && (quoted || *at != ' '); at++)
            quoted ^= *at == '"';
        while (*at == ' ')
            *at++ = 0;
        if (first || t->n_settings == MAX_WORDS || !(equals = strchr(word, '=')))
            continue;
        *equals = 0;
        t->setting[t->n_settings++] = (struct setting){word, equals + 1};
    }
}

/* The trial's tables; n counts all rows. */
static int read_trial_tables(const struct page_dump *d, hid_t g, struct page_trial *t, int64_t *n)
{
    if (read_table(g, "check", d->check_type, (void **)&t->check, &t->n_checks) ||
        read_table(g, "time", d->time_type, (void **)&t->time, &t->n_times))
        return -1;
    replace_texts(check_columns, t->check, t->n_checks, sizeof *t->check, NULL, none);
    replace_texts(time_columns, t->time, t->n_times, sizeof *t->time, NULL, none);
    int failed = 0;
    for (int i = 0; i < t->n_checks; i++)
        failed += strcmp(t->check[i].verdict, "fail") == 0;
    /* another program may have written rows, and no counts */
    t->checks = t->checks > t->n_checks ? t->checks : t->n_checks;
    t->failed = t->failed > failed ? t->failed : failed;
    *n += t->n_checks + t->n_times;
    return *n > MAX_ALL_ROWS ? err_set("the tables have more than %d rows", MAX_ALL_ROWS) : 0;
}

/* A text that a run has written; "" before its trial is complete, when its value may not be on disk (store.c). */
static char *text_of_run(hid_t g, const struct page_trial *t, const char *name)
{
    return t->complete ? text_of(g, name) : strdup("");
}

static int read_trial(struct page_dump *d, hid_t g, struct page_trial *t, int64_t *n)
{
    t->complete = count_of(g, "complete") > 0;
    if (!(t->line = h5_get_text(g, "line")) || !(t->words = strdup(t->line)) ||
        !(t->section = text_of(g, "section")) || !(t->skips = text_of_run(g, t, "skips")) ||
        !(t->declined = text_of_run(g, t, "declined")) ||
        !(t->warning = text_of_run(g, t, "warning")) ||
        !(t->yardstick = text_of_run(g, t, "yardstick")) ||
        !(t->would_pass = text_of_run(g, t, "would_pass")))
        return -1;
    if (!*t->warning) {
        free(t->warning);
        if (!(t->warning = text_of_run(g, t, "caution"))) /* in ablate-1 */
            return err_set("no memory for a text");
    }
    cut_words(t);
    if (t->complete &&
        H5Aexists(g, "again") > 0) { /* of training: with the rate that a search has found */
        free(t->line);
        if (!(t->line = h5_get_text(g, "again")))
            return -1;
    }
    t->checks = count_of(g, "n_checks");
    t->failed = count_of(g, "failed");
    t->unjudged = count_of(g, "unjudged");
    t->missed = count_of(g, "missed");
    t->skipped = count_of(g, "skipped");
    if (*t->yardstick && h5_get_double(g, "yardstick_error", &t->yardstick_error))
        *t->yardstick = 0;
    return t->complete ? page_run_read(g, &t->run) || read_trial_tables(d, g, t, n) : 0;
}

static int read_trials(hid_t file, struct page_dump *d)
{
    const int n = header_trials(file);
    int64_t rows = 0;
    int e = 0;

    if (n < 0)
        return -1;
    if (!(d->trial = calloc((size_t)n + 1, sizeof *d->trial)))
        return err_set("no memory for %d trials", n);
    for (int i = 0; !e && i < n; i++) {
        hid_t g = header_trial(file, i);
        d->trial[i].number = i + 1;
        d->n = i + 1;
        e = g < 0 || read_trial(d, g, &d->trial[i], &rows) ? err_at("trial %d", i + 1) : 0;
        h5_drop(g);
    }
    return e;
}

/* ---- trials of an operation ---- */

static struct page_group *group_of(struct page_dump *d, const char *op)
{
    for (int i = 0; i < d->n_groups; i++)
        if (strcmp(d->group[i].op, op) == 0)
            return &d->group[i];
    if (d->n_groups == MAX_GROUPS)
        return err_null("has more than %d operations", MAX_GROUPS);
    struct page_group *g = &d->group[d->n_groups];
    if (!(g->trial = calloc((size_t)d->n, sizeof *g->trial)))
        return err_null("no memory for %d trials", d->n);
    d->n_groups++;
    g->op = op;
    return g;
}

const char *page_setting(const struct page_trial *t, const char *key)
{
    for (int i = 0; i < t->n_settings; i++)
        if (strcmp(t->setting[i].key, key) == 0)
            return t->setting[i].value;
    return "";
}

const char *page_group_setting(const struct page_dump *d, const struct page_group *g,
                               const char *key)
{
    const char *value = "";

    for (int i = 0; !*value && i < g->n; i++)
        value = page_setting(&d->trial[g->trial[i]], key);
    return value;
}

/* One value in all trials that have it. */
static int is_constant(const struct page_dump *d, const struct page_group *g, const char *key)
{
    const char *value = page_group_setting(d, g, key);

    for (int i = 0; i < g->n; i++) {
        const char *own = page_setting(&d->trial[g->trial[i]], key);
        if (*own && strcmp(own, value) != 0)
            return 0;
    }
    return 1;
}

int page_has_key(const char *const *list, int n, const char *key)
{
    for (int i = 0; i < n; i++)
        if (strcmp(list[i], key) == 0)
            return 1;
    return 0;
}

/* The keys of all trials, in the order in which they come. */
static void find_keys(const struct page_dump *d, struct page_group *g)
{
    const char *key[MAX_WORDS];
    int n = 0;

    for (int i = 0; i < g->n; i++) {
        const struct page_trial *t = &d->trial[g->trial[i]];
        for (int k = 0; k < t->n_settings; k++)
            if (n < MAX_WORDS && !page_has_key(key, n, t->setting[k].key))
                key[n++] = t->setting[k].key;
    }
    for (int k = 0; k < n; k++)
        if (is_constant(d, g, key[k]))
            g->constant[g->n_constant++] = key[k];
        else
            g->varying[g->n_varying++] = key[k];
}

static int find_groups(struct page_dump *d)
{
    if (!(d->group = calloc(MAX_GROUPS, sizeof *d->group)))
        return err_set("no memory for a list");
    for (int i = 0; i < d->n; i++) {
        struct page_group *g = group_of(d, d->trial[i].op);
        if (!g)
            return -1;
        g->trial[g->n++] = i;
    }
    for (int i = 0; i < d->n_groups; i++)
        find_keys(d, &d->group[i]);
    return 0;
}

/* ---- an ablation ---- */

static int look_of(const struct page_dump *d, const char *variant, int cells)
{
    const struct ablated_cell *cell = d->ablation->ablation.cell;

    for (int i = 0; i < cells; i++)
        if (strcmp(cell[i].variant, variant) == 0)
            return d->look[i];
    return -1;
}

static int find_looks(struct page_dump *d)
{
    const struct ablation *a = &d->ablation->ablation;

    if (!(d->look = calloc((size_t)a->n_cells + 1, sizeof *d->look)))
        return err_set("no memory for %d cells", a->n_cells);
    for (int i = 0; i < a->n_cells; i++) {
        const int known = look_of(d, a->cell[i].variant, i);
        d->look[i] = known < 0 ? d->n_looks++ : known;
    }
    for (int i = 0; i < a->runs->n; i++) {
        const struct stored_run *r = &a->runs->run[i];
        if (r->trial < d->n)
            d->trial[r->trial].look = look_of(d, r->variant, a->n_cells);
    }
    return 0;
}

/* Of one run there is none. */
static int read_ablation(hid_t file, struct page_dump *d)
{
    int n = 0;

    for (int i = 0; i < d->n; i++)
        n += d->trial[i].run != NULL;
    if (!n)
        return 0;
    if (!(d->ablation = calloc(1, sizeof *d->ablation)))
        return err_set("no memory for an ablation");
    if (stored_ablation_read(file, d->ablation))
        return -1;
    if (d->ablation->runs.n > 1)
        return find_looks(d);
    stored_ablation_free(d->ablation);
    free(d->ablation);
    d->ablation = NULL;
    return 0;
}

/* ---- the file ---- */

static int read_dump(const char *name, struct page_dump *d)
{
    const char *why = file_unreadable(name);
    hid_t file = why ? err_set("%s", why) : header_open(name);
    if (file < 0)
        return -1;
    const int schema = header_schema(file);
    int e = !schema ||
            (d->check_type = row_type(check_columns, sizeof(struct check_row), schema)) < 0 ||
            (d->time_type = row_type(time_columns, sizeof(struct time_row), schema)) < 0 ||
            read_root(file, d) || read_trials(file, d) || find_groups(d) || read_ablation(file, d);
    H5Fclose(file);
    return e ? -1 : 0;
}

struct page_dump *page_dump_read(const char *file)
{
    struct page_dump *d = calloc(1, sizeof *d);
    int e;

    if (!d)
        return err_null("no memory for %s", file);
    d->check_type = d->time_type = -1;
    QUIETLY(e = read_dump(file, d))
    if (!e)
        return d;
    err_at("%s", file);
    page_dump_free(d);
    return NULL;
}

void page_dump_free(struct page_dump *d)
{
    for (int i = 0; d && i < d->n; i++) {
        struct page_trial *t = &d->trial[i];
        free_rows(check_columns, d->check_type, t->check, t->n_checks);
        free_rows(time_columns, d->time_type, t->time, t->n_times);
        page_run_free(t->run);
        free(t->line);
        free(t->words);
        free(t->section);
        free(t->skips);
        free(t->declined);
        free(t->warning);
        free(t->yardstick);
        free(t->would_pass);
    }
    for (int i = 0; d && i < d->n_groups; i++)
        free(d->group[i].trial);
    for (int i = 0; d && i < N_FACTS; i++)
        free(d->fact[i]);
    if (d && d->ablation)
        stored_ablation_free(d->ablation);
    if (d) {
        free(d->ablation);
        free(d->look);
        h5_drop(d->check_type);
        h5_drop(d->time_type);
        free(d->name);
        free(d->ini);
        free(d->trial);
        free(d->group);
    }
    free(d);
}
