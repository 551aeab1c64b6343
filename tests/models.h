/* models.h - the lines of a language model around its mixer, of which tests of programs make theirs. */
#ifndef MODELS_H
#define MODELS_H

/* Sizes, inputs, and the first line of a block: its mixer reads n, and makes m. */
#define MODEL_HEAD(vocabulary, width, steps, batch)                                                \
    "vocabulary = " #vocabulary "\nwidth = " #width "\nsteps = " #steps "\nbatch = " #batch "\n"   \
    "blocks = 2\n"                                                                                 \
    "token [steps, batch]\ntarget [steps, batch]\n"                                                \
    "x = embedding token\n"                                                                        \
    "repeat blocks\n"                                                                              \
    "  n = rmsnorm x\n"
/* Behind m: the block's sum, a tied head, and the loss. */
#define MODEL_TAIL                                                                                 \
    "  o = linear m dim_out=width\n"                                                               \
    "  x = add x o\n"                                                                              \
    "f = rmsnorm x\n"                                                                              \
    "logits = linear f W=x.E\n"                                                                    \
    "loss = cross_entropy logits target\n"

#endif
