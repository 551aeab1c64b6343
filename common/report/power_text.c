/* What verdicts see and what would pass, as text (power_text.h). */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/quote.h"
#include "common/report/power_text.h"
#include "common/report/table.h"

/* "0.10 %", or where that is little "3.5e-07"; "none": the bound is no use. */
static const char *seen_text(double x, char text[32])
{
    if (isinf(x) || isnan(x))
        return isinf(x) ? "none" : "not known";
    snprintf(text, 32, x >= 1e-4 ? "%.2g %%" : "%.2g", x >= 1e-4 ? 100 * x : x);
    return x > 0 ? text : "any bit";
}

/* --verbose: what each verdict of parity would have seen; nonzero: there is one. */
static int sees_lines(const struct screen *s, const struct verdicts *list)
{
    int any = 0;

    for (int i = 0; i < list->n; i++) {
        const struct verdict *v = &list->v[i];
        char all[32], row[32], element[32], rows[64] = "", backend[MAX_CELL];
        if (strcmp(v->check, "parity") != 0 || !v->power.samples)
            continue;
        any = 1;
        quote_bytes(v->backend, strlen(v->backend), backend, sizeof backend);
        if (!isnan(v->power.slice))
            snprintf(rows, sizeof rows, ", a row %s", seen_text(v->power.slice, row));
        say(s, 6, "sees      %s %s, %s: %s%s, an element %s", backend, v->kernel, v->tensor,
            seen_text(v->power.all, all), rows, seen_text(v->power.element, element));
    }
    return any;
}

/* --verbose: the changes of the case that would pass. */
static void passing_lines(const struct screen *s, const struct result *r)
{
    if (!r->passing)
        return;
    if (!*r->passing)
        say(s, 6, "would pass  nothing that was asked");
    for (const char *at = r->passing; *at; at += strcspn(at, "\n"), at += *at == '\n')
        say(s, 6, "would pass  %.*s", (int)strcspn(at, "\n"), at);
}

void power_lines(const struct screen *s, const struct result *r)
{
    if (!sees_lines(s, &r->verdicts))
        sees_lines(s, &r->seen);
    passing_lines(s, r);
}

void verdict_tsv(FILE *to, int trial, const struct verdict *v, const char *line)
{
    const double seen[] = {v->power.all, v->power.slice, v->power.element};
    char backend[MAX_CELL]; /* another program's name, from a dump */

    quote_bytes(v->backend, strlen(v->backend), backend, sizeof backend);
    fprintf(to, "%d\t%s\t%s\t%s\t%s\t%.6g\t%.6g\t%s\t%" PRId64 "\t%" PRId64 "\t%s\t", trial,
            backend, v->kernel, v->check, v->tensor, v->error, v->bound, verdict_word(v), v->judged,
            v->elements, v->distance);
    for (size_t k = 0; k < COUNT(seen); k++)
        if (v->power.samples && !isnan(seen[k]))
            fprintf(to, "%.6g\t", seen[k]);
        else
            fputc('\t', to);
    fprintf(to, "%s\n", line);
}

void power_tsv(FILE *to, int trial, const struct result *r)
{
    for (int j = 0; j < r->seen.n; j++) {
        struct verdict v = r->seen.v[j];
        v.check = "sees";
        verdict_tsv(to, trial, &v, r->trial->text);
    }
    for (const char *at = r->passing ? r->passing : ""; *at;
         at += strcspn(at, "\n"), at += *at == '\n')
        fprintf(to, "%d\t\t\twould pass\t%.*s\t\t\t\t\t\t\t\t\t\t%s\n", trial,
                (int)strcspn(at, "\n"), at, r->trial->text);
}
