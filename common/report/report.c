/* The report: the head, a row per backend and kernel, the summary (report.h). */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/base/colour.h"
#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/number.h"
#include "common/base/progress.h"
#include "common/base/quote.h"
#include "common/plan/settings.h"
#include "common/report/counts.h"
#include "common/report/report.h"
#include "common/report/time_text.h"
#include "common/report/trip_text.h"
#include "common/report/unused.h"
#include "common/run/duration.h"

/* A setting that differs between the trials: a column of the table. */
struct varying {
    char name[MAX_SETTING];
    int width;
};

/* The largest value seen of something, and where. */
struct worst {
    double value;
    char tensor[32];
    int trial;
};

struct report {
    const struct experiment *x;
    FILE *to;
    int tsv, verbose;
    int colour; /* are verdicts in colour? */
    int trips;  /* has it columns of round trips? */
    struct varying varying[MAX_SETTINGS];
    int n_varying;
    int checks, failed, skipped, unjudged, errors, done;
    int pace[NOT_COMPARED + 1]; /* how many times were what beside the baseline's */
    const char *baseline;       /* its file, once a trial was compared; else NULL */
    const char *judged, *as;    /* the dump whose results are judged, and of whom; or NULL */
    struct worst difference, yard, margin;
    char why_skipped[1024];
    int any_inputs, inputs_of; /* was a section's line `inputs` printed, and which one's last */
    time_t begun;
};

struct report *report_new(const struct experiment *x, FILE *to, int how)
{
    struct report *p = calloc(1, sizeof *p);
    char name[MAX_SETTINGS][MAX_SETTING];

    if (!p)
        return err_null("no memory for a report");
    p->x = x;
    p->to = to;
    p->tsv = how & REPORT_TSV;
    p->verbose = how & REPORT_VERBOSE;
    p->colour = !p->tsv && colour_wanted(to);
    p->trips = trips_shown(x);
    p->begun = time(NULL);
    for (int i = 0, n = settings_of(x, name), width; i < n; i++)
        if (setting_varies(x, name[i], &width)) {
            struct varying *c = &p->varying[p->n_varying++];
            memcpy(c->name, name[i], MAX_SETTING);
            c->width = width;
        }
    return p;
}

void report_free(struct report *p)
{
    free(p);
}

/* ---- the worst ---- */

static void note_worst(struct worst *w, const struct verdict *v, double value, int trial)
{
    if (!(value <= w->value)) {
        w->value = value;
        w->trial = trial;
        snprintf(w->tensor, sizeof w->tensor, "%s", v->tensor);
    }
}

/* ---- head ---- */

static void head_constant(const struct report *p)
{
    char name[MAX_SETTINGS][MAX_SETTING], value[MAX_SETTING];
    int n = settings_of(p->x, name), width, at = 0;

    for (int i = 0; i < n; i++) {
        if (setting_varies(p->x, name[i], &width))
            continue;
        setting_value(&p->x->trial[0], name[i], value);
        if (!*value)
            continue;
        int more = fprintf(p->to, "%s%s=%s", at ? " " : "  ", name[i], value);
        at += more;
        if (at > 84) {
            fputc('\n', p->to);
            at = 0;
        }
    }
    if (at)
        fputc('\n', p->to);
}

static void tsv_head(const struct report *p)
{
    if (p->x->measure == MEASURE_TIME)
        times_tsv_head(p->to);
    else if (p->x->measure == MEASURE_CROSSOVER)
        crossover_tsv_head(p->to);
    else
        fprintf(p->to, "trial\tbackend\tkernel\tcheck\ttensor\tvalue\tbound\tverdict\tjudged\teleme"
                       "nts\tline\n");
}

static void check_head(const struct report *p)
{
    fprintf(p->to, "  %-8s  %8s  %8s  %9s  %-22s  ", "backend", "forward", "backward", "MiB saved",
            "worst error");
    if (p->trips)
        trips_head(p->to);
    fprintf(p->to, "checks\n");
}

/* Of the columns that differ between trials, and of what follows them. */
static void table_head(const struct report *p)
{
    fprintf(p->to, "\n%4s", "#");
    for (int i = 0; i < p->n_varying; i++)
        fprintf(p->to, "  %-*s", p->varying[i].width, p->varying[i].name);
    if (p->x->measure == MEASURE_TIME)
        times_head(p->to);
    else if (p->x->measure == MEASURE_CROSSOVER)
        crossover_head(p->to);
    else
        check_head(p);
}

