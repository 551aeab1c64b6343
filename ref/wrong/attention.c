/* Kernels of attention, rope that are wrong (wrong.h). */
#include "ref/wrong/wrong.h"

const struct impl *const WRONG(attention)[] = {NULL};
const struct impl *const WRONG(rope)[] = {NULL};
