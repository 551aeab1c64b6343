/* Runs of training side by side (beside.h). */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cblas.h>
#include <omp.h>

#include "common/base/err.h"
#include "common/base/limits.h"
#include "common/call/watch.h"
#include "common/plan/training.h"
#include "common/run/beside.h"
#include "common/run/train_trial.h"
#include "common/run/trial.h"

/* On a GPU: 64 runs of experiments/parity_rates.ini, on an H200, take 4.8 s one after the other, and 2.6 s with 4, 8, 16 and
 * 32 side by side. */
enum { THAT_PAY = 4 };
enum { MOST = 64, NONE = -1 };
static const long LOOK_EACH = 100000000; /* nanoseconds between two looks at the stop */

struct team;

/* A thread and the run that it makes. */
struct worker {
    struct team *team;
    pthread_t thread;
    int trial; /* NONE: it waits */
    int ended, e;
    double part;
    char why[1024]; /* err_text() of its thread */
    struct trial t;
    struct experiment x; /* the caller's, but for its contexts */
    struct contexts contexts;
    struct watch watch;
    struct result r;
};

struct team {
    const struct beside *b;
    struct worker *worker;
    int n, over, threads; /* OpenMP's, of each */
    volatile int stop;
    int lost;       /* ended() was nonzero: nothing more is told to it */
    char why[1024]; /* and err_text() then */
    pthread_mutex_t lock;
    pthread_cond_t given, ended;
};

/* ---- a worker's thread ---- */

static void note_part(double part, void *data)
{
    struct worker *w = data;
    pthread_mutex_lock(&w->team->lock);
    w->part = part;
    pthread_mutex_unlock(&w->team->lock);
}

/* Its contexts are this thread's from the beginning. */
static void run(struct worker *w)
{
    memset(&w->r, 0, sizeof w->r);
    w->e = experiment_device(&w->x);
    if (!w->e)
        w->e = trial_run(&w->x, &w->t, &w->team->stop, no_step, NULL, &w->r);
    snprintf(w->why, sizeof w->why, "%s", w->e ? err_text() : "");
}

static void *work(void *data)
{
    struct worker *w = data;
    struct team *team = w->team;

    omp_set_num_threads(team->threads);
    w->watch = (struct watch){.stop = &team->stop, .part = note_part, .data = w};
    watch_begin(&w->watch);
    pthread_mutex_lock(&team->lock);
    for (;;) {
        while (!team->over && (w->trial == NONE || w->ended))
            pthread_cond_wait(&team->given, &team->lock);
        if (team->over)
            break;
        pthread_mutex_unlock(&team->lock);
        run(w);
        pthread_mutex_lock(&team->lock);
        w->ended = 1;
        pthread_cond_signal(&team->ended);
    }
    pthread_mutex_unlock(&team->lock);
    watch_begin(NULL);
    return NULL;
}

/* ---- the caller's thread; the lock is taken ---- */

/* Gives each that waits a trial; returns how many run. */
static int give(struct team *team)
{
    int running = 0;

    for (int i = 0; i < team->n; i++) {
        struct worker *w = &team->worker[i];
        if (w->trial == NONE && !team->stop) {
            w->trial = team->b->next(&w->t, team->b->data);
            w->part = 0;
            w->ended = 0;
        }
        running += w->trial != NONE;
    }
    if (running)
        pthread_cond_broadcast(&team->given);
    return running;
}

static void show(const struct team *team)
{
    int trial[MOST], n = 0;
    double part[MOST];

    for (int i = 0; i < team->n; i++)
        if (team->worker[i].trial != NONE) {
            trial[n] = team->worker[i].trial;
            part[n++] = team->worker[i].part;
        }
    if (team->b->running)
        team->b->running(trial, part, n, team->b->data);
}

static void wait_a_little(struct team *team)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_EACH;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&team->ended, &team->lock, &until);
    team->stop |= *team->b->stop;
}

/* Takes what has ended.  The others go on meanwhile. */
static int take_ended(struct team *team)
{
    int e = 0;

    for (int i = 0; i < team->n; i++) {
        struct worker *w = &team->worker[i];
        if (w->trial == NONE || !w->ended)
            continue;
        pthread_mutex_unlock(&team->lock);
        if (w->e)
            err_set("%s", w->why);
        if (!team->lost && team->b->ended(w->trial, w->e, &w->r, team->b->data)) {
            snprintf(team->why, sizeof team->why, "%s", err_text());
            e = team->lost = 1;
        }
        result_free(&w->r);
        pthread_mutex_lock(&team->lock);
        w->trial = NONE;
        w->ended = 0;
    }
    return e;
}

