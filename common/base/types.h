/* types.h - the types in which tensors are stored: a row of a table for each.
 *
 * A tensor on the host is an array of double; narrow() and widen() convert all of it to and from
 * its type.  A whole number beyond 2^53 is no double, and is not stored. */
#ifndef TYPES_H
#define TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define ON_HOST_AND_DEVICE __host__ __device__
#else
#define ON_HOST_AND_DEVICE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Those from F32 to F16 are the choices of a parameter that selects a storage type. */
enum dtype { F64, F32, BF16, F16, I64, I32, U8, N_DTYPES };

struct type {
    const char *name; /* "bf16", as in an ini file */
    size_t bytes;
    double unit;       /* unit roundoff: half the gap between 1 and the next; 0: whole numbers */
    double largest;    /* finite value */
    enum dtype dumped; /* the type that a dump has it in, which holds all its values */
    void (*narrow)(void *to, const double *from, int64_t n);
    void (*widen)(double *to, const void *from, int64_t n);
};

extern const struct type types[N_DTYPES];
/* The names from F32 to F16; NULL at the end. */
extern const char *const storage_types[];

/* Convert n elements, on all threads. */
void narrow(enum dtype t, void *to, const double *from, int64_t n);
void widen(enum dtype t, double *to, const void *from, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
