#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/check.h"
#include "common/times.h"

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
    fprintf(
        to,
        "  ceilings  memory %sB/s read + written, tensor %sFLOP/s, fp32 %sFLOP/s,\n"
        "            special %s/s; latency %.2f ns a multiply-add, %.2f ns a tanh, at %.0f MHz\n"
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

/* The worst error of a pass's results, outputs or gradients, and whose; -1: it
 * was not judged. */
static double error_of(const struct result *r, const struct ran *ran, enum pass p,
                       const char **tensor)
{
    double error = -1;
    *tensor = "";
    for (int i = 0; i < r->verdicts.n; i++) {
        const struct verdict *v = &r->verdicts.v[i];
        int gradient = strncmp(v->tensor, "d_", 2) == 0;
        if (strcmp(v->backend, ran->backend->name) == 0 &&
            strcmp(v->kernel, ran->kernel->name) == 0 && gradient == (p == BACKWARD) &&
            !(v->error <= error)) {
            error = v->error;
            *tensor = v->tensor;
        }
    }
    return error;
}

int times_has(const struct ran *ran)
{
    return ran->outcome.runs[FORWARD] > 0;
}

int times_wanted(const struct ran *ran)
{
    return times_has(ran) || (ran->backend != &ref64 && ran->backend != yardstick(ran->backend));
}

void times_head(FILE *to)
{
    fprintf(to, "  %-7s  %-12s  %-8s  %8s  %8s  %8s  %4s  %8s  %8s  %8s", "backend", "kernel",
            "pass", "median", "min", "max", "runs", "tokens/s", "GFLOP/s", "GB/s");
    for (int i = 0; i < N_CEILINGS; i++)
        fprintf(to, "  %7s", ceiling_names[i]);
    fprintf(to, "  %-8s  %-18s  %s\n", "bound by", "worst error", "MiB used, predicted, saved");
}

/* What of each ceiling it reached; nothing where a ceiling does not apply, or
 * is none of this backend's. */
static void fractions(FILE *to, const struct ceilings *c, const struct result *r,
                      const struct ran *ran, enum pass p)
{
    int known = ceilings_of(c, ran->backend) != NULL;
    double least[N_CEILINGS];
    char text[16];

    if (known)
        least_times(c, r->trial->op, ran->backend, &r->trial->sizes, p, least);
    for (int i = 0; i < N_CEILINGS; i++) {
        strcpy(text, "-");
        if (known && least[i] > 0)
            snprintf(text, sizeof text, "%.1f %%", 100 * least[i] / ran->outcome.median[p]);
        fprintf(to, "  %7s", text);
    }
    fprintf(to, "  %-8s", known ? ceiling_names[binding(least)] : "-");
}

/* The device's own count, what was predicted, and what of it waits for backward. */
static void memory(FILE *to, const struct result *r, const struct ran *ran)
{
    char used[16] = "-", predicted[16], saved[16];

    if (ran->used)
        mebibytes_text(ran->used, used);
    fprintf(to, "  %s, %s, %s", used, mebibytes_text(ran->predicted, predicted),
            mebibytes_text(op_saved(r->trial->op, ran->backend, &r->trial->sizes), saved));
}

void times_row(FILE *to, const struct ceilings *c, const struct result *r, const struct ran *ran,
               enum pass p)
{
    const struct op *o = r->trial->op;
    const struct frame *f = &r->trial->sizes;
    const struct outcome *out = &ran->outcome;
    double median = out->median[p];
    char a[16], b[16], d[16], e[16], worst[48] = "-";
    const char *tensor;

    fprintf(to, "  %-7s  %-12s  %-8s  ", ran->backend->name, ran->kernel->name, pass_names[p]);
    if (!times_has(ran)) {
        fprintf(to, "no time: it failed parity\n");
        return;
    }
    fprintf(to, "%8s  %8s  %8s  %4d  %8s  %8.1f  %8.1f", seconds_text(median, a),
            seconds_text(out->min[p], b), seconds_text(out->max[p], d), out->runs[p],
            large_text(case_tokens(o, f) / median, e), o->flops(f, p) / median * 1e-9,
            op_bytes(o, ran->backend, f, p) / median * 1e-9);
    fractions(to, c, r, ran, p);
    double error = error_of(r, ran, p, &tensor);
    if (error >= 0)
        snprintf(worst, sizeof worst, "%.1e %s", error, tensor);
    fprintf(to, "  %-*s", p == FORWARD ? 18 : 0, worst);
    if (p == FORWARD)
        memory(to, r, ran);
    fputc('\n', to);
}

void times_tsv_head(FILE *to)
{
    fprintf(to, "trial\tbackend\tkernel\tpass\tmedian\tmin\tmax\truns\ttokens_per_s\tflops_per_s\t"
                "bytes_per_s");
    for (int i = 0; i < N_CEILINGS; i++)
        fprintf(to, "\t%s", ceiling_names[i]);
    fprintf(to,
            "\tbound_by\tworst\terror\tsaved_bytes\tpredicted_bytes\tused_bytes\tverdict\tline\n");
}

static void tsv_row(FILE *to, int trial, const struct ceilings *c, const struct result *r,
                    const struct ran *ran, enum pass p)
{
    const struct op *o = r->trial->op;
    const struct frame *f = &r->trial->sizes;
    const struct outcome *out = &ran->outcome;
    double median = out->median[p], least[N_CEILINGS];
    int known = ceilings_of(c, ran->backend) != NULL;
    const char *tensor;

    fprintf(to, "%d\t%s\t%s\t%s", trial, ran->backend->name, ran->kernel->name, pass_names[p]);
    if (!times_has(ran)) {
        fprintf(to, "\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\tfail\t%s\n", r->trial->text);
        return;
    }
    fprintf(to, "\t%.6g\t%.6g\t%.6g\t%d\t%.6g\t%.6g\t%.6g", median, out->min[p], out->max[p],
            out->runs[p], case_tokens(o, f) / median, o->flops(f, p) / median,
            op_bytes(o, ran->backend, f, p) / median);
    if (known)
        least_times(c, o, ran->backend, f, p, least);
    for (int i = 0; i < N_CEILINGS; i++)
        known ? fprintf(to, "\t%.4g", least[i] / median) : fprintf(to, "\t");
    fprintf(to, "\t%s\t", known ? ceiling_names[binding(least)] : "");
    double error = error_of(r, ran, p, &tensor);
    error >= 0 ? fprintf(to, "%s\t%.4g", tensor, error) : fprintf(to, "\t");
    fprintf(to, "\t%" PRId64 "\t%" PRId64 "\t", op_saved(o, ran->backend, f), ran->predicted);
    if (ran->used)
        fprintf(to, "%" PRId64, ran->used);
    fprintf(to, "\t%s\t%s\n", ran->backend == yardstick(ran->backend) ? "yardstick" : "pass",
            r->trial->text);
}

static void tsv_declined(FILE *to, int trial, const struct result *r)
{
    for (int i = 0; i < r->n_declined; i++) {
        const struct declined *d = &r->declined[i];
        fprintf(to, "%d\t%s\t%s\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\tdeclined: %s\t%s\n", trial,
                d->backend->name, d->kernel->name, d->why, r->trial->text);
    }
}

void times_tsv(FILE *to, int trial, const struct ceilings *c, const struct result *r)
{
    for (int i = 0; i < r->n_ran; i++)
        for (enum pass p = FORWARD; p < op_passes(r->trial->op); p++)
            if (times_wanted(&r->ran[i]))
                tsv_row(to, trial, c, r, &r->ran[i], p);
    tsv_declined(to, trial, r);
}

/* ---- measure = regime ---- */

void regime_head(FILE *to)
{
    fprintf(to, "  %-7s  %-12s  %8s  %10s  %10s  %12s  %12s\n", "backend", "kernel", "B*H",
            "forward", "backward", "per row", "per row");
}

void regime_row(FILE *to, const struct growth *g, int i)
{
    const double *median = g->outcome[i].median;
    char a[16], b[16], d[16], e[16];

    fprintf(to, "  %-7s  %-12s  %8.0f  %10s  %10s  %12s  %12s\n", g->backend->name, g->kernel->name,
            g->rows[i], seconds_text(median[FORWARD], a), seconds_text(median[BACKWARD], b),
            seconds_text(median[FORWARD] / g->rows[i], d),
            seconds_text(median[BACKWARD] / g->rows[i], e));
}

void regime_crossover(FILE *to, const struct growth *g)
{
    fprintf(to, "      %s %s is bound by throughput:", g->backend->name, g->kernel->name);
    for (enum pass p = FORWARD; p < N_PASSES; p++) {
        double rows = crossover(g, p);
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

void regime_tsv_head(FILE *to)
{
    fprintf(to, "trial\tbackend\tkernel\tpass\twhat\tbatch\trows\tmedian\tmin\tmax\truns\tline\n");
}

void regime_tsv(FILE *to, int trial, const struct result *r)
{
    for (int k = 0; k < r->n_growths; k++)
        for (enum pass p = FORWARD; p < N_PASSES; p++) {
            const struct growth *g = &r->growth[k];
            char head[128];
            if (g->n && !g->outcome[0].runs[p])
                continue;
            snprintf(head, sizeof head, "%d\t%s\t%s\t%s", trial, g->backend->name, g->kernel->name,
                     pass_names[p]);
            for (int i = 0; i < g->n; i++)
                fprintf(to, "%s\ttime\t%" PRId64 "\t%.0f\t%.6g\t%.6g\t%.6g\t%d\t%s\n", head,
                        g->batch[i], g->rows[i], g->outcome[i].median[p], g->outcome[i].min[p],
                        g->outcome[i].max[p], g->outcome[i].runs[p], r->trial->text);
            fprintf(to, "%s\tcrossover\t\t%.6g\t\t\t\t\t%s\n", head, crossover(g, p),
                    r->trial->text);
        }
}
