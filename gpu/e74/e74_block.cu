/* e74_block: out = x + linear(e74(rmsnorm(x))), computed by the kernels of these operations that
 * accept the case, in sequence, and by a kernel that adds, with one thread per element. */
#include "gpu/gpu.cuh"

#include "common/ops/e74_block.h"

enum { BLOCK = 256 };

template <typename T>
__global__ void add_kernel(T *to, const T *a, const T *b, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < n)
        store(to + i, load(a + i) + load(b + i));
}

template <typename T>
static int add_all(void *to, const void *a, const void *b, int64_t n)
{
    add_kernel<<<ceil_div(n, BLOCK), BLOCK, 0, gpu_stream()>>>((T *)to, (const T *)a, (const T *)b,
                                                               n);
    return cudaGetLastError();
}

extern "C" const struct impl *const gpu32_rmsnorm[], *const gpu32_e74[], *const gpu32_linear[];
extern "C" const struct impl *const gpu16_rmsnorm[], *const gpu16_e74[], *const gpu16_linear[];

template <typename T>
static const struct e74_block_with &with(void);

template <>
const struct e74_block_with &with<float>(void)
{
    static const struct e74_block_with w = {gpu32_rmsnorm, gpu32_e74, gpu32_linear, add_all<float>,
                                            sizeof(float)};
    return w;
}

template <>
const struct e74_block_with &with<__nv_bfloat16>(void)
{
    static const struct e74_block_with w = {gpu16_rmsnorm, gpu16_e74, gpu16_linear,
                                            add_all<__nv_bfloat16>, sizeof(__nv_bfloat16)};
    return w;
}

template <typename T>
static int forward(const struct frame *f)
{
    return e74_block_forward(f, &with<T>());
}

template <typename T>
static int backward(const struct frame *f)
{
    return e74_block_backward(f, &with<T>());
}

template <typename T>
static size_t work(const struct frame *f, enum pass p)
{
    return e74_block_work(f, p, &with<T>());
}

template <typename T>
static const char *declines(const struct frame *f)
{
    return e74_block_declines(f, &with<T>());
}

/* The choice of e74's kernel depends on the sizes, including T.  It is the same for all sequences
 * of at least CHUNK steps, and the chunk of that kernel is not longer than CHUNK. */
enum { CHUNK = 2048 };

template <typename T>
static const struct impl *link(const struct frame *f)
{
    const struct e74_block_workspace w = {NULL, NULL, NULL, NULL, NULL};
    const struct frame layer = e74_block_layer(f, &w);
    return impl_choose(with<T>().layer, NULL, &layer).kernel;
}

static const char idea[] = "the kernels of rmsnorm, e74 and linear in sequence";

static const struct impl chain32 = {
    "chain", idea,       {forward<float>, backward<float>}, work<float>, declines<float>, NULL, 0,
    CHUNK,   link<float>};
static const struct impl chain16 = {"chain",
                                    idea,
                                    {forward<__nv_bfloat16>, backward<__nv_bfloat16>},
                                    work<__nv_bfloat16>,
                                    declines<__nv_bfloat16>,
                                    NULL,
                                    0,
                                    CHUNK,
                                    link<__nv_bfloat16>};
GPU_KERNEL_LIST(e74_block, 32, &chain32);
GPU_KERNEL_LIST(e74_block, 16, &chain16);
