/* The keys of the oracle's noise: they tell a reference's lines apart, and do not depend on the folder
 * from which it was compiled, so that equal runs have equal bounds. */
#define REF64
#include "ref/ref.h"

#include "tests/tap.h"

// clang-format off
#line 7 "/home/of/somebody/ablate/ref/name.c"
static unsigned here(void) { return HERE; }
#line 7 "ref/name.c"
static unsigned elsewhere(void) { return HERE; }
#line 7 "name.c"
static unsigned without(void) { return HERE; }
#line 8 "ref/name.c"
static unsigned below(void) { return HERE; }
#line 7 "ref/other_name.c"
static unsigned another(void) { return HERE; }

// clang-format on
int main(void)
{
    ok(here() == elsewhere() && here() == without(), "the same line, of a file in another folder");
    ok(here() != below() && here() != another() && below() != another(), "other lines and files");
    return done();
}
