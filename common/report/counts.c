/* How many checks a backend or a kernel had (counts.h). */
#include "config.h"

#include <string.h>

#include "common/base/colour.h"
#include "common/base/grow.h"
#include "common/report/counts.h"

struct counts counts_of(const struct verdicts *list, const char *backend)
{
    struct counts c = {0};
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->v[i].backend, backend) == 0) {
            c.n++;
            c.failed += !list->v[i].pass;
            c.unjudged += list->v[i].unjudged;
        }
    return c;
}

/* "35 ok", "FAILED 1 of 35", "34 ok, 1 not judged". */
const char *counts_text(struct counts c, int colour, char text[160])
{
    const char *end = colour_end(colour);

    *text = 0;
    if (c.failed)
        append(text, 160, "%sFAILED%s %d of %d", colour_begin(colour, RED), end, c.failed, c.n);
    else if (c.n > c.unjudged)
        append(text, 160, "%d %sok%s", c.n - c.unjudged, colour_begin(colour, GREEN), end);
    if (c.unjudged)
        append(text, 160, "%s%d %snot judged%s", c.n > c.unjudged ? ", " : "", c.unjudged,
               colour_begin(colour, YELLOW), end);
    return c.n ? text : "-";
}

static int same_kernel(const struct verdict *a, const struct verdict *b)
{
    return strcmp(a->backend, b->backend) == 0 && strcmp(a->kernel, b->kernel) == 0;
}

/* "ref32 plain: guards 1, written 1, repeat 7", the checks of the kernel of verdict `first` in the
 * order in which they were made. */
static void checks_line(const struct screen *s, const struct verdicts *list, int first)
{
    const struct verdict *v = list->v, *of = &v[first];
    const char *between = "";
    char text[1024] = "";

    for (int i = first; i < list->n; i++) {
        int n = 0, before = 0;
        if (!same_kernel(&v[i], of))
            continue;
        for (int j = first; j < list->n; j++)
            if (same_kernel(&v[j], of) && strcmp(v[j].check, v[i].check) == 0) {
                n++;
                before += j < i;
            }
        if (before)
            continue;
        append(text, sizeof text, "%s%s %d", between, v[i].check, n);
        between = ", ";
    }
    say(s, 6, "checks    %s %s: %s", of->backend, of->kernel, text);
}

void counts_by_name(const struct screen *s, const struct verdicts *list)
{
    for (int i = 0; i < list->n; i++) {
        int before = 0;
        for (int j = 0; j < i; j++)
            before += same_kernel(&list->v[j], &list->v[i]);
        if (!before)
            checks_line(s, list, i);
    }
}
