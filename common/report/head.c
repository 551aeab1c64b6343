/* The head of a report (head.h). */
#include "config.h"

#include <math.h>
#include <string.h>

#include "common/base/grow.h"
#include "common/base/number.h"
#include "common/plan/settings.h"
#include "common/report/head.h"
#include "common/report/time_text.h"
#include "common/report/train_text.h"
#include "common/report/unused.h"
#include "common/run/beside.h"
#include "common/run/duration.h"
#include "common/store/predict.h"

/* Settings that all trials have alike; operations and their parameters stand above their tables. */
static void constant(const struct screen *s, const struct experiment *x)
{
    char name[MAX_SETTINGS][MAX_SETTING], value[MAX_SETTING], text[1024] = "";
    const int n = settings_of(x->trial, x->n, name);
    int width;

    for (int i = 0; i < n; i++) {
        setting_value(&x->trial[0], name[i], value);
        if (!setting_is_parameter(name[i]) && strcmp(name[i], "op") != 0 && *value &&
            !setting_varies(x->trial, x->n, name[i], &width))
            append(text, sizeof text, "%s%s=%s", *text ? " " : "", name[i], value);
    }
    if (*text)
        say(s, 2, "%s", text);
}

static void tsv_head(const struct screen *s, const struct experiment *x)
{
    if (x->measure == MEASURE_TRAIN)
        training_tsv_head(s->to);
    else if (x->measure == MEASURE_TIME)
        times_tsv_head(s->to);
    else if (x->measure == MEASURE_CROSSOVER)
        crossover_tsv_head(s->to);
    else
        fprintf(s->to, "trial\tbackend\tkernel\tcheck\ttensor\tvalue\tbound\tverdict\tjudged\teleme"
                       "nts\tdistance\tsees\tsees_row\tsees_element\tline\n");
}

static void compared_with(const struct screen *s, const struct baseline *b)
{
    say(s, 2, "times are compared with those in %s; slower by over %g %% fails", baseline_file(b),
        100 * baseline_threshold(b));
    if (*baseline_driver(b))
        say(s, 2, "the driver was another: %s", baseline_driver(b));
}

/* How many trials are judged by a sample. */
static void sampled(const struct screen *s, const struct experiment *x)
{
    int n = 0;

    for (int i = 0; i < x->n; i++)
        n += x->trial[i].sampled;
    if (n)
        say(s, 2,
            "%d of %d trials judged by sample: %d rows of each long axis, and random sums of all "
            "elements of products",
            n, x->n, SAMPLE_ROWS);
}

const char *run_time(const struct experiment *x, int resumed, char text[RUN_TIME])
{
    const double seconds = estimate_seconds(x) * (x->n - resumed) / x->n;
    const int hours = seconds >= 5400;

    *text = 0;
    if (seconds >= 60)
        snprintf(text, RUN_TIME, "the references take about %.0f %s on this machine",
                 ceil(seconds / (hours ? 3600 : 60)), hours ? "hours" : "minutes");
    return text;
}

/* Whoever has to wait should know. */
static void estimate(const struct screen *s, const struct experiment *x, int resumed)
{
    char text[RUN_TIME];

    if (*run_time(x, resumed, text))
        say(s, 2, "%s; -n prints the plan", text);
    fflush(s->to);
}

const char *dump_size(const struct experiment *x, struct store *s, char text[DUMP_SIZE])
{
    const double bytes = predict_dump(x, s);
    char size[NUMBER_TEXT];

    *text = 0;
    if (bytes >= 0)
        snprintf(text, DUMP_SIZE, "up to %s%s%s", number_bytes(bytes, size), s ? " more" : "",
                 x->compress ? ", less by compression" : "");
    return text;
}

/* Whoever pays for the disk, too. */
static void size(const struct screen *s, const struct experiment *x, const struct run_head *h)
{
    char text[DUMP_SIZE];

    if (*dump_size(x, h->resumed ? h->store : NULL, text))
        say(s, 2, "the dump takes %s", text);
}

