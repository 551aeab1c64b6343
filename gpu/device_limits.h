/* device_limits.h - the sizes of work at which kernels change their configuration.
 *
 * Host code reads them from the context (context.cuh).  A limit is a property of the device in use, or a
 * constant for all devices, measured as the description of its kernel says.  Emulation
 * has the same constants, so that it selects the same kernels and configurations. */
#ifndef DEVICE_LIMITS_H
#define DEVICE_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The default of split_steps, which the description of e74_cell's kernel split names. */
#define SPLIT_STEPS 1024

struct limits {
    int sms;             /* SMs, over which work is distributed; at least 1 */
    size_t smem;         /* maximum bytes of shared memory per block, static and dynamic */
    size_t smem_two;     /* the same if two blocks have to fit on an SM */
    int scan_blocks;     /* e74_cell, chunked and split: target size of a scan's grid, about one
                          * block per SM */
    int64_t split_steps; /* e74_cell, split: sequences must have more steps than this */
    int64_t wide_lane_elements; /* e74_cell, rows, bf16: if all states have at least this many
                          * elements, with padding, a thread holds 16 columns of a row, not 8 */
    int64_t records;  /* e74_cell, norms: maximum floats of the steps' records in the workspace */
    int64_t states;   /* e74_cell, norms: the same for the states */
    int norm_threads; /* norms of rows: maximum threads per block; a multiple of 64 */
};

struct context;

/* For tests: a context's limits, to be changed.  With lower limits small cases run the code paths of
 * large ones. */
struct limits *gpu_limits_of(struct context *x);

#ifdef __cplusplus
}
#endif
#endif
