/* A trial of measure = train (train_trial.h). */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/grow.h"
#include "common/base/number.h"
#include "common/call/watch.h"
#include "common/run/train_trial.h"
#include "common/train/run.h"

enum { MAX_TRAINED = 8 };

/* ---- where ---- */

/* Those that are named, of the trial's type or, the oracle, of whatever type; else the first that is judged and there;
 * else the reference of that type. */
static int backends_of(const struct task *task, const struct backend *to[MAX_TRAINED])
{
    const struct experiment *x = task->x;
    const enum dtype type = task->t->type;
    int n = 0;

    for (int i = 0; i < x->n_backends && n < MAX_TRAINED; i++)
        if (x->backend[i]->type == type || x->backend[i] == &ref64)
            to[n++] = x->backend[i];
    for (int i = 0; !x->n_backends && !n && judged_backend(i); i++)
        if (judged_backend(i)->type == type && !backend_unavailable(x->contexts, judged_backend(i)))
            to[n++] = judged_backend(i);
    if (!x->n_backends && !n)
        to[n++] = reference_of(type);
    return n;
}

/* ---- how far it is ---- */

const char *training_text(const struct trained *r, char text[TRAINING_TEXT])
{
    const int64_t all = r->of->cell->until;
    const struct validation *v = r->n_validations ? &r->validation[r->n_validations - 1] : NULL;
    char rate[NUMBER_TEXT];

    snprintf(text, TRAINING_TEXT, "update %lld of %lld, loss %.4g", (long long)r->done, (long long)all,
             r->done ? r->loss[r->done - 1] : 0);
    if (v)
        append(text, TRAINING_TEXT, ", accuracy %.3f", v->accuracy);
    if (trained_rate(r) > 0)
        append(text, TRAINING_TEXT, ", %s tokens/s", number_count(trained_rate(r), rate));
    return text;
}

/* What tell() needs. */
struct telling {
    const struct task *task;
    char text[TRAINING_TEXT];
};

static void tell(const struct training *t, const struct trained *r)
{
    struct telling *w = t->data;

    watch_part((double)r->done / (double)t->cell->until);
    w->task->step(training_text(r, w->text), w->task->data);
}

/* ---- the runs ---- */

static int train_on(const struct task *task, const struct backend *b, const unsigned char *corpus, struct telling *w)
{
    struct result *r = task->r;
    const char *no = backend_unavailable(task->x->contexts, b);
    struct context *x = no ? NULL : context_of(task->x->contexts, b);
    struct training *t = &r->training[r->n_trained];

    if (no)
        return err_set("%s: %s", b->name, no);
    *t = (struct training){.cell = r->cell,
                           .backend = b,
                           .context = x,
                           .seed = task->t->seed,
                           .data_seed = task->x->seed,
                           .corpus = corpus,
                           .judged = is_judged(b) && task->x->checks & CHECK_PARITY,
                           .keep = task->x->save == SAVE_FINAL,
                           .stop = task->stop,
                           .tell = tell,
                           .data = w};
    const int e = train(t, &r->verdicts, &r->trained[r->n_trained++]);
    t->tell = NULL;
    return e;
}

static unsigned char *corpus_of(const struct trial *t, size_t *n)
{
    return *t->file ? file_read(t->file, n) : NULL;
}

int training_run(const struct task *task)
{
    struct result *r = task->r;
    const struct backend *b[MAX_TRAINED];
    struct telling w = {.task = task};
    const int n = backends_of(task, b);
    size_t bytes = 0;
    unsigned char *corpus = corpus_of(task->t, &bytes);
    int judged = 0;

    if (*task->t->file && !corpus)
        return TRIAL_BAD_INPUT;
    r->cell = malloc(sizeof *r->cell);
    r->training = calloc(n + 1, sizeof *r->training);
    r->trained = calloc(n + 1, sizeof *r->trained);
    int e = !r->cell || !r->training || !r->trained ? err_set("no memory for a run")
            : !n ? err_set("no backend that is named stores %s", types[task->t->type].name)
                 : cell_read(&task->t->call, task->t->seed, r->cell);
    if (!e && corpus && (int64_t)bytes != cell_corpus(&r->cell->batch))
        e = err_set("%s has changed: it has %zu bytes now", task->t->file, bytes);
    for (int i = 0; !e && i < n; i++) {
        judged += is_judged(b[i]);
        e = train_on(task, b[i], corpus, &w);
    }
    if (task->x->checks & CHECK_PARITY && !judged)
        result_skip(r, "parity", "no GPU trains: there is nothing that the oracle would judge");
    free(corpus);
    r->failed = verdicts_failed(&r->verdicts, 0);
    return e;
}

void training_free(struct result *r)
{
    for (int i = 0; i < r->n_trained; i++)
        trained_free(&r->trained[i]);
    free(r->trained);
    free(r->training);
    free(r->cell);
}
