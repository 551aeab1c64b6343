/* linear, fused: y = act(x W^T + b) by gemm's kernel wgmma.  Bias and activation are part of its
 * epilogue, so that the forward pass is one kernel.  The backward pass is `product`'s kernel for dz
 * and db, then one launch for dx = dz W and dW = dz^T x. */
#include "gpu/device/math.cuh"
#include "gpu/gemm/gemm_wgmma.cuh"
#include "gpu/gemm/layer.cuh"
#include "gpu/gemm/linear.cuh"

typedef __nv_bfloat16 bf16;

/* The forward product, y (or z) = x W^T; to_x() and to_W() derive dx = dz W and dW = dz^T x from
 * it. */
static gemm_problem<bf16> product_of(const struct call *f)
{
    const struct linear *a = ARGS(f, linear);
    gemm_problem<bf16> p = {};
    p.a = (const bf16 *)a->x;
    p.b = (const bf16 *)a->W;
    p.trans_b = true;
    p.c = (bf16 *)a->y;
    p.M = DIM(f, 'M');
    p.N = DIM(f, 'D');
    p.K = DIM(f, 'C');
    p.batch = 1;
    p.alpha = 1;
    return p;
}

static gemm_problem<bf16> to_x(const gemm_problem<bf16> &p, const struct call *f, const bf16 *dz)
{
    return gemm_to_a(p, dz, (bf16 *)GRADS(f, linear)->x);
}

static gemm_problem<bf16, float> to_W(const gemm_problem<bf16> &p, const struct call *f,
                                      const bf16 *dz)
{
    return gemm_to_b(p, dz, (float *)GRADS(f, linear)->W);
}

template <typename T>
static int forward(const struct call *f)
{
    const struct linear *a = ARGS(f, linear);
    return gemm_wgmma_layer(f->context, product_of(f), f->choice[LINEAR_ACT], (const bf16 *)a->b,
                            (bf16 *)a->z);
}

template <typename T>
static int backward(const struct call *f)
{
    const linear_workspace<bf16> w = linear_workspace_of<bf16>(f);
    const bf16 *dz = f->choice[LINEAR_ACT] == ACT_NONE ? (const bf16 *)GRADS(f, linear)->y : w.dz;
    gemm_problem<bf16> p = product_of(f);

    p.workspace = (float *)w.rest;
    CUDA((cudaError_t)linear_through(f, w));
    return gemm_wgmma_layer_back(f->context, to_x(p, f, dz), to_W(p, f, dz));
}

/* The workspace of dz and the sums, then one that the two products use one after the other. */
static size_t work(const struct call *f, enum pass p)
{
    const gemm_problem<bf16> of = product_of(f);
    return p == FORWARD ? 0
                        : linear_workspace_of<bf16>(f).bytes +
                              max(gemm_wgmma_workspace(f->context, to_x(of, f, NULL)),
                                  gemm_wgmma_workspace(f->context, to_W(of, f, NULL)));
}

static const char *declines(const struct call *f)
{
    const gemm_problem<bf16> p = product_of(f);
    const char *why = gemm_wgmma_declines(f->context, p);
    why = why ? why : gemm_wgmma_declines(f->context, to_x(p, f, NULL));
    return why ? why : gemm_wgmma_declines(f->context, to_W(p, f, NULL));
}

GPU_KERNEL_FOR(bf16, linear_fused, fused,
               .idea = "warpgroup products, bias and act before the sums are stored",
               .pass = {forward<bf16>, backward<bf16>}, .work = work, .declines = declines,
               .approximates = SIGMOID, .unit = SIGMOID_UNIT, .stores = "dz", .cut = CUT_OFF);
