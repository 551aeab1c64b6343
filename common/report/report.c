/* The report: a table for each operation, a row per backend and kernel, the summary (report.h). */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
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
#include "common/plan/keys.h"
#include "common/plan/training.h"
#include "common/report/ablation_text.h"
#include "common/report/counts.h"
#include "common/report/goal_text.h"
#include "common/report/group.h"
#include "common/report/growth_text.h"
#include "common/report/head.h"
#include "common/report/power_text.h"
#include "common/report/report.h"
#include "common/report/time_text.h"
#include "common/report/train_text.h"
#include "common/report/trip_text.h"
#include "common/report/sizes.h"
#include "common/store/time_rows.h"
#include "common/train/cell.h"

struct report {
    const struct experiment *x;
    struct screen screen;
    int verbose;
    struct group group; /* the operation whose table is being printed */
    struct report_sums sums;
    int errors, done;
    int pace[NOT_COMPARED + 1]; /* how many times were what beside the baseline's */
    const char *baseline;       /* its file, once a trial was compared; else NULL */
    const char *judged, *as;    /* the dump whose results are judged, and of whom; or NULL */
    int any_inputs, inputs_of;  /* was a section's line `inputs` printed, and which one's last */
    time_t begun;
};

struct report *report_new(const struct experiment *x, FILE *to, int how)
{
    struct report *p = calloc(1, sizeof *p);

