/* e74_block: out = x + linear(e74(rmsnorm(x))), computed by the kernels of these operations that
 * accept the case, in sequence, and by a kernel that adds. */
#include "common/ops/e74_block.h"
#include "gpu/gpu.cuh"

/* The choice of e74's kernel depends on the sizes, including T.  It is the same for all sequences
 * of at least CHUNK steps, and the chunk of that kernel is not longer than CHUNK. */
enum { CHUNK = 2048 };

GPU_KERNEL(chain, .idea = "the kernels of rmsnorm, e74 and linear in sequence",
           .pass = {e74_block_forward, e74_block_backward}, .work = e74_block_work,
           .declines = e74_block_declines, .chunk = CHUNK, .link = e74_block_link, .products = 1);
GPU_KERNELS(e74_block, IN_TYPES(chain));
