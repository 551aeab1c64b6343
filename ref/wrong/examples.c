/* Kernels of examples that are wrong (wrong.h). */
#include "common/ops/examples.h"
#include "ref/wrong/runs.h"

WRONG_UNLESS(held_out, f->choice[EXAMPLES_SPLIT] != SPLIT_TRAIN, "it is training data")
WRONG_UNLESS(is_test, f->choice[EXAMPLES_SPLIT] == SPLIT_TEST, "it is no test data")
WRONG_UNLESS(later, DIM(f, 'U') > 0, "u is 0")
WRONG_UNLESS(has_high_seed, DIM(f, 'X') >> 32, "a seed of 32 bits")
WRONG_UNLESS(is_last,
             f->choice[EXAMPLES_TASK] <= TASK_WORD &&
                 f->choice[EXAMPLES_SUPERVISE] == SUPERVISE_LAST && DIM(f, 'N') < DIM(f, 'T'),
             "all rows are as long")
WRONG_UNLESS(has_rows, DIM(f, 'B') > 1, "one row")
WRONG_UNLESS(has_group,
             f->choice[EXAMPLES_TASK] == TASK_WORD && f->choice[EXAMPLES_GROUP] != GROUP_Z60,
             "no group that does not commute")

/* ---- the right kernel on another call ---- */

WRONG_CALL(examples_test_as_train, "validation and test data are drawn as training data",
           g.choice[EXAMPLES_SPLIT] = SPLIT_TRAIN, .declines = held_out);
WRONG_CALL(examples_one_held_out, "test data are drawn as validation data",
           g.choice[EXAMPLES_SPLIT] = SPLIT_VALIDATION, .declines = is_test);
WRONG_CALL(examples_one_seed, "the seed is ignored", DIM(&g, 'X') = 0);
WRONG_CALL(examples_low_seed, "the seed's high bits are lost", DIM(&g, 'X') &= 0xffffffff,
           .declines = has_high_seed);

static int one_batch(const struct call *f)
{
    const int64_t none = 0;
    return right_pass_with(f, FORWARD, PLACE(examples, counter), &none);
}
WRONG_PASSES(examples_one_batch, "every update has the first batch", one_batch, NULL,
             .declines = later);

/* ---- what it has made, changed ---- */

static void shifted(const struct call *f)
{
    int64_t *target = ARGS(f, examples)->target;
    const int64_t B = DIM(f, 'B'), n = DIM(f, 'T') * B;

    for (int64_t i = 0; i < n; i++)
        target[i] = i + B < n ? target[i + B] : -1;
}
WRONG_AFTER(examples_shifted, "a token has the next one's target", FORWARD, shifted);

static void padding_counted(const struct call *f)
{
    int64_t *target = ARGS(f, examples)->target;
    const int64_t B = DIM(f, 'B');

    for (int64_t i = B; i < DIM(f, 'T') * B; i++)
        target[i] = target[i] < 0 && target[i - B] >= 0 ? 0 : target[i];
}
WRONG_AFTER(examples_padding, "padding has a target", FORWARD, padding_counted,
            .declines = is_last);

static void one_row(const struct call *f)
{
    const struct examples *a = ARGS(f, examples);
    const int64_t B = DIM(f, 'B');

    for (int64_t i = 0; i < DIM(f, 'T') * B; i++) {
        ((int64_t *)a->token)[i] = ((int64_t *)a->token)[i / B * B];
        ((int64_t *)a->target)[i] = ((int64_t *)a->target)[i / B * B];
    }
}
WRONG_AFTER(examples_one_row, "all rows of a batch are the first", FORWARD, one_row,
            .declines = has_rows);

/* ---- other rows ---- */

/* The state goes on in the next row, which begins at 0. */
static void carried(const struct call *f)
{
    const struct example_task t = example_task_of(f);
    const struct examples *a = ARGS(f, examples);
    int64_t *token = a->token, *target = a->target, state = 0;

    for (int64_t b = 0; b < t.B; b++)
        for (int64_t i = 0; i < t.T; i++) {
            state = example_next(&t, state, token[i * t.B + b]);
            target[i * t.B + b] = target[i * t.B + b] < 0 ? -1 : state;
        }
}
WRONG_UNLESS(has_states, f->choice[EXAMPLES_TASK] <= TASK_WORD && DIM(f, 'B') > 1,
             "no state, or one row")
WRONG_AFTER(examples_carried, "a row begins with the state that the row before has left", FORWARD,
            carried, .declines = has_states);

/* The product with the last token first. */
static void reversed(const struct call *f)
{
    const struct example_task t = example_task_of(f);
    const struct examples *a = ARGS(f, examples);
    int64_t *token = a->token, *target = a->target;
    const int degree = group_degree(t.group);

    for (int64_t b = 0; b < t.B; b++) {
        uint32_t state = 0x43210;
        for (int64_t i = 0; i < t.T; i++) {
            const int64_t x = token[i * t.B + b];
            const uint32_t p = t.generators == GENERATORS_TRANSPOSITIONS
                                   ? transposition(degree, x)
                                   : group_element(t.group, x);
            uint32_t y = 0;
            for (int k = 0; k < degree; k++)
                y |= (uint32_t)permuted(state, permuted(p, k)) << 4 * k;
            state = y;
            if (target[i * t.B + b] >= 0)
                target[i * t.B + b] =
                    permutation_place(degree, y) / (group_is_even(t.group) ? 2 : 1);
        }
    }
}
WRONG_AFTER(examples_reversed, "the product has the last token first", FORWARD, reversed,
            .declines = has_group);

/* A key's value is that of the next pair. */
static void next_value(const struct call *f)
{
    const struct examples *a = ARGS(f, examples);
    const int64_t *token = a->token, B = DIM(f, 'B'), P = DIM(f, 'P');
    int64_t *target = a->target;

    for (int64_t b = 0; b < B; b++)
        for (int64_t i = 2 * P; i < DIM(f, 'T'); i++)
            for (int64_t k = 0; target[i * B + b] >= 0 && k < P; k++)
                if (token[2 * k * B + b] == token[i * B + b]) {
                    target[i * B + b] = token[(2 * ((k + 1) % P) + 1) * B + b];
                    break;
                }
}
WRONG_UNLESS(has_pairs, f->choice[EXAMPLES_TASK] == TASK_MQAR && DIM(f, 'P') > 1, "no two pairs")
WRONG_AFTER(examples_next_value, "a key is asked for the next pair's value", FORWARD, next_value,
            .declines = has_pairs);

WRONG_KERNELS(examples, &examples_test_as_train, &examples_one_held_out, &examples_one_seed,
              &examples_low_seed, &examples_one_batch, &examples_shifted, &examples_padding,
              &examples_one_row, &examples_carried, &examples_reversed, &examples_next_value);
