/* html.h - HTML written to a file: texts that may hold anything, numbers, tables, small figures. */
#ifndef PAGE_HTML_H
#define PAGE_HTML_H

#include <stdint.h>
#include <stdio.h>

#include "common/base/number.h"

/* A text: & < > " ' as references, controls and what is no UTF-8 as \xHH; only its first characters
 * and an ellipsis where it has more than 400. */
void html_text(FILE *to, const char *text);
/* The same of lines, up to 64 KiB of them, whose newlines and tabs stay. */
void html_lines(FILE *to, const char *text);

/* "1.23e-05", "0.0123", "123"; "–" where it is not known. */
const char *html_number(double x, char text[NUMBER_TEXT]);
/* "12.3 µs" */
const char *html_seconds(double s, char text[NUMBER_TEXT]);

/* The heading of what follows on an operation, with a note on it beside; NULL: none. */
void html_heading(FILE *to, const char *op, const char *note);
/* A table that scrolls in its own box, with those heads: `heads` has a word per column, between |,
 * and a < before each whose values are words. */
void html_table(FILE *to, const char *heads);
void html_table_end(FILE *to);
/* A cell of a text; of a number. */
void html_cell(FILE *to, const char *text);
void html_value(FILE *to, const char *text);
/* A cell of a whole number; of a fraction as a percentage, or "–" where it is not `known`. */
void html_count(FILE *to, int64_t n);
void html_percent(FILE *to, double fraction, int known);
/* The cell of a verdict: "pass", "fail", "cannot be judged", or another word. */
void html_verdict(FILE *to, const char *verdict);

#endif
