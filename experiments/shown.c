/* The line on a terminal that says how far a run is (shown.h).
 *
 * Each trial has the work that duration.c expects of the references, and each of their passes does its
 * part of it.  What is left takes as long for each unit of work as what this run has done did. */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/progress.h"
#include "common/call/watch.h"
#include "common/run/duration.h"
#include "experiments/shown.h"

/* A line stays so long; the time left is said after so much; a trial that needs more work than was expected
 * is never whole before it ends. */
static const double EACH = 0.1, EARLIEST = 1, ALMOST = 0.99; /* seconds, seconds, - */

static struct {
    const struct experiment *x;
    struct watch watch;
    int i;
    const char *what;
    double all, ready,
        before; /* work: of all trials; of those that were there; of those that have run */
    double of_trial, done; /* of the trial, or of those side by side; of its passes so far */
    int n_ready, n_ended;  /* trials */
    double began, last;    /* seconds */
} shown;

static double part_of_trial(void)
{
    return shown.of_trial > 0 ? fmin(shown.done / shown.of_trial, ALMOST) : 0;
}

/* The time left in words, "" where it is not known as yet. */
static const char *time_left(double now, char text[40])
{
    const double here = shown.before + part_of_trial() * shown.of_trial;
    const double left = shown.all - shown.ready - here, took = now - shown.began;
    const double seconds = here > 0 ? took * left / here : 0;

    *text = 0;
    if (took < EARLIEST || !(here > 0))
        return text;
    if (seconds < 100)
        snprintf(text, 40, ", %.0f s left", ceil(seconds));
    else if (seconds < 5400)
        snprintf(text, 40, ", %.0f min left", ceil(seconds / 60));
    else
        snprintf(text, 40, ", %.1f h left", seconds / 3600);
    return text;
}

static void show_line(double now, const char *what)
{
    enum { WIDTH = 24 };
    char bar[WIDTH + 1], left[40];
    const double here = shown.ready + shown.before + part_of_trial() * shown.of_trial;
    const int full = shown.all > 0 ? (int)(WIDTH * here / shown.all) : 0;

    for (int j = 0; j < WIDTH; j++)
        bar[j] = j < full ? '#' : '.';
    bar[WIDTH] = 0;
    progress("[%s] %s%s", bar, what, time_left(now, left));
    shown.last = now;
}

static void show(double now)
{
    char what[256];

    snprintf(what, sizeof what, "trial %d of %d, %.0f %%: %s", shown.i + 1, shown.x->n,
             floor(100 * part_of_trial()), shown.what);
    show_line(now, what);
}

static void ran(const struct call *f, enum pass p, void *ignored)
{
    const double now = seconds_now();
    (void)ignored;

    if (!is_judged(f->backend))
        shown.done += reference_work(f, p);
    if (now - shown.last >= EACH)
        show(now);
}

static void part(double of_it, void *ignored)
{
    (void)ignored;
    shown.done = of_it * shown.of_trial;
}

void shown_begin(const struct experiment *x, const volatile int *stop)
{
    shown.x = x;
    shown.what = "";
    shown.watch =
        (struct watch){.stop = stop, .ran = progress_is_seen() ? ran : NULL, .part = part};
    for (int i = 0; i < x->n; i++)
        shown.all += expected_work(x, &x->trial[i]);
    shown.began = seconds_now();
    watch_begin(&shown.watch);
}

void shown_trial(int i)
{
    shown.before += shown.of_trial;
    shown.i = i;
    shown.done = 0;
    shown.of_trial = expected_work(shown.x, &shown.x->trial[i]);
}

void shown_ready(int i)
{
    shown.ready += expected_work(shown.x, &shown.x->trial[i]);
    shown.n_ready++;
}

void shown_ended(int i)
{
    shown.before += expected_work(shown.x, &shown.x->trial[i]);
    shown.n_ended++;
}

void shown_several(const int *trial, const double *part, int n)
{
    char what[64];

    shown.of_trial = shown.done = 0;
    for (int i = 0; i < n; i++) {
        const double work = expected_work(shown.x, &shown.x->trial[trial[i]]);
        shown.of_trial += work;
        shown.done += part[i] * work;
    }
    snprintf(what, sizeof what, "%d of %d runs, %d side by side", shown.n_ready + shown.n_ended,
             shown.x->n, n);
    show_line(seconds_now(), what);
}

void shown_step(const char *what, void *ignored)
{
    (void)ignored;
    shown.what = what;
    show(seconds_now());
}

void shown_end(void)
{
    watch_begin(NULL);
}
