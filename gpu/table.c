/* The CUDA backends' lists of kernels, by operation; NULL where there is none
 * yet. */
#include "common/op.h"

#define KERNEL(name) extern const struct impl *const gpu32_##name[], *const gpu16_##name[];
#include "gpu/kernels.def"
#undef KERNEL

extern const struct impl *const *const gpu32_kernels[N_OPS], *const *const gpu16_kernels[N_OPS];

const struct impl *const *const gpu32_kernels[N_OPS] = {
#define KERNEL(name) [OP_##name] = gpu32_##name,
#include "gpu/kernels.def"
#undef KERNEL
};

const struct impl *const *const gpu16_kernels[N_OPS] = {
#define KERNEL(name) [OP_##name] = gpu16_##name,
#include "gpu/kernels.def"
#undef KERNEL
};
