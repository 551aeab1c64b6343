/* number.h - numbers in text, everywhere the same: in ini files, words and
 * options.
 *
 *     whole    a sign or none, then decimal digits:          5  +5  -3
 *     real     the same with a point, an exponent or both:   0.5  -1e-3  .5  2.
 *
 * Nothing else: no hexadecimal, no inf or nan, no blanks, no 1_000. */
#ifndef NUMBER_H
#define NUMBER_H

#include <stdint.h>

/* Nonzero after err_set("not a whole number in decimal digits"), or "not a decimal number", or
 * "must be MIN to MAX".  The caller adds what the number is of, in front (err_at): "repeats: ...". */
int number_whole(const char *text, int64_t min, int64_t max, int64_t *x);
int number_seed(const char *text, uint64_t max, uint64_t *x); /* from 0 */
int number_real(const char *text, double min, double max, double *x);

enum { NUMBER_TEXT = 40 };
/* The one way to write the number that text is ("+5", "05" and "5.0": "5"); ""
 * where it is none. */
void number_plain(const char *text, char plain[NUMBER_TEXT]);
/* Three digits and a prefix, "0.50", "16.6 k", "1.05 M"; of a count, which has no fraction, "999",
 * "1.00 k"; of seconds "12.3 us".  All return text. */
const char *number_large(double x, char text[NUMBER_TEXT]);
const char *number_count(double n, char text[NUMBER_TEXT]);
const char *number_seconds(double s, char text[NUMBER_TEXT]);
/* The one way to write a size in messages: "1 byte", "999 bytes", "19.5 KiB", "2.0 GiB".  Returns
 * text. */
const char *number_bytes(double bytes, char text[NUMBER_TEXT]);

#endif
