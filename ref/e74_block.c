/* e74_block, plainly: the references of rmsnorm, e74 and linear, one after the other. */
#include "ref/ref.h"

#include "common/ops/e74_block.h"

static const struct impl chain = {
    .name = "chain",
    .idea = "rmsnorm, e74 and linear, one after the other",
    .pass = {e74_block_forward, e74_block_backward},
    .work = e74_block_work,
    .declines = e74_block_declines,
};
const struct impl *const REF(e74_block)[] = {&chain, NULL};
