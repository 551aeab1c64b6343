/* Prints times: as words, columns and tab-separated fields (time_text.h). */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/base/grow.h"
#include "common/base/number.h"
#include "common/report/time_text.h"

void times_ceilings(const struct screen *s, const struct ceilings *c, const char *why)
{
    char a[NUMBER_TEXT], b[NUMBER_TEXT], d[NUMBER_TEXT], e[NUMBER_TEXT], launch[NUMBER_TEXT];

    if (!c) {
        say(s, 2, "no ceilings measured (%s)", why);
        return;
    }
    say(s, 2,
        "ceilings  memory %sB/s read + written, tensor %sFLOP/s, fp32 %sFLOP/s, special %s/s; "
        "latency %.2f ns per multiply-add, %.2f ns per tanh, at %.0f MHz",
        number_large(c->memory, a), number_large(c->tensor, b), number_large(c->fp32, d),
        number_large(c->special, e), c->flop_time * 1e9, c->special_time * 1e9, c->clock * 1e-6);
    say(s, 2, "apart     a launch takes %s", number_seconds(c->launch, launch));
}

const char *mebibytes_text(int64_t bytes, char text[NUMBER_TEXT])
{
    double x = (double)bytes * 0x1p-20;
    snprintf(text, NUMBER_TEXT, "%.*f", x < 10 ? 2 : 1, x);
    return text;
}

/* ---- measure = time ---- */

int times_wanted(const struct ran *ran)
{
    return times_has(ran) ||
           (ran->call.backend != &ref64 && ran->call.backend != yardstick(ran->call.backend));
}

/* The columns that are left out first where there is no room, in this order. */
static const char *const left_out[] = {
    "max",      "min",       "runs",         "special", "latency", "smem",        "registers",
    "launches", "intensity", "tokens_per_s", "tensor",  "fp32",    "flops_per_s", "waves",
    "backend",  "occupancy", "bytes_per_s",  "memory",  "bound_by"};
enum { DROP_MEMORY = 1, DROP_WORST = 4, DROP_NAMED = 5 };

static int drop_of(const char *name)
{
    for (int i = 0; i < (int)COUNT(left_out); i++)
        if (strcmp(left_out[i], name) == 0)
            return DROP_NAMED + i;
    return 0;
}

void times_columns(struct table *t)
{
    for (const struct column *c = time_columns; c->name; c++)
        if (c->head)
            table_add(t, c->head, c->width, c->kind == 's' ? WORDS : NUMBER, drop_of(c->name));
    table_add(t, "worst error", 0, NUMBER, DROP_WORST);
    table_add(t, "of", 10, WORDS, DROP_WORST);
    table_add(t, "MiB used", 8, NUMBER, DROP_MEMORY + 2);
    table_add(t, "predicted", 8, NUMBER, DROP_MEMORY);
    table_add(t, "saved", 8, NUMBER, DROP_MEMORY + 1);
}

const char *column_text(const struct column *c, const void *value, char text[NUMBER_TEXT])
{
    double x = c->kind == 'i' ? (double)*(const int64_t *)value : *(const double *)value;

    if (c->kind == 'i' ? x < 0 : isnan(x))
        return "-";
    switch (c->unit) {
    case PLAIN: /* at most six characters below a million */
        snprintf(text, NUMBER_TEXT, x >= 1000 ? "%.0f" : x >= 0.1 || x == 0 ? "%.3g" : "%.4f", x);
        break;
    case IN_SECONDS: return number_seconds(x, text);
    case PER_SECOND: return number_large(x, text);
    case GIGA_PER_SECOND: snprintf(text, NUMBER_TEXT, x < 1e14 ? "%.1f" : "%.0f", x * 1e-9); break;
    case FRACTION:
        if (!(x > 0)) /* not known, or this ceiling does not apply */
            return "-";
        snprintf(text, NUMBER_TEXT, "%.1f %%", 100 * x);
        break;
    default: snprintf(text, NUMBER_TEXT, "%.0f", x);
    }
    return text;
}

/* The device's own count, what was predicted, and what of it waits for backward. */
static void memory_cells(struct row *to, const struct time_row *row, enum pass p)
{
    const int64_t bytes[] = {row->used_bytes, row->predicted_bytes, row->saved_bytes};
    char text[NUMBER_TEXT];

    for (int i = 0; i < (int)COUNT(bytes); i++)
        row_add(to, "%s", p != FORWARD ? "" : bytes[i] < 0 ? "-" : mebibytes_text(bytes[i], text));
}

