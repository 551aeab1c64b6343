/* stencil2d: the mean of (2R+1) x (2R+1) neighbours in an image, with zeros outside. */
#include "common/ops/stencil2d.h"
#include "ref/ref.h"

/* Rows top ... bottom and columns left ... right of an image. */
struct window {
    int64_t top, bottom, left, right;
};

static struct window window_of(int64_t i, int64_t j, int64_t H, int64_t W, int64_t R)
{
    return (struct window){i > R ? i - R : 0, i + R < H ? i + R : H - 1, j > R ? j - R : 0,
                           j + R < W ? j + R : W - 1};
}

/* One element after the other. */
static real sum_in_order(const num *x, int64_t W, const struct window *w)
{
    const int64_t wide = w->right - w->left + 1;
    real sum = 0;

    FOR_SUM (n, (w->bottom - w->top + 1) * wide)
        add_to(sum, load(x[(w->top + n / wide) * W + w->left + n % wide]));
    return sum;
}

/* Row i of the image x [H,W]: sum over rows i-R ... i+R into `down` [W], and of that over columns
 * j-R ... j+R into y [W]. */
static void mean_row(const num *x, num *y, int64_t i, int64_t H, int64_t W, int64_t R, real *down)
{
    const struct window rows = window_of(i, 0, H, W, R);

    for (int64_t j = 0; j < W; j++)
        down[j] = 0;
    for (int64_t k = rows.top; k <= rows.bottom; k++)
        for (int64_t j = 0; j < W; j++)
            down[j] += load(x[k * W + j]);
    for (int64_t j = 0; j < W; j++) {
        const struct window w = window_of(i, j, H, W, R);
        real sum = 0;
        for (int64_t l = w.left; l <= w.right; l++)
            sum += down[l];
        if (REF(noise).order != AS_BUILT)
            sum = sum_in_order(x, W, &w);
        y[j] = store(sum / constant((real)(2 * R + 1) * (2 * R + 1)));
    }
}

static void means(const struct call *f, const num *x, num *y)
{
    int64_t B = DIM(f, 'B'), H = DIM(f, 'H'), W = DIM(f, 'W'), R = DIM(f, 'R');
    real *down = f->work; /* [B,H,W] */

    #pragma omp parallel for collapse(2)
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = 0; i < H; i++)
            mean_row(x + b * H * W, y + (b * H + i) * W, i, H, W, R, down + (b * H + i) * W);
}

static int forward(const struct call *f)
{
    const struct stencil2d *a = ARGS(f, stencil2d);
    means(f, a->x, a->y);
    return 0;
}

static int backward(const struct call *f)
{
    const struct stencil2d *g = GRADS(f, stencil2d);
    means(f, g->y, g->x);
    return 0;
}

static size_t work(const struct call *f, enum pass p)
{
    (void)p;
    return sizeof(real) * DIM(f, 'B') * DIM(f, 'H') * DIM(f, 'W');
}

REF_KERNEL(stencil2d, "plain", "sums down the columns, then along the rows", forward, backward,
           .work = work);
