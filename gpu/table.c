/* The CUDA backends' lists of kernels, by operation. */
#include "common/call/machine.h"

#define OP(name) extern const struct impl *const gpu32_##name[], *const gpu_bf16_##name[];
#include "common/call/ops.def"
#undef OP

extern const struct kernels gpu32_kernels[], gpu_bf16_kernels[];

const struct kernels gpu32_kernels[] = {
#define OP(name) {&op_##name, gpu32_##name, NULL},
#include "common/call/ops.def"
#undef OP
    {NULL, NULL, NULL},
};

const struct kernels gpu_bf16_kernels[] = {
#define OP(name) {&op_##name, gpu_bf16_##name, NULL},
#include "common/call/ops.def"
#undef OP
    {NULL, NULL, NULL},
};
