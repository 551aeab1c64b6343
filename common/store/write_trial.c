/* Writes the tensors, verdicts and times of a trial into its group (write_trial.h). */
#include "config.h"

#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5_hl.h>

#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/h5.h"
#include "common/plan/keys.h"
#include "common/program/program.h"
#include "common/store/check_rows.h"
#include "common/plan/settings.h"
#include "common/store/given.h"
#include "common/store/header.h"
#include "common/store/time_rows.h"
#include "common/store/trip_rows.h"
#include "common/store/write_training.h"
#include "common/store/write_trial.h"

/* ---- before it has run ---- */

/* A model's parameters, where the trial has some. */
static int put_parameters(hid_t g, const struct trial *t)
{
    int64_t bytes;
    const double n = trial_parameters(t, &bytes);

    return n > 0 &&
           (h5_put_int(g, "n_parameters", (int64_t)n) || h5_put_int(g, "parameter_bytes", bytes));
}

/* An attribute of a trial that repeats what its line says. */
struct said {
    const char *name, *text; /* text: NULL: one of the numbers */
    enum { SAID_INT, SAID_SEED, SAID_REAL } kind;
    int64_t whole;
    double real;
};
enum { MAX_SAID = MAX_PARAMS + 16 };

/* Choices and sizes of the operation that the trial has; `choice` is memory for their texts. */
static int say_params(const struct trial *t, struct said said[], char choice[MAX_PARAMS][32])
{
    const struct op *o = t->call.op;
    int n = 0;

    for (int p = 0; p < o->n_params; p++) {
        const struct param *param = &o->param[p];
        const char *value = op_value(&t->call, p, choice[p]);
        if (!*value || (param->real && isinf(t->call.real[p])))
            continue; /* it is put beside the result, where it becomes known */
        said[n] = (struct said){.name = param->name, .text = param->choices ? value : NULL};
        if (param->real) {
            said[n].kind = SAID_REAL;
            said[n].real = t->call.real[p];
        } else if (!param->choices) {
            said[n].kind = param->seed ? SAID_SEED : SAID_INT;
            said[n].whole = DIM(&t->call, param->letter);
        }
        n++;
    }
    return n;
}

/* All of them; `input` and its file are those of t. */
static int say_trial(const struct trial *t, struct said said[MAX_SAID], char choice[MAX_PARAMS][32])
{
    int n = 0;

    said[n++] = (struct said){.name = "op", .text = t->call.op->name};
    n += say_params(t, said + n, choice);
    said[n++] = (struct said){.name = "dtype", .text = types[t->type].name};
    said[n++] = (struct said){.name = "seed", .kind = SAID_SEED, .whole = (int64_t)t->seed};
    const char *const more[][2] = {{"input", is_cell(t->call.op) ? "" : input_names[t->input]},
                                   {"accumulate", t->accumulate ? no_yes[1] : ""},
                                   {"in_place", t->in_place ? no_yes[1] : ""},
                                   {"program", t->program},
                                   {"file", t->file},
                                   {"group", t->group},
                                   {"tensor", t->tensor}};
    for (size_t k = 0; k < COUNT(more); k++)
        if (*more[k][1])
            said[n++] = (struct said){.name = more[k][0], .text = more[k][1]};
    return n;
}

static int put_said(hid_t g, const struct said *s)
{
    return s->text                ? h5_put_text(g, s->name, s->text)
           : s->kind == SAID_REAL ? h5_put_double(g, s->name, s->real)
           : s->kind == SAID_SEED ? h5_put_seed(g, s->name, (uint64_t)s->whole)
                                  : h5_put_int(g, s->name, s->whole);
}

/* Whether the attribute is there and says something else. */
static int is_other(hid_t g, const struct said *s)
{
    char there[sizeof((struct trial *)NULL)->file];
    int64_t whole;
    uint64_t seed;
    double real;

    if (H5Aexists(g, s->name) <= 0)
        return 0;
    return s->text                ? !h5_same_text(g, s->name, s->text, there, sizeof there)
           : s->kind == SAID_REAL ? h5_get_double(g, s->name, &real) || real != s->real
           : s->kind == SAID_SEED ? h5_get_seed(g, s->name, &seed) || seed != (uint64_t)s->whole
                                  : h5_get_int(g, s->name, &whole) || whole != s->whole;
}