static void head_baseline(const struct report *p, const struct baseline *b)
{
    fprintf(p->to, "  times are compared with those in %s; slower by over %g %% fails\n",
            baseline_file(b), 100 * baseline_threshold(b));
    if (*baseline_driver(b))
        fprintf(p->to, "  the driver was another: %s\n", baseline_driver(b));
}

/* How many trials are judged by a sample. */
static void head_sampled(const struct report *p)
{
    int n = 0;

    for (int i = 0; i < p->x->n; i++)
        n += p->x->trial[i].sampled;
    if (n)
        fprintf(
            p->to,
            "  %d of %d trials judged by sample: %d rows of each long axis, and random sums of all "
            "elements of products\n",
            n, p->x->n, SAMPLE_ROWS);
}

/* Whoever has to wait should know. */
static void head_estimate(const struct report *p, int resumed)
{
    double seconds = estimate_seconds(p->x) * (p->x->n - resumed) / p->x->n;
    int hours = seconds >= 5400;

    if (seconds >= 60)
        fprintf(p->to, "  the references take about %.0f %s on this machine; -n prints the plan\n",
                ceil(seconds / (hours ? 3600 : 60)), hours ? "hours" : "minutes");
    fflush(p->to);
}

/* What input files hold that no trial reads: perhaps a name with a mistake. */
static void head_unused(const struct report *p)
{
    char text[2048];

    for (int i = 0; i < p->x->n; i++) {
        unused_datasets(p->x, i, text, sizeof text);
        char *quoted = *text ? quote_controls(text) : NULL; /* it has names from a file */
        if (quoted)
            fprintf(p->to, "%s %s\n", p->tsv ? "#" : " ", quoted);
        free(quoted);
    }
}

/* What becomes of the file that is there. */
static void head_replaces(const struct report *p, const char *file, const struct store *store)
{
    const char *head = p->tsv ? "#" : " ", *kept = store_keeps(store);

    if (*kept)
        fprintf(p->to, "%s replaces %s of %s, which holds another plan and becomes %s\n", head,
                file, store_replaces(store), kept);
    else if (*store_replaces(store))
        fprintf(p->to, "%s replaces %s of %s\n", head, file, store_replaces(store));
}

void report_head(struct report *p, const char *file, const struct store *store, int resumed,
                 const struct baseline *b)
{
    const struct experiment *x = p->x;

    if (!p->tsv)
        fprintf(p->to, "%s %s: %s, %d trial%s into %s\n", PACKAGE_NAME, PACKAGE_VERSION, x->name,
                x->n, x->n == 1 ? "" : "s", file);
    head_replaces(p, file, store);
    if (p->tsv) {
        head_unused(p);
        tsv_head(p);
        return;
    }
    head_constant(p);
    fprintf(p->to, "  CPU  %s\n", backend_device(&ref64));
    const char *why = backend_unavailable(gpu_backends[0]);
    if (why)
        fprintf(p->to, "  GPU  none (%s): everything runs on the CPU\n", why);
    else
        fprintf(p->to, "  GPU  %s\n", backend_device(gpu_backends[0]));
    if (x->measure == MEASURE_TIME)
        times_ceilings(p->to, x->ceilings, x->no_ceilings);
    if (x->measure != MEASURE_CHECK && why)
        fprintf(p->to,
                "  without a GPU the reference's yardstick is timed, and nothing is judged\n");
    if (x->repeats)
        fprintf(p->to, "  times are medians of up to %d runs: CPU, %s%s%s\n", x->repeats,
                ref64.method, why ? "" : "; GPU, ", why ? "" : gpu_backends[0]->method);
    if (b)
        head_baseline(p, b);
    if (resumed)
        fprintf(p->to, "  %d trials are there already\n", resumed);
    head_unused(p);
    head_sampled(p);
    head_estimate(p, resumed);
    table_head(p);
}

