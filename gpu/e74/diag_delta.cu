/* diag_delta: s_t = tanh((1 - k_t^2) s_{t-1} + k_t v_t), y_t = q_t s_t, elementwise over B x N,
 * and its gradients.  One thread per (sequence, element) loops over the steps. */
#include "common/ops/diag_delta.h"
#include "gpu/gpu.cuh"

enum { BLOCK = 128 };

/* One thread per element of the state; neighbouring threads load neighbouring n, so that
 * the loads of a step are coalesced. */
template <typename T>
__global__ void forward_kernel(struct diag_delta a, int64_t steps, int64_t N, int64_t cells)
{
    const T *k = (const T *)a.k, *v = (const T *)a.v, *q = (const T *)a.q;
    float *s = (float *)a.s;
    int64_t cell = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (cell >= cells)
        return;
    int64_t i = cell / N * steps * N + cell % N;
    float state = ((const float *)a.s0)[cell];
    for (int64_t t = 0; t < steps; t++, i += N) {
        float kt = load(k + i);
        state = tanhf((1 - kt * kt) * state + kt * load(v + i));
        s[i] = state;
        store((T *)a.y + i, load(q + i) * state);
    }
}

/* g: dy, and the gradients to be stored. */
template <typename T>
__global__ void backward_kernel(struct diag_delta a, struct diag_delta g, int64_t steps, int64_t N,
                                int64_t cells)
{
    const T *k = (const T *)a.k, *v = (const T *)a.v, *q = (const T *)a.q, *dy = (const T *)g.y;
    const float *s = (const float *)a.s;
    int64_t cell = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (cell >= cells)
        return;
    int64_t i = cell / N * steps * N + cell % N + (steps - 1) * N;
    float ds = 0;
    for (int64_t t = steps - 1; t >= 0; t--, i -= N) {
        float before = t > 0 ? s[i - N] : ((const float *)a.s0)[cell];
        float kt = load(k + i), dyt = load(dy + i);
        store((T *)g.q + i, dyt * s[i]);
        ds += dyt * load(q + i);
        float da = ds * (1 - s[i] * s[i]);
        store((T *)g.v + i, da * kt);
        store((T *)g.k + i, da * (load(v + i) - 2 * kt * before));
        ds = da * (1 - kt * kt);
    }
    ((float *)g.s0)[cell] = ds;
}

template <typename T>
static int forward(const struct call *f)
{
    int64_t N = DIM(f, 'N'), cells = DIM(f, 'B') * N;
    forward_kernel<T><<<ceil_div(cells, BLOCK), BLOCK, 0, gpu_stream(f)>>>(*ARGS(f, diag_delta),
                                                                           DIM(f, 'T'), N, cells);
    return cudaGetLastError();
}

template <typename T>
static int backward(const struct call *f)
{
    int64_t N = DIM(f, 'N'), cells = DIM(f, 'B') * N;
    backward_kernel<T><<<ceil_div(cells, BLOCK), BLOCK, 0, gpu_stream(f)>>>(
        *ARGS(f, diag_delta), *GRADS(f, diag_delta), DIM(f, 'T'), N, cells);
    return cudaGetLastError();
}

GPU_KERNEL(plain, .idea = "one thread per element, all steps", .pass = {forward<T>, backward<T>});
GPU_KERNELS(diag_delta, IN_TYPES(plain));
