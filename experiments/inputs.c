/* Reads the inputs of an experiment once, before any trial runs (inputs.h). */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "common/plan/section.h"
#include "common/run/trial.h"
#include "experiments/inputs.h"

/* Reads the trial's inputs from an HDF5 file, for all batches of a crossover: a dataset that has the
 * right shape for the first and the last of them has it for all.  Nonzero after err_set(). */
static int wrong_input(const struct experiment *x, const struct trial *t)
{
    struct trial first = *t;

    if (input_check(t))
        return -1;
    if (x->measure != MEASURE_CROSSOVER || !t->call.op->batch)
        return 0;
    DIM(&first.call, t->call.op->batch) = 1;
    return !op_complete(&first.call) && input_check(&first)
               ? err_more(" at a batch of 1, with which measure = crossover begins")
               : 0;
}

int wrong_inputs(const struct experiment *x, struct store *store)
{
    struct plan p = {.file = x->file,
                     .option = x->inputs_only ? "--inputs" : NULL,
                     .x = (struct experiment *)x}; /* which it only reads */
    struct store_counts ignored;
    char last[1024] = "";
    int line = -1;

    for (int i = 0; i < x->n; i++) {
        const struct trial *t = &x->trial[i];
        if ((store && store_has(store, i, &ignored)) || !wrong_input(x, t))
            continue;
        if (t->input_line != line || strcmp(last, err_text()) != 0)
            plan_fault(&p, t->input_line, "%s", err_text());
        line = t->input_line;
        snprintf(last, sizeof last, "%s", err_text());
    }
    return plan_faults_print(&p, stderr);
}
