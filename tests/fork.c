/* The library in a forked process, whose parent has run cases: it has the parent's bits, and it
 * does not wait for threads that only the parent has.  On a GPU it is refused. */
#include "config.h"

#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/ablate.h"
#include "tests/tap.h"

/* AddressSanitizer's malloc() is not made for a fork: the child waits for ever for a lock of it that
 * another thread held.  (Seen with GCC 12's, on a busy machine.)  With it, the parent has one
 * thread. */
#ifdef __SANITIZE_ADDRESS__
enum { ALONE = 1, THREADS = 1 };
#else
enum { ALONE = 0, THREADS = 3 };
#endif
enum { MAX = 1 << 18, SECONDS = 120, CHILDREN = 20 };

/* All results of a run, one after the other. */
struct values {
    int64_t n;
    double x[MAX];
};

/* Appends a result; -1 after an error. */
static int append(struct values *to, const abl_result *r, const char *name, int64_t n)
{
    if (n > MAX - to->n || abl_result_get(r, name, to->x + to->n, n))
        return -1;
    to->n += n;
    return 0;
}

/* The results of the case on a backend; -1 after an error. */
static int values_of(const abl_case *c, const char *backend, struct values *to)
{
    abl_result *r = abl_run(c, backend, NULL, 0);
    struct abl_tensor t;
    char name[64];
    int e = r ? 0 : -1;

    to->n = 0;
    for (int i = 0; !e && abl_tensor(c, i, &t) == 0; i++) {
        snprintf(name, sizeof name, "%s%s", t.role == ABL_INPUT ? "d_" : "", t.name);
        if (t.role != ABL_INPUT || t.has_gradient)
            e = append(to, r, name, t.count);
    }
    abl_result_free(r);
    return e;
}

static int equal(const struct values *a, const struct values *b)
{
    return a->n > 0 && a->n == b->n && memcmp(a->x, b->x, a->n * sizeof *a->x) == 0;
}

/* What a child is to do, with its parent's case and results. */
struct task {
    const char *words, *backend;
    const abl_case *c;
    const struct values *parents;
};

/* A child: the parent's case, and one that it makes, give the parent's bits. */
static int same(const struct task *t)
{
    static struct values x, y;
    abl_case *own = abl_case_new(t->words);
    int good = !values_of(t->c, t->backend, &x) && equal(&x, t->parents) &&
               !values_of(own, t->backend, &y) && equal(&y, t->parents);
    abl_case_free(own);
    return good;
}

/* A child's child. */
static int child(int (*good)(const struct task *), const struct task *t);
static int same_below(const struct task *t)
{
    return same(t) && child(same, t) && same(t);
}

/* A child judges, and writes a dump. */
static int judged(const struct task *t)
{
    char file[] = "fork.XXXXXX";
    int fd = mkstemp(file);
    abl_verdicts *v = abl_judge(t->c, t->backend, NULL, ABL_PARITY | ABL_PROPERTIES);
    int good =
        fd >= 0 && abl_count(v) > 0 && abl_failed(v) == 0 && abl_write(file, t->c, NULL, 0, v) == 0;

    close(fd);
    unlink(file);
    abl_verdicts_free(v);
    return good;
}

/* A child cannot use its parent's GPU, and is told so by all that would use it. */
static int refused(const struct task *t)
{
    const char *why = "forked after its parent used CUDA";
    return abl_unavailable(t->backend) && strstr(abl_unavailable(t->backend), why) &&
           !abl_run(t->c, t->backend, NULL, 0) && strstr(abl_error(), why) &&
           !abl_judge(t->c, t->backend, NULL, ABL_PARITY) && strstr(abl_error(), why) &&
           abl_use(t->backend, 0) == -1 && strstr(abl_error(), why) && abl_device(t->backend);
}

