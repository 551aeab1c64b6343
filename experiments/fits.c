/* What workers take (fits.h). */
#include "config.h"

#include "common/base/err.h"
#include "common/base/number.h"
#include "common/plan/memory.h"
#include "common/store/predict.h"
#include "experiments/fits.h"

void fits_count(struct experiment *x, int n, const struct ranks *ranks)
{
    x->workers = ranks->size > 1 ? ranks->size : n > 1 ? n : 0;
    x->workers_here = ranks->size > 1 ? ranks->locals : x->workers;
}

int fits_memory(const struct experiment *x)
{
    const double available = memory_available(),
                 bytes = x->workers_here > 1 ? memory_of_largest(x, x->workers_here) : 0;
    char need[NUMBER_TEXT], have[NUMBER_TEXT];

    if (bytes <= available)
        return bytes < 0 ? -1 : 0;
    return err_set("%d workers need %s of memory for the largest trials at once, %s are available; "
                   "start fewer",
                   x->workers_here, number_bytes(bytes, need), number_bytes(available, have));
}

void fits_print(const struct experiment *x, FILE *to)
{
    if (!x->workers)
        return;
    const double memory = memory_of_largest(x, x->workers_here), disk = predict_workers(x, NULL);
    char of_memory[NUMBER_TEXT], on_disk[NUMBER_TEXT];

    if (memory >= 0 && disk >= 0)
        fprintf(to, "%d workers take up to %s of memory at once, and %s beside %s\n",
                x->workers_here, number_bytes(memory, of_memory), number_bytes(disk, on_disk),
                x->output);
}