void report_head_judged(struct report *p, const char *file, const char *as)
{
    const struct experiment *x = p->x;

    p->judged = file;
    p->as = as;
    if (p->tsv) {
        tsv_head(p);
        return;
    }
    fprintf(p->to, "%s %s: %s, %d trial%s, the results of %s\n", PACKAGE_NAME, PACKAGE_VERSION,
            file, x->n, x->n == 1 ? "" : "s", as ? as : "other programs");
    head_constant(p);
    fprintf(p->to, "  CPU  %s\n", backend_device(&ref64));
    head_estimate(p, 0);
    table_head(p);
}

/* ---- a trial ---- */

static void trial_columns(const struct report *p, int i, int first)
{
    char value[MAX_SETTING];
    if (first)
        fprintf(p->to, "%4d", i + 1);
    else
        fprintf(p->to, "%4s", "");
    for (int c = 0; c < p->n_varying; c++) {
        setting_value(&p->x->trial[i], p->varying[c].name, value);
        fprintf(p->to, "  %-*s", p->varying[c].width, first ? (*value ? value : "-") : "");
    }
}

/* The error to show for a backend: the oracle's against differences, any other's against the oracle;
 * by a sample, the largest that parity saw. */
static void worst_of(const struct result *r, const struct ran *ran, double *error, char tensor[32])
{
    const struct trial *t = r->trial;
    *error = -1;
    for (int i = 0; i < r->verdicts.n; i++) {
        const struct verdict *v = &r->verdicts.v[i];
        const int shown = r->sampled ? !v->why : strcmp(v->check, "differences") == 0;
        if (!shown || strcmp(v->backend, ran_name(ran)) != 0 ||
            strcmp(v->kernel, ran->call.kernel->name) != 0)
            continue;
        if (!(v->error <= *error)) {
            *error = v->error;
            snprintf(tensor, 32, "%s", v->tensor);
        }
    }
    if (ran->call.backend == &ref64 || r->sampled)
        return;
    FOR_RESULTS (&t->call, a, grad) {
        const unsigned flags = t->call.op->arg[a].flags;
        if ((flags & SAVED && !(ran->name && flags & OUT)) || !tensors_values(ran->t, a, grad))
            continue;
        const struct tensor_pair pair = tensor_pair(&t->call, a, grad, ran->t, r->ran[0].t);
        const double d = pair_distance(&pair).max;
        if (!(d <= *error)) {
            *error = d;
            tensor_name(t->call.op, a, grad, tensor);
        }
    }
}

static void ran_row(struct report *p, int i, const struct result *r, const struct ran *ran,
                    int first)
{
    char tensor[32] = "", error_text[40] = "", forward[16] = "-", backward[16] = "-";
    char saved[16];
    double error;

    worst_of(r, ran, &error, tensor);
    if (error >= 0)
        snprintf(error_text, sizeof error_text, "%.1e %s", error, tensor);
    if (p->x->repeats) {
        seconds_text(ran->outcome.median[FORWARD], forward);
        if (op_passes(r->trial->call.op) == N_PASSES)
            seconds_text(ran->outcome.median[BACKWARD], backward);
    }
    trial_columns(p, i, first);
    mebibytes_text(op_saved(&ran->call), saved);
    fprintf(p->to, "  %-8s  %8s  %8s  %9s  %-22s  ", ran_name(ran), forward, backward,
            ran->name ? "-" : saved, error_text);
    if (p->trips)
        trips_row(p->to, ran);
    counts_print(p->to, counts_of(&r->verdicts, ran_name(ran)), p->colour);
    if (ran == &r->ran[YARDSTICK]) {
        struct verdict v = {.check = ""};
        snprintf(v.tensor, sizeof v.tensor, "%s", tensor);
        note_worst(&p->yard, &v, error, i + 1);
    }
}

/* The command that runs a trial again, as a shell reads it; b, unless NULL, is
 * what its times are compared with. */
