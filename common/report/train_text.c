/* Prints runs of training (train_text.h). */
#include "config.h"

#include <math.h>

#include "common/base/grow.h"
#include "common/base/number.h"
#include "common/report/train_text.h"

void training_columns(struct table *t)
{
    table_add(t, "backend", 8, WORDS, 0);
    table_add(t, "updates", 8, NUMBER, 2);
    table_add(t, "loss", 8, NUMBER, 0);
    table_add(t, "accuracy", 8, NUMBER, 0);
    table_add(t, "sequence", 8, NUMBER, 3);
    table_add(t, "learned at", 8, NUMBER, 1);
    table_add(t, "tokens/s", 8, NUMBER, 4);
    table_add(t, "ended", 8, WORDS, 5);
    table_add(t, "checks", 8, WORDS, 0);
}

static double share(int64_t of, int64_t all)
{
    return all ? (double)of / (double)all : 0;
}

void training_cells(struct row *to, const struct trained *r, const char *checks)
{
    const struct evaluated *e = &r->test;
    char rate[NUMBER_TEXT];

    row_add(to, "%s", r->of->backend->name);
    row_add(to, "%lld", (long long)r->done);
    if (isfinite(e->loss))
        row_add(to, fabs(e->loss) < 1e6 ? "%.4f" : "%.4g", e->loss);
    else
        row_add(to, "-");
    row_add(to, "%.4f", share(e->hits, e->targets));
    row_add(to, "%.4f", share(e->rows_right, e->rows));
    if (r->learned)
        row_add(to, "%lld", (long long)r->learned);
    else
        row_add(to, "-");
    row_add(to, "%s", trained_rate(r) > 0 ? number_count(trained_rate(r), rate) : "-");
    row_add(to, "%s", run_ends[r->end]);
    row_add_printable(to, checks);
}

/* The updates that were judged, and the rows of step parity, where it took fewer. */
static void judged_line(const struct screen *s, const struct trained *r)
{
    const int64_t B = r->of->cell->batch.dim['B' - 'A'];
    char updates[400] = "", step[120] = "";
    const int64_t rows = r->n_judged ? r->judged[0].rows : 0;

    if (!r->n_judged)
        return;
    for (int i = 0; i < r->n_judged; i++)
        append(updates, sizeof updates, "%s %lld", i ? "," : "", (long long)r->judged[i].update);
    if (!rows)
        append(step, sizeof step, "; the whole model not: one row takes the oracle over its time");
    else if (rows < B)
        append(step, sizeof step, "; the whole model on its first %lld rows of %lld",
               (long long)rows, (long long)B);
    say(s, 6, "judged    updates%s, call by call%s", updates, step);
    if (r->free_updates)
        say(s, 6, "          the first %lld beside the oracle's own run",
            (long long)r->free_updates);
}

/* The accuracy at each length of the test. */
static void lengths_line(const struct screen *s, const struct trained *r)
{
    char text[600] = "";

    for (int i = 0; r->test_at && i < r->of->n_lengths; i++)
        append(text, sizeof text, "%s %lld %.4f", i ? "," : "", (long long)r->of->length[i],
               share(r->test_at[i].hits, r->test_at[i].targets));
    if (*text)
        say(s, 6, "lengths  %s", text);
}

void training_lines(const struct screen *s, const struct trained *r)
{
    lengths_line(s, r);
    judged_line(s, r);
    if (r->n_skipped)
        say(s, 6, "skipped   %lld update%s, whose gradients were no finite numbers",
            (long long)r->n_skipped, r->n_skipped == 1 ? "" : "s");
    if (r->end == RUN_DIVERGED)
        say(s, 6, "diverged  at update %lld", (long long)r->done);
}

void training_tsv_head(FILE *to)
{
    fputs("trial\tbackend\tsplit\tupdate\tloss\taccuracy\tsequence_accuracy\tlearned\ttokens_per_"
          "s\tended\tline\n",
          to);
}

/* A NaN has no sign. */
static double unsigned_nan(double x)
{
    return isnan(x) ? NAN : x;
}

void training_tsv(FILE *to, int trial, const struct result *r)
{
    const struct trained *t = r->trained;
    const char *name = t->of->backend->name;

    for (int k = 0; k < t->n_validations; k++)
        fprintf(to, "%d\t%s\tvalidation\t%lld\t%.9g\t%.9g\t\t\t\t\t%s\n", trial, name,
                (long long)t->validation[k].update, unsigned_nan(t->validation[k].loss),
                t->validation[k].accuracy, r->trial->text);
    fprintf(to, "%d\t%s\ttest\t%lld\t%.9g\t%.9g\t%.9g\t%lld\t%.6g\t%s\t%s\n", trial, name,
            (long long)t->done, unsigned_nan(t->test.loss), share(t->test.hits, t->test.targets),
            share(t->test.rows_right, t->test.rows), (long long)t->learned, trained_rate(t),
            run_ends[t->end], r->trial->text);
}
