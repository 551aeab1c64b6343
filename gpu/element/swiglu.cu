/* swiglu: y = a sigmoid(a) b.  Mapping of elements to threads: elementwise.cuh. */
#include "gpu/device/math.cuh"
#include "gpu/element/elementwise.cuh"

struct swiglu_value { /* y of a, b */
    enum { IN = 2, OUT = 1 };
    static __device__ void at(const float *in, float *out)
    {
        out[0] = in[0] * sigmoid(in[0]) * in[1];
    }
};

struct swiglu_slope { /* da, db of a, b, dy */
    enum { IN = 3, OUT = 2 };
    static __device__ void at(const float *in, float *out)
    {
        const float a = in[0], b = in[1], dy = in[2], gate = sigmoid(a);
        out[0] = dy * b * gate * (1 + a * (1 - gate));
        out[1] = dy * a * gate;
    }
};

template <typename T, bool VECTOR>
static int forward(const struct call *f)
{
    const struct swiglu *p = ARGS(f, swiglu);
    return each_element<T, VECTOR, swiglu_value>(f->context, {{p->a, p->b}, {p->y}},
                                                 DIM(f, 'M') * DIM(f, 'D'));
}

template <typename T, bool VECTOR>
static int backward(const struct call *f)
{
    const struct swiglu *p = ARGS(f, swiglu), *g = GRADS(f, swiglu);
    return each_element<T, VECTOR, swiglu_slope>(f->context, {{p->a, p->b, g->y}, {g->a, g->b}},
                                                 DIM(f, 'M') * DIM(f, 'D'));
}

ELEMENTWISE_KERNELS(swiglu, SIGMOID, SIGMOID_UNIT);
