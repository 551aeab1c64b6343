/* gemm_quantised.cuh - the kernels of gemm_quantised that have files of their own. */
#ifndef GEMM_QUANTISED_CUH
#define GEMM_QUANTISED_CUH

#include "common/ops/gemm_quantised.h"
#include "gpu/gpu.cuh"

#endif
