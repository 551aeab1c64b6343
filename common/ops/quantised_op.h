/* quantised_op.h - what the contracts of operations on quantised weights share.  The places of their
 * first parameters are those of quantised.h. */
#ifndef QUANTISED_OP_H
#define QUANTISED_OP_H

#include "common/call/contract.h"
#include "common/ops/quantised.h"

static inline enum quantised quantised_format(const struct call *f)
{
    return (enum quantised)f->choice[QUANTISED_FORMAT];
}
static inline int quantised_is_nf4(const struct call *f)
{
    return quantised_format(f) == NF4;
}

/* "q4_k" ...; and the choices of `data` of an operation that reads W. */
extern const char *const quantised_formats[], *const quantised_data[];
enum { DATA_WEIGHTS, DATA_RANDOM, DATA_HARD };

/* For struct param and struct arg. */
const char *quantised_only_nf4(const struct call *f);
int quantised_whole_blocks(const struct call *f);
int quantised_is_single(const struct call *f);
int quantised_is_double(const struct call *f);
/* Bytes that are blocks of the format, as `data` says. */
void quantised_draw(const struct call *f, int arg, uint64_t key, unsigned char *b);
/* The scales of nf4: of weights their largest; random ones of either sign, and of exponents from
 * -exponents to exponents - 1; hard ones 0, -0, subnormal, or the largest. */
struct scale_range {
    int exponents;
    double largest;
};
void quantised_draw_scales(const struct call *f, int arg, uint64_t key, double *x,
                           struct scale_range range);
/* Refuses a scale that is infinite or NaN. */
int quantised_check(const struct call *f, int arg, const char *place, const unsigned char *b);
/* The sizes of one W, and its axes' names. */
int quantised_derive(struct call *f);
extern const struct axis quantised_axes[];

/* The parameters, with the choices of `data` and what they are. */
#define QUANTISED_PARAMS(data_, help_)                                                             \
    [QUANTISED_N] = SIZE_PARAM("dim_out", 'N', 4096, "rows of W"),                                 \
    [QUANTISED_K] = {.name = "dim_in",                                                             \
                     .letter = 'K',                                                                \
                     .initial = 4096,                                                              \
                     .min = 1,                                                                     \
                     .max = 1 << 30,                                                               \
                     .help = "weights of a row",                                                   \
                     .multiple = quantised_whole_blocks},                                          \
    [QUANTISED_FORMAT] = CHOICE_PARAM("format", quantised_formats, 0, "how W is stored"),          \
    [QUANTISED_DOUBLE] = {.name = "double_quant",                                                  \
                          .choices = no_yes,                                                       \
                          .initial = 1,                                                            \
                          .help = "are the scales of blocks quantised, too?",                      \
                          .unless = quantised_only_nf4},                                           \
    [QUANTISED_BLOCK] = {.name = "block",                                                          \
                         .letter = 'G',                                                            \
                         .initial = 64,                                                            \
                         .min = 32,                                                                \
                         .max = 256,                                                               \
                         .help = "weights that share a scale: 32, 64, 128, 256",                   \
                         .unless = quantised_only_nf4},                                            \
    [QUANTISED_DATA] = ASIDE_PARAM("data", data_, DATA_WEIGHTS, help_)

#endif
