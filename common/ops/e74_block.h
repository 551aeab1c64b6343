/* e74_block as a chain: the calls of rmsnorm, e74 and linear within the block's own, and their sum,
 * the same on every backend. */
#ifndef E74_BLOCK_H
#define E74_BLOCK_H

#include "common/ops/e74.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The members of a struct impl. */
int e74_block_forward(const struct call *f);
int e74_block_backward(const struct call *f);
size_t e74_block_work(const struct call *f, enum pass p);
const char *e74_block_declines(const struct call *f);
struct call e74_block_link(const struct call *f); /* e74's */

#ifdef __cplusplus
}
#endif
#endif
