/* Tables for a person (table.h). */
#include "config.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/quote.h"
#include "common/report/table.h"

enum { GAP = 2, NARROW_WORDS = 12, NARROWEST_WORDS = 6 };

void table_add(struct table *t, const char *head, int width, enum alignment a, int drop)
{
    struct table_column *c = &t->column[t->n];
    const int least = text_columns(head);

    if (t->n == MAX_COLUMNS)
        return;
    t->n++;
    snprintf(c->head, sizeof c->head, "%s", head);
    c->width = width > least ? width : least;
    c->alignment = a;
    c->drop = drop;
    c->shown = 1;
}

/* The columns that it takes. */
static int taken(const struct table *t)
{
    int width = -GAP;
    for (int i = 0; i < t->n; i++)
        width += t->column[i].shown ? t->column[i].width + GAP : 0;
    return width;
}

/* Make the widest column of words that is wider than `least` narrower by one, until it fits. */
static void narrow(struct table *t, int width, int least)
{
    for (int over = taken(t) - width; over > 0; over--) {
        struct table_column *widest = NULL;
        for (int i = 0; i < t->n; i++) {
            struct table_column *c = &t->column[i];
            const int head = text_columns(c->head);
            if (c->shown && c->alignment == WORDS && c->width > least && c->width > head &&
                (!widest || c->width > widest->width))
                widest = c;
        }
        if (!widest)
            return;
        widest->width--;
    }
}

/* The next to be left out; NULL: the others stay. */
static struct table_column *next_to_go(struct table *t)
{
    struct table_column *next = NULL;
    for (int i = 0; i < t->n; i++) {
        struct table_column *c = &t->column[i];
        if (c->shown && c->drop && (!next || c->drop <= next->drop))
            next = c;
    }
    return next;
}

static void stack(struct table *t)
{
    t->stacked = t->n_settings > 0;
    for (int i = 1; i <= t->n_settings; i++)
        t->column[i].shown = 0;
}

void table_fit(struct table *t, int width)
{
    struct table_column *gone;
    int settings = 0;

    for (int i = 0; i <= t->n_settings && i < t->n; i++)
        settings += t->column[i].width + GAP;
    t->stacked = 0;
    if (settings > width / 2)
        stack(t);
    narrow(t, width, NARROW_WORDS);
    while (taken(t) > width && (gone = next_to_go(t)))
        gone->shown = 0;
    narrow(t, width, NARROWEST_WORDS);
    if (taken(t) > width)
        stack(t);
}

static int last_shown(const struct table *t)
{
    int last = t->n - 1;
    while (last > 0 && !t->column[last].shown)
        last--;
    return last;
}

/* One cell, padded but for the last one; returns its columns. */
static int print_cell(const struct table_column *c, const struct screen *s, const char *text,
                      int last)
{
    char cut[MAX_CELL + 3]; /* the ellipsis */
    int pad = c->width - text_columns(text);

    if (c->alignment == NUMBER)
        fprintf(s->to, "%*s%s", pad > 0 ? pad : 0, "", text);
    else if (last)
        fputs(text, s->to);
    else {
        text_cut(text, c->width, cut, sizeof cut);
        pad = c->width - text_columns(cut);
        fprintf(s->to, "%s%*s", cut, pad, "");
        return c->width;
    }
    return pad > 0 ? c->width : text_columns(text);
}

/* A line; of the trial's own columns only if they are wanted.  The last cell goes onto a line of its
 * own where there is no room for it. */
static void print_line(const struct table *t, const struct screen *s, const struct row *r, int own)
{
    const int last = last_shown(t);
    int at = 0;

    for (int i = 0; i < t->n && i < r->n; i++) {
        const struct table_column *c = &t->column[i];
        const char *text = i > t->n_settings || own ? r->cell[i] : "";
        if (!c->shown)
            continue;
        if (i == last && at + GAP + text_columns(text) > s->width)
            at = fprintf(s->to, "\n%*s", 4, "") - 1;
        else if (i)
            at += fprintf(s->to, "%*s", GAP, "");
        at += print_cell(c, s, text, i == last);
    }
    fputc('\n', s->to);
}

void table_head(const struct table *t, const struct screen *s)
{
    struct row heads = {.n = 0};

    for (int i = 0; i < t->n; i++)
        row_add(&heads, "%s", t->column[i].head);
    print_line(t, s, &heads, 1);
}

void row_add(struct row *r, const char *fmt, ...)
{
    char text[MAX_CELL + 8]; /* a character that is cut here does not fit into the cell */
    va_list ap;

    if (r->n == MAX_COLUMNS)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    quote_bytes(text, strlen(text), r->cell[r->n++], MAX_CELL);
}

void row_add_printable(struct row *r, const char *text)
{
    if (r->n < MAX_COLUMNS)
        snprintf(r->cell[r->n++], MAX_CELL, "%s", text);
}

/* "  12  rows=64 columns=65": the settings of a trial above its rows. */
static void settings_line(const struct table *t, const struct screen *s, const struct row *r)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);

    if (!to)
        return;
    fprintf(to, "%*s ", t->column[0].width, r->cell[0]);
    for (int i = 1; i <= t->n_settings; i++)
        if (strcmp(r->cell[i], "-") != 0)
            fprintf(to, " %s=%s", t->column[i].head, r->cell[i]);
    if (!fclose(to))
        say_printable(s, 0, text);
    free(text);
}

void table_row(const struct table *t, const struct screen *s, const struct row *r, int first)
{
    if (first && t->stacked)
        settings_line(t, s, r);
    print_line(t, s, r, first && !t->stacked);
}