void times_cells(struct row *to, const struct ceilings *ceilings, const struct result *r,
                 const struct ran *ran, enum pass p)
{
    const struct time_row row = time_row(ceilings, r, ran, p);
    char text[NUMBER_TEXT];

    for (const struct column *c = time_columns; c->name; c++) {
        const void *value = (const char *)&row + c->offset;
        if (!c->head)
            continue;
        if (c->kind == 's')
            row_add(to, "%s", **(const char *const *)value ? *(const char *const *)value : "-");
        else
            row_add(to, "%s", times_has(ran) ? column_text(c, value, text) : "-");
    }
    if (row.error >= 0)
        row_add(to, "%.1e", row.error);
    else
        row_add(to, "-");
    row_add(to, "%s", row.worst);
    memory_cells(to, &row, p);
}

void times_advice(const struct screen *s, const struct ceilings *c, const struct ran *ran,
                  enum pass p)
{
    const struct profile profile = time_profile(c, ran, p);
    char text[ADVICE];

    if (*advice(ceilings_of(c, ran->call.backend), &profile, text))
        say(s, 6, "advice    %s %s: %s", ran->call.kernel->name, pass_names[p], text);
}

/* "3 FLOP/B, ridge 15.5, attainable 1.2 TFLOP/s, 82 % of it" */
static void roofline_text(const struct time_row *row, char text[160])
{
    char attainable[NUMBER_TEXT];

    *text = 0;
    if (!isnan(row->intensity))
        append(text, 160, "%.3g FLOP/B, ", row->intensity);
    if (!isnan(row->ridge))
        append(text, 160, "ridge %.3g, ", row->ridge);
    if (!isnan(row->attainable))
        append(text, 160, "attainable %sFLOP/s, ", number_large(row->attainable, attainable));
    if (!isnan(row->efficiency))
        append(text, 160, "%.1f %% of the roofline", 100 * row->efficiency);
}

void times_profile_line(const struct screen *s, const struct ceilings *c, const struct result *r,
                        const struct ran *ran, enum pass p)
{
    const struct time_row row = time_row(c, r, ran, p);
    const struct launches *l = &ran->outcome.launches[p];
    char roofline[160], launch[200] = "", smem[NUMBER_TEXT];

    roofline_text(&row, roofline);
    if (l->n)
        append(launch, sizeof launch, "; %d launch%s", (int)l->n, l->n == 1 ? "" : "es");
    if (l->n && l->registers >= 0)
        append(launch, sizeof launch,
               ", the largest of %" PRId64 " blocks of %" PRId64
               " threads: %d registers, %d bytes spilled, %s of shared memory, %d blocks per SM, "
               "occupancy %.0f %%, %.3g waves",
               l->blocks, l->threads, l->registers, l->spills, number_bytes(l->smem, smem),
               l->blocks_per_sm, 100 * row.occupancy, row.waves);
    if (*roofline || *launch)
        say(s, 6, "profile   %s %s: %s%s", ran->call.kernel->name, pass_names[p], roofline, launch);
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

void crossover_columns_of(struct table *t)
{
    table_add(t, "backend", 8, WORDS, 1);
    table_add(t, "kernel", 12, WORDS, 0);
    table_add(t, "B*H", 8, NUMBER, 0);
    table_add(t, "forward", 8, NUMBER, 0);
    table_add(t, "backward", 8, NUMBER, 0);
    table_add(t, "per row", 8, NUMBER, 3);
    table_add(t, "per row", 8, NUMBER, 2);
}

void crossover_cells(struct row *to, const struct crossover *g, int i)
{
    char text[NUMBER_TEXT];

    row_add(to, "%s", g->backend->name);
    row_add(to, "%s", g->kernel->name);
    row_add(to, "%.0f", g->rows[i]);
    for (int per_row = 0; per_row < 2; per_row++)
        for (enum pass p = FORWARD; p < N_PASSES; p++)
            row_add(to, "%s",
                    number_seconds(g->outcome[i].median[p] / (per_row ? g->rows[i] : 1), text));
}

void crossover_line(const struct screen *s, const struct crossover *g)
{
    char text[400];
    int at = snprintf(text, sizeof text, "%s %s is bound by throughput:", g->backend->name,
                      g->kernel->name);

    for (enum pass p = FORWARD; p < N_PASSES; p++) {
        double rows = crossover_rows(g, p);
        if (g->n && !g->outcome[0].runs[p])
            continue;
        at += snprintf(text + at, sizeof text - at,
                       rows > 0 ? "%s %s from B*H = %.0f" : "%s %s not up to %.0f", p ? "," : "",
                       pass_names[p],
                       rows > 0 ? rows
                       : g->n   ? g->rows[g->n - 1]
                                : 0);
    }
    say(s, 6, "%s%s%s", text, *g->stopped ? "; " : "", g->stopped);
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
