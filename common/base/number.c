/* Reads and writes numbers in text (number.h). */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/number.h"

static const char digits[] = "0123456789";

/* Sign and magnitude; a magnitude of 64 bits or more is UINT64_MAX and `large`. */
struct whole {
    int minus, large;
    uint64_t magnitude;
};

/* 0 where the text is no whole number. */
static int read_whole(const char *text, struct whole *w)
{
    const char *c = text + (*text == '+' || *text == '-');
    size_t n = strspn(c, digits);

    *w = (struct whole){.minus = *text == '-'};
    for (size_t i = 0; i < n; i++)
        w->large |= __builtin_mul_overflow(w->magnitude, 10, &w->magnitude) ||
                    __builtin_add_overflow(w->magnitude, (uint64_t)(c[i] - '0'), &w->magnitude);
    if (w->large)
        w->magnitude = UINT64_MAX;
    return n && !c[n];
}

/* 0 where the text is no real number; one that is too large for a double is infinite. */
static int read_real(const char *text, double *x)
{
    const char *c = text + (*text == '+' || *text == '-');
    size_t before = strspn(c, digits), after = 0;

    c += before;
    if (*c == '.')
        after = strspn(++c, digits);
    c += after;
    if (before + after && (*c == 'e' || *c == 'E')) {
        c += 1 + (c[1] == '+' || c[1] == '-');
        if (!strspn(c, digits))
            return 0;
        c += strspn(c, digits);
    }
    *x = strtod(text, NULL);
    return before + after && !*c;
}

int number_whole(const char *text, int64_t min, int64_t max, int64_t *x)
{
    struct whole w;

    if (!read_whole(text, &w))
        return err_set("not a whole number in decimal digits");
    int64_t value = (int64_t)(w.minus ? -w.magnitude : w.magnitude);
    if (w.magnitude > INT64_MAX || value < min || value > max)
        return err_set("must be %" PRId64 " to %" PRId64, min, max);
    *x = value;
    return 0;
}

int number_seed(const char *text, uint64_t max, uint64_t *x)
{
    struct whole w;

    if (!read_whole(text, &w))
        return err_set("not a whole number in decimal digits");
    if (w.large || (w.minus && w.magnitude) || w.magnitude > max)
        return err_set("must be 0 to %" PRIu64, max);
    *x = w.magnitude;
    return 0;
}

int number_real(const char *text, double min, double max, double *x)
{
    double value;

    if (!read_real(text, &value))
        return err_set("not a decimal number");
    if (!(value >= min && value <= max) || isinf(value))
        return err_set("must be %g to %g", min, max);
    *x = value;
    return 0;
}

void number_plain(const char *text, char plain[NUMBER_TEXT])
{
    struct whole w;
    double x;

    *plain = 0;
    if (read_whole(text, &w) && !w.large)
        snprintf(plain, NUMBER_TEXT, "%s%" PRIu64, w.minus && w.magnitude ? "-" : "", w.magnitude);
    else if (read_real(text, &x) && !isinf(x))
        snprintf(plain, NUMBER_TEXT, "%.17g", x == 0 ? 0 : x);
}

/* The digits behind the point of a number that is printed with three. */
static int decimals(double x)
{
    return x < 9.995 ? 2 : x < 99.95 ? 1 : 0;
}

const char *number_large(double x, char text[NUMBER_TEXT])
{
    static const char units[] = " kMGTP";
    int i = 0;

    for (; x >= 999.5 && units[i + 1]; i++)
        x /= 1000;
    snprintf(text, NUMBER_TEXT, "%.*f%s%.1s", decimals(x), x, i ? " " : "", i ? units + i : "");
    return text;
}

const char *number_count(double n, char text[NUMBER_TEXT])
{
    if (n >= 999.5)
        return number_large(n, text);
    snprintf(text, NUMBER_TEXT, "%.0f", n);
    return text;
}

const char *number_seconds(double s, char text[NUMBER_TEXT])
{
    const double x = s * (s < 1e-3 ? 1e6 : s < 1 ? 1e3 : 1);

    snprintf(text, NUMBER_TEXT, "%.*f %s", decimals(x), x, s < 1e-3 ? "us" : s < 1 ? "ms" : "s");
    return text;
}

const char *number_bytes(double bytes, char text[NUMBER_TEXT])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    enum { N_UNITS = sizeof units / sizeof *units };
    int i = -1;

    /* What would be printed as 1024.0 has the next unit. */
    for (; bytes >= (i < 0 ? 1024 : 1023.95) && i < N_UNITS - 1; i++)
        bytes /= 1024;
    if (i < 0)
        snprintf(text, NUMBER_TEXT, "%.0f byte%s", bytes, bytes == 1 ? "" : "s");
    else
        snprintf(text, NUMBER_TEXT, "%.1f %s", bytes, units[i]);
    return text;
}