int dump_trial_agrees(hid_t trial, const struct trial *t)
{
    struct said said[MAX_SAID];
    char choice[MAX_PARAMS][32];
    const int n = say_trial(t, said, choice);

    for (int k = 0; k < n; k++)
        if (is_other(trial, &said[k]))
            return err_set("its attribute %s is not what its line says", said[k].name);
    return 0;
}

int dump_trial_new(hid_t trials, const struct trial *t, const char *contents, int i)
{
    struct said said[MAX_SAID];
    char name[16], choice[MAX_PARAMS][32];
    const int n = say_trial(t, said, choice);

    snprintf(name, sizeof name, "%04d", i + 1);
    hid_t g = h5_group_new(trials, name, 1);
    int e = g < 0;
    for (int k = 0; !e && k < n; k++)
        e = put_said(g, &said[k]);
    const char *program = program_text_of(t->call.op);
    const char *const optional[][2] = {{PROGRAM_TEXT, program ? program : ""},
                                       {"judged", t->sampled ? JUDGED_BY_SAMPLE : ""},
                                       {"contents", contents},
                                       {"kernel", t->kernel},
                                       {goal_keys[FORWARD], t->goal[FORWARD].text},
                                       {goal_keys[BACKWARD], t->goal[BACKWARD].text},
                                       {"variant", t->variant},
                                       {"task_name", t->task},
                                       {"section", t->section}};
    for (size_t k = 0; !e && k < COUNT(optional); k++)
        if (*optional[k][1])
            e = h5_put_text(g, optional[k][0], optional[k][1]);
    e = e || put_parameters(g, t) || h5_put_text(g, "line", t->text) ||
        h5_put_int(g, "n_checks", 0) || h5_put_int(g, "failed", 0) ||
        h5_put_int(g, "unjudged", 0) || h5_put_int(g, "missed", 0) || h5_put_int(g, "skipped", 0) ||
        h5_put_int(g, "complete", 0);
    h5_drop(g);
    return e ? err_at("trial %d", i + 1) : 0;
}

/* The attributes that follow `complete`, unread: the heap that holds the value of a text is written after what refers to
 * it, and HDF5 uses freed memory once it has met a heap that never was written.  Before this was known, `skips` came
 * before `complete`. */
static int remove_attributes(hid_t g)
{
    char name[256] = "";
    int e = H5Aexists(g, "skips") > 0 && H5Adelete(g, "skips") < 0;

    for (int n = H5Aget_num_attrs(g); !e && n > 0 && strcmp(name, "complete") != 0; n--) {
        e = H5Aget_name_by_idx(g, ".", H5_INDEX_CRT_ORDER, H5_ITER_INC, (hsize_t)n - 1, name,
                               sizeof name, H5P_DEFAULT) < 0;
        e = e || (strcmp(name, "complete") != 0 && H5Adelete(g, name) < 0);
    }
    return e;
}

/* Remove what an interrupted run left in an unfinished trial. */
int dump_trial_empty(hid_t g)
{
    H5G_info_t info;
    if (remove_attributes(g) || H5Gget_info(g, &info) < 0)
        return -1;
    for (hsize_t n = info.nlinks; n > 0; n--)
        if (H5Ldelete_by_idx(g, ".", H5_INDEX_NAME, H5_ITER_INC, 0, H5P_DEFAULT) < 0)
            return -1;
    return 0;
}

/* ---- one trial being written ---- */

/* A member of the trial's group, linked nowhere as yet. */
struct part {
    char name[64];
    hid_t id;
};

/* What every backend is given: inputs, gradients of outputs, initial gradients. */
enum { GIVEN_IN = -3, GIVEN_DOUT, GIVEN_DINIT };

/* A tensor to be stored. */
struct item {
    int ran; /* its backend's place in the result; or one of these */
    int arg, grad;
    enum dtype type;       /* what it was stored as where it was made */
    const void *values;    /* doubles, or of a tensor of bytes bytes */
    const struct cut *cut; /* a reference's result on a sample; NULL: on all elements */
};

struct writing {
    hid_t trial; /* its group */
    const struct experiment *x;
    const struct result *r;
    const struct op *op;
    const struct call *f;
    struct item *item;
    int n_items;
    struct part scale[64], group[MAX_RAN + 4], table[6];
    int n_scales, n_groups, n_tables;
    struct part sampled[YARDSTICK + 1]; /* groups of the references, in the group `sample` */
    int n_sampled;
};

