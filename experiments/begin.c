/* Checks threads and memory before the first use of either (begin.h). */
#include "config.h"

#include <cblas.h>
#include <ctype.h>
#include <limits.h>
#include <omp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/limits.h"
#include "common/call/machine.h"
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

/* In bytes: the stack that a run needs, with a margin (32 KiB are enough for the main thread of a
 * run on the CPU, 96 KiB for another), and the one that it gets where the limit is lower and can be
 * raised: as usual. */
enum { STACK = 512 << 10, USUAL_STACK = 8 << 20 };

/* Nonzero if the limit was raised.  The threads of libraries take their size from it as it was when
 * the program began. */
static int raise_stack(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_STACK, &r) || r.rlim_cur >= STACK || r.rlim_cur == r.rlim_max)
        return 0;
    r.rlim_cur = r.rlim_max < USUAL_STACK ? r.rlim_max : USUAL_STACK;
    return setrlimit(RLIMIT_STACK, &r) == 0;
}

/* Is this, NAME=SIZE as OpenMP reads it, less than a thread of a run needs? */
static int is_small_stack(const char *entry)
{
    static const char units[] = "bkmg";
    char *end;
    double size = strtod(entry + strcspn(entry, "=") + 1, &end);
    const char *unit;

    end += strspn(end, " \t");
    unit = *end ? strchr(units, tolower((unsigned char)*end)) : units + 1;
    for (int i = unit ? (int)(unit - units) : 0; i > 0; i--)
        size *= 1024;
    return unit && size > 0 && size < STACK;
}

/* The stacks of OpenMP's threads are as large as ulimit -s says, which some cannot raise, or as
 * large as the environment says. */
static int has_small_threads(char **environment)
{
    const char *first = *place(environment, "OMP_STACKSIZE="),
               *size = first ? first : *place(environment, "GOMP_STACKSIZE=");
    struct rlimit r;

    if (size)
        return is_small_stack(size);
    return getrlimit(RLIMIT_STACK, &r) == 0 && r.rlim_cur < STACK;
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
 * libraries are loaded, as is the size of a thread's stack, so the program begins again with what they should read.
 * Where that fails it runs on as it is. */
__attribute__((no_sanitize("address", "undefined"))) static void begin_again(int argc, char **argv,
                                                                             char **environment)
{
    static char wait[] = "OMP_WAIT_POLICY=passive", single[] = "OPENBLAS_NUM_THREADS=1";
    static char stack[] = "OMP_STACKSIZE=512K"; /* STACK */
    enum { ADDED = 3 };
    int n = 0, changes = raise_stack();

    (void)argc;
    while (environment[n])
        n++;
    char *changed[n + ADDED + 1];
    memcpy(changed, environment, (n + 1) * sizeof *changed);
    if (!*place(changed, wait))
        changes += set(changed, wait);
    if (blas_has_threads())
        changes += set(changed, single);
    if (has_small_threads(changed))
        changes += set(changed, stack);
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

/* The main thread's. */
static int check_stack(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_STACK, &r) || r.rlim_cur >= STACK)
        return 0;
    return err_set("ulimit -s leaves %lld KiB of stack, a run needs %d: raise it",
                   (long long)(r.rlim_cur >> 10), STACK >> 10);
}

struct contexts *process_contexts(void)
{
    static struct contexts all;
    return &all;
}

int begin(void)
{
    const char *limit = "ulimit";
    int64_t available = limits_available(&limit), needed = limits_overhead(1);

    if (available < needed)
        return err_set("%s leaves %lld MiB of memory, a run needs more than %lld: raise it", limit,
                       (long long)(available >> 20), (long long)(needed >> 20));
    if (check_stack())
        return -1;
    limit_threads(available, limit);
    return 0;
}