    if (!p)
        return err_null("no memory for a report");
    p->x = x;
    p->screen = screen_of(to, how & REPORT_TSV);
    p->verbose = how & REPORT_VERBOSE;
    p->begun = time(NULL);
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

static void keep_worst(struct worst *to, const struct worst *w)
{
    if (w->trial && !(w->value <= to->value))
        *to = *w;
}

/* ---- head ---- */

void report_head(struct report *p, const char *file, struct store *store, int resumed,
                 const struct baseline *b)
{
    const struct run_head h = {file, store, resumed, b};
    head_of_run(&p->screen, p->x, &h);
}

void report_head_judged(struct report *p, const char *file, const char *as)
{
    p->judged = file;
    p->as = as;
    head_of_judged(&p->screen, p->x, file, as);
}

/* ---- a trial ---- */

static void ran_row(struct report *p, int i, const struct result *r, const struct ran *ran,
                    int first)
{
    char tensor[32] = "", text[160];
    struct row row;
    const double error = result_worst(r, ran, tensor);

    group_trial(&p->group, p->x, i, &row);
    row_add(&row, "%s", ran_name(ran));
    for (enum pass q = FORWARD; p->x->repeats && q < N_PASSES; q++)
        row_add(&row, "%s",
                q < op_passes(r->trial->call.op) ? number_seconds(ran->outcome.median[q], text)
                                                 : "-");
    row_add(&row, "%s", ran->name ? "-" : mebibytes_text(op_saved(&ran->call), text));
    if (error >= 0)
        row_add(&row, "%.1e", error);
    else
        row_add(&row, "%s", "");
    row_add(&row, "%s", tensor);
    if (p->group.trips)
        trips_cells(&row, ran);
    row_add_printable(&row,
                      counts_text(counts_of(&r->verdicts, ran_name(ran)), p->screen.colour, text));
    table_row(&p->group.table, &p->screen, &row, first);
    if (ran == &r->ran[YARDSTICK]) {
        struct verdict v = {.check = ""};
        snprintf(v.tensor, sizeof v.tensor, "%s", tensor);
        note_worst(&p->sums.yard, &v, error, i + 1);
    }
}

/* The head of the operation's table, before its first trial. */
static void begin_table(struct report *p, int i)
{
    if (group_has(&p->group, i))
        return;
    group_begin(&p->group, p->x, i, p->screen.width);
    group_head(&p->group, p->x, &p->screen);
}

/* The settings of a trial of which there is no row. */
static void no_row(struct report *p, int i)
{
    struct row row;

    group_trial(&p->group, p->x, i, &row);
    table_row(&p->group.table, &p->screen, &row, 1);
}

/* Of a run of training, that of the first verdict that failed; 0: none. */
static int64_t first_failed_update(const struct result *r)
{
    for (int i = 0; i < r->verdicts.n; i++)
        if (!r->verdicts.v[i].pass && r->verdicts.v[i].update)
            return r->verdicts.v[i].update;
    return 0;
}

/* Those of a trial; of a run that confirms they have the rate that its search found. */
static void words_of(const struct trial *t, char text[MAX_LINE])
{
    if (!is_cell(t->call.op) || cell_waits(&t->call) || training_line(t, text))
        snprintf(text, MAX_LINE, "%s", t->text);
}

/* The command that runs a trial again, as a shell reads it; b, unless NULL, is
 * what its times are compared with.  There is none for a run whose rate no search has found. */
static void again_line(const struct report *p, const struct baseline *b, const struct result *r,
                       const struct trial *t)
{
    FILE *to = p->screen.to;

    if (is_cell(t->call.op) && cell_waits(&t->call))
        return;
    if (p->judged) {
        char *dump = quote_shell(p->judged, 0), *as = p->as ? quote_shell(p->as, 0) : NULL;
        fprintf(to, "      again: run-ablation judge %s%s%s\n", dump ? dump : "FILE",
                as ? " --as " : "", as ? as : "");
        free(dump);
        free(as);
        return;
    }
    char text[MAX_LINE + 48];
    words_of(t, text);
    append(text, sizeof text, "%s", t->sampled ? " judge=sampled" : "");
    if (r && is_cell(t->call.op) && first_failed_update(r))
        training_again(t, first_failed_update(r), text);
    if (p->x->measure != MEASURE_CHECK && p->x->measure != MEASURE_TRAIN &&
        !t->text[goals_begin(t->text)])
        append(text, sizeof text, " measure=%s", measure_names[p->x->measure]);
    char *words = quote_shell(text, 1), *file = b ? quote_shell(baseline_file(b), 0) : NULL;

    fputs("      again: run-ablation", to);
    if (file)
        fprintf(to, " --baseline %s --threshold %g", file, 100 * baseline_threshold(b));
    fprintf(to, " -t %s\n", words ? words : "(no memory for its words)");
    free(words);
    free(file);
}

static void unjudged_line(const struct report *p, const struct verdict *v)
{
    const struct screen *s = &p->screen;
    char why[40], backend[MAX_CELL], text[2 * MAX_CELL];

    snprintf(why, sizeof why, "sure only to %.2g", v->bound);
    quote_bytes(v->backend, strlen(v->backend), backend, sizeof backend);
    snprintf(text, sizeof text, "%s %s, %s: %s%s%s: %s", backend, v->check, v->tensor,
             colour_begin(s->colour, YELLOW), verdict_word(v), colour_end(s->colour),
             v->why ? v->why : why);
    say_printable(s, 6, text);
}

/* The name of the measure with a space, or "" of the largest element. */
static const char *measured(const struct verdict *v, char text[32])
{
    snprintf(text, 32, "%s ", v->distance);
    return !*v->distance || strcmp(v->distance, distance_names[BY_MAX]) == 0 ? "" : text;
}

/* The checks that failed, and those that cannot be judged. */
static void failure_lines(struct report *p, int i, const struct result *r)
{
    for (int j = 0; j < r->verdicts.n; j++) {
        const struct verdict *v = &r->verdicts.v[j];
        char step[64] = "", by[32];
        if (v->unjudged)
            unjudged_line(p, v);
        if (v->pass || verdict_of_time(v))
            continue;
        if (v->first_bad >= 0)
            snprintf(step, sizeof step, ", first at step %" PRId64, v->first_bad);
        if (v->update)
            snprintf(step, sizeof step, ", in update %" PRId64, v->update);
        say(&p->screen, 6, "%s %s, %s: %soff by %.3g at %s, bound %.3g%s", v->backend, v->check,
            v->tensor, measured(v, by), v->error, *v->worst ? v->worst : "-", v->bound, step);
    }
    goals_lines(&p->screen, i, r);
    if (r->failed)
        again_line(p, NULL, r, r->trial);
}

/* What was skipped in a trial whose results are another program's, by what is not there. */
static void missing_lines(struct report *p, int i, const struct result *r)
{
    for (const char *at = r->skips; *at; at += strcspn(at, "\n"), at += *at == '\n')
        if (p->screen.tsv)
            say(&p->screen, 0, "%d: %.*s", i + 1, (int)strcspn(at, "\n"), at);
        else
            say(&p->screen, 6, "%.*s", (int)strcspn(at, "\n"), at);
}

static void check_records(struct report *p, int i, const struct result *r)
{
    const char *line = r->trial->text;
    if (p->judged)
        missing_lines(p, i, r);
    for (int j = r->sampled ? YARDSTICK + 1 : 0; j < r->n_ran && p->x->repeats; j++)
        for (enum pass q = FORWARD; q < op_passes(r->trial->call.op); q++)
            fprintf(p->screen.to, "%d\t%s\t%s\ttime\t%s\t%.6g\t\t\t\t\t\t\t\t\t%s\n", i + 1,
                    r->ran[j].call.backend->name, r->ran[j].call.kernel->name, pass_names[q],
                    r->ran[j].outcome.median[q], line);
    trips_tsv(p->screen.to, i + 1, r);
    for (int j = 0; j < r->verdicts.n; j++)
        verdict_tsv(p->screen.to, i + 1, &r->verdicts.v[j], line);
    power_tsv(p->screen.to, i + 1, r);
}

/* Rows of what was timed; the trial's settings stand before the first. */
static void time_rows(struct report *p, int i, const struct result *r)
{
    struct row row;
    int first = 1;

    for (int j = 0; j < r->n_ran; j++)
        for (enum pass q = FORWARD; q < op_passes(r->trial->call.op); q++) {
            if (!times_has(&r->ran[j]))
                continue;
            group_trial(&p->group, p->x, i, &row);
            times_cells(&row, p->x->ceilings, r, &r->ran[j], q);
            table_row(&p->group.table, &p->screen, &row, first);
            first = 0;
        }
    if (first) {
        no_row(p, i);
        say(&p->screen, 6, "nothing was timed");
    }
    for (int j = 0; j < r->n_ran; j++)
        if (times_wanted(&r->ran[j]) && !times_has(&r->ran[j]))
            say(&p->screen, 6, "%s %s: no time: it failed parity", ran_name(&r->ran[j]),
                r->ran[j].call.kernel->name);
}

/* Advice on the kernel that runs; --verbose: on all, with what is known of each. */
static void advice_lines(struct report *p, const struct result *r)
{
    int n = 0;

    for (int j = 0; j < r->n_ran; j++) {
        const struct ran *ran = &r->ran[j];
        const int judged = ran->call.backend->machine->device.probe && times_has(ran);
        for (enum pass q = FORWARD; judged && q < op_passes(r->trial->call.op); q++) {
            if (p->verbose)
                times_profile_line(&p->screen, p->x->ceilings, r, ran, q);
            if (p->verbose || !n)
                times_advice(&p->screen, p->x->ceilings, ran, q);
        }
        n += judged;
    }
}

static void crossover_batches(struct report *p, int i, const struct result *r)
{
    struct row row;

    for (int k = 0; k < r->n_crossovers; k++) {
        for (int j = 0; j < r->crossover[k].n; j++) {
            group_trial(&p->group, p->x, i, &row);
            crossover_cells(&row, &r->crossover[k], j);
            table_row(&p->group.table, &p->screen, &row, k == 0 && j == 0);
        }
        crossover_line(&p->screen, &r->crossover[k]);
    }
    if (!r->n_crossovers) {
        no_row(p, i);
        say(&p->screen, 6, "nothing was timed");
    }
}

static void declined_lines(struct report *p, const struct result *r)
{
    for (int i = 0; i < r->n_declined; i++) {
        const struct declined *d = &r->declined[i];
        say(&p->screen, 6, "declined  %s %s: %s", d->backend->name, d->kernel->name, d->why);
    }
}

static void warning_line(struct report *p, int i)
{
    const struct trial *t = &p->x->trial[i];
    const char *warning = t->call.op->warning ? t->call.op->warning(&t->call) : NULL;

    if (warning)
        say(&p->screen, 6, "warning   %s", warning);
}

/* " x W_k" behind `head`: those of a trial's inputs that its file gave, or did not; nothing where
 * there are none. */
static void name_inputs(char *to, size_t size, const char *head, const struct result *r,
                        unsigned given)
{
    const struct op *o = r->trial->call.op;

    for (int a = 0; a < o->n_args; a++)
        if (o->arg[a].flags & IN && op_has(&r->trial->call, a) &&
            (unsigned)set_has(&r->from.given, a) == given) {
            append(to, size, "%s %s", head, o->arg[a].name);
            head = "";
        }
}

/* The sources of the trial's inputs, once per section, and warnings about them.  Those in a dump that is
 * judged are each dataset's attribute `origin`. */
static void input_lines(struct report *p, const struct result *r)
{
    const struct trial *t = r->trial;
    char read[2048] = "", drawn[2048] = "";

    if (!p->judged && t->input != INPUT_NORMAL && t->input != INPUT_NONZERO &&
        p->x->measure != MEASURE_CROSSOVER && (!p->any_inputs || p->inputs_of != t->line)) {
        name_inputs(read, sizeof read, "read", r, 1);
        name_inputs(drawn, sizeof drawn, "; drawn", r, 0);
        say(&p->screen, 6, "inputs    %s from %s%s%s%s%s", read, t->file,
            *t->group || *t->tensor ? ":" : "", t->group, t->tensor, drawn);
        p->any_inputs = 1;
        p->inputs_of = t->line;
    }
    for (const char *at = r->from.warnings; *at; at += strcspn(at, "\n"), at += *at == '\n')
        say(&p->screen, 6, "warning   %.*s", (int)strcspn(at, "\n"), at);
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
        no_row(p, i);
        say(&p->screen, 6, "nothing was judged");
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
    char axes[ALL_AXES], text[400], rows[600], sums[1024] = "";
    const char *head = "; all elements of";

    sample_all_axes(f, &r->sampled->sample, axes);
    if (f->op->kernels)
        snprintf(rows, sizeof rows,
                 "call by call, those of much work by a sample (seed %" PRIu64 ")", r->trial->seed);
    else if (*axes)
        snprintf(rows, sizeof rows, "by sample of %s (seed %" PRIu64 ")",
                 sample_text(f, &r->sampled->sample, axes, text, sizeof text), r->trial->seed);
    else
        snprintf(rows, sizeof rows, "by sample: all rows, no axis has more than %d", SAMPLE_ROWS);
    for (int i = 0; i < r->verdicts.n; i++)
        if (by_sums(r, &r->verdicts.v[i])) {
            append(sums, sizeof sums, "%s %s", head, r->verdicts.v[i].tensor);
            head = ",";
        }
    say(&p->screen, 6, "judged    %s%s%s", rows, sums, *sums ? " by Freivalds' check" : "");
}

/* What the other programs say that they round, by which their bounds are wider. */
static void declared_lines(const struct report *p, const struct result *r)
{
    for (int j = 0; j < r->n_ran; j++) {
        const struct ran *ran = &r->ran[j];
        const char *rounds = ran->name ? strstr(ran->call.kernel->name, "rounds ") : NULL;
        if (rounds)
            say(&p->screen, 6, "declared  %s %s", ran->name, rounds);
    }
}

static void verbose_lines(const struct report *p, const struct result *r)
{
    counts_by_name(&p->screen, &r->verdicts);
    power_lines(&p->screen, r);
}

/* The run of a trial of measure = train. */
static void trained_row(struct report *p, int i, const struct result *r)
{
    const char *name = r->trained->of->backend->name;
    char text[160];
    struct row row;

    group_trial(&p->group, p->x, i, &row);
    training_cells(&row, r->trained,
                   counts_text(counts_of(&r->verdicts, name), p->screen.colour, text));
    table_row(&p->group.table, &p->screen, &row, 1);
    training_lines(&p->screen, r->trained);
}

static void trial_rows(struct report *p, int i, const struct result *r)
{
    begin_table(p, i);
    if (p->x->measure == MEASURE_TRAIN)
        trained_row(p, i, r);
    else if (p->x->measure == MEASURE_TIME)
        time_rows(p, i, r);
    else if (p->x->measure == MEASURE_CROSSOVER)
        crossover_batches(p, i, r);
    else
        ran_rows(p, i, r);
    if (p->x->measure == MEASURE_TIME)
        advice_lines(p, r);
    if (p->verbose)
        verbose_lines(p, r);
    growth_lines(&p->screen, r, p->verbose);
    declined_lines(p, r);
    if (r->sampled)
        sample_line(p, r);
    input_lines(p, r);
    warning_line(p, i);
    if (p->judged) {
        declared_lines(p, r);
        missing_lines(p, i, r);
    }
    failure_lines(p, i, r);
}

static void trial_records(struct report *p, int i, const struct result *r)
{
    input_lines(p, r);
    if (r->sampled)
        sample_line(p, r);
    goals_lines(&p->screen, i, r);
    if (p->x->measure == MEASURE_TIME)
        times_tsv(p->screen.to, i + 1, p->x->ceilings, r);
    else if (p->x->measure == MEASURE_TRAIN)
        training_tsv(p->screen.to, i + 1, r);
    else if (p->x->measure == MEASURE_CROSSOVER)
        crossover_tsv(p->screen.to, i + 1, r);
    else
        check_records(p, i, r);
}

/* Each reason once, however many trials it holds for; a line each. */
static void keep_reasons(struct report_sums *to, const char *skips)
{
    char line[300];
    for (; *skips; skips += strcspn(skips, "\n"), skips += *skips == '\n') {
        const int n = (int)strcspn(skips, "\n"), most = (int)sizeof line - 1;
        snprintf(line, sizeof line, "%.*s", quote_fit(skips, n < most ? n : most), skips);
        if (!strstr(to->why_skipped, line))
            append(to->why_skipped, sizeof to->why_skipped, "%s%s", *to->why_skipped ? "\n" : "",
                   line);
    }
}

static void add_sums(struct report_sums *to, const struct report_sums *s)
{
    to->checks += s->checks;
    to->failed += s->failed;
    to->skipped += s->skipped;
    to->missing += s->missing;
    to->unchecked += s->unchecked;
    to->unjudged += s->unjudged;
    to->missed += s->missed;
    to->trained += s->trained;
    to->diverged += s->diverged;
    to->copies += s->copies;
    to->hidden += s->hidden;
    keep_worst(&to->difference, &s->difference);
    keep_worst(&to->yard, &s->yard);
    keep_worst(&to->margin, &s->margin);
    keep_reasons(to, s->why_skipped);
}

/* All of a trial but the yardstick's, which is known where its row is printed. */
static struct report_sums sums_of(int i, const struct result *r)
{
    struct report_sums s = {.checks = r->verdicts.n,
                            .failed = r->failed,
                            .skipped = r->skipped,
                            .missing = r->missing,
                            .unchecked = r->unchecked,
                            .unjudged = verdicts_unjudged(&r->verdicts, 0),
                            .missed = verdicts_missed(&r->verdicts),
                            .trained = r->trained != NULL,
                            .diverged = r->trained && r->trained->end == RUN_DIVERGED,
                            .copies = r->copies,
                            .hidden = r->hidden};

