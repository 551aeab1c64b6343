/* The time by which a run is to have ended (until.h). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/number.h"
#include "experiments/until.h"

int until_read(const char *text, struct until *to)
{
    static const char units[] = "smh";
    static const double seconds[] = {1, 60, 3600};
    const size_t n = strlen(text);
    const char *unit = n ? strchr(units, text[n - 1]) : NULL;
    char *number = unit ? strndup(text, n - 1) : NULL;
    double x;
    const int e = !number || number_real(number, 0, 1e6, &x)
                      ? err_set("--until %s: must be a time, as 90s, 55m or 1.5h", text)
                      : 0;

    if (!e)
        *to = (struct until){.end = seconds_now() + x * seconds[unit - units]};
    free(number);
    return e;
}

int until_fits(struct until *u, double work)
{
    if (!u->end)
        return 1;
    const int fits = seconds_now() + u->most * work < u->end;
    u->left |= !fits;
    return fits;
}

void until_ended(struct until *u, double work, double seconds)
{
    if (work > 0 && seconds / work > u->most)
        u->most = seconds / work;
}