static int lead(struct team *team)
{
    int e = 0;

    pthread_mutex_lock(&team->lock);
    team->stop |= *team->b->stop;
    while (give(team)) {
        show(team);
        wait_a_little(team);
        if (take_ended(team))
            e = team->stop = 1;
    }
    team->over = 1;
    pthread_cond_broadcast(&team->given);
    pthread_mutex_unlock(&team->lock);
    return e;
}

/* ---- the team ---- */

/* Those for which there is a thread. */
static int start(struct team *team)
{
    for (; team->n < team->b->n; team->n++) {
        struct worker *w = &team->worker[team->n];
        w->team = team;
        w->trial = NONE;
        w->x = *team->b->x;
        w->x.contexts = &w->contexts;
        const int no = pthread_create(&w->thread, NULL, work, w);
        if (no)
            return team->n ? 0 : err_set("no thread for a run: %s", strerror(no));
    }
    return 0;
}

/* OpenBLAS with threads of its own would share them out among all. */
static void alone_each(int n)
{
#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
    if (n > 1)
        openblas_set_num_threads(1);
#else
    (void)n;
#endif
}

int beside_run(const struct beside *b)
{
    struct team team = {.b = b, .threads = omp_get_max_threads() / b->n};

    team.threads = team.threads > 1 ? team.threads : 1;
    team.worker = calloc(b->n, sizeof *team.worker);
    if (!team.worker)
        return err_set("no memory for %d runs side by side", b->n);
    pthread_mutex_init(&team.lock, NULL);
    pthread_cond_init(&team.given, NULL);
    pthread_cond_init(&team.ended, NULL);
    alone_each(b->n);
    int e = start(&team) || lead(&team);
    for (int i = 0; i < team.n; i++) {
        pthread_join(team.worker[i].thread, NULL);
        contexts_close(&team.worker[i].contexts);
    }
    if (team.lost)
        err_set("%s", team.why);
    pthread_cond_destroy(&team.ended);
    pthread_cond_destroy(&team.given);
    pthread_mutex_destroy(&team.lock);
    free(team.worker);
    return e ? -1 : 0;
}

/* ---- how many ---- */

/* Bytes that are there for runs: a worker's share of this machine's and, where they train on a device, no more than that has. */
static double bytes_left(const struct experiment *x, const struct backend *judged)
{
    const double left = (double)ref64.machine->memory.left(NULL),
                 limit = (double)limits_available(NULL);
    const double there =
        (limit < left ? limit : left) / (x->workers_here > 1 ? x->workers_here : 1);

    if (!judged || backend_unavailable(x->contexts, judged))
        return there;
    const double device = (double)judged->machine->memory.left(context_of(x->contexts, judged));
    return device < there ? device : there;
}

/* As many as fit into memory, each as large as the largest: doubles, so that its tensors on a device are smaller. */
static int that_fit(const struct experiment *x, const struct backend *judged, int n)
{
    const double there = bytes_left(x, judged);
    double largest = 0;

    for (int i = 0; i < x->n; i++) {
        if (i && !training_difference(&x->trial[i - 1], &x->trial[i]))
            continue; /* rates and seeds take none */
        const double bytes = training_memory(&x->trial[i]);
        largest = bytes > largest ? bytes : largest;
    }
    const double fit = largest > 0 ? there / largest : n;
    return fit < n ? (fit < 1 ? 1 : (int)fit) : n;
}

int beside_count(const struct experiment *x)
{
    const struct backend *judged = NULL;
    int n = omp_get_max_threads();

    if (x->measure != MEASURE_TRAIN || !x->n)
        return 1;
    for (int i = 0; i < x->n && !judged; i++) {
        const struct backend *b = training_place(x, &x->trial[i]);
        judged = is_judged(b) ? b : NULL;
    }
    if (judged)
        n = x->per_device ? x->per_device : THAT_PAY;
    n = n < x->n ? n : x->n;
    return that_fit(x, judged, n < MOST ? n : MOST);
}
