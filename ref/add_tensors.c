/* The sum of two tensors, for the references' machine (machine.c). */
#include "ref/ref.h"

int REF(add_tensors)(int wide, void *to, const void *a, const void *b, int64_t n);

int REF(add_tensors)(int wide, void *to, const void *a, const void *b, int64_t n)
{
    if (wide) {
        const real *x = a, *y = b;
        #pragma omp parallel for
        for (int64_t i = 0; i < n; i++)
            ((real *)to)[i] = x[i] + y[i];
        return 0;
    }
    const num *x = a, *y = b;
    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        ((num *)to)[i] = store(load(x[i]) + load(y[i]));
    return 0;
}