    keep_reasons(&s, r->skips);
    for (int j = 0; j < r->verdicts.n; j++) {
        const struct verdict *v = &r->verdicts.v[j];
        if (strcmp(v->check, "differences") == 0 && !v->unjudged)
            note_worst(&s.difference, v, v->error, i + 1);
        if (strcmp(v->check, "parity") == 0 && v->bound > 0)
            note_worst(&s.margin, v, v->error / v->bound, i + 1);
    }
    return s;
}

static void print_trial(struct report *p, int i, const struct result *r)
{
    if (p->screen.tsv)
        trial_records(p, i, r);
    else
        trial_rows(p, i, r);
    fflush(p->screen.to);
}

void report_trial(struct report *p, int i, const struct result *r)
{
    const struct report_sums s = sums_of(i, r);

    progress_clear();
    p->done++;
    add_sums(&p->sums, &s);
    print_trial(p, i, r);
}

char *report_lines(struct report *p, int i, const struct result *r, struct report_sums *sums)
{
    FILE *const to = p->screen.to;
    char *lines = NULL;
    size_t size;

    p->screen.to = open_memstream(&lines, &size);
    if (p->screen.to) {
        p->sums = sums_of(i, r);
        if (!group_has(&p->group, i))
            group_begin(&p->group, p->x, i, p->screen.width);
        print_trial(p, i, r);
        *sums = p->sums;
        fclose(p->screen.to);
    }
    p->screen.to = to;
    return lines ? lines : err_null("no memory for the lines of trial %d", i + 1);
}

void report_elsewhere(struct report *p, int i, const char *lines, const struct report_sums *sums)
{
    progress_clear();
    p->done++;
    add_sums(&p->sums, sums);
    if (!p->screen.tsv)
        begin_table(p, i);
    fputs(lines, p->screen.to);
    fflush(p->screen.to);
}

void report_error(struct report *p, int i, const char *reason)
{
    char *quoted = quote_controls(reason); /* it may hold names from a file */
    const char *why = quoted ? quoted : "no memory to say why";
    char words[MAX_LINE];

    words_of(&p->x->trial[i], words);
    progress_clear();
    p->errors++;
    if (p->screen.tsv && p->x->measure != MEASURE_CHECK) {
        say(&p->screen, 0, "%d: error: %s: %s", i + 1, why, words);
    } else if (p->screen.tsv) {
        fprintf(p->screen.to, "%d\t\t\terror\t%s\t\t\tfail\t\t\t\t\t\t\t%s\n", i + 1, why, words);
    } else {
        begin_table(p, i);
        no_row(p, i);
        char *line = NULL;
        if (asprintf(&line, "%sFAILED%s: %s", colour_begin(p->screen.colour, RED),
                     colour_end(p->screen.colour), why) < 0)
            line = NULL;
        say_printable(&p->screen, 6, line ? line : why);
        free(line);
        again_line(p, NULL, NULL, &p->x->trial[i]);
    }
    free(quoted);
    fflush(p->screen.to);
}

void report_resumed(struct report *p, const struct store_counts *c)
{
    p->done++;
    p->sums.checks += c->checks;
    p->sums.failed += c->failed + (p->x->goals_reported ? 0 : c->missed);
    p->sums.missed += p->x->goals_reported ? c->missed : 0;
    p->sums.unjudged += c->unjudged;
    p->sums.skipped += c->skipped;
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
    const struct screen *s = &p->screen;
    const struct timing *t = compared(c);
    const int red = s->colour && c->pace == SLOWER;
    char was[NUMBER_TEXT], is[NUMBER_TEXT], name[160] = "", text[2 * MAX_CELL];

    if (t->runs)
        snprintf(name, sizeof name, ", %s %s %s", t->backend, t->kernel, t->pass);
    if (c->pace == NOT_COMPARED) {
        say(s, 6, "trial %d%s: not compared, %s", i + 1, name, c->why);
        return;
    }
    snprintf(text, sizeof text,
             "trial %d%s: was %s, is %s, ratio %.3f, noise %.3f, limit %.3f: %s%s%s", i + 1, name,
             number_seconds(c->was.median, was), number_seconds(c->is.median, is),
             c->is.median / c->was.median, c->noise / c->was.median, c->limit / c->was.median,
             colour_begin(red, RED), words[c->pace], colour_end(red));
    say_printable(s, 6, text);
}

/* Its value is the ratio, its bound the largest that is not slower. */
static void comparison_record(const struct report *p, int i, const struct comparison *c)
{
    const struct timing *t = compared(c);

    fprintf(p->screen.to, "%d\t%s\t%s\tbaseline\t%s\t", i + 1, t->backend, t->kernel, t->pass);
    if (c->pace == NOT_COMPARED)
        fprintf(p->screen.to, "\t\tskip\t\t\t");
    else
        fprintf(p->screen.to, "%.6g\t%.6g\t%s\t\t\t", c->is.median / c->was.median,
                1 + c->limit / c->was.median, c->pace == SLOWER ? "fail" : "pass");
    fprintf(p->screen.to, "\t\t\t\t%s\n", p->x->trial[i].text);
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
        p->sums.checks += c->pace != NOT_COMPARED;
        p->sums.skipped += c->pace == NOT_COMPARED;
        slower += c->pace == SLOWER;
        if (p->screen.tsv)
            comparison_record(p, i, c);
        else
            comparison_line(p, i, c);
    }
    p->sums.failed += slower;
    if (slower && !p->screen.tsv)
        again_line(p, b, NULL, &p->x->trial[i]);
    fflush(p->screen.to);
}