/* What input files hold that no trial reads: perhaps a name with a mistake. */
static void unused(const struct screen *s, const struct experiment *x)
{
    char text[2048];

    for (int i = 0; i < x->n; i++) {
        unused_datasets(x, i, text, sizeof text);
        if (*text)
            say(s, 2, "%s", text);
    }
}

/* What becomes of the file that is there. */
static void replaces(const struct screen *s, const char *file, const struct store *store)
{
    const char *kept = store_keeps(store);

    if (*kept)
        say(s, 2, "replaces %s of %s, which holds another plan and becomes %s", file,
            store_replaces(store), kept);
    else if (*store_replaces(store))
        say(s, 2, "replaces %s of %s", file, store_replaces(store));
}

/* Can a GPU take part?  Where references alone are named, none is looked for: that takes a second, and others use it. */
static int asks_gpu(const struct experiment *x)
{
    int asks = !x->n_backends;

    for (int i = 0; i < x->n_backends; i++)
        asks |= is_judged(x->backend[i]);
    return asks;
}

static void machine(const struct screen *s, const struct experiment *x, const char *no_gpu)
{
    say(s, 2, "CPU  %s", backend_device(NULL, &ref64));
    if (!asks_gpu(x))
        return;
    if (no_gpu)
        say(s, 2, "GPU  none (%s): everything runs on the CPU", no_gpu);
    else
        say(s, 2, "GPU  %s", backend_device(x->contexts, judged_backend(0)));
}

static void timed(const struct screen *s, const struct experiment *x, const char *no_gpu)
{
    const int beside = beside_count(x);

    if (beside > 1)
        say(s, 2, "%d runs side by side", beside);
    if (x->measure == MEASURE_TRAIN)
        return;
    if (x->measure == MEASURE_TIME)
        times_ceilings(s, x->ceilings, x->no_ceilings);
    if (x->measure != MEASURE_CHECK && no_gpu)
        say(s, 2, "without a GPU the reference's yardstick is timed, and nothing is judged");
    if (x->repeats)
        say(s, 2, "times are medians of up to %d runs: CPU, %s%s%s", x->repeats,
            ref64.machine->timing.method, no_gpu ? "" : "; GPU, ",
            no_gpu ? "" : judged_backend(0)->machine->timing.method);
}

void head_of_run(const struct screen *s, const struct experiment *x, const struct run_head *h)
{
    const char *no_gpu =
        asks_gpu(x) ? backend_unavailable(x->contexts, judged_backend(0)) : "none is named";

    if (!s->tsv)
        say(s, 0, "%s %s: %s, %d trial%s into %s", PACKAGE_NAME, PACKAGE_VERSION, x->name, x->n,
            x->n == 1 ? "" : "s", h->file);
    replaces(s, h->file, h->store);
    if (s->tsv) {
        unused(s, x);
        tsv_head(s, x);
        return;
    }
    constant(s, x);
    machine(s, x, no_gpu);
    timed(s, x, no_gpu);
    if (h->b)
        compared_with(s, h->b);
    if (h->resumed)
        say(s, 2, "%d trials are there already", h->resumed);
    unused(s, x);
    sampled(s, x);
    size(s, x, h);
    estimate(s, x, h->resumed);
}

void head_of_judged(const struct screen *s, const struct experiment *x, const char *file,
                    const char *as)
{
    if (s->tsv) {
        tsv_head(s, x);
        return;
    }
    say(s, 0, "%s %s: %s, %d trial%s, the results of %s", PACKAGE_NAME, PACKAGE_VERSION, file, x->n,
        x->n == 1 ? "" : "s", as ? as : "other programs");
    constant(s, x);
    say(s, 2, "CPU  %s", backend_device(NULL, &ref64));
    estimate(s, x, 0);
}
