/* ceiling.h - the names of the ceilings that can bind a pass. */
#ifndef CEILING_H
#define CEILING_H

/* FLOPs of matrix products count for the tensor cores where storage is bf16; all others count for
 * FP32. */
#define CEILINGS(CEILING, with)                                                                    \
    CEILING(with, MEMORY, memory)                                                                  \
    CEILING(with, TENSOR, tensor)                                                                  \
    CEILING(with, FP32, fp32)                                                                      \
    CEILING(with, SPECIAL, special)                                                                \
    CEILING(with, LATENCY, latency)
#define CEILING_ID(with, ID, name) AT_##ID,
enum ceiling { CEILINGS(CEILING_ID, ) N_CEILINGS };
extern const char *const ceiling_names[N_CEILINGS];

#endif
