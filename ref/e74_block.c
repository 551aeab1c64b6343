/* e74_block, plainly: the references of rmsnorm, e74 and linear, one after the other. */
#include "ref/ref.h"

#include "common/ops/e74_block.h"

extern const struct impl *const REF(rmsnorm)[], *const REF(e74)[], *const REF(linear)[];

static int add_all(void *to, const void *a, const void *b, int64_t n)
{
    const num *x = a, *y = b;
    num *sum = to;

    #pragma omp parallel for
    for (int64_t i = 0; i < n; i++)
        sum[i] = store(load(x[i]) + load(y[i]));
    return 0;
}

static const struct e74_block_with with = {REF(rmsnorm), REF(e74), REF(linear), add_all,
                                           sizeof(num)};

static int forward(const struct frame *f)
{
    return e74_block_forward(f, &with);
}

static int backward(const struct frame *f)
{
    return e74_block_backward(f, &with);
}

static size_t work(const struct frame *f, enum pass p)
{
    return e74_block_work(f, p, &with);
}

static const char *declines(const struct frame *f)
{
    return e74_block_declines(f, &with);
}

static const struct impl chain = {
    .name = "chain",
    .idea = "rmsnorm, e74 and linear, one after the other",
    .pass = {forward, backward},
    .work = work,
    .declines = declines,
};
const struct impl *const REF(e74_block)[] = {&chain, NULL};
