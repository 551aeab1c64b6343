/* e74_block, plainly: the references of rmsnorm, e74 and linear, one after the other. */
#include "ref/ref.h"

#include "common/ops/e74_block.h"

REF_KERNEL(e74_block, "chain", "rmsnorm, e74 and linear, one after the other", e74_block_forward,
           e74_block_backward, .work = e74_block_work, .declines = e74_block_declines);
