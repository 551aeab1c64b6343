/* A trial of measure = train (train_trial.h). */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/build.h"
#include "common/base/err.h"
#include "common/base/file.h"
#include "common/base/fnv.h"
#include "common/base/grow.h"
#include "common/base/number.h"
#include "common/call/watch.h"
#include "common/plan/training.h"
#include "common/run/states.h"
#include "common/run/train_trial.h"
#include "common/train/run.h"

/* ---- where ---- */

const struct backend *training_place(const struct experiment *x, const struct trial *t)
{
    const struct backend *b = training_backend(x, t);

    for (int i = 0; !b && judged_backend(i); i++)
        if (judged_backend(i)->type == t->type &&
            !backend_unavailable(x->contexts, judged_backend(i)))
            b = judged_backend(i);
    return b ? b : reference_of(t->type);
}

int training_checkpoints(const struct experiment *x, const struct trial *t, const struct backend *b,
                         struct checkpoints *to)
{
    const struct states *s = x->states;
    const struct backend *on = b ? b : training_place(x, t);
    const char *no = backend_unavailable(x->contexts, on);
    struct checkpoint_of *of = &to->of;

    if (no)
        return err_set("%s: %s", on->name, no);
    *to = (struct checkpoints){.use = s->use, .say = s->say, .data = s->data};
    states_file(s, t->number, to->file);
    snprintf(of->plan, sizeof of->plan, "%s", x->name);
    snprintf(of->corpus, sizeof of->corpus, "%s", *t->file ? t->contents : "none");
    snprintf(of->seed, sizeof of->seed, "%llu", (unsigned long long)x->seed);
    if (training_line(t, of->line)) /* with the rate that a search has found */
        return -1;
    snprintf(of->backend, sizeof of->backend, "%s", on->name);
    snprintf(of->device, sizeof of->device, "%s",
             on->machine->device.name(context_of(x->contexts, on)));
    build_text(of->build);
    return 0;
}

/* ---- how far it is ---- */

const char *training_text(const struct trained *r, char text[TRAINING_TEXT])
{
    const int64_t all = r->of->cell->until;
    const struct validation *v = r->n_validations ? &r->validation[r->n_validations - 1] : NULL;
    char rate[NUMBER_TEXT];

    snprintf(text, TRAINING_TEXT, "update %lld of %lld, loss %.4g", (long long)r->done,
             (long long)all, r->done ? r->loss[r->done - 1] : 0);
    if (v)
        append(text, TRAINING_TEXT, ", accuracy %.3f", v->accuracy);
    if (trained_rate(r) > 0)
        append(text, TRAINING_TEXT, ", %s tokens/s", number_count(trained_rate(r), rate));
    return text;
}

/* What report() needs. */
struct reporting {
    const struct task *task;
    char text[TRAINING_TEXT];
};

static void report(const struct training *t, const struct trained *r)
{
    struct reporting *w = t->data;

    watch_part((double)r->done / (double)t->cell->until);
    w->task->step(training_text(r, w->text), w->task->data);
}

/* ---- the runs ---- */

static int train_on(const struct task *task, const struct backend *b, const unsigned char *corpus,
                    struct reporting *w)
{
    struct result *r = task->r;
    const char *no = backend_unavailable(task->x->contexts, b);
    struct context *x = no ? NULL : context_of(task->x->contexts, b);
    struct training *t = r->training;

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
                           .report = report,
                           .data = w};
    t->n_lengths = training_lengths(task->t, t->length);
    struct checkpoints *c = task->x->states ? malloc(sizeof *c) : NULL;
    int e = t->n_lengths < 0;
    if (task->x->states)
        e = e || (!c ? err_set("no memory for a checkpoint")
                     : training_checkpoints(task->x, task->t, b, c));
    t->checkpoints = c;
    e = e || train(t, &r->verdicts, r->trained);
    t->report = NULL;
    t->checkpoints = NULL;
    free(c);
    return e;
}

int training_corpus(const struct trial *t, unsigned char **to)
{
    char now[MAX_CONTENTS];
    size_t n = 0;

    *to = NULL;
    if (!*t->file)
        return 0;
    if (!(*to = file_read(t->file, &n)))
        return -1;
    file_contents_text(fnv1a64(FNV_BEGIN, *to, n), n, now);
    if (strcmp(now, t->contents) == 0)
        return 0;
    free(*to);
    *to = NULL;
    return err_set("%s: has changed since the experiment began", t->file);
}

int training_run(const struct task *task)
{
    struct result *r = task->r;
    const struct backend *b = training_place(task->x, task->t);
    struct reporting w = {.task = task};
    unsigned char *corpus;

    if (training_corpus(task->t, &corpus))
        return TRIAL_BAD_INPUT;
    if (cell_waits(&task->t->call)) {
        free(corpus);
        return err_set("lr = " BEST_RATE ": no search has found it; give a rate");
    }
    r->cell = malloc(sizeof *r->cell);
    r->training = calloc(1, sizeof *r->training);
    r->trained = calloc(1, sizeof *r->trained);
    int e = !r->cell || !r->training || !r->trained
                ? err_set("no memory for a run")
                : cell_read(&task->t->call, task->t->seed, r->cell);
    e = e || train_on(task, b, corpus, &w);
    if (task->x->checks & CHECK_PARITY && !is_judged(b))
        result_skip(r, "parity", "no GPU trains: there is nothing that the oracle would judge");
    free(corpus);
    r->failed = verdicts_failed(&r->verdicts, 0);
    return e;
}

void training_free(struct result *r)
{
    if (r->trained)
        trained_free(r->trained);
    free(r->trained);
    free(r->training);
    free(r->cell);
}
