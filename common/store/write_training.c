/* Writes a run of training (write_training.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <hdf5_hl.h>

#include "common/base/err.h"
#include "common/base/h5.h"
#include "common/plan/training.h"
#include "common/store/write_training.h"
#include "common/train/run.h"
#include "common/train/size.h"

/* A run that is being written. */
struct out {
    hid_t trial;
    const struct result *r;
    const struct trained *run;
    int compress;
    struct training_part *part;
    int *n;
};

static hid_t add_group(struct out *o, const char *name)
{
    const hid_t g = h5_group_new(o->trial, NULL, 0);

    if (g < 0)
        return err_at("%s", name);
    o->part[*o->n].name = name;
    o->part[(*o->n)++].id = g;
    return g;
}

/* ---- datasets with named axes ---- */

/* An axis of a group: its name, how many, and the values along it. */
struct scale {
    const char *name;
    hsize_t n;
    const double *value; /* NULL: 0, 1, ... */
};

static hid_t put_scale(hid_t g, const struct scale *s)
{
    int64_t *x = malloc((s->n + 1) * sizeof *x);
    hid_t d = -1;

    if (!x)
        return err_set("no memory for axis %s", s->name);
    for (hsize_t i = 0; i < s->n; i++)
        x[i] = s->value ? (int64_t)s->value[i] : (int64_t)i;
    d = h5_dataset_new(g, s->name,
                       &(struct h5_data){H5T_STD_I64LE, H5T_NATIVE_INT64, 1, &s->n, 0, x});
    free(x);
    if (d >= 0 && H5DSset_scale(d, s->name) < 0) {
        h5_drop(d);
        return h5_cannot("make axis %s", s->name);
    }
    return d;
}

/* One along a scale; `stored` is its type on disk. */
static int put_along(struct out *o, hid_t g, hid_t scale, const char *name, const double *x,
                     hsize_t n)
{
    const hid_t d = h5_dataset_new(
        g, name, &(struct h5_data){H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, &n, o->compress, x});
    const int e = d < 0 || H5DSattach_scale(d, scale, 0) < 0;

    h5_drop(d);
    return e ? err_at("%s", name) : 0;
}

/* ---- curve, eval, test ---- */

static int put_curve(struct out *o)
{
    const struct trained *r = o->run;
    const hsize_t n = (hsize_t)r->done;
    const double clip = o->r->cell->clip;
    double *update = malloc((n + 1) * sizeof *update), *clipped = malloc((n + 1) * sizeof *clipped),
           *skipped = malloc((n + 1) * sizeof *skipped);
    const hid_t g = update && clipped && skipped ? add_group(o, "curve") : -1;
    int e = g < 0;

    for (hsize_t i = 0; !e && i < n; i++) {
        update[i] = (double)i + 1;
        clipped[i] = clip > 0 ? fmin(1, clip / (r->norm[i] + 1e-6)) : 1;
        skipped[i] = r->skipped[i];
    }
    const hid_t scale = e ? -1 : put_scale(g, &(struct scale){"update", n, update});
    e = e || scale < 0 || put_along(o, g, scale, "loss", r->loss, n) ||
        put_along(o, g, scale, "grad_norm", r->norm, n) ||
        put_along(o, g, scale, "clip", clipped, n) || put_along(o, g, scale, "lr", r->rate, n) ||
        put_along(o, g, scale, "scale", r->scale, n) ||
        put_along(o, g, scale, "skipped", skipped, n);
    h5_drop(scale);
    free(update);
    free(clipped);
    free(skipped);
    return e ? -1 : 0;
}

static int put_validations(struct out *o)
{
    const struct trained *r = o->run;
    const hsize_t n = (hsize_t)r->n_validations;
    double *x = malloc((3 * n + 1) * sizeof *x);
    const hid_t g = x ? add_group(o, "eval") : -1;
    int e = g < 0;

    for (hsize_t i = 0; !e && i < n; i++) {
        x[i] = (double)r->validation[i].update;
        x[n + i] = r->validation[i].loss;
        x[2 * n + i] = r->validation[i].accuracy;
    }
    const hid_t scale = e ? -1 : put_scale(g, &(struct scale){"update", n, x});
    e = e || scale < 0 || put_along(o, g, scale, "loss", x + n, n) ||
        put_along(o, g, scale, "accuracy", x + 2 * n, n);
    h5_drop(scale);
    free(x);
    return e ? -1 : 0;
}