static void add_item(struct writing *w, int ran, int arg, int grad, enum dtype type,
                     const void *values)
{
    if (values)
        w->item[w->n_items++] = (struct item){ran, arg, grad, type, values, NULL};
}

/* What the references have for the elements that were judged: the results that are stored of any
 * other backend, but for those that no sample covers. */
static void list_sampled(struct writing *w, int ran)
{
    const struct call *f = &w->r->ran[ran].call;
    const unsigned stored[] = {OUT, w->x->save == SAVE_ALL ? IN : 0};

    FOR_RESULTS (f, i, grad) {
        const struct cut *c = sampled_cut(w->r->sampled, i);
        if (!c || !(w->op->arg[i].flags & stored[grad]))
            continue;
        const struct tensors *t = ran == ORACLE ? c->truth.oracle : c->truth.yard;
        add_item(w, ran, i, grad, (enum dtype)(grad ? f->grad_type[i] : f->type[i]),
                 tensors_values(t, i, grad));
        w->item[w->n_items - 1].cut = c;
    }
}

/* All that is stored of a trial's tensors, in the file's order. */
static void list_items(struct writing *w)
{
    const struct result *r = w->r;
    const struct arg *arg = w->op->arg;
    const struct call in = call_on(&r->trial->call, reference_of(r->trial->type), NULL, NULL);
    enum save save = w->x->save;

    if (!r->inputs)
        return;
    for (int i = 0; save == SAVE_ALL && i < w->op->n_args; i++)
        if (arg[i].flags & IN)
            add_item(w, GIVEN_IN, i, 0, (enum dtype)in.type[i], tensors_values(r->inputs, i, 0));
    for (int i = 0; save == SAVE_ALL && i < w->op->n_args; i++)
        if (arg[i].flags & OUT && arg[i].flags & DIFF)
            add_item(w, GIVEN_DOUT, i, 1, (enum dtype)in.grad_type[i], r->inputs->g[i]);
    for (int i = 0; save == SAVE_ALL && i < w->op->n_args; i++)
        add_item(w, GIVEN_DINIT, i, 1, (enum dtype)in.grad_type[i], r->inputs->g0[i]);
    for (int k = 0; save != SAVE_NONE && k < r->n_ran; k++) {
        const struct call *f = &r->ran[k].call;
        for (int i = 0; r->ran[k].t && i < w->op->n_args; i++)
            if (arg[i].flags & OUT)
                add_item(w, k, i, 0, (enum dtype)f->type[i], tensors_values(r->ran[k].t, i, 0));
        for (int i = 0; r->ran[k].t && save == SAVE_ALL && i < w->op->n_args; i++)
            if (arg[i].flags & IN && arg[i].flags & DIFF)
                add_item(w, k, i, 1, (enum dtype)f->grad_type[i], r->ran[k].t->g[i]);
    }
    for (int k = ORACLE; r->sampled && save != SAVE_NONE && k <= YARDSTICK; k++)
        list_sampled(w, k);
}

/* The call whose tensor an item is. */
static const struct call *call_of(const struct writing *w, const struct item *it)
{
    return it->cut ? &it->cut->call : w->f;
}

static int64_t item_bytes(const struct writing *w, const struct item *it)
{
    return op_count(call_of(w, it), it->arg) * (int64_t)types[types[it->type].dumped].bytes;
}

static int64_t bytes_needed(const struct writing *w)
{
    int64_t bytes = DUMP_SPARE + (int64_t)w->r->verdicts.n * 512 + training_takes(w->r->trained);
    for (int i = 0; i < w->n_items; i++)
        bytes += item_bytes(w, &w->item[i]);
    return bytes;
}

/* A dimension scale without values: what netCDF makes for a dimension that
 * has no coordinates, and xarray shows as a name. */
static hid_t scale(struct writing *w, const char *name, hsize_t n)
{
    char note[80];

    for (int i = 0; i < w->n_scales; i++)
        if (strcmp(w->scale[i].name, name) == 0)
            return w->scale[i].id;
    if (w->n_scales == (int)COUNT(w->scale))
        return err_set("a trial has more than %zu axes", COUNT(w->scale));
    struct part *p = &w->scale[w->n_scales];
    snprintf(p->name, sizeof p->name, "%s", name);
    snprintf(note, sizeof note, "This is a netCDF dimension but not a netCDF variable.%10llu",
             (unsigned long long)n);
    p->id = h5_dataset_new(w->trial, NULL,
                           &(struct h5_data){.stored = H5T_IEEE_F32BE, .rank = 1, .dim = &n});
    if (p->id < 0)
        return err_at("axis %s", name);
    w->n_scales++;
    return H5DSset_scale(p->id, note) < 0 ? h5_cannot("make axis %s", name) : p->id;
}

