/* dequantise.cuh - W unpacked, for products with it. */
#ifndef DEQUANTISE_CUH
#define DEQUANTISE_CUH

#include "common/ops/quantised.h"
#include "gpu/gpu.cuh"

/* Launches the fastest kernel of dequantise: w [N,K], of the sizes and choices of f, which are
 * quantised.h's, of the bytes of a; a.w is not used. */
template <typename T>
int unpack(const struct call *f, const struct dequantise &a, T *w);
/* NULL, or why it does not take these sizes. */
const char *unpack_declines(const struct call *f);

#endif
