/* The CUDA backends' lists of kernels, by operation. */
#include "common/op.h"

#define OP(name) extern const struct impl *const gpu32_##name[], *const gpu16_##name[];
#include "common/ops.def"
#undef OP

extern const struct impl *const *const gpu32_kernels[N_OPS], *const *const gpu16_kernels[N_OPS];

const struct impl *const *const gpu32_kernels[N_OPS] = {
#define OP(name) [OP_##name] = gpu32_##name,
#include "common/ops.def"
#undef OP
};

const struct impl *const *const gpu16_kernels[N_OPS] = {
#define OP(name) [OP_##name] = gpu16_##name,
#include "common/ops.def"
#undef OP
};