/* Whether a child that does this ends by itself, and well. */
static int child(int (*good)(const struct task *), const struct task *t)
{
    int status = -1;

    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        alarm(SECONDS);
        int ended = good(t) ? EXIT_SUCCESS : EXIT_FAILURE;
        if (ended != EXIT_SUCCESS)
            printf("# %s: %s\n", t->backend, abl_error());
        fflush(stdout);
        _exit(
            ended); /* past LeakSanitizer, which would search the stacks of the parent's threads */
    }
    if (pid > 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status))
        printf("# %s\n", WTERMSIG(status) == SIGALRM ? "it hangs" : strsignal(WTERMSIG(status)));
    return status == 0;
}

static int emulated(const char *backend)
{
    return strstr(abl_device(backend), "emulated") != NULL;
}

/* The case on every backend that can run here and stores its type. */
static void everywhere(const char *words)
{
    static struct values parents;
    abl_case *c = abl_case_new(words);
    const char *backend;
    int n = 0;

    for (int i = 0; (backend = abl_backend(i)); i++) {
        const struct task t = {words, backend, c, &parents};
        int refuses = strncmp(backend, "gpu", 3) == 0 && !emulated(backend);
        if (abl_unavailable(backend) || values_of(c, backend, &parents))
            continue;
        n++;
        ok(child(refuses ? refused : same, &t), "%s on %s, %s", words, backend,
           refuses ? "is refused" : "has the parent's bits");
    }
    ok(n >= 2, "%s ran on %d backends", words, n);
    abl_case_free(c);
}

static const char *const words = "linear rows=24 dim_in=40 dim_out=24 bias=yes act=silu";

static void further(void)
{
    static struct values parents;
    abl_case *c = abl_case_new(words);
    const struct task t = {words, "ref32", c, &parents};

    ok(!values_of(c, "ref32", &parents), "a run of the parent");
    ok(child(same_below, &t), "a child's child has its bits");
    ok(child(judged, &t), "a child judges and writes");
    ok(same(&t), "the parent runs as before");
    abl_case_free(c);
}

/* A thread other than the first has threads of its own, which its child lacks. */
static void *from_thread(void *good)
{
    static struct values parents;
    abl_case *c = abl_case_new(words);
    const struct task t = {words, "ref32", c, &parents};

    omp_set_num_threads(THREADS);
    *(int *)good = !values_of(c, "ref32", &parents) && child(same, &t);
    abl_case_free(c);
    return NULL;
}

/* A thread whose calls hold the library's lock nearly all the time, until it is told to end. */
static void *busy(void *end)
{
    abl_case *c = abl_case_new(words);
    while (!__atomic_load_n((int *)end, __ATOMIC_RELAXED))
        abl_result_free(abl_run(c, "ref32", NULL, 0));
    abl_case_free(c);
    return NULL;
}

/* Children made while another thread is in a call, which they lack. */
static void beside_calls(void)
{
    static struct values parents;
    abl_case *c = abl_case_new(words);
    const struct task t = {words, "ref32", c, &parents};
    pthread_t thread;
    int end = 0, good = 0;

    ok(!values_of(c, "ref32", &parents) && !pthread_create(&thread, NULL, busy, &end),
       "a thread that runs cases");
    for (int i = 0; i < CHILDREN; i++)
        good += child(i % 2 ? judged : same, &t);
    __atomic_store_n(&end, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    ok(good == CHILDREN, "%d of %d children, made during its calls", good, CHILDREN);
    abl_case_free(c);
}

static void beside_threads(void)
{
    pthread_t thread;
    int good = 0;

    beside_calls();
    ok(!pthread_create(&thread, NULL, from_thread, &good) && !pthread_join(thread, NULL) && good,
       "a child of another thread");
}

int main(void)
{
    omp_set_num_threads(THREADS);
    everywhere("e74_cell state=full steps=9 batch=3 heads=2 n_state=8");
    everywhere("e74_cell state=diagonal steps=9 batch=3 heads=2 n_state=8 dtype=bf16");
    everywhere("gemm M=40 N=33 K=70");
    everywhere("gemm M=300 N=200 K=250");
    everywhere("gemm_batched batch=9 M=4 N=5 K=6 dtype=bf16");
    everywhere(words);
    further();
    if (ALONE)
        skip("AddressSanitizer's malloc() is not made for a fork", "children beside threads");
    else
        beside_threads();
    return done();
}
