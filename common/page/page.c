/* Writes the page (page.h): its head, and the sections that have something to show. */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "common/page/html.h"
#include "common/page/page.h"

/* In their order on the page. */
static const struct page_section *const sections[] = {
    &page_ablation, &page_learning, &page_verdicts, &page_compared, &page_times,
    &page_roofline, &page_ladders,  &page_skipped,  &page_plan};

void page_trial_begin(FILE *to, const struct page_group *g, const struct page_trial *t, int open,
                      const char *note)
{
    enum { MAX_SHOWN = 10 };

    fprintf(to, "<details%s><summary>Trial %d", open ? " open" : "", t->number);
    if (*t->section) {
        fputs(" <b>", to);
        html_text(to, t->section);
        fputs("</b>", to);
    }
    for (int k = 0; k < g->n_varying && k < MAX_SHOWN; k++) {
        const char *value = page_setting(t, g->varying[k]);
        if (!*value)
            continue;
        fputs(" <code>", to);
        html_text(to, g->varying[k]);
        fputc('=', to);
        html_text(to, value);
        fputs("</code>", to);
    }
    if (note)
        fprintf(to, " <small>%s</small>", note);
    fputs("</summary>\n", to);
}

int page_take(FILE *to, int *left)
{
    enum { MAX_BYTES = 1900000 };
    return *left > 0 && ftell(to) < MAX_BYTES ? (*left)--, 1 : 0;
}

int page_has_space(FILE *to)
{
    enum { MAX_BYTES = 1400000 };
    return ftell(to) < MAX_BYTES;
}

void page_more(FILE *to, int64_t n, const char *what)
{
    if (n > 0)
        fprintf(to, "<p class=\"note\">%" PRId64 " further %s are not shown here.</p>\n", n, what);
}

/* ---- head ---- */

struct counts {
    int64_t checks, failed, unjudged, missed, skipped, unfinished;
};

static struct counts count(const struct page_dump *d)
{
    struct counts c = {0};

    for (int i = 0; i < d->n; i++) {
        const struct page_trial *t = &d->trial[i];
        c.checks += t->checks;
        c.failed += t->failed;
        c.unjudged += t->unjudged;
        c.missed += t->missed;
        c.skipped += t->skipped;
        c.unfinished += !t->complete;
    }
    return c;
}

/* Runs of training, and those of them that diverged. */
static void runs(FILE *to, const struct page_dump *d)
{
    int n = 0, diverged = 0;

    for (int i = 0; i < d->n; i++) {
        n += d->trial[i].run != NULL;
        diverged += d->trial[i].run && strcmp(d->trial[i].run->ended, "diverged") == 0;
    }
    if (n)
        fprintf(to, "; %d run%s of training, %d diverged", n, n == 1 ? "" : "s", diverged);
}

static void verdict(FILE *to, const struct page_dump *d, const struct counts *c)
{
    if (c->failed)
        fprintf(to, "<p class=\"verdict bad\">Failed: %" PRId64 " of %" PRId64 " checks", c->failed,
                c->checks);
    else if (!c->checks)
        fputs("<p class=\"verdict unsure\">Nothing was checked", to);
    else if (c->unjudged)
        fprintf(to,
                "<p class=\"verdict unsure\">None of %" PRId64 " checks failed; %" PRId64
                " cannot be judged",
                c->checks, c->unjudged);
    else if (c->missed)
        fprintf(to, "<p class=\"verdict unsure\">None of %" PRId64 " checks failed", c->checks);
    else
        fprintf(to, "<p class=\"verdict good\">Passed: all %" PRId64 " checks", c->checks);
    if (c->missed)
        fprintf(to, "; %" PRId64 " goals missed", c->missed);
    if (c->unfinished)
        fprintf(to, "; %" PRId64 " trials are not finished", c->unfinished);
    runs(to, d);
    fputs("</p>\n", to);
}

static void tile(FILE *to, const char *name, int64_t n)
{
    fprintf(to, "<div><dt>%s</dt><dd>%" PRId64 "</dd></div>", name, n);
}

static void tiles(FILE *to, const struct page_dump *d, const struct counts *c)
{
    const int64_t passed = c->checks - c->failed - c->unjudged - c->missed;

    fputs("<dl class=\"counts\">", to);
    tile(to, "Trials", d->n);
    tile(to, "Operations", d->n_groups);
    tile(to, "Passed", passed > 0 ? passed : 0);
    tile(to, "Failed", c->failed);
    tile(to, "Cannot be judged", c->unjudged);
    if (c->missed)
        tile(to, "Goals missed", c->missed);
    tile(to, "Skipped", c->skipped);
    fputs("</dl>\n", to);
}

static void facts(FILE *to, const struct page_dump *d)
{
    static const char *const label[] = {
#define FACT_LABEL(name, label) label,
        PAGE_FACTS(FACT_LABEL)};

    fputs("<dl class=\"facts\">", to);
    for (int i = 0; i < N_FACTS; i++) {
        if (!*d->fact[i])
            continue;
        fprintf(to, "<dt>%s</dt><dd>", label[i]);
        html_lines(to, d->fact[i]);
        fputs("</dd>\n", to);
    }
    fputs("</dl>\n", to);
    if (!*d->ini)
        return;
    fputs("<details><summary>Text of the experiment</summary><pre tabindex=\"0\">\n", to);
    html_lines(to, d->ini);
    fputs("</pre></details>\n", to);
}

static void links(FILE *to, const struct page_dump *d)
{
    fputs("<nav aria-label=\"Sections\">", to);
    for (size_t i = 0; i < COUNT(sections); i++)
        if (sections[i]->has(d))
            fprintf(to, "<a href=\"#%s\">%s</a> ", sections[i]->id, sections[i]->title);
    fputs("</nav>\n", to);
}

static void head(FILE *to, const struct page_dump *d)
{
    const struct counts c = count(d);

    fputs(PAGE_FIRST_LINE
          "<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
          to);
    html_text(to, *d->name ? d->name : "ablate");
    fprintf(to, "</title>\n<style>\n%s</style></head>\n<body>\n<header><h1>", page_style);
    html_text(to, *d->name ? d->name : "ablate");
    fputs("</h1>\n", to);
    verdict(to, d, &c);
    tiles(to, d, &c);
    facts(to, d);
    links(to, d);
    fputs("</header>\n<main>\n", to);
}

int page_write(FILE *to, const struct page_dump *d)
{
    int e = 0;

    head(to, d);
    for (size_t i = 0; !e && i < COUNT(sections); i++) {
        const struct page_section *s = sections[i];
        if (!s->has(d))
            continue;
        fprintf(to, "<section id=\"%s\"><h2>%s</h2>\n", s->id, s->title);
        e = s->write(to, d);
        fputs("</section>\n", to);
    }
    fputs("</main></body></html>\n", to);
    return e;
}
