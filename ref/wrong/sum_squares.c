/* Kernels of sum_squares that are wrong (wrong.h). */
#include "common/call/contract.h"
#include "common/ops/sum_squares.h"
#include "ref/wrong/wrong.h"

static void vectors_alone(const struct call *f)
{
    const num *x = ARGS(f, sum_squares)->x;
    real y = 0;
    for (int64_t i = 0; i < whole(DIM(f, 'N'), 8); i++)
        y += load(x[i]) * load(x[i]);
    *(real *)ARGS(f, sum_squares)->y = y;
}
WRONG_UNLESS(has_a_tail, whole(DIM(f, 'N'), 8) < DIM(f, 'N'),
             "no elements behind the last multiple of 8")
WRONG_AFTER(squares_tail_lost, "elements behind the last multiple of 8 are not in the sum", FORWARD,
            vectors_alone, .declines = has_a_tail);

static void summed_in_bf16(const struct call *f)
{
    const num *x = ARGS(f, sum_squares)->x;
    float y = 0;
    for (int64_t i = 0; i < DIM(f, 'N'); i++)
        y = from_bf16(to_bf16(y + (float)load(x[i]) * (float)load(x[i])));
    *(real *)ARGS(f, sum_squares)->y = y;
}
WRONG_AFTER(squares_bf16_sum, "the sum is rounded to bf16 at each addition", FORWARD,
            summed_in_bf16);

static void squares_in_bf16(const struct call *f)
{
    const num *x = ARGS(f, sum_squares)->x;
    real y = 0;
    for (int64_t i = 0; i < DIM(f, 'N'); i++)
        y += from_bf16(to_bf16((float)load(x[i]) * (float)load(x[i])));
    *(real *)ARGS(f, sum_squares)->y = y;
}
WRONG_AFTER(squares_bf16_squares, "each square is rounded to bf16 before it is added", FORWARD,
            squares_in_bf16);

static void root(const struct call *f)
{
    real *y = ARGS(f, sum_squares)->y;
    *y = sqrt(*y);
}
WRONG_AFTER(squares_norm, "y is the root of the sum", FORWARD, root);

static void mean(const struct call *f)
{
    real *y = ARGS(f, sum_squares)->y;
    *y /= DIM(f, 'N');
}
WRONG_AFTER(squares_mean, "y is the mean of the squares", FORWARD, mean);

/* dx = factor x dy, of elements from `from` on. */
static void back_by(const struct call *f, int64_t from, real factor)
{
    const num *x = ARGS(f, sum_squares)->x;
    const real dy = *(const real *)GRADS(f, sum_squares)->y;
    num *dx = GRADS(f, sum_squares)->x;
    for (int64_t i = from; i < DIM(f, 'N'); i++)
        dx[i] = store(factor * load(x[i]) * dy);
}

static void by_1(const struct call *f)
{
    back_by(f, 0, 1);
}
WRONG_AFTER(squares_no_2, "dx = x dy, without the 2", BACKWARD, by_1);

static void tail_of_zeros(const struct call *f)
{
    back_by(f, whole(DIM(f, 'N'), 8), 0);
}
WRONG_AFTER(squares_tail_lost_back, "dx behind the last multiple of 8 is 0", BACKWARD,
            tail_of_zeros, .declines = has_a_tail);

WRONG_KERNELS(sum_squares, &squares_tail_lost, &squares_bf16_sum, &squares_bf16_squares,
              &squares_norm, &squares_mean, &squares_no_2, &squares_tail_lost_back);
