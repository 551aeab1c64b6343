/* Prints times: as words, columns and tab-separated fields (time_text.h). */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/report/time_text.h"
#include "common/store/time_rows.h"

const char *seconds_text(double s, char text[16])
{
    double scale = s < 1e-3 ? 1e6 : s < 1 ? 1e3 : 1;
    double x = s * scale;
    snprintf(text, 16, "%.*f %s",
             x < 10    ? 2
             : x < 100 ? 1
                       : 0,
             x,
             s < 1e-3 ? "us"
             : s < 1  ? "ms"
                      : "s");
    return text;
}

/* "4.25 T" of 4.25e12. */
static const char *large_text(double x, char text[16])
{
    static const char units[] = " kMGTP";
    int i = 0;
    for (; x >= 1000 && units[i + 1]; i++)
        x /= 1000;
    snprintf(text, 16, "%.*f%s%.1s",
             x < 10    ? 2
             : x < 100 ? 1
                       : 0,
             x, i ? " " : "", i ? units + i : "");
    return text;
}

void times_ceilings(FILE *to, const struct ceilings *c, const char *why)
{
    char a[16], b[16], d[16], e[16], launch[16];

    if (!c) {
        fprintf(to, "  no ceilings measured (%s)\n", why);
        return;
    }
    fprintf(to,
            "  ceilings  memory %sB/s read + written, tensor %sFLOP/s, fp32 %sFLOP/s,\n"
            "            special %s/s; latency %.2f ns per multiply-add, %.2f ns per tanh, at %.0f "
            "MHz\n"
            "  apart     a launch takes %s\n",
            large_text(c->memory, a), large_text(c->tensor, b), large_text(c->fp32, d),
            large_text(c->special, e), c->flop_time * 1e9, c->special_time * 1e9, c->clock * 1e-6,
            seconds_text(c->launch, launch));
}

const char *mebibytes_text(int64_t bytes, char text[16])
{
    double x = (double)bytes * 0x1p-20;
    snprintf(text, 16, "%.*f", x < 10 ? 2 : 1, x);
    return text;
}

/* ---- measure = time ---- */

int times_wanted(const struct ran *ran)
{
    return times_has(ran) ||
           (ran->call.backend != &ref64 && ran->call.backend != yardstick(ran->call.backend));
}

void times_head(FILE *to)
{
    for (const struct column *c = time_columns; c->name; c++)
        if (c->head)
            fprintf(to, c->kind == 's' ? "  %-*s" : "  %*s", c->width, c->head);
    fprintf(to, "  %-18s  %s\n", "worst error", "MiB used, predicted, saved");
}

/* A number as a person reads it. */
static const char *number_text(const struct column *c, const void *value, char text[16])
{
    double x = c->kind == 'i' ? (double)*(const int64_t *)value : *(const double *)value;

    switch (c->unit) {
    case IN_SECONDS: return seconds_text(x, text);
    case PER_SECOND: return large_text(x, text);
    case GIGA_PER_SECOND: snprintf(text, 16, "%.1f", x * 1e-9); break;
    case FRACTION:
        if (!(x > 0)) /* not known, or this ceiling does not apply */
            return "-";
        snprintf(text, 16, "%.1f %%", 100 * x);
        break;
    default: snprintf(text, 16, "%.0f", x);
    }
    return text;
}

/* The device's own count, what was predicted, and what of it waits for backward. */
static void memory(FILE *to, const struct time_row *row)
{
    char used[16] = "-", predicted[16], saved[16];

    if (row->used_bytes >= 0)
        mebibytes_text(row->used_bytes, used);
    fprintf(to, "  %s, %s, %s", used, mebibytes_text(row->predicted_bytes, predicted),
            mebibytes_text(row->saved_bytes, saved));
}

void times_row(FILE *to, const struct ceilings *ceilings, const struct result *r,
               const struct ran *ran, enum pass p)
{
    const struct time_row row = time_row(ceilings, r, ran, p);
    char text[16], worst[48] = "-";

    for (const struct column *c = time_columns; c->name; c++) {
        const void *value = (const char *)&row + c->offset;
        if (!c->head)
            continue;
        if (c->kind == 's') {
            const char *name = *(const char *const *)value;
            fprintf(to, "  %-*s", c->width, *name ? name : "-");
        } else if (times_has(ran)) {
            fprintf(to, "  %*s", c->width, number_text(c, value, text));
        } else {
            fprintf(to, "  no time: it failed parity\n");
            return;
        }
    }
    if (row.error >= 0)
        snprintf(worst, sizeof worst, "%.1e %s", row.error, row.worst);
    fprintf(to, "  %-*s", p == FORWARD ? 18 : 0, worst);
    if (p == FORWARD)
        memory(to, &row);
    fputc('\n', to);
}

