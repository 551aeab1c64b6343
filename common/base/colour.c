/* Colours by the sequences SGR of ECMA-48, which every terminal but a dumb one has (colour.h). */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/colour.h"

int colour_wanted(FILE *to)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return !(no && *no) && term && *term && strcmp(term, "dumb") != 0 && isatty(fileno(to));
}

const char *colour_begin(int wanted, enum colour c)
{
    static const char *const begin[] = {
        [GREEN] = "\033[32m", [YELLOW] = "\033[33m", [RED] = "\033[31m"};
    return wanted ? begin[c] : "";
}

const char *colour_end(int wanted)
{
    return wanted ? "\033[0m" : "";
}
