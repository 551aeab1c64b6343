/* Compares the times of a run with those in an earlier dump (baseline.h). */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/report/baseline.h"
#include "common/run/noise.h"

struct baseline {
    const char *file;
    double threshold;
    struct dump_times *then;
    int gpu; /* a GPU takes part */
    char driver[512];
};

/* ---- two times ---- */

static struct comparison not_compared(const struct timing *was, const struct timing *is,
                                      const char *why)
{
    struct comparison c = {.pace = NOT_COMPARED, .why = why};
    c.was = was ? *was : (struct timing){.runs = 0};
    c.is = is ? *is : (struct timing){.runs = 0};
    return c;
}

struct comparison compare_times(const struct timing *was, const struct timing *is, double threshold)
{
    if (strcmp(was->method, is->method) != 0)
        return not_compared(was, is, "its times were taken in another way");
    if (was->runs < ENOUGH_RUNS || is->runs < ENOUGH_RUNS)
        return not_compared(was, is, "fewer than 3 runs do not tell the noise");
    if (!(was->median > 0 && is->median > 0))
        return not_compared(was, is, "a time is not positive");

    struct comparison c = {.was = *was, .is = *is, .noise = times_noise(was->spread, is->spread)};
    double more = is->median - was->median;
    c.limit = fmax(threshold * was->median, c.noise);
    c.pace = more > c.limit ? SLOWER : -more > c.limit ? FASTER : AS_BEFORE;
    return c;
}

/* ---- devices ---- */

static const char DRIVER[] = ", driver ";

/* The place in a device's text at which its driver is named; the end where none is. */
static const char *device_end(const char *device)
{
    const char *driver = strstr(device, DRIVER);
    return driver ? driver : device + strlen(device);
}

/* Is a number in MHz at both places, about the same?  Then go past it. */
static int same_clock(const char **was, const char **is)
{
    char *was_end, *is_end;
    double a = strtod(*was, &was_end), b = strtod(*is, &is_end);

    if (was_end == *was || is_end == *is || strncmp(was_end, " MHz", 4) != 0 ||
        strncmp(is_end, " MHz", 4) != 0 || fabs(a - b) > .01 * a)
        return 0;
    *was = was_end;
    *is = is_end;
    return 1;
}

int same_device(const char *was, const char *is)
{
    const char *was_end = device_end(was), *is_end = device_end(is);
    while (was < was_end && is < is_end) {
        int number = *was >= '0' && *was <= '9';
        if (number && same_clock(&was, &is))
            continue;
        if (*was++ != *is++)
            return 0;
    }
    return was == was_end && is == is_end;
}

/* The device of that backend, a copy of its line; 0 where there is none. */
static int device_of(const char *devices, const struct backend *b, char *device, size_t size)
{
    for (; *devices; devices += strcspn(devices, "\n"), devices += *devices == '\n') {
        char name[32] = "";
        int at = 0;
        if (sscanf(devices, "%31[^:\n]: %n", name, &at) == 1 && at && backend_find(name) == b) {
            snprintf(device, size, "%.*s", (int)strcspn(devices + at, "\n"), devices + at);
            return 1;
        }
    }
    return 0;
}

/* Of the backends whose times count, those that are both on `device` and in the
 * baseline must be on the same one: how many there are, or -1 after err_set().
 * The lines of the last are left in was and is. */
static int devices_in_common(const struct baseline *b, const char *device, char was[512],
                             char is[512])
{
    int common = 0;
    for (const struct backend *const *k = backends(); *k; k++) {
        const char *name = (*k)->name;
        if (is_judged(*k) != b->gpu || !device_of(device, *k, is, 512) ||
            !device_of(b->then->device, *k, was, 512))
            continue;
        if (!same_device(was, is))
            return err_set("%s: its times of %s are another device's: '%s', not '%s'", b->file,
                           name, was, is);
        common++;
    }
    return common;
}