static void again_line(const struct report *p, const struct baseline *b, const struct trial *t)
{
    if (p->judged) {
        char *dump = quote_shell(p->judged, 0), *as = p->as ? quote_shell(p->as, 0) : NULL;
        fprintf(p->to, "      again: run-ablation judge %s%s%s\n", dump ? dump : "FILE",
                as ? " --as " : "", as ? as : "");
        free(dump);
        free(as);
        return;
    }
    char text[MAX_LINE + 16];
    snprintf(text, sizeof text, "%s%s", t->text, t->sampled ? " judge=sampled" : "");
    char *words = quote_shell(text, 1), *file = b ? quote_shell(baseline_file(b), 0) : NULL;

    fputs("      again: run-ablation", p->to);
    if (file)
        fprintf(p->to, " --baseline %s --threshold %g", file, 100 * baseline_threshold(b));
    fprintf(p->to, " -t %s\n", words ? words : "(no memory for its words)");
    free(words);
    free(file);
}

static void unjudged_line(const struct report *p, const struct verdict *v)
{
    fprintf(p->to, "      %s %s, %s: %s%s%s: ", v->backend, v->check, v->tensor,
            colour_begin(p->colour, YELLOW), verdict_word(v), colour_end(p->colour));
    if (v->why)
        fprintf(p->to, "%s\n", v->why);
    else
        fprintf(p->to, "sure only to %.2g\n", v->bound);
}

/* The checks that failed, and those that cannot be judged. */
static void failure_lines(struct report *p, const struct result *r)
{
    for (int i = 0; i < r->verdicts.n; i++) {
        const struct verdict *v = &r->verdicts.v[i];
        if (v->unjudged)
            unjudged_line(p, v);
        if (v->pass)
            continue;
        fprintf(p->to, "      %s %s, %s: off by %.3g at %s, bound %.3g", v->backend, v->check,
                v->tensor, v->error, *v->worst ? v->worst : "-", v->bound);
        if (v->first_bad >= 0)
            fprintf(p->to, ", first at step %" PRId64, v->first_bad);
        fputc('\n', p->to);
    }
    if (r->failed)
        again_line(p, NULL, r->trial);
}

/* What was skipped in a trial whose results are another program's, by what is not there. */
static void missing_lines(struct report *p, int i, const struct result *r)
{
    for (const char *at = r->skips; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        fprintf(p->to, p->tsv ? "# %d: " : "      ", i + 1);
        fprintf(p->to, "%.*s\n", (int)strcspn(at, "\n"), at);
    }
}

static void trial_records(struct report *p, int i, const struct result *r)
{
    const char *line = r->trial->text;
    if (p->judged)
        missing_lines(p, i, r);
    for (int j = r->sampled ? YARDSTICK + 1 : 0; j < r->n_ran && p->x->repeats; j++)
        for (enum pass q = FORWARD; q < op_passes(r->trial->call.op); q++)
            fprintf(p->to, "%d\t%s\t%s\ttime\t%s\t%.6g\t\t\t\t\t%s\n", i + 1,
                    r->ran[j].call.backend->name, r->ran[j].call.kernel->name, pass_names[q],
                    r->ran[j].outcome.median[q], line);
    trips_tsv(p->to, i + 1, r);
    for (int j = 0; j < r->verdicts.n; j++) {
        const struct verdict *v = &r->verdicts.v[j];
        fprintf(p->to, "%d\t%s\t%s\t%s\t%s\t%.6g\t%.6g\t%s\t%" PRId64 "\t%" PRId64 "\t%s\n", i + 1,
                v->backend, v->kernel, v->check, v->tensor, v->error, v->bound, verdict_word(v),
                v->judged, v->elements, line);
    }
}

/* Rows of what was timed; the trial's settings stand before the first. */
static void time_rows(struct report *p, int i, const struct result *r)
{
    int first = 1;

    for (int j = 0; j < r->n_ran; j++)
        for (enum pass q = FORWARD; q < op_passes(r->trial->call.op); q++) {
            if (!times_wanted(&r->ran[j]))
                continue;
            trial_columns(p, i, first);
            times_row(p->to, p->x->ceilings, r, &r->ran[j], q);
            first = 0;
        }
    if (first) {
        trial_columns(p, i, 1);
        fprintf(p->to, "  nothing was timed\n");
    }
}

static void crossover_batches(struct report *p, int i, const struct result *r)
{
    for (int k = 0; k < r->n_crossovers; k++) {
        for (int j = 0; j < r->crossover[k].n; j++) {
            trial_columns(p, i, k == 0 && j == 0);
            crossover_batch(p->to, &r->crossover[k], j);
        }
        crossover_line(p->to, &r->crossover[k]);
    }
    if (!r->n_crossovers) {
        trial_columns(p, i, 1);
        fprintf(p->to, "  nothing was timed\n");
    }
}

