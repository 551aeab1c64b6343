/* Predicts the size of a dump: the tensors that each trial will store, as write_trial.c lists them of a
 * result, and what HDF5 needs around them (predict.h). */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "common/base/err.h"
#include "common/base/largest.h"
#include "common/base/file.h"
#include "common/base/number.h"
#include "common/plan/training.h"
#include "common/program/layout.h"
#include "common/run/train_trial.h"
#include "common/store/output.h"
#include "common/store/predict.h"
#include "common/store/write_trial.h"
#include "common/train/judge.h"

/* What HDF5 takes, at most, as measured with 1.10.8: of a dump, of a file of one trial, of a trial with its attributes, dimensions
 * and tables, of each dataset with its header, its names of axes and its place in a group, and of a row of a
 * table with its strings.  Data of 3072 bytes or more begins at a multiple of 4096 (store.c). */
enum {
    OF_DUMP = 20480,
    OF_FILE = 8192,
    OF_TRIAL = 12288,
    OF_DATASET = 1536,
    OF_ROW = 512,
    ALIGNED = 3072,
    PAGE = 4096
};
/* And of a run of training: a dataset without units and storage type; a row of its tables of verdicts, with four texts, and of
 * judged updates; how many datasets it has of each length. */
enum {
    OF_SERIES = 512,
    OF_PARITY_ROW = 256,
    OF_JUDGED = 16,
    CURVES = 7,
    EVALS = 3,
    TESTS = 2,
    LENGTHS = 4
};

/* The result that a trial would have, all of it pretended.  Nobody looks at a tensor's values. */
struct pretended {
    struct result r;
    struct tensors t;
    struct sampled sampled;
    double x;
    unsigned char b;
    int64_t bytes[MAX_DUMPED];
};

static void pretend_tensors(struct pretended *p, const struct call *f)
{
    struct tensors *t = &p->t;

    for (int i = 0; i < f->op->n_args; i++) {
        if (!op_count(f, i))
            continue;
        if (op_is_bytes(f, i))
            t->b[i] = &p->b;
        else
            t->x[i] = &p->x;
        t->g[i] = f->op->arg[i].flags & DIFF ? &p->x : NULL;
        t->g0[i] = call_accumulates(f, i) ? &p->x : NULL;
    }
}

/* The backends that will run, and of each the one kernel that keeps its tensors.  Where a GPU is judged by
 * a sample, and where a check would be but there is none, the references keep none. */
static void pretend_runs(struct pretended *p, const struct experiment *x, const struct trial *t)
{
    const struct backend *list[16];
    const int n = plan_backends(x, t, list);

    for (int i = 0; i < n; i++) {
        const struct call on = trial_on(x, t, list[i], NULL);
        const char *name = is_judged(list[i]) && *t->kernel ? t->kernel : NULL;
        const struct impl *k =
            backend_unavailable(x->contexts, list[i]) ? NULL : impl_choose(&on, name).kernel;
        if (k)
            p->r.ran[p->r.n_ran++] = (struct ran){.call = trial_on(x, t, list[i], k), .t = &p->t};
    }
    if (t->sampled && (x->measure == MEASURE_CHECK || p->r.n_ran > YARDSTICK + 1))
        p->r.ran[ORACLE].t = p->r.ran[YARDSTICK].t = NULL;
}

static int pretend_sample(struct pretended *p, const struct trial *t)
{
    if (!t->sampled || p->r.n_ran <= YARDSTICK + 1)
        return 0;
    if (sampled_cuts(&p->sampled, &p->r.ran[YARDSTICK].call, SAMPLE_ROWS, t->seed))
        return -1;
    for (int i = 0; i < p->sampled.n_cuts; i++)
        p->sampled.cut[i].truth.oracle = p->sampled.cut[i].truth.yard = &p->t;
    p->r.sampled = &p->sampled;
    return 0;
}

static void forget_sample(struct pretended *p)
{
    for (int i = 0; i < p->sampled.n_cuts; i++)
        p->sampled.cut[i].truth.oracle = p->sampled.cut[i].truth.yard = NULL;
    sampled_free(&p->sampled);
}

