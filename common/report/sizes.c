/* A table of models before they run (sizes.h). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/number.h"
#include "common/report/screen.h"
#include "common/report/sizes.h"
#include "common/run/training_time.h"
#include "common/store/predict.h"

enum { COLUMNS = 10, CELL = 64 };
static const char *const heads[COLUMNS] = {"variant", "task",  "runs",        "parameters",
                                           "inner",   "state", "FLOPs/token", "memory",
                                           "disk",    "time"};
enum { WORDS_OF = 2 }; /* the first columns; the others are numbers */

struct sizes_row {
    char cell[COLUMNS][CELL];
};

/* Less than a millisecond is none. */
static const char *duration(double seconds, char text[CELL])
{
    if (seconds < 99.5)
        snprintf(text, CELL, "%.*f s", seconds < 9.95, seconds);
    else if (seconds < 99.5 * 60)
        snprintf(text, CELL, "%.*f min", seconds < 9.95 * 60, seconds / 60);
    else
        snprintf(text, CELL, "%.1f h", seconds / 3600);
    return text;
}

/* The value of a key, where its section has no name. */
static void put_name(char to[CELL], const char *name, const struct trial *t, const char *key)
{
    char buffer[32];
    int i;

    if (*name || !op_param(t->call.op, key, &i))
        snprintf(to, CELL, "%s", *name ? name : "-");
    else
        snprintf(to, CELL, "%s", op_value(&t->call, i, buffer));
}

/* Bytes in the dump of all runs of a cell, which is like its first. */
static double disk(const struct experiment *x, const struct cell_cost *c)
{
    const double bytes = predict_trial(x, c->first);
    return bytes > 0 ? bytes * c->n : 0;
}

static void fill_row(struct sizes_row *r, const struct experiment *x, const struct cell_cost *c)
{
    const struct trial *t = &x->trial[c->first];
    char text[CELL], number[NUMBER_TEXT];

    put_name(r->cell[0], t->variant, t, "mixer");
    put_name(r->cell[1], t->task, t, "task");
    snprintf(r->cell[2], CELL, "%d", c->n);
    snprintf(r->cell[3], CELL, "%.0f", c->size.parameters);
    snprintf(r->cell[4], CELL, "%.0f", c->size.inner);
    snprintf(r->cell[5], CELL, "%.0f", c->size.state);
    snprintf(r->cell[6], CELL, "%.0f", c->size.flops);
    snprintf(r->cell[7], CELL, "%s", number_bytes(c->memory, number));
    snprintf(r->cell[8], CELL, "%s", number_bytes(disk(x, c), number));
    snprintf(r->cell[9], CELL, "%s%s", c->at_most ? "<= " : "",
             *c->unknown ? "-" : duration(c->seconds, text));
}

static void print_row(FILE *to, const struct sizes_row *r, const int width[COLUMNS])
{
    for (int i = 0; i < COLUMNS; i++)
        fprintf(to, "%s%*s", i ? "  " : "", i < WORDS_OF ? -width[i] : width[i], r->cell[i]);
    fputc('\n', to);
}

static void print_rows(FILE *to, const struct sizes_row *row, int n)
{
    struct sizes_row head;
    int width[COLUMNS];

    for (int i = 0; i < COLUMNS; i++) {
        snprintf(head.cell[i], CELL, "%s", heads[i]);
        width[i] = (int)strlen(heads[i]);
        for (int k = 0; k < n; k++)
            if ((int)strlen(row[k].cell[i]) > width[i])
                width[i] = (int)strlen(row[k].cell[i]);
    }
    print_row(to, &head, width);
    for (int k = 0; k < n; k++)
        print_row(to, &row[k], width);
}

/* The time of all, and why some have none. */
static void print_sum(FILE *to, const struct cell_cost *c, int n)
{
    const struct screen s = screen_of(to, 0);
    char text[CELL];
    int known = 0, at_most = 0;

    for (int i = 0; i < n; i++) {
        known += !*c[i].unknown;
        at_most |= c[i].at_most;
        if (*c[i].unknown && (!i || strcmp(c[i].unknown, c[i - 1].unknown) != 0))
            say(&s, 0, "no time: %s", c[i].unknown);
    }
    if (known)
        say(&s, 0, "all runs take %s %s on this machine%s", at_most ? "at most" : "about",
            duration(training_seconds(c, n), text),
            known < n ? ", but for those without a time" : "");
}

void sizes_table(const struct experiment *x, FILE *to)
{
    int n;
    struct cell_cost *c = training_costs(x, &n);
    struct sizes_row *row = c ? calloc(n, sizeof *row) : NULL;

    if (row) {
        for (int i = 0; i < n; i++)
            fill_row(&row[i], x, &c[i]);
        print_rows(to, row, n);
        print_sum(to, c, n);
    } else
        fprintf(to, "no sizes: %s\n", c ? "no memory" : err_text());
    free(row);
    free(c);
}
