/* e74, plainly: the projections as products over all T*B rows of x at once, the gate act(z),
 * then e74_cell; backward in the opposite order. */
#include "ref/e74_gate.h"

/* One projection p = x W^T, and the gradients of W and p. */
struct projection {
    const num *W;
    num *p;
    real *dW;
    num *dp;
};

/* The projections that this case has, k first; returns how many. */
static int projections(const struct e74 *a, const struct e74 *g, num *const dp[4],
                       struct projection list[4])
{
    struct projection all[4] = {{a->W_k, a->k, g->W_k, dp[0]},
                                {a->W_v, a->v, g->W_v, dp[1]},
                                {a->W_q, a->q, g->W_q, dp[2]},
                                {a->W_z, a->z, g->W_z, dp[3]}};
    int n = 0;
    for (int i = 0; i < 4; i++)
        if (all[i].W)
            list[n++] = all[i];
    return n;
}

/* The cell's call within the layer's f, on the reference of the cell. */
static struct call cell_within(const struct call *f, void *const dp[4], void *work)
{
    struct call c = e74_cell_call(f, dp, work);
    c.kernel = impl_choose(&c, NULL).kernel;
    return c;
}

static int64_t rows(const struct call *f)
{
    return DIM(f, 'T') * DIM(f, 'B');
}

/* Bytes of the gradients of k, v, q and z, rounded up so that the array after them is aligned. */
static size_t dp_bytes(const struct call *f)
{
    return (4 * rows(f) * DIM(f, 'P') * sizeof(num) + 63) / 64 * 64;
}

static int forward(const struct call *f)
{
    const struct e74 *a = ARGS(f, e74), *g = GRADS(f, e74);
    int64_t M = rows(f), P = DIM(f, 'P'), D = DIM(f, 'D');
    real *work = f->work;
    const real *x = widened(a->x, M * D, &work);
    num *none[4] = {NULL};
    struct projection list[4];
    int n = projections(a, g, none, list);

    for (int i = 0; i < n; i++) {
        real *at = work;
        const real *W = widened(list[i].W, P * D, &at);
        real *p = to_fill(list[i].p, M * P, &at);
        product(matrix(x, M, D), transposed(matrix(W, P, D)), 0, p, P);
        if (list[i].p == a->z) {
            #pragma omp parallel for
            for (int64_t m = 0; m < M; m++)
                for (int64_t j = 0; j < P; j++)
                    p[m * P + j] += load(((const num *)a->b_z)[j]);
        }
        filled(list[i].p, p, M * P);
    }
    if (a->gate)
        e74_make_gate(f, M * P);
    struct call c = cell_within(f, NULL, work);
    return call_pass(&c, FORWARD);
}

static int backward(const struct call *f)
{
    const struct e74 *a = ARGS(f, e74), *g = GRADS(f, e74);
    int64_t M = rows(f), P = DIM(f, 'P'), D = DIM(f, 'D');
    num *dp[4];
    struct projection list[4];

    for (int i = 0; i < 4; i++)
        dp[i] = (num *)f->work + i * M * P;
    real *work = (real *)((char *)f->work + dp_bytes(f));
    struct call c = cell_within(f, (void *[]){dp[0], dp[1], dp[2], dp[3]}, work);
    int e = call_pass(&c, BACKWARD);
    if (e)
        return e;
    if (a->gate)
        e74_back_through_gate(f, dp[3], M * P);

    const real *x = widened(a->x, M * D, &work);
    real *dx = to_fill(g->x, M * D, &work);
    int n = projections(a, g, dp, list);
    for (int i = 0; i < n; i++) {
        real *at = work;
        const real *W = widened(list[i].W, P * D, &at);
        const real *dpi = widened(list[i].dp, M * P, &at);
        /* dW = dp^T x, dx += dp W */
        product(transposed(matrix(dpi, M, P)), matrix(x, M, D), 0, list[i].dW, D);
        product(matrix(dpi, M, P), matrix(W, P, D), i > 0, dx, D);
    }
    filled(g->x, dx, M * D);
    if (g->b_z) {
        #pragma omp parallel for
        for (int64_t j = 0; j < P; j++) {
            real sum = 0;
            FOR_SUM (m, M)
                add_to(sum, load(dp[3][m * P + j]));
            ((real *)g->b_z)[j] = sum;
        }
    }
    return 0;
}

/* Copies for the products and the cell's own workspace are not needed at the
 * same time. */
static size_t work(const struct call *f, enum pass p)
{
    int64_t M = rows(f), P = DIM(f, 'P'), D = DIM(f, 'D');
    struct call c = cell_within(f, NULL, NULL);
    size_t cell = op_work(&c, p);
    size_t copies = COPIES * sizeof(real) * ((p == FORWARD ? 1 : 2) * M * D + P * D + M * P);
    if (p == FORWARD)
        return COPIES * sizeof(real) * M * D + (cell > copies ? cell : copies);
    return dp_bytes(f) + (cell > copies ? cell : copies);
}

static const char *declines(const struct call *f)
{
    return too_long_for_blas(rows(f), DIM(f, 'P'));
}

REF_KERNEL(e74, "blas", "CBLAS products, then e74_cell plainly", forward, backward, .work = work,
           .declines = declines);
