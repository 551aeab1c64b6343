/* libablate.so, opened by a program that is not linked with it: cases run, judged, written and read
 * by many threads at once have the bits of one thread; and the library can be closed and opened
 * again, also while threads that used it are alive. */
#define _GNU_SOURCE
#include "config.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/ablate.h"
#include "tests/tap.h"

/* ---- the library ---- */

#define FUNCTIONS(DO)                                                                              \
    DO(abl_error)                                                                                  \
    DO(abl_unavailable)                                                                            \
    DO(abl_case_new)                                                                               \
    DO(abl_case_read)                                                                              \
    DO(abl_case_free)                                                                              \
    DO(abl_tensor)                                                                                 \
    DO(abl_get)                                                                                    \
    DO(abl_run)                                                                                    \
    DO(abl_result_free)                                                                            \
    DO(abl_result_get)                                                                             \
    DO(abl_judge)                                                                                  \
    DO(abl_verdicts_free)                                                                          \
    DO(abl_count)                                                                                  \
    DO(abl_failed)                                                                                 \
    DO(abl_verdict)                                                                                \
    DO(abl_write)

#define MEMBER(name) __typeof__(&name) name;
static struct {
    FUNCTIONS(MEMBER)
} lib;

/* The functions of the opened library; whether it has all of them. */
static int find_functions(void *library)
{
#define FIND(name) *(void **)&lib.name = dlsym(library, #name);
    FUNCTIONS(FIND)
#define FOUND(name) &&lib.name
    return 1 FUNCTIONS(FOUND);
}

static void *open_library(void)
{
    void *library = dlopen("./libablate.so", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        printf("# %s\n", dlerror());
    return ok(library && find_functions(library), "the library is opened") ? library : NULL;
}

/* ---- what one thread does ---- */

static const struct task {
    const char *words, *backend;
} tasks[] = {
    {"softmax rows=9 columns=300", "ref64"},
    {"gemm M=40 N=33 K=70", "ref32"},
    {"softmax rows=9 columns=300", "gpu32"},
    {"e74_cell state=full steps=5 batch=2 heads=2 n_state=8", "ref32"},
    {"gemm M=40 N=33 K=70", "ref64"},
    {"e74_cell state=diagonal steps=5 batch=2 heads=2 n_state=8", "gpu32"},
    {"gemm M=40 N=33 K=70 dtype=bf16", "gpu_bf16"},
};
enum { TASKS = sizeof tasks / sizeof *tasks, THREADS = 8, ROUNDS = 3 };

/* What a task gives, as hashes of all bits; 0 after an error. */
struct bits {
    uint64_t run, verdicts, file;
};

static uint64_t hash(uint64_t sum, const void *data, size_t n) /* FNV-1a */
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < n; i++)
        sum = (sum ^ byte[i]) * 0x100000001b3;
    return sum;
}

/* All inputs of a case, or, with r, all results. */
static uint64_t hash_tensors(const abl_case *c, const abl_result *r)
{
    struct abl_tensor t;
    uint64_t sum = 1;

    for (int i = 0; sum && lib.abl_tensor(c, i, &t) == 0; i++) {
        const int input = t.role == ABL_INPUT;
        if (r ? input && !t.has_gradient : !input)
            continue;
        char name[64];
        double *x = malloc(t.count * sizeof *x);
        snprintf(name, sizeof name, "%s%s", r && input ? "d_" : "", t.name);
        int e =
            !x || (r ? lib.abl_result_get(r, name, x, t.count) : lib.abl_get(c, name, x, t.count));
        sum = e ? 0 : hash(sum, x, t.count * sizeof *x);
        free(x);
    }
    return sum;
}

static uint64_t hash_verdicts(const abl_verdicts *v)
{
    struct abl_verdict one;
    uint64_t sum = lib.abl_count(v) > 0 && lib.abl_failed(v) == 0;

    for (int i = 0; sum && lib.abl_verdict(v, i, &one) == 0; i++) {
        const double numbers[] = {one.error, one.norm, one.bound, one.pass};
        sum = hash(sum, numbers, sizeof numbers);
    }
    return sum;
}

/* Writes the case, the result and the verdicts, and reads the case. */
static uint64_t hash_file(const abl_case *c, const abl_result *r, const abl_verdicts *v)
{
    char file[] = "shared.XXXXXX";
    int fd = mkstemp(file);
    abl_case *read = NULL;

    close(fd);
    if (fd >= 0 && lib.abl_write(file, c, &r, 1, v) == 0)
        read = lib.abl_case_read(file, "/trial/0001");
    uint64_t sum = read ? hash_tensors(read, NULL) : 0;
    unlink(file);
    lib.abl_case_free(read);
    return sum;
}

