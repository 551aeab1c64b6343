/* Checks threads and memory before the first use of either (begin.h). */
#include "config.h"

#include <cblas.h>
#include <limits.h>
#include <omp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/err.h"
#include "common/limits.h"
#include "experiments/begin.h"

/* ---- before the libraries begin ---- */

/* The place of the variable that `entry`, NAME=VALUE, sets; where there is none, the NULL at the
 * end of the environment. */
static char **place(char **environment, const char *entry)
{
    size_t n = strcspn(entry, "=") + 1;

    while (*environment && strncmp(*environment, entry, n) != 0)
        environment++;
    return environment;
}

/* Set it, at the end where there is room for it.  Nonzero if that is a change. */
static int set(char **environment, char *entry)
{
    char **at = place(environment, entry);

    if (*at && strcmp(*at, entry) == 0)
        return 0;
    if (!*at)
        at[1] = NULL;
    *at = entry;
    return 1;
}

/* An OpenBLAS that is built with OpenMP takes OpenMP's threads, and their number from it. */
static int blas_has_threads(void)
{
#ifdef HAVE_OPENBLAS_GET_PARALLEL
    return openblas_get_parallel() != OPENBLAS_OPENMP;
#else
    return 1;
#endif
}

/* Execute the program's file by its path: ps and top would call what is executed by the link "exe".
 * That does not find a file which was removed since, and the link does.  Returns where both fail. */
static void execute(char **argv, char **environment)
{
    static const char link[] = "/proc/self/exe";
    char path[PATH_MAX];
    ssize_t n = readlink(link, path, sizeof path - 1);

    if (n > 0) {
        path[n] = '\0';
        execve(path, argv, environment);
    }
    execve(link, argv, environment);
}

static void set_name(void)
{
    char name[16];

    if (prctl(PR_GET_NAME, name) == 0 && strcmp(name, "exe") == 0)
        prctl(PR_SET_NAME, "run-ablation");
}

/* OpenMP's threads spin while they wait, which on a machine with other work
 * costs several times the run itself (measured: 104 s for 22 s).  OpenBLAS
 * starts as many threads as there are cores, though each product is computed by
 * one: where memory is short each of them tries for ever to map its buffer, and
 * the program, which waits for them when it ends, hangs.  Both are read when the
 * libraries are loaded, so the program begins again with what they should read.
 * Where that fails it runs on as it is. */
__attribute__((no_sanitize("address", "undefined"))) static void begin_again(int argc, char **argv,
                                                                             char **environment)
{
    static char wait[] = "OMP_WAIT_POLICY=passive", single[] = "OPENBLAS_NUM_THREADS=1";
    enum { ADDED = 2 };
    int n = 0, changes = 0;

    (void)argc;
    while (environment[n])
        n++;
    char *changed[n + ADDED + 1];
    memcpy(changed, environment, (n + 1) * sizeof *changed);
    if (!*place(changed, wait))
        changes += set(changed, wait);
    if (blas_has_threads())
        changes += set(changed, single);
    if (changes)
        execute(argv, changed);
    set_name();
}

/* Functions in this section run before any library's initialisation. */
__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **,
                                                                            char **) = begin_again;

/* ---- threads ---- */

enum { THREADS_PER_CORE = 16 };

/* Threads of a trial start wait for the lock, so that all are there at once. */
static void *wait_for(void *lock)
{
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

/* How many of n threads, this one among them, can be there together. */
static int startable(int n)
{
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *thread = calloc(n, sizeof *thread);
    int started = 1;

    if (!thread)
        return 1;
    pthread_mutex_lock(&lock);
    while (started < n && pthread_create(&thread[started], NULL, wait_for, &lock) == 0)
        started++;
    pthread_mutex_unlock(&lock);
    for (int i = 1; i < started; i++)
        pthread_join(thread[i], NULL);
    free(thread);
    return started;
}

/* Say why fewer are used. */
__attribute__((format(printf, 2, 3))) static int fewer(int n, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fputs("run-ablation: ", stderr);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "; using %d\n", n);
    va_end(ap);
    return n;
}

static void limit_threads(int64_t available, const char *limit)
{
    int cores = omp_get_num_procs(), wanted = omp_get_max_threads(), n = wanted, can;

    if (n / THREADS_PER_CORE > cores)
        n = fewer(cores, "%d threads are too many for %d cores", wanted, cores);
    can = startable(n);
    if (can < n) /* half of the memory is for tensors */
        n = fewer(can > 3 ? can / 2 : 1, "only %d of %d threads could be started (see ulimit)", can,
                  n);
    for (can = n; can > 1 && limits_overhead(can) > available / 2; can--)
        ;
    if (can < n)
        n = fewer(can, "%s leaves too little room for %d threads", limit, n);
    if (n < wanted)
        omp_set_num_threads(n);
}

int begin(void)
{
    const char *limit = "ulimit";
    int64_t available = limits_available(&limit), needed = limits_overhead(1);

    if (available < needed)
        return err_set("%s leaves %lld MiB of memory, a run needs more than %lld: raise it", limit,
                       (long long)(available >> 20), (long long)(needed >> 20));
    limit_threads(available, limit);
    return 0;
}