/* ---- records ---- */

static void tsv_head(FILE *to, const struct column *c)
{
    const char *before = "";
    for (; c->name; c++)
        if (c->shown & IN_TSV) {
            fprintf(to, "%s%s", before, c->name);
            before = "\t";
        }
    fputc('\n', to);
}

static void tsv_value(FILE *to, const struct column *c, const void *value)
{
    if (c->kind == 's') {
        fputs(*(const char *const *)value, to);
    } else if (c->kind == 'i') {
        int64_t n = *(const int64_t *)value;
        if (n >= 0)
            fprintf(to, "%" PRId64, n);
    } else {
        double x = *(const double *)value;
        int whole = c->unit == IN_ROWS && x == floor(x);
        if (!isnan(x))
            fprintf(to, "%.*g", whole ? 17 : c->unit == FRACTION ? 4 : 6, x);
    }
}

static void tsv_row(FILE *to, const struct column *c, const void *row)
{
    const char *before = "";
    for (; c->name; c++)
        if (c->shown & IN_TSV) {
            fputs(before, to);
            tsv_value(to, c, (const char *)row + c->offset);
            before = "\t";
        }
    fputc('\n', to);
}

void times_tsv_head(FILE *to)
{
    tsv_head(to, time_columns);
}

void times_tsv(FILE *to, int trial, const struct ceilings *c, const struct result *r)
{
    struct time_row row;

    for (int i = 0; i < r->n_ran; i++)
        for (enum pass p = FORWARD; p < op_passes(r->trial->call.op); p++)
            if (times_wanted(&r->ran[i])) {
                row = time_row(c, r, &r->ran[i], p);
                row.trial = trial;
                tsv_row(to, time_columns, &row);
            }
    for (int i = 0; i < r->n_declined; i++) {
        char verdict[sizeof r->declined[i].why + 16];
        snprintf(verdict, sizeof verdict, "declined: %s", r->declined[i].why);
        row = declined_row(r, &r->declined[i], verdict);
        row.trial = trial;
        tsv_row(to, time_columns, &row);
    }
}

/* ---- measure = crossover ---- */

void crossover_head(FILE *to)
{
    fprintf(to, "  %-8s  %-12s  %8s  %10s  %10s  %12s  %12s\n", "backend", "kernel", "B*H",
            "forward", "backward", "per row", "per row");
}

void crossover_batch(FILE *to, const struct crossover *g, int i)
{
    const double *median = g->outcome[i].median;
    char a[16], b[16], d[16], e[16];

    fprintf(to, "  %-8s  %-12s  %8.0f  %10s  %10s  %12s  %12s\n", g->backend->name, g->kernel->name,
            g->rows[i], seconds_text(median[FORWARD], a), seconds_text(median[BACKWARD], b),
            seconds_text(median[FORWARD] / g->rows[i], d),
            seconds_text(median[BACKWARD] / g->rows[i], e));
}

void crossover_line(FILE *to, const struct crossover *g)
{
    fprintf(to, "      %s %s is bound by throughput:", g->backend->name, g->kernel->name);
    for (enum pass p = FORWARD; p < N_PASSES; p++) {
        double rows = crossover_rows(g, p);
        if (g->n && !g->outcome[0].runs[p])
            continue;
        if (rows > 0)
            fprintf(to, "%s %s from B*H = %.0f", p ? "," : "", pass_names[p], rows);
        else
            fprintf(to, "%s %s not up to %.0f", p ? "," : "", pass_names[p],
                    g->n ? g->rows[g->n - 1] : 0);
    }
    fprintf(to, "%s%s\n", *g->stopped ? "; " : "", g->stopped);
}

void crossover_tsv_head(FILE *to)
{
    tsv_head(to, crossover_time_columns);
}

void crossover_tsv(FILE *to, int trial, const struct result *r)
{
    for (int k = 0; k < r->n_crossovers; k++)
        for (enum pass p = FORWARD; p < N_PASSES; p++) {
            const struct crossover *g = &r->crossover[k];
            struct crossover_time row;
            if (g->n && !g->outcome[0].runs[p])
                continue;
            for (int i = 0; i < g->n; i++) {
                row = crossover_time(r, g, i, p);
                row.trial = trial;
                tsv_row(to, crossover_time_columns, &row);
            }
            row = crossover_as_time(r, g, p);
            row.trial = trial;
            tsv_row(to, crossover_time_columns, &row);
        }
}