int baseline_resume(const struct baseline *b, const char *device)
{
    char was[512], is[512];
    return devices_in_common(b, device, was, is) < 0 ? -1 : 0;
}

static void note_driver(struct baseline *b, const char *was, const char *is)
{
    was = device_end(was);
    is = device_end(is);
    if (strcmp(was, is) != 0)
        snprintf(b->driver, sizeof b->driver, "%s then, %s now", *was ? was + 2 : "no driver",
                 *is ? is + 2 : "no driver");
}

/* The run's device, which settles what is compared. */
static int settle(struct baseline *b, const char *device)
{
    char was[512] = "", is[512] = "";

    for (int i = 0; judged_backend(i); i++)
        b->gpu |= device_of(device, judged_backend(i), is, sizeof is);
    int common = devices_in_common(b, device, was, is);
    if (common > 0)
        note_driver(b, was, is);
    return common ? (common < 0 ? -1 : 0)
                  : err_set("%s: has no times of %s", b->file,
                            b->gpu ? "a GPU, which takes part now" : "the CPU's references");
}

/* ---- a baseline ---- */

static int has_times(const struct baseline *b)
{
    int times = 0;
    for (int i = 0; i < b->then->n; i++)
        times += b->then->trial[i].n;
    return times ? 0 : err_set("%s: has no times to compare with", b->file);
}

struct baseline *baseline_open(const char *file, double threshold, const char *device)
{
    struct baseline *b = calloc(1, sizeof *b);

    if (!b)
        return err_null("no memory for a baseline");
    *b = (struct baseline){.file = file, .threshold = threshold, .then = dump_times_read(file)};
    if (b->then && !has_times(b) && !settle(b, device))
        return b;
    baseline_free(b);
    return NULL;
}

void baseline_free(struct baseline *b)
{
    if (b)
        dump_times_free(b->then);
    free(b);
}

const char *baseline_driver(const struct baseline *b)
{
    return b->driver;
}

const char *baseline_file(const struct baseline *b)
{
    return b->file;
}

double baseline_threshold(const struct baseline *b)
{
    return b->threshold;
}

/* ---- a trial ---- */

static const struct timing *counterpart(const struct timings *list, const struct timing *of)
{
    for (int i = 0; i < list->n; i++) {
        const struct timing *t = &list->timing[i];
        if (strcmp(t->backend, of->backend) == 0 && strcmp(t->kernel, of->kernel) == 0 &&
            strcmp(t->pass, of->pass) == 0)
            return t;
    }
    return NULL;
}

/* A goal changes what is judged, and no time: words count without it. */
static const struct timings *same_words(const struct baseline *b, const char *line)
{
    const size_t n = goals_begin(line);

    for (int i = 0; i < b->then->n; i++) {
        const char *then = b->then->trial[i].line;
        if (goals_begin(then) == n && strncmp(then, line, n) == 0)
            return &b->then->trial[i];
    }
    return NULL;
}

int baseline_compare(const struct baseline *b, const struct timings *now, struct comparison **list)
{
    static const struct timings none = {.n = 0};
    const struct timings *then = same_words(b, now->line);
    const char *unknown = then ? "there is no such time then" : "there is no such trial then";
    int n = 0;

    then = then ? then : &none;
    *list = calloc(now->n + then->n + 1, sizeof **list);
    if (!*list)
        return err_set("no memory for %d comparisons", now->n);
    for (int i = 0; i < now->n; i++) {
        const struct timing *is = &now->timing[i], *was = counterpart(then, is);
        if (is_judged(backend_find(is->backend)) == b->gpu)
            (*list)[n++] =
                was ? compare_times(was, is, b->threshold) : not_compared(NULL, is, unknown);
    }
    for (int i = 0; i < then->n; i++) {
        const struct timing *was = &then->timing[i];
        if (is_judged(backend_find(was->backend)) == b->gpu && !counterpart(now, was))
            (*list)[n++] = not_compared(was, NULL, "there is no such time now");
    }
    return n;
}
