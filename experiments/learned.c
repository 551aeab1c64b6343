/* run-ablation --summary of a dump of measure = train (learned.h). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "common/ablation/tables.h"
#include "common/base/err.h"
#include "common/base/grow.h"
#include "common/base/h5.h"
#include "common/plan/keys.h"
#include "common/report/ablation_text.h"
#include "common/store/header.h"
#include "common/store/read_ablation.h"
#include "experiments/learned.h"

enum { GOOD = 0, BAD_INPUT = 2, NOT_OF_TRAINING = -1 };

static int is_of_training(hid_t file)
{
    const hid_t root = H5Gopen2(file, "/", H5P_DEFAULT);
    char there[64];
    const int is = root >= 0 && header_schema(file) &&
                   h5_same_text(root, "measure", measure_names[MEASURE_TRAIN], there, sizeof there);

    h5_drop(root);
    return is;
}

/* The table of that name, or the runs'; -1 after err_set(). */
static int table_named(const char *name)
{
    char known[200] = "";

    for (int i = 0; i < ABLATION_TABLES; i++) {
        if (name ? strcmp(ablation_table_names[i], name) == 0 : i == TABLE_RUNS)
            return i;
        append(known, sizeof known, " %s", ablation_table_names[i]);
    }
    return err_set("--by %s: a dump of training has%s", name, known);
}

static int print_table(const struct ablation *a, const char *name)
{
    struct ablation_table t = {.row = NULL};
    const int which = table_named(name);
    const int e = which < 0 || ablation_table(a, which, &t) || ablation_csv(&t, stdout);

    free(t.row);
    return e;
}

static int print_text(const struct stored_ablation *a)
{
    const struct screen s = screen_of(stdout, 0);

    ablation_text(&s, a);
    return 0;
}

static int print(const struct summary_words *w, hid_t file)
{
    struct stored_ablation a;
    int e = w->by && !w->csv ? err_set("--by %s: of a dump of training --csv has tables", w->by)
                             : stored_ablation_read(file, &a);

    if (w->by && !w->csv)
        return e;
    if (!e && a.runs.unnamed)
        e = err_set("%s: its %d runs are of -t, which names no variants; an ini does", w->file,
                    a.runs.unnamed);
    if (!e && !a.runs.n)
        e = err_set("%s: no run is finished", w->file);
    if (!e && a.runs.unfinished)
        fprintf(w->csv ? stderr : stdout, "%s%d of %d runs are not finished, and not counted\n",
                w->csv ? "run-ablation: " : "", a.runs.unfinished, a.runs.n + a.runs.unfinished);
    e = e || (w->csv ? print_table(&a.ablation, w->by) : print_text(&a));
    stored_ablation_free(&a);
    return e;
}

int learned_command(const struct summary_words *w)
{
    hid_t file;
    int status = NOT_OF_TRAINING;

    QUIETLY(file = header_open(w->file);
            if (file >= 0 && is_of_training(file)) status = print(w, file) ? BAD_INPUT : GOOD;
            if (file >= 0) H5Fclose(file))
    return status;
}