static int name_axis(struct writing *w, hid_t dataset, int i, const char *name, hsize_t n)
{
    hid_t axis = scale(w, name, n);
    if (axis < 0)
        return -1;
    if (H5DSattach_scale(dataset, axis, i) < 0 || H5DSset_label(dataset, i, name) < 0)
        return h5_cannot("name axis %s", name);
    return 0;
}

/* Is that axis of an item only some rows of the tensor's? */
static int is_cut(const struct item *it, char axis)
{
    return it->cut && strchr(it->cut->axes, axis);
}

/* The axes of a tensor have different names, as xarray wants: the second n_state is n_state_2, and
 * the sampled rows of batch are batch_sampled. */
static int name_axes(struct writing *w, hid_t dataset, const struct item *it)
{
    const struct call *f = call_of(w, it);
    const char *shape = op_shape(f, it->arg);

    for (int i = 0; shape[i]; i++) {
        char name[64];
        int before = 1;
        for (int j = 0; j < i; j++)
            before += shape[j] == shape[i];
        snprintf(name, sizeof name, before > 1 ? "%s%s_%d" : "%s%s", op_axis(w->op, shape[i]),
                 is_cut(it, shape[i]) ? "_sampled" : "", before);
        if (name_axis(w, dataset, i, name, DIM(f, shape[i])))
            return -1;
    }
    return 0;
}

/* The group of that name, found in a list or made there, in `parent` or linked nowhere as yet; with
 * the kernel and the device, where it is a backend's. */
static hid_t group_of(const struct writing *w, struct part *list, int *n, const char *name,
                      hid_t parent, const struct ran *ran)
{
    for (int i = 0; i < *n; i++)
        if (strcmp(list[i].name, name) == 0)
            return list[i].id;
    struct part *p = &list[*n];
    snprintf(p->name, sizeof p->name, "%s", name);
    p->id = parent < 0 ? h5_group_new(w->trial, NULL, 0) : h5_group_new(parent, name, 0);
    if (p->id < 0)
        return err_at("%s", name);
    ++*n;
    if (ran &&
        (h5_put_text(p->id, "kernel", ran->call.kernel->name) ||
         h5_put_text(p->id, "device",
                     ran->name ? "another program"
                               : ran->call.backend->machine->device.name(ran->call.context))))
        return err_at("%s", name);
    return p->id;
}

/* The group that an item belongs into, made when the first one comes. */
static hid_t item_group(struct writing *w, const struct item *it)
{
    const struct ran *ran = it->ran < 0 ? NULL : &w->r->ran[it->ran];
    static const char *const given[] = {"in", "dout", "dinit"};
    const char *name = ran ? ran_name(ran) : given[it->ran - GIVEN_IN];

    if (!it->cut)
        return group_of(w, w->group, &w->n_groups, name, -1, ran);
    const hid_t sample = group_of(w, w->group, &w->n_groups, "sample", -1, NULL);
    return sample < 0 ? -1 : group_of(w, w->sampled, &w->n_sampled, name, sample, ran);
}

static int put_origin(struct writing *w, hid_t dataset, int arg)
{
    char text[MAX_LINE];
    input_origin(w->r->trial, &w->r->from, arg, text, sizeof text);
    return h5_put_text(dataset, "origin", text);
}

/* The cut axes of a result in order, "batch, dim": of these only the sampled rows are there. */
static int put_cut(const struct writing *w, hid_t dataset, const struct item *it)
{
    const char *shape = op_shape(w->f, it->arg);
    char text[256] = "";

    for (const char *c = shape; *c; c++)
        if (is_cut(it, *c) && strchr(shape, *c) == c)
            append(text, sizeof text, "%s%s", *text ? ", " : "", op_axis(w->op, *c));
    return h5_put_text(dataset, "axes", text);
}

