/* Kernels of rope that are wrong (wrong.h). */
#include "common/call/contract.h"
#include "common/ops/rope.h"
#include "ref/wrong/wrong.h"

WRONG_CALL(rope_other_pairs, "the pairs are those of the other form",
           g.choice[ROPE_FORM] = f->choice[ROPE_FORM] == ROPE_HALF ? ROPE_INTERLEAVED : ROPE_HALF);

WRONG_CALL(rope_no_offset, "the first step is always at position 0", DIM(&g, 'O') = 0);

WRONG_CALL(rope_from_one, "positions are counted from 1", DIM(&g, 'O') += 1);

WRONG_CALL(rope_width_of_pairs, "the exponent is -i/D, not -2i/D",
           g.real[ROPE_THETA] = (sqrt)(f->real[ROPE_THETA]));

/* y of x. */
static int rotated(const struct call *f, void *x, void *y)
{
    struct call g = *f;
    g.arg[PLACE(rope, x)] = x;
    g.arg[PLACE(rope, y)] = y;
    return right_pass(&g, FORWARD);
}

static int rotates_on(const struct call *f)
{
    return rotated(f, f->grad[PLACE(rope, y)], f->grad[PLACE(rope, x)]);
}
WRONG_PASSES(rope_back_is_forward, "backward rotates by a, not by -a", right_forward, rotates_on);

static int rotates_back(const struct call *f)
{
    struct call g = *f;
    g.grad[PLACE(rope, y)] = f->arg[PLACE(rope, x)];
    g.grad[PLACE(rope, x)] = f->arg[PLACE(rope, y)];
    return right_pass(&g, BACKWARD);
}
WRONG_PASSES(rope_rotates_back, "the sine has the other sign in both passes", rotates_back,
             rotates_on);

/* y is x, rotated by angles of one's own. */
static void rotate(const struct call *f, const num *x, num *y, int direction,
                   real (*angle)(const struct call *f, int64_t t, int64_t h, int64_t i))
{
    const int64_t T = DIM(f, 'T'), H = DIM(f, 'H'), D = DIM(f, 'D');
    const int half = f->choice[ROPE_FORM] == ROPE_HALF;

    for (int64_t row = 0; row < DIM(f, 'B') * T * H; row++)
        for (int64_t i = 0; i < D / 2; i++) {
            const real a = (real)direction * angle(f, row / H % T, row % H, i);
            const real cosine = cos(a), sine = sin(a);
            const int64_t first = row * D + (half ? i : 2 * i), second = first + (half ? D / 2 : 1);
            const real p = load(x[first]), q = load(x[second]);
            y[first] = store(p * cosine - q * sine);
            y[second] = store(p * sine + q * cosine);
        }
}

static double frequency(const struct call *f, int64_t i)
{
    return (pow)(f->real[ROPE_THETA], -2.0 * (double)i / (double)DIM(f, 'D'));
}

/* Both passes with these angles. */
#define WRONG_ANGLES(id, what, angle)                                                              \
    static int id##_run(const struct call *f, enum pass p)                                         \
    {                                                                                              \
        const struct rope *a = p == FORWARD ? ARGS(f, rope) : GRADS(f, rope);                      \
        rotate(f, p == FORWARD ? a->x : a->y, p == FORWARD ? a->y : a->x, p == FORWARD ? 1 : -1,   \
               angle);                                                                             \
        return 0;                                                                                  \
    }                                                                                              \
    WRONG_RUN(id, what)

static real in_float(const struct call *f, int64_t t, int64_t h, int64_t i)
{
    (void)h;
    return (float)(DIM(f, 'O') + t) * (float)frequency(f, i);
}

WRONG_ANGLES(rope_float_angles, "angles are products in float, 0.03 off at 10^6", in_float);

static real of_bf16_position(const struct call *f, int64_t t, int64_t h, int64_t i)
{
    (void)h;
    return (real)((double)from_bf16(to_bf16((float)(DIM(f, 'O') + t))) * frequency(f, i));
}

WRONG_ANGLES(rope_bf16_positions, "positions are in bf16, which has 8 bits", of_bf16_position);

static real of_head(const struct call *f, int64_t t, int64_t h, int64_t i)
{
    (void)t;
    return (real)((double)(DIM(f, 'O') + h) * frequency(f, i));
}

WRONG_ANGLES(rope_heads_for_steps, "the position is the head's, as of [B,H,T,D]", of_head);

WRONG_KERNELS(rope, &rope_other_pairs, &rope_no_offset, &rope_from_one, &rope_width_of_pairs,
              &rope_back_is_forward, &rope_rotates_back, &rope_float_angles, &rope_bf16_positions,
              &rope_heads_for_steps);
