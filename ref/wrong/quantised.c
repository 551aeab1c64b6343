/* Kernels of dequantise, quantise, gemm_quantised that are wrong (wrong.h). */
#include "ref/wrong/wrong.h"

const struct impl *const WRONG(dequantise)[] = {NULL};
const struct impl *const WRONG(quantise)[] = {NULL};
const struct impl *const WRONG(gemm_quantised)[] = {NULL};
