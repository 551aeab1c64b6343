/* Ends early at a signal (stop.h). */
#include "config.h"

#include <signal.h>
#include <time.h>

#include "experiments/stop.h"

volatile int stop;
static struct timespec first; /* when it came; only the handler reads and writes it */

/* Neither signal comes while the other is handled. */
static void on_signal(int number)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!stop) {
        first = now;
        stop = 1;
        return;
    }
    if ((double)(now.tv_sec - first.tv_sec) + 1e-9 * (double)(now.tv_nsec - first.tv_nsec) <
        STOP_APART)
        return;
    signal(number, SIG_DFL);
    raise(number); /* when this returns */
}

void stop_on_signals(void)
{
    struct sigaction a = {.sa_handler = on_signal};

    sigemptyset(&a.sa_mask);
    sigaddset(&a.sa_mask, SIGINT);
    sigaddset(&a.sa_mask, SIGTERM);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}
