/* silu: y = x sigmoid(x).  Mapping of elements to threads: elementwise.cuh. */
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
static constexpr auto forward = unary_forward<T, VECTOR, silu_value>;
template <typename T, bool VECTOR>
static constexpr auto backward = unary_backward<T, VECTOR, silu_slope>;
ELEMENTWISE_KERNELS(silu, SIGMOID, SIGMOID_UNIT);
