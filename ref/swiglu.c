/* swiglu: y = silu(a) b. */
#include "common/ops/elementwise.h"
#include "ref/ref.h"

static int forward(const struct call *f)
{
    const struct swiglu *p = ARGS(f, swiglu);
    const num *a = p->a, *b = p->b;
    num *y = p->y;
    int64_t n = DIM(f, 'M') * DIM(f, 'D');

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        real ai = load(a[i]);
        y[i] = store(site(SWIGLU_AT_SILU, ai * sigmoid(ai)) * load(b[i]));
    }
    return 0;
}

static int backward(const struct call *f)
{
    const struct swiglu *p = ARGS(f, swiglu), *g = GRADS(f, swiglu);
    const num *a = p->a, *b = p->b, *dy = g->y;
    num *da = g->a, *db = g->b;
    int64_t n = DIM(f, 'M') * DIM(f, 'D');

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++) {
        real ai = load(a[i]), dyi = load(dy[i]), gate = sigmoid(ai);
        db[i] = store(dyi * site(SWIGLU_AT_SILU, ai * gate));
        da[i] = store(site(SWIGLU_AT_SILU, dyi * load(b[i])) * gate * (1 + ai * (1 - gate)));
    }
    return 0;
}

REF_KERNEL(swiglu, "plain", "the formula, element by element", forward, backward);
