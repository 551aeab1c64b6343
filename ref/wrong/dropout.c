/* Kernels of dropout that are wrong (wrong.h). */
#include "common/ops/dropout.h"
#include "ref/wrong/runs.h"

WRONG_UNLESS(drops, f->real[DROPOUT_P] > 0, "no dropout")
WRONG_UNLESS(has_step, f->real[DROPOUT_P] > 0 && DIM(f, 'U') > 0, "no dropout, or u is 0")
WRONG_UNLESS(has_high_seed, f->real[DROPOUT_P] > 0 && DIM(f, 'X') >> 32, "a seed of 32 bits")
WRONG_UNLESS(has_rows, f->real[DROPOUT_P] > 0 && DIM(f, 'M') > 1, "no dropout, or one row")

/* ---- the right kernel on another call ---- */

WRONG_CALL(dropout_one_seed, "the seed is ignored", DIM(&g, 'X') = 0, .declines = drops);
WRONG_CALL(dropout_low_seed, "the seed's high bits are lost", DIM(&g, 'X') &= 0xffffffff,
           .declines = has_high_seed);

static int at_step(const struct call *f, enum pass p, int64_t u)
{
    return right_pass_with(f, p, PLACE(dropout, counter), &u);
}

static int64_t step_of(const struct call *f)
{
    return *(const int64_t *)ARGS(f, dropout)->counter;
}

static int dropout_no_counter_run(const struct call *f, enum pass p)
{
    return at_step(f, p, 0);
}
WRONG_RUN(dropout_no_counter, "the counter is ignored: one mask for ever", .declines = has_step);

static int dropout_next_run(const struct call *f, enum pass p)
{
    return at_step(f, p, step_of(f) + 1);
}
WRONG_RUN(dropout_next, "the mask is that of the next u", .declines = drops);

static int next_backward(const struct call *f)
{
    return dropout_next_run(f, BACKWARD);
}
WRONG_PASSES(dropout_back_of_next, "backward has the mask of the counter that has been advanced",
             right_forward, next_backward, .declines = drops);

/* ---- passes of its own ---- */

enum {
    UNSCALED = 1,        /* Z x */
    BY_P = 1 << 1,       /* Z x / p */
    INVERTED = 1 << 2,   /* an element is kept with probability p */
    OF_ROWS = 1 << 3,    /* words begin anew in each row */
    OF_VECTORS = 1 << 4, /* one word for four elements */
    TAIL = 1 << 5,       /* behind the last multiple of four nothing is dropped */
    MULTIPLIED = 1 << 6, /* Z times x, where 0 times NaN is NaN */
    STEP_FIRST = 1 << 7  /* u is in the third word of the counter */
};

static int is_kept(const struct call *f, unsigned wrong, int64_t i)
{
    const struct dropout_mask mask = dropout_mask_of(f);
    const int64_t n = DIM(f, 'M') * DIM(f, 'D');
    const uint32_t u = (uint32_t)step_of(f);

    if (wrong & TAIL && i >= n / 4 * 4)
        return 1;
    if (wrong & STEP_FIRST) {
        const struct philox counter = {{(uint32_t)(i / 4), (uint32_t)(i / 4 >> 32), u, 0}};
        return dropout_keeps(&mask, philox4x32(counter, mask.key, 0).word[i % 4]);
    }
    const int64_t at = wrong & OF_ROWS ? i % DIM(f, 'D') : wrong & OF_VECTORS ? i / 4 * 4 : i;
    return dropout_kept(&mask, u, at) != !!(wrong & INVERTED);
}

static void run(const struct call *f, unsigned wrong, const num *from, num *to)
{
    const double p = f->real[DROPOUT_P];
    const real keep = (real)(wrong & UNSCALED ? 1 : wrong & BY_P ? 1 / p : 1 / (1 - p));

    for (int64_t i = 0; i < DIM(f, 'M') * DIM(f, 'D'); i++) {
        const int kept = is_kept(f, wrong, i);
        const real x = load(from[i]);
        to[i] = store(kept ? keep * x : wrong & MULTIPLIED ? 0 * x : 0);
    }
}

static int run_forward(const struct call *f, unsigned wrong)
{
    run(f, wrong, ARGS(f, dropout)->x, ARGS(f, dropout)->y);
    return 0;
}

static int run_backward(const struct call *f, unsigned wrong)
{
    run(f, wrong, GRADS(f, dropout)->y, GRADS(f, dropout)->x);
    return 0;
}

WRONG_UNLESS(not_a_half, f->real[DROPOUT_P] > 0 && f->real[DROPOUT_P] != 0.5,
             "no dropout, or p is 1 - p")
WRONG_UNLESS(has_tail, f->real[DROPOUT_P] > 0 && DIM(f, 'M') * DIM(f, 'D') % 4,
             "no dropout, or a multiple of 4 elements")

WRONG_BITS(dropout_unscaled, "1 / (1 - p) is left out", UNSCALED, UNSCALED, .declines = drops);
WRONG_BITS(dropout_back_unscaled, "backward leaves out 1 / (1 - p)", 0, UNSCALED,
           .declines = drops);
WRONG_BITS(dropout_by_p, "what is kept is divided by p", BY_P, BY_P, .declines = not_a_half);
WRONG_BITS(dropout_inverted, "what is to be kept is dropped", INVERTED, INVERTED,
           .declines = drops);
WRONG_BITS(dropout_of_rows, "the words begin anew in each row", OF_ROWS, OF_ROWS,
           .declines = has_rows);
WRONG_BITS(dropout_of_vectors, "four neighbours have one word", OF_VECTORS, OF_VECTORS,
           .declines = drops);
WRONG_BITS(dropout_tail_kept, "behind the last multiple of four nothing is dropped", TAIL, TAIL,
           .declines = has_tail);
WRONG_BITS(dropout_multiplied, "a NaN is multiplied by Z, and stays", MULTIPLIED, 0,
           .declines = drops);
WRONG_BITS(dropout_step_first, "u is in the third word of the counter", STEP_FIRST, STEP_FIRST,
           .declines = has_step);

WRONG_KERNELS(dropout, &dropout_one_seed, &dropout_low_seed, &dropout_no_counter, &dropout_next,
              &dropout_back_of_next, &dropout_unscaled, &dropout_back_unscaled, &dropout_by_p,
              &dropout_inverted, &dropout_of_rows, &dropout_of_vectors, &dropout_tail_kept,
              &dropout_multiplied, &dropout_step_first);