static int write_item(struct writing *w, const struct item *it)
{
    const struct arg *a = &w->op->arg[it->arg];
    const struct call *f = call_of(w, it);
    const char *shape = op_shape(f, it->arg);
    enum dtype dumped = types[it->type].dumped;
    hid_t group = item_group(w, it), sub = -1, d = -1;
    hsize_t dim[MAX_RANK];
    int rank = (int)strlen(shape), e = group < 0;

    for (int i = 0; i < rank; i++)
        dim[i] = DIM(f, shape[i]);
    if (!e && it->ran >= 0 && it->grad) {
        sub = H5Lexists(group, "d", H5P_DEFAULT) > 0 ? H5Gopen2(group, "d", H5P_DEFAULT)
                                                     : h5_group_new(group, "d", 0);
        e = sub < 0;
    }
    const hid_t given = op_is_bytes(f, it->arg) ? H5T_NATIVE_UCHAR : H5T_NATIVE_DOUBLE;
    if (!e)
        e = (d = h5_dataset_new(sub < 0 ? group : sub, a->name,
                                &(struct h5_data){h5_type(dumped), given, rank, dim, w->x->compress,
                                                  it->values})) < 0;
    if (!e)
        e = name_axes(w, d, it) || (it->cut && put_cut(w, d, it));
    if (!e && it->type != dumped)
        e = h5_put_text(d, "storage", types[it->type].name);
    if (!e && it->ran < 0 && !it->grad)
        e = put_origin(w, d, it->arg);
    if (d >= 0 && H5Dclose(d) < 0 && !e) /* it may write the last chunks */
        e = h5_cannot("write");
    h5_drop(sub);
    return e ? err_at("%s%s", it->grad ? "d_" : "", a->name) : 0;
}

/* ---- tables ---- */

/* The rows that were judged, of each axis that was sampled. */
#define SAMPLE_COLUMNS(COLUMN)                                                                     \
    COLUMN(s, axis, NO_UNIT, IN_DUMP, NULL, 0)                                                     \
    COLUMN(i, row, NO_UNIT, IN_DUMP, NULL, 0)
#define SAMPLE_COLUMN(...) COLUMN_OF(sample_row, __VA_ARGS__)

struct sample_row {
    SAMPLE_COLUMNS(COLUMN_MEMBER)
};
static const struct column sample_columns[] = {SAMPLE_COLUMNS(SAMPLE_COLUMN){NULL}};

/* A table as it becomes a dataset. */
struct table {
    const char *name, *axis;
    const struct column *column;
    size_t row_size;
};
static const struct table checks = {"check", "verdict", check_columns, sizeof(struct check_row)},
                          samples = {"sample_rows", "sampled", sample_columns,
                                     sizeof(struct sample_row)},
                          times = {"time", "timing", time_columns, sizeof(struct time_row)},
                          crossover_times = {"crossover_time", "measurement",
                                             crossover_time_columns, sizeof(struct crossover_time)},
                          crossovers = {"crossover", "kernel_and_pass", crossover_columns,
                                        sizeof(struct crossover_row)},
                          trips = {"round_trip", "packed", trip_columns, sizeof(struct trip_row)};

/* Nothing where there are no rows. */
static int put_table(struct writing *w, const struct table *t, const void *rows, hsize_t n)
{
    struct part *p = &w->table[w->n_tables];
    if (!n)
        return 0;
    hid_t row = h5_row_type(t->column, t->row_size), packed = row < 0 ? -1 : H5Tcopy(row);

    snprintf(p->name, sizeof p->name, "%s", t->name);
    p->id = -1;
    if (packed < 0 || H5Tpack(packed) < 0) /* on disk, no padding between members */
        h5_cannot("make the type of table %s", t->name);
    else
        p->id = h5_dataset_new(w->trial, NULL, &(struct h5_data){packed, row, 1, &n, 0, rows});
    h5_drop(row);
    h5_drop(packed);
    if (p->id < 0)
        return err_at("table %s", t->name);
    w->n_tables++;
    return name_axis(w, p->id, 0, t->axis, n);
}

static int write_checks(struct writing *w)
{
    const struct verdicts *list = &w->r->verdicts;
    struct check_row *rows = calloc(list->n + 1, sizeof *rows);

    if (!rows)
        return err_set("no memory for %d verdicts", list->n);
    for (int i = 0; i < list->n; i++)
        rows[i] = check_row(&list->v[i]);
    int e = put_table(w, &checks, rows, list->n);
    free(rows);
    return e;
}