static double share(int64_t of, int64_t all)
{
    return all ? (double)of / (double)all : NAN;
}

static int put_test(struct out *o)
{
    const struct evaluated *e = &o->run->test;
    const hsize_t n = COUNT(e->targets_at);
    double at[COUNT(e->targets_at)];
    const hid_t g = add_group(o, "test");

    for (hsize_t i = 0; i < n; i++)
        at[i] = share(e->hits_at[i], e->targets_at[i]);
    if (g < 0 || h5_put_int(g, "length", DIM(&o->r->cell->batch, 'T')) ||
        h5_put_double(g, "loss", e->loss) ||
        h5_put_double(g, "accuracy", share(e->hits, e->targets)) ||
        h5_put_double(g, "sequence_accuracy", share(e->rows_right, e->rows)) ||
        h5_put_int(g, "targets", e->targets) || h5_put_int(g, "rows", e->rows))
        return -1;
    const hid_t scale = put_scale(g, &(struct scale){"decile", n, NULL});
    const int bad = scale < 0 || put_along(o, g, scale, "accuracy_at", at, n);
    h5_drop(scale);
    return bad ? -1 : 0;
}

/* The same at each length. */
static int put_lengths(struct out *o)
{
    const struct trained *r = o->run;
    const hsize_t n = (hsize_t)r->of->n_lengths;
    double length[MAX_LENGTHS], loss[MAX_LENGTHS], accuracy[MAX_LENGTHS], sequence[MAX_LENGTHS];

    if (!r->test_at)
        return 0;
    for (hsize_t i = 0; i < n; i++) {
        const struct evaluated *e = &r->test_at[i];
        length[i] = (double)r->of->length[i];
        loss[i] = e->loss;
        accuracy[i] = share(e->hits, e->targets);
        sequence[i] = share(e->rows_right, e->rows);
    }
    const hid_t g = add_group(o, "lengths");
    const hid_t scale = g < 0 ? -1 : put_scale(g, &(struct scale){"length", n, length});
    const int e = scale < 0 || put_along(o, g, scale, "loss", loss, n) ||
                  put_along(o, g, scale, "accuracy", accuracy, n) ||
                  put_along(o, g, scale, "sequence_accuracy", sequence, n);
    h5_drop(scale);
    return e ? -1 : 0;
}

/* ---- tables ---- */

#define PARITY_COLUMNS(COLUMN)                                                                     \
    COLUMN(i, update, NO_UNIT, IN_DUMP, NULL, 0)                                                   \
    COLUMN(s, kind, NO_UNIT, IN_DUMP, NULL, 0)                                                     \
    COLUMN(s, tensor, NO_UNIT, IN_DUMP, NULL, 0)                                                   \
    COLUMN(d, error, FRACTION, IN_DUMP, NULL, 0)                                                   \
    COLUMN(d, bound, FRACTION, IN_DUMP, NULL, 0)                                                   \
    COLUMN(s, worst, NO_UNIT, IN_DUMP, NULL, 0)                                                    \
    COLUMN(s, verdict, NO_UNIT, IN_DUMP, NULL, 0)
#define PARITY_COLUMN(...) COLUMN_OF(parity_row, __VA_ARGS__)
struct parity_row {
    PARITY_COLUMNS(COLUMN_MEMBER)
};
static const struct column parity_columns[] = {PARITY_COLUMNS(PARITY_COLUMN){NULL}};

#define JUDGED_COLUMNS(COLUMN)                                                                     \
    COLUMN(i, update, NO_UNIT, IN_DUMP, NULL, 0)                                                   \
    COLUMN(i, rows, NO_UNIT, IN_DUMP, NULL, 0)
