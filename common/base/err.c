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

/* A message as it is written, longer than `text`: so that quote_bytes() sees each character whole that
 * fits there. */
enum { RAW = sizeof text + 8 };

/* A message may hold names from a file. */
static void keep(const char raw[RAW])
{
    quote_bytes(raw, strlen(raw), text, sizeof text);
}

int err_set(const char *fmt, ...)
{
    char raw[RAW];
    va_list ap;
    va_start(ap, fmt);
    print(raw, sizeof raw, fmt, ap);
    va_end(ap);
    keep(raw);
    advice = 0;
    return -1;
}

int err_at(const char *fmt, ...)
{
    char raw[RAW], where[RAW];
    va_list ap;
    va_start(ap, fmt);
    print(where, sizeof where, fmt, ap);
    va_end(ap);
    snprintf(raw, sizeof raw, "%.*s: %.*s", quote_fit(where, HALF), where, quote_fit(text, HALF),
             text);
    keep(raw);
    return -1;
}

int err_more(const char *fmt, ...)
{
    char raw[RAW];
    va_list ap;
    strcpy(raw, text);
    va_start(ap, fmt);
    print(raw + strlen(text), sizeof raw - strlen(text), fmt, ap);
    va_end(ap);
    keep(raw);
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