static int write_sample(struct writing *w)
{
    struct sample_row rows[ALL_AXES * SAMPLE_ROWS];
    char axes[ALL_AXES];
    int n = 0;

    if (!w->r->sampled)
        return 0;
    const struct sample *s = &w->r->sampled->sample;
    sample_all_axes(w->f, s, axes);
    for (const char *c = axes; *c; c++)
        for (int k = 0; k < s->n[*c - 'A']; k++)
            rows[n++] = (struct sample_row){op_axis(w->op, *c), s->row[*c - 'A'][k]};
    return put_table(w, &samples, rows, n);
}

static int write_times(struct writing *w)
{
    struct time_row *rows = calloc(MAX_RAN * N_PASSES, sizeof *rows);
    int n = 0;

    if (!rows)
        return err_set("no memory for a table");
    for (int k = 0; w->x->repeats > 0 && k < w->r->n_ran; k++)
        for (enum pass p = FORWARD; p < N_PASSES; p++)
            if (w->r->ran[k].outcome.runs[p])
                rows[n++] = time_row(w->x->ceilings, w->r, &w->r->ran[k], p);
    int e = put_table(w, &times, rows, n);
    free(rows);
    return e;
}

static int write_trips(struct writing *w)
{
    struct trip_row rows[MAX_RAN];
    int n = 0;

    for (int k = 0; k < w->r->n_ran; k++)
        if (trip_has(&w->r->ran[k]))
            rows[n++] = trip_row(&w->r->ran[k]);
    return put_table(w, &trips, rows, n);
}

static int write_crossovers(struct writing *w)
{
    struct crossover_time *rows = calloc(MAX_RAN * N_PASSES * MAX_POINTS, sizeof *rows);
    struct crossover_row ends[MAX_RAN * N_PASSES];
    int n = 0, m = 0;

    if (!rows)
        return err_set("no memory for a table");
    for (int k = 0; k < w->r->n_crossovers; k++)
        for (enum pass p = FORWARD; p < op_passes(w->op); p++) {
            const struct crossover *g = &w->r->crossover[k];
            for (int i = 0; i < g->n; i++)
                rows[n++] = crossover_time(w->r, g, i, p);
            ends[m++] = crossover_row(g, p);
        }
    int e = put_table(w, &crossover_times, rows, n) || put_table(w, &crossovers, ends, m);
    free(rows);
    return e;
}

/* Groups and tables of a run of training. */
static int write_run(struct writing *w)
{
    struct training_part part[MAX_TRAINING_PARTS];
    int n, e = training_write(w->trial, w->r, w->x->compress, part, &n);

    for (int i = 0; i < n; i++) {
        struct part *p = &w->group[w->n_groups++];
        snprintf(p->name, sizeof p->name, "%s", part[i].name);
        p->id = part[i].id;
    }
    return e;
}

/* ---- a trial ---- */

static int link_parts(hid_t trial, const struct part *p, int n)
{
    for (int i = 0; i < n; i++)
        if (H5Olink(p[i].id, trial, p[i].name, H5P_DEFAULT, H5P_DEFAULT) < 0)
            return h5_cannot("link %s", p[i].name);
    return 0;
}

static void close_parts(const struct part *p, int n)
{
    for (int i = 0; i < n; i++)
        h5_drop(p[i].id);
}

/* A line each, "gpu_bf16 plain: why". */
static int put_declined(hid_t trial, const struct result *r)
{
    char text[MAX_RAN * (sizeof r->declined[0].why + 64)];
    size_t n = 0;

    for (int i = 0; i < r->n_declined; i++) {
        const struct declined *d = &r->declined[i];
        n += snprintf(text + n, sizeof text - n, "%s %s: %s\n", d->backend->name, d->kernel->name,
                      d->why);
    }
    return n ? h5_put_text(trial, "declined", text) : 0;
}

/* By how much the yardstick differs from the oracle, which is no verdict: yardstick = "ref32 plain",
 * yardstick_error, yardstick_tensor. */
static int put_yardstick(hid_t trial, const struct result *r)
{
    const struct ran *yard = &r->ran[YARDSTICK];
    char tensor[TENSOR_TEXT], name[64];
    const double error = r->n_ran > YARDSTICK && yard->t ? result_worst(r, yard, tensor) : -1;

    if (error < 0)
        return 0;
    snprintf(name, sizeof name, "%s %s", ran_name(yard), yard->call.kernel->name);
    return h5_put_text(trial, "yardstick", name) ||
           h5_put_double(trial, "yardstick_error", error) ||
           h5_put_text(trial, "yardstick_tensor", tensor);
}

