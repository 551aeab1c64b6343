/* The largest of some numbers (largest.h). */
#include "config.h"

#include <stdlib.h>

#include "common/base/largest.h"

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

double largest_sum(double *x, int n, int most)
{
    double sum = 0;

    qsort(x, n, sizeof *x, by_size);
    for (int i = 0; i < n && i < most; i++)
        sum += x[i];
    return sum;
}
