/* What was not run and why, on a page: kernels that declined, checks that were skipped,
 * warnings; a row for equal reasons in all trials of an operation (page.h). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/page/html.h"
#include "common/page/page.h"

enum { MAX_REASONS = 200000, MAX_SHOWN = 400 };

struct reason {
    const char *kind, *op, *text; /* a line of `length` bytes */
    size_t length;
    int trial, at; /* the first of them */
    int n, ops;    /* trials and operations that have it */
};

struct reasons {
    struct reason *list;
    int n;
};

static int has(const struct page_dump *d)
{
    for (int i = 0; i < d->n; i++)
        if (*d->trial[i].skips || *d->trial[i].declined || *d->trial[i].warning)
            return 1;
    return 0;
}

/* The lines of a text; with `list` NULL they are counted. */
static void add(struct reasons *r, const char *kind, const struct page_trial *t, const char *text)
{
    while (*text && r->n < MAX_REASONS) {
        const size_t length = strcspn(text, "\n");
        if (length && r->list)
            r->list[r->n] = (struct reason){kind, t->op, text, length, t->number, r->n, 1, 1};
        r->n += length > 0;
        text += length + (text[length] == '\n');
    }
}

static void add_all(struct reasons *r, const struct page_dump *d)
{
    r->n = 0;
    for (int i = 0; i < d->n; i++) {
        add(r, "declined", &d->trial[i], d->trial[i].declined);
        add(r, "skipped", &d->trial[i], d->trial[i].skips);
        add(r, "warning", &d->trial[i], d->trial[i].warning);
    }
}

static int compare(const struct reason *a, const struct reason *b)
{
    const size_t n = a->length < b->length ? a->length : b->length;
    int c = strcmp(a->kind, b->kind);

    c = c ? c : memcmp(a->text, b->text, n);
    return c ? c : (a->length > b->length) - (a->length < b->length);
}

static int by_text(const void *a, const void *b)
{
    const struct reason *x = a, *y = b;
    int c = compare(x, y);

    c = c ? c : strcmp(x->op, y->op);
    return c ? c : (x->at > y->at) - (x->at < y->at);
}

static int by_order(const void *a, const void *b)
{
    const struct reason *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* One more trial has the reason. */
static void count(struct reason *r, const struct reason *more, int new_op)
{
    r->n++;
    r->ops += new_op;
    if (more->at < r->at) {
        r->at = more->at;
        r->trial = more->trial;
    }
}

/* Equal ones become one. */
static void join(struct reasons *r)
{
    const char *op = NULL;
    int n = 0;

    qsort(r->list, (size_t)r->n, sizeof *r->list, by_text);
    for (int i = 0; i < r->n; i++) {
        const struct reason *next = &r->list[i];
        const char *its = next->op;
        if (n && compare(&r->list[n - 1], next) == 0)
            count(&r->list[n - 1], next, strcmp(its, op) != 0);
        else
            r->list[n++] = *next;
        op = its;
    }
    r->n = n;
    qsort(r->list, (size_t)n, sizeof *r->list, by_order);
}

static int row(FILE *to, const struct reason *r)
{
    char number[NUMBER_TEXT], *text = strndup(r->text, r->length);

    if (!text)
        return err_set("no memory for a text");
    fputs("<tr>", to);
    html_cell(to, r->kind);
    html_cell(to, text);
    snprintf(number, sizeof number, "%d operations", r->ops);
    html_cell(to, r->ops == 1 ? r->op : number);
    html_count(to, r->n);
    html_count(to, r->trial);
    fputs("</tr>\n", to);
    free(text);
    return 0;
}

static int write(FILE *to, const struct page_dump *d)
{
    struct reasons r = {NULL, 0};
    int e = 0;

    add_all(&r, d);
    if (!(r.list = calloc((size_t)r.n + 1, sizeof *r.list)))
        return err_set("no memory for %d reasons", r.n);
    add_all(&r, d);
    join(&r);
    html_table(to, "<Kind|<Reason|<Operation|Trials|First trial");
    for (int i = 0; !e && i < r.n && i < MAX_SHOWN; i++)
        e = row(to, &r.list[i]);
    html_table_end(to);
    page_more(to, r.n > MAX_SHOWN ? r.n - MAX_SHOWN : 0, "reasons");
    free(r.list);
    return e;
}

const struct page_section page_skipped = {"skipped", "Declined, skipped and warned of", has, write};