static void declined_lines(struct report *p, const struct result *r)
{
    for (int i = 0; i < r->n_declined; i++) {
        const struct declined *d = &r->declined[i];
        fprintf(p->to, "      declined  %s %s: %s\n", d->backend->name, d->kernel->name, d->why);
    }
}

static void warning_line(struct report *p, int i)
{
    const struct trial *t = &p->x->trial[i];
    const char *warning = t->call.op->warning ? t->call.op->warning(&t->call) : NULL;

    if (warning)
        fprintf(p->to, "      warning   %s\n", warning);
}

/* "HEAD x W_k": those of a trial's inputs that its file gave, or did not; nothing
 * where there are none. */
static void name_inputs(FILE *to, const char *head, const struct result *r, unsigned given)
{
    const struct op *o = r->trial->call.op;

    for (int a = 0; a < o->n_args; a++)
        if (o->arg[a].flags & IN && op_has(&r->trial->call, a) &&
            (r->from.given >> a & 1) == given) {
            fprintf(to, "%s %s", head, o->arg[a].name);
            head = "";
        }
}

/* The sources of the trial's inputs, once per section, and warnings about them. */
static void input_lines(struct report *p, const struct result *r)
{
    const struct trial *t = r->trial;
    const char *head = p->tsv ? "# " : "      ";

    if (t->input != INPUT_NORMAL && t->input != INPUT_NONZERO &&
        p->x->measure != MEASURE_CROSSOVER && (!p->any_inputs || p->inputs_of != t->line)) {
        fprintf(p->to, "%sinputs    ", head);
        name_inputs(p->to, "read", r, 1);
        fprintf(p->to, " from %s%s%s%s", t->file, *t->group || *t->tensor ? ":" : "", t->group,
                t->tensor);
        name_inputs(p->to, "; drawn", r, 0);
        fputc('\n', p->to);
        p->any_inputs = 1;
        p->inputs_of = t->line;
    }
    for (const char *at = r->from.warnings; *at; at += strcspn(at, "\n"), at += *at == '\n')
        fprintf(p->to, "%swarning   %.*s\n", head, (int)strcspn(at, "\n"), at);
}

/* All that ran; by a sample, the references did not. */
static void ran_rows(struct report *p, int i, const struct result *r)
{
    int first = 1;

    for (int j = 0; j < r->n_ran; j++) {
        if (!r->ran[j].t)
            continue;
        ran_row(p, i, r, &r->ran[j], first);
        first = 0;
    }
    if (first) {
        trial_columns(p, i, 1);
        fprintf(p->to, "  nothing was judged\n");
    }
}

/* Has parity looked at all elements of the result of a verdict by random sums? */
static int by_sums(const struct result *r, const struct verdict *v)
{
    int before = 0;
    for (const struct verdict *w = r->verdicts.v; w < v; w++)
        before |= strcmp(w->check, v->check) == 0 && strcmp(w->tensor, v->tensor) == 0;
    return strcmp(v->check, "products") == 0 && !before;
}

/* Which elements a sample was. */
static void sample_line(struct report *p, const struct result *r)
{
    const struct call *f = &r->trial->call;
    char axes[ALL_AXES], text[400];
    const char *head = "; all elements of";

    sample_all_axes(f, &r->sampled->sample, axes);
    fprintf(p->to, "%sjudged    ", p->tsv ? "# " : "      ");
    if (*axes)
        fprintf(p->to, "by sample of %s (seed %" PRIu64 ")",
                sample_text(f, &r->sampled->sample, axes, text, sizeof text), r->trial->seed);
    else
        fprintf(p->to, "by sample: all rows, no axis has more than %d", SAMPLE_ROWS);
    for (int i = 0; i < r->verdicts.n; i++)
        if (by_sums(r, &r->verdicts.v[i])) {
            fprintf(p->to, "%s %s", head, r->verdicts.v[i].tensor);
            head = ",";
        }
    fprintf(p->to, "%s\n", *head == ',' ? " by Freivalds' check" : "");
}

