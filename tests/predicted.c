/* The size of a dump of training: what is written is at most what was predicted, and not far less, with and without
 * verdicts; and so are the files of workers, in number and size.  A reference stands for a GPU: train() has it judged. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/plan/memory.h"
#include "common/plan/training.h"
#include "common/store/alone.h"
#include "common/store/predict.h"
#include "common/store/write_trial.h"
#include "tests/suite.h"

static const double LARGEST = 2; /* of predicted / written */
static char file[48], alone[64];

/* Makes the run of the plan, and its dump. */
static int write_dump(const struct experiment *x, int judged, int *n_verdicts)
{
    struct result r = {.trial = &x->trial[0]};
    struct cell *c = malloc(sizeof *c);
    struct trained *got = calloc(1, sizeof *got);
    struct training t = {.cell = c,
                         .backend = &ref32,
                         .context = context_of(here(), &ref32),
                         .seed = r.trial->seed,
                         .data_seed = x->seed,
                         .judged = judged,
                         .keep = x->save == SAVE_FINAL};
    int e = !c || !got || cell_read(&r.trial->call, r.trial->seed, c);

    t.n_lengths = training_lengths(r.trial, t.length);
    e = e || train(&t, &r.verdicts, got);
    r.trained = got;
    r.training = &t;
    r.cell = c;
    struct store *s = e ? NULL : store_open(x, STORE_REPLACE);
    e = !s || store_write(s, 0, &r) || store_write_alone(alone, x, 0, &r);
    e = !s || store_close(s, !e) || e;
    *n_verdicts = r.verdicts.n;
    verdicts_free(&r.verdicts);
    if (got)
        trained_free(got);
    free(got);
    free(c);
    return e;
}

/* Of the run of these words. */
static void one(const char *words, int judged)
{
    struct experiment x;
    struct stat is = {.st_size = 0};
    char text[500];
    int n = 0;

    snprintf(text, sizeof text, "train %s backends=ref32 eval_rows=8 compress=0 output=%s", words,
             file);
    if (plan_words(text, &x, stdout)) {
        ok(0, "%s: is a plan", words);
        return;
    }
    x.contexts = here();
    const double more =
        predict_training(&x.trial[0], x.save == SAVE_FINAL, judged) - predict_trial(&x, 0);
    const double dump = predict_dump(&x, NULL) + more;
    const int e = write_dump(&x, judged, &n) || stat(file, &is);
    const double written = (double)is.st_size;
    if (!ok(!e && written <= dump && dump <= LARGEST * written && !n == !judged,
            "%s%s: no more than predicted", words, judged ? ", judged" : ""))
        printf("# %.0f bytes predicted, %.0f written, %d verdicts: %s\n", dump, written, n,
               e ? err_text() : "");
    if (!judged)
        ok(predict_trial(&x, 0) == predict_training(&x.trial[0], x.save == SAVE_FINAL, 0),
           "nothing is judged on a reference");
    x.workers = 3; /* of one trial: a file */
    const double beside = predict_workers(&x, NULL) - DUMP_SPARE + more;
    if (!ok(!e && !stat(alone, &is) && (double)is.st_size <= beside &&
                beside <= LARGEST * (double)is.st_size,
            "%s: nor does a worker's file", words))
        printf("# %.0f bytes predicted, %lld written\n", beside, (long long)is.st_size);
    unlink(alone);
    unlink(file);
    plan_free(&x);
}

/* The largest trials of n that run at once, in memory and on disk. */
static void workers(void)
{
    struct experiment x;
    double memory[4], disk[4];

    if (plan_words("softmax rows=4096,64,1024,4 columns=100 backends=ref32", &x, stdout)) {
        ok(0, "four trials: a plan");
        return;
    }
    x.contexts = here();
    for (x.workers = 1; x.workers <= 4; x.workers++) {
        memory[x.workers - 1] = memory_of_largest(&x, x.workers);
        disk[x.workers - 1] = predict_workers(&x, NULL);
    }
    const double of[] = {memory_of_trial(&x, &x.trial[0], 1e15),
                         memory_of_trial(&x, &x.trial[2], 1e15)};
    ok(of[0] > of[1] && memory[0] == of[0] && memory[1] == of[0] + of[1], "memory of the largest");
    ok(disk[0] > predict_trial(&x, 0) + DUMP_SPARE &&
           disk[1] - disk[0] > predict_trial(&x, 2) + DUMP_SPARE &&
           disk[1] - disk[0] < predict_trial(&x, 0) + DUMP_SPARE,
       "disk of the largest");
    x.workers = 9;
    ok(memory_of_largest(&x, 9) == memory[3] && predict_workers(&x, NULL) == disk[3],
       "no more than there are");
    x.workers = 0;
    ok(predict_workers(&x, NULL) == 0, "no workers, no files");
    plan_free(&x);
}

#define Z "mixer=e74 proj=full z_mod=row n_state=4 width=8 batch=4 length=6 "

int main(void)
{
    static const char *const plans[] = {
        Z "updates=40 save=none",
        Z "updates=4000 save=none parity_every=400",
        Z "updates=300 save=final eval=3,6,24 blocks=3",
        "mixer=none width=8 batch=2 length=4 updates=200 parity_every=1 save=none",
        "mixer=attention width=16 dim=16 blocks=2 mlp=24 batch=2 length=4 updates=30 "
        "parity_every=2",
        "mixer=dual_memory width=8 dim=8 slots=3 batch=2 length=4 updates=30 parity_every=2",
        "mixer=e74_block width=8 n_state=4 batch=2 length=4 updates=30 parity_every=2",
        "mixer=attention width=128 dim=128 blocks=2 batch=2 length=4 updates=8 save=final"};

    snprintf(file, sizeof file, "/tmp/predicted.%ld.h5", (long)getpid());
    snprintf(alone, sizeof alone, "%s.part.w0", file);
    for (int i = 0; i < (int)COUNT(plans); i++)
        for (int judged = 0; judged < 2; judged++)
            one(plans[i], judged);
    workers();
    return done();
}
