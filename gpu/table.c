/* The CUDA machine's lists of kernels, by operation. */
#include "common/call/machine.h"

#define OP(name) extern const struct impl *const gpu_##name[];
#include "common/call/ops.def"

extern const struct kernels gpu_kernels[];

const struct kernels gpu_kernels[] = {
#define OP(name) {&op_##name, gpu_##name, NULL},
#include "common/call/ops.def"
    {NULL, NULL, NULL},
};
