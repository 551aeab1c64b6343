/* rope: each pair of a head's elements is rotated by the angle of its step. */
#include "common/ops/rope.h"
#include "ref/ref.h"

/* y is x rotated, or where direction is -1 rotated back. */
static void rotate(const struct call *f, const num *x, num *y, int direction)
{
    int64_t B = DIM(f, 'B'), T = DIM(f, 'T'), H = DIM(f, 'H'), D = DIM(f, 'D');
    int64_t offset = DIM(f, 'O');
    int half = f->choice[ROPE_FORM] == ROPE_HALF;
    double theta = f->real[ROPE_THETA];

    #pragma omp parallel for collapse(2)
    for (int64_t t = 0; t < T; t++) {
        for (int64_t i = 0; i < D / 2; i++) {
            double angle = direction * (double)(offset + t) * pow(theta, -2.0 * i / D);
            real cosine = cos(angle), sine = sin(angle);
            int64_t first = half ? i : 2 * i, second = half ? i + D / 2 : 2 * i + 1;

            for (int64_t b = 0; b < B; b++) {
                for (int64_t h = 0; h < H; h++) {
                    int64_t head = ((b * T + t) * H + h) * D;
                    real p = load(x[head + first]), q = load(x[head + second]);
                    y[head + first] = store(p * cosine - q * sine);
                    y[head + second] = store(p * sine + q * cosine);
                }
            }
        }
    }
}

static int forward(const struct call *f)
{
    const struct rope *a = ARGS(f, rope);
    rotate(f, a->x, a->y, 1);
    return 0;
}

static int backward(const struct call *f)
{
    const struct rope *g = GRADS(f, rope);
    rotate(f, g->y, g->x, -1);
    return 0;
}

REF_KERNEL(rope, "plain", "one angle after the other, for all sequences and heads", forward,
           backward);