static struct bits do_task(const struct task *t)
{
    abl_case *c = lib.abl_case_new(t->words);
    abl_result *r = c ? lib.abl_run(c, t->backend, NULL, 0) : NULL;
    abl_verdicts *v = r ? lib.abl_judge(c, t->backend, NULL, ABL_PARITY | ABL_PROPERTIES) : NULL;
    struct bits b = {0, 0, 0};

    if (v)
        b = (struct bits){hash_tensors(c, r), hash_verdicts(v), hash_file(c, r, v)};
    lib.abl_verdicts_free(v);
    lib.abl_result_free(r);
    lib.abl_case_free(c);
    return b;
}

/* ---- threads ---- */

/* The bits that one thread alone got; run is 0 where the backend is unavailable. */
static struct bits want[TASKS];

static void alone(void)
{
    for (int i = 0; i < TASKS; i++) {
        const struct task *t = &tasks[i];
        const char *why = lib.abl_unavailable(t->backend);
        want[i] = (struct bits){0, 0, 0};
        if (why) {
            skip(why, "%s on %s, one thread", t->words, t->backend);
            continue;
        }
        want[i] = do_task(t);
        if (!ok(want[i].run && want[i].verdicts && want[i].file, "%s on %s, one thread", t->words,
                t->backend))
            printf("# %s\n", lib.abl_error());
    }
}

/* A thread: every task, from another one on, and some rounds. */
struct worker {
    pthread_t thread;
    int first, same[TASKS];
    char why[500];             /* of the last that differs */
    pthread_barrier_t *closed; /* NULL, or it ends after two of these */
};

static void *work(void *data)
{
    struct worker *w = data;

    for (int n = 0; n < ROUNDS * TASKS; n++) {
        const int i = (w->first + n) % TASKS;
        if (!want[i].run)
            continue;
        const struct bits got = do_task(&tasks[i]);
        const int same = memcmp(&got, &want[i], sizeof got) == 0;
        w->same[i] += same;
        if (!same)
            snprintf(w->why, sizeof w->why, "%s", got.run ? "other bits" : lib.abl_error());
    }
    for (int i = 0; w->closed && i < 2; i++)
        pthread_barrier_wait(w->closed);
    return NULL;
}

/* All threads at once; with `closed` they are alive when this returns. */
static void start(struct worker *w, pthread_barrier_t *closed)
{
    for (int i = 0; i < THREADS; i++) {
        w[i] = (struct worker){.first = i, .closed = closed};
        if (pthread_create(&w[i].thread, NULL, work, &w[i])) {
            printf("Bail out! no thread\n");
            exit(EXIT_FAILURE);
        }
    }
}

static void judge(const struct worker *w, const char *when)
{
    for (int i = 0; i < TASKS; i++) {
        int same = 0;
        if (!want[i].run)
            continue;
        for (int k = 0; k < THREADS; k++)
            same += w[k].same[i];
        ok(same == THREADS * ROUNDS, "%s on %s, the same bits %d times in %d threads, %s",
           tasks[i].words, tasks[i].backend, same, THREADS, when);
    }
    for (int k = 0; k < THREADS; k++)
        if (*w[k].why)
            printf("# thread %d: %s\n", k, w[k].why);
}

static void join(struct worker *w)
{
    for (int i = 0; i < THREADS; i++)
        pthread_join(w[i].thread, NULL);
}

/* Opened, used by threads that end before it is closed. */
static void closed_after(void)
{
    struct worker w[THREADS];
    void *library = open_library();

    if (!library)
        return;
    alone();
    start(w, NULL);
    join(w);
    judge(w, "which end");
    ok(dlclose(library) == 0, "the library is closed");
}

/* Opened again, used by threads that end after it is closed. */
static void closed_before(void)
{
    struct worker w[THREADS];
    pthread_barrier_t closed;
    void *library = open_library();

    if (!library)
        return;
    alone();
    pthread_barrier_init(&closed, NULL, THREADS + 1);
    start(w, &closed);
    pthread_barrier_wait(&closed);
    ok(dlclose(library) == 0, "the library is closed under threads that used it");
    pthread_barrier_wait(&closed);
    join(w);
    pthread_barrier_destroy(&closed);
    judge(w, "which end later");
}

int main(void)
{
    closed_after();
    closed_before();
    return done();
}
