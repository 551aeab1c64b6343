/* The message of the last error, one per thread (err.h). */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/locale.h"
#include "common/base/quote.h"

static _Thread_local char text[4096]; /* it may hold the text of a call */
enum { HALF = sizeof text / 2 - 4 };
static _Thread_local int advice;

static void print(char *to, size_t size, const char *fmt, va_list ap)
{
    const locale_t was = locale_begin();
    vsnprintf(to, size, fmt, ap);
    locale_end(was);
}

/* A message may hold names from a file. */
static void make_printable(void)
{
    char raw[sizeof text];

    memcpy(raw, text, sizeof raw);
    quote_bytes(raw, strlen(raw), text, sizeof text);
}

int err_set(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print(text, sizeof text, fmt, ap);
    va_end(ap);
    make_printable();
    advice = 0;
    return -1;
}

int err_at(const char *fmt, ...)
{
    char what[sizeof text], where[sizeof text];
    va_list ap;
    va_start(ap, fmt);
    print(where, sizeof where, fmt, ap);
    va_end(ap);
    memcpy(what, text, sizeof what);
    snprintf(text, sizeof text, "%.*s: %.*s", HALF, where, HALF, what);
    make_printable();
    return -1;
}

int err_more(const char *fmt, ...)
{
    size_t n = strlen(text);
    va_list ap;
    va_start(ap, fmt);
    print(text + n, sizeof text - n, fmt, ap);
    va_end(ap);
    make_printable();
    return -1;
}

const char *err_text(void)
{
    return text;
}

int err_advise(int flags)
{
    advice = flags;
    return -1;
}

int err_advice(void)
{
    return advice;
}
