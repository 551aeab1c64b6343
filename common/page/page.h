/* page.h - a dump as one page of HTML that opens anywhere: no script, nothing from elsewhere.
 *
 * Sections are a table in page.c; one that has nothing to show is left out.  The same dump gives
 * the same bytes.  A section writes at most so many rows, says how many more there are, and so
 * stays below a part of 2 MB. */
#ifndef PAGE_H
#define PAGE_H

#include <stdio.h>

#include "common/page/dump.h"

/* The first line of every page, by which a page is known from another file. */
#define PAGE_FIRST_LINE "<!doctype html><!-- a report of ablate -->\n"

/* Nonzero after err_set(): no memory. */
int page_write(FILE *to, const struct page_dump *d);

struct page_section {
    const char *id, *title;
    int (*has)(const struct page_dump *d);             /* is there anything to show? */
    int (*write)(FILE *to, const struct page_dump *d); /* nonzero after err_set() */
};
extern const struct page_section page_ablation, page_learning, page_plan, page_verdicts,
    page_compared, page_times, page_roofline, page_ladders, page_skipped;

/* Begins what can be folded away on a trial, with what tells it from the others of its operation,
 * "Trial 3 steps=128 dtype=bf16", and a note on it beside; NULL: none. */
void page_trial_begin(FILE *to, const struct page_group *g, const struct page_trial *t, int open,
                      const char *note);
/* Takes one of the rows that a section may write; 0: none is left, or the page has its length. */
int page_take(FILE *to, int *left);
/* Is there space for another figure? */
int page_has_space(FILE *to);
/* "N further ...", unless N is 0. */
void page_more(FILE *to, int64_t n, const char *what);

/* The part of the ceiling that binds which a time reached; 0: not known. */
double page_reached(const struct time_row *r);

extern const char page_style[];

#endif