static int kernels_of(const struct call *f)
{
    const struct impl *k;
    int n = 0;
    for (int i = 0; (k = op_kernel(f->op, f->backend, i)); i++)
        n++;
    return n;
}

/* The rows of a trial's tables, and more: of each result parity, by each kernel that is timed or judged; the
 * differences; and of the yardstick and what is judged the properties, of which an axis of time and
 * one of the batch each have two. */
static double rows(const struct experiment *x, const struct trial *t, const struct result *r)
{
    const struct op *o = t->call.op;
    const int properties = x->checks & CHECK_PROPERTIES ? 2 + 2 * !!o->batch + 2 * !!o->time : 0;
    int results = 0, kernels = 0;

    for (int i = YARDSTICK; i < r->n_ran; i++)
        kernels += x->measure == MEASURE_CHECK ? 1 : kernels_of(&r->ran[i].call);
    FOR_RESULTS (&t->call, i, grad)
        results++;
    const double verdicts = x->checks ? results * (1. + kernels * (1 + properties)) : 0;
    const double times = x->repeats ? 1 + 2. * kernels : 0;
    return verdicts + times * (x->measure == MEASURE_CROSSOVER ? MAX_POINTS : 1);
}

/* On disk, of so many bytes of data. */
static double aligned(double bytes)
{
    const double page = bytes >= ALIGNED ? PAGE : 1;
    return ceil(bytes / page) * page;
}

static double file_bytes(struct pretended *p, const struct experiment *x, const struct trial *t)
{
    const int n = dump_tensors(x, &p->r, p->bytes);
    double sum = OF_TRIAL + OF_ROW * rows(x, t, &p->r) + (double)strlen(t->text);

    for (int i = 0; i < n; i++)
        sum += aligned((double)p->bytes[i]) + OF_DATASET;
    return n < 0 ? -1 : sum;
}

/* ---- a run of training, as write_training.c writes it ---- */

/* So many doubles. */
static double series(double n)
{
    return aligned(8 * n) + OF_SERIES;
}

/* Verdicts, with their texts, and the updates that they are on. */
static double verdict_bytes(const struct cell *c)
{
    const double judged = fmin((double)c->until, 3 + (double)(c->until / c->parity_every));
    return (OF_ROW + OF_PARITY_ROW) * (judged * update_verdicts(c) + 1) + OF_JUDGED * judged +
           3 * OF_DATASET;
}

/* The weights of the start and of the end, and the first batches. */
static double kept_bytes(const struct cell *c)
{
    struct layout *l = malloc(sizeof *l);
    const int64_t batch = DIM(&c->batch, 'T') * DIM(&c->batch, 'B');
    double bytes = 2 * series((double)(KEPT_BATCHES * batch));

    if (!l)
        return bytes;
    const struct call f = call_on(&c->model, &ref64, NULL, NULL);
    layout_find(l, &f);
    for (int i = 0; i < l->storage.n; i++)
        bytes += 2 * series((double)l->storage.part[i].n);
    for (int i = 0; i < l->wide.n; i++)
        bytes += 2 * series((double)l->wide.part[i].n);
    free(l);
    return bytes;
}

double predict_training(const struct trial *t, int keep, int judged)
{
    struct cell *c = malloc(sizeof *c);
    double bytes = OF_TRIAL + (double)strlen(t->text);

    if (c && !cell_read(&t->call, t->seed, c)) {
        int64_t length[MAX_LENGTHS];
        const double validated = 1 + (c->eval_every ? (double)(c->until / c->eval_every) : 0);
        bytes += CURVES * series((double)c->until) + EVALS * series(validated) + TESTS * series(10);
        if (training_lengths(t, length) > 0)
            bytes += LENGTHS * series(MAX_LENGTHS);
        if (judged && c->parity_every)
            bytes += verdict_bytes(c);
        if (keep)
            bytes += kept_bytes(c);
    }
    free(c);
    return bytes;
}