/* ---- end ---- */

static void skipped_line(const struct report *p)
{
    char why[2 * sizeof p->sums.why_skipped] = "";

    for (const char *at = p->sums.why_skipped; *at; at += strspn(at, "\n")) {
        const int n = (int)strcspn(at, "\n");
        append(why, sizeof why, "%s%.*s", *why ? "; " : "", n, at);
        at += n;
    }
    say(&p->screen, 0, "%-11s %s",
        p->sums.missing                         ? "left out"
        : p->sums.unchecked && !p->sums.skipped ? "not checked"
                                                : "skipped",
        why);
}

/* Copies of less take as good as nothing. */
static const double WORTH_SAYING = 0.1;

static void copies_line(const struct report *p)
{
    char all[NUMBER_TEXT], hidden[NUMBER_TEXT] = "none";

    if (p->sums.hidden > 0)
        number_seconds(p->sums.hidden, hidden);
    if (p->sums.copies >= WORTH_SAYING)
        say(&p->screen, 0, "copies      %s to the device and back, %s of them while references ran",
            number_seconds(p->sums.copies, all), hidden);
}

/* What the trials had in common. */
static void summary(struct report *p, const char *file)
{
    const struct screen *s = &p->screen;
    char size[NUMBER_TEXT];
    struct stat st;

    fputc('\n', s->to);
    if (p->sums.difference.trial)
        say(s, 0,
            "gradients   differ from central differences by at most %.1e of the gradient (%s, "
            "trial %d)",
            p->sums.difference.value, p->sums.difference.tensor, p->sums.difference.trial);
    if (p->sums.yard.trial)
        say(s, 0, "yardstick   differs from the oracle by at most %.1e (%s, trial %d)",
            p->sums.yard.value, p->sums.yard.tensor, p->sums.yard.trial);
    if (p->sums.margin.trial)
        say(s, 0, "parity      at most %.2f of its bound (%s, trial %d)", p->sums.margin.value,
            p->sums.margin.tensor, p->sums.margin.trial);
    if (p->baseline)
        say(s, 0, "baseline    %d slower than in %s, %d faster, %d as before, %d not compared",
            p->pace[SLOWER], p->baseline, p->pace[FASTER], p->pace[AS_BEFORE],
            p->pace[NOT_COMPARED]);
    copies_line(p);
    if (*p->sums.why_skipped)
        skipped_line(p);
    if (stat(file, &st) == 0)
        say(s, 0, "%s  %s, %d of %d trials, %.0f s", file, number_bytes((double)st.st_size, size),
            p->done, p->x->n, difftime(time(NULL), p->begun));
}

