/* e74_block: out = x + linear(e74(rmsnorm(x))), computed by the kernels of these operations that
 * accept the case, in sequence, and by a kernel that adds. */
#include "common/ops/e74_block.h"
#include "gpu/gpu.cuh"

/* The choice of e74's kernel depends on the sizes, including T.  It is the same for all sequences
 * of at least CHUNK steps, and the chunk of that kernel is not longer than CHUNK. */
enum { CHUNK = 2048 };

static const struct impl chain = {"chain",
                                  "the kernels of rmsnorm, e74 and linear in sequence",
                                  {e74_block_forward, e74_block_backward},
                                  e74_block_work,
                                  e74_block_declines,
                                  NULL,
                                  0,
                                  CHUNK,
                                  e74_block_link,
                                  NULL,
                                  WITH_PRODUCTS};
#define KERNELS(bits, T) GPU_KERNEL_LIST(e74_block, bits, &chain)
GPU_TYPES(KERNELS);
