/* Kernels of gemm, gemm_splitk, gemm_batched, gemv, linear, lora that are wrong (wrong.h). */
#include "ref/wrong/wrong.h"

const struct impl *const WRONG(gemm)[] = {NULL};
const struct impl *const WRONG(gemm_splitk)[] = {NULL};
const struct impl *const WRONG(gemm_batched)[] = {NULL};
const struct impl *const WRONG(gemv)[] = {NULL};
const struct impl *const WRONG(linear)[] = {NULL};
const struct impl *const WRONG(lora)[] = {NULL};
