/* Kernels of transpose, stencil1d, stencil2d, histogram, reduce, scan, silu, relu, swiglu, adamw that are wrong (wrong.h). */
#include "ref/wrong/wrong.h"

const struct impl *const WRONG(transpose)[] = {NULL};
const struct impl *const WRONG(stencil1d)[] = {NULL};
const struct impl *const WRONG(stencil2d)[] = {NULL};
const struct impl *const WRONG(histogram)[] = {NULL};
const struct impl *const WRONG(reduce)[] = {NULL};
const struct impl *const WRONG(scan)[] = {NULL};
const struct impl *const WRONG(silu)[] = {NULL};
const struct impl *const WRONG(relu)[] = {NULL};
const struct impl *const WRONG(swiglu)[] = {NULL};