/* Has it the verdicts of a backend that is judged? */
static int has_verdicts(const struct experiment *x, const struct trial *t)
{
    return x->checks & CHECK_PARITY && is_judged(training_place(x, t));
}

double predict_trial(const struct experiment *x, int i)
{
    const struct trial *t = &x->trial[i];
    struct pretended *p = calloc(1, sizeof *p);
    double bytes = -1;

    if (x->measure == MEASURE_TRAIN) {
        free(p);
        return predict_training(t, x->save == SAVE_FINAL, has_verdicts(x, t));
    }
    if (!p) {
        err_set("no memory to predict the size of a dump");
        return -1;
    }
    p->r.trial = t;
    pretend_tensors(p, &t->call);
    if (x->measure != MEASURE_CROSSOVER)
        p->r.inputs = &p->t;
    if (!x->inputs_only)
        pretend_runs(p, x, t);
    if (!pretend_sample(p, t))
        bytes = file_bytes(p, x, t);
    forget_sample(p);
    free(p);
    return bytes;
}

double predict_dump(const struct experiment *x, struct store *s)
{
    struct store_counts ignored;
    double sum = s ? 0 : OF_DUMP + (double)strlen(x->text);

    for (int i = 0; i < x->n; i++) {
        const double bytes = s && store_has(s, i, &ignored) ? 0 : predict_trial(x, i);
        if (bytes < 0)
            return -1;
        sum += bytes;
    }
    return sum;
}

double predict_workers(const struct experiment *x, struct store *s)
{
    struct store_counts ignored;
    double *bytes = malloc((x->n + 1) * sizeof *bytes), sum = 0;
    int n = 0, e = bytes ? 0 : err_set("no memory for %d trials", x->n);

    for (int i = 0; !e && x->workers && i < x->n; i++)
        if (!s || !store_has(s, i, &ignored)) {
            e = (bytes[n] = predict_trial(x, i)) < 0;
            bytes[n++] += OF_FILE + (double)strlen(x->text) + DUMP_SPARE;
        }
    if (!e)
        sum = largest_sum(bytes, n, x->workers);
    free(bytes);
    return e ? -1 : sum;
}

/* What a user may still write there; -1 where the file system does not say. */
static double free_bytes(const char *file)
{
    char folder[MAX_OUTPUT + 2];
    struct statvfs is;

    if (statvfs(file_folder(file, folder, sizeof folder), &is) || !is.f_blocks)
        return -1;
    return (double)is.f_bavail * (double)(is.f_frsize ? is.f_frsize : is.f_bsize);
}

/* A setting by which the dump becomes smaller. */
static const char *smaller(const struct experiment *x)
{
    static const char *const save[] = {[SAVE_ALL] = "; set save = outputs or none",
                                       [SAVE_OUTPUTS] = "; set save = none",
                                       [SAVE_NONE] = "",
                                       [SAVE_FINAL] = "; set save = none"};
    return x->inputs_only ? "" : save[x->save]; /* inputs are saved in any case */
}

int predict_fits(const struct experiment *x, struct store *s)
{
    const double dump = predict_dump(x, s), beside = dump < 0 ? -1 : predict_workers(x, s);
    char needs[NUMBER_TEXT], spare[NUMBER_TEXT], has[NUMBER_TEXT];
    char from[40] = "";
    struct output o;

    if (beside < 0 || output_find(x, &o))
        return -1;
    const double there = free_bytes(o.file);
    if (there < 0 || dump + DUMP_SPARE + beside <= there)
        return 0;
    if (x->workers)
        snprintf(from, sizeof from, " from %d workers' files", x->workers);
    err_set("%s: needs up to %s%s, and %s to spare while it is written%s; %s are free there%s",
            x->output, number_bytes(dump, needs), s ? " more" : "",
            number_bytes(DUMP_SPARE + beside, spare), from, number_bytes(there, has), smaller(x));
    return err_advise(ADVICE_ELSEWHERE);
}