static void trial_rows(struct report *p, int i, const struct result *r)
{
    if (p->x->measure == MEASURE_TIME)
        time_rows(p, i, r);
    else if (p->x->measure == MEASURE_CROSSOVER)
        crossover_batches(p, i, r);
    else
        ran_rows(p, i, r);
    if (p->verbose)
        counts_by_name(p->to, &r->verdicts);
    declined_lines(p, r);
    if (r->sampled)
        sample_line(p, r);
    input_lines(p, r);
    warning_line(p, i);
    if (p->judged)
        missing_lines(p, i, r);
    failure_lines(p, r);
}

/* Each reason once, however many trials it holds for. */
static void keep_reasons(struct report *p, const char *skips)
{
    char line[300];
    for (; *skips; skips += strcspn(skips, "\n"), skips += *skips == '\n') {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(skips, "\n"), skips);
        if (!strstr(p->why_skipped, line))
            append(p->why_skipped, sizeof p->why_skipped, "%s%s", *p->why_skipped ? "; " : "",
                   line);
    }
}

void report_trial(struct report *p, int i, const struct result *r)
{
    progress_clear();
    p->done++;
    p->checks += r->verdicts.n;
    p->failed += r->failed;
    p->skipped += r->skipped;
    p->unjudged += verdicts_unjudged(&r->verdicts, 0);
    keep_reasons(p, r->skips);
    for (int j = 0; j < r->verdicts.n; j++) {
        const struct verdict *v = &r->verdicts.v[j];
        if (strcmp(v->check, "differences") == 0 && !v->unjudged)
            note_worst(&p->difference, v, v->error, i + 1);
        if (strcmp(v->check, "parity") == 0 && v->bound > 0)
            note_worst(&p->margin, v, v->error / v->bound, i + 1);
    }
    if (p->tsv)
        input_lines(p, r);
    if (p->tsv && r->sampled)
        sample_line(p, r);
    if (!p->tsv)
        trial_rows(p, i, r);
    else if (p->x->measure == MEASURE_TIME)
        times_tsv(p->to, i + 1, p->x->ceilings, r);
    else if (p->x->measure == MEASURE_CROSSOVER)
        crossover_tsv(p->to, i + 1, r);
    else
        trial_records(p, i, r);
    fflush(p->to);
}

void report_error(struct report *p, int i, const char *reason)
{
    char *quoted = quote_controls(reason); /* it may hold names from a file */
    const char *why = quoted ? quoted : "no memory to say why";

    progress_clear();
    p->errors++;
    if (p->tsv && p->x->measure != MEASURE_CHECK) {
        fprintf(p->to, "# %d: error: %s: %s\n", i + 1, why, p->x->trial[i].text);
    } else if (p->tsv) {
        fprintf(p->to, "%d\t\t\terror\t%s\t\t\tfail\t\t\t%s\n", i + 1, why, p->x->trial[i].text);
    } else {
        trial_columns(p, i, 1);
        fprintf(p->to, "  %sFAILED%s: %s\n", colour_begin(p->colour, RED), colour_end(p->colour),
                why);
        again_line(p, NULL, &p->x->trial[i]);
    }
    free(quoted);
    fflush(p->to);
}

void report_resumed(struct report *p, const struct store_counts *c)
{
    p->done++;
    p->checks += c->checks;
    p->failed += c->failed;
    p->unjudged += c->unjudged;
    p->skipped += c->skipped;
}

/* ---- a trial's times beside those of an earlier run ---- */

/* The time that a comparison is of; one side at least has it. */
static const struct timing *compared(const struct comparison *c)
{
    return c->is.runs ? &c->is : &c->was;
}

static void comparison_line(const struct report *p, int i, const struct comparison *c)
{
    static const char *const words[] = {[AS_BEFORE] = "as before", "SLOWER", "faster"};
    const struct timing *t = compared(c);
    char was[16], is[16];

    fprintf(p->to, "      trial %d", i + 1);
    if (t->runs)
        fprintf(p->to, ", %s %s %s", t->backend, t->kernel, t->pass);
    if (c->pace == NOT_COMPARED)
        fprintf(p->to, ": not compared, %s\n", c->why);
    else
        fprintf(p->to, ": was %s, is %s, ratio %.3f, noise %.3f, limit %.3f: %s%s%s\n",
                seconds_text(c->was.median, was), seconds_text(c->is.median, is),
                c->is.median / c->was.median, c->noise / c->was.median, c->limit / c->was.median,
                c->pace == SLOWER ? colour_begin(p->colour, RED) : "", words[c->pace],
                c->pace == SLOWER ? colour_end(p->colour) : "");
}

