/* Training: models and batches from a case's parameters, and updates on every backend. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/call/machine.h"
#include "common/train/rates.h"
#include "common/train/update.h"
#include "tests/suite.h"

int main(int argc, char **argv)
{
    struct call f;
    struct cell c;
    const char *mixer = argv[1], *words = argv[2];
    const struct op *o = cell_op(mixer);
    char text[MAX_TEXT];

    if (!o || cases_one(o, words, &f) || cell_read(&f, 3, &c)) {
        printf("%s\n", err_text());
        return 1;
    }
    op_text(&f, text);
    puts(text);
    char *t = cell_text(&f);
    puts(t);
    for (const struct backend *const *b = backends(); *b; b++) {
        const char *why = backend_unavailable(here(), *b);
        static struct update u;
        struct update_values v;
        if (why)
            continue;
        int e = update_open(&u, &c, *b, context_of(here(), *b), 3, NULL);
        printf("%s %lld\n", (*b)->name, (long long)u.elements);
        for (int i = 0; !e && i < c.updates; i++) {
            e = update_run(&u) || update_read(&u, &v);
            if (i < 5 || i % (c.updates / 10) == 0 || i == c.updates - 1)
                printf("%3lld loss %.9f norm %.9f rate %.9g factor %g right %lld t %lld\n", (long long)v.u, v.loss, v.norm, v.rate, v.factor, (long long)v.right, (long long)v.t);
        }
        if (e)
            printf("# %s\n", err_text());
        update_close(&u);
    }
    return 0;
}
