/* Kernels of diag_delta, e74_cell, e74, e74_block, dual_memory that are wrong (wrong.h). */
#include "ref/wrong/wrong.h"

const struct impl *const WRONG(e74_cell)[] = {NULL};
const struct impl *const WRONG(e74)[] = {NULL};
const struct impl *const WRONG(e74_block)[] = {NULL};
const struct impl *const WRONG(dual_memory)[] = {NULL};