#define JUDGED_COLUMN(...) COLUMN_OF(judged_row, __VA_ARGS__)
struct judged_row {
    JUDGED_COLUMNS(COLUMN_MEMBER)
};
static const struct column judged_columns[] = {JUDGED_COLUMNS(JUDGED_COLUMN){NULL}};

/* Nothing where there are no rows. */
static int put_table(struct out *o, const char *name, hid_t row, const void *rows, hsize_t n)
{
    hid_t packed = row < 0 ? -1 : H5Tcopy(row), d = -1;

    if (n && packed >= 0 && H5Tpack(packed) >= 0)
        d = h5_dataset_new(o->trial, NULL, &(struct h5_data){packed, row, 1, &n, 0, rows});
    h5_drop(row);
    h5_drop(packed);
    if (n && d < 0)
        return err_at("table %s", name);
    if (n) {
        o->part[*o->n].name = name;
        o->part[(*o->n)++].id = d;
    }
    return 0;
}

static int put_parity(struct out *o)
{
    const struct verdicts *list = &o->r->verdicts;
    struct parity_row *rows = calloc(list->n + 1, sizeof *rows);
    struct judged_row *judged = calloc(o->run->n_judged + 1, sizeof *judged);
    int e = !rows || !judged ? err_set("no memory for %d verdicts", list->n) : 0;

    for (int i = 0; !e && i < list->n; i++) {
        const struct verdict *v = &list->v[i];
        rows[i] = (struct parity_row){v->update, v->check, v->tensor,      v->error,
                                      v->bound,  v->worst, verdict_word(v)};
    }
    for (int i = 0; !e && i < o->run->n_judged; i++)
        judged[i] = (struct judged_row){o->run->judged[i].update, o->run->judged[i].rows};
    e = e || put_table(o, "parity", h5_row_type(parity_columns, sizeof *rows), rows, list->n) ||
        put_table(o, "judged", h5_row_type(judged_columns, sizeof *judged), judged,
                  o->run->n_judged);
    free(rows);
    free(judged);
    return e ? -1 : 0;
}

/* ---- weights and batches ---- */

static int put_weight(const struct out *o, hid_t g, const struct layout_part *p, const double *at)
{
    const struct call *f = &o->r->cell->model;
    const char *shape = op_shape(f, p->arg);
    hsize_t dim[MAX_RANK];
    const int rank = (int)strlen(shape);

    for (int i = 0; i < rank; i++)
        dim[i] = (hsize_t)DIM(f, shape[i]);
    const hid_t d = h5_dataset_new(
        g, f->op->arg[p->arg].name,
        &(struct h5_data){H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, rank, dim, o->compress, at});
    h5_drop(d);
    return d < 0 ? err_at("%s", f->op->arg[p->arg].name) : 0;
}

static int put_weights(struct out *o, const char *name, const double *w)
{
    const struct layout *l = &o->run->layout;
    const hid_t g = w ? add_group(o, name) : -1;
    int e = w && g < 0;

    for (int i = 0; w && !e && i < l->storage.n; i++)
        e = put_weight(o, g, &l->storage.part[i], w + l->storage.part[i].at);
    for (int i = 0; w && !e && i < l->wide.n; i++)
        e = put_weight(o, g, &l->wide.part[i], w + l->storage.elements + l->wide.part[i].at);
    return e ? -1 : 0;
}

static int put_batches(struct out *o, hid_t g, const char *name, double *const *x, int n)
{
    const struct call *f = &o->r->cell->batch;
    const hsize_t dim[] = {(hsize_t)n, (hsize_t)DIM(f, 'T'), (hsize_t)DIM(f, 'B')};
    const size_t each = dim[1] * dim[2];
    double *all = malloc(n * each * sizeof *all);
    hid_t d = -1;

    for (int i = 0; all && i < n; i++)
        memcpy(all + i * each, x[i], each * sizeof *all);
    if (all)
        d = h5_dataset_new(
            g, name, &(struct h5_data){H5T_STD_I64LE, H5T_NATIVE_DOUBLE, 3, dim, o->compress, all});
    free(all);
    h5_drop(d);
    return d < 0 ? err_at("%s", name) : 0;
}

