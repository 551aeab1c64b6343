/* One line on a terminal that shows the current step (progress.h). */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/progress.h"

static int shown;

int progress_is_seen(void)
{
    return isatty(STDERR_FILENO);
}

void progress(const char *fmt, ...)
{
    va_list ap;
    if (!progress_is_seen())
        return;
    va_start(ap, fmt);
    fputs("\r\033[K", stderr);
    vfprintf(stderr, fmt, ap);
    fflush(stderr);
    va_end(ap);
    shown = 1;
}

void progress_clear(void)
{
    if (shown)
        fputs("\r\033[K", stderr);
    shown = 0;
}
