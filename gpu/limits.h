/* limits.h - from how much work on kernels go about it otherwise.
 *
 * Host code asks gpu_limits(): what is said here of the device in use is its
 * own property, or a number that holds for every device, measured where the
 * kernel is described.  By emulation it is the same, so that what a kernel
 * takes, and how, does not depend on where it runs. */
#ifndef LIMITS_H
#define LIMITS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* That of e74_cell's split, which its description names. */
#define SPLIT_STEPS 1024

struct limits {
    int sms;             /* among which work is shared out; at least 1 */
    int walkers;         /* e74_cell, chunked and split: blocks that find an SM each */
    int64_t split_steps; /* e74_cell, split: the most of a sequence that is not long */
    int64_t crowd;       /* e74_cell, rows: elements of all states, with padding, from which on a
                          * thread has sixteen columns of a row, in bf16 */
    int64_t records;     /* e74_cell, norms: floats of all steps that are wanted at once */
    int64_t states;      /* and of all states */
    int norm_threads;    /* norms of rows: threads of a block, at most; a multiple of 64 */
};

const struct limits *gpu_limits(void);

/* For a test: from now on these, or the device's own again where it is NULL.  Lower ones let small
 * cases meet what only large ones would. */
void gpu_set_limits(const struct limits *l);

#ifdef __cplusplus
}
#endif
#endif