/* The hash of what every program is given, by which it is known again. */
static int put_given(const struct writing *w)
{
    const struct result *r = w->r;
    const struct call in = call_on(&r->trial->call, reference_of(r->trial->type), NULL, NULL);
    char text[GIVEN_TEXT];

    if (!r->inputs || w->x->save != SAVE_ALL)
        return 0;
    given_hash(&in, r->inputs, 0, text);
    return h5_put_text(w->trial, "given", text) ||
           (r->inputs_set && h5_put_text(w->trial, "given_by", GIVEN_BY_CALLER));
}

static int flush(hid_t trial)
{
    return H5Fflush(trial, H5F_SCOPE_LOCAL) < 0 ? h5_cannot("write") : 0;
}

/* The order of these steps is what the head of store.c is about. */
static int write_trial(struct writing *w)
{
    const hid_t trial = w->trial;
    const struct result *r = w->r;
    const char *warning = w->op->warning ? w->op->warning(w->f) : NULL;
    int e = h5_put_text(trial, "skips", r->skips) || put_declined(trial, r) ||
            put_yardstick(trial, r) || put_given(w) ||
            (r->on_device && h5_put_int(trial, "device_number", r->device_number)) ||
            (r->passing && h5_put_text(trial, "would_pass", r->passing)) ||
            (warning && h5_put_text(trial, "warning", warning));

    for (int i = 0; !e && i < w->n_items; i++)
        e = write_item(w, &w->item[i]);
    e = e || write_checks(w) || write_sample(w) || write_times(w) || write_crossovers(w) ||
        write_trips(w) || write_run(w) || flush(trial);
    e = e || link_parts(trial, w->scale, w->n_scales) || link_parts(trial, w->group, w->n_groups) ||
        link_parts(trial, w->table, w->n_tables) || h5_put_int(trial, "n_checks", r->verdicts.n) ||
        h5_put_int(trial, "failed", r->failed) ||
        h5_put_int(trial, "unjudged", verdicts_unjudged(&r->verdicts, 0)) ||
        h5_put_int(trial, "missed", verdicts_missed(&r->verdicts)) ||
        h5_put_int(trial, "skipped", r->skipped) || flush(trial);
    return e || h5_put_int(trial, "complete", 1) || flush(trial) ? -1 : 0;
}

static void writing_free(struct writing *w)
{
    if (w)
        free(w->item);
    free(w);
}

/* A result to be written, in memory; NULL after err_set(). */
static struct writing *writing_new(hid_t trial, const struct experiment *x, const struct result *r)
{
    const struct op *o = r->trial->call.op;
    struct writing *w = calloc(1, sizeof *w);
    /* values and gradients of the inputs and of each run; one more, as none at all is NULL */
    struct item *item = calloc(2 * o->n_args * (r->n_ran + 1) + 1, sizeof *item);
    if (!w || !item) {
        free(w);
        free(item);
        err_set("no memory to store a trial");
        return NULL;
    }
    *w = (struct writing){
        .trial = trial, .x = x, .r = r, .op = o, .f = &r->trial->call, .item = item};
    list_items(w);
    return w;
}

int64_t dump_bytes(const struct experiment *x, const struct result *r)
{
    struct writing *w = writing_new(-1, x, r);
    int64_t bytes = w ? bytes_needed(w) : -1;
    writing_free(w);
    return bytes;
}

int dump_tensors(const struct experiment *x, const struct result *r, int64_t bytes[MAX_DUMPED])
{
    struct writing *w = writing_new(-1, x, r);
    const int n = w ? w->n_items : -1;

    for (int i = 0; i < n; i++)
        bytes[i] = item_bytes(w, &w->item[i]);
    writing_free(w);
    return n;
}

int dump_write(hid_t trial, const struct experiment *x, const struct result *r)
{
    struct writing *w = writing_new(trial, x, r);
    if (!w)
        return -1;
    int e = write_trial(w);
    close_parts(w->table, w->n_tables);
    close_parts(w->sampled, w->n_sampled);
    close_parts(w->group, w->n_groups);
    close_parts(w->scale, w->n_scales);
    writing_free(w);
    return e;
}
