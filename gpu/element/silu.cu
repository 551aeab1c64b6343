/* silu: y = x sigmoid(x).  Mapping of elements to threads: elementwise.cuh. */
#include "common/ops/elementwise.h"
#include "gpu/device/math.cuh"
#include "gpu/element/elementwise.cuh"

struct silu_value { /* y of x */
    enum { IN = 1, OUT = 1 };
    static __device__ void at(const float *in, float *out) { out[0] = in[0] * sigmoid(in[0]); }
};

struct silu_slope { /* dx of x, dy */
    enum { IN = 2, OUT = 1 };
    static __device__ void at(const float *in, float *out)
    {
        const float x = in[0], gate = sigmoid(x);
        out[0] = in[1] * gate * (1 + x * (1 - gate));
    }
};

template <typename T, bool VECTOR>
static int forward(const struct call *f)
{
    const struct unary *a = ARGS(f, unary);
    return each_element<T, VECTOR, silu_value>(f->context, {{a->x}, {a->y}},
                                               DIM(f, 'M') * DIM(f, 'D'));
}

template <typename T, bool VECTOR>
static int backward(const struct call *f)
{
    const struct unary *a = ARGS(f, unary), *g = GRADS(f, unary);
    return each_element<T, VECTOR, silu_slope>(f->context, {{a->x, g->y}, {g->x}},
                                               DIM(f, 'M') * DIM(f, 'D'));
}

ELEMENTWISE_KERNELS(silu, SIGMOID, SIGMOID_UNIT);
