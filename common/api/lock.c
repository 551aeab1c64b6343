/* The library's lock: calls of several threads wait for each other.  HDF5, a backend's context and
 * the list of contexts are used under it; abl_error() is of a thread.  A fork waits for it as well,
 * so that the child finds all of these between two calls.  The thread has C's locale meanwhile, and
 * may be asked to end early. */
#include "config.h"

#include <cblas.h>
#include <omp.h>
#include <pthread.h>

#include "common/api/api.h"
#include "common/base/locale.h"
#include "common/call/watch.h"

static pthread_mutex_t calls = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local locale_t own;

static void wait_for_calls(void)
{
    pthread_mutex_lock(&calls);
}

static void let_others_call(void)
{
    pthread_mutex_unlock(&calls);
}

/* A child has only the thread that forked, but OpenMP's pool of that thread as its parent left it:
 * the next parallel region would wait for ever for the others.  A region of one thread does not
 * use the pool, and results do not depend on the number of threads.  An OpenBLAS that is built
 * with OpenMP sets OpenMP's number to its own, which is therefore one as well; that with pthreads
 * starts its threads again. */
static void begin_child(void)
{
    omp_set_num_threads(1);
#if defined HAVE_OPENBLAS_GET_PARALLEL && defined HAVE_OPENBLAS_SET_NUM_THREADS
    if (openblas_get_parallel() == OPENBLAS_OPENMP)
        openblas_set_num_threads(1);
#endif
    let_others_call();
}

struct contexts *library_contexts(void)
{
    static struct contexts all;
    return &all;
}

static int unprepared;

static void prepare_once(void)
{
    unprepared = pthread_atfork(wait_for_calls, let_others_call, begin_child);
}

/* A fork is prepared for before the lock is first taken, and before the first parallel region. */
int lock_library_to_free(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (pthread_once(&once, prepare_once) || unprepared)
        return err_set("no memory to prepare for a fork of this process");
    wait_for_calls();
    own = locale_begin();
    return 0;
}

int lock_library(void)
{
    if (lock_library_to_free())
        return -1;
    if (!watch_stopped())
        return 0;
    unlock_library();
    return -1;
}

void unlock_library(void)
{
    locale_end(own);
    let_others_call();
}

void abl_stop_when(const volatile int *stop)
{
    static _Thread_local struct watch watch;
    watch.stop = stop;
    watch_begin(stop ? &watch : NULL);
}
