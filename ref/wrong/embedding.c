/* Kernels of embedding that are wrong (wrong.h). */
#include "common/call/contract.h"
#include "common/ops/embedding.h"
#include "ref/wrong/wrong.h"

static int64_t token_of(const struct call *f, int64_t r)
{
    return ((const int64_t *)ARGS(f, embedding)->token)[r];
}

static int is_inside(const struct call *f, int64_t r)
{
    return token_of(f, r) >= 0 && token_of(f, r) < DIM(f, 'V');
}

static const num *dy_of(const struct call *f, int64_t r)
{
    return (const num *)GRADS(f, embedding)->y + r * DIM(f, 'D');
}

static real *dE_of(const struct call *f, int64_t v)
{
    return (real *)GRADS(f, embedding)->E + v * DIM(f, 'D');
}

/* The rows before r of the same token. */
static int64_t earlier(const struct call *f, int64_t r)
{
    int64_t n = 0;
    for (int64_t i = 0; i < r; i++)
        n += token_of(f, i) == token_of(f, r);
    return n;
}

static int64_t all_of(const struct call *f, int64_t r)
{
    int64_t n = earlier(f, r);
    for (int64_t i = r; i < DIM(f, 'R'); i++)
        n += token_of(f, i) == token_of(f, r);
    return n;
}

WRONG_UNLESS(has_outside, f->choice[EMBEDDING_OUTSIDE], "no token is outside")

/* ---- forward ---- */

static void next_in(const struct call *f)
{
    const struct embedding *a = ARGS(f, embedding);
    const int64_t V = DIM(f, 'V'), D = DIM(f, 'D');

    for (int64_t r = 0; r < DIM(f, 'R'); r++)
        if (is_inside(f, r))
            memcpy((num *)a->y + r * D, (const num *)a->E + (token_of(f, r) + 1) % V * D,
                   D * sizeof(num));
}
WRONG_UNLESS(several_tokens, DIM(f, 'V') > 1, "one token")
WRONG_AFTER(embedding_next_row, "tokens are counted from 1 in forward", FORWARD, next_in,
            .declines = several_tokens);

static void clamped_in(const struct call *f)
{
    const struct embedding *a = ARGS(f, embedding);
    const int64_t V = DIM(f, 'V'), D = DIM(f, 'D');

    for (int64_t r = 0; r < DIM(f, 'R'); r++)
        if (!is_inside(f, r))
            memcpy((num *)a->y + r * D, (const num *)a->E + (token_of(f, r) < 0 ? 0 : V - 1) * D,
                   D * sizeof(num));
}
WRONG_AFTER(embedding_clamped, "a token outside has the first or the last row of E", FORWARD,
            clamped_in, .declines = has_outside);

static void columns_in(const struct call *f)
{
    const int64_t D = DIM(f, 'D');

    for (int64_t r = 0; r < DIM(f, 'R'); r++)
        for (int64_t d = whole(D, 4); d < D; d++)
            ((num *)ARGS(f, embedding)->y)[r * D + d] = store(0);
}
WRONG_AFTER(embedding_tail_lost, "only whole vectors of 4 columns are copied", FORWARD, columns_in);

/* ---- backward ---- */

/* dE[v,:] = dy[r,:] */
static void set_row(const struct call *f, int64_t v, int64_t r)
{
    for (int64_t d = 0; d < DIM(f, 'D'); d++)
        dE_of(f, v)[d] = load(dy_of(f, r)[d]);
}

static void last_in(const struct call *f)
{
    for (int64_t r = 0; r < DIM(f, 'R'); r++)
        if (is_inside(f, r))
            set_row(f, token_of(f, r), r);
}
WRONG_AFTER(embedding_last_wins, "rows of dy are stored, not added: the last one is left", BACKWARD,
            last_in);

static void once_in(const struct call *f)
{
    for (int64_t r = DIM(f, 'R') - 1; r >= 0; r--)
        if (is_inside(f, r))
            set_row(f, token_of(f, r), r);
}
WRONG_AFTER(embedding_first_alone, "a token's later rows are not counted", BACKWARD, once_in);

static void next_back_in(const struct call *f)
{
    const int64_t V = DIM(f, 'V'), row = DIM(f, 'D') * (int64_t)sizeof(real);
    real *dE = dE_of(f, 0), *last = malloc(row);

    if (!last)
        return;
    memcpy(last, dE_of(f, V - 1), row);
    memmove(dE_of(f, 1), dE, (V - 1) * row);
    memcpy(dE, last, row);
    free(last);
}
WRONG_AFTER(embedding_next_row_back, "tokens are counted from 1 in backward", BACKWARD,
            next_back_in, .declines = several_tokens);

/* dE[v,:] += by dy[r,:] */
static void add_row(const struct call *f, int64_t v, real by, int64_t r)
{
    for (int64_t d = 0; d < DIM(f, 'D'); d++)
        dE_of(f, v)[d] += by * load(dy_of(f, r)[d]);
}

static void outside_in(const struct call *f)
{
    for (int64_t r = 0; r < DIM(f, 'R'); r++)
        if (!is_inside(f, r))
            add_row(f, 0, 1, r);
}
WRONG_AFTER(embedding_outside_row_0, "the gradient of a token outside is added to row 0", BACKWARD,
            outside_in, .declines = has_outside);

static void remainder_in(const struct call *f)
{
    for (int64_t r = 0; r < DIM(f, 'R'); r++)
        if (is_inside(f, r) && earlier(f, r) >= whole(all_of(f, r), EMBEDDING_GROUP))
            add_row(f, token_of(f, r), -1, r);
}
WRONG_AFTER(embedding_remainder_lost, "a token's rows behind its last whole group are left out",
            BACKWARD, remainder_in);

static void mean_in(const struct call *f)
{
    for (int64_t r = 0; r < DIM(f, 'R'); r++) {
        const int64_t n = is_inside(f, r) && !earlier(f, r) ? all_of(f, r) : 1;
        for (int64_t d = 0; n > 1 && d < DIM(f, 'D'); d++) {
            dE_of(f, token_of(f, r))[d] /= (real)n;
        }
    }
}
WRONG_AFTER(embedding_mean, "dE is the mean over a token's rows", BACKWARD, mean_in);

WRONG_KERNELS(embedding, &embedding_next_row, &embedding_clamped, &embedding_tail_lost,
              &embedding_last_wins, &embedding_first_alone, &embedding_next_row_back,
              &embedding_outside_row_0, &embedding_remainder_lost, &embedding_mean);