static int put_first_batches(struct out *o)
{
    int n = 0;

    while (n < KEPT_BATCHES && o->run->token[n])
        n++;
    const hid_t g = n ? add_group(o, "batch") : -1;
    return n && (g < 0 || put_batches(o, g, "token", o->run->token, n) ||
                 put_batches(o, g, "target", o->run->target, n))
               ? -1
               : 0;
}

/* ---- a run ---- */

/* Of training, until the update at which it had learned. */
static double seconds_to_target(const struct trained *r)
{
    double seconds = 0;

    for (int i = 0; i < r->n_validations; i++)
        if (r->validation[i].update <= r->learned)
            seconds = r->validation[i].seconds;
    return seconds;
}

static int put_time(struct out *o)
{
    const struct trained *r = o->run;
    const hid_t g = add_group(o, "speed");

    return g < 0 || h5_put_double(g, "seconds", r->seconds) ||
                   (r->learned && h5_put_double(g, "seconds_to_target", seconds_to_target(r))) ||
                   h5_put_double(g, "tokens_per_s", trained_rate(r)) ||
                   h5_put_int(g, "device_bytes", r->bytes)
               ? -1
               : 0;
}

/* The line that makes a confirming run again: with its rate. */
static int put_again(const struct out *o)
{
    char *text = malloc(MAX_LINE);
    const int e = !text || training_line(o->r->trial, text) || h5_put_text(o->trial, "again", text);

    free(text);
    return e ? err_at("again") : 0;
}

/* Beside n_parameters, which every trial of a model has. */
static int put_size(const struct out *o)
{
    const struct trial *t = o->r->trial;
    struct cell_size size;

    return cell_size(&t->call, t->type, &size) ||
           h5_put_int(o->trial, "n_parameters_inner", (int64_t)size.inner) ||
           h5_put_int(o->trial, "state_bytes", (int64_t)size.state) ||
           h5_put_double(o->trial, "flops_per_token", size.flops);
}

static int put_attributes(const struct out *o)
{
    const struct trained *r = o->run;
    const struct backend *b = r->of->backend;

    return (o->r->trial->confirms &&
            (h5_put_double(o->trial, "lr", cell_rate(&o->r->trial->call)) ||
             h5_put_int(o->trial, "confirms", 1) || put_again(o))) ||
           h5_put_int(o->trial, "classes", cell_classes(&o->r->cell->batch)) ||
           h5_put_text(o->trial, "backend", b->name) ||
           h5_put_text(o->trial, "device", b->machine->device.name(r->of->context)) ||
           h5_put_text(o->trial, "ended", run_ends[r->end]) ||
           h5_put_int(o->trial, "updates_done", r->done) ||
           h5_put_int(o->trial, "learned_at", r->learned) ||
           (*r->resumed_anyway && h5_put_text(o->trial, "resumed_anyway", r->resumed_anyway));
}

int training_write(hid_t trial, const struct result *r, int compress,
                   struct training_part to[MAX_TRAINING_PARTS], int *n)
{
    struct out o = {trial, r, r->trained, compress, to, n};

    *n = 0;
    if (!r->trained)
        return 0;
    return put_attributes(&o) || put_size(&o) || put_curve(&o) || put_validations(&o) ||
                   put_test(&o) || put_lengths(&o) || put_parity(&o) || put_time(&o) ||
                   put_weights(&o, "start", r->trained->start) ||
                   put_weights(&o, "final", r->trained->final) || put_first_batches(&o)
               ? -1
               : 0;
}

int64_t training_takes(const struct trained *r)
{
    enum { CURVES = 7, OF_EVALUATION = 24 }; /* values of an update, bytes of an evaluation */

    if (!r)
        return 0;
    const int64_t weights = r->layout.storage.elements + r->layout.wide.elements;
    const struct call *batch = &r->of->cell->batch;
    int64_t values = CURVES * r->done + weights * (!!r->start + !!r->final);

    for (int i = 0; i < KEPT_BATCHES; i++)
        values += 2 * !!r->token[i] * DIM(batch, 'T') * DIM(batch, 'B');
    return 8 * values + OF_EVALUATION * r->n_validations;
}