void report_note(struct report *p, const char *fmt, ...)
{
    char text[300];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    progress_clear();
    say(&p->screen, 0, "%s", text);
}

void report_ablation(struct report *p, const struct stored_ablation *a)
{
    progress_clear();
    if (!p->screen.tsv && a->runs.n > 1) /* one run has been printed */
        ablation_text(&p->screen, a);
}

int report_end(struct report *p, const char *file, int interrupted)
{
    char failed[40] = "", missing[40] = "", unchecked[40] = "", unjudged[40] = "", missed[40] = "",
         errors[60] = "";

    progress_clear();
    if (!p->screen.tsv)
        summary(p, file);
    if (interrupted)
        say(&p->screen, 0, "stopped after %d of %d trials; %s", p->done, p->x->n,
            p->judged ? "their verdicts are in the file" : "--resume goes on from there");
    if (p->sums.checks)
        snprintf(failed, sizeof failed, "%d failed, ", p->sums.failed);
    if (p->sums.missing)
        snprintf(missing, sizeof missing, ", %d missing", p->sums.missing);
    if (p->sums.unchecked)
        snprintf(unchecked, sizeof unchecked, ", %d not checked", p->sums.unchecked);
    if (p->sums.unjudged)
        snprintf(unjudged, sizeof unjudged, ", %d cannot be judged", p->sums.unjudged);
    if (p->sums.missed)
        snprintf(missed, sizeof missed, ", %d goal%s missed", p->sums.missed,
                 p->sums.missed > 1 ? "s" : "");
    if (p->errors)
        snprintf(errors, sizeof errors, ", %d trial%s could not be run", p->errors,
                 p->errors > 1 ? "s" : "");
    if (p->x->measure == MEASURE_TRAIN)
        say(&p->screen, 0, "%d run%s, %d diverged", p->sums.trained,
            p->sums.trained == 1 ? "" : "s", p->sums.diverged);
    say(&p->screen, 0, "%d checks, %s%d skipped%s%s%s%s%s%s", p->sums.checks, failed,
        p->sums.skipped, missing, unchecked, unjudged, missed, errors,
        p->sums.checks || p->errors ? "" : ": nothing was checked");
    return p->sums.failed;
}

void report_plan(const struct experiment *x, FILE *to, FILE *aside)
{
    char size[DUMP_SIZE], time[RUN_TIME];

    for (int i = 0; i < x->n; i++)
        fprintf(to, "%d\t%s\n", i + 1, x->trial[i].text);
    if (*dump_size(x, NULL, size))
        fprintf(aside, "%s: %d trial%s take%s %s\n", x->output, x->n, x->n == 1 ? "" : "s",
                x->n == 1 ? "s" : "", size);
    if (*run_time(x, 0, time))
        fprintf(aside, "%s\n", time);
    if (x->measure == MEASURE_TRAIN)
        sizes_table(x, aside);
}