/* Its value is the ratio, its bound the largest that is not slower. */
static void comparison_record(const struct report *p, int i, const struct comparison *c)
{
    const struct timing *t = compared(c);

    fprintf(p->to, "%d\t%s\t%s\tbaseline\t%s\t", i + 1, t->backend, t->kernel, t->pass);
    if (c->pace == NOT_COMPARED)
        fprintf(p->to, "\t\tskip\t\t");
    else
        fprintf(p->to, "%.6g\t%.6g\t%s\t\t", c->is.median / c->was.median,
                1 + c->limit / c->was.median, c->pace == SLOWER ? "fail" : "pass");
    fprintf(p->to, "\t%s\n", p->x->trial[i].text);
}

void report_baseline(struct report *p, int i, const struct baseline *b,
                     const struct comparison *list, int n)
{
    int slower = 0;

    progress_clear();
    p->baseline = baseline_file(b);
    for (int j = 0; j < n; j++) {
        const struct comparison *c = &list[j];
        p->pace[c->pace]++;
        p->checks += c->pace != NOT_COMPARED;
        p->skipped += c->pace == NOT_COMPARED;
        slower += c->pace == SLOWER;
        if (p->tsv)
            comparison_record(p, i, c);
        else
            comparison_line(p, i, c);
    }
    p->failed += slower;
    if (slower && !p->tsv)
        again_line(p, b, &p->x->trial[i]);
    fflush(p->to);
}

/* ---- end ---- */

int report_end(struct report *p, const char *file, int interrupted)
{
    const char *comment = p->tsv ? "# " : "";
    char size[NUMBER_TEXT];
    struct stat st;

    progress_clear();
    if (!p->tsv) {
        fputc('\n', p->to);
        if (p->difference.trial)
            fprintf(p->to,
                    "gradients   differ from central differences by at most %.1e of the "
                    "gradient (%s, trial %d)\n",
                    p->difference.value, p->difference.tensor, p->difference.trial);
        if (p->yard.trial)
            fprintf(p->to, "yardstick   differs from the oracle by at most %.1e (%s, trial %d)\n",
                    p->yard.value, p->yard.tensor, p->yard.trial);
        if (p->margin.trial)
            fprintf(p->to, "parity      at most %.2f of its bound (%s, trial %d)\n",
                    p->margin.value, p->margin.tensor, p->margin.trial);
        if (p->baseline)
            fprintf(p->to,
                    "baseline    %d slower than in %s, %d faster, %d as before, "
                    "%d not compared\n",
                    p->pace[SLOWER], p->baseline, p->pace[FASTER], p->pace[AS_BEFORE],
                    p->pace[NOT_COMPARED]);
        if (*p->why_skipped)
            fprintf(p->to, "skipped     %s\n", p->why_skipped);
        if (stat(file, &st) == 0)
            fprintf(p->to, "%s  %s, %d of %d trials, %.0f s\n", file,
                    number_bytes((double)st.st_size, size), p->done, p->x->n,
                    difftime(time(NULL), p->begun));
    }
    if (interrupted)
        fprintf(p->to, "%sstopped after %d of %d trials; --resume goes on from there\n", comment,
                p->done, p->x->n);
    fprintf(p->to, "%s%d checks, ", comment, p->checks);
    if (p->checks)
        fprintf(p->to, "%d failed, ", p->failed);
    fprintf(p->to, "%d skipped", p->skipped);
    if (p->unjudged)
        fprintf(p->to, ", %d cannot be judged", p->unjudged);
    if (p->errors)
        fprintf(p->to, ", %d trial%s could not be run", p->errors, p->errors > 1 ? "s" : "");
    fprintf(p->to, "%s\n", p->checks || p->errors ? "" : ": nothing was checked");
    return p->failed;
}

void report_plan(const struct experiment *x, FILE *to)
{
    for (int i = 0; i < x->n; i++)
        fprintf(to, "%d\t%s\n", i + 1, x->trial[i].text);
}
