/* add: y = a + b.  Mapping of elements to threads: elementwise.cuh. */
#include "gpu/element/elementwise.cuh"

struct add_value { /* y of a, b */
    enum { IN = 2, OUT = 1 };
    static __device__ void at(const float *in, float *out) { out[0] = in[0] + in[1]; }
};

struct add_slope { /* da, db of dy */
    enum { IN = 1, OUT = 2 };
    static __device__ void at(const float *in, float *out) { out[0] = out[1] = in[0]; }
};

template <typename T, bool VECTOR>
static int forward(const struct call *f)
{
    const struct add *p = ARGS(f, add);
    return each_element<T, VECTOR, add_value>(f->context, {{p->a, p->b}, {p->y}},
                                              DIM(f, 'M') * DIM(f, 'D'));
}

template <typename T, bool VECTOR>
static int backward(const struct call *f)
{
    const struct add *g = GRADS(f, add);
    return each_element<T, VECTOR, add_slope>(f->context, {{g->y}, {g->a, g->b}},
                                              DIM(f, 'M') * DIM(f, 'D'));
}

ELEMENTWISE_KERNELS(add, NULL, 0);
